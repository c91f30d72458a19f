/* SPDX-License-Identifier: Apache-2.0 */
/* Link advice confidence. */
#ifndef LHI_PLANNER_EXPLAIN_CONFIDENCE_H
#define LHI_PLANNER_EXPLAIN_CONFIDENCE_H

#include "base/arena.h"

#include <longhaul/experimental/advice.h>

/* Fills the published packet-simulation results of a link-advice question and
 * its confidence text `sure`, in `mem`; all other members of *q must be set.
 * `latency_ms` and `loss` belong to the link. */
lh_status lhi_advice_fill_confidence(lh_advice_question *q, double latency_ms,
                                     double loss, lhi_arena *mem,
                                     lh_error *err);

#endif
