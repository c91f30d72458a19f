/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/engine/calibration.h"

#include <stdio.h>

bool lhi_job_can_calibrate(const lhi_job *job)
{
    return job->model || !job->emulates;
}

/* Returns the larger of the simulated iteration time and the time that the
 * shared processors need for all passes, in ns. */
static int64_t apply_bound(const lhi_calibration *c, int64_t simulated_ns)
{
    return simulated_ns > c->processors_ns ? simulated_ns : c->processors_ns;
}

void lhi_calibration_init(lhi_calibration *c, lh_pipeline *measured,
                          const lhi_measured_iteration *whole,
                          int64_t simulated_ns)
{
    *c = (lhi_calibration){.pipeline = measured,
                           .processors_ns = whole->processors_ns};
    lhi_calibration_refine(c, whole->ns, simulated_ns);
}

void lhi_calibration_refine(lhi_calibration *c, int64_t ns,
                            int64_t simulated_ns)
{
    const int64_t modelled_ns = apply_bound(c, simulated_ns);
    c->overhead_ns = ns > modelled_ns ? ns - modelled_ns : 0;
    c->factor = ns < modelled_ns ? (double)ns / (double)modelled_ns : 1;
}

/* Frees the calibration's pipeline. */
void lhi_calibration_fini(lhi_calibration *c)
{
    lh_pipeline_free(c->pipeline);
    c->pipeline = NULL;
}

int64_t lhi_calibration_predict(const lhi_calibration *c, int64_t simulated_ns)
{
    if (!c->pipeline)
        return 0;
    return (int64_t)(c->factor * (double)apply_bound(c, simulated_ns)) +
           c->overhead_ns;
}

/* --- description ---------------------------------------------------------- */

/* Mean times, in ms: all chunks' passes, all links' messages. */
typedef struct mean_times {
    double f, d, w, latency, transfer;
} mean_times;

/* Computes mean times in ms: F, D and W over pipeline `p`'s chunks, latency and
 * transfer over its links. */
static mean_times compute_means(const lh_pipeline *p)
{
    mean_times m = {0};
    for (uint32_t i = 0; i < p->n_chunks; i++) {
        m.f += (double)p->chunks[i].f_ns / 1e6 / p->n_chunks;
        m.d += (double)p->chunks[i].d_ns / 1e6 / p->n_chunks;
        m.w += (double)p->chunks[i].w_ns / 1e6 / p->n_chunks;
    }
    for (uint32_t i = 0; i < p->n_links; i++) {
        m.latency += (double)p->links[i].latency_ns / 1e6 / p->n_links;
        m.transfer += (double)p->links[i].transfer_ns / 1e6 / p->n_links;
    }
    return m;
}

void lhi_calibration_describe(const lhi_calibration *c, const lhi_job *job,
                              const lhi_measured_iteration *whole, char *text,
                              size_t room)
{
    const mean_times is = compute_means(c->pipeline);
    const mean_times was = compute_means(job->pipeline);
    int used = snprintf(text, room,
                        "it took %.4g ms, simulated with planned times %.4g "
                        "ms; means: F %.3g ms (planned %.3g), D %.3g (%.3g), "
                        "W %.3g (%.3g)",
                        (double)whole->ns / 1e6,
                        (double)lh_exec_predicted_ns(job->exec) / 1e6, is.f,
                        was.f, is.d, was.d, is.w, was.w);
    if (job->pipeline->n_links > 0 && used > 0 && (size_t)used < room)
        snprintf(text + used, room - (size_t)used,
                 ", message latency %.3g (%.3g) and transfer %.3g (%.3g)",
                 is.latency, was.latency, is.transfer, was.transfer);
}
