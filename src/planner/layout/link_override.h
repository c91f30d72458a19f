/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs with overridden link values. */
#ifndef LHI_PLANNER_LAYOUT_LINK_OVERRIDE_H
#define LHI_PLANNER_LAYOUT_LINK_OVERRIDE_H

#include "base/arena.h"

#include <longhaul/experimental/plan.h>

/* Builds a job with changed links: *out shares all but links and profile with
 * `job`, which must outlive it; new data is in `mem`. Profile measurements on a
 * link scale with the job's link values. LH_EINVAL: a value outside a job
 * file's limits. */
lh_status lhi_job_override_links(const lh_job *job,
                                 const lh_link_change *changes,
                                 uint32_t n_changes, lhi_arena *mem,
                                 lh_job *out, lh_error *err);

/* Copies a placement of stages and replicas in datacenters into `mem`. */
lh_status lhi_copy_sites(const lh_sites *sites, lhi_arena *mem,
                         const lh_sites **out, lh_error *err);

/* Builds a plan candidate's pipeline for `job`, which has other links than
 * `before`. `pipeline`: its pipeline for `before`. *after_ns: time after the
 * pipeline in an iteration. Release with lh_pipeline_free(). */
lh_status lhi_pipeline_override_links(const lh_job *before, const lh_job *job,
                                      const lh_choice *choice,
                                      const lh_pipeline *pipeline,
                                      lhi_arena *mem, lh_pipeline **out,
                                      int64_t *after_ns, lh_error *err);

#endif
