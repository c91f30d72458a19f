/* SPDX-License-Identifier: Apache-2.0 */
/* What a plan's file says twice, or what follows from the rest of it, has to
 * agree: files are edited by hand. */
#include "plan/layout/layout.h"
#include "plan/plan_own.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

typedef struct checker {
    const lhi_doc *doc;
    const lh_job *job;
    const lhi_node *map; /* of the choice */
    const lh_choice *c;
} checker;

/* The key, or the map where it lacks it. */
static const lhi_node *at(const lhi_node *map, const char *key)
{
    const lhi_node *node = lhi_find(map, key);
    return node ? node : map;
}

static bool near(double said, double value)
{
    return fabs(said - value) <= 1e-6 * fabs(value);
}

static lh_status check_layers(const checker *k, lh_error *err)
{
    const lh_choice *c = k->c;
    uint32_t layers = k->job->model->layers;
    uint64_t n = (uint64_t)c->layout.pipeline * c->layout.chunks_per_device;
    uint64_t sum = 0;
    if (n > layers)
        return lhi_doc_fail(k->doc, at(k->map, "layout"), err, LH_EINPUT,
                            "%" PRIu64 " chunks are more than the model's "
                            "%" PRIu32 " layers",
                            n, layers);
    for (uint32_t i = 0; c->chunk_layers && i < n; i++)
        sum += c->chunk_layers[i];
    if (!c->chunk_layers || sum == layers)
        return LH_OK;
    return lhi_doc_fail(k->doc, at(k->map, "chunk_layers"), err, LH_EINPUT,
                        "%" PRIu64 " layers for a model of %" PRIu32, sum,
                        layers);
}

static lh_status check_gpus(const checker *k, lh_error *err)
{
    const lh_layout *l = &k->c->layout;
    const lh_plan_cost *cost = k->c->cost;
    double gpus =
        (double)l->tensor * l->context * l->expert * l->pipeline * l->data;
    if (gpus > k->job->n_gpus)
        return lhi_doc_fail(k->doc, at(k->map, "layout"), err, LH_EINPUT,
                            "takes %.0f GPUs; the job has %" PRIu32, gpus,
                            k->job->n_gpus);
    if (cost && (cost->gpus < gpus || cost->gpus > k->job->n_gpus))
        return lhi_doc_fail(k->doc, at(at(k->map, "cost"), "gpus"), err,
                            LH_EINPUT,
                            "is %" PRIu32 ", but the layout takes %.0f GPUs of "
                            "the job's %" PRIu32,
                            cost->gpus, gpus, k->job->n_gpus);
    return LH_OK;
}

static lh_status check_batch(const checker *k, lh_error *err)
{
    const lh_layout *l = &k->c->layout;
    double batch = (double)l->data * l->micro_batch * k->c->microbatches;
    if (!(batch < k->job->training.global_batch) &&
        !(batch > k->job->training.global_batch))
        return LH_OK;
    return lhi_doc_fail(
        k->doc, at(k->map, "microbatches"), err, LH_EINPUT,
        "%" PRIu32 " of %" PRIu32 " samples on %" PRIu32
        " replicas are %.0f; the job's global_batch is %" PRIu32,
        k->c->microbatches, l->micro_batch, l->data, batch,
        k->job->training.global_batch);
}

/* What is simulated has times, what is not has none. */
static lh_status check_times(const checker *k, lh_error *err)
{
    static const char *const keys[] = {"iteration_ns", "makespan_ns",
                                       "optimizer_ns", "overhead_ns",
                                       "lower_bound_ns"};
    const lh_choice *c = k->c;
    const int64_t values[] = {c->iteration_ns, c->makespan_ns, c->optimizer_ns,
                              c->overhead_ns, c->lower_bound_ns};
    bool ok = c->status == LH_CHOICE_OK;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        if (i < 2 && !ok && values[i] != -1)
            return lhi_doc_fail(k->doc, at(k->map, keys[i]), err, LH_EINPUT,
                                "must be -1 where the status is '%s'",
                                lh_choice_status_name(c->status));
        if (values[i] < 0 && (i >= 2 || ok))
            return lhi_doc_fail(k->doc, at(k->map, keys[i]), err, LH_EINPUT,
                                "must not be below 0");
    }
    if (!ok)
        return LH_OK;
    double sum = (double)c->makespan_ns + (double)c->optimizer_ns +
                 (double)c->overhead_ns;
    if (sum > 0x1p62 ||
        c->iteration_ns != c->makespan_ns + c->optimizer_ns + c->overhead_ns)
        return lhi_doc_fail(k->doc, at(k->map, "iteration_ns"), err, LH_EINPUT,
                            "is not makespan_ns, optimizer_ns and overhead_ns "
                            "together");
    if (c->lower_bound_ns > c->iteration_ns)
        return lhi_doc_fail(k->doc, at(k->map, "lower_bound_ns"), err,
                            LH_EINPUT, "is more than iteration_ns");
    return LH_OK;
}

static lh_status check_seconds(const checker *k, lh_error *err)
{
    const lhi_node *node;
    double said;
    LHI_TRY(lhi_need(k->doc, k->map, "iteration_s", &node, err));
    if (k->c->iteration_ns < 0 && lhi_is_null(node))
        return LH_OK;
    LHI_TRY(lhi_get_number(k->doc, node, 0, 1e300, &said, err));
    if (k->c->iteration_ns >= 0 && near(said, (double)k->c->iteration_ns / 1e9))
        return LH_OK;
    return lhi_doc_fail(k->doc, node, err, LH_EINPUT,
                        "is not what iteration_ns says");
}

static lh_status check_rates(const checker *k, lh_error *err)
{
    const lh_choice *c = k->c;
    const lh_training *t = &k->job->training;
    bool ok = c->status == LH_CHOICE_OK;
    if (c->peak_memory_bytes < 0)
        return lhi_doc_fail(k->doc, at(k->map, "peak_memory_bytes"), err,
                            LH_EINPUT, "must not be below 0");
    if (ok && c->peak_memory_bytes > c->memory_limit_bytes)
        return lhi_doc_fail(k->doc, at(k->map, "peak_memory_bytes"), err,
                            LH_EINPUT, "is more than memory_limit_bytes");
    if (!(c->bubble_ratio >= 0 && c->bubble_ratio <= 1))
        return lhi_doc_fail(k->doc, at(k->map, "bubble_ratio"), err, LH_EINPUT,
                            "is not from 0 to 1");
    if (!(c->mfu >= 0))
        return lhi_doc_fail(k->doc, at(k->map, "mfu"), err, LH_EINPUT,
                            "must not be below 0");
    if (!(c->tokens_per_s >= 0))
        return lhi_doc_fail(k->doc, at(k->map, "tokens_per_s"), err, LH_EINPUT,
                            "must not be below 0");
    if (!ok || c->iteration_ns == 0 ||
        near(c->tokens_per_s, (double)t->global_batch * t->sequence /
                                  ((double)c->iteration_ns / 1e9)))
        return LH_OK;
    return lhi_doc_fail(k->doc, at(k->map, "tokens_per_s"), err, LH_EINPUT,
                        "is not what iteration_ns and the job's batch say");
}

static lh_status check_groups(const checker *k, const char *key, uint32_t n,
                              const uint32_t *groups, lh_error *err)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += groups[i];
    if (sum == k->c->microbatches)
        return LH_OK;
    return lhi_doc_fail(k->doc, at(at(k->map, "elastic"), key), err, LH_EINPUT,
                        "the groups have %" PRIu64
                        " microbatches, the plan %" PRIu32,
                        sum, k->c->microbatches);
}

static lh_status check_elastic(const checker *k, lh_error *err)
{
    const lh_plan_elastic *e = k->c->elastic;
    if (!e)
        return LH_OK;
    LHI_TRY(check_groups(k, "enqueue", e->n_enqueue, e->enqueue, err));
    LHI_TRY(check_groups(k, "dequeue", e->n_dequeue, e->dequeue, err));
    if (e->parameters <= e->gradients)
        return LH_OK;
    return lhi_doc_fail(
        k->doc, at(at(k->map, "elastic"), "parameters"), err, LH_EINPUT,
        "a share of %.12g is %.12g more than 'gradients', "
        "%.12g; ZeRO-3 shards both",
        e->parameters, e->parameters - e->gradients, e->gradients);
}

lh_status lhi_choice_check(const lhi_doc *doc, const lh_job *job,
                           const lhi_node *map, const lh_choice *choice,
                           lh_error *err)
{
    checker k = {doc, job, map, choice};
    LHI_TRY(check_layers(&k, err));
    LHI_TRY(check_gpus(&k, err));
    LHI_TRY(check_batch(&k, err));
    LHI_TRY(check_times(&k, err));
    LHI_TRY(check_seconds(&k, err));
    LHI_TRY(check_rates(&k, err));
    return check_elastic(&k, err);
}

/* --- the plan as a whole ----------------------------------------------------
 */

/* Layouts are each counted once. `left` where the file says it. */
static lh_status check_counts(const lhi_doc *doc, const lh_plan *p,
                              lh_error *err)
{
    const lhi_node *map = lhi_find(doc->root, "search");
    uint64_t sum =
        (uint64_t)p->n_memory + p->n_bounded + p->n_simulated + p->n_left;
    bool whole = lhi_find(map, "left") != NULL;
    if (p->n_layouts == UINT32_MAX || /* or more of them */
        (whole ? sum == p->n_layouts : sum <= p->n_layouts))
        return LH_OK;
    return lhi_doc_fail(doc, at(map, "layouts"), err, LH_EINPUT,
                        "is %" PRIu32 ", but memory, bounded, simulated and "
                        "left are %" PRIu64 " together",
                        p->n_layouts, sum);
}

/* Each device is in the datacenter where the layout has its rank. */
static lh_status check_places(const lhi_doc *doc, const lhi_plan *plan,
                              lh_error *err)
{
    const lh_plan *p = &plan->plan;
    const lh_layout *l = &p->best.layout;
    lhi_mark mark = lhi_arena_mark(plan->mem);
    lhi_places places;
    lh_error why = {0};
    lh_status status = lhi_layout_place(p->job, l, plan->mem, &places, &why);
    if (status == LH_EUNSUPPORTED)
        return lhi_doc_fail(doc, at(doc->root, "layout"), err, LH_EINPUT, "%s",
                            why.text);
    if (status != LH_OK) {
        if (err)
            *err = why;
        return status;
    }
    for (uint32_t d = 0; d < l->pipeline && status == LH_OK; d++) {
        uint32_t site = lh_pipeline_device_site(p->pipeline, d);
        const char *want = p->job->datacenters[places.ranks[d].datacenter].name;
        const char *has =
            site == LH_NONE ? NULL : lh_pipeline_site_name(p->pipeline, site);
        if (has && strcmp(has, want) != 0)
            status =
                lhi_doc_fail(doc, at(doc->root, "pipeline"), err, LH_EINPUT,
                             "device %" PRIu32 " is in '%s', but the "
                             "layout has that rank in '%s'",
                             d, has, want);
    }
    lhi_arena_rewind(plan->mem, mark);
    return status;
}

/* What was drawn for a choice is of what the plan was drawn for. */
static lh_status check_jitter(const lhi_doc *doc, const lhi_node *map,
                              const lh_plan *p, const lh_choice *c,
                              lh_error *err)
{
    if (c->jitter && !p->robust)
        return lhi_doc_fail(doc, at(map, "jitter"), err, LH_EINPUT,
                            "the plan has no 'robust' to say what was drawn");
    if (c->jitter && c->jitter->samples > p->robust->jitter.samples)
        return lhi_doc_fail(doc, at(at(map, "jitter"), "samples"), err,
                            LH_EINPUT,
                            "is %" PRIu32 "; robust.samples is %" PRIu32,
                            c->jitter->samples, p->robust->jitter.samples);
    return LH_OK;
}

static lh_status check_list_jitter(const lhi_doc *doc, const char *key,
                                   const lh_plan *p, uint32_t n,
                                   const lh_choice *all, lh_error *err)
{
    const lhi_node *list = lhi_find(doc->root, key);
    const lhi_node *map = list ? list->first : NULL;
    for (uint32_t i = 0; i < n && map; i++, map = map->next)
        LHI_TRY(check_jitter(doc, map, p, &all[i], err));
    return LH_OK;
}

static lh_status check_robust(const lhi_doc *doc, const lh_plan *p,
                              lh_error *err)
{
    if (p->robust && !p->best.jitter)
        return lhi_doc_fail(doc, at(doc->root, "robust"), err, LH_EINPUT,
                            "the plan has no 'jitter' of its own");
    LHI_TRY(check_jitter(doc, doc->root, p, &p->best, err));
    LHI_TRY(
        check_list_jitter(doc, "methods", p, p->n_methods, p->methods, err));
    return check_list_jitter(doc, "alternatives", p, p->n_alternatives,
                             p->alternatives, err);
}

lh_status lhi_plan_check(const lhi_doc *doc, const lhi_plan *plan,
                         lh_error *err)
{
    const lh_plan *p = &plan->plan;
    if (p->best.status != LH_CHOICE_OK)
        return lhi_doc_fail(doc, at(doc->root, "status"), err, LH_EINPUT,
                            "of a plan must be 'ok'");
    LHI_TRY(check_counts(doc, p, err));
    LHI_TRY(check_robust(doc, p, err));
    return check_places(doc, plan, err);
}
