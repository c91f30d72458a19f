/* SPDX-License-Identifier: Apache-2.0 */
/* The plan's file: docs/formats/plan.md. One table per struct lists its keys
 * (format/document/schema.h); lh_plan_parse(), lh_plan_read() and
 * lh_plan_format() use the table of the complete file.
 *     plan_file.c                  complete file, schedule, search
 *     plan_check.c                 redundant values outside choices
 *     pipeline_check.c             choice against pipeline and schedule
 *     elastic_check.c              the same for elastic plans
 *     rebuild_check.c              pipeline against a rebuilt one
 *     choice_file.c                layout and choice
 *     choice_check.c               redundant values in a choice
 *     breakdown_file.c, advice_file.c, curves_file.c, memory_file.c,
 *     cost_file.c, robust_file.c, whatif_file.c
 *                                  optional parts of a plan
 * Hooks, starts and checks of these tables get the lh_plan as their context;
 * its job is set before anything is read. */
#ifndef LHI_PLANNER_FILE_PLAN_FILE_H
#define LHI_PLANNER_FILE_PLAN_FILE_H

#include "format/document/schema.h"

#include <longhaul/experimental/plan.h>

extern const lhi_schema lhi_plan_table;
extern const lhi_schema lhi_choice_table;
extern const lhi_schema lhi_cost_table;   /* lh_plan_cost */
extern const lhi_schema lhi_jitter_table; /* lh_jitter_result */
extern const lhi_schema lhi_robust_table;
extern const lhi_schema lhi_account_table;
extern const lhi_schema lhi_memory_table;
extern const lhi_schema lhi_runner_table;
extern const lhi_schema lhi_curve_table;
extern const lhi_schema lhi_link_advice_table;
extern const lhi_schema lhi_answer_table;
extern const lhi_schema lhi_sensitivity_table;

extern const char
    *const lhi_plan_objective_names[]; /* in the order of lh_plan_objective */

/* Checks that a choice contradicts neither the job nor itself. `map` is its
 * node in the file; `mem` is scratch. */
lh_status lhi_choice_check(const lhi_doc *doc, const lh_job *job,
                           const lhi_node *map, const lh_choice *choice,
                           lhi_arena *mem, lh_error *err);
/* Checks the plan as a whole; the check function of its table. */
lh_status lhi_plan_check(const lhi_read_context *r, const lhi_node *map,
                         void *it, lh_error *err);

/* Checks the plan's own choice against its pipeline and schedule, whose sizes
 * must agree. Calls the two checks below. */
lh_status lhi_check_choice_pipeline(const lhi_doc *doc, const lh_plan *p,
                                    lh_error *err);
/* Checks an elastic plan's groups, shares and buckets against its pipeline's
 * operations. */
lh_status lhi_check_elastic_operations(const lhi_doc *doc, const lh_plan *plan,
                                       lh_error *err);
/* Checks the pipeline against one built again from the choice. */
lh_status lhi_check_rebuilt_pipeline(const lhi_doc *doc, const lh_plan *p,
                                     lh_error *err);

/* Checks the plan's `memory`: every rank occurs once, and the parts add up to
 * its total. */
lh_status lhi_memory_check(const lhi_doc *doc, const lh_plan *p, lh_error *err);

/* Returns how much longer an iteration takes with the plan than with the best
 * one, as a share; or how much more it costs, if the plan is the cheapest. */
double lhi_compute_keeping_loss(const lh_plan *plan,
                                const lh_plan_whatif_answer *answer);
/* Returns the job's value for a range's links, in ms or Gb/s. False: the links
 * have different values. */
bool lhi_range_value(const lh_job *job, const lh_plan_range *range,
                     double *value);

#endif
