/* SPDX-License-Identifier: Apache-2.0 */
/* One quantity of every iteration: follows it while it drifts, and notices when
 * it jumps. docs/theory/monitor.md has the reasons for all constants. */
#ifndef LHI_GAUGE_H
#define LHI_GAUGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Iterations: that make a move; that a level is the mean of, so that it follows
 * drifts. */
enum { LHI_GAUGE_WINDOW = 3, LHI_GAUGE_LEVEL = 20 };

/* What one iteration shows of it. */
typedef struct lhi_gauge_reading {
    double mean;
    double variance; /* of the mean, as its samples scatter */
    size_t n;        /* samples */
} lhi_gauge_reading;

typedef enum lhi_gauge_move {
    LHI_GAUGE_STAYS,
    LHI_GAUGE_LEAVES, /* what it was while it was quiet */
    LHI_GAUGE_MOVES,  /* on, having left */
    LHI_GAUGE_RETURNS,
} lhi_gauge_move;

typedef struct lhi_gauge {
    double level;  /* what it is */
    double quiet;  /* what it was when it left; else the level */
    double weight; /* iterations that the level is the mean of */
    /* Scatter, as variances over the level's square: of one sample, and of what
     * all samples of an iteration have in common. */
    double samples, together;
    double quiet_samples; /* while it was quiet */
    double seen;          /* iterations that both are of */
    double freedom;       /* degrees of it that `samples` is of */
    lhi_gauge_reading last[LHI_GAUGE_WINDOW]; /* newest first */
    uint32_t n_last;
    uint32_t settling; /* iterations until a further move is told */
    uint64_t n_samples;
    bool has_left;
} lhi_gauge;

/* The mean without the tenth at either end, and its variance. Changes their
 * order. */
lhi_gauge_reading lhi_gauge_read(double *samples, size_t n);

/* While it is warming up (`learns`) everything is quiet. A move is of at least
 * `least`, and began *ago iterations before this one. */
lhi_gauge_move lhi_gauge_add(lhi_gauge *gauge, lhi_gauge_reading reading,
                             bool learns, double least, uint32_t *ago);

/* Standard error of the level. */
double lhi_gauge_error(const lhi_gauge *gauge);

#endif
