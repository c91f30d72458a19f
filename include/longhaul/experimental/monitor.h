/* SPDX-License-Identifier: Apache-2.0 */
/* Estimates link and device times during training and detects changes.
 *
 * Input: the ranks' measurements in an iteration. Output: estimates with
 * standard errors, and events that begin, change and end (Adaptra,
 * arXiv:2504.19232, sections 4 and 6, uses a detector for this). No threads,
 * files or clock, so that any runtime can use it: the caller adds each finished
 * iteration. Method and limitations: docs/theory/monitor.md.
 *
 * Times are nanoseconds. Not thread-safe: calls on one object must not overlap.
 *
 * Experimental: may change in any release, see longhaul.h. */
#ifndef LONGHAUL_EXPERIMENTAL_MONITOR_H
#define LONGHAUL_EXPERIMENTAL_MONITOR_H

#include <longhaul/pipeline.h>
#include <longhaul/schedule.h>
#include <longhaul/simulate.h>
#include <longhaul/status.h>

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- input ---------------------------------------------------------------- */

/* One message on a link. The first three times use the sender's clock, the last
 * the receiver's. */
typedef struct lh_observed_message {
    uint32_t link;       /* lh_pipeline_link() */
    uint64_t bytes;      /* 0: unknown */
    int64_t produced_ns; /* producing pass's end */
    int64_t posted_ns;   /* receive posted; 0: pre-posted */
    int64_t entered_ns;  /* transfer began: the link was free */
    int64_t arrived_ns;
} lh_observed_message;

/* One pass: ns is the time from the earliest possible start (device free, input
 * present) to its end. */
typedef struct lh_observed_pass {
    lh_pass pass;
    int64_t ns;
} lh_observed_pass;

/* A chunk's data-parallel communication. */
typedef struct lh_observed_collective {
    uint32_t chunk;
    bool is_reduce_scatter; /* else all-gather */
    int64_t ns;
} lh_observed_collective;

/* One iteration's measurements on one replica, in any order. Missing
 * measurements are omitted. */
typedef struct lh_observation {
    size_t size;   /* sizeof(lh_observation) */
    uint64_t step; /* must increase */
    size_t n_messages, n_passes, n_collectives;
    const lh_observed_message *messages;
    const lh_observed_pass *passes;
    const lh_observed_collective *collectives;
} lh_observation;

/* Estimates when messages entered real links, which do not report it. On input,
 * `entered_ns` holds the earliest possible time: message produced or receive
 * posted. LH_EINVAL: a message's link does not exist. */
LH_API lh_status lh_observation_estimate_entry(const lh_pipeline *pipeline,
                                               size_t n,
                                               lh_observed_message *messages,
                                               lh_error *err);

/* --- output --------------------------------------------------------------- */

/* Estimated message time on a link, without queueing. */
typedef struct lh_link_estimate {
    double delay_ns; /* latency and transfer together */
    double error_ns; /* the delay's standard error */
    double latency_ns, transfer_ns;
    /* True if queued messages revealed the transfer time separately. Otherwise
     * transfer_ns is the pipeline's, limited by the delay. */
    bool transfer_measured;
    /* True if the hosts' clocks were compared through messages in both
     * directions: the sum of both delays is exact. Its division assumes the
     * pipeline's difference between the two. */
    bool round_trip_only;
    double gbps;         /* transfer rate, 10^9 bits per second; 0: unknown */
    uint64_t n_messages; /* sample size; 0: the pipeline's value */
} lh_link_estimate;

/* Estimated pass time. */
typedef struct lh_pass_estimate {
    double ns, error_ns;
    uint64_t n_passes; /* sample size; 0: the pipeline's value, scaled by the
                        * device's slowdown */
} lh_pass_estimate;

/* One clock's offset against another at the same moment. */
typedef struct lh_clock_estimate {
    double offset_ns;
    double error_ns;       /* excluding asymmetric delays' effect */
    double drift;          /* ns per step */
    uint64_t n_iterations; /* sample size; 0: unknown */
} lh_clock_estimate;

/* Monitored component kinds. */
typedef enum lh_monitor_target {
    LH_MONITOR_LINK,   /* `index`: lh_pipeline_link(); ns per message */
    LH_MONITOR_DEVICE, /* a device; ns per iteration for its passes */
    LH_MONITOR_DATA,   /* a device; ns for data-parallel communication */
} lh_monitor_target;

/* Change kinds. */
typedef enum lh_monitor_change {
    LH_MONITOR_BEGINS,
    LH_MONITOR_CHANGES,
    LH_MONITOR_ENDS,
} lh_monitor_change;

/* A detected change: a component became slower or faster than its baseline. */
typedef struct lh_monitor_event {
    lh_monitor_target target;
    uint32_t index;
    lh_monitor_change change;
    uint64_t first_step; /* first affected step, among the last three with a
                          * measurement */
    double baseline_ns;  /* baseline, without events */
    double current_ns;   /* LH_MONITOR_ENDS: the baseline, within error */
    double error_ns;     /* now_ns's standard error */
    /* Simulated increase in the current schedule's iteration time. A slow link
     * costs 0 if no pass waits for its messages. */
    int64_t cost_ns;
} lh_monitor_event;

typedef struct lh_monitor lh_monitor;

/* Options for lh_monitor_make(). */
typedef struct lh_monitor_options {
    size_t size; /* sizeof(lh_monitor_options) */
    /* Clock index per device, from 0: its host's clock. NULL: one common clock.
     */
    const uint32_t *clocks;
    const lh_sim_options *sim; /* cost simulation; NULL: defaults */
    uint32_t warm_up; /* iterations learned before events are reported; 0: 8; at
                       * least 4 */
} lh_monitor_options;

/* Creates a monitor, which detects slow links and devices from each iteration's
 * times. `schedule` is the running schedule; copies both inputs as far
 * as needed. Release with lh_monitor_free(). LH_EINVAL: an option is out of
 * range; otherwise errors as in lh_simulate(). */
LH_API lh_status lh_monitor_make(const lh_pipeline *pipeline,
                                 const lh_schedule *schedule,
                                 const lh_monitor_options *options,
                                 lh_monitor **out, lh_error *err);
LH_API void lh_monitor_free(lh_monitor *monitor); /* frees; NULL is a no-op */

/* Sets the schedule that runs from the next iteration on, and simulates its
 * iteration time without slowdowns. */
LH_API lh_status lh_monitor_set_schedule(lh_monitor *monitor,
                                         const lh_schedule *schedule,
                                         lh_error *err);

/* Adds a finished iteration's measurements to the monitor, which detects
 * changes. LH_EINVAL: a measurement is invalid, as `err` describes; the
 * iteration is then ignored. */
LH_API lh_status lh_monitor_add(lh_monitor *monitor, const lh_observation *seen,
                                lh_error *err);

/* Returns active events, which have begun and not ended; borrowed until the
 * next iteration is added. */
LH_API const lh_monitor_event *
lh_monitor_active_events(const lh_monitor *monitor, uint32_t *n);

/* Builds the pipeline with the monitor's current estimates of all times.
 * Release with lh_pipeline_free(). */
LH_API lh_status lh_monitor_pipeline(const lh_monitor *monitor,
                                     lh_pipeline **out, lh_error *err);

LH_API const char *lh_monitor_target_name(lh_monitor_target what); /* "link" */
/* Returns a change's name (begins, changes or ends), as in output; static
 * storage. */
LH_API const char *lh_monitor_change_name(lh_monitor_change change);

#ifdef __cplusplus
}
#endif
#endif
