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

/* Of each part of a slice by itself; 0 what it does not have. */
typedef struct lhi_part_times {
    lhi_data_times layers[2]; /* without and with experts */
    lhi_data_times embedding, head;
} lhi_part_times;

lh_status lhi_data_time_parts(const lh_job *job, const lh_layout *layout,
                              const lh_cost_slice *slice,
                              const lh_cost_options *options,
                              const lhi_shape *shape, lhi_busiest *known,
                              lhi_part_times *out, lh_error *err);

/* Of the i-th part in the order of the forward, in ns: 0 is the embedding, 1 to
 * n_layers the layers, then the head. */
void lhi_part_sent(const lh_job *job, const lh_cost_slice *slice,
                   const lhi_part_times *times, uint32_t i, double *gather,
                   double *reduce);

/* All parts of a slice one after the other, with nothing computed in between:
 * where a whole chunk is gathered or reduced layer by layer. In ns. */
typedef struct lhi_sharded {
    double gather, reduce;
    double longest_gather, longest_reduce; /* of any part */
} lhi_sharded;

/* `options` as lh_cost_chunk() takes them. */
lh_status lhi_sharded_time(const lh_job *job, const lh_layout *layout,
                           const lh_cost_slice *slice,
                           const lh_cost_options *options, lhi_busiest *known,
                           lhi_sharded *out, lh_error *err);

/* Of one value more, of an expert or of anything else, in a gather, and in a
 * reduction: transfers; and what each takes beside them, whatever its size:
 * latencies. Nothing `between`, which goes with neither. `options` as
 * lh_cost_chunk() takes them. */
lh_status lhi_sharded_value(const lh_job *job, const lh_layout *layout,
                            const lh_cost_slice *slice, bool of_expert,
                            const lh_cost_options *options,
                            lhi_data_times *out, lh_error *err);

/* Layers pass through two stages, each of which has one of them at a time, and
 * the first works one layer ahead: the gathers of a pass and its computation,
 * or computation and the reductions of gradients. What the first stage does for
 * the first layer and the second for the last hides behind nothing. Begins as
 * {0}; layers are added in the order of the pass, in ns. */
typedef struct lhi_relay {
    double ns;     /* until the second stage begins with the last layer */
    double second; /* of that layer */
} lhi_relay;

void lhi_relay_add(lhi_relay *relay, double first, double second);
double lhi_relay_ns(const lhi_relay *relay);

/* Whether what ZeRO 2 gathers once in an iteration goes layer by layer through
 * the first microbatch, as torchtitan's FSDP does where there is no pipeline.
 */
bool lhi_gathers_on_the_way(const lh_job *job, const lh_layout *layout);

/* Over how many GPUs the state of what they all hold, and of experts, is
 * divided, seen from the slice's datacenter. */
lh_status lhi_state_ranks(const lh_job *job, const lh_layout *layout,
                          const lh_cost_slice *slice, double *shared,
                          double *experts, lh_error *err);

#endif
