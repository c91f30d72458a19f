/* SPDX-License-Identifier: Apache-2.0 */
/* Internal bound helpers: lower_bound.c, memory_bound.c, warmup_bound.c and
 * residency_bound.c. */
#ifndef LHI_PLANNER_SEARCH_LOWER_BOUND_INTERNAL_H
#define LHI_PLANNER_SEARCH_LOWER_BOUND_INTERNAL_H

#include "planner/search/lower_bound.h"

#include "base/integer_math.h"

/* Divides with rounding down, for negative numbers too. */
static inline int64_t lhi_bound_divide_down(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

/* Returns how often `each` fits into `left`; negative: not at all. */
static inline int64_t lhi_bound_count_fitting(int64_t left, int64_t each)
{
    if (each > 0)
        return lhi_bound_divide_down(left, each);
    return left < 0 ? -1 : INT64_MAX;
}

/* Infinity of the bounds: prunes everything, and sums do not overflow. */
#define LHI_BOUND_INFINITY (INT64_C(1) << 60)

/* Multiplies with saturation. */
static inline int64_t lhi_bound_multiply(int64_t a, int64_t b)
{
    return (double)a * (double)b < 0x1p60 ? a * b : LHI_BOUND_INFINITY;
}

/* Returns a stage's site. If it is open, or all replicas count, sites[0] is the
 * least in everything. */
static inline const lhi_bound_site *
lhi_bound_site_of_stage(const lhi_bound_case *c, uint32_t stage)
{
    return &c->sites[c->site_of_stage ? c->site_of_stage[stage] : 0];
}

/* Returns the head's stage. */
static inline uint32_t lhi_bound_head_stage(const lhi_bound_case *c)
{
    return c->placement == LH_PLACEMENT_WAVE ? 0 : c->stages - 1;
}

/* Layers counted: those of one kind, or all with the least of all kinds
 * each. */
enum { LHI_ANY_KIND = -1 };

/* Returns the end of the loop over layer kinds from LHI_ANY_KIND on. It
 * includes single kinds only if there are several. */
static inline int lhi_bound_count_kinds(const lhi_bound_case *c)
{
    return c->n_kinds > 1 ? (int)c->n_kinds : 0;
}

/* Counts the model's layers by kind. */
static inline uint32_t lhi_bound_count_layers(const lhi_bound_case *c, int kind)
{
    return kind == LHI_ANY_KIND ? c->layers : c->n_of_part[kind];
}

/* Returns a layer's F and D time. */
static inline int64_t lhi_bound_fd_ns(const lhi_bound_site *s, int kind)
{
    return kind == LHI_ANY_KIND ? s->layer_fd
                                : s->parts[kind].f + s->parts[kind].d;
}

/* Returns a layer's F, D and W time. */
static inline int64_t lhi_bound_all_passes_ns(const lhi_bound_site *s, int kind)
{
    return kind == LHI_ANY_KIND ? s->layer_all
                                : lhi_bound_fd_ns(s, kind) + s->parts[kind].w;
}

/* Returns a layer's memory with one microbatch. */
static inline int64_t lhi_bound_layer_memory(const lhi_bound_site *s, int kind)
{
    return kind == LHI_ANY_KIND
               ? s->layer_memory
               : s->part_memory[kind].state + s->part_memory[kind].activation;
}

/* Returns the least gather before a chunk's first F with at least so many
 * layers; lhi_bound_reduce_ns(): the reduction after its last W. */
static inline int64_t lhi_bound_gather_ns(const lhi_bound_site *s,
                                          int64_t layers)
{
    return s->gather > 0 && layers > 0 ? layers * s->gather + s->latency : 0;
}

/* Returns the least reduction after a chunk's last W. */
static inline int64_t lhi_bound_reduce_ns(const lhi_bound_site *s,
                                          int64_t layers)
{
    return s->reduce > 0 && layers > 0 ? layers * s->reduce + s->latency : 0;
}

/* Returns the least gather time of the first chunk, where every microbatch
 * begins and ends, in ns; it includes the embedding. */
static inline int64_t lhi_bound_first_gather_ns(const lhi_bound_case *c)
{
    const lhi_bound_site *s = lhi_bound_site_of_stage(c, 0);
    int64_t layers = lhi_bound_gather_ns(s, c->least_layers);
    return layers > 0 ? layers + s->first_gather : 0;
}

/* Returns the first chunk's reduction. */
static inline int64_t lhi_bound_first_reduce_ns(const lhi_bound_case *c)
{
    const lhi_bound_site *s = lhi_bound_site_of_stage(c, 0);
    int64_t layers = lhi_bound_reduce_ns(s, c->least_layers);
    return layers > 0 ? layers + s->first_reduce : 0;
}

/* Returns the least F, D and W time of a layer over all sites (one or more
 * datacenters each), in ns, each separately. */
lhi_bound_pass lhi_bound_find_least_layer(const lhi_bound_case *c);
/* Returns the largest number of layers of kind `kind` (dense, with experts and
 * others; LHI_ANY_KIND: the smallest) that fit in stage `stage`'s memory plus
 * `more` bytes. */
int64_t lhi_bound_count_layers_that_fit(const lhi_bound_case *c, int kind,
                                        uint32_t stage, int64_t more);
/* Checks whether some partition of the model's layers may fit if every device
 * had `more` memory bytes in addition to its limit. */
bool lhi_bound_does_fit(const lhi_bound_case *c, int64_t more);
/* Returns all devices' memory in bytes without transient memory; INFINITY:
 * unlimited. *passing_in_all: transient memory, which devices with layers of
 * one kind need. */
double lhi_bound_compute_total_memory(const lhi_bound_case *c,
                                      double *passing_in_all);

#endif
