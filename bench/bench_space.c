/* SPDX-License-Identifier: Apache-2.0 */
/* Plans jobs over a layout grid, for bench/planner_calculon.py.
 *
 *     bench-space REPEATS [KEY=VALUE,VALUE...]... JOB...
 *
 * Keys are tensor, micro_batch, chunks and zero. Each value fixes that part of
 * a job for one planner call; 0 leaves it to the planner; parts without a key
 * keep the job's value. Plans every combination for every job under 1F1B or,
 * with several chunks, interleaved 1F1B, with even chunks and no search for
 * optimal schedules. Prints one JSON object: the fastest plan, the number of
 * layouts that were neither ruled out nor simulated, and the median of REPEATS
 * times in seconds of processor time, including reading the jobs. */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#include "bench.h"

#include <longhaul/experimental/plan.h>

enum { TENSOR, MICRO_BATCH, CHUNKS, ZERO, KEYS };
enum { MOST = 32 };

static const char *const names[] = {"tensor", "micro_batch", "chunks", "zero"};

/* Each key's values. */
typedef struct grid {
    uint32_t n[KEYS]; /* 0: the job's value */
    uint32_t values[KEYS][MOST];
} grid;

/* Best plan and layout counts. */
typedef struct outcome {
    uint32_t n_calls, n_layouts, n_simulated, n_bounded, n_memory, n_left;
    lh_plan *best;
    const char *job; /* best plan: job file and ZeRO stage */
    uint32_t zero;
    lh_error last; /* last error of a planner call */
} outcome;

static double cpu_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void usage(void)
{
    fprintf(stderr, "usage: bench-space REPEATS [tensor=0,16] "
                    "[micro_batch=0,16] [chunks=1,2] [zero=0,1] JOB...\n");
    exit(2);
}

/* Parses a KEY=VALUES argument. Returns false if it is none. */
static bool parse_key(grid *g, const char *arg)
{
    for (int k = 0; k < KEYS; k++) {
        size_t len = strlen(names[k]);
        if (strncmp(arg, names[k], len) != 0 || arg[len] != '=')
            continue;
        const char *at = arg + len;
        while ((*at == '=' || *at == ',') && g->n[k] < MOST) {
            char *end;
            g->values[k][g->n[k]++] = (uint32_t)strtoul(at + 1, &end, 10);
            at = end;
        }
        if (*at != '\0')
            usage();
        return true;
    }
    return false;
}

static void plan_one(const lh_job *job, outcome *o)
{
    lh_plan_options options = {.size = sizeof options, .quick = true, .top = 1};
    lh_job now = *job;
    lh_plan *plan = NULL;
    lh_error err = {0};
    now.layout.schedule =
        now.layout.chunks_per_device == 1 ? "1f1b" : "interleaved-1f1b";
    o->n_calls++;
    lh_status status = lh_plan_make(&now, &options, &plan, &err);
    if (status == LH_ENOMEM)
        bench_die(&err);
    if (status != LH_OK) { /* no layout fits or divides evenly */
        o->last = err;
        return;
    }
    o->n_layouts += plan->n_layouts;
    o->n_simulated += plan->n_simulated;
    o->n_bounded += plan->n_bounded;
    o->n_memory += plan->n_memory;
    o->n_left += plan->n_unexplored;
    if (!o->best || plan->best.iteration_ns < o->best->best.iteration_ns) {
        lh_plan *worse = o->best;
        o->best = plan;
        o->job = NULL;
        o->zero = now.training.zero;
        plan = worse;
    }
    lh_plan_free(plan);
}

static void plan_grid(const lh_job *job, const grid *g, outcome *o)
{
    uint32_t at[KEYS] = {0};
    int k;
    do {
        lh_job now = *job;
        uint32_t *fields[] = {&now.layout.tensor, &now.layout.micro_batch,
                              &now.layout.chunks_per_device,
                              &now.training.zero};
        for (k = 0; k < KEYS; k++)
            if (g->n[k] > 0)
                *fields[k] = g->values[k][at[k]];
        if (g->n[ZERO] > 0)
            now.training.zero_given = true;
        plan_one(&now, o);
        for (k = 0; k < KEYS && ++at[k] >= g->n[k]; k++)
            at[k] = 0;
    } while (k < KEYS);
}

static outcome plan_all(char **jobs, int n_jobs, const grid *g)
{
    outcome o = {0};
    for (int i = 0; i < n_jobs; i++) {
        lh_job *job = NULL;
        lh_error err = {0};
        if (lh_job_read(jobs[i], &job, &err) != LH_OK)
            bench_die(&err);
        plan_grid(job, g, &o);
        if (o.best && !o.job)
            o.job = jobs[i];
        lh_job_free(job);
    }
    return o;
}

static void print(const outcome *o, double *seconds, int n)
{
    if (!o->best)
        bench_die(&o->last);
    bench_begin("space");
    printf(", \"repeats\": %d, \"cpu_seconds\": %.4f, \"calls\": %u, "
           "\"layouts\": %u, \"simulated\": %u, \"bounded\": %u, "
           "\"memory\": %u, \"left\": %u",
           n, bench_median(seconds, n), o->n_calls, o->n_layouts,
           o->n_simulated, o->n_bounded, o->n_memory, o->n_left);
    const lh_choice *c = &o->best->best;
    printf(", \"best\": {\"job\": \"%s\", \"iteration_s\": %.9f, "
           "\"tensor\": %u, "
           "\"pipeline\": %u, \"data\": %u, \"micro_batch\": %u, "
           "\"chunks\": %u, \"zero\": %u, \"recompute\": \"%s\", "
           "\"peak_bytes\": %lld",
           o->job, (double)c->iteration_ns / 1e9, c->layout.tensor,
           c->layout.pipeline, c->layout.data, c->layout.micro_batch,
           c->layout.chunks_per_device, o->zero,
           lh_recompute_name(c->recompute), (long long)c->peak_memory_bytes);
    printf("}}\n");
}

int main(int argc, char **argv)
{
    enum { MOST_REPEATS = 99 };
    double seconds[MOST_REPEATS];
    grid g = {0};
    outcome o = {0};
    int repeats = argc < 3 ? 0 : atoi(argv[1]), i = 2;
    if (repeats < 1 || repeats > MOST_REPEATS)
        usage();
    while (i < argc && parse_key(&g, argv[i]))
        i++;
    if (i == argc)
        usage();
    for (int k = 0; k < repeats; k++) {
        lh_plan_free(o.best);
        double begin = cpu_now();
        o = plan_all(argv + i, argc - i, &g);
        seconds[k] = cpu_now() - begin;
    }
    print(&o, seconds, repeats);
    lh_plan_free(o.best);
    return 0;
}
