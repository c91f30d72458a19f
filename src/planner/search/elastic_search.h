/* SPDX-License-Identifier: Apache-2.0 */
/* Search for elastic plans on every layout whose bound allows a win, least
 * bound first; docs/theory/plan-search.md. */
#ifndef LHI_PLANNER_SEARCH_ELASTIC_SEARCH_H
#define LHI_PLANNER_SEARCH_ELASTIC_SEARCH_H

#include "planner/search/candidate.h"

/* Finds the best elastic plan and returns it in *out, even if a plan of the
 * layout search is better; out->schedule is NULL if there is none. Searches the
 * degrees that are best under other schedules, and with `all` every layout
 * whose bound allows a better plan; the plan's proven bound then covers elastic
 * plans. Release out->built.pipeline and out->schedule. Bounds on all layouts
 * go to s->proven_ns and s->unexplored. Results are also passed to s->front and
 * s->objective. */
lh_status lhi_elastic_search(lhi_layout_search *s, bool all,
                             lhi_elastic_result *out, lh_error *err);

/* Completes an elastic plan's results in *choice: tokens/s, MFU and cost. */
lh_status lhi_elastic_choice_finish(const lhi_layout_search *s,
                                    lh_choice *choice, lh_error *err);

#endif
