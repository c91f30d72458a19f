/* SPDX-License-Identifier: Apache-2.0 */
/* Why a plan takes as long as it does, and what comes next. What this room
 * adds to a plan that is found already, each by a function of its own that
 * fills one member of lh_plan:
 *
 *   account.c   where the time of an iteration goes
 *   rank_memory.h   where the memory goes
 *   runners.c   the best plan that differs in one dimension
 *   advise.h    what the links should be set to
 *   curves.h    pipelines or replicas over datacenters, as something changes
 *   whatif.h    the plan, and the best one, where the links are others
 *   unmeasured.h   what the layouts take that the job's profile measured
 *   flip.h      how far links may change until another layout is best */
#ifndef LHI_ACCOUNT_H
#define LHI_ACCOUNT_H

#include "plan/search/unseen.h"

/* Fills plan->account. */
lh_status lhi_plan_account(const lh_job *job, const lh_plan_options *options,
                           lhi_arena *mem, lh_plan *plan, lh_error *err);

/* Fills plan->runners from plan->methods and plan->alternatives, which should
 * be all there are but for what is in `unseen`. Alternatives that only have a
 * bound are simulated where that decides, and are changed then. */
lh_status lhi_plan_runners(const lh_job *job, const lh_plan_options *options,
                           lhi_arena *mem, const lhi_unseen *unseen,
                           lh_plan *plan, lh_error *err);
/* Whether runners-up may differ in what is called so. */
bool lhi_dimension_known(const char *name);

#endif
