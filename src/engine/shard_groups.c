/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/shard_groups.h"

#include "base/fail.h"

#include <inttypes.h>

/* Of `n` that sum gradients: each replica has as many of them. */
static uint32_t site_of(const lh_train_model *m, uint32_t n, uint32_t stage,
                        uint32_t member)
{
    uint32_t replicas = m->replicas ? m->replicas : 1;
    uint32_t replica = member / (n / replicas);
    if (m->whole_optimizer)
        return member;
    return m->sites ? m->sites[(size_t)stage * replicas + replica] : 0;
}

/* Whether no earlier replica is at its site. */
static bool is_first(const lh_train_model *m, uint32_t n, uint32_t stage,
                     uint32_t member)
{
    uint32_t site = site_of(m, n, stage, member), i = 0;
    while (site_of(m, n, stage, i) != site)
        i++;
    return i == member;
}

lhi_shard_groups lhi_shard_groups_of(const lh_train_model *m, uint32_t n,
                                     uint32_t stage, uint32_t member)
{
    lhi_shard_groups out = {0};
    uint32_t site = site_of(m, n, stage, member);
    for (uint32_t i = 0; i < n; i++) {
        bool here = site_of(m, n, stage, i) == site;
        if (is_first(m, n, stage, i)) {
            out.site = here ? out.n_sites : out.site;
            out.n_sites++;
        }
        out.shard += here && i < member;
        out.n_shards += here;
    }
    return out;
}

void lhi_shard_members(const lh_train_model *m, uint32_t n, uint32_t stage,
                       uint32_t member, const uint32_t *ranks,
                       uint32_t *sharers, uint32_t *across)
{
    const lhi_shard_groups mine = lhi_shard_groups_of(m, n, stage, member);
    uint32_t n_sharers = 0;
    for (uint32_t i = 0; i < n; i++) {
        const lhi_shard_groups other = lhi_shard_groups_of(m, n, stage, i);
        if (other.site == mine.site)
            sharers[n_sharers++] = ranks[i];
        if (other.shard == mine.shard)
            across[other.site] = ranks[i];
    }
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

lh_status lhi_shard_groups_check(const lh_train_model *m, uint32_t n,
                                 uint32_t n_stages, lh_error *err)
{
    const lhi_shard_groups first = lhi_shard_groups_of(m, n, 0, 0);
    for (uint32_t s = 0; m->sites && s < n_stages; s++)
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
            if (m->model->tied_embeddings &&
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
