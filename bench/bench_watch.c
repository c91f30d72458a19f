/* SPDX-License-Identifier: Apache-2.0 */
/* What it costs a run to watch itself, where passes take no time.
 *
 *     bench-watch [--json] [--microbatches N] [--steps N] [--rounds N]
 *
 * 8 timed ranks as threads play zb-h1, in turn as they are and with `adapt`, by
 * which each iteration is recorded, collected and looked at. The first half of
 * each run is left out: what a run may begin with is spent then, if it has 6000
 * iterations or more. Per round the medians of both halves' iterations, from
 * one end to the next, and their means; then the median of the differences. */
#define _DEFAULT_SOURCE
#include "bench.h"

#include <longhaul/engine.h>
#include <longhaul/methods.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>

enum { MOST_STEPS = 100000, MOST_ROUNDS = 100 };

typedef struct config {
    bool json;
    int microbatches, steps, rounds;
} config;

typedef struct run {
    double last, mean, median, processor;
    double seconds[MOST_STEPS];
    int n, steps;
} run;

/* Of this process, in seconds. */
static double processor_time(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_utime.tv_sec + (double)u.ru_stime.tv_sec +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
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

static void play(const config *how, const lh_pipeline *p, const lh_exec *x,
                 bool watches, run *r)
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
    lh_train_result_free(result);
}

static lh_pipeline *make_pipeline(const config *how)
{
    char text[512];
    lh_error err;
    lh_pipeline *p;
    snprintf(text, sizeof text,
             "longhaul: pipeline/1\ntime_unit: us\nmicrobatches: %d\n"
             "devices: 8\nuniform: {placement: ud, F: 0, D: 0, W: 0}\n",
             how->microbatches);
    if (lh_pipeline_parse(text, strlen(text), "bench", &p, &err) != LH_OK)
        bench_die(&err);
    return p;
}

static void usage(void)
{
    fprintf(stderr, "usage: bench-watch [--json] [--microbatches N] "
                    "[--steps N] [--rounds N]\n");
    exit(2);
}

static config read_arguments(int argc, char **argv)
{
    config how = {.microbatches = 16, .steps = 8000, .rounds = 5};
    for (int i = 1; i < argc; i++) {
        const bool has_more = i + 1 < argc;
        if (strcmp(argv[i], "--json") == 0)
            how.json = true;
        else if (strcmp(argv[i], "--microbatches") == 0 && has_more)
            how.microbatches = atoi(argv[++i]);
        else if (strcmp(argv[i], "--steps") == 0 && has_more)
            how.steps = atoi(argv[++i]);
        else if (strcmp(argv[i], "--rounds") == 0 && has_more)
            how.rounds = atoi(argv[++i]);
        else
            usage();
    }
    if (how.microbatches < 1 || how.steps < 4 || how.steps > MOST_STEPS ||
        how.rounds < 1 || how.rounds > MOST_ROUNDS)
        usage();
    return how;
}

int main(int argc, char **argv)
{
    static run runs[2];
    static double medians[MOST_ROUNDS], means[MOST_ROUNDS],
        processors[MOST_ROUNDS];
    const config how = read_arguments(argc, argv);
    lh_error err;
    lh_schedule *s;
    lh_exec *x;
    lh_pipeline *p = make_pipeline(&how);
    if (lh_method_run("zb-h1", p, NULL, &s, NULL, &err) != LH_OK ||
        lh_exec_make(p, s, NULL, &x, &err) != LH_OK)
        bench_die(&err);
    for (int i = 0; i < how.rounds; i++) {
        /* Who goes first has the better of it now and then: in turn. */
        for (int k = 0; k < 2; k++)
            play(&how, p, x, k ^ (i & 1), &runs[k ^ (i & 1)]);
        medians[i] = runs[1].median / runs[0].median - 1;
        means[i] = runs[1].mean / runs[0].mean - 1;
        processors[i] = runs[1].processor / runs[0].processor - 1;
        if (!how.json)
            printf("median %9.3f us without, %9.3f us with, %+6.2f %%; mean "
                   "%+6.2f %%; processor time %+6.2f %%\n",
                   runs[0].median * 1e6, runs[1].median * 1e6, 100 * medians[i],
                   100 * means[i], 100 * processors[i]);
    }
    const double median = bench_median(medians, how.rounds);
    const double mean = bench_median(means, how.rounds);
    const double processor = bench_median(processors, how.rounds);
    if (how.json) {
        bench_begin("watch");
        printf(",\"microbatches\":%d,\"iteration_s\":%.9f,\"median\":%.6f,"
               "\"mean\":%.6f,\"processor\":%.6f}\n",
               how.microbatches, runs[0].median, median, mean, processor);
    } else {
        printf("differences, medians of %d rounds: median %+.2f %%, mean "
               "%+.2f %%, processor time %+.2f %%\n",
               how.rounds, 100 * median, 100 * mean, 100 * processor);
    }
    lh_exec_free(x);
    lh_schedule_free(s);
    lh_pipeline_free(p);
    return 0;
}
