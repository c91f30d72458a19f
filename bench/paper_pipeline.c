/* SPDX-License-Identifier: Apache-2.0 */
/* Builds pipelines in papers' settings and measures their schedules. */
#include "paper_pipeline.h"

#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/solve.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS 1e6 /* ns */

void paper_check_status(lh_status status, const lh_error *err)
{
    if (status == LH_OK)
        return;
    fprintf(stderr, "a paper's setting: %s\n", err->text);
    exit(1);
}

typedef struct text {
    char at[8192];
    size_t used;
} text;

static void append(text *t, const char *format, ...)
{
    va_list values;

    va_start(values, format);
    int n = vsnprintf(t->at + t->used, sizeof t->at - t->used, format, values);
    va_end(values);
    if (n > 0)
        t->used += (size_t)n;
    if (n < 0 || t->used >= sizeof t->at) {
        fprintf(stderr, "a paper's setting: too long\n");
        exit(1);
    }
}

lh_pipeline *paper_pipeline_build(const paper_pipeline *q)
{
    unsigned chunks = strcmp(q->placement, "ud") == 0 ? 1 : 2;
    lh_pipeline *p = NULL;
    lh_error err = {0};
    text t = {.used = 0};

    append(&t,
           "longhaul: pipeline/1\ntime_unit: ms\nmicrobatches: %u\n"
           "devices: %u\nbackward: %s\nuniform: {placement: %s, F: %.9g, D: "
           "%.9g, W: %.9g, memory: {F: 1, D: %d, W: %d}}\n",
           q->microbatches, q->devices, q->joint ? "joint" : "split",
           q->placement, q->f_ms, q->d_ms, q->w_ms, q->released_at_d ? -1 : 0,
           q->released_at_d ? 0 : -1);
    if (q->datacenters)
        append(&t, "datacenters: {count: %u, latency: %.9g, transfer: %.9g}\n",
               q->datacenters, q->latency_ms, q->transfer_ms);
    if (q->delays_ms)
        append(&t, "links:\n");
    for (unsigned d = 0; q->delays_ms && d + 1 < q->devices; d++)
        append(&t,
               "  - {from: %u, to: %u, latency: %.9g}\n"
               "  - {from: %u, to: %u, latency: %.9g}\n",
               d, d + 1, q->delays_ms[d], d + 1, d, q->delays_ms[d]);
    if (q->memory)
        append(&t, "memory_limit: %u\n", q->memory * chunks);
    paper_check_status(lh_pipeline_parse(t.at, t.used, "setting", &p, &err),
                       &err);
    return p;
}

/* Returns NULL if the method does not support the pipeline. */
static lh_schedule *make_schedule(const lh_pipeline *p, const paper_run *how)
{
    lh_method_options o = {.size = sizeof o,
                           .sub_blocks = how->sub_blocks,
                           .warmup = how->warmup,
                           .n_warmup =
                               how->warmup ? lh_pipeline_n_devices(p) : 0};
    lh_schedule *s = NULL;
    lh_error err = {0};
    lh_status status = lh_method_run(how->method, p, &o, &s, NULL, &err);

    if (status == LH_EINFEASIBLE || status == LH_EUNSUPPORTED)
        return NULL;
    paper_check_status(status, &err);
    return s;
}

static double first_backward_ms(const lh_timeline *t)
{
    uint32_t n;
    const lh_timeline_run *runs = lh_timeline_runs(t, 0, &n);

    for (uint32_t i = 0; i < n; i++)
        if (runs[i].pass.kind != LH_F)
            return (double)runs[i].start_ns / MS;
    return -1;
}

static paper_result run_schedule(const lh_pipeline *p, const lh_schedule *s,
                                 const paper_run *how)
{
    lh_sim_options sim = {.size = sizeof sim,
                          .receives = how->receives,
                          .coupled_queue = how->send_queue,
                          .coupled_until_sent = how->until_sent,
                          .fifo = true};
    paper_result r = {0};
    lh_timeline *t = NULL;
    lh_error err = {0};

    lh_status status = lh_simulate(p, s, &sim, &t, &err);

    if (status == LH_EDEADLOCK) {
        r.ms = -1;
        return r;
    }
    paper_check_status(status, &err);
    r.ms = (double)lh_timeline_makespan(t) / MS;
    r.bubbles = lh_timeline_bubble_ratio(t);
    r.first_backward_ms = first_backward_ms(t);
    for (uint32_t d = 0; d < lh_timeline_n_devices(t) && d < PAPER_MOST_DEVICES;
         d++)
        r.peak[d] = lh_timeline_peak_memory(t, d);
    lh_timeline_free(t);
    return r;
}

paper_result paper_replay_on(const lh_pipeline *made_for, const lh_pipeline *p,
                             const paper_run *how)
{
    lh_schedule *s = make_schedule(made_for, how);
    paper_result r = {.ms = -1};

    if (s)
        r = run_schedule(p, s, how);
    lh_schedule_free(s);
    return r;
}

paper_result paper_run_on(const lh_pipeline *p, const paper_run *how)
{
    return paper_replay_on(p, p, how);
}

paper_result paper_pipeline_replay(const paper_pipeline *made_for,
                                   const paper_pipeline *q,
                                   const paper_run *how)
{
    lh_pipeline *of = paper_pipeline_build(made_for),
                *p = paper_pipeline_build(q);
    paper_result r = paper_replay_on(of, p, how);

    lh_pipeline_free(of);
    lh_pipeline_free(p);
    return r;
}

paper_result paper_pipeline_run(const paper_pipeline *q, const paper_run *how)
{
    lh_pipeline *p = paper_pipeline_build(q);
    paper_result r = paper_run_on(p, how);

    lh_pipeline_free(p);
    return r;
}

double paper_pipeline_makespan_ms(const paper_pipeline *q, const paper_run *how)
{
    return paper_pipeline_run(q, how).ms;
}

static paper_best solve_and_run(const lh_pipeline *p, uint64_t effort,
                                const paper_run *how, unsigned n,
                                paper_result *out)
{
    lh_solve_options o = {.size = sizeof o, .effort = effort};
    lh_solution found = {0};
    lh_error err = {0};

    paper_check_status(lh_solve(p, &o, &found, &err), &err);
    paper_best best = {.ms = (double)found.makespan_ns / MS,
                       .bound_ms = (double)found.bound_ns / MS,
                       .proven = found.status == LH_SOLVE_OPTIMAL};
    for (unsigned i = 0; i < n; i++)
        out[i] = run_schedule(p, found.schedule, &how[i]);
    lh_solution_fini(&found);
    return best;
}

paper_best paper_solve(const lh_pipeline *p, uint64_t effort)
{
    return solve_and_run(p, effort, NULL, 0, NULL);
}

paper_best paper_pipeline_solve_and_run(const paper_pipeline *q,
                                        uint64_t effort, const paper_run *how,
                                        unsigned n, paper_result *out)
{
    lh_pipeline *p = paper_pipeline_build(q);
    paper_best best = solve_and_run(p, effort, how, n, out);

    lh_pipeline_free(p);
    return best;
}

paper_best paper_pipeline_solve(const paper_pipeline *q, uint64_t effort)
{
    lh_pipeline *p = paper_pipeline_build(q);
    paper_best best = paper_solve(p, effort);

    lh_pipeline_free(p);
    return best;
}
