/* SPDX-License-Identifier: Apache-2.0 */
/* Fits constants to half of the published runs. */
#include "published.h"
#include "simplex.h"

#include <math.h>
#include <string.h>

enum { N_FITTED = 8 };

static bool is_usable(const published *run)
{
    return !run->exclusion_reason && !run->held_out;
}

/* Fitting problem. Equal jobs of several releases are planned once. */
typedef struct problem {
    uint32_t n_jobs, n_runs;
    const published *jobs[MAX_PUBLISHED], *runs[MAX_PUBLISHED];
    uint32_t job_of[MAX_PUBLISHED]; /* per run */
    uint32_t n_of[2];               /* counts for dense and other runs */
} problem;

static void unpack_constants(const double *x, fitted *out)
{
    *out = (fitted){.tensor_overlap = x[0],
                    .experts = x[1],
                    .fused_experts = x[2],
                    .fp8 = {x[3], x[4], x[5]},
                    .dispatch_ms = x[6],
                    .expert_ms = x[7]};
}

static void pack_constants(const fitted *f, double *x)
{
    const double all[N_FITTED] = {
        f->tensor_overlap, f->experts, f->fused_experts, f->fp8[0],
        f->fp8[1],         f->fp8[2],  f->dispatch_ms,   f->expert_ms};

    memcpy(x, all, sizeof all);
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
    *p = (problem){0};
    for (uint32_t i = 0; i < set->n; i++) {
        const published *run = &set->runs[i];
        uint32_t k = 0;

        if (!is_usable(run))
            continue;
        while (k < p->n_jobs && !same_job(p->jobs[k], run))
            k++;
        if (k == p->n_jobs)
            p->jobs[p->n_jobs++] = run;
        p->job_of[p->n_runs] = k;
        p->runs[p->n_runs++] = run;
        p->n_of[run->moe]++;
    }
}

static bool value_at(void *context, const double *x, double *value)
{
    const problem *p = context;
    double seconds[MAX_PUBLISHED];
    fitted by;

    for (uint32_t i = 0; i < 3; i++)
        if (x[i] > 1) {
            *value = 10 + log(x[i]); /* penalty above every valid value */
            return true;
        }
    unpack_constants(x, &by);
    for (uint32_t i = 0; i < p->n_jobs; i++)
        if (!published_seconds(p->jobs[i], &by, &seconds[i]))
            return false;
    *value = 0;
    for (uint32_t i = 0; i < p->n_runs; i++) {
        const published *run = p->runs[i];

        *value += fabs(seconds[p->job_of[i]] / run->measured_s - 1) /
                  p->n_of[run->moe];
    }
    return true;
}

bool published_fit(const published_set *set, uint32_t iterations, fitted *by)
{
    static problem p;
    double x[SIMPLEX_MOST];

    gather_jobs(set, &p);
    pack_constants(by, x);
    if (!simplex_search(value_at, &p, N_FITTED, iterations, x))
        return false;
    unpack_constants(x, by);
    return true;
}
