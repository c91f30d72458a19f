/* SPDX-License-Identifier: Apache-2.0 */
/* A plan and what it owns. */
#ifndef LHI_PLAN_OWN_H
#define LHI_PLAN_OWN_H

#include "base/arena.h"
#include "doc/doc.h"

#include <jansson.h>
#include <longhaul/plan.h>

/* The public part first: an lh_plan is always one of these. */
typedef struct lhi_plan {
    lh_plan plan;
    lhi_arena *mem;
    lh_job *job;
    lh_pipeline *pipeline;
    lh_schedule *schedule;
} lhi_plan;

extern const char *const lhi_choice_status_names[], *const lhi_plan_by_names[];

/* How far the makespan is above the bound for this layout, as a share of that
 * bound; 0: optimal. */
double lhi_choice_gap(const lh_choice *choice);

/* `jitter` of a choice and `robust` of a plan. */
json_t *lhi_jitter_to_json(const lh_jitter_result *result);
lh_status lhi_jitter_from_node(const lhi_doc *doc, const lhi_node *map,
                               lhi_arena *mem, const lh_jitter_result **out,
                               lh_error *err);
json_t *lhi_robust_to_json(const lh_plan_robust *robust);
lh_status lhi_robust_from_node(const lhi_doc *doc, const lhi_node *map,
                               lhi_arena *mem, const lh_plan_robust **out,
                               lh_error *err);

/* One choice in the plan's file. */
/* NULL: no memory. */
json_t *lhi_choice_to_json(const lh_job *job, const lh_choice *choice);
/* Reading needs plan->job. */
lh_status lhi_choice_from_node(const lhi_doc *doc, lhi_plan *plan,
                               const lhi_node *map, lh_choice *out,
                               lh_error *err);

/* Whether a choice says nothing that contradicts the job, or itself; `map` is
 * where it stands. */
lh_status lhi_choice_check(const lhi_doc *doc, const lh_job *job,
                           const lhi_node *map, const lh_choice *choice,
                           lh_error *err);
/* The same of the plan as a whole. */
lh_status lhi_plan_check(const lhi_doc *doc, const lhi_plan *plan,
                         lh_error *err);

/* Objective and front, where they are not the usual ones. */
bool lhi_front_to_json(const lh_plan *plan, json_t *map);
lh_status lhi_front_from_doc(const lhi_doc *doc, lhi_plan *plan, lh_error *err);

json_t *lhi_cost_to_json(const lh_plan_cost *cost);
lh_status lhi_cost_from_node(const lhi_doc *doc, const lhi_node *map,
                             lhi_arena *mem, const lh_plan_cost **out,
                             lh_error *err);

/* Answers and sensitivity, where the plan has any (whatif_file.c). Reading
 * needs plan->job. */
bool lhi_links_to_json(const lh_plan *plan, json_t *map);
lh_status lhi_links_from_doc(const lhi_doc *doc, lhi_plan *plan, lh_error *err);
/* How much longer an iteration takes with the plan than with the best one, or
 * how much more it costs, if the plan is the cheapest; as a share. */
double lhi_keeping(const lh_plan *plan, const lh_plan_answer *answer);
/* What the job says of a range's links, in ms or Gb/s; false: they differ. */
bool lhi_range_value(const lh_job *job, const lh_plan_range *range,
                     double *value);

/* `curves`, which plans may lack. */
json_t *lhi_curves_to_json(const lh_plan *plan);
lh_status lhi_curves_from_root(const lhi_doc *doc, lhi_arena *mem,
                               lh_plan *plan, lh_error *err);

/* `network` and `network_iteration_s`, which plans may lack. */
json_t *lhi_network_to_json(const lh_plan *plan);
lh_status lhi_network_from_root(const lhi_doc *doc, lhi_arena *mem,
                                lh_plan *plan, lh_error *err);

/* `account` and `runners_up`, which plans may lack. Reading needs plan->job. */
bool lhi_account_to_json(const lh_plan *plan, json_t *map);
lh_status lhi_account_from_root(const lhi_doc *doc, lhi_plan *plan,
                                lh_error *err);

#endif
