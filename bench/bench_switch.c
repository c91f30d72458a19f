/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the time for a schedule switch at an iteration boundary.
 *
 *     bench-switch [--json] [--stages N] [--microbatches N] [--steps N]
 *                  [--pass-us N] [--apart]
 *
 * Timed ranks alternate between 1f1b and zb-h1. A gap is the time between two
 * iterations: from the end of the last pass on any rank to the start of the
 * next iteration, including all control messages in between. Every second gap
 * contains a switch; with --apart none does, which yields two control rows. The
 * next schedule is sent, lowered, verified and voted on during an iteration,
 * which must last longer than that. */
#define _DEFAULT_SOURCE
#include "bench.h"

#include <longhaul/experimental/engine.h>
#include <longhaul/experimental/methods.h>
#include <stdbool.h>
#include <stdint.h>

enum { MOST_STEPS = 1000 };

typedef struct config {
    bool json, apart;
    int stages, microbatches, steps, pass_us;
} config;

/* One run's schedules and measured gaps. */
typedef struct run {
    const config *how;
    lh_schedule *schedules[2];
    lh_reschedule given;
    double last; /* time of the last iteration report */
    /* Seconds between iterations, without and with a switch. */
    double gaps[2][MOST_STEPS];
    int n[2];
} run;

static const char *const methods[] = {"1f1b", "zb-h1"};

static const lh_reschedule *next_schedule(void *of, uint64_t step)
{
    run *r = of;
    if (r->how->apart || step % 2 || step == 0)
        return NULL;
    const int i = step / 2 % 2;
    r->given = (lh_reschedule){.size = sizeof r->given,
                               .schedule = r->schedules[i],
                               .name = methods[i]};
    return &r->given;
}

static void note_iteration(void *of, const lh_iteration *it)
{
    run *r = of;
    const double now = bench_now();
    const bool even = it->step % 2 == 0;
    if (it->step > 1) /* warm-up: first iterations fault in memory */
        r->gaps[even][r->n[even]++] = now - r->last - (double)it->ns / 1e9;
    r->last = now;
}

static void make_schedules(run *r, const lh_pipeline *p)
{
    lh_error err;
    for (int i = 0; i < 2; i++)
        if (lh_method_run(methods[i], p, NULL, &r->schedules[i], NULL, &err) !=
            LH_OK)
            bench_die(&err);
}

static lh_pipeline *make_pipeline(const config *how)
{
    char text[512];
    lh_error err;
    lh_pipeline *p;
    snprintf(text, sizeof text,
             "longhaul: pipeline/1\ntime_unit: us\nmicrobatches: %d\n"
             "devices: %d\nuniform: {placement: ud, F: %d, D: %d, W: %d}\n",
             how->microbatches, how->stages, how->pass_us, how->pass_us,
             how->pass_us);
    if (lh_pipeline_parse(text, strlen(text), "bench", &p, &err) != LH_OK)
        bench_die(&err);
    return p;
}

static void run_engine(const config *how, run *r)
{
    lh_error err;
    lh_exec *x;
    lh_train_result *result;
    lh_pipeline *p = make_pipeline(how);
    make_schedules(r, p);
    const lh_train_options o = {.size = sizeof o,
                                .steps = (uint64_t)how->steps,
                                .message_bytes = 64,
                                .context = r,
                                .reschedule = next_schedule,
                                .progress = note_iteration};
    if (lh_exec_make(p, r->schedules[0], NULL, &x, &err) != LH_OK ||
        lh_train_timed(p, x, &o, &result, &err) != LH_OK)
        bench_die(&err);
    uint32_t n;
    const lh_switch *rows = lh_train_switches(result, &n);
    for (uint32_t i = 0; i < n; i++)
        if (rows[i].refused) {
            fprintf(stderr, "bench: %s\n", rows[i].refused);
            exit(1);
        }
    if (!how->json)
        printf("iterations    %.0f ms by the simulator, %.0f ms measured; "
               "%u switches\n",
               (double)result->predicted_ns / 1e6,
               (double)result->median_ns / 1e6, (unsigned)n);
    lh_train_result_free(result);
    lh_exec_free(x);
    lh_schedule_free(r->schedules[0]);
    lh_schedule_free(r->schedules[1]);
    lh_pipeline_free(p);
}

static void usage(void)
{
    fprintf(stderr, "usage: bench-switch [--json] [--stages N] "
                    "[--microbatches N] [--steps N] [--pass-us N] "
                    "[--apart]\n");
    exit(2);
}

static config read_arguments(int argc, char **argv)
{
    config how = {
        .stages = 64, .microbatches = 256, .steps = 22, .pass_us = 1500};
    const struct {
        const char *name;
        int *value;
    } numbers[] = {{"--stages", &how.stages},
                   {"--microbatches", &how.microbatches},
                   {"--steps", &how.steps},
                   {"--pass-us", &how.pass_us}};
    for (int i = 1; i < argc; i++) {
        int *value = NULL;
        for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++)
            if (strcmp(argv[i], numbers[k].name) == 0)
                value = numbers[k].value;
        if (strcmp(argv[i], "--json") == 0)
            how.json = true;
        else if (strcmp(argv[i], "--apart") == 0)
            how.apart = true;
        else if (value && i + 1 < argc)
            *value = atoi(argv[++i]);
        else
            usage();
    }
    if (how.stages < 2 || how.microbatches < 1 || how.steps < 4 ||
        how.steps > MOST_STEPS || how.pass_us < 1)
        usage();
    return how;
}

int main(int argc, char **argv)
{
    static run r;
    const config how = read_arguments(argc, argv);
    double median[2], most[2];
    r.how = &how;
    run_engine(&how, &r);
    for (int i = 0; i < 2; i++) {
        median[i] = bench_median(r.gaps[i], r.n[i]);
        most[i] = r.gaps[i][r.n[i] - 1];
    }
    if (how.json) {
        bench_begin("switch");
        printf(",\"stages\":%d,\"microbatches\":%d,"
               "\"without_s\":{\"median\":%.9f,\"most\":%.9f},"
               "\"with_s\":{\"median\":%.9f,\"most\":%.9f}}\n",
               how.stages, how.microbatches, median[0], most[0], median[1],
               most[1]);
        return 0;
    }
    for (int i = 0; i < 2; i++)
        printf("%-13s median %8.3f ms, at most %8.3f ms, of %d\n",
               i && !how.apart ? "with switch" : "without", median[i] * 1e3,
               most[i] * 1e3, r.n[i]);
    printf("difference    median %8.3f ms, of the most %.3f ms\n",
           (median[1] - median[0]) * 1e3, (most[1] - most[0]) * 1e3);
    return 0;
}
