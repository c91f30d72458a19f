/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the engine with the simulator and measures the engine's own
 * overhead.
 *
 *     bench-engine [--json] [--case 1..3] [--steps N] [--scale X] [--table]
 *                  [--strict] [--overhead]
 *
 * --table: M70 of CrossPipe (arXiv:2507.00217, Table 5) on 8 ranks in two
 * datacenters, with timed passes and emulated links. Every cell runs in real
 * time; its median iteration is compared with lh_simulate() under the same
 * options. --scale 0.1 runs ten times faster. --strict counts every delay
 * caused by this machine; otherwise deadlines are chained. --overhead: passes
 * have zero duration, so the remaining time is the engine's. */
#define _DEFAULT_SOURCE
#include "bench.h"
#include "commit.h"

#include <longhaul.h>
#include <longhaul/experimental/engine.h>
#include <longhaul/experimental/methods.h>
#include <math.h>
#include <stdbool.h>
#include <sys/resource.h>

enum { RANKS = 8, MOST_STEPS = 1000 };

typedef struct config {
    bool json, table, overhead, strict;
    int only_case, steps;
    double scale;
} config;

/* A table column: method and engine options. */
typedef struct column {
    const char *method, *placement;
    lh_receives receives;
    unsigned sub_blocks;
    double limit; /* accepted deviation of the median */
} column;

static const column columns[] = {
    {"1f1b", "ud", LH_RECEIVES_EARLY, 0, .02},
    {"zb-h1", "ud", LH_RECEIVES_EARLY, 0, .02},
    {"zb-v", "wave", LH_RECEIVES_EARLY, 0, .02},
    {"greedy", "ud", LH_RECEIVES_EARLY, 8, .02},
    {"1f1b", "ud", LH_RECEIVES_LATE, 0, .03},
    {"zb-h1", "ud", LH_RECEIVES_LATE, 0, .03},
    {"zb-v", "wave", LH_RECEIVES_LATE_FD, 0, .03},
};
enum { N_COLUMNS = sizeof columns / sizeof *columns };

static const char *const receives_names[] = {"early", "late", "late-fd"};
static const double delays[5][2] = {
    {0, 0}, {.25, .25}, {.25, 2}, {2, .25}, {2, 2}};

static lh_pipeline *parse(const char *text)
{
    lh_error err;
    lh_pipeline *p;
    if (lh_pipeline_parse(text, strlen(text), "bench", &p, &err) != LH_OK)
        bench_die(&err);
    return p;
}

/* Builds a table cell. F 38, D 48, W 20 ms. Case 1: 16 microbatches, memory for
 * 8 activations; case 2: 32 and 8, F recomputed in D; case 3: 32 and 16. */
static lh_pipeline *make_cell(const config *how, int which, int delay,
                              const column *col)
{
    char text[1024];
    double unit = how->scale;
    bool wave = strcmp(col->placement, "wave") == 0;
    snprintf(text, sizeof text,
             "longhaul: pipeline/1\ntime_unit: ms\nmicrobatches: %d\n"
             "devices: %d\n"
             "uniform: {placement: %s, F: %.9g, D: %.9g, W: %.9g, "
             "memory: {F: 1, W: -1}}\n"
             "datacenters: {count: 2, latency: %.9g, transfer: %.9g}\n"
             "memory_limit: %d\n",
             which == 1 ? 16 : 32, RANKS, col->placement, 38 * unit,
             (which == 2 ? 86 : 48) * unit, 20 * unit,
             38 * unit * delays[delay][0], 38 * unit * delays[delay][1],
             (which == 3 ? 16 : 8) * (wave ? 2 : 1));
    return parse(text);
}

/* One run's measured iteration times. */
typedef struct outcome {
    double predicted, median, worst_late;
    unsigned long slips;
    uint64_t passes;
    double cpu;
} outcome;

static double cpu_now(void)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (double)use.ru_utime.tv_sec + (double)use.ru_stime.tv_sec +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
}

static outcome run_engine(const lh_pipeline *p, const char *method,
                          unsigned sub_blocks, lh_receives receives, int steps,
                          uint64_t message_bytes, int64_t slip_ns)
{
    lh_error err;
    lh_schedule *s;
    lh_exec *x;
    lh_train_result *r;
    outcome out = {0};
    double seconds[MOST_STEPS];
    lh_method_options m = {.size = sizeof m, .sub_blocks = sub_blocks};
    lh_exec_options e = {.size = sizeof e, .receives = receives};
    lh_train_options t = {.size = sizeof t,
                          .steps = (uint32_t)steps,
                          .message_bytes = message_bytes,
                          .tolerated_lateness_ns = slip_ns};
    if (lh_method_run(method, p, &m, &s, NULL, &err) != LH_OK ||
        lh_exec_make(p, s, &e, &x, &err) != LH_OK)
        bench_die(&err);
    double cpu = cpu_now();
    if (lh_train_timed(p, x, &t, &r, &err) != LH_OK)
        bench_die(&err);
    out.cpu = cpu_now() - cpu;
    for (uint32_t i = 0; i < r->n_iterations; i++) {
        const lh_iteration *it = &r->iterations[i];
        seconds[i] = (double)it->ns / 1e9;
        out.slips += (unsigned long)it->missed_deadlines;
        if ((double)it->max_lateness_ns / 1e9 > out.worst_late)
            out.worst_late = (double)it->max_lateness_ns / 1e9;
    }
    out.median = bench_median(seconds, (int)r->n_iterations);
    out.predicted = (double)lh_exec_predicted_ns(x) / 1e9;
    for (uint32_t d = 0; d < lh_schedule_n_devices(s); d++) {
        uint32_t count;
        lh_schedule_order(s, d, &count);
        out.passes += count;
    }
    lh_train_result_free(r);
    lh_exec_free(x);
    lh_schedule_free(s);
    return out;
}

static bool print_cell(const config *how, int which, int delay,
                       const column *col, bool first)
{
    lh_pipeline *p = make_cell(how, which, delay, col);
    outcome o = run_engine(p, col->method, col->sub_blocks, col->receives,
                           how->steps, 0, how->strict ? 1 : 0);
    double error = o.median / o.predicted - 1;
    bool ok = fabs(error) <= col->limit;
    lh_pipeline_free(p);
    if (how->json)
        printf("%s{\"case\": %d, \"latency\": %g, \"transfer\": %g, "
               "\"method\": \"%s\", \"receives\": \"%s\", \"predicted_s\": "
               "%.6f, \"measured_s\": %.6f, \"error\": %.6f, \"slips\": %lu, "
               "\"worst_late_s\": %.6f, \"ok\": %s}",
               first ? "" : ",\n  ", which, delays[delay][0], delays[delay][1],
               col->method, receives_names[col->receives], o.predicted,
               o.median, error, o.slips, o.worst_late, ok ? "true" : "false");
    else
        printf("| %d | %g, %g | %s | %s | %.3f | %.3f | %+.2f %% | %lu | "
               "%.1f |%s\n",
               which, delays[delay][0], delays[delay][1], col->method,
               receives_names[col->receives], o.predicted, o.median,
               100 * error, o.slips, 1e3 * o.worst_late,
               ok ? "" : " too far |");
    fflush(stdout);
    return ok;
}

static bool print_table(const config *how)
{
    bool all = true, first = true;
    if (how->json)
        printf(", \"cells\": [\n  ");
    else
        printf("| case | latency, transfer / F | method | receives | "
               "predicted s | measured s | error | slips | latest start ms "
               "|\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for (int which = 1; which <= 3; which++) {
        if (how->only_case && which != how->only_case)
            continue;
        for (int delay = 0; delay < 5; delay++)
            for (int k = 0; k < N_COLUMNS; k++) {
                /* As published: static schedules only in cases 1 and 2. */
                if (which == 3 && strcmp(columns[k].method, "greedy") != 0)
                    continue;
                all &= print_cell(how, which, delay, &columns[k], first);
                first = false;
            }
    }
    if (how->json)
        printf("]");
    return all;
}

static bool print_overhead(const config *how)
{
    lh_pipeline *p = parse(
        "longhaul: pipeline/1\nmicrobatches: 512\ndevices: 8\n"
        "uniform: {placement: ud, F: 0, D: 0, W: 0, memory: {F: 1, W: -1}}\n");
    outcome o = run_engine(p, "zb-h1", 0, LH_RECEIVES_EARLY, 21, 64, 0);
    double rate = (double)o.passes / o.median;
    double cpu_us = 1e6 * o.cpu / (21 * (double)o.passes);
    lh_pipeline_free(p);
    if (how->json)
        printf(", \"overhead\": {\"passes\": %lu, \"iteration_s\": %.6f, "
               "\"passes_per_s\": %.0f, \"cpu_us_per_pass\": %.3f}",
               (unsigned long)o.passes, o.median, rate, cpu_us);
    else
        printf("\n%lu passes of no length on %d ranks: %.0f per second, %.1f "
               "us of processor time each\n",
               (unsigned long)o.passes, RANKS, rate, cpu_us);
    return rate >= 50000;
}

static int usage(void)
{
    fprintf(stderr, "usage: bench-engine [--json] [--table] [--strict] "
                    "[--overhead] [--case 1..3] [--steps N] [--scale X]\n");
    return 2;
}

int main(int argc, char **argv)
{
    config how = {.steps = 3, .scale = 1};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--json") == 0)
            how.json = true;
        else if (strcmp(argv[i], "--table") == 0)
            how.table = true;
        else if (strcmp(argv[i], "--overhead") == 0)
            how.overhead = true;
        else if (strcmp(argv[i], "--strict") == 0)
            how.strict = true;
        else if (strcmp(argv[i], "--case") == 0)
            how.only_case = atoi(value), i++;
        else if (strcmp(argv[i], "--steps") == 0)
            how.steps = atoi(value), i++;
        else if (strcmp(argv[i], "--scale") == 0)
            how.scale = atof(value), i++;
        else
            return usage();
    }
    if (how.only_case < 0 || how.only_case > 3 || how.steps < 1 ||
        how.steps > MOST_STEPS || !(how.scale > 0 && how.scale <= 100))
        return usage();
    if (!how.table && !how.overhead)
        how.table = how.overhead = true;
    bool ok = true;
    if (how.json) {
        bench_begin("engine");
        printf(", \"commit\": \"%s\", \"steps\": %d, \"scale\": %g",
               BENCH_COMMIT, how.steps, how.scale);
    }
    if (how.overhead)
        ok &= print_overhead(&how);
    if (how.table)
        ok &= print_table(&how);
    if (how.json)
        printf("}\n");
    return ok ? 0 : 1;
}
