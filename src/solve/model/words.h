/* SPDX-License-Identifier: Apache-2.0 */
/* Orders of all machines of a shop ("words" over their streams), timed fast. */
#ifndef LHI_WORDS_H
#define LHI_WORDS_H

#include "solve/model/budget.h"
#include "solve/model/shop.h"

typedef struct lhi_words {
    const lhi_shop *shop;
    uint32_t **order;                   /* per machine */
    uint32_t *n;                        /* its operations */
    uint32_t *followers_at, *followers; /* machines by leader */
    uint32_t *at;                       /* position of each operation */
    int64_t *end; /* of each operation, after lhi_words_time() */
    /* Arcs between machines only. */
    uint32_t *succ_at, *succ, *pred_at, *pred;
    int64_t *succ_lag, *pred_lag;
    uint16_t *waits0, *waits;
    int64_t *ready;
    uint32_t *next, *stack;
} lhi_words;

lh_status lhi_words_make(const lhi_shop *shop, lhi_arena *mem, lhi_words **out,
                         lh_error *err);
/* The objective in shop time, or -1: the orders wait for each other. */
int64_t lhi_words_time(lhi_words *words);
/* Copies the orders of one into the other. */
void lhi_words_copy(lhi_words *to, const lhi_words *from);

/* Orders the machines that follow this one as it is ordered. */
void lhi_words_follow(lhi_words *words, uint32_t leader);

#endif
