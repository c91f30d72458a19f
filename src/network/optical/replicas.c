/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between a job's replicas on different nodes: their sizes for a plan,
 * and their state in a run. */
#include "network/optical/scenario.h"
#include "network/optical/simulation_internal.h"
#include "planner/layout/choice.h"
#include "planner/layout/layout.h"

#include <math.h>
#include <string.h>

/* Returns the bits that all replicas of a datacenter send to the next
 * datacenter in a ring collective of `bytes` bytes per GPU with `steps` passes
 * around the ring: (n - 1) / n of the buffer each. */
static int64_t compute_hop_bits(const lh_layout *layout, uint32_t n_sites,
                                int64_t bytes, int steps)
{
    double share = (double)(n_sites - 1) / n_sites;
    return (int64_t)ceil(8.0 * lhi_group_size(layout) * (double)bytes * share *
                         steps);
}

/* Computes the messages of each chunk of a plan whose replicas are in `n_sites`
 * datacenters into ring->gather_bits and reduce_bits. */
static lh_status compute_sizes(const lh_plan *plan, const lh_job *job,
                               const lhi_config *config,
                               const lhi_layout_placement *places,
                               uint32_t n_sites, lhi_arena *mem,
                               lhi_replica_ring *ring, lh_error *err)
{
    const lh_pipeline *p = plan->pipeline;
    uint32_t n = lh_pipeline_n_chunks(p);
    int64_t *gather = LHI_NEW(mem, int64_t, n);
    int64_t *reduce = LHI_NEW(mem, int64_t, n);
    if (!gather || !reduce)
        return lhi_fail_nomem(err);
    bool sharded = job->training.zero > 0;
    bool hybrid = sharded && config->layout.sharding > LH_SHARDING_FULL;
    for (uint32_t c = 0; c < n; c++) {
        const lh_chunk *chunk = lh_pipeline_chunk(p, c);
        const lh_cost_layer_range slice =
            lhi_config_slice(job, config, &places->stages[chunk->device], c);
        lh_cost cost;
        LHI_TRY(lh_cost_chunk(job, &config->layout, &slice, NULL, &cost, err));
        /* Hybrid sharding gathers within a datacenter, and sums gradients
         * between them, as without sharding. */
        if (chunk->all_gather_ns > 0 && !hybrid)
            gather[c] = compute_hop_bits(&config->layout, n_sites,
                                         cost.gather_bytes, 1);
        if (chunk->reduce_scatter_ns > 0)
            reduce[c] =
                compute_hop_bits(&config->layout, n_sites, cost.reduce_bytes,
                                 sharded && !hybrid ? 1 : 2);
    }
    ring->n_chunks = n;
    ring->gather_bits = gather;
    ring->reduce_bits = reduce;
    return LH_OK;
}

/* Builds a plan's pipeline without the collectives that are messages of
 * `ring`. */
static lh_status remove_collectives(const lh_pipeline *p,
                                    const lhi_replica_ring *ring,
                                    lhi_arena *mem, lh_pipeline **out,
                                    lh_error *err)
{
    lh_pipeline_desc desc = {.size = sizeof desc};
    LHI_TRY(lh_pipeline_describe(p, &desc, err));
    lh_chunk *chunks = LHI_NEW(mem, lh_chunk, desc.n_chunks);
    if (!chunks)
        return lhi_fail_nomem(err);
    for (uint32_t c = 0; c < desc.n_chunks; c++) {
        lh_chunk *chunk = &chunks[c];
        *chunk = desc.chunks[c];
        if (ring->gather_bits[c] > 0)
            chunk->all_gather_ns = 0;
        if (ring->reduce_bits[c] > 0)
            chunk->reduce_scatter_ns = 0;
        if (chunk->all_gather_ns == 0 && chunk->reduce_scatter_ns == 0)
            chunk->dp_latency_ns = 0;
    }
    desc.chunks = chunks;
    return lh_pipeline_make(&desc, out, err);
}

lh_status lhi_replicas_from_plan(const lh_plan *plan, lhi_arena *mem,
                                 lhi_optical_job_spec *job, lh_error *err)
{
    const lhi_config config = lhi_config_from_choice(&plan->best);
    const lh_job run = lhi_config_job(plan->job, &config);
    lhi_layout_placement places;
    if (config.layout.outermost != LH_OUTERMOST_DATA)
        return LH_OK;
    LHI_TRY(lhi_layout_place(&run, &config.layout, mem, &places, err));
    const lhi_stage_placement *spread = &places.stages[0];
    if (spread->n_sites < 2)
        return LH_OK;
    uint32_t *sites = LHI_NEW(mem, uint32_t, spread->n_sites);
    if (!sites)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < spread->n_sites; i++)
        sites[i] = spread->sites[i].datacenter;
    LHI_TRY(compute_sizes(plan, &run, &config, &places, spread->n_sites, mem,
                          &job->ring, err));
    LHI_TRY(remove_collectives(plan->pipeline, &job->ring, mem, &job->pipeline,
                               err));
    job->ring.n_nodes = spread->n_sites;
    job->ring_sites = sites;
    return LH_OK;
}

/* --- state in a run ------------------------------------------------------- */

lh_status lhi_live_make_replicas(lhi_live_job *j, lhi_arena *mem)
{
    uint32_t n = j->program->ring.n_chunks;
    if (j->program->ring.n_nodes == 0)
        return LH_OK;
    j->gathers_left = LHI_NEW(mem, uint32_t, n);
    j->passes_left = LHI_NEW(mem, uint32_t, n);
    j->gathered_ns = LHI_NEW(mem, int64_t, n);
    return j->gathers_left && j->passes_left && j->gathered_ns ? LH_OK
                                                               : LH_ENOMEM;
}

void lhi_live_begin_replicas(lhi_live_job *j)
{
    const lhi_program *p = j->program;
    for (uint32_t c = 0; c < p->ring.n_chunks; c++) {
        j->gathers_left[c] = p->ring.gather_bits[c] > 0 ? p->ring.n_nodes : 0;
        j->passes_left[c] = 0;
        j->gathered_ns[c] = j->begin_ns;
    }
    for (uint32_t i = 0; p->ring.n_nodes > 0 && i < p->n_tasks; i++) {
        const lh_pass *pass = &p->tasks[i].pass;
        j->passes_left[pass->chunk] += pass->kind == LH_W || pass->kind == LH_B;
    }
}

/* Checks whether the messages that gather a chunk's parameters delayed its
 * first F. */
static bool is_gather_bound(const lhi_live_job *j, uint32_t chunk)
{
    const lhi_program *p = j->program;
    int64_t first = INT64_MAX;
    for (uint32_t i = 0; i < p->n_tasks; i++)
        if (p->tasks[i].pass.kind == LH_F && p->tasks[i].pass.chunk == chunk &&
            j->start[i] < first)
            first = j->start[i];
    return j->gathered_ns[chunk] > j->begin_ns &&
           first == j->gathered_ns[chunk];
}

uint32_t lhi_live_label_replicas(lhi_live_job *j)
{
    const lhi_program *p = j->program;
    int64_t passes_ns = j->begin_ns;
    uint32_t n_bound = 0;
    if (p->n_messages == p->n_tasks)
        return 0;
    for (uint32_t i = 0; i < p->n_tasks; i++)
        passes_ns = j->end[i] > passes_ns ? j->end[i] : passes_ns;
    for (uint32_t i = p->n_tasks; i < p->n_messages; i++) {
        const lh_pass *pass = &p->tasks[i].pass;
        bool bound = pass->kind == LH_F
                         ? j->arrive[i] == j->gathered_ns[pass->chunk] &&
                               is_gather_bound(j, pass->chunk)
                         : j->arrive[i] > passes_ns;
        n_bound += bound;
        j->label[i] = bound || (j->policy->keep_labels && j->label[i]);
        j->flag[i] = j->refused[i];
    }
    return n_bound;
}
