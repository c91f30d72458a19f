/* SPDX-License-Identifier: Apache-2.0 */
/* Diagnoses jobs without any working layout: finds the key that prevents all.
 */
#ifndef LHI_PLANNER_SEARCH_INFEASIBLE_KEY_H
#define LHI_PLANNER_SEARCH_INFEASIBLE_KEY_H

#include "planner/search/candidate.h"

/* Checks by quick evaluations whether any layout of `job` works. Uses the
 * search options in `s`. *found: one works, and *at is then the best. */
lh_status lhi_layout_search_has_any(const lhi_layout_search *s,
                                    const lh_job *job, lhi_config *at,
                                    bool *found, lh_error *err);

/* Capacity for lhi_find_infeasible_key()'s text, in bytes. */
enum { LHI_INFEASIBLE_KEY_TEXT = 160 };

/* Finds a key of the job that alone prevents all layouts, and formats ";
 * without layout.pipeline: 9 one works (tensor 1, pipeline 4, data 4)". Empty:
 * there is none. */
lh_status lhi_find_infeasible_key(const lhi_layout_search *s,
                                  char text[LHI_INFEASIBLE_KEY_TEXT],
                                  lh_error *err);

#endif
