/* SPDX-License-Identifier: Apache-2.0 */
/* Event timeline internals (lh_event_timeline), immutable once built.
 *
 * Input: a pipeline and events (longhaul/experimental/events.h). Output: the
 * pipeline at each step.
 *
 * - event_links.c: a pipeline's links that match a name
 *   (schedule/pipeline/link_names.h)
 * - event_hosts.c: the links between hosts that match a name
 * - timeline.c: groups steps with the same events into states
 * - state_pipeline.c: builds the pipeline in a state
 * - timeline_run.c: simulates the steps in virtual time */
#ifndef LHI_RESILIENCE_EVENT_TIMELINE_TIMELINE_H
#define LHI_RESILIENCE_EVENT_TIMELINE_TIMELINE_H

#include "base/arena.h"
#include "base/fail.h"

#include <longhaul/experimental/events.h>

/* An event with its targets resolved. */
typedef struct lhi_event_effect {
    const lh_event *event; /* without its link names */
    uint32_t n_links;
    /* indices into the timeline's base pipeline or host_links */
    uint32_t *links;
    int64_t block_ns; /* time for which the links block; 0: no rail failure */
    uint32_t n_names;
    uint32_t *names; /* slow parts: indices into the timeline's names */
} lhi_event_effect;

/* An event timeline: effects, step intervals and their states. */
struct lh_event_timeline {
    lhi_arena *mem;
    lh_pipeline *base; /* without slowdowns */
    /* Non-NULL: events refer to hosts and the links between them; NULL: to
     * devices. */
    const lh_host_placement *placement;
    uint32_t n_host_links;
    lh_link *host_links; /* named by events, unslowed; from, to: hosts */
    uint32_t speed, restart_steps;
    uint32_t n_effects;
    lhi_event_effect *effects;
    /* Steps starts[i] to starts[i + 1] - 1 are in states[i]; starts[0] is 0,
     * and the last interval has no end. */
    uint32_t n_intervals, n_states;
    int64_t *starts;
    uint32_t *states;
    uint32_t n_words;
    uint64_t *active_sets; /* n_words per state; bit k: effect k is active */
    uint32_t n_names;
    const char **names; /* all slow parts, without duplicates */
};

/* Checks whether bit `i` of an effect set is set. */
static inline bool lhi_event_set_has(const uint64_t *set, uint32_t i)
{
    return set[i / 64] >> i % 64 & 1;
}

/* Checks whether an effect slows a device or host. */
static inline bool lhi_event_slows_device(const lhi_event_effect *effect)
{
    const lh_event *e = effect->event;
    return e->n_links == 0 && !e->rail && !e->process;
}

/* Fails with LH_EUNSUPPORTED if an event kills or stops a rank's process, which
 * only a real run can do. */
lh_status lhi_event_timeline_check_simulated(const lh_event_timeline *timeline,
                                             lh_error *err);

/* Sets effect->links to the indices of the host links that the event names, for
 * a timeline with a host placement. LH_EINPUT: a name matches no link. */
lh_status lhi_event_find_host_links(lh_event_timeline *timeline,
                                    lhi_event_effect *effect, lh_error *err);

/* Computes the slowdowns of hosts and host links in state number `state` (an
 * active event set), for a timeline with a host placement, into *out, allocated
 * in `mem`. */
lh_status lhi_event_timeline_host_slowdowns(const lh_event_timeline *timeline,
                                            uint32_t state, lhi_arena *mem,
                                            lh_host_slowdowns *out,
                                            lh_error *err);

/* Computes the time in ns to exchange hosts, as lh_event_timeline_migration()
 * does, but with given relays: host vias[i] forwards place i's training state,
 * LH_NONE: no relay. The timeline must have a host placement. */
lh_status lhi_event_timeline_migration(const lh_event_timeline *timeline,
                                       uint32_t state, const uint32_t *from,
                                       const uint32_t *to, const uint32_t *vias,
                                       int64_t *out_ns, lh_error *err);

/* Counts the rails (parallel network connections of a rank) that fail in state
 * number `state` (an active event set). */
uint32_t lhi_event_timeline_count_failures(const lh_event_timeline *timeline,
                                           uint32_t state);

#endif
