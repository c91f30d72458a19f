/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fail.h"

#include <longhaul/experimental/trace_compare.h>

#include <inttypes.h>
#include <stdlib.h>

/* Compares passes by chunk, microbatch, kind and part; returns -1, 0 or 1. */
static int compare_passes(const lh_pass *a, const lh_pass *b)
{
    const uint32_t x[] = {a->chunk, a->microbatch, a->kind, a->part,
                          a->n_parts};
    const uint32_t y[] = {b->chunk, b->microbatch, b->kind, b->part,
                          b->n_parts};
    for (uint32_t i = 0; i < 5; i++)
        if (x[i] != y[i])
            return x[i] < y[i] ? -1 : 1;
    return 0;
}

/* Compares pointers to pass runs by their pass, for qsort(). */
static int compare_runs(const void *a, const void *b)
{
    const lh_trace_run *const *x = a, *const *y = b;
    return compare_passes(&(*x)->pass, &(*y)->pass);
}

/* Compares pointers to messages by producing pass, then consuming pass, for
 * qsort(). */
static int compare_messages(const void *a, const void *b)
{
    const lh_trace_message *const *x = a, *const *y = b;
    int by_producer = compare_passes(&(*x)->producer, &(*y)->producer);
    return by_producer ? by_producer
                       : compare_passes(&(*x)->consumer, &(*y)->consumer);
}

/* Records the predicted run `p` as first divergence if it is the earliest one
 * that deviates by more than 0.1 % of the predicted iteration. later_ns: its
 * measured start less the predicted one. */
static void record_divergence(lh_trace_difference *d, const lh_trace_run *p,
                              int64_t later_ns)
{
    int64_t off = later_ns < 0 ? -later_ns : later_ns;
    if (off <= d->predicted_ns / 1000 ||
        (d->divergence[0] && p->start_ns >= d->divergence_ns))
        return;
    lh_pass_format(&p->pass, d->divergence);
    d->divergence_device = p->device;
    d->divergence_ns = p->start_ns;
    d->divergence_delay_ns = later_ns;
    d->divergence_waits = p->waits_for != LH_NONE;
}

/* Adds to `d` the differences in start and duration between a predicted pass
 * and the same measured pass. */
static void add_run_difference(lh_trace_difference *d, const lh_trace_run *p,
                               const lh_trace_run *m)
{
    lh_trace_share *kind = &d->kinds[p->pass.kind];
    int64_t off = m->start_ns - p->start_ns;
    kind->n++;
    kind->predicted_ns += p->end_ns - p->start_ns;
    kind->measured_ns += m->end_ns - m->start_ns;
    d->n_passes++;
    record_divergence(d, p, off);
    off = off < 0 ? -off : off;
    d->mean_start_ns += (double)off;
    if (off >= d->worst_start_ns) {
        d->worst_start_ns = off;
        lh_pass_format(&p->pass, d->worst);
    }
}

/* Pointers to the elements in the predicted and the measured trace, both sorted
 * in the same order. */
typedef struct pair {
    const void **p, **m;
} pair;

/* Allocates arrays of pointers to the n_p and n_m elements (`size` bytes each)
 * of the predicted and the measured trace, sorted by `compare`. The caller
 * frees out->p and out->m, also on failure. */
static lh_status sort_pair(const void *p, uint32_t n_p, const void *m,
                           uint32_t n_m, size_t size,
                           int (*compare)(const void *, const void *),
                           pair *out, lh_error *err)
{
    out->p = calloc((size_t)n_p + 1, sizeof *out->p);
    out->m = calloc((size_t)n_m + 1, sizeof *out->m);
    if (!out->p || !out->m)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < n_p; i++)
        out->p[i] = (const char *)p + i * size;
    for (uint32_t i = 0; i < n_m; i++)
        out->m[i] = (const char *)m + i * size;
    qsort(out->p, n_p, sizeof *out->p, compare);
    qsort(out->m, n_m, sizeof *out->m, compare);
    return LH_OK;
}

/* Matches both traces' runs by pass, and sums the differences and the
 * numbers of unmatched runs. */
static lh_status match_runs(const lh_trace *p, const lh_trace *m,
                            lh_trace_difference *d, lh_error *err)
{
    pair both = {0};
    lh_status status = sort_pair(p->runs, p->n_runs, m->runs, m->n_runs,
                                 sizeof *p->runs, compare_runs, &both, err);
    uint32_t i = 0, j = 0;
    while (status == LH_OK && i < p->n_runs && j < m->n_runs) {
        int order = compare_runs(&both.p[i], &both.m[j]);
        if (order == 0)
            add_run_difference(d, both.p[i], both.m[j]);
        i += order <= 0;
        j += order >= 0;
    }
    free(both.p);
    free(both.m);
    d->n_only_predicted = p->n_runs - d->n_passes;
    d->n_only_measured = m->n_runs - d->n_passes;
    return status;
}

/* Matches both traces' messages by their passes, and sums their times
 * from ready to arrival. */
static lh_status match_messages(const lh_trace *p, const lh_trace *m,
                                lh_trace_difference *d, lh_error *err)
{
    pair both = {0};
    lh_status status =
        sort_pair(p->messages, p->n_messages, m->messages, m->n_messages,
                  sizeof *p->messages, compare_messages, &both, err);
    uint32_t i = 0, j = 0;
    while (status == LH_OK && i < p->n_messages && j < m->n_messages) {
        const lh_trace_message *x = both.p[i], *y = both.m[j];
        int order = compare_messages(&both.p[i], &both.m[j]);
        if (order == 0) {
            d->messages.n++;
            d->messages.predicted_ns += x->arrive_ns - x->ready_ns;
            d->messages.measured_ns += y->arrive_ns - y->ready_ns;
        }
        i += order <= 0;
        j += order >= 0;
    }
    free(both.p);
    free(both.m);
    return status;
}

/* Dimensions that any two iterations in one job share, whatever their
 * schedules. */
typedef struct job_shape {
    uint32_t devices, chunks, microbatches;
} job_shape;

/* Returns the device, chunk and microbatch counts in a trace. */
static job_shape compute_shape(const lh_trace *t)
{
    job_shape x = {.devices = t->n_devices};
    for (uint32_t i = 0; i < t->n_runs; i++) {
        const lh_pass *p = &t->runs[i].pass;
        x.chunks = p->chunk >= x.chunks ? p->chunk + 1 : x.chunks;
        x.microbatches = p->microbatch >= x.microbatches ? p->microbatch + 1
                                                         : x.microbatches;
    }
    return x;
}

/* Fails with LH_EINPUT if the two traces differ in devices, chunks or
 * microbatches. */
static lh_status check_same_job(const lh_trace *predicted,
                                const lh_trace *measured, lh_error *err)
{
    const job_shape p = compute_shape(predicted), m = compute_shape(measured);
    if (p.devices == m.devices && p.chunks == m.chunks &&
        p.microbatches == m.microbatches)
        return LH_OK;
    return lhi_fail(err, LH_EINPUT,
                    "the predicted and the measured trace belong to different "
                    "jobs: %" PRIu32 " devices, %" PRIu32 " chunks, %" PRIu32
                    " microbatches, and %" PRIu32 ", %" PRIu32 ", %" PRIu32,
                    p.devices, p.chunks, p.microbatches, m.devices, m.chunks,
                    m.microbatches);
}

lh_status lh_trace_compare(const lh_trace *predicted, const lh_trace *measured,
                           lh_trace_difference *out, lh_error *err)
{
    LHI_TRY(check_same_job(predicted, measured, err));
    lh_trace_difference d = {.predicted_ns = predicted->makespan_ns,
                             .measured_ns = measured->makespan_ns};
    LHI_TRY(match_runs(predicted, measured, &d, err));
    if (d.n_passes == 0)
        return lhi_fail(err, LH_EINPUT,
                        "the predicted and the measured trace have no pass in "
                        "common; they belong to different schedules");
    d.mean_start_ns /= (double)d.n_passes;
    LHI_TRY(match_messages(predicted, measured, &d, err));
    *out = d;
    return LH_OK;
}
