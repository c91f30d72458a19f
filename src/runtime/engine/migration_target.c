/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/engine/migration_target.h"

#include "base/fail.h"

#include <stdlib.h>
#include <string.h>

lh_status lhi_rank_assignment_make_pipeline(
    const lhi_job *job, const lh_pipeline *pipeline,
    const lhi_rank_assignment *assignment, lh_pipeline **out, lh_error *err)
{
    *out = NULL;
    if (!assignment || !assignment->layers)
        return LH_OK;
    return lh_layers_pipeline(job->assignment_limits.layers, pipeline,
                              assignment->layers, out, err);
}

/* Replaces pipeline and layer partition in the target's job copy by those of
 * the new rank assignment. */
static lh_status adapt_job(lhi_migration_target *s, lh_error *err)
{
    uint32_t n = s->job.exec->n_chunks;
    LHI_TRY(lhi_rank_assignment_make_pipeline(
        &s->job, s->job.pipeline, &s->assignment, &s->pipeline, err));
    if (s->pipeline)
        s->job.pipeline = s->pipeline;
    if (!s->job.model || !s->assignment.layers)
        return LH_OK;
    if (!(s->first_layers = calloc(n + (size_t)1, sizeof *s->first_layers)))
        return lhi_fail_nomem(err);
    for (uint32_t c = 0; c < n; c++)
        s->first_layers[c + 1] = s->first_layers[c] + s->assignment.layers[c];
    s->model = *s->job.model;
    s->model.first_layers = s->first_layers;
    s->job.model = &s->model;
    return LH_OK;
}

/* Checks that the training state fits into memory twice, as it must until it
 * has migrated. */
static lh_status check_memory(const lhi_migration_target *s,
                              const lh_exec *exec, lh_error *err)
{
    double bytes;
    const lhi_job *job = &s->job;
    if (!job->launched && s->place > 0)
        return LH_OK; /* the first rank checks for this machine */
    LHI_TRY(
        lhi_job_state_bytes(job, exec, s->place, !job->launched, &bytes, err));
    return lhi_job_check_extra_memory(
        bytes, "the training state during the migration", err);
}

lhi_training_options lhi_job_training_options(const lhi_job *job, lhi_net *net,
                                              lhi_device *device,
                                              uint32_t place,
                                              const lhi_net_stop *stop)
{
    uint32_t sharers[LHI_NET_MAX_RANKS];
    const lhi_grid_coords at = lhi_grid_find_coords(&job->grid, place);
    return (lhi_training_options){
        .pipeline = job->pipeline,
        .exec = job->exec,
        .emulates = job->emulates,
        .shared_clock = job->shared_clock,
        .observes_hops = lhi_job_count_hops(job) > 0,
        .model = job->model,
        .is_restarted = job->model == &job->restarted,
        .grid = &job->grid,
        .place = place,
        .stage = at.device,
        .replica =
            lhi_grid_find_group(&job->grid, LHI_GRID_DATA, place, sharers),
        .n_replicas = lhi_grid_group_size(&job->grid, LHI_GRID_DATA, at.device),
        .tensor = at.tensor,
        .n_ranks = lhi_net_n_ranks(net),
        .steps = job->o.steps,
        .data_fingerprint = job->data_fingerprint,
        .net = net,
        .device = device,
        .remarks = {job->o.warning, job->o.context},
        .stop = stop};
}

/* Makes this rank's device and training under the new assignment, if the job
 * trains a model. LH_ENOMEM: the memory does not suffice for old and new
 * state. */
static lh_status make_target(lhi_migration_target *s, lhi_net *net,
                             const lh_exec *exec, const lhi_net_stop *stop,
                             lh_error *err)
{
    const lhi_job *job = &s->job;
    if (!job->model)
        return LH_OK;
    LHI_TRY(check_memory(s, exec, err));
    LHI_TRY(lhi_job_make_device(job, s->place, &s->device, err));
    lhi_training_options o =
        lhi_job_training_options(job, net, s->device, s->place, stop);
    o.assignment = &s->assignment;
    o.is_migrated = true;
    return lhi_training_make(&o, &s->training, err);
}

lh_status lhi_migration_target_make(const lhi_job *job, lhi_net *net,
                                    const lh_exec *exec,
                                    const lhi_rank_assignment *assignment,
                                    const lhi_net_stop *stop,
                                    lhi_migration_target **out, lh_error *err)
{
    lhi_migration_target *s = calloc(1, sizeof *s);
    if (!s)
        return lhi_fail_nomem(err);
    s->job = *job;
    s->job.devices = NULL;
    lh_status status =
        lhi_rank_assignment_copy(assignment, &s->assignment, err);
    if (status == LH_OK) {
        s->place =
            lhi_rank_assignment_find_place(&s->assignment, lhi_net_rank(net));
        status = adapt_job(s, err);
    }
    if (status == LH_OK)
        status = make_target(s, net, exec, stop, err);
    if (status != LH_OK) {
        lhi_migration_target_free(s);
        return status;
    }
    *out = s;
    return LH_OK;
}

void lhi_migration_target_stop(lhi_migration_target *s)
{
    if (s && s->training)
        lhi_training_stop(s->training);
}

void lhi_migration_target_free(lhi_migration_target *s)
{
    if (!s)
        return;
    lhi_training_free(s->training);
    if (s->device)
        s->device->ops->close(s->device);
    lh_pipeline_free(s->pipeline);
    lhi_rank_assignment_fini(&s->assignment);
    free(s->first_layers);
    free(s);
}
