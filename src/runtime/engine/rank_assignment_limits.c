/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fail.h"
#include "resilience/event_timeline/timeline.h"
#include "resilience/placement/placement.h"
#include "runtime/engine/elastic_sharding.h"
#include "runtime/engine/migration_target.h"
#include "runtime/engine/shard_groups.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* Writes why this run cannot migrate training state (hosts) into `why`; "" if
 * it can. */
static void find_migration_obstacle(const lhi_job *job,
                                    char why[LHI_FIXED_REASON_BYTES])
{
    const lhi_grid *g = &job->grid;
    const lh_train_model *m = job->model;
    uint32_t n = lhi_grid_group_size(g, LHI_GRID_DATA, 0);
    if (g->tensor * g->context > 1)
        snprintf(why, LHI_FIXED_REASON_BYTES,
                 "ranks compute passes together (tensor %" PRIu32
                 ", context %" PRIu32 "); plan with tensor: 1 and context: 1",
                 g->tensor, g->context);
    else if (g->expert * g->expert_tensor > 1)
        snprintf(why, LHI_FIXED_REASON_BYTES,
                 "experts are on several ranks (expert %" PRIu32
                 "); plan with expert: 1",
                 g->expert);
    else if (lh_pipeline_offloads(job->pipeline) ||
             job->exec->options.lists_host_copies)
        snprintf(why, LHI_FIXED_REASON_BYTES,
                 "activations are offloaded; plan without offload, and run "
                 "without host memory");
    else if (lhi_pipeline_n_dp_ops(job->pipeline) > 0)
        snprintf(why, LHI_FIXED_REASON_BYTES,
                 "passes launch data-parallel operations; plan with a schedule "
                 "that is not elastic");
    else if (m->sharded_gradients > 0)
        snprintf(why, LHI_FIXED_REASON_BYTES,
                 "gradients are sharded over replicas (ZeRO %d); plan with "
                 "zero: 1",
                 m->sharded_parameters > 0 ? 3 : 2);
    else if (g->mirrored)
        snprintf(why, LHI_FIXED_REASON_BYTES,
                 "the pipeline has two directions; use placement ud, loop or "
                 "wave");
    else if (job->o.enforces_memory)
        snprintf(why, LHI_FIXED_REASON_BYTES,
                 "memory limits are enforced, and a migration needs memory for "
                 "the state twice; do not enforce them");
    else if (n > 1 &&
             !lhi_shard_groups_equal_at_stages(m, n, job->exec->n_ranks))
        snprintf(
            why, LHI_FIXED_REASON_BYTES,
            "the optimizer state is sharded by site, and replicas are at "
            "different sites at different stages; plan with sharding: full");
}

/* Writes why this run cannot migrate layers between chunks into `why`; "" if it
 * can. `numbers`: the current layers per chunk. */
static void find_layer_obstacle(const lhi_job *job, const uint32_t *numbers,
                                char why[LHI_FIXED_REASON_BYTES])
{
    bool all = true;
    for (uint32_t c = 0; c < job->exec->n_chunks; c++)
        all = all && numbers[c] > 0;
    if (!job->model && !job->o.layers)
        snprintf(why, LHI_FIXED_REASON_BYTES,
                 "the layer count of each chunk is unknown");
    else if (lh_pipeline_offloads(job->pipeline) ||
             job->exec->options.lists_host_copies)
        snprintf(why, LHI_FIXED_REASON_BYTES,
                 "activations are offloaded; plan without offload, and run "
                 "without host memory");
    else if (lhi_pipeline_is_bidirectional(job->pipeline))
        snprintf(why, LHI_FIXED_REASON_BYTES,
                 "the pipeline has two directions; use placement ud, loop or "
                 "wave");
    else if (lhi_pipeline_n_slices(job->pipeline) > 1)
        snprintf(why, LHI_FIXED_REASON_BYTES,
                 "sequences are in slices; plan without layout.slices");
    else if (lhi_pipeline_n_dp_ops(job->pipeline) > 0)
        snprintf(why, LHI_FIXED_REASON_BYTES,
                 "passes launch data-parallel operations; plan with a schedule "
                 "that is not elastic");
    else if (job->model && !all)
        snprintf(why, LHI_FIXED_REASON_BYTES,
                 "a chunk has no layer; each needs at least 1");
}

/* Sets whether migrations may change the number of layers per chunk: stores
 * either the initial numbers (of the model, or of --layers) in the job's
 * assignment limits, or the reason why layers cannot migrate. */
static lh_status set_layers(lhi_job *job, lh_error *err)
{
    const lh_train_model *m = job->model;
    lhi_rank_assignment_limits *s = &job->assignment_limits;
    lh_layers *layers;
    uint32_t *numbers = calloc((size_t)s->n_chunks + 1, sizeof *numbers);
    if (!numbers)
        return lhi_fail_nomem(err);
    for (uint32_t c = 0; c < s->n_chunks && (m || job->o.layers); c++)
        numbers[c] =
            m ? m->first_layers[c + 1] - m->first_layers[c] : job->o.layers[c];
    find_layer_obstacle(job, numbers, s->layers_fixed_reason);
    lh_status status = LH_OK;
    if (!s->layers_fixed_reason[0])
        status = lh_layers_make(job->pipeline, numbers, &layers, err);
    if (status == LH_OK && !s->layers_fixed_reason[0]) {
        s->layers = layers;
        for (uint32_t c = 0; c < s->n_chunks; c++)
            s->n_layers += numbers[c];
    }
    free(numbers);
    return status;
}

lh_status lhi_job_set_assignment_limits(lhi_job *job, lh_error *err)
{
    const lh_host_placement *places =
        job->o.event_timeline ? job->o.event_timeline->placement : NULL;
    lhi_rank_assignment_limits *s = &job->assignment_limits;
    *s = (lhi_rank_assignment_limits){.n_chunks = job->exec->n_chunks};
    if (job->model)
        find_migration_obstacle(job, s->places_fixed_reason);
    if (s->places_fixed_reason[0]) {
        lhi_text_copy(s->layers_fixed_reason, sizeof s->layers_fixed_reason,
                      s->places_fixed_reason);
        return LH_OK;
    }
    if (job->model)
        s->n_places = lhi_grid_count_ranks(&job->grid);
    else if (places)
        s->n_places = lhi_host_placement_n_hosts(places);
    else
        snprintf(s->places_fixed_reason, sizeof s->places_fixed_reason,
                 "timed devices need an event timeline with hosts");
    return set_layers(job, err);
}

lh_status lhi_job_check_assignment_limits(const lhi_job *job, lh_error *err)
{
    const lhi_rank_assignment_limits *s = &job->assignment_limits;
    if (job->o.moves_layers && s->layers_fixed_reason[0])
        return lhi_rank_assignment_fail_layers(s, err);
    if (job->o.moves_places && s->places_fixed_reason[0])
        return lhi_rank_assignment_fail_places(s, err);
    return LH_OK;
}
