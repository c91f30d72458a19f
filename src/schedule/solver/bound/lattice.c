/* SPDX-License-Identifier: Apache-2.0 */
/* Solves the one-machine problem exactly, by shortest and longest paths through
 * the machine's states. */
#include "schedule/solver/bound/lattice.h"
#include "schedule/pipeline/pipeline_internal.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_STREAMS = 8,
    STATES_PER_TIME_CHECK = 1 << 14 /* states between two time checks */
};

/* State while building a lattice. */
typedef struct builder {
    const lhi_shop *s;
    const lhi_machine *m;
    lhi_lattice *l;
    uint32_t room; /* capacity in states */
    /* A step increases one count by one, so equal states come from states with
     * the same number of completed operations. Those are adjacent and numbered
     * from `first` on. Older table entries are stale. */
    uint32_t first, *table;
    uint32_t n_table; /* a power of two */
    int64_t *held;    /* memory per state */
    /* For a deadline lattice: its windows, and the earliest time per state. */
    const lhi_windows *w;
    int64_t *time;
    uint32_t first_op[MAX_STREAMS];
    lhi_budget *budget;
} builder;

/* Checks whether the time limit is exceeded. Reads the clock only at some
 * values of `state`, since loops run over millions of states. An effort limit
 * does not stop here, so results do not depend on the clock. */
static bool is_timed_out(lhi_budget *budget, uint32_t state)
{
    if (state % STATES_PER_TIME_CHECK == STATES_PER_TIME_CHECK - 1)
        lhi_budget_check_time(budget);
    return budget->timed_out;
}

/* Returns a hash of n counts (completed operations per stream). */
static uint64_t compute_hash(const uint16_t *counts, uint32_t n)
{
    uint64_t h = 0;
    for (uint32_t i = 0; i < n; i++)
        h = (h ^ counts[i]) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 29;
}

/* Checks whether hash entry `at` belongs to a state that later steps may still
 * reach; other entries can be dropped. */
static bool is_current(const builder *b, uint32_t at)
{
    return b->table[at] != NONE && b->table[at] >= b->first;
}

/* Doubles the hash table and drops stale entries. Returns false if out of
 * memory, or out of time. */
static bool grow_table(builder *b)
{
    uint32_t n = b->n_table ? 2 * b->n_table : 1024;
    uint32_t *table = malloc(n * sizeof *table);
    if (!table)
        return false;
    memset(table, 0xff, n * sizeof *table);
    for (uint32_t i = b->first; i < b->l->n_states; i++) {
        if (is_timed_out(b->budget, i)) {
            free(table);
            return false;
        }
        const uint16_t *c = b->l->counts + (size_t)i * b->l->n_streams;
        uint32_t at = (uint32_t)compute_hash(c, b->l->n_streams) & (n - 1);
        while (table[at] != NONE)
            at = (at + 1) & (n - 1);
        table[at] = i;
    }
    free(b->table);
    b->table = table;
    b->n_table = n;
    return true;
}

/* Doubles the builder's capacity for states of the lattice; false: out of
 * memory. */
static bool grow_states(builder *b)
{
    lhi_lattice *l = b->l;
    uint32_t room = b->room ? 2 * b->room : 1024;
    size_t each = l->n_streams;
    uint16_t *counts = realloc(l->counts, room * each * sizeof *counts);
    if (counts)
        l->counts = counts;
    uint32_t *step = realloc(l->step, room * each * sizeof *step);
    if (step)
        l->step = step;
    int64_t *held = realloc(b->held, room * sizeof *held);
    if (held)
        b->held = held;
    int64_t *time = b->w ? realloc(b->time, room * sizeof *time) : NULL;
    if (time)
        b->time = time;
    if (!counts || !step || !held || (b->w && !time))
        return false;
    b->room = room;
    return true;
}

/* Checks whether two states have equal counts (completed operations per
 * stream), n of them. */
static bool is_same(const uint16_t *a, const uint16_t *b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (a[i] != b[i])
            return false;
    return true;
}

/* Returns the number of the state with these counts (completed operations per
 * stream), adding it with memory `held` if it is new. NONE: out of memory, or
 * stopped. */
static uint32_t find_or_add_state(builder *b, const uint16_t *counts,
                                  int64_t held)
{
    lhi_lattice *l = b->l;
    uint32_t n = l->n_streams;
    if (2 * (l->n_states - b->first) >= b->n_table && !grow_table(b))
        return NONE;
    uint32_t at = (uint32_t)compute_hash(counts, n) & (b->n_table - 1);
    while (is_current(b, at)) {
        if (is_same(l->counts + (size_t)b->table[at] * n, counts, n))
            return b->table[at];
        at = (at + 1) & (b->n_table - 1);
    }
    if (l->n_states == b->room && !grow_states(b))
        return NONE;
    memcpy(l->counts + (size_t)l->n_states * n, counts, n * sizeof *counts);
    memset(l->step + (size_t)l->n_states * n, 0xff, n * sizeof *l->step);
    b->held[l->n_states] = held;
    if (b->w)
        b->time[l->n_states] = FAR;
    b->table[at] = l->n_states;
    return l->n_states++;
}

/* Checks whether the machine may run the next operation of its stream `slot`
 * (a chain of same-kind operations on one chunk) within the memory limit and
 * the precedence rules. counts[i]: operations that have run in stream i.
 * `held`: memory in use after them. */
static bool may_step(const builder *b, const uint16_t *counts, uint32_t slot,
                     int64_t held)
{
    const lhi_shop *s = b->s;
    uint32_t id = b->m->first_stream + slot;
    const lhi_stream *t = &s->streams[id];
    uint32_t x = counts[slot];
    if (x == t->count)
        return false;
    int64_t change = s->memory[t->first + x];
    if (change > 0 && held + change > b->m->memory_limit)
        return false;
    for (uint32_t r = 0; r < b->m->n_rules; r++) {
        const lhi_rule *rule = &s->rules[b->m->first_rule + r];
        if (rule->b == id && counts[s->streams[rule->a].slot] <= x / t->per)
            return false;
    }
    return true;
}

/* Returns a lower bound on a machine's memory after `counts` in a relaxed job
 * shop. There, W parts differ by at most one unit, and each frees the smaller
 * share. Per microbatch with completed D, total mod q parts free one unit
 * more; they are assumed to come first. */
static int64_t compute_min_memory(const builder *b, const uint16_t *counts)
{
    const lhi_shop *s = b->s;
    int64_t held = 0;
    for (uint32_t i = 0; i < b->m->n_streams; i++) {
        const lhi_stream *t = &s->streams[b->m->first_stream + i];
        int64_t change = s->memory[t->first] * counts[i];
        if (t->kind == LHI_W && change < 0) {
            const lhi_stream *d = &s->streams[s->d[t->chunk]];
            int64_t total = -s->p->chunks[t->chunk].mem_w, q = t->per;
            int64_t more = total % q * counts[d->slot];
            change = -(total / q * counts[i]) -
                     (more < counts[i] ? more : counts[i]);
        }
        held += change;
    }
    return held;
}

/* Checks whether the next operation of every stream (operations in fixed order)
 * after `counts`, each taken alone and started at time `now`, can end by its
 * latest end; if not, the state is useless. */
static bool can_finish(const builder *b, const uint16_t *counts, int64_t now)
{
    const lhi_shop *s = b->s;
    for (uint32_t i = 0; i < b->l->n_streams; i++) {
        uint32_t o = b->first_op[i] + counts[i];
        if (counts[i] < s->streams[b->m->first_stream + i].count &&
            now + s->time[o] > b->w->e[o])
            return false;
    }
    return true;
}

/* Returns the earliest end of the next operation of stream `slot` after state
 * x; FAR: later than its time window allows. */
static int64_t compute_end_in_window(const builder *b, uint16_t *counts,
                                     uint32_t x, uint32_t slot)
{
    uint32_t o = b->first_op[slot] + counts[slot];
    int64_t now = b->time[x] > b->w->r[o] ? b->time[x] : b->w->r[o];
    now += b->s->time[o];
    if (now > b->w->e[o])
        return FAR;
    counts[slot]++;
    bool live = can_finish(b, counts, now);
    counts[slot]--;
    return live ? now : FAR;
}

/* Builds the lattice (graph of a machine's states, which are completed
 * operations per stream) breadth first, within `room` bytes. Steps lead to
 * higher numbers, so all paths to a state are known before it is expanded.
 * False: too large, stopped, or out of memory (*no_memory). */
static bool build(builder *b, size_t room, bool *no_memory)
{
    lhi_lattice *l = b->l;
    uint32_t n = l->n_streams;
    size_t each = n * 6 + (b->w ? 5 : 4) * sizeof(int64_t);
    uint16_t counts[MAX_STREAMS] = {0};
    if (find_or_add_state(b, counts, 0) == NONE) {
        *no_memory = true;
        return false;
    }
    if (b->w)
        b->time[0] = 0;
    for (uint32_t x = 0; x < l->n_states; x++) {
        if (x == b->first)
            b->first = l->n_states;
        if (l->n_states * each > room ||
            (x % 64 == 0 && lhi_budget_spend(b->budget, 8)))
            return false;
        memcpy(counts, l->counts + (size_t)x * n, n * sizeof *counts);
        for (uint32_t i = 0; i < n; i++) {
            if (!may_step(b, counts, i, b->held[x]))
                continue;
            int64_t end = b->w ? compute_end_in_window(b, counts, x, i) : 0;
            if (end == FAR)
                continue;
            const lhi_stream *t = &b->s->streams[b->m->first_stream + i];
            int64_t held = b->held[x] + b->s->memory[t->first + counts[i]];
            counts[i]++;
            if (b->s->parts_relaxed)
                held = compute_min_memory(b, counts);
            uint32_t y = find_or_add_state(b, counts, held);
            counts[i]--;
            if (y == NONE) {
                *no_memory = !b->budget->timed_out;
                return false;
            }
            l->step[(size_t)x * n + i] = y;
            if (b->w && end < b->time[y])
                b->time[y] = end;
        }
    }
    return true;
}

void lhi_lattice_free(lhi_lattice *lattice)
{
    if (!lattice)
        return;
    free(lattice->counts);
    free(lattice->step);
    free(lattice);
}

/* Builds a machine's lattice, the graph of its states (completed operations per
 * stream), within `room` bytes. `w` NULL: all states, otherwise those within
 * these time windows. NULL and *no_memory as in lhi_lattice_make(). */
static lhi_lattice *make_lattice(const lhi_shop *shop, uint32_t machine,
                                 const lhi_windows *w, size_t room,
                                 lhi_budget *budget, bool *no_memory)
{
    const lhi_machine *m = &shop->machines[machine];
    builder b = {.s = shop, .m = m, .w = w, .budget = budget};
    if (m->n_streams > MAX_STREAMS)
        return NULL;
    for (uint32_t i = 0; i < m->n_streams; i++) {
        if (shop->streams[m->first_stream + i].count > UINT16_MAX)
            return NULL;
        b.first_op[i] = shop->streams[m->first_stream + i].first;
    }
    b.l = calloc(1, sizeof *b.l);
    if (!b.l) {
        *no_memory = true;
        return NULL;
    }
    b.l->machine = machine;
    b.l->n_streams = m->n_streams;
    bool ok = build(&b, room, no_memory);
    free(b.table);
    free(b.held);
    free(b.time);
    if (ok)
        return b.l;
    lhi_lattice_free(b.l);
    return NULL;
}

lhi_lattice *lhi_lattice_make(const lhi_shop *shop, uint32_t machine,
                              size_t room, lhi_budget *budget, bool *no_memory)
{
    return make_lattice(shop, machine, NULL, room, budget, no_memory);
}

lhi_lattice *lhi_lattice_make_for_deadline(const lhi_windows *windows,
                                           uint32_t machine, size_t room,
                                           lhi_budget *budget, bool *no_memory)
{
    return make_lattice(windows->shop, machine, windows, room, budget,
                        no_memory);
}

/* --- paths through the lattice -------------------------------------------- */

/* Context for paths through a lattice. */
typedef struct path_context {
    const lhi_lattice *l;
    const lhi_windows *w;
    lhi_budget *budget;
    uint32_t first_op[MAX_STREAMS];
} path_context;

/* Prepares a traversal of a lattice (machine state graph) under the current
 * windows (earliest starts and latest ends). */
static path_context make_path_context(const lhi_lattice *l,
                                      const lhi_windows *w, lhi_budget *budget)
{
    path_context y = {.l = l, .w = w, .budget = budget};
    const lhi_machine *m = &w->shop->machines[l->machine];
    for (uint32_t i = 0; i < l->n_streams; i++)
        y.first_op[i] = w->shop->streams[m->first_stream + i].first;
    return y;
}

/* Checks whether operation o may come directly after the completed operations
 * `counts`. The count of each stream (operations in fixed order) must be in the
 * range that shaving (refuting values) has left for o. */
static inline bool is_allowed(const path_context *y, uint32_t o,
                              const uint16_t *counts)
{
    const lhi_windows *w = y->w;
    if (!w->low)
        return true;
    for (uint32_t i = 0; i < y->l->n_streams; i++)
        if (counts[i] < w->low[w->slot_at[o] + i] ||
            counts[i] > w->high[w->slot_at[o] + i])
            return false;
    return true;
}

/* Returns the earliest end of operation o if it runs after time `now`; FAR:
 * later than its latest end. */
static inline int64_t compute_step_end(const path_context *y, uint32_t o,
                                       int64_t now)
{
    const lhi_windows *w = y->w;
    int64_t start = now > w->r[o] ? now : w->r[o];
    int64_t end = start + w->shop->time[o];
    return end <= w->e[o] ? end : FAR;
}

/* Computes the earliest time at which every state can be reached, in order of
 * completed operations (forward pass). */
static void run_forward(const path_context *y)
{
    const lhi_lattice *l = y->l;
    uint32_t n = l->n_streams;
    int64_t *first = y->w->first;
    for (uint32_t x = 0; x < l->n_states; x++)
        first[x] = FAR;
    first[0] = 0;
    for (uint32_t x = 0; x < l->n_states && !is_timed_out(y->budget, x); x++) {
        if (first[x] == FAR)
            continue;
        const uint32_t *step = l->step + (size_t)x * n;
        const uint16_t *counts = l->counts + (size_t)x * n;
        for (uint32_t i = 0; i < n; i++) {
            if (step[i] == NONE)
                continue;
            const uint32_t o = y->first_op[i] + counts[i];
            if (!is_allowed(y, o, counts))
                continue;
            int64_t end = compute_step_end(y, o, first[x]);
            if (end < first[step[i]])
                first[step[i]] = end;
        }
    }
}

typedef void use_step(const path_context *, lhi_windows *, uint32_t state,
                      uint32_t slot, uint32_t op, int64_t end);

/* Computes latest times in reverse order of the states (backward pass). Calls
 * `use` for every step on an order that meets all time windows. False: none
 * exists; the result is undefined if stopped. */
static bool run_backward(const path_context *y, lhi_windows *w, use_step *use)
{
    const lhi_lattice *l = y->l;
    uint32_t n = l->n_streams;
    int64_t *first = w->first, *last = w->last;
    uint32_t final = l->n_states - 1;
    for (uint32_t i = 0; i < n; i++)
        if (y->l->counts[(size_t) final * n + i] !=
            w->shop->streams[w->shop->machines[l->machine].first_stream + i]
                .count)
            return false; /* the final state was not reached */
    if (first[final] == FAR)
        return false;
    for (uint32_t x = l->n_states; x-- > 0 && !is_timed_out(y->budget, x);) {
        last[x] = x == final ? FAR : -1;
        if (first[x] == FAR)
            continue;
        const uint32_t *step = l->step + (size_t)x * n;
        const uint16_t *counts = l->counts + (size_t)x * n;
        for (uint32_t i = 0; i < n; i++) {
            if (step[i] == NONE || last[step[i]] < 0)
                continue;
            uint32_t o = y->first_op[i] + counts[i];
            int64_t end = w->e[o] < last[step[i]] ? w->e[o] : last[step[i]];
            if (compute_step_end(y, o, first[x]) > end ||
                !is_allowed(y, o, counts))
                continue;
            if (end - w->shop->time[o] > last[x])
                last[x] = end - w->shop->time[o];
            use(y, w, x, i, o, end);
        }
    }
    return last[0] >= 0;
}

/* Widens the new time window of operation `op` to include one step on a valid
 * order: from the earliest time of `state` to `end`. */
static void use_time(const path_context *y, lhi_windows *w, uint32_t state,
                     uint32_t slot, uint32_t op, int64_t end)
{
    (void)slot;
    (void)y;
    int64_t start = w->first[state] > w->r[op] ? w->first[state] : w->r[op];
    if (start < w->new_r[op])
        w->new_r[op] = start;
    if (end > w->new_e[op])
        w->new_e[op] = end;
}

/* Widens w->least and w->most of operation `op`, the operations per stream that
 * precede it, to include the counts of `state`. Callback for steps on valid
 * orders. */
static void use_counts(const path_context *y, lhi_windows *w, uint32_t state,
                       uint32_t slot, uint32_t op, int64_t end)
{
    (void)slot;
    (void)end;
    uint32_t n = y->l->n_streams;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t count = y->l->counts[(size_t)state * n + i];
        size_t at = w->slot_at[op] + i;
        if (count < w->least[at])
            w->least[at] = count;
        if (count > w->most[at])
            w->most[at] = count;
    }
}

/* Runs the forward and the backward pass over a lattice (machine state graph),
 * with `use` as in run_backward(). Returns false if no order exists, or if
 * stopped. */
static bool run_both(const path_context *y, lhi_windows *w, use_step *use)
{
    run_forward(y);
    return !y->budget->timed_out && run_backward(y, w, use) &&
           !y->budget->timed_out;
}

bool lhi_lattice_tighten(const lhi_lattice *lattice, lhi_windows *windows,
                         lhi_budget *budget)
{
    path_context y = make_path_context(lattice, windows, budget);
    return run_both(&y, windows, use_time) || budget->timed_out;
}

void lhi_lattice_compute_counts(const lhi_lattice *lattice,
                                lhi_windows *windows, lhi_budget *budget)
{
    path_context y = make_path_context(lattice, windows, budget);
    run_both(&y, windows, use_counts);
}

/* Does nothing with a step between states: callback for traversals of a lattice
 * that need only the times. */
static void ignore_step(const path_context *y, lhi_windows *w, uint32_t state,
                        uint32_t slot, uint32_t op, int64_t end)
{
    (void)y;
    (void)w;
    (void)state;
    (void)slot;
    (void)op;
    (void)end;
}

/* Copies the states x with a new number in number[x] (n_live of them) and the
 * steps between them; NULL: out of memory or time. */
static lhi_lattice *copy_reachable(const lhi_lattice *from,
                                   const uint32_t *number, uint32_t n_live,
                                   lhi_budget *budget)
{
    uint32_t n = from->n_streams;
    lhi_lattice *l = calloc(1, sizeof *l);
    if (!l)
        return NULL;
    *l = (lhi_lattice){.machine = from->machine, .n_streams = n};
    l->counts = malloc((size_t)n_live * n * sizeof *l->counts);
    l->step = malloc((size_t)n_live * n * sizeof *l->step);
    if (!l->counts || !l->step) {
        lhi_lattice_free(l);
        return NULL;
    }
    for (uint32_t x = 0; x < from->n_states; x++) {
        if (is_timed_out(budget, x)) {
            lhi_lattice_free(l);
            return NULL;
        }
        if (number[x] == NONE)
            continue;
        size_t at = (size_t)l->n_states++ * n;
        for (uint32_t i = 0; i < n; i++) {
            uint32_t to = from->step[(size_t)x * n + i];
            l->counts[at + i] = from->counts[(size_t)x * n + i];
            l->step[at + i] = to == NONE ? NONE : number[to];
        }
    }
    return l;
}

lhi_lattice *lhi_lattice_prune(const lhi_lattice *lattice, lhi_windows *windows,
                               lhi_budget *budget)
{
    path_context y = make_path_context(lattice, windows, budget);
    lhi_lattice *l = NULL;
    uint32_t n_live = 0;
    uint32_t *number = malloc(lattice->n_states * sizeof *number);
    if (!number)
        return NULL;
    run_both(&y, windows, ignore_step);
    for (uint32_t x = 0; x < lattice->n_states && !is_timed_out(budget, x); x++)
        number[x] =
            windows->first[x] < FAR && windows->last[x] >= 0 ? n_live++ : NONE;
    if (!budget->timed_out)
        l = copy_reachable(lattice, number, n_live, budget);
    free(number);
    return l;
}

bool lhi_lattice_compute_latest(const lhi_lattice *lattice,
                                lhi_windows *windows, int64_t *last,
                                lhi_budget *budget)
{
    path_context y = make_path_context(lattice, windows, budget);
    bool ok = run_both(&y, windows, ignore_step);
    if (ok)
        memcpy(last, windows->last, lattice->n_states * sizeof *last);
    return ok;
}
