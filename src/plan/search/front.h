/* SPDX-License-Identifier: Apache-2.0 */
/* Which choices no other one beats in time, memory and cost at once. */
#ifndef LHI_FRONT_H
#define LHI_FRONT_H

#include "base/arena.h"
#include "base/fail.h"

#include <longhaul/plan.h>

/* What a choice is, or can at best become: less is better in each. */
typedef struct lhi_front_point {
    int64_t iteration_ns, memory_bytes;
    double usd; /* 0 where there are no prices */
} lhi_front_point;

enum { LHI_MOST_FRONT = 4096 }; /* that a plan lists */

typedef struct lhi_front {
    lhi_arena *mem; /* what it lists is in */
    uint32_t n, room;
    lh_choice *all;
} lhi_front;

lhi_front_point lhi_point_of(const lh_choice *choice);
/* As good as the other in everything. */
bool lhi_point_covers(const lhi_front_point *point,
                      const lhi_front_point *other);
/* Whether some choice is as good as that in everything. */
bool lhi_front_covers(const lhi_front *front, const lhi_front_point *point);
/* Takes a copy of a choice that works, unless one there covers it, and drops
 * those that it covers. */
lh_status lhi_front_add(lhi_front *front, const lh_choice *choice,
                        lh_error *err);
/* The plan's front with what was found after the search over layouts; by time,
 * then memory, then cost. `times`: without what takes so many times as long as
 * the fastest, or as the plan; 0: the default. */
lh_status lhi_front_finish(double times, lhi_arena *mem, lh_plan *plan,
                           lh_error *err);

#endif
