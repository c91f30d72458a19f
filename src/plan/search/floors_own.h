/* SPDX-License-Identifier: Apache-2.0 */
/* What floors.c and floors_sent.c compute bounds' figures from. */
#ifndef LHI_FLOORS_OWN_H
#define LHI_FLOORS_OWN_H

#include "plan/search/floor.h"

#include "base/whole.h"
#include "cost/cost_links.h"

enum { LHI_FLOOR_KINDS = LHI_FLOOR_PARTS - 2 }; /* of layers that differ */

/* Where no more is known, or a time is beyond all reason, a bound may be lower
 * than it could be, but its sums have room. */
#define LHI_FLOOR_MOST_NS (INT64_C(1) << 36)
#define LHI_FLOOR_MOST_BYTES (INT64_C(1) << 50)

typedef struct lhi_floor_layers_of {
    uint32_t layer, n; /* one of them, and how many there are */
} lhi_floor_layers_of;

struct lhi_floors {
    const lh_job *job;
    double ratio;
    bool times_known, memory_known; /* not where whole chunks are measured */
    bool state_known; /* which ZeRO stage it is that is asked about */
    lhi_floor_layers_of kinds[LHI_FLOOR_KINDS];
    uint32_t n_kinds;
    uint32_t n_of_part[LHI_FLOOR_PARTS]; /* kinds, embedding, head */
    uint32_t *kind_of;                   /* of each layer */
    lhi_arena *mem; /* of the configuration asked for last */
    /* [0]: the least of all datacenters; then one for each datacenter, and
     * then one for every set of datacenters that hold the replicas of a stage,
     * at most as many as there are layers. */
    lhi_floor_site *sites;
    uint32_t n_sites;
    lh_layout last; /* which the first of these are of; tensor 0: none */
    lh_recompute last_recompute;
    uint32_t *at;
    int64_t *forth, *back;
    uint32_t *n_messages; /* of each ordered pair of datacenters */
    int64_t *transfers, *latencies;
    lhi_busiest busiest;
};

/* Costs are rounded up, each slice by itself; so is their sum, once. */
static inline int64_t lhi_floor_rounded_down(int64_t ns)
{
    return ns > LHI_FLOOR_MOST_NS ? LHI_FLOOR_MOST_NS : lhi_most(ns - 1, 0);
}

/* Raises the times of `s`, of a stage that `slice` says all places of, to what
 * passes send with ZeRO 2 and 3. */
lh_status lhi_floors_take_sent(lhi_floors *f, const lh_job *job,
                               const lh_layout *layout, uint32_t microbatches,
                               const lh_cost_slice *slice, lhi_floor_site *s,
                               lh_error *err);

/* The messages between the stages of a configuration that is placed so: their
 * times, and how many of a microbatch go over each link between datacenters. */
lh_status lhi_floors_take_hops(lhi_floors *f, const lh_layout *layout,
                               const lhi_places *places, lhi_floor_case *c,
                               lh_error *err);

#endif
