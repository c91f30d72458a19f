/* SPDX-License-Identifier: Apache-2.0 */
/* Relative scatter of the iteration times, from the differences of successive
 * iterations. Their median is insensitive to single slow iterations and to
 * changes of the level. */
#ifndef LHI_RESILIENCE_MONITOR_STEP_SCATTER_H
#define LHI_RESILIENCE_MONITOR_STEP_SCATTER_H

#include <stdint.h>

/* Differences that the median includes, and the least number for a result. */
enum { LHI_STEP_SCATTER_WINDOW = 15, LHI_STEP_SCATTER_LEAST = 3 };

/* The newest differences; zero-initialise. */
typedef struct lhi_step_scatter {
    double last_ns;
    uint64_t n_iterations;
    double differences[LHI_STEP_SCATTER_WINDOW]; /* relative; ring buffer */
} lhi_step_scatter;

/* Adds an iteration that took `ns`, above 0. */
void lhi_step_scatter_add(lhi_step_scatter *scatter, double ns);
/* Returns the estimated standard deviation of an iteration time, relative to
 * its mean; 0 before LHI_STEP_SCATTER_LEAST differences. */
double lhi_step_scatter_compute(const lhi_step_scatter *scatter);

#endif
