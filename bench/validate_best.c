/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the layouts that the model would choose among the measured ones. */
#include "validate.h"

#include <longhaul/experimental/plan.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sorts by group, then in file order. */
static int compare(const void *a, const void *b)
{
    const run *x = *(const run *const *)a, *y = *(const run *const *)b;
    int order = strcmp(x->group, y->group);

    return order ? order : x < y ? -1 : x > y;
}

/* Returns the layout and the recomputation of a run, which its job fixes. */
static lh_choice as_choice(const run *r)
{
    return (lh_choice){.layout = r->job->layout,
                       .recompute = r->job->training.recompute};
}

/* Returns the run closest to published practice among those whose predicted
 * times exceed `least_s` by at most the mean error of the runs' kind, as
 * longhaul plan prints it; `chosen` if none is closer. */
static const run *find_practice(const run *const *runs, const double *seconds,
                                uint32_t n, const run *chosen, double least_s)
{
    const lh_validated_runs *of = lh_find_validated_runs(chosen->job);
    const double most = least_s * (1 + (of ? of->mean_percent / 100 : 0));

    for (uint32_t i = 0; of && i < n; i++) {
        const lh_choice a = as_choice(runs[i]), b = as_choice(chosen);
        if (seconds[i] <= most &&
            lh_choice_is_closer_to_practice(chosen->job, &a, &b))
            chosen = runs[i];
    }
    return chosen;
}

/* Chooses within one group. `seconds`: n numbers to overwrite. */
static bool choose_in_group(const run *const *runs, uint32_t n,
                            const lh_cost_constants *constants, double *seconds,
                            choices *out)
{
    const run *chosen = NULL, *best = runs[0], *practice;
    double least_s = 0, sum_s = 0, slower;

    for (uint32_t i = 0; i < n; i++) {
        if (!predict(runs[i], constants, &seconds[i], NULL))
            return false;
        sum_s += runs[i]->measured_s;
        if (!chosen || seconds[i] < least_s) {
            chosen = runs[i];
            least_s = seconds[i];
        }
        if (runs[i]->measured_s < best->measured_s)
            best = runs[i];
    }
    practice = find_practice(runs, seconds, n, chosen, least_s);
    slower = chosen->measured_s / best->measured_s - 1;
    out->n_groups++;
    out->n_right += slower <= 0;
    out->n_other += practice != chosen;
    out->mean += slower; /* sums for now; divided later */
    out->practice += practice->measured_s / best->measured_s - 1;
    out->practice_worst =
        fmax(out->practice_worst, practice->measured_s / best->measured_s - 1);
    out->any += sum_s / n / best->measured_s - 1;
    if (slower > out->worst) {
        out->worst = slower;
        snprintf(out->worst_group, sizeof out->worst_group, "%s", best->group);
        snprintf(out->worst_run, sizeof out->worst_run, "%s", chosen->name);
    }
    return true;
}

bool measure_choices(const dataset *set, const lh_cost_constants *constants,
                     choices *out)
{
    const run **runs = calloc((size_t)set->n_runs + 1, sizeof *runs);
    double *seconds = calloc((size_t)set->n_runs + 1, sizeof *seconds);
    uint32_t n = 0, end;
    bool ok = runs && seconds;

    *out = (choices){0};
    for (uint32_t i = 0; ok && i < set->n_runs; i++)
        if (!set->runs[i].excluded && set->runs[i].group[0])
            runs[n++] = &set->runs[i];
    if (ok)
        qsort(runs, n, sizeof *runs, compare);
    for (uint32_t first = 0; ok && first < n; first = end) {
        for (end = first + 1; end < n; end++)
            if (strcmp(runs[end]->group, runs[first]->group) != 0)
                break;
        if (end - first > 1)
            ok = choose_in_group(runs + first, end - first, constants, seconds,
                                 out);
    }
    if (out->n_groups) {
        out->mean /= out->n_groups;
        out->practice /= out->n_groups;
        out->any /= out->n_groups;
    }
    free(runs);
    free(seconds);
    return ok;
}

choices add_choices(const choices *a, const choices *b)
{
    choices sum = a->worst > b->worst ? *a : *b;
    double n = a->n_groups + b->n_groups;

    sum.n_groups = a->n_groups + b->n_groups;
    sum.n_right = a->n_right + b->n_right;
    sum.n_other = a->n_other + b->n_other;
    sum.mean = n > 0 ? (a->n_groups * a->mean + b->n_groups * b->mean) / n : 0;
    sum.practice =
        n > 0 ? (a->n_groups * a->practice + b->n_groups * b->practice) / n : 0;
    sum.practice_worst = fmax(a->practice_worst, b->practice_worst);
    sum.any = n > 0 ? (a->n_groups * a->any + b->n_groups * b->any) / n : 0;
    return sum;
}
