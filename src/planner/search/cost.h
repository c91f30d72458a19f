/* SPDX-License-Identifier: Apache-2.0 */
/* Layout cost: docs/theory/plan-choices.md. */
#ifndef LHI_PLANNER_SEARCH_COST_H
#define LHI_PLANNER_SEARCH_COST_H

#include "planner/layout/layout.h"

/* A layout's price, independent of the iteration time. */
typedef struct lhi_layout_price {
    uint32_t gpus;       /* in all used nodes */
    double usd_per_hour; /* all used nodes */
    double between_gb;   /* sent between datacenters per iteration */
    double between_usd;
} lhi_layout_price;

/* Checks whether all datacenters of the job have GPU prices, so that costs can
 * be computed. */
bool lhi_pricing_has_prices(const lh_job *job);

/* Copies the job with the options' prices; *out shares everything else. Data is
 * in `mem`. LH_EINVAL: a price out of range, or a traffic price without GPU
 * prices. */
lh_status lhi_pricing_override_job(const lh_job *job,
                                   const lh_plan_options *options,
                                   lhi_arena *mem, lh_job *out, lh_error *err);

/* Counts the nodes that a layout uses in each datacenter, into nodes[i]: nodes
 * are exclusive, so that one GPU in use occupies its node. */
lh_status lhi_pricing_count_nodes(const lh_job *job, const lh_layout *layout,
                                  lhi_arena *mem, uint32_t *nodes,
                                  lh_error *err);
/* Computes a layout's price: its GPUs per hour and its traffic between
 * datacenters per iteration. */
lh_status lhi_pricing_compute(const lh_job *job, const lhi_config *config,
                              lhi_layout_price *out, lh_error *err);
/* Computes a lower bound on the price of layouts with at least as many chunks
 * as `config`. `partition`: `config` has the layouts' layer partition;
 * otherwise data and expert parallelism traffic only counts if it is the same
 * for every partition. */
lh_status lhi_pricing_compute_bound(const lh_job *job, const lhi_config *config,
                                    bool partition, lhi_layout_price *out,
                                    lh_error *err);
/* Returns an iteration's cost in USD: GPUs for its duration, and traffic
 * between datacenters. */
double lhi_pricing_iteration_usd(const lhi_layout_price *price,
                                 double iteration_ns);

/* Sets the cost in USD of a plan candidate (choice->cost) if the job has prices
 * and the candidate has a time; an existing price is kept and its cost computed
 * for the current time. */
lh_status lhi_pricing_set_choice(const lh_job *job, lhi_arena *mem,
                                 lh_choice *choice, lh_error *err);
/* Sets the cost in USD for the plan and all candidates in its lists. */
lh_status lhi_pricing_fill_plan(lhi_arena *mem, lh_plan *plan, lh_error *err);

#endif
