/* SPDX-License-Identifier: Apache-2.0 */
/* The pipeline of an elastic plan, from what the plan says of it. In: a layout
 * with ZeRO-1, and groups, shares, buckets and what is recomputed. Out: the
 * pipeline that communicates and recomputes so, and where its memory goes. */
#ifndef LHI_ELASTIC_MADE_H
#define LHI_ELASTIC_MADE_H

#include "plan/layout/layout.h"
#include "plan/layout/shares.h"

/* Operations of a layer that can be recomputed. Those that are one matrix
 * product in every program that runs plans (queries, keys and values; gate and
 * up) are one here: `ops` has their sums, `names` each of them. */
typedef struct lhi_elastic_kinds {
    lh_cost_op ops[LH_COST_MAX_OPS];
    const char *names[LH_COST_MAX_OPS][LH_COST_MAX_OPS];
    uint32_t n_names[LH_COST_MAX_OPS];
    uint32_t n;
} lhi_elastic_kinds;

lh_status lhi_elastic_kinds_find(const lh_job *job, const lhi_config *config,
                                 lhi_elastic_kinds *out, lh_error *err);

/* What the layout's chunks hold before anything is sharded. */
typedef struct lhi_elastic_state {
    int64_t *weights, *gradients; /* of each chunk, bytes */
    double *kept; /* of each chunk's, what sharding all leaves on a device */
    int64_t *optimizer, *params; /* of each device: bytes, and how many */
    int64_t *experts;            /* of params, those of experts */
} lhi_elastic_state;

/* Ranks that have the same experts, and so share their states. */
double lhi_elastic_expert_replicas(const lh_layout *layout);

/* Of a job with ZeRO-1, in `mem`. */
lh_status lhi_elastic_state_find(const lh_job *job, const lhi_config *config,
                                 lhi_arena *mem, lhi_elastic_state *out,
                                 lh_error *err);

/* What such plans of a layout stand on. Borrows all that it points to. */
typedef struct lhi_elastic_ground {
    const lh_job *job; /* ZeRO-1 */
    const lhi_config *config;
    const lh_pipeline *plain; /* the layout's pipeline with ZeRO-1 */
    const lhi_elastic_kinds *kinds;
    const lhi_elastic_state *state;
    const lhi_chunk_sharded *sharded; /* per chunk */
    /* Of LHI_ELASTIC_PARTS of every activation, to the host and back at so many
     * bytes a second; not said in plans. */
    uint32_t moved;
    double host_bytes_per_s;
} lhi_elastic_ground;

enum { LHI_ELASTIC_PARTS = 64 };

/* What of `bytes` of activations is offloaded, and how long it is on its way,
 * in ns, rounded up. */
int64_t lhi_elastic_moved(const lhi_elastic_ground *ground, int64_t bytes);
int64_t lhi_elastic_copying_ns(const lhi_elastic_ground *ground, int64_t bytes);

/* A share as plans have it: `part` of `all`, with as many digits as files keep
 * of it. */
double lhi_elastic_share(int64_t part, int64_t all);

/* The pipeline of a plan that says the layers of every chunk. LH_EINPUT: what
 * it recomputes cannot be, or not so; `err` says why. Release with
 * lh_pipeline_free(); `mem` is for scratch. */
lh_status lhi_elastic_make(const lhi_elastic_ground *ground,
                           const lh_plan_elastic *plan, lhi_arena *mem,
                           lh_pipeline **out, lh_error *err);

/* The same for a choice of a job: `config` as lhi_config_of() has it, with its
 * plan. As lhi_layout_build() of other layouts. */
lh_status lhi_elastic_rebuild(const lh_job *job, const lhi_config *config,
                              lhi_built *out, lh_error *err);

/* As lhi_layout_memory(), of an elastic plan: `pipeline` is its own, `plan`
 * what it shards. What one pass needs in passing has in it a layer that is made
 * again. */
lh_status lhi_elastic_memory(const lh_job *job, const lhi_config *config,
                             const lh_plan_elastic *plan,
                             const lh_pipeline *pipeline, lh_plan_memory *parts,
                             lh_error *err);

#endif
