/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the fastest elastic plan for one chunk count. The event search runs on
 * a pipeline of equal stages, each with the times of the layout's slowest stage
 * and the memory of its fullest one. Its result is then built with the layout's
 * own times, links and memory. If that does not fit, the memory budget shrinks
 * by the missing bytes. */
#include "planner/elastic/shape_search.h"

#include "base/integer_math.h"
#include "format/job/job_values.h"
#include "format/job/parse.h"
#include "planner/elastic/pipeline.h"
#include "schedule/elastic/elastic_internal.h"
#include "schedule/pipeline/pipeline_internal.h"

#include <longhaul/experimental/elastic.h>
#include <longhaul/simulate.h>
#include <math.h>
#include <string.h>

enum {
    PARTS_STEP = 4,  /* step of the offloaded parts (LHI_ELASTIC_PARTS) */
    MAX_BUDGETS = 6, /* budgets to try if the real pipeline does not fit */
};

/* Search state for one chunk count. */
typedef struct shape_search {
    const lh_job *job; /* with ZeRO-1 */
    const lhi_config *config;
    const lhi_elastic_options *freedom;
    lhi_arena *mem; /* scratch */
    lhi_built_layout built;
    uint32_t P, M, n_chunks;
    uint32_t layers;          /* in an even chunk, rounded up */
    uint32_t offloaded_parts; /* offloaded parts of every
                                 activation */
    double host_bytes_per_s;
    lhi_elastic_kinds kinds;
    lhi_elastic_state state;
    lhi_chunk_sharded *sharded; /* per chunk */
    lh_elastic_case given;
    lh_elastic_op *ops; /* [kind * layers + layer] */
} shape_search;

/* Returns the slowest datacenter's host link rate, in bytes/s. */
static double find_host_rate(const lh_job *job)
{
    double least = 0;
    for (uint32_t i = 0; i < job->n_datacenters; i++) {
        const double rate = lhi_gpu_host_bytes_per_s(&job->datacenters[i].gpu);
        if (least == 0 || rate < least)
            least = rate;
    }
    return least;
}

/* Returns the inputs of lhi_elastic_build_plan_pipeline() for the search's
 * layout; they borrow from the search state. */
static lhi_elastic_context make_context(const shape_search *s)
{
    return (lhi_elastic_context){.job = s->job,
                                 .config = s->config,
                                 .plain = s->built.pipeline,
                                 .kinds = &s->kinds,
                                 .state = &s->state,
                                 .sharded = s->sharded,
                                 .offloaded_parts = s->offloaded_parts,
                                 .host_bytes_per_s = s->host_bytes_per_s};
}

/* Returns the part of `bytes` of activations that is copied to host memory, at
 * the offloaded share that the search currently tries. */
static int64_t compute_offloaded_bytes(const shape_search *s, int64_t bytes)
{
    lhi_elastic_context ground = make_context(s);
    return lhi_elastic_offloaded_bytes(&ground, bytes);
}

/* Returns the time to copy `bytes` of activations to host memory, in ns. */
static int64_t compute_copy_ns(const shape_search *s, int64_t bytes)
{
    lhi_elastic_context ground = make_context(s);
    return lhi_elastic_offload_copy_ns(&ground, bytes);
}

/* Returns the time, in ns, to copy to host memory the part of `bytes` of
 * activations that the current offloaded share selects. */
static int64_t estimate_transfer_ns(const shape_search *s, int64_t bytes)
{
    return compute_copy_ns(s, compute_offloaded_bytes(s, bytes));
}

/* Lists the operations of a layer that can be recomputed into s->kinds; none if
 * the options exclude recomputation. */
static lh_status find_kinds(shape_search *s, lh_error *err)
{
    s->kinds.n = 0;
    if (!s->freedom->recompute)
        return LH_OK;
    return lhi_elastic_kinds_find(s->job, s->config, &s->kinds, err);
}

/* Returns the largest mean of value(chunk) over a device's chunks, rounded up,
 * of all devices. */
static int64_t compute_max_per_chunk(const shape_search *s,
                                     int64_t (*value)(const lh_chunk *))
{
    int64_t most = 0;
    for (uint32_t d = 0; d < s->P; d++) {
        int64_t sum = 0;
        for (uint32_t c = d; c < s->n_chunks; c += s->P)
            sum += value(lh_pipeline_chunk(s->built.pipeline, c));
        most = lhi_max_int64(most, sum);
    }
    return (most + s->M - 1) / s->M;
}

/* Returns a chunk's forward time, in ns. */
static int64_t get_forward_ns(const lh_chunk *c)
{
    return c->f_ns;
}

/* Returns a chunk's backward time (dgrad and wgrad), in ns. */
static int64_t get_backward_ns(const lh_chunk *c)
{
    return c->d_ns + c->w_ns;
}

/* Returns the time of the longer of a chunk's gather and reduce-scatter, with
 * its latency, in ns. */
static int64_t get_collective_ns(const lh_chunk *c)
{
    return lhi_max_int64(c->all_gather_ns, c->reduce_scatter_ns) +
           c->dp_latency_ns;
}

/* Returns the activation bytes of one forward pass of a chunk. */
static int64_t get_activation_bytes(const lh_chunk *c)
{
    return c->mem_f;
}

/* Returns a message's largest time between stages: latency plus transfer, in
 * ns. */
static int64_t find_slowest_hop_ns(const lh_pipeline *p)
{
    int64_t most = 0;
    for (uint32_t i = 0; i < lh_pipeline_n_links(p); i++) {
        const lh_link *l = lh_pipeline_link(p, i);
        most = lhi_max_int64(most, l->latency_ns + l->transfer_ns);
    }
    return most;
}

/* Fills s->ops with the operations that a chunk with the most layers can
 * recompute, one entry for each layer, and computes the chunk's activation
 * bytes that belong to none. */
static lh_status list_ops(shape_search *s, lh_error *err)
{
    int64_t stored = compute_max_per_chunk(s, get_activation_bytes), listed = 0,
            again = 0;
    s->ops = LHI_NEW(s->mem, lh_elastic_op, (size_t)s->kinds.n * s->layers);
    if (!s->ops)
        return lhi_fail_nomem(err);
    for (uint32_t k = 0; k < s->kinds.n; k++) {
        again += s->kinds.ops[k].bytes;
        for (uint32_t i = 0; i < s->layers; i++) {
            s->ops[k * s->layers + i] =
                (lh_elastic_op){s->kinds.ops[k].bytes, s->kinds.ops[k].ns};
            listed += s->kinds.ops[k].bytes;
        }
    }
    int64_t moved = compute_offloaded_bytes(s, stored);
    s->given.base_bytes = lhi_max_int64(stored - moved - listed, 0);
    if (s->given.base_bytes > LHI_ELASTIC_MAX_BASE_BYTES)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "elastic plans support at most 1 TiB of activations "
                        "that a chunk's pass cannot recompute; this layout has "
                        "%.1f TiB",
                        (double)s->given.base_bytes / 0x1p40);
    /* Double buffering: one activation in transfer besides the one in use. */
    s->given.other_bytes += 2 * moved;
    s->given.f_ns =
        lhi_max_int64(s->given.f_ns, estimate_transfer_ns(s, stored));
    s->given.b_ns =
        lhi_max_int64(s->given.b_ns, estimate_transfer_ns(s, stored));
    /* One layer is resident in full while its backward runs. */
    s->given.other_bytes += again;
    return LH_OK;
}

/* Fills s->given, the event search's input, which assumes equal stages: each
 * has the slowest stage's times and the fullest stage's memory. */
static lh_status fill_case(shape_search *s, lh_error *err)
{
    const lh_pipeline *p = s->built.pipeline;
    const lh_layout *l = &s->config->layout;
    LHI_TRY(lhi_elastic_state_find(s->job, s->config, s->mem, &s->state, err));
    const uint32_t experts = (uint32_t)lhi_elastic_expert_replicas(l);
    lh_elastic_case *g = &s->given;
    *g = (lh_elastic_case){.stages = s->P,
                           .replicas = l->data * l->context,
                           .expert_replicas = experts,
                           .chunks = s->M,
                           .microbatches = s->config->microbatches,
                           .f_ns = compute_max_per_chunk(s, get_forward_ns),
                           .b_ns = compute_max_per_chunk(s, get_backward_ns),
                           .dp_ns = compute_max_per_chunk(s, get_collective_ns),
                           .pp_ns = find_slowest_hop_ns(p),
                           .weight_bytes = 2,
                           .gradient_bytes =
                               lhi_gradient_bytes(s->job->framework.gradients),
                           .optimizer_bytes = 12};
    bool whole = s->job->training.precision == LH_PRECISION_FP32;
    if (whole) {
        g->weight_bytes = 4;
        g->optimizer_bytes = 8;
    }
    for (uint32_t d = 0; d < s->P; d++) {
        int64_t held = 0, state = s->state.optimizer[d], sent = 0;
        for (uint32_t c = d; c < s->n_chunks; c += s->P) {
            held += lh_pipeline_chunk(p, c)->mem_static;
            state += s->state.weights[c] + s->state.gradients[c];
            sent += lhi_max_int64(s->sharded[c].gather_ns,
                                  s->sharded[c].scatter_ns);
        }
        g->params = lhi_max_int64(g->params, s->state.params[d]);
        g->expert_params = lhi_max_int64(g->expert_params, s->state.experts[d]);
        g->sharded_ns = lhi_max_int64(g->sharded_ns, (sent + s->M - 1) / s->M);
        g->other_bytes = lhi_max_int64(g->other_bytes, held - state);
    }
    g->sharded_ns = lhi_max_int64(g->sharded_ns, g->dp_ns);
    return list_ops(s, err);
}

/* --- the layout's own pipeline -------------------------------------------- */

/* Returns how many of the n_layers layers in a chunk on stage `d` recompute
 * operation `k`: the number that plan `best` has for the largest chunk, scaled
 * and rounded up. */
static uint32_t count_recomputed_layers(const shape_search *s,
                                        const lh_elastic_search_result *best,
                                        uint32_t d, uint32_t k,
                                        uint32_t n_layers)
{
    uint32_t n = 0;
    const bool *of_stage = best->recomputed + (size_t)d * best->n_ops;
    for (uint32_t i = 0; i < s->layers; i++)
        n += of_stage[k * s->layers + i];
    return (n * n_layers + s->layers - 1) / s->layers;
}

/* Returns the bytes that all microbatches of an iteration offload, on the
 * device that offloads most. */
static int64_t find_max_offloaded_bytes(const shape_search *s)
{
    int64_t most = 0;
    for (uint32_t d = 0; d < s->P; d++) {
        int64_t sum = 0;
        for (uint32_t c = d; c < s->n_chunks; c += s->P)
            sum += compute_offloaded_bytes(
                s, lh_pipeline_chunk(s->built.pipeline, c)->mem_f);
        most = lhi_max_int64(most, sum * s->config->microbatches);
    }
    return most;
}

/* Converts an event-search plan's groups, sharded shares and bucket numbers to
 * a plan file's form; borrows the groups. */
static lh_plan_elastic make_shares(const shape_search *s,
                                   const lh_elastic_plan *plan)
{
    return (lh_plan_elastic){
        .n_enqueue = plan->n_enqueue,
        .n_dequeue = plan->n_dequeue,
        .enqueue = plan->enqueue,
        .dequeue = plan->dequeue,
        .gradients = lhi_elastic_share(plan->params_g, s->given.params),
        .parameters = lhi_elastic_share(plan->params_p, s->given.params),
        .scatter_buckets = plan->scatter_buckets,
        .forward_buckets = plan->forward_buckets,
        .backward_buckets = plan->backward_buckets};
}

/* --- plan details --------------------------------------------------------- */

/* Allocates *out[chunk], in how many layers of each chunk plan `best`
 * recomputes operation `k`; *sum: their total. */
static lh_status list_layers(const shape_search *s,
                             const lh_elastic_search_result *best, uint32_t k,
                             lhi_arena *mem, const uint32_t **out,
                             uint32_t *sum, lh_error *err)
{
    uint32_t *layers = LHI_NEW(mem, uint32_t, s->n_chunks);
    if (!layers)
        return lhi_fail_nomem(err);
    *sum = 0;
    for (uint32_t c = 0; c < s->n_chunks; c++) {
        uint32_t first, n;
        lhi_config_layers(s->job->model->layers, s->config, c, &first, &n);
        layers[c] = count_recomputed_layers(s, best, c % s->P, k, n);
        *sum += layers[c];
    }
    *out = layers;
    return LH_OK;
}

/* Converts an event-search result to a plan file's description of the
 * elastic plan: groups, sharded shares and recomputed operations; allocated
 * in `mem`. */
static lh_status describe_result(const shape_search *s,
                                 const lh_elastic_search_result *best,
                                 lhi_arena *mem, const lh_plan_elastic **out,
                                 lh_error *err)
{
    const lh_elastic_plan *plan = best->plan;
    lh_plan_elastic *e = LHI_NEW(mem, lh_plan_elastic, 1);
    uint32_t *enqueue = LHI_NEW(mem, uint32_t, plan->n_enqueue);
    uint32_t *dequeue = LHI_NEW(mem, uint32_t, plan->n_dequeue);
    lh_plan_recomputed *again =
        LHI_NEW(mem, lh_plan_recomputed, LH_COST_MAX_OPS);
    if (!e || !enqueue || !dequeue || !again)
        return lhi_fail_nomem(err);
    memcpy(enqueue, plan->enqueue, plan->n_enqueue * sizeof *enqueue);
    memcpy(dequeue, plan->dequeue, plan->n_dequeue * sizeof *dequeue);
    *e = make_shares(s, plan);
    e->enqueue = enqueue;
    e->dequeue = dequeue;
    e->recomputed = again;
    for (uint32_t k = 0; k < s->kinds.n; k++) {
        uint32_t first = count_recomputed_layers(s, best, 0, k, s->layers);
        uint32_t last =
            count_recomputed_layers(s, best, s->P - 1, k, s->layers);
        const uint32_t *layers;
        uint32_t sum;
        LHI_TRY(list_layers(s, best, k, mem, &layers, &sum, err));
        for (uint32_t i = 0; sum > 0 && i < s->kinds.n_names[k]; i++)
            again[e->n_recomputed++] = (lh_plan_recomputed){
                s->kinds.names[k][i], (double)first / s->layers,
                (double)last / s->layers, s->n_chunks, layers};
    }
    *out = e;
    return LH_OK;
}

/* Builds the pipeline of elastic plan `best`, an event-search result, on the
 * layout's real stages. */
static lh_status make_pipeline(const shape_search *s,
                               const lh_elastic_search_result *best,
                               lh_pipeline **out, lh_error *err)
{
    const lhi_elastic_context ground = make_context(s);
    const lh_plan_elastic *plan;
    LHI_TRY(describe_result(s, best, s->mem, &plan, err));
    return lhi_elastic_build_plan_pipeline(&ground, plan, s->mem, out, err);
}

/* Builds and simulates plan `best` of the event search on the layout's own
 * pipeline. Stores it in *out if it fits into memory and is the fastest so far.
 * *missing: bytes by which it exceeds a device's memory; 0 if it fits. */
static lh_status build_result(const shape_search *s,
                              const lh_elastic_search_result *best,
                              lhi_elastic_result *out, int64_t *missing,
                              lh_error *err)
{
    lh_pipeline *p = NULL;
    lh_schedule *schedule = NULL;
    lh_timeline *t = NULL;
    *missing = 0;
    lh_status status = make_pipeline(s, best, &p, err);
    if (status == LH_OK)
        status = lhi_elastic_schedule(&s->given, best->plan, &schedule, err);
    if (status == LH_OK)
        status = lh_simulate(p, schedule, NULL, &t, err);
    for (uint32_t d = 0; status == LH_OK && d < s->P; d++)
        *missing = lhi_max_int64(*missing, lh_timeline_peak_memory(t, d) -
                                               lh_pipeline_memory_limit(p, d));
    bool good = status == LH_OK && *missing == 0 &&
                (!out->schedule || lh_timeline_makespan(t) < out->makespan_ns);
    if (good) {
        lh_pipeline_free(out->built.pipeline);
        lh_schedule_free(out->schedule);
        out->config = *s->config;
        out->built = s->built;
        out->built.pipeline = p;
        out->schedule = schedule;
        out->makespan_ns = lh_timeline_makespan(t);
        out->offloaded_bytes = find_max_offloaded_bytes(s);
        out->copying_ns = compute_copy_ns(s, out->offloaded_bytes);
    } else {
        lh_pipeline_free(p);
        lh_schedule_free(schedule);
    }
    lh_timeline_free(t);
    return status;
}

/* Context of the stop callback. */
typedef struct stop_context {
    const lhi_elastic_options *freedom;
    const lhi_elastic_result *out;
} stop_context;

/* Checks whether the caller's callback asks to stop, and passes it whether a
 * plan has been found. `works`: the running event search has found one. */
static bool is_stopped(void *context, bool works)
{
    const stop_context *a = context;
    const lhi_elastic_options *f = a->freedom;
    return f->stopped && f->stopped(f->context, works || a->out->schedule);
}

/* Returns the estimated work of `n` event simulations, in work units (about
 * microseconds). */
static uint64_t estimate_simulation_work(const shape_search *s, uint32_t n)
{
    return n * (50 + (uint64_t)s->n_chunks * s->config->microbatches / 2);
}

/* Computes PipeMesh's planner's choice within `budget` bytes per device
 * (*choice) and its form as an event-search result (*out), in which all stages
 * recompute the same operations. */
static lh_status choose_published(const shape_search *s, int64_t budget,
                                  lh_elastic_choice **choice,
                                  lh_elastic_search_result *out, lh_error *err)
{
    uint32_t n = s->kinds.n * s->layers;
    lh_elastic_case given = s->given;
    bool *again = LHI_NEW(s->mem, bool, (size_t)n * s->P);
    if (!again)
        return lhi_fail_nomem(err);
    given.as_published = true;
    for (uint32_t k = LH_ELASTIC_ZERO1; k <= LH_ELASTIC_ZERO3; k++)
        if (s->freedom->shardings == 1u << k)
            given.sharding = (lh_elastic_sharding)k;
    LHI_TRY(lh_elastic_choose(&given, n, s->ops, budget, LH_ELASTIC_LARGEST,
                              choice, err));
    for (uint32_t d = 0; d < s->P; d++)
        memcpy(again + (size_t)d * n, (*choice)->recomputed, n * sizeof *again);
    *out = (lh_elastic_search_result){.plan = (*choice)->plan,
                                      .n_stages = s->P,
                                      .n_ops = n,
                                      .recomputed = again,
                                      .n_runs = 1};
    return LH_OK;
}

/* Finds the best elastic plan (sharding, recomputation and group sizes) within
 * `budget` bytes per device: by PipeMesh's published algorithm if
 * `s->freedom->published`, else by lh_elastic_search_events(). Then builds the
 * plan and simulates it on the layout's stages. *missing: bytes by which the
 * plan exceeds a device's memory. */
static lh_status evaluate_budget(shape_search *s, int64_t budget,
                                 lhi_arena *mem, lhi_elastic_result *out,
                                 int64_t *missing, lh_error *err)
{
    stop_context ask = {s->freedom, out};
    lh_elastic_setting setting = {
        .given = s->given,
        .n_ops = s->kinds.n * s->layers,
        .ops = s->ops,
        .shardings = s->freedom->shardings,
        .min_queue = s->freedom->breadth_first ? s->config->microbatches
                                               : s->freedom->queue,
        .max_queue = s->freedom->depth_first ? s->P : s->freedom->queue,
        .stopped = is_stopped,
        .context = &ask};
    lh_elastic_search_result *found = NULL, published;
    lh_elastic_choice *choice = NULL;
    int64_t before = out->makespan_ns;
    out->work += estimate_simulation_work(s, 1); /* for its tables */
    if (s->freedom->published)
        LHI_TRY(choose_published(s, budget, &choice, &published, err));
    else
        LHI_TRY(lh_elastic_search_events(1, &setting, budget, &found, err));
    const lh_elastic_search_result *best = found ? found : &published;
    out->work += estimate_simulation_work(s, best->n_runs);
    lh_status status = build_result(s, best, out, missing, err);
    if (status == LH_OK && out->schedule && out->makespan_ns != before)
        status = describe_result(s, best, mem, &out->details, err);
    lh_elastic_search_result_free(found);
    lh_elastic_choice_free(choice);
    return status;
}

/* Searches elastic plans with the device memory as budget. While the plan built
 * on the real stages does not fit, repeats it with a smaller budget. */
static lh_status search_budgets(shape_search *s, lhi_arena *mem,
                                lhi_elastic_result *out, lh_error *err)
{
    int64_t budget = INT64_MAX;
    for (uint32_t d = 0; d < s->P; d++) {
        int64_t limit = lh_pipeline_memory_limit(s->built.pipeline, d);
        budget = limit < budget ? limit : budget;
    }
    s->layers = (s->job->model->layers + s->n_chunks - 1) / s->n_chunks;
    LHI_TRY(fill_case(s, err));
    for (int i = 0; i < MAX_BUDGETS; i++) {
        int64_t missing;
        LHI_TRY(evaluate_budget(s, budget, mem, out, &missing, err));
        if (missing == 0)
            return LH_OK;
        budget -= missing;
    }
    return lhi_fail(err, LH_EINFEASIBLE, "no elastic plan fits");
}

/* Searches elastic plans with every share of activations to offload to host
 * memory. A smaller share is not always faster: it may need more sharding. */
static lh_status search_offload_shares(shape_search *s, lhi_arena *mem,
                                       lhi_elastic_result *out, lh_error *err)
{
    bool works = false;
    if (!s->freedom->offload)
        return search_budgets(s, mem, out, err);
    s->host_bytes_per_s = find_host_rate(s->job);
    for (; s->offloaded_parts <= LHI_ELASTIC_PARTS;
         s->offloaded_parts += PARTS_STEP) {
        lh_status status = search_budgets(s, mem, out, err);
        if (status != LH_OK && status != LH_EINFEASIBLE)
            return status;
        works = works || status == LH_OK;
    }
    return works ? LH_OK : LH_EINFEASIBLE;
}

lh_status lhi_elastic_can_hide_receives(const lh_job *job,
                                        const lhi_config *config, bool *out,
                                        lh_error *err)
{
    uint32_t P = config->layout.pipeline, M = config->layout.chunks_per_device;
    shape_search s = {
        .job = job, .config = config, .P = P, .M = M, .n_chunks = P * M};
    LHI_TRY(lhi_layout_build(job, config, &s.built, err));
    *out = find_slowest_hop_ns(s.built.pipeline) <=
           compute_max_per_chunk(&s, get_forward_ns);
    lh_pipeline_free(s.built.pipeline);
    return LH_OK;
}

lh_status lhi_elastic_search_shape(const lh_job *job, const lhi_config *config,
                                   const lhi_elastic_options *freedom,
                                   lhi_arena *mem, lhi_elastic_result *out,
                                   lh_error *err)
{
    uint32_t P = config->layout.pipeline, M = config->layout.chunks_per_device;
    stop_context ask = {freedom, out};
    if (is_stopped(&ask, false))
        return lhi_fail(err, LH_EINFEASIBLE, "stopped before a plan was found");
    shape_search s = {.job = job,
                      .config = config,
                      .freedom = freedom,
                      .P = P,
                      .M = M,
                      .n_chunks = P * M,
                      .mem = lhi_arena_make(0)};
    if (!s.mem)
        return lhi_fail_nomem(err);
    lh_status status = lhi_layout_build(job, config, &s.built, err);
    s.sharded = LHI_NEW(s.mem, lhi_chunk_sharded, s.n_chunks);
    if (status == LH_OK)
        status = s.sharded ? lhi_layout_compute_sharded_times(job, config,
                                                              s.sharded, err)
                           : lhi_fail_nomem(err);
    if (status == LH_OK)
        status = find_kinds(&s, err);
    if (status == LH_OK)
        status = search_offload_shares(&s, mem, out, err);
    lh_pipeline_free(s.built.pipeline);
    lhi_arena_free(s.mem);
    return status;
}
