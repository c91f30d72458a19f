/* SPDX-License-Identifier: Apache-2.0 */
/* Parametrised dispatching rules: stream priority on each device and maximum
 * activations per chunk. */
#ifndef LHI_SCHEDULE_SOLVER_IMPROVE_RULE_TUNING_H
#define LHI_SCHEDULE_SOLVER_IMPROVE_RULE_TUNING_H

#include "schedule/solver/improve/justification.h"
#include "schedule/solver/model/machine_orders.h"

/* The parameters of the dispatching rule. */
typedef struct lhi_rule_parameters {
    int64_t *offset;   /* per stream: added to its due dates, job-shop time */
    uint32_t *cap;     /* per chunk: max. activations */
    uint32_t patience; /* in quarters: 0 runs the first startable operation, 4
                        * waits for all that could start before it would end */
} lhi_rule_parameters;

/* Tuning options. */
typedef struct lhi_tuning_options {
    uint64_t seed;
    uint64_t ticks; /* to spend */
    int64_t target; /* stop at this objective */
    /* Not NULL: the initial parameters, replaced by the best ones. Steps then
     * change ranges of chunks, and each schedule is compared after
     * justification by `justifier` (may be NULL). */
    lhi_rule_parameters *parameters;
    lhi_justifier *justifier;
} lhi_tuning_options;

/* Allocates the parameters of the dispatching rule in `mem`, with their default
 * values: no offsets, no caps. */
lh_status lhi_rule_parameters_make(const lhi_shop *shop, lhi_arena *mem,
                                   lhi_rule_parameters *out, lh_error *err);

/* Tunes a dispatching rule's parameters by simulated annealing. If better than
 * *best_time (< 0: any), stores the orders in `best` and updates *best_time, as
 * from lhi_machine_orders_evaluate(). */
lh_status lhi_rule_tuning_run(lhi_machine_orders *best, int64_t *best_time,
                              const lhi_tuning_options *how, lhi_budget *budget,
                              lhi_arena *mem, lh_error *err);

#endif
