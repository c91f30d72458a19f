/* SPDX-License-Identifier: Apache-2.0 */
/* Durations of collectives. */
#ifndef LHI_MODEL_COLLECTIVE_H
#define LHI_MODEL_COLLECTIVE_H

#include <longhaul/experimental/cost.h>

/* As lh_cost_collective(), for rings whose pieces may circulate concurrently.
 * The latency is then the path's ring_latency_ns: n - 1 hops with the latency
 * of each. [SX section 3.2, where every step waits for the longest hop.] */
void lhi_cost_collective_ring(lh_ring ring, lh_collective_kind kind, uint32_t n,
                              double bytes, const lh_cost_path *path,
                              double *transfer_ns, double *latency_ns);

#endif
