/* SPDX-License-Identifier: Apache-2.0 */
/* How much work a solver may still do, counted in ticks of about 1 us so that
 * a run limited by them alone is the same everywhere; and which engine spent
 * and gained how much. */
#ifndef LHI_BUDGET_H
#define LHI_BUDGET_H

#include "solve/model/engines.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* What an engine did. */
typedef struct lhi_use {
    uint64_t effort; /* ticks */
    uint32_t calls, improved;
    int64_t gained_ns;
} lhi_use;

typedef struct lhi_budget {
    const lh_solve_options *options;
    double begin_s, last_call_s;
    uint64_t used, next_look;
    uint64_t most;          /* ticks; 0: no limit */
    lh_solve_progress now;  /* for the caller's progress */
    bool calls;             /* may call it: on the caller's thread */
    const atomic_bool *end; /* of a part: set by others; may be NULL */
    bool stop;
    bool late;         /* by the clock or the caller's wish, not by effort */
    uint64_t off;      /* engines that are left out: 1 << lhi_engine */
    lhi_engine engine; /* which is at work */
    lhi_use use[LHI_N_ENGINES];
} lhi_budget;

double lhi_seconds(void); /* a steady clock */
void lhi_budget_begin(lhi_budget *budget, const lh_solve_options *options);
/* A budget of at most `most` ticks for a part of the work that may be done on
 * another thread; it also stops when *end is set. */
lhi_budget lhi_budget_part(const lhi_budget *budget, uint64_t most,
                           const atomic_bool *end);
/* Ticks that are left, but no more than `most`. */
uint64_t lhi_budget_left(const lhi_budget *budget, uint64_t most);
/* true: stop, now and from now on. */
bool lhi_spend(lhi_budget *budget, uint64_t ticks);
/* What a part spent and used. */
bool lhi_spend_part(lhi_budget *budget, const lhi_budget *part);
/* The same without work, for one that waits. */
bool lhi_look(lhi_budget *budget);

/* Whether an engine is not left out. */
bool lhi_is_on(const lhi_budget *budget, lhi_engine engine);
/* From now on this one is at work, called once more; returns which was before,
 * for lhi_go_back_to(). */
lhi_engine lhi_call_engine(lhi_budget *budget, lhi_engine engine);
void lhi_go_back_to(lhi_budget *budget, lhi_engine engine);

#endif
