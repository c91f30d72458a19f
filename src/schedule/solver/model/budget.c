/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 199309L
#include "schedule/solver/model/budget.h"

#include <string.h>
#include <time.h>

/* Work units between two checks of the clock and the stop request. */
enum { TICKS_PER_CHECK = 4096 };

double lhi_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Checks whether the budget's ticks are used up. */
static bool is_over(const lhi_budget *budget)
{
    return budget->limits.ticks > 0 && budget->used >= budget->limits.ticks;
}

void lhi_budget_begin(lhi_budget *budget, const lh_solve_options *options)
{
    *budget = (lhi_budget){
        .options = options,
        .begin_s = lhi_seconds(),
        .limits = {.ticks = options->effort, .seconds = options->time_limit_s},
        .may_report = true};
    budget->now.best_ns = -1;
    budget->now.phase = "starting";
}

lhi_budget lhi_budget_make_part(const lhi_budget *budget, uint64_t most,
                                const atomic_bool *end)
{
    lhi_budget part = *budget;
    part.used = part.next_check = 0;
    memset(part.use, 0, sizeof part.use);
    part.limits.ticks = most > 0 ? most : 1;
    part.may_report = false;
    part.end = end;
    return part;
}

lhi_budget_limits lhi_budget_begin_share(lhi_budget *budget, uint32_t n)
{
    const lhi_budget_limits before = budget->limits;
    const uint64_t left = lhi_budget_get_remaining(budget, UINT64_MAX);
    const double now = lhi_seconds() - budget->begin_s;
    if (before.ticks > 0)
        budget->limits.ticks = budget->used + left / n + (left / n == 0);
    if (before.seconds > now)
        budget->limits.seconds = now + (before.seconds - now) / n;
    return before;
}

bool lhi_budget_end_share(lhi_budget *budget, lhi_budget_limits before)
{
    const bool is_used_up = budget->stop;
    budget->limits = before;
    budget->timed_out = budget->cancelled;
    budget->stop = budget->cancelled || is_over(budget);
    lhi_budget_check_time(budget);
    return is_used_up;
}

uint64_t lhi_budget_get_remaining(const lhi_budget *budget, uint64_t most)
{
    if (budget->limits.ticks == 0)
        return most;
    uint64_t left = budget->used < budget->limits.ticks
                        ? budget->limits.ticks - budget->used
                        : 0;
    return left < most ? left : most;
}

bool lhi_budget_check_time(lhi_budget *b)
{
    double now = lhi_seconds() - b->begin_s;
    const lh_solve_options *o = b->options;
    b->next_check = b->used + TICKS_PER_CHECK;
    if (b->end && atomic_load(b->end))
        b->stop = b->timed_out = true;
    if (b->limits.seconds > 0 && now >= b->limits.seconds)
        b->stop = b->timed_out = true;
    /* A caller who has requested a stop is not called again. */
    if (b->timed_out || !b->may_report || !o->progress ||
        now - b->last_call_s < 0.1)
        return b->stop;
    b->last_call_s = now;
    b->now.seconds = now;
    b->now.effort = b->used;
    if (o->progress(o->context, &b->now))
        b->stop = b->timed_out = b->cancelled = true;
    return b->stop;
}

/* Adds ticks (units of search work) to the budget's used ones; returns whether
 * the budget is now used up or stopped. */
static bool spend(lhi_budget *budget, uint64_t ticks)
{
    budget->used += ticks;
    if (is_over(budget))
        budget->stop = true;
    if (budget->used >= budget->next_check)
        lhi_budget_check_time(budget);
    return budget->stop;
}

bool lhi_budget_spend(lhi_budget *budget, uint64_t ticks)
{
    budget->use[budget->engine].effort += ticks;
    return spend(budget, ticks);
}

bool lhi_budget_merge_part(lhi_budget *budget, const lhi_budget *part)
{
    for (uint32_t i = 0; i < LHI_N_ENGINES; i++) {
        budget->use[i].effort += part->use[i].effort;
        budget->use[i].calls += part->use[i].calls;
    }
    return spend(budget, part->used);
}

bool lhi_budget_is_engine_enabled(const lhi_budget *budget, lhi_engine engine)
{
    return !(budget->disabled_engines >> engine & 1);
}

lhi_engine lhi_budget_enter_engine(lhi_budget *budget, lhi_engine engine)
{
    const lhi_engine before = budget->engine;
    budget->engine = engine;
    budget->use[engine].calls++;
    return before;
}

void lhi_budget_restore_engine(lhi_budget *budget, lhi_engine engine)
{
    budget->engine = engine;
}
