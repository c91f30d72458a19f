/* SPDX-License-Identifier: Apache-2.0 */
/* Simulates a schedule by Monte Carlo under varying link and device speeds:
 * mean and tail iteration times. Each sample draws a delay per link and a speed
 * per device, keeps them for one iteration, and simulates the unchanged
 * schedule. See docs/theory/jitter.md.
 *
 * Experimental: may change in any release, see longhaul.h. */
#ifndef LONGHAUL_EXPERIMENTAL_JITTER_H
#define LONGHAUL_EXPERIMENTAL_JITTER_H

#include <longhaul/pipeline.h>
#include <longhaul/schedule.h>
#include <longhaul/simulate.h>
#include <longhaul/status.h>

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Link and device speed distribution. */
typedef struct lh_jitter {
    size_t size; /* sizeof(lh_jitter) */
    /* Link latency is multiplied by 1 + latency * E and transfer time by 1 +
     * transfer * E, with E exponentially distributed, mean 1: a long tail,
     * never faster than nominal. 0: nominal. At most 1000. A device's
     * data-parallel communication has its own link, sampled the same way. */
    double latency, transfer;
    /* Probability that a link is degraded for the iteration: latency and
     * transfer time are multiplied by `degraded_factor` (1 to 1e6). */
    double degraded_probability, degraded_factor;
    /* The same for a device and its passes (compute stragglers, as in Adaptra).
     */
    double straggler_probability, straggler_factor;
    uint32_t samples; /* 1..1000000; 0: 1000 */
    /* Seed. For equal seeds, sample i has the same random values for every
     * schedule and every pipeline with the same links and devices, so that
     * differences between results come from the schedules (common random
     * numbers). */
    uint64_t seed;
    /* All devices' data-parallel communication uses the same links, with one
     * common sample. */
    bool shared_data_link;
} lh_jitter;

/* Statistics over all samples. */
typedef struct lh_jitter_result {
    uint32_t samples;
    double mean_ns;
    /* Makespan percentiles, ns. */
    int64_t min_ns, p50_ns, p95_ns, p99_ns, max_ns;
} lh_jitter_result;

/* Checks jitter options' ranges. LH_EINVAL: a value is out of range;
 * `err` names it. */
LH_API lh_status lh_jitter_check(const lh_jitter *jitter, lh_error *err);

/* Simulates all samples and computes statistics. `options` as in lh_simulate();
 * may be NULL. LH_EINVAL: a value is out of range; otherwise as lh_simulate().
 */
LH_API lh_status lh_jitter_run(const lh_pipeline *pipeline,
                               const lh_schedule *schedule,
                               const lh_sim_options *options,
                               const lh_jitter *jitter, lh_jitter_result *out,
                               lh_error *err);

/* Simulates all samples and writes their makespans in ns: ns[i] belongs to
 * sample i. ns[] needs jitter->samples entries, a number that must not be 0
 * here. */
LH_API lh_status lh_jitter_times(const lh_pipeline *pipeline,
                                 const lh_schedule *schedule,
                                 const lh_sim_options *options,
                                 const lh_jitter *jitter, int64_t *ns,
                                 lh_error *err);

#ifdef __cplusplus
}
#endif
#endif
