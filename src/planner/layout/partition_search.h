/* SPDX-License-Identifier: Apache-2.0 */
/* Searches over layer partitions. The caller evaluates a partition's time;
 * these searches only choose which to evaluate. All are deterministic. */
#ifndef LHI_PLANNER_LAYOUT_PARTITION_SEARCH_H
#define LHI_PLANNER_LAYOUT_PARTITION_SEARCH_H

#include "base/random.h"

#include <longhaul/status.h>

#include <stdbool.h>
#include <stdint.h>

/* Evaluates a partition: *ns is the time with layers[0..chunks-1], INT64_MAX if
 * it does not fit. A time of useless_ns or more may be INT64_MAX, too. */
typedef lh_status lhi_partition_evaluate(void *context, const uint32_t *layers,
                                         int64_t useless_ns, int64_t *ns,
                                         lh_error *err);

/* A partition problem. */
typedef struct lhi_partition {
    uint32_t n_layers, n_chunks; /* every chunk gets at least one */
    double max_ratio;            /* largest chunk / smallest, >= 1 */
    lhi_partition_evaluate *time;
    void *context;
    bool steepest;    /* steepest descent rather than first improvement */
    uint64_t n_timed; /* partitions evaluated so far */
} lhi_partition;

/* Checks whether each chunk has layers and the ratio of the largest to the
 * smallest is allowed. */
bool lhi_partition_allows(const lhi_partition *p, const uint32_t *layers);

/* Distributes layers over n chunks in proportion to speed[0..n-1]: one each,
 * then one at a time to the chunk that finishes first with it. Then limits the
 * largest ratio to most_ratio. */
void lhi_partition_distribute(uint32_t layers, uint32_t n, double most_ratio,
                              const double *speed, uint32_t *out);

/* Counts the allowed layer partitions into *out; UINT64_MAX if there are at
 * least as many. */
lh_status lhi_partition_count(const lhi_partition *p, uint64_t *out,
                              lh_error *err);

/* Each search returns the best partition in best[0..n_chunks-1] and *best_ns
 * (INT64_MAX: none fits). On entry, `best` is a starting partition with time
 * *best_ns, which stays unless a better one is found; among equals the first
 * found stays. */

/* Times every allowed layer partition; `best` and *best_ns are the fastest. */
lh_status lhi_partition_exact(lhi_partition *p, uint32_t *best,
                              int64_t *best_ns, lh_error *err);

/* Runs hill climbing from partition `best`: moves one layer between chunks,
 * then two, then exchanges two chunks, while that is faster. Takes the first
 * improving move, or with `steepest` the best one. Times at most `most`
 * partitions. */
lh_status lhi_partition_climb(lhi_partition *p, uint64_t most, uint32_t *best,
                              int64_t *best_ns, lh_error *err);

/* Changes `layers`, whose time is *ns, `changes` times: moves a layer between
 * two random chunks, and undoes the move if the result is slower or not allowed
 * (Metropolis et al., 1953, at temperature 0). */
lh_status lhi_partition_perturb(lhi_partition *p, uint32_t changes,
                                lhi_random *random, uint32_t *layers,
                                int64_t *ns, lh_error *err);

/* Monte Carlo search by ScaleAcross Explorer (2026, section 6.2): `samples`
 * random partitions; each of the `keep` fastest is changed `changes` times. */
typedef struct lhi_partition_sampling {
    uint32_t samples, keep, changes;
    uint64_t seed;
} lhi_partition_sampling;
/* Searches layer partitions by Monte Carlo: times random ones, of which two
 * thirds are guided by features of the timed ones, then random changes of the
 * fastest. `best`, *best_ns: the fastest. */
lh_status lhi_partition_sample(lhi_partition *p,
                               const lhi_partition_sampling *how,
                               uint32_t *best, int64_t *best_ns, lh_error *err);

#endif
