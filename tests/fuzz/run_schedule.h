/* SPDX-License-Identifier: Apache-2.0 */
/* Properties that must hold for every pipeline and schedule. */
#ifndef RUN_SCHEDULE_H
#define RUN_SCHEDULE_H

#include <longhaul/pipeline.h>
#include <longhaul/schedule.h>

/* Checks whether the pipeline is small enough to run (few devices, links and
 * passes). */
bool fuzz_is_small(const lh_pipeline *p);
/* Runs the verifier, the simulator under several options, the evaluator, the
 * lower bound and the analysis. None may crash, and their results must agree.
 */
void fuzz_run(const lh_pipeline *p, const lh_schedule *s);
/* Runs every method. Each must either return an error with a message, or a
 * valid schedule that passes fuzz_run(). */
void fuzz_methods(const lh_pipeline *p);

#endif
