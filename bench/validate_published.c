/* SPDX-License-Identifier: Apache-2.0 */
/* Plans of jobs that others ran and published, beside what they measured.
 *
 *     validate-published [--markdown] [--check PAGE] [--job N] [FOLDER]
 *
 * FOLDER holds megatron-bridge/ and meta/ (default bench/data). Each run
 * becomes a job file whose layout is given, which is planned as `longhaul plan`
 * does; --job prints that of row N. Runs that no job can say are listed with
 * the reason. --markdown prints the tables of docs/validation.md, --check fails
 * where PAGE has others. */
#define _POSIX_C_SOURCE 200809L
#include "published.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct row {
    const published *run;
    prediction by_us;
    double error; /* predicted / measured - 1 */
} row;

typedef struct mean {
    uint32_t n;
    double sum, worst;
} mean;

static void layout_text(const published *r, char *text, size_t room)
{
    char expert[24] = "", context[24] = "", chunks[24] = "";

    if (r->expert > 1)
        snprintf(expert, sizeof expert, " EP %u", r->expert);
    if (r->context > 1)
        snprintf(context, sizeof context, " CP %u", r->context);
    if (r->pipeline > 1 && r->chunks > 1)
        snprintf(chunks, sizeof chunks, "x%u", r->chunks);
    snprintf(text, room, "TP %u%s PP %u%s%s DP %u mb %u", r->tensor, context,
             r->pipeline, chunks, expert, r->data, r->micro);
}

static const char *half_name(const published *run)
{
    return run->held_out ? "held out" : "fitted";
}

/* Equal jobs of several releases are planned once. */
static bool predict_rows(const published_set *set, row *rows, uint32_t *n)
{
    static char texts[MAX_PUBLISHED][JOB_TEXT];

    *n = 0;
    for (uint32_t i = 0; i < set->n; i++) {
        row *one = &rows[*n];
        uint32_t k = 0;

        if (set->runs[i].left_out)
            continue;
        *one = (row){.run = &set->runs[i]};
        published_job(one->run, false, texts[*n]);
        while (k < *n && strcmp(texts[k], texts[*n]) != 0)
            k++;
        if (k < *n)
            one->by_us = rows[k].by_us;
        else if (!published_predict(one->run, &one->by_us))
            return false;
        one->error = one->by_us.seconds / one->run->measured_s - 1;
        ++*n;
    }
    return true;
}

static void print_row(const row *r, bool markdown, FILE *to)
{
    const published *run = r->run;
    char layout[96];

    layout_text(run, layout, sizeof layout);
    fprintf(to,
            markdown ? "| %s | %s | %s %s | %u | %s | %.2f | %.2f | %+.1f %% | "
                       "%.0f of %.0f%s | %s |\n"
                     : "%-8s %-22s %-5s %-6s %5u %-34s %7.2f %7.2f %+6.1f%% "
                       "%4.0f/%-4.0f%s %s\n",
            run->release, run->model, run->system,
            run->precision[0] ? run->precision : "FP8", run->gpus, layout,
            run->measured_s, r->by_us.seconds, 100 * r->error,
            r->by_us.peak_bytes / 0x1p30, r->by_us.usable_bytes / 0x1p30,
            r->by_us.refused ? " (refused)" : "", half_name(run));
}

static void add_mean(mean *m, double error)
{
    m->n++;
    m->sum += fabs(error);
    m->worst = fmax(m->worst, fabs(error));
}

static void print_means(const row *rows, uint32_t n, bool markdown, FILE *to)
{
    fputs(markdown ? "| runs | half | runs | mean | worst |\n"
                     "| --- | --- | --- | --- | --- |\n"
                   : "",
          to);
    for (int moe = 0; moe < 2; moe++)
        for (int held = 0; held < 2; held++) {
            mean m = {0};

            for (uint32_t i = 0; i < n; i++)
                if (rows[i].run->moe == moe && rows[i].run->held_out == held)
                    add_mean(&m, rows[i].error);
            fprintf(to,
                    markdown ? "| %s | %s | %u | %.1f %% | %.1f %% |\n"
                             : "%-8s %-8s %4u %6.1f%% %6.1f%%\n",
                    moe ? "experts" : "dense", held ? "held out" : "fitted",
                    m.n, m.n ? 100 * m.sum / m.n : 0, 100 * m.worst);
        }
}

static void print_all(const published_set *set, const row *rows, uint32_t n,
                      bool markdown, FILE *to)
{
    uint32_t refused = 0;

    print_means(rows, n, markdown, to);
    fputs(markdown
              ? "\n| release | model | system | GPUs | layout | measured, s | "
                "predicted, s | error | memory, GiB | half |\n"
                "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- "
                "|\n"
              : "\n",
          to);
    for (uint32_t i = 0; i < n; i++) {
        print_row(&rows[i], markdown, to);
        refused += rows[i].by_us.refused;
    }
    fprintf(to, "\n%u of %u are refused for want of memory.\n\n", refused, n);
    for (uint32_t i = 0; i < set->n; i++) {
        const published *run = &set->runs[i];

        if (run->left_out)
            fprintf(to, "%s%s %s %s %s, %u GPUs: %s\n", markdown ? "* " : "",
                    run->release, run->model, run->system,
                    run->precision[0] ? run->precision : "FP8", run->gpus,
                    run->left_out);
    }
}

int main(int argc, char **argv)
{
    static published_set set;
    static row rows[MAX_PUBLISHED];
    const char *folder = "bench/data";
    bool markdown = false;
    long job = -1;
    uint32_t n = 0;

    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--markdown")) {
            markdown = true;
        } else if (!strcmp(argv[i], "--job") && i + 1 < argc) {
            job = strtol(argv[++i], NULL, 10);
        } else if (argv[i][0] != '-') {
            folder = argv[i];
        } else {
            fprintf(stderr, "usage: validate-published [--markdown] "
                            "[--job N] [FOLDER]\n");
            return 2;
        }
    }
    if (!published_read(folder, &set))
        return 1;
    if (job >= 0 && job < (long)set.n) {
        char text[JOB_TEXT];

        published_job(&set.runs[job], false, text);
        fputs(text, stdout);
        return 0;
    }
    if (!predict_rows(&set, rows, &n))
        return 1;
    print_all(&set, rows, n, markdown, stdout);
    return 0;
}
