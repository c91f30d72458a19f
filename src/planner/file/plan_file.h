/* SPDX-License-Identifier: Apache-2.0 */
/* The plan's file: docs/formats/plan.md. One table per struct lists its keys
 * (format/document/schema.h); lh_plan_parse(), lh_plan_read() and
 * lh_plan_format() use the complete file's table.
 *     plan_file.c                  complete file, schedule, search
 *     plan_check.c                 redundant values outside choices
 *     pipeline_check.c             choice against pipeline and schedule
 *     elastic_check.c              the same for elastic plans
 *     rebuild_check.c              pipeline against a rebuilt one
 *     choice_file.c                layout and choice
 *     choice_check.c               redundant values in a choice
 *     breakdown_file.c, advice_file.c, curves_file.c, memory_file.c,
 *     cost_file.c, idle_file.c, robust_file.c, whatif_file.c
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
extern const lhi_schema lhi_idle_table;
extern const lhi_schema lhi_runner_table;
extern const lhi_schema lhi_curve_table;
extern const lhi_schema lhi_link_advice_table;
extern const lhi_schema lhi_flag_advice_table;
extern const lhi_schema lhi_flag_plan_table;
extern const lhi_schema lhi_answer_table;
extern const lhi_schema lhi_sensitivity_table;

extern const char
    *const lhi_plan_objective_names[]; /* in the order of lh_plan_objective */

/* Checks that a plan candidate (layout with its results) contradicts neither
 * the job nor itself. `map` is its node in the file; `mem` is scratch. */
lh_status lhi_choice_check(const lhi_doc *doc, const lh_job *job,
                           const lhi_node *map, const lh_choice *choice,
                           lhi_arena *mem, lh_error *err);
/* Checks that the parts of a plan that was read do not contradict each other;
 * LH_EINPUT otherwise. Check function for the plan's key table. */
lh_status lhi_plan_check(const lhi_read_context *r, const lhi_node *map,
                         void *it, lh_error *err);

/* Checks the plan's layout and results in a plan file against its pipeline and
 * schedule, whose sizes must agree: devices of chunks, passes, bubble ratio,
 * times and names. */
lh_status lhi_check_choice_pipeline(const lhi_doc *doc, const lh_plan *p,
                                    lh_error *err);
/* Checks that an elastic plan's microbatch groups, sharded shares and bucket
 * numbers equal those of its pipeline's data-parallel operations. */
lh_status lhi_check_elastic_operations(const lhi_doc *doc, const lh_plan *plan,
                                       lh_error *err);
/* Rebuilds the pipeline from the layout and job in a plan file and compares
 * it with the file's pipeline. LH_EINPUT: the file was edited; `err` has
 * the key. */
lh_status lhi_check_rebuilt_pipeline(const lhi_doc *doc, const lh_plan *p,
                                     lh_error *err);

/* Reads the name of one of the plan's datacenters; *out: its index in the job.
 * LH_EINPUT: the job has no datacenter of this name. */
lh_status lhi_plan_read_datacenter(const lhi_read_context *r,
                                   const lhi_node *node, uint32_t *out,
                                   lh_error *err);
/* Checks a plan file's list `idle`: it must have each datacenter with idle
 * GPUs, in order, and their number. LH_EINPUT otherwise. */
lh_status lhi_idle_check(const lhi_doc *doc, const lh_plan *p, lh_error *err);

/* Checks a plan file's list `memory`: every rank occurs once, and its parts add
 * up to its total. LH_EINPUT otherwise. */
lh_status lhi_memory_check(const lhi_doc *doc, const lh_plan *p, lh_error *err);

/* Builds the JSON map of the published runs that show the accuracy of predicted
 * times; NULL if allocation fails. */
json_t *lhi_accuracy_to_json(const lh_validated_runs *runs);

/* Returns how much longer an iteration takes with the unchanged plan than with
 * the best plan for the what-if answer's links, as a fraction; for the cheapest
 * plan, how much more it costs. */
double lhi_compute_keeping_loss(const lh_plan *plan,
                                const lh_plan_whatif_answer *answer);
/* Returns the job's latency in ms or bandwidth in Gb/s on a break-even range's
 * links. False: the links have different values. */
bool lhi_range_value(const lh_job *job, const lh_plan_range *range,
                     double *value);

#endif
