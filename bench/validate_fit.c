/* SPDX-License-Identifier: Apache-2.0 */
/* Fits constants that minimise the mean error over the fitted halves. */
#include "simplex.h"
#include "validate.h"

#include <math.h>
#include <string.h>

/* Fitting problem: data sets and named constants. */
typedef struct problem {
    const dataset *const *sets;
    uint32_t n_sets;
    const char *const *names;
    uint32_t n;
    lh_cost_constants base;
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
        *constant_by_name(out, p->names[i]) = x[i];
}

static bool value_at(void *context, const double *x, double *value)
{
    const problem *p = context;
    lh_cost_constants c;

    for (uint32_t i = 0; i < p->n; i++)
        if (is_share(p->names[i]) && x[i] > 1) {
            *value = 10 + log(x[i]); /* penalty above every valid value */
            return true;
        }
    constants_at(p, x, &c);
    *value = 0;
    for (uint32_t i = 0; i < p->n_sets; i++) {
        errors e;

        if (!measure_errors(p->sets[i], FITTED, &c, &e))
            return false;
        *value += e.mean;
    }
    return true;
}

bool fit(const dataset *const *sets, uint32_t n_sets, const char *const *names,
         uint32_t n_names, uint32_t iterations, lh_cost_constants *constants)
{
    problem p = {sets, n_sets, names, n_names, *constants};
    double x[SIMPLEX_MOST];

    for (uint32_t i = 0; i < n_names; i++) {
        const double *c = constant_by_name(constants, names[i]);

        if (!c)
            return false;
        x[i] = *c;
    }
    if (!simplex_search(value_at, &p, n_names, iterations, x))
        return false;
    constants_at(&p, x, constants);
    return true;
}
