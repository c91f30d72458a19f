/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/engine/shard_groups.h"

#include "base/fail.h"
#include "format/job/family.h"
#include "runtime/transport/transport.h"

#include <inttypes.h>

/* A group of ranks that sums the same gradients. */
typedef struct gradient_group {
    const lh_train_model *m;
    uint32_t n, stage;
    const lhi_grid *grid;
    const uint32_t *places; /* per member; NULL: equally many per replica */
} gradient_group;

/* Returns the group of the n ranks that add the gradients of a stage's
 * parameters (except those of experts, if disjoint). */
static gradient_group get_data_group(const lh_train_model *m, uint32_t n,
                                     uint32_t stage)
{
    return (gradient_group){m, n, stage, NULL, NULL};
}

/* Returns the group of ranks that have the same experts as logical rank
 * `place`. `places` receives the group's logical ranks, *member the index of
 * `place` among them. */
static gradient_group get_expert_group(const lh_train_model *m,
                                       const lhi_grid *grid, uint32_t place,
                                       uint32_t *places, uint32_t *member)
{
    *member = lhi_grid_find_group(grid, LHI_GRID_EXPERT_DATA, place, places);
    const uint32_t stage = lhi_grid_find_coords(grid, place).device;
    return (gradient_group){
        m, lhi_grid_group_size(grid, LHI_GRID_EXPERT_DATA, stage), stage, grid,
        places};
}

/* Returns the datacenter of group member `member`; 0 without hybrid sharding.
 * If the optimizer is not sharded, each member counts as its own datacenter. */
static uint32_t get_site(const gradient_group *s, uint32_t member)
{
    const lh_train_model *m = s->m;
    uint32_t replicas = m->replicas ? m->replicas : 1, replica;
    if (m->unsharded_optimizer)
        return member;
    if (!m->sites)
        return 0;
    replica = s->places
                  ? lhi_grid_find_coords(s->grid, s->places[member]).replica
                  : member / (s->n / replicas);
    return m->sites[(size_t)s->stage * replicas + replica];
}

/* Counts the group members at `member`'s datacenter. */
static uint32_t count_at_site(const gradient_group *s, uint32_t member)
{
    uint32_t site = get_site(s, member), n = 0;
    for (uint32_t i = 0; i < s->n; i++)
        n += get_site(s, i) == site;
    return n;
}

/* Checks whether no earlier group member is at the same datacenter. */
static bool is_first_at_site(const gradient_group *s, uint32_t member)
{
    uint32_t site = get_site(s, member), i = 0;
    while (get_site(s, i) != site)
        i++;
    return i == member;
}

/* Returns the shard of member `member` among the members at its datacenter, the
 * datacenter's index, and the numbers of both. */
static lhi_shard_groups find_groups(const gradient_group *s, uint32_t member)
{
    lhi_shard_groups out = {0};
    uint32_t site = get_site(s, member);
    for (uint32_t i = 0; i < s->n; i++) {
        bool here = get_site(s, i) == site;
        if (is_first_at_site(s, i)) {
            out.site = here ? out.n_sites : out.site;
            out.n_sites++;
        }
        out.shard += here && i < member;
        out.n_shards += here;
    }
    return out;
}

/* Lists the group members at the same datacenter as member `member` in
 * `sharers`, and the members with the same shard at each datacenter in
 * `across`. ranks[i]: rank of member i. */
static void list_members(const gradient_group *s, uint32_t member,
                         const uint32_t *ranks, uint32_t *sharers,
                         uint32_t *across)
{
    const lhi_shard_groups mine = find_groups(s, member);
    uint32_t n_sharers = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        const lhi_shard_groups other = find_groups(s, i);
        if (other.site == mine.site)
            sharers[n_sharers++] = ranks[i];
        if (other.shard == mine.shard)
            across[other.site] = ranks[i];
    }
}

lhi_shard_groups lhi_shard_groups_find(const lh_train_model *m, uint32_t n,
                                       uint32_t stage, uint32_t member)
{
    const gradient_group s = get_data_group(m, n, stage);
    return find_groups(&s, member);
}

void lhi_shard_groups_list_members(const lh_train_model *m, uint32_t n,
                                   uint32_t stage, uint32_t member,
                                   const uint32_t *ranks, uint32_t *sharers,
                                   uint32_t *across)
{
    const gradient_group s = get_data_group(m, n, stage);
    list_members(&s, member, ranks, sharers, across);
}

bool lhi_shard_groups_equal_at_stages(const lh_train_model *m, uint32_t n,
                                      uint32_t n_stages)
{
    bool all_equal = true;
    for (uint32_t i = 0; m->sites && i < n * n_stages; i++)
        all_equal =
            all_equal && lhi_shard_groups_find(m, n, i / n, i % n).shard ==
                             lhi_shard_groups_find(m, n, 0, i % n).shard;
    return all_equal;
}

bool lhi_has_disjoint_expert_groups(const lh_train_model *m,
                                    const lhi_grid *grid)
{
    return m->model->experts > 0 &&
           (grid->expert > 1 || grid->expert_tensor != grid->tensor);
}

lhi_shard_groups lhi_expert_shard_groups_find(const lh_train_model *m,
                                              const lhi_grid *grid,
                                              uint32_t place)
{
    uint32_t places[LHI_NET_MAX_RANKS], member;
    const gradient_group s = get_expert_group(m, grid, place, places, &member);
    return find_groups(&s, member);
}

void lhi_expert_shard_groups_list_members(const lh_train_model *m,
                                          const lhi_grid *grid, uint32_t place,
                                          const uint32_t *ranks,
                                          uint32_t *sharers, uint32_t *across)
{
    uint32_t places[LHI_NET_MAX_RANKS], member;
    const gradient_group s = get_expert_group(m, grid, place, places, &member);
    list_members(&s, member, ranks, sharers, across);
}

/* Fails with LH_EUNSUPPORTED unless every datacenter has the same number of
 * shards, and each replica has the same shard of both copies of a tied
 * embedding. */
static lh_status check_replicas(const lh_train_model *m, const lhi_grid *grid,
                                lh_error *err)
{
    const uint32_t n = lhi_grid_group_size(grid, LHI_GRID_DATA, 0);
    const lhi_shard_groups first = lhi_shard_groups_find(m, n, 0, 0);
    for (uint32_t s = 0; s < grid->n_devices; s++)
        for (uint32_t r = 0; r < n; r++) {
            const lhi_shard_groups here = lhi_shard_groups_find(m, n, s, r);
            if (here.n_shards != first.n_shards)
                return lhi_fail(err, LH_EUNSUPPORTED,
                                "stage %" PRIu32 " has %" PRIu32
                                " replicas at the site of replica %" PRIu32
                                ", stage 0 has %" PRIu32
                                " at the site of replica 0; the cpu device "
                                "requires the same number at every site: plan "
                                "with sharding: full in the job's layout",
                                s, here.n_shards, r, first.n_shards);
            if (lhi_needs_second_embedding(m->model) &&
                here.shard != lhi_shard_groups_find(m, n, 0, r).shard)
                return lhi_fail(
                    err, LH_EUNSUPPORTED,
                    "replica %" PRIu32 " has another shard at stage %" PRIu32
                    " than at stage 0, but both have the same embedding: plan "
                    "with sharding: full in the job's layout",
                    r, s);
        }
    return LH_OK;
}

/* Checks that each datacenter has the same number of ranks with the same
 * experts. */
static lh_status check_experts(const lh_train_model *m, const lhi_grid *grid,
                               lh_error *err)
{
    uint32_t places[LHI_NET_MAX_RANKS], member, first = 0;
    for (uint32_t p = 0; p < lhi_grid_count_ranks(grid); p++) {
        const gradient_group s = get_expert_group(m, grid, p, places, &member);
        uint32_t here = count_at_site(&s, member);
        first = p ? first : here;
        if (here != first)
            return lhi_fail(err, LH_EUNSUPPORTED,
                            "%" PRIu32 " ranks at the site of rank %" PRIu32
                            " have its experts, but %" PRIu32
                            " at the site of rank 0 have that "
                            "rank's; the cpu device requires the "
                            "same number at every site: plan with "
                            "sharding: full, or an expert degree "
                            "that divides the ranks of a site, in "
                            "the job's layout",
                            here, p, first);
    }
    return LH_OK;
}

lh_status lhi_shard_groups_check(const lh_train_model *m, const lhi_grid *grid,
                                 lh_error *err)
{
    if (!m->sites)
        return LH_OK;
    LHI_TRY(check_replicas(m, grid, err));
    return lhi_has_disjoint_expert_groups(m, grid) ? check_experts(m, grid, err)
                                                   : LH_OK;
}
