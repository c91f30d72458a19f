/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LHI_SCHEDULE_SOLVER_IMPROVE_PARALLEL_INSERTION_H
#define LHI_SCHEDULE_SOLVER_IMPROVE_PARALLEL_INSERTION_H

#include "schedule/solver/state/solver.h"

/* Runs insertion for `ticks` of work in total on all threads. Creates the
 * solver's workers on the first call. */
lh_status lhi_parallel_insertion_run(lhi_solver *r, uint64_t ticks,
                                     lh_error *err);
/* Frees the solver's insertion workers, which run insertion on several threads.
 * */
void lhi_parallel_insertion_free_workers(lhi_solver *r);

#endif
