/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's device. */
#include "runtime/engine/job.h"
#include "schedule/pipeline/accessors.h"

#include <stdlib.h>

/* Lists in out[i] the node of rank i of the expert-parallel group (ranks that
 * together hold all experts) at the coordinates `at`. */
static void list_nodes(const lhi_job *job, const lhi_grid_coords *at,
                       uint32_t *out)
{
    const lhi_grid *g = &job->grid;
    const uint32_t *nodes =
        job->model->nodes + (size_t)at->device * lhi_grid_count_copies(g);
    for (uint32_t i = 0; i < g->expert; i++)
        out[i] = nodes[(at->expert_replica * g->expert + i) * g->expert_tensor +
                       at->expert_tensor];
}

uint64_t lhi_job_count_sequences(const lh_train_model *m, uint32_t n)
{
    uint64_t all = 0;
    if (!m->micro_batches)
        return (uint64_t)n * m->micro_batch;
    for (uint32_t r = 0; r < n; r++)
        all += m->micro_batches[r];
    return all;
}

uint32_t lhi_job_count_rows(const lhi_job *job)
{
    const lh_train_model *m = job->model;
    return m->micro_batch * (m->sequence / job->grid.context /
                             lhi_pipeline_n_slices(job->pipeline));
}

/* Lists the microbatches that rank `rank` runs on each of the chunks
 * options->mine, in ascending order, in options->n_own and options->own. */
static void list_own_microbatches(const lhi_job *job, uint32_t rank,
                                  const lhi_cpu_options *options,
                                  uint32_t *n_own, uint32_t *own)
{
    const uint32_t n = job->exec->n_chunks, all = options->n_microbatches;
    const lh_exec *x = job->rerouting.exec;
    for (uint32_t i = 0; i < options->n_mine; i++)
        for (uint32_t m = 0; m < all; m++)
            for (uint32_t copy = 0; copy < all; copy++)
                if (x->chunk_ranks[copy * n + options->mine[i]] == rank &&
                    lhi_rerouted_microbatch(copy, all, job->grid.replicas) == m)
                    own[i * all + n_own[i]++] = m;
}

lh_status lhi_job_fill_cpu_options(const lhi_job *job, uint32_t rank,
                                   lhi_cpu_options *out, lh_error *err)
{
    const lh_train_model *m = job->model;
    const lh_exec *x = job->exec;
    const lhi_grid *grid = &job->grid;
    bool by_nodes = m->nodes && grid->expert > 1;
    const uint32_t n_each = x->n_half / x->n_chunks; /* microbatches */
    const bool is_rerouted = job->rerouting.exec != NULL;
    const uint32_t n_all = is_rerouted ? grid->replicas * n_each : n_each;
    const size_t n_listed =
        is_rerouted ? (size_t)x->n_chunks * (1 + (size_t)n_all) : 0;
    /* the chunks, then the nodes and the rerouted chunks' microbatches */
    uint32_t *mine =
        calloc(x->n_chunks + grid->expert + n_listed, sizeof *mine);
    const lhi_grid_coords at = lhi_grid_find_coords(grid, rank);
    bool shares = lhi_grid_group_size(grid, LHI_GRID_DATA, at.device) > 1;
    const uint64_t groups = lhi_pipeline_count_sequence_groups(job->pipeline);
    uint32_t n = 0;
    if (!mine)
        return lhi_fail_nomem(err);
    for (uint32_t c = 0; c < x->n_chunks; c++)
        if (x->chunk_ranks[c] == at.device)
            mine[n++] = c;
    if (by_nodes)
        list_nodes(job, &at, mine + x->n_chunks);
    *out = (lhi_cpu_options){
        .model = m->model,
        .norm_epsilon = lh_model_norm_epsilon(m->model),
        .rope_theta = lh_model_rope_theta(m->model),
        .n_chunks = x->n_chunks,
        .bidirectional = lhi_pipeline_is_bidirectional(job->pipeline),
        .first_layers = m->first_layers,
        .recompute = m->recompute,
        .offload = m->offload,
        .offload_to = m->offload_folder,
        .n_mine = n,
        .mine = mine,
        .sharded_gradients = shares ? m->sharded_gradients : 0,
        .sharded_parameters = shares ? m->sharded_parameters : 0,
        .shards_by_layer = shares && m->per_layer_sharding,
        .microbatch =
            m->micro_batches ? m->micro_batches[at.replica] : m->micro_batch,
        .sequence = m->sequence,
        .n_microbatches = n_all,
        .replica = at.replica,
        .n_replicas = grid->replicas,
        .n_slices = lhi_pipeline_n_slices(job->pipeline),
        .step_sequences = groups * lhi_job_count_sequences(m, grid->replicas),
        .first_sequence =
            is_rerouted ? 0 : groups * lhi_job_count_sequences(m, at.replica),
        .context = at.context,
        .n_contexts = grid->context,
        .n_tensor = lhi_grid_get_tensor(grid, at.device),
        .tensor = at.tensor,
        .replicates_rows = m->no_sequence_parallel,
        .n_expert = grid->expert,
        .expert = at.expert,
        .expert_nodes = by_nodes ? mine + x->n_chunks : NULL,
        .n_expert_tensor = grid->expert_tensor,
        .expert_tensor = at.expert_tensor,
        .seed = m->seed,
        .dropout = m->dropout,
        .balance_weight = m->balance_loss,
        .expert_capacity = m->expert_capacity,
        .bf16 = m->bf16,
        .threads = m->threads};
    if (is_rerouted) {
        uint32_t *lists = mine + x->n_chunks + grid->expert;
        out->n_own = lists;
        out->own = lists + x->n_chunks;
        list_own_microbatches(job, rank, out, lists, lists + x->n_chunks);
    }
    return LH_OK;
}

/* Makes a rank's cpu device with the job's data and matrix kernels. */
static lh_status make_cpu_device(const lhi_job *job, uint32_t rank,
                                 lhi_device **out, lh_error *err)
{
    lhi_cpu_options o;
    LHI_TRY(lhi_job_fill_cpu_options(job, rank, &o, err));
    o.data = job->data;
    o.sgemm = job->sgemm;
    lh_status status = lhi_device_cpu(&o, out, err);
    free((uint32_t *)(uintptr_t)o.mine);
    return status;
}

lh_status lhi_job_make_device(const lhi_job *job, uint32_t rank,
                              lhi_device **out, lh_error *err)
{
    if (job->model)
        return make_cpu_device(job, rank, out, err);
    return lhi_device_timed(
        job->rerouting.exec ? job->rerouting.pipeline : job->pipeline,
        rank % job->exec->n_ranks, (size_t)job->o.message_bytes,
        job->o.tolerated_lateness_ns, out, err);
}
