/* SPDX-License-Identifier: Apache-2.0 */
/* Training with sliced sequences: losses and weights compared with whole
 * sequences, for every kind of dense layer; the same bits with any number of
 * stages, recomputation and transport; memory compared with its prediction. */
#define _GNU_SOURCE
#include "sharded_runs.h"
#include "virtual_time.h"

/* Each case, and the same job with whole sequences and 1F1B. */
static void as_with_whole_sequences(void)
{
    static const setup all[] = {
        {.stages = 2, .slices = 2, .validation = 0.1},
        {.stages = 4, .slices = 4, .again = LH_PART_ALL},
        {.stages = 2, .slices = 4, .replicas = 2, .dropout = 0.1},
        {.stages = 2,
         .slices = 2,
         .replicas = 2,
         .gradients = 1,
         .parameters = 1,
         .by_layer = true},
        {.stages = 2, .slices = 3, .tensor = 2, .again = 0x51},
        /* several blocks of queries in each slice */
        {.stages = 2, .slices = 2, .sequence = 160},
        {.stages = 2, .slices = 3, .model = tiny_gpt2},
        {.stages = 2, .slices = 2, .model = tiny_falcon, .tied = true},
        {.stages = 4, .slices = 4, .model = tiny_qwen3},
        {.stages = 2, .slices = 2, .model = tiny_deepseek},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char name[32];
        setup s = all[i], whole;
        s.chunks = 1;
        s.steps = 2;
        s.replicas = s.replicas ? s.replicas : 1;
        whole = s;
        whole.slices = 0;
        snprintf(name, sizeof name, "case%zu", i);
        outcome want = run(&whole, name);
        check_near(&s, name, &want);
        free(want.weights);
    }
}

static void same_bits(void)
{
    setup s = {
        .stages = 1, .chunks = 1, .replicas = 2, .slices = 4, .steps = 2};
    outcome want = run(&s, "one");
    s.stages = 2;
    s.again = LH_PART_ALL;
    check_same(&s, "two", &want);
    s.stages = 4;
    s.again = 1u << LH_PART_QKV;
    s.transport = "local";
    check_same(&s, "four", &want);
    free(want.weights);
}

/* A checkpoint continues with other slices, or with whole sequences. */
static void resumes(void)
{
    char from[128];
    setup s = {
        .stages = 2, .chunks = 1, .replicas = 1, .slices = 4, .steps = 4};
    setup whole = s;
    whole.slices = 0;
    s.checkpoint_every = 2;
    outcome want = run(&s, "first"), near = run(&whole, "whole");
    snprintf(from, sizeof from, "%s/first/step-00000002", folder);
    s.resume = whole.resume = from;
    check_same(&s, "again", &want);
    double weights, losses;
    outcome then = run(&whole, "then");
    differences(&then, &near, &weights, &losses);
    CHECK_MSG(weights > 0 && weights < 1e-4, "weights differ by %g", weights);
    free(then.weights);
    free(near.weights);
    free(want.weights);
}

/* Slices with half of the mean time in attention: the timed device runs each
 * for its own duration, so the run is as long as the simulation. */
static void timed(void)
{
    static const char text[] = "longhaul: pipeline/1\ntime_unit: us\n"
                               "microbatches: 8\ndevices: 2\n"
                               "backward: joint\n"
                               "slices: {count: 4, attention: 0.5}\n"
                               "uniform: {F: 800, D: 700, W: 900}\n";
    const lh_train_options o = {.size = sizeof o, .steps = 2};
    lh_pipeline *p = NULL;
    lh_schedule *s = NULL;
    lh_exec *x = NULL;
    lh_train_result *r = NULL;
    lh_error err = {0};
    CHECK_OK(lh_pipeline_parse(text, sizeof text - 1, "p", &p, &err), err);
    CHECK_OK(lh_method_run("seq1f1b", p, NULL, &s, NULL, &err), err);
    CHECK_OK(lh_exec_make(p, s, NULL, &x, &err), err);
    CHECK_OK(lh_train_timed(p, x, &o, &r, &err), err);
    if (r)
        CHECK_MSG(llabs(r->min_ns - lh_exec_predicted_ns(x)) < 1000, "%lld ns",
                  (long long)r->min_ns);
    lh_train_result_free(r);
    lh_exec_free(x);
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

static void what_slices_cannot_do(void)
{
    setup s = {.stages = 2, .chunks = 1, .replicas = 1, .slices = 5};
    check_refused(&s, "5 slices do not divide sequences of 24 tokens");
    s.slices = 4;
    s.experts = true;
    check_refused(&s, "with experts, which balance whole sequences");
    s.experts = false;
    static const uint32_t moved[] = {2, 6};
    s.then = "seq1f1b";
    s.layers = moved;
    s.steps = 3;
    free(run(&s, "moved").weights);
    CHECK_HAS(switch_refused, "plan without layout.slices");
}

int main(void)
{
    if (!folder_begin("slices", 4000))
        return 1;
    RUN_VIRTUAL(as_with_whole_sequences);
    RUN_VIRTUAL(same_bits);
    RUN_VIRTUAL(resumes);
    RUN_VIRTUAL(timed);
    RUN_VIRTUAL(what_slices_cannot_do);
    folder_end();
    return test_summary();
}
