/* SPDX-License-Identifier: Apache-2.0 */
/* What the bounds on a case have in common: floor.c, floor_room.c, floor_ramp.c
 * and floor_stay.c. */
#ifndef LHI_FLOOR_OWN_H
#define LHI_FLOOR_OWN_H

#include "plan/search/floor.h"

#include "base/whole.h"

/* Rounded down, for negative numbers too. */
static inline int64_t lhi_floor_quotient(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

/* How often `each` goes into what is left; less than 0: nothing does. */
static inline int64_t lhi_floor_times_in(int64_t left, int64_t each)
{
    if (each > 0)
        return lhi_floor_quotient(left, each);
    return left < 0 ? -1 : INT64_MAX;
}

/* So large that nothing wins any more, and that sums have room. */
#define LHI_FLOOR_LARGEST (INT64_C(1) << 60)

static inline int64_t lhi_floor_product(int64_t a, int64_t b)
{
    return (double)a * (double)b < 0x1p60 ? a * b : LHI_FLOOR_LARGEST;
}

/* The site of a stage; where that is open, or all replicas count, one that is
 * least in everything has been put first. */
static inline const lhi_floor_site *lhi_floor_site_of(const lhi_floor_case *c,
                                                      uint32_t stage)
{
    return &c->sites[c->at ? c->at[stage] : 0];
}

static inline uint32_t lhi_floor_head_stage(const lhi_floor_case *c)
{
    return c->placement == LH_PLACEMENT_WAVE ? 0 : c->stages - 1;
}

/* Layers that are counted: those of one kind, or all of them, each as the least
 * of all kinds. */
enum { LHI_ANY_KIND = -1 };

/* Behind the last kind. Where all are of one kind it is not counted again.
 */
static inline int lhi_floor_n_counts(const lhi_floor_case *c)
{
    return c->n_kinds > 1 ? (int)c->n_kinds : 0;
}

static inline uint32_t lhi_floor_n_layers_of(const lhi_floor_case *c, int kind)
{
    return kind == LHI_ANY_KIND ? c->layers : c->n_of_part[kind];
}

static inline int64_t lhi_floor_fd_of(const lhi_floor_site *s, int kind)
{
    return kind == LHI_ANY_KIND ? s->layer_fd
                                : s->parts[kind].f + s->parts[kind].d;
}

static inline int64_t lhi_floor_all_of(const lhi_floor_site *s, int kind)
{
    return kind == LHI_ANY_KIND ? s->layer_all
                                : lhi_floor_fd_of(s, kind) + s->parts[kind].w;
}

static inline int64_t lhi_floor_hold_of(const lhi_floor_site *s, int kind)
{
    return kind == LHI_ANY_KIND
               ? s->hold
               : s->held[kind].state + s->held[kind].activation;
}

/* What a chunk of so many layers, or more, gathers before its first F, and
 * reduces behind its last W, there. */
static inline int64_t lhi_floor_gather(const lhi_floor_site *s, int64_t layers)
{
    return s->gather > 0 && layers > 0 ? layers * s->gather + s->latency : 0;
}

static inline int64_t lhi_floor_reduce(const lhi_floor_site *s, int64_t layers)
{
    return s->reduce > 0 && layers > 0 ? layers * s->reduce + s->latency : 0;
}

/* The same of the first chunk, that all of a microbatch begins and ends with:
 * it has the embedding, too. */
static inline int64_t lhi_floor_first_gather(const lhi_floor_case *c)
{
    const lhi_floor_site *s = lhi_floor_site_of(c, 0);
    int64_t layers = lhi_floor_gather(s, c->least_layers);
    return layers > 0 ? layers + s->first_gather : 0;
}

static inline int64_t lhi_floor_first_reduce(const lhi_floor_case *c)
{
    const lhi_floor_site *s = lhi_floor_site_of(c, 0);
    int64_t layers = lhi_floor_reduce(s, c->least_layers);
    return layers > 0 ? layers + s->first_reduce : 0;
}

/* What of each pass a layer takes at least, wherever it is. */
lhi_floor_pass lhi_floor_least_layer(const lhi_floor_case *c);
/* So many layers of a kind fit in the memory of a stage of so much more. */
int64_t lhi_floor_layers_that_fit(const lhi_floor_case *c, int kind,
                                  uint32_t stage, int64_t more);
/* Whether the model fits in memory of so much more on each device. */
bool lhi_floor_does_fit(const lhi_floor_case *c, int64_t more);
/* Memory of all devices without what they need in passing: those that hold
 * layers of one kind need as much as these, and only so many devices can be
 * without them: *passing_in_all. INFINITY where it is not known. */
double lhi_floor_all_room(const lhi_floor_case *c, double *passing_in_all);

#endif
