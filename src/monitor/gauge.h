/* SPDX-License-Identifier: Apache-2.0 */
/* Drift detector for one quantity per iteration: tracks slow drift and detects
 * jumps. docs/theory/monitor.md derives all constants. */
#ifndef LHI_GAUGE_H
#define LHI_GAUGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Iterations: the window for detecting a change; a level's averaging length,
 * which lets it track drift. */
enum { LHI_GAUGE_WINDOW = 3, LHI_GAUGE_LEVEL = 20 };

/* One iteration's measurement. */
typedef struct lhi_gauge_reading {
    double mean;
    double variance; /* of the mean, from the scatter of its samples */
    size_t n;        /* sample count */
} lhi_gauge_reading;

/* Detected level changes. */
typedef enum lhi_gauge_move {
    LHI_GAUGE_STAYS,
    LHI_GAUGE_LEAVES, /* departs from the normal level */
    LHI_GAUGE_MOVES,  /* changes again after a departure */
    LHI_GAUGE_RETURNS,
} lhi_gauge_move;

/* Drift detector state. */
typedef struct lhi_gauge {
    double level;  /* present level */
    double quiet;  /* level before the departure; else the level */
    double weight; /* iterations averaged in the level */
    /* Scatter as variance divided by the level's square: of one sample, and
     * common to all samples of an iteration. */
    double samples, together;
    double quiet_samples; /* at the normal level */
    double seen;          /* iterations averaged in both */
    double freedom;       /* degrees of freedom in `sample_scatter` */
    lhi_gauge_reading last[LHI_GAUGE_WINDOW]; /* newest first */
    uint32_t n_last;
    uint32_t settling; /* iterations until another change is reported */
    uint64_t n_samples;
    bool has_left;
} lhi_gauge;

/* Computes the mean trimmed by a tenth at either end, and its variance.
 * Reorders the samples. */
lhi_gauge_reading lhi_gauge_read(double *samples, size_t n);

/* Adds a reading and returns the detected change. During warm-up (`learns`) it
 * reports none. A change has at least size `least`, and began *ago iterations
 * before this one. */
lhi_gauge_move lhi_gauge_add(lhi_gauge *gauge, lhi_gauge_reading reading,
                             bool learns, double least, uint32_t *ago);

/* Returns the level's standard error. */
double lhi_gauge_error(const lhi_gauge *gauge);

#endif
