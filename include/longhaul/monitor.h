/* SPDX-License-Identifier: Apache-2.0 */
/* What links and devices take while a job trains, and when that changes.
 *
 * In: what the ranks measured of an iteration. Out: estimates with how sure
 * they are, and events that begin, change and end (Adaptra, arXiv:2504.19232,
 * sections 4 and 6, has a detector in this place). No threads, no files and no
 * clock of its own, so that any runtime can use it: whoever runs iterations
 * adds each as it is over. How it decides, and what it cannot see:
 * docs/theory/monitor.md.
 *
 * Times are nanoseconds. Not for use by two threads at once. */
#ifndef LONGHAUL_MONITOR_H
#define LONGHAUL_MONITOR_H

#include <longhaul/pipeline.h>
#include <longhaul/schedule.h>
#include <longhaul/simulate.h>
#include <longhaul/status.h>

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- in ------------------------------------------------------------------- */

/* One message over a link. The first three times are of the sender's clock,
 * the last is of the receiver's. */
typedef struct lh_seen_message {
    uint32_t link;       /* lh_pipeline_link() */
    uint64_t bytes;      /* 0: not known */
    int64_t produced_ns; /* the pass that made it ended */
    int64_t posted_ns;   /* its receive was posted; 0: ahead of need */
    int64_t entered_ns;  /* the link was free for it: its transfer began */
    int64_t arrived_ns;
} lh_seen_message;

/* One pass, from when it could begin, its device free and its input there, to
 * its end. */
typedef struct lh_seen_pass {
    lh_pass pass;
    int64_t ns;
} lh_seen_pass;

/* One data-parallel communication of a chunk. */
typedef struct lh_seen_collective {
    uint32_t chunk;
    bool is_reduce_scatter; /* else all-gather */
    int64_t ns;
} lh_seen_collective;

/* One iteration of one replica, in any order. What was not measured is left
 * out. */
typedef struct lh_seen {
    size_t size;   /* sizeof(lh_seen) */
    uint64_t step; /* larger than the one before */
    size_t n_messages, n_passes, n_collectives;
    const lh_seen_message *messages;
    const lh_seen_pass *passes;
    const lh_seen_collective *collectives;
} lh_seen;

/* When the messages of an iteration entered real links, which do not say when
 * they were free for one. In: `entered_ns` has the earliest, when a message was
 * made or its receive was posted. LH_EINVAL: a message's link is none. */
LH_API lh_status lh_seen_settle(const lh_pipeline *pipeline, size_t n,
                                lh_seen_message *messages, lh_error *err);

/* --- out ------------------------------------------------------------------ */

/* A message of a link, without what it waited for. */
typedef struct lh_link_estimate {
    double delay_ns; /* latency and transfer together */
    double error_ns; /* standard error of the delay */
    double latency_ns, transfer_ns;
    /* Messages queued behind others, and so showed the transfer apart; else
     * transfer_ns is the pipeline's, as far as the delay has room for it. */
    bool apart;
    /* The hosts' clocks were compared by messages in both directions: what
     * both delays add up to is exact, and how it is divided assumes that they
     * differ by as much as the pipeline says. */
    bool both_ways_only;
    double gbps;         /* 10^9 bits per second of a transfer; 0: not known */
    uint64_t n_messages; /* that it is of; 0: the pipeline's */
} lh_link_estimate;

typedef struct lh_pass_estimate {
    double ns, error_ns;
    uint64_t n_passes; /* that it is of; 0: the pipeline's, as much slower as
                          the device is */
} lh_pass_estimate;

/* How much later a clock shows the same moment than another. */
typedef struct lh_clock_estimate {
    double offset_ns;
    double error_ns;       /* beside what delays that differ may hide */
    double drift;          /* ns per step */
    uint64_t n_iterations; /* that it is of; 0: nothing is known */
} lh_clock_estimate;

typedef enum lh_monitor_what {
    LH_MONITOR_LINK,   /* `index`: lh_pipeline_link(); ns of a message */
    LH_MONITOR_DEVICE, /* a device; ns of its passes of an iteration */
    LH_MONITOR_DATA,   /* a device; ns of its data-parallel communication */
} lh_monitor_what;

typedef enum lh_monitor_change {
    LH_MONITOR_BEGINS,
    LH_MONITOR_CHANGES,
    LH_MONITOR_ENDS,
} lh_monitor_change;

/* Something became slower, or faster, than it was while all was quiet. */
typedef struct lh_monitor_event {
    lh_monitor_what what;
    uint32_t index;
    lh_monitor_change change;
    uint64_t from;    /* step from which it is so: one of the last three that
                         had something of it */
    double before_ns; /* while it was quiet */
    double now_ns;    /* at its end: as before, within what can be told */
    double error_ns;  /* standard error of now_ns */
    /* How much longer an iteration of the schedule that runs takes because of
     * it, simulated: a slow link whose messages nobody waits for costs 0. */
    int64_t cost_ns;
} lh_monitor_event;

typedef struct lh_monitor lh_monitor;

typedef struct lh_monitor_options {
    size_t size; /* sizeof(lh_monitor_options) */
    /* For each device the number of the clock that it reads, from 0 on: its
     * host's. NULL: all read one. */
    const uint32_t *clocks;
    const lh_sim_options *sim; /* how costs are simulated; NULL: as usual */
    uint32_t warm_up; /* iterations that are learned from before anything is
                         called an event; 0: 8; at least 4 */
} lh_monitor_options;

/* Both are kept as far as needed: the caller may release them. `schedule`: what
 * runs. LH_EINVAL: an option is out of range; else as lh_simulate(). Release
 * with lh_monitor_free(). */
LH_API lh_status lh_monitor_make(const lh_pipeline *pipeline,
                                 const lh_schedule *schedule,
                                 const lh_monitor_options *options,
                                 lh_monitor **out, lh_error *err);
LH_API void lh_monitor_free(lh_monitor *monitor); /* NULL is fine */

/* From the next iteration on another schedule runs. */
LH_API lh_status lh_monitor_follow(lh_monitor *monitor,
                                   const lh_schedule *schedule, lh_error *err);

/* The same, and messages go as `sim` says; NULL: as before. Copied. */
LH_API lh_status lh_monitor_follow_on(lh_monitor *monitor,
                                      const lh_schedule *schedule,
                                      const lh_sim_options *sim, lh_error *err);

/* An iteration is over. LH_EINVAL: something in it cannot be (`err` says what
 * and where); nothing of it is kept then. */
LH_API lh_status lh_monitor_add(lh_monitor *monitor, const lh_seen *seen,
                                lh_error *err);

/* What the last iteration that was added brought; borrowed until the next. */
LH_API const lh_monitor_event *lh_monitor_events(const lh_monitor *monitor,
                                                 uint32_t *n);
/* What goes on: began and has not ended; likewise. */
LH_API const lh_monitor_event *lh_monitor_going_on(const lh_monitor *monitor,
                                                   uint32_t *n);

LH_API lh_link_estimate lh_monitor_link(const lh_monitor *monitor,
                                        uint32_t link);
LH_API lh_pass_estimate lh_monitor_pass(const lh_monitor *monitor,
                                        uint32_t chunk, lh_pass_kind kind);
/* Of clock b against clock a. */
LH_API lh_clock_estimate lh_monitor_clock(const lh_monitor *monitor, uint32_t a,
                                          uint32_t b);

/* The pipeline with all estimates of now in place of its own times. Release
 * with lh_pipeline_free(). */
LH_API lh_status lh_monitor_pipeline(const lh_monitor *monitor,
                                     lh_pipeline **out, lh_error *err);

LH_API const char *lh_monitor_what_name(lh_monitor_what what); /* "link" */
LH_API const char *lh_monitor_change_name(lh_monitor_change change);

#ifdef __cplusplus
}
#endif
#endif
