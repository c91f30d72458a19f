/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LHI_INSERTS_H
#define LHI_INSERTS_H

#include "solve/state/solver.h"

/* Microbatches inserted one after another, for so many ticks on all threads
 * together. Makes r's regrowers the first time. */
lh_status lhi_try_insertion(lhi_solver *r, uint64_t ticks, lh_error *err);
void lhi_free_regrowers(lhi_solver *r);

#endif
