/* SPDX-License-Identifier: Apache-2.0 */
/* Operation orders for all machines in a job shop, with fast evaluation. */
#ifndef LHI_SCHEDULE_SOLVER_MODEL_MACHINE_ORDERS_H
#define LHI_SCHEDULE_SOLVER_MODEL_MACHINE_ORDERS_H

#include "schedule/solver/model/budget.h"
#include "schedule/solver/model/job_shop.h"

/* Orders per machine with evaluation state. */
typedef struct lhi_machine_orders {
    const lhi_shop *shop;
    uint32_t **order;                   /* per machine */
    uint32_t *n;                        /* per machine: operations */
    uint32_t *followers_at, *followers; /* machines by leader */
    uint32_t *at;                       /* per operation: position */
    int64_t *end; /* per operation, after lhi_machine_orders_evaluate() */
    /* Copies to host memory, NULL if the job shop has none: the time that each
     * operation takes longer, after lhi_machine_orders_evaluate(); whether an
     * F's activations are in host memory; memory limits without it, per
     * machine. */
    int64_t *copy;
    bool *in_host;
    int64_t *own_limit;
    /* Arcs between machines only. */
    uint32_t *succ_at, *succ, *pred_at, *pred;
    int64_t *succ_lag, *pred_lag;
    uint16_t *waits0, *waits;
    int64_t *ready;
    uint32_t *next, *stack;
} lhi_machine_orders;

/* Allocates machine orders (the order of operations on every machine) for a
 * job shop in `mem`; they are not initialised. */
lh_status lhi_machine_orders_make(const lhi_shop *shop, lhi_arena *mem,
                                  lhi_machine_orders **out, lh_error *err);
/* Runs all operations in their machine orders. Returns the objective in
 * job-shop time, or -1 if the orders deadlock. */
int64_t lhi_machine_orders_evaluate(lhi_machine_orders *orders);
/* Copies the machine orders, without the operations' end times. */
void lhi_machine_orders_copy(lhi_machine_orders *to,
                             const lhi_machine_orders *from);

/* Sets the orders of the machines that follow `leader` (data-parallel links)
 * according to its order. */
void lhi_machine_orders_update_followers(lhi_machine_orders *orders,
                                         uint32_t leader);

#endif
