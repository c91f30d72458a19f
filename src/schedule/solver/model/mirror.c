/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/solver/model/mirror.h"

uint32_t lhi_mirror_get_operation(const lhi_shop *s, uint32_t o)
{
    const lhi_stream *t = &s->streams[s->stream_of[o]];
    return 2 * t->first + t->count - 1 - o;
}

/* Copies all precedence arcs of s with reversed direction to the mirrored job
 * shop t. */
static void reverse_arcs(const lhi_shop *s, lhi_shop *t)
{
    uint32_t n_succ = 0, n_pred = 0;
    for (uint32_t x = 0; x < s->n_ops; x++) {
        uint32_t o = lhi_mirror_get_operation(s, x);
        for (uint32_t i = s->pred_at[o]; i < s->pred_at[o + 1]; i++) {
            t->succ[n_succ] = lhi_mirror_get_operation(s, s->pred[i]);
            t->succ_lag[n_succ++] = s->pred_lag[i];
        }
        for (uint32_t i = s->succ_at[o]; i < s->succ_at[o + 1]; i++) {
            t->pred[n_pred] = lhi_mirror_get_operation(s, s->succ[i]);
            t->pred_lag[n_pred++] = s->succ_lag[i];
        }
        t->succ_at[x + 1] = n_succ;
        t->pred_at[x + 1] = n_pred;
    }
}

/* Allocates the arrays of the time-reversed job shop t, as large as those of
 * `s`, in `mem`; false: out of memory. */
static bool allocate(const lhi_shop *s, lhi_arena *mem, lhi_shop *t)
{
    size_t n = s->n_ops, n_arcs = s->succ_at[n];
    t->time = LHI_NEW(mem, int64_t, n);
    t->memory = LHI_NEW(mem, int64_t, n);
    t->head = LHI_NEW(mem, int64_t, n);
    t->tail = LHI_NEW(mem, int64_t, n);
    t->succ_at = LHI_NEW(mem, uint32_t, n + 1);
    t->pred_at = LHI_NEW(mem, uint32_t, n + 1);
    t->succ = LHI_NEW(mem, uint32_t, n_arcs);
    t->pred = LHI_NEW(mem, uint32_t, n_arcs);
    t->succ_lag = LHI_NEW(mem, int64_t, n_arcs);
    t->pred_lag = LHI_NEW(mem, int64_t, n_arcs);
    t->machines = LHI_NEW(mem, lhi_machine, s->n_machines);
    return t->time && t->memory && t->head && t->tail && t->succ_at &&
           t->pred_at && t->succ && t->pred && t->succ_lag && t->pred_lag &&
           t->machines;
}

/* Builds the mirrored (time-reversed) job shop in `mem`. Memory after an
 * operation in one direction equals memory before it in the other. Rules follow
 * from precedence arcs through other machines. */
lh_status lhi_mirror_make(const lhi_shop *s, lhi_arena *mem, lhi_shop **out,
                          lh_error *err)
{
    lhi_shop *t = LHI_NEW(mem, lhi_shop, 1);
    if (!t)
        return lhi_fail_nomem(err);
    *t = *s;
    t->host_copy = 0;
    if (!allocate(s, mem, t))
        return lhi_fail_nomem(err);
    for (uint32_t m = 0; m < s->n_machines; m++) {
        t->machines[m] = s->machines[m];
        t->machines[m].n_rules = 0;
    }
    for (uint32_t x = 0; x < s->n_ops; x++) {
        uint32_t o = lhi_mirror_get_operation(s, x);
        t->time[x] = s->time[o];
        t->memory[x] = -s->memory[o];
        t->head[x] = s->tail[o] > 0 ? s->tail[o] : 0;
        t->tail[x] = s->head[o];
    }
    reverse_arcs(s, t);
    *out = t;
    return LH_OK;
}

void lhi_mirror_convert_orders(lhi_machine_orders *to,
                               const lhi_machine_orders *from)
{
    for (uint32_t m = 0; m < from->shop->n_machines; m++)
        for (uint32_t k = 0; k < from->n[m]; k++)
            to->order[m][from->n[m] - 1 - k] =
                lhi_mirror_get_operation(from->shop, from->order[m][k]);
}
