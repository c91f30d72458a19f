/* SPDX-License-Identifier: Apache-2.0 */
/* Local search for the best plan per dimension value. Each run starts from the
 * best known candidate with that value and moves to the best neighbour while
 * that improves. The results may also be the overall best. */
#ifndef LHI_PLANNER_SEARCH_LOCAL_SEARCH_H
#define LHI_PLANNER_SEARCH_LOCAL_SEARCH_H

#include "planner/search/candidate.h"

/* Runs the local search for each dimension value's best plan, after layers were
 * moved. Adds its layouts to the candidates, and the best with each value to
 * s->unexplored, if not NULL. */
lh_status lhi_layout_search_run_local_search(lhi_layout_search *s,
                                             lh_error *err);

#endif
