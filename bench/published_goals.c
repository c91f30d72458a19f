/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the held-out errors of published runs with the goals for the cost
 * model, and divides the errors among groups of runs with one cause each. */
#include "published.h"

#include <math.h>
#include <string.h>

/* A mean over runs, in percent, with the worst error. */
typedef struct error_mean {
    uint32_t n;
    double sum, worst;
} error_mean;

static void add_error(error_mean *m, double error)
{
    m->n++;
    m->sum += 100 * fabs(error);
    m->worst = fmax(m->worst, 100 * fabs(error));
}

static double get_mean(const error_mean *m)
{
    return m->n ? m->sum / m->n : 0;
}

static bool begins_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

static bool is_mlperf(const published *run)
{
    return begins_with(run->release, "MLPerf");
}

/* A group of runs whose errors have one cause: those of a model, system and
 * precision that begin with the given texts, and of a release ("": any). */
typedef struct cause {
    bool experts, unusual; /* a regression, or all-to-alls across nodes */
    const char *model, *system, *release, *precision;
    const char *shown, *text;
} cause;

/* A run belongs to the first group that fits it. */
static const cause causes[] = {
    {true, true, "Qwen3_30B_a3B", "H100", "25.11", "",
     "Qwen3 30B on H100, release 25.11",
     "the release: with release 25.09 the same job took half the time; 8.8 ms "
     "per layer and 4,096 tokens are missing"},
    {true, true, "Qwen3_30B_a3B", "H100", "26.02", "",
     "Qwen3 30B on H100, release 26.02",
     "the release: with release 26.02.01 the same job took 0.56 of the time; "
     "8.3 ms per layer and 4,096 tokens are missing"},
    {true, true, "GPT OSS 120B", "", "26.06.01", "",
     "gpt-oss, release 26.06.01",
     "a regression of cuDNN (NVIDIA's release notes; cudnn-frontend, issue "
     "256)"},
    {true, true, "GPT OSS 120B", "B300", "26.02", "",
     "gpt-oss on B300, release 26.02",
     "all-to-alls between eight nodes, which take three times the prediction; "
     "since release 26.02.01 the experts stay in a node"},
    {true, false, "Qwen3_30B_a3B", "H100", "", "",
     "Qwen3 30B on H100, other releases",
     "unknown: an iteration has 3,072 passes of a layer in each direction, so "
     "1 ms more per layer is 10 %"},
    {true, false, "GPT OSS 120B", "", "", "MXFP8", "gpt-oss in FP8",
     "unknown; attention in FP8, in which a window saves no time backward, is "
     "in the model"},
    {true, false, "GPT OSS 120B", "", "", "", "gpt-oss in bf16",
     "not modelled: the host waits for the GPU in every layer, since "
     "`weighted_bias_quick_geglu_impl` makes a tensor on the GPU from a number "
     "and `TEGroupedMLP` a list of the tokens per expert; the durations are "
     "not published"},
    {true, false, "DeepSeekV3", "", "", "", "DeepSeek-V3",
     "unknown: on GB200 in FP8 predicted up to 9 % too long"},
    {true, false, "Qwen3_235B_a22B", "", "", "BF16", "Qwen3 235B in bf16",
     "one share of the peak for experts' products in both precisions and of "
     "every size"},
    {true, false, "", "", "", "", "other models with experts", ""},
    {false, false, "", "", "Meta", "", "Llama 3.1 405B, Meta's program",
     "not Megatron: its schedule and chunks are not published"},
    {false, false, "", "H", "MLPerf v5.0", "",
     "Llama 3.1 405B, MLPerf on H100 and H200",
     "the submission is faster than Megatron-Bridge: 64 microbatches with the "
     "same layout on H100 take 12.71 s in MLPerf and 13.56 s with release "
     "25.09; the prediction is the same for both"},
    {false, false, "", "", "MLPerf v5.0", "", "Llama 3.1 405B, MLPerf on GB200",
     "the fixed time (next table)"},
    {false, false, "", "", "", "", "other dense models", ""},
};
enum { N_CAUSES = sizeof causes / sizeof *causes };

static int find_cause(const published *run)
{
    int i = 0;

    while (
        causes[i].experts != run->moe ||
        !begins_with(run->model, causes[i].model) ||
        !begins_with(run->system, causes[i].system) ||
        (*causes[i].release && strcmp(run->release, causes[i].release) != 0) ||
        !begins_with(run->precision, causes[i].precision))
        i++;
    return i;
}

/* Prints the mean and the share of each group of held-out runs in the mean of
 * its kind, in points. */
static void print_causes(const predicted *rows, uint32_t n, FILE *to)
{
    error_mean each[N_CAUSES] = {{0}}, kinds[2] = {{0}};

    for (uint32_t i = 0; i < n; i++) {
        if (!rows[i].run->held_out || rows[i].run->hybrid)
            continue;
        add_error(&each[find_cause(rows[i].run)], rows[i].error);
        add_error(&kinds[rows[i].run->moe], rows[i].error);
    }
    fputs("\n| held-out runs | runs | mean error | points of the mean of its "
          "kind | cause, where known |\n| --- | --- | --- | --- | --- |\n",
          to);
    for (int i = 0; i < N_CAUSES; i++) {
        const cause *c = &causes[i];

        if (each[i].n == 0)
            continue;
        fprintf(to, "| %s | %u | %.1f %% | %.1f of %.1f | %s |\n", c->shown,
                each[i].n, get_mean(&each[i]),
                each[i].sum / kinds[c->experts].n, get_mean(&kinds[c->experts]),
                c->text);
    }
}

/* A line through the iteration times of one system's runs of MLPerf: a time for
 * each microbatch and a fixed time, by least squares. */
typedef struct line {
    double slope, fixed;
} line;

static double count_microbatches(const published *run)
{
    return (double)run->batch / run->data / run->micro;
}

static bool is_on(const predicted *r, const char *system)
{
    return is_mlperf(r->run) && strcmp(r->run->system, system) == 0;
}

static line fit_line(const predicted *rows, uint32_t n, const char *system,
                     bool measured)
{
    double k = 0, x = 0, y = 0, xx = 0, xy = 0;

    for (uint32_t i = 0; i < n; i++) {
        if (!is_on(&rows[i], system))
            continue;
        const double m = count_microbatches(rows[i].run);
        const double s =
            measured ? rows[i].run->measured_s : rows[i].by_us.seconds;

        k++;
        x += m;
        y += s;
        xx += m * m;
        xy += m * s;
    }
    const double slope = (k * xy - x * y) / (k * xx - x * x);
    return (line){slope, (y - slope * x) / k};
}

/* Returns the range of a system's errors, in points, if `fixed` seconds are
 * added to every prediction and the predictions are scaled by `scale`. */
static double find_range(const predicted *rows, uint32_t n, const char *system,
                         double scale, double fixed)
{
    double least = INFINITY, most = -INFINITY;

    for (uint32_t i = 0; i < n; i++) {
        if (!is_on(&rows[i], system))
            continue;
        const double error =
            (scale * rows[i].by_us.seconds + fixed) / rows[i].run->measured_s -
            1;

        least = fmin(least, error);
        most = fmax(most, error);
    }
    return 100 * (most - least);
}

/* Returns by how much the measured time grows per factor of two in GPUs, in
 * percent: the mean over pairs of a system's runs with equally many
 * microbatches; 0: there are none. */
static double find_growth(const predicted *rows, uint32_t n, const char *system)
{
    double sum = 0;
    uint32_t pairs = 0;

    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < n; k++) {
            const published *a = rows[i].run, *b = rows[k].run;

            if (!is_on(&rows[i], system) || !is_on(&rows[k], system) ||
                a->gpus >= b->gpus ||
                fabs(count_microbatches(a) - count_microbatches(b)) > 0.5)
                continue;
            sum += 100 * (b->measured_s / a->measured_s - 1) /
                   log2((double)b->gpus / a->gpus);
            pairs++;
        }
    return pairs ? sum / pairs : 0;
}

static void print_lines(const predicted *rows, uint32_t n, FILE *to)
{
    static const char *const systems[] = {"GB200", "H100", "H200"};

    fputs("\n| MLPerf runs on | measured: per microbatch + fixed, s | "
          "predicted | growth per factor of two in GPUs with equal "
          "microbatches | range of errors, points | with the measured fixed "
          "time |\n| --- | --- | --- | --- | --- | --- |\n",
          to);
    for (size_t i = 0; i < sizeof systems / sizeof *systems; i++) {
        const char *system = systems[i];
        const line m = fit_line(rows, n, system, true),
                   p = fit_line(rows, n, system, false);
        const double scale = m.slope / p.slope,
                     growth = find_growth(rows, n, system);
        char text[24] = "no such runs";

        if (growth > 0)
            snprintf(text, sizeof text, "%.1f %%", growth);
        fprintf(to, "| %s | %.4f + %.2f | %.4f + %.2f | %s | %.1f | %.1f |\n",
                system, m.slope, m.fixed, p.slope, p.fixed, text,
                find_range(rows, n, system, 1, 0),
                find_range(rows, n, system, scale, m.fixed - scale * p.fixed));
    }
}

/* Prints whether a value is at most its goal, or above it but equal to it as
 * both are printed. */
static void print_goal(const char *what, double goal, const char *unit,
                       double value, FILE *to)
{
    fprintf(to, "| %s | %.3g%s | %.1f%s | %s |\n", what, goal, unit, value,
            unit,
            value <= goal         ? "yes"
            : value < goal + 0.05 ? "no, by less than 0.05"
                                  : "no");
}

void published_goals(const predicted *rows, uint32_t n,
                     const titan_errors *titan, FILE *to)
{
    error_mean dense = {0}, experts = {0}, regular = {0}, mlperf = {0};
    double range = 0;

    for (uint32_t i = 0; i < n; i++) {
        const published *run = rows[i].run;

        if (is_mlperf(run))
            range = fmax(range, find_range(rows, n, run->system, 1, 0));
        if (!run->held_out || run->hybrid)
            continue;
        if (run->moe)
            add_error(&experts, rows[i].error);
        if (run->moe && !causes[find_cause(run)].unusual)
            add_error(&regular, rows[i].error);
        if (!run->moe && strcmp(run->release, "Meta") != 0)
            add_error(&dense, rows[i].error);
        if (is_mlperf(run))
            add_error(&mlperf, rows[i].error);
    }
    fputs("\n#### Goals, and causes where they are not reached\n\n"
          "| held-out half | goal | error | reached |\n"
          "| --- | --- | --- | --- |\n",
          to);
    print_goal("dense models, Megatron's programs, mean", 3.7, " %",
               get_mean(&dense), to);
    print_goal("models with experts, mean", 8, " %", get_mean(&experts), to);
    print_goal("models with experts, worst", 25, " %", experts.worst, to);
    fprintf(to,
            "| — without the first four groups below, mean and worst | | %.1f, "
            "%.1f %% | |\n",
            get_mean(&regular), regular.worst);
    print_goal("MLPerf, mean", 3.7, " %", get_mean(&mlperf), to);
    print_goal("MLPerf, largest range of a system's errors", 2, " points",
               range, to);
    print_goal("torchtitan, time, mean", 10, " %", titan->time_percent, to);
    print_goal("torchtitan, memory with the default reserve, mean", 8, " %",
               titan->memory_percent, to);
    print_causes(rows, n, to);
    print_lines(rows, n, to);
}
