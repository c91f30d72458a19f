/* SPDX-License-Identifier: Apache-2.0 */
/* Elastic pipelines: worked cases of the closed forms, the planner, the pass
 * order and the event simulation. */
#include "planner/elastic/pipeline.h"
#include "schedule/elastic/elastic.h"
#include "schedule/elastic/elastic_internal.h"
#include "test.h"

#include <longhaul/check.h>
#include <longhaul/experimental/elastic.h>
#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/simulate.h>
#include <longhaul/scheduler.h>
#include <stdlib.h>

typedef lh_elastic_case elastic_case;

static elastic_case make_case(uint32_t P, uint32_t D, uint32_t M, uint32_t B,
                              int64_t f, int64_t b, int64_t dp, int64_t pp,
                              int64_t params)
{
    return (elastic_case){.stages = P,
                          .replicas = D,
                          .chunks = M,
                          .microbatches = B,
                          .f_ns = f,
                          .b_ns = b,
                          .dp_ns = dp,
                          .pp_ns = pp,
                          .params = params};
}

/* Simulates a plan with the simulator, the evaluator and the verifier, which
 * must agree; `peaks` (may be NULL) receives the live passes per stage. */
static int64_t event_time(const elastic_case *g, const lh_elastic_plan *plan,
                          int64_t *peaks)
{
    lh_error err = {0};
    lh_pipeline *p = NULL;
    lh_schedule *s = NULL;
    lh_timeline *t = NULL;
    lh_evaluator *e = NULL;
    lh_verdict *v = NULL;
    int64_t time = -1, fast = -1;
    elastic_case light = *g;
    CHECK_OK(lhi_elastic_pipeline(&light, plan, 0, 1, &p, &err), err);
    CHECK_OK(lhi_elastic_schedule(&light, plan, &s, &err), err);
    if (!p || !s)
        return -1;
    lh_status status = lh_simulate(p, s, NULL, &t, &err);
    if (status == LH_OK) {
        time = lh_timeline_makespan(t);
        CHECK_OK(lh_evaluator_make(p, NULL, &e, &err), err);
        CHECK_OK(lh_evaluator_run(e, s, &fast, &err), err);
        CHECK_INT(fast, time);
        int64_t states = lh_elastic_peak_memory(&light, plan, 0).sum;
        for (uint32_t i = 0; peaks && i < g->stages; i++)
            peaks[i] = lh_timeline_peak_memory(t, i) - states;
    }
    CHECK_OK(lh_check(p, s, &v, &err), err);
    CHECK_MSG(lh_verdict_valid(v) == (status == LH_OK), "judge: %s",
              lh_verdict_n_violations(v, NULL) ? lh_verdict_violation(v, 0)
                                               : "valid");
    CHECK_INT(lh_verdict_makespan(v), time);
    lh_verdict_free(v);
    lh_evaluator_free(e);
    lh_timeline_free(t);
    lh_schedule_free(s);
    lh_pipeline_free(p);
    return time;
}

/* Creates a plan without validity checks. */
static lh_elastic_plan by_hand(const elastic_case *g, uint32_t R,
                               const uint32_t *e, uint32_t S, const uint32_t *d)
{
    lh_elastic_plan plan = {
        .n_enqueue = R, .n_dequeue = S, .enqueue = e, .dequeue = d};
    lhi_elastic_derive_plan(g, &plan);
    return plan;
}

static void states_of_the_optimiser_and_its_like(void)
{
    uint32_t e[] = {8};
    elastic_case g = make_case(4, 4, 8, 8, 1, 1, 0, 0, 1000);
    lh_elastic_plan plan = by_hand(&g, 1, e, 1, e);
    plan.params_g = 1000;
    plan.params_p = 800;
    lh_elastic_memory m = lh_elastic_peak_memory(&g, &plan, 0);
    CHECK_INT(m.optimizer, 3000);
    CHECK_INT(m.gradients, 1000);
    CHECK_INT(m.parameters, 1600);
    g.replicas = 3;
    g.chunks = 6;
    plan.params_p = 500;
    CHECK_INT(lh_elastic_peak_memory(&g, &plan, 0).parameters, 2000);
}

static void check_groups(const uint32_t *got, uint32_t n, const char *want)
{
    char text[200] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < n; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%" PRIu32,
                                 i ? " " : "", got[i]);
    CHECK_STR(text, want);
}

static void sequences(void)
{
    static const struct {
        uint32_t B, q;
        const char *e, *d;
    } rows[] = {{12, 8, "8 4", "6 6"},
                {24, 10, "10 7 7", "8 8 8"},
                {13, 5, "5 4 4", "5 4 4"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        elastic_case g = make_case(4, 4, 8, rows[i].B, 2, 4, 1, 0, 1000);
        lh_elastic_plan *plan = NULL;
        lh_error err = {0};
        CHECK_OK(lh_elastic_plan_queue(&g, rows[i].q, &plan, &err), err);
        if (!plan)
            continue;
        check_groups(plan->enqueue, plan->n_enqueue, rows[i].e);
        check_groups(plan->dequeue, plan->n_dequeue, rows[i].d);
        lh_elastic_plan_free(plan);
    }
}

static void order_of_passes(void)
{
    static const char *const want[] = {
        "F1.0 F1.1 F2.0 F2.1 F1.2 B2.0 F1.3 B2.1 F2.2 B1.0 F2.3 B1.1 B2.2 "
        "B2.3 B1.2 B1.3 ",
        "F1.0 F1.1 F2.0 B2.0 F2.1 B2.1 F1.2 B1.0 F1.3 B1.1 F2.2 B2.2 F2.3 "
        "B2.3 B1.2 B1.3 "};
    uint32_t e[] = {2, 2};
    elastic_case g = make_case(2, 1, 2, 4, 1, 1, 0, 0, 0);
    lh_elastic_plan plan = by_hand(&g, 2, e, 2, e);
    for (uint32_t i = 0; i < 2; i++) {
        lh_pass passes[16];
        char text[200] = "";
        size_t used = 0;
        lhi_elastic_order(&g, &plan, i + 1, passes);
        for (int k = 0; k < 16; k++)
            used += (size_t)snprintf(
                text + used, sizeof text - used, "%c%" PRIu32 ".%" PRIu32 " ",
                passes[k].kind == LH_F ? 'F' : 'B', passes[k].chunk / 2 + 1,
                passes[k].microbatch);
        CHECK_STR(text, want[i]);
    }
}

static void without_communication(void)
{
    uint32_t e[] = {8, 4}, d[] = {6, 6};
    int64_t peaks[6];
    elastic_case g = make_case(4, 1, 3, 12, 1, 1, 0, 0, 0);
    lh_elastic_plan plan = by_hand(&g, 2, e, 2, d);
    CHECK_INT(plan.extra_warmup, 0);
    CHECK_INT(event_time(&g, &plan, peaks), 78);
    static const int64_t want[] = {23, 21, 19, 17};
    for (uint32_t i = 0; i < 4; i++) {
        CHECK_INT(peaks[i], want[i]);
        CHECK_INT(lh_elastic_resident_passes(&g, &plan, i + 1), want[i]);
    }
    g.b_ns = 2;
    CHECK_INT(event_time(&g, &plan, NULL), 117);
    CHECK_INT(lhi_elastic_iteration_ns(&g, &plan, 0), 117);
    g.stages = 6; /* groups of 4 cause bubbles */
    CHECK_INT(event_time(&g, &plan, NULL), 147);
    CHECK_INT(lhi_elastic_iteration_ns(&g, &plan, 0), 123);
    lh_elastic_plan *refused = NULL;
    lh_error err = {0};
    CHECK_INT(lhi_elastic_plan_make(&g, &plan, &refused, &err), LH_EINPUT);
    CHECK_HAS(err.text, "2 fewer than the pipeline has stages");
}

static void longer_warmup(void)
{
    uint32_t e[] = {12, 12}, d[] = {10, 14}, e2[] = {4, 4}, d2[] = {3, 5};
    int64_t peaks[4];
    elastic_case g = make_case(4, 1, 6, 24, 1, 2, 0, 0, 0);
    lh_elastic_plan plan = by_hand(&g, 2, e, 2, d);
    CHECK_INT(plan.extra_warmup, 10);
    CHECK_INT(event_time(&g, &plan, peaks), 441);
    static const int64_t want[] = {77, 75, 73, 71};
    for (uint32_t i = 0; i < 4; i++)
        CHECK_INT(peaks[i], want[i]);
    plan.extra_warmup = 0; /* it deadlocks in all three */
    CHECK_INT(event_time(&g, &plan, NULL), -1);
    g = make_case(3, 1, 2, 8, 1, 2, 0, 0, 0);
    plan = by_hand(&g, 2, e2, 2, d2);
    CHECK_INT(plan.extra_warmup, 1);
    CHECK_INT(event_time(&g, &plan, NULL), 54);
}

static void with_communication(void)
{
    uint32_t e[] = {8, 4}, d[] = {6, 6};
    elastic_case g = make_case(4, 4, 3, 12, 2, 4, 20, 0, 1000);
    lh_elastic_plan plan = by_hand(&g, 2, e, 2, d);
    plan.params_g = 1000;
    plan.scatter_buckets = 5;
    CHECK_INT(lh_elastic_exposed_communication(&g, &plan, 0).optimizer_ns, 48);
    CHECK_INT(lh_elastic_exposed_communication(&g, &plan, 0).sum_ns, 48);
    CHECK_INT(lhi_elastic_iteration_ns(&g, &plan, 0), 282);
    CHECK_INT(event_time(&g, &plan, NULL), 282);
    g.dp_ns = 30;
    lh_elastic_terms t = lh_elastic_exposed_communication(&g, &plan, 0);
    CHECK_INT(t.optimizer_ns, 100);
    CHECK_INT(t.gradients_ns, 30);
    CHECK_INT(lhi_elastic_iteration_ns(&g, &plan, 0), 364);
    CHECK_INT(event_time(&g, &plan, NULL), 338);
    g = make_case(3, 4, 3, 12, 2, 4, 10, 0, 1000);
    plan = by_hand(&g, 2, e, 2, d);
    plan.params_g = 1000;
    plan.params_p = 500;
    plan.scatter_buckets = 3;
    plan.forward_buckets = 3;
    plan.backward_buckets = 2;
    CHECK_INT(lh_elastic_exposed_communication(&g, &plan, 0).sum_ns, 20);
    CHECK_INT(lhi_elastic_iteration_ns(&g, &plan, 0), 248);
    CHECK_INT(event_time(&g, &plan, NULL), 248);
}

/* Operations launched by each pass on stage 1 of 4, computed by hand: pass,
 * kind, the stage's chunk from 1, first and last microbatch of the passes with
 * one bucket each. */
static void operations_say_what_they_carry(void)
{
    static const struct {
        bool backward;
        uint32_t pass_chunk, first, last;
        lh_dp_kind kind;
        uint32_t chunk;
    } rows[] = {
        {false, 1, 0, 0, LH_DP_AGO, 2},   {false, 2, 0, 0, LH_DP_AGO, 3},
        {false, 3, 6, 7, LH_DP_AGF, 1},   {false, 1, 10, 11, LH_DP_AGF, 2},
        {false, 2, 10, 11, LH_DP_AGF, 3}, {true, 3, 5, 5, LH_DP_AGB, 2},
        {true, 2, 0, 4, LH_DP_RSG, 3},    {true, 2, 5, 5, LH_DP_AGB, 1},
        {true, 1, 0, 4, LH_DP_RSG, 2},    {true, 1, 5, 5, LH_DP_AGB, 3},
        {true, 3, 6, 10, LH_DP_RSG, 1},   {true, 3, 11, 11, LH_DP_AGB, 2},
        {true, 2, 6, 6, LH_DP_RSO, 3},    {true, 2, 11, 11, LH_DP_AGB, 1},
        {true, 1, 6, 6, LH_DP_RSO, 2},
    };
    static const uint32_t e[] = {8, 4}, d[] = {6, 6};
    elastic_case g = make_case(4, 4, 3, 12, 2, 4, 20, 0, 1000);
    lh_elastic_plan plan = by_hand(&g, 2, e, 2, d);
    plan.params_g = 800;
    plan.params_p = 250;
    plan.scatter_buckets = 5;
    plan.forward_buckets = 2;
    plan.backward_buckets = 1;
    lh_dp_op *ops = NULL;
    lh_error err = {0};
    uint32_t n = 0, mine = 0, wanted = 0;
    CHECK_OK(lhi_elastic_operations(&g, &plan, &ops, &n, &err), err);
    for (uint32_t i = 0; i < n; i++)
        mine += ops[i].chunk % 4 == 0;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
        for (uint32_t m = rows[k].first; m <= rows[k].last; m++) {
            const lh_dp_op *op = NULL;
            for (uint32_t i = 0; i < n && !op; i++)
                if (ops[i].launch.chunk == 4 * (rows[k].pass_chunk - 1) &&
                    ops[i].launch.backward == rows[k].backward &&
                    ops[i].launch.microbatch == m &&
                    ops[i].kind == rows[k].kind)
                    op = &ops[i];
            wanted++;
            CHECK(op != NULL);
            if (!op)
                continue;
            CHECK_INT(op->chunk, 4 * (rows[k].chunk - 1));
            CHECK_INT(op->bucket, m - rows[k].first);
            CHECK_INT(op->n_buckets, rows[k].last - rows[k].first + 1);
            bool parameters = op->kind == LH_DP_AGF || op->kind == LH_DP_AGB;
            CHECK(op->share == (parameters              ? 0.25
                                : op->kind == LH_DP_RSG ? 0.8
                                                        : 1));
        }
    CHECK_INT(mine, wanted);
    lhi_elastic_ops_free(ops);
}

/* The last plan above, where sequential layer communication takes 16 instead of
 * 10, and covers all gradients and half the parameters. Half a gather is 8, in
 * 4 buckets after 2 each; a scatter 16, in 4 after 4 each; half a backward
 * gather 8, in the 2 remaining passes. The first gather is half joint and half
 * per layer, 5 + 8, the last scatter 16. Those of other chunks overlap with 8
 * forwards (2) and 6 backwards (4). */
static void layer_by_layer(void)
{
    static const uint32_t e[] = {8, 4}, d[] = {6, 6};
    elastic_case g = make_case(3, 4, 3, 12, 2, 4, 10, 0, 1000);
    lh_elastic_plan plan = by_hand(&g, 2, e, 2, d);
    plan.params_g = 1000;
    plan.params_p = 500;
    plan.scatter_buckets = plan.forward_buckets = 4;
    plan.backward_buckets = 2;
    g.sharded_ns = 16;
    CHECK_INT(lh_elastic_exposed_communication(&g, &plan, 0).sum_ns, 13 + 16);
    CHECK_INT(lhi_elastic_iteration_ns(&g, &plan, 0), (36 + 2) * 6 + 29);
    CHECK_INT(event_time(&g, &plan, NULL), 257);
    /* With sharding none or complete, equal to the default. */
    plan.params_g = plan.params_p = 0;
    CHECK_INT(event_time(&g, &plan, NULL), 248);
    g.sharded_ns = 10;
    plan.params_g = 1000;
    plan.params_p = 500;
    CHECK_INT(event_time(&g, &plan, NULL), 248);
    g.sharded_ns = 9;
    lh_elastic_plan *none = NULL;
    lh_error err = {0};
    CHECK_INT(lh_elastic_plan_queue(&g, 8, &none, &err), LH_EINVAL);
    CHECK_HAS(err.text, "9 ns layer by layer, less than the 10 ns at once");
}

/* Expected result of the planner. */
typedef struct wanted_plan {
    uint32_t q;
    const char *e, *d;
    int64_t dp, scatter, forward, backward, g, p, x, exposed;
    int64_t m_o, m_g, m_p, passes;
} wanted_plan;

static void planned(void)
{
    static const wanted_plan rows[] = {
        {4, "4 4 4", "4 4 4", 10, 3, 2, 1, 1000, 400, 0, 34, 3000, 1000, 1800,
         33},
        {6, "6 6", "6 6", 10, 3, 5, 3, 1000, 1000, 0, 20, 3000, 1000, 1500, 47},
        {9, "9 3", "6 6", 10, 3, 3, 3, 1000, 600, 0, 20, 3000, 1000, 1700, 68},
        {4, "4 4 4", "3 3 6", 22, 3, 0, 0, 545, 0, 14, 142, 3000, 1455, 2000,
         47},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const wanted_plan *w = &rows[i];
        elastic_case g = make_case(3, 4, 8, 12, 2, 4, w->dp, 1, 1000);
        lh_elastic_plan *plan = NULL;
        lh_error err = {0};
        CHECK_OK(lh_elastic_plan_queue(&g, w->q, &plan, &err), err);
        if (!plan)
            continue;
        check_groups(plan->enqueue, plan->n_enqueue, w->e);
        check_groups(plan->dequeue, plan->n_dequeue, w->d);
        CHECK_INT(plan->scatter_buckets, w->scatter);
        CHECK_INT(plan->forward_buckets, w->forward);
        CHECK_INT(plan->backward_buckets, w->backward);
        CHECK_INT(plan->params_g, w->g);
        CHECK_INT(plan->params_p, w->p);
        CHECK_INT(plan->extra_warmup, w->x);
        CHECK_INT(lh_elastic_exposed_communication(&g, plan, 0).sum_ns,
                  w->exposed);
        lh_elastic_memory m = lh_elastic_peak_memory(&g, plan, 0);
        CHECK_INT(m.optimizer, w->m_o);
        CHECK_INT(m.gradients, w->m_g);
        CHECK_INT(m.parameters, w->m_p);
        CHECK_INT(lh_elastic_resident_passes(&g, plan, 1), w->passes);
        g.pp_ns = 0;
        CHECK_INT(event_time(&g, plan, NULL),
                  lhi_elastic_iteration_ns(&g, plan, 0));
        lh_elastic_plan_free(plan);
    }
}

static void queue_and_recomputation(void)
{
    /* Tenths of a time unit. */
    elastic_case g = make_case(3, 4, 8, 12, 20, 40, 100, 10, 1000);
    lh_elastic_op ops[] = {{40, 1}, {20, 1}, {60, 3}, {80, 1}, {30, 2}};
    lh_elastic_choice *c = NULL;
    lh_error err = {0};
    CHECK_OK(lh_elastic_choose(&g, 5, ops, 14000, LH_ELASTIC_LARGEST, &c, &err),
             err);
    if (!c)
        return;
    CHECK_INT(c->stored, 150);
    for (int k = 0; k < 5; k++)
        CHECK_INT(c->recomputed[k], k == 3);
    CHECK_INT(c->plan->enqueue[0], 7);
    CHECK_INT(c->overhead_ns, 298);
    CHECK_INT(c->time_ns, 6218);
    CHECK_INT(c->memory.sum, 13600);
    lh_elastic_choice_free(c);
    CHECK_OK(lh_elastic_choose(&g, 5, ops, 16000, LH_ELASTIC_LARGEST, &c, &err),
             err);
    CHECK_INT(c->stored, 230);
    CHECK_INT(c->plan->enqueue[0], 5);
    CHECK_INT(c->time_ns, 6120);
    lh_elastic_choice_free(c);
    c = NULL;
    CHECK_INT(lh_elastic_choose(&g, 5, ops, 5000, LH_ELASTIC_LARGEST, &c, &err),
              LH_EINFEASIBLE);
    CHECK_HAS(err.text, "501 more than stays below the budget of 5000");
}

/* Lists "F2.0: AGO3" for every pass on stage 1 with a launch, in its order. */
static void launches(void)
{
    static const char want[] =
        "F1.0 AG2:0/1 F2.0 AG3:0/1 F3.6 AG1:0/2 F3.7 AG1:1/2 F1.10 AG2:0/2 "
        "F1.11 AG2:1/2 B3.5 AG2:0/1 B2.0 RS3:0/5 B2.1 RS3:1/5 "
        "F2.10 AG3:0/2 B2.2 RS3:2/5 F2.11 AG3:1/2 B2.3 RS3:3/5 B2.4 RS3:4/5 "
        "B2.5 AG1:0/1 "
        "B1.0 RS2:0/5 B1.1 RS2:1/5 B1.2 RS2:2/5 B1.3 RS2:3/5 B1.4 RS2:4/5 "
        "B1.5 AG3:0/1 B3.6 RS1:0/5 B3.7 RS1:1/5 B3.8 RS1:2/5 B3.9 RS1:3/5 "
        "B3.10 RS1:4/5 B3.11 AG2:0/1 B2.6 RS3:0/1 B2.11 AG1:0/1 B1.6 RS2:0/1 ";
    uint32_t e[] = {8, 4}, d[] = {6, 6};
    elastic_case g = make_case(4, 4, 3, 12, 2, 4, 20, 0, 1000);
    lh_elastic_plan plan = by_hand(&g, 2, e, 2, d);
    plan.params_g = 1000;
    plan.params_p = 200;
    plan.scatter_buckets = 5;
    plan.forward_buckets = 2;
    plan.backward_buckets = 1;
    lh_dp_op *ops = NULL;
    uint32_t n = 0;
    lh_error err = {0};
    lh_pass passes[72];
    char text[1200] = "";
    size_t used = 0;
    CHECK_OK(lhi_elastic_operations(&g, &plan, &ops, &n, &err), err);
    lhi_elastic_order(&g, &plan, 1, passes);
    for (int k = 0; k < 72; k++)
        for (uint32_t i = 0; i < n; i++) {
            const lh_dp_pass *at = &ops[i].launch;
            if (at->chunk != passes[k].chunk ||
                at->microbatch != passes[k].microbatch ||
                at->backward != (passes[k].kind != LH_F))
                continue;
            used += (size_t)snprintf(
                text + used, sizeof text - used,
                "%c%" PRIu32 ".%" PRIu32 " %s%" PRIu32 ":%" PRIu32 "/%" PRIu32
                " ",
                at->backward ? 'B' : 'F', at->chunk / 4 + 1, at->microbatch,
                ops[i].is_reduce_scatter ? "RS" : "AG", ops[i].chunk / 4 + 1,
                ops[i].bucket, ops[i].n_buckets);
        }
    CHECK_STR(text, want);
    lhi_elastic_ops_free(ops);
}

static void pipeline_messages(void)
{
    uint32_t five[] = {5, 5}, four[] = {4, 4, 4, 4}, eight[] = {8, 8};
    static const struct {
        uint32_t P, n, B;
        int which;
        int64_t pp, event, model;
    } rows[] = {{3, 2, 10, 0, 2, 392, 392},
                {3, 2, 10, 0, 4, 408, 400},
                {4, 4, 16, 1, 1, 634, 618},
                {4, 2, 16, 2, 4, 636, 636}};
    const uint32_t *groups[] = {five, four, eight};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        elastic_case g =
            make_case(rows[i].P, 1, 3, rows[i].B, 4, 8, 0, rows[i].pp, 0);
        const uint32_t *e = groups[rows[i].which];
        lh_elastic_plan plan = by_hand(&g, rows[i].n, e, rows[i].n, e);
        CHECK_INT(lhi_elastic_iteration_ns(&g, &plan, 0), rows[i].model);
        CHECK_INT(event_time(&g, &plan, NULL), rows[i].event);
        CHECK_MSG(!plan.pp_hidden || rows[i].event == rows[i].model, "row %zu",
                  i);
    }
}

/* The file format's shorthand and the method give the plan's result. */
static void file_and_method(void)
{
    static const char text[] =
        "{longhaul: pipeline/1, time_unit: ns, microbatches: 12, devices: 4, "
        "backward: joint, uniform: {placement: loop, chunks_per_device: 3, F: "
        "6, D: 12, W: 0}, data_parallel: {elastic: {enqueue: [8, 4], dequeue: "
        "[6, 6], transfer: 20, gradients: 1, parameters: 0.2, buckets: "
        "{scatter: 5, forward: 2, backward: 1}}}}";
    uint32_t e[] = {8, 4}, d[] = {6, 6};
    lh_elastic_case g = make_case(4, 1, 3, 12, 2, 4, 20, 0, 1000);
    lh_elastic_plan plan = by_hand(&g, 2, e, 2, d);
    plan.params_g = 1000;
    plan.params_p = 200;
    plan.scatter_buckets = 5;
    plan.forward_buckets = 2;
    plan.backward_buckets = 1;
    lh_method_options o = {.size = sizeof o,
                           .n_enqueue = 2,
                           .n_dequeue = 2,
                           .enqueue = e,
                           .dequeue = d};
    lh_error err = {0};
    lh_pipeline *p = NULL, *again = NULL;
    lh_schedule *s = NULL;
    lh_timeline *t = NULL;
    char *first = NULL, *second = NULL;
    CHECK_OK(lh_pipeline_parse(text, strlen(text), "t", &p, &err), err);
    CHECK_OK(lh_method_run("elastic", p, &o, &s, NULL, &err), err);
    CHECK_OK(lh_simulate(p, s, NULL, &t, &err), err);
    CHECK_INT(lh_timeline_makespan(t), event_time(&g, &plan, NULL));
    CHECK_OK(lh_pipeline_format(p, &first, NULL, &err), err);
    CHECK_OK(lh_pipeline_parse(first, strlen(first), "t", &again, &err), err);
    CHECK_OK(lh_pipeline_format(again, &second, NULL, &err), err);
    CHECK_STR(second, first);
    lh_text_free(first);
    lh_text_free(second);
    /* Groups named in the file need no repetition, also after writing it; auto
     * finds them. */
    const char *const methods[] = {"elastic", "auto"};
    for (size_t i = 0; i < 2; i++) {
        int64_t ns = -1;
        lh_scheduler_result best = {0};
        CHECK_OK(lh_scheduler_run(methods[i], again, NULL, &best, &err), err);
        CHECK_STR(best.method, "elastic");
        lh_evaluator *events = NULL;
        CHECK_OK(lh_evaluator_make(again, NULL, &events, &err), err);
        CHECK_OK(lh_evaluator_run(events, best.schedule, &ns, &err), err);
        CHECK_INT(ns, lh_timeline_makespan(t));
        lh_evaluator_free(events);
        lh_scheduler_result_fini(&best);
    }
    lh_timeline_free(t);
    lh_schedule_free(s);
    lh_pipeline_free(again);
    lh_pipeline_free(p);
}

static void refused_file(const char *data_parallel, const char *why)
{
    char text[600];
    lh_pipeline *p = NULL;
    lh_error err = {0};
    snprintf(text, sizeof text,
             "{longhaul: pipeline/1, microbatches: 12, devices: 4, uniform: "
             "{placement: loop, chunks_per_device: 3, F: 6, D: 6, W: 6}, "
             "data_parallel: %s}",
             data_parallel);
    CHECK_INT(lh_pipeline_parse(text, strlen(text), "t", &p, &err), LH_EINPUT);
    CHECK_HAS(err.text, why);
}

static void refused_files(void)
{
    refused_file("{elastic: {enqueue: [8, 3], dequeue: [6, 6], transfer: 1}}",
                 "group 2 has 3 microbatches, 1 fewer");
    refused_file("{elastic: {enqueue: [8, 4], dequeue: [6, 5], transfer: 1}}",
                 "dequeue: the groups have 11 microbatches, 1 fewer than the "
                 "12");
    refused_file("{elastic: {enqueue: [12], dequeue: [12], transfer: 1, "
                 "gradients: 1.25}}",
                 "a share of 1.25 is 0.25 above 1");
    refused_file("{elastic: {enqueue: [12], dequeue: [12], transfer: 1, "
                 "gradients: -0.5}}",
                 "a share of -0.5 is 0.5 below 0");
    refused_file("{elastic: {enqueue: [12], dequeue: [12], transfer: 1, "
                 "gradients: 0.1, parameters: 0.25}}",
                 "a share of 0.25 is 0.15 above 'gradients'");
    refused_file("{elastic: {enqueue: [12], dequeue: [12], transfer: 1}, "
                 "operations: []}",
                 "'elastic' generates");
    refused_file("{elastic: {enqueue: [12], dequeue: [12], transfer: 1}, "
                 "prefetch: 1}",
                 "'elastic' generates");
    refused_file("{elastic: {enqueue: [12], dequeue: [12], transfer: 1}, "
                 "groups: {enqueue: [12], dequeue: [12]}}",
                 "'elastic' generates");
    refused_file("{groups: {enqueue: [12], dequeue: [7, 6]}}",
                 "dequeue: the groups have 13 microbatches, 1 more than the "
                 "12");
    refused_file("{groups: {enqueue: [12]}}", "key 'dequeue' is missing");
    refused_file("{operations: [{chunk: 0, all_gather: 1, launch: 1F0}]}",
                 "launch: chunk 1 is on device 1");
    refused_file("{operations: [{chunk: 0, all_gather: 1, launch: 0F12}]}",
                 "chunk 0 on microbatch 12 does not exist; there are 12");
    refused_file("{operations: [{chunk: 0, all_gather: 1, launch: 0W1}]}",
                 "as 4B0");
    refused_file("{operations: [{chunk: 0, all_gather: 1, launch: 0F1, before: "
                 "0F1}]}",
                 "cannot wait for it");
    refused_file("{operations: [{chunk: 0, all_gather: 1, reduce_scatter: 1, "
                 "launch: 0F1}]}",
                 "give one of");
    refused_file("{operations: [{chunk: 0, all_gather: 1, launch: 0F1, bucket: "
                 "2/2}]}",
                 "bucket 2 of 2");
}

static void what_cannot_be(void)
{
    lh_error err = {0};
    lh_elastic_plan *plan = NULL;
    uint32_t e[] = {8, 5}, d[] = {6, 6};
    elastic_case g = make_case(4, 4, 3, 12, 2, 4, 20, 0, 1000);
    lh_elastic_plan wanted = {
        .n_enqueue = 2, .n_dequeue = 2, .enqueue = e, .dequeue = d};
    CHECK_INT(lhi_elastic_plan_make(&g, &wanted, &plan, &err), LH_EINPUT);
    CHECK_HAS(err.text, "enqueue: the groups have 13 microbatches, 1 more");
    wanted.enqueue = d;
    wanted.params_g = 1001;
    wanted.scatter_buckets = 1;
    CHECK_INT(lhi_elastic_plan_make(&g, &wanted, &plan, &err), LH_EINPUT);
    CHECK_HAS(err.text, "1 fewer");
    wanted.params_g = 500;
    wanted.params_p = 600;
    CHECK_INT(lhi_elastic_plan_make(&g, &wanted, &plan, &err), LH_EINPUT);
    CHECK_HAS(err.text, "100 more than have sharded gradients");
    CHECK_INT(lh_elastic_plan_queue(&g, 10, &plan, &err), LH_EINFEASIBLE);
    CHECK_HAS(err.text, "2 fewer than the 4 stages");
    CHECK_INT(lh_elastic_plan_queue(&g, 13, &plan, &err), LH_EINFEASIBLE);
    g.microbatches = 3;
    lh_elastic_op op = {1, 1};
    lh_elastic_choice *c = NULL;
    CHECK_INT(lh_elastic_choose(&g, 1, &op, 1000000, LH_ELASTIC_ANY, &c, &err),
              LH_EINFEASIBLE);
    CHECK_HAS(err.text, "1 fewer than the 4 stages");
    g.f_ns = 0;
    CHECK_INT(lh_elastic_plan_queue(&g, 3, &plan, &err), LH_EINVAL);
}

/* The error names the reason: impossible groups, or memory, and the kind of the
 * closest plan. */
static void searched_in_vain(void)
{
    lh_elastic_op op = {1, 1};
    lh_elastic_setting s = {.given = make_case(3, 1, 1, 4, 2, 4, 0, 0, 10),
                            .min_queue = 3,
                            .max_queue = 3};
    lh_elastic_search_result *best = NULL;
    lh_error err = {0};
    CHECK_INT(lh_elastic_search_events(1, &s, 1000000, &best, &err),
              LH_EINFEASIBLE);
    CHECK_HAS(err.text,
              "divides 4 microbatches into groups no smaller than the 3 "
              "stages");
    s.max_queue = 4;
    CHECK_INT(lh_elastic_search_events(1, &s, 10, &best, &err), LH_EINFEASIBLE);
    CHECK_HAS(err.text, "the closest needs");
    s.n_ops = 1;
    s.ops = &op;
    CHECK_INT(lh_elastic_search_events(1, &s, 10, &best, &err), LH_EINFEASIBLE);
    CHECK_HAS(err.text, "the closest, with everything recomputed, needs");
}

int main(void)
{
    RUN(states_of_the_optimiser_and_its_like);
    RUN(sequences);
    RUN(order_of_passes);
    RUN(without_communication);
    RUN(longer_warmup);
    RUN(with_communication);
    RUN(operations_say_what_they_carry);
    RUN(layer_by_layer);
    RUN(planned);
    RUN(queue_and_recomputation);
    RUN(launches);
    RUN(pipeline_messages);
    RUN(file_and_method);
    RUN(refused_files);
    RUN(what_cannot_be);
    RUN(searched_in_vain);
    return test_summary();
}
