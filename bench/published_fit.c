/* SPDX-License-Identifier: Apache-2.0 */
/* Fits constants to half of the published runs. */
#include "published.h"
#include "simplex.h"

#include <math.h>
#include <string.h>

enum { N_FITTED = 4 };

/* Fitting problem: the fitted runs of one kind, and the constants that its fit
 * does not change. Equal jobs of several releases are planned once. */
typedef struct problem {
    bool experts; /* models with experts, else dense ones */
    fitted fixed;
    uint32_t n_jobs, n_runs;
    const published *jobs[MAX_PUBLISHED], *runs[MAX_PUBLISHED];
    uint32_t job_of[MAX_PUBLISHED]; /* per run */
} problem;

static bool is_usable(const published *run, bool experts)
{
    return !run->exclusion_reason && !run->held_out && run->moe == experts;
}

/* Lists the constants of a kind of model: first those that are shares and
 * cannot exceed 1. Returns the number of shares. */
static uint32_t list_constants(fitted *f, bool experts, double *out[N_FITTED])
{
    double *const dense_ones[N_FITTED] = {&f->tensor_overlap, &f->fp8[0],
                                          &f->fp8[1], &f->fp8[2]};
    double *const expert_ones[N_FITTED] = {&f->experts, &f->fused_experts,
                                           &f->dispatch_ms, &f->expert_ms};

    memcpy(out, experts ? expert_ones : dense_ones, sizeof dense_ones);
    return experts ? 2 : 1;
}

static bool same_job(const published *a, const published *b)
{
    const fitted now = published_fitted();
    char x[JOB_TEXT], y[JOB_TEXT];

    published_job(a, &now, true, x);
    published_job(b, &now, true, y);
    return strcmp(x, y) == 0;
}

static void gather_jobs(const published_set *set, problem *p)
{
    for (uint32_t i = 0; i < set->n; i++) {
        const published *run = &set->runs[i];
        uint32_t k = 0;

        if (!is_usable(run, p->experts))
            continue;
        while (k < p->n_jobs && !same_job(p->jobs[k], run))
            k++;
        if (k == p->n_jobs)
            p->jobs[p->n_jobs++] = run;
        p->job_of[p->n_runs] = k;
        p->runs[p->n_runs++] = run;
    }
}

static bool value_at(void *context, const double *x, double *value)
{
    const problem *p = context;
    double seconds[MAX_PUBLISHED], *constants[N_FITTED];
    fitted by = p->fixed;
    const uint32_t shares = list_constants(&by, p->experts, constants);

    for (uint32_t i = 0; i < shares; i++)
        if (x[i] > 1) {
            *value = 10 + log(x[i]); /* penalty above every valid value */
            return true;
        }
    for (uint32_t i = 0; i < N_FITTED; i++)
        *constants[i] = x[i];
    for (uint32_t i = 0; i < p->n_jobs; i++)
        if (!published_seconds(p->jobs[i], &by, &seconds[i]))
            return false;
    *value = 0;
    for (uint32_t i = 0; i < p->n_runs; i++)
        *value += fabs(seconds[p->job_of[i]] / p->runs[i]->measured_s - 1) /
                  p->n_runs;
    return true;
}

/* Fits the constants of one kind of model. */
static bool fit_kind(const published_set *set, bool experts,
                     uint32_t iterations, fitted *by)
{
    static problem p;
    double x[N_FITTED], *constants[N_FITTED];

    p = (problem){.experts = experts, .fixed = *by};
    gather_jobs(set, &p);
    list_constants(by, experts, constants);
    for (uint32_t i = 0; i < N_FITTED; i++)
        x[i] = *constants[i];
    if (!simplex_search(value_at, &p, N_FITTED, iterations, x))
        return false;
    for (uint32_t i = 0; i < N_FITTED; i++)
        *constants[i] = x[i];
    return true;
}

bool published_fit(const published_set *set, uint32_t iterations, fitted *by)
{
    return fit_kind(set, false, iterations, by) &&
           fit_kind(set, true, iterations, by);
}
