/* SPDX-License-Identifier: Apache-2.0 */
/* What has to hold for any pipeline and schedule together. */
#ifndef RUN_SCHEDULE_H
#define RUN_SCHEDULE_H

#include <longhaul/pipeline.h>
#include <longhaul/schedule.h>

/* Whether it is worth running: few passes. */
bool fuzz_is_small(const lh_pipeline *p);
/* Judge, simulator under all options, evaluator, bound, analysis: none
 * crashes, and they agree. */
void fuzz_run(const lh_pipeline *p, const lh_schedule *s);
/* Every method makes a schedule that passes fuzz_run(), or says why not. */
void fuzz_methods(const lh_pipeline *p);

#endif
