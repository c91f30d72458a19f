/* SPDX-License-Identifier: Apache-2.0 */
/* Conflict-driven clause learning: propagation, analysis, decisions. */
#include "schedule/solver/search/search_internal.h"

#include "schedule/pipeline/pipeline_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Frequent restarts suit schedules far below the hint. Chosen by trying 30 to
 * 400 and 0.9 to 0.98 on waves and loops with 8 devices x 16 microbatches. */
enum { RESTART = 30 };
#define DECAY 0.9

static const why decision = {WHY_NOT, 0, 0};

/* --- propagation ---------------------------------------------------------- */

/* Propagates literal `l` (a before b) to other pairs: operations of a stream
 * (operations in fixed order) keep their order, and "before" is transitive.
 * False: conflict. */
static bool propagate_orders(lhi_search *s, lit l)
{
    uint32_t a = lhi_search_get_first(s, l), b = lhi_search_get_second(s, l);
    const lhi_stream *x = lhi_search_get_stream(s, a),
                     *y = lhi_search_get_stream(s, b);
    const lhi_machine *m = &s->s->machines[x->machine];
    why one = {WHY_ONE, l, 0};
    if (a > x->first &&
        !lhi_search_enqueue(s, lhi_search_get_literal(s, a - 1, b), one))
        return false;
    if (b + 1 < y->first + y->count &&
        !lhi_search_enqueue(s, lhi_search_get_literal(s, a, b + 1), one))
        return false;
    for (uint32_t i = 0; i < m->n_streams; i++) {
        const lhi_stream *z = &s->s->streams[m->first_stream + i];
        if (z == x || z == y)
            continue;
        uint32_t k = s->after[s->slot_at[b] + i];
        if (k < z->count) {
            why two = {WHY_TWO, l, lhi_search_get_literal(s, b, z->first + k)};
            if (!lhi_search_enqueue(
                    s, lhi_search_get_literal(s, a, z->first + k), two))
                return false;
        }
        k = s->before[s->slot_at[a] + i];
        if (k > 0) {
            why two = {WHY_TWO, l,
                       lhi_search_get_literal(s, z->first + k - 1, a)};
            if (!lhi_search_enqueue(
                    s, lhi_search_get_literal(s, z->first + k - 1, b), two))
                return false;
        }
    }
    lhi_search_queue_memory(s, a);
    lhi_search_queue_memory(s, b);
    s->work += 4;
    return lhi_search_propagate_literal(s, l);
}

/* Adds a clause to the list of clauses that watch literal l, with `other`, a
 * literal of the clause that may satisfy it; false: out of memory. */
static bool add_watch(lhi_search *s, lit l, uint32_t clause, lit other)
{
    watches *w = &s->watch[l];
    if (w->n == w->room) {
        uint32_t room = w->room ? 2 * w->room : 4;
        watch *at = realloc(w->at, room * sizeof *at);
        if (!at) {
            s->no_memory = true;
            return false;
        }
        s->bytes += (room - w->room) * sizeof *at;
        w->at = at;
        w->room = room;
    }
    w->at[w->n++] = (watch){clause, other};
    return true;
}

/* Replaces c[1], the second watched literal of the clause, which is false, by a
 * literal that is not false. `first`: the other watched literal. False: there
 * is none. */
static bool move_watch(lhi_search *s, uint32_t clause, lit first)
{
    lit *c = &s->clauses[clause + 2];
    for (uint32_t k = 2; k < s->clauses[clause]; k++) {
        if (s->value[c[k]] < 0)
            continue;
        lit found = c[k];
        c[k] = c[1];
        c[1] = found;
        return add_watch(s, found, clause, first);
    }
    return false;
}

/* Visits the clauses that watch literal `l`, which is now false: finds another
 * literal to watch or propagates. False: conflict. */
static bool visit_clauses(lhi_search *s, lit l)
{
    watches *w = &s->watch[l];
    uint32_t kept = 0, i = 0;
    bool ok = true;
    while (ok && i < w->n) {
        watch now = w->at[i++];
        s->work++;
        if (s->value[now.other] > 0) {
            w->at[kept++] = now;
            continue;
        }
        lit *c = &s->clauses[now.clause + 2];
        if (c[0] == l) {
            c[0] = c[1];
            c[1] = l;
        }
        if (c[0] != now.other && s->value[c[0]] > 0) {
            w->at[kept++] = (watch){now.clause, c[0]};
            continue;
        }
        lit first = c[0];
        if (move_watch(s, now.clause, first))
            continue;
        w->at[kept++] = now;
        why because = {WHY_CLAUSE, now.clause, 0};
        ok = !s->no_memory && lhi_search_enqueue(s, first, because);
    }
    while (i < w->n)
        w->at[kept++] = w->at[i++];
    w->n = kept;
    return ok;
}

/* Propagates new literals, times, machine bounds and memory until nothing
 * changes; false: conflict. */
static bool propagate(lhi_search *s)
{
    for (;;) {
        while (s->n_done < s->n_trail) {
            lit l = s->trail[s->n_done++];
            if (!propagate_orders(s, l) || !visit_clauses(s, l ^ 1))
                return false;
        }
        if (s->n_memory_queue > 0) {
            if (!lhi_search_propagate_memory(s))
                return false;
        } else if (s->head.n_queue + s->tail.n_queue > 0) {
            if (!lhi_search_propagate_times(s))
                return false;
        } else {
            return lhi_search_check_machines(s);
        }
    }
}

/* --- heap of open variables ----------------------------------------------- */

/* Restores the heap of open variables (ordered by activity) from position `at`
 * upwards. */
static void sift_up(lhi_search *s, uint32_t at)
{
    uint32_t v = s->heap[at];
    while (at > 0) {
        uint32_t up = (at - 1) / 2;
        if (s->activity[s->heap[up]] >= s->activity[v])
            break;
        s->heap[at] = s->heap[up];
        s->heap_at[s->heap[at]] = at;
        at = up;
    }
    s->heap[at] = v;
    s->heap_at[v] = at;
}

/* Adds a variable to the heap of open variables, unless it is there already. */
static void add_to_heap(lhi_search *s, uint32_t v)
{
    if (s->heap_at[v] != NONE)
        return;
    s->heap[s->n_heap] = v;
    sift_up(s, s->n_heap++);
}

/* Removes the variable with the highest activity from the heap and returns
 * it. */
static uint32_t take_from_heap(lhi_search *s)
{
    uint32_t v = s->heap[0];
    s->heap_at[v] = NONE;
    if (--s->n_heap > 0) {
        s->heap[0] = s->heap[s->n_heap];
        lhi_search_sift_down(s, 0);
    }
    return v;
}

/* Raises a variable's activity (its priority for decisions); rescales all on
 * overflow. */
static void bump_variable(lhi_search *s, uint32_t v)
{
    s->activity[v] += s->gain;
    if (s->activity[v] > 1e100) {
        for (uint32_t i = 0; i < s->n_vars; i++)
            s->activity[i] *= 1e-100;
        s->gain *= 1e-100;
    }
    if (s->heap_at[v] != NONE)
        sift_up(s, s->heap_at[v]);
}

/* --- decision levels ------------------------------------------------------ */

/* Opens a decision level and records the state to which backtracking returns;
 * false: out of memory. */
static bool open_level(lhi_search *s)
{
    if (!lhi_search_grow_array(s, (void **)&s->levels, &s->room_levels,
                               sizeof *s->levels, s->n_levels + 1))
        return false;
    s->levels[s->n_levels++] =
        (level){s->n_trail, s->head.n, s->tail.n, s->n_undos, s->n_sets};
    return true;
}

/* Backtracks the search to the state in which n_levels decision levels are
 * open. */
static void backtrack_to(lhi_search *s, uint32_t n_levels)
{
    lhi_search_clear_queues(s);
    if (s->n_levels <= n_levels)
        return;
    level l = s->levels[n_levels];
    while (s->n_trail > l.trail) {
        lit x = s->trail[--s->n_trail];
        s->value[x] = s->value[x ^ 1] = 0;
        s->phase[x >> 1] = (uint8_t)(x & 1);
        add_to_heap(s, x >> 1);
    }
    s->n_done = s->n_trail;
    while (s->n_undos > l.undos) {
        s->n_undos--;
        *s->undos[s->n_undos].where = s->undos[s->n_undos].old;
    }
    lhi_search_undo_steps(&s->head, l.heads);
    lhi_search_undo_steps(&s->tail, l.tails);
    s->n_sets = l.sets;
    s->n_levels = n_levels;
}

/* Makes the present values permanent as the search's root state (before any
 * decision); at the root nothing needs reasons. */
static void fix_root(lhi_search *s)
{
    history *both[2] = {&s->head, &s->tail};
    for (int i = 0; i < 2; i++) {
        history *h = both[i];
        for (uint32_t k = 0; k < h->n; k++)
            h->last[h->steps[k].op] = NONE;
        memcpy(h->root, h->now, s->s->n_ops * sizeof *h->root);
        h->n = 0;
    }
    s->n_undos = 0;
    s->n_sets = 0;
}

/* --- conflicts ------------------------------------------------------------ */

/* Goes through the conflict's literals: adds the negations of those from lower
 * decision levels to the learnt clause, and returns the number of those from
 * the highest level. */
static uint32_t mark_conflict(lhi_search *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_conflict; i++) {
        lit l = s->conflict[i];
        if (s->seen[l >> 1])
            continue;
        s->seen[l >> 1] = true;
        bump_variable(s, l >> 1);
        if (s->level_of[l >> 1] == s->n_levels)
            n++;
        else
            s->learnt[s->n_learnt_lits++] = l ^ 1;
    }
    return n;
}

/* Checks whether literal `l` of the learnt clause is redundant: all literals
 * in its reason are in the clause. */
static bool is_implied(lhi_search *s, lit l)
{
    why w = s->reason[l >> 1];
    if (w.kind == WHY_NOT || w.kind == WHY_TIME)
        return false;
    s->n_conflict = 0;
    lhi_search_explain(s, l ^ 1);
    for (uint32_t i = 0; i < s->n_conflict; i++)
        if (!s->seen[s->conflict[i] >> 1])
            return false;
    return true;
}

/* Computes the learnt clause of a conflict (first unique implication point);
 * its first literal is that point's negation. Returns the level to backjump
 * to. */
static uint32_t analyze_conflict(lhi_search *s)
{
    uint32_t highest = 0;
    for (uint32_t i = 0; i < s->n_conflict; i++)
        if (s->level_of[s->conflict[i] >> 1] > highest)
            highest = s->level_of[s->conflict[i] >> 1];
    s->n_learnt_lits = 1;
    if (highest == 0 || s->no_memory) {
        s->n_learnt_lits = 0;
        return 0;
    }
    if (highest < s->n_levels)
        backtrack_to(s, highest);
    uint32_t at = s->n_trail;
    uint32_t left = mark_conflict(s);
    for (;;) {
        while (!s->seen[s->trail[--at] >> 1]) {
        }
        lit l = s->trail[at];
        if (--left == 0) {
            s->learnt[0] = l ^ 1;
            break;
        }
        s->seen[l >> 1] = false;
        s->n_conflict = 0;
        lhi_search_explain(s, l);
        left += mark_conflict(s);
    }
    uint32_t n = 1, all = s->n_learnt_lits;
    for (uint32_t i = 1; i < all; i++) {
        lit l = s->learnt[i];
        if (is_implied(s, l))
            continue;
        s->learnt[i] = s->learnt[n];
        s->learnt[n++] = l;
    }
    for (uint32_t i = 0; i < all; i++)
        s->seen[s->learnt[i] >> 1] = false;
    s->n_learnt_lits = n;
    uint32_t back = 0, second = 0;
    for (uint32_t i = 1; i < n; i++)
        if (s->level_of[s->learnt[i] >> 1] > back) {
            back = s->level_of[s->learnt[i] >> 1];
            second = i;
        }
    if (second) {
        lit l = s->learnt[1];
        s->learnt[1] = s->learnt[second];
        s->learnt[second] = l;
    }
    return back;
}

/* Counts the distinct decision levels in the learnt clause (its glue, LBD). */
static uint32_t compute_glue(lhi_search *s)
{
    uint32_t n = 0;
    s->n_stamp++;
    for (uint32_t i = 0; i < s->n_learnt_lits; i++) {
        uint32_t l = s->level_of[s->learnt[i] >> 1];
        if (s->stamp[l] != s->n_stamp) {
            s->stamp[l] = s->n_stamp;
            n++;
        }
    }
    return n;
}

/* Appends the learnt clause to the log for the certificate, unless the log has
 * reached its limit. */
static void log_learnt(const lhi_search *s)
{
    lhi_clause_log *log = s->log;
    size_t need = log->n + 1 + 2 * (size_t)s->n_learnt_lits;
    if (need > log->room && need <= log->most) {
        size_t room = need + need / 2 + 1024;
        uint32_t *more = realloc(log->words, room * sizeof *more);
        if (more) {
            log->words = more;
            log->room = room;
        }
    }
    log->incomplete = log->incomplete || need > log->room;
    if (log->incomplete)
        return;
    log->words[log->n++] = s->n_learnt_lits;
    for (uint32_t i = 0; i < s->n_learnt_lits; i++) {
        log->words[log->n++] = lhi_search_get_first(s, s->learnt[i]);
        log->words[log->n++] = lhi_search_get_second(s, s->learnt[i]);
    }
}

/* Learns a clause from the conflict and backjumps; false: no schedule meets
 * the deadline. */
static bool learn_clause(lhi_search *s)
{
    s->n_conflicts++;
    uint32_t back = analyze_conflict(s);
    if (s->n_learnt_lits == 0)
        return false;
    if (s->log)
        log_learnt(s);
    uint32_t n = s->n_learnt_lits, width = compute_glue(s);
    backtrack_to(s, back);
    if (n == 1)
        return lhi_search_enqueue(s, s->learnt[0], decision);
    uint32_t at = s->n_clauses;
    if (!lhi_search_grow_array(s, (void **)&s->clauses, &s->room_clauses,
                               sizeof *s->clauses, at + n + 2))
        return false;
    s->clauses[at] = n;
    s->clauses[at + 1] = width;
    memcpy(s->clauses + at + 2, s->learnt, n * sizeof(lit));
    s->n_clauses += n + 2;
    s->n_learnt++;
    s->gain *= 1 / DECAY;
    return add_watch(s, s->learnt[0], at, s->learnt[1]) &&
           add_watch(s, s->learnt[1], at, s->learnt[0]) &&
           lhi_search_enqueue(s, s->learnt[0], (why){WHY_CLAUSE, at, 0});
}

/* Deletes the half of the learnt clauses with the highest glue (distinct
 * decision levels); only at the root. Returns false if out of memory. */
static bool reduce_clauses(lhi_search *s)
{
    uint32_t counts[256] = {0}, kept = 0, limit = 0, sum = 0;
    for (uint32_t at = 0; at < s->n_clauses; at += s->clauses[at] + 2) {
        uint32_t g = s->clauses[at + 1];
        counts[g < 255 ? g : 255]++;
    }
    while (limit < 255 && sum + counts[limit] <= s->n_learnt / 2)
        sum += counts[limit++];
    limit = limit > 3 ? limit : 3;
    for (lit l = 0; l < 2 * s->n_vars; l++)
        s->watch[l].n = 0;
    s->n_learnt = 0;
    for (uint32_t at = 0, next; at < s->n_clauses; at = next) {
        uint32_t n = s->clauses[at];
        next = at + n + 2;
        bool satisfied = false;
        for (uint32_t i = 0; i < n; i++)
            satisfied = satisfied || s->value[s->clauses[at + 2 + i]] > 0;
        if (satisfied || s->clauses[at + 1] > limit)
            continue;
        uint32_t to = kept, m = 0;
        s->clauses[kept + 1] = s->clauses[at + 1];
        for (uint32_t i = 0; i < n; i++) {
            lit l = s->clauses[at + 2 + i];
            if (s->value[l] == 0)
                s->clauses[kept + 2 + m++] = l;
        }
        s->clauses[to] = m;
        kept += m + 2;
        s->n_learnt++;
        const lit *c = &s->clauses[to + 2];
        if (!add_watch(s, c[0], to, c[1]) || !add_watch(s, c[1], to, c[0]))
            return false;
    }
    s->n_clauses = kept;
    return true;
}

/* --- main loop ------------------------------------------------------------ */

/* Returns element i of the Luby sequence. */
static uint64_t compute_luby(uint64_t i)
{
    uint64_t size = 1, power = 0;
    while (size < i + 1) {
        size = 2 * size + 1;
        power++;
    }
    while (size - 1 != i) {
        size = (size - 1) / 2;
        power--;
        i %= size;
    }
    return UINT64_C(1) << power;
}

/* Backtracks to the root, schedules the next restart, and reduces the clause
 * database when due; false: out of memory. */
static bool restart(lhi_search *s)
{
    backtrack_to(s, 0);
    s->restart_at = s->n_conflicts + RESTART * compute_luby(s->n_restarts++);
    if (s->n_learnt < s->reduce_at)
        return true;
    bool ok = reduce_clauses(s);
    s->reduce_at += 500;
    return ok;
}

/* Writes machine orders with each machine's operations in ascending order of
 * their heads (earliest starts). */
static void write_orders(const lhi_search *s, lhi_machine_orders *out)
{
    const lhi_shop *shop = s->s;
    for (uint32_t m = 0; m < shop->n_machines; m++) {
        const lhi_machine *k = &shop->machines[m];
        uint32_t at[MOST_SLOTS] = {0}, n = 0;
        while (n < out->n[m]) {
            uint32_t pick = NONE;
            for (uint32_t i = 0; i < k->n_streams; i++) {
                const lhi_stream *t = &shop->streams[k->first_stream + i];
                uint32_t o = t->first + at[i];
                if (at[i] < t->count &&
                    (pick == NONE || s->head.now[o] < s->head.now[pick]))
                    pick = o;
            }
            at[lhi_search_get_stream(s, pick)->slot]++;
            out->order[m][n++] = pick;
        }
    }
}

/* Opens a decision level and sets the most active open variable to its
 * preferred value; false: none is open. */
static bool decide(lhi_search *s)
{
    while (s->n_heap > 0) {
        uint32_t v = take_from_heap(s);
        if (s->value[2 * v] != 0)
            continue;
        if (!open_level(s))
            return true;
        lhi_search_assign(s, 2 * v + s->phase[v], decision);
        return true;
    }
    return false;
}

/* Runs the CDCL loop for `ticks` of work within `room` bytes: found, refuted
 * or given up. */
static lhi_answer search(lhi_search *s, uint64_t ticks, size_t room,
                         lhi_budget *budget)
{
    uint64_t end = budget->used + ticks, paid = s->work;
    while (!s->no_memory) {
        bool ok = propagate(s);
        if (s->no_memory)
            break;
        if (!ok) {
            if (s->n_levels == 0 || !learn_clause(s)) {
                s->refuted = !s->no_memory;
                break;
            }
            continue;
        }
        if (s->n_levels == 0)
            fix_root(s);
        if (s->work - paid >= 64) {
            bool stop = lhi_budget_spend(budget, (s->work - paid) / 64);
            paid = s->work - (s->work - paid) % 64;
            if (stop || budget->used >= end || s->bytes > room)
                return LHI_GAVE_UP;
        }
        if (s->n_conflicts >= s->restart_at && s->n_levels > 0) {
            if (!restart(s))
                break;
            continue;
        }
        if (!decide(s))
            return LHI_FOUND;
    }
    return s->refuted ? LHI_REFUTED : LHI_GAVE_UP;
}

lh_status lhi_search_run(lhi_search *s, uint64_t ticks, size_t room,
                         lhi_budget *budget, lhi_machine_orders *out,
                         lhi_answer *answer, lh_error *err)
{
    *answer = s->refuted ? LHI_REFUTED : search(s, ticks, room, budget);
    if (*answer == LHI_FOUND)
        write_orders(s, out);
    return s->no_memory ? lhi_fail_nomem(err) : LH_OK;
}

void lhi_search_set_deadline(lhi_search *s, int64_t deadline,
                             const lhi_machine_orders *hint)
{
    assert(deadline <= s->deadline);
    backtrack_to(s, 0);
    s->deadline = deadline;
    for (uint32_t o = 0; o < s->s->n_ops; o++) {
        lhi_search_queue_operation(&s->head, s->s->n_ops, o);
        lhi_search_queue_operation(&s->tail, s->s->n_ops, o);
        lhi_search_queue_memory(s, o);
    }
    for (uint32_t v = 1; hint && v < s->n_vars; v++)
        s->phase[v] = hint->end[s->var_a[v]] > hint->end[s->var_b[v]];
}

void lhi_search_set_log(lhi_search *s, lhi_clause_log *log)
{
    s->log = log;
}

/* Returns the ticks to charge for creating the search: one per 512 bytes,
 * since its cost is mostly page faults. Computed from counts that are equal in
 * every build. */
uint64_t lhi_search_get_creation_ticks(const lhi_search *s)
{
    const uint64_t n = s->s->n_ops, slots = s->slot_at[n];
    return n * 4 / 5 + slots / 25 + s->n_vars / 5;
}

size_t lhi_search_get_bytes(const lhi_search *s)
{
    return s->bytes;
}

uint64_t lhi_search_count_conflicts(const lhi_search *s)
{
    return s->n_conflicts;
}
