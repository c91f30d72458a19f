/* SPDX-License-Identifier: Apache-2.0 */
/* A schedule under links and devices that are not always as the file says: how
 * long iterations take on average, and how long the unlucky ones do. Each
 * sample draws a delay for every link and a speed for every device, keeps them
 * for one iteration, and runs the schedule as it is. See docs/theory/jitter.md.
 */
#ifndef LONGHAUL_JITTER_H
#define LONGHAUL_JITTER_H

#include <longhaul/pipeline.h>
#include <longhaul/schedule.h>
#include <longhaul/simulate.h>
#include <longhaul/status.h>

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lh_jitter {
    size_t size; /* sizeof(lh_jitter) */
    /* A link's latency is multiplied by 1 + latency * E, its transfer by 1 +
     * transfer * E, E exponentially distributed with mean 1: long tails, never
     * faster than the file. 0: as the file says. At most 1000. A device's
     * data-parallel communication has a link of its own, drawn likewise. */
    double latency, transfer;
    /* With this probability a link is degraded for the iteration: latency and
     * transfer are multiplied by `degraded_factor` (1 or more, at most 1e6). */
    double degraded_rate, degraded_factor;
    /* The same for a device and its passes (Adaptra's and others' compute
     * stragglers). */
    double straggler_rate, straggler_factor;
    uint32_t samples; /* 1..1000000; 0: 1000 */
    /* Samples are numbered; with one seed, sample i draws the same for every
     * schedule and every pipeline of the same links and devices, so that their
     * difference is theirs. */
    uint64_t seed;
    /* All devices' data-parallel communication crosses the same links, so that
     * these draw once for all. */
    bool one_data_link;
} lh_jitter;

typedef struct lh_jitter_result {
    uint32_t samples;
    double mean_ns;
    /* The makespan that so many percent of the iterations keep. */
    int64_t least_ns, p50_ns, p95_ns, p99_ns, most_ns;
} lh_jitter_result;

/* LH_EINVAL: a value is out of range, which `err` says. */
LH_API lh_status lh_jitter_check(const lh_jitter *jitter, lh_error *err);

/* `options` as for lh_simulate(), may be NULL. LH_EINVAL: a value is out of
 * range; else as lh_simulate(). */
LH_API lh_status lh_jitter_run(const lh_pipeline *pipeline,
                               const lh_schedule *schedule,
                               const lh_sim_options *options,
                               const lh_jitter *jitter, lh_jitter_result *out,
                               lh_error *err);

/* The same drawn one by one: ns[i] is the makespan of sample i, of
 * jitter->samples, which is not 0 here. */
LH_API lh_status lh_jitter_times(const lh_pipeline *pipeline,
                                 const lh_schedule *schedule,
                                 const lh_sim_options *options,
                                 const lh_jitter *jitter, int64_t *ns,
                                 lh_error *err);

#ifdef __cplusplus
}
#endif
#endif
