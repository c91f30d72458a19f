/* SPDX-License-Identifier: Apache-2.0 */
/* What layouts cost: docs/theory/plan-choices.md. */
#ifndef LHI_MONEY_H
#define LHI_MONEY_H

#include "plan/layout/layout.h"

/* What a layout costs, whatever its iterations take. */
typedef struct lhi_price {
    uint32_t gpus;       /* of all nodes in use */
    double usd_per_hour; /* of these */
    double between_gb;   /* sent between datacenters in an iteration */
    double between_usd;
} lhi_price;

/* Whether the job says what its GPUs cost. */
bool lhi_money_is_priced(const lh_job *job);

/* The job with the options' prices in place of its own; shares the rest. Lives
 * in `mem`. LH_EINVAL: a price that no job can have, or of bytes alone. */
lh_status lhi_money_job(const lh_job *job, const lh_plan_options *options,
                        lhi_arena *mem, lh_job *out, lh_error *err);

lh_status lhi_money_price(const lh_job *job, const lhi_config *config,
                          lhi_price *out, lh_error *err);
/* Less than any layout costs that adds chunks to this one, or just as much:
 * without data and expert parallelism, unless `whole`. */
lh_status lhi_money_floor(const lh_job *job, const lhi_config *config,
                          bool whole, lhi_price *out, lh_error *err);
/* Of an iteration that takes so long. */
double lhi_money_usd(const lhi_price *price, double iteration_ns);

/* Sets choice->cost, where the job has prices and the choice a time. One that
 * is there already, such as that of an elastic plan, is brought up to date
 * with its time. */
lh_status lhi_money_set(const lh_job *job, lhi_arena *mem, lh_choice *choice,
                        lh_error *err);
/* The same for all choices of a plan. */
lh_status lhi_money_fill(lhi_arena *mem, lh_plan *plan, lh_error *err);

#endif
