/* SPDX-License-Identifier: Apache-2.0 */
/* What to do when links or devices become slow while a job trains: keep the
 * schedule that runs, or go on with another one (Adaptra, arXiv:2504.19232,
 * sections 4 and 6). In: the pipeline as it is estimated now, and the events
 * that go on (longhaul/monitor.h). Out: a decision, with what an iteration
 * takes either way, what no schedule can beat, and why. The rules and the
 * reasons for their constants: docs/theory/adapt.md.
 *
 * No threads, no files and no clock: how long it looks for a schedule is
 * counted in work, so that the same input gives the same decision everywhere.
 * Whoever runs iterations asks after each, in a thread of their own if they
 * like, and says what became of a switch:
 *
 *     lh_adapt_decide(adapt, &now, &d, err)      i is over, i + 1 runs
 *     if (d->is_switch) ...                      i + 2 runs, ranks vote
 *     lh_adapt_answer(adapt, i + 3, followed)    i + 3 begins
 *
 * Times are nanoseconds. Not for use by two threads at once. */
#ifndef LONGHAUL_ADAPT_H
#define LONGHAUL_ADAPT_H

#include <longhaul/delegate.h>
#include <longhaul/events.h>
#include <longhaul/jitter.h>
#include <longhaul/layers.h>
#include <longhaul/monitor.h>
#include <longhaul/pipeline.h>
#include <longhaul/schedule.h>
#include <longhaul/simulate.h>
#include <longhaul/status.h>

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lh_adapt lh_adapt;

/* Iterations that go by from the one that was over until one follows what was
 * decided then: in the first it is decided, in the second ranks vote. */
enum { LH_ADAPT_GO_BY = 2 };

typedef struct lh_adapt_options {
    size_t size; /* sizeof(lh_adapt_options) */
    /* How messages go on the path that the run begins with; NULL: as usual.
     * Copied. */
    const lh_sim_options *sim;
    /* Work for one decision, in units of about a microsecond; 0: 60,000 for
     * pipelines of up to 1,000 passes, more for larger ones, up to ten times
     * that. */
    uint64_t effort;
    int64_t switch_ns;    /* what a switch costs the run; 0: 2 ms */
    uint32_t least_steps; /* from one switch to the next; 0: 10 */
    /* A change by which an iteration takes this much longer, as a share, is
     * answered sooner than that; 0: 0.2. */
    double at_once;
    /* A schedule has to save this share of an iteration to be worth a switch;
     * 0: 0.002. */
    double least_gain;
    /* Names of the candidates that may be taken beside the order that runs,
     * with commas between them, out of lh_adapt_candidate(). NULL: all. */
    const char *candidates;
    /* What the delegated path costs: messages may be switched to it, all or
     * those of slow links, and back. `links` there is not looked at. NULL: the
     * path is kept. Copied. Only of use where `sim` has passes wait for sends,
     * or sends for receives. */
    const lh_delegation *delegation;
    /* Only schedules by which each chunk adds its microbatches' gradients in
     * the order in which it did as the run began, so that a switch changes no
     * bit of what is trained. (Sums over floating-point numbers depend on
     * their order.) Parts of a W count where the last of them is. */
    bool same_sums;
} lh_adapt_options;

/* What may be switched to. Those that are no methods: "original", what the run
 * began with, and "optimal", by searching with what is left of the work. NULL
 * beyond the last one. */
LH_API const char *lh_adapt_candidate(uint32_t i);

/* `schedule` is what the run begins with, "original" from then on. Both are
 * copied as far as needed. LH_EINVAL: an option is out of range, or
 * `candidates` names none that there is; else as lh_simulate(). Release with
 * lh_adapt_free(). */
LH_API lh_status lh_adapt_make(const lh_pipeline *pipeline,
                               const lh_schedule *schedule,
                               const lh_adapt_options *options, lh_adapt **out,
                               lh_error *err);
LH_API void lh_adapt_free(lh_adapt *adapt); /* NULL is fine */

/* How things are after an iteration. */
typedef struct lh_adapt_now {
    size_t size; /* sizeof(lh_adapt_now) */
    /* lh_monitor_pipeline(): the same chunks and links, with times of now. */
    const lh_pipeline *pipeline;
    /* lh_monitor_going_on(). */
    uint32_t n_events;
    const lh_monitor_event *events;
    uint64_t step;       /* the iteration that is over; each time a later one */
    uint64_t steps_left; /* after it; UINT64_MAX: no end is known */
} lh_adapt_now;

/* What strings and arrays point to is the adapt's, until the next call of
 * lh_adapt_decide(); a schedule that was answered with true is until the next
 * one is. */
typedef struct lh_decision {
    bool is_switch;
    /* What to go on with: the order that runs where it is no switch. */
    const lh_schedule *schedule;
    const char *name; /* of the candidate that `schedule` was */
    /* How messages are to go: direct, as the run began. */
    lh_data_path path;
    /* Mixed: per lh_pipeline_link(), which are delegated; else NULL. */
    const bool *delegated;
    int64_t now_ns;       /* an iteration of what runs, as things are */
    int64_t predicted_ns; /* of `schedule`; never above now_ns */
    int64_t bound_ns;     /* no schedule is faster */
    /* By so much no schedule is faster than `schedule`: predicted_ns less
     * bound_ns, as a share of predicted_ns. */
    double gap;
    int64_t switch_ns; /* what a switch costs the run */
    uint64_t lasts; /* iterations for which a switch is expected to count: those
                       that things are expected to stay as they are, without
                       LH_ADAPT_GO_BY */
    uint64_t effort; /* spent, in the units of lh_adapt_options */
    const char *why; /* a sentence or two, for people */
} lh_decision;

/* Where nothing began, changed or ended since the last call, and nothing was
 * put off, this costs next to nothing and says to keep what runs; also as long
 * as a switch has not been answered. LH_EINVAL: `now` has another shape than
 * the pipeline it was made for, or an earlier step; else as lh_simulate(). */
LH_API lh_status lh_adapt_decide(lh_adapt *adapt, const lh_adapt_now *now,
                                 const lh_decision **out, lh_error *err);

/* What became of the last decision that was a switch: from `step` on the run
 * follows it, or it was refused and the run keeps to what it had; then nothing
 * is proposed until something else begins, changes or ends. LH_EINVAL: no
 * switch is open. */
LH_API lh_status lh_adapt_answer(lh_adapt *adapt, uint64_t step, bool followed,
                                 lh_error *err);

/* --- in virtual time ------------------------------------------------------ */

typedef struct lh_adapt_play_options {
    size_t size;                   /* sizeof(lh_adapt_play_options) */
    const lh_adapt_options *adapt; /* NULL: as usual */
    /* Each iteration is one of its samples, of the iteration's number; NULL:
     * links and devices are as the course has them. */
    const lh_jitter *jitter;
    /* Hosts may exchange their places, where the course has some: the iteration
     * from which they have is longer by what moving takes. How long an
     * iteration takes in other places is predicted without copies on the
     * delegated path. */
    bool exchange;
    /* Layers may move away from slow devices, and back: of the course's
     * pipeline. The iteration from which they have is longer by what moving
     * takes, a layer `layer_ns` from one host to another. Predicted likewise.
     * NULL: they stay. Borrowed for the call. */
    const lh_layers *layers;
    int64_t layer_ns;
} lh_adapt_play_options;

typedef struct lh_played_step {
    int64_t ns;
    const char *name; /* of the candidate that ran, "original" at first */
    lh_data_path path;
    const bool *delegated; /* mixed: per link of the course; else NULL */
} lh_played_step;

/* What a monitor said after a step. */
typedef struct lh_played_notice {
    uint64_t step;
    lh_monitor_event event;
} lh_played_notice;

typedef struct lh_played_switch {
    uint64_t step; /* the first that follows it */
    const char *from, *to;
    lh_data_path path;
    const bool *delegated; /* as of a step */
    int64_t before_ns, predicted_ns, bound_ns;
    const char *why;
} lh_played_switch;

/* Hosts that exchanged their places. */
typedef struct lh_played_exchange {
    uint64_t step; /* the first after it */
    uint32_t n_hosts, n_moves;
    const uint32_t *hosts; /* of each place, from then on */
    int64_t before_ns, predicted_ns, move_ns;
    const char *why;
} lh_played_exchange;

/* Layers that moved. */
typedef struct lh_played_layers {
    uint64_t step; /* the first after it */
    uint32_t n_chunks, n_moves;
    const uint32_t *numbers; /* of each chunk, from then on */
    int64_t before_ns, predicted_ns, move_ns;
    const char *why;
} lh_played_layers;

typedef struct lh_played lh_played;

/* Plays steps 0 to n_steps - 1 of a course as a run with a monitor does, which
 * measures what is simulated: the monitor notices after the second or third
 * iteration that has an event, say i; what is decided then is followed from
 * i + 1 + LH_ADAPT_GO_BY on. `schedule` is one of the course's pipeline. Times
 * do not depend on the machine. `options` may be NULL. Errors as of
 * lh_adapt_make() and lh_simulate(). Release with lh_played_free(). */
LH_API lh_status lh_adapt_play(const lh_course *course,
                               const lh_schedule *schedule,
                               const lh_adapt_play_options *options,
                               uint64_t n_steps, lh_played **out,
                               lh_error *err);
LH_API void lh_played_free(lh_played *played); /* NULL is fine */
/* All borrowed. */
LH_API const lh_played_step *lh_played_steps(const lh_played *played,
                                             uint64_t *n_steps);
LH_API const lh_played_switch *lh_played_switches(const lh_played *played,
                                                  uint32_t *n_switches);
LH_API const lh_played_exchange *lh_played_exchanges(const lh_played *played,
                                                     uint32_t *n_exchanges);
LH_API const lh_played_layers *lh_played_layer_moves(const lh_played *played,
                                                     uint32_t *n_moves);
/* Of devices with the layers that they had at first. */
LH_API const lh_played_notice *lh_played_notices(const lh_played *played,
                                                 uint32_t *n_notices);

#ifdef __cplusplus
}
#endif
#endif
