/* SPDX-License-Identifier: Apache-2.0 */
/* Checks a choice for consistency: redundant and derived values must agree with
 * the rest and with the job, because files are edited by hand. */
#include "planner/file/plan_file.h"

#include "format/job/job_values.h"
#include "planner/layout/choice.h"
#include "planner/search/candidate.h"

#include <inttypes.h>
#include <math.h>

/* Context of the checks on one choice. */
typedef struct checker {
    const lhi_doc *doc;
    const lh_job *job;
    const lhi_node *map; /* the choice */
    const lh_choice *c;
    lhi_arena *mem;
} checker;

/* Checks whether a number in the file, `stored`, equals `value` with a relative
 * tolerance of 1e-6, the file's precision. */
static bool is_nearly_equal(double stored, double value)
{
    return fabs(stored - value) <= 1e-6 * fabs(value);
}

/* Checks that the layers per chunk add up to the model's. Without a pipeline,
 * only the first and the last chunk may have no layers. */
static lh_status check_layers(const checker *k, lh_error *err)
{
    const lh_choice *c = k->c;
    uint32_t layers = k->job->model->layers;
    uint64_t n = (uint64_t)c->layout.pipeline * c->layout.chunks_per_device;
    uint64_t sum = 0;
    if (n > layers && !c->chunk_layers)
        return lhi_doc_fail(k->doc, lhi_node_find(k->map, "layout"), err,
                            LH_EINPUT,
                            "%" PRIu64 " chunks are more than the model's "
                            "%" PRIu32 " layers",
                            n, layers);
    for (uint32_t i = 0; c->chunk_layers && i < n; i++) {
        sum += c->chunk_layers[i];
        if (c->chunk_layers[i] == 0 && i > 0 && i + 1 < n &&
            c->layout.pipeline == 1)
            return lhi_doc_fail(k->doc, lhi_node_find(k->map, "chunk_layers"),
                                err, LH_EINPUT,
                                "chunk %" PRIu32 " has no layers; without a "
                                "pipeline only the first and "
                                "the last chunk may be empty",
                                i);
    }
    if (!c->chunk_layers || sum == layers)
        return LH_OK;
    return lhi_doc_fail(k->doc, lhi_node_find(k->map, "chunk_layers"), err,
                        LH_EINPUT, "%" PRIu64 " layers for a model of %" PRIu32,
                        sum, layers);
}

/* Checks that the chunk placement matches the chunks per device: UD (stage i on
 * device i) or BD (also in the other direction) for one, Loop or Wave for two,
 * Loop for more. */
static lh_status check_placement(const checker *k, lh_error *err)
{
    uint32_t n = k->c->layout.chunks_per_device;
    lh_placement has = k->c->placement;
    if (n == 1
            ? has == LH_PLACEMENT_UD || has == LH_PLACEMENT_BD
            : has == LH_PLACEMENT_LOOP || (n == 2 && has == LH_PLACEMENT_WAVE))
        return LH_OK;
    return lhi_doc_fail(
        k->doc, lhi_node_find(k->map, "placement"), err, LH_EINPUT,
        "is '%s', but layout.chunks_per_device is %" PRIu32 ", which lie %s",
        lh_placement_name(has), n,
        n == 1   ? "as 'ud' or 'bd'"
        : n == 2 ? "as 'loop' or 'wave'"
                 : "as 'loop'");
}

/* Checks that the layout needs at most the job's GPUs, and that the paid GPUs
 * in the cost are at least the layout's and at most the job's. */
static lh_status check_gpus(const checker *k, lh_error *err)
{
    const lh_layout *l = &k->c->layout;
    const lh_plan_cost *cost = k->c->cost;
    const double gpus = (double)lh_layout_gpus(l);
    if (gpus > k->job->n_gpus)
        return lhi_doc_fail(k->doc, lhi_node_find(k->map, "layout"), err,
                            LH_EINPUT, "needs %.0f GPUs; the job has %" PRIu32,
                            gpus, k->job->n_gpus);
    if (cost && (cost->gpus < gpus || cost->gpus > k->job->n_gpus))
        return lhi_doc_fail(
            k->doc, lhi_node_find(lhi_node_find(k->map, "cost"), "gpus"), err,
            LH_EINPUT,
            "is %" PRIu32
            ", but the layout needs %.0f GPUs of the job's %" PRIu32,
            cost->gpus, gpus, k->job->n_gpus);
    return LH_OK;
}

/* Checks the expert degree and expert tensor degree: 1 without experts;
 * otherwise they divide the ranks, the expert count and the experts' width. */
static lh_status check_experts(const checker *k, lh_error *err)
{
    const lh_model *m = k->job->model;
    const lh_layout *l = &k->c->layout;
    const lhi_node *at = lhi_node_find(k->map, "layout");
    uint64_t block = lh_layout_expert_block(l);
    uint64_t ranks = (uint64_t)l->tensor * l->context * l->data;
    if (!m->experts)
        return l->expert == 1 && !l->expert_tensor
                   ? LH_OK
                   : lhi_doc_fail(k->doc, at, err, LH_EINPUT,
                                  "expert is %" PRIu32
                                  " and expert_tensor %" PRIu32
                                  ", but the model has no experts",
                                  l->expert, lh_layout_expert_tensor(l));
    if (ranks % block != 0)
        return lhi_doc_fail(k->doc, at, err, LH_EINPUT,
                            "expert x expert_tensor is %" PRIu64
                            ", which does not divide tensor x context x data, "
                            "%" PRIu64,
                            block, ranks);
    if (m->experts % l->expert != 0)
        return lhi_doc_fail(k->doc, at, err, LH_EINPUT,
                            "the model's %" PRIu32
                            " experts are not divisible by %" PRIu32,
                            m->experts, l->expert);
    if (l->expert_tensor && m->expert_ffn % l->expert_tensor != 0)
        return lhi_doc_fail(k->doc, at, err, LH_EINPUT,
                            "experts are %" PRIu32
                            " wide, which is not divisible by %" PRIu32,
                            m->expert_ffn, l->expert_tensor);
    return LH_OK;
}

/* Checks the kind of recomputation of a plan candidate: `operations` if and
 * only if its elastic plan lists operations; `modules` only if the job lists
 * modules. */
static lh_status check_recompute(const checker *k, lh_error *err)
{
    const lh_training *t = &k->job->training;
    const lh_plan_elastic *e = k->c->elastic;
    bool lists = e && e->n_recomputed > 0;
    if (lists != (k->c->recompute == LH_RECOMPUTE_OPERATIONS))
        return lhi_doc_fail(
            k->doc, lhi_node_find(k->map, "recompute"), err, LH_EINPUT,
            "is '%s', but elastic.recomputed lists "
            "%s; %s",
            lh_recompute_name(k->c->recompute), lists ? "operations" : "none",
            lists ? "it must be 'operations'" : "it must not be 'operations'");
    if (k->c->recompute != LH_RECOMPUTE_MODULES ||
        t->recompute == LH_RECOMPUTE_MODULES)
        return LH_OK;
    return lhi_doc_fail(k->doc, lhi_node_find(k->map, "recompute"), err,
                        LH_EINPUT,
                        "is 'modules', but the job's training.recompute is not "
                        "a list of modules");
}

/* Checks that replicas, microbatches and microbatch size multiply to the job's
 * global batch. */
static lh_status check_batch(const checker *k, lh_error *err)
{
    const lh_layout *l = &k->c->layout;
    double batch = (double)lhi_layout_count_sequences(l) * k->c->microbatches /
                   lhi_job_count_slices(k->job);
    if (!(batch < k->job->training.global_batch) &&
        !(batch > k->job->training.global_batch))
        return LH_OK;
    return lhi_doc_fail(
        k->doc, lhi_node_find(k->map, "microbatches"), err, LH_EINPUT,
        "%" PRIu32 " of %" PRIu32 " samples on %" PRIu32
        " replicas make %.0f; the job's global_batch is %" PRIu32,
        k->c->microbatches, l->micro_batch, l->data, batch,
        k->job->training.global_batch);
}

/* Checks that a simulated plan candidate has times that add up to iteration_ns
 * and are not below its lower bound; others must have no times. */
static lh_status check_times(const checker *k, lh_error *err)
{
    static const char *const keys[] = {"iteration_ns", "makespan_ns"};
    const lh_choice *c = k->c;
    const int64_t values[] = {c->iteration_ns, c->makespan_ns};
    bool ok = c->status == LH_CHOICE_OK;
    for (int i = 0; i < 2; i++) {
        if (ok && values[i] < 0)
            return lhi_doc_fail(k->doc, lhi_node_find(k->map, keys[i]), err,
                                LH_EINPUT, "must not be negative");
        if (!ok && values[i] >= 0)
            return lhi_doc_fail(k->doc, lhi_node_find(k->map, keys[i]), err,
                                LH_EINPUT, "must be -1 if the status is '%s'",
                                lh_choice_status_name(c->status));
    }
    if (!ok)
        return LH_OK;
    double sum = (double)c->makespan_ns + (double)c->optimizer_ns +
                 (double)c->overhead_ns;
    if (sum > 0x1p62 ||
        c->iteration_ns != c->makespan_ns + c->optimizer_ns + c->overhead_ns)
        return lhi_doc_fail(k->doc, lhi_node_find(k->map, "iteration_ns"), err,
                            LH_EINPUT,
                            "is not the sum of makespan_ns, optimizer_ns and "
                            "overhead_ns");
    if (c->lower_bound_ns > c->iteration_ns)
        return lhi_doc_fail(k->doc, lhi_node_find(k->map, "lower_bound_ns"),
                            err, LH_EINPUT, "is above iteration_ns");
    return LH_OK;
}

/* Checks that `iteration_s` equals `iteration_ns`, or is null if that is
 * unknown. */
static lh_status check_seconds(const checker *k, lh_error *err)
{
    const lhi_node *node;
    double stored;
    LHI_TRY(lhi_node_require(k->doc, k->map, "iteration_s", &node, err));
    if (k->c->iteration_ns < 0 && lhi_node_is_null(node))
        return LH_OK;
    LHI_TRY(lhi_node_get_number(k->doc, node, 0, 1e300, &stored, err));
    if (k->c->iteration_ns >= 0 &&
        is_nearly_equal(stored, (double)k->c->iteration_ns / 1e9))
        return LH_OK;
    return lhi_doc_fail(k->doc, node, err, LH_EINPUT,
                        "does not match iteration_ns");
}

/* Checks that a feasible plan candidate fits in memory, and that its tokens/s
 * match its iteration time and the job's batch. */
static lh_status check_rates(const checker *k, lh_error *err)
{
    const lh_choice *c = k->c;
    const lh_training *t = &k->job->training;
    bool ok = c->status == LH_CHOICE_OK;
    if (ok && c->peak_memory_bytes > c->memory_limit_bytes)
        return lhi_doc_fail(k->doc, lhi_node_find(k->map, "peak_memory_bytes"),
                            err, LH_EINPUT, "is above memory_limit_bytes");
    if (!ok || c->iteration_ns == 0 ||
        is_nearly_equal(c->tokens_per_s, (double)t->global_batch * t->sequence /
                                             ((double)c->iteration_ns / 1e9)))
        return LH_OK;
    return lhi_doc_fail(k->doc, lhi_node_find(k->map, "tokens_per_s"), err,
                        LH_EINPUT,
                        "does not match iteration_ns and the job's batch");
}

/* Checks that the MFU in the file equals the model's FLOPs over the peak of the
 * GPUs that the layout uses. */
static lh_status check_mfu(const checker *k, lh_error *err)
{
    lh_choice want = *k->c;
    lh_error why = {0};
    lh_status status = lhi_choice_compute_rates(k->job, k->mem, &want, &why);
    if (lhi_layout_is_infeasible(status))
        return lhi_doc_fail(k->doc, lhi_node_find(k->map, "layout"), err,
                            LH_EINPUT, "%s", why.text);
    if (status != LH_OK) {
        if (err)
            *err = why;
        return status;
    }
    if (is_nearly_equal(k->c->mfu, want.mfu))
        return LH_OK;
    return lhi_doc_fail(k->doc, lhi_node_find(k->map, "mfu"), err, LH_EINPUT,
                        "does not match iteration_ns and the job's model and "
                        "GPUs; expected %.6g",
                        want.mfu);
}

/* Checks that the microbatch groups of an elastic plan under `key` (enqueue or
 * dequeue) add up to the plan's microbatches. */
static lh_status check_groups(const checker *k, const char *key, uint32_t n,
                              const uint32_t *groups, lh_error *err)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += groups[i];
    if (sum == k->c->microbatches)
        return LH_OK;
    return lhi_doc_fail(
        k->doc, lhi_node_find(lhi_node_find(k->map, "elastic"), key), err,
        LH_EINPUT,
        "the groups have %" PRIu64 " microbatches, but the plan has %" PRIu32,
        sum, k->c->microbatches);
}

/* Checks an operation's recomputed layers per chunk: never more than the chunk
 * has. On the first and the last stage they must also equal the shares `first`
 * and `last` of their layers, rounded up to whole layers. */
static lh_status check_recomputed(const checker *k, const lh_plan_recomputed *r,
                                  const lhi_node *map, lh_error *err)
{
    const lh_choice *c = k->c;
    uint32_t P = c->layout.pipeline, n = P * c->layout.chunks_per_device;
    lhi_config config = lhi_config_from_choice(c);
    const lhi_node *node = lhi_node_find(map, "layers");
    if (r->n_chunks == 0)
        return LH_OK;
    if (r->n_chunks != n)
        return lhi_doc_fail(k->doc, node, err, LH_EINPUT,
                            "has %" PRIu32 " numbers for %" PRIu32 " chunks",
                            r->n_chunks, n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t first, layers;
        lhi_config_layers(k->job->model->layers, &config, i, &first, &layers);
        double share = i % P == 0 ? r->first : r->last;
        double want = ceil(share * layers - 1e-9);
        bool known = i % P == 0 || i % P == P - 1;
        if (r->layers[i] > layers)
            return lhi_doc_fail(k->doc, node, err, LH_EINPUT,
                                "chunk %" PRIu32 " has %" PRIu32
                                " layers, not %" PRIu32,
                                i, layers, r->layers[i]);
        if (known && fabs(want - r->layers[i]) > 0.5)
            return lhi_doc_fail(k->doc, node, err, LH_EINPUT,
                                "says %" PRIu32 " of chunk %" PRIu32
                                "'s %" PRIu32 " layers, but '%s' requires %.0f",
                                r->layers[i], i, layers,
                                i % P == 0 ? "first" : "last", want);
    }
    return LH_OK;
}

/* Checks that the `zero` of an elastic plan, the smallest ZeRO stage of any of
 * its parameters, agrees with the plan's shares of sharded gradients and
 * parameters. */
static lh_status check_level(const checker *k, lh_error *err)
{
    const lh_plan_elastic *e = k->c->elastic;
    uint32_t least = lhi_elastic_zero(e);
    if (k->c->zero == least)
        return LH_OK;
    return lhi_doc_fail(k->doc, lhi_node_find(k->map, "zero"), err, LH_EINPUT,
                        "is %" PRIu32 ", but elastic shards %.6g of the "
                        "gradients and %.6g of the parameters: %" PRIu32
                        " is the smallest ZeRO stage of any state",
                        k->c->zero, e->gradients, e->parameters, least);
}

/* Checks an elastic plan (microbatch groups, partial sharding): its groups,
 * recomputed operations, and shares of sharded state. */
static lh_status check_elastic(const checker *k, lh_error *err)
{
    const lh_plan_elastic *e = k->c->elastic;
    if (!e)
        return LH_OK;
    LHI_TRY(check_groups(k, "enqueue", e->n_enqueue, e->enqueue, err));
    LHI_TRY(check_groups(k, "dequeue", e->n_dequeue, e->dequeue, err));
    const lhi_node *map =
        lhi_node_find(lhi_node_find(k->map, "elastic"), "recomputed");
    map = map ? map->first : NULL;
    for (uint32_t i = 0; i < e->n_recomputed; i++, map = map->next)
        LHI_TRY(check_recomputed(k, &e->recomputed[i], map, err));
    if (e->parameters <= e->gradients)
        return check_level(k, err);
    return lhi_doc_fail(
        k->doc, lhi_node_find(lhi_node_find(k->map, "elastic"), "parameters"),
        err, LH_EINPUT,
        "a share of %.12g is %.12g above 'gradients', %.12g; ZeRO-3 shards "
        "both",
        e->parameters, e->parameters - e->gradients, e->gradients);
}

lh_status lhi_choice_check(const lhi_doc *doc, const lh_job *job,
                           const lhi_node *map, const lh_choice *choice,
                           lhi_arena *mem, lh_error *err)
{
    checker k = {doc, job, map, choice, mem};
    LHI_TRY(check_layers(&k, err));
    LHI_TRY(check_placement(&k, err));
    LHI_TRY(check_gpus(&k, err));
    LHI_TRY(check_experts(&k, err));
    LHI_TRY(check_recompute(&k, err));
    LHI_TRY(check_batch(&k, err));
    LHI_TRY(check_times(&k, err));
    LHI_TRY(check_seconds(&k, err));
    LHI_TRY(check_rates(&k, err));
    LHI_TRY(check_mfu(&k, err));
    return check_elastic(&k, err);
}
