/* SPDX-License-Identifier: Apache-2.0 */
/* Elastic-plan communication. The sharded part of a chunk's parameters is sent
 * layer by layer, like all parameters outside elastic plans (model/sharding.h):
 * one layer's gather begins after the previous one has arrived, so each pays
 * its latencies. The unsharded part is sent in one piece, with one latency. If
 * a plan shards anything, latencies also occupy the device's data-parallel
 * link; they belong to its transfers and not to a chunk. */
#include "planner/layout/elastic_shares.h"

#include "base/integer_math.h"
#include "model/sharding.h"
#include "schedule/elastic/elastic_internal.h"

#include <math.h>

/* Shares as integers: fractions out of ALL parameters. */
#define ALL (INT64_C(1) << 40)

/* Computes a chunk's times to gather parameters and reduce gradients layer by
 * layer, in ns: the longest of its datacenters. */
static lh_status time_chunk(const lh_job *job, const lhi_config *config,
                            const lhi_stage_placement *spread, uint32_t chunk,
                            lhi_ecmp_cache *known, lhi_chunk_sharded *out,
                            lh_error *err)
{
    lh_cost_options options = {.size = sizeof options,
                               .estimate_missing = true};
    lh_cost_layer_range slice = lhi_config_slice(job, config, spread, chunk);
    *out = (lhi_chunk_sharded){0};
    for (uint32_t i = 0; i < spread->n_sites; i++) {
        lhi_sharding_times times;
        lhi_chunk_sharded here;
        if (lhi_stage_placement_repeats(job, &config->layout, spread, i))
            continue;
        slice.datacenter = spread->sites[i].datacenter;
        LHI_TRY(lhi_compute_sharding_times(job, &config->layout, &slice,
                                           &options, known, &times, err));
        LHI_TRY(lhi_round_up_checked(times.gather, "an all-gather",
                                     &here.gather_ns, err));
        LHI_TRY(lhi_round_up_checked(times.reduce, "a reduce-scatter",
                                     &here.scatter_ns, err));
        out->gather_ns = lhi_max_int64(out->gather_ns, here.gather_ns);
        out->scatter_ns = lhi_max_int64(out->scatter_ns, here.scatter_ns);
    }
    return LH_OK;
}

lh_status lhi_layout_compute_sharded_times(const lh_job *job,
                                           const lhi_config *config,
                                           lhi_chunk_sharded *chunks,
                                           lh_error *err)
{
    const lh_layout *l = &config->layout;
    uint32_t n_chunks = l->pipeline * l->chunks_per_device;
    lhi_ecmp_cache known = {0};
    lhi_layout_placement places;
    lhi_arena *mem = lhi_arena_make(0);
    if (!mem)
        return lhi_fail_nomem(err);
    lh_status status = lhi_layout_place(job, l, mem, &places, err);
    for (uint32_t c = 0; status == LH_OK && c < n_chunks; c++)
        status = time_chunk(job, config,
                            &places.stages[lhi_config_device(config, c)], c,
                            &known, &chunks[c], err);
    lhi_arena_free(mem);
    return status;
}

/* Returns a chunk's gather and reduce times with and without sharded state, in
 * ns. `shares`: the latency is part of them. */
static lhi_elastic_times
make_times(const lh_chunk *plain, const lhi_chunk_sharded *sharded, bool shares)
{
    int64_t latency = shares ? plain->dp_latency_ns : 0;
    lhi_elastic_times t = {0};
    if (plain->all_gather_ns > 0)
        t.gather_ns = plain->all_gather_ns + latency;
    if (plain->reduce_scatter_ns > 0)
        t.scatter_ns = plain->reduce_scatter_ns + latency;
    t.sharded_gather_ns = lhi_max_int64(t.gather_ns, sharded->gather_ns);
    t.sharded_scatter_ns = lhi_max_int64(t.scatter_ns, sharded->scatter_ns);
    return t;
}

/* Sets the times of an elastic-plan chunk's gather before its first pass and
 * reduction after its last, by the sharded shares; 0 unless it is the device's
 * first chunk (`first`). */
static void set_end_communication(const lh_elastic_case *g,
                                  const lh_elastic_plan *plan,
                                  const lhi_elastic_times *t, bool first,
                                  lh_chunk *chunk)
{
    chunk->all_gather_ns = chunk->reduce_scatter_ns = 0;
    if (plan->params_g > 0)
        chunk->dp_latency_ns = 0;
    if (!first)
        return;
    chunk->all_gather_ns = lhi_elastic_compute_chunk_ns(
        t->gather_ns, t->sharded_gather_ns, plan->params_p, g->params);
    chunk->reduce_scatter_ns = lhi_elastic_compute_chunk_ns(
        t->scatter_ns, t->sharded_scatter_ns, plan->params_g, g->params);
}

lh_status lhi_elastic_compute_communication(const lh_pipeline *plain,
                                            const lhi_chunk_sharded *sharded,
                                            const lh_plan_elastic *plan,
                                            lhi_arena *mem, lh_chunk *chunks,
                                            lh_dp_op **ops, uint32_t *n_ops,
                                            lh_error *err)
{
    uint32_t n = lh_pipeline_n_chunks(plain), P = lh_pipeline_n_devices(plain);
    lh_elastic_case g = {.stages = P,
                         .replicas = 1,
                         .chunks = n / P,
                         .microbatches = lh_pipeline_n_microbatches(plain),
                         .f_ns = 1,
                         .b_ns = 1,
                         .params = ALL};
    lh_elastic_plan shares = {
        .n_enqueue = plan->n_enqueue,
        .n_dequeue = plan->n_dequeue,
        .enqueue = plan->enqueue,
        .dequeue = plan->dequeue,
        .params_g = (int64_t)llround(plan->gradients * (double)ALL),
        .params_p = (int64_t)llround(plan->parameters * (double)ALL),
        .scatter_buckets = plan->scatter_buckets,
        .forward_buckets = plan->forward_buckets,
        .backward_buckets = plan->backward_buckets};
    lhi_elastic_times *times = LHI_NEW(mem, lhi_elastic_times, n);
    if (!times)
        return lhi_fail_nomem(err);
    for (uint32_t c = 0; c < n; c++)
        times[c] = make_times(lh_pipeline_chunk(plain, c), &sharded[c],
                              shares.params_g > 0);
    LHI_TRY(lhi_elastic_build_operations(&g, &shares, times, ops, n_ops, err));
    for (uint32_t c = 0; c < n; c++)
        set_end_communication(&g, &shares, &times[c], c < P, &chunks[c]);
    return LH_OK;
}
