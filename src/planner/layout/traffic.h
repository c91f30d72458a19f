/* SPDX-License-Identifier: Apache-2.0 */
/* A layout's traffic between datacenters in one iteration. */
#ifndef LHI_PLANNER_LAYOUT_TRAFFIC_H
#define LHI_PLANNER_LAYOUT_TRAFFIC_H

#include "planner/layout/layout.h"

/* Traffic from one datacenter to another, in this direction. */
typedef struct lhi_traffic {
    uint32_t from, to;
    /* Activations and their gradients: `messages` per iteration over all
     * replicas, each of `message_bytes` (all GPUs of a pipeline rank together).
     * Up to `message_flows` GPUs send at once. */
    int64_t message_bytes;
    uint64_t messages;
    uint64_t message_flows;
    /* Data-parallel rings: bytes per iteration, concurrent rings on the link,
     * and bytes per ring step. */
    int64_t data_bytes;
    uint64_t data_flows;
    int64_t data_step_bytes;
    /* Expert tokens, there and back, with their gradients: bytes per iteration.
     * A ring over three or more datacenters has one direction; expert tokens go
     * both ways between any two. */
    int64_t expert_bytes;
} lhi_traffic;

/* Computes a complete configuration's traffic per iteration between each
 * ordered pair of datacenters; lists pairs with traffic by `from`, then `to`,
 * in `mem`. Errors as lhi_layout_build(). */
lh_status lhi_traffic_of(const lh_job *job, const lhi_config *config,
                         lhi_arena *mem, const lhi_traffic **out, uint32_t *n,
                         lh_error *err);

#endif
