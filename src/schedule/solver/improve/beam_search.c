/* SPDX-License-Identifier: Apache-2.0 */
/* Beam search over active schedules (Giffler and Thompson). A lattice provides,
 * for each state of its machine, the latest departure time, given memory and
 * the other machines' windows. The remaining slack per machine rates a partial
 * schedule. */
#include "schedule/solver/improve/beam_search.h"

#include "base/integer_math.h"
#include "schedule/solver/bound/lattice.h"

#include <stdlib.h>
#include <string.h>

/* A partial schedule. */
typedef struct partial_gradient {
    int64_t *ready;   /* per operation: arrival of its inputs */
    uint16_t *waits;  /* per operation: pending inputs */
    int64_t *free_at; /* per machine */
    uint32_t *state;  /* per machine */
    uint32_t past;    /* its last step; NONE: none */
} partial;

/* A candidate step with its rating. */
typedef struct child {
    int64_t score, end;
    uint64_t hash;
    uint32_t parent, op, to;
} child;

/* Beam search state. */
typedef struct beam {
    const lhi_shop *s;
    lhi_windows *w;
    lhi_arena *mem;
    const lhi_lattice **lattice;
    int64_t **last; /* per machine and state */
    uint32_t width, n_now, n_children, n_past;
    partial *now, *next;
    child *children;
    uint32_t *past_op, *past_parent;
    int64_t mean;
    uint32_t most_children; /* per partial schedule */
    uint64_t *postponed;    /* per machine: bit mask of streams */
} beam;

/* Maximum number of machines, per partial schedule, that may postpone
 * memory-allocating operations. */
enum { MAX_POSTPONED = 12, MAX_SUCCESSORS = 16 };

/* Returns a penalty that falls with the slack (time until an operation's latest
 * start): the square of a fraction that is largest at slack 0. */
static int64_t compute_penalty(const beam *b, int64_t slack)
{
    int64_t share = b->mean * 4096 / (lhi_max_int64(slack, 0) + b->mean);
    return share * share;
}

/* Returns an operation's machine. */
static uint32_t get_machine(const beam *b, uint32_t op)
{
    return b->s->streams[b->s->stream_of[op]].machine;
}

/* Returns the end of the next operation of machine m's stream number `slot` if
 * it ran next in the partial schedule; FAR: it cannot run. *op: that operation;
 * *to: the machine's state after it. */
static int64_t compute_end(const beam *b, const partial *p, uint32_t m,
                           uint32_t slot, uint32_t *op, uint32_t *to)
{
    const lhi_lattice *l = b->lattice[m];
    uint32_t n = l->n_streams;
    size_t at = (size_t)p->state[m] * n + slot;
    *to = l->step[at];
    if (*to == NONE)
        return FAR;
    *op = b->s->streams[b->s->machines[m].first_stream + slot].first +
          l->counts[at];
    if (p->waits[*op] > 0)
        return FAR;
    int64_t end = lhi_max_int64(p->free_at[m], p->ready[*op]) + b->s->time[*op];
    return end <= b->last[m][*to] && end <= b->w->e[*op] ? end : FAR;
}

/* Finds the machine on which, in partial schedule `p`, a next operation could
 * end first, and that end; false: no operation can run. */
static bool find_next_machine(const beam *b, const partial *p,
                              uint32_t *machine, int64_t *first)
{
    *first = FAR;
    for (uint32_t m = 0; m < b->s->n_machines; m++)
        for (uint32_t i = 0; b->lattice[m] && i < b->lattice[m]->n_streams;
             i++) {
            uint32_t op, to;
            if (b->postponed[m] >> i & 1)
                continue;
            int64_t end = compute_end(b, p, m, i, &op, &to);
            if (end < *first) {
                *first = end;
                *machine = m;
            }
        }
    return *first < FAR;
}

/* Checks whether a partial schedule already contains operation `op`. */
static bool is_done(const beam *b, const partial *p, uint32_t op)
{
    const lhi_stream *t = &b->s->streams[b->s->stream_of[op]];
    const lhi_lattice *l = b->lattice[t->machine];
    return op - t->first <
           l->counts[(size_t)p->state[t->machine] * l->n_streams + t->slot];
}

/* Returns a lower bound on an operation's start in a partial schedule: all its
 * predecessors run as soon as their own machine is free. */
static int64_t compute_start_bound(const beam *b, const partial *p, uint32_t op)
{
    const lhi_shop *s = b->s;
    int64_t start = lhi_max_int64(p->ready[op], p->free_at[get_machine(b, op)]);
    if (p->waits[op] == 0)
        return start;
    for (uint32_t i = s->pred_at[op]; i < s->pred_at[op + 1]; i++) {
        uint32_t q = s->pred[i];
        if (!is_done(b, p, q))
            start = lhi_max_int64(start, compute_start_bound(b, p, q) +
                                             s->time[q] + s->pred_lag[i]);
    }
    return start;
}

/* Returns the largest slack (time until the latest start) among the possible
 * next operations of machine m; FAR: it is complete. */
static int64_t compute_slack(const beam *b, const partial *p, uint32_t m)
{
    const lhi_lattice *l = b->lattice[m];
    const uint32_t *step = l->step + (size_t)p->state[m] * l->n_streams;
    int64_t most = -1;
    if (p->state[m] + 1 == l->n_states)
        return FAR;
    for (uint32_t i = 0; i < l->n_streams; i++) {
        if (step[i] == NONE)
            continue;
        uint32_t op = b->s->streams[b->s->machines[m].first_stream + i].first +
                      l->counts[(size_t)p->state[m] * l->n_streams + i];
        int64_t due = b->last[m][step[i]];
        due = due < b->w->e[op] ? due : b->w->e[op];
        if (due - b->s->time[op] <= most)
            continue;
        int64_t left = due - b->s->time[op] - compute_start_bound(b, p, op);
        most = left > most ? left : most;
    }
    return most;
}

/* Rates extension `c` of a partial schedule by the slack (time until the latest
 * start) that remains on all machines; lower is better, FAR is infeasible. */
static int64_t rate_step(const beam *b, partial *p, const child *c)
{
    const lhi_shop *s = b->s;
    uint32_t machine = get_machine(b, c->op), state = p->state[machine];
    int64_t score = 0, free_at = p->free_at[machine];
    int64_t kept[MAX_SUCCESSORS];
    uint32_t first = s->succ_at[c->op], n = s->succ_at[c->op + 1] - first;
    if (n > MAX_SUCCESSORS)
        return FAR;
    p->state[machine] = c->to;
    p->free_at[machine] = c->end;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t o = s->succ[first + i];
        kept[i] = p->ready[o];
        p->ready[o] =
            lhi_max_int64(p->ready[o], c->end + s->succ_lag[first + i]);
        p->waits[o]--;
    }
    for (uint32_t m = 0; m < s->n_machines && score < FAR; m++) {
        int64_t slack = b->lattice[m] ? compute_slack(b, p, m) : FAR;
        if (slack < 0)
            score = FAR;
        else if (slack < FAR)
            score += compute_penalty(b, slack);
    }
    for (uint32_t i = n; i-- > 0;) {
        uint32_t o = s->succ[first + i];
        p->ready[o] = kept[i];
        p->waits[o]++;
    }
    p->state[machine] = state;
    p->free_at[machine] = free_at;
    return score;
}

/* Returns hash h extended by the word x. */
static uint64_t mix(uint64_t h, uint64_t x)
{
    h = (h ^ x) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 29;
}

/* Adds an extension of partial schedule `parent` for every operation on machine
 * m that could start before `first`, the earliest end of an operation there.
 * Returns a bit set of the streams (operations in fixed order) that take
 * memory. */
static uint64_t expand_machine(beam *b, uint32_t parent, uint32_t m,
                               int64_t first)
{
    partial *p = &b->now[parent];
    uint64_t rest = 0, taking = 0;
    for (uint32_t k = 0; k < b->s->n_machines; k++)
        if (k != m)
            rest += mix(mix(k + 1, p->state[k]), (uint64_t)p->free_at[k]);
    for (uint32_t i = 0; i < b->lattice[m]->n_streams; i++) {
        child c = {.parent = parent};
        if (b->postponed[m] >> i & 1)
            continue;
        c.end = compute_end(b, p, m, i, &c.op, &c.to);
        if (c.end == FAR || c.end - b->s->time[c.op] >= first)
            continue;
        if (b->s->memory[c.op] > 0)
            taking |= UINT64_C(1) << i;
        c.score = rate_step(b, p, &c);
        if (c.score == FAR)
            continue;
        c.hash = rest + mix(mix(m + 1, c.to), (uint64_t)c.end);
        b->children[b->n_children++] = c;
    }
    return taking;
}

/* Adds the possible extensions of partial schedule `parent` by one operation.
 * Running an operation that takes memory as early as possible is not always
 * best, so other machines are extended too. */
static void expand(beam *b, uint32_t parent)
{
    uint32_t m = 0;
    int64_t first;
    memset(b->postponed, 0, b->s->n_machines * sizeof *b->postponed);
    for (uint32_t i = 0; i < MAX_POSTPONED; i++) {
        if (!find_next_machine(b, &b->now[parent], &m, &first))
            return;
        uint64_t taking = expand_machine(b, parent, m, first);
        if (taking == 0)
            return;
        b->postponed[m] |= taking;
    }
}

/* Compares extensions by score, hash and operation, for qsort(); so that ties
 * have the same order everywhere. */
static int compare_scores(const void *x, const void *y)
{
    const child *a = x, *b = y;
    if (a->score != b->score)
        return a->score < b->score ? -1 : 1;
    if (a->hash != b->hash)
        return a->hash < b->hash ? -1 : 1;
    return a->op < b->op ? -1 : a->op > b->op;
}

/* Copies the partial schedule `from` to `to`; both have arrays of the same
 * size. */
static void copy_partial(const beam *b, partial *to, const partial *from)
{
    const lhi_shop *s = b->s;
    memcpy(to->ready, from->ready, s->n_ops * sizeof *to->ready);
    memcpy(to->waits, from->waits, s->n_ops * sizeof *to->waits);
    memcpy(to->free_at, from->free_at, s->n_machines * sizeof *to->free_at);
    memcpy(to->state, from->state, s->n_machines * sizeof *to->state);
}

/* Copies the parent of extension `c` to `to` and adds its operation. */
static void apply_step(beam *b, const child *c, partial *to)
{
    const lhi_shop *s = b->s;
    const partial *from = &b->now[c->parent];
    uint32_t m = get_machine(b, c->op);
    copy_partial(b, to, from);
    to->state[m] = c->to;
    to->free_at[m] = c->end;
    for (uint32_t i = s->succ_at[c->op]; i < s->succ_at[c->op + 1]; i++) {
        uint32_t o = s->succ[i];
        to->ready[o] = lhi_max_int64(to->ready[o], c->end + s->succ_lag[i]);
        to->waits[o]--;
    }
    b->past_op[b->n_past] = c->op;
    b->past_parent[b->n_past] = from->past;
    to->past = b->n_past++;
}

/* Keeps the extensions with the best scores as partial schedules of the next
 * step, at most the beam's width. Of equivalent extensions (same states and
 * times) only one is kept. */
static void select_best(beam *b)
{
    uint32_t n = 0;
    qsort(b->children, b->n_children, sizeof *b->children, compare_scores);
    for (uint32_t i = 0; i < b->n_children && n < b->width; i++) {
        const child *c = &b->children[i];
        if (i > 0 && c[-1].score == c->score && c[-1].hash == c->hash)
            continue;
        apply_step(b, c, &b->next[n++]);
    }
    partial *old = b->now;
    b->now = b->next;
    b->next = old;
    b->n_now = n;
}

/* Allocates arrays of `width` partial schedules in *out; false: out of
 * memory. */
static bool make_partials(beam *b, partial **out)
{
    const lhi_shop *s = b->s;
    *out = LHI_NEW(b->mem, partial, b->width);
    for (uint32_t i = 0; *out && i < b->width; i++) {
        partial *p = *out + i;
        p->ready = LHI_NEW(b->mem, int64_t, s->n_ops);
        p->waits = LHI_NEW(b->mem, uint16_t, s->n_ops);
        p->free_at = LHI_NEW(b->mem, int64_t, s->n_machines);
        p->state = LHI_NEW(b->mem, uint32_t, s->n_machines);
        if (!p->ready || !p->waits || !p->free_at || !p->state)
            return false;
    }
    return *out;
}

/* Allocates the beam's arrays for the machines, all of which have a lattice
 * (graph of their states); false: out of memory. */
static bool allocate(beam *b)
{
    const lhi_shop *s = b->s;
    size_t past = (size_t)s->n_ops * b->width;
    b->lattice = LHI_NEW(b->mem, const lhi_lattice *, s->n_machines);
    b->last = LHI_NEW(b->mem, int64_t *, s->n_machines);
    b->postponed = LHI_NEW(b->mem, uint64_t, s->n_machines);
    b->children = LHI_NEW(b->mem, child, (size_t)b->width * b->most_children);
    b->past_op = LHI_NEW(b->mem, uint32_t, past);
    b->past_parent = LHI_NEW(b->mem, uint32_t, past);
    if (!b->lattice || !b->last || !b->postponed || !b->children ||
        !b->past_op || !b->past_parent || !make_partials(b, &b->now) ||
        !make_partials(b, &b->next))
        return false;
    for (uint32_t m = 0; m < s->n_machines; m++) {
        b->lattice[m] = lhi_windows_get_lattice(b->w, m);
        if (!b->lattice[m])
            continue;
        b->last[m] = LHI_NEW(b->mem, int64_t, b->lattice[m]->n_states);
        if (!b->last[m])
            return false;
    }
    return true;
}

/* Initialises the empty partial schedule, and computes the latest time at which
 * each machine state may be left. False: no order exists, or stopped. */
static bool initialise_partial(beam *b, lhi_budget *budget)
{
    const lhi_shop *s = b->s;
    partial *p = &b->now[0];
    b->n_now = 1;
    p->past = NONE;
    memcpy(p->ready, s->head, s->n_ops * sizeof *p->ready);
    for (uint32_t o = 0; o < s->n_ops; o++) {
        p->waits[o] = (uint16_t)(s->pred_at[o + 1] - s->pred_at[o]);
        b->mean += s->time[o] / s->n_ops + 1;
    }
    for (uint32_t m = 0; m < s->n_machines; m++) {
        if (!b->lattice[m])
            continue;
        if (!lhi_lattice_compute_latest(b->lattice[m], b->w, b->last[m],
                                        budget))
            return false;
    }
    return true;
}

/* Extends all partial schedules by one operation per step until they are
 * complete; false: none can be extended, or stopped. */
static bool run_steps(beam *b, lhi_budget *budget)
{
    for (uint32_t k = 0; k < b->s->n_ops; k++) {
        b->n_children = 0;
        for (uint32_t i = 0; i < b->n_now; i++)
            expand(b, i);
        if (b->n_children == 0)
            return false;
        select_best(b);
        if (lhi_budget_spend(budget,
                             1 + (uint64_t)b->n_now * b->s->n_machines / 3))
            return false;
    }
    return true;
}

/* Writes the machine orders of the best complete schedule to `out`, from its
 * last operation backward. */
static void write_orders(const beam *b, lhi_machine_orders *out)
{
    const lhi_shop *s = b->s;
    memcpy(out->next, out->n, s->n_machines * sizeof *out->next);
    for (uint32_t x = b->now[0].past; x != NONE; x = b->past_parent[x]) {
        uint32_t o = b->past_op[x], m = get_machine(b, o);
        out->order[m][--out->next[m]] = o;
    }
}

/* Checks that every machine has a lattice (graph of its states) and none
 * follows the order of another. */
static bool is_applicable(const lhi_windows *w)
{
    const lhi_shop *s = w->shop;
    for (uint32_t m = 0; m < s->n_machines; m++)
        if (s->machines[m].leader != NONE || s->machines[m].n_streams > 64 ||
            (s->machines[m].n_streams > 0 && !lhi_windows_get_lattice(w, m)))
            return false;
    return true;
}

/* Returns the beam width (number of partial schedules) that fits into `room`
 * bytes. */
static uint32_t compute_width(const beam *b, size_t room)
{
    const lhi_shop *s = b->s;
    size_t fixed = 0;
    for (uint32_t m = 0; m < s->n_machines; m++)
        if (lhi_windows_get_lattice(b->w, m))
            fixed +=
                lhi_windows_get_lattice(b->w, m)->n_states * sizeof(int64_t);
    size_t each =
        b->most_children * sizeof(child) +
        s->n_ops * 2 * (sizeof(int64_t) + sizeof(uint16_t) + sizeof(uint32_t)) +
        s->n_machines * 2 * (sizeof(int64_t) + sizeof(uint32_t)) +
        2 * sizeof(partial);
    size_t fits = room > fixed ? (room - fixed) / each : 0;
    return fits < b->width ? (uint32_t)fits : b->width;
}

lh_status lhi_beam_search_run(lhi_windows *windows, uint32_t width, size_t room,
                              lhi_machine_orders *out, bool *ok,
                              lhi_budget *budget, lh_error *err)
{
    beam b = {.s = windows->shop, .w = windows, .width = width};
    *ok = false;
    if (!is_applicable(windows))
        return LH_OK;
    for (uint32_t m = 0; m < b.s->n_machines; m++)
        if (b.s->machines[m].n_streams * MAX_POSTPONED > b.most_children)
            b.most_children = b.s->machines[m].n_streams * MAX_POSTPONED;
    b.width = compute_width(&b, room);
    if (b.width == 0)
        return LH_OK;
    b.mem = lhi_arena_make(0);
    if (!b.mem)
        return lhi_fail_nomem(err);
    if (!allocate(&b)) {
        lhi_arena_free(b.mem);
        return lhi_fail_nomem(err);
    }
    *ok = initialise_partial(&b, budget) && run_steps(&b, budget);
    if (*ok)
        write_orders(&b, out);
    lhi_arena_free(b.mem);
    return LH_OK;
}
