/* SPDX-License-Identifier: Apache-2.0 */
/* Side by side. What comes in: pipelines, or a plan whose layout has several
 * placements, and out comes what every method makes of them, at every point of
 * a sweep of delays; or two traces of the same passes, and out comes where they
 * differ.
 *
 *     compare.c        who competes, and the whole of it
 *     contend.c        one method on one pipeline
 *     delays.c         pipelines under other delays
 *     trace_compare.c  a measured iteration against its prediction
 *     run_log.c        the iterations of a run's log */
#ifndef LHI_COMPARE_OWN_H
#define LHI_COMPARE_OWN_H

#include "base/arena.h"
#include "base/fail.h"

#include <longhaul/compare.h>

/* What a method competes on. */
typedef struct lhi_contest {
    const lh_pipeline *pipeline, *made_for; /* its schedule is for the latter */
    const lh_schedule *schedule; /* that there is; NULL: the method makes one */
    int64_t bound_ns;            /* no schedule is faster; 0: not known */
    int64_t after_ns;            /* follows the pipeline */
} lhi_contest;

/* One method: the times of *out and what else it comes to, `mem`'s. LH_OK where
 * the method does not suit, too: out->status says so. */
lh_status lhi_contend(const lh_compare_options *how, const char *method,
                      const lhi_contest *on, lhi_arena *mem, lh_outcome *out,
                      lh_error *err);

/* The mean over devices of all forward work of one microbatch. */
int64_t lhi_forward_ns(const lh_pipeline *pipeline);
/* Value `i` for a pipeline with that forward time; -1 where there is none;
 * `delays` may be NULL. */
int64_t lhi_delay_ns(const lh_compare_delays *delays, uint32_t i,
                     int64_t forward_ns);
/* The pipeline with other delays (-1: as they are) on the links between its
 * sites, or on all links where it has no sites. */
lh_status lhi_delayed(const lh_pipeline *pipeline, int64_t latency_ns,
                      int64_t transfer_ns, lh_pipeline **out, lh_error *err);

#endif
