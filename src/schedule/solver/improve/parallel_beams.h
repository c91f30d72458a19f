/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LHI_SCHEDULE_SOLVER_IMPROVE_PARALLEL_BEAMS_H
#define LHI_SCHEDULE_SOLVER_IMPROVE_PARALLEL_BEAMS_H

#include "schedule/solver/state/solver.h"

/* Runs beam searches of width `width` for several deadlines between the lower
 * bound and the incumbent. */
lh_status lhi_parallel_beams_run(lhi_solver *r, uint32_t width, lh_error *err);

#endif
