/* SPDX-License-Identifier: Apache-2.0 */
/* Why a simulated iteration takes as long as it does: critical path, idle
 * time by cause, links, slackness. */
#ifndef LONGHAUL_ANALYSIS_H
#define LONGHAUL_ANALYSIS_H

#include <longhaul/pipeline.h>
#include <longhaul/schedule.h>
#include <longhaul/simulate.h>
#include <longhaul/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a device's idle time is waiting for. X(name, id, text) */
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

typedef enum lh_cause {
#define LH_CAUSE_ENUM(name, id, text) name,
    LH_CAUSE_LIST(LH_CAUSE_ENUM)
#undef LH_CAUSE_ENUM
        LH_N_CAUSES
} lh_cause;

LH_API const char *lh_cause_name(lh_cause cause);  /* "link_latency" */
LH_API const char *lh_cause_about(lh_cause cause); /* one line */

typedef enum lh_segment_kind {
    LH_SEGMENT_PASS,         /* a pass runs */
    LH_SEGMENT_TRANSFER,     /* a message occupies its link */
    LH_SEGMENT_LATENCY,      /* a message is under way */
    LH_SEGMENT_HEAD_OF_LINE, /* a device or message waits for a queue entry */
    LH_SEGMENT_COLLECTIVE,   /* a data-parallel communication */
    LH_SEGMENT_COPY,         /* activations leave their device, or come back */
} lh_segment_kind;

LH_API const char *lh_segment_name(lh_segment_kind kind); /* "transfer" */

/* One stretch of the critical path. Segments join without gaps from 0 to the
 * makespan. */
typedef struct lh_segment {
    lh_segment_kind kind;
    int64_t start_ns, end_ns;
    lh_pass pass;     /* that runs, or that made the message; for a collective
                         only its chunk is meaningful; for a copy, whose
                         activations leave (F) or come back (B) */
    uint32_t device;  /* that runs it, or the sender */
    uint32_t run;     /* PASS: index among the device's runs */
    uint32_t message; /* TRANSFER, LATENCY: index of the message */
    uint32_t collective; /* COLLECTIVE: its index */
    uint32_t copy;       /* COPY: its index */
} lh_segment;

typedef struct lh_link_use {
    const char *name;
    uint32_t n_messages;
    int64_t busy_ns;    /* occupied by transfers */
    int64_t queued_ns;  /* sum over messages of the time in the queue */
    uint32_t max_queue; /* most messages waiting at one time */
} lh_link_use;

/* Adaptra §3: what delay the boundary between devices i and i + 1 absorbs. */
typedef struct lh_slack {
    uint32_t warmup;   /* forwards of device i before its first backward */
    int64_t slackness; /* warm-up of i minus that of i + 1 */
    /* The largest delay of the boundary, as `delay_ns`, of which the schedule
     * pays no ns more than twice an iteration, once there and once back: beyond
     * it bubbles cascade. By simulating, under the timeline's options.
     * LH_NO_LIMIT: any delay; -1: not worked out, as passes times boundaries
     * are more than 2^20 (2^16 where receives are late, queues are coupled,
     * messages are delegated, copies to the host take time or the schedule
     * orders messages). */
    int64_t tolerance_ns;
    int64_t delay_ns; /* the delay there is: mean of both directions */
} lh_slack;

typedef struct lh_analysis lh_analysis;

/* `timeline` is what lh_simulate() gave for `pipeline` and `schedule`; it has
 * to outlive the analysis. Release with lh_analysis_free(). */
LH_API lh_status lh_analysis_make(const lh_pipeline *pipeline,
                                  const lh_schedule *schedule,
                                  const lh_timeline *timeline,
                                  lh_analysis **out, lh_error *err);
LH_API void lh_analysis_free(lh_analysis *analysis); /* NULL is fine */

/* Idle time of one device by cause, LH_N_CAUSES numbers; together with its
 * passes they add up to the makespan. `device` LH_NONE: of all devices. */
LH_API const int64_t *lh_analysis_idle(const lh_analysis *analysis,
                                       uint32_t device);
LH_API const lh_segment *lh_analysis_critical_path(const lh_analysis *analysis,
                                                   uint32_t *n_segments);
/* By resource (see lh_timeline_n_resources). */
LH_API const lh_link_use *lh_analysis_links(const lh_analysis *analysis,
                                            uint32_t *n_links);
/* One entry per boundary; none (0) unless chunk c is on device c. */
LH_API const lh_slack *lh_analysis_slack(const lh_analysis *analysis,
                                         uint32_t *n_boundaries);

#ifdef __cplusplus
}
#endif
#endif
