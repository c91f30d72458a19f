/* SPDX-License-Identifier: Apache-2.0 */
/* The stable API from a job to its execution:
 *
 *     #include <longhaul.h>
 *
 *     #include <inttypes.h>
 *     #include <stdio.h>
 *
 *     int main(int argc, char **argv)
 *     {
 *         lh_error err = {LH_EINVAL, "usage: example JOB"};
 *         lh_job *job = NULL;
 *         lh_plan *plan = NULL;
 *         lh_scheduler_result best = {0};
 *         lh_timeline *timeline = NULL;
 *         lh_verdict *verdict = NULL;
 *         lh_train_result *run = NULL;
 *         const lh_pipeline *pipeline;
 *         int ok;
 *         ok = argc == 2 && !lh_job_read(argv[1], &job, &err) &&
 *              !lh_plan_make(job, NULL, &plan, &err);
 *         pipeline = ok ? lh_plan_best_pipeline(plan) : NULL;
 *         ok = ok &&
 *              !lh_scheduler_run("auto", pipeline, NULL, &best, &err) &&
 *              !lh_simulate(pipeline, best.schedule, NULL, &timeline,
 *                           &err) &&
 *              !lh_check(pipeline, best.schedule, &verdict, &err) &&
 *              !lh_train_plan(plan, NULL, &run, &err);
 *         if (ok)
 *             printf("plan: %" PRId64 " ns on %" PRIu32 " GPUs\n"
 *                    "%s: %" PRId64 " ns, %s\n"
 *                    "measured / predicted: %.3f\n",
 *                    lh_plan_iteration_ns(plan), lh_plan_gpus(plan),
 *                    best.method, lh_timeline_makespan(timeline),
 *                    lh_verdict_valid(verdict) ? "valid" : "invalid",
 *                    (double)lh_train_median_ns(run) /
 *                        (double)lh_train_predicted_ns(run));
 *         else
 *             fprintf(stderr, "%s\n", err.text);
 *         lh_train_result_free(run);
 *         lh_verdict_free(verdict);
 *         lh_timeline_free(timeline);
 *         lh_scheduler_result_fini(&best);
 *         lh_plan_free(plan);
 *         lh_job_free(job);
 *         return !ok;
 *     }
 *
 * Build it with `cc example.c $(pkg-config --cflags --libs longhaul)`.
 *
 * Guarantees for this header and the headers that it includes:
 *
 * - Versions follow semantic versioning. Within a major version, programs that
 *   use only this header compile, and run with a newer library without
 *   recompilation. Before 1.0, the minor version replaces the major
 *   one. lh_version() returns the library's version.
 * - lh_job, lh_plan, lh_pipeline, lh_schedule, lh_timeline, lh_verdict and
 *   lh_train_result are opaque.
 * - Structs that begin with `size` grow at their end. Set `size` to the
 *   struct's sizeof; 0 in every other member is the default. Structs of an
 *   older or newer header are accepted.
 * - Structs that the library passes by pointer to one element (lh_iteration)
 *   grow at their end. All other structs keep their layout.
 * - Enumerators keep their values, and new ones may be added. Scheduler names
 *   keep their meaning. Predictions, searches and messages may
 *   change: the same input gives the same output in one version only.
 * - File formats have separate versions (docs/formats/README.md).
 * - Units: times are int64_t nanoseconds and end in _ns, memory is bytes unless
 *   the pipeline has another unit.
 * - Ownership: each `lh_thing **out` is released by lh_thing_free(), each text
 *   by lh_text_free(). Borrowed pointers are const and valid as long as the
 *   object that returned them.
 * - Threads: immutable objects may be used by several threads at once. The
 *   library has no mutable global state.
 * - Errors: a function that can fail returns lh_status and describes the error
 *   in `err`. Its outputs are then unchanged. The library prints nothing and
 *   never exits.
 *
 * Pointers to structs that are only declared here, and headers below
 * longhaul/experimental/, are experimental: they may change in any release. */
#ifndef LONGHAUL_H
#define LONGHAUL_H

#include <longhaul/check.h>
#include <longhaul/export.h>
#include <longhaul/job.h>
#include <longhaul/pipeline.h>
#include <longhaul/plan.h>
#include <longhaul/schedule.h>
#include <longhaul/scheduler.h>
#include <longhaul/simulate.h>
#include <longhaul/status.h>
#include <longhaul/train.h>

#endif
