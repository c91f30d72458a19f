/* SPDX-License-Identifier: Apache-2.0 */
/* Elastic-plan pipeline. Input: a layout with ZeRO-1 and the plan's groups,
 * shares, buckets and recomputed operations. Output: the pipeline with that
 * communication and recomputation, and its memory breakdown. */
#ifndef LHI_PLANNER_ELASTIC_PIPELINE_H
#define LHI_PLANNER_ELASTIC_PIPELINE_H

#include "planner/layout/elastic_shares.h"
#include "planner/layout/layout.h"

#include <longhaul/experimental/elastic.h>

/* Operations of a layer that can be recomputed. Parts of one fused matrix
 * product (queries, keys and values; gate and up) count as one: `ops` has their
 * sums, `names` each part. */
typedef struct lhi_elastic_kinds {
    lh_cost_op ops[LH_COST_MAX_OPS];
    const char *names[LH_COST_MAX_OPS][LH_COST_MAX_OPS];
    uint32_t n_names[LH_COST_MAX_OPS];
    uint32_t n;
} lhi_elastic_kinds;

/* Lists the operations of a typical layer (in the model's middle) that the
 * backward pass can recompute, with time and bytes saved. */
lh_status lhi_elastic_kinds_find(const lh_job *job, const lhi_config *config,
                                 lhi_elastic_kinds *out, lh_error *err);

/* State of a layout's chunks before anything is sharded. */
typedef struct lhi_elastic_state {
    int64_t *weights, *gradients; /* bytes, per chunk */
    double
        *kept_shares; /* per chunk: share left on a device when fully sharded */
    int64_t *optimizer, *params; /* per device: bytes; parameter count */
    int64_t *experts;            /* expert parameters among params */
} lhi_elastic_state;

/* Counts the ranks that hold the same experts and so can shard their state. */
double lhi_elastic_expert_replicas(const lh_layout *layout);

/* Computes the model state of each chunk and device (weights, gradients,
 * optimizer) for a job with ZeRO-1; arrays are in `mem`. */
lh_status lhi_elastic_state_find(const lh_job *job, const lhi_config *config,
                                 lhi_arena *mem, lhi_elastic_state *out,
                                 lh_error *err);

/* Inputs for elastic plans on one layout. Borrows everything that it points to.
 */
typedef struct lhi_elastic_context {
    const lh_job *job; /* with ZeRO-1 */
    const lhi_config *config;
    const lh_pipeline *plain; /* the layout's pipeline with ZeRO-1 */
    const lhi_elastic_kinds *kinds;
    const lhi_elastic_state *state;
    const lhi_chunk_sharded *sharded; /* per chunk */
    /* Offloading: `moved` from LHI_ELASTIC_PARTS of every activation is copied
     * to the host and back at this rate, bytes/s. Not stored in plans. */
    uint32_t offloaded_parts;
    double host_bytes_per_s;
} lhi_elastic_context;

/* Number of equal parts of an activation, of which any number is offloaded. */
enum { LHI_ELASTIC_PARTS = 64 };

/* Returns the part of `bytes` of activations that is offloaded to host memory,
 * by the offloaded share in `ground`. */
int64_t lhi_elastic_offloaded_bytes(const lhi_elastic_context *ground,
                                    int64_t bytes);
/* Returns the time to copy `bytes` of activations to host memory at the host
 * link rate in `ground`, in ns, rounded up. */
int64_t lhi_elastic_offload_copy_ns(const lhi_elastic_context *ground,
                                    int64_t bytes);

/* Returns `part` / `all`, rounded to the digits that plan files keep. */
double lhi_elastic_share(int64_t part, int64_t all);

/* Builds the pipeline of an elastic plan `plan` that lists the recomputed
 * layers of every chunk, from the ZeRO-1 pipeline in `g`. LH_EINPUT: its
 * recomputation is impossible; `err` has the reason. Release with
 * lh_pipeline_free(); `mem` is scratch. */
lh_status lhi_elastic_build_plan_pipeline(const lhi_elastic_context *ground,
                                          const lh_plan_elastic *plan,
                                          lhi_arena *mem, lh_pipeline **out,
                                          lh_error *err);

/* Builds an elastic plan's pipeline from a plan file: `config` comes from
 * lhi_config_from_choice() for that plan. Result as from lhi_layout_build(). */
lh_status lhi_elastic_rebuild(const lh_job *job, const lhi_config *config,
                              lhi_built_layout *out, lh_error *err);

/* Computes each device's memory parts under an elastic plan, parts[device], as
 * lhi_layout_memory() does without one; `pipeline` is the elastic plan's.
 * Transient memory includes one layer under recomputation. */
lh_status lhi_elastic_memory(const lh_job *job, const lhi_config *config,
                             const lh_plan_elastic *plan,
                             const lh_pipeline *pipeline, lh_plan_memory *parts,
                             lh_error *err);

/* Builds the pipeline that the event simulation of a plan runs: joint
 * backwards, links with latency C_PP that messages do not occupy, and memory in
 * bytes with the model state on each stage's first chunk. `recompute_ns` and
 * `stored` (activation bytes kept) are per chunk pass. Release *out with
 * lh_pipeline_free(). */
lh_status lhi_elastic_pipeline(const lh_elastic_case *given,
                               const lh_elastic_plan *plan,
                               int64_t recompute_ns, int64_t stored,
                               lh_pipeline **out, lh_error *err);

/* Builds the pass order of an elastic plan, for the pipeline from
 * lhi_elastic_pipeline(). Release *out with lh_schedule_free(). */
lh_status lhi_elastic_schedule(const lh_elastic_case *given,
                               const lh_elastic_plan *plan, lh_schedule **out,
                               lh_error *err);

#endif
