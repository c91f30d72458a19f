/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives over one path: the alpha-beta model. */
#include "model/collective.h"

#include <longhaul/experimental/cost.h>

void lhi_cost_collective_ring(lh_ring ring, lh_collective_kind kind, uint32_t n,
                              double bytes, const lh_cost_path *path,
                              double *transfer_ns, double *latency_ns)
{
    double rounds = kind == LH_ALL_REDUCE ? 2 : 1;
    double steps = n > 1 ? rounds * ((double)n - 1) : 0;

    *transfer_ns = n > 1 ? steps / n * bytes * 1e9 / path->bytes_per_s : 0;
    if (n > 1 && kind == LH_ALL_TO_ALL)
        *latency_ns = path->latency_ns;
    else if (n > 1 && ring == LH_RING_PIPELINED && path->ring_latency_ns > 0)
        *latency_ns = rounds * path->ring_latency_ns;
    else
        *latency_ns = steps * path->latency_ns;
}

void lh_cost_collective(lh_collective_kind kind, uint32_t n, double bytes,
                        const lh_cost_path *path, double *transfer_ns,
                        double *latency_ns)
{
    lhi_cost_collective_ring(LH_RING_LOCKSTEP, kind, n, bytes, path,
                             transfer_ns, latency_ns);
}
