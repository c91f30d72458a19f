/* SPDX-License-Identifier: Apache-2.0 */
/* Time windows of all operations under a deadline, tightened to a fixpoint.
 * Proofs: docs/theory/optimal.md, "Windows" and "Lattice". */
#ifndef LHI_WINDOWS_H
#define LHI_WINDOWS_H

#include "solve/model/shop.h"
#include "solve/model/budget.h"

/* All states that one machine can pass through: how many operations of each
 * stream are done. States are in an order in which steps go forward. */
typedef struct lhi_lattice {
    uint32_t machine, n_streams, n_states;
    uint16_t *counts; /* [state * n_streams + slot] */
    uint32_t *step;   /* the state after one of that stream; NONE */
} lhi_lattice;

typedef struct lhi_windows {
    const lhi_shop *shop;
    lhi_arena *mem;
    lhi_lattice **lattices; /* per machine; NULL: none, or too large */
    lhi_lattice **narrow;   /* the states that matter up to ... */
    int64_t *upto;          /* ... this deadline; -1: none */
    size_t live_states;     /* that a lattice of a deadline may have */
    int64_t *too_large;     /* least deadline whose states did not fit */
    uint32_t tries;         /* to have all of them for a long deadline */
    bool out_of_room;       /* .. in `room`, however many they may be */
    size_t room, used;      /* bytes for lattices, and what they take */
    int64_t *first, *last;  /* per state, scratch: earliest and latest time */
    uint32_t scratch;       /* states there is room for in them */
    int64_t *r, *e;         /* per operation: earliest start, latest end */
    /* The streams of an operation's machine, [slot_at[op] + slot]: at least
     * `least` and at most `most` operations of that stream come before it. */
    size_t *slot_at;
    uint32_t *fixed; /* whatever the deadline */
    uint32_t *least, *most;
    /* While they are shaved: limits of what counts may be; else NULL. */
    const uint32_t *low, *high;
    int64_t *new_r, *new_e;
    uint32_t *order; /* of operations: streams and arcs go forward in it */
    uint32_t n_order;
    uint32_t *queue; /* of operations, a ring */
    bool *queued, *dirty;
    uint32_t front, n_queue;
    bool near;     /* least and most hold for all machines, near a schedule */
    bool whole;    /* every machine has a lattice of all its states */
    bool beside;   /* its lattices are another's */
    bool strict;   /* one that is too large ends the making of live lattices */
    bool complete; /* every machine whose order is open had its lattice when
                      windows were last set */
} lhi_windows;

/* `room`: bytes that lattices may take; those of single deadlines half as much
 * again. `*impossible`: a device for whose
 * memory no order exists, else NONE. */
lh_status lhi_windows_make(const lhi_shop *shop, size_t room,
                           lhi_budget *budget, lhi_arena *mem,
                           lhi_windows **out, uint32_t *impossible,
                           lh_error *err);
void lhi_windows_free(lhi_windows *windows); /* its lattices; NULL is fine */

/* Machines that have no lattice of all their states get one of the states that
 * a deadline's windows leave, if those are no more than this (100000). */
void lhi_windows_allow(lhi_windows *windows, size_t states);

/* Windows of its own beside those of `from`, whose lattices it looks at: while
 * it is used, `from` must stay as it is. It makes no lattices, does without
 * narrowed ones once a deadline is longer than theirs, and lives in `mem`,
 * without lhi_windows_free(). */
lh_status lhi_windows_beside(const lhi_windows *from, lhi_arena *mem,
                             lhi_windows **out, lh_error *err);
/* At all lattices of `from` again, as if it had just been made. */
void lhi_windows_look_again(lhi_windows *beside, const lhi_windows *from);

/* Windows for "done by the deadline". false: no schedule is. Stopped by the
 * budget it gives true. */
bool lhi_windows_set(lhi_windows *windows, int64_t deadline,
                     lhi_budget *budget);
/* The same, but no further lattices are made when one has turned out too large:
 * then windows are worth less, and soon over. */
bool lhi_windows_set_strictly(lhi_windows *windows, int64_t deadline,
                              lhi_budget *budget);

/* After windows that were not refuted: leaves out the states that no schedule
 * within their deadline passes through. `for_good`: later deadlines will not be
 * above it; else they bring the states back. false: no memory.
 * Stopped by the budget it gives true, and some machines keep what they had. */
bool lhi_windows_narrow(lhi_windows *windows, int64_t deadline, bool for_good,
                        lhi_budget *budget);

/* The lattice of a machine as it is now, or NULL. */
const lhi_lattice *lhi_windows_lattice(const lhi_windows *windows,
                                       uint32_t machine);

/* To a fixpoint again after a limit of a machine's counts has changed. false:
 * no schedule. Stopped by the budget it gives true. */
bool lhi_windows_settle(lhi_windows *windows, uint32_t machine,
                        lhi_budget *budget);

/* Fills least and most from the last windows; out of time they are of no use.
 */
void lhi_windows_counts(lhi_windows *windows, lhi_budget *budget);
/* Those of one machine. */
void lhi_windows_count(lhi_windows *windows, uint32_t machine,
                       lhi_budget *budget);

#endif
