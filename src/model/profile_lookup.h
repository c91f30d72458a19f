/* SPDX-License-Identifier: Apache-2.0 */
/* Measurements from a job's profile that replace the cost model's estimates. */
#ifndef LHI_MODEL_PROFILE_LOOKUP_H
#define LHI_MODEL_PROFILE_LOOKUP_H

#include "model/shape.h"

/* One part's measurement, per microbatch. */
typedef struct lhi_measurement {
    bool found;
    bool communication;  /* times include communication */
    bool recompute_done; /* D includes the job's recomputation */
    double f_ns, d_ns, w_ns;
    double activation_bytes, static_bytes; /* -1: not measured */
} lhi_measurement;

/* Checks whether a profile entry matches the job's model, sequence length and
 * one of its GPU types, for any layout. */
bool lhi_measurement_matches_job(const lh_job *job, const lh_profile_entry *e);

/* Looks up the measurement of a profile kind (layer, embedding, head, or a
 * chunk of the range) in the job's profile. Uses the exact shape, or
 * interpolates linearly between the nearest smaller and larger microbatch.
 * out->found is false if the profile has nothing of that kind, if there is no
 * profile, or with options->estimate_missing. LH_EUNSUPPORTED: the kind was
 * measured, but not in this shape. */
lh_status lhi_measurement_find(const lh_job *job, const lh_layout *layout,
                               const lh_cost_layer_range *slice,
                               const lh_cost_options *options,
                               lh_profile_kind kind, lhi_measurement *out,
                               lh_error *err);

#endif
