/* SPDX-License-Identifier: Apache-2.0 */
/* How far an answer about a link can be trusted. */
#ifndef LHI_SURENESS_H
#define LHI_SURENESS_H

#include "base/arena.h"

#include <longhaul/advice.h>

/* Fills in what packet simulations found of a question, and `sure`, in `mem`;
 * all else of *q is there. `latency_ms` and `loss` are the link's. */
lh_status lhi_say_sureness(lh_advice_question *q, double latency_ms,
                           double loss, lhi_arena *mem, lh_error *err);

#endif
