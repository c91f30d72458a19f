/* SPDX-License-Identifier: Apache-2.0 */
/* Orders of all machines of a shop ("words" over their streams), timed fast,
 * and improved by annealing. */
#ifndef LHI_WORDS_H
#define LHI_WORDS_H

#include "solve/model/shop.h"
#include "solve/model/budget.h"

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

/* Makes orders by dispatching what is due first; *ok is false where memory
 * then stood in the way. */
lh_status lhi_words_dispatch(lhi_words *words, const int64_t *due, bool *ok,
                             lhi_arena *mem, lh_error *err);

typedef struct lhi_anneal {
    uint64_t seed;
    uint64_t ticks;    /* to spend */
    int64_t target;    /* stop at this objective */
    int64_t hot, cold; /* temperatures, shop time */
} lhi_anneal;

/* Changes `words` (which must be feasible) and leaves the best orders found in
 * `best`, if they beat *best_time. `words` ends wherever it is. */
lh_status lhi_words_anneal(lhi_words *words, lhi_words *best,
                           int64_t *best_time, const lhi_anneal *how,
                           lhi_budget *budget, lhi_arena *mem, lh_error *err);

#endif
