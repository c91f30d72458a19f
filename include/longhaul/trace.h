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

/* A trace owns plain arrays; every index below is into the array named. Read
 * them, never write them. */
typedef struct lh_trace_run {
    lh_pass pass;
    uint32_t device;
    int64_t start_ns, end_ns;
    int64_t memory; /* on the device from the start of this pass on, with what
                       it frees at its end not yet taken off */
    uint32_t waits_for; /* index of the message, LH_NONE: none */
} lh_trace_run;

typedef struct lh_trace_message {
    lh_pass producer, consumer;
    uint32_t from, to; /* devices */
    uint32_t link;     /* index into link_names, LH_NONE: no link */
    int64_t produced_ns, ready_ns, depart_ns, sent_ns, arrive_ns;
} lh_trace_message;

typedef struct lh_trace_collective {
    uint32_t chunk, device;
    bool is_reduce_scatter;
    int64_t ready_ns, depart_ns, sent_ns, arrive_ns;
} lh_trace_collective;

typedef struct lh_trace {
    const char *title;  /* "" where none was given */
    const char *source; /* "simulated" or "measured" */
    int64_t makespan_ns;
    uint32_t n_devices, n_sites, n_links;
    const uint32_t *device_sites; /* site of each device */
    const char *const *site_names;
    const char *const *link_names;
    const char *memory_unit; /* "" where none was given */
    uint32_t n_runs, n_messages, n_collectives;
    const lh_trace_run *runs; /* by device, then start */
    const lh_trace_message *messages; /* by readiness */
    const lh_trace_collective *collectives;
} lh_trace;

/* The trace of a simulated timeline. */
LH_API lh_status lh_trace_make(const lh_pipeline *pipeline,
                               const lh_timeline *timeline, const char *title,
                               lh_trace **out, lh_error *err);
LH_API void lh_trace_free(lh_trace *trace); /* NULL is fine */

LH_API lh_status lh_trace_parse(const char *text, size_t len, const char *name,
                                lh_trace **out, lh_error *err);
LH_API lh_status lh_trace_read(const char *path, lh_trace **out,
                               lh_error *err);
/* Chrome trace JSON; reads back to the same trace and the same text. */
LH_API lh_status lh_trace_format(const lh_trace *trace, char **text,
                                 size_t *len, lh_error *err);

#ifdef __cplusplus
}
#endif
#endif
