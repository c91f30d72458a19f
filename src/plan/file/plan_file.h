/* SPDX-License-Identifier: Apache-2.0 */
/* The plan's file: docs/formats/plan.md. A table for each struct says its keys
 * once (doc/fields.h); lh_plan_parse(), lh_plan_read() and lh_plan_format()
 * follow from the table of the whole.
 *
 * plan_file.c: the whole, its schedule and its search. plan_check.c: what the
 * whole says twice; built_check.c: what its pipeline and schedule say of its
 * choice, elastic_check.c of an elastic one, rebuilt_check.c what the pipeline
 * was built from. choice_file.c: a layout and a choice; choice_check.c: what a
 * choice says twice. account_file.c, advice_file.c, curves_file.c,
 * memory_file.c, money_file.c, robust_file.c, whatif_file.c: the parts that a
 * plan may lack.
 *
 * Hooks, starts and checks of these tables get the lh_plan as their context;
 * its job is there before anything is read. */
#ifndef LHI_PLAN_FILE_H
#define LHI_PLAN_FILE_H

#include "doc/fields.h"

#include <longhaul/plan.h>

extern const lhi_table lhi_plan_table;
extern const lhi_table lhi_choice_table;
extern const lhi_table lhi_cost_table;   /* lh_plan_cost */
extern const lhi_table lhi_jitter_table; /* lh_jitter_result */
extern const lhi_table lhi_robust_table;
extern const lhi_table lhi_account_table;
extern const lhi_table lhi_memory_table;
extern const lhi_table lhi_runner_table;
extern const lhi_table lhi_curve_table;
extern const lhi_table lhi_link_advice_table;
extern const lhi_table lhi_answer_table;
extern const lhi_table lhi_sensitivity_table;

extern const char *const lhi_plan_goals[]; /* as lh_plan_goal numbers them */

/* Whether a choice says nothing that contradicts the job, or itself; `map` is
 * where it stands; what `mem` is used for is over at the end. */
lh_status lhi_choice_check(const lhi_doc *doc, const lh_job *job,
                           const lhi_node *map, const lh_choice *choice,
                           lhi_arena *mem, lh_error *err);
/* The same of the plan as a whole: the check of its table. */
lh_status lhi_plan_check(const lhi_reading *r, const lhi_node *map, void *it,
                         lh_error *err);

/* Its own choice against its pipeline and schedule, whose sizes agree. The
 * others are parts of it: an elastic plan's groups, shares and buckets against
 * its pipeline's operations; and the pipeline against what the choice comes
 * to, built again. */
lh_status lhi_built_check(const lhi_doc *doc, const lh_plan *p, lh_error *err);
lh_status lhi_elastic_ops_check(const lhi_doc *doc, const lh_plan *plan,
                                lh_error *err);
lh_status lhi_rebuilt_check(const lhi_doc *doc, const lh_plan *p,
                            lh_error *err);

/* Of its `memory`: every rank once, and parts that add up to what it holds. */
lh_status lhi_memory_check(const lhi_doc *doc, const lh_plan *p, lh_error *err);

/* How much longer an iteration takes with the plan than with the best one, or
 * how much more it costs, if the plan is the cheapest; as a share. */
double lhi_keeping(const lh_plan *plan, const lh_plan_answer *answer);
/* What the job says of a range's links, in ms or Gb/s; false: they differ. */
bool lhi_range_value(const lh_job *job, const lh_plan_range *range,
                     double *value);

#endif
