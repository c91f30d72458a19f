/* SPDX-License-Identifier: Apache-2.0 */
/* What is inside an lh_monitor.
 *
 * In: iterations (longhaul/monitor.h). Out: levels of what each link, device
 * and data-parallel link takes, and which of them jumped.
 * watch.c: one iteration, from times to readings and moves.
 * monitor_estimate.c: estimates, the pipeline that they make, costs.
 * monitor.c: the calls. gauge.c: one quantity. clocks.c: two clocks. */
#ifndef LHI_MONITOR_OWN_H
#define LHI_MONITOR_OWN_H

#include "monitor/clocks.h"
#include "monitor/gauge.h"
#include "pipe/pipeline_own.h"

#include <longhaul/monitor.h>

/* What is measured of a chunk: its passes by lh_pass_kind, and then: */
enum { LHI_GATHERS = LH_B + 1, LHI_SCATTERS, LHI_N_SERIES };

/* A link, or a device's work or data. */
typedef struct lhi_watched {
    lhi_gauge gauge;
    /* Work, data: of an iteration, at first; how much longer than nominal what
     * was seen takes now, 1 where nothing was. */
    double usual_ns, slowness;
    uint64_t moved_at;                /* the step that told of it */
    uint64_t steps[LHI_GAUGE_WINDOW]; /* of the last readings, newest first */
    bool is_open;
    lh_monitor_event event; /* the last one, if open */
} lhi_watched;

typedef struct lhi_watched_link {
    lhi_watched is;
    uint32_t pair; /* of clocks; LH_NONE: both ends read one */
    bool reversed; /* goes from the pair's b to its a */
    double transfer_ns, n_transfers; /* the mean of so many iterations */
    uint64_t transfers_at;           /* the last of them */
    double bytes;                    /* of a message; 0: not known */
    double nominal_ns;
} lhi_watched_link;

typedef struct lhi_clock_pair {
    uint32_t a, b;
    lhi_clocks clocks;
    double there, back; /* least ones of the iteration; HUGE_VAL: none */
    double offset;      /* for the iteration's messages */
    bool is_known;      /* it: messages have gone between them */
} lhi_clock_pair;

/* One kind of pass, or of communication, of one chunk. */
typedef struct lhi_series {
    double first;                  /* the mean of the first iterations */
    double n_first;                /* how many of these there were */
    double mean, weight, variance; /* of now, as a gauge's level */
    uint64_t n, last_step;
    double nominal_ns;
    /* In the present iteration. */
    lhi_gauge_reading reading;
} lhi_series;

/* What a device took in an iteration, and would have taken at first. */
typedef struct lhi_busy {
    double now, first, variance;
    size_t n;
} lhi_busy;

/* A sample of the present iteration. */
typedef struct lhi_sample {
    uint32_t of; /* link, or series */
    double value;
} lhi_sample;

struct lh_monitor {
    lh_pipeline *pipeline;
    lh_schedule *schedule;
    lh_sim_options sim;
    bool *delegated; /* of it; NULL: none */
    uint32_t warm_up;
    uint64_t step;       /* the last one */
    uint64_t n_seen;     /* iterations */
    double iteration_ns; /* simulated, with all at its quiet level */
    lhi_watched_link *links;
    lhi_watched *work, *data; /* per device */
    lhi_series *series;       /* LHI_N_SERIES per chunk */
    lhi_clock_pair *pairs;
    uint32_t n_pairs;
    lh_monitor_event *news, *open; /* room for one of each */
    uint32_t n_news, n_open;
    lhi_busy *busy; /* scratch: per device */
    size_t *first;  /* scratch: per thing that has samples */
    /* Scratch, grown as needed. */
    lhi_sample *samples, *gathered;
    lh_seen_message *messages;
    double *values;
    size_t room;
};

static inline lhi_series *lhi_series_of(const lh_monitor *m, uint32_t chunk,
                                        uint32_t kind)
{
    return &m->series[(size_t)chunk * LHI_N_SERIES + kind];
}

/* What it took while it was quiet, over what it takes; 1 while it is. */
static inline double lhi_to_quiet(const lhi_watched *thing)
{
    const lhi_gauge *g = &thing->gauge;
    return g->has_left && g->level > 0 ? g->quiet / g->level : 1;
}

/* Readings of an iteration that was checked, into all gauges; what moved
 * becomes news, without costs. Room for all samples is there. */
void lhi_watch(lh_monitor *monitor, const lh_seen *seen);

/* The pipeline with all estimates; where `quiet` is not NULL, with that one at
 * its quiet level; where all_quiet, with all at theirs. */
lh_status lhi_monitor_estimate(const lh_monitor *monitor,
                               const lhi_watched *quiet, bool all_quiet,
                               lh_pipeline **out, lh_error *err);
/* What an iteration takes on it. */
lh_status lhi_monitor_simulate(const lh_monitor *monitor,
                               const lhi_watched *quiet, bool all_quiet,
                               int64_t *makespan_ns, lh_error *err);

#endif
