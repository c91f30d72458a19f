/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the machine that could end an operation first: a tournament tree that
 * reevaluates only changed machines. */
#ifndef LHI_SCHEDULE_SOLVER_MODEL_EARLIEST_MACHINE_H
#define LHI_SCHEDULE_SOLVER_MODEL_EARLIEST_MACHINE_H

#include "schedule/solver/model/job_shop.h"

/* The tournament tree. */
typedef struct lhi_earliest_machine {
    uint32_t n, n_leaves; /* machines; a power of two */
    int64_t *end;         /* per machine; FAR: nothing to run */
    uint32_t *winner;     /* [1]: root; node i has children 2i and 2i + 1 */
    bool *stale;          /* per machine: to be reevaluated */
    uint32_t *list;       /* stale machines */
    uint32_t n_stale;
} lhi_earliest_machine;

/* Allocates a tournament tree over n_machines machines, which finds the
 * earliest end, in `mem`. */
lh_status lhi_earliest_machine_make(lhi_earliest_machine *first,
                                    uint32_t n_machines, lhi_arena *mem,
                                    lh_error *err);
/* Resets the tree: every machine's earliest end is unknown and must be set by
 * lhi_earliest_machine_set_end(). */
void lhi_earliest_machine_reset(lhi_earliest_machine *first);
/* Marks a machine's earliest end as stale, so that
 * lhi_earliest_machine_take_stale() returns the machine. */
void lhi_earliest_machine_mark_stale(lhi_earliest_machine *first,
                                     uint32_t machine);
/* Returns a machine whose earliest end is stale and removes the mark; NONE:
 * none. */
uint32_t lhi_earliest_machine_take_stale(lhi_earliest_machine *first);
/* Sets the earliest end of a machine's next operation and updates the tree. */
void lhi_earliest_machine_set_end(lhi_earliest_machine *first, uint32_t machine,
                                  int64_t end);
/* Returns the machine whose next operation ends first (ties: the first
 * machine); NONE: none. */
uint32_t lhi_earliest_machine_get(const lhi_earliest_machine *first);

#endif
