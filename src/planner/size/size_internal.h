/* SPDX-License-Identifier: Apache-2.0 */
/* The search over sizes. */
#ifndef LHI_PLANNER_SIZE_SIZE_INTERNAL_H
#define LHI_PLANNER_SIZE_SIZE_INTERNAL_H

#include <longhaul/experimental/size.h>

#include "base/arena.h"

/* Plans kept per size: the best for time and for cost, of all layouts and of
 * those with known degrees, of a quick search and of a full one. */
enum { LHI_SIZE_CHOICES = 5, LHI_SIZE_PLANS = 8 * LHI_SIZE_CHOICES };

#define LHI_HOUR_S 3600.0 /* seconds in an hour */

/* One plan of a size. */
typedef struct lhi_sized_plan {
    lh_layout layout; /* without pointers */
    /* In use; at least the range's least, and at most the size's. */
    uint32_t nodes[LH_MAX_DATACENTERS];
    int64_t iteration_ns;
    double between_usd; /* traffic per iteration */
} lhi_sized_plan;

/* How deeply a size is planned: by a quick search, first over the degrees that
 * are best on other sizes; by a longer one; or by one with the default effort
 * of a plan. */
typedef enum lhi_size_depth {
    LHI_SIZE_QUICK,
    LHI_SIZE_FULL,
    LHI_SIZE_DEEP
} lhi_size_depth;

/* A planned size. */
typedef struct lhi_planned_size {
    uint32_t nodes[LH_MAX_DATACENTERS];
    lhi_size_depth depth; /* of the deepest search */
    uint32_t n_plans;     /* 0: no layout works */
    lhi_sized_plan plans[LHI_SIZE_PLANS];
    int64_t bound_ns; /* on the iteration time of every layout; 0: none */
} lhi_planned_size;

/* State of a search. */
typedef struct lhi_size_search {
    const lh_job *job; /* with the options' prices */
    lh_size_options options;
    lh_failures failures;
    lh_size_range ranges[LH_MAX_DATACENTERS];
    bool priced;
    double iterations; /* to train all tokens */
    /* Matrix products per iteration; 0 with a profile: no bound by them. */
    double flops;
    double gpu_s; /* least GPU time per iteration; 0: no bound by it */
    lhi_arena *mem;
    uint32_t n_planned, n_allocated;
    lhi_planned_size **planned;
    uint32_t n_plans_made;
    uint32_t most_plans; /* that the current step of the search may make */
    lh_size_result *result;
} lhi_size_search;

/* Checks whether a size (nodes[i] nodes in datacenter i) has any nodes. */
bool lhi_size_has_nodes(const lhi_size_search *s, const uint32_t *nodes);
/* Sets nodes[i] to the most (if `most`) or the least nodes in the range of
 * datacenter i. */
void lhi_size_fill_nodes(const lhi_size_search *s, bool most, uint32_t *nodes);

/* Checks the job, the options and the ranges, and fills in the defaults. */
lh_status lhi_size_set_options(lhi_size_search *s, lh_error *err);

/* Plans a size (nodes[i] nodes in datacenter i) by a search of this depth,
 * unless one as deep was made before; *out: the planned size. LH_ECANCELED:
 * stopped by the caller. */
lh_status lhi_size_plan(lhi_size_search *s, const uint32_t *nodes,
                        lhi_size_depth depth, const lhi_planned_size **out,
                        lh_error *err);
/* Plans a size as deeply as a plan's default, unless a bound proves that it
 * misses the deadline. */
lh_status lhi_size_plan_deeply(lhi_size_search *s, const uint32_t *nodes,
                               lh_error *err);
/* Returns the planned size with nodes[i] nodes in datacenter i, planned by a
 * full or a quick search; NULL: not planned yet. */
const lhi_planned_size *lhi_size_find_planned(const lhi_size_search *s,
                                              const uint32_t *nodes);

/* Returns the number of nodes of a size, nodes[i] in datacenter i. */
uint32_t lhi_size_count_nodes(const lhi_size_search *s, const uint32_t *nodes);

/* Predicts the training run with one plan of a size into *out: time, failures
 * and cost. `spot`: on cheaper capacity that may be withdrawn. */
lh_status lhi_size_predict(const lhi_size_search *s, const lhi_sized_plan *plan,
                           bool spot, lh_size *out, lh_error *err);
/* Checks whether a predicted training run meets the deadline and the budget;
 * one that is not given is always met. */
bool lhi_size_meets(const lhi_size_search *s, const lh_size *size);

/* Checks whether nodes of datacenter i are missing for more than 0.1 % of the
 * time: otherwise they do not matter for the goodput of nodes[i] nodes in each
 * datacenter i. */
bool lhi_goodput_lacks_nodes(const lh_job *job, const uint32_t *nodes,
                             uint32_t i, const lh_failures *f);
/* Sets *f to the failures of a run, on spot capacity if `spot`. */
void lhi_size_set_failures(const lhi_size_search *s, bool spot, lh_failures *f);
/* Fills speeds[i] for each datacenter i: the speed of a run with nodes[i] nodes
 * and this iteration time while one node of datacenter i is missing, relative
 * to all nodes running, by the best plan found for the other nodes; if these
 * were not planned, in proportion to the nodes. Returns the longest iteration
 * with one node missing, in seconds, as lh_size.node_loss_s. */
double lhi_size_find_node_loss_speeds(const lhi_size_search *s,
                                      const uint32_t *nodes,
                                      int64_t iteration_ns, double *speeds);
/* Plans, by a full search, the nodes that remain while one of a run's nodes is
 * missing in each datacenter, unless nodes are hardly ever missing. *planned:
 * some were not planned before. */
lh_status lhi_size_plan_node_losses(lhi_size_search *s, const lh_size *run,
                                    bool *planned, lh_error *err);

/* Compares predicted runs. */
typedef bool lhi_size_is_better_fn(const lh_size *a, const lh_size *b);
/* Checks whether run `a` is better than `b` if GPUs are to be saved: fewer
 * GPUs, then lower cost, then shorter training. */
bool lhi_size_has_fewer_gpus(const lh_size *a, const lh_size *b);
/* Checks whether run `a` is better than `b` if cost is to be saved: lower cost,
 * then lhi_size_has_fewer_gpus(). */
bool lhi_size_is_cheaper(const lh_size *a, const lh_size *b);
/* Checks whether run `a` is better than `b` if time is to be saved: shorter
 * training, then lhi_size_is_cheaper(). */
bool lhi_size_is_faster(const lh_size *a, const lh_size *b);
/* Checks whether run `a` is better than `b` by the product of time and cost:
 * at its minimum, 1 % less cost takes more than 1 % more time, and vice versa.
 */
bool lhi_size_has_less_product(const lh_size *a, const lh_size *b);
/* Predicts the training run for every plan of a size, on demand and on spot
 * capacity; *out: the best by is_better() among those that meet the
 * requirements or, if `all`, among all. *found: there is one. */
lh_status lhi_size_find_best_run(const lhi_size_search *s,
                                 const lhi_planned_size *size, bool all,
                                 lhi_size_is_better_fn *is_better, bool *found,
                                 lh_size *out, lh_error *err);
/* Checks whether nodes[i] is within the job's range of nodes for every
 * datacenter i. A size that remains after a loss of nodes may be below it. */
bool lhi_size_is_in_ranges(const lhi_size_search *s, const uint32_t *nodes);
/* Finds the best predicted run, by is_better(), over all planned sizes within
 * the job's ranges, into *out. `all`: also runs that miss the requirements;
 * *found: there is one. */
lh_status lhi_size_find_best(const lhi_size_search *s, bool all,
                             lhi_size_is_better_fn *is_better, bool *found,
                             lh_size *out, lh_error *err);

/* As lhi_size_find_best(), at planned speeds while a node is missing: plans the
 * other nodes of the best run, whose predicted time may then be longer, and
 * repeats. */
lh_status lhi_size_settle_best(lhi_size_search *s, bool all,
                               lhi_size_is_better_fn *is_better, bool *found,
                               lh_size *out, lh_error *err);
/* Plans larger sizes until one meets the deadline at its planned speeds while a
 * node is missing; only if no planned one does. */
lh_status lhi_size_grow(lhi_size_search *s, lh_error *err);

/* Returns the longest iteration time, in seconds, with which the training run
 * meets the deadline; DBL_MAX without a deadline. */
double lhi_size_longest_s(const lhi_size_search *s);
/* Sizes differ less in efficiency: smaller ones are more efficient by a few
 * percent, and other GPUs reach up to a fifth more of their peak. A size that
 * must exceed the highest efficiency of the planned ones by more is not
 * planned, and one that falls short by more may have other best degrees. */
#define LHI_SIZE_EFFICIENCY_MARGIN 1.25
/* Returns the highest efficiency of all plans made: the bound by work on a
 * plan's nodes, relative to its iteration; 1: there is none. If nodes[i] nodes
 * in each datacenter i are given, only of plans in the same datacenters, if
 * there are any. */
double lhi_size_best_efficiency(const lhi_size_search *s,
                                const uint32_t *nodes);
/* Returns the price per hour of a size with its spares, on spot capacity if
 * that is cheaper. */
double lhi_size_price_hour(const lhi_size_search *s, const uint32_t *nodes);
/* Returns a lower bound, in seconds, on the iteration time of every size with
 * at most these nodes: matrix products at the GPUs' peak rates, and the least
 * GPU time of all passes. */
double lhi_size_work_bound_s(const lhi_size_search *s, const uint32_t *nodes);

/* Fills the result: the best sizes or, if none meets the requirements, the
 * fastest, and the lower bounds. Repeats as long as later planning finds better
 * sizes. */
lh_status lhi_size_fill_result(lhi_size_search *s, lh_error *err);
/* Fills the result of a stopped search with the best of the planned sizes,
 * without bounds. LH_ECANCELED: none is planned. */
lh_status lhi_size_fill_interrupted(lhi_size_search *s, lh_error *err);

/* Allocates an empty result, for lh_size_result_free(); NULL: no memory. */
lh_size_result *lhi_size_make_result(void);
/* Sets the accuracy of the result's sizes, in the result's memory. */
lh_status lhi_size_state_accuracy(lhi_size_search *s, lh_error *err);

/* Computes the bounds of the result: no size with fewer GPUs, at less cost or,
 * with a budget, in less time meets the requirements. */
lh_status lhi_size_bound(lhi_size_search *s, lh_error *err);

#endif
