/* SPDX-License-Identifier: Apache-2.0 */
/* What a job's profile measured, in place of what the cost model estimates. */
#ifndef LHI_MEASURED_H
#define LHI_MEASURED_H

#include "cost/shape.h"

/* One thing as measured, for one microbatch. */
typedef struct lhi_measured {
    bool found;
    bool communication;  /* its times include it */
    bool recompute_done; /* D includes what the job recomputes */
    double f_ns, d_ns, w_ns;
    double activation_bytes, static_bytes; /* -1: not measured */
} lhi_measured;

/* Whether an entry is of the job's model, sequence and one of its GPUs, in
 * whatever layout. */
bool lhi_measured_of_job(const lh_job *job, const lh_profile_entry *e);

/* Looks up `kind` (of chunk `chunk` of `of`) in the job's profile: the shape
 * itself, or between the nearest smaller and larger microbatch, in a straight
 * line. Not found: the profile has nothing of that kind, or there is none, or
 * options->estimate_missing. LH_EUNSUPPORTED: it has, but not that shape. */
lh_status lhi_measured_find(const lh_job *job, const lh_layout *layout,
                            const lh_cost_slice *slice,
                            const lh_cost_options *options,
                            lh_profile_kind kind, lhi_measured *out,
                            lh_error *err);

#endif
