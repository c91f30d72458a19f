/* SPDX-License-Identifier: Apache-2.0 */
/* Events that slow down links or devices, disable rails between ranks, or kill
 * or stop a rank's process, in a range of training steps. Text form:
 * docs/formats/events.md. An event timeline applies them to one pipeline and
 * gives its state in each step. Iterations do not overlap, so a step's duration
 * equals that of its pipeline alone.
 *
 * Steps are numbered from 0. Overlapping events combine: a link's latency is
 * multiplied by all factors, then all extra times are added; the same holds for
 * its transfer time. Pass times are multiplied by all factors.
 *
 * Experimental: may change in any release, see longhaul.h. */
#ifndef LONGHAUL_EXPERIMENTAL_EVENTS_H
#define LONGHAUL_EXPERIMENTAL_EVENTS_H

#include <longhaul/experimental/host_placement.h>
#include <longhaul/pipeline.h>
#include <longhaul/schedule.h>
#include <longhaul/simulate.h>
#include <longhaul/status.h>

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Most events in a file. */
#define LH_MAX_EVENTS 1000u
#define LH_MAX_EVENT_LINKS 4096u /* for all events in a file together */

/* A rail failure's detection time, ns from the start of the step in which the
 * rail fails. Messages from and to its rank are delayed until then and use the
 * other rail afterwards. */
#define LH_RAIL_DETECTION_NS INT64_C(300000000)

/* Rail change in an event. */
typedef enum lh_rail {
    LH_RAIL_UNCHANGED, /* not a rail event */
    LH_RAIL_DOWN,
    LH_RAIL_UP
} lh_rail;

/* Signal that a rank's process receives in an event. */
typedef enum lh_process_event {
    LH_PROCESS_UNCHANGED, /* not a process event */
    LH_PROCESS_KILLED,    /* SIGKILL */
    LH_PROCESS_STOPPED,   /* SIGSTOP, and SIGCONT later */
    LH_PROCESS_LOST       /* SIGKILL, and its host does not return */
} lh_process_event;

/* One event: slow links, a slow device, a rail change, or a rank's process. */
typedef struct lh_event {
    /* First affected step and first step no longer affected. Rails and
     * processes: the step of the change, and -1. */
    int64_t first_step, end_step;
    uint32_t n_links; /* 0: not a link event */
    /* "2-3" (both directions), "2>3", or link names; "h0-h4": hosts */
    const char *const *links;
    /* added to the links' own times; 0: none */
    int64_t latency_ns, transfer_ns;
    /* Factors >= 1; 1: unchanged. For links: */
    double latency_factor, transfer_factor;
    double slowdown; /* latency and transfer, or all passes */
    uint32_t device; /* LH_NONE: not a device event */
    uint32_t rank;   /* rank with the rail or process, or LH_NONE */
    lh_rail rail;
    lh_process_event process; /* as the step begins, once per run */
    int64_t pause_ns;         /* time for which it is stopped */
    uint32_t line;            /* line in the file; 0: not from a file */
} lh_event;

/* An event list. Immutable; owns its contents. */
typedef struct lh_events {
    const char *name; /* used in error messages */
    uint32_t n_events;
    const lh_event *events; /* in file order */
} lh_events;

/* Reads and parses an events file. LH_EIO: the file cannot be read. */
LH_API lh_status lh_events_read(const char *path, lh_events **out,
                                lh_error *err);
/* Frees an event list with all memory that it owns; NULL is a no-op. */
LH_API void lh_events_free(lh_events *events);

/* Sets `hit[i]` for each lh_pipeline_link() i that matches a link name in an
 * event; other entries are unchanged. LH_EINPUT: no match. */
LH_API lh_status lh_event_match_links(const lh_pipeline *pipeline,
                                      const char *name, bool *hit,
                                      lh_error *err);

/* --- one pipeline's event timeline --------------------------------------- */

typedef struct lh_event_timeline
    lh_event_timeline; /* immutable after creation */

/* Options for lh_event_timeline_make(). */
typedef struct lh_event_timeline_options {
    size_t size;           /* sizeof(lh_event_timeline_options) */
    uint32_t time_divisor; /* divisor for the events' times; 0: 1 */
    /* Events refer to hosts: links "h0-h4" and "h0>h4" connect two hosts, a
     * device is a host, and a pipeline link stands for that of all replicas.
     * Slowness stays with the host when hosts exchange placements. Must belong
     * to the timeline's pipeline and outlive the timeline. NULL: devices only.
     */
    const lh_host_placement *placement;
    /* 0: ranks have two rails and use the other one when one fails. Otherwise
     * they have one: a failure restarts the run from its checkpoint, and that
     * step lasts as long as itself plus this many more. */
    uint32_t restart_steps;
} lh_event_timeline_options;

/* Applies events to a pipeline. Missing links between devices that events name
 * are added without delay. `options` may be NULL. `events` need not outlive the
 * call. Release with lh_event_timeline_free().
 *
 * LH_EINPUT: an event names something that the pipeline lacks, would change
 * nothing, or has a number out of range; the last rail fails, or a rail that
 * works is restored. */
LH_API lh_status
lh_event_timeline_make(const lh_pipeline *pipeline, const lh_events *events,
                       const lh_event_timeline_options *options,
                       lh_event_timeline **out, lh_error *err);
LH_API void lh_event_timeline_free(
    lh_event_timeline *timeline); /* frees; NULL is a no-op */

/* Returns the state count. A state is a set of active events; steps with
 * equal sets share it. State 0 has no events. */
LH_API uint32_t lh_event_timeline_n_states(const lh_event_timeline *timeline);
/* Returns the state number (set of active events) of step `step`. */
LH_API uint32_t lh_event_timeline_state(const lh_event_timeline *timeline,
                                        uint64_t step);
/* Builds the pipeline in state number `state` (a set of active events) into
 * *out. All states have equal chunks and links, so a schedule of the original
 * pipeline is valid in each. With a host placement, hosts are at their initial
 * places. Release with lh_pipeline_free(). */
LH_API lh_status lh_event_timeline_pipeline(const lh_event_timeline *timeline,
                                            uint32_t state, lh_pipeline **out,
                                            lh_error *err);
/* With a host placement: builds the pipeline in a state with `hosts` at the
 * placements (longhaul/experimental/host_placement.h); NULL: initial placement.
 * LH_EINVAL: some host does not occur exactly once, or there is no host
 * placement. */
LH_API lh_status lh_event_timeline_pipeline_with_hosts(
    const lh_event_timeline *timeline, uint32_t state, const uint32_t *hosts,
    lh_pipeline **out, lh_error *err);
/* Computes the time in ns to exchange hosts (from[i] to to[i] at place i;
 * `from` NULL: the initial ones) under a state's slowdowns, for a timeline with
 * a host placement. `vias` (may be NULL) receives, per place, the host that
 * relays its training state, or LH_NONE. Errors as in
 * lh_host_placement_pipeline(). */
LH_API lh_status lh_event_timeline_migration(const lh_event_timeline *timeline,
                                             uint32_t state,
                                             const uint32_t *from,
                                             const uint32_t *to, uint32_t *vias,
                                             int64_t *out_ns, lh_error *err);
/* Lists the components that are slow in a state (set of active events): links
 * as the events name them, "device 2", and in the step of such an event "rail
 * of rank 2", "rank 3 killed" or "rank 3 stopped". Fills at most `room` names,
 * borrowed from the timeline. Returns the number of all. */
LH_API uint32_t lh_event_timeline_slow_components(
    const lh_event_timeline *timeline, uint32_t state, const char **names,
    uint32_t room);

/* Simulates steps 0 to n_steps - 1 in virtual time: ns[i] is step i's makespan
 * in ns. Simulates each state (set of active events) once. `options` may be
 * NULL. Errors as in lh_simulate(); LH_EUNSUPPORTED: an event kills or stops a
 * rank's process. */
LH_API lh_status lh_event_timeline_simulate(const lh_event_timeline *timeline,
                                            const lh_schedule *schedule,
                                            const lh_sim_options *options,
                                            uint64_t n_steps, int64_t *ns,
                                            lh_error *err);

#ifdef __cplusplus
}
#endif
#endif
