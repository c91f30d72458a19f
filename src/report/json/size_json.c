/* SPDX-License-Identifier: Apache-2.0 */
/* JSON output for `longhaul size`; docs/sizing.md documents the keys. */
#include "format/document/schema.h"
#include "planner/file/plan_file.h"
#include "report/json/json_parts.h"

#include <longhaul/experimental/json_output.h>

#include <math.h>

/* Seconds per day. */
#define DAY_S 86400.0

/* Builds a JSON number; null if x is negative (unknown) or infinite. */
static json_t *known_json(double x)
{
    return x < 0 || !isfinite(x) ? json_null() : json_real(x);
}

/* Builds a JSON number; null if x is 0 (not requested or unknown). */
static json_t *positive_json(double x)
{
    return x > 0 ? json_real(x) : json_null();
}

/* Builds the JSON list of the datacenters that a size (number of nodes per
 * datacenter) uses: GPU type, nodes and GPUs per node of each. */
static json_t *nodes_json(const lh_job *job, const lh_size *size)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < job->n_datacenters; i++) {
        const lh_datacenter *site = &job->datacenters[i];
        if (size->nodes[i])
            list = lhi_json_append(
                list, json_pack("{s:s, s:s, s:I, s:I}", "datacenter",
                                site->name, "gpu", site->gpu.name, "nodes",
                                (json_int_t)size->nodes[i], "gpus_per_node",
                                (json_int_t)site->gpus_per_node));
    }
    return list;
}

/* Builds the JSON list that shows, for the loss of some nodes of each
 * datacenter, the iteration and training time with the remaining nodes, and
 * whether they meet the deadline. */
static json_t *losses_json(const lh_job *job, const lh_size *size)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < size->n_losses; i++) {
        const lh_size_loss *x = &size->losses[i];
        list = lhi_json_append(
            list, json_pack("{s:s, s:I, s:o, s:o, s:o, s:b}", "datacenter",
                            job->datacenters[x->datacenter].name, "nodes",
                            (json_int_t)x->nodes, "iteration_s",
                            known_json(x->iteration_s), "train_s",
                            known_json(x->train_s), "usd", known_json(x->usd),
                            "meets_deadline", x->meets_deadline));
    }
    return list;
}

/* Builds the JSON object with a layout's parallel degrees and microbatch
 * size. */
static json_t *layout_json(const lh_layout *l)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "tensor",
                     (json_int_t)l->tensor, "context", (json_int_t)l->context,
                     "expert", (json_int_t)l->expert, "pipeline",
                     (json_int_t)l->pipeline, "data", (json_int_t)l->data,
                     "micro_batch", (json_int_t)l->micro_batch);
}

/* Builds the JSON object with a size's goodput: the share of its throughput
 * that remains despite failures, the factors of that share, the checkpoint
 * interval, and missing nodes. */
static json_t *goodput_json(const lh_size *size)
{
    const lh_goodput *g = &size->goodput;
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:o}", "fraction",
                     g->fraction, "tokens_per_s",
                     size->tokens_per_s * g->fraction, "progress", g->progress,
                     "speed", g->speed, "failures_per_day",
                     g->failures_per_s * DAY_S, "checkpoint_interval_s",
                     g->interval_s, "missing_nodes", g->missing,
                     "node_loss_iteration_s", known_json(size->node_loss_s));
}

/* Builds the JSON object of one size (number of nodes per datacenter): its
 * GPUs, layout, iteration and training time, goodput, costs, accuracy and
 * losses of nodes. */
static json_t *size_json(const lh_job *job, const lh_size *size)
{
    return json_pack(
        "{s:I, s:I, s:b, s:o, s:o, s:f, s:f, s:o, s:o, s:o, s:o, s:o, s:o, "
        "s:o}",
        "gpus", (json_int_t)size->gpus, "spare_gpus",
        (json_int_t)size->spare_gpus, "spot", size->spot, "datacenters",
        nodes_json(job, size), "layout", layout_json(&size->layout),
        "iteration_s", (double)size->iteration_ns / 1e9, "tokens_per_s",
        size->tokens_per_s, "goodput", goodput_json(size), "train_s",
        known_json(size->train_s), "usd", known_json(size->usd), "gpus_usd",
        known_json(size->gpus_usd), "between_usd",
        known_json(size->between_usd), "accuracy",
        size->accuracy ? lhi_accuracy_to_json(size->accuracy) : json_null(),
        "losses", losses_json(job, size));
}

lh_status lh_size_result_format(const lh_job *job,
                                const lh_size_options *options,
                                const lh_size_result *r, char **text,
                                size_t *len, lh_error *err)
{
    json_t *j = json_pack(
        "{s:f, s:o, s:o, s:b, s:f, s:I, s:b, s:b, s:o, s:o, s:o}", "tokens",
        options->tokens, "deadline_s", positive_json(options->deadline_s),
        "budget_usd", positive_json(options->budget_usd), "found",
        r->n_found > 0, "sizes", r->n_sizes, "planned",
        (json_int_t)r->n_planned, "all_planned", r->all_planned, "interrupted",
        r->interrupted, "gpus_bound",
        r->gpus_bound ? json_integer(r->gpus_bound) : json_null(), "usd_bound",
        positive_json(r->usd_bound), "train_bound_s",
        positive_json(r->train_bound_s));
    bool ok = j != NULL;
    if (r->n_found) {
        ok = ok && lhi_json_set(j, "fewest", size_json(job, &r->fewest));
        ok = ok && lhi_json_set(j, "cheapest", size_json(job, &r->cheapest));
    }
    if (r->n_found)
        ok = ok && lhi_json_set(j, "knee",
                                r->knee.gpus ? size_json(job, &r->knee)
                                             : json_null());
    if (!r->n_found || options->budget_usd > 0)
        ok = ok && lhi_json_set(j, "fastest", size_json(job, &r->fastest));
    return lhi_json_format_indented(lhi_json_finish(j, ok), 2, text, len, err);
}
