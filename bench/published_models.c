/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the prediction errors per model, for 16-bit and 8-bit runs. */
#include "published.h"

#include <math.h>
#include <string.h>

/* One model's error statistics. */
typedef struct error_stats {
    uint32_t n;
    double sum, least, most; /* sum of |error|; extremes of the error */
} error_stats;

static bool in_16_bits(const published *run)
{
    return strcmp(run->precision, "BF16") == 0;
}

static bool same_kind(const published *a, const published *b)
{
    return strcmp(published_model(a), published_model(b)) == 0 &&
           in_16_bits(a) == in_16_bits(b);
}

static void add_error(error_stats *o, double error)
{
    o->least = o->n ? fmin(o->least, error) : error;
    o->most = o->n ? fmax(o->most, error) : error;
    o->sum += fabs(error);
    o->n++;
}

static void print_error_stats(const error_stats *o, bool markdown, FILE *to)
{
    if (!o->n)
        fprintf(to, markdown ? " none |" : " %30s", "none");
    else
        fprintf(to,
                markdown ? " %u, %.1f %%, %+.1f to %+.1f %% |"
                         : " %4u %6.1f%% %+7.1f .. %+6.1f%%",
                o->n, 100 * o->sum / o->n, 100 * o->least, 100 * o->most);
}

static void print_model(const predicted *rows, uint32_t n, const published *of,
                        bool markdown, FILE *to)
{
    error_stats halves[2] = {{0}, {0}};

    for (uint32_t i = 0; i < n; i++)
        if (same_kind(rows[i].run, of))
            add_error(&halves[rows[i].run->held_out], rows[i].error);
    fprintf(to, markdown ? "| %s | %s |" : "%-18s %-4s", published_model(of),
            in_16_bits(of) ? "16" : "8");
    print_error_stats(&halves[0], markdown, to);
    print_error_stats(&halves[1], markdown, to);
    fputc('\n', to);
}

void published_models(const predicted *rows, uint32_t n, bool markdown,
                      FILE *to)
{
    fputs(markdown
              ? "\n| model | bits | fitted half: runs, mean, least to most "
                "| held-out half: the same |\n| --- | --- | --- | --- |\n"
              : "\n",
          to);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = 0;

        while (!same_kind(rows[k].run, rows[i].run))
            k++;
        if (k == i)
            print_model(rows, n, rows[i].run, markdown, to);
    }
}
