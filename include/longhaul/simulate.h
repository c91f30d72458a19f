/* SPDX-License-Identifier: Apache-2.0 */
/* Simulates schedules with the performance model
 * (docs/theory/performance-model.md): every pass's start and end. */
#ifndef LONGHAUL_SIMULATE_H
#define LONGHAUL_SIMULATE_H

#include <longhaul/pipeline.h>
#include <longhaul/schedule.h>
#include <longhaul/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Options for lh_simulate(). 0 or NULL: the default. */
typedef struct lh_sim_options {
    size_t size;            /* sizeof(lh_sim_options) */
    lh_receives receives;   /* LH_RECEIVES_EARLY (0): as in the pipeline */
    uint32_t coupled_queue; /* head-of-line blocking: queue size in messages per
                             * device; 0: sends never block */
    bool fifo;              /* ignore the schedule's link orders */
    bool override_receives; /* use `receives` even if it is LH_RECEIVES_EARLY */
    /* Per lh_pipeline_link(): true if its messages take the delegated path and
     * wait for neither `coupled_queue` nor `receives`. NULL: none. Must remain
     * valid as long as the object created with these options. */
    const bool *delegated;
    /* Pipelines with host memory (lh_pipeline_with_host()): time to copy all
     * activations of one forward to the host or back. Activations that do not
     * fit on the device at the end of the forward are held by the host until D
     * or B; both passes are then one copy longer. 0: copies take no time. */
    int64_t host_copy_ns;
    /* An entry of `coupled_queue` is free when its message's transfer ends, and
     * the receiver alone waits for the latency; false: on arrival. */
    bool coupled_until_sent;
} lh_sim_options;

/* One executed pass. Times are relative to the iteration's start. */
typedef struct lh_timeline_run {
    lh_pass pass;
    uint32_t device;
    int64_t start_ns, end_ns;
    /* The device continues; later than end_ns only with blocking sends. */
    int64_t issued_ns;
    uint32_t message; /* message that it waited for; LH_NONE: none or local */
} lh_timeline_run;

/* A simulated iteration. Release with lh_timeline_free(). */
typedef struct lh_timeline lh_timeline;

/* Simulates the schedule. `options` may be NULL. Release with
 * lh_timeline_free(). Time O(passes * log passes).
 *
 * LH_EINFEASIBLE: passes are missing, duplicated or on the wrong device.
 * LH_EDEADLOCK: the orders wait for each other. Exceeding a memory limit is not
 * an error here: see lh_timeline_fits(). */
LH_API lh_status lh_simulate(const lh_pipeline *pipeline,
                             const lh_schedule *schedule,
                             const lh_sim_options *options, lh_timeline **out,
                             lh_error *err);

/* Frees a timeline; ignores NULL. */
LH_API void lh_timeline_free(lh_timeline *timeline);

/* Returns the makespan: from time 0, when the first data-parallel all-gather or
 * the first pass starts, to the end of the last pass or data-parallel
 * communication. */
LH_API int64_t lh_timeline_makespan(const lh_timeline *timeline);

/* Returns the idle time share: all devices' idle time divided by the
 * makespan times the device count, 0 to 1. */
LH_API double lh_timeline_bubble_ratio(const lh_timeline *timeline);

/* Returns the device's peak memory in the pipeline's unit. */
LH_API int64_t lh_timeline_peak_memory(const lh_timeline *timeline,
                                       uint32_t device);

/* Checks whether every device respects its memory limit; else *device (may be
 * NULL) receives the first that does not. */
LH_API bool lh_timeline_fits(const lh_timeline *timeline, uint32_t *device);

/* Returns the device count in the simulated pipeline. */
LH_API uint32_t lh_timeline_n_devices(const lh_timeline *timeline);

/* Returns one device's passes with their times, in order, *n_runs of them;
 * borrowed. */
LH_API const lh_timeline_run *lh_timeline_runs(const lh_timeline *timeline,
                                               uint32_t device,
                                               uint32_t *n_runs);

#ifdef __cplusplus
}
#endif
#endif
