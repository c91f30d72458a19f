/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LHI_INSERTS_H
#define LHI_INSERTS_H

#include "solve/state/solver.h"

/* Runs insertion for `ticks` in total on all threads. Creates r's workers on
 * the first call. */
lh_status lhi_try_insertion(lhi_solver *r, uint64_t ticks, lh_error *err);
/* Frees r's insertion workers. */
void lhi_free_regrowers(lhi_solver *r);

#endif
