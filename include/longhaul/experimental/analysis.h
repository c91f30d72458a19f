/* SPDX-License-Identifier: Apache-2.0 */
/* Explains a simulated iteration's duration: critical path, idle time by cause,
 * link use and slackness.
 *
 * Experimental: may change in any release, see longhaul.h. */
#ifndef LONGHAUL_EXPERIMENTAL_ANALYSIS_H
#define LONGHAUL_EXPERIMENTAL_ANALYSIS_H

#include <longhaul/pipeline.h>
#include <longhaul/schedule.h>
#include <longhaul/simulate.h>
#include <longhaul/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Causes for a device's idle time. X(name, id, text) */
#define LH_CAUSE_LIST(X)                                                       \
    X(LH_CAUSE_DEPENDENCY, "dependency", "the producing pass had not ended")   \
    X(LH_CAUSE_MEMORY, "memory", "a forward was ready but did not fit")        \
    X(LH_CAUSE_TRANSFER, "link_transfer", "the message was on its link")       \
    X(LH_CAUSE_LATENCY, "link_latency", "the message was under way")           \
    X(LH_CAUSE_QUEUE, "link_queue", "the message waited for other messages")   \
    X(LH_CAUSE_LATE_RECEIVE, "late_receive", "the receive was not posted yet") \
    X(LH_CAUSE_HEAD_OF_LINE, "head_of_line", "a send queue was full")          \
    X(LH_CAUSE_DATA_PARALLEL, "data_parallel",                                 \
      "an all-gather had not arrived")                                         \
    X(LH_CAUSE_COPY, "copy", "activations were on their way from or to it")    \
    X(LH_CAUSE_DRAIN, "drain", "its passes were done")

/* Idle-time causes, see LH_CAUSE_LIST. */
typedef enum lh_cause {
#define LH_CAUSE_ENUM(name, id, text) name,
    LH_CAUSE_LIST(LH_CAUSE_ENUM)
#undef LH_CAUSE_ENUM
        LH_N_CAUSES
} lh_cause;

/* Returns an idle-time cause's name, such as "link_latency"; static
 * storage. */
LH_API const char *lh_cause_name(lh_cause cause);
/* Describes an idle-time cause in one line; static storage. */
LH_API const char *lh_cause_about(lh_cause cause);

/* Critical-path segment kinds. */
typedef enum lh_segment_kind {
    LH_SEGMENT_PASS,         /* a pass runs */
    LH_SEGMENT_TRANSFER,     /* a message occupies its link */
    LH_SEGMENT_LATENCY,      /* a message is in flight */
    LH_SEGMENT_HEAD_OF_LINE, /* a device or message waits for a queue entry */
    LH_SEGMENT_COLLECTIVE,   /* a data-parallel communication */
    LH_SEGMENT_COPY,         /* activations are offloaded to the host or
                              * reloaded */
} lh_segment_kind;

LH_API const char *lh_segment_name(lh_segment_kind kind); /* "transfer" */

/* One critical-path segment. Segments cover 0 to the makespan without gaps. */
typedef struct lh_segment {
    lh_segment_kind kind;
    int64_t start_ns, end_ns;
    /* the running pass, or the message's producer; collective: only the chunk
     * is valid; copy: the pass whose activations are offloaded (F) or reloaded
     * (B) */
    lh_pass pass;
    uint32_t device;     /* executing device, or the sender */
    uint32_t run;        /* PASS: index among the device's runs */
    uint32_t message;    /* TRANSFER, LATENCY: message index */
    uint32_t collective; /* COLLECTIVE: collective index */
    uint32_t copy;       /* COPY: copy index */
} lh_segment;

/* One link's use during the iteration. */
typedef struct lh_link_use {
    const char *name;
    uint32_t n_messages;
    int64_t busy_ns;    /* time occupied by messages and data-parallel pieces */
    int64_t queued_ns;  /* queueing time, summed over messages */
    uint32_t max_queue; /* maximum messages waiting at one time */
} lh_link_use;

/* Delay that the boundary between devices i and i + 1 absorbs (Adaptra section
 * 3). */
typedef struct lh_slack {
    uint32_t warmup;   /* forwards on device i before its first backward */
    int64_t slackness; /* warm-up of device i minus that of i + 1 */
    /* The largest `delay_ns` up to which each extra nanosecond lengthens the
     * iteration by at most 2 ns, one per direction. Above it, bubbles cascade.
     * Found by simulation with the timeline's options.
     *
     * LH_NO_LIMIT: any delay is tolerated. -1: not computed because passes
     * times boundaries exceed 2^20. That limit is 2^16 with rendezvous
     * receives, blocking sends, delegated messages, timed host copies or
     * message orders in the schedule. */
    int64_t tolerance_ns;
    int64_t delay_ns; /* actual delay: mean of both directions */
} lh_slack;

typedef struct lh_analysis lh_analysis;

/* Analyses a simulated iteration. `timeline` is the lh_simulate() result for
 * `pipeline` and `schedule`; it must outlive the analysis. Release with
 * lh_analysis_free(). */
LH_API lh_status lh_analysis_make(const lh_pipeline *pipeline,
                                  const lh_schedule *schedule,
                                  const lh_timeline *timeline,
                                  lh_analysis **out, lh_error *err);
/* Frees an analysis; ignores NULL. */
LH_API void lh_analysis_free(lh_analysis *analysis);

/* Returns one device's idle time by cause, LH_N_CAUSES values in ns; borrowed.
 * Idle time and pass time add up to the makespan. `device` LH_NONE: sum over
 * all devices. */
LH_API const int64_t *lh_analysis_idle(const lh_analysis *analysis,
                                       uint32_t device);
/* Returns the critical path's segments in time order, *n_segments of them;
 * borrowed. */
LH_API const lh_segment *lh_analysis_critical_path(const lh_analysis *analysis,
                                                   uint32_t *n_segments);
/* Returns the use (messages, busy time, queues) of each link resource (see
 * lh_timeline_n_resources()), *n_links entries; borrowed. */
LH_API const lh_link_use *lh_analysis_links(const lh_analysis *analysis,
                                            uint32_t *n_links);
/* Returns slackness and delay tolerance of every boundary between devices,
 * *n_boundaries entries; borrowed. The array is empty unless chunk c runs on
 * device c. */
LH_API const lh_slack *lh_analysis_slack(const lh_analysis *analysis,
                                         uint32_t *n_boundaries);

#ifdef __cplusplus
}
#endif
#endif
