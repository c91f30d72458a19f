/* SPDX-License-Identifier: Apache-2.0 */
/* The solver with some of its engines disabled, on random pipelines. Schedules
 * are valid, bounds hold for the other runs' solutions, a disabled engine does
 * nothing, and the engines' effort adds up to no more than the total.
 *
 *     test_solve_engines [CASES [FIRST]] */
#include "cases.h"
#include "random_pipeline.h"
#include "test.h"

#include <longhaul/check.h>
#include <longhaul/experimental/solve.h>
#include <longhaul/scheduler.h>
#include <stdlib.h>
#include <string.h>

enum { EFFORT = 60000, LIST = 512 };

static uint32_t n_cases = OF_CASES(120), first_case;
/* Over all cases: calls and improvements per engine. */
static uint64_t n_calls[LH_MAX_SOLVE_ENGINES];
static uint64_t n_improved[LH_MAX_SOLVE_ENGINES];

static lh_pipeline *make(rng *r)
{
    random_shape shape = {.max_devices = 4,
                          .max_microbatches = rng_chance(r, 50) ? 6 : 14,
                          .max_chunks = 1 + rng_below(r, 2),
                          .no_data_parallel = rng_chance(r, 70)};
    return random_pipeline(r, &shape);
}

static void check_schedule(const lh_pipeline *p, const lh_solution *s)
{
    lh_verdict *v = NULL;
    lh_error err = {0};
    CHECK(s->bound_ns <= s->makespan_ns);
    CHECK_OK(lh_check(p, s->schedule, &v, &err), err);
    if (v) {
        CHECK(lh_verdict_valid(v));
        CHECK_INT(lh_verdict_makespan(v), s->makespan_ns);
    }
    lh_verdict_free(v);
}

static bool is_listed(const char *list, const char *name)
{
    const size_t len = strlen(name);
    const char *at = strstr(list, name);
    while (at && ((at > list && at[-1] != ',') || (at[len] && at[len] != ',')))
        at = strstr(at + 1, name);
    return at != NULL;
}

static void check_engines(const lh_solution *s, const char *without)
{
    uint64_t effort = 0;
    CHECK_INT(s->n_engines, lh_n_solve_engines());
    CHECK(!lh_solve_engine_name(s->n_engines) &&
          !lh_solve_engine_about(UINT32_MAX));
    for (uint32_t i = 0; i < s->n_engines; i++) {
        const lh_solve_engine *e = &s->engines[i];
        CHECK(strcmp(e->name, lh_solve_engine_name(i)) == 0);
        CHECK(e->on == !is_listed(without, e->name));
        CHECK(e->on || (e->calls == 0 && e->effort == 0 && e->improved == 0));
        CHECK(e->calls > 0 || e->effort == 0);
        CHECK(e->gained_ns >= 0 && (e->improved > 0 || e->gained_ns == 0));
        effort += e->effort;
        n_calls[i] += e->calls;
        n_improved[i] += e->improved;
    }
    CHECK(effort <= s->effort);
}

static lh_solution solve(const lh_pipeline *p, const lh_solve_options *options,
                         const char *without)
{
    lh_solve_options o = *options;
    lh_solution s = {0};
    lh_error err = {0};
    o.disabled_engines = without;
    CHECK_OK(lh_solve(p, &o, &s, &err), err);
    if (s.schedule && !o.fifo)
        check_schedule(p, &s);
    check_engines(&s, without ? without : "");
    return s;
}

/* Checks that neither run's solution contradicts the other's proof. */
static void check_both(const lh_solution *a, const lh_solution *b)
{
    if (a->schedule)
        CHECK(b->bound_ns <= a->makespan_ns &&
              b->status != LH_SOLVE_INFEASIBLE);
    if (b->schedule)
        CHECK(a->bound_ns <= b->makespan_ns &&
              a->status != LH_SOLVE_INFEASIBLE);
}

static void leave_out(const lh_pipeline *p, const lh_solve_options *o,
                      const lh_solution *all, const char *without)
{
    lh_solution s = solve(p, o, without);
    check_both(all, &s);
    if (test_state.bad)
        fprintf(stderr, "without %s: %s\n", without,
                lh_solve_status_name(s.status));
    lh_solution_fini(&s);
}

/* Samples a list of engines. */
static void draw_list(rng *r, char *out)
{
    const uint32_t percent = 10 + rng_below(r, 80);
    *out = '\0';
    for (uint32_t i = 0; i < lh_n_solve_engines(); i++)
        if (rng_chance(r, percent)) {
            strcat(out, *out ? "," : "");
            strcat(out, lh_solve_engine_name(i));
        }
}

static void results_are_valid_without_them(void)
{
    for (uint32_t i = 0; i < n_cases && !test_state.bad; i++) {
        rng r = {first_case + i};
        lh_pipeline *p = make(&r);
        lh_solve_options o = {.size = sizeof o,
                              .effort = (uint64_t)EFFORT
                                        << (rng_chance(&r, 10) ? 6 : 0),
                              .sub_blocks = 1 + rng_chance(&r, 20),
                              .fifo = rng_chance(&r, 20)};
        char list[LIST];
        lh_solution all = solve(p, &o, NULL);
        for (uint32_t k = 0; k < lh_n_solve_engines() && !test_state.bad; k++)
            leave_out(p, &o, &all, lh_solve_engine_name(k));
        draw_list(&r, list);
        if (*list && !test_state.bad)
            leave_out(p, &o, &all, list);
        if (test_state.bad) {
            fprintf(stderr, "case %u\n", first_case + i);
            print_case(p, all.schedule);
        }
        lh_solution_fini(&all);
        lh_pipeline_free(p);
    }
    for (uint32_t k = 0; k < lh_n_solve_engines(); k++) {
        printf("%s: %" PRIu64 " calls, %" PRIu64 " of use\n",
               lh_solve_engine_name(k), n_calls[k], n_improved[k]);
    }
}

static uint64_t calls_of(const lh_solution *s, const char *name)
{
    for (uint32_t i = 0; i < s->n_engines; i++)
        if (strcmp(s->engines[i].name, name) == 0)
            return s->engines[i].calls;
    CHECK_MSG(false, "no engine %s", name);
    return 0;
}

static lh_pipeline *uniform(unsigned devices, unsigned microbatches)
{
    char text[512];
    lh_error err = {0};
    lh_pipeline *p = NULL;
    snprintf(text, sizeof text,
             "longhaul: pipeline/1\ntime_unit: ms\nmicrobatches: %u\n"
             "devices: %u\nuniform: {placement: ud, F: 38, D: 48, W: 20, "
             "memory: {F: 1, W: -1}}\nmemory_limit: %u\n",
             microbatches, devices, devices / 2);
    CHECK_OK(lh_pipeline_parse(text, strlen(text), "uniform", &p, &err), err);
    return p;
}

/* Covers engines that start only after long unsuccessful searches by others, or
 * on pipelines with many passes. */
static void late_ones_begin(void)
{
    static const char *const of_many[] = {"refutation", "reduction",
                                          "destroy-repair", "mirror"};
    static const char *const of_few[] = {"neighbourhoods", "elsewhere",
                                         "shortened"};
    lh_pipeline *many = uniform(16, 96), *few = uniform(8, 64);
    lh_solve_options o = {.size = sizeof o, .effort = 1500000};
    lh_solution all = solve(many, &o, NULL);
    for (size_t i = 0; i < sizeof of_many / sizeof *of_many; i++) {
        CHECK_MSG(calls_of(&all, of_many[i]) > 0, "%s", of_many[i]);
        leave_out(many, &o, &all, of_many[i]);
    }
    lh_solution_fini(&all);
    o.effort = 5000000;
    all = solve(few, &o, NULL);
    for (size_t i = 0; i < sizeof of_few / sizeof *of_few; i++)
        CHECK_MSG(calls_of(&all, of_few[i]) > 0, "%s", of_few[i]);
    lh_solution_fini(&all);
    lh_pipeline_free(many);
    lh_pipeline_free(few);
}

static void statistics_do_not_depend_on_threads(void)
{
    for (uint32_t i = 0; i < n_cases / 4 && !test_state.bad; i++) {
        rng r = {first_case + i + 1000000};
        lh_pipeline *p = make(&r);
        lh_solve_options o = {.size = sizeof o, .effort = 4 * EFFORT};
        lh_solution one = solve(p, &o, NULL);
        o.threads = 3;
        lh_solution three = solve(p, &o, NULL);
        CHECK(memcmp(one.engines, three.engines, sizeof one.engines) == 0);
        lh_solution_fini(&one);
        lh_solution_fini(&three);
        lh_pipeline_free(p);
    }
}

static void other_names_are_refused(void)
{
    static const char *const names[] = {"",       ",",       "beam",  "beams,",
                                        ",beams", "beams,x", " beams"};
    rng r = {1};
    lh_pipeline *p = make(&r);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        lh_solve_options o = {.size = sizeof o, .disabled_engines = names[i]};
        lh_scheduler_options b = {.size = sizeof b,
                                  .disabled_engines = names[i]};
        lh_solution s = {0};
        lh_scheduler_result best;
        lh_error err = {0};
        CHECK_INT(lh_solve(p, &o, &s, &err), LH_EINVAL);
        CHECK(strstr(err.text, "unknown engine '") &&
              strstr(err.text, ", shaving"));
        CHECK_INT(lh_scheduler_run("optimal", p, &b, &best, &err), LH_EINVAL);
    }
    lh_pipeline_free(p);
}

int main(int argc, char **argv)
{
    cases_from(argc, argv, &n_cases, &first_case);
    RUN(results_are_valid_without_them);
    if (!FEW_CASES) /* millions of steps; test_solve_batches also covers them */
        RUN(late_ones_begin);
    RUN(statistics_do_not_depend_on_threads);
    RUN(other_names_are_refused);
    return test_summary();
}
