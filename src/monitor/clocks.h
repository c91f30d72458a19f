/* SPDX-License-Identifier: Apache-2.0 */
/* How the clocks of two hosts differ, from messages in both directions: as NTP
 * has it (RFC 5905, section 8), half the difference of the least delays. */
#ifndef LHI_CLOCKS_H
#define LHI_CLOCKS_H

#include <stdbool.h>
#include <stdint.h>

/* The clock of b against that of a. */
typedef struct lhi_clocks {
    double offset, drift; /* ns, ns per step, of the last iteration */
    double hidden; /* part of the readings' difference that is not the clocks':
                      one direction became slower */
    double around; /* what both directions take too long, together */
    double spread; /* variance of readings around the offset */
    uint64_t step; /* the last one */
    uint64_t seen; /* iterations */
    uint32_t odd;  /* how many ones in a row did not fit */
    double odd_sum;
} lhi_clocks;

/* `there` and `back`: by how much the fastest message from a to b, and from b
 * to a, took longer than it should, as the clocks have it. The offset of this
 * iteration comes back. */
double lhi_clocks_add(lhi_clocks *clocks, uint64_t step, double there,
                      double back);

/* Standard error of the offset. */
double lhi_clocks_error(const lhi_clocks *clocks);

#endif
