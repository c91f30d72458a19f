/* SPDX-License-Identifier: Apache-2.0 */
/* What is inside an lh_course. Immutable once made.
 *
 * In: a pipeline, and events (longhaul/events.h). Out: the pipeline in each
 * step. event_links.c: which of a pipeline's links an event names. course.c:
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
    uint32_t *links; /* of the course's pipeline */
    uint32_t n_names;
    uint32_t *names; /* of what it makes slow, in the course's list */
} lhi_effect;

struct lh_course {
    lhi_arena *mem;
    lh_pipeline *base; /* nothing is slow */
    uint32_t speed;
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

/* Links of a pipeline, and room for those that events add. */
typedef struct lhi_link_list {
    const lh_pipeline *pipeline;
    lh_link *links;
    uint32_t n_links;
} lhi_link_list;

/* Marks the links that `name` stands for in `hit`: those called so; `a-b` for
 * those called `a>b` and `b>a`; or those between two devices, which are added
 * where there is none. LH_EINPUT: there is nothing that it can be. */
lh_status lhi_event_links(lhi_link_list *list, const char *name, bool *hit,
                          lh_error *err);

#endif
