/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives on parts of a chunk's values and gradients among the replicas
 * that shard them, and sums over sites with the same sharding. */
#ifndef LHI_RUNTIME_ENGINE_PART_COLLECTIVES_H
#define LHI_RUNTIME_ENGINE_PART_COLLECTIVES_H

#include "base/arena.h"
#include "runtime/training/train.h"
#include "runtime/transport/transport.h"

/* Groups and arrays for the collectives. */
typedef struct lhi_part_collectives {
    lhi_net *net;
    lhi_train *train;
    /* per bucket: shard group; NULL: bucket unused */
    const lhi_net_group *groups[LHI_N_TRAIN_BUCKETS];
    /* Peers with the same shard at other sites; NULL: none. */
    const lhi_net_group *across[LHI_N_TRAIN_BUCKETS];
    bool by_leaders;     /* as in lhi_site_sums */
    float *array, *sums; /* sizes: the largest bucket part over all shards, and
                          * over one shard */
} lhi_part_collectives;

/* Tags for one collective on a part, all buckets. */
enum { LHI_PART_TAGS = LHI_N_TRAIN_BUCKETS * LHI_NET_TAGS };

/* Sizes of the two arrays, in values: all shards, and one shard. */
typedef struct lhi_part_buffer_sizes {
    size_t array, sums;
} lhi_part_buffer_sizes;

/* Raises the buffer sizes in `room` to those that collectives over `part` (a
 * range of a chunk's parameters) need: this rank's piece, and the pieces of all
 * ranks. */
void lhi_part_fit_buffers(const lhi_part_collectives *x,
                          const lhi_train_part *part,
                          lhi_part_buffer_sizes *room);
/* Allocates the two arrays that collectives over parts use; false: out of
 * memory. */
bool lhi_part_make_buffers(lhi_part_collectives *x,
                           const lhi_part_buffer_sizes *room, lhi_arena *mem);
/* All-gathers a part, a range of a chunk's parameters. The collectives here
 * raise *ready_ns (NULL: no shared clock) from the time when this rank was
 * ready to the time when all were. They use LHI_PART_TAGS tags from `tag` on.
 * `room`: sharded values to write, or sharded gradients to read. */
lh_status lhi_part_all_gather(const lhi_part_collectives *x,
                              const lhi_train_part *part, float *room,
                              uint64_t tag, int64_t *ready_ns, lh_error *err);
/* Reduce-scatters the gradients of `part`, a range of a chunk's tensors; `room`
 * has those of sharded tensors. `adds`: adds to the sums of earlier microbatch
 * groups. Raises *ready_ns (NULL: none) to the time at which all ranks were
 * ready. */
lh_status lhi_part_reduce_scatter(const lhi_part_collectives *x,
                                  const lhi_train_part *part, const float *room,
                                  bool adds, uint64_t tag, int64_t *ready_ns,
                                  lh_error *err);

/* Returns the number of tag blocks, each of LHI_PART_TAGS tags, that
 * lhi_part_sum_sites() uses. */
uint32_t lhi_part_count_sum_tags(const lhi_part_collectives *x);
/* Sums a part's reduce-scattered gradients over all datacenters. Raises
 * *ready_ns (NULL: none) to the time at which all members were ready. */
lh_status lhi_part_sum_sites(const lhi_part_collectives *x,
                             const lhi_train_part *part, uint64_t tag,
                             int64_t *ready_ns, lh_error *err);

/* Sums over sites. Each shard sums with its peers, or the first rank at a site
 * does it for all (leaders: LH_SHARDING_HYBRID_LEADERS). */
typedef struct lhi_site_sums {
    lhi_net *net;
    /* as above; `across` may have one rank */
    const lhi_net_group *group, *across;
    bool by_leaders;
} lhi_site_sums;

/* Returns the tags for one call, in steps of LHI_NET_TAGS from `tag` on. */
static inline uint32_t lhi_site_count_sum_tags(const lhi_net_group *group)
{
    return 4 * group->n_ranks;
}

/* Adds n values over all datacenters, in datacenter order; all get the sums.
 * `room`: n values, for leaders only. Raises *ready_ns (NULL: none) to the time
 * at which all members were ready. */
lh_status lhi_sum_sites(const lhi_site_sums *s, float *values, size_t n,
                        float *room, uint64_t tag, int64_t *ready_ns,
                        lh_error *err);

#endif
