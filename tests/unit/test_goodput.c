/* SPDX-License-Identifier: Apache-2.0 */
/* Goodput: closed forms, a Monte Carlo simulation and published runs. */
#include "jobs.h"

#include "base/random.h"

#include <longhaul/experimental/size.h>

#define YEAR_S (365 * 86400.0)

/* A job whose only datacenter has single-GPU nodes. */
static lh_job *job_of_gpus(uint32_t gpus)
{
    return job_with(JOB_SMALL,
                    "  datacenters: [{name: west, nodes: %u}]\n"
                    "  links:\n",
                    gpus);
}

/* Returns the goodput of `gpus` GPUs. */
static lh_goodput goodput_of(uint32_t gpus, const lh_failures *f)
{
    lh_job *job = job_of_gpus(1);
    lh_goodput g = {0};
    lh_error err = {0};
    CHECK_OK(lh_goodput_compute(job, &gpus, f, &g, &err), err);
    lh_job_free(job);
    return g;
}

/* The optimum's derivative is 0: e^x (y - 1) = -1, x = (interval + checkpoint)
 * / MTBF, y = interval / MTBF; Young's formula is its limit for cheap
 * checkpoints. */
static void interval_is_the_optimum(void)
{
    for (double checkpoint = 1e-3; checkpoint < 1e4; checkpoint *= 7) {
        const double mtbf = 3600;
        const double best = lh_checkpoint_interval_s(checkpoint, mtbf);
        CHECK_NEAR(exp((best + checkpoint) / mtbf) * (best / mtbf - 1), -1,
                   1e-9);
        if (checkpoint < 1)
            CHECK_NEAR(best / sqrt(2 * checkpoint * mtbf), 1, 0.01);
    }
    CHECK_NEAR(lh_checkpoint_interval_s(0, 3600), 0, 0);
    CHECK_NEAR(lh_checkpoint_interval_s(10, 0), 0, 0);
}

/* No other interval has more progress. */
static void other_intervals_are_worse(void)
{
    const lh_failures f = {.size = sizeof f,
                           .gpu_mtbf_s = 2000,
                           .checkpoint_s = 30,
                           .restart_s = 100};
    const lh_goodput g = goodput_of(1, &f);
    for (double share = 0.25; share < 4; share *= 1.4) {
        const double interval = share * g.interval_s;
        const double progress =
            interval / ((2000 + 100) * expm1((interval + 30) / 2000));
        CHECK(progress <= g.progress * (1 + 1e-12));
    }
}

/* Simulates failures of a running job; returns the share of the time that makes
 * progress. */
static double simulate_failures(double interval, double checkpoint,
                                double restart, double mtbf, uint32_t segments)
{
    lhi_random random = {7};
    double time = 0;
    for (uint32_t i = 0; i < segments; i++)
        for (bool done = false; !done;) {
            const double fails =
                (double)lhi_random_exponential(&random, mtbf * 1e9) / 1e9;
            done = fails >= interval + checkpoint;
            time += done ? interval + checkpoint : fails + restart;
        }
    return segments * interval / time;
}

static void progress_agrees_with_a_simulation(void)
{
    const double restarts[] = {0, 300, 3000};
    for (size_t i = 0; i < 3; i++) {
        const lh_failures f = {.size = sizeof f,
                               .gpu_mtbf_s = 4 * 7200.0,
                               .checkpoint_s = 60,
                               .restart_s = restarts[i]};
        const lh_goodput g = goodput_of(4, &f);
        CHECK_NEAR(g.failures_per_s, 1 / 7200.0, 1e-12);
        CHECK_NEAR(
            simulate_failures(g.interval_s, 60, restarts[i], 7200, 200000),
            g.progress, 0.003);
    }
}

/* Nodes under repair: a simulation of the queue with spares. */
static void speed_agrees_with_a_simulation(void)
{
    enum { NODES = 20, EVENTS = 200000 };
    const double mtbf = 50, repair = 10; /* 4 nodes under repair on average */
    static double back[EVENTS];
    lhi_random random = {3};
    for (uint32_t spares = 0; spares < 8; spares += 2) {
        const lh_failures f = {.size = sizeof f,
                               .gpu_mtbf_s = mtbf,
                               .repair_s = repair,
                               .spares = spares};
        double time = 0, missing = 0;
        uint32_t first = 0, n = 0; /* repairs end in their order */
        while (n < EVENTS) {
            const double fails = time + (double)lhi_random_exponential(
                                            &random, mtbf / NODES * 1e9) /
                                            1e9;
            while (time < fails) {
                const uint32_t down = n - first;
                const double next =
                    first < n && back[first] < fails ? back[first] : fails;
                missing += (down > spares ? down - spares : 0) * (next - time);
                first += next < fails;
                time = next;
            }
            back[n++] = time + repair;
        }
        CHECK_NEAR(goodput_of(NODES, &f).speed, 1 - missing / time / NODES,
                   0.003);
    }
}

/* Decoupled DiLoCo (arXiv:2604.21428): one interruption per chip and year. The
 * stall per interruption and the share of chips that wait for their repair are
 * not known here; two of the published values determine them, and predict the
 * others. M learners stall only the chips of one. */
static double predict_learners(double chips, uint32_t learners, double stall_s,
                               double away)
{
    const lh_failures f = {.size = sizeof f,
                           .gpu_mtbf_s = YEAR_S,
                           .restart_s = stall_s,
                           .repair_s = away * YEAR_S};
    return goodput_of((uint32_t)(chips / learners), &f).fraction;
}

static void goodput_of_decoupled_diloco(void)
{
    static const struct {
        double chips;
        uint32_t learners;
        double published, predicted;        /* as in docs/theory/sizes.md */
    } elastic[] = {{1.2e6, 1, 0.58, 0.580}, /* the first two determine the */
                   {1.2e6, 8, 0.88, 0.880}, /* inputs of the others */
                   {1.2e6, 2, 0.70, 0.720}, {1.2e6, 16, 0.93, 0.914},
                   {2.4e6, 1, 0.40, 0.417}, {2.4e6, 8, 0.80, 0.819},
                   {2.4e6, 16, 0.86, 0.880}};
    /* (1 - away) / (1 + x) = 0.58 and (1 - away) / (1 + x / 8) = 0.88 for x =
     * stall / time between failures */
    const double ratio = 0.88 / 0.58, x = (ratio - 1) / (1 - ratio / 8);
    const double stall_s = x * YEAR_S / 1.2e6, away = 1 - 0.58 * (1 + x);
    for (size_t i = 0; i < sizeof elastic / sizeof *elastic; i++) {
        const double predicted = predict_learners(
            elastic[i].chips, elastic[i].learners, stall_s, away);
        CHECK_NEAR(predicted, elastic[i].predicted, 0.0005);
        CHECK_NEAR(predicted, elastic[i].published, i < 2 ? 0.001 : 0.05);
    }
    /* Without elasticity: 27 % of 1.2 million chips predict 18 % of twice as
     * many. */
    const double whole_s = (1 / 0.27 - 1) * YEAR_S / 1.2e6;
    CHECK_NEAR(predict_learners(1.2e6, 1, whole_s, 0), 0.27, 0.001);
    CHECK_NEAR(predict_learners(2.4e6, 1, whole_s, 0), 0.18, 0.05);
}

/* ReCycle (arXiv:2405.14009) states ratios of 1.46 over Oobleck and 1.64 over
 * Bamboo. Their inputs are not public; with failures every 30 minutes they
 * require stops of 14 and 19 minutes. */
static void stops_that_recycles_ratios_require(void)
{
    const double ratios[] = {1.46, 1.64}, minutes[] = {14, 19};
    for (size_t i = 0; i < 2; i++) {
        const lh_failures f = {.size = sizeof f,
                               .gpu_mtbf_s = 1800,
                               .restart_s = (ratios[i] - 1) * 1800};
        CHECK_NEAR(1 / goodput_of(1, &f).progress, ratios[i], 1e-9);
        CHECK_NEAR(f.restart_s / 60, minutes[i], 0.5);
    }
}

/* Llama 3 405B (arXiv:2407.21783, section 3.3.4): 419 unexpected interruptions
 * in 54 days on 16,384 GPUs, and more than 90 % effective training time. */
static void goodput_of_llama_3(void)
{
    const lh_failures f = {.size = sizeof f,
                           .gpu_mtbf_s = 50000 * 3600.0,
                           .checkpoint_s = 30,
                           .restart_s = 300};
    const lh_goodput g = goodput_of(16384, &f);
    CHECK_NEAR(g.failures_per_s * 54 * 86400, 419, 8);
    CHECK(g.progress > 0.90 && g.progress < 0.95);
}

static void goodput_rejects_negative_times(void)
{
    const lh_failures f = {.size = sizeof f, .restart_s = -1};
    const uint32_t nodes = 1;
    lh_job *job = job_of_gpus(1);
    lh_goodput g;
    lh_error err = {0};
    CHECK_INT(lh_goodput_compute(job, &nodes, &f, &g, &err), LH_EINVAL);
    CHECK(strstr(err.text, "-1") != NULL);
    lh_job_free(job);
}

/* Two datacenters with given speeds while a node is missing: a sum over all
 * numbers of missing nodes. */
static void speed_agrees_with_a_sum(void)
{
    enum { MOST = 60 };
    static const double speeds[] = {0.8, 0.5}; /* unsorted */
    static const uint32_t nodes[] = {3, 5};
    lh_job *job = job_with(JOB_SMALL, "layout: {tensor: 1}\n");
    for (uint32_t spares = 0; spares < 3; spares++) {
        const lh_failures f = {.size = sizeof f,
                               .gpu_mtbf_s = 100,
                               .repair_s = 10,
                               .spares = spares,
                               .node_loss_speeds = speeds};
        lh_goodput g = {0};
        lh_error err = {0};
        double speed = 0, a = exp(-0.3);
        for (uint32_t i = 0; i < MOST; a *= 0.3 / ++i) {
            double b = exp(-0.5);
            for (uint32_t k = 0; k < MOST; b *= 0.5 / ++k) {
                const uint32_t west = i > spares ? i - spares : 0;
                const uint32_t east = k > spares ? k - spares : 0;
                const double one = east ? 0.5 : west ? 0.8 : 1;
                const double more =
                    west + east ? (8.0 - west - east) / (8 - 1) : 1;
                speed += a * b * one * more;
            }
        }
        CHECK_OK(lh_goodput_compute(job, nodes, &f, &g, &err), err);
        CHECK_NEAR(g.speed, speed, 1e-6);
    }
    lh_job_free(job);
}

/* Speeds in proportion to the nodes are the same as no given speeds. */
static void speeds_in_proportion_are_the_default(void)
{
    static const double speeds[] = {7 / 8.0, 7 / 8.0};
    static const uint32_t nodes[] = {3, 5};
    lh_job *job = job_with(JOB_SMALL, "layout: {tensor: 1}\n");
    lh_failures f = {.size = sizeof f, .gpu_mtbf_s = 1000, .repair_s = 10};
    lh_goodput without, with;
    lh_error err = {0};
    CHECK_OK(lh_goodput_compute(job, nodes, &f, &without, &err), err);
    f.node_loss_speeds = speeds;
    CHECK_OK(lh_goodput_compute(job, nodes, &f, &with, &err), err);
    CHECK_NEAR(with.speed, without.speed, 1e-12);
    CHECK_NEAR(with.missing, 8 * 10 / 1000.0, 1e-12);
    lh_job_free(job);
}

int main(void)
{
    RUN(interval_is_the_optimum);
    RUN(other_intervals_are_worse);
    RUN(progress_agrees_with_a_simulation);
    RUN(speed_agrees_with_a_simulation);
    RUN(goodput_of_decoupled_diloco);
    RUN(stops_that_recycles_ratios_require);
    RUN(goodput_of_llama_3);
    RUN(goodput_rejects_negative_times);
    RUN(speed_agrees_with_a_sum);
    RUN(speeds_in_proportion_are_the_default);
    return test_summary();
}
