/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LHI_BEAMS_H
#define LHI_BEAMS_H

#include "solve/state/solver.h"

/* Runs beam searches with this width for deadlines between the bound and the
 * incumbent. */
lh_status lhi_try_beams(lhi_solver *r, uint32_t width, lh_error *err);

#endif
