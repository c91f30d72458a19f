/* SPDX-License-Identifier: Apache-2.0 */
/* The solver on several threads: equal results for equal effort, independent of
 * task assignment, and timely stops. Also to be run with ThreadSanitizer. */
#include "solve_same.h"

#include "schedule/solver/model/budget.h"

static void same(uniform u, uint64_t effort, size_t memory)
{
    static const uint32_t counts[] = {2, 5};
    same_with(counts, 2, u, effort, memory);
}

/* Stopped by effort in the first round, in a later one, and in none. */
static void same_whatever_the_effort(void)
{
    same(hard(4, 12), 200000, 0);
    same(hard(4, 12), 3000000, 0);
    for (uint64_t effort = 60000; effort < 700000; effort *= 9)
        same(hard(6, 24), effort, 0);
}

static void same_on_other_shapes(void)
{
    uniform wave = hard(4, 10);
    wave.placement = "wave";
    wave.memory = 8;
    same(wave, 200000, 0);
}

/* Without memory for searches only schedules are improved. */
static void same_without_searches(void)
{
    same(hard(8, 32), 200000, 1000000);
}

/* Counts progress calls. */
typedef struct watch {
    uint32_t calls;
} watch;

static bool look(void *context, const lh_solve_progress *now)
{
    watch *w = context; /* no lock: only this thread calls it */
    w->calls++;
    CHECK(now->seconds >= 0);
    return w->calls > 2;
}

static void ends_when_the_caller_wants(void)
{
    lh_pipeline *p = uniform_make(hard(16, 64));
    watch w = {0};
    lh_solve_options o = {.size = sizeof o,
                          .threads = 3,
                          .progress = look,
                          .context = &w,
                          .time_limit_s = 60};
    lh_solution s = {0};
    lh_error err = {0};
    CHECK_OK(lh_solve(p, &o, &s, &err), err);
    solve_check(p, &s);
    CHECK_INT(w.calls, 3);
    CHECK(s.status == LH_SOLVE_FEASIBLE);
    lh_solution_fini(&s);
    lh_pipeline_free(p);
}

/* A third of 300 ticks, then all of those that remain; a request to stop during
 * a share also stops the whole. */
static void shares_leave_the_rest(void)
{
    watch w = {.calls = 2};
    const lh_solve_options o = {.effort = 300, .progress = look, .context = &w};
    lhi_budget budget;
    lhi_budget_begin(&budget, &o);
    budget.last_call_s = 60; /* no call before */
    lhi_budget_limits whole = lhi_budget_begin_share(&budget, 3);
    CHECK_INT(lhi_budget_get_remaining(&budget, UINT64_MAX), 100);
    CHECK(!lhi_budget_spend(&budget, 99));
    CHECK(lhi_budget_spend(&budget, 1));
    CHECK(lhi_budget_end_share(&budget, whole));
    CHECK(!budget.stop);
    CHECK_INT(lhi_budget_get_remaining(&budget, UINT64_MAX), 200);
    whole = lhi_budget_begin_share(&budget, 1);
    CHECK_INT(lhi_budget_get_remaining(&budget, UINT64_MAX), 200);
    CHECK(!lhi_budget_end_share(&budget, whole));
    whole = lhi_budget_begin_share(&budget, 2);
    budget.last_call_s = -1;
    CHECK(lhi_budget_check_time(&budget));
    CHECK(lhi_budget_end_share(&budget, whole));
    CHECK(budget.stop && budget.timed_out);
    CHECK_INT(w.calls, 3);
}

/* Half of the remaining time. */
static void shares_divide_the_time(void)
{
    const lh_solve_options o = {.time_limit_s = 1000};
    lhi_budget budget;
    lhi_budget_begin(&budget, &o);
    budget.begin_s -= 600;
    lhi_budget_limits whole = lhi_budget_begin_share(&budget, 2);
    CHECK(!lhi_budget_check_time(&budget));
    budget.begin_s -= 210;
    CHECK(lhi_budget_check_time(&budget));
    CHECK(lhi_budget_end_share(&budget, whole));
    CHECK(!budget.stop && !budget.timed_out);
    budget.begin_s -= 200;
    CHECK(lhi_budget_check_time(&budget));
}

/* Even if stopping takes long. */
static void who_wants_the_end_is_not_asked_again(void)
{
    watch w = {.calls = 2};
    const lh_solve_options o = {.progress = look, .context = &w};
    lhi_budget budget;
    lhi_budget_begin(&budget, &o);
    budget.last_call_s = -1;
    CHECK(lhi_budget_check_time(&budget));
    CHECK_INT(w.calls, 3);
    budget.last_call_s = -1;
    CHECK(lhi_budget_check_time(&budget));
    CHECK_INT(w.calls, 3);
}

static void ends_at_the_time_limit(void)
{
    lh_pipeline *p = uniform_make(hard(16, 64));
    lh_solve_options o = {.size = sizeof o, .threads = 4, .time_limit_s = 0.7};
    lh_solution s = {0};
    lh_error err = {0};
    CHECK_OK(lh_solve(p, &o, &s, &err), err);
    solve_check(p, &s);
    /* It ends because of the limit: not before, and without a proof. A prompt
     * stop cannot be tested on a shared machine. */
    CHECK(s.status == LH_SOLVE_FEASIBLE && s.seconds >= o.time_limit_s);
    lh_solution_fini(&s);
    lh_pipeline_free(p);
}

int main(void)
{
    RUN(same_whatever_the_effort);
    RUN(same_on_other_shapes);
    RUN(same_without_searches);
    RUN(ends_when_the_caller_wants);
    RUN(shares_leave_the_rest);
    RUN(shares_divide_the_time);
    RUN(who_wants_the_end_is_not_asked_again);
    RUN(ends_at_the_time_limit);
    return test_summary();
}
