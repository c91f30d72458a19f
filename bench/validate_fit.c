/* SPDX-License-Identifier: Apache-2.0 */
/* Nelder and Mead's simplex (The Computer Journal 7(4), 1965) on the logarithm
 * of each constant, so that they stay positive. */
#include "validate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CONSTANTS = 10 };

typedef struct problem {
    const dataset *const *sets;
    uint32_t n_sets;
    const char *const *names;
    uint32_t n;
    lh_cost_constants base;
    bool failed;
} problem;

double *constant_by_name(lh_cost_constants *c, const char *name)
{
    const struct {
        const char *name;
        double *at;
    } all[] = {
        {"matmul_efficiency", &c->matmul_efficiency},
        {"memory_efficiency", &c->memory_efficiency},
        {"kernel_ns", &c->kernel_ns},
        {"layer_host_ns", &c->layer_host_ns},
        {"node_efficiency", &c->node_efficiency},
        {"fabric_efficiency", &c->fabric_efficiency},
        {"wan_efficiency", &c->wan_efficiency},
        {"iteration_ns", &c->iteration_ns},
    };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(all[i].name, name))
            return all[i].at;
    return NULL;
}

static bool is_share(const char *name)
{
    return strstr(name, "efficiency") != NULL;
}

static void constants_at(const problem *p, const double *x,
                         lh_cost_constants *out)
{
    *out = p->base;
    for (uint32_t i = 0; i < p->n; i++)
        *constant_by_name(out, p->names[i]) = exp(x[i]);
}

static double value_at(problem *p, const double *x)
{
    lh_cost_constants c;
    double sum = 0;

    for (uint32_t i = 0; i < p->n; i++)
        if (is_share(p->names[i]) && x[i] > 0)
            return 10 + x[i]; /* more than all of it */
    constants_at(p, x, &c);
    for (uint32_t i = 0; i < p->n_sets; i++) {
        errors e;

        if (!measure_errors(p->sets[i], FITTED, &c, &e)) {
            p->failed = true;
            return HUGE_VAL;
        }
        sum += e.mean;
    }
    return sum;
}

typedef struct vertex {
    double x[MAX_CONSTANTS];
    double value;
} vertex;

static int by_value(const void *a, const void *b)
{
    double x = ((const vertex *)a)->value, y = ((const vertex *)b)->value;

    return (x > y) - (x < y);
}

static vertex along(problem *p, const double *centre, const double *worst,
                    double by)
{
    vertex v;

    for (uint32_t i = 0; i < p->n; i++)
        v.x[i] = centre[i] + by * (centre[i] - worst[i]);
    v.value = value_at(p, v.x);
    return v;
}

static void shrink(problem *p, vertex *s)
{
    for (uint32_t k = 1; k <= p->n; k++) {
        for (uint32_t i = 0; i < p->n; i++)
            s[k].x[i] = s[0].x[i] + 0.5 * (s[k].x[i] - s[0].x[i]);
        s[k].value = value_at(p, s[k].x);
    }
}

static void step(problem *p, vertex *s)
{
    double centre[MAX_CONSTANTS] = {0};
    vertex *worst = &s[p->n], next, further;

    qsort(s, p->n + 1, sizeof *s, by_value);
    for (uint32_t k = 0; k < p->n; k++)
        for (uint32_t i = 0; i < p->n; i++)
            centre[i] += s[k].x[i] / p->n;
    next = along(p, centre, worst->x, 1);
    if (next.value < s[0].value) {
        further = along(p, centre, worst->x, 2);
        *worst = further.value < next.value ? further : next;
    } else if (next.value < s[p->n - 1].value) {
        *worst = next;
    } else {
        further =
            along(p, centre, worst->x, next.value < worst->value ? 0.5 : -0.5);
        if (further.value < fmin(next.value, worst->value))
            *worst = further;
        else
            shrink(p, s);
    }
}

bool fit(const dataset *const *sets, uint32_t n_sets, const char *const *names,
         uint32_t n_names, uint32_t iterations, lh_cost_constants *constants)
{
    problem p = {sets, n_sets, names, n_names, *constants, false};
    vertex simplex[MAX_CONSTANTS + 1];

    for (uint32_t k = 0; k <= n_names; k++) {
        for (uint32_t i = 0; i < n_names; i++) {
            double *c = constant_by_name(constants, names[i]);

            if (!c)
                return false;
            simplex[k].x[i] = log(fmax(*c, 1e-3));
            if (i + 1 == k)
                simplex[k].x[i] -= 0.2;
        }
        simplex[k].value = value_at(&p, simplex[k].x);
    }
    for (uint32_t i = 0; i < iterations && !p.failed; i++)
        step(&p, simplex);
    qsort(simplex, n_names + 1, sizeof *simplex, by_value);
    constants_at(&p, simplex[0].x, constants);
    return !p.failed;
}
