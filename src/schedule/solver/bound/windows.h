/* SPDX-License-Identifier: Apache-2.0 */
/* Time windows for all operations under a deadline, tightened to a fixpoint.
 * Proofs: docs/theory/optimal.md, "Windows" and "Lattice". */
#ifndef LHI_SCHEDULE_SOLVER_BOUND_WINDOWS_H
#define LHI_SCHEDULE_SOLVER_BOUND_WINDOWS_H

#include "schedule/solver/model/budget.h"
#include "schedule/solver/model/job_shop.h"

/* All reachable states of one machine: the number of completed operations per
 * stream. States are in topological order. */
typedef struct lhi_lattice {
    uint32_t machine, n_streams, n_states;
    uint16_t *counts; /* [state * n_streams + slot] */
    uint32_t *step;   /* successor state per stream; NONE */
} lhi_lattice;

/* Windows, lattices and propagation state for one job shop. */
typedef struct lhi_windows {
    const lhi_shop *shop;
    lhi_arena *mem;
    lhi_lattice **lattices;     /* per machine; NULL: none, or too large */
    lhi_lattice **pruned;       /* pruned lattices, valid up to ... */
    int64_t *pruned_deadline;   /* ... this deadline; -1: none */
    size_t max_deadline_states; /* max. states in a deadline lattice */
    int64_t *too_large;     /* smallest deadline whose lattice did not fit */
    uint32_t tries;         /* attempts to build all for a long deadline */
    bool is_memory_limited; /* .. because of `room`, not the state limit */
    size_t room, used;      /* lattice memory: limit and use, bytes */
    int64_t *first, *last;  /* scratch per state: earliest, latest time */
    uint32_t scratch;       /* capacity of the two, in states */
    int64_t *r, *e;         /* per operation: earliest start, latest end */
    /* Per stream on an operation's machine, [slot_at[op] + slot]: at least
     * `least` and at most `most` operations of that stream precede it. */
    size_t *slot_at;
    uint32_t *fixed; /* lower limit for any deadline */
    uint32_t *least, *most;
    /* During shaving: limits on the counts; otherwise NULL. */
    const uint32_t *low, *high;
    int64_t *new_r, *new_e;
    uint32_t *order; /* topological order of the operations */
    uint32_t n_order;
    uint32_t *queue; /* ring buffer of operations */
    bool *queued, *dirty;
    uint32_t front, n_queue;
    bool restricted_counts; /* least and most hold for all machines, restricted
                             * to a schedule's neighbourhood */
    bool has_full_lattices; /* every machine has its full lattice */
    bool shares_lattices;   /* lattices are borrowed */
    bool strict;   /* stop building deadline lattices after one is too large */
    bool complete; /* every machine with an open order had its lattice when the
                    * windows were last set */
} lhi_windows;

/* Creates windows, the earliest start and latest end of each operation. `room`:
 * maximum bytes for lattices (machine state graphs); deadline lattices may use
 * half as much again. `*impossible`: a device for whose memory no order exists,
 * otherwise NONE. */
lh_status lhi_windows_make(const lhi_shop *shop, size_t room,
                           lhi_budget *budget, lhi_arena *mem,
                           lhi_windows **out, uint32_t *impossible,
                           lh_error *err);
/* Frees the time windows' lattices (machine state graphs); NULL is allowed. */
void lhi_windows_free(lhi_windows *windows);

/* Sets the maximum number of states (default 100000) in a deadline lattice,
 * which is built for a machine without a full lattice. */
void lhi_windows_set_max_states(lhi_windows *windows, size_t states);

/* Creates time windows that share the lattices (machine state graphs) of
 * `from`, which must not change while they are in use. They build no lattices
 * and skip pruned ones if the deadline exceeds theirs. They live in `mem` and
 * need no lhi_windows_free() */
lh_status lhi_windows_make_shared(const lhi_windows *from, lhi_arena *mem,
                                  lhi_windows **out, lh_error *err);
/* Copies the pointers to the lattices (machine state graphs) that `from` uses
 * at present to `w`, which shares them. Call it after they have changed. */
void lhi_windows_sync_lattices(lhi_windows *beside, const lhi_windows *from);

/* Computes the time windows of all operations if the schedule has to end by
 * `deadline`. False: no schedule meets it. Returns true if stopped by the
 * budget. */
bool lhi_windows_set(lhi_windows *windows, int64_t deadline,
                     lhi_budget *budget);
/* Computes the time windows as lhi_windows_set() does (false: no schedule meets
 * `deadline`), but builds no further lattices (machine state graphs) once one
 * is too large. Windows without it are weaker, so it ends early. */
bool lhi_windows_set_strictly(lhi_windows *windows, int64_t deadline,
                              lhi_budget *budget);

/* Removes states that no schedule within `deadline`, which lhi_windows_set()
 * left open, reaches. `for_good`: later deadlines will not exceed it;
 * otherwise a longer deadline restores the states. False: out of memory. If
 * stopped by the budget it returns true and some machines keep all states. */
bool lhi_windows_prune(lhi_windows *windows, int64_t deadline, bool for_good,
                       lhi_budget *budget);

/* Returns machine m's current lattice (graph of its states); NULL: it has
 * none. */
const lhi_lattice *lhi_windows_get_lattice(const lhi_windows *windows,
                                           uint32_t machine);

/* Propagates all windows (earliest start, latest end) until nothing changes,
 * after a limit on machine m's counts of preceding operations has changed.
 * False: no schedule exists. Returns true if stopped by the budget. */
bool lhi_windows_propagate(lhi_windows *windows, uint32_t machine,
                           lhi_budget *budget);

/* Computes, from the current time windows, how many operations of each stream
 * (operations in fixed order) at least (w->least) and at most (w->most) precede
 * each operation; undefined if out of time. */
void lhi_windows_compute_all_counts(lhi_windows *windows, lhi_budget *budget);
/* Computes, for machine m only, how many operations of each stream (operations
 * in fixed order) precede each operation at least (w->least) and at most
 * (w->most), within the current time windows; undefined if out of time. */
void lhi_windows_compute_counts(lhi_windows *windows, uint32_t machine,
                                lhi_budget *budget);

#endif
