/* SPDX-License-Identifier: Apache-2.0 */
/* Internal interface between the parts of the search. */
#ifndef LHI_SCHEDULE_SOLVER_SEARCH_SEARCH_INTERNAL_H
#define LHI_SCHEDULE_SOLVER_SEARCH_SEARCH_INTERNAL_H

#include "schedule/solver/search/search.h"

/* Literal 2v: var_a[v] before var_b[v]; 2v + 1: the reverse. Variable 0 stands
 * for all pairs whose order is fixed from the start. */
typedef uint32_t lit;
/* Constant literals: true and false. */
enum { HOLDS = 0, HOLDS_NOT = 1 };
enum { MOST_SLOTS = 64 }; /* per machine */

/* Kinds of reasons for a literal. */
typedef enum why_kind {
    WHY_NOT,    /* a decision, or true at the root */
    WHY_CLAUSE, /* x: its position */
    WHY_ONE,    /* literal x */
    WHY_TWO,    /* literals x and y */
    WHY_TIME,   /* heads and tails at history steps x, y */
    WHY_SET,    /* y literals from position x in the sets */
} why_kind;

/* The reason for a literal. */
typedef struct why {
    uint32_t kind, x, y;
} why;

/* A head or tail increase with its source: enough to explain it later. */
typedef struct step {
    int64_t value, weight;
    uint32_t op, from;
    lit by;        /* NONE: an arc of the job shop */
    uint32_t prev; /* previous step of this operation; NONE: the root */
} step;

/* Values per operation with all increases, for undo and explanation. */
typedef struct history {
    int64_t *now, *root; /* per operation */
    uint32_t *last;      /* step, or NONE */
    step *steps;
    uint32_t n, room;
    uint32_t *queue; /* changed operations, a ring buffer */
    bool *queued;
    uint32_t front, n_queue;
} history;

/* A count to restore on backtracking. */
typedef struct undo {
    uint32_t *where, old;
} undo;

/* A watched clause and another literal in it. */
typedef struct watch {
    uint32_t clause;
    lit other;
} watch;

/* One literal's watches. */
typedef struct watches {
    watch *at;
    uint32_t n, room;
} watches;

/* Array sizes at a decision level's start. */
typedef struct level {
    uint32_t trail, heads, tails, undos, sets;
} level;

/* For an operation and a later stream on its machine: that stream's operations
 * below number `low` precede it, those from `high` on follow it, and those
 * between have variables from `var` on. */
typedef struct open_pairs {
    uint32_t low, high, var;
} open_pairs;

/* The search's state. */
struct lhi_search {
    const lhi_shop *s;
    int64_t deadline;
    lhi_arena *mem;
    bool no_memory;
    size_t bytes; /* growing arrays only */
    uint64_t work, n_conflicts;

    uint32_t n_vars;
    uint32_t *var_a, *var_b;
    open_pairs *pairs;        /* [slot_at[op] + slot], for later slots */
    const size_t *slot_at;    /* borrowed from the windows */
    uint32_t *before, *after; /* counts known before; first known after */
    uint32_t *producer;  /* for operations on following machines; or NONE */
    int64_t *memory_sum; /* per stream: net memory change of its first x
                          * operations, at [first + stream + x] */

    int8_t *value; /* per literal: 1 true, -1 false, 0 open */
    uint32_t *level_of;
    why *reason;
    lit *trail;
    uint32_t n_trail, n_done;
    level *levels;
    uint32_t n_levels, room_levels;
    undo *undos;
    uint32_t n_undos, room_undos;
    lit *sets;
    uint32_t n_sets, room_sets;

    history head, tail;
    bool *machine_dirty; /* for the one-machine bound */
    uint32_t *memory_queue, n_memory_queue;
    bool *memory_queued;

    /* True literals that contradict each other. */
    lit *conflict;
    uint32_t n_conflict, room_conflict;

    uint32_t *clauses; /* size, glue, literals ... */
    uint32_t n_clauses, room_clauses;
    uint32_t n_learnt;
    watches *watch; /* per literal: clauses to visit when it is false */

    double *activity, gain;
    uint32_t *heap, *heap_at, n_heap;
    uint8_t *phase;
    bool *seen;
    lit *learnt;
    uint32_t n_learnt_lits;
    uint32_t *stamp, n_stamp; /* per level, for glue */
    uint64_t restart_at, reduce_at;
    uint32_t n_restarts;
    bool refuted;
    lhi_clause_log *log; /* or NULL */
};

/* --- root state: root.c */

/* Checks that no machine has more streams (operations in fixed order) than a
 * search supports; false: too many. */
bool lhi_search_is_applicable(const lhi_shop *shop);

/* Computes, per operation and stream on its machine, how many operations always
 * precede it (`before`), and the first that always follows (`after`).
 * with_counts: also uses how many operations of other streams the lattices
 * (machine state graphs) prove to come before or after an operation. `list`:
 * scratch for one machine's operations. Returns false if no order exists. */
bool lhi_search_compute_root_orders(const lhi_windows *w, bool with_counts,
                                    uint32_t *list, uint32_t *before,
                                    uint32_t *after);
/* Counts the pairs of operations on the same machine whose order is not implied
 * by before[] and after[], both indexed by slot_at[op] + stream slot; see
 * lhi_search_compute_root_orders(). */
uint64_t lhi_search_count_open_pairs(const lhi_shop *shop,
                                     const size_t *slot_at,
                                     const uint32_t *before,
                                     const uint32_t *after);

/* --- histories of heads and tails: history.c */

/* Returns the operation that literal l puts first. */
static inline uint32_t lhi_search_get_first(const lhi_search *s, lit l)
{
    return l & 1 ? s->var_b[l >> 1] : s->var_a[l >> 1];
}

/* Returns the operation that literal l puts second. */
static inline uint32_t lhi_search_get_second(const lhi_search *s, lit l)
{
    return l & 1 ? s->var_a[l >> 1] : s->var_b[l >> 1];
}

/* Returns an operation's stream. */
static inline const lhi_stream *lhi_search_get_stream(const lhi_search *s,
                                                      uint32_t op)
{
    return &s->s->streams[s->s->stream_of[op]];
}

/* Enlarges *array to at least `need` elements of `each` bytes; *room: its
 * capacity in elements. False: out of memory, which the search records. */
bool lhi_search_grow_array(lhi_search *s, void **array, uint32_t *room,
                           size_t each, uint32_t need);
/* Adds the true literal l (an order of two operations) to the current conflict,
 * unless it holds at the root, before any decision. Out of memory is recorded
 * in the search. */
void lhi_search_add_conflict(lhi_search *s, lit l);
/* Queues operation `op`, whose head (earliest start) or tail (time that must
 * follow) has changed, for propagation. n_ops: number of operations. */
void lhi_search_queue_operation(history *h, uint32_t n_ops, uint32_t op);
/* Removes and returns the first operation queued for propagation; the queue
 * must not be empty. n_ops: number of operations. */
uint32_t lhi_search_take_operation(history *h, uint32_t n_ops);
/* Undoes all but the first n steps of a history, which restores the heads
 * (earliest starts) or tails (times that must follow) of that time. */
void lhi_search_undo_steps(history *h, uint32_t n);

/* Checks whether op's value would rise. */
static inline bool lhi_search_would_rise(const history *h, uint32_t op,
                                         uint32_t from, int64_t weight)
{
    return h->now[from] + weight > h->now[op];
}

/* Appends a step to the history `h` of all heads (earliest starts) or of all
 * tails (times that must follow). It raises the value of op to that of `from`
 * plus `weight`, because of literal `by`. False: out of memory. */
bool lhi_search_add_step(lhi_search *s, history *h, uint32_t op, uint32_t from,
                         int64_t weight, lit by);
/* Raises op's value to at least that of `from` plus the weight, with reason
 * `by` (NONE: an arc). false: out of memory. */
static inline bool lhi_search_raise_time(lhi_search *s, history *h, uint32_t op,
                                         uint32_t from, int64_t weight, lit by)
{
    return !lhi_search_would_rise(h, op, from, weight) ||
           lhi_search_add_step(s, h, op, from, weight, by);
}

/* Adds to the conflict the literals that explain why op's value in history h, a
 * head (earliest start) or tail (time that must follow), is at least `need`.
 * Follows the steps that raised it back to the root. At each operation on this
 * path, uses the first value that sufficed. */
void lhi_search_explain_path(lhi_search *s, const history *h, uint32_t op,
                             int64_t need);
/* Adds to the conflict the literals that explain a head (earliest start) of a
 * and a tail (time that must follow) of b, which together exceed the deadline.
 * `spare`: the amount by which they may be smaller and still exceed it. */
void lhi_search_explain_both(lhi_search *s, uint32_t a, int64_t head,
                             uint32_t b, int64_t tail, int64_t spare);
/* Explains `l`, which times implied. */
void lhi_search_explain_time(lhi_search *s, lit l);

/* --- orders: trail.c */

/* Returns the literal "a before b" for operations in two streams on one
 * machine. */
static inline lit lhi_search_get_literal(const lhi_search *s, uint32_t a,
                                         uint32_t b)
{
    const lhi_stream *x = lhi_search_get_stream(s, a),
                     *y = lhi_search_get_stream(s, b);
    const lit turned = x->slot > y->slot;
    const open_pairs *p = turned ? &s->pairs[s->slot_at[b] + x->slot]
                                 : &s->pairs[s->slot_at[a] + y->slot];
    const uint32_t k = turned ? a - x->first : b - y->first;
    const lit l = k < p->low     ? HOLDS_NOT
                  : k >= p->high ? HOLDS
                                 : 2 * (p->var + k - p->low);
    return l ^ turned;
}

/* Makes the open literal `l` (a before b) true for reason `w`, and updates
 * which operations are known before b and after a; false: out of memory. */
bool lhi_search_assign(lhi_search *s, lit l, why w);
/* Makes literal `l`, which is not true, true for reason `w`. False: conflict,
 * since it is already false, or out of memory. */
bool lhi_search_enqueue_open(lhi_search *s, lit l, why w);
/* Makes a literal true with reason `w`. false: it is already false; the
 * conflict is recorded. */
static inline bool lhi_search_enqueue(lhi_search *s, lit l, why w)
{
    return s->value[l] > 0 || lhi_search_enqueue_open(s, l, w);
}

/* Restores the variable heap, most active first, by moving the entry at `at`
 * down. */
static inline void lhi_search_sift_down(lhi_search *s, uint32_t at)
{
    uint32_t v = s->heap[at];
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= s->n_heap)
            break;
        if (child + 1 < s->n_heap &&
            s->activity[s->heap[child + 1]] > s->activity[s->heap[child]])
            child++;
        if (s->activity[s->heap[child]] <= s->activity[v])
            break;
        s->heap[at] = s->heap[child];
        s->heap_at[s->heap[at]] = at;
        at = child;
    }
    s->heap[at] = v;
    s->heap_at[v] = at;
}

/* Adds to s->conflict the true literals that implied literal `l`. */
void lhi_search_explain(lhi_search *s, lit l);

/* --- consequences in time and memory: propagators.c */

/* Raises head and tail (earliest start, time that must follow) of the two
 * operations that literal `l` newly orders; false: out of memory. */
bool lhi_search_propagate_literal(lhi_search *s, lit l);
/* Propagates one changed head or tail; false: conflict. */
bool lhi_search_propagate_times(lhi_search *s);
/* Checks the memory limit while the next queued operation runs, and derives
 * orders from it; false: conflict. */
bool lhi_search_propagate_memory(lhi_search *s);
/* Checks the one-machine bounds of all machines whose heads (earliest starts)
 * or tails (times that must follow) changed; false: conflict. */
bool lhi_search_check_machines(lhi_search *s);
/* Queues an operation for the memory check if it takes memory. */
void lhi_search_queue_memory(lhi_search *s, uint32_t op);
/* Empties all propagation queues of the search, without processing them. */
void lhi_search_clear_queues(lhi_search *s);

#endif
