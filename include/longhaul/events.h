/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes slow while a job trains, and when: links, devices; and when ways
 * between ranks fail. Text form:
 * docs/formats/events.md. A course is what such events come to for one
 * pipeline: how it is in each step. Iterations follow one another without
 * overlap, so that one takes as long as its pipeline does alone.
 *
 * Steps count from 0. Events that overlap add up: a link's own latency is
 * multiplied by all their factors, then all their times are added to it, and so
 * its transfer; times of passes are multiplied by all factors. */
#ifndef LONGHAUL_EVENTS_H
#define LONGHAUL_EVENTS_H

#include <longhaul/pipeline.h>
#include <longhaul/places.h>
#include <longhaul/schedule.h>
#include <longhaul/simulate.h>
#include <longhaul/status.h>

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LH_MAX_EVENTS 1000u
#define LH_MAX_EVENT_LINKS 4096u /* named by all events of a file together */

/* In the step in which a rail goes down, messages from and to its rank go only
 * so long after the step has begun: until it is noticed, and they take the
 * other. */
#define LH_RAIL_NOTICE_NS INT64_C(300000000)

typedef enum lh_rail {
    LH_RAIL_AS_IT_IS, /* the event is of no rail */
    LH_RAIL_DOWN,
    LH_RAIL_UP
} lh_rail;

/* Of links, of a device or of a rail. */
typedef struct lh_event {
    /* The first step that has it, and the first that has it not; of a rail,
     * when it changes and -1. */
    int64_t from, to;
    uint32_t n_links;         /* 0: of no links */
    /* "2-3", both ways; "2>3"; or their names; "h0-h4": of hosts */
    const char *const *links;
    int64_t latency_ns, transfer_ns; /* more than the links' own; 0: none */
    /* Factors are at least 1, which is as it is. Of the links' own: */
    double latency_times, transfer_times;
    double slower;   /* latency and transfer, or all passes */
    uint32_t device; /* LH_NONE: of no device */
    uint32_t rank;   /* whose rail; LH_NONE */
    lh_rail rail;
    uint32_t line; /* in the file; 0: not from a file */
} lh_event;

/* Immutable; the value owns everything it points to. */
typedef struct lh_events {
    const char *name; /* as messages call it */
    uint32_t n_events;
    const lh_event *events; /* in file order */
} lh_events;

/* LH_EINPUT: `err` has file, line and key. Release with lh_events_free(). */
LH_API lh_status lh_events_parse(const char *text, size_t len, const char *name,
                                 lh_events **out, lh_error *err);
LH_API lh_status lh_events_read(const char *path, lh_events **out,
                                lh_error *err);
LH_API void lh_events_free(lh_events *events); /* NULL is fine */
/* The canonical text (JSON, nanoseconds), which reads back to the same events
 * and the same text. Release *text with lh_text_free(); `len` may be NULL. */
LH_API lh_status lh_events_format(const lh_events *events, char **text,
                                  size_t *len, lh_error *err);

/* Marks in `hit`, per lh_pipeline_link(), the links that a name in an event
 * stands for; others are left as they are. LH_EINPUT: there is none. */
LH_API lh_status lh_event_links(const lh_pipeline *pipeline, const char *name,
                                bool *hit, lh_error *err);

/* --- of one pipeline -------------------------------------------------------
 */

typedef struct lh_course lh_course; /* immutable once made */

typedef struct lh_course_options {
    size_t size;    /* sizeof(lh_course_options) */
    uint32_t speed; /* times of events are divided by it; 0: 1 */
    /* Events are of hosts: links "h0-h4" and "h0>h4" are between two of them,
     * a device is a host, and a link of the pipeline is that of all replicas.
     * What is slow stays so when hosts move. Of the pipeline that the course is
     * made of; it has to outlive the course. NULL: there are devices alone. */
    const lh_places *places;
    /* 0: ranks have two rails, and go on over the other when one goes down.
     * Else they have one: the run begins again where it saved, and the step in
     * which it goes down takes as long as itself and so many more. */
    uint32_t restart_steps;
} lh_course_options;

/* The pipeline in each step. Links that events name between devices, and that
 * it has not, are added to it, without delay. LH_EINPUT: the pipeline has not
 * what an event names, the event would change nothing, or a number of it is not
 * as above; a rail goes down that is the last one, or up that is not down.
 * `options` may be NULL. The events need not outlive the call. Release with lh_course_free(). */
LH_API lh_status lh_course_make(const lh_pipeline *pipeline,
                                const lh_events *events,
                                const lh_course_options *options,
                                lh_course **out, lh_error *err);
LH_API void lh_course_free(lh_course *course); /* NULL is fine */

/* Steps that have the same events are in one state; 0 has none. */
LH_API uint32_t lh_course_n_states(const lh_course *course);
LH_API uint32_t lh_course_state(const lh_course *course, uint64_t step);
/* The pipeline in a state. All have the same chunks and links, with other
 * times; a schedule of the pipeline that the course was made of is one of
 * each. With places: hosts are where they begin. Release with
 * lh_pipeline_free(). */
LH_API lh_status lh_course_pipeline(const lh_course *course, uint32_t state,
                                    lh_pipeline **out, lh_error *err);
/* With places: with `hosts` in them (longhaul/places.h); NULL: where they
 * begin. LH_EINVAL: hosts are not each there once, or there are no places. */
LH_API lh_status lh_course_pipeline_in(const lh_course *course, uint32_t state,
                                       const uint32_t *hosts, lh_pipeline **out,
                                       lh_error *err);
/* With places: what it takes in a state that hosts that are in places `from`
 * come to be in `to`, as lh_places_moving() has it; NULL: as they begin. `vias`,
 * filled in where it is not NULL: per place, the host that passes on what it
 * keeps; LH_NONE: none does. Errors as of that. */
LH_API lh_status lh_course_moving(const lh_course *course, uint32_t state,
                                  const uint32_t *from, const uint32_t *to,
                                  uint32_t *vias, int64_t *out_ns,
                                  lh_error *err);
/* What is slow in a state: links as the events name them, "device 2", and
 * "rail of rank 2" in the step in which one goes down.
 * Fills in the first `room` of the names, which are borrowed from the course,
 * and returns how many there are. */
LH_API uint32_t lh_course_slow(const lh_course *course, uint32_t state,
                               const char **names, uint32_t room);

/* Plays steps 0 to n_steps - 1 in virtual time: ns[i] is the makespan of step
 * i. What steps of one state take is worked out once. `options` may be NULL.
 * Errors as of lh_simulate(). */
LH_API lh_status lh_course_play(const lh_course *course,
                                const lh_schedule *schedule,
                                const lh_sim_options *options, uint64_t n_steps,
                                int64_t *ns, lh_error *err);

#ifdef __cplusplus
}
#endif
#endif
