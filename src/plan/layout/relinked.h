/* SPDX-License-Identifier: Apache-2.0 */
/* A job whose links have other values. */
#ifndef LHI_RELINKED_H
#define LHI_RELINKED_H

#include "base/arena.h"

#include <longhaul/plan.h>

/* Shares all but links and profile with `job`, which has to outlive it; the
 * rest is in `mem`. What a profile has measured on a link scales as the job's
 * own values do. LH_EINVAL: a value that no job can have. */
lh_status lhi_changed_job(const lh_job *job, const lh_link_change *changes,
                          uint32_t n_changes, lhi_arena *mem, lh_job *out,
                          lh_error *err);

lh_status lhi_copy_sites(const lh_sites *sites, lhi_arena *mem,
                         const lh_sites **out, lh_error *err);

/* The choice's pipeline, its layout being built for `job`, a changed one, from
 * `pipeline`, which is the choice's for `before`. *after_ns: what follows it in
 * an iteration. Release with lh_pipeline_free(). */
lh_status lhi_changed_pipeline(const lh_job *before, const lh_job *job,
                               const lh_choice *choice,
                               const lh_pipeline *pipeline, lhi_arena *mem,
                               lh_pipeline **out, int64_t *after_ns,
                               lh_error *err);

#endif
