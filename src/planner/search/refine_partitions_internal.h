/* SPDX-License-Identifier: Apache-2.0 */
/* Internal state of the search over layer partitions under optimised schedules,
 * shared by refine_partitions.c and refine_restarts.c. */
#ifndef LHI_PLANNER_SEARCH_REFINE_PARTITIONS_INTERNAL_H
#define LHI_PLANNER_SEARCH_REFINE_PARTITIONS_INTERNAL_H

#include "planner/search/refine_internal.h"

#include "planner/layout/build_cache.h"
#include "planner/layout/layer_partition.h"
#include "planner/layout/partition_search.h"
#include "planner/search/candidate.h"

/* Smaller differences between plans do not count: a job with its plan's own
 * degrees given has a plan within this of it. */
#define LHI_PARTITION_TOLERANCE 0.002

enum {
    LHI_MAX_SOLVED = 24, /* partitions for the solver at once */
    LHI_SLOW_FACTOR = 60 /* a slow method's work, or all, of the estimate */
};

/* A neighbouring partition, and its place in evaluation order. */
typedef struct lhi_partition_neighbour {
    uint32_t *layers;
    int64_t bound_ns;
    bool nearest;  /* one move away */
    bool expanded; /* its own neighbours were collected */
} lhi_partition_neighbour;

/* An evaluated neighbour. */
typedef struct lhi_partition_contender {
    lhi_candidate c;
    int64_t value; /* by the best method */
    int64_t key;   /* sort key: value halfway between the bound and that */
} lhi_partition_contender;

/* State of the search around one partition. */
typedef struct lhi_partition_refinement {
    lhi_refinement *r;
    lhi_layout_search s;
    lhi_build_cache *known;
    lhi_arena *mem;     /* of the neighbours */
    const char *method; /* for climbing */
    uint64_t cost;      /* work of timing a partition by it */
    lhi_partition p;
    lhi_candidate base;
    lhi_partition_neighbour *neighbours;
    uint32_t n_neighbours, room, n_bounds;
    bool nearest;      /* collecting partitions one move away */
    uint64_t *visited; /* hash table: SLOTS; 0: free */
    lhi_partition_contender contenders[LHI_MAX_SOLVED]; /* least keys first */
    uint32_t n_contenders;
    uint64_t left;           /* work */
    uint64_t given;          /* work in all, including the work spent */
    uint64_t seed;           /* of random changes */
    lh_choice base_choice;   /* of `base` */
    lh_choice best_at_start; /* the plan when the last work was added */
} lhi_partition_refinement;

/* Subtracts `work` from the remaining budget m->left, down to 0. */
void lhi_partition_refinement_spend(lhi_partition_refinement *m, uint64_t work);

/* Checks whether the caller asks to stop, or the plan is within its bound's
 * tolerance. */
bool lhi_partition_refinement_is_done(const lhi_partition_refinement *m);

/* Checks whether the work is spent, the caller asks to stop, or the plan is
 * within its bound's tolerance. */
bool lhi_partition_refinement_is_over(const lhi_partition_refinement *m);

/* Improves the base's layer partition by iterated local search under one
 * method: climbs from random changes to the best partition, with work
 * `most`. The result replaces `layers`. `from`: plan candidate with the
 * base's layout. */
lh_status lhi_partition_refinement_climb(lhi_partition_refinement *m,
                                         const lh_choice *from, uint64_t most,
                                         uint32_t *layers, lh_error *err);

#endif
