/* SPDX-License-Identifier: Apache-2.0 */
/* Simulates iterations with random delays: each sample draws new pipeline
 * times. */
#include "schedule/simulator/jitter_samples.h"

#include "base/fail.h"
#include "base/options.h"
#include "base/random.h"
#include "schedule/pipeline/pipeline_internal.h"

#include <longhaul/experimental/simulate.h>

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Number of sampled iterations: maximum and default. */
enum { MAX_SAMPLES = 1000000, DEFAULT_SAMPLES = 1000 };
static const int64_t most_ns = INT64_C(1) << 53; /* limit on every duration */

/* The pipeline with one sample's delays; everything not drawn is shared with
 * the original. */
typedef struct sampled_pipeline {
    const lh_pipeline *from;
    const lh_jitter *jitter;
    lhi_arena *mem;
    lh_pipeline now;
    double *latency, *transfer; /* per resource: factors */
    double *work;               /* per device: factor on its passes */
    double *dp_latency,
        *dp_transfer; /* data-parallel link: latency and transfer factor */
} sampled_pipeline;

/* A sampler with its options. */
struct lhi_jitter_sampler {
    lh_jitter jitter;
    sampled_pipeline x;
};

/* Returns a random source for sample number `sample` and link or device number
 * `number`; `kind` separates the purposes. It is independent of all other
 * sources of the same seed. */
static lhi_random get_random_source(const lh_jitter *j, uint32_t sample,
                                    uint32_t kind, uint32_t number)
{
    lhi_random r = {j->seed};
    uint64_t at = lhi_random_next(&r) ^ ((uint64_t)sample << 32 | number);
    lhi_random s = {at};
    s.state = lhi_random_next(&s) + kind;
    lhi_random_next(&s);
    return s;
}

/* Draws from the exponential distribution with mean 1. */
static double draw_exponential(lhi_random *r)
{
    double unit = (double)(lhi_random_next(r) >> 11) * 0x1p-53;
    return -log(1 - unit);
}

/* Draws whether an event with probability `rate` occurs. */
static bool draw_event(lhi_random *r, double rate)
{
    return (double)(lhi_random_next(r) >> 11) * 0x1p-53 < rate;
}

/* Multiplies the duration `ns` by a factor; the result is at most most_ns. */
static int64_t scale_ns(int64_t ns, double factor)
{
    double product = (double)ns * factor;
    if (factor == 1)
        return ns;
    return product < (double)most_ns ? llround(product) : most_ns;
}

/* Sets the jitter factors of device d's data-parallel communication to the
 * largest factors of the links that it shares with messages. */
static void use_shared_factors(sampled_pipeline *x, uint32_t d)
{
    const lh_pipeline *p = x->from;
    x->dp_transfer[d] = x->dp_latency[d] = 0;
    for (uint32_t i = p->shared_at[d]; i < p->shared_at[d + 1]; i++) {
        uint32_t r = p->shared[i];
        x->dp_transfer[d] = fmax(x->dp_transfer[d], x->transfer[r]);
        x->dp_latency[d] = fmax(x->dp_latency[d], x->latency[r]);
    }
}

/* Draws the delay factors of all links, devices and data-parallel links for
 * sample number `sample`. */
static void draw_factors(sampled_pipeline *x, uint32_t sample)
{
    const lh_jitter *j = x->jitter;
    for (uint32_t i = 0; i < x->from->n_resources; i++) {
        lhi_random r = get_random_source(j, sample, 0, i);
        double bad =
            draw_event(&r, j->degraded_probability) ? j->degraded_factor : 1;
        x->latency[i] = bad * (1 + j->latency * draw_exponential(&r));
        x->transfer[i] = bad * (1 + j->transfer * draw_exponential(&r));
    }
    for (uint32_t d = 0; d < x->from->n_devices; d++) {
        lhi_random r = get_random_source(j, sample, 1, d);
        x->work[d] =
            draw_event(&r, j->straggler_probability) ? j->straggler_factor : 1;
        if (j->shared_data_link)
            r = get_random_source(j, sample, 2, 0);
        double transfer = draw_exponential(&r);
        double bad =
            draw_event(&r, j->degraded_probability) ? j->degraded_factor : 1;
        x->dp_transfer[d] = bad * (1 + j->transfer * transfer);
        x->dp_latency[d] = bad * (1 + j->latency * draw_exponential(&r));
        if (lhi_shares_link(x->from, d))
            use_shared_factors(x, d);
    }
}

/* Scales a route's latency and transfer time by the factors that this sample
 * drew for its link. */
static void vary_route(const sampled_pipeline *x, const lhi_route *from,
                       lhi_route *to)
{
    *to = *from;
    if (!from->message || from->link == LH_NONE)
        return;
    to->latency_ns = scale_ns(from->latency_ns, x->latency[from->resource]);
    to->transfer_ns = scale_ns(from->transfer_ns, x->transfer[from->resource]);
}

/* Multiplies the times in the sampler's pipeline copy by the current sample's
 * factors. */
static void apply_factors(sampled_pipeline *x)
{
    const lh_pipeline *p = x->from;
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        const lh_chunk *from = &p->chunks[c];
        lh_chunk *to = &x->now.chunks[c];
        double work = x->work[from->device],
               shared = x->dp_transfer[from->device];
        *to = *from;
        to->f_ns = scale_ns(from->f_ns, work);
        to->d_ns = scale_ns(from->d_ns, work);
        to->w_ns = scale_ns(from->w_ns, work);
        to->all_gather_ns = scale_ns(from->all_gather_ns, shared);
        to->reduce_scatter_ns = scale_ns(from->reduce_scatter_ns, shared);
        to->dp_latency_ns =
            scale_ns(from->dp_latency_ns, x->dp_latency[from->device]);
        vary_route(x, &p->forward[c], &x->now.forward[c]);
        vary_route(x, &p->backward[c], &x->now.backward[c]);
    }
    for (uint32_t i = 0; i < p->n_links; i++) {
        uint32_t r = p->link_resources[i];
        lh_link *to = &x->now.links[i];
        *to = p->links[i];
        to->latency_ns = scale_ns(to->latency_ns, x->latency[r]);
        to->transfer_ns = scale_ns(to->transfer_ns, x->transfer[r]);
    }
    for (uint32_t i = 0; i < p->n_dp_ops; i++) {
        x->now.dp_ops[i] = p->dp_ops[i];
        uint32_t d = p->chunks[p->dp_ops[i].chunk].device;
        x->now.dp_ops[i].transfer_ns =
            scale_ns(p->dp_ops[i].transfer_ns, x->dp_transfer[d]);
    }
}

/* Allocates copies of the parts of the pipeline that differ between samples:
 * chunks, links, routes and data-parallel operations. */
static lh_status allocate_copies(sampled_pipeline *x, lh_error *err)
{
    const lh_pipeline *p = x->from;
    x->now = *p;
    x->mem = lhi_arena_make(0);
    if (!x->mem)
        return lhi_fail_nomem(err);
    x->now.chunks = LHI_NEW(x->mem, lh_chunk, p->n_chunks);
    x->now.links = LHI_NEW(x->mem, lh_link, p->n_links + 1);
    x->now.forward = LHI_NEW(x->mem, lhi_route, p->n_chunks);
    x->now.backward = LHI_NEW(x->mem, lhi_route, p->n_chunks);
    x->now.dp_ops = LHI_NEW(x->mem, lh_dp_op, p->n_dp_ops + 1);
    x->latency = LHI_NEW(x->mem, double, p->n_resources + 1);
    x->transfer = LHI_NEW(x->mem, double, p->n_resources + 1);
    x->work = LHI_NEW(x->mem, double, p->n_devices);
    x->dp_latency = LHI_NEW(x->mem, double, p->n_devices);
    x->dp_transfer = LHI_NEW(x->mem, double, p->n_devices);
    if (!x->now.chunks || !x->now.links || !x->now.forward ||
        !x->now.backward || !x->now.dp_ops || !x->latency || !x->transfer ||
        !x->work || !x->dp_latency || !x->dp_transfer)
        return lhi_fail_nomem(err);
    return LH_OK;
}

/* --- results -------------------------------------------------------------- */

/* Compares two numbers, for qsort(). */
static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Returns the smallest value that `percent` % of all values do not exceed. */
static int64_t compute_percentile(const int64_t *sorted, uint32_t n,
                                  uint32_t percent)
{
    uint64_t rank = ((uint64_t)n * percent + 99) / 100;
    return sorted[rank ? rank - 1 : 0];
}

/* Computes mean and percentiles of n makespans; sorts `ns`. */
static void summarise(int64_t *ns, uint32_t n, lh_jitter_result *out)
{
    double mean = 0;
    qsort(ns, n, sizeof *ns, compare);
    for (uint32_t i = 0; i < n; i++)
        mean += ((double)ns[i] - mean) / (i + 1);
    *out = (lh_jitter_result){.samples = n,
                              .mean_ns = mean,
                              .min_ns = ns[0],
                              .p50_ns = compute_percentile(ns, n, 50),
                              .p95_ns = compute_percentile(ns, n, 95),
                              .p99_ns = compute_percentile(ns, n, 99),
                              .max_ns = ns[n - 1]};
}

/* --- checks --------------------------------------------------------------- */

/* Checks that the option named `what` has a value from `least` to `most`; NaN
 * is an error. */
static lh_status check_range(const char *what, double value, double least,
                             double most, lh_error *err)
{
    if (value >= least && value <= most)
        return LH_OK;
    return lhi_fail(err, LH_EINVAL, "jitter: %s is %g; expected %g to %g", what,
                    value, least, most);
}

/* Copies the jitter options with defaults filled in and checks their ranges. */
static lh_status complete_options(const lh_jitter *given, lh_jitter *out,
                                  lh_error *err)
{
    LHI_TRY(LHI_OPTIONS_COPY(lh_jitter, out, given, err));
    out->samples = out->samples ? out->samples : DEFAULT_SAMPLES;
    LHI_TRY(check_range("latency", out->latency, 0, 1000, err));
    LHI_TRY(check_range("transfer", out->transfer, 0, 1000, err));
    LHI_TRY(check_range("degraded_rate", out->degraded_probability, 0, 1, err));
    LHI_TRY(
        check_range("straggler_rate", out->straggler_probability, 0, 1, err));
    if (out->degraded_probability > 0)
        LHI_TRY(
            check_range("degraded_factor", out->degraded_factor, 1, 1e6, err));
    if (out->straggler_probability > 0)
        LHI_TRY(check_range("straggler_factor", out->straggler_factor, 1, 1e6,
                            err));
    return check_range("samples", out->samples, 1, MAX_SAMPLES, err);
}

lh_status lh_jitter_check(const lh_jitter *jitter, lh_error *err)
{
    lh_jitter j;
    return complete_options(jitter, &j, err);
}

lh_status lhi_jitter_sampler_make(const lh_pipeline *pipeline,
                                  const lh_jitter *jitter,
                                  lhi_jitter_sampler **out, lh_error *err)
{
    lh_jitter j;
    LHI_TRY(complete_options(jitter, &j, err));
    lhi_jitter_sampler *d = calloc(1, sizeof *d);
    if (!d)
        return lhi_fail_nomem(err);
    d->jitter = j;
    d->x = (sampled_pipeline){.from = pipeline, .jitter = &d->jitter};
    lh_status status = allocate_copies(&d->x, err);
    if (status != LH_OK) {
        lhi_jitter_sampler_free(d);
        return status;
    }
    /* Evaluators read routes on creation. */
    lhi_jitter_sampler_draw(d, 0);
    *out = d;
    return LH_OK;
}

void lhi_jitter_sampler_free(lhi_jitter_sampler *draws)
{
    if (!draws)
        return;
    lhi_arena_free(draws->x.mem);
    free(draws);
}

uint32_t lhi_jitter_sampler_count(const lhi_jitter_sampler *draws)
{
    return draws->jitter.samples;
}

const lh_pipeline *
lhi_jitter_sampler_get_pipeline(const lhi_jitter_sampler *draws)
{
    return &draws->x.now;
}

void lhi_jitter_sampler_draw(lhi_jitter_sampler *draws, uint32_t sample)
{
    draw_factors(&draws->x, sample);
    apply_factors(&draws->x);
}

void lhi_jitter_summarise(int64_t *ns, uint32_t n, lh_jitter_result *out)
{
    summarise(ns, n, out);
}

/* Simulates all samples with one evaluator, which rereads the pipeline's times
 * in every run; ns[i] is sample i's makespan. */
static lh_status run_all(lhi_jitter_sampler *draws, const lh_schedule *schedule,
                         const lh_sim_options *options, int64_t *ns,
                         lh_error *err)
{
    lh_evaluator *evaluator;
    lh_status status =
        lh_evaluator_make(&draws->x.now, options, &evaluator, err);
    if (status != LH_OK)
        return status;
    for (uint32_t i = 0; i < draws->jitter.samples && status == LH_OK; i++) {
        lhi_jitter_sampler_draw(draws, i);
        status = lh_evaluator_run(evaluator, schedule, &ns[i], err);
    }
    lh_evaluator_free(evaluator);
    return status;
}

/* Simulates all samples. *out: *n times in ns; the caller frees it. */
static lh_status simulate_samples(const lh_pipeline *pipeline,
                                  const lh_schedule *schedule,
                                  const lh_sim_options *options,
                                  const lh_jitter *jitter, int64_t **out,
                                  uint32_t *n, lh_error *err)
{
    lhi_jitter_sampler *draws;
    LHI_TRY(lhi_jitter_sampler_make(pipeline, jitter, &draws, err));
    int64_t *ns = calloc(draws->jitter.samples, sizeof *ns);
    lh_status status =
        ns ? run_all(draws, schedule, options, ns, err) : lhi_fail_nomem(err);
    *n = draws->jitter.samples;
    lhi_jitter_sampler_free(draws);
    if (status == LH_OK)
        *out = ns;
    else
        free(ns);
    return status;
}

lh_status lh_jitter_run(const lh_pipeline *pipeline,
                        const lh_schedule *schedule,
                        const lh_sim_options *options, const lh_jitter *jitter,
                        lh_jitter_result *out, lh_error *err)
{
    int64_t *ns;
    uint32_t n;
    LHI_TRY(
        simulate_samples(pipeline, schedule, options, jitter, &ns, &n, err));
    summarise(ns, n, out);
    free(ns);
    return LH_OK;
}

lh_status lh_jitter_times(const lh_pipeline *pipeline,
                          const lh_schedule *schedule,
                          const lh_sim_options *options,
                          const lh_jitter *jitter, int64_t *ns, lh_error *err)
{
    int64_t *all;
    uint32_t n;
    lh_jitter j;
    LHI_TRY(LHI_OPTIONS_COPY(lh_jitter, &j, jitter, err));
    if (j.samples == 0)
        return lhi_fail(err, LH_EINVAL,
                        "jitter: samples must be given, as the caller's array "
                        "has that size");
    LHI_TRY(
        simulate_samples(pipeline, schedule, options, jitter, &all, &n, err));
    memcpy(ns, all, n * sizeof *ns);
    free(all);
    return LH_OK;
}
