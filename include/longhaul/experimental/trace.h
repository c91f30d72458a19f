/* SPDX-License-Identifier: Apache-2.0 */
/* Execution traces, simulated or measured. Text form: Chrome trace events
 * (docs/formats/trace.md), readable by Perfetto: one process per datacenter,
 * one thread per device, one track per link. Immutable after creation.
 *
 * Experimental: may change in any release, see longhaul.h. */
#ifndef LONGHAUL_EXPERIMENTAL_TRACE_H
#define LONGHAUL_EXPERIMENTAL_TRACE_H

#include <longhaul/experimental/pipeline.h>
#include <longhaul/schedule.h>
#include <longhaul/simulate.h>
#include <longhaul/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An executed pass in a trace.
 *
 * Traces consist of plain, read-only arrays; every index refers to the array
 * named. Times are nanoseconds from the iteration's start, 0..2^53; memory has
 * the pipeline's unit. */
typedef struct lh_trace_run {
    lh_pass pass;
    uint32_t device;
    uint32_t waits_for; /* index of the message that the pass waited for;
                         * LH_NONE: none */
    int64_t start_ns, end_ns;
    int64_t issued_ns;    /* the device continues; later than end_ns only with
                           * blocking sends */
    int64_t memory;       /* device memory from the pass's start */
    int64_t memory_after; /* device memory from its end */
} lh_trace_run;

/* A message in a trace. */
typedef struct lh_trace_message {
    lh_pass producer, consumer;
    uint32_t from, to; /* devices */
    uint32_t link;     /* index into link_names; LH_NONE: no link */
    /* In this order: producer's end, entry into the link's queue, start of
     * the transfer, end of the transfer, arrival. */
    int64_t produced_ns, ready_ns, depart_ns, sent_ns, arrive_ns;
} lh_trace_message;

/* A data-parallel communication in a trace. */
typedef struct lh_trace_collective {
    uint32_t chunk, device;
    bool is_reduce_scatter; /* else all-gather */
    int64_t ready_ns, depart_ns, sent_ns, arrive_ns;
    uint32_t bucket, n_buckets; /* part of it; both 0: undivided */
    lh_dp_kind kind;            /* purpose, if given */
} lh_trace_collective;

/* A copy of a microbatch's offloaded activations, to or from the host. */
typedef struct lh_trace_offload {
    uint32_t chunk, microbatch, device;
    bool is_reload;
    int64_t ready_ns, depart_ns, end_ns;
} lh_trace_offload;

/* A device in a trace. */
typedef struct lh_trace_device {
    uint32_t site;         /* index into site_names */
    int64_t memory_static; /* resident for the whole iteration */
    int64_t memory_limit;  /* LH_NO_LIMIT: none */
    const char *dp_link;   /* network behind its data-parallel link; NULL:
                            * unnamed */
} lh_trace_device;

/* A trace. Owned by the library if returned by it; release with
 * lh_trace_free(). */
typedef struct lh_trace {
    const char *title;       /* "" if not given */
    const char *source;      /* "simulated" or "measured" */
    const char *memory_unit; /* "" if not given */
    int64_t makespan_ns;
    uint32_t n_devices, n_sites, n_links;
    const lh_trace_device *devices;
    const char *const *site_names; /* at least one; "" if unnamed */
    const char *const *link_names;
    uint32_t n_runs, n_messages, n_collectives;
    const lh_trace_run *runs;         /* sorted by device, then by start */
    const lh_trace_message *messages; /* sorted by ready_ns */
    const lh_trace_collective *collectives;
    uint32_t n_copies;
    const lh_trace_offload *copies; /* sorted by departure */
} lh_trace;

/* Creates a simulated timeline's trace; `title` may be NULL. Release with
 * lh_trace_free(). */
LH_API lh_status lh_trace_make(const lh_pipeline *pipeline,
                               const lh_timeline *timeline, const char *title,
                               lh_trace **out, lh_error *err);

/* Copies a trace filled in by the caller, for example with measured times.
 * Input order is arbitrary: runs are sorted by device and start, messages by
 * readiness, collectives and copies by departure, and `waits_for` is adjusted.
 * NULL texts become "". Release with lh_trace_free().
 *
 * LH_EINPUT: an index or a time is out of range, passes on a device overlap, a
 * pass occurs twice, or a message's pass is missing; `err` gives details. */
LH_API lh_status lh_trace_copy(const lh_trace *from, lh_trace **out,
                               lh_error *err);
LH_API void lh_trace_free(lh_trace *trace); /* frees; NULL is a no-op */

/* Parses a Chrome trace; `name` appears in error messages. LH_EINPUT: invalid
 * text. Release with lh_trace_free(). */
LH_API lh_status lh_trace_parse(const char *text, size_t len, const char *name,
                                lh_trace **out, lh_error *err);
/* Reads and parses a trace file. LH_EIO: it cannot be read. */
LH_API lh_status lh_trace_read(const char *path, lh_trace **out, lh_error *err);
/* Formats a trace as Chrome trace JSON. Parsing it gives the same trace, which
 * formats to the same text. Release *text with lh_text_free(); `len` may be
 * NULL. */
LH_API lh_status lh_trace_format(const lh_trace *trace, char **text,
                                 size_t *len, lh_error *err);

#ifdef __cplusplus
}
#endif
#endif
