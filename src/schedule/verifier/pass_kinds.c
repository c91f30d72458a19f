/* SPDX-License-Identifier: Apache-2.0 */
/* A relaxation of one device that does not distinguish its chunks: it runs its
 * F, its D (or B) and its W as three chains. The k-th pass of a chain starts no
 * earlier than the k-th smallest earliest start of all passes of its kind, and
 * ends no later than the k-th smallest latest end (docs/theory/optimal.md,
 * "Lattice of pass kinds"). */
#include "schedule/verifier/model.h"

#include "base/integer_math.h"

#include <stdlib.h>
#include <string.h>

enum {
    F_CHAIN,
    D_CHAIN, /* or B */
    W_CHAIN,
    N_CHAINS
};

/* All passes of one kind on the device. */
typedef struct chain {
    uint32_t n, per; /* passes; per microbatch */
    int64_t time, memory;
    int64_t *start, *finish; /* sorted earliest starts and latest ends */
} chain;

/* --- windows -------------------------------------------------------------- */

/* Counts the operations that precedences lead to, once per precedence. */
static uint64_t count_edges(const lhi_verify_model *claim)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < claim->n_precedences; i++)
        n += claim->rows[claim->precedences[i].to].count;
    return n;
}

/* Counts in claim->least, for all operations, the operations of every row of
 * the same machine that must precede them through precedences of any machines;
 * none if that is too much work. Visits the operations in topological order;
 * `order`, `pending` and `count`: scratch, one entry per operation. */
static void count_predecessors(lhi_verify_model *claim, uint32_t *order,
                               uint32_t *pending, uint32_t *count)
{
    uint32_t n = 0;
    if (lhi_verify_count_work(claim, (uint64_t)claim->n_rows *
                                         (claim->n_ops + count_edges(claim))))
        return;
    for (uint32_t o = 0; o < claim->n_ops; o++) {
        const lhi_verify_row *row = &claim->rows[claim->row_of[o]];
        pending[o] = o > row->first;
        for (uint32_t i = row->in; i != LH_NONE;
             i = claim->precedences[i].next_in)
            pending[o] += claim->precedences[i].need[o - row->first] > 0;
        if (pending[o] == 0)
            order[n++] = o;
    }
    for (uint32_t k = 0; k < n; k++) {
        const lhi_verify_row *row = &claim->rows[claim->row_of[order[k]]];
        const uint32_t x = order[k] - row->first;
        if (x + 1 < row->count && --pending[order[k] + 1] == 0)
            order[n++] = order[k] + 1;
        for (uint32_t i = row->out; i != LH_NONE;
             i = claim->precedences[i].next_out) {
            const lhi_verify_precedence *p = &claim->precedences[i];
            const lhi_verify_row *to = &claim->rows[p->to];
            for (uint32_t y = p->first[x]; y < to->count && p->need[y] == x + 1;
                 y++)
                if (--pending[to->first + y] == 0)
                    order[n++] = to->first + y;
        }
    }
    for (uint32_t r = 0; r < claim->n_rows; r++) {
        const lhi_verify_row *of = &claim->rows[r];
        memset(count, 0, claim->n_ops * sizeof *count);
        for (uint32_t k = 0; k < n; k++) {
            const uint32_t o = order[k];
            const lhi_verify_row *row = &claim->rows[claim->row_of[o]];
            uint32_t before = o > row->first ? count[o - 1] : 0;
            for (uint32_t i = row->in; i != LH_NONE;
                 i = claim->precedences[i].next_in) {
                const lhi_verify_precedence *p = &claim->precedences[i];
                const uint32_t need = p->need[o - row->first];
                const uint32_t all =
                    need > 0 ? count[claim->rows[p->from].first + need - 1] : 0;
                before = all > before ? all : before;
            }
            if (row->machine == of->machine)
                claim->least[claim->slot_at[o] + of->slot] = before;
            count[o] = row == of ? o - row->first + 1 : before;
        }
    }
}

/* Checks whether operation a must precede operation b of the same machine. */
static bool precedes(const lhi_verify_model *claim, uint32_t a, uint32_t b)
{
    const lhi_verify_row *row = &claim->rows[claim->row_of[a]];
    return claim->least[claim->slot_at[b] + row->slot] > a - row->first;
}

/* Compares events by time, for qsort(). */
static int compare_events(const void *a, const void *b)
{
    const lhi_verify_event *x = a, *y = b;
    if (x->time != y->time)
        return x->time < y->time ? -1 : 1;
    return (x->op > y->op) - (x->op < y->op);
}

/* Lists machine m's operations in claim->events by ascending `time`. */
static void sort_events(lhi_verify_model *claim, const lhi_verify_machine *m,
                        const int64_t *time)
{
    for (uint32_t i = 0; i < m->n_ops; i++)
        claim->events[i] =
            (lhi_verify_event){time[m->first_op + i], m->first_op + i};
    qsort(claim->events, m->n_ops, sizeof *claim->events, compare_events);
}

/* Raises the earliest start of every operation of machine m: all operations
 * that must precede it and start at some time or later take their total
 * duration from that time on. Likewise lowers the latest ends. False: a window
 * is empty. */
static bool tighten_machine(lhi_verify_model *claim,
                            const lhi_verify_machine *m)
{
    const lhi_verify_event *events = claim->events;
    sort_events(claim, m, claim->start);
    for (uint32_t o = m->first_op; o < m->first_op + m->n_ops; o++) {
        int64_t sum = 0, start = 0;
        for (uint32_t i = m->n_ops; i-- > 0;)
            if (precedes(claim, events[i].op, o)) {
                sum += claim->rows[claim->row_of[events[i].op]].time;
                start = lhi_max_int64(start, events[i].time + sum);
            }
        if (!lhi_verify_raise_start(claim, o, start))
            return false;
    }
    sort_events(claim, m, claim->finish);
    for (uint32_t o = m->first_op; o < m->first_op + m->n_ops; o++) {
        int64_t sum = 0, finish = LHI_NEVER;
        for (uint32_t i = 0; i < m->n_ops; i++)
            if (precedes(claim, o, events[i].op)) {
                sum += claim->rows[claim->row_of[events[i].op]].time;
                finish = lhi_min_int64(finish, events[i].time - sum);
            }
        if (!lhi_verify_lower_end(claim, o, finish))
            return false;
    }
    return true;
}

/* Returns the steps of tighten_machine(), which compares every two operations
 * of the machine four times; a step is about four comparisons. */
static uint64_t count_steps(const lhi_verify_machine *m)
{
    return (uint64_t)m->n_ops * m->n_ops / 2 + m->n_ops;
}

/* Returns the steps that tighten all devices once. */
static uint64_t count_round(const lhi_verify_model *claim)
{
    uint64_t n = 0;
    for (uint32_t m = 0; m < claim->n_machines; m++)
        if (claim->machines[m].device != LH_NONE)
            n += count_steps(&claim->machines[m]);
    return n;
}

/* Tightens the windows for `deadline` along precedences and by the operations
 * that must precede or follow each other on a device; *refuted: one is empty.
 * Ends without a result if one round over all devices is too much work, or if
 * the rounds become too many. */
static lh_status tighten_windows(lhi_verify_model *claim, int64_t deadline,
                                 bool *refuted, lh_error *err)
{
    uint32_t *scratch = LHI_NEW(claim->mem, uint32_t, 3 * (size_t)claim->n_ops);
    if (!scratch)
        return lhi_fail_nomem(err);
    *refuted = !lhi_verify_start_windows(claim, deadline);
    if (*refuted)
        return LH_OK;
    const uint64_t round = count_round(claim);
    if (round > claim->most_work && lhi_verify_count_work(claim, round))
        return LH_OK;
    count_predecessors(claim, scratch, scratch + claim->n_ops,
                       scratch + 2 * (size_t)claim->n_ops);
    for (bool changed = true; changed && !*refuted;) {
        changed = false;
        for (uint32_t m = 0; m < claim->n_machines && !*refuted; m++) {
            const lhi_verify_machine *machine = &claim->machines[m];
            if (!claim->dirty[m] || machine->device == LH_NONE)
                continue;
            if (lhi_verify_count_work(claim, count_steps(machine)))
                return LH_OK;
            claim->dirty[m] = false;
            changed = true;
            *refuted = !tighten_machine(claim, machine) ||
                       !lhi_verify_propagate(claim);
        }
    }
    return LH_OK;
}

/* --- chains --------------------------------------------------------------- */

/* Compares times for qsort(). */
static int compare_times(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Returns the chain of a row; N_CHAINS: it has no passes. */
static uint32_t get_chain(const lhi_verify_row *row)
{
    if (row->message || row->kind > LH_B)
        return N_CHAINS;
    return row->kind == LH_F ? F_CHAIN : row->kind == LH_W ? W_CHAIN : D_CHAIN;
}

/* Merges the rows of machine m into chains with the current windows. False: its
 * chunks have other times or memory, or it has no F and D. */
static bool merge_rows(const lhi_verify_model *claim,
                       const lhi_verify_machine *m, chain *chains)
{
    for (uint32_t i = m->first_row; i < m->first_row + m->n_rows; i++) {
        const lhi_verify_row *row = &claim->rows[i];
        if (get_chain(row) == N_CHAINS)
            return false;
        chain *c = &chains[get_chain(row)];
        if (c->n > 0 && (c->time != row->time || c->memory != row->memory ||
                         c->per != row->per))
            return false;
        c->time = row->time;
        c->memory = row->memory;
        c->per = row->per;
        for (uint32_t o = row->first; o < row->first + row->count; o++) {
            c->start[c->n] = claim->start[o];
            c->finish[c->n++] = claim->finish[o];
        }
    }
    for (int k = 0; k < N_CHAINS; k++) {
        qsort(chains[k].start, chains[k].n, sizeof(int64_t), compare_times);
        qsort(chains[k].finish, chains[k].n, sizeof(int64_t), compare_times);
    }
    return chains[F_CHAIN].n > 0 && chains[D_CHAIN].n == chains[F_CHAIN].n;
}

/* Returns the latest time at which a state may be reached whose next step is
 * pass x of the chain and leads to a state that may be reached at `next`; below
 * 0: never. */
static int64_t compute_latest(const chain *c, uint32_t x, int64_t next)
{
    const int64_t start = lhi_min_int64(next, c->finish[x]) - c->time;
    return start < c->start[x] ? -1 : start;
}

/* Computes the latest times of all states with f F: late[d * (W + 1) + w].
 * `next`: those with f + 1. */
static void compute_layer(const chain *chains, int64_t room, uint32_t f,
                          int64_t *late, const int64_t *next)
{
    const chain *fs = &chains[F_CHAIN], *ds = &chains[D_CHAIN];
    const chain *ws = &chains[W_CHAIN];
    const uint32_t width = ws->n + 1;
    for (uint32_t d = ds->n + 1; d-- > 0;)
        for (uint32_t w = width; w-- > 0;) {
            const size_t at = (size_t)d * width + w;
            const int64_t held =
                f * fs->memory + d * ds->memory + w * ws->memory;
            int64_t *to = &late[at];
            *to = -1;
            if (held > room && w + d + f > 0)
                continue;
            if (f == fs->n && d == ds->n && w == ws->n)
                *to = LHI_NEVER;
            if (f < fs->n && next[at] >= 0)
                *to = lhi_max_int64(*to, compute_latest(fs, f, next[at]));
            if (d < f && late[at + width] >= 0)
                *to =
                    lhi_max_int64(*to, compute_latest(ds, d, late[at + width]));
            if (w < ws->n && w / ws->per < d && late[at + 1] >= 0)
                *to = lhi_max_int64(*to, compute_latest(ws, w, late[at + 1]));
        }
}

/* Checks by the latest times of all states, from the last one backward, whether
 * machine m has no order as chains; ends without a result if the states are too
 * many. Memory for the times is in claim->mem. */
static lh_status check_states(lhi_verify_model *claim,
                              const lhi_verify_machine *m, const chain *chains,
                              bool *refuted, lh_error *err)
{
    const uint64_t n =
        ((uint64_t)chains[D_CHAIN].n + 1) * ((uint64_t)chains[W_CHAIN].n + 1);
    if (lhi_verify_count_work(claim, n * ((uint64_t)chains[F_CHAIN].n + 1)))
        return LH_OK;
    int64_t *late = LHI_NEW(claim->mem, int64_t, 2 * (size_t)n);
    if (!late)
        return lhi_fail_nomem(err);
    int64_t *next = late + n;
    for (uint32_t f = chains[F_CHAIN].n + 1; f-- > 0;) {
        int64_t *last = late;
        late = next;
        next = last;
        compute_layer(chains, m->room, f, late, next);
    }
    *refuted = late[0] < 0;
    return LH_OK;
}

lh_status lhi_verify_check_pass_kinds(lhi_verify_model *claim, uint32_t m,
                                      int64_t deadline, bool *refuted,
                                      lh_error *err)
{
    const lhi_verify_machine *machine = &claim->machines[m];
    const uint32_t n = machine->n_ops;
    chain chains[N_CHAINS] = {{0}};
    *refuted = false;
    int64_t *times = LHI_NEW(claim->mem, int64_t, 2 * N_CHAINS * (size_t)n);
    if (!times)
        return lhi_fail_nomem(err);
    for (size_t k = 0; k < N_CHAINS; k++) {
        chains[k].start = times + 2 * k * n;
        chains[k].finish = chains[k].start + n;
        chains[k].per = 1;
    }
    LHI_TRY(tighten_windows(claim, deadline, refuted, err));
    return *refuted || lhi_verify_count_work(claim, 0) ||
                   !merge_rows(claim, machine, chains)
               ? LH_OK
               : check_states(claim, machine, chains, refuted, err);
}
