/* SPDX-License-Identifier: Apache-2.0 */
/* Generates measured iterations with noise, using its own small simulator, to
 * test code that interprets measurements. Each link of the pipeline has one
 * sender. */
#ifndef NOISY_RUN_H
#define NOISY_RUN_H

#include "base/random.h"
#include "schedule/pipeline/pipeline_internal.h"

#include <longhaul/experimental/monitor.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Noise model, actual parameters, and state of the last iteration. */
typedef struct noisy_run {
    const lh_pipeline *p;
    const lh_schedule *s;
    double cv; /* of latencies, transfers and passes */
    bool
        /* the same factor throughout an iteration, per link or device */
        together;
    bool late; /* a receive is posted when the device reaches its pass */
    lhi_random random;
    /* Actual values per link or per device; NULL: the pipeline's. */
    const double *latency, *transfer, *slower; /* factors */
    const double *clock, *drift; /* ns at step 0, ns per step; per device */
    /* The last iteration. */
    lh_observation seen;
    int64_t makespan_ns;
    lh_observed_message *messages;
    lh_observed_pass *passes;
    /* Scratch. */
    int64_t *arrived, *made; /* per chunk, microbatch, direction; -1: not yet */
    double *link_factor, *device_factor;
    int64_t *link_free, *device_free;
    uint32_t *next;
} noisy_run;

/* Returns a standard normal random number (Box-Muller). */
static inline double noisy_normal(lhi_random *r)
{
    double u = ((double)(lhi_random_next(r) >> 11) + 1) * 0x1p-53;
    double v = (double)(lhi_random_next(r) >> 11) * 0x1p-53;
    return sqrt(-2 * log(u)) * cos(2 * 3.14159265358979323846 * v);
}

/* Returns a random factor with mean 1 and deviation cv, at least 0.1. */
static inline double noisy_factor(noisy_run *n)
{
    double x = 1 + n->cv * noisy_normal(&n->random);
    return x > 0.1 ? x : 0.1;
}

/* Creates a run of the schedule with coefficient of variation `cv`; free with
 * noisy_free. */
static inline noisy_run noisy_make(const lh_pipeline *p, const lh_schedule *s,
                                   double cv, uint64_t seed)
{
    size_t points = 2 * (size_t)p->n_chunks * p->n_microbatches;
    noisy_run n = {.p = p, .s = s, .cv = cv, .random = {seed}};
    n.seen.size = sizeof n.seen;
    n.messages = calloc(points, sizeof *n.messages);
    n.passes = calloc(2 * points, sizeof *n.passes);
    n.arrived = calloc(points, sizeof *n.arrived);
    n.made = calloc(points, sizeof *n.made);
    n.link_factor = calloc(3 * (size_t)p->n_links + 1, sizeof(double));
    n.device_factor = calloc(p->n_devices, sizeof(double));
    n.link_free = calloc(p->n_links + 1, sizeof(int64_t));
    n.device_free = calloc(p->n_devices, sizeof(int64_t));
    n.next = calloc(p->n_devices, sizeof(uint32_t));
    return n;
}

/* Frees the run's buffers. */
static inline void noisy_free(noisy_run *n)
{
    free(n->messages);
    free(n->passes);
    free(n->arrived);
    free(n->made);
    free(n->link_factor);
    free(n->device_factor);
    free(n->link_free);
    free(n->device_free);
    free(n->next);
}

/* Converts an iteration time to the device's clock. */
static inline int64_t noisy_clock(const noisy_run *n, uint32_t device,
                                  int64_t ns)
{
    double off = n->clock ? n->clock[device] : 0;
    if (n->drift)
        off += n->drift[device] * (double)n->seen.step;
    return ns + llround(off);
}

/* Sends the message produced at `made_ns` to a receive posted at `posted_ns`;
 * returns its arrival. */
static inline int64_t noisy_send(noisy_run *n, const lhi_route *route,
                                 int64_t made_ns, int64_t posted_ns)
{
    uint32_t l = route->link;
    const lh_link *link = &n->p->links[l];
    double common = n->together ? n->link_factor[l] : 0;
    double latency = (double)link->latency_ns *
                     (n->latency ? n->latency[l] : 1) *
                     (n->together ? common : noisy_factor(n));
    double transfer = (double)link->transfer_ns *
                      (n->transfer ? n->transfer[l] : 1) *
                      (n->together ? common : noisy_factor(n));
    int64_t enters = made_ns > posted_ns ? made_ns : posted_ns;
    if (n->link_free[l] > enters)
        enters = n->link_free[l];
    n->link_free[l] = enters + llround(transfer);
    int64_t arrives = n->link_free[l] + llround(latency);
    n->messages[n->seen.n_messages++] = (lh_observed_message){
        .link = l,
        .bytes = 1000000,
        .produced_ns = noisy_clock(n, link->from, made_ns),
        .posted_ns = posted_ns > 0 ? noisy_clock(n, link->from, posted_ns) : 0,
        .entered_ns = noisy_clock(n, link->from, enters),
        .arrived_ns = noisy_clock(n, link->to, arrives)};
    return arrives;
}

/* Runs the device's next pass if its input exists; returns whether it ran. */
static inline bool noisy_step(noisy_run *n, uint32_t device)
{
    const lh_pipeline *p = n->p;
    uint32_t n_passes;
    const lh_pass *order = lh_schedule_order(n->s, device, &n_passes);
    if (n->next[device] == n_passes)
        return false;
    const lh_pass *pass = &order[n->next[device]];
    uint32_t c = pass->chunk;
    bool back = pass->kind != LH_F;
    size_t at = lhi_pass_index(p, c, pass->microbatch, back);
    bool needs = pass->kind != LH_W && (back ? c + 1 < p->n_chunks : c > 0);
    int64_t starts = n->device_free[device];
    if (needs) {
        uint32_t from = back ? c + 1 : c - 1;
        const lhi_route *route = back ? &p->backward[from] : &p->forward[from];
        size_t source = lhi_pass_index(p, from, pass->microbatch, back);
        int64_t there = n->arrived[source];
        if (n->made[source] < 0)
            return false;
        if (there < 0) /* posted only now */
            there = noisy_send(n, route, n->made[source], starts);
        if (there > starts)
            starts = there;
    }
    double factor = n->together ? n->device_factor[device] : noisy_factor(n);
    factor *= n->slower ? n->slower[device] : 1;
    int64_t ns = llround((double)lhi_pass_duration(p, pass) * factor);
    int64_t ends = starts + ns;
    n->passes[n->seen.n_passes++] = (lh_observed_pass){*pass, ns};
    n->device_free[device] = ends;
    n->next[device]++;
    if (ends > n->makespan_ns)
        n->makespan_ns = ends;
    bool sends = pass->kind != LH_W && (back ? c > 0 : c + 1 < p->n_chunks);
    if (!sends)
        return true;
    const lhi_route *route = back ? &p->backward[c] : &p->forward[c];
    n->made[at] = ends;
    if (!route->message || route->link == LH_NONE)
        n->arrived[at] = ends;
    else if (!n->late)
        n->arrived[at] = noisy_send(n, route, ends, 0);
    return true;
}

/* Simulates one iteration into n->seen. */
static inline void noisy_iterate(noisy_run *n, uint64_t step)
{
    const lh_pipeline *p = n->p;
    size_t points = 2 * (size_t)p->n_chunks * p->n_microbatches;
    n->seen.step = step;
    n->seen.n_messages = n->seen.n_passes = 0;
    n->seen.messages = n->messages;
    n->seen.passes = n->passes;
    n->makespan_ns = 0;
    for (size_t i = 0; i < points; i++)
        n->arrived[i] = n->made[i] = -1;
    for (uint32_t l = 0; l < p->n_links; l++) {
        n->link_free[l] = 0;
        n->link_factor[l] = noisy_factor(n);
    }
    for (uint32_t d = 0; d < p->n_devices; d++) {
        n->device_free[d] = 0;
        n->next[d] = 0;
        n->device_factor[d] = noisy_factor(n);
    }
    for (bool goes_on = true; goes_on;) {
        goes_on = false;
        for (uint32_t d = 0; d < p->n_devices; d++)
            while (noisy_step(n, d))
                goes_on = true;
    }
}

#endif
