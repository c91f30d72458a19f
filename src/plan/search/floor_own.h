/* SPDX-License-Identifier: Apache-2.0 */
/* Internal bound helpers: lower_bound.c, memory_bound.c, warmup_bound.c and
 * residency_bound.c. */
#ifndef LHI_FLOOR_OWN_H
#define LHI_FLOOR_OWN_H

#include "plan/search/floor.h"

#include "base/whole.h"

/* Divides with rounding down, for negative numbers too. */
static inline int64_t lhi_floor_quotient(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

/* Returns how often `each` fits into `left`; negative: not at all. */
static inline int64_t lhi_floor_times_in(int64_t left, int64_t each)
{
    if (each > 0)
        return lhi_floor_quotient(left, each);
    return left < 0 ? -1 : INT64_MAX;
}

/* Infinity of the bounds: prunes everything, and sums do not overflow. */
#define LHI_FLOOR_LARGEST (INT64_C(1) << 60)

/* Multiplies with saturation. */
static inline int64_t lhi_floor_product(int64_t a, int64_t b)
{
    return (double)a * (double)b < 0x1p60 ? a * b : LHI_FLOOR_LARGEST;
}

/* Returns a stage's site. If it is open, or all replicas count, sites[0] is the
 * least in everything. */
static inline const lhi_floor_site *lhi_floor_site_of(const lhi_floor_case *c,
                                                      uint32_t stage)
{
    return &c->sites[c->at ? c->at[stage] : 0];
}

/* Returns the head's stage. */
static inline uint32_t lhi_floor_head_stage(const lhi_floor_case *c)
{
    return c->placement == LH_PLACEMENT_WAVE ? 0 : c->stages - 1;
}

/* Layers counted: those of one kind, or all of them with the least of all kinds
 * each. */
enum { LHI_ANY_KIND = -1 };

/* Number of counts to make: one per kind, and one over all kinds unless there
 * is only one. */
static inline int lhi_floor_n_counts(const lhi_floor_case *c)
{
    return c->n_kinds > 1 ? (int)c->n_kinds : 0;
}

/* Counts the model's layers by kind. */
static inline uint32_t lhi_floor_n_layers_of(const lhi_floor_case *c, int kind)
{
    return kind == LHI_ANY_KIND ? c->layers : c->n_of_part[kind];
}

/* Returns a layer's F and D time. */
static inline int64_t lhi_floor_fd_of(const lhi_floor_site *s, int kind)
{
    return kind == LHI_ANY_KIND ? s->layer_fd
                                : s->parts[kind].f + s->parts[kind].d;
}

/* Returns a layer's F, D and W time. */
static inline int64_t lhi_floor_all_of(const lhi_floor_site *s, int kind)
{
    return kind == LHI_ANY_KIND ? s->layer_all
                                : lhi_floor_fd_of(s, kind) + s->parts[kind].w;
}

/* Returns a layer's memory with one microbatch. */
static inline int64_t lhi_floor_hold_of(const lhi_floor_site *s, int kind)
{
    return kind == LHI_ANY_KIND
               ? s->hold
               : s->held[kind].state + s->held[kind].activation;
}

/* Returns the least gather before the first F of a chunk with at least so many
 * layers; lhi_bound_reduce_ns(): the reduction after its last W. */
static inline int64_t lhi_floor_gather(const lhi_floor_site *s, int64_t layers)
{
    return s->gather > 0 && layers > 0 ? layers * s->gather + s->latency : 0;
}

/* Returns the least reduction after a chunk's last W. */
static inline int64_t lhi_floor_reduce(const lhi_floor_site *s, int64_t layers)
{
    return s->reduce > 0 && layers > 0 ? layers * s->reduce + s->latency : 0;
}

/* The same for the first chunk, where every microbatch begins and ends; it
 * includes the embedding. */
static inline int64_t lhi_floor_first_gather(const lhi_floor_case *c)
{
    const lhi_floor_site *s = lhi_floor_site_of(c, 0);
    int64_t layers = lhi_floor_gather(s, c->least_layers);
    return layers > 0 ? layers + s->first_gather : 0;
}

/* Returns the first chunk's reduction. */
static inline int64_t lhi_floor_first_reduce(const lhi_floor_case *c)
{
    const lhi_floor_site *s = lhi_floor_site_of(c, 0);
    int64_t layers = lhi_floor_reduce(s, c->least_layers);
    return layers > 0 ? layers + s->first_reduce : 0;
}

/* Returns each pass's least time for a layer over all sites. */
lhi_floor_pass lhi_floor_least_layer(const lhi_floor_case *c);
/* Counts the layers in a kind that fit in a stage's memory plus `more` bytes.
 */
int64_t lhi_floor_layers_that_fit(const lhi_floor_case *c, int kind,
                                  uint32_t stage, int64_t more);
/* Checks whether the model fits with `more` additional bytes on each device. */
bool lhi_floor_does_fit(const lhi_floor_case *c, int64_t more);
/* Sums all devices' memory without transient memory. Devices with layers of one
 * kind need the transient memory of these layers, and only some devices can be
 * without them: *passing_in_all. INFINITY: unknown. */
double lhi_floor_all_room(const lhi_floor_case *c, double *passing_in_all);

#endif
