/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a chunk's values and gradients between the replicas among which they
 * are divided, and sums over sites that are divided alike. */
#ifndef LHI_PART_EXCHANGE_H
#define LHI_PART_EXCHANGE_H

#include "base/arena.h"
#include "net/net.h"
#include "train/train.h"

typedef struct lhi_part_exchange {
    lhi_net *net;
    lhi_train *train;
    const lhi_net_group *groups[LHI_N_TRAIN_LOTS]; /* of shards; NULL: no tensor
                                                      is in a lot of its own */
    /* Those with the same shard at other sites; NULL: there are none. */
    const lhi_net_group *across[LHI_N_TRAIN_LOTS];
    bool leaders; /* as in lhi_site_sums */
    float *array, *sums; /* as large as the largest part of one lot of all
                            shards, and of one */
} lhi_part_exchange;

/* Tags of a part's collective, of all lots. */
enum { LHI_PART_TAGS = LHI_N_TRAIN_LOTS * LHI_NET_TAGS };

/* What these have to have room for: of all shards, and of one. */
typedef struct lhi_part_room {
    size_t array, sums;
} lhi_part_room;

/* Makes `room` large enough for the part; makes both arrays. */
void lhi_part_room_for(const lhi_part_exchange *x, const lhi_train_part *part,
                       lhi_part_room *room);
bool lhi_part_make_room(lhi_part_exchange *x, const lhi_part_room *room,
                        lhi_arena *mem);
/* All raise *ready_ns (NULL: no clock is shared), when this rank was ready, to
 * when all were. `tag`: LHI_PART_TAGS from it on are taken. `room`: of what is sharded,
 * which it takes the values to or the gradients from. */
lh_status lhi_part_gather(const lhi_part_exchange *x,
                          const lhi_train_part *part, float *room, uint64_t tag,
                          int64_t *ready_ns, lh_error *err);
/* What is sharded `adds` to the sums of an earlier group of microbatches. */
lh_status lhi_part_scatter(const lhi_part_exchange *x,
                           const lhi_train_part *part, const float *room,
                           bool adds, uint64_t tag, int64_t *ready_ns,
                           lh_error *err);

/* Once what a part has is reduced: its sums with those of other sites. So many
 * times LHI_PART_TAGS from `tag` on are taken. *ready_ns as above. */
uint32_t lhi_part_sum_tags(const lhi_part_exchange *x);
lh_status lhi_part_sum(const lhi_part_exchange *x, const lhi_train_part *part,
                       uint64_t tag, int64_t *ready_ns, lh_error *err);

/* Sums over sites. Each shard sums its own with its peers, or the first one of
 * a site those of all (leaders: LH_SHARDING_HYBRID_LEADERS). */
typedef struct lhi_site_sums {
    lhi_net *net;
    const lhi_net_group *group, *across; /* as above; `across` may be of one */
    bool leaders;
} lhi_site_sums;

/* Tags of one call, from `tag` on, in steps of LHI_NET_TAGS. */
static inline uint32_t lhi_site_sum_tags(const lhi_net_group *group)
{
    return 4 * group->n_ranks;
}

/* Adds up the n values that every site has, in the sites' order: all get the
 * sums. `room`: n values, for leaders alone. *ready_ns as above. */
lh_status lhi_sum_sites(const lhi_site_sums *s, float *values, size_t n,
                        float *room, uint64_t tag, int64_t *ready_ns,
                        lh_error *err);

#endif
