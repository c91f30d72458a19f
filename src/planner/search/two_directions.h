/* SPDX-License-Identifier: Apache-2.0 */
/* The search over layouts with two directions (placement BD). */
#ifndef LHI_PLANNER_SEARCH_TWO_DIRECTIONS_H
#define LHI_PLANNER_SEARCH_TWO_DIRECTIONS_H

#include "planner/search/candidate.h"

/* Checks whether plans of the job have two directions: its schedule requires
 * them, and neither the job (by its chunks per device or framework) nor the
 * options exclude them. Without such a schedule, plans have one direction: no
 * other program runs plans with two, and a V placement on half the stages with
 * twice the replicas is never slower. */
bool lhi_two_directions_are_searched(const lh_job *job,
                                     const lh_plan_options *options);
/* Searches the layouts with two directions and appends them to the search's
 * candidates; lowers s->proven_ns to their bounds. Call it after all other
 * searches, whose best result prunes. */
lh_status lhi_layout_search_add_two_directions(lhi_layout_search *s,
                                               lh_error *err);

#endif
