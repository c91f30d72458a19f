/* SPDX-License-Identifier: Apache-2.0 */
/* Comparisons. Input: pipelines, or a plan whose layout allows several
 * placements; output: every method's result on them, at every point of a delay
 * sweep. Or input: two traces of the same passes; output: their differences.
 *
 *     compare.c        the contenders, and the whole comparison
 *     outcome.c        one method on one pipeline
 *     delays.c         pipelines under other delays
 *     trace_compare.c  a measured iteration against its prediction
 *     run_log.c        the iterations in a run's log */
#ifndef LHI_REPORT_COMPARISON_COMPARE_INTERNAL_H
#define LHI_REPORT_COMPARISON_COMPARE_INTERNAL_H

#include "base/arena.h"
#include "base/fail.h"

#include <longhaul/experimental/compare.h>

/* The pipeline and schedule for one method's evaluation. */
typedef struct lhi_compare_case {
    const lh_pipeline *pipeline,
        *schedule_pipeline;      /* made_for: the method's input */
    const lh_schedule *schedule; /* existing one; NULL: the method makes it */
    int64_t bound_ns;            /* known lower bound; 0: none */
    int64_t after_ns;            /* time after the pipeline, e.g. optimizer */
} lhi_compare_case;

/* Evaluates one method and fills in *out; its arrays are allocated in `mem`.
 * Also returns LH_OK if the method does not apply; out->status then holds the
 * cause. */
lh_status lhi_compare_evaluate_method(const lh_compare_options *how,
                                      const char *method,
                                      const lhi_compare_case *on,
                                      lhi_arena *mem, lh_outcome *out,
                                      lh_error *err);

/* Returns the mean time in ns that a device computes forward passes of one
 * microbatch, over all devices (and, with two directions, per direction). */
int64_t lhi_compare_forward_ns(const lh_pipeline *pipeline);
/* Returns sweep value `i` (latency or transfer time) in ns. A relative value is
 * a multiple of `forward_ns`, a microbatch's forward time. -1 if `delays` is
 * NULL or has no value `i`. */
int64_t lhi_compare_delay_ns(const lh_compare_delays *delays, uint32_t i,
                             int64_t forward_ns);
/* Builds a copy of the pipeline with latency latency_ns and transfer time
 * transfer_ns (-1: unchanged) on the links between its datacenters, or on all
 * links if it has none. */
lh_status lhi_compare_build_delayed(const lh_pipeline *pipeline,
                                    int64_t latency_ns, int64_t transfer_ns,
                                    lh_pipeline **out, lh_error *err);

#endif
