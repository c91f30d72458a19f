/* SPDX-License-Identifier: Apache-2.0 */
/* Operation orders for all machines in a job shop, with fast evaluation. */
#ifndef LHI_WORDS_H
#define LHI_WORDS_H

#include "solve/model/budget.h"
#include "solve/model/shop.h"

/* Orders per machine with evaluation state. */
typedef struct lhi_words {
    const lhi_shop *shop;
    uint32_t **order;                   /* per machine */
    uint32_t *n;                        /* per machine: operations */
    uint32_t *followers_at, *followers; /* machines by leader */
    uint32_t *at;                       /* per operation: position */
    int64_t *end; /* per operation, after lhi_machine_orders_evaluate() */
    /* Arcs between machines only. */
    uint32_t *succ_at, *succ, *pred_at, *pred;
    int64_t *succ_lag, *pred_lag;
    uint16_t *waits0, *waits;
    int64_t *ready;
    uint32_t *next, *stack;
} lhi_words;

/* Allocates orders for a job shop in `mem`; they are not initialised. */
lh_status lhi_words_make(const lhi_shop *shop, lhi_arena *mem, lhi_words **out,
                         lh_error *err);
/* Returns the objective in job-shop time, or -1 if the orders deadlock. */
int64_t lhi_words_time(lhi_words *words);
/* Copies the orders, without end times. */
void lhi_words_copy(lhi_words *to, const lhi_words *from);

/* Orders the machines that follow `leader` in accordance with it. */
void lhi_words_follow(lhi_words *words, uint32_t leader);

#endif
