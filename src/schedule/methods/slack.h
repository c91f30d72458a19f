/* SPDX-License-Identifier: Apache-2.0 */
/* Warm-up counts for Adaptra's schedules: the delay that each boundary absorbs.
 */
#ifndef LHI_SCHEDULE_METHODS_SLACK_H
#define LHI_SCHEDULE_METHODS_SLACK_H

#include "schedule/methods/sched.h"

/* Computes the warm-up forwards per device, x[0..n_devices-1], for a pipeline
 * with one chunk per device and split backward. They come from the options or
 * from Adaptra's algorithm 1 or 2, clipped to memory. *cut: memory reduced the
 * algorithm's counts. */
lh_status lhi_slack_compute_warmups(const lh_pipeline *pipeline,
                                    const lh_method_options *options,
                                    uint32_t *x, bool *cut, lh_error *err);
/* The same by algorithm 2 with slackness at least `least`, but reduced in
 * proportion at all boundaries if memory cannot hold the demand. `x` has 2 *
 * n_devices entries; the second half is scratch. */
void lhi_slack_compute_reduced_warmups(const lh_pipeline *pipeline,
                                       uint32_t least, uint32_t *x);

#endif
