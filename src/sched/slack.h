/* SPDX-License-Identifier: Apache-2.0 */
/* Warm-up counts of Adaptra's schedules: how much delay each boundary absorbs.
 */
#ifndef LHI_SLACK_H
#define LHI_SLACK_H

#include "sched/sched.h"

/* The warm-up forwards of each device, x[0..n_devices-1], of a UD pipeline
 * with split backward: as given, else by Adaptra's algorithm 1 or 2, clipped to
 * what memory holds. *cut: the algorithm's counts were more than that. */
lh_status lhi_slack_warmups(const lh_pipeline *pipeline,
                            const lh_method_options *options, uint32_t *x,
                            bool *cut, lh_error *err);
/* The same by algorithm 2, with no less slackness than `least`, but with all
 * boundaries cut in proportion where memory does not hold what delays ask for.
 * `x` has room for twice as many; the second half is used up. */
void lhi_slack_share(const lh_pipeline *pipeline, uint32_t least, uint32_t *x);

#endif
