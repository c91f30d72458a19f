/* SPDX-License-Identifier: Apache-2.0 */
/* Pareto front: choices not dominated in time, memory and cost together. */
#ifndef LHI_PLANNER_SEARCH_PARETO_FRONT_H
#define LHI_PLANNER_SEARCH_PARETO_FRONT_H

#include "base/arena.h"
#include "base/fail.h"

#include <longhaul/experimental/plan.h>

/* A choice's coordinates, or their lower bounds; less is better in each. */
typedef struct lhi_pareto_point {
    int64_t iteration_ns, memory_bytes;
    double usd; /* 0 without prices */
} lhi_pareto_point;

enum { LHI_MAX_PARETO_FRONT = 4096 }; /* entries in a plan's list */

/* A Pareto front. */
typedef struct lhi_pareto_front {
    lhi_arena *mem; /* the listed choices' memory */
    uint32_t n, room;
    lh_choice *all;
} lhi_pareto_front;

/* Returns a plan candidate's Pareto coordinates: iteration time, peak memory
 * and cost. */
lhi_pareto_point lhi_pareto_point_of(const lh_choice *choice);
/* Checks whether point `a` is at least as good as `b` in time, memory and
 * cost. */
bool lhi_pareto_point_covers(const lhi_pareto_point *point,
                             const lhi_pareto_point *other);
/* Checks whether some plan candidate on the front dominates or equals the
 * point. */
bool lhi_pareto_front_covers(const lhi_pareto_front *front,
                             const lhi_pareto_point *point);
/* Adds a copy of a feasible plan candidate unless one on the front is at least
 * as good in every coordinate (time, memory, cost); removes those on the front
 * that the new one covers in this way. */
lh_status lhi_pareto_front_add(lhi_pareto_front *front, const lh_choice *choice,
                               lh_error *err);
/* Finishes the plan's Pareto front with the results of later steps and sorts it
 * by time, memory and cost. `times`: removes entries slower than this factor
 * times the fastest; 0: the default. */
lh_status lhi_pareto_front_finish(double times, lhi_arena *mem, lh_plan *plan,
                                  lh_error *err);
/* Finds two entries of a plan's Pareto front: *knee, with the least product of
 * time and cost, and *near, the cheapest within 1 % of the fastest. Both are 0
 * without entries or prices. */
void lhi_pareto_front_find_knee(const lh_plan *plan, uint32_t *knee,
                                uint32_t *near);

#endif
