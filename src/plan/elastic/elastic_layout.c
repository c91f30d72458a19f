/* SPDX-License-Identifier: Apache-2.0 */
/* From a layout to its fastest elastic plan: every number of chunks, sharding
 * and queue is built and run, and the fastest of these stays. */
#include "plan/elastic/elastic_layout.h"

#include "plan/elastic/elastic_shape.h"
#include "plan/layout/choice.h"

#include <longhaul/elastic.h>
#include <string.h>

enum {
    MOST_CHUNKS = 16, /* per device */
    MOST_MICROBATCHES = 512,
    MOST_PASSES = 100000, /* of all devices: event runs take ms beyond */
};

bool lhi_elastic_suits(const lh_job *job, const lhi_config *config)
{
    const lh_layout *l = &config->layout;
    bool wanted = lhi_schedule_asked(job) == LHI_ASKED_ANY ||
                  strcmp(job->layout.schedule, LHI_ELASTIC) == 0;
    /* It shards by its own rules, over all replicas. */
    bool shards = (!job->training.zero_given || job->training.zero >= 1) &&
                  l->sharding <= LH_SHARDING_FULL;
    uint64_t passes = 2 * (uint64_t)config->microbatches * job->model->layers;
    return wanted && shards && l->data * l->context > 1 &&
           !lhi_layout_is_folded(l) && config->microbatches >= l->pipeline &&
           config->microbatches <= MOST_MICROBATCHES && passes <= MOST_PASSES &&
           !job->model->mtp_layers && lhi_layers_least(job) > 0;
}

static bool can_go_on(lh_status status)
{
    return status == LH_OK || lhi_method_refused(status);
}

/* The search takes all stages for equal, so what it finds fastest need not be
 * so on the layout's own. Every sharding, with recomputation and without, is
 * built and run. */
static lh_status try_freedoms(const lh_job *job, const lhi_config *config,
                              const lhi_elastic_freedom *freedom,
                              lhi_arena *mem, lhi_elastic_result *out,
                              lh_error *err)
{
    lh_error why = {0};
    lh_status last = LH_EINFEASIBLE;
    bool works = false;
    for (uint32_t k = LH_ELASTIC_MIXED; k <= LH_ELASTIC_ZERO3; k++)
        for (int again = 0; again <= freedom->recompute; again++) {
            lhi_elastic_freedom f = *freedom;
            f.shardings = 1u << k;
            f.recompute = again;
            if (freedom->shardings && !(freedom->shardings & f.shardings))
                continue;
            lh_status status =
                lhi_elastic_shape(job, config, &f, mem, out, &why);
            if (!can_go_on(status)) {
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

static lh_status try_chunks(const lh_job *job, const lhi_config *like,
                            const lhi_elastic_freedom *freedom, uint32_t M,
                            const uint32_t *layers, lhi_arena *mem,
                            lhi_elastic_result *out, lh_error *err)
{
    lhi_config config = {.layout = like->layout,
                         .microbatches = like->microbatches,
                         .layers = layers};
    config.layout.chunks_per_device = M;
    config.placement = M == 1 ? LH_PLACEMENT_UD : LH_PLACEMENT_LOOP;
    config.recompute = job->training.recompute_given ? job->training.recompute
                                                     : LH_RECOMPUTE_NONE;
    lh_job plain = *job;
    plain.training.zero = 1;
    plain.training.recompute = config.recompute;
    return try_freedoms(&plain, &config, freedom, mem, out, err);
}

/* For the same reason, from the fastest on: longer and shorter queues. */
static lh_status climb_queues(const lh_job *job,
                              const lhi_elastic_freedom *freedom,
                              lhi_arena *mem, lhi_elastic_result *out,
                              lh_error *err)
{
    static const int steps[] = {-8, -4, -2, -1, 1, 2, 4, 8};
    lhi_elastic_freedom f = *freedom;
    bool better = !f.depth_first && !f.breadth_first;
    while (better) {
        int64_t before = out->makespan_ns;
        int64_t q = out->details->enqueue[0];
        lhi_config like = out->config;
        for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
            int64_t next = q + steps[i];
            if (next < like.layout.pipeline || next > like.microbatches)
                continue;
            f.queue = (uint32_t)next;
            lh_status status =
                try_chunks(job, &like, &f, like.layout.chunks_per_device,
                           like.layers, mem, out, err);
            if (!can_go_on(status))
                return status;
        }
        better = out->makespan_ns < before;
    }
    return LH_OK;
}

/* The gather before the first chunk's passes and the scatter after its last
 * hide behind nothing, so fewer layers there may be faster. `less` layers of
 * it go to other chunks of the stage, one each: the last ones, or, with
 * `early`, the ones after it. */
static uint32_t *smaller_first(const lhi_config *like, uint32_t layers,
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

static lh_status try_uneven(const lh_job *job, const lhi_config *like,
                            const lhi_elastic_freedom *freedom, uint32_t M,
                            lhi_arena *mem, lhi_elastic_result *out,
                            lh_error *err)
{
    uint32_t layers = job->model->layers, P = like->layout.pipeline;
    if (layers % (P * M) != 0)
        return LH_OK;
    for (uint32_t less = 1; less < layers / (P * M) && less < M; less++)
        for (int early = 0; early < 2; early++) {
            if (early && less == M - 1)
                continue; /* all others get one either way */
            uint32_t *list = smaller_first(like, layers, M, less, early, mem);
            if (!list)
                return lhi_fail_nomem(err);
            lh_status status =
                try_chunks(job, like, freedom, M, list, mem, out, err);
            if (!can_go_on(status))
                return status;
        }
    return LH_OK;
}

/* Every number of chunks, as even as the layers go; else the longest chunk
 * says it all. */
static lh_status try_all(const lh_job *job, const lhi_config *like,
                         const lhi_elastic_freedom *freedom, lhi_arena *mem,
                         lhi_elastic_result *out, lh_error *err)
{
    uint32_t P = like->layout.pipeline, layers = job->model->layers;
    uint32_t want =
        freedom->chunks ? freedom->chunks : job->layout.chunks_per_device;
    uint32_t most =
        P == 1 ? (layers < MOST_CHUNKS ? layers : MOST_CHUNKS) : layers / P;
    for (uint32_t M = 1; M <= most && M <= MOST_CHUNKS; M++) {
        if (want ? M != want : M > 2 && layers % (P * M) != 0)
            continue;
        lh_status status =
            try_chunks(job, like, freedom, M, freedom->layers, mem, out, err);
        if (!can_go_on(status))
            return status;
    }
    return LH_OK;
}

/* With the queue of the best so far, which may do for other chunks, too; and
 * smaller first chunks, with it and with any. */
static lh_status try_again(const lh_job *job, const lhi_config *like,
                           const lhi_elastic_freedom *freedom, lhi_arena *mem,
                           lhi_elastic_result *out, lh_error *err)
{
    lhi_elastic_freedom same = *freedom;
    bool free_queue = !freedom->depth_first && !freedom->breadth_first;
    bool uneven = freedom->uneven && !freedom->layers;
    uint32_t want =
        freedom->chunks ? freedom->chunks : job->layout.chunks_per_device;
    same.queue = out->details->enqueue[0];
    if (free_queue)
        LHI_TRY(try_all(job, like, &same, mem, out, err));
    for (uint32_t M = 1; uneven && M <= MOST_CHUNKS; M++) {
        if (want && M != want)
            continue;
        if (free_queue)
            LHI_TRY(try_uneven(job, like, &same, M, mem, out, err));
        LHI_TRY(try_uneven(job, like, freedom, M, mem, out, err));
    }
    return LH_OK;
}

lh_status lhi_elastic_layout(const lh_job *job, const lhi_config *like,
                             const lhi_elastic_freedom *freedom, lhi_arena *mem,
                             lhi_elastic_result *out, lh_error *err)
{
    lh_error why = {0};
    *out = (lhi_elastic_result){0};
    lh_status status = try_all(job, like, freedom, mem, out, &why);
    if (status == LH_OK && out->schedule)
        status = climb_queues(job, freedom, mem, out, &why);
    if (status == LH_OK && out->schedule) {
        int64_t before = out->makespan_ns;
        status = try_again(job, like, freedom, mem, out, &why);
        if (status == LH_OK && out->makespan_ns < before)
            status = climb_queues(job, freedom, mem, out, &why);
    }
    if (status != LH_OK) {
        lh_pipeline_free(out->built.pipeline);
        lh_schedule_free(out->schedule);
        *out = (lhi_elastic_result){0};
        if (err)
            *err = why;
        return status;
    }
    if (!out->schedule)
        return lhi_fail(err, LH_EINFEASIBLE, "elastic: %s",
                        why.text[0] ? why.text : "no number of chunks works");
    return LH_OK;
}
