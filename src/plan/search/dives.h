/* SPDX-License-Identifier: Apache-2.0 */
/* Dives: what a plan comes to where one value of one dimension is given. Each
 * begins with the best that the search has seen with that value and goes on to
 * the best of what is near, as long as that helps. What they find may be the
 * best of all, too. */
#ifndef LHI_DIVES_H
#define LHI_DIVES_H

#include "plan/search/candidate.h"

/* After layers were moved: adds what dives find to the candidates, and the best
 * with each value to s->unseen, if it is not NULL. */
lh_status lhi_layout_search_dive(lhi_layout_search *s, lh_error *err);

#endif
