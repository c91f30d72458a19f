/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the layouts that the model would choose among the measured ones. */
#include "validate.h"

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

/* Chooses within one group. */
static bool choose_in_group(const run *const *runs, uint32_t n,
                            const lh_cost_constants *constants, choices *out)
{
    const run *chosen = NULL, *best = runs[0];
    double least_s = 0, sum_s = 0, slower;

    for (uint32_t i = 0; i < n; i++) {
        double seconds;

        if (!predict(runs[i], constants, &seconds, NULL))
            return false;
        sum_s += runs[i]->measured_s;
        if (!chosen || seconds < least_s) {
            chosen = runs[i];
            least_s = seconds;
        }
        if (runs[i]->measured_s < best->measured_s)
            best = runs[i];
    }
    slower = chosen->measured_s / best->measured_s - 1;
    out->n_groups++;
    out->n_right += slower <= 0;
    out->mean += slower; /* sum for now; divided later */
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
    uint32_t n = 0, end;
    bool ok = runs != NULL;

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
            ok = choose_in_group(runs + first, end - first, constants, out);
    }
    if (out->n_groups) {
        out->mean /= out->n_groups;
        out->any /= out->n_groups;
    }
    free(runs);
    return ok;
}

choices add_choices(const choices *a, const choices *b)
{
    choices sum = a->worst > b->worst ? *a : *b;
    double n = a->n_groups + b->n_groups;

    sum.n_groups = a->n_groups + b->n_groups;
    sum.n_right = a->n_right + b->n_right;
    sum.mean = n > 0 ? (a->n_groups * a->mean + b->n_groups * b->mean) / n : 0;
    sum.any = n > 0 ? (a->n_groups * a->any + b->n_groups * b->any) / n : 0;
    return sum;
}
