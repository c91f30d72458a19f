/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/seat.h"

#include "base/fail.h"

#include <stdlib.h>
#include <string.h>

lh_status lhi_seats_pipeline(const lhi_job *job, const lh_pipeline *pipeline,
                             const lhi_seats *seats, lh_pipeline **out,
                             lh_error *err)
{
    *out = NULL;
    if (!seats || !seats->layers)
        return LH_OK;
    return lh_layers_pipeline(job->seating.layers, pipeline, seats->layers, out,
                              err);
}

/* Adapts the job to the new rank assignment. */
static lh_status vary_job(lhi_seat *s, lh_error *err)
{
    uint32_t n = s->job.exec->n_chunks;
    LHI_TRY(lhi_seats_pipeline(&s->job, s->job.pipeline, &s->seats,
                               &s->pipeline, err));
    if (s->pipeline)
        s->job.pipeline = s->pipeline;
    if (!s->job.model || !s->seats.layers)
        return LH_OK;
    if (!(s->first_layers = calloc(n + (size_t)1, sizeof *s->first_layers)))
        return lhi_fail_nomem(err);
    for (uint32_t c = 0; c < n; c++)
        s->first_layers[c + 1] = s->first_layers[c] + s->seats.layers[c];
    s->model = *s->job.model;
    s->model.first_layers = s->first_layers;
    s->job.model = &s->model;
    return LH_OK;
}

/* Checks memory: the training state is resident twice until it has moved. */
static lh_status check_room(const lhi_seat *s, const lh_exec *exec,
                            lh_error *err)
{
    double bytes;
    const lhi_job *job = &s->job;
    if (!job->launched && s->place > 0)
        return LH_OK; /* the first rank checks for this machine */
    LHI_TRY(lhi_job_state(job, exec, s->place, !job->launched, &bytes, err));
    return lhi_job_fits_more(bytes, "what moves, held twice for a time", err);
}

lhi_training_options lhi_job_training(const lhi_job *job, lhi_net *net,
                                      lhi_device *device, uint32_t place,
                                      const lhi_net_stop *stop)
{
    uint32_t sharers[LHI_NET_MOST_RANKS];
    return (lhi_training_options){
        .pipeline = job->pipeline,
        .exec = job->exec,
        .emulates = job->emulates,
        .shared_clock = job->shared_clock,
        .model = job->model,
        .grid = &job->grid,
        .place = place,
        .stage = place % job->exec->n_ranks,
        .replica = lhi_grid_group(&job->grid, LHI_GRID_DATA, place, sharers),
        .n_replicas = lhi_grid_size(&job->grid, LHI_GRID_DATA),
        .tensor = lhi_grid_place_of(&job->grid, place).tensor,
        .n_ranks = lhi_net_n_ranks(net),
        .steps = job->o.steps,
        .net = net,
        .device = device,
        .remarks = {job->o.remark, job->o.context},
        .stop = stop};
}

static lh_status make_parts(lhi_seat *s, lhi_net *net, const lh_exec *exec,
                            const lhi_net_stop *stop, lh_error *err)
{
    const lhi_job *job = &s->job;
    if (!job->model)
        return LH_OK;
    LHI_TRY(check_room(s, exec, err));
    LHI_TRY(lhi_job_device(job, s->place, &s->device, err));
    lhi_training_options o =
        lhi_job_training(job, net, s->device, s->place, stop);
    o.seats = &s->seats;
    o.moves = true;
    return lhi_training_make(&o, &s->training, err);
}

lh_status lhi_seat_make(const lhi_job *job, lhi_net *net, const lh_exec *exec,
                        const lhi_seats *seats, const lhi_net_stop *stop,
                        lhi_seat **out, lh_error *err)
{
    lhi_seat *s = calloc(1, sizeof *s);
    if (!s)
        return lhi_fail_nomem(err);
    s->job = *job;
    s->job.devices = NULL;
    lh_status status = lhi_seats_copy(seats, &s->seats, err);
    if (status == LH_OK) {
        s->place = lhi_seats_place(&s->seats, lhi_net_rank(net));
        status = vary_job(s, err);
    }
    if (status == LH_OK)
        status = make_parts(s, net, exec, stop, err);
    if (status != LH_OK) {
        lhi_seat_free(s);
        return status;
    }
    *out = s;
    return LH_OK;
}

void lhi_seat_stop(lhi_seat *s)
{
    if (s && s->training)
        lhi_training_stop(s->training);
}

void lhi_seat_free(lhi_seat *s)
{
    if (!s)
        return;
    lhi_training_free(s->training);
    if (s->device)
        s->device->ops->close(s->device);
    lh_pipeline_free(s->pipeline);
    lhi_seats_fini(&s->seats);
    free(s->first_layers);
    free(s);
}
