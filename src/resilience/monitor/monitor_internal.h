/* SPDX-License-Identifier: Apache-2.0 */
/* lh_monitor internals.
 *
 * Input: iterations (longhaul/experimental/monitor.h). Output: each link's
 * level, device and data-parallel link, and detected jumps.
 *
 * - iteration.c: one iteration, from times to readings and changes
 * - monitor_estimate.c: estimates, the pipeline built from them, costs
 * - monitor.c: the public functions
 * - drift_detector.c: one quantity
 * - clocks.c: two clocks' offset */
#ifndef LHI_RESILIENCE_MONITOR_MONITOR_INTERNAL_H
#define LHI_RESILIENCE_MONITOR_MONITOR_INTERNAL_H

#include "resilience/monitor/clocks.h"
#include "resilience/monitor/drift_detector.h"
#include "schedule/pipeline/pipeline_internal.h"

#include <longhaul/experimental/monitor.h>

/* Measured series of a chunk: passes by lh_pass_kind, followed by these. */
enum { LHI_GATHERS = LH_B + 1, LHI_SCATTERS, LHI_N_SERIES };

/* A monitored link, or a device's computation or data-parallel communication.
 */
typedef struct lhi_monitored {
    lhi_drift_detector detector;
    /* Computation, data: initial time per iteration. Present slowdown relative
     * to the nominal time; 1 without measurements. */
    double initial_ns, slowdown;
    uint64_t changed_step;            /* step at which the last change was
                                       * detected */
    uint64_t steps[LHI_DRIFT_WINDOW]; /* last readings' steps, newest first */
    bool is_active;
    lh_monitor_event event; /* the last event, if still active */
} lhi_monitored;

/* A monitored link. */
typedef struct lhi_monitored_link {
    lhi_monitored monitored;
    uint32_t pair;    /* clock pair; LH_NONE: both ends share a clock */
    bool is_reversed; /* direction from the pair's b to its a */
    double transfer_ns, n_transfers; /* mean over n_transfers iterations */
    uint64_t transfers_step;         /* last step */
    double bytes;                    /* per message; 0: unknown */
    double nominal_ns;
} lhi_monitored_link;

/* Two clocks with their estimated offset. */
typedef struct lhi_clock_pair {
    uint32_t a, b;
    lhi_clock_offset estimate;
    double forward_ns,
        backward_ns; /* least ones in the iteration; HUGE_VAL: none */
    double offset;   /* for the iteration's messages */
    bool is_known;   /* offset is known: messages were observed */
} lhi_clock_pair;

/* Statistics for one kind of pass or communication on one chunk. */
typedef struct lhi_series {
    double initial;                /* mean over the first iterations */
    double n_initial;              /* number of first iterations */
    double mean, weight, variance; /* present level, as in a drift detector */
    uint64_t n, last_step;
    double nominal_ns;
    /* In the present iteration. */
    lhi_drift_reading reading;
} lhi_series;

/* A device's busy time in an iteration, and the same work's initial time. */
typedef struct lhi_busy_time {
    double current, initial, variance;
    size_t n;
} lhi_busy_time;

/* A sample in the present iteration. */
typedef struct lhi_sample {
    uint32_t group; /* link or series */
    double value;
} lhi_sample;

/* Monitor state. */
struct lh_monitor {
    lh_pipeline *pipeline;
    lh_schedule *schedule;
    lh_sim_options sim;
    bool *delegated; /* owned array in `sim`; NULL: none */
    uint32_t warm_up;
    uint64_t step;         /* last step */
    uint64_t n_iterations; /* iteration count */
    double iteration_ns;   /* simulated at normal levels */
    lhi_monitored_link *links;
    lhi_monitored *work, *data; /* per device */
    lhi_series *series;         /* LHI_N_SERIES per chunk */
    lhi_clock_pair *pairs;
    uint32_t n_pairs;
    lh_monitor_event *news,
        *active; /* capacity for one per monitored quantity */
    uint32_t n_news, n_active;
    lhi_busy_time *busy; /* scratch: per device */
    size_t *first;       /* scratch: per sampled quantity */
    /* Scratch, grown as needed. */
    lhi_sample *samples, *gathered;
    lh_observed_message *messages;
    double *values;
    size_t capacity;
};

/* Returns a chunk's series statistics. */
static inline lhi_series *lhi_monitor_series(const lh_monitor *m,
                                             uint32_t chunk, uint32_t kind)
{
    return &m->series[(size_t)chunk * LHI_N_SERIES + kind];
}

/* Returns the ratio of the normal to the present level; 1 without a slowdown.
 */
static inline double lhi_monitored_normal_ratio(const lhi_monitored *quantity)
{
    const lhi_drift_detector *g = &quantity->detector;
    return g->has_left && g->level > 0 ? g->normal / g->level : 1;
}

/* Passes a checked observation of one iteration to all drift detectors, and
 * stores the changes found as new events, whose costs are not computed yet. The
 * scratch arrays must be large enough. */
void lhi_monitor_process_iteration(lh_monitor *monitor,
                                   const lh_observation *seen);

/* Builds the pipeline with all current estimates. Quantity `quiet` (NULL: none)
 * gets its normal level instead, as if its slowdown had ended; with all_quiet
 * all quantities do. */
lh_status lhi_monitor_estimate(const lh_monitor *monitor,
                               const lhi_monitored *quiet, bool all_quiet,
                               lh_pipeline **out, lh_error *err);
/* Simulates an iteration of the monitor's schedule on the estimated pipeline of
 * lhi_monitor_estimate(), in which quantity `quiet` or, with all_quiet, every
 * quantity has its normal level; *makespan_ns is its makespan. */
lh_status lhi_monitor_simulate(const lh_monitor *monitor,
                               const lhi_monitored *quiet, bool all_quiet,
                               int64_t *makespan_ns, lh_error *err);

#endif
