/* SPDX-License-Identifier: Apache-2.0 */
/* Layout cost: docs/theory/plan-choices.md. */
#ifndef LHI_PLANNER_SEARCH_COST_H
#define LHI_PLANNER_SEARCH_COST_H

#include "planner/layout/layout.h"

/* Price of a layout, independent of the iteration time. */
typedef struct lhi_layout_price {
    uint32_t gpus;       /* in all used nodes */
    double usd_per_hour; /* all used nodes */
    double between_gb;   /* sent between datacenters per iteration */
    double between_usd;
} lhi_layout_price;

/* Checks whether the job has GPU prices. */
bool lhi_pricing_has_prices(const lh_job *job);

/* Returns the job with the options' prices; shares all else. Data is in `mem`.
 * LH_EINVAL: a price out of range, or one of traffic alone. */
lh_status lhi_pricing_override_job(const lh_job *job,
                                   const lh_plan_options *options,
                                   lhi_arena *mem, lh_job *out, lh_error *err);

/* Computes a layout's price. */
lh_status lhi_pricing_compute(const lh_job *job, const lhi_config *config,
                              lhi_layout_price *out, lh_error *err);
/* Computes a lower bound on the price of layouts with more chunks: without data
 * and expert parallelism, unless `whole`. */
lh_status lhi_pricing_compute_bound(const lh_job *job, const lhi_config *config,
                                    bool whole, lhi_layout_price *out,
                                    lh_error *err);
/* Returns an iteration's cost. */
double lhi_pricing_iteration_usd(const lhi_layout_price *price,
                                 double iteration_ns);

/* Sets choice->cost if the job has prices and the choice a time. Updates an
 * existing cost, as in elastic plans, for the current time. */
lh_status lhi_pricing_set_choice(const lh_job *job, lhi_arena *mem,
                                 lh_choice *choice, lh_error *err);
/* The same for all choices of a plan. */
lh_status lhi_pricing_fill_plan(lhi_arena *mem, lh_plan *plan, lh_error *err);

#endif
