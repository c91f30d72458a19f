/* SPDX-License-Identifier: Apache-2.0 */
/* Rule tuning on coarser pipelines first (docs/theory/optimal.md, "Multilevel
 * tuning"). */
#ifndef LHI_SCHEDULE_SOLVER_IMPROVE_MULTILEVEL_H
#define LHI_SCHEDULE_SOLVER_IMPROVE_MULTILEVEL_H

#include "schedule/solver/state/solver.h"

/* Checks whether multilevel tuning applies: devices have several chunks, pairs
 * of neighbouring chunks are on pairs of neighbouring devices, and links are
 * less than half as busy as devices. Messages queue on links only in the finest
 * pipeline. */
bool lhi_multilevel_is_applicable(const lhi_solver *r);

/* Tunes a dispatching rule's parameters for `ticks` of work. It first tunes
 * pipelines with half, a quarter .. of the devices, chunks and microbatches,
 * and interpolates their parameters. Offers the best schedule to the solver. */
lh_status lhi_multilevel_run(lhi_solver *r, uint64_t ticks, lh_error *err);

#endif
