/* SPDX-License-Identifier: Apache-2.0 */
/* How many layers each chunk gets. What a partition costs is the caller's to
 * say; these searches only choose which to ask for. All are deterministic. */
#ifndef LHI_PARTITION_H
#define LHI_PARTITION_H

#include <longhaul/status.h>

#include <stdbool.h>
#include <stdint.h>

/* *ns is the time with layers[0..chunks-1], INT64_MAX where it does not fit. */
typedef lh_status lhi_partition_time(void *context, const uint32_t *layers,
                                     int64_t *ns, lh_error *err);

typedef struct lhi_partition {
    uint32_t n_layers, n_chunks; /* every chunk gets at least one */
    double most_ratio;           /* largest chunk / smallest, >= 1 */
    lhi_partition_time *time;
    void *context;
    bool steepest;    /* climb by the best of all moves, not the first */
    uint64_t n_timed; /* partitions asked for, counted here */
} lhi_partition;

/* Whether each chunk has layers and none too many. */
bool lhi_partition_allows(const lhi_partition *p, const uint32_t *layers);

/* Partitions there are, in *out; UINT64_MAX: that many or more. */
lh_status lhi_partition_count(const lhi_partition *p, uint64_t *out,
                              lh_error *err);

/* Each search leaves the best in best[0..n_chunks-1] and *best_ns (INT64_MAX:
 * none fits). `best` holds a partition to begin with, of time *best_ns, which
 * stays unless a better one is found; among equals the first found stays. */

/* Asks for every partition. */
lh_status lhi_partition_exact(lhi_partition *p, uint32_t *best,
                              int64_t *best_ns, lh_error *err);

/* Moves layers from one chunk to another as long as that helps: one, then two,
 * then as many as two chunks differ by, from `best` on. Each move that helps is
 * where the next begins, or, if steepest, the best of all there are. At most
 * `most` partitions. */
lh_status lhi_partition_climb(lhi_partition *p, uint64_t most, uint32_t *best,
                              int64_t *best_ns, lh_error *err);

/* Monte Carlo as ScaleAcross Explorer has it (2026, section 6.2): `samples`
 * random partitions, of which the `keep` fastest are each changed `changes`
 * times by one layer from one chunk to another. */
typedef struct lhi_partition_sampling {
    uint32_t samples, keep, changes;
    uint64_t seed;
} lhi_partition_sampling;
lh_status lhi_partition_sample(lhi_partition *p,
                               const lhi_partition_sampling *how,
                               uint32_t *best, int64_t *best_ns, lh_error *err);

#endif
