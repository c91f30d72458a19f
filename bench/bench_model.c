/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the performance model's speed: evaluates one order in memory, runs
 * the event engine over a long schedule, plans a job.
 *
 *     bench-model [job.yaml] */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#include "bench.h"

#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/plan.h>
#include <longhaul/experimental/simulate.h>

enum { RUNS = 9 };

static lh_pipeline *pipeline(unsigned devices, unsigned microbatches)
{
    char text[512];
    lh_pipeline *p;
    lh_error err;
    snprintf(text, sizeof text,
             "longhaul: pipeline/1\ntime_unit: ms\nmicrobatches: %u\n"
             "devices: %u\nuniform: {F: 38, D: 48, W: 20, memory: {F: 1, W: "
             "-1}}\ndatacenters: {count: 2, latency: 9.5, transfer: 9.5}\n",
             microbatches, devices);
    if (lh_pipeline_parse(text, strlen(text), "bench", &p, &err) != LH_OK)
        bench_die(&err);
    return p;
}

static lh_schedule *zb_h1(const lh_pipeline *p)
{
    lh_schedule *s;
    lh_error err;
    if (lh_method_run("zb-h1", p, NULL, &s, NULL, &err) != LH_OK)
        bench_die(&err);
    return s;
}

/* Returns microseconds per evaluation of an 8 x 16 order. */
static double evaluate(void)
{
    enum { EACH = 20000 };
    lh_pipeline *p = pipeline(8, 16);
    lh_schedule *s = zb_h1(p);
    lh_evaluator *e;
    lh_error err;
    int64_t makespan;
    double seconds[RUNS];
    if (lh_evaluator_make(p, NULL, &e, &err) != LH_OK)
        bench_die(&err);
    for (int i = 0; i < RUNS; i++) {
        double start = bench_now();
        for (int k = 0; k < EACH; k++)
            if (lh_evaluator_run(e, s, &makespan, &err) != LH_OK)
                bench_die(&err);
        seconds[i] = bench_now() - start;
    }
    lh_evaluator_free(e);
    lh_schedule_free(s);
    lh_pipeline_free(p);
    return bench_median(seconds, RUNS) / EACH * 1e6;
}

/* Returns seconds for 64 devices x 1024 microbatches: 196,608 passes. */
static double simulate(void)
{
    lh_pipeline *p = pipeline(64, 1024);
    lh_schedule *s = zb_h1(p);
    lh_timeline *t;
    lh_error err;
    double seconds[RUNS];
    for (int i = 0; i < RUNS; i++) {
        double start = bench_now();
        if (lh_simulate(p, s, NULL, &t, &err) != LH_OK)
            bench_die(&err);
        seconds[i] = bench_now() - start;
        lh_timeline_free(t);
    }
    lh_schedule_free(s);
    lh_pipeline_free(p);
    return bench_median(seconds, RUNS);
}

static double plan(const char *path)
{
    lh_job *job;
    lh_plan *found;
    lh_error err;
    double seconds[RUNS];
    if (lh_job_read(path, &job, &err) != LH_OK)
        bench_die(&err);
    for (int i = 0; i < RUNS; i++) {
        double start = bench_now();
        if (lh_plan_make(job, NULL, &found, &err) != LH_OK)
            bench_die(&err);
        seconds[i] = bench_now() - start;
        lh_plan_free(found);
    }
    lh_job_free(job);
    return bench_median(seconds, RUNS);
}

int main(int argc, char **argv)
{
    if (argc > 2) {
        fprintf(stderr, "usage: bench-model [job.yaml]\n");
        return 2;
    }
    bench_begin("model");
    printf(", \"runs\": %d, \"evaluate_8x16_us\": %.3f, "
           "\"simulate_196608_passes_s\": %.4f",
           RUNS, evaluate(), simulate());
    if (argc == 2)
        printf(", \"plan_s\": %.4f", plan(argv[1]));
    printf("}\n");
    return 0;
}
