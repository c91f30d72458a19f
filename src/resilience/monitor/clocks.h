/* SPDX-License-Identifier: Apache-2.0 */
/* Estimates two hosts' clock offset from messages in both directions, as NTP
 * does (RFC 5905, section 8): half the difference between the least delays. */
#ifndef LHI_RESILIENCE_MONITOR_CLOCKS_H
#define LHI_RESILIENCE_MONITOR_CLOCKS_H

#include <stdbool.h>
#include <stdint.h>

/* Clock b relative to clock a. */
typedef struct lhi_clock_offset {
    double offset, drift;  /* ns and ns per step, at the last iteration */
    double asymmetry;      /* measured difference due to one slower direction */
    double round_trip;     /* excess delay, both directions together */
    double variance;       /* variance of readings around the offset */
    uint64_t step;         /* last step */
    uint64_t n_iterations; /* iteration count */
    uint32_t n_outliers;   /* consecutive outliers */
    double outlier_sum;
} lhi_clock_offset;

/* Updates the estimate with one iteration, and returns clock b's offset
 * from clock a in ns. `there`, `back`: the smallest excess delay (measured by
 * uncorrected clocks, minus expected) of a message from a to b and from b to a.
 * Ignores single outliers. */
double lhi_clock_offset_add(lhi_clock_offset *clocks, uint64_t step,
                            double there, double back);

/* Returns the standard error, in ns, of the estimated offset between two
 * clocks. */
double lhi_clock_offset_error(const lhi_clock_offset *clocks);

#endif
