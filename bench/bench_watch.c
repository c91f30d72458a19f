/* SPDX-License-Identifier: Apache-2.0 */
/* Measures a run's monitoring overhead.
 *
 *     bench-watch [--json] [--ranks N] [--microbatches N] [--pass US]
 *                 [--steps N] [--rounds N]
 *
 * Eight timed ranks (threads), or N, run zb-h1 with zero-duration passes, or
 * US microseconds, alternating between no monitoring and
 * `adapt`, which records, collects and analyses each iteration. Each run's
 * first half is discarded: by then the start-up budget is spent, given at least
 * 6000 iterations. Prints per round the medians of iterations (end to end) in
 * both halves and their means, then the medians of the differences, also of the
 * processor time, as a share of the iterations' duration, and the share that
 * the run itself has counted (lh_train_result.monitor_ns). Finally prints the
 * monitor's processor time alone for an iteration with as many messages and
 * passes. */
#define _DEFAULT_SOURCE
#include "bench.h"

#include <longhaul/experimental/engine.h>
#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/monitor.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    MOST_STEPS = 100000,
    MOST_ROUNDS = 100,
    MOST_MICROBATCHES = 4096,
    MOST_RANKS = 256,
    MONITORED = 2000
};

/* Command-line settings. */
typedef struct config {
    bool json;
    int ranks, microbatches, pass_us, steps, rounds;
} config;

/* One run's iteration times. */
typedef struct run {
    double last, mean, median, processor, counted;
    double seconds[MOST_STEPS];
    int n, steps;
} run;

/* Returns this process's processor time in seconds. */
static double processor_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void note_iteration(void *of, const lh_iteration *it)
{
    run *r = of;
    const double now = bench_now();
    if ((int)it->step == r->steps / 2)
        r->processor = processor_time();
    if ((int)it->step > r->steps / 2)
        r->seconds[r->n++] = now - r->last;
    r->last = now;
}

static void run_engine(const config *how, const lh_pipeline *p,
                       const lh_exec *x, bool watches, run *r)
{
    lh_error err;
    lh_train_result *result;
    const lh_train_adapt adapt = {.size = sizeof adapt};
    const lh_train_options o = {.size = sizeof o,
                                .steps = (uint64_t)how->steps,
                                .message_bytes = 64,
                                .context = r,
                                .adapt = watches ? &adapt : NULL,
                                .progress = note_iteration};
    r->n = 0;
    r->steps = how->steps;
    if (lh_train_timed(p, x, &o, &result, &err) != LH_OK)
        bench_die(&err);
    r->processor = (processor_time() - r->processor) / r->n;
    r->mean = 0;
    for (int i = 0; i < r->n; i++)
        r->mean += r->seconds[i] / r->n;
    r->median = bench_median(r->seconds, r->n);
    double all = 0;
    for (uint32_t i = 0; i < lh_train_n_iterations(result); i++)
        all += (double)lh_train_iteration(result, i)->ns / 1e9;
    r->counted = (double)result->monitor_ns / 1e9 / all;
    lh_train_result_free(result);
}

static lh_pipeline *make_pipeline(const config *how)
{
    char text[512];
    lh_error err;
    lh_pipeline *p;
    snprintf(text, sizeof text,
             "longhaul: pipeline/1\ntime_unit: us\nmicrobatches: %d\n"
             "devices: %d\nuniform: {placement: ud, F: %d, D: %d, W: %d}\n",
             how->microbatches, how->ranks, how->pass_us, how->pass_us,
             how->pass_us);
    if (lh_pipeline_parse(text, strlen(text), "bench", &p, &err) != LH_OK)
        bench_die(&err);
    return p;
}

/* Returns `ns` varied by about 5 %. */
static int64_t draw_around(uint64_t *state, int64_t ns)
{
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407U;
    return ns + ns * ((int64_t)(*state >> 54) - 512) / 8192;
}

/* Builds an iteration's synthetic observation. */
static lh_observation make_observation(const config *how, uint64_t step,
                                       lh_observed_message *messages,
                                       lh_observed_pass *passes)
{
    lh_observation seen = {.size = sizeof seen,
                           .step = step,
                           .messages = messages,
                           .passes = passes};
    uint64_t state = step;
    const uint32_t n = (uint32_t)how->ranks;
    for (uint32_t c = 0; c < n; c++)
        for (uint32_t m = 0; m < (uint32_t)how->microbatches; m++) {
            const int64_t at = (int64_t)(10 * m + c) * 10000;
            for (uint8_t kind = LH_F; kind <= LH_W; kind++)
                passes[seen.n_passes++] = (lh_observed_pass){
                    {.chunk = c, .microbatch = m, .n_parts = 1, .kind = kind},
                    draw_around(&state, 1000)};
            for (uint32_t back = 0; c + 1 < n && back < 2; back++)
                messages[seen.n_messages++] = (lh_observed_message){
                    .link = 2 * c + back,
                    .produced_ns = at,
                    .entered_ns = at,
                    .arrived_ns = at + draw_around(&state, 20000),
                };
        }
    return seen;
}

static double measure_monitor(const config *how)
{
    const size_t n = (size_t)how->ranks * (size_t)how->microbatches;
    lh_observed_message *messages = calloc(2 * n, sizeof *messages);
    lh_observed_pass *passes = calloc(3 * n, sizeof *passes);
    lh_error err;
    lh_monitor *monitor;
    lh_schedule *s;
    double seconds = 0;
    static char text[100 * MOST_RANKS];
    if (!messages || !passes)
        exit(1);
    size_t at = (size_t)snprintf(
        text, sizeof text,
        "longhaul: pipeline/1\ntime_unit: us\nmicrobatches: %d\n"
        "devices: %d\nuniform: {placement: ud, F: 1, D: 1, W: 1}\nlinks:\n",
        how->microbatches, how->ranks);
    for (int c = 0; c + 1 < how->ranks; c++)
        at += (size_t)snprintf(text + at, sizeof text - at,
                               "  - {from: %d, to: %d, latency: 20}\n"
                               "  - {from: %d, to: %d, latency: 20}\n",
                               c, c + 1, c + 1, c);
    lh_pipeline *p;
    if (lh_pipeline_parse(text, at, "bench", &p, &err) != LH_OK ||
        lh_method_run("zb-h1", p, NULL, &s, NULL, &err) != LH_OK ||
        lh_monitor_make(p, s, NULL, &monitor, &err) != LH_OK)
        bench_die(&err);
    const uint64_t most = how->ranks > 8 ? MONITORED / 10 : MONITORED;
    for (uint64_t i = 0; i < 2 * most; i++) {
        const lh_observation seen = make_observation(how, i, messages, passes);
        const double from = processor_time();
        if (lh_monitor_add(monitor, &seen, &err) != LH_OK)
            bench_die(&err);
        if (i >= most) /* earlier iterations train the noise model */
            seconds += processor_time() - from;
    }
    lh_monitor_free(monitor);
    lh_schedule_free(s);
    lh_pipeline_free(p);
    free(messages);
    free(passes);
    return seconds / (double)most;
}

static void usage(void)
{
    fprintf(stderr,
            "usage: bench-watch [--json] [--ranks N] [--microbatches N] "
            "[--pass US] [--steps N] [--rounds N]\n");
    exit(2);
}

static config read_arguments(int argc, char **argv)
{
    config how = {.ranks = 8, .microbatches = 16, .steps = 8000, .rounds = 5};
    for (int i = 1; i < argc; i++) {
        const bool has_more = i + 1 < argc;
        if (strcmp(argv[i], "--json") == 0)
            how.json = true;
        else if (strcmp(argv[i], "--ranks") == 0 && has_more)
            how.ranks = atoi(argv[++i]);
        else if (strcmp(argv[i], "--pass") == 0 && has_more)
            how.pass_us = atoi(argv[++i]);
        else if (strcmp(argv[i], "--microbatches") == 0 && has_more)
            how.microbatches = atoi(argv[++i]);
        else if (strcmp(argv[i], "--steps") == 0 && has_more)
            how.steps = atoi(argv[++i]);
        else if (strcmp(argv[i], "--rounds") == 0 && has_more)
            how.rounds = atoi(argv[++i]);
        else
            usage();
    }
    if (how.ranks < 2 || how.ranks > MOST_RANKS || how.pass_us < 0 ||
        how.microbatches < 1 || how.microbatches > MOST_MICROBATCHES ||
        how.steps < 4 || how.steps > MOST_STEPS || how.rounds < 1 ||
        how.rounds > MOST_ROUNDS)
        usage();
    return how;
}

int main(int argc, char **argv)
{
    static run runs[2];
    static double medians[MOST_ROUNDS], means[MOST_ROUNDS],
        processors[MOST_ROUNDS], costs[MOST_ROUNDS], counted[MOST_ROUNDS];
    const config how = read_arguments(argc, argv);
    lh_error err;
    lh_schedule *s;
    lh_exec *x;
    lh_pipeline *p = make_pipeline(&how);
    if (lh_method_run("zb-h1", p, NULL, &s, NULL, &err) != LH_OK ||
        lh_exec_make(p, s, NULL, &x, &err) != LH_OK)
        bench_die(&err);
    for (int i = 0; i < how.rounds; i++) {
        /* Alternate the order: the first run is sometimes faster. */
        for (int k = 0; k < 2; k++)
            run_engine(&how, p, x, k ^ (i & 1), &runs[k ^ (i & 1)]);
        medians[i] = runs[1].median / runs[0].median - 1;
        means[i] = runs[1].mean / runs[0].mean - 1;
        processors[i] = runs[1].processor / runs[0].processor - 1;
        counted[i] = runs[1].counted;
        costs[i] = (runs[1].processor - runs[0].processor) / runs[0].mean;
        if (!how.json)
            printf("median %9.3f us without, %9.3f us with, %+6.2f %%; mean "
                   "%+6.2f %%; processor time %+6.2f %%, %+6.2f %% of an "
                   "iteration\n",
                   runs[0].median * 1e6, runs[1].median * 1e6, 100 * medians[i],
                   100 * means[i], 100 * processors[i], 100 * costs[i]);
    }
    const double median = bench_median(medians, how.rounds);
    const double mean = bench_median(means, how.rounds);
    const double processor = bench_median(processors, how.rounds);
    const double cost = bench_median(costs, how.rounds);
    const double count = bench_median(counted, how.rounds);
    const double alone = measure_monitor(&how);
    if (how.json) {
        bench_begin("watch");
        printf(",\"ranks\":%d,\"microbatches\":%d,\"iteration_s\":%.9f,"
               "\"median\":%.6f,\"mean\":%.6f,\"processor\":%.6f,"
               "\"cost\":%.6f,\"counted\":%.6f,\"monitor_s\":%.9f}\n",
               how.ranks, how.microbatches, runs[0].median, median, mean,
               processor, cost, count, alone);
    } else {
        printf("differences, medians of %d rounds: median %+.2f %%, mean "
               "%+.2f %%, processor time %+.2f %%, %+.2f %% of an iteration\n",
               how.rounds, 100 * median, 100 * mean, 100 * processor,
               100 * cost);
        printf("counted by the run: %.3f %% of all iterations, start-up "
               "included\n",
               100 * count);
        printf("the monitor alone: %.3f us an iteration, %.2f %% of one\n",
               alone * 1e6, 100 * alone / runs[0].median);
    }
    lh_exec_free(x);
    lh_schedule_free(s);
    lh_pipeline_free(p);
    return 0;
}
