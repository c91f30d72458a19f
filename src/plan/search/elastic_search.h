/* SPDX-License-Identifier: Apache-2.0 */
/* Elastic plans on every layout that their bound leaves a chance, the least
 * bound first; docs/theory/plan-search.md. */
#ifndef LHI_ELASTIC_SEARCH_H
#define LHI_ELASTIC_SEARCH_H

#include "plan/search/candidate.h"

/* The best elastic plan that it finds into *out, better than what the search
 * has or not; else out->schedule is NULL. On the degrees that do best under
 * other schedules, and with `all` on all that their bounds leave a chance;
 * then what a plan proves has them in it. Release out->built.pipeline and
 * out->schedule. Bounds of what was not searched, and of what was, go to
 * s->proven_ns and s->unseen. What is found is shown to s->front and
 * s->objective. */
lh_status lhi_elastic_search(lhi_layout_search *s, bool all,
                             lhi_elastic_result *out, lh_error *err);

/* What a choice of an elastic plan has beyond its schedule: rates, cost. */
lh_status lhi_elastic_choice_finish(const lhi_layout_search *s,
                                    lh_choice *choice, lh_error *err);

#endif
