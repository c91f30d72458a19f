/* SPDX-License-Identifier: Apache-2.0 */
/* JSON output for `longhaul compare`. */
#include "base/fail.h"
#include "format/document/schema.h"
#include "report/json/json_parts.h"

#include <longhaul/experimental/json_output.h>

#include <stdlib.h>

/* Adds makespan, memory and bubble ratio for a contender that did not fail to
 * its JSON object `row`; false: out of memory. */
static bool add_numbers(json_t *row, const lh_comparison *x,
                        const lh_compare_base *base, const lh_outcome *o)
{
    bool ok = lhi_json_set(row, "objective_s", lhi_json_seconds(o->ns));
    if (x->iterations)
        ok = ok &&
             lhi_json_set(row, "iteration_s",
                          lhi_json_seconds(o->makespan_ns + base->after_ns));
    ok = ok && lhi_json_set(row, "bubble_ratio", json_real(o->bubble_ratio));
    json_t *peaks = json_array();
    for (uint32_t d = 0; peaks && d < lh_pipeline_n_devices(base->pipeline);
         d++)
        peaks = lhi_json_append(peaks, json_integer(o->peaks[d]));
    ok = lhi_json_set(row, "peak_memory", peaks) && ok;
    if (o->jitter.samples)
        ok = ok && lhi_json_set(row, "jitter", lhi_json_jitter(&o->jitter));
    return ok;
}

/* Builds the JSON object for contender `contender` (a pipeline with a method)
 * at one sweep point (indices of latency and transfer time); NULL on allocation
 * failure. */
static json_t *make_row_json(const lh_comparison *x, uint32_t latency,
                             uint32_t transfer, uint32_t contender)
{
    const lh_outcome *o = lh_comparison_at(x, latency, transfer, contender);
    const lh_contender *entry = &x->contenders[contender];
    const lh_compare_base *base = &x->bases[entry->base];
    json_t *row = json_pack(
        "{s:s, s:s, s:s, s:o, s:o}", "method", entry->method, "pipeline",
        base->name, "status", lh_outcome_status_name(o), "makespan_s",
        o->status == LH_OK ? lhi_json_seconds(o->makespan_ns) : json_null(),
        "lower_bound_s", lhi_json_seconds(o->bound_ns));
    bool ok = row != NULL;
    if (ok && o->latency_ns >= 0)
        ok = lhi_json_set(row, "latency_s", lhi_json_seconds(o->latency_ns));
    if (ok && o->transfer_ns >= 0)
        ok = lhi_json_set(row, "transfer_s", lhi_json_seconds(o->transfer_ns));
    if (ok)
        ok = o->status == LH_OK ? add_numbers(row, x, base, o)
                                : lhi_json_set(row, "why", json_string(o->why));
    return lhi_json_finish(row, ok);
}

lh_status lh_comparison_format(const lh_comparison *x, char **text, size_t *len,
                               lh_error *err)
{
    uint32_t *ranking = calloc(x->n_contenders + (size_t)1, sizeof *ranking);
    if (!ranking)
        return lhi_fail_nomem(err);
    json_t *rows = json_array();
    for (uint32_t t = 0; t < x->n_transfers; t++)
        for (uint32_t l = 0; l < x->n_latencies; l++) {
            lh_comparison_rank(x, l, t, ranking);
            for (uint32_t i = 0; rows && i < x->n_contenders; i++)
                rows =
                    lhi_json_append(rows, make_row_json(x, l, t, ranking[i]));
        }
    free(ranking);
    return lhi_json_format_indented(json_pack("{s:o}", "rows", rows), 2, text,
                                    len, err);
}
