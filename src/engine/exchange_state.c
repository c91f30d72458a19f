/* SPDX-License-Identifier: Apache-2.0 */
/* What was trained, from the seats before to those of the next step. A tensor
 * is needed by the place that has its layer then, of each copy of the pipeline.
 * What it needs is with the place that has the layer now, of the same copy: all
 * values, which replicas have alike, and the replica's piece of the moments.
 * All is sent and received at once, out of and into the arrays themselves, so
 * that no rank waits for its turn and nothing is copied in between. */
#include "engine/seat.h"

#include "base/fail.h"
#include "base/realtime.h"
#include "dev/families.h"

#include <stdlib.h>
#include <string.h>

enum { ARRAYS = 3 }; /* values, first and second moments */

/* Who had chunk `c` of a tensor's layer before, or has it then. */
static uint32_t chunk_with(const lhi_job *job, const uint32_t *first_layers,
                           uint32_t index)
{
    const lh_model *m = job->model->model;
    uint32_t c = 0, n = job->exec->n_chunks;
    if (index < lhi_n_front_tensors(m))
        return 0;
    if (index >= lhi_layer_tensor_index(m, m->layers))
        return n - 1;
    while (c + 1 < n &&
           index >= lhi_layer_tensor_index(m, first_layers[c + 1]))
        c++;
    return c;
}

static uint32_t host_with(const lhi_job *job, const lhi_seats *seats,
                          const uint32_t *first_layers, uint32_t index,
                          uint32_t copy)
{
    uint32_t c = chunk_with(job, first_layers, index);
    return lhi_seats_host(seats, copy * job->exec->n_ranks +
                                     job->exec->chunk_ranks[c]);
}

static lhi_net_op *next_op(lhi_exchange_ops *all)
{
    lhi_net_op *op = &all->ops[all->n++];
    *op = (lhi_net_op){0};
    return op;
}

static uint64_t state_tag(uint64_t turn, uint32_t index, uint32_t array)
{
    return lhi_tag(LHI_TAG_STATE, turn, ARRAYS * index + array);
}

static float *array_of(const lhi_train_carried *t, uint32_t i, size_t *n)
{
    *n = i == 0 ? t->n_values : t->n_moments;
    return i == 0 ? t->values : t->moments[i - 1];
}

static lh_status receive_all(const lhi_exchange_options *o, lhi_train *to,
                             uint32_t copy, lhi_exchange_ops *ops,
                             lh_error *err)
{
    uint32_t me = lhi_net_rank(o->net), n = lhi_train_n_carried(to);
    for (uint32_t i = 0; i < n; i++) {
        const lhi_train_carried t = lhi_train_carry(to, i);
        uint32_t from =
            host_with(o->job, o->before, o->layers_before, t.index, copy);
        for (uint32_t k = 0; from != me && k < ARRAYS; k++) {
            size_t values;
            float *array = array_of(&t, k, &values);
            LHI_TRY(lhi_net_receive(
                o->net, from, state_tag(o->turn, t.index, k), array,
                values * sizeof *array, next_op(ops), err));
        }
    }
    return LH_OK;
}

/* What stays here goes from one array to the other. */
static void keep_here(const lhi_train_carried *t, lhi_train *to)
{
    uint32_t n = lhi_train_n_carried(to), i = 0;
    while (i < n && lhi_train_carry(to, i).index != t->index)
        i++;
    const lhi_train_carried there = lhi_train_carry(to, i);
    for (uint32_t k = 0; k < ARRAYS; k++) {
        size_t values;
        const float *array = array_of(t, k, &values);
        memcpy(array_of(&there, k, &values), array, values * sizeof *array);
    }
}

static lh_status send_all(const lhi_exchange_options *o, lhi_train *from,
                          lhi_train *to, uint32_t copy,
                          lhi_exchange_ops *ops, lh_error *err)
{
    uint32_t me = lhi_net_rank(o->net), n = lhi_train_n_carried(from);
    for (uint32_t i = 0; i < n; i++) {
        const lhi_train_carried t = lhi_train_carry(from, i);
        uint32_t host =
            host_with(o->job, o->then, o->layers_then, t.index, copy);
        if (host == me)
            keep_here(&t, to);
        for (uint32_t k = 0; host != me && k < ARRAYS; k++) {
            size_t values;
            const float *array = array_of(&t, k, &values);
            LHI_TRY(lhi_net_send(o->net, host, state_tag(o->turn, t.index, k),
                                 array, values * sizeof *array, LHI_NET_NO_LINK,
                                 lhi_now_ns(), LHI_NET_NO_TURN, next_op(ops),
                                 err));
        }
    }
    return LH_OK;
}

lh_status lhi_exchange_state(const lhi_exchange_options *o, lhi_train *from,
                             lhi_train *to, lhi_exchange_ops *ops,
                             lh_error *err)
{
    uint32_t me = lhi_net_rank(o->net), per = o->job->exec->n_ranks;
    size_t room = ARRAYS * ((size_t)lhi_train_n_carried(from) +
                            lhi_train_n_carried(to));
    free(ops->ops);
    *ops = (lhi_exchange_ops){.ops = calloc(room + 1, sizeof *ops->ops),
                              .room = room};
    if (!ops->ops)
        return lhi_fail_nomem(err);
    LHI_TRY(receive_all(o, to, lhi_seats_place(o->then, me) / per, ops, err));
    LHI_TRY(
        send_all(o, from, to, lhi_seats_place(o->before, me) / per, ops, err));
    for (size_t i = 0; i < ops->n; i++)
        LHI_TRY(lhi_net_wait(o->net, &ops->ops[i], 0, err));
    return LH_OK;
}

uint64_t lhi_exchange_bytes(const lhi_exchange_options *o)
{
    const lh_model *m = o->job->model->model;
    uint32_t n = lhi_n_model_tensors(m), replicas = o->job->grid.replicas;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t r = 0; r < replicas; r++) {
            lhi_model_tensor t;
            if (host_with(o->job, o->before, o->layers_before, i, r) ==
                host_with(o->job, o->then, o->layers_then, i, r))
                continue;
            lhi_model_tensor_of(m, i, &t);
            uint64_t share = t.n / replicas + (t.n % replicas != 0);
            uint64_t first = share * r < t.n ? share * r : t.n;
            uint64_t piece = t.n - first < share ? t.n - first : share;
            sum += (t.n + (ARRAYS - 1) * piece) * sizeof(float);
        }
    return sum;
}
