/* SPDX-License-Identifier: Apache-2.0 */
/* Elastic plans with a given number of chunks. */
#ifndef LHI_ELASTIC_SHAPE_H
#define LHI_ELASTIC_SHAPE_H

#include "plan/elastic/elastic_layout.h"

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
    int64_t *optimizer, *params;  /* of each device: bytes, and how many */
} lhi_elastic_state;

/* Of a job with ZeRO-1, in `mem`. */
lh_status lhi_elastic_state_find(const lh_job *job, const lhi_config *config,
                                 lhi_arena *mem, lhi_elastic_state *out,
                                 lh_error *err);

/* The fastest elastic plan of `config`, whose chunks are given, into *out if it
 * is faster than what stands there (or nothing does). `job` is one with ZeRO-1.
 * LH_EINFEASIBLE, LH_EUNSUPPORTED: there is none; `err` says why. */
lh_status lhi_elastic_shape(const lh_job *job, const lhi_config *config,
                            const lhi_elastic_freedom *freedom, lhi_arena *mem,
                            lhi_elastic_result *out, lh_error *err);

/* As lhi_layout_memory(), of an elastic plan: `pipeline` is its own, `plan`
 * what it shards. What one pass needs in passing has in it a layer that is made
 * again. */
lh_status lhi_elastic_memory(const lh_job *job, const lhi_config *config,
                             const lh_plan_elastic *plan,
                             const lh_pipeline *pipeline, lh_plan_memory *parts,
                             lh_error *err);

#endif
