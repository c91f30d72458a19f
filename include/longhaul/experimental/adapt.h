/* SPDX-License-Identifier: Apache-2.0 */
/* Decides whether a training job keeps its schedule or switches to another one
 * when links or devices slow down (Adaptra, arXiv:2504.19232, sections 4 and
 * 6).
 *
 * Input: the pipeline as currently estimated and the active events
 * (longhaul/experimental/monitor.h). Output: a decision with the predicted
 * iteration time of both alternatives, a lower bound on any schedule, and the
 * reason. Rules and constants: docs/theory/adapt.md.
 *
 * The module uses no threads, files or clock. Search effort is counted in work
 * units, so equal inputs give equal decisions on every machine. The caller runs
 * the iterations, requests a decision after each one, in a separate thread if
 * desired, then reports whether the switch was adopted:
 *
 *     lh_adapt_decide(adapt, &now, &d, err)      i has ended, i + 1 runs
 *     if (d->is_switch) ...                      i + 2 runs, ranks vote
 *     lh_adapt_confirm(adapt, i + 3, followed)   i + 3 begins
 *
 * Times are nanoseconds. Not thread-safe: calls on one object must not overlap.
 *
 * Experimental: may change in any release, see longhaul.h. */
#ifndef LONGHAUL_EXPERIMENTAL_ADAPT_H
#define LONGHAUL_EXPERIMENTAL_ADAPT_H

#include <longhaul/experimental/delegate.h>
#include <longhaul/experimental/events.h>
#include <longhaul/experimental/jitter.h>
#include <longhaul/experimental/layers.h>
#include <longhaul/experimental/monitor.h>
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

/* Decision latency in iterations: how many iterations lie between the one that
 * triggered a decision and the first one that follows it. During the first the
 * decision is computed; during the second the ranks vote. */
enum { LH_ADAPT_DECISION_LATENCY = 2 };

/* Options for lh_adapt_make(). A member that is 0 or NULL has the default
 * given.
 */
typedef struct lh_adapt_options {
    size_t size; /* sizeof(lh_adapt_options) */
    /* Message timing on the initial data path; NULL: defaults. Copied. */
    const lh_sim_options *sim;
    /* Work limit per decision, in units of about one microsecond. 0: 60,000 for
     * pipelines with up to 1,000 passes, more for larger ones, at most ten
     * times that number. */
    uint64_t effort;
    int64_t switch_ns; /* cost of a switch; 0: 2 ms */
    uint32_t
        min_interval_steps; /* minimum iterations between switches; 0: 10 */
    /* A slowdown by at least this fraction of an iteration is answered before
     * min_interval_steps have passed; 0: 0.2. */
    double urgent_slowdown;
    /* Minimum saving that justifies a switch, as a fraction of an iteration; 0:
     * 0.002. */
    double min_gain;
    /* Comma-separated candidate names from lh_adapt_candidate(), allowed in
     * addition to the current order. NULL: all. */
    const char *candidates;
    /* Cost model of the delegated path. With it, all links' messages or only
     * slow links' may be switched to that path and back; its `links` member is
     * ignored. NULL: the data path never changes. Copied. Useful only if `sim`
     * makes passes wait for sends, or sends for receives. */
    const lh_delegation *delegation;
    /* Allows only schedules in which each chunk accumulates microbatch
     * gradients in the original order, so that a switch leaves the training
     * result bit-identical. (Floating-point sums depend on their order.) A W
     * pass in parts counts at its last part. */
    bool keep_reduction_order;
} lh_adapt_options;

/* Returns schedule candidate i's name; NULL past the end. Static storage.
 * Two names are not scheduling methods: "original" is the initial schedule,
 * "optimal" the exact solver with the remaining effort. */
LH_API const char *lh_adapt_candidate(uint32_t i);

/* Creates the decision maker, which chooses other schedules and data paths when
 * links or devices become slow. `schedule` is the initial one, later named
 * "original". Copies both inputs as far as needed. Release with
 * lh_adapt_free(). LH_EINVAL: an option is out of range, or `candidates` has an
 * unknown name; otherwise errors as in lh_simulate(). */
LH_API lh_status lh_adapt_make(const lh_pipeline *pipeline,
                               const lh_schedule *schedule,
                               const lh_adapt_options *options, lh_adapt **out,
                               lh_error *err);
LH_API void lh_adapt_free(lh_adapt *adapt); /* frees; NULL is a no-op */

/* Input to one decision: the state after an iteration. */
typedef struct lh_adapt_input {
    size_t size; /* sizeof(lh_adapt_input) */
    /* From lh_monitor_pipeline(): the same chunks and links with current times.
     */
    const lh_pipeline *pipeline;
    /* Active events, from lh_monitor_active_events(). */
    uint32_t n_events;
    const lh_monitor_event *events;
    uint64_t step;       /* last finished iteration; must increase */
    uint64_t steps_left; /* iterations remaining; UINT64_MAX: unknown */
    /* The conditions hold for all remaining iterations: the pipeline is a
     * correction of the planned times, not a temporary slowdown. */
    bool is_permanent;
    /* Relative standard error of the mean iteration time under the present
     * conditions; gains below twice this value cause no switch. 0: none. */
    double noise;
} lh_adapt_input;

/* Result from lh_adapt_decide(). Strings and arrays belong to the lh_adapt
 * object and are valid until the next lh_adapt_decide(). A schedule confirmed
 * with `followed` true stays valid until the next one is confirmed. */
typedef struct lh_decision {
    bool is_switch;
    /* Schedule to run next; the current order if is_switch is false. */
    const lh_schedule *schedule;
    const char *name; /* candidate name of `schedule` */
    /* Data path to use: direct, as initially, or another. */
    lh_data_path path;
    /* For the mixed path: per lh_pipeline_link(), true if delegated; else NULL.
     */
    const bool *delegated;
    int64_t current_ns;   /* current schedule, present conditions */
    int64_t predicted_ns; /* iteration with `schedule`; <= current_ns */
    int64_t bound_ns;     /* lower bound for any schedule */
    /* Relative optimality gap: (predicted_ns - bound_ns) / predicted_ns. */
    double gap;
    int64_t switch_ns; /* cost of a switch */
    /* expected iterations that benefit from a switch: expected duration of the
     * present conditions, less LH_ADAPT_DECISION_LATENCY */
    uint64_t benefit_steps;
    uint64_t effort; /* used, in units of lh_adapt_options.effort */
    const char *why; /* explanation in one or two sentences */
} lh_decision;

/* Decides after an iteration whether to switch the schedule: *out, borrowed.
 * Searches when an event has begun, changed or ended, and once more
 * min_interval_steps later; otherwise decides at negligible cost. Never
 * proposes a switch while one awaits lh_adapt_confirm(). LH_EINVAL: the input's
 * pipeline has another shape than the original, or its step is not later;
 * otherwise errors as in lh_simulate(). */
LH_API lh_status lh_adapt_decide(lh_adapt *adapt, const lh_adapt_input *now,
                                 const lh_decision **out, lh_error *err);

/* Answers the last proposed switch: the run uses it from `step` on
 * (`followed`), or rejects it and keeps its schedule. After a rejection nothing
 * is proposed until an event begins, changes or ends. LH_EINVAL: no switch was
 * proposed. */
LH_API lh_status lh_adapt_confirm(lh_adapt *adapt, uint64_t step, bool followed,
                                  lh_error *err);

/* --- virtual time --------------------------------------------------------- */

/* Options for lh_adapt_emulate(). */
typedef struct lh_adapt_emulate_options {
    size_t size;                   /* sizeof(lh_adapt_emulate_options) */
    const lh_adapt_options *adapt; /* NULL: defaults */
    /* Iteration i uses jitter sample i. NULL: link and device times come from
     * the event timeline alone. */
    const lh_jitter *jitter;
    /* Allows hosts to exchange placements if the event timeline defines any.
     * The first iteration after an exchange is longer by the migration time.
     * Iteration times under other placements are predicted without
     * delegated-path copies. */
    bool exchange;
    /* Allows layers of the timeline's pipeline to migrate away from slow
     * devices and back. The first iteration afterwards is longer by the
     * migration time, `layer_ns` per layer between two hosts. Times are
     * predicted without delegated-path copies. NULL: layers are fixed. Borrowed
     * for the call. */
    const lh_layers *layers;
    int64_t layer_ns;
} lh_adapt_emulate_options;

/* One emulated step: its duration, schedule and data path. */
typedef struct lh_emulated_step {
    int64_t ns;
    const char *name; /* candidate that ran; initially "original" */
    lh_data_path path;
    const bool *delegated; /* mixed path: per link of the timeline; else NULL */
} lh_emulated_step;

/* A switch that took effect: schedule names and data path, with the iteration
 * time before, the prediction and the lower bound. */
typedef struct lh_emulated_switch {
    uint64_t step; /* first step under the new schedule */
    const char *from, *to;
    lh_data_path path;
    const bool *delegated; /* as in lh_emulated_step */
    int64_t before_ns, predicted_ns, bound_ns;
    const char *why;
} lh_emulated_switch;

/* Placement exchange between hosts. */
typedef struct lh_emulated_exchange {
    uint64_t step; /* first step afterwards */
    uint32_t n_hosts, n_moves;
    const uint32_t *hosts; /* host of each placement, from then on */
    int64_t before_ns, predicted_ns, move_ns;
    const char *why;
} lh_emulated_exchange;

/* Layer migration between chunks. */
typedef struct lh_emulated_migration {
    uint64_t step; /* first step afterwards */
    uint32_t n_chunks, n_moves;
    const uint32_t *numbers; /* layers per chunk, from then on */
    int64_t before_ns, predicted_ns, move_ns;
    const char *why;
} lh_emulated_migration;

typedef struct lh_emulation lh_emulation;

/* Emulates steps 0 to n_steps - 1 of an event timeline in virtual time, as an
 * adaptive run whose monitor measures simulated iterations. An event is
 * reported after the second or third affected iteration i; a decision takes
 * effect in iteration i + 1 + LH_ADAPT_DECISION_LATENCY. `options` may be NULL.
 * Errors as in lh_adapt_make() and lh_simulate(). Release with
 * lh_emulation_free(). */
LH_API lh_status lh_adapt_emulate(const lh_event_timeline *timeline,
                                  const lh_schedule *schedule,
                                  const lh_adapt_emulate_options *options,
                                  uint64_t n_steps, lh_emulation **out,
                                  lh_error *err);
LH_API void
lh_emulation_free(lh_emulation *emulation); /* frees; NULL is a no-op */
/* Returns the emulated steps in order, and their number in *n_steps; borrowed
 * from the emulation. */
LH_API const lh_emulated_step *lh_emulation_steps(const lh_emulation *emulation,
                                                  uint64_t *n_steps);
/* Returns the switches in order; borrowed from the emulation. */
LH_API const lh_emulated_switch *
lh_emulation_switches(const lh_emulation *emulation, uint32_t *n_switches);
/* Returns the placement exchanges in order; borrowed from the emulation. */
LH_API const lh_emulated_exchange *
lh_emulation_exchanges(const lh_emulation *emulation, uint32_t *n_exchanges);
/* Returns the layer migrations in order; borrowed from the emulation. */
LH_API const lh_emulated_migration *
lh_emulation_migrations(const lh_emulation *emulation, uint32_t *n_moves);

#ifdef __cplusplus
}
#endif
#endif
