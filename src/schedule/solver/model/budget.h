/* SPDX-License-Identifier: Apache-2.0 */
/* Work budget for the solver, in ticks of about 1 us, so that a run limited by
 * ticks alone is reproducible. Also counts each engine's work and improvements.
 */
#ifndef LHI_SCHEDULE_SOLVER_MODEL_BUDGET_H
#define LHI_SCHEDULE_SOLVER_MODEL_BUDGET_H

#include "schedule/solver/model/engines.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Statistics per engine. */
typedef struct lhi_engine_statistics {
    uint64_t effort; /* ticks */
    uint32_t calls, improved;
    int64_t gained_ns;
} lhi_engine_statistics;

/* Limits of a budget; 0: none. */
typedef struct lhi_budget_limits {
    uint64_t ticks;
    double seconds; /* since the budget's begin */
} lhi_budget_limits;

/* A work budget with time limit, stop flag and statistics. */
typedef struct lhi_budget {
    const lh_solve_options *options;
    double begin_s, last_call_s;
    uint64_t used, next_check;
    lhi_budget_limits limits;
    lh_solve_progress now; /* for the caller's progress */
    bool may_report;       /* may call it: on the caller's thread */
    /* part only: stop flag set by others; may be NULL */
    const atomic_bool *end;
    bool stop;
    bool timed_out;            /* stopped by clock or caller, not by effort */
    bool cancelled;            /* stopped by the caller */
    uint64_t disabled_engines; /* disabled engines: 1 << lhi_engine */
    lhi_engine engine;         /* engine currently running */
    lhi_engine_statistics use[LHI_N_ENGINES];
} lhi_budget;

/* Returns the monotonic clock's time, in seconds. */
double lhi_seconds(void);
/* Starts a budget of search work and time, with the limits, callback and
 * disabled engines in the solver options. */
void lhi_budget_begin(lhi_budget *budget, const lh_solve_options *options);
/* Returns a budget of at most `most` ticks (units of search work) for work
 * that may run on another thread; it also stops when *end is set. */
lhi_budget lhi_budget_make_part(const lhi_budget *budget, uint64_t most,
                                const atomic_bool *end);
/* Limits the budget to 1/n of its remaining ticks (units of search work) and
 * time. Returns the previous limits, for lhi_budget_end_share(). */
lhi_budget_limits lhi_budget_begin_share(lhi_budget *budget, uint32_t n);
/* Restores the limits from before lhi_budget_begin_share(); returns whether the
 * share was used up. Then budget->stop is set only if the whole budget is used
 * up, or stopped by the caller. */
bool lhi_budget_end_share(lhi_budget *budget, lhi_budget_limits before);
/* Returns the remaining ticks (units of search work), at most `most`. */
uint64_t lhi_budget_get_remaining(const lhi_budget *budget, uint64_t most);
/* Spends ticks (units of search work); true: the budget is used up or stopped,
 * and the caller has to stop. */
bool lhi_budget_spend(lhi_budget *budget, uint64_t ticks);
/* Adds the used ticks (units of search work) and statistics of the partial
 * budget `part` to `budget`; returns whether `budget` is then used up. */
bool lhi_budget_merge_part(lhi_budget *budget, const lhi_budget *part);
/* Checks whether the time limit is exceeded, without spending ticks. */
bool lhi_budget_check_time(lhi_budget *budget);

/* Checks whether the options enable a search engine. */
bool lhi_budget_is_engine_enabled(const lhi_budget *budget, lhi_engine engine);
/* Counts ticks spent from now on for a search engine, and counts this call of
 * it. Returns the previous engine, for lhi_budget_restore_engine(). */
lhi_engine lhi_budget_enter_engine(lhi_budget *budget, lhi_engine engine);
/* Counts later ticks for the search engine `engine` again, which was current
 * before. */
void lhi_budget_restore_engine(lhi_budget *budget, lhi_engine engine);

#endif
