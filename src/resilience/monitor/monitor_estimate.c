/* SPDX-License-Identifier: Apache-2.0 */
/* Estimates for all times, the pipeline built from them, and its iteration
 * time. */
#include "resilience/monitor/monitor_internal.h"

#include "base/fail.h"
#include "resilience/monitor/monitor.h"

#include <longhaul/experimental/simulate.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- estimates ------------------------------------------------------------ */

/* Splits `delay`, the message delay in ns on link `l`, into *transfer, the
 * observed transfer time or else the pipeline's, and *latency, the rest. */
static void split_delay(const lh_monitor *m, uint32_t l, double delay,
                        double *latency, double *transfer)
{
    const lhi_monitored_link *link = &m->links[l];
    double seen = link->n_transfers > 0
                      ? link->transfer_ns
                      : (double)m->pipeline->links[l].transfer_ns;
    *transfer = fmin(seen, delay);
    *latency = delay - *transfer;
}

lh_link_estimate lhi_monitor_link(const lh_monitor *m, uint32_t l)
{
    const lhi_monitored_link *link = &m->links[l];
    const lhi_drift_detector *detector = &link->monitored.detector;
    lh_link_estimate e = {.delay_ns = link->nominal_ns};
    if (detector->n_samples > 0) {
        e.delay_ns = detector->level;
        e.error_ns = lhi_drift_detector_error(detector);
    }
    e.n_messages = detector->n_samples;
    e.transfer_measured = link->n_transfers > 0;
    e.round_trip_only = link->pair != LH_NONE;
    split_delay(m, l, e.delay_ns, &e.latency_ns, &e.transfer_ns);
    if (e.transfer_measured && link->bytes > 0 && e.transfer_ns > 0)
        e.gbps = 8 * link->bytes / e.transfer_ns;
    return e;
}

lh_pass_estimate lhi_monitor_pass(const lh_monitor *m, uint32_t chunk,
                                  lh_pass_kind kind)
{
    const lhi_series *s = lhi_monitor_series(m, chunk, kind);
    if (s->n > 0)
        return (lh_pass_estimate){s->mean, sqrt(s->variance / s->weight), s->n};
    uint32_t device = m->pipeline->chunks[chunk].device;
    return (lh_pass_estimate){s->nominal_ns * m->work[device].slowdown, 0, 0};
}

lh_clock_estimate lhi_monitor_clock(const lh_monitor *m, uint32_t a, uint32_t b)
{
    for (uint32_t i = 0; i < m->n_pairs; i++) {
        const lhi_clock_pair *p = &m->pairs[i];
        double sign = p->a == a && p->b == b ? 1 : -1;
        if ((p->a == a && p->b == b) || (p->a == b && p->b == a))
            return (lh_clock_estimate){
                sign * p->estimate.offset, lhi_clock_offset_error(&p->estimate),
                sign * p->estimate.drift, p->estimate.n_iterations};
    }
    return (lh_clock_estimate){0};
}

/* --- pipeline ------------------------------------------------------------- */

/* Rounds a time in ns to an integer; negative times become 0. */
static int64_t round_to_ns(double ns)
{
    return ns > 0 ? llround(ns) : 0;
}

/* Returns normal / current level of `quantity` if it is the quantity `quiet` or
 * all_quiet is set; otherwise 1. The factor removes its slowdown from an
 * estimate. */
static double compute_normal_factor(const lhi_monitored *quantity,
                                    const lhi_monitored *quiet, bool all_quiet)
{
    return all_quiet || quantity == quiet ? lhi_monitored_normal_ratio(quantity)
                                          : 1;
}

/* Writes the estimated pass and collective times of chunk `c` to *out,
 * multiplied by `work` (passes) and `data` (data-parallel communication). */
static void estimate_chunk(const lh_monitor *m, uint32_t c, double work,
                           double data, lh_chunk *out)
{
    const lh_chunk *from = &m->pipeline->chunks[c];
    const lhi_series *b = lhi_monitor_series(m, c, LH_B);
    const lhi_series *d = lhi_monitor_series(m, c, LH_D);
    double both = (double)from->d_ns + (double)from->w_ns;
    out->f_ns = round_to_ns(work * lhi_monitor_pass(m, c, LH_F).ns);
    if (b->n > 0 && (d->n == 0 || d->last_step < b->last_step) && both > 0) {
        /* Joint backward: split in the file's ratio. */
        int64_t sum = round_to_ns(work * b->mean);
        out->d_ns = round_to_ns((double)sum * (double)from->d_ns / both);
        out->w_ns = sum - out->d_ns;
    } else {
        out->d_ns = round_to_ns(work * lhi_monitor_pass(m, c, LH_D).ns);
        out->w_ns = round_to_ns(work * lhi_monitor_pass(m, c, LH_W).ns);
    }
    double far = data * m->data[from->device].slowdown;
    out->all_gather_ns = round_to_ns((double)from->all_gather_ns * far);
    out->reduce_scatter_ns = round_to_ns((double)from->reduce_scatter_ns * far);
    out->dp_latency_ns = round_to_ns((double)from->dp_latency_ns * far);
}

lh_status lhi_monitor_estimate(const lh_monitor *m, const lhi_monitored *quiet,
                               bool all_quiet, lh_pipeline **out, lh_error *err)
{
    lh_pipeline_desc desc = {.size = sizeof desc};
    LHI_TRY(lh_pipeline_describe(m->pipeline, &desc, err));
    lh_chunk *chunks = calloc(desc.n_chunks, sizeof *chunks);
    lh_link *links = calloc(desc.n_links + 1, sizeof *links);
    lh_dp_op *ops = calloc(desc.n_dp_ops + 1, sizeof *ops);
    lh_status status = chunks && links && ops ? LH_OK : lhi_fail_nomem(err);
    for (uint32_t c = 0; status == LH_OK && c < desc.n_chunks; c++) {
        uint32_t d = desc.chunks[c].device;
        chunks[c] = desc.chunks[c];
        estimate_chunk(
            m, c, compute_normal_factor(&m->work[d], quiet, all_quiet),
            compute_normal_factor(&m->data[d], quiet, all_quiet), &chunks[c]);
    }
    for (uint32_t l = 0; status == LH_OK && l < desc.n_links; l++) {
        double latency, transfer;
        double delay =
            lhi_monitor_link(m, l).delay_ns *
            compute_normal_factor(&m->links[l].monitored, quiet, all_quiet);
        split_delay(m, l, delay, &latency, &transfer);
        links[l] = desc.links[l];
        links[l].latency_ns = round_to_ns(latency);
        links[l].transfer_ns = round_to_ns(transfer);
    }
    for (uint32_t i = 0; status == LH_OK && i < desc.n_dp_ops; i++) {
        uint32_t d = desc.chunks[desc.dp_ops[i].chunk].device;
        ops[i] = desc.dp_ops[i];
        ops[i].transfer_ns =
            round_to_ns((double)ops[i].transfer_ns * m->data[d].slowdown *
                        compute_normal_factor(&m->data[d], quiet, all_quiet));
    }
    desc.chunks = chunks;
    desc.links = links;
    desc.dp_ops = ops;
    if (status == LH_OK)
        status = lhi_pipeline_rebuild(m->pipeline, &desc, out, err);
    free(chunks);
    free(links);
    free(ops);
    return status;
}

lh_status lhi_monitor_simulate(const lh_monitor *m, const lhi_monitored *quiet,
                               bool all_quiet, int64_t *makespan_ns,
                               lh_error *err)
{
    lh_pipeline *pipeline = NULL;
    lh_evaluator *evaluator = NULL;
    lh_status status =
        lhi_monitor_estimate(m, quiet, all_quiet, &pipeline, err);
    if (status == LH_OK)
        status = lh_evaluator_make(pipeline, &m->sim, &evaluator, err);
    if (status == LH_OK)
        status = lh_evaluator_run(evaluator, m->schedule, makespan_ns, err);
    lh_evaluator_free(evaluator);
    lh_pipeline_free(pipeline);
    return status;
}

lh_status lh_monitor_pipeline(const lh_monitor *m, lh_pipeline **out,
                              lh_error *err)
{
    return lhi_monitor_estimate(m, NULL, false, out, err);
}
