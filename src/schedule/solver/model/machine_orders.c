/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/solver/model/machine_orders.h"

#include "schedule/pipeline/pipeline_internal.h"

#include <string.h>

/* Checks whether operations `a` and `b` run on different machines. */
static bool connects_machines(const lhi_shop *s, uint32_t a, uint32_t b)
{
    return s->streams[s->stream_of[a]].machine !=
           s->streams[s->stream_of[b]].machine;
}

/* Copies the job shop's precedence arcs between operations on different
 * machines, sorted by source, for lhi_machine_orders_evaluate(). */
static lh_status index_arcs(lhi_machine_orders *w, lhi_arena *mem,
                            lh_error *err)
{
    const lhi_shop *s = w->shop;
    uint32_t n = s->n_ops, n_succ = 0, n_pred = 0;
    size_t room = s->succ_at[n];
    w->succ_at = LHI_NEW(mem, uint32_t, (size_t)n + 1);
    w->pred_at = LHI_NEW(mem, uint32_t, (size_t)n + 1);
    w->succ = LHI_NEW(mem, uint32_t, room);
    w->pred = LHI_NEW(mem, uint32_t, room);
    w->succ_lag = LHI_NEW(mem, int64_t, room);
    w->pred_lag = LHI_NEW(mem, int64_t, room);
    w->waits0 = LHI_NEW(mem, uint16_t, n);
    w->waits = LHI_NEW(mem, uint16_t, n);
    w->ready = LHI_NEW(mem, int64_t, n);
    w->end = LHI_NEW(mem, int64_t, n);
    w->at = LHI_NEW(mem, uint32_t, n);
    if (!w->succ_at || !w->pred_at || !w->succ || !w->pred || !w->succ_lag ||
        !w->pred_lag || !w->waits0 || !w->waits || !w->ready || !w->end ||
        !w->at)
        return lhi_fail_nomem(err);
    for (uint32_t o = 0; o < n; o++) {
        for (uint32_t i = s->succ_at[o]; i < s->succ_at[o + 1]; i++)
            if (connects_machines(s, o, s->succ[i])) {
                w->succ[n_succ] = s->succ[i];
                w->succ_lag[n_succ++] = s->succ_lag[i];
            }
        for (uint32_t i = s->pred_at[o]; i < s->pred_at[o + 1]; i++)
            if (connects_machines(s, o, s->pred[i])) {
                w->pred[n_pred] = s->pred[i];
                w->pred_lag[n_pred++] = s->pred_lag[i];
                w->waits0[o]++;
            }
        w->succ_at[o + 1] = n_succ;
        w->pred_at[o + 1] = n_pred;
    }
    return LH_OK;
}

/* Allocates the state for copies to host memory. */
static lh_status make_host_copies(lhi_machine_orders *w, lhi_arena *mem,
                                  lh_error *err)
{
    const lhi_shop *s = w->shop;
    const lh_pipeline *p = s->p;
    w->copy = LHI_NEW(mem, int64_t, s->n_ops);
    w->in_host = LHI_NEW(mem, bool, s->n_ops);
    w->own_limit = LHI_NEW(mem, int64_t, s->n_machines);
    if (!w->copy || !w->in_host || !w->own_limit)
        return lhi_fail_nomem(err);
    for (uint32_t m = 0; m < s->n_machines; m++)
        w->own_limit[m] =
            s->machines[m].kind == LHI_DEVICE
                ? lh_pipeline_device_limit(p, s->machines[m].index)
                : LH_NO_LIMIT;
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        uint32_t m = s->device_machine[p->chunks[c].device];
        if (w->own_limit[m] != LH_NO_LIMIT)
            w->own_limit[m] -= p->chunks[c].mem_static;
    }
    return LH_OK;
}

lh_status lhi_machine_orders_make(const lhi_shop *shop, lhi_arena *mem,
                                  lhi_machine_orders **out, lh_error *err)
{
    uint32_t n = shop->n_machines;
    lhi_machine_orders *w = LHI_NEW(mem, lhi_machine_orders, 1);
    uint32_t *all = LHI_NEW(mem, uint32_t, shop->n_ops);
    if (!w || !all)
        return lhi_fail_nomem(err);
    w->shop = shop;
    w->order = LHI_NEW(mem, uint32_t *, n);
    w->n = LHI_NEW(mem, uint32_t, n);
    w->followers_at = LHI_NEW(mem, uint32_t, (size_t)n + 1);
    w->followers = LHI_NEW(mem, uint32_t, n);
    w->next = LHI_NEW(mem, uint32_t, n);
    w->stack = LHI_NEW(mem, uint32_t, n);
    if (!w->order || !w->n || !w->followers_at || !w->followers || !w->next ||
        !w->stack)
        return lhi_fail_nomem(err);
    uint32_t at = 0;
    for (uint32_t m = 0; m < n; m++) {
        w->order[m] = all + shop->streams[shop->machines[m].first_stream].first;
        w->n[m] = lhi_machine_count_operations(shop, m);
        if (shop->machines[m].n_streams == 0)
            w->order[m] = all;
        w->followers_at[m] = at;
        for (uint32_t k = 0; k < n; k++)
            if (shop->machines[k].leader == m)
                w->followers[at++] = k;
    }
    w->followers_at[n] = at;
    LHI_TRY(index_arcs(w, mem, err));
    if (shop->host_copy > 0)
        LHI_TRY(make_host_copies(w, mem, err));
    *out = w;
    return LH_OK;
}

void lhi_machine_orders_copy(lhi_machine_orders *to,
                             const lhi_machine_orders *from)
{
    for (uint32_t m = 0; m < from->shop->n_machines; m++)
        memcpy(to->order[m], from->order[m], from->n[m] * sizeof(uint32_t));
}

/* Determines which operations of machine m take longer by copies to or from
 * host memory, by the simulator's rule: an F that ends with the device's own
 * memory exceeded stores its activations in host memory until its D or B. */
static void find_host_copies(lhi_machine_orders *w, uint32_t m)
{
    const lhi_shop *s = w->shop;
    int64_t held = 0;
    for (uint32_t k = 0; k < w->n[m]; k++) {
        uint32_t o = w->order[m][k], id = s->stream_of[o];
        const lhi_stream *t = &s->streams[id];
        const uint32_t f = s->streams[s->f[t->chunk]].first + o - t->first;
        const int64_t mem_f = s->p->chunks[t->chunk].mem_f;
        w->copy[o] = 0;
        if (id == s->d[t->chunk] && w->in_host[f]) {
            w->copy[o] = s->host_copy;
            held += mem_f;
        }
        held += s->memory[o];
        if (id != s->f[t->chunk])
            continue;
        w->in_host[o] = mem_f > 0 && held > w->own_limit[m];
        if (w->in_host[o]) {
            w->copy[o] = s->host_copy;
            held -= mem_f;
        }
    }
}

/* Runs machine m's operations in their order until one lacks inputs. Pushes
 * machines whose next operation has become ready on the stack, whose top is
 * `top`; returns the new top. */
static uint32_t run_machine(lhi_machine_orders *w, uint32_t m, uint32_t top)
{
    const lhi_shop *s = w->shop;
    const uint32_t *order = w->order[m];
    uint32_t k = w->next[m], n = w->n[m];
    int64_t now = k ? w->end[order[k - 1]] : 0;
    for (; k < n && w->waits[order[k]] == 0; k++) {
        uint32_t o = order[k];
        if (w->ready[o] > now)
            now = w->ready[o];
        now += s->time[o] + (w->copy ? w->copy[o] : 0);
        w->end[o] = now;
        for (uint32_t i = w->succ_at[o]; i < w->succ_at[o + 1]; i++) {
            uint32_t to = w->succ[i];
            int64_t arrive = now + w->succ_lag[i];
            if (arrive > w->ready[to])
                w->ready[to] = arrive;
            if (--w->waits[to])
                continue;
            uint32_t other = s->streams[s->stream_of[to]].machine;
            if (w->order[other][w->next[other]] == to)
                w->stack[top++] = other;
        }
    }
    w->next[m] = k;
    return top;
}

int64_t lhi_machine_orders_evaluate(lhi_machine_orders *w)
{
    const lhi_shop *s = w->shop;
    memcpy(w->waits, w->waits0, s->n_ops * sizeof *w->waits);
    memcpy(w->ready, s->head, s->n_ops * sizeof *w->ready);
    memset(w->next, 0, s->n_machines * sizeof *w->next);
    for (uint32_t m = 0; w->copy && m < s->n_machines; m++)
        if (s->machines[m].kind == LHI_DEVICE)
            find_host_copies(w, m);
    for (uint32_t m = 0; m < s->n_machines; m++) {
        if (w->n[m] == 0 || w->next[m] || w->waits[w->order[m][0]])
            continue;
        uint32_t top = run_machine(w, m, 0);
        while (top > 0) {
            top--;
            top = run_machine(w, w->stack[top], top);
        }
    }
    int64_t last = 0;
    for (uint32_t m = 0; m < s->n_machines; m++)
        if (w->next[m] < w->n[m])
            return -1;
    for (uint32_t i = 0; i < s->n_streams; i++) {
        const lhi_stream *t = &s->streams[i];
        uint32_t o = t->first + t->count - 1;
        if (w->end[o] + s->tail[o] > last)
            last = w->end[o] + s->tail[o];
    }
    return last;
}

void lhi_machine_orders_update_followers(lhi_machine_orders *w, uint32_t leader)
{
    const lhi_shop *s = w->shop;
    for (uint32_t i = w->followers_at[leader]; i < w->followers_at[leader + 1];
         i++) {
        uint32_t m = w->followers[i], n = 0;
        const lhi_machine *k = &s->machines[m];
        for (uint32_t x = 0; x < w->n[leader]; x++) {
            uint32_t o = w->order[leader][x];
            const lhi_stream *t = &s->streams[s->stream_of[o]];
            for (uint32_t j = 0; j < k->n_streams; j++) {
                const lhi_stream *u = &s->streams[k->first_stream + j];
                uint32_t of = u->kind == LHI_MESSAGE_F || u->kind == LHI_GATHER
                                  ? s->f[u->chunk]
                              : u->kind == LHI_MESSAGE_D || s->p->joint
                                  ? s->d[u->chunk]
                                  : s->w[u->chunk];
                if (of != s->stream_of[o])
                    continue;
                uint32_t y = o - t->first;
                if (u->kind == LHI_GATHER    ? y == 0
                    : u->kind == LHI_SCATTER ? y + 1 == t->count
                                             : true)
                    w->order[m][n++] =
                        u->kind == LHI_GATHER || u->kind == LHI_SCATTER
                            ? u->first
                            : u->first + y;
            }
        }
    }
}
