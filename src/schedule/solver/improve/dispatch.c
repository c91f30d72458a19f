/* SPDX-License-Identifier: Apache-2.0 */
/* Builds an active schedule (Giffler and Thompson) from a deadline's
 * windows: always on the machine where an operation could end first, selecting
 * the operation with the earliest due date among those that could start before
 * that end. */
#include "schedule/solver/improve/dispatch.h"

#include "base/integer_math.h"
#include "schedule/solver/model/earliest_machine.h"

#include <string.h>

/* Dispatching state. */
typedef struct dispatcher {
    const lhi_shop *s;
    lhi_machine_orders *w;
    const int64_t *due;         /* per operation */
    uint32_t *next;             /* per stream: completed operations */
    int64_t *free_at;           /* per machine */
    int64_t *held;              /* per machine */
    uint32_t *pick;             /* per machine: next operation, or NONE */
    lhi_earliest_machine first; /* machines by earliest end */
} dispatcher;

/* Checks whether a stream's next operation has its inputs and respects the
 * memory limit and precedence rules of machine `m`. */
static bool can_run(const dispatcher *d, const lhi_machine *m, uint32_t stream)
{
    const lhi_shop *s = d->s;
    const lhi_stream *t = &s->streams[stream];
    uint32_t x = d->next[stream];
    if (x == t->count || d->w->waits[t->first + x] > 0)
        return false;
    int64_t change = s->memory[t->first + x];
    if (change > 0 && d->held[t->machine] + change > m->memory_limit)
        return false;
    for (uint32_t r = 0; r < m->n_rules; r++) {
        const lhi_rule *rule = &s->rules[m->first_rule + r];
        if (rule->b == stream && d->next[rule->a] <= x / t->per)
            return false;
    }
    return true;
}

/* Selects machine `machine`'s next operation: the one with the earliest due
 * date that can run. */
static void choose_operation(dispatcher *d, uint32_t machine)
{
    const lhi_shop *s = d->s;
    const lhi_machine *m = &s->machines[machine];
    int64_t end = FAR, now = d->free_at[machine];
    uint32_t best = NONE;
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < m->n_streams; i++) {
            uint32_t stream = m->first_stream + i;
            if (!can_run(d, m, stream))
                continue;
            uint32_t o = s->streams[stream].first + d->next[stream];
            int64_t start = lhi_max_int64(now, d->w->ready[o]);
            if (pass == 0 && start + s->time[o] < end)
                end = start + s->time[o];
            if (pass == 1 && start < end &&
                (best == NONE || d->due[o] < d->due[best]))
                best = o;
        }
    d->pick[machine] = best;
    lhi_earliest_machine_set_end(&d->first, machine, best == NONE ? FAR : end);
}

/* Runs operation o as early as possible, which sets its end, and updates its
 * successors' ready times. */
static void run_op(dispatcher *d, uint32_t o)
{
    const lhi_shop *s = d->s;
    lhi_machine_orders *w = d->w;
    uint32_t stream = s->stream_of[o], m = s->streams[stream].machine;
    d->next[stream]++;
    d->held[m] += s->memory[o];
    d->free_at[m] = lhi_max_int64(d->free_at[m], w->ready[o]) + s->time[o];
    lhi_earliest_machine_mark_stale(&d->first, m);
    w->order[m][w->next[m]++] = o;
    for (uint32_t i = s->succ_at[o]; i < s->succ_at[o + 1]; i++) {
        uint32_t to = s->succ[i], other = s->streams[s->stream_of[to]].machine;
        w->ready[to] =
            lhi_max_int64(w->ready[to], d->free_at[m] + s->succ_lag[i]);
        lhi_earliest_machine_mark_stale(&d->first, other);
        if (w->waits[to] > 0)
            w->waits[to]--;
        /* Followers run their leader's outputs in order. */
        if (s->machines[other].leader != NONE && w->waits[to] == 0)
            run_op(d, to);
    }
}

/* Runs all operations in time order, by due date on each machine; false: memory
 * limits block all machines. */
static bool run_all(dispatcher *d)
{
    const lhi_shop *s = d->s;
    for (uint32_t left = s->n_ops; left > 0;) {
        for (uint32_t m;
             (m = lhi_earliest_machine_take_stale(&d->first)) != NONE;)
            if (s->machines[m].leader == NONE)
                choose_operation(d, m);
        uint32_t best = lhi_earliest_machine_get(&d->first);
        if (best == NONE)
            break;
        run_op(d, d->pick[best]);
        left--;
    }
    for (uint32_t i = 0; i < s->n_streams; i++)
        if (s->machines[s->streams[i].machine].leader == NONE &&
            d->next[i] < s->streams[i].count)
            return false;
    return true;
}

/* Counts for every operation the predecessors that have not run, including
 * those on its own machine. */
static void count_waits(dispatcher *d)
{
    const lhi_shop *s = d->s;
    for (uint32_t o = 0; o < s->n_ops; o++) {
        d->w->waits[o] = 0;
        for (uint32_t i = s->pred_at[o]; i < s->pred_at[o + 1]; i++) {
            const lhi_stream *from = &s->streams[s->stream_of[s->pred[i]]];
            bool follows = s->machines[from->machine].leader != NONE;
            d->w->waits[o] = (uint16_t)(d->w->waits[o] +
                                        (from->kind != LHI_GATHER || !follows));
        }
    }
}

lh_status lhi_dispatch_by_due_date(lhi_machine_orders *orders,
                                   const int64_t *due, bool *ok, lhi_arena *mem,
                                   lh_error *err)
{
    const lhi_shop *s = orders->shop;
    lhi_mark mark = lhi_arena_mark(mem);
    dispatcher d = {.s = s, .w = orders, .due = due};
    d.next = LHI_NEW(mem, uint32_t, s->n_streams);
    d.free_at = LHI_NEW(mem, int64_t, s->n_machines);
    d.held = LHI_NEW(mem, int64_t, s->n_machines);
    d.pick = LHI_NEW(mem, uint32_t, s->n_machines);
    lh_status status =
        lhi_earliest_machine_make(&d.first, s->n_machines, mem, err);
    if (status == LH_OK && (!d.next || !d.free_at || !d.held || !d.pick))
        status = lhi_fail_nomem(err);
    if (status == LH_OK) {
        lhi_earliest_machine_reset(&d.first);
        memset(orders->next, 0, s->n_machines * sizeof *orders->next);
        memcpy(orders->ready, s->head, s->n_ops * sizeof *orders->ready);
        count_waits(&d);
        *ok = run_all(&d);
    }
    for (uint32_t m = 0; status == LH_OK && *ok && m < s->n_machines; m++)
        lhi_machine_orders_update_followers(orders, m);
    lhi_arena_rewind(mem, mark);
    return status;
}
