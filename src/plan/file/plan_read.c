/* SPDX-License-Identifier: Apache-2.0 */
/* Plans read back. */
#include "plan/plan_own.h"

#include "base/text.h"
#include "pipe/file/pipe_file.h"
#include "pipe/schedule_own.h"
#include "spec/spec.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *const placement_names[] = {"irregular", "ud", "loop", "wave",
                                              NULL};

typedef struct reader {
    const lhi_doc *doc;
    lhi_plan *plan;
} reader;

static lh_status get_string(const reader *r, const lhi_node *map,
                            const char *key, const char **out, lh_error *err)
{
    const lhi_node *node;
    LHI_TRY(lhi_need(r->doc, map, key, &node, err));
    if (node->kind != LHI_SCALAR)
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT, "must be a text");
    *out = lhi_arena_strdup(r->plan->mem, node->text);
    return *out ? LH_OK : lhi_fail_nomem(err);
}

static lh_status get_u32(const reader *r, const lhi_node *map, const char *key,
                         uint32_t *out, lh_error *err)
{
    const lhi_node *node;
    LHI_TRY(lhi_need(r->doc, map, key, &node, err));
    return lhi_get_u32(r->doc, node, 0, UINT32_MAX, out, err);
}

static lh_status get_int(const reader *r, const lhi_node *map, const char *key,
                         int64_t *out, lh_error *err)
{
    const lhi_node *node;
    LHI_TRY(lhi_need(r->doc, map, key, &node, err));
    return lhi_get_int(r->doc, node, INT64_MIN, INT64_MAX, out, err);
}

static lh_status get_real(const reader *r, const lhi_node *map, const char *key,
                          double *out, lh_error *err)
{
    const lhi_node *node;
    LHI_TRY(lhi_need(r->doc, map, key, &node, err));
    return lhi_get_number(r->doc, node, -1e300, 1e300, out, err);
}

static lh_status get_choice(const reader *r, const lhi_node *map,
                            const char *key, const char *const *names,
                            uint32_t *out, lh_error *err)
{
    const lhi_node *node;
    LHI_TRY(lhi_need(r->doc, map, key, &node, err));
    return lhi_get_choice(r->doc, node, names, out, err);
}

static lh_status read_layout(const reader *r, const lhi_node *map,
                             lh_layout *out, lh_error *err)
{
    static const char *const keys[] = {LHI_LAYOUT_KEYS, NULL};
    const lhi_node *sites = lhi_find(map, "sites");
    uint32_t *const values[] = {
        &out->tensor, &out->context,     &out->expert,           &out->pipeline,
        &out->data,   &out->micro_batch, &out->chunks_per_device};
    uint32_t outermost, sharding;
    LHI_TRY(lhi_known_keys(r->doc, map, keys, err));
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        const lhi_node *node;
        LHI_TRY(lhi_need(r->doc, map, keys[i], &node, err));
        LHI_TRY(lhi_get_u32(r->doc, node, 1, LH_MAX_GPUS, values[i], err));
    }
    LHI_TRY(
        get_choice(r, map, "outermost", lhi_outermost_names, &outermost, err));
    out->outermost = (lh_outermost)(outermost + 1);
    if (lhi_find(map, "sharding")) {
        LHI_TRY(
            get_choice(r, map, "sharding", lhi_sharding_names, &sharding, err));
        out->sharding = (lh_sharding)(sharding + 1);
    }
    if (lhi_find(map, "schedule"))
        LHI_TRY(get_string(r, map, "schedule", &out->schedule, err));
    if (sites)
        return lhi_sites_from_node(r->doc, sites, r->plan->job, true,
                                   r->plan->mem, out, err);
    return LH_OK;
}

static lh_status read_groups(const reader *r, const lhi_node *map,
                             const char *key, const uint32_t **out, uint32_t *n,
                             lh_error *err)
{
    const lhi_node *list;
    LHI_TRY(lhi_need(r->doc, map, key, &list, err));
    LHI_TRY(lhi_want_list(r->doc, list, err));
    uint32_t *groups = LHI_NEW(r->plan->mem, uint32_t, list->n_items);
    if (!groups)
        return lhi_fail_nomem(err);
    if (list->n_items == 0)
        return lhi_doc_fail(r->doc, list, err, LH_EINPUT,
                            "must hold at least one group");
    for (const lhi_node *node = list->first; node; node = node->next)
        LHI_TRY(lhi_get_u32(r->doc, node, 1, LH_MAX_MICROBATCHES,
                            &groups[node->index], err));
    *out = groups;
    *n = list->n_items;
    return LH_OK;
}

static lh_status get_share(const reader *r, const lhi_node *map,
                           const char *key, double *out, lh_error *err)
{
    const lhi_node *node;
    LHI_TRY(lhi_need(r->doc, map, key, &node, err));
    return lhi_get_number(r->doc, node, 0, 1, out, err);
}

static lh_status read_recomputed(const reader *r, const lhi_node *map,
                                 lh_plan_elastic *e, lh_error *err)
{
    static const char *const keys[] = {"operation", "first", "last", NULL};
    const lhi_node *list;
    LHI_TRY(lhi_need(r->doc, map, "recomputed", &list, err));
    LHI_TRY(lhi_want_list(r->doc, list, err));
    lh_plan_recomputed *all =
        LHI_NEW(r->plan->mem, lh_plan_recomputed, list->n_items);
    if (!all)
        return lhi_fail_nomem(err);
    for (const lhi_node *node = list->first; node; node = node->next) {
        lh_plan_recomputed *one = &all[node->index];
        LHI_TRY(lhi_known_keys(r->doc, node, keys, err));
        LHI_TRY(get_string(r, node, "operation", &one->operation, err));
        LHI_TRY(get_share(r, node, "first", &one->first, err));
        LHI_TRY(get_share(r, node, "last", &one->last, err));
    }
    e->recomputed = all;
    e->n_recomputed = list->n_items;
    return LH_OK;
}

static lh_status read_elastic(const reader *r, const lhi_node *map,
                              const lh_plan_elastic **out, lh_error *err)
{
    static const char *const keys[] = {"enqueue",    "dequeue", "gradients",
                                       "parameters", "buckets", "recomputed",
                                       NULL};
    static const char *const buckets[] = {"scatter", "forward", "backward",
                                          NULL};
    const lhi_node *node;
    lh_plan_elastic *e = LHI_NEW(r->plan->mem, lh_plan_elastic, 1);
    if (!e)
        return lhi_fail_nomem(err);
    LHI_TRY(lhi_known_keys(r->doc, map, keys, err));
    LHI_TRY(read_groups(r, map, "enqueue", &e->enqueue, &e->n_enqueue, err));
    LHI_TRY(read_groups(r, map, "dequeue", &e->dequeue, &e->n_dequeue, err));
    LHI_TRY(get_share(r, map, "gradients", &e->gradients, err));
    LHI_TRY(get_share(r, map, "parameters", &e->parameters, err));
    LHI_TRY(lhi_need(r->doc, map, "buckets", &node, err));
    LHI_TRY(lhi_known_keys(r->doc, node, buckets, err));
    LHI_TRY(get_u32(r, node, "scatter", &e->scatter_buckets, err));
    LHI_TRY(get_u32(r, node, "forward", &e->forward_buckets, err));
    LHI_TRY(get_u32(r, node, "backward", &e->backward_buckets, err));
    LHI_TRY(read_recomputed(r, map, e, err));
    *out = e;
    return LH_OK;
}

/* Everything that set_choice() of the writer sets. */
static lh_status read_layers(const reader *r, const lhi_node *list,
                             lh_choice *out, lh_error *err)
{
    uint64_t n = (uint64_t)out->layout.pipeline * out->layout.chunks_per_device;
    LHI_TRY(lhi_want_list(r->doc, list, err));
    if (list->n_items != n)
        return lhi_doc_fail(r->doc, list, err, LH_EINPUT,
                            "has %" PRIu32 " numbers for %" PRIu64 " chunks",
                            list->n_items, n);
    uint32_t *layers = LHI_NEW(r->plan->mem, uint32_t, n);
    if (!layers)
        return lhi_fail_nomem(err);
    for (const lhi_node *node = list->first; node; node = node->next)
        LHI_TRY(lhi_get_u32(r->doc, node, 1, LH_MAX_CHUNKS,
                            &layers[node->index], err));
    out->chunk_layers = layers;
    return LH_OK;
}

static lh_status read_choice(const reader *r, const lhi_node *map,
                             lh_choice *out, lh_error *err)
{
    const lhi_node *node;
    uint32_t index;
    LHI_TRY(get_choice(r, map, "status", lhi_choice_status_names, &index, err));
    out->status = (lh_choice_status)index;
    LHI_TRY(lhi_need(r->doc, map, "layout", &node, err));
    LHI_TRY(read_layout(r, node, &out->layout, err));
    LHI_TRY(get_choice(r, map, "placement", placement_names, &index, err));
    out->placement = (lh_placement)index;
    LHI_TRY(get_choice(r, map, "recompute", lhi_recompute_names, &index, err));
    out->recompute = (lh_recompute)index;
    out->zero = r->plan->job->training.zero; /* older plans do not say */
    if ((node = lhi_find(map, "zero")))
        LHI_TRY(lhi_get_u32(r->doc, node, 0, 3, &out->zero, err));
    LHI_TRY(get_u32(r, map, "microbatches", &out->microbatches, err));
    LHI_TRY(get_int(r, map, "iteration_ns", &out->iteration_ns, err));
    LHI_TRY(get_int(r, map, "makespan_ns", &out->makespan_ns, err));
    LHI_TRY(get_int(r, map, "optimizer_ns", &out->optimizer_ns, err));
    LHI_TRY(get_int(r, map, "overhead_ns", &out->overhead_ns, err));
    LHI_TRY(get_int(r, map, "lower_bound_ns", &out->lower_bound_ns, err));
    LHI_TRY(get_real(r, map, "bubble_ratio", &out->bubble_ratio, err));
    LHI_TRY(get_int(r, map, "peak_memory_bytes", &out->peak_memory_bytes, err));
    LHI_TRY(
        get_int(r, map, "memory_limit_bytes", &out->memory_limit_bytes, err));
    LHI_TRY(get_real(r, map, "tokens_per_s", &out->tokens_per_s, err));
    LHI_TRY(get_real(r, map, "mfu", &out->mfu, err));
    if ((node = lhi_find(map, "elastic")))
        LHI_TRY(read_elastic(r, node, &out->elastic, err));
    if ((node = lhi_find(map, "jitter")))
        LHI_TRY(lhi_jitter_from_node(r->doc, node, r->plan->mem, &out->jitter,
                                     err));
    if ((node = lhi_find(map, "cost")))
        LHI_TRY(
            lhi_cost_from_node(r->doc, node, r->plan->mem, &out->cost, err));
    if ((node = lhi_find(map, "chunk_layers")))
        LHI_TRY(read_layers(r, node, out, err));
    LHI_TRY(get_string(r, map, "why", &out->why, err));
    return lhi_choice_check(r->doc, r->plan->job, map, out, err);
}

/* Of a choice: those of a plan, too, which begins with its best. */
#define CHOICE_KEYS                                                            \
    "status", "iteration_s", "layout", "placement", "recompute",               \
        "microbatches", "zero", "iteration_ns", "makespan_ns", "optimizer_ns", \
        "overhead_ns", "lower_bound_ns", "bubble_ratio", "peak_memory_bytes",  \
        "memory_limit_bytes", "tokens_per_s", "mfu", "why", "elastic", "cost", \
        "chunk_layers", "jitter"

static const char *const choice_keys[] = {CHOICE_KEYS, NULL};

static lh_status read_choices(const reader *r, const char *key,
                              const lh_choice **out, uint32_t *n, lh_error *err)
{
    const lhi_node *list;
    LHI_TRY(lhi_need(r->doc, r->doc->root, key, &list, err));
    LHI_TRY(lhi_want_list(r->doc, list, err));
    lh_choice *choices = LHI_NEW(r->plan->mem, lh_choice, list->n_items);
    if (!choices)
        return lhi_fail_nomem(err);
    for (const lhi_node *node = list->first; node; node = node->next) {
        LHI_TRY(lhi_known_keys(r->doc, node, choice_keys, err));
        LHI_TRY(read_choice(r, node, &choices[node->index], err));
    }
    *out = choices;
    *n = list->n_items;
    return LH_OK;
}

/* A list of rows becomes the text of the CSV again. */
static lh_status join_rows(const reader *r, const lhi_node *list,
                           lhi_text *text, lh_error *err)
{
    LHI_TRY(lhi_want_list(r->doc, list, err));
    for (const lhi_node *node = list->first; node; node = node->next) {
        if (node->kind != LHI_SCALAR || strchr(node->text, '\n'))
            return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                                "must be one row of a schedule");
        lhi_text_puts(text, node->text);
        lhi_text_puts(text, "\n");
    }
    return LH_OK;
}

static lh_status read_orders(const reader *r, const lhi_node *map,
                             lhi_text *rows, lhi_text *links, lh_error *err)
{
    const lhi_node *node;
    LHI_TRY(lhi_need(r->doc, map, "rows", &node, err));
    LHI_TRY(join_rows(r, node, rows, err));
    if ((node = lhi_find(map, "link_orders")))
        LHI_TRY(join_rows(r, node, links, err));
    if (rows->failed || links->failed)
        return lhi_fail_nomem(err);
    lh_status status = lhi_schedule_parse_both(
        rows->data ? rows->data : "", rows->len, links->data, links->len,
        r->doc->file, &r->plan->schedule, err);
    if (status != LH_OK)
        lhi_wrap(err, "%s:%u: schedule", r->doc->file, map->line);
    return status;
}

/* What follows from the bound and the makespan. */
static lh_status check_gap(const reader *r, const lhi_node *map, lh_error *err)
{
    static const char *const names[] = {"optimal", "feasible", NULL};
    double gap = lhi_choice_gap(&r->plan->plan.best), said;
    const lhi_node *node = lhi_find(map, "status");
    uint32_t index;
    if (node) {
        LHI_TRY(lhi_get_choice(r->doc, node, names, &index, err));
        if (index != (gap > 0))
            return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                                "is not what lower_bound_ns says");
    }
    node = lhi_find(map, "gap");
    if (!node)
        return LH_OK;
    LHI_TRY(lhi_get_number(r->doc, node, 0, 1e300, &said, err));
    if (said < gap * (1 - 1e-9) || said > gap * (1 + 1e-9))
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                            "is not what lower_bound_ns says");
    return LH_OK;
}

static lh_status read_schedule(const reader *r, lh_error *err)
{
    static const char *const keys[] = {"method", "status",      "gap",
                                       "rows",   "link_orders", NULL};
    const lhi_node *map;
    lhi_text rows = {0}, links = {0};
    LHI_TRY(lhi_need(r->doc, r->doc->root, "schedule", &map, err));
    LHI_TRY(lhi_known_keys(r->doc, map, keys, err));
    const char *planned = r->plan->plan.best.layout.schedule, *method;
    LHI_TRY(get_string(r, map, "method", &method, err));
    if (planned && strcmp(planned, method) != 0)
        return lhi_doc_fail(r->doc, lhi_find(map, "method"), err, LH_EINPUT,
                            "is '%.60s', but layout.schedule '%.60s'", method,
                            planned);
    r->plan->plan.best.layout.schedule = method;
    LHI_TRY(check_gap(r, map, err));
    lh_status status = read_orders(r, map, &rows, &links, err);
    lhi_text_fini(&rows);
    lhi_text_fini(&links);
    r->plan->plan.schedule = r->plan->schedule;
    return status;
}

static lh_status read_pruned(const reader *r, const lhi_node *map,
                             lh_error *err)
{
    lh_plan *p = &r->plan->plan;
    int64_t n;
    LHI_TRY(lhi_want_map(r->doc, map, err));
    lh_plan_pruned *list = LHI_NEW(r->plan->mem, lh_plan_pruned, map->n_items);
    if (!list)
        return lhi_fail_nomem(err);
    for (const lhi_node *node = map->first; node; node = node->next) {
        lh_plan_pruned *one = &list[p->n_pruned++];
        LHI_TRY(lhi_get_int(r->doc, node, 0, INT64_MAX, &n, err));
        one->n = (uint64_t)n;
        one->bound = lhi_arena_strdup(r->plan->mem, node->key);
        if (!one->bound)
            return lhi_fail_nomem(err);
    }
    p->pruned = list;
    return LH_OK;
}

/* What is proven of all layouts; plans of older versions do not say. */
static lh_status read_proof(const reader *r, const lhi_node *map, lh_error *err)
{
    lh_plan *p = &r->plan->plan;
    const lhi_node *node = lhi_find(map, "lower_bound_ns");
    double said;
    if (!node)
        return LH_OK;
    LHI_TRY(lhi_get_int(r->doc, node, 1, INT64_MAX, &p->search_bound_ns, err));
    LHI_TRY(get_real(r, map, "lower_bound_s", &said, err));
    double bound = (double)p->search_bound_ns / 1e9;
    if (said < bound * (1 - 1e-9) || said > bound * (1 + 1e-9))
        return lhi_doc_fail(r->doc, lhi_find(map, "lower_bound_s"), err,
                            LH_EINPUT, "is not what lower_bound_ns says");
    LHI_TRY(get_real(r, map, "gap", &said, err));
    double gap = lh_plan_gap(p);
    if (said < gap * (1 - 1e-9) - 1e-12 || said > gap * (1 + 1e-9) + 1e-12)
        return lhi_doc_fail(r->doc, lhi_find(map, "gap"), err, LH_EINPUT,
                            "is not what lower_bound_ns says");
    LHI_TRY(get_u32(r, map, "left", &p->n_left, err));
    LHI_TRY(lhi_need(r->doc, map, "pruned", &node, err));
    return read_pruned(r, node, err);
}

static lh_status read_search(const reader *r, lh_error *err)
{
    static const char *const keys[] = {
        "layouts",     "memory",  "bounded",       "simulated",
        "unsupported", "dropped", "lower_bound_s", "lower_bound_ns",
        "gap",         "pruned",  "left",          "gpus_used",
        NULL};
    lh_plan *p = &r->plan->plan;
    const lhi_node *map;
    LHI_TRY(lhi_need(r->doc, r->doc->root, "search", &map, err));
    LHI_TRY(lhi_known_keys(r->doc, map, keys, err));
    LHI_TRY(get_u32(r, map, "layouts", &p->n_layouts, err));
    LHI_TRY(get_u32(r, map, "memory", &p->n_memory, err));
    LHI_TRY(get_u32(r, map, "bounded", &p->n_bounded, err));
    LHI_TRY(get_u32(r, map, "simulated", &p->n_simulated, err));
    LHI_TRY(get_u32(r, map, "unsupported", &p->n_unsupported, err));
    LHI_TRY(get_u32(r, map, "dropped", &p->n_dropped, err));
    return read_proof(r, map, err);
}

lh_status lhi_choice_from_node(const lhi_doc *doc, lhi_plan *plan,
                               const lhi_node *map, lh_choice *out,
                               lh_error *err)
{
    reader r = {doc, plan};
    LHI_TRY(lhi_known_keys(doc, map, choice_keys, err));
    return read_choice(&r, map, out, err);
}

static lh_status check_sums(const reader *r, lh_error *err)
{
    const lh_plan *p = &r->plan->plan;
    const lh_layout *l = &p->best.layout;
    const lhi_node *root = r->doc->root;
    uint64_t chunks = (uint64_t)l->pipeline * l->chunks_per_device;
    if (lh_pipeline_n_devices(p->pipeline) != l->pipeline)
        return lhi_doc_fail(r->doc, lhi_find(root, "layout"), err, LH_EINPUT,
                            "pipeline is %" PRIu32 ", but the plan's pipeline "
                            "has %" PRIu32 " devices",
                            l->pipeline, lh_pipeline_n_devices(p->pipeline));
    if (lh_pipeline_n_chunks(p->pipeline) != chunks)
        return lhi_doc_fail(r->doc, lhi_find(root, "layout"), err, LH_EINPUT,
                            "pipeline x chunks_per_device is %" PRIu64
                            ", but the plan's pipeline has %" PRIu32 " chunks",
                            chunks, lh_pipeline_n_chunks(p->pipeline));
    if (lh_pipeline_n_microbatches(p->pipeline) != p->best.microbatches)
        return lhi_doc_fail(
            r->doc, lhi_find(root, "microbatches"), err, LH_EINPUT,
            "is %" PRIu32 ", but the plan's pipeline has "
            "%" PRIu32,
            p->best.microbatches, lh_pipeline_n_microbatches(p->pipeline));
    if (lh_schedule_n_devices(p->schedule) != l->pipeline)
        return lhi_doc_fail(r->doc, lhi_find(root, "schedule"), err, LH_EINPUT,
                            "has %" PRIu32 " rows for %" PRIu32 " devices",
                            lh_schedule_n_devices(p->schedule), l->pipeline);
    return LH_OK;
}

static lh_status check_gpus(const reader *r, lh_error *err)
{
    const lhi_node *map = lhi_find(r->doc->root, "search");
    const lhi_node *node = lhi_find(map, "gpus_used");
    uint32_t gpus;
    if (!node)
        return LH_OK;
    LHI_TRY(lhi_get_u32(r->doc, node, 1, UINT32_MAX, &gpus, err));
    if (gpus == lh_plan_gpus(&r->plan->plan))
        return LH_OK;
    return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                        "is not what the layout takes");
}

static lh_status read_all(const reader *r, lh_error *err)
{
    static const char *const keys[] = {
        CHOICE_KEYS,   "longhaul",     "name",
        "version",     "input_hash",   "cost_source",
        "robust",      "network",      "network_iteration_s",
        "account",     "runners_up",   "curves",
        "schedule",    "pipeline",     "search",
        "methods",     "alternatives", "what_if",
        "sensitivity", "objective",    "front",
        "front_whole", "job",          NULL};
    const lhi_node *root = r->doc->root, *node;
    lh_plan *p = &r->plan->plan;
    LHI_TRY(lhi_want_format(r->doc, "plan", 1, err));
    LHI_TRY(lhi_known_keys(r->doc, root, keys, err));
    LHI_TRY(get_string(r, root, "name", &p->name, err));
    LHI_TRY(get_string(r, root, "version", &p->version, err));
    LHI_TRY(get_string(r, root, "input_hash", &p->input_hash, err));
    LHI_TRY(get_string(r, root, "cost_source", &p->cost_source, err));
    LHI_TRY(lhi_need(r->doc, root, "job", &node, err));
    LHI_TRY(lhi_want_map(r->doc, node, err));
    LHI_TRY(lhi_job_from_node(r->doc, node, NULL, &r->plan->job, err));
    p->job = r->plan->job; /* names the datacenters of layouts */
    LHI_TRY(read_choice(r, root, &p->best, err));
    LHI_TRY(lhi_need(r->doc, root, "pipeline", &node, err));
    LHI_TRY(lhi_want_map(r->doc, node, err));
    LHI_TRY(lhi_pipeline_from_node(r->doc, node, &r->plan->pipeline, err));
    p->pipeline = r->plan->pipeline;
    LHI_TRY(read_schedule(r, err));
    LHI_TRY(read_search(r, err));
    LHI_TRY(lhi_curves_from_root(r->doc, r->plan->mem, p, err));
    LHI_TRY(lhi_network_from_root(r->doc, r->plan->mem, p, err));
    if ((node = lhi_find(root, "robust")))
        LHI_TRY(
            lhi_robust_from_node(r->doc, node, r->plan->mem, &p->robust, err));
    LHI_TRY(read_choices(r, "methods", &p->methods, &p->n_methods, err));
    LHI_TRY(read_choices(r, "alternatives", &p->alternatives,
                         &p->n_alternatives, err));
    LHI_TRY(lhi_account_from_root(r->doc, r->plan, err));
    LHI_TRY(lhi_front_from_doc(r->doc, r->plan, err));
    LHI_TRY(lhi_links_from_doc(r->doc, r->plan, err));
    LHI_TRY(check_sums(r, err));
    LHI_TRY(check_gpus(r, err));
    return lhi_plan_check(r->doc, r->plan, err);
}

static lh_status from_doc(lhi_doc *doc, lh_plan **out, lh_error *err)
{
    lhi_arena *mem = lhi_arena_make(0);
    reader r = {doc, mem ? LHI_NEW(mem, lhi_plan, 1) : NULL};
    lh_status status;
    if (!r.plan) {
        lhi_arena_free(mem);
        status = lhi_fail_nomem(err);
    } else {
        r.plan->mem = mem;
        status = read_all(&r, err);
        if (status != LH_OK)
            lh_plan_free(&r.plan->plan);
        else
            *out = &r.plan->plan;
    }
    lhi_doc_free(doc);
    return status;
}

lh_status lh_plan_parse(const char *text, size_t len, const char *name,
                        lh_plan **out, lh_error *err)
{
    lhi_doc *doc;
    LHI_TRY(lhi_doc_parse(text, len, name, &doc, err));
    return from_doc(doc, out, err);
}

lh_status lh_plan_read(const char *path, lh_plan **out, lh_error *err)
{
    lhi_doc *doc;
    LHI_TRY(lhi_doc_load(path, &doc, err));
    return from_doc(doc, out, err);
}
