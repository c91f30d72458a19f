/* SPDX-License-Identifier: Apache-2.0 */
/* What is inside an lh_course. Immutable once made.
 *
 * In: a pipeline, and events (longhaul/events.h). Out: the pipeline in each
 * step. event_links.c: which of a pipeline's links a name means
 * (pipe/link_names.h). event_hosts.c: which links between hosts. course.c:
 * steps with the same events as one state, and the pipeline in it.
 * course_play.c: steps one after the other in virtual time. */
#ifndef LHI_COURSE_H
#define LHI_COURSE_H

#include "base/arena.h"
#include "base/fail.h"

#include <longhaul/events.h>

/* An event, with what it names found. */
typedef struct lhi_effect {
    const lh_event *event;
    uint32_t n_links;
    uint32_t *links; /* of the course's pipeline, or of its host_links */
    int64_t hold_ns; /* these take no messages for so long; 0: no rail fails */
    uint32_t n_names;
    uint32_t *names; /* of what it makes slow, in the course's list */
} lhi_effect;

struct lh_course {
    lhi_arena *mem;
    lh_pipeline *base; /* nothing is slow */
    /* Events are of its hosts, and of links between them; NULL: of devices. */
    const lh_places *places;
    uint32_t n_host_links;
    lh_link *host_links; /* those that events name, as usual; from: host */
    uint32_t speed, restart_steps;
    uint32_t n_effects;
    lhi_effect *effects;
    /* Steps starts[i] to starts[i + 1] - 1 are in states[i]; starts[0] is 0,
     * and the last one has no end. */
    uint32_t n_spans, n_states;
    int64_t *starts;
    uint32_t *states;
    uint32_t n_words;
    uint64_t *active; /* per state n_words, bit k: effect k is there */
    uint32_t n_names;
    const char **names; /* of what is slow, each once */
};

/* Fills in effect->links by the names of its event. LH_EINPUT: there is nothing
 * that one can be. */
lh_status lhi_event_hosts(lh_course *course, lhi_effect *effect, lh_error *err);

/* What is slow in a state of a course that has places; in `mem`. */
lh_status lhi_course_hosts(const lh_course *course, uint32_t state,
                           lhi_arena *mem, lh_hosts_now *out, lh_error *err);

/* Of one that has places, as lh_course_moving(), by these vias. */
lh_status lhi_course_moving(const lh_course *course, uint32_t state,
                            const uint32_t *from, const uint32_t *to,
                            const uint32_t *vias, int64_t *out_ns,
                            lh_error *err);

/* How many rails go down in a state. */
uint32_t lhi_course_n_failures(const lh_course *course, uint32_t state);

#endif
