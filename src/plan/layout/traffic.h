/* SPDX-License-Identifier: Apache-2.0 */
/* What a layout sends between datacenters in one iteration. */
#ifndef LHI_TRAFFIC_H
#define LHI_TRAFFIC_H

#include "plan/layout/layout.h"

/* From one datacenter to another; all numbers are of this direction. */
typedef struct lhi_traffic {
    uint32_t from, to;
    /* Activations and their gradients: `messages` per iteration, of all
     * replicas together, each of `message_bytes` (all GPUs of a pipeline rank
     * together). As many as `message_flows` GPUs send at once. */
    int64_t message_bytes;
    uint64_t messages;
    uint64_t message_flows;
    /* Rings of data parallelism: bytes per iteration, rings that use the link
     * at once, and what one of them sends in a step. */
    int64_t data_bytes;
    uint64_t data_flows;
    int64_t data_step_bytes;
    /* Tokens on their way to experts elsewhere and back, and their gradients:
     * bytes per iteration. A ring of three datacenters or more goes one way
     * around, these go both ways between any two. */
    int64_t expert_bytes;
} lhi_traffic;

/* The pairs that anything is sent between, by `from`, then `to`; in `mem`.
 * `config` is complete. Errors as lhi_layout_build(). */
lh_status lhi_traffic_of(const lh_job *job, const lhi_config *config,
                         lhi_arena *mem, const lhi_traffic **out, uint32_t *n,
                         lh_error *err);

#endif
