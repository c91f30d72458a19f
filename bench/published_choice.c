/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluates the choice among layouts that ran on the same GPUs. */
#include "published.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void published_layout(const published *r, char *text, size_t room)
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

static bool same_group(const published *a, const published *b)
{
    return strcmp(a->model, b->model) == 0 &&
           strcmp(a->system, b->system) == 0 &&
           strcmp(a->precision, b->precision) == 0 && a->gpus == b->gpus &&
           a->batch == b->batch && a->sequence == b->sequence;
}

static bool same_layout(const published *a, const published *b)
{
    char x[96], y[96];

    published_layout(a, x, sizeof x);
    published_layout(b, y, sizeof y);
    return strcmp(x, y) == 0;
}

/* The choice's result within one group. */
typedef struct choice {
    const predicted *fastest, *chosen;
    uint32_t n_layouts;
} choice;

/* Checks whether a row is its layout's fastest release. */
static bool is_best_release(const predicted *rows, uint32_t n, uint32_t i,
                            bool *seen)
{
    const published *run = rows[i].run;
    bool best = true;

    *seen = false;
    for (uint32_t k = 0; k < n; k++) {
        const published *other = rows[k].run;

        if (k == i || !same_group(other, run) || !same_layout(other, run))
            continue;
        *seen = *seen || k < i;
        best = best && (run->measured_s < other->measured_s ||
                        (k > i && !(run->measured_s > other->measured_s)));
    }
    return best;
}

static choice evaluate_group(const predicted *rows, uint32_t n, uint32_t of)
{
    choice c = {0};

    for (uint32_t i = 0; i < n; i++) {
        const predicted *one = &rows[i];
        bool seen;

        if (!same_group(one->run, rows[of].run))
            continue;
        bool best = is_best_release(rows, n, i, &seen);
        c.n_layouts += !seen;
        if (!best)
            continue;
        if (!c.fastest || one->run->measured_s < c.fastest->run->measured_s)
            c.fastest = one;
        if (!c.chosen || one->by_us.seconds < c.chosen->by_us.seconds)
            c.chosen = one;
    }
    return c;
}

static bool is_first_of_group(const predicted *rows, uint32_t i)
{
    for (uint32_t k = 0; k < i; k++)
        if (same_group(rows[k].run, rows[i].run))
            return false;
    return true;
}

static void print_choice(const choice *c, bool markdown, FILE *to)
{
    const published *run = c->chosen->run;
    char fastest[96], chosen[96];

    published_layout(c->fastest->run, fastest, sizeof fastest);
    published_layout(run, chosen, sizeof chosen);
    fprintf(to,
            markdown ? "| %s, %u | %s %s | %u | %u | %s | %s | %.1f %% |\n"
                     : "%s, %u %s %s %u GPUs, %u layouts: %s; named %s, slower "
                       "by %.1f%%\n",
            run->model, run->batch, run->system,
            run->precision[0] ? run->precision : "FP8", run->gpus, c->n_layouts,
            fastest, chosen,
            100 * (run->measured_s / c->fastest->run->measured_s - 1));
}

bool published_choices(const predicted *rows, uint32_t n, bool markdown,
                       FILE *to)
{
    const double MOST_BEHIND = 0.02;
    bool ok = true;
    uint32_t groups = 0, right = 0;
    double sum = 0, worst = 0;

    if (markdown)
        fputs("\n| model, batch | system | GPUs | layouts | fastest measured | "
              "predicted to be fastest | slower by |\n"
              "| --- | --- | --- | --- | --- | --- | --- |\n",
              to);
    for (uint32_t i = 0; i < n; i++) {
        choice c = evaluate_group(rows, n, i);
        double behind;

        if (!is_first_of_group(rows, i) || c.n_layouts < 2)
            continue;
        print_choice(&c, markdown, to);
        behind = c.chosen->run->measured_s / c.fastest->run->measured_s - 1;
        groups++;
        right += c.chosen == c.fastest;
        sum += behind;
        worst = fmax(worst, behind);
        if (behind <= MOST_BEHIND)
            continue;
        fprintf(stderr,
                "validate-published: %s, batch %u, %u GPUs of %s: the layout "
                "chosen is %.1f %% slower than the fastest measured\n",
                rows[i].run->model, rows[i].run->batch, rows[i].run->gpus,
                rows[i].run->system, 100 * behind);
        ok = false;
    }
    fprintf(to,
            "\nOf %u groups the model chooses the fastest layout in %u; the "
            "chosen layouts take %.1f %% longer than the fastest on average, "
            "%.1f %% at worst.\n",
            groups, right, groups ? 100 * sum / groups : 0, 100 * worst);
    return ok;
}
