/* SPDX-License-Identifier: Apache-2.0 */
/* Elastic pipelines on random cases: schedules never deadlock, event simulation
 * matches the closed forms for time and memory, and the choice of queue and
 * recomputation matches brute force.
 *
 *     test_elastic_random [CASES [FIRST]] */
#include "cases.h"
#include "planner/elastic/pipeline.h"
#include "random_pipeline.h"
#include "schedule/elastic/elastic.h"
#include "schedule/elastic/elastic_internal.h"
#include "test.h"

#include <longhaul/check.h>
#include <longhaul/experimental/simulate.h>
#include <stdlib.h>

static uint32_t n_cases = 2000, first_case;

static lh_elastic_case some_case(rng *r)
{
    lh_elastic_case g = {0};
    g.stages = 1 + rng_below(r, 5);
    g.replicas = 1 + rng_below(r, 8);
    g.chunks = 1 + rng_below(r, 8);
    g.microbatches = g.stages + rng_below(r, 25);
    g.f_ns = 1 + rng_below(r, 30);
    g.b_ns = 1 + rng_below(r, 60);
    g.dp_ns = rng_below(r, 4) ? rng_below(r, 600) : 0;
    g.params = 1 + rng_below(r, 5000);
    g.as_published = rng_chance(r, 20);
    if (rng_chance(r, 30))
        g.sharded_ns = g.dp_ns + rng_below(r, 900);
    return g;
}

/* Simulated time and peak activation memory per stage. */
typedef struct events {
    int64_t time_ns;
    int64_t peaks[8];
} events;

/* Runs the simulator, the evaluator and the verifier, which must agree. */
static bool run_events(const lh_elastic_case *g, const lh_elastic_plan *plan,
                       events *out)
{
    lh_error err = {0};
    lh_pipeline *p = NULL;
    lh_schedule *s = NULL;
    lh_timeline *t = NULL;
    lh_evaluator *e = NULL;
    lh_verdict *v = NULL;
    int64_t fast = -1;
    bool ok = lhi_elastic_pipeline(g, plan, 0, 1, &p, &err) == LH_OK &&
              lhi_elastic_schedule(g, plan, &s, &err) == LH_OK &&
              lh_simulate(p, s, NULL, &t, &err) == LH_OK &&
              lh_evaluator_make(p, NULL, &e, &err) == LH_OK &&
              lh_evaluator_run(e, s, &fast, &err) == LH_OK &&
              lh_check(p, s, &v, &err) == LH_OK;
    CHECK_MSG(ok, "%s", err.text);
    if (ok) {
        int64_t states = lh_elastic_peak_memory(g, plan, 0).sum;
        out->time_ns = lh_timeline_makespan(t);
        CHECK_INT(fast, out->time_ns);
        CHECK(lh_verdict_valid(v));
        CHECK_INT(lh_verdict_makespan(v), out->time_ns);
        for (uint32_t i = 0; i < g->stages; i++)
            out->peaks[i] =
                lh_timeline_peak_memory(t, i) - (i < g->stages ? states : 0);
    }
    lh_verdict_free(v);
    lh_evaluator_free(e);
    lh_timeline_free(t);
    lh_schedule_free(s);
    lh_pipeline_free(p);
    return ok;
}

static void say(uint32_t i, const lh_elastic_case *g)
{
    fprintf(
        stderr,
        "case %" PRIu32 ": P=%" PRIu32 " D=%" PRIu32 " M=%" PRIu32 " B=%" PRIu32
        " f=%" PRId64 " b=%" PRId64 " dp=%" PRId64 " sharded=%" PRId64
        " pp=%" PRId64 " psi=%" PRId64 " published=%d\n",
        i, g->stages, g->replicas, g->chunks, g->microbatches, g->f_ns, g->b_ns,
        g->dp_ns, g->sharded_ns, g->pp_ns, g->params, g->as_published);
}

static void check_plan(const lh_elastic_case *g, const lh_elastic_plan *plan,
                       bool exact)
{
    events e;
    if (!run_events(g, plan, &e))
        return;
    if (exact)
        CHECK_INT(e.time_ns, lhi_elastic_iteration_ns(g, plan, 0));
    for (uint32_t i = 0; i < g->stages; i++)
        CHECK_INT(e.peaks[i], lh_elastic_resident_passes(g, plan, i + 1));
}

/* Samples three admissible queues per case; times and memory must match the
 * closed form. */
static void planned_ones_take_what_the_model_says(void)
{
    uint32_t n_plans = 0, n_extra = 0;
    for (uint32_t i = first_case; i < first_case + n_cases; i++) {
        rng r = {i};
        lh_elastic_case g = some_case(&r);
        g.as_published = false;
        bool before = test_state.bad;
        test_state.bad = false;
        for (int k = 0; k < 3; k++) {
            lh_elastic_plan *plan;
            uint32_t q =
                g.stages + rng_below(&r, g.microbatches - g.stages + 1);
            if (lh_elastic_plan_queue(&g, q, &plan, NULL) != LH_OK)
                continue;
            check_plan(&g, plan, true);
            n_plans++;
            n_extra += plan->extra_warmup > 0;
            if (test_state.bad) {
                say(i, &g);
                fprintf(stderr, "queue %" PRIu32 "\n", q);
                k = 3;
            }
            lh_elastic_plan_free(plan);
        }
        test_state.bad |= before;
    }
    CHECK_MSG(n_cases < 1000 || (n_plans > n_cases && n_extra > n_cases / 20),
              "%" PRIu32 " plans, %" PRIu32 " with more warm-up", n_plans,
              n_extra);
}

static uint32_t some_groups(rng *r, uint32_t B, uint32_t P, uint32_t *groups)
{
    uint32_t n = 0;
    while (B >= 2 * P && !rng_chance(r, 20)) {
        groups[n] = P + rng_below(r, B - 2 * P + 1);
        B -= groups[n++];
    }
    groups[n++] = B;
    return n;
}

/* Arbitrary sequences, shares and buckets: simulator, evaluator and verifier
 * run them with equal results, and retain as many passes as the formula
 * predicts. */
static void hand_made_ones_never_stop(void)
{
    for (uint32_t i = first_case; i < first_case + n_cases; i++) {
        rng r = {i};
        uint32_t e[32], d[32];
        lh_elastic_case g = some_case(&r);
        g.pp_ns = rng_below(&r, 30);
        lh_elastic_plan wanted = {
            .n_enqueue = some_groups(&r, g.microbatches, g.stages, e),
            .n_dequeue = some_groups(&r, g.microbatches, g.stages, d),
            .enqueue = e,
            .dequeue = d};
        wanted.params_g = rng_below(&r, (uint32_t)g.params + 1);
        wanted.params_p = rng_below(&r, (uint32_t)wanted.params_g + 1);
        wanted.scatter_buckets = 1 + rng_below(&r, 30);
        wanted.forward_buckets = 1 + rng_below(&r, 30);
        wanted.backward_buckets = 1 + rng_below(&r, 30);
        lh_elastic_plan *plan = NULL;
        lh_error err = {0};
        CHECK_OK(lhi_elastic_plan_make(&g, &wanted, &plan, &err), err);
        if (!plan)
            continue;
        check_plan(&g, plan, false);
        lh_elastic_plan_free(plan);
    }
}

/* If messages between stages are fully hidden, the closed form is exact. */
static void hidden_messages_cost_what_the_model_says(void)
{
    uint32_t n_hidden = 0;
    for (uint32_t i = first_case; i < first_case + n_cases; i++) {
        rng r = {i};
        lh_elastic_case g = some_case(&r);
        g.as_published = false;
        g.dp_ns = 0;
        g.microbatches = 2 * g.stages + rng_below(&r, 30);
        g.pp_ns = rng_below(&r, 2 * (uint32_t)g.f_ns + 1);
        lh_elastic_plan *plan;
        uint32_t q = g.stages + rng_below(&r, g.microbatches - g.stages + 1);
        if (lh_elastic_plan_queue(&g, q, &plan, NULL) != LH_OK)
            continue;
        events e;
        if (plan->pp_hidden && run_events(&g, plan, &e)) {
            n_hidden++;
            bool same = e.time_ns == lhi_elastic_iteration_ns(&g, plan, 0);
            CHECK_MSG(same, "%" PRId64 " by events, %" PRId64 " by model",
                      e.time_ns, lhi_elastic_iteration_ns(&g, plan, 0));
            if (!same)
                say(i, &g);
        }
        lh_elastic_plan_free(plan);
    }
    CHECK(n_cases < 1000 || n_hidden > n_cases / 5);
}

/* Best choice by brute force: lost time and stored bytes. */
typedef struct brute_best {
    bool any;
    int64_t lost, stored;
} brute_best;

/* Tries every subset of operations with every queue. `largest`: only the
 * largest queue that fits counts. */
static brute_best brute_choice(const lh_elastic_case *g, uint32_t n,
                               const lh_elastic_op *ops, int64_t budget,
                               bool largest)
{
    brute_best best = {0};
    int64_t J = (int64_t)g->chunks * g->microbatches + g->stages - 1;
    for (uint32_t kept = 0; kept < 1u << n; kept++) {
        int64_t stored = 0, again = 0;
        for (uint32_t k = 0; k < n; k++)
            *(kept >> k & 1 ? &stored : &again) +=
                kept >> k & 1 ? ops[k].bytes : ops[k].ns;
        for (uint32_t q = g->microbatches; q >= 1; q--) {
            lh_elastic_plan *plan;
            if (lh_elastic_plan_queue(g, q, &plan, NULL) != LH_OK)
                continue;
            int64_t D = g->replicas, M = g->chunks;
            lhi_int128 need =
                (lhi_int128)12 * g->params * M +
                2 * (lhi_int128)(g->params - plan->params_g) * D * M +
                (lhi_int128)(2 * M + 4 * D) * plan->params_g +
                2 * (lhi_int128)(g->params - plan->params_p) * D * M +
                (lhi_int128)(2 * M + 8 * D) * plan->params_p +
                (lhi_int128)lh_elastic_resident_passes(g, plan, 1) * stored *
                    D * M;
            bool fits = need < (lhi_int128)budget * D * M;
            int64_t lost =
                J * again + lh_elastic_exposed_communication(g, plan, 0).sum_ns;
            lh_elastic_plan_free(plan);
            if (!fits)
                continue;
            if (!best.any || lost < best.lost ||
                (lost == best.lost && stored < best.stored))
                best = (brute_best){true, lost, stored};
            if (largest)
                break;
        }
    }
    return best;
}

static void choices_are_those_of_brute_force(void)
{
    uint32_t n_found = 0;
    for (uint32_t i = first_case; i < first_case + n_cases / 4; i++) {
        rng r = {i};
        lh_elastic_case g = some_case(&r);
        lh_elastic_op ops[6];
        uint32_t n = rng_below(&r, 7);
        g.microbatches = g.stages + rng_below(&r, 12);
        for (uint32_t k = 0; k < n; k++)
            ops[k] = (lh_elastic_op){rng_below(&r, 60), rng_below(&r, 12)};
        int64_t budget =
            g.params * (4 + rng_below(&r, 14)) + rng_below(&r, 20000);
        for (int largest = 0; largest < 2; largest++) {
            brute_best want = brute_choice(&g, n, ops, budget, largest);
            lh_elastic_choice *got = NULL;
            lh_error err = {0};
            lh_status status = lh_elastic_choose(
                &g, n, ops, budget,
                largest ? LH_ELASTIC_LARGEST : LH_ELASTIC_ANY, &got, &err);
            CHECK_INT(status, want.any ? LH_OK : LH_EINFEASIBLE);
            n_found += got != NULL;
            if (got && want.any) {
                CHECK_INT(got->overhead_ns, want.lost);
                CHECK_INT(got->stored, want.stored);
                CHECK(got->memory.sum <= budget);
                int64_t stored = 0, again = 0;
                for (uint32_t k = 0; k < n; k++)
                    *(got->recomputed[k] ? &again : &stored) +=
                        got->recomputed[k] ? ops[k].ns : ops[k].bytes;
                CHECK_INT(got->stored, stored);
                CHECK_INT(got->recompute_ns, again);
            }
            if (test_state.bad)
                say(i, &g);
            lh_elastic_choice_free(got);
        }
    }
    CHECK(n_cases < 1000 || n_found > n_cases / 8);
}

/* The event-based search finds nothing slower than the paper's planner, and its
 * result fits. */
static void the_joint_search_is_never_worse(void)
{
    uint32_t n_found = 0, n_better = 0;
    for (uint32_t i = first_case; i < first_case + n_cases / 4; i++) {
        rng r = {i};
        lh_elastic_case g = some_case(&r);
        g.microbatches = g.stages + rng_below(&r, 12);
        g.pp_ns = rng_below(&r, 20);
        lh_elastic_op ops[2][5];
        lh_elastic_setting settings[2];
        int64_t budget =
            g.params * (4 + rng_below(&r, 14)) + rng_below(&r, 20000);
        int64_t paper = INT64_MAX;
        for (int k = 0; k < 2; k++) {
            settings[k] = (lh_elastic_setting){
                .given = g, .n_ops = 1 + rng_below(&r, 5), .ops = ops[k]};
            settings[k].given.chunks = 1 + rng_below(&r, 7);
            for (uint32_t j = 0; j < settings[k].n_ops; j++)
                ops[k][j] =
                    (lh_elastic_op){rng_below(&r, 60), rng_below(&r, 12)};
            lh_elastic_choice *c;
            int64_t time_ns = 0;
            lh_error err = {0};
            if (lh_elastic_choose(&settings[k].given, settings[k].n_ops, ops[k],
                                  budget, LH_ELASTIC_LARGEST, &c,
                                  NULL) != LH_OK)
                continue;
            CHECK_OK(lh_elastic_event_time(&settings[k].given, c->plan,
                                           c->recompute_ns, &time_ns, &err),
                     err);
            paper = time_ns < paper ? time_ns : paper;
            lh_elastic_choice_free(c);
        }
        lh_elastic_search_result *best = NULL;
        lh_error err = {0};
        lh_status status =
            lh_elastic_search_events(2, settings, budget, &best, &err);
        CHECK_MSG(status == LH_OK || paper == INT64_MAX, "case %" PRIu32 ": %s",
                  i, err.text);
        if (!best)
            continue;
        n_found++;
        n_better += best->time_ns < paper;
        CHECK_MSG(best->time_ns <= paper,
                  "case %" PRIu32 ": %" PRId64 " is worse than %" PRId64, i,
                  best->time_ns, paper);
        CHECK(best->memory.sum <= budget);
        lh_elastic_search_result_free(best);
    }
    CHECK(n_cases < 1000 || (n_found > n_cases / 8 && n_better > 10));
}

int main(int argc, char **argv)
{
    cases_from(argc, argv, &n_cases, &first_case);
    RUN(planned_ones_take_what_the_model_says);
    RUN(hand_made_ones_never_stop);
    RUN(hidden_messages_cost_what_the_model_says);
    RUN(choices_are_those_of_brute_force);
    RUN(the_joint_search_is_never_worse);
    return test_summary();
}
