/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the search share. */
#ifndef LHI_SEARCH_OWN_H
#define LHI_SEARCH_OWN_H

#include "solve/search/search.h"

/* Literal 2v: var_a[v] before var_b[v]; 2v + 1: the other way round. Variable 0
 * stands for all pairs whose order holds from the beginning. */
typedef uint32_t lit;
enum { HOLDS = 0, HOLDS_NOT = 1 };
enum { MOST_SLOTS = 64 }; /* of a machine */

typedef enum why_kind {
    WHY_NOT,    /* a decision, or true at the root */
    WHY_CLAUSE, /* x: its place */
    WHY_ONE,    /* literal x */
    WHY_TWO,    /* literals x and y */
    WHY_TIME, /* heads and tails as they were: x, y steps of their histories */
    WHY_SET,  /* y literals from place x of the sets */
} why_kind;

typedef struct why {
    uint32_t kind, x, y;
} why;

/* A head or tail that rose, and from where: enough to say later why. */
typedef struct step {
    int64_t value, weight;
    uint32_t op, from;
    lit by;        /* NONE: an arc of the shop */
    uint32_t prev; /* the step before, of the same operation; NONE: the root */
} step;

typedef struct history {
    int64_t *now, *root; /* per operation */
    uint32_t *last;      /* step, or NONE */
    step *steps;
    uint32_t n, room;
    uint32_t *queue; /* operations that changed, a ring */
    bool *queued;
    uint32_t front, n_queue;
} history;

typedef struct undo {
    uint32_t *where, old;
} undo;

typedef struct watch {
    uint32_t clause;
    lit other;
} watch;

typedef struct watches {
    watch *at;
    uint32_t n, room;
} watches;

typedef struct level {
    uint32_t trail, heads, tails, undos, sets;
} level;

/* Of an operation and a later stream of its machine: operations of that stream
 * before number `low` come before it, those from `high` on after it, and those
 * between have variables from `var` on. */
typedef struct open_pairs {
    uint32_t low, high, var;
} open_pairs;

struct lhi_search {
    const lhi_shop *s;
    int64_t deadline;
    lhi_arena *mem;
    bool no_memory;
    size_t bytes; /* of what grows */
    uint64_t work, n_conflicts;

    uint32_t n_vars;
    uint32_t *var_a, *var_b;
    open_pairs *pairs;        /* [slot_at[op] + slot], for later slots */
    const size_t *slot_at;    /* of the windows */
    uint32_t *before, *after; /* counts known to be before; first known after */
    uint32_t *producer;  /* of an operation whose machine follows; or NONE */
    int64_t *memory_sum; /* per stream: net change of its first x operations,
                            at [first + stream + x] */

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

    /* Literals that are true and cannot all be. */
    lit *conflict;
    uint32_t n_conflict, room_conflict;

    uint32_t *clauses; /* size, glue, literals ... */
    uint32_t n_clauses, room_clauses;
    uint32_t n_learnt;
    watches *watch; /* per literal: clauses to look at when it is false */

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

/* --- the root: search_root.c */

/* false: a machine has too many streams. */
bool lhi_is_for_search(const lhi_shop *shop);

/* Per operation and stream of its machine, how many operations come before it
 * whatever happens, and which is the first that comes after it; with_counts: by
 * the windows' counts too. `list` has room for the operations of a machine.
 * false: there is no order. */
bool lhi_root_orders(const lhi_windows *w, bool with_counts, uint32_t *list,
                     uint32_t *before, uint32_t *after);
/* The pairs that leaves open. */
uint64_t lhi_open_pairs(const lhi_shop *shop, const size_t *slot_at,
                        const uint32_t *before, const uint32_t *after);

/* --- how heads and tails rose: search_history.c */

static inline uint32_t lhi_from(const lhi_search *s, lit l)
{
    return l & 1 ? s->var_b[l >> 1] : s->var_a[l >> 1];
}

static inline uint32_t lhi_to(const lhi_search *s, lit l)
{
    return l & 1 ? s->var_a[l >> 1] : s->var_b[l >> 1];
}

static inline const lhi_stream *lhi_stream_at(const lhi_search *s, uint32_t op)
{
    return &s->s->streams[s->s->stream_of[op]];
}

/* Room for one more element. */
bool lhi_grow(lhi_search *s, void **array, uint32_t *room, size_t each,
              uint32_t need);
void lhi_note_conflict(lhi_search *s, lit l); /* adds a true literal */
/* The operation's value changed: who depends on it is to be told. */
void lhi_queue_op(history *h, uint32_t n_ops, uint32_t op);
uint32_t lhi_take_op(history *h, uint32_t n_ops);
void lhi_take_back_steps(history *h, uint32_t n);

static inline bool lhi_rises(const history *h, uint32_t op, uint32_t from,
                             int64_t weight)
{
    return h->now[from] + weight > h->now[op];
}

bool lhi_add_step(lhi_search *s, history *h, uint32_t op, uint32_t from,
                  int64_t weight, lit by);
/* op's value is at least that of `from` and the weight, because of `by` (NONE:
 * an arc). false: no memory. */
static inline bool lhi_raise_time(lhi_search *s, history *h, uint32_t op,
                                  uint32_t from, int64_t weight, lit by)
{
    return !lhi_rises(h, op, from, weight) ||
           lhi_add_step(s, h, op, from, weight, by);
}

/* Notes the literals by which op's value is at least `need`: of each value on
 * the path the first that was enough. */
void lhi_explain_path(lhi_search *s, const history *h, uint32_t op,
                      int64_t need);
/* Heads and tails that together need more than the deadline leaves: `spare` is
 * how much less would do. */
void lhi_explain_both(lhi_search *s, uint32_t a, int64_t head, uint32_t b,
                      int64_t tail, int64_t spare);
/* Why `l` holds, which times decided. */
void lhi_explain_time(lhi_search *s, lit l);

/* --- orders: search_trail.c */

/* The literal "a before b" for operations of two streams of one machine. */
static inline lit lhi_before(const lhi_search *s, uint32_t a, uint32_t b)
{
    const lhi_stream *x = lhi_stream_at(s, a), *y = lhi_stream_at(s, b);
    const lit turned = x->slot > y->slot;
    const open_pairs *p = turned ? &s->pairs[s->slot_at[b] + x->slot]
                                 : &s->pairs[s->slot_at[a] + y->slot];
    const uint32_t k = turned ? a - x->first : b - y->first;
    const lit l = k < p->low     ? HOLDS_NOT
                  : k >= p->high ? HOLDS
                                 : 2 * (p->var + k - p->low);
    return l ^ turned;
}

/* Makes an open literal true. false: no memory. */
bool lhi_assign(lhi_search *s, lit l, why w);
bool lhi_enqueue_open(lhi_search *s, lit l, why w);
/* Makes a literal true because of `w`; false: it is false, the conflict is
 * noted. */
static inline bool lhi_enqueue(lhi_search *s, lit l, why w)
{
    return s->value[l] > 0 || lhi_enqueue_open(s, l, w);
}

/* The heap of variables, most activity first: what stands at `at` goes down to
 * its place. */
static inline void lhi_sift_down(lhi_search *s, uint32_t at)
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

/* Adds to s->conflict the true literals that made `l` true. */
void lhi_explain(lhi_search *s, lit l);

/* --- what follows from an order besides other orders: search_time.c */

bool lhi_relax_literal(lhi_search *s, lit l);
bool lhi_settle_times(lhi_search *s);
bool lhi_settle_memory(lhi_search *s);
bool lhi_one_machine(lhi_search *s);
void lhi_touch_memory(lhi_search *s, uint32_t op);
void lhi_forget_queues(lhi_search *s);

#endif
