/* SPDX-License-Identifier: Apache-2.0 */
/* Closed-form lower bounds on the makespan. Proofs: docs/theory/bounds.md. */
#ifndef LHI_SCHEDULE_SOLVER_BOUND_CLOSED_FORMS_H
#define LHI_SCHEDULE_SOLVER_BOUND_CLOSED_FORMS_H

#include <longhaul/experimental/bounds.h>

/* Computes the largest closed-form lower bound on the iteration time. It is
 * valid for schedules with whole or split W, joint B or D and W, any message
 * order, and every data path in lh_sim_options. Time O(chunks + links). */
lh_status lhi_compute_closed_form_bound(const lh_pipeline *pipeline,
                                        lh_bound *out, lh_error *err);

#endif
