/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 199309L
#include "solve/budget.h"

#include <time.h>

enum { LOOK_EVERY = 4096 };

double lhi_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void lhi_budget_begin(lhi_budget *budget, const lh_solve_options *options)
{
    *budget = (lhi_budget){.options = options, .begin_s = lhi_seconds()};
    budget->now.best_ns = -1;
    budget->now.phase = "starting";
}

static void look(lhi_budget *b)
{
    double now = lhi_seconds() - b->begin_s;
    const lh_solve_options *o = b->options;
    b->next_look = b->used + LOOK_EVERY;
    if (o->time_limit_s > 0 && now >= o->time_limit_s)
        b->stop = b->late = true;
    if (!o->progress || now - b->last_call_s < 0.1)
        return;
    b->last_call_s = now;
    b->now.seconds = now;
    b->now.effort = b->used;
    if (o->progress(o->context, &b->now))
        b->stop = b->late = true;
}

bool lhi_spend(lhi_budget *budget, uint64_t ticks)
{
    budget->used += ticks;
    if (budget->options->effort && budget->used >= budget->options->effort)
        budget->stop = true;
    if (budget->used >= budget->next_look)
        look(budget);
    return budget->stop;
}
