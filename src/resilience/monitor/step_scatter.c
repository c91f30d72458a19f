/* SPDX-License-Identifier: Apache-2.0 */
#include "resilience/monitor/step_scatter.h"

#include "base/sort.h"

#include <math.h>
#include <string.h>

/* Median of |x - y| for two independent normal variables with standard
 * deviation 1: the normal distribution's upper quartile, 0.67449, times the
 * square root of 2. */
static const double MEDIAN_DIFFERENCE = 0.95387;

void lhi_step_scatter_add(lhi_step_scatter *s, double ns)
{
    if (s->n_iterations > 0)
        s->differences[(s->n_iterations - 1) % LHI_STEP_SCATTER_WINDOW] =
            2 * fabs(ns - s->last_ns) / (ns + s->last_ns);
    s->last_ns = ns;
    s->n_iterations++;
}

/* Compares two doubles for lhi_sort(). */
static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double lhi_step_scatter_compute(const lhi_step_scatter *s)
{
    double sorted[LHI_STEP_SCATTER_WINDOW];
    const uint64_t all = s->n_iterations > 0 ? s->n_iterations - 1 : 0;
    const size_t n =
        all < LHI_STEP_SCATTER_WINDOW ? (size_t)all : LHI_STEP_SCATTER_WINDOW;
    if (n < LHI_STEP_SCATTER_LEAST)
        return 0;
    memcpy(sorted, s->differences, n * sizeof *sorted);
    lhi_sort(sorted, n, sizeof *sorted, compare);
    return (sorted[(n - 1) / 2] + sorted[n / 2]) / 2 / MEDIAN_DIFFERENCE;
}
