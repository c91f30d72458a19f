/* SPDX-License-Identifier: Apache-2.0 */
/* Dispatching rules with a few parameters, and a search over those. Steady
 * schedules with many microbatches need few: an offset per stream added to its
 * due dates, and a maximum activation count per chunk. One evaluation is a pass
 * over all operations, but one step changes the whole schedule. */
#include "schedule/solver/improve/rule_tuning.h"

#include "schedule/pipeline/pipeline_internal.h"
#include "schedule/solver/bound/windows.h"
#include "schedule/solver/model/earliest_machine.h"

#include <string.h>

/* Number of steps of the parameter `patience`, a share of a pass. */
enum { PATIENCE = 4 };

/* Tuning state. */
typedef struct tuner {
    const lhi_shop *s;
    lhi_machine_orders *w; /* orders under construction */
    const int64_t *due;
    lhi_rule_parameters now, old;
    uint64_t rng;
    uint32_t *next;  /* per stream: completed operations */
    uint32_t *waits; /* per operation: pending arcs */
    uint32_t *waits0;
    int64_t *free_at, *held; /* per machine */
    uint32_t *pick;
    lhi_earliest_machine first; /* machines by earliest end */
    int64_t *reserve;           /* per stream: memory reserved for others */
    uint32_t *give; /* per F stream: the stream that releases, or NONE */
    uint32_t *rule_at, *rule; /* per stream: streams that precede it */
    int64_t scale;            /* scale of the offsets */
} tuner;

/* Returns the next 64 random bits. */
static uint64_t draw(tuner *a) /* splitmix64 */
{
    uint64_t z = a->rng += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Returns a random number from 0 to n - 1. */
static uint32_t draw_below(tuner *a, uint32_t n)
{
    return (uint32_t)((draw(a) >> 32) * n >> 32);
}

/* Checks whether a stream's next operation has its inputs and respects the
 * memory limit, the caps on activations in flight and the precedence rules. */
static bool can_run(const tuner *a, const lhi_machine *m, uint32_t stream)
{
    const lhi_shop *s = a->s;
    const lhi_stream *t = &s->streams[stream];
    uint32_t x = a->next[stream];
    if (x == t->count || a->waits[t->first + x] > 0)
        return false;
    int64_t change = s->memory[t->first + x];
    if (change > 0 &&
        a->held[t->machine] + change + a->reserve[stream] > m->memory_limit)
        return false;
    if (a->give[stream] != NONE &&
        x >= a->next[a->give[stream]] / s->parts + a->now.cap[t->chunk])
        return false;
    for (uint32_t r = a->rule_at[stream]; r < a->rule_at[stream + 1]; r++)
        if (a->next[a->rule[r]] <= x / t->per)
            return false;
    return true;
}

/* Selects the next operation of machine `machine` by the dispatching rule with
 * its current parameters. */
static void choose_operation(tuner *a, uint32_t machine)
{
    const lhi_shop *s = a->s;
    const lhi_machine *m = &s->machines[machine];
    int64_t end = FAR, begin = FAR, now = a->free_at[machine], least = FAR;
    int64_t start[64];
    uint32_t op[64], n = 0, best = NONE;
    for (uint32_t i = 0; i < m->n_streams && n < 64; i++) {
        uint32_t stream = m->first_stream + i;
        if (!can_run(a, m, stream))
            continue;
        uint32_t o = s->streams[stream].first + a->next[stream];
        start[n] = now > a->w->ready[o] ? now : a->w->ready[o];
        if (start[n] + s->time[o] < end)
            end = start[n] + s->time[o];
        if (start[n] < begin)
            begin = start[n];
        op[n++] = o;
    }
    int64_t upto = begin + (end - begin) * a->now.patience / PATIENCE;
    for (uint32_t i = 0; i < n; i++) {
        if (start[i] > begin && start[i] >= upto)
            continue;
        int64_t due = a->due[op[i]] + a->now.offset[s->stream_of[op[i]]];
        if (best == NONE || due < least) {
            best = op[i];
            least = due;
        }
    }
    a->pick[machine] = best;
    lhi_earliest_machine_set_end(&a->first, machine, best == NONE ? FAR : end);
}

/* Runs operation o as early as possible and updates its successors' ready
 * times. */
static void run_op(tuner *a, uint32_t o)
{
    const lhi_shop *s = a->s;
    lhi_machine_orders *w = a->w;
    uint32_t stream = s->stream_of[o], m = s->streams[stream].machine;
    int64_t start = a->free_at[m] > w->ready[o] ? a->free_at[m] : w->ready[o];
    a->next[stream]++;
    a->held[m] += s->memory[o];
    a->free_at[m] = start + s->time[o];
    lhi_earliest_machine_mark_stale(&a->first, m);
    w->order[m][w->next[m]++] = o;
    for (uint32_t i = s->succ_at[o]; i < s->succ_at[o + 1]; i++) {
        uint32_t to = s->succ[i], other = s->streams[s->stream_of[to]].machine;
        int64_t ready = a->free_at[m] + s->succ_lag[i];
        if (ready > w->ready[to])
            w->ready[to] = ready;
        lhi_earliest_machine_mark_stale(&a->first, other);
        if (a->waits[to] > 0)
            a->waits[to]--;
        /* Followers run their leader's outputs in order. */
        if (s->machines[other].leader != NONE && a->waits[to] == 0)
            run_op(a, to);
    }
}

/* Builds a schedule by the dispatching rule, operation by operation. False: it
 * deadlocks, since memory or caps block all remaining operations. */
static bool run_all(tuner *a)
{
    const lhi_shop *s = a->s;
    for (;;) {
        for (uint32_t m;
             (m = lhi_earliest_machine_take_stale(&a->first)) != NONE;)
            if (s->machines[m].leader == NONE)
                choose_operation(a, m);
        uint32_t best = lhi_earliest_machine_get(&a->first);
        if (best == NONE)
            break;
        run_op(a, a->pick[best]);
    }
    for (uint32_t i = 0; i < s->n_streams; i++)
        if (s->machines[s->streams[i].machine].leader == NONE &&
            a->next[i] < s->streams[i].count)
            return false;
    return true;
}

/* Builds the schedule for the current parameters of the dispatching rule and
 * returns its objective in job-shop time; FAR: operations remain. */
static int64_t evaluate(tuner *a)
{
    const lhi_shop *s = a->s;
    lhi_machine_orders *w = a->w;
    memset(a->next, 0, s->n_streams * sizeof *a->next);
    memset(a->free_at, 0, s->n_machines * sizeof *a->free_at);
    memset(a->held, 0, s->n_machines * sizeof *a->held);
    lhi_earliest_machine_reset(&a->first);
    memset(w->next, 0, s->n_machines * sizeof *w->next);
    memcpy(w->ready, s->head, s->n_ops * sizeof *w->ready);
    memcpy(a->waits, a->waits0, s->n_ops * sizeof *a->waits);
    if (!run_all(a))
        return FAR;
    for (uint32_t m = 0; m < s->n_machines; m++)
        lhi_machine_orders_update_followers(w, m);
    int64_t time = lhi_machine_orders_evaluate(w);
    return time < 0 ? FAR : time;
}

/* --- parameters ----------------------------------------------------------- */

/* Copies the dispatching rule's parameters from `from` to `to`, whose arrays
 * have the same size. */
static void copy_parameters(const lhi_shop *s, lhi_rule_parameters *to,
                            const lhi_rule_parameters *from)
{
    memcpy(to->offset, from->offset, s->n_streams * sizeof *to->offset);
    memcpy(to->cap, from->cap, s->p->n_chunks * sizeof *to->cap);
    to->patience = from->patience;
}

/* Returns a random offset to due dates in job-shop time, of either sign and
 * geometrically distributed size. */
static int64_t draw_offset(tuner *a)
{
    int64_t size = a->scale >> draw_below(a, 8);
    int64_t by = size + (int64_t)(draw(a) >> 1) % (size + 1);
    return draw(a) & 1 ? by : -by;
}

/* Perturbs one random parameter of the dispatching rule: waiting time, caps on
 * activations, or offsets to due dates. */
static void perturb(tuner *a)
{
    const lhi_shop *s = a->s;
    uint32_t what = draw_below(a, 16), n = s->n_microbatches;
    if (what == 0) {
        a->now.patience = draw_below(a, PATIENCE + 1);
        return;
    }
    if (what < 6) {
        uint32_t c = draw_below(a, s->p->n_chunks);
        uint32_t *cap = &a->now.cap[c];
        if (*cap > n)
            *cap = n;
        uint32_t by = 1 + draw_below(a, 1u << draw_below(a, 4));
        *cap = draw(a) & 1 ? (*cap > by ? *cap - by : 1)
                           : (*cap + by < n ? *cap + by : n);
        /* Often change adjacent chunks as well. */
        for (uint32_t d = c; draw(a) & 1 && d + 1 < s->p->n_chunks; d++)
            a->now.cap[d + 1] = *cap;
        return;
    }
    uint32_t stream = draw_below(a, s->n_streams);
    const lhi_stream *t = &s->streams[stream];
    int64_t by = draw_offset(a);
    if (what < 12) {
        a->now.offset[stream] += by;
        return;
    }
    /* All streams of one kind on a range of chunks. */
    uint32_t first = draw_below(a, s->p->n_chunks),
             last = first + draw_below(a, s->p->n_chunks - first);
    for (uint32_t i = 0; i < s->n_streams; i++)
        if (s->streams[i].kind == t->kind && s->streams[i].chunk >= first &&
            s->streams[i].chunk <= last)
            a->now.offset[i] += by;
}

/* Searches the dispatching rule's parameters by simulated annealing. Stores a
 * better schedule's orders in `best` and its objective in *best_time. */
static void search_parameters(tuner *a, lhi_machine_orders *best,
                              int64_t *best_time, const lhi_tuning_options *how,
                              lhi_budget *budget)
{
    const uint64_t each = a->s->n_ops / 10 + 1;
    uint64_t steps = how->ticks / each + 1;
    int64_t now = evaluate(a);
    for (uint64_t i = 0;; i++) {
        if (now < FAR && (*best_time < 0 || now < *best_time)) {
            *best_time = now;
            lhi_machine_orders_copy(best, a->w);
        }
        if (i >= steps || lhi_budget_spend(budget, each) ||
            (*best_time >= 0 && *best_time <= how->target))
            return;
        copy_parameters(a->s, &a->old, &a->now);
        for (uint32_t k = 0; k == 0 || draw(a) % 4 == 0; k++)
            perturb(a);
        int64_t time = evaluate(a);
        /* Accept up to a few percent of a pass uphill at first. */
        int64_t heat =
            a->scale * 2 * (int64_t)((steps - i) * 1024 / steps) / 1024;
        int64_t allow = heat > 0 ? (int64_t)(draw(a) >> 1) % (heat + 1) : 0;
        allow = allow * (int64_t)draw_below(a, 1024) / 1024;
        if (time <= now + (now < FAR ? allow : 0))
            now = time;
        else
            copy_parameters(a->s, &a->now, &a->old);
    }
}

/* Returns `by` scaled linearly over a range of `n` positions, for position i:
 * by shape 0 constant, 1 rising, 2 falling. */
static int64_t scale_change(int64_t by, uint32_t shape, uint32_t i, uint32_t n)
{
    const uint32_t share = shape == 1 ? 2 * i + 1 : 2 * (n - i) - 1;
    return shape == 0 ? by : by * share / (2 * (int64_t)n);
}

/* Perturbs the waiting time, or the caps or the offsets of one kind on a range
 * of chunks. */
static void perturb_range(tuner *a)
{
    const lhi_shop *s = a->s;
    const uint32_t n = s->p->n_chunks, what = draw_below(a, 16);
    if (what == 0) {
        a->now.patience = draw_below(a, PATIENCE + 1);
        return;
    }
    const uint32_t first = draw_below(a, n), shape = draw_below(a, 3);
    const uint32_t length =
        1 + (draw_below(a, 3) == 0 ? draw_below(a, 4) : draw_below(a, n));
    const int64_t size = a->scale * s->p->n_devices / 8 >> draw_below(a, 9);
    int64_t by = size + (int64_t)(draw(a) >> 1) % (size + 1);
    if (draw(a) & 1)
        by = -by;
    const uint32_t *streams[] = {s->f, s->d, s->w};
    const uint32_t *of = streams[draw_below(a, s->p->joint ? 2 : 3)];
    for (uint32_t i = 0; i < length && first + i < n; i++) {
        const uint32_t c = first + i;
        const int64_t change = scale_change(by, shape, i, length);
        if (what >= 6) {
            a->now.offset[of[c]] += change;
            continue;
        }
        const int64_t f = s->time[s->streams[s->f[c]].first];
        const int64_t cap = a->now.cap[c] + change / f + (by < 0 ? -1 : 1);
        a->now.cap[c] = cap < 1                   ? 1
                        : cap > s->n_microbatches ? s->n_microbatches
                                                  : (uint32_t)cap;
    }
}

/* Returns the largest increase of the objective that a step may accept after
 * `spent` of `ticks`: random, and smaller the more is spent. */
static int64_t draw_uphill(tuner *a, uint64_t spent, uint64_t ticks)
{
    const uint64_t left = spent < ticks ? (ticks - spent) * 1024 / ticks : 0;
    const int64_t heat = a->scale * 2 * (int64_t)(left * left) / (1024 * 1024);
    const int64_t most = (int64_t)(draw(a) >> 1) % (heat + 1);
    return most * (int64_t)draw_below(a, 1024) / 1024;
}

/* Searches the dispatching rule's parameters as search_parameters() does, but
 * starts from how->parameters, changes ranges of chunks, and compares schedules
 * after justification. */
static lh_status search_ranges(tuner *a, lhi_machine_orders *best,
                               int64_t *best_time,
                               const lhi_tuning_options *how,
                               lhi_budget *budget, lh_error *err)
{
    const uint64_t begin = budget->used;
    int64_t now = FAR, least = FAR;
    copy_parameters(a->s, &a->now, how->parameters);
    for (bool first = true;; first = false) {
        copy_parameters(a->s, &a->old, &a->now);
        for (bool more = !first; more; more = draw(a) % 4 == 0)
            perturb_range(a);
        int64_t time = evaluate(a);
        if (time < FAR)
            LHI_TRY(lhi_justifier_run_unperturbed(how->justifier, a->w, &time,
                                                  how->seed, how->target,
                                                  budget, err));
        if (time < least) {
            least = time;
            copy_parameters(a->s, how->parameters, &a->now);
        }
        if (time < FAR && (*best_time < 0 || time < *best_time)) {
            *best_time = time;
            lhi_machine_orders_copy(best, a->w);
        }
        const uint64_t spent = budget->used - begin;
        if (time <= now ||
            (now < FAR && time <= now + draw_uphill(a, spent, how->ticks)))
            now = time;
        else
            copy_parameters(a->s, &a->now, &a->old);
        if (lhi_budget_spend(budget, a->s->n_ops / 10 + 1) ||
            spent >= how->ticks ||
            (*best_time >= 0 && *best_time <= how->target))
            return LH_OK;
    }
}

/* --- driver --------------------------------------------------------------- */

lh_status lhi_rule_parameters_make(const lhi_shop *shop, lhi_arena *mem,
                                   lhi_rule_parameters *out, lh_error *err)
{
    out->offset = LHI_NEW(mem, int64_t, shop->n_streams);
    out->cap = LHI_NEW(mem, uint32_t, shop->p->n_chunks);
    if (!out->offset || !out->cap)
        return lhi_fail_nomem(err);
    for (uint32_t c = 0; c < shop->p->n_chunks; c++)
        out->cap[c] = shop->n_microbatches;
    out->patience = PATIENCE;
    return LH_OK;
}

/* Derives from the job shop, per stream, the dispatching rule's inputs:
 * precedence rules, the W that releases each F's memory, the memory to reserve
 * for later chunks. */
static void read_rules(tuner *a)
{
    const lhi_shop *s = a->s;
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_streams; i++) {
        const lhi_stream *t = &s->streams[i];
        const lhi_machine *m = &s->machines[t->machine];
        a->rule_at[i] = n;
        a->give[i] = NONE;
        if (t->kind == LHI_F && s->memory[t->first] > 0)
            a->give[i] = s->p->joint ? s->d[t->chunk] : s->w[t->chunk];
        for (uint32_t r = 0; r < m->n_rules; r++) {
            const lhi_rule *rule = &s->rules[m->first_rule + r];
            if (rule->b != i)
                continue;
            a->rule[n++] = rule->a;
        }
        for (uint32_t k = 0; k < m->n_streams; k++) {
            const lhi_stream *u = &s->streams[m->first_stream + k];
            if (t->kind == LHI_F && u->kind == LHI_F && u->chunk > t->chunk &&
                s->memory[u->first] > a->reserve[i])
                a->reserve[i] = s->memory[u->first];
        }
    }
    a->rule_at[s->n_streams] = n;
    for (uint32_t o = 0; o < s->n_ops; o++)
        for (uint32_t i = s->pred_at[o]; i < s->pred_at[o + 1]; i++) {
            const lhi_stream *from = &s->streams[s->stream_of[s->pred[i]]];
            a->waits0[o] += from->kind != LHI_GATHER ||
                            s->machines[from->machine].leader == NONE;
        }
    a->scale = 1;
    for (uint32_t o = 0; o < s->n_ops; o++)
        a->scale = s->time[o] > a->scale ? s->time[o] : a->scale;
    a->scale *= 4;
}

/* Allocates the arrays of the dispatching rule's tuner in `mem`. */
static lh_status allocate(tuner *a, lhi_arena *mem, lh_error *err)
{
    const lhi_shop *s = a->s;
    uint32_t m = s->n_machines, n = s->n_streams;
    LHI_TRY(lhi_rule_parameters_make(s, mem, &a->now, err));
    LHI_TRY(lhi_rule_parameters_make(s, mem, &a->old, err));
    a->next = LHI_NEW(mem, uint32_t, n);
    a->waits = LHI_NEW(mem, uint32_t, s->n_ops);
    a->waits0 = LHI_NEW(mem, uint32_t, s->n_ops);
    a->free_at = LHI_NEW(mem, int64_t, m);
    a->held = LHI_NEW(mem, int64_t, m);
    a->pick = LHI_NEW(mem, uint32_t, m);
    a->reserve = LHI_NEW(mem, int64_t, n);
    a->give = LHI_NEW(mem, uint32_t, n);
    a->rule_at = LHI_NEW(mem, uint32_t, (size_t)n + 1);
    a->rule = LHI_NEW(mem, uint32_t, s->n_rules);
    const bool ok = a->next && a->waits && a->waits0 && a->free_at && a->held &&
                    a->pick && a->reserve && a->give && a->rule_at && a->rule;
    return ok ? LH_OK : lhi_fail_nomem(err);
}

lh_status lhi_rule_tuning_run(lhi_machine_orders *best, int64_t *best_time,
                              const lhi_tuning_options *how, lhi_budget *budget,
                              lhi_arena *mem, lh_error *err)
{
    lhi_mark mark = lhi_arena_mark(mem);
    tuner a = {.s = best->shop, .rng = how->seed};
    lhi_windows *windows = NULL;
    uint32_t impossible;
    lh_status status = lhi_machine_orders_make(best->shop, mem, &a.w, err);
    if (status == LH_OK)
        status = lhi_earliest_machine_make(&a.first, best->shop->n_machines,
                                           mem, err);
    if (status == LH_OK)
        status = allocate(&a, mem, err);
    /* Due dates from the required successors, for any orders. */
    if (status == LH_OK)
        status = lhi_windows_make(best->shop, 0, budget, mem, &windows,
                                  &impossible, err);
    if (status == LH_OK &&
        lhi_windows_set(windows, best->shop->horizon, budget)) {
        a.due = windows->e;
        read_rules(&a);
        if (how->parameters)
            status = search_ranges(&a, best, best_time, how, budget, err);
        else
            search_parameters(&a, best, best_time, how, budget);
    }
    lhi_windows_free(windows);
    lhi_arena_rewind(mem, mark);
    return status;
}
