/* SPDX-License-Identifier: Apache-2.0 */
/* The schedule verifier: runs all checks in sequence. */
#include "schedule/verifier/verifier.h"

#include "schedule/pipeline/accessors.h"

#include <longhaul/experimental/check.h>

#include <inttypes.h>

/* Concatenates all devices' passes into one array, judge->passes. A
 * pass's index in it identifies the pass and is called node. */
static lh_status concatenate_orders(lhi_verifier *judge, lh_error *err)
{
    const lh_schedule *s = judge->schedule;
    judge->n_rows = lh_schedule_n_devices(s);
    judge->first = LHI_NEW(judge->mem, uint32_t, (size_t)judge->n_rows + 1);
    if (!judge->first)
        return lhi_fail_nomem(err);
    uint64_t total = 0;
    for (uint32_t d = 0; d < judge->n_rows; d++) {
        uint32_t count;
        judge->first[d] = (uint32_t)total;
        lh_schedule_order(s, d, &count);
        total += count;
        if (total >= LHI_NO_LINK)
            return lhi_fail(err, LH_EINPUT,
                            "the schedule has more than 2^32 - 3 passes");
    }
    judge->first[judge->n_rows] = (uint32_t)total;
    judge->passes = LHI_NEW(judge->mem, lh_pass, total);
    judge->rows = LHI_NEW(judge->mem, uint32_t, total);
    if (!judge->passes || !judge->rows)
        return lhi_fail_nomem(err);
    for (uint32_t d = 0; d < judge->n_rows; d++) {
        uint32_t count;
        const lh_pass *order = lh_schedule_order(s, d, &count);
        for (uint32_t i = 0; i < count; i++) {
            judge->passes[judge->first[d] + i] = order[i];
            judge->rows[judge->first[d] + i] = d;
        }
    }
    return LH_OK;
}

/* Runs all checks of a schedule and adds the violations found. Timing is only
 * checked if passes, links and communication cells have no violation. `buffers`
 * as for lh_check_buffered(). */
static lh_status run_all_checks(lhi_verifier *judge, uint32_t buffers,
                                lh_error *err)
{
    lh_verdict *v = judge->verdict;
    v->n_devices = judge->n_devices;
    v->makespan_ns = -1;
    v->peaks = LHI_NEW(v->mem, int64_t, judge->n_devices);
    if (!v->peaks)
        return lhi_fail_nomem(err);
    LHI_TRY(concatenate_orders(judge, err));
    if (judge->n_rows != judge->n_devices)
        lhi_verify_add_violation(
            judge,
            "the schedule has %" PRIu32 " row%s, but the pipeline "
            "has %" PRIu32 " device%s",
            judge->n_rows, judge->n_rows == 1 ? "" : "s", judge->n_devices,
            judge->n_devices == 1 ? "" : "s");
    LHI_TRY(lhi_verify_find_links(judge, err));
    LHI_TRY(lhi_verify_check_passes(judge, err));
    LHI_TRY(lhi_verify_check_links(judge, err));
    LHI_TRY(lhi_verify_check_communication(judge, buffers, err));
    bool can_run = v->total == 0;
    lhi_verify_check_memory(judge);
    if (can_run)
        LHI_TRY(lhi_verify_check_timing(judge, err));
    return judge->no_memory ? lhi_fail_nomem(err) : LH_OK;
}

lh_status lh_check(const lh_pipeline *pipeline, const lh_schedule *schedule,
                   lh_verdict **out, lh_error *err)
{
    return lh_check_buffered(pipeline, schedule, 0, out, err);
}

lh_status lh_check_buffered(const lh_pipeline *pipeline,
                            const lh_schedule *schedule, uint32_t buffers,
                            lh_verdict **out, lh_error *err)
{
    lhi_verifier judge = {
        .pipeline = pipeline,
        .schedule = schedule,
        .n_devices = lh_pipeline_n_devices(pipeline),
        .n_chunks = lh_pipeline_n_chunks(pipeline),
        .path_length = lhi_pipeline_count_model_chunks(pipeline),
        .n_microbatches = lh_pipeline_n_microbatches(pipeline),
        .mem = lhi_arena_make(0),
    };
    lhi_arena *kept = lhi_arena_make(0);
    lh_status status = LH_OK;
    if (judge.mem && kept)
        judge.verdict = LHI_NEW(kept, lh_verdict, 1);
    if (judge.verdict) {
        judge.verdict->mem = kept;
        status = run_all_checks(&judge, buffers, err);
    } else {
        status = lhi_fail_nomem(err);
    }
    lhi_arena_free(judge.mem);
    if (status != LH_OK) {
        lhi_arena_free(kept);
        return status;
    }
    *out = judge.verdict;
    return LH_OK;
}
