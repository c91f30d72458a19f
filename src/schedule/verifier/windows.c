/* SPDX-License-Identifier: Apache-2.0 */
/* Computes the time window of every operation under a deadline: from its
 * neighbours, and from its machine, whose orders are enumerated as counts of
 * completed operations. */
#include "schedule/verifier/model.h"

#include "base/integer_math.h"

#include <stdlib.h>
#include <string.h>

/* Limits of the enumeration: states of a machine, and rows per machine. */
enum { MOST_STATES = 3000000, MOST_ROWS = 16 };

/* --- states of one machine ------------------------------------------------ */

/* Hash table from counts to state numbers. */
typedef struct table {
    uint64_t *keys; /* ~0: free */
    uint32_t *ids;
    size_t room; /* a power of two */
} table;

/* State while enumerating one machine. */
typedef struct state_builder {
    lhi_verify_model *c;
    const lhi_verify_machine *m;
    lhi_verify_states *s;
    uint32_t room;  /* capacity in states */
    int64_t *early; /* [state]: earliest time by the current windows */
    uint32_t shift[MOST_ROWS];
    table seen;
} state_builder;

/* Returns the hash table's slot with the key, or the free slot where it belongs
 * (linear probing). */
static size_t find_slot(const table *t, uint64_t key)
{
    uint64_t hash = key * UINT64_C(0x9e3779b97f4a7c15);
    size_t at = (size_t)(hash >> 20) & (t->room - 1);
    while (t->keys[at] != UINT64_MAX && t->keys[at] != key)
        at = (at + 1) & (t->room - 1);
    return at;
}

/* Doubles the hash table and rehashes it; false: out of memory, table
 * unchanged. */
static bool enlarge_table(table *t)
{
    table more = {.room = t->room ? 2 * t->room : 1024};
    more.keys = malloc(more.room * sizeof *more.keys);
    more.ids = malloc(more.room * sizeof *more.ids);
    if (!more.keys || !more.ids) {
        free(more.keys);
        free(more.ids);
        return false;
    }
    memset(more.keys, 0xff, more.room * sizeof *more.keys);
    for (size_t i = 0; i < t->room; i++)
        if (t->keys[i] != UINT64_MAX) {
            size_t at = find_slot(&more, t->keys[i]);
            more.keys[at] = t->keys[i];
            more.ids[at] = t->ids[i];
        }
    free(t->keys);
    free(t->ids);
    *t = more;
    return true;
}

/* Doubles the builder's capacity for states (completed operations per row);
 * false: out of memory. */
static bool enlarge_states(state_builder *k)
{
    uint32_t n = k->m->n_rows, room = k->room ? 2 * k->room : 512;
    uint16_t *counts = realloc(k->s->counts, (size_t)room * n * sizeof *counts);
    if (counts)
        k->s->counts = counts;
    uint32_t *next = realloc(k->s->next, (size_t)room * n * sizeof *next);
    if (next)
        k->s->next = next;
    int64_t *early = realloc(k->early, room * sizeof *early);
    if (early)
        k->early = early;
    if (!counts || !next || !early)
        return false;
    k->room = room;
    return true;
}

/* Checks whether the next operation of row i (one kind and chunk) may follow
 * state x, the number of completed operations per row. Its microbatch's
 * preceding operations must be complete, and memory must suffice. */
static bool may_step(const state_builder *k, const uint16_t *x, uint32_t i)
{
    const lhi_verify_row *rows = &k->c->rows[k->m->first_row];
    const lhi_verify_row *row = &rows[i];
    if (x[i] == row->count)
        return false;
    uint32_t need = x[i] / row->per + 1;
    int64_t held = row->memory;
    for (uint32_t a = 0; a < k->m->n_rows; a++) {
        bool before = rows[a].kind != LH_W && a != i &&
                      (row->kind == LH_W ? rows[a].place <= row->place
                                         : rows[a].place < row->place);
        if (before && x[a] < need)
            return false;
        held += rows[a].memory * x[a];
    }
    return held <= k->m->room;
}

/* Returns the state (completed operations per row) after `from` with one more
 * operation in row i, reached at `time`; `from` NULL: the initial state.
 * LH_NONE: too many states, or out of memory (*no_memory). */
static uint32_t find_or_add_state(state_builder *k, uint64_t key,
                                  const uint16_t *from, uint32_t i,
                                  int64_t time, bool *no_memory)
{
    if (2 * (size_t)k->s->n + 2 > k->seen.room && !enlarge_table(&k->seen)) {
        *no_memory = true;
        return LH_NONE;
    }
    size_t at = find_slot(&k->seen, key);
    if (k->seen.keys[at] == key) {
        uint32_t y = k->seen.ids[at];
        k->early[y] = time < k->early[y] ? time : k->early[y];
        return y;
    }
    if (k->s->n == MOST_STATES)
        return LH_NONE;
    uint32_t n = k->m->n_rows;
    uint16_t counts[MOST_ROWS] = {0};
    if (from)
        memcpy(counts, from, n * sizeof *counts);
    if (from)
        counts[i]++;
    if (k->s->n == k->room && !enlarge_states(k)) {
        *no_memory = true;
        return LH_NONE;
    }
    memcpy(&k->s->counts[(size_t)k->s->n * n], counts, n * sizeof *counts);
    k->early[k->s->n] = time;
    k->seen.keys[at] = key;
    k->seen.ids[at] = k->s->n;
    return k->s->n++;
}

/* Packs the numbers of completed operations per row, which identify a state,
 * into a hash key. */
static uint64_t make_key(const state_builder *k, const uint16_t *counts)
{
    uint64_t key = 0;
    for (uint32_t i = 0; i < k->m->n_rows; i++)
        key |= (uint64_t)counts[i] << k->shift[i];
    return key;
}

/* Enumerates the states (completed operations per row) of a machine that the
 * current time windows allow. Predecessors have smaller numbers, so a state's
 * time is final when it is expanded. False: too many, too much work, or out of
 * memory (*no_memory). */
static bool enumerate_states(state_builder *k, bool *no_memory)
{
    const lhi_verify_model *c = k->c;
    uint32_t n = k->m->n_rows;
    if (find_or_add_state(k, 0, NULL, 0, 0, no_memory) == LH_NONE)
        return false;
    for (uint32_t x = 0; x < k->s->n; x++) {
        if (lhi_verify_count_work(k->c, (uint64_t)n * n))
            return false;
        for (uint32_t i = 0; i < n; i++) {
            const uint16_t *counts = &k->s->counts[(size_t)x * n];
            const lhi_verify_row *row = &c->rows[k->m->first_row + i];
            uint32_t to = LH_NONE, o = row->first + counts[i];
            int64_t end = row->time;
            if (counts[i] < row->count)
                end += k->early[x] > c->start[o] ? k->early[x] : c->start[o];
            if (may_step(k, counts, i) && end <= c->finish[o]) {
                uint16_t from[MOST_ROWS];
                memcpy(from, counts, n * sizeof *from);
                uint64_t key = make_key(k, from) + (UINT64_C(1) << k->shift[i]);
                to = find_or_add_state(k, key, from, i, end, no_memory);
                if (to == LH_NONE)
                    return false;
            }
            k->s->next[(size_t)x * n + i] = to;
        }
    }
    return true;
}

/* Frees a machine's states; NULL is allowed. */
static void free_states(lhi_verify_states *s)
{
    if (!s)
        return;
    free(s->counts);
    free(s->next);
    s->counts = NULL;
    s->next = NULL;
}

/* Enumerates a machine's states (completed operations per row); m->states stays
 * NULL if there are too many. */
static lh_status make_states(lhi_verify_model *c, lhi_verify_machine *m,
                             lh_error *err)
{
    state_builder k = {.c = c, .m = m};
    uint32_t bits = 0;
    bool no_memory = false;
    if (m->n_rows > MOST_ROWS)
        return LH_OK;
    for (uint32_t i = 0; i < m->n_rows; i++) {
        uint32_t count = c->rows[m->first_row + i].count, width = 1;
        while (count >> width)
            width++;
        k.shift[i] = bits;
        bits += width;
        if (bits > 63 || count > UINT16_MAX)
            return LH_OK;
    }
    k.s = LHI_NEW(c->mem, lhi_verify_states, 1);
    if (!k.s)
        return lhi_fail_nomem(err);
    bool ok = enumerate_states(&k, &no_memory);
    free(k.seen.keys);
    free(k.seen.ids);
    free(k.early);
    if (ok)
        m->states = k.s;
    else
        free_states(k.s);
    return no_memory ? lhi_fail_nomem(err) : LH_OK;
}

/* Enumerates the states of every machine (completed operations per row) and
 * allocates scratch arrays for the largest number of states. */
static lh_status make_all_states(lhi_verify_model *c, lh_error *err)
{
    size_t most = 1;
    for (uint32_t m = 0; m < c->n_machines; m++) {
        LHI_TRY(make_states(c, &c->machines[m], err));
        const lhi_verify_states *s = c->machines[m].states;
        most = s && s->n > most ? s->n : most;
    }
    c->early = malloc(most * sizeof *c->early);
    c->late = malloc(most * sizeof *c->late);
    return c->early && c->late ? LH_OK : lhi_fail_nomem(err);
}

void lhi_verify_model_fini(lhi_verify_model *claim)
{
    if (!claim)
        return;
    for (uint32_t m = 0; m < claim->n_machines; m++) {
        free_states(claim->machines[m].states);
        claim->machines[m].states = NULL;
    }
    free(claim->early);
    free(claim->late);
    claim->early = claim->late = NULL;
}

/* --- windows ------------------------------------------------------------- */

void lhi_verify_queue_operation(lhi_verify_model *claim, uint32_t o)
{
    claim->dirty[claim->rows[claim->row_of[o]].machine] = true;
    if (claim->queued[o])
        return;
    claim->queued[o] = true;
    claim->queue[(claim->front + claim->n_queue++) % claim->n_ops] = o;
}

uint32_t lhi_verify_take_operation(lhi_verify_model *claim)
{
    uint32_t o = claim->queue[claim->front];
    claim->front = (claim->front + 1) % claim->n_ops;
    claim->n_queue--;
    claim->queued[o] = false;
    return o;
}

/* Checks whether an operation's window (earliest start to latest end) is at
 * least as long as the operation. */
static bool fits(const lhi_verify_model *c, uint32_t o)
{
    return c->start[o] + c->rows[c->row_of[o]].time <= c->finish[o];
}

bool lhi_verify_raise_start(lhi_verify_model *claim, uint32_t o, int64_t start)
{
    if (start <= claim->start[o])
        return true;
    claim->start[o] = start;
    lhi_verify_queue_operation(claim, o);
    return fits(claim, o);
}

bool lhi_verify_lower_end(lhi_verify_model *claim, uint32_t o, int64_t finish)
{
    if (finish >= claim->finish[o])
        return true;
    claim->finish[o] = finish;
    lhi_verify_queue_operation(claim, o);
    return fits(claim, o);
}

bool lhi_verify_propagate_operation(lhi_verify_model *claim, uint32_t o)
{
    const lhi_verify_row *row = &claim->rows[claim->row_of[o]];
    const lhi_verify_precedence *all = claim->precedences;
    uint32_t x = o - row->first, steps = 2;
    int64_t end = claim->start[o] + row->time;
    int64_t begin = claim->finish[o] - row->time;
    bool ok =
        (x + 1 == row->count || lhi_verify_raise_start(claim, o + 1, end)) &&
        (x == 0 || lhi_verify_lower_end(claim, o - 1, begin));
    for (uint32_t i = row->out; ok && i != LH_NONE; i = all[i].next_out) {
        const lhi_verify_row *to = &claim->rows[all[i].to];
        steps++;
        if (all[i].first[x] < to->count)
            ok = lhi_verify_raise_start(claim, to->first + all[i].first[x],
                                        end + all[i].lag);
    }
    for (uint32_t i = row->in; ok && i != LH_NONE; i = all[i].next_in) {
        const lhi_verify_row *from = &claim->rows[all[i].from];
        steps++;
        if (all[i].need[x] > 0)
            ok = lhi_verify_lower_end(claim, from->first + all[i].need[x] - 1,
                                      begin - all[i].lag);
    }
    lhi_verify_count_work(claim, steps);
    return ok;
}

bool lhi_verify_propagate(lhi_verify_model *claim)
{
    while (claim->n_queue > 0 && !lhi_verify_count_work(claim, 0))
        if (!lhi_verify_propagate_operation(claim,
                                            lhi_verify_take_operation(claim)))
            return false;
    return true;
}

/* --- one machine --------------------------------------------------------- */

/* Computes early[x], the earliest time at which machine m reaches state x, and
 * late[x], the latest time at which it may; below 0: not at all. False: the
 * final state is unreachable. */
static bool compute_state_times(lhi_verify_model *c,
                                const lhi_verify_machine *m)
{
    const lhi_verify_states *s = m->states;
    uint32_t n = m->n_rows;
    uint32_t all = 0;
    lhi_verify_count_work(c, (uint64_t)s->n * n);
    for (uint32_t x = 0; x < s->n; x++)
        c->early[x] = c->late[x] = -1;
    c->early[0] = 0;
    for (uint32_t x = 0; x < s->n; x++)
        for (uint32_t i = 0; i < n && c->early[x] >= 0; i++) {
            uint32_t y = s->next[(size_t)x * n + i];
            const lhi_verify_row *row = &c->rows[m->first_row + i];
            if (y == LH_NONE)
                continue;
            uint32_t o = row->first + s->counts[(size_t)x * n + i];
            int64_t end = lhi_max_int64(c->early[x], c->start[o]) + row->time;
            if (end <= c->finish[o] && (c->early[y] < 0 || end < c->early[y]))
                c->early[y] = end;
        }
    uint32_t end = s->n - 1; /* last state found: most completed operations */
    for (uint32_t i = 0; i < n; i++)
        all += s->counts[(size_t)end * n + i];
    if (all < m->n_ops || c->early[end] < 0)
        return false;
    c->late[end] = LHI_NEVER;
    for (uint32_t x = end; x-- > 0;)
        for (uint32_t i = 0; i < n && c->early[x] >= 0; i++) {
            uint32_t y = s->next[(size_t)x * n + i];
            const lhi_verify_row *row = &c->rows[m->first_row + i];
            if (y == LH_NONE || c->late[y] < 0)
                continue;
            uint32_t o = row->first + s->counts[(size_t)x * n + i];
            int64_t last = lhi_min_int64(c->late[y], c->finish[o]);
            if (lhi_max_int64(c->early[x], c->start[o]) + row->time <= last)
                c->late[x] = lhi_max_int64(c->late[x], last - row->time);
        }
    return true;
}

/* Tightens the time windows of machine m's operations, and the counts of
 * operations that precede them, by the machine's states: a state is a set of
 * operations that have ended, and an operation leads from one state to the
 * next. Windows keep only times and counts of operations between states that
 * are still possible. Returns false if no such operation remains. */
static bool tighten_by_states(lhi_verify_model *c, const lhi_verify_machine *m)
{
    const lhi_verify_states *s = m->states;
    uint32_t n = m->n_rows;
    if (!compute_state_times(c, m))
        return false;
    lhi_verify_count_work(c, 2 * (uint64_t)s->n * n);
    for (uint32_t o = 0; o < m->n_ops; o++) {
        c->new_start[m->first_op + o] = LHI_NEVER;
        c->new_finish[m->first_op + o] = -1;
        for (uint32_t i = 0; i < n; i++) {
            c->least[c->slot_at[m->first_op + o] + i] = UINT32_MAX;
            c->most[c->slot_at[m->first_op + o] + i] = 0;
        }
    }
    for (uint32_t x = 0; x < s->n; x++)
        for (uint32_t i = 0; i < n && c->late[x] >= 0; i++) {
            uint32_t y = s->next[(size_t)x * n + i];
            const uint16_t *done = &s->counts[(size_t)x * n];
            const lhi_verify_row *row = &c->rows[m->first_row + i];
            if (y == LH_NONE || c->late[y] < 0)
                continue;
            uint32_t o = row->first + done[i];
            int64_t begin = lhi_max_int64(c->early[x], c->start[o]);
            int64_t last = lhi_min_int64(c->late[y], c->finish[o]);
            if (begin + row->time > last)
                continue;
            c->new_start[o] = lhi_min_int64(c->new_start[o], begin);
            c->new_finish[o] = lhi_max_int64(c->new_finish[o], last);
            for (uint32_t k = 0; k < n; k++) {
                uint32_t *least = &c->least[c->slot_at[o] + k];
                uint32_t *most = &c->most[c->slot_at[o] + k];
                *least = done[k] < *least ? done[k] : *least;
                *most = done[k] > *most ? done[k] : *most;
            }
        }
    bool ok = true;
    for (uint32_t o = m->first_op; ok && o < m->first_op + m->n_ops; o++)
        ok = lhi_verify_raise_start(c, o, c->new_start[o]) &&
             lhi_verify_lower_end(c, o, c->new_finish[o]);
    return ok;
}

bool lhi_verify_is_machine_infeasible(lhi_verify_model *claim, uint32_t m)
{
    const lhi_verify_machine *machine = &claim->machines[m];
    for (uint32_t o = 0; o < machine->n_ops; o++)
        if (!fits(claim, machine->first_op + o))
            return true;
    return machine->states ? !compute_state_times(claim, machine)
                           : lhi_verify_is_overloaded(claim, m);
}

/* --- fixpoint ------------------------------------------------------------ */

/* Sets all time windows by heads (earliest starts), tails (times that must
 * follow) and the deadline (model time), removes limits on counts of preceding
 * operations, and queues all operations for propagation. */
static void reset_windows(lhi_verify_model *c, int64_t deadline)
{
    c->front = c->n_queue = 0;
    memset(c->queued, 0, c->n_ops * sizeof *c->queued);
    for (uint32_t o = 0; o < c->n_ops; o++) {
        const lhi_verify_machine *m =
            &c->machines[c->rows[c->row_of[o]].machine];
        c->start[o] = c->head[o];
        c->finish[o] = deadline - c->tail[o];
        for (uint32_t i = 0; i < m->n_rows; i++) {
            c->least[c->slot_at[o] + i] = 0;
            c->most[c->slot_at[o] + i] = UINT32_MAX;
        }
    }
    for (uint32_t o = 0; o < c->n_ops; o++)
        lhi_verify_queue_operation(c, o);
}

/* Tightens the time windows of all machines until nothing changes or the work
 * exceeds its limit; false: a window is empty, which refutes the deadline. */
static bool tighten(lhi_verify_model *c)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t m = 0; m < c->n_machines; m++) {
            const lhi_verify_machine *machine = &c->machines[m];
            if (lhi_verify_count_work(c, 1))
                return true;
            if (!c->dirty[m])
                continue;
            changed = true;
            c->dirty[m] = false;
            bool ok = machine->states ? tighten_by_states(c, machine)
                                      : !lhi_verify_is_overloaded(c, m);
            if (!ok)
                return false;
            if (machine->states)
                c->dirty[m] = false; /* already as tight as possible */
            if (!lhi_verify_propagate(c))
                return false;
        }
    }
    return true;
}

bool lhi_verify_start_windows(lhi_verify_model *claim, int64_t deadline)
{
    reset_windows(claim, deadline);
    lhi_verify_count_work(claim, claim->n_ops + claim->slot_at[claim->n_ops]);
    for (uint32_t o = 0; o < claim->n_ops; o++)
        if (!fits(claim, o))
            return false;
    return lhi_verify_propagate(claim);
}

lh_status lhi_verify_tighten_windows(lhi_verify_model *claim, int64_t deadline,
                                     bool *refuted, lh_error *err)
{
    *refuted = true;
    if (!lhi_verify_start_windows(claim, deadline))
        return LH_OK;
    lhi_verify_model_fini(claim); /* discard states from another deadline */
    LHI_TRY(make_all_states(claim, err));
    *refuted = !tighten(claim);
    return LH_OK;
}
