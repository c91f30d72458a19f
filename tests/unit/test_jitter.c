/* SPDX-License-Identifier: Apache-2.0 */
/* Iterations under random delays: compared with closed forms, and with
 * pipelines built with the worst delays. */
#include "test.h"
#include "uniform.h"

#include <longhaul/experimental/jitter.h>
#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/pipeline.h>

#include <math.h>

static lh_jitter_result run(const lh_pipeline *p, const char *method,
                            lh_jitter j)
{
    lh_jitter_result r = {0};
    lh_schedule *s = NULL;
    lh_error err = {0};
    j.size = sizeof j;
    CHECK_OK(lh_method_run(method, p, NULL, &s, NULL, &err), err);
    if (s)
        CHECK_OK(lh_jitter_run(p, s, NULL, &j, &r, &err), err);
    lh_schedule_free(s);
    return r;
}

static const uniform two = {.placement = "ud",
                            .devices = 2,
                            .microbatches = 1,
                            .f = 10,
                            .d = 10,
                            .w = 10,
                            .datacenters = 2,
                            .latency = 100,
                            .transfer = 50};

/* One microbatch on two devices: F, message, F, B, message, B. */
static void one_microbatch(void)
{
    lh_pipeline *p = uniform_make(two);
    lh_jitter_result r = run(p, "1f1b", (lh_jitter){.samples = 5});
    CHECK_INT(r.min_ns, 360000000); /* no random delays */
    CHECK_INT(r.max_ns, 360000000);
    CHECK(r.mean_ns == 360e6 && r.samples == 5);

    /* 10 % of 100 ms twice, on average; its variance is 2 * 10 ms squared. */
    uint32_t n = 20000;
    r = run(p, "1f1b", (lh_jitter){.latency = 0.1, .samples = n});
    CHECK_MSG(fabs(r.mean_ns - 380e6) < 4 * 14.2e6 / sqrt(n), "mean %g",
              r.mean_ns);
    CHECK(r.min_ns >= 360000000 && r.p50_ns < r.p95_ns);
    /* The sum of two exponentials with mean 10 ms: 95 % are below 47.44 ms,
     * half below 16.78. */
    CHECK_MSG(fabs((double)r.p95_ns - 407.44e6) < 1.5e6, "p95 %g",
              (double)r.p95_ns);
    CHECK_MSG(fabs((double)r.p50_ns - 376.78e6) < 0.5e6, "p50 %g",
              (double)r.p50_ns);
    r = run(p, "1f1b", (lh_jitter){.transfer = 0.2, .samples = n});
    CHECK_MSG(fabs(r.mean_ns - 380e6) < 0.5e6, "mean %g", r.mean_ns);
    lh_pipeline_free(p);
}

static void rare_events(void)
{
    uint32_t n = 10000;
    lh_pipeline *p = uniform_make(two);
    /* Two links, each degraded in 3 % of the iterations: 150 ms more each. */
    lh_jitter_result r = run(p, "1f1b",
                             (lh_jitter){.degraded_probability = 0.03,
                                         .degraded_factor = 2,
                                         .samples = n});
    CHECK_INT(r.p50_ns, 360000000);
    CHECK_INT(r.p95_ns, 510000000);
    CHECK_INT(r.max_ns, 660000000);
    CHECK_MSG(fabs(r.mean_ns - 369e6) < 2e6, "mean %g", r.mean_ns);
    /* Two devices, each slow in 10 %: 30 ms more each. */
    r = run(p, "1f1b",
            (lh_jitter){.straggler_probability = 0.1,
                        .straggler_factor = 2,
                        .samples = n});
    CHECK_INT(r.min_ns, 360000000);
    CHECK_INT(r.p95_ns, 390000000);
    CHECK_INT(r.max_ns, 420000000);
    lh_pipeline_free(p);
}

/* Degrading every link equals a pipeline file with the degraded values. */
static void all_degraded(void)
{
    uniform slow = two, all = two;
    all.microbatches = slow.microbatches = 6;
    slow.latency *= 3;
    slow.transfer *= 3;
    lh_pipeline *p = uniform_make(all), *q = uniform_make(slow);
    lh_jitter_result r =
        run(p, "1f1b",
            (lh_jitter){
                .degraded_probability = 1, .degraded_factor = 3, .samples = 3});
    lh_jitter_result s = run(q, "1f1b", (lh_jitter){.samples = 1});
    CHECK_INT(r.min_ns, s.min_ns);
    CHECK_INT(r.max_ns, s.min_ns);
    lh_pipeline_free(p);
    lh_pipeline_free(q);
}

/* Links shared by several devices use the event engine. */
static void shared_links(void)
{
    uniform u = {.placement = "loop",
                 .devices = 4,
                 .microbatches = 8,
                 .f = 8,
                 .d = 8,
                 .w = 8,
                 .datacenters = 2,
                 .latency = 3,
                 .transfer = 6};
    lh_pipeline *p = uniform_make(u);
    lh_schedule *s = NULL;
    lh_timeline *t = NULL;
    lh_error err = {0};
    CHECK_OK(lh_method_run("interleaved-1f1b", p, NULL, &s, NULL, &err), err);
    CHECK_OK(lh_simulate(p, s, NULL, &t, &err), err);
    lh_jitter_result r = run(p, "interleaved-1f1b", (lh_jitter){.samples = 2});
    CHECK_INT(r.min_ns, lh_timeline_makespan(t));
    CHECK_INT(r.max_ns, lh_timeline_makespan(t));
    lh_timeline_free(t);
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

static lh_pipeline *make_shared(double latency, double gather, double reduce)
{
    char more[400];
    uniform u = two;
    u.latency = u.transfer = 0;
    snprintf(
        more, sizeof more,
        "data_parallel:\n"
        "  - {chunk: 0, all_gather: %g, reduce_scatter: %g, latency: %g}\n"
        "  - {chunk: 1, all_gather: %g, reduce_scatter: %g, latency: %g}\n",
        gather, reduce, latency, gather, reduce, latency);
    u.more = more;
    return uniform_make(u);
}

/* Data-parallel links count as links. */
static void data_parallel_links(void)
{
    lh_pipeline *p = make_shared(5, 10, 20), *q = make_shared(15, 30, 60);
    lh_jitter worst = {
        .degraded_probability = 1, .degraded_factor = 3, .samples = 2};
    lh_jitter_result r = run(p, "1f1b", worst);
    lh_jitter_result s = run(q, "1f1b", (lh_jitter){.samples = 1});
    CHECK_INT(r.min_ns, s.min_ns);
    CHECK_INT(r.max_ns, s.min_ns);
    /* Device 0: gather 15, F 10, B 20 after the other's, reduce 25: 100 in all.
     * With its links degraded: 180. With only device 1's: its gather takes
     * until 45, its B until 75, and then its reduce 75. */
    uint32_t n = 20000;
    lh_jitter rare = {
        .degraded_probability = 0.1, .degraded_factor = 3, .samples = n};
    r = run(p, "1f1b", rare);
    CHECK_INT(r.min_ns, 100000000);
    CHECK_INT(r.max_ns, 180000000);
    /* Independent: 0.1 * 80 + 0.9 * 0.1 * 50 more. */
    CHECK_MSG(fabs(r.mean_ns - 112.5e6) < 0.6e6, "mean %g", r.mean_ns);
    rare.shared_data_link = true;
    r = run(p, "1f1b", rare);
    CHECK_INT(r.max_ns, 180000000);
    CHECK_MSG(fabs(r.mean_ns - 108e6) < 0.6e6, "mean %g", r.mean_ns);
    /* X and Y: the delays of the latencies of devices 0 and 1, exponential with
     * mean 5 ms. An iteration takes max(25 + X, 15 + Y) + 50 + max(25 + X,
     * 5 + Y) ms, and E max(Y - X - a, 0) = 5 exp(-a / 5) / 2. */
    r = run(p, "1f1b", (lh_jitter){.latency = 1, .samples = n});
    double mean = 110e6 + 2.5e6 * (exp(-2) + exp(-4));
    CHECK(r.min_ns >= 100000000);
    CHECK_MSG(fabs(r.mean_ns - mean) < 0.4e6, "mean %g", r.mean_ns);
    /* The transfers of 10 and 20 ms, instead: X and Y, then 2 X and 2 Y. */
    r = run(p, "1f1b", (lh_jitter){.transfer = 0.5, .samples = n});
    mean = 115e6 + 2.5e6 * exp(-2) + 5e6 * exp(-2);
    CHECK(r.min_ns >= 100000000);
    CHECK_MSG(fabs(r.mean_ns - mean) < 0.5e6, "mean %g", r.mean_ns);
    lh_pipeline_free(p);
    lh_pipeline_free(q);
}

/* Data-parallel operations between passes delay passes under jitter, too: each
 * pass of device 0 waits for the operation that its previous pass launched. */
static void data_parallel_operations(void)
{
    lh_dp_op op = {.chunk = 0,
                   .n_buckets = 1,
                   .transfer_ns = 40000000,
                   .launch = {0, 0, false},
                   .needed_by = {0, 0, true}};
    lh_jitter worst = {
        .degraded_probability = 1, .degraded_factor = 3, .samples = 2};
    lh_pipeline *p = make_shared(0, 0, 0), *with[2] = {NULL};
    lh_pipeline_desc desc = {.size = sizeof desc};
    lh_error err = {0};
    CHECK_OK(lh_pipeline_describe(p, &desc, &err), err);
    desc.dp_ops = &op;
    desc.n_dp_ops = 1;
    for (int i = 0; i < 2; i++) {
        CHECK_OK(lh_pipeline_make(&desc, &with[i], &err), err);
        op.transfer_ns *= 3;
    }
    lh_jitter_result r = run(with[0], "1f1b", worst);
    lh_jitter_result usual = run(with[0], "1f1b", (lh_jitter){.samples = 1});
    lh_jitter_result slow = run(with[1], "1f1b", (lh_jitter){.samples = 1});
    CHECK_INT(slow.min_ns - usual.min_ns, 80000000);
    CHECK_INT(r.min_ns, slow.min_ns);
    CHECK_INT(r.max_ns, slow.min_ns);
    for (int i = 0; i < 2; i++)
        lh_pipeline_free(with[i]);
    lh_pipeline_free(p);
}

/* The same samples for any schedule and in a repeated run; others for another
 * seed. */
static void common_numbers(void)
{
    uniform u = two;
    u.devices = 4;
    u.microbatches = 8;
    lh_pipeline *p = uniform_make(u);
    lh_jitter j = {.latency = 0.5, .transfer = 0.5, .samples = 50};
    lh_jitter_result a = run(p, "zb-h1", j), b = run(p, "zb-h1", j);
    CHECK(memcmp(&a, &b, sizeof a) == 0);
    j.samples = 1;
    lh_jitter_result one = run(p, "zb-h1", j);
    j.seed = 7;
    lh_jitter_result other = run(p, "zb-h1", j);
    CHECK(one.max_ns <= a.max_ns && one.max_ns != other.max_ns);
    lh_pipeline_free(p);
}

static void refusals(void)
{
    static const struct {
        lh_jitter j;
        const char *what;
    } rows[] = {
        {{.latency = -1}, "latency is -1"},
        {{.transfer = NAN}, "transfer is nan"},
        {{.degraded_probability = 2}, "degraded_rate is 2"},
        {{.straggler_probability = 0.5}, "straggler_factor is 0"},
        {{.samples = 2000000}, "samples is 2e+06"},
    };
    lh_pipeline *p = uniform_make(two);
    lh_schedule *s = NULL;
    lh_error err = {0};
    CHECK_OK(lh_method_run("1f1b", p, NULL, &s, NULL, &err), err);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lh_jitter j = rows[i].j;
        lh_jitter_result r;
        j.size = sizeof j;
        CHECK_INT(lh_jitter_run(p, s, NULL, &j, &r, &err), LH_EINVAL);
        CHECK_HAS(err.text, rows[i].what);
    }
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

/* The individual times match the summary, and sample i is the same. */
static void times_one_by_one(void)
{
    enum { N = 200 };
    lh_jitter j = {.size = sizeof j, .latency = 0.5, .samples = N, .seed = 7};
    lh_pipeline *p = uniform_make(two);
    lh_schedule *s = NULL;
    lh_error err = {0};
    int64_t ns[N] = {0}, fewer[3] = {0}, least = INT64_MAX, most = 0;
    double sum = 0;
    CHECK_OK(lh_method_run("1f1b", p, NULL, &s, NULL, &err), err);
    lh_jitter_result r = run(p, "1f1b", j);
    CHECK_OK(lh_jitter_times(p, s, NULL, &j, ns, &err), err);
    uint32_t within = 0;
    for (uint32_t i = 0; i < N; i++) {
        sum += (double)ns[i];
        least = ns[i] < least ? ns[i] : least;
        most = ns[i] > most ? ns[i] : most;
        within += ns[i] <= r.p95_ns;
    }
    CHECK(fabs(sum / N - r.mean_ns) < 1e-3 * r.mean_ns);
    CHECK_INT(least, r.min_ns);
    CHECK_INT(most, r.max_ns);
    CHECK_INT(within, 190);
    j.samples = 3;
    CHECK_OK(lh_jitter_times(p, s, NULL, &j, fewer, &err), err);
    for (int i = 0; i < 3; i++)
        CHECK_INT(fewer[i], ns[i]);
    j.samples = 0;
    CHECK_INT(lh_jitter_times(p, s, NULL, &j, ns, &err), LH_EINVAL);
    CHECK_HAS(err.text, "jitter: samples must be given");
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

int main(void)
{
    RUN(times_one_by_one);
    RUN(one_microbatch);
    RUN(rare_events);
    RUN(all_degraded);
    RUN(shared_links);
    RUN(data_parallel_links);
    RUN(data_parallel_operations);
    RUN(common_numbers);
    RUN(refusals);
    return test_summary();
}
