/* SPDX-License-Identifier: Apache-2.0 */
/* Simulated annealing on all machines' orders. */
#ifndef LHI_SCHEDULE_SOLVER_IMPROVE_ANNEALING_H
#define LHI_SCHEDULE_SOLVER_IMPROVE_ANNEALING_H

#include "schedule/solver/model/machine_orders.h"

/* Annealing options. */
typedef struct lhi_annealing_options {
    uint64_t seed;
    uint64_t ticks;    /* to spend */
    int64_t target;    /* stop at this objective */
    int64_t hot, cold; /* temperatures, job-shop time */
} lhi_annealing_options;

/* Improves machine orders by simulated annealing from `orders`, which must be
 * feasible and is left at the last state. If a better objective than
 * *best_time is found, stores the orders in `best` and updates *best_time. */
lh_status lhi_annealing_run(lhi_machine_orders *orders,
                            lhi_machine_orders *best, int64_t *best_time,
                            const lhi_annealing_options *how,
                            lhi_budget *budget, lhi_arena *mem, lh_error *err);

#endif
