/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the delegated path's cost when no link is slow, and compares
 * measured with predicted times.
 *
 *     bench-paths [--json] [--realtime] [--steps N] [--hidden N] DATA
 *
 * First, two ranks train a small model on the text DATA on the cpu device.
 * Messages alternate between the direct and the delegated path, one iteration
 * each, so both are measured under equal load. Then eight timed ranks run the
 * published case: 60 ms on the last link, where sends block the passes behind
 * them. It runs on the direct path and with delegated messages, for several
 * copy durations. --realtime uses SCHED_FIFO, which excludes other work on the
 * machine. */
#define _DEFAULT_SOURCE
#include "bench.h"

#include <longhaul/experimental/engine.h>
#include <longhaul/experimental/methods.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

enum { MOST_STEPS = 2000, LAYERS = 4, SEQUENCE = 128 };

typedef struct config {
    bool json, realtime;
    int steps, hidden;
    const char *data;
} config;

static lh_pipeline *read_pipeline(const char *text)
{
    lh_error err;
    lh_pipeline *p;
    if (lh_pipeline_parse(text, strlen(text), "bench", &p, &err) != LH_OK)
        bench_die(&err);
    return p;
}

static lh_schedule *make_schedule(const lh_pipeline *p, const char *method)
{
    lh_error err;
    lh_schedule *s;
    if (lh_method_run(method, p, NULL, &s, NULL, &err) != LH_OK)
        bench_die(&err);
    return s;
}

/* --- training ----------------------------------------------------------- */

/* The training run's schedule and iteration times. */
typedef struct run {
    const lh_schedule *schedule;
    lh_reschedule given;
    double s[2][MOST_STEPS]; /* iteration times, direct and delegated */
    int n[2];
} run;

static const lh_reschedule *alternate_path(void *of, uint64_t step)
{
    run *r = of;
    r->given = (lh_reschedule){.size = sizeof r->given,
                               .schedule = r->schedule,
                               .override_path = true,
                               .path = step % 2 ? LH_DATA_PATH_DELEGATED
                                                : LH_DATA_PATH_DIRECT};
    return &r->given;
}

static void note_iteration(void *of, const lh_iteration *it)
{
    run *r = of;
    const int path = it->step % 2;
    if (it->step > 3) /* warm-up: first iterations fault in memory */
        r->s[path][r->n[path]++] = (double)it->ns / 1e9;
}

static void train(const config *how, run *r)
{
    static const uint32_t first_layers[] = {0, LAYERS / 2, LAYERS};
    lh_error err;
    lh_exec *x;
    lh_train_result *result = NULL;
    lh_pipeline *p = read_pipeline(
        "longhaul: pipeline/1\ntime_unit: ms\nmicrobatches: 8\ndevices: 2\n"
        "uniform: {placement: ud, F: 1, D: 1, W: 1}\n");
    lh_schedule *schedule = make_schedule(p, "1f1b");
    const lh_model model = {.name = "bench",
                            .layers = LAYERS,
                            .hidden = (uint32_t)how->hidden,
                            .ffn = 3 * (uint32_t)how->hidden,
                            .vocab = 256,
                            .heads = 4,
                            .kv_heads = 4,
                            .head_dim = (uint32_t)how->hidden / 4,
                            .gated = true,
                            .norm = LH_NORM_RMS,
                            .moe_interval = 1};
    lh_train_model m = lh_train_model_defaults();
    m.model = &model;
    m.first_layers = first_layers;
    m.sequence = SEQUENCE;
    m.data = how->data;
    r->schedule = schedule;
    const lh_train_options o = {.size = sizeof o,
                                .steps = (uint64_t)how->steps,
                                .context = r,
                                .reschedule = alternate_path,
                                .progress = note_iteration};
    if (lh_exec_make(p, schedule, NULL, &x, &err) != LH_OK ||
        lh_train_cpu(p, x, &m, &o, &result, &err) != LH_OK)
        bench_die(&err);
    lh_train_result_free(result);
    lh_exec_free(x);
    lh_schedule_free(schedule);
    lh_pipeline_free(p);
}

static void print_overhead(const config *how, run *r)
{
    double median[2];
    train(how, r);
    for (int i = 0; i < 2; i++)
        median[i] = bench_median(r->s[i], r->n[i]);
    if (how->json)
        printf(",\"direct_s\":%.9f,\"delegated_s\":%.9f,\"overhead\":%.6f",
               median[0], median[1], median[1] / median[0] - 1);
    else
        printf("cpu, 1f1b, messages of %d KiB: %.3f ms direct, %.3f ms "
               "delegated, %+.2f %% (medians of %d each)\n",
               how->hidden * SEQUENCE * 4 / 1024, median[0] * 1e3,
               median[1] * 1e3, 100 * (median[1] / median[0] - 1), r->n[0]);
}

/* --- the published case ------------------------------------------------- */

/* 8 stages, n = 16, F = D = W = 9 ms, 60 ms on the last link. */
static const char eight[] =
    "longhaul: pipeline/1\ntime_unit: ms\nmicrobatches: 16\ndevices: 8\n"
    "uniform: {placement: ud, F: 9, D: 9, W: 9, memory: {F: 1, W: -1}}\n"
    "links: [{from: 6, to: 7, latency: 60, transfer: 0}, "
    "{from: 7, to: 6, latency: 60, transfer: 0}]\n";

/* One variant on the published case. */
typedef struct published {
    const char *method;
    lh_data_path path;
    int64_t staging_ns;
    const char *transport;
} published;

static const published cases[] = {
    {"zb-h2", LH_DATA_PATH_DIRECT, 0, "inproc"},
    {"zb-h2", LH_DATA_PATH_DELEGATED, 0, "inproc"},
    {"zb-h2", LH_DATA_PATH_DELEGATED, 1000000, "inproc"},
    {"zb-h2", LH_DATA_PATH_DELEGATED, 1000000, "local"},
    {"zb-h2", LH_DATA_PATH_DELEGATED, 20000000, "inproc"},
    {"zb-h2", LH_DATA_PATH_MIXED, 1000000, "inproc"},
    {"zb-h2", LH_DATA_PATH_MIXED, 20000000, "local"},
    {"1f1b", LH_DATA_PATH_DIRECT, 0, "local"},
    {"1f1b", LH_DATA_PATH_DELEGATED, 1000000, "inproc"},
    {"1f1b", LH_DATA_PATH_DELEGATED, 1000000, "local"},
    {"1f1b", LH_DATA_PATH_MIXED, 5000000, "inproc"},
};

static double run_published(const config *how, const published *c, bool first)
{
    static const bool slow[] = {true, true};
    lh_error err;
    lh_exec *x;
    lh_train_result *r = NULL;
    lh_pipeline *p = read_pipeline(eight);
    lh_schedule *s = make_schedule(p, c->method);
    const lh_delegation copies = {
        .size = sizeof copies, .links = slow, .staging_ns = c->staging_ns};
    const lh_exec_options direct = {.size = sizeof direct,
                                    .receives = LH_RECEIVES_LATE,
                                    .coupled_queue = 1,
                                    .path = c->path,
                                    .delegation = &copies};
    const lh_train_options o = {.size = sizeof o,
                                .transport = c->transport,
                                .steps = 5,
                                .realtime = how->realtime};
    if (lh_exec_make(p, s, &direct, &x, &err) != LH_OK ||
        lh_train_timed(p, x, &o, &r, &err) != LH_OK)
        bench_die(&err);
    const double error = r->error;
    if (how->json)
        printf("%s{\"schedule\":\"%s\",\"path\":\"%s\",\"staging_s\":%g,"
               "\"transport\":\"%s\",\"predicted_s\":%.9f,\"median_s\":%.9f}",
               first ? "" : ",", c->method, lh_data_path_name(c->path),
               (double)c->staging_ns / 1e9, c->transport,
               (double)r->predicted_ns / 1e9, (double)r->median_ns / 1e9);
    else
        printf("%-6s %-9s %3.0f ms a copy, %-6s %5.0f ms predicted, %9.3f "
               "measured, %+.3f %%\n",
               c->method, lh_data_path_name(c->path),
               (double)c->staging_ns / 1e6, c->transport,
               (double)r->predicted_ns / 1e6, (double)r->median_ns / 1e6,
               100 * error);
    lh_train_result_free(r);
    lh_exec_free(x);
    lh_schedule_free(s);
    lh_pipeline_free(p);
    return fabs(error);
}

static void usage(void)
{
    fprintf(stderr, "usage: bench-paths [--json] [--realtime] [--steps N] "
                    "[--hidden N] DATA\n");
    exit(2);
}

static config read_arguments(int argc, char **argv)
{
    config how = {.steps = 104, .hidden = 128};
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--json") == 0)
            how.json = true;
        else if (strcmp(argv[i], "--realtime") == 0)
            how.realtime = true;
        else if (strcmp(argv[i], "--steps") == 0 && i + 1 < argc)
            how.steps = atoi(argv[++i]);
        else if (strcmp(argv[i], "--hidden") == 0 && i + 1 < argc)
            how.hidden = atoi(argv[++i]);
        else if (argv[i][0] != '-' && !how.data)
            how.data = argv[i];
        else
            usage();
    if (!how.data || how.steps < 8 || how.steps > MOST_STEPS ||
        how.hidden < 16 || how.hidden % 16)
        usage();
    return how;
}

int main(int argc, char **argv)
{
    static run r;
    const config how = read_arguments(argc, argv);
    double worst = 0;
    if (how.json)
        bench_begin("paths");
    print_overhead(&how, &r);
    if (how.json)
        printf(",\"rows\":[");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const double error = run_published(&how, &cases[i], i == 0);
        worst = error > worst ? error : worst;
    }
    printf(how.json ? "],\"worst_error\":%.6f}\n"
                    : "at most %.4f of what is predicted off\n",
           worst);
    return 0;
}
