/* SPDX-License-Identifier: Apache-2.0 */
/* Migrates the training state from the old rank assignment to the new one. In
 * each pipeline copy, the place that will hold a layer needs its tensors. The
 * place that holds the layer now, in the same copy, provides them: all values,
 * which replicas share, and the replica's piece of the moments.
 *
 * All arrays are sent and received at once, in place, so that no rank waits for
 * its turn and nothing is copied in between. The exception is data relayed by a
 * third rank around a slow link, one array after the other. Every rank posts
 * all its sends and receives before it waits for a relay, so relays always make
 * progress. */
#include "runtime/engine/migration_target.h"

#include "base/fail.h"
#include "base/realtime.h"
#include "runtime/device/families.h"
#include "runtime/engine/shard_groups.h"

#include <stdlib.h>
#include <string.h>

enum { N_ARRAYS = 1 + LHI_MAX_MOMENTS }; /* values and moments */

/* Returns the index of the chunk that has model tensor `index`, if chunk c
 * begins at layer first_layers[c]. */
static uint32_t find_chunk(const lhi_job *job, const uint32_t *first_layers,
                           uint32_t index)
{
    const lh_model *m = job->model->model;
    uint32_t c = 0, n = job->exec->n_chunks;
    if (index < lhi_count_front_tensors(m))
        return 0;
    if (index >= lhi_layer_tensor_index(m, m->layers))
        return n - 1;
    while (c + 1 < n && index >= lhi_layer_tensor_index(m, first_layers[c + 1]))
        c++;
    return c;
}

/* Returns the rank that has tensor `index` in replica `copy` under a rank
 * assignment and layer partition. */
static uint32_t find_holder(const lhi_job *job,
                            const lhi_rank_assignment *assignment,
                            const uint32_t *first_layers, uint32_t index,
                            uint32_t copy)
{
    uint32_t c = find_chunk(job, first_layers, index);
    return lhi_rank_assignment_find_rank(
        assignment, copy * job->exec->n_ranks + job->exec->chunk_ranks[c]);
}

/* Route for a tensor in one pipeline copy. */
typedef struct route {
    uint32_t from, to;
    uint32_t via; /* LH_NONE: direct */
} route;

/* Returns how a tensor's state migrates in replica `copy`: its old rank, its
 * new rank, and the rank that relays it, LH_NONE if sent directly. */
static route find_route(const lhi_state_migration_options *o, uint32_t index,
                        uint32_t copy)
{
    route w = {find_holder(o->job, o->old_assignment, o->old_first_layers,
                           index, copy),
               find_holder(o->job, o->new_assignment, o->new_first_layers,
                           index, copy),
               LH_NONE};
    if (o->new_assignment && o->new_assignment->relays)
        w.via = o->new_assignment->relays[lhi_rank_assignment_find_place(
            o->new_assignment, w.to)];
    if (w.from == w.to || w.via == w.from)
        w.via = LH_NONE;
    return w;
}

/* Returns the next unused network operation of the list, zeroed. */
static lhi_net_op *get_next_op(lhi_state_migration_ops *all)
{
    lhi_net_op *op = &all->ops[all->n++];
    *op = (lhi_net_op){0};
    return op;
}

/* Returns the message tag of array `array` of a tensor. It includes the
 * replica `copy`, because a rank may receive one tensor twice from the same
 * peer: to keep it, and to relay it for another replica. */
static uint64_t make_state_tag(const lhi_state_migration_options *o,
                               uint32_t index, uint32_t copy, uint32_t array)
{
    uint32_t tensor = index * o->job->grid.replicas + copy;
    return lhi_tag(LHI_TAG_STATE, o->turn, N_ARRAYS * tensor + array);
}

/* Returns array `i` of a tensor's training state: 0 its values, otherwise an
 * optimizer moment. *n: number of floats. */
static float *get_array(const lhi_train_tensor_state *t, uint32_t i, size_t *n)
{
    *n = i == 0 ? t->n_values : t->n_moments;
    return i == 0 ? t->values : t->moments[i - 1];
}

/* Posts the receives of all tensors that this rank will have in replica `copy`
 * after the migration. */
static lh_status receive_all(const lhi_state_migration_options *o,
                             lhi_train *to, uint32_t copy,
                             lhi_state_migration_ops *ops, lh_error *err)
{
    uint32_t me = lhi_net_rank(o->net), n = lhi_train_count_tensor_states(to);
    for (uint32_t i = 0; i < n; i++) {
        const lhi_train_tensor_state t = lhi_train_get_tensor_state(to, i);
        const route w = find_route(o, t.index, copy);
        for (uint32_t k = 0; w.from != me && k <= t.n; k++) {
            size_t values;
            float *array = get_array(&t, k, &values);
            LHI_TRY(lhi_net_receive(o->net, w.via == LH_NONE ? w.from : w.via,
                                    make_state_tag(o, t.index, copy, k), array,
                                    values * sizeof *array, get_next_op(ops),
                                    err));
        }
    }
    return LH_OK;
}

/* Copies the training state of a tensor that stays on this rank from its old
 * to its new place in memory. */
static void copy_locally(const lhi_train_tensor_state *t, lhi_train *to)
{
    uint32_t n = lhi_train_count_tensor_states(to), i = 0;
    while (i < n && lhi_train_get_tensor_state(to, i).index != t->index)
        i++;
    const lhi_train_tensor_state there = lhi_train_get_tensor_state(to, i);
    for (uint32_t k = 0; k <= t->n; k++) {
        size_t values;
        const float *array = get_array(t, k, &values);
        memcpy(get_array(&there, k, &values), array, values * sizeof *array);
    }
}

/* Starts sending `n` values of one array (values or a moment) of a tensor's
 * state to rank `to`; `op` is pending until they are sent. */
static lh_status send_array(const lhi_state_migration_options *o, uint32_t to,
                            uint64_t tag, const float *values, size_t n,
                            lhi_net_op *op, lh_error *err)
{
    return lhi_net_send(o->net, to, tag, values, n * sizeof *values,
                        LHI_NET_NO_LINK, lhi_now_ns(), LHI_NET_NO_TURN, op,
                        err);
}

/* Starts sending the state of all tensors that this rank has in replica `copy`
 * before the migration to their new ranks; copies those that stay on this rank
 * from `from` to `to`. */
static lh_status send_all(const lhi_state_migration_options *o, lhi_train *from,
                          lhi_train *to, uint32_t copy,
                          lhi_state_migration_ops *ops, lh_error *err)
{
    uint32_t me = lhi_net_rank(o->net), n = lhi_train_count_tensor_states(from);
    for (uint32_t i = 0; i < n; i++) {
        const lhi_train_tensor_state t = lhi_train_get_tensor_state(from, i);
        const route w = find_route(o, t.index, copy);
        if (w.to == me)
            copy_locally(&t, to);
        for (uint32_t k = 0; w.to != me && k <= t.n; k++) {
            size_t values;
            const float *array = get_array(&t, k, &values);
            LHI_TRY(send_array(o, w.via == LH_NONE ? w.to : w.via,
                               make_state_tag(o, t.index, copy, k), array,
                               values, get_next_op(ops), err));
        }
    }
    return LH_OK;
}

/* --- relays --- */

/* Returns the number of optimizer moment arrays per tensor. */
static uint32_t count_moments(const lhi_state_migration_options *o)
{
    return o->job->model->delayed_update ? LHI_MAX_MOMENTS
                                         : LHI_MAX_MOMENTS - 1;
}

/* Counts the values in array `array` of a tensor in replica `copy`: all for
 * array 0, the replica's shard for moments. */
static size_t count_array_values(const lhi_state_migration_options *o,
                                 const lhi_model_tensor *t, uint32_t array,
                                 uint32_t copy)
{
    const lhi_job *job = o->job;
    const lhi_shard_groups shards =
        lhi_shard_groups_find(job->model, job->grid.replicas, 0, copy);
    size_t share = t->n / shards.n_shards + (t->n % shards.n_shards != 0);
    size_t first = share * shards.shard < t->n ? share * shards.shard : t->n;
    size_t piece = t->n - first < share ? t->n - first : share;
    return array == 0 ? t->n : piece;
}

/* Relays the state of tensor `index` in replica `copy`: receives each array
 * from rank w->from and sends it to rank w->to, one after the other, through
 * the buffer `room`. */
static lh_status relay_tensor(const lhi_state_migration_options *o,
                              const route *w, uint32_t index, uint32_t copy,
                              float *room, lhi_state_migration_ops *ops,
                              lh_error *err)
{
    lhi_model_tensor t;
    lhi_describe_model_tensor(o->job->model->model, index, &t);
    const size_t n_before = ops->n;
    for (uint32_t k = 0; k <= count_moments(o); k++) {
        const uint64_t tag = make_state_tag(o, index, copy, k);
        size_t n = count_array_values(o, &t, k, copy);
        lhi_net_op *op = get_next_op(ops);
        LHI_TRY(lhi_net_receive(o->net, w->from, tag, room, n * sizeof *room,
                                op, err));
        LHI_TRY(lhi_net_wait(o->net, op, 0, err));
        *op = (lhi_net_op){0};
        LHI_TRY(send_array(o, w->to, tag, room, n, op, err));
        LHI_TRY(lhi_net_wait(o->net, op, 0, err));
        ops->n = n_before;
    }
    return LH_OK;
}

/* Returns the value count in the largest array that this rank relays (receives
 * and sends on); 0: none. */
static size_t find_max_relay_size(const lhi_state_migration_options *o)
{
    const lh_model *m = o->job->model->model;
    const uint32_t me = lhi_net_rank(o->net);
    size_t most = 0;
    for (uint32_t i = 0; i < lhi_count_model_tensors(m); i++)
        for (uint32_t r = 0; r < o->job->grid.replicas; r++) {
            lhi_model_tensor t;
            if (find_route(o, i, r).via != me)
                continue;
            lhi_describe_model_tensor(m, i, &t);
            most = t.n > most ? t.n : most;
        }
    return most;
}

/* Relays all tensors for which this rank is the relay, one array at a time:
 * receives them and sends them on. */
static lh_status relay_all(const lhi_state_migration_options *o,
                           lhi_state_migration_ops *ops, lh_error *err)
{
    const uint32_t n = lhi_count_model_tensors(o->job->model->model);
    const uint32_t me = lhi_net_rank(o->net);
    for (uint32_t i = 0; ops->relay_buffer && i < n; i++)
        for (uint32_t r = 0; r < o->job->grid.replicas; r++) {
            const route w = find_route(o, i, r);
            if (w.via == me)
                LHI_TRY(relay_tensor(o, &w, i, r, ops->relay_buffer, ops, err));
        }
    return LH_OK;
}

/* --- migration --- */

/* Allocates `n` network operations and, if the assignment has relays, a buffer
 * for one array. */
static lh_status allocate_ops(const lhi_state_migration_options *o, size_t n,
                              lhi_state_migration_ops *ops, lh_error *err)
{
    const size_t most = o->new_assignment && o->new_assignment->relays
                            ? find_max_relay_size(o)
                            : 0;
    lhi_state_migration_ops_fini(ops);
    ops->ops = calloc(n + 1, sizeof *ops->ops);
    if (most > 0)
        ops->relay_buffer = malloc(most * sizeof *ops->relay_buffer);
    return ops->ops && (ops->relay_buffer || most == 0) ? LH_OK
                                                        : lhi_fail_nomem(err);
}

void lhi_state_migration_ops_fini(lhi_state_migration_ops *ops)
{
    free(ops->ops);
    free(ops->relay_buffer);
    *ops = (lhi_state_migration_ops){0};
}

lh_status lhi_state_migration_run(const lhi_state_migration_options *o,
                                  lhi_train *from, lhi_train *to,
                                  lhi_state_migration_ops *ops, lh_error *err)
{
    uint32_t me = lhi_net_rank(o->net), per = o->job->exec->n_ranks;
    LHI_TRY(
        allocate_ops(o,
                     N_ARRAYS * ((size_t)lhi_train_count_tensor_states(from) +
                                 lhi_train_count_tensor_states(to)),
                     ops, err));
    LHI_TRY(receive_all(
        o, to, lhi_rank_assignment_find_place(o->new_assignment, me) / per, ops,
        err));
    LHI_TRY(send_all(
        o, from, to,
        lhi_rank_assignment_find_place(o->old_assignment, me) / per, ops, err));
    LHI_TRY(relay_all(o, ops, err));
    for (size_t i = 0; i < ops->n; i++)
        LHI_TRY(lhi_net_wait(o->net, &ops->ops[i], 0, err));
    lhi_state_migration_ops_fini(ops);
    return LH_OK;
}

/* Returns the bytes that the migration sends between ranks; relayed bytes count
 * twice. */
uint64_t lhi_state_migration_count_bytes(const lhi_state_migration_options *o)
{
    const lh_model *m = o->job->model->model;
    uint32_t n = lhi_count_model_tensors(m), replicas = o->job->grid.replicas;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t r = 0; r < replicas; r++) {
            const route w = find_route(o, i, r);
            lhi_model_tensor t;
            if (w.from == w.to)
                continue;
            lhi_describe_model_tensor(m, i, &t);
            for (uint32_t k = 0; k <= count_moments(o); k++)
                sum += (w.via == LH_NONE ? 1 : 2) * sizeof(float) *
                       count_array_values(o, &t, k, r);
        }
    return sum;
}
