/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank has in a seat that it was not in when the run began: a device
 * and training around it, made while it still works in the one before; and how
 * all that was trained comes there. */
#ifndef LHI_SEAT_H
#define LHI_SEAT_H

#include "engine/seats.h"
#include "engine/steps.h"

typedef struct lhi_seat {
    lhi_job job; /* as it is with these seats */
    lh_train_model model;
    uint32_t *first_layers;
    lh_pipeline *pipeline; /* NULL: the run's own */
    lhi_seats seats;
    uint32_t place;
    lhi_device *device;     /* NULL: the rank keeps its own, a timed one */
    lhi_training *training; /* likewise */
} lhi_seat;

/* `exec`: that is run there; LH_ENOMEM also: there is no room to have both for
 * a time. */
lh_status lhi_seat_make(const lhi_job *job, lhi_net *net, const lh_exec *exec,
                        const lhi_seats *seats, const lhi_net_stop *stop,
                        lhi_seat **out, lh_error *err);
/* Before the endpoint is closed. NULL is fine. */
void lhi_seat_stop(lhi_seat *seat);
void lhi_seat_free(lhi_seat *seat); /* NULL is fine */

/* Of training in a place, as the run began. */
lhi_training_options lhi_job_training(const lhi_job *job, lhi_net *net,
                                      lhi_device *device, uint32_t place,
                                      const lhi_net_stop *stop);

/* A pipeline of the run with other numbers of layers: *out, to be released;
 * NULL: it is the run's own. */
lh_status lhi_seats_pipeline(const lhi_job *job, const lh_pipeline *pipeline,
                             const lhi_seats *seats, lh_pipeline **out,
                             lh_error *err);

/* --- seating.c -------------------------------------------------------------
 */

/* Fills in job->seating: what may move, and why the rest does not. Its layers
 * are to be released. */
lh_status lhi_job_take_seating(lhi_job *job, lh_error *err);
/* LH_EUNSUPPORTED: what the options say will move has to stay. */
lh_status lhi_job_check_seating(const lhi_job *job, lh_error *err);

/* --- exchange_state.c ------------------------------------------------------
 */

/* Messages of an exchange; they may be under way until the endpoint is closed
 * if it fails. */
typedef struct lhi_exchange_ops {
    lhi_net_op *ops;
    size_t n;
    float *room_to_pass; /* what this rank passes on, an array at a time */
} lhi_exchange_ops;
void lhi_exchange_ops_fini(lhi_exchange_ops *ops); /* zeroed is fine */

typedef struct lhi_exchange_options {
    const lhi_job *job; /* as the run began */
    lhi_net *net;
    const lhi_seats *before, *then;
    const uint32_t *layers_before, *layers_then; /* first layers of chunks */
    uint64_t turn;
} lhi_exchange_options;

/* On all ranks, between two steps: values, which all have been gathered, and
 * moments from those who have them to those who get them. */
lh_status lhi_exchange_state(const lhi_exchange_options *options,
                             lhi_train *from, lhi_train *to,
                             lhi_exchange_ops *ops, lh_error *err);
/* Bytes of it that go from one rank to another; what is passed on goes twice. */
uint64_t lhi_exchange_bytes(const lhi_exchange_options *options);

#endif
