/* SPDX-License-Identifier: Apache-2.0 */
/* What happened when, simulated or measured. Text form: Chrome trace events
 * (docs/formats/trace.md), which Perfetto opens: one process per datacenter,
 * one thread per device, one track per link. Immutable once made. */
#ifndef LONGHAUL_TRACE_H
#define LONGHAUL_TRACE_H

#include <longhaul/pipeline.h>
#include <longhaul/schedule.h>
#include <longhaul/simulate.h>
#include <longhaul/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A trace is plain arrays; every index below is into the array named. Times
 * are nanoseconds from the start of the iteration, 0..2^53; memory is in the
 * pipeline's unit. Read them, never write them. */
typedef struct lh_trace_run {
    lh_pass pass;
    uint32_t device;
    uint32_t waits_for; /* index of the message that this pass had to wait
                           for, LH_NONE: none */
    int64_t start_ns, end_ns;
    int64_t issued_ns;    /* the device may go on; later than end_ns only where
                             its sends are blocked */
    int64_t memory;       /* on the device from the start of the pass on */
    int64_t memory_after; /* from its end on */
} lh_trace_run;

typedef struct lh_trace_message {
    lh_pass producer, consumer;
    uint32_t from, to; /* devices */
    uint32_t link;     /* index into link_names, LH_NONE: no link */
    /* In this order: the producer ended; the message joined the link's queue;
     * its transfer began; ended; it was there. */
    int64_t produced_ns, ready_ns, depart_ns, sent_ns, arrive_ns;
} lh_trace_message;

typedef struct lh_trace_collective {
    uint32_t chunk, device;
    bool is_reduce_scatter; /* else all-gather */
    int64_t ready_ns, depart_ns, sent_ns, arrive_ns;
    uint32_t bucket, n_buckets; /* part of it; both 0: the whole */
    lh_dp_kind kind;            /* what it is for, where that is said */
} lh_trace_collective;

/* Activations of a microbatch that leave their device, or come back. */
typedef struct lh_trace_offload {
    uint32_t chunk, microbatch, device;
    bool is_back;
    int64_t ready_ns, depart_ns, end_ns;
} lh_trace_offload;

typedef struct lh_trace_device {
    uint32_t site;         /* index into site_names */
    int64_t memory_static; /* held from beginning to end */
    int64_t memory_limit;  /* LH_NO_LIMIT: none */
    const char *dp_link;   /* what its data-parallel link stands for; NULL: has
                              no name */
} lh_trace_device;

typedef struct lh_trace {
    const char *title;       /* "" where none was given */
    const char *source;      /* "simulated" or "measured" */
    const char *memory_unit; /* "" where none was given */
    int64_t makespan_ns;
    uint32_t n_devices, n_sites, n_links;
    const lh_trace_device *devices;
    const char *const *site_names; /* at least one; "" where it has no name */
    const char *const *link_names;
    uint32_t n_runs, n_messages, n_collectives;
    const lh_trace_run *runs;         /* by device, then in order */
    const lh_trace_message *messages; /* by readiness */
    const lh_trace_collective *collectives;
    uint32_t n_copies;
    const lh_trace_offload *copies; /* by departure */
} lh_trace;

/* The trace of a simulated timeline; `title` may be NULL. Release with
 * lh_trace_free(). */
LH_API lh_status lh_trace_make(const lh_pipeline *pipeline,
                               const lh_timeline *timeline, const char *title,
                               lh_trace **out, lh_error *err);

/* A copy of a trace that the caller filled in, for example with measured
 * times. Runs, messages and collectives may come in any order: runs are sorted
 * by device and start, messages by readiness, collectives and copies by
 * departure, and `waits_for` follows; NULL texts become "".
 * LH_EINPUT: an index or a time is out of range, passes of a device overlap, a
 * pass is there twice, or a message's pass is not there; `err` says which. */
LH_API lh_status lh_trace_copy(const lh_trace *from, lh_trace **out,
                               lh_error *err);
LH_API void lh_trace_free(lh_trace *trace); /* NULL is fine */

LH_API lh_status lh_trace_parse(const char *text, size_t len, const char *name,
                                lh_trace **out, lh_error *err);
LH_API lh_status lh_trace_read(const char *path, lh_trace **out, lh_error *err);
/* Chrome trace JSON; reads back to the same trace and the same text. Release
 * *text with lh_text_free(); `len` may be NULL. */
LH_API lh_status lh_trace_format(const lh_trace *trace, char **text,
                                 size_t *len, lh_error *err);

#ifdef __cplusplus
}
#endif
#endif
