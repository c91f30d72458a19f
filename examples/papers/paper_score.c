/* SPDX-License-Identifier: Apache-2.0 */
#include "paper_score.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Fraction of a published number that counts as agreement. */
static const double tolerance = 0.05;
/* A smaller deviation of a ratio from 1 counts as no effect. */
static const double no_effect = 0.005;
/* A published number this close to the value without the effect, in tolerances,
 * agrees with half of its effect, too. */
static const double faint = 2;
/* Ratio of a range's ends from which the range excludes hardly anything. */
static const double wide = 1.5;
/* Ratios with three decimals resolve no smaller difference. */
static const double resolution = 0.0005;

static const char *const names[SCORE_CLASSES] = {
    "informative", "trivial", "fitted", "given", "variant", "not run"};

static bool is_range(const score_row *r)
{
    return r->has_low && r->has_high;
}

static bool is_number(const score_row *r)
{
    return is_range(r) && !r->is_word;
}

double score_error(const score_row *r)
{
    return r->value / fmin(fmax(r->value, r->low), r->high) - 1;
}

bool score_agrees(const score_row *r)
{
    if (is_number(r))
        return fabs(score_error(r)) <= tolerance;
    if (is_range(r))
        return r->value >= r->low - resolution &&
               r->value <= r->high + resolution;
    return r->has_low ? r->value > r->low + resolution
                      : r->value < r->high - resolution;
}

/* Checks whether a model without any effect would agree, or for a number one
 * with half of the effect. */
static bool is_faint(const score_row *r)
{
    score_row none = *r;

    none.value = r->has_none ? r->none : 1;
    return is_number(r) ? fabs(score_error(&none)) <= faint * tolerance
                        : score_agrees(&none);
}

static score_class classify(const score_row *r, score_class as)
{
    bool flat = (r->is_ratio && fabs(r->value - 1) <= no_effect) ||
                ((r->is_ratio || r->has_none) && is_faint(r));
    bool vague = is_number(r) && r->high > wide * r->low;
    bool counts = as == SCORE_INFORMATIVE || as == SCORE_VARIANT;

    return counts && score_agrees(r) && (flat || vague) ? SCORE_TRIVIAL : as;
}

score_class score_add(score *s, const score_row *r, score_class as)
{
    score_class c = classify(r, as);
    bool agrees = score_agrees(r);

    if (is_number(r)) {
        s->numbers[c]++;
        s->within[c] += agrees;
        s->off[c] += fabs(score_error(r));
    } else {
        s->directions[c]++;
        s->right[c] += agrees;
    }
    return c;
}

score_row score_number(double value, double published)
{
    return (score_row){.value = value,
                       .low = published,
                       .high = published,
                       .has_low = true,
                       .has_high = true};
}

score_row score_ratio(double value, double published)
{
    score_row r = score_number(value, published);

    r.is_ratio = true;
    return r;
}

score_row score_effect(double value, double published, double none)
{
    score_row r = score_number(value, published);

    r.has_none = true;
    r.none = none;
    return r;
}

const char *score_name(score_class c)
{
    return names[c];
}

bool score_parse(const char *name, score_class *out)
{
    for (int c = 0; c < SCORE_NOT_RUN; c++)
        if (strcmp(names[c], name) == 0) {
            *out = (score_class)c;
            return true;
        }
    return false;
}

/* --- page --------------------------------------------------------------- */

void score_print_head(FILE *to)
{
    fputs("| where | claimed | run | paper | longhaul | difference | class | "
          "why |\n"
          "| --- | --- | --- | --- | --- | --- | --- | --- |\n",
          to);
}

static void print_published(const score_line *l, FILE *to)
{
    const score_row *r = &l->row;

    if (is_range(r) && r->low == r->high)
        fprintf(to, " %.*f%s |", l->digits, r->low, l->unit);
    else if (is_range(r))
        fprintf(to, " %.*f to %.*f%s |", l->digits, r->low, l->digits, r->high,
                l->unit);
    else
        fprintf(to, " %s %.*f%s |", r->has_low ? "above" : "below", l->digits,
                r->has_low ? r->low : r->high, l->unit);
}

void score_print_line(score *s, const score_line *l, FILE *to)
{
    score_class c = score_add(s, &l->row, l->as);

    fprintf(to, "| %s | %s | %s |", l->where, l->claimed, l->run);
    print_published(l, to);
    fprintf(to, " %.*f%s |", l->digits, l->row.value, l->unit);
    if (is_number(&l->row))
        fprintf(to, " %+.1f %% |", 100 * score_error(&l->row));
    else
        fprintf(to, " %s |", score_agrees(&l->row) ? "agrees" : "differs");
    fprintf(to, " %s | %s |\n", names[c], l->why);
}

void score_print_missing(score *s, const score_missing *m, FILE *to)
{
    s->directions[SCORE_NOT_RUN]++;
    fprintf(to, "| %s | %s | none | %s | not run | not run | %s | %s |\n",
            m->where, m->claimed, m->paper, names[SCORE_NOT_RUN], m->why);
}

static void print_count(FILE *to, uint32_t some, uint32_t all)
{
    if (all)
        fprintf(to, " %u of %u |", some, all);
    else
        fputs(" |", to);
}

void score_print(const score *s, const char *what, FILE *to)
{
    fprintf(to,
            "\n| %s | numbers within 5 %% | mean error | directions as in the "
            "paper |\n| --- | --- | --- | --- |\n",
            what);
    for (int c = 0; c < SCORE_CLASSES; c++) {
        if (!s->numbers[c] && !s->directions[c])
            continue;
        fprintf(to, "| %s |", names[c]);
        print_count(to, s->within[c], s->numbers[c]);
        if (s->numbers[c])
            fprintf(to, " %.1f %% |", 100 * s->off[c] / s->numbers[c]);
        else
            fputs(" |", to);
        print_count(to, s->right[c], s->directions[c]);
        fputc('\n', to);
    }
}
