/* SPDX-License-Identifier: Apache-2.0 */
/* Parametrised dispatching rules: stream priority on each device and maximum
 * activations per chunk. */
#ifndef LHI_SCHEDULE_SOLVER_IMPROVE_RULE_TUNING_H
#define LHI_SCHEDULE_SOLVER_IMPROVE_RULE_TUNING_H

#include "schedule/solver/model/machine_orders.h"

/* Tuning options. */
typedef struct lhi_tuning_options {
    uint64_t seed;
    uint64_t ticks; /* to spend */
    int64_t target; /* stop at this objective */
} lhi_tuning_options;

/* Tunes a dispatching rule's parameters by simulated annealing. If better than
 * *best_time (< 0: any), stores the orders in `best` and updates *best_time, as
 * from lhi_machine_orders_evaluate(). */
lh_status lhi_rule_tuning_run(lhi_machine_orders *best, int64_t *best_time,
                              const lhi_tuning_options *how, lhi_budget *budget,
                              lhi_arena *mem, lh_error *err);

#endif
