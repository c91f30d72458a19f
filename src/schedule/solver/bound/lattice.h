/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LHI_SCHEDULE_SOLVER_BOUND_LATTICE_H
#define LHI_SCHEDULE_SOLVER_BOUND_LATTICE_H

#include "schedule/solver/bound/windows.h"

/* Builds a machine's lattice, the graph of its states (completed operations
 * per stream). NULL: larger than `room` bytes, stopped, or out of memory (then
 * *no_memory is set). Release with lhi_lattice_free(). */
lhi_lattice *lhi_lattice_make(const lhi_shop *shop, uint32_t machine,
                              size_t room, lhi_budget *budget, bool *no_memory);
/* Builds a machine's lattice as lhi_lattice_make() does, without states that no
 * order within these windows (earliest start, latest end) reaches. If no order
 * exists, the final state is missing. NULL and *no_memory as there. */
lhi_lattice *lhi_lattice_make_for_deadline(const lhi_windows *windows,
                                           uint32_t machine, size_t room,
                                           lhi_budget *budget, bool *no_memory);
/* Frees a lattice (machine state graph); NULL is allowed. */
void lhi_lattice_free(lhi_lattice *lattice);

/* The following functions check the time limit but spend no budget. */

/* Computes the windows new_r (earliest start) and new_e (latest end) of the
 * machine's operations over all orders in the lattice (machine state graph);
 * false: no order exists. If stopped by time it returns true and the results
 * are undefined. */
bool lhi_lattice_tighten(const lhi_lattice *lattice, lhi_windows *windows,
                         lhi_budget *budget);
/* Copies the lattice (machine state graph) without the states that no order
 * within the time windows passes; NULL: out of memory or time. */
lhi_lattice *lhi_lattice_prune(const lhi_lattice *lattice, lhi_windows *windows,
                               lhi_budget *budget);
/* Computes last[state], the latest time at which each state of the lattice
 * (machine state graph) may be left so that all time windows are met; below 0:
 * unreachable. False: no order exists, or out of time. */
bool lhi_lattice_compute_latest(const lhi_lattice *lattice,
                                lhi_windows *windows, int64_t *last,
                                lhi_budget *budget);
/* Computes how many operations of each stream (operations in fixed order)
 * precede an operation at least (windows->least) and at most (windows->most),
 * over all orders within the time windows; undefined if out of time. */
void lhi_lattice_compute_counts(const lhi_lattice *lattice,
                                lhi_windows *windows, lhi_budget *budget);

#endif
