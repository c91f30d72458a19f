/* SPDX-License-Identifier: Apache-2.0 */
#include "simplex.h"

#include <math.h>
#include <stdlib.h>

/* Function to minimise and its context. */
typedef struct problem {
    simplex_value *value;
    void *context;
    uint32_t n;
    bool failed;
} problem;

/* Simplex vertex and its value. */
typedef struct vertex {
    double x[SIMPLEX_MOST]; /* logarithms */
    double value;
} vertex;

static void evaluate(problem *p, vertex *v)
{
    double x[SIMPLEX_MOST];

    v->value = HUGE_VAL;
    for (uint32_t i = 0; i < p->n; i++)
        x[i] = exp(v->x[i]);
    if (!p->failed && !p->value(p->context, x, &v->value))
        p->failed = true;
}

static int by_value(const void *a, const void *b)
{
    double x = ((const vertex *)a)->value, y = ((const vertex *)b)->value;

    return (x > y) - (x < y);
}

static vertex move_vertex(problem *p, const double *centre, const double *worst,
                          double by)
{
    vertex v;

    for (uint32_t i = 0; i < p->n; i++)
        v.x[i] = centre[i] + by * (centre[i] - worst[i]);
    evaluate(p, &v);
    return v;
}

static void shrink(problem *p, vertex *s)
{
    for (uint32_t k = 1; k <= p->n; k++) {
        for (uint32_t i = 0; i < p->n; i++)
            s[k].x[i] = s[0].x[i] + 0.5 * (s[k].x[i] - s[0].x[i]);
        evaluate(p, &s[k]);
    }
}

static void step(problem *p, vertex *s)
{
    double centre[SIMPLEX_MOST] = {0};
    vertex *worst = &s[p->n], next, further;

    qsort(s, p->n + 1, sizeof *s, by_value);
    for (uint32_t k = 0; k < p->n; k++)
        for (uint32_t i = 0; i < p->n; i++)
            centre[i] += s[k].x[i] / p->n;
    next = move_vertex(p, centre, worst->x, 1);
    if (next.value < s[0].value) {
        further = move_vertex(p, centre, worst->x, 2);
        *worst = further.value < next.value ? further : next;
    } else if (next.value < s[p->n - 1].value) {
        *worst = next;
    } else {
        further = move_vertex(p, centre, worst->x,
                              next.value < worst->value ? 0.5 : -0.5);
        if (further.value < fmin(next.value, worst->value))
            *worst = further;
        else
            shrink(p, s);
    }
}

bool simplex_search(simplex_value *value, void *context, uint32_t n,
                    uint32_t iterations, double *x)
{
    problem p = {value, context, n, false};
    vertex simplex[SIMPLEX_MOST + 1];

    for (uint32_t k = 0; k <= n; k++) {
        for (uint32_t i = 0; i < n; i++)
            simplex[k].x[i] = log(fmax(x[i], 1e-3)) - (i + 1 == k ? 0.2 : 0);
        evaluate(&p, &simplex[k]);
    }
    for (uint32_t i = 0; i < iterations && !p.failed; i++)
        step(&p, simplex);
    qsort(simplex, n + 1, sizeof *simplex, by_value);
    for (uint32_t i = 0; i < n && !p.failed; i++)
        x[i] = exp(simplex[0].x[i]);
    return !p.failed;
}
