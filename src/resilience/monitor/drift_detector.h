/* SPDX-License-Identifier: Apache-2.0 */
/* Drift detector for one quantity per iteration: tracks slow drift and detects
 * jumps. docs/theory/monitor.md derives all constants. */
#ifndef LHI_RESILIENCE_MONITOR_DRIFT_DETECTOR_H
#define LHI_RESILIENCE_MONITOR_DRIFT_DETECTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Iterations: the window for detecting a change; a level's averaging length,
 * which lets it track drift. */
enum { LHI_DRIFT_WINDOW = 3, LHI_DRIFT_AVERAGING = 20 };

/* One iteration's measurement. */
typedef struct lhi_drift_reading {
    double mean;
    double variance; /* of the mean, from its samples' scatter */
    size_t n;        /* sample count */
} lhi_drift_reading;

/* Detected level changes. */
typedef enum lhi_drift_change {
    LHI_DRIFT_UNCHANGED,
    LHI_DRIFT_BEGINS,  /* departs from the normal level */
    LHI_DRIFT_CHANGES, /* changes again after a departure */
    LHI_DRIFT_ENDS,
} lhi_drift_change;

/* Drift detector state. */
typedef struct lhi_drift_detector {
    double level;  /* present level */
    double normal; /* level before the departure; else the level */
    double weight; /* iterations averaged in the level */
    /* Scatter as variance divided by the level's square: of one sample, and
     * common to all samples of an iteration. */
    double sample_scatter, common_scatter;
    double normal_scatter;     /* at the normal level */
    double n_iterations;       /* iterations averaged in both */
    double degrees_of_freedom; /* degrees of freedom in `sample_scatter` */
    lhi_drift_reading window[LHI_DRIFT_WINDOW]; /* newest first */
    uint32_t n_last;
    uint32_t report_delay; /* iterations until another change is reported */
    uint64_t n_samples;
    bool has_left;
} lhi_drift_detector;

/* Computes the trimmed mean of the n samples (a tenth is left out at either
 * end) and the mean's variance. Reorders the samples. */
lhi_drift_reading lhi_drift_reading_compute(double *samples, size_t n);

/* Adds a reading (mean of one iteration) and returns the change of level that
 * it completes: begins, changes, ends or none; always none during warm-up
 * (`learns`). Ignores changes below `least` ns. *ago: how many iterations
 * before this one the change began. */
lhi_drift_change lhi_drift_detector_add(lhi_drift_detector *detector,
                                        lhi_drift_reading reading, bool learns,
                                        double least, uint32_t *ago);

/* Makes the learned normal level the current level again, as if a change had
 * ended, and discards the newest readings not yet averaged. */
void lhi_drift_detector_reset(lhi_drift_detector *detector);

/* Returns the standard error, in ns, of the drift detector's current level (its
 * estimate of the monitored quantity). */
double lhi_drift_detector_error(const lhi_drift_detector *detector);

#endif
