/* SPDX-License-Identifier: Apache-2.0 */
/* Every generator on random pipelines. Schedules are valid, respect the memory
 * limits and are not below a proven bound. Adaptive generators never fail if a
 * microbatch fits.
 *
 *     test_generators [CASES [FIRST]] */
#include "cases.h"
#include "random_pipeline.h"
#include "test.h"

#include "schedule/methods/sched.h"
#include "schedule/pipeline/accessors.h"
#include "schedule/solver/bound/closed_forms.h"

#include <longhaul/check.h>
#include <longhaul/experimental/bounds.h>
#include <longhaul/experimental/methods.h>
#include <stdlib.h>

static uint32_t n_cases = OF_CASES(3000), first_case;

static int64_t makespan(const lh_pipeline *p, const lh_schedule *s)
{
    lh_timeline *t = NULL;
    lh_verdict *v = NULL;
    lh_error err = {0};
    int64_t ns = -1;
    CHECK_OK(lh_simulate(p, s, NULL, &t, &err), err);
    CHECK_OK(lh_check(p, s, &v, &err), err);
    CHECK_MSG(!v || lh_verdict_valid(v), "%s", lh_verdict_violation(v, 0));
    if (t && v) {
        ns = lh_timeline_makespan(t);
        CHECK_INT(ns, lh_verdict_makespan(v));
        CHECK(lh_timeline_fits(t, NULL));
    }
    lh_timeline_free(t);
    lh_verdict_free(v);
    return ns;
}

/* Checks whether the method must find an order wherever one microbatch at a
 * time fits. */
static bool adapts(const char *method, const lh_pipeline *p)
{
    if (strcmp(method, "slack") == 0 || strcmp(method, "steady-slack") == 0)
        return lhi_pipeline_placement(p) == LH_PLACEMENT_UD &&
               !lhi_pipeline_is_joint(p);
    return strcmp(method, "greedy") == 0 || strcmp(method, "look-ahead") == 0 ||
           strcmp(method, "auto") == 0;
}

static int64_t try_method(const lh_pipeline *p, const char *method,
                          const lh_method_options *options, int64_t bound)
{
    lh_schedule *s = NULL;
    lh_error err = {0};
    const char *chosen = NULL;
    lh_status status = lh_method_run(method, p, options, &s, &chosen, &err);
    if (status != LH_OK) {
        CHECK_MSG(!adapts(method, p) &&
                      (status == LH_EUNSUPPORTED || status == LH_EINFEASIBLE),
                  "%s", err.text);
        CHECK(s == NULL && chosen == NULL);
        CHECK_HAS(err.text, method);
        return -1;
    }
    int64_t ns = makespan(p, s);
    CHECK_MSG(ns >= bound, "%s beats the bound", method);
    CHECK(chosen != NULL);
    if (test_state.bad)
        print_case(p, s);
    lh_schedule_free(s);
    return ns;
}

static void try_all(rng *r, const lh_pipeline *p)
{
    lh_method_options options = {.size = sizeof options,
                                 .sub_blocks = rng_below(r, 6),
                                 .slack_initial = rng_chance(r, 50)};
    lh_bound bound = {0};
    lh_error err = {0};
    CHECK_OK(lhi_compute_closed_form_bound(p, &bound, &err), err);
    int64_t best = -1, by_auto = -1, by_greedy = -1, ahead = -1;
    for (uint32_t i = 0; i < lh_n_methods(); i++) {
        const char *name = lh_method_name(i);
        int64_t ns = try_method(p, name, &options, bound.ns);
        if (lh_method_is_auto(name))
            by_auto = ns;
        else if (ns >= 0 && (best < 0 || ns < best))
            best = ns;
        if (strcmp(name, "greedy") == 0)
            by_greedy = ns;
        if (strcmp(name, "look-ahead") == 0)
            ahead = ns;
    }
    CHECK_INT(by_auto, best);
    CHECK(ahead <= by_greedy);
}

static void generators_on_random_pipelines(void)
{
    for (uint32_t i = 0; i < n_cases && !test_state.bad; i++) {
        rng r = {first_case + i};
        random_shape shape = {.regular = rng_chance(&r, 70)};
        lh_pipeline *p = random_pipeline(&r, &shape);
        try_all(&r, p);
        if (test_state.bad)
            fprintf(stderr, "in case %u\n", first_case + i);
        lh_pipeline_free(p);
    }
}

/* Without links shared by two senders, the generator's planned makespan equals
 * the simulator's. */
static void planner_agrees_with_simulator(void)
{
    static const char *const names[] = {"greedy", "slack"};
    for (uint32_t i = 0; i < n_cases && !test_state.bad; i++) {
        rng r = {first_case + i};
        random_shape shape = {.links = LINKS_PRIVATE,
                              .no_zero_times = true,
                              .no_data_parallel = true};
        lh_pipeline *p = random_pipeline(&r, &shape);
        lh_method_options options = {.size = sizeof options,
                                     .sub_blocks = 1 + rng_below(&r, 4)};
        for (uint32_t k = 0; k < 2; k++) {
            lhi_orders orders = {0};
            lh_schedule *s = NULL;
            if (lhi_method_build_orders(lhi_method_find(names[k]), p, &options,
                                        &orders, NULL) != LH_OK)
                continue;
            CHECK_OK(lhi_orders_build_schedule(&orders, &s, NULL),
                     (lh_error){0});
            CHECK_INT(orders.planned_ns, makespan(p, s));
            if (test_state.bad)
                print_case(p, s);
            lhi_orders_fini(&orders);
            lh_schedule_free(s);
        }
        lh_pipeline_free(p);
    }
}

/* Returns a copy in which most D passes allocate memory. Each device has memory
 * for one microbatch plus `eighths` eighths of a forward pass's memory. */
static lh_pipeline *with_room(rng *r, const lh_pipeline *p, uint32_t eighths)
{
    lh_pipeline_desc d = {.size = sizeof d};
    lh_pipeline *out = NULL;
    lh_error err = {0};
    CHECK_OK(lh_pipeline_describe(p, &d, &err), err);
    lh_chunk *chunks = calloc(d.n_chunks, sizeof *chunks);
    int64_t *limits = calloc(d.n_devices, sizeof *limits);
    for (uint32_t c = 0; chunks && limits && c < d.n_chunks; c++) {
        chunks[c] = d.chunks[c];
        chunks[c].mem_f = 800 + 8 * rng_below(r, 100);
        chunks[c].mem_d = 400 + rng_below(r, 100);
        if (rng_chance(r, 20))
            chunks[c].mem_d = -8;
        chunks[c].mem_w = -chunks[c].mem_f - chunks[c].mem_d;
        limits[chunks[c].device] += chunks[c].mem_static + chunks[c].mem_f +
                                    500 + chunks[c].mem_f / 8 * eighths;
    }
    d.chunks = chunks;
    d.memory_limits = limits;
    CHECK_OK(lh_pipeline_make(&d, &out, &err), err);
    free(chunks);
    free(limits);
    return out;
}

/* Memory-aware methods find an order with any amount of memory that holds one
 * microbatch. */
static void no_room_is_a_dead_end(void)
{
    static const char *const names[] = {"greedy", "look-ahead"};
    for (uint32_t i = 0; i < n_cases && !test_state.bad; i++) {
        rng r = {first_case + i};
        random_shape shape = {
            .regular = true, .joint_never = true, .no_data_parallel = true};
        lh_pipeline *p = random_pipeline(&r, &shape);
        lh_pipeline *roomy = with_room(&r, p, rng_below(&r, 24));
        for (uint32_t k = 0; k < 2 && roomy; k++) {
            lh_schedule *s = NULL;
            lh_error err = {0};
            CHECK_OK(lh_method_run(names[k], roomy, NULL, &s, NULL, &err), err);
            if (test_state.bad)
                fprintf(stderr, "%s in case %u\n", names[k], first_case + i);
            lh_schedule_free(s);
        }
        lh_pipeline_free(roomy);
        lh_pipeline_free(p);
    }
}

int main(int argc, char **argv)
{
    cases_from(argc, argv, &n_cases, &first_case);
    RUN(generators_on_random_pipelines);
    RUN(planner_agrees_with_simulator);
    RUN(no_room_is_a_dead_end);
    return test_summary();
}
