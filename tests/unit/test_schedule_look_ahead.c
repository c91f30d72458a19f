/* SPDX-License-Identifier: Apache-2.0 */
/* `look-ahead`: its distance to proven optima, never worse than `greedy`, and
 * greedy itself unchanged from CrossPipe's. */
#include "test.h"
#include "uniform.h"

#include <longhaul/check.h>
#include <longhaul/experimental/methods.h>

static double ms_of(const lh_pipeline *p, const char *method,
                    const lh_method_options *options)
{
    lh_schedule *s = NULL;
    lh_timeline *t = NULL;
    lh_verdict *v = NULL;
    lh_error err = {0};
    double ms = -1;
    const lh_sim_options *sim = options ? options->sim : NULL;
    CHECK_OK(lh_method_run(method, p, options, &s, NULL, &err), err);
    if (s) {
        CHECK_OK(lh_simulate(p, s, sim, &t, &err), err);
        CHECK_OK(lh_check(p, s, &v, &err), err);
    }
    if (t && v) {
        ms = (double)lh_timeline_makespan(t) / 1e6;
        CHECK_MSG(lh_verdict_valid(v), "%s", lh_verdict_violation(v, 0));
        CHECK(lh_timeline_fits(t, NULL));
    }
    lh_verdict_free(v);
    lh_timeline_free(t);
    lh_schedule_free(s);
    return ms;
}

/* Checks greedy's milliseconds, and look-ahead between the optimum and `most`.
 */
static void check(uniform u, double greedy, double optimum, double most)
{
    lh_pipeline *p = uniform_make(u);
    double ms = ms_of(p, "greedy", NULL);
    CHECK_MSG(ms == greedy, "greedy takes %g ms, not %g", ms, greedy);
    ms = ms_of(p, "look-ahead", NULL);
    CHECK_MSG(ms >= optimum && ms <= most, "%s %ux%u: %g ms, not %g to %g",
              u.placement, u.devices, u.microbatches, ms, optimum, most);
    lh_pipeline_free(p);
}

static uniform ud(double latency, double transfer, unsigned memory)
{
    return (uniform){"ud", 8,       16,       38,     48,  20,
                     2,    latency, transfer, memory, NULL};
}

static uniform loop(double latency, double transfer, unsigned memory)
{
    return (uniform){"loop", 4,       8,        38,     48,  20,
                     2,      latency, transfer, memory, NULL};
}

static uniform wave(double latency, double transfer, unsigned memory)
{
    return (uniform){"wave", 4,       8,        38,     48,  20,
                     2,      latency, transfer, memory, NULL};
}

static void one_chunk_per_device(void)
{
    check(ud(0, 0, 8), 2238, 2158, 2184);
    check(ud(9.5, 9.5, 8), 2342, 2234, 2248);
    check(ud(38, 9.5, 8), 2424, 2348, 2348);
    check(ud(76, 76, 8), 2812, 2766, 2766);
    check(ud(0, 0, 4), 3316, 3270, 3270);
    check(ud(9.5, 76, 12), 2255, 2249, 2249);
    check(ud(0, 0, 0), 2040, 1998, 1998);
}

static void two_chunks_share_memory(void)
{
    check(wave(0, 0, 4), 1448, 1205, 1205);
    check(wave(38, 38, 4), 2181, 1960, 1960);
    check(wave(0, 0, 8), 972, 922, 924);
    check(wave(38, 9.5, 8), 1291, 1192, 1197);
    check(wave(9.5, 76, 12), 1704, 1531, 1541);
    check(wave(76, 9.5, 12), 1256, 1208, 1208);
    check(loop(76, 9.5, 4), 3574, 2823, 2833);
    check(loop(76, 9.5, 8), 2450, 1655, 1661);
    check(loop(38, 9.5, 12), 1127, 1083.5, 1083.5);
}

static void parts_and_joint_backward(void)
{
    lh_method_options cut = {.size = sizeof cut, .sub_blocks = 4};
    lh_pipeline *p = uniform_make(ud(9.5, 9.5, 8));
    double greedy = ms_of(p, "greedy", &cut);
    double ahead = ms_of(p, "look-ahead", &cut);
    CHECK_MSG(ahead < greedy && ahead >= 2234, "%g and %g ms", greedy, ahead);
    lh_pipeline_free(p);
    uniform joint = wave(9.5, 9.5, 8);
    joint.more = "backward: joint\n";
    p = uniform_make(joint);
    greedy = ms_of(p, "greedy", &cut);
    ahead = ms_of(p, "look-ahead", &cut);
    CHECK_MSG(ahead < greedy, "%g and %g ms", greedy, ahead);
    lh_pipeline_free(p);
}

/* It optimises for the requested receive and queue model. */
static void other_models(void)
{
    lh_sim_options sims[] = {
        {.size = sizeof *sims, .receives = LH_RECEIVES_LATE},
        {.size = sizeof *sims, .receives = LH_RECEIVES_LATE_FD},
        {.size = sizeof *sims, .coupled_queue = 2},
    };
    for (size_t i = 0; i < sizeof sims / sizeof *sims; i++) {
        lh_method_options options = {.size = sizeof options, .sim = &sims[i]};
        lh_pipeline *p = uniform_make(ud(38, 38, 12));
        double greedy = ms_of(p, "greedy", &options);
        CHECK(ms_of(p, "look-ahead", &options) <= greedy);
        lh_pipeline_free(p);
    }
}

/* The result depends only on the pipeline. */
static void twice_the_same(void)
{
    lh_pipeline *p = uniform_make(wave(9.5, 38, 6));
    char *text[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++) {
        lh_schedule *s = NULL;
        lh_error err = {0};
        CHECK_OK(lh_method_run("look-ahead", p, NULL, &s, NULL, &err), err);
        CHECK_OK(lh_schedule_format(s, &text[i], NULL, &err), err);
        lh_schedule_free(s);
    }
    CHECK_STR(text[0], text[1]);
    lh_text_free(text[0]);
    lh_text_free(text[1]);
    lh_pipeline_free(p);
}

/* At a known bound there is nothing to improve: the given bound is greedy's
 * makespan, then one less. */
static void no_further_than_a_bound(void)
{
    lh_pipeline *p = uniform_make(ud(76, 76, 8));
    lh_method_options o = {.size = sizeof o,
                           .bound_ns = INT64_C(2812) * 1000000};
    CHECK(ms_of(p, "greedy", NULL) == 2812);
    CHECK(ms_of(p, "look-ahead", &o) == 2812);
    CHECK(ms_of(p, "auto", &o) <= 2812);
    o.bound_ns--;
    CHECK(ms_of(p, "look-ahead", &o) < 2812);
    /* An invalid option of one method is reported nevertheless. */
    const uint32_t one = 1;
    lh_schedule *s = NULL;
    lh_error err = {0};
    o.bound_ns = INT64_MAX;
    o.n_warmup = 1;
    o.warmup = &one;
    CHECK_INT(lh_method_run("auto", p, &o, &s, NULL, &err), LH_EINVAL);
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

/* A microbatch that does not free all its memory: greedy's schedule is kept. */
static void memory_that_stays(void)
{
    static const char text[] =
        "longhaul: pipeline/1\nmicrobatches: 3\ndevices: 2\nchunks:\n"
        "  - {device: 0, F: 1, D: 1, W: 1, memory: {F: 2, D: 0, W: -1}}\n"
        "  - {device: 1, F: 1, D: 1, W: 1, memory: {F: 2, D: 0, W: -1}}\n"
        "memory_limit: 5\n";
    lh_pipeline *p = NULL;
    lh_error err = {0};
    CHECK_OK(lh_pipeline_parse(text, strlen(text), "text", &p, &err), err);
    CHECK(ms_of(p, "look-ahead", NULL) == ms_of(p, "greedy", NULL));
    lh_pipeline_free(p);
}

int main(void)
{
    RUN(one_chunk_per_device);
    RUN(two_chunks_share_memory);
    RUN(parts_and_joint_backward);
    RUN(other_models);
    RUN(twice_the_same);
    RUN(no_further_than_a_bound);
    RUN(memory_that_stays);
    return test_summary();
}
