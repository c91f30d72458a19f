/* SPDX-License-Identifier: Apache-2.0 */
/* Finds a layout's fastest elastic plan: builds and simulates every chunk
 * count, sharding level and queue length. */
#include "planner/elastic/layout_search.h"

#include "base/integer_math.h"
#include "planner/elastic/bound.h"
#include "planner/elastic/shape_search.h"
#include "planner/layout/choice.h"
#include "planner/layout/target.h"

#include <inttypes.h>
#include <longhaul/experimental/elastic.h>
#include <string.h>

enum {
    MAX_UNEVEN_CHUNKS = 4, /* chunks per device up to which any partition is
                            * tried */
    /* passes on all devices: event simulation needs ms beyond this, so many
     * microbatches allow fewer chunks only */
    MAX_PASSES = 100000,
};

/* Checks whether the job's key for the schedule names the elastic schedule. */
static bool is_requested(const lh_job *job)
{
    return lhi_schedule_requested(job) == LHI_REQUEST_METHOD &&
           strcmp(job->layout.schedule, LHI_ELASTIC) == 0;
}

/* Returns the largest chunk count per device for which the search looks for
 * elastic plans with the degrees of `like`. */
static uint32_t compute_max_chunks(const lh_job *job, const lhi_config *like)
{
    uint64_t layers = job->model->layers / like->layout.pipeline;
    uint64_t few =
        MAX_PASSES / (2 * (uint64_t)like->microbatches * like->layout.pipeline);
    return (uint32_t)(layers < few ? layers : few);
}

bool lhi_elastic_is_applicable(const lh_job *job, const lhi_config *config)
{
    const lh_layout *l = &config->layout;
    bool wanted =
        lhi_target_supports_method(job->target, l->pipeline, LHI_ELASTIC) &&
        (lhi_schedule_requested(job) == LHI_REQUEST_ANY || is_requested(job));
    /* Elastic plans have their own sharding rules, over all replicas. */
    bool shards = (!job->training.zero_given || job->training.zero >= 1) &&
                  l->sharding <= LH_SHARDING_FULL &&
                  job->training.offload_share == 0;
    return wanted && shards && !job->layout.slices &&
           l->data * l->context > 1 && config->microbatches >= l->pipeline &&
           compute_max_chunks(job, config) > 0 && !job->model->mtp_layers &&
           !job->model->layer_pattern && /* plans assume equal layers */

           lhi_layers_requested_min(job) > 0;
}

bool lhi_elastic_is_required(const lh_job *job)
{
    return is_requested(job) && job->training.zero >= 2;
}

/* Checks whether the search continues after the evaluation of one candidate
 * returned `status`: LH_OK, or a status that only excludes this candidate
 * (lhi_method_is_inapplicable()). All other statuses end the search. */
static bool may_continue(lh_status status)
{
    return status == LH_OK || lhi_method_is_inapplicable(status);
}

/* Searches one configuration's fastest elastic plan at every allowed sharding
 * level, with and without recomputation, into *out. Needed because the event
 * search assumes equal stages: its fastest plan over all levels need not be the
 * fastest on the real stages. */
static lh_status evaluate_shardings(const lh_job *job, const lhi_config *config,
                                    const lhi_elastic_options *freedom,
                                    lhi_arena *mem, lhi_elastic_result *out,
                                    lh_error *err)
{
    lh_error why = {0};
    lh_status last = LH_EINFEASIBLE;
    bool works = false;
    for (uint32_t k = LH_ELASTIC_MIXED; k <= LH_ELASTIC_ZERO3; k++)
        for (int again = 0; again <= freedom->recompute; again++) {
            lhi_elastic_options f = *freedom;
            f.shardings = 1u << k;
            f.recompute = again;
            if (freedom->shardings && !(freedom->shardings & f.shardings))
                continue;
            lh_status status =
                lhi_elastic_search_shape(job, config, &f, mem, out, &why);
            if (!may_continue(status)) {
                if (err)
                    *err = why;
                return status;
            }
            works = works || status == LH_OK;
            last = status;
        }
    if (!works && err)
        *err = why;
    return works ? LH_OK : last;
}

/* Callback for one chunk shape of a layout: M chunks per device with these
 * layers. */
typedef lh_status shape_visitor(void *context, uint32_t M,
                                const uint32_t *layers, lh_error *err);

/* Evaluates or bounds one layout. */
typedef struct layout_trial {
    const lh_job *job;
    const lhi_config *like;
    const lhi_elastic_options *freedom;
    lhi_arena *mem;
    lhi_elastic_result *out; /* the fastest so far */
    int64_t least_ns;        /* or the least lower bound so far, iteration */
} layout_trial;

/* Returns the chunks per device that the options or else the job require; 0:
 * any number. */
static uint32_t count_required_chunks(const layout_trial *t)
{
    return t->freedom->chunks ? t->freedom->chunks
                              : t->job->layout.chunks_per_device;
}

/* Returns the configuration, with M chunks per device, ZeRO-1 and layer
 * partition `layers` (NULL: even), whose pipeline elastic plans modify; *plain:
 * the job with ZeRO-1. */
static lhi_config make_zero1_config(const layout_trial *t, uint32_t M,
                                    const uint32_t *layers, lh_job *plain)
{
    lhi_config config = {.layout = t->like->layout,
                         .microbatches = t->like->microbatches,
                         .layers = layers};
    config.layout.chunks_per_device = M;
    config.placement = M == 1 ? LH_PLACEMENT_UD : LH_PLACEMENT_LOOP;
    config.recompute = t->job->training.recompute_given
                           ? t->job->training.recompute
                           : LH_RECOMPUTE_NONE;
    *plain = *t->job;
    plain->training.zero = 1;
    plain->training.recompute = config.recompute;
    return config;
}

/* Fails with LH_EINFEASIBLE if a lower bound proves that no elastic plan with
 * this chunk count and layer partition beats the best one so far and the
 * caller's limit. */
static lh_status check_bounds(const layout_trial *t, const lh_job *plain,
                              const lhi_config *config, lh_error *err)
{
    lhi_elastic_lower_bound floor;
    int64_t most = t->freedom->below_ns;
    LHI_TRY(lhi_elastic_compute_bound(plain, config, t->freedom, &floor, err));
    t->out->work += lhi_elastic_estimate_bound_work(config);
    if (floor.makespan_ns == INT64_MAX && !most && !t->out->schedule)
        return LH_OK; /* the search reports the missing memory */
    if (floor.makespan_ns == INT64_MAX)
        return lhi_fail(err, LH_EINFEASIBLE,
                        "no plan with %" PRIu32
                        " chunks per device fits with any sharding and "
                        "recomputation",
                        config->layout.chunks_per_device);
    if ((most && floor.makespan_ns + floor.after_ns >= most) ||
        (t->out->schedule && floor.makespan_ns >= t->out->makespan_ns))
        return lhi_fail(err, LH_EINFEASIBLE,
                        "no plan with %" PRIu32
                        " chunks per device is faster than %.3f s",
                        config->layout.chunks_per_device,
                        (double)(floor.makespan_ns + floor.after_ns) / 1e9);
    return LH_OK;
}

/* Searches elastic plans with M chunks per device and layer partition `layers`
 * (NULL: even), unless a bound excludes them, and stores the fastest so far. */
static lh_status search_shape(void *context, uint32_t M, const uint32_t *layers,
                              lh_error *err)
{
    const layout_trial *t = context;
    lh_job plain;
    lhi_config config = make_zero1_config(t, M, layers, &plain);
    LHI_TRY(check_bounds(t, &plain, &config, err));
    return evaluate_shardings(&plain, &config, t->freedom, t->mem, t->out, err);
}

/* --- published planner ---------------------------------------------------- */

/* Computes PipeMesh's chunk count (section IV-B) into *out: the most chunks
 * that divide a stage's layers and whose forward hides receiving an input. 1 if
 * no count qualifies or the stages have different layer counts. */
static lh_status count_published_chunks(const layout_trial *t, uint32_t *out,
                                        lh_error *err)
{
    uint32_t P = t->like->layout.pipeline, layers = t->job->model->layers;
    uint32_t want = count_required_chunks(t);
    bool hides = false;
    *out = want ? want : compute_max_chunks(t->job, t->like);
    for (; !want && *out > 1; --*out) {
        lh_job plain;
        lhi_config config = make_zero1_config(t, *out, NULL, &plain);
        if (layers % (P * *out) == 0)
            LHI_TRY(
                lhi_elastic_can_hide_receives(&plain, &config, &hides, err));
        if (hides)
            break;
    }
    return LH_OK;
}

/* Builds and simulates the elastic plan that the published planner (PipeMesh)
 * chooses for this layout, into the trial's result. */
static lh_status evaluate_published(const layout_trial *t, lh_error *err)
{
    uint32_t M;
    lh_job plain;
    LHI_TRY(count_published_chunks(t, &M, err));
    lhi_config config = make_zero1_config(t, M, t->freedom->layers, &plain);
    return lhi_elastic_search_shape(&plain, &config, t->freedom, t->mem, t->out,
                                    err);
}

/* --- search --------------------------------------------------------------- */

/* Improves the fastest plan by hill climbing over its queue length
 * (microbatches per group). The event search assumes equal stages, so its best
 * queue length need not be the best on this layout. */
static lh_status improve_queue(const layout_trial *given, lh_error *err)
{
    static const int steps[] = {-8, -4, -2, -1, 1, 2, 4, 8};
    lhi_elastic_result *out = given->out;
    lhi_elastic_options f = *given->freedom;
    bool better = !f.depth_first && !f.breadth_first;
    while (better) {
        int64_t before = out->makespan_ns;
        int64_t q = out->details->enqueue[0];
        lhi_config like = out->config;
        layout_trial t = *given;
        t.like = &like;
        t.freedom = &f;
        for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
            int64_t next = q + steps[i];
            if (next < like.layout.pipeline || next > like.microbatches)
                continue;
            f.queue = (uint32_t)next;
            lh_status status = search_shape(&t, like.layout.chunks_per_device,
                                            like.layers, err);
            if (!may_continue(status))
                return status;
        }
        better = out->makespan_ns < before;
    }
    return LH_OK;
}

/* Returns a layer partition whose first chunk on each stage has `less` layers
 * fewer: its gather and scatter are exposed, so fewer layers there may be
 * faster. The layers go to other chunks of the stage, one each: the last ones
 * or, if `early`, the next ones. In `mem`; NULL on allocation failure. */
static uint32_t *shrink_end_chunk(const lhi_config *like, uint32_t layers,
                                  uint32_t M, uint32_t less, bool early,
                                  lhi_arena *mem)
{
    uint32_t P = like->layout.pipeline, each = layers / (P * M);
    uint32_t *list = LHI_NEW(mem, uint32_t, (size_t)P * M);
    for (uint32_t c = 0; list && c < P * M; c++) {
        uint32_t column = c / P;
        bool more = early ? column <= less : column >= M - less;
        list[c] = column == 0 ? each - less : each + more;
    }
    return list;
}

/* Calls `visit` for the layer partitions with M chunks per device in which each
 * stage's first chunk is smaller. Does nothing unless the layers divide evenly
 * by the chunks. */
static lh_status visit_uneven_shapes(layout_trial *t, uint32_t M,
                                     shape_visitor *visit, lh_error *err)
{
    uint32_t layers = t->job->model->layers, P = t->like->layout.pipeline;
    if (layers % (P * M) != 0)
        return LH_OK;
    for (uint32_t less = 1; less < layers / (P * M) && less < M; less++)
        for (int early = 0; early < 2; early++) {
            if (early && less == M - 1)
                continue; /* all others get one either way */
            uint32_t *list =
                shrink_end_chunk(t->like, layers, M, less, early, t->mem);
            if (!list)
                return lhi_fail_nomem(err);
            lh_status status = visit(t, M, list, err);
            if (!may_continue(status))
                return status;
        }
    return LH_OK;
}

/* Calls `visit` for every allowed chunk count with an even layer partition.
 * Counts above MAX_UNEVEN_CHUNKS must divide the layers evenly: otherwise the
 * longest chunk determines the time. */
static lh_status visit_even_shapes(layout_trial *t, shape_visitor *visit,
                                   lh_error *err)
{
    uint32_t P = t->like->layout.pipeline, layers = t->job->model->layers;
    uint32_t want = count_required_chunks(t);
    for (uint32_t M = 1; M <= compute_max_chunks(t->job, t->like); M++) {
        if (want ? M != want : M > MAX_UNEVEN_CHUNKS && layers % (P * M) != 0)
            continue;
        lh_status status = visit(t, M, t->freedom->layers, err);
        if (!may_continue(status))
            return status;
    }
    return LH_OK;
}

/* Checks whether the options allow M chunks per device with unequal numbers of
 * layers. */
static bool allows_uneven_shapes(const layout_trial *t, uint32_t M)
{
    uint32_t want = count_required_chunks(t);
    return t->freedom->uneven && !t->freedom->layers && (!want || M == want);
}

/* Searches elastic plans on all allowed chunk counts with layer partitions
 * whose first chunks are smaller. */
static lh_status search_uneven_shapes(layout_trial *t, lh_error *err)
{
    for (uint32_t M = 1; M <= compute_max_chunks(t->job, t->like); M++)
        if (allows_uneven_shapes(t, M))
            LHI_TRY(visit_uneven_shapes(t, M, search_shape, err));
    return LH_OK;
}

/* Searches other chunk counts and uneven layer partitions with the best queue
 * length so far (microbatches per group), then uneven partitions with any queue
 * length. */
static lh_status retry_best_queue(layout_trial *t, lh_error *err)
{
    lhi_elastic_options same = *t->freedom;
    bool free_queue = !same.depth_first && !same.breadth_first;
    layout_trial with = *t;
    same.queue = t->out->details->enqueue[0];
    with.freedom = &same;
    if (free_queue)
        LHI_TRY(visit_even_shapes(&with, search_shape, err));
    for (uint32_t M = 1; M <= compute_max_chunks(t->job, t->like); M++)
        if (free_queue && allows_uneven_shapes(t, M))
            LHI_TRY(visit_uneven_shapes(&with, M, search_shape, err));
    return search_uneven_shapes(t, err);
}

lh_status lhi_elastic_search_layout(const lh_job *job, const lhi_config *like,
                                    const lhi_elastic_options *freedom,
                                    lhi_arena *mem, lhi_elastic_result *out,
                                    lh_error *err)
{
    lh_error why = {0};
    layout_trial t = {job, like, freedom, mem, out, INT64_MAX};
    *out = (lhi_elastic_result){0};
    lh_status status = freedom->published
                           ? evaluate_published(&t, &why)
                           : visit_even_shapes(&t, search_shape, &why);
    bool searched = status == LH_OK && !freedom->published;
    if (searched && !out->schedule && freedom->below_ns)
        status =
            search_uneven_shapes(&t, &why); /* bounds ruled the others out */
    searched = searched && out->schedule;
    if (status == LH_OK && searched)
        status = improve_queue(&t, &why);
    if (status == LH_OK && searched) {
        int64_t before = out->makespan_ns;
        status = retry_best_queue(&t, &why);
        if (status == LH_OK && out->makespan_ns < before)
            status = improve_queue(&t, &why);
    }
    if (status != LH_OK) {
        lh_pipeline_free(out->built.pipeline);
        lh_schedule_free(out->schedule);
        *out = (lhi_elastic_result){.work = out->work};
        if (err)
            *err = why;
        return status;
    }
    if (!out->schedule)
        return lhi_fail(err, LH_EINFEASIBLE, "elastic: %s",
                        why.text[0] ? why.text : "no number of chunks works");
    return LH_OK;
}

/* --- bounds --------------------------------------------------------------- */

/* Lowers the layout's bound to that of the plans with M chunks per device and
 * layer partition `layers`, if that is lower; a callback for
 * visit_even_shapes(). */
static lh_status update_layout_bound(void *context, uint32_t M,
                                     const uint32_t *layers, lh_error *err)
{
    layout_trial *t = context;
    lh_job plain;
    lhi_config config = make_zero1_config(t, M, layers, &plain);
    lhi_elastic_lower_bound floor;
    t->out->work += lhi_elastic_estimate_bound_work(&config);
    LHI_TRY(
        lhi_elastic_compute_bound(&plain, &config, t->freedom, &floor, err));
    if (floor.makespan_ns < INT64_MAX)
        t->least_ns =
            lhi_min_int64(t->least_ns, floor.makespan_ns + floor.after_ns);
    return LH_OK;
}

lh_status lhi_elastic_compute_layout_bound(const lh_job *job,
                                           const lhi_config *like,
                                           const lhi_elastic_options *freedom,
                                           lhi_arena *mem, int64_t *out_ns,
                                           uint64_t *work, lh_error *err)
{
    lhi_elastic_result none = {0};
    layout_trial t = {job, like, freedom, mem, &none, INT64_MAX};
    lh_status status = visit_even_shapes(&t, update_layout_bound, err);
    for (uint32_t M = 1; M <= compute_max_chunks(job, like) && status == LH_OK;
         M++)
        if (allows_uneven_shapes(&t, M))
            status = visit_uneven_shapes(&t, M, update_layout_bound, err);
    *work += none.work;
    LHI_TRY(status);
    *out_ns = t.least_ns;
    return LH_OK;
}
