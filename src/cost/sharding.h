/* SPDX-License-Identifier: Apache-2.0 */
/* Which data-parallel GPUs share weights, gradients and optimizer state, and
 * what their communication takes. */
#ifndef LHI_SHARDING_H
#define LHI_SHARDING_H

#include "cost/groups.h"
#include "cost/work.h"

/* What a collective takes, in ns. */
typedef struct lhi_collective {
    double transfer, latency;
} lhi_collective;

typedef struct lhi_data_times {
    lhi_collective gather; /* of parameters; 0 without sharding */
    lhi_collective reduce; /* of gradients */
    /* With hybrid sharding, the sum between datacenters. It is due once per
     * iteration, whatever is reduced how often inside. */
    lhi_collective between;
} lhi_data_times;

/* Of `params`; `options` with defaults filled in. */
lh_status lhi_data_time(const lh_job *job, const lh_layout *layout,
                        const lh_cost_slice *slice,
                        const lh_cost_options *options,
                        const lhi_params *params, lhi_busiest *known,
                        lhi_data_times *out, lh_error *err);

/* Over how many GPUs the state of what they all hold, and of experts, is
 * divided, seen from the slice's datacenter. */
lh_status lhi_state_ranks(const lh_job *job, const lh_layout *layout,
                          const lh_cost_slice *slice, double *shared,
                          double *experts, lh_error *err);

#endif
