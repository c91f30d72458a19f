/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/shard_groups.h"

#include "base/fail.h"
#include "net/net.h"
#include "spec/family.h"

#include <inttypes.h>

/* A group of ranks that sums the same gradients. */
typedef struct summers {
    const lh_train_model *m;
    uint32_t n, stage;
    const lhi_grid *grid;
    const uint32_t *places; /* per member; NULL: equally many per replica */
} summers;

static summers of_data(const lh_train_model *m, uint32_t n, uint32_t stage)
{
    return (summers){m, n, stage, NULL, NULL};
}

/* Fills `places` with the logical ranks in the expert group. */
static summers of_experts(const lh_train_model *m, const lhi_grid *grid,
                          uint32_t place, uint32_t *places, uint32_t *member)
{
    *member = lhi_grid_group(grid, LHI_GRID_EXPERT_DATA, place, places);
    return (summers){m, lhi_grid_size(grid, LHI_GRID_EXPERT_DATA),
                     place % grid->n_devices, grid, places};
}

static uint32_t site_of(const summers *s, uint32_t member)
{
    const lh_train_model *m = s->m;
    uint32_t replicas = m->replicas ? m->replicas : 1, replica;
    if (m->whole_optimizer)
        return member;
    if (!m->sites)
        return 0;
    replica = s->places ? lhi_grid_place_of(s->grid, s->places[member]).replica
                        : member / (s->n / replicas);
    return m->sites[(size_t)s->stage * replicas + replica];
}

/* Counts the members at a member's site. */
static uint32_t count_here(const summers *s, uint32_t member)
{
    uint32_t site = site_of(s, member), n = 0;
    for (uint32_t i = 0; i < s->n; i++)
        n += site_of(s, i) == site;
    return n;
}

/* Checks whether no earlier member is at the same site. */
static bool is_first(const summers *s, uint32_t member)
{
    uint32_t site = site_of(s, member), i = 0;
    while (site_of(s, i) != site)
        i++;
    return i == member;
}

static lhi_shard_groups groups_of(const summers *s, uint32_t member)
{
    lhi_shard_groups out = {0};
    uint32_t site = site_of(s, member);
    for (uint32_t i = 0; i < s->n; i++) {
        bool here = site_of(s, i) == site;
        if (is_first(s, i)) {
            out.site = here ? out.n_sites : out.site;
            out.n_sites++;
        }
        out.shard += here && i < member;
        out.n_shards += here;
    }
    return out;
}

/* Lists the members at the same site, and those with the same shard at each
 * site. */
static void members_of(const summers *s, uint32_t member, const uint32_t *ranks,
                       uint32_t *sharers, uint32_t *across)
{
    const lhi_shard_groups mine = groups_of(s, member);
    uint32_t n_sharers = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        const lhi_shard_groups other = groups_of(s, i);
        if (other.site == mine.site)
            sharers[n_sharers++] = ranks[i];
        if (other.shard == mine.shard)
            across[other.site] = ranks[i];
    }
}

lhi_shard_groups lhi_shard_groups_of(const lh_train_model *m, uint32_t n,
                                     uint32_t stage, uint32_t member)
{
    const summers s = of_data(m, n, stage);
    return groups_of(&s, member);
}

void lhi_shard_members(const lh_train_model *m, uint32_t n, uint32_t stage,
                       uint32_t member, const uint32_t *ranks,
                       uint32_t *sharers, uint32_t *across)
{
    const summers s = of_data(m, n, stage);
    members_of(&s, member, ranks, sharers, across);
}

bool lhi_shard_groups_alike(const lh_train_model *m, uint32_t n,
                            uint32_t n_stages)
{
    bool alike = true;
    for (uint32_t i = 0; m->sites && i < n * n_stages; i++)
        alike = alike &&
                lhi_shard_groups_of(m, n, i / n, i % n).shard ==
                    lhi_shard_groups_of(m, n, 0, i % n).shard;
    return alike;
}

bool lhi_experts_apart(const lh_train_model *m, const lhi_grid *grid)
{
    return m->model->experts > 0 &&
           (grid->expert > 1 || grid->expert_tensor != grid->tensor);
}

lhi_shard_groups lhi_expert_groups_of(const lh_train_model *m,
                                      const lhi_grid *grid, uint32_t place)
{
    uint32_t places[LHI_NET_MOST_RANKS], member;
    const summers s = of_experts(m, grid, place, places, &member);
    return groups_of(&s, member);
}

void lhi_expert_members(const lh_train_model *m, const lhi_grid *grid,
                        uint32_t place, const uint32_t *ranks,
                        uint32_t *sharers, uint32_t *across)
{
    uint32_t places[LHI_NET_MOST_RANKS], member;
    const summers s = of_experts(m, grid, place, places, &member);
    members_of(&s, member, ranks, sharers, across);
}

static lh_status check_replicas(const lh_train_model *m, const lhi_grid *grid,
                                lh_error *err)
{
    const uint32_t n = lhi_grid_size(grid, LHI_GRID_DATA);
    const lhi_shard_groups first = lhi_shard_groups_of(m, n, 0, 0);
    for (uint32_t s = 0; s < grid->n_devices; s++)
        for (uint32_t r = 0; r < n; r++) {
            const lhi_shard_groups here = lhi_shard_groups_of(m, n, s, r);
            if (here.n_shards != first.n_shards)
                return lhi_fail(
                    err, LH_EUNSUPPORTED,
                    "stage %" PRIu32 " has %" PRIu32 " replicas at the site of "
                    "replica %" PRIu32 ", stage 0 has %" PRIu32 " at the site "
                    "of replica 0; the cpu device shards over sites that have "
                    "as many each: plan with sharding: full in the job's "
                    "layout",
                    s, here.n_shards, r, first.n_shards);
            if (lhi_embeds_twice(m->model) &&
                here.shard != lhi_shard_groups_of(m, n, 0, r).shard)
                return lhi_fail(
                    err, LH_EUNSUPPORTED,
                    "replica %" PRIu32 " is another one of its site at stage "
                    "%" PRIu32 " than at stage 0, and both have the same "
                    "embedding: plan with sharding: full in the job's layout",
                    r, s);
        }
    return LH_OK;
}

static lh_status check_experts(const lh_train_model *m, const lhi_grid *grid,
                               lh_error *err)
{
    uint32_t places[LHI_NET_MOST_RANKS], member, first = 0;
    for (uint32_t p = 0; p < lhi_grid_ranks(grid); p++) {
        const summers s = of_experts(m, grid, p, places, &member);
        uint32_t here = count_here(&s, member);
        first = p ? first : here;
        if (here != first)
            return lhi_fail(
                err, LH_EUNSUPPORTED,
                "%" PRIu32 " ranks at the site of rank %" PRIu32 " have its "
                "experts, and %" PRIu32 " at that of rank 0 have the same as "
                "that one; the cpu device shards experts over sites where as "
                "many ranks have them: plan with sharding: full, or an expert "
                "that divides the ranks of a site, in the job's layout",
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
    return lhi_experts_apart(m, grid) ? check_experts(m, grid, err) : LH_OK;
}
