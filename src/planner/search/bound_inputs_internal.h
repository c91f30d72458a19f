/* SPDX-License-Identifier: Apache-2.0 */
/* Internal bound-input interface: bound_inputs.c, bound_inputs_merge.c,
 * bound_inputs_hops.c and bound_inputs_sharding.c. */
#ifndef LHI_PLANNER_SEARCH_BOUND_INPUTS_INTERNAL_H
#define LHI_PLANNER_SEARCH_BOUND_INPUTS_INTERNAL_H

#include "planner/search/lower_bound.h"

#include "base/integer_math.h"
#include "model/paths.h"

enum { LHI_BOUND_LAYER_KINDS = LHI_BOUND_PARTS - 2 }; /* distinct layers */

/* Caps for unknown or unreasonable values: bounds may be looser, but their sums
 * do not overflow. */
#define LHI_BOUND_MAX_NS (INT64_C(1) << 36)
#define LHI_BOUND_MAX_BYTES (INT64_C(1) << 50)

/* A kind of layer. */
typedef struct lhi_bound_layer_kind {
    uint32_t layer, n; /* a representative, and how many */
} lhi_bound_layer_kind;

/* Bound inputs for one job, with caches. */
struct lhi_bound_inputs {
    const lh_job *job;
    double ratio;
    double least_share; /* of a pass's cost: overlapped pairs, first slices */
    bool times_known, memory_known; /* false if whole chunks were measured */
    bool state_known;               /* the ZeRO stage is decided */
    lhi_bound_layer_kind kinds[LHI_BOUND_LAYER_KINDS];
    uint32_t n_kinds;
    uint32_t n_of_part[LHI_BOUND_PARTS]; /* kinds, embedding, head */
    uint32_t *kind_of;                   /* per layer */
    lhi_arena *mem;                      /* the previous configuration's data */
    /* [0]: the least over all datacenters; then one per datacenter; then one
     * per set of datacenters that hold a stage's replicas, at most one per
     * layer. */
    lhi_bound_site *sites;
    uint32_t n_sites;
    lh_layout last; /* the cached sites' layout; tensor 0: none */
    lh_recompute last_recompute;
    uint32_t *at;
    int64_t *forth, *back;
    uint32_t *n_messages; /* per ordered pair of datacenters */
    int64_t *transfers, *latencies;
    lhi_ecmp_cache busiest;
};

/* Undoes rounding: costs are rounded up per slice, but their sum only once. */
static inline int64_t lhi_bound_undo_rounding(int64_t ns)
{
    return ns > LHI_BOUND_MAX_NS ? LHI_BOUND_MAX_NS : lhi_max_int64(ns - 1, 0);
}

/* Returns the least time that a pass with cost `ns` can take. */
static inline int64_t lhi_bound_find_pass_ns(const lhi_bound_inputs *f,
                                             int64_t ns)
{
    const int64_t least = lhi_bound_undo_rounding(ns);
    return f->least_share < 1 ? (int64_t)((double)least * f->least_share)
                              : least;
}

/* Merges site `b` into `a` in all times and memory. Without `worst`, the
 * datacenter is still open and `a` gets the best of both. With `worst`, both
 * have replicas, which wait for each other, and `a` gets the worst. */
void lhi_bound_inputs_merge_sites(const lhi_bound_inputs *f, lhi_bound_site *a,
                                  const lhi_bound_site *b, bool worst);

/* Raises the times of `s`, a stage's site with the places of `slice`, to the
 * communication time of passes with ZeRO 2 and 3. */
lh_status lhi_bound_inputs_add_zero_traffic(lhi_bound_inputs *f,
                                            const lh_job *job,
                                            const lh_layout *layout,
                                            uint32_t microbatches,
                                            const lh_cost_layer_range *slice,
                                            lhi_bound_site *s, lh_error *err);

/* Computes the messages between a placed configuration's stages: their times,
 * and the number per microbatch on each link between datacenters. */
lh_status lhi_bound_inputs_add_hops(lhi_bound_inputs *f,
                                    const lh_layout *layout,
                                    const lhi_layout_placement *places,
                                    lhi_bound_case *c, lh_error *err);

#endif
