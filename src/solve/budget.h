/* SPDX-License-Identifier: Apache-2.0 */
/* How much work a solver may still do, counted in ticks of about 1 us so that
 * a run limited by them alone is the same everywhere. */
#ifndef LHI_BUDGET_H
#define LHI_BUDGET_H

#include <longhaul/solve.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct lhi_budget {
    const lh_solve_options *options;
    double begin_s, last_call_s;
    uint64_t used, next_look;
    lh_solve_progress now; /* for the caller's progress */
    bool stop;
    bool late; /* by the clock or the caller's wish, not by effort */
} lhi_budget;

double lhi_seconds(void); /* a steady clock */
void lhi_budget_begin(lhi_budget *budget, const lh_solve_options *options);
/* true: stop, now and from now on. */
bool lhi_spend(lhi_budget *budget, uint64_t ticks);

#endif
