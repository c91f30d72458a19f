/* SPDX-License-Identifier: Apache-2.0 */
/* Checks a refutation clause by clause. A clause follows if negating all its
 * orders leads to a contradiction by simple propagation: rows keep their order,
 * "before" is transitive, times add up along orders, a machine runs one
 * operation at a time, memory, and the previously verified clauses. */
#include "schedule/verifier/model.h"

#include "base/integer_math.h"

#include <stdlib.h>
#include <string.h>

/* Literal 2v: the pair's operation in the lower row comes first; 2v + 1: last.
 */
typedef uint32_t lit;

/* State for checking a refutation. */
typedef struct checker {
    lhi_verify_model *c;
    const lh_certificate *cert;
    uint32_t n_pairs;
    uint32_t
        *base; /* per machine at base_at, [slot a * rows + slot b], a < b */
    size_t *base_at;
    uint32_t *pair_a, *pair_b;
    int8_t *value; /* [pair]: 1 lower first, -1 last, 0 open */
    lit *trail;
    uint32_t n_trail, n_done;
    uint32_t *before, *after; /* [slot_at]: known counts, first known after */
    /* Root state, without assumptions. */
    int64_t *root_start, *root_finish;
    uint32_t *root_before, *root_after;
    uint32_t n_root; /* trail length at the root */
    uint32_t *held;  /* operations queued for the memory check */
    bool *holding;
    uint32_t n_held;
    /* Verified clauses: literals and watches. */
    lit *lits;
    size_t n_lits, *clause_at;
    uint32_t n_clauses;
    uint32_t *watching; /* per literal: the first of ... */
    uint32_t *next;     /* ... watches 2 * clause + side; LH_NONE */
    bool refuted;
} checker;

/* Returns the row (all same-kind passes on one chunk, or all messages on one
 * route) to which operation o belongs. */
static const lhi_verify_row *get_row(const checker *r, uint32_t o)
{
    return &r->c->rows[r->c->row_of[o]];
}

/* Returns the literal that stands for "operation a before operation b". */
static lit make_literal(const checker *r, uint32_t a, uint32_t b)
{
    const lhi_verify_row *x = get_row(r, a), *y = get_row(r, b);
    uint32_t n = r->c->machines[x->machine].n_rows;
    const uint32_t *base = r->base + r->base_at[x->machine];
    if (x->slot < y->slot)
        return 2 * (base[x->slot * n + y->slot] + (a - x->first) * y->count +
                    (b - y->first));
    return 2 * (base[y->slot * n + x->slot] + (b - y->first) * x->count +
                (a - x->first)) +
           1;
}

/* Returns 1 if the literal (an order of two operations) is true, -1 if it is
 * false, 0 if it is undecided. */
static int get_value(const checker *r, lit l)
{
    int v = r->value[l / 2];
    return l & 1 ? -v : v;
}

/* Returns the operation that runs first if the literal (an order of two
 * operations) is true. */
static uint32_t get_first(const checker *r, lit l)
{
    return l & 1 ? r->pair_b[l / 2] : r->pair_a[l / 2];
}

/* Returns the operation that runs second if the literal (an order of two
 * operations) is true. */
static uint32_t get_second(const checker *r, lit l)
{
    return l & 1 ? r->pair_a[l / 2] : r->pair_b[l / 2];
}

/* --- known facts --------------------------------------------------------- */

/* Queues operation o for the memory check if it increases its machine's
 * memory. */
static void queue_memory_check(checker *r, uint32_t o)
{
    const lhi_verify_row *row = get_row(r, o);
    if (r->holding[o] || row->memory <= 0 ||
        r->c->machines[row->machine].room == INT64_MAX)
        return;
    r->holding[o] = true;
    r->held[r->n_held++] = o;
}

/* Makes literal `l` (one operation before another) true and updates the counts
 * of preceding operations; false: it is already false. */
static bool assign(checker *r, lit l)
{
    int value = get_value(r, l);
    if (value)
        return value > 0;
    r->value[l / 2] = l & 1 ? -1 : 1;
    r->trail[r->n_trail++] = l;
    uint32_t a = get_first(r, l), b = get_second(r, l);
    const lhi_verify_row *x = get_row(r, a), *y = get_row(r, b);
    uint32_t *known = &r->before[r->c->slot_at[b] + x->slot];
    if (a - x->first + 1 > *known)
        *known = a - x->first + 1;
    known = &r->after[r->c->slot_at[a] + y->slot];
    if (b - y->first < *known)
        *known = b - y->first;
    lhi_verify_queue_operation(r->c, a);
    lhi_verify_queue_operation(r->c, b);
    queue_memory_check(r, a);
    queue_memory_check(r, b);
    lhi_verify_count_work(r->c, 1);
    return true;
}

/* Propagates literal `l` (a before b) to other pairs: operations of a row (one
 * kind, one chunk) keep their order, and "before" is transitive. False:
 * contradiction. */
static bool propagate_orders(checker *r, lit l)
{
    uint32_t a = get_first(r, l), b = get_second(r, l);
    const lhi_verify_row *x = get_row(r, a), *y = get_row(r, b);
    const lhi_verify_machine *m = &r->c->machines[x->machine];
    lhi_verify_count_work(r->c, m->n_rows);
    if (a > x->first && !assign(r, make_literal(r, a - 1, b)))
        return false;
    if (b + 1 < y->first + y->count && !assign(r, make_literal(r, a, b + 1)))
        return false;
    for (uint32_t i = 0; i < m->n_rows; i++) {
        const lhi_verify_row *z = &r->c->rows[m->first_row + i];
        if (z == x || z == y)
            continue;
        uint32_t k = r->after[r->c->slot_at[b] + i];
        if (k < z->count && !assign(r, make_literal(r, a, z->first + k)))
            return false;
        k = r->before[r->c->slot_at[a] + i];
        if (k > 0 && !assign(r, make_literal(r, z->first + k - 1, b)))
            return false;
    }
    return true;
}

/* --- clauses ------------------------------------------------------------- */

/* Returns the literals of stored clause number k; one of them must be true. */
static lit *get_clause(const checker *r, uint32_t k)
{
    return r->lits + r->clause_at[k];
}

/* Adds clause k to the watch list of its literal at index `side`, 0 or 1. */
static void watch_literal(checker *r, uint32_t k, uint32_t side)
{
    lit l = get_clause(r, k)[side];
    r->next[2 * (size_t)k + side] = r->watching[l];
    r->watching[l] = 2 * k + side;
}

/* Visits the clauses that watch literal `l`, now known to be false: watches
 * another literal or, if all others are false, makes the last one true. False:
 * contradiction. */
static bool visit_clauses(checker *r, lit l)
{
    uint32_t w = r->watching[l];
    r->watching[l] = LH_NONE;
    while (w != LH_NONE) {
        uint32_t k = w / 2, side = w % 2, rest = r->next[w];
        lit *c = get_clause(r, k);
        size_t n = r->clause_at[k + 1] - r->clause_at[k], i = 2;
        lit other = c[!side];
        if (get_value(r, other) <= 0)
            while (i < n && get_value(r, c[i]) < 0)
                i++;
        else
            i = n;
        lhi_verify_count_work(r->c, i);
        if (i < n) {
            c[side] = c[i];
            c[i] = l;
            watch_literal(r, k, side);
        } else {
            watch_literal(r, k, side);
            if (!assign(r, other)) {
                while (rest != LH_NONE) { /* keep the remaining watches */
                    lhi_verify_count_work(r->c, 1);
                    uint32_t after = r->next[rest];
                    watch_literal(r, rest / 2, rest % 2);
                    rest = after;
                }
                return false;
            }
        }
        w = rest;
    }
    return true;
}

/* --- times --------------------------------------------------------------- */

/* Propagates the time windows of operation o to the operations of row u
 * (same-kind passes on one chunk) that are known to run before or after it.
 * Derives the orders that the windows force; times increase along a row, so
 * only the first undecided ones matter. False: contradiction. */
static bool propagate_row(checker *r, uint32_t o, const lhi_verify_row *u)
{
    lhi_verify_model *c = r->c;
    const lhi_verify_row *row = get_row(r, o);
    size_t at = c->slot_at[o] + u->slot;
    int64_t end = c->start[o] + row->time, begin = c->finish[o] - row->time;
    uint32_t y = r->before[at];
    if (r->after[at] < u->count &&
        !lhi_verify_raise_start(c, u->first + r->after[at], end))
        return false;
    if (y > 0 && !lhi_verify_lower_end(c, u->first + y - 1, begin))
        return false;
    for (; y < r->after[at] && end + u->time > c->finish[u->first + y]; y++)
        if (!assign(r, make_literal(r, u->first + y, o)))
            return false;
    for (y = r->after[at];
         y > r->before[at] && c->start[u->first + y - 1] + u->time > begin; y--)
        if (!assign(r, make_literal(r, o, u->first + y - 1)))
            return false;
    return true;
}

/* Propagates the window (earliest start, latest end) of operation o along its
 * row (same-kind operations on one chunk) and precedences, and to the other
 * rows of its machine; false: contradiction. */
static bool propagate_times(checker *r, uint32_t o)
{
    lhi_verify_model *c = r->c;
    const lhi_verify_row *row = get_row(r, o);
    const lhi_verify_machine *m = &c->machines[row->machine];
    if (c->start[o] + row->time > c->finish[o] ||
        !lhi_verify_propagate_operation(c, o))
        return false;
    lhi_verify_count_work(c, m->n_rows);
    for (uint32_t i = 0; i < m->n_rows; i++)
        if (i != row->slot && !propagate_row(r, o, &c->rows[m->first_row + i]))
            return false;
    return true;
}

/* Checks the capacity (enough time for all operations within their time
 * windows) of every machine whose windows have changed; false: contradiction.
 * */
static bool check_machines(checker *r)
{
    lhi_verify_model *c = r->c;
    lhi_verify_count_work(c, c->n_machines);
    for (uint32_t m = 0; m < c->n_machines; m++) {
        if (!c->dirty[m])
            continue;
        c->dirty[m] = false;
        if (c->machines[m].n_rows > 1 && lhi_verify_is_overloaded(c, m))
            return false;
    }
    return true;
}

/* --- memory -------------------------------------------------------------- */

/* Checks that the machine's memory limit can hold while o runs: the sum over
 * its rows (same-kind operations on one chunk) of the least memory that each
 * then holds. False: contradiction. */
static bool check_memory(checker *r, uint32_t o)
{
    lhi_verify_model *c = r->c;
    const lhi_verify_row *own = get_row(r, o);
    const lhi_verify_machine *m = &c->machines[own->machine];
    lhi_verify_count_work(c, 2 * (uint64_t)m->n_rows);
    int64_t spare = m->room - own->memory * (o - own->first + 1);
    for (uint32_t i = 0; i < m->n_rows; i++) {
        const lhi_verify_row *u = &c->rows[m->first_row + i];
        size_t at = c->slot_at[o] + i;
        if (u != own)
            spare -= u->memory * (u->memory > 0 ? r->before[at] : r->after[at]);
    }
    if (spare < 0)
        return false;
    for (uint32_t i = 0; i < m->n_rows; i++) {
        const lhi_verify_row *u = &c->rows[m->first_row + i];
        size_t at = c->slot_at[o] + i;
        if (u == own || u->memory == 0)
            continue;
        int64_t lo = r->before[at], hi = r->after[at];
        int64_t more = u->memory > 0 ? spare / u->memory : spare / -u->memory;
        if (u->memory > 0 && lo + more < hi &&
            !assign(r, make_literal(r, o, u->first + (uint32_t)(lo + more))))
            return false;
        if (u->memory < 0 && hi - more > lo &&
            !assign(r,
                    make_literal(r, u->first + (uint32_t)(hi - more) - 1, o)))
            return false;
    }
    return true;
}

/* --- propagation ---------------------------------------------------------- */

/* Runs one pending propagation of a literal, memory or a time window, or if
 * none is pending (*done) checks all machines; false: contradiction. */
static bool propagate_one(checker *r, bool *done)
{
    if (r->n_done < r->n_trail) {
        lit l = r->trail[r->n_done++];
        return propagate_orders(r, l) && visit_clauses(r, l ^ 1);
    }
    if (r->n_held > 0) {
        uint32_t o = r->held[--r->n_held];
        r->holding[o] = false;
        return check_memory(r, o);
    }
    if (r->c->n_queue > 0)
        return propagate_times(r, lhi_verify_take_operation(r->c));
    *done = true;
    return check_machines(r);
}

/* Propagates literals, memory and time windows until nothing changes, or the
 * work exceeds its limit; false: contradiction. */
static bool propagate(checker *r)
{
    bool done = false, ok = true;
    while (ok && !done && !lhi_verify_count_work(r->c, 1))
        ok = propagate_one(r, &done);
    return ok;
}

/* Empties the checker's propagation queues without processing them. */
static void clear_queues(checker *r)
{
    while (r->n_held > 0)
        r->holding[r->held[--r->n_held]] = false;
    while (r->c->n_queue > 0)
        lhi_verify_take_operation(r->c);
    memset(r->c->dirty, 0, r->c->n_machines * sizeof *r->c->dirty);
}

/* Saves time windows, counts and trail length (the literals known) as the root
 * state, to which every clause check returns. */
static void save_root(checker *r)
{
    const lhi_verify_model *c = r->c;
    size_t n = c->n_ops, slots = c->slot_at[n];
    memcpy(r->root_start, c->start, n * sizeof *c->start);
    memcpy(r->root_finish, c->finish, n * sizeof *c->finish);
    memcpy(r->root_before, r->before, slots * sizeof *r->before);
    memcpy(r->root_after, r->after, slots * sizeof *r->after);
    r->n_root = r->n_trail;
}

/* Restores the root state that save_root() saved, and empties the queues. */
static void restore_root(checker *r)
{
    lhi_verify_model *c = r->c;
    size_t n = c->n_ops, slots = c->slot_at[n];
    lhi_verify_count_work(c, n + slots);
    clear_queues(r);
    while (r->n_trail > r->n_root)
        r->value[r->trail[--r->n_trail] / 2] = 0;
    r->n_done = r->n_trail;
    memcpy(c->start, r->root_start, n * sizeof *c->start);
    memcpy(c->finish, r->root_finish, n * sizeof *c->finish);
    memcpy(r->before, r->root_before, slots * sizeof *r->before);
    memcpy(r->after, r->root_after, slots * sizeof *r->after);
}

/* --- checking clauses ----------------------------------------------------- */

/* Makes the single literal l of a verified clause true in the root state, and
 * propagates it. A contradiction sets r->refuted. */
static void add_unit_clause(checker *r, lit l)
{
    if (!assign(r, l) || !propagate(r))
        r->refuted = true;
    else
        save_root(r);
}

/* Stores the verified clause whose n literals begin at index r->n_lits. Drops
 * it if a literal is known to be true; a clause with one open literal makes
 * that true. */
static void store_clause(checker *r, size_t n)
{
    lit *c = r->lits + r->n_lits;
    size_t open = 0;
    for (size_t i = 0; i < n; i++) {
        int value = get_value(r, c[i]);
        if (value > 0)
            return; /* true already */
        if (value == 0) {
            lit l = c[open];
            c[open++] = c[i];
            c[i] = l;
        }
    }
    if (open == 0) {
        r->refuted = true;
    } else if (open == 1) {
        add_unit_clause(r, c[0]);
    } else {
        uint32_t k = r->n_clauses++;
        r->clause_at[k] = r->n_lits;
        r->n_lits += open;
        r->clause_at[k + 1] = r->n_lits;
        watch_literal(r, k, 0);
        watch_literal(r, k, 1);
    }
}

/* Checks whether the clause just read, with n literals, follows from the known
 * facts: making all its literals false leads to a contradiction. Restores the
 * root state. */
static bool is_implied(checker *r, size_t n)
{
    const lit *c = r->lits + r->n_lits;
    bool open = true;
    for (size_t i = 0; open && i < n; i++)
        open = assign(r, c[i] ^ 1);
    open = open && propagate(r);
    restore_root(r);
    return !open;
}

/* Reads the literals of certificate clause k; false: it names unknown
 * operations. */
static bool read_clause(checker *r, const lh_proof_clause *k)
{
    for (uint32_t i = 0; i < k->n_orders; i++) {
        const lh_proof_order *o = &k->orders[i];
        uint32_t a = lhi_verify_find_operation(r->c, &o->first, o->messages);
        uint32_t b = lhi_verify_find_operation(r->c, &o->second, o->messages);
        if (a == LH_NONE || b == LH_NONE || get_row(r, a) == get_row(r, b) ||
            get_row(r, a)->machine != get_row(r, b)->machine)
            return false;
        r->lits[r->n_lits + i] = make_literal(r, a, b);
    }
    return true;
}

/* Adds the known orders of operation o at the root: those of its microbatch's
 * path, and precedences within its machine; false: contradiction. */
static bool initialise_operation(checker *r, uint32_t o)
{
    const lhi_verify_model *c = r->c;
    const lhi_verify_row *row = get_row(r, o);
    const lhi_verify_machine *m = &c->machines[row->machine];
    uint32_t j = (o - row->first) / row->per;
    for (uint32_t i = 0; i < m->n_rows; i++) {
        const lhi_verify_row *u = &c->rows[m->first_row + i];
        bool first = u != row && u->kind != LH_W &&
                     (row->kind == LH_W ? u->place <= row->place
                                        : u->place < row->place);
        if (first && !assign(r, make_literal(r, u->first + j, o)))
            return false;
    }
    for (uint32_t i = row->in; i != LH_NONE; i = c->precedences[i].next_in) {
        const lhi_verify_precedence *p = &c->precedences[i];
        const lhi_verify_row *from = &c->rows[p->from];
        uint32_t need = p->need[o - row->first];
        if (from->machine == row->machine && need > 0 &&
            !assign(r, make_literal(r, from->first + need - 1, o)))
            return false;
    }
    return true;
}

/* Adds the orders of pairs that the time windows' counts of preceding
 * operations force at the root, and propagates; false: contradiction. */
static bool initialise_root(checker *r)
{
    const lhi_verify_model *c = r->c;
    for (uint32_t o = 0; o < c->n_ops; o++) {
        const lhi_verify_row *row = get_row(r, o);
        const lhi_verify_machine *m = &c->machines[row->machine];
        for (uint32_t i = 0; i < m->n_rows; i++) {
            const lhi_verify_row *u = &c->rows[m->first_row + i];
            uint32_t least = c->least[c->slot_at[o] + i];
            uint32_t most = c->most[c->slot_at[o] + i];
            if (u == row || !m->states)
                continue;
            if (least > 0 && least <= u->count &&
                !assign(r, make_literal(r, u->first + least - 1, o)))
                return false;
            if (most < u->count &&
                !assign(r, make_literal(r, o, u->first + most)))
                return false;
        }
        if (!initialise_operation(r, o))
            return false;
        lhi_verify_queue_operation(r->c, o);
        queue_memory_check(r, o);
    }
    return propagate(r);
}

/* Checks all clauses in order; *bad: the first that does not follow. */
static void check_clauses(checker *r, uint32_t *bad)
{
    if (!initialise_root(r)) {
        r->refuted = true;
        return;
    }
    save_root(r);
    for (uint32_t k = 0; k < r->cert->n_clauses && !r->refuted; k++) {
        const lh_proof_clause *now = &r->cert->clauses[k];
        if (!read_clause(r, now) || !is_implied(r, now->n_orders)) {
            *bad = k;
            return;
        }
        store_clause(r, now->n_orders);
    }
}

/* --- allocation ---------------------------------------------------------- */

/* Assigns a literal ("a before b" or its negation) to each pair of operations
 * that share a machine, unless they are in the same row (same-kind operations
 * on one chunk). */
static lh_status number_pairs(checker *r, lhi_arena *mem, lh_error *err)
{
    const lhi_verify_model *c = r->c;
    size_t cells = 0;
    uint64_t n_pairs = 0;
    r->base_at = LHI_NEW(mem, size_t, c->n_machines);
    for (uint32_t m = 0; r->base_at && m < c->n_machines; m++) {
        r->base_at[m] = cells;
        cells += (size_t)c->machines[m].n_rows * c->machines[m].n_rows;
    }
    r->base = LHI_NEW(mem, uint32_t, cells);
    if (!r->base_at || !r->base)
        return lhi_fail_nomem(err);
    for (uint32_t m = 0; m < c->n_machines; m++) {
        const lhi_verify_row *rows = &c->rows[c->machines[m].first_row];
        uint32_t n = c->machines[m].n_rows;
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t k = i + 1; k < n; k++) {
                r->base[r->base_at[m] + i * n + k] = (uint32_t)n_pairs;
                n_pairs += (uint64_t)rows[i].count * rows[k].count;
                if (n_pairs > LH_PROOF_MAX_PAIRS)
                    return LH_OK; /* n_pairs stays 0: too many */
            }
    }
    r->pair_a = LHI_NEW(mem, uint32_t, n_pairs);
    r->pair_b = LHI_NEW(mem, uint32_t, n_pairs);
    if (!r->pair_a || !r->pair_b)
        return lhi_fail_nomem(err);
    uint32_t v = 0;
    for (uint32_t m = 0; m < c->n_machines; m++) {
        const lhi_verify_row *rows = &c->rows[c->machines[m].first_row];
        uint32_t n = c->machines[m].n_rows;
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t k = i + 1; k < n; k++)
                for (uint32_t x = 0; x < rows[i].count * rows[k].count; x++) {
                    r->pair_a[v] = rows[i].first + x / rows[k].count;
                    r->pair_b[v++] = rows[k].first + x % rows[k].count;
                }
    }
    r->n_pairs = v;
    return LH_OK;
}

/* Allocates the clause checker's arrays in `mem`; all pairs start undecided
 * and all counts unrestricted. */
static lh_status allocate(checker *r, lhi_arena *mem, lh_error *err)
{
    const lhi_verify_model *c = r->c;
    size_t n = c->n_ops, slots = c->slot_at[n], pairs = r->n_pairs, lits = 0;
    for (uint32_t k = 0; k < r->cert->n_clauses; k++)
        lits += r->cert->clauses[k].n_orders;
    r->value = LHI_NEW(mem, int8_t, pairs);
    r->trail = LHI_NEW(mem, lit, pairs);
    r->before = LHI_NEW(mem, uint32_t, slots);
    r->after = LHI_NEW(mem, uint32_t, slots);
    r->root_before = LHI_NEW(mem, uint32_t, slots);
    r->root_after = LHI_NEW(mem, uint32_t, slots);
    r->root_start = LHI_NEW(mem, int64_t, n);
    r->root_finish = LHI_NEW(mem, int64_t, n);
    r->held = LHI_NEW(mem, uint32_t, n);
    r->holding = LHI_NEW(mem, bool, n);
    r->lits = LHI_NEW(mem, lit, lits + 1);
    r->clause_at = LHI_NEW(mem, size_t, (size_t)r->cert->n_clauses + 1);
    r->watching = LHI_NEW(mem, uint32_t, 2 * pairs);
    r->next = LHI_NEW(mem, uint32_t, 2 * (size_t)r->cert->n_clauses);
    if (!r->value || !r->trail || !r->before || !r->after || !r->root_before ||
        !r->root_after || !r->root_start || !r->root_finish || !r->held ||
        !r->holding || !r->lits || !r->clause_at || !r->watching || !r->next)
        return lhi_fail_nomem(err);
    memset(r->watching, 0xff, 2 * pairs * sizeof *r->watching);
    for (size_t o = 0; o < n; o++) {
        const lhi_verify_machine *m =
            &c->machines[c->rows[c->row_of[o]].machine];
        for (uint32_t i = 0; i < m->n_rows; i++)
            r->after[c->slot_at[o] + i] = c->rows[m->first_row + i].count;
    }
    return LH_OK;
}

lh_status lhi_verify_check_clauses(lhi_verify_model *claim, int64_t deadline,
                                   const lh_certificate *c, uint32_t *bad,
                                   bool *refuted, lh_error *err)
{
    bool by_windows;
    checker r = {.c = claim, .cert = c};
    *bad = LH_NONE;
    LHI_TRY(lhi_verify_tighten_windows(claim, deadline, &by_windows, err));
    *refuted = by_windows;
    if (by_windows)
        return LH_OK;
    lhi_arena *mem = lhi_arena_make(0);
    if (!mem)
        return lhi_fail_nomem(err);
    lh_status status = number_pairs(&r, mem, err);
    if (status == LH_OK && r.n_pairs > 0)
        status = allocate(&r, mem, err);
    if (status == LH_OK && r.n_pairs > 0) {
        memset(claim->dirty, 0, claim->n_machines * sizeof *claim->dirty);
        check_clauses(&r, bad);
    }
    *refuted = r.refuted;
    lhi_arena_free(mem);
    return status;
}
