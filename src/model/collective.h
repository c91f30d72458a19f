/* SPDX-License-Identifier: Apache-2.0 */
/* Collective durations. */
#ifndef LHI_MODEL_COLLECTIVE_H
#define LHI_MODEL_COLLECTIVE_H

#include <longhaul/experimental/cost.h>

/* Computes a ring collective's *transfer_ns and *latency_ns as
 * lh_cost_collective() does, for rings of kind `ring`. In a pipelined ring,
 * parts circulate concurrently and the latency is the path's ring_latency_ns: n
 * - 1 hops with the latency of each. In a lockstep ring every step waits for
 * the longest hop [SX section 3.2]. */
void lhi_cost_collective_ring(lh_ring ring, lh_collective_kind kind, uint32_t n,
                              double bytes, const lh_cost_path *path,
                              double *transfer_ns, double *latency_ns);

#endif
