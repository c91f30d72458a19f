/* SPDX-License-Identifier: Apache-2.0 */
/* The process groups of a device. */
#include "engine/member.h"

/* Groups that passes use: kind and link. */
static const struct {
    lhi_grid_kind kind;
    lh_train_group_kind link;
} called[] = {
    {LHI_GRID_TENSOR, LH_TRAIN_GROUP_TENSOR},
    {LHI_GRID_CONTEXT, LH_TRAIN_GROUP_CONTEXT},
    {LHI_GRID_EXPERT, LH_TRAIN_GROUP_EXPERT},
    {LHI_GRID_EXPERT_TENSOR, LH_TRAIN_GROUP_EXPERT_TENSOR},
};
enum { N_CALLED = sizeof called / sizeof *called };

static lh_status make_group(lhi_member *w, unsigned i, lh_error *err)
{
    const lhi_job *job = w->job;
    const lhi_grid_kind kind = called[i].kind;
    uint32_t ranks[LHI_NET_MOST_RANKS];
    lhi_group_options o = {.n_ranks = lhi_grid_size(&job->grid, kind),
                           .ranks = ranks,
                           .tag = lhi_tag(LHI_TAG_GROUP, kind, 0),
                           .stop = w->stop};
    if (o.n_ranks == 1)
        return LH_OK;
    o.mine = lhi_grid_group(&job->grid, kind, w->me, ranks);
    LHI_TRY(lhi_group_make(w->net, &o, &w->groups[kind], err));
    const lh_train_group *link = &job->model->groups[called[i].link];
    if (job->emulates)
        lhi_group_set_link(w->groups[kind], link->latency_ns,
                           link->ns_per_byte);
    return LH_OK;
}

/* Makes the node-local group among the ranks with different experts. If it has
 * all of them, the expert group gets the node's link. */
static lh_status make_near_experts(lhi_member *w, lh_error *err)
{
    const lhi_job *job = w->job;
    const lh_train_model *m = job->model;
    uint32_t ranks[LHI_NET_MOST_RANKS];
    const uint32_t n = lhi_grid_size(&job->grid, LHI_GRID_EXPERT);
    lhi_group_options o = {.ranks = ranks,
                           .tag = lhi_tag(LHI_TAG_GROUP, LHI_N_GRID_KINDS, 0),
                           .stop = w->stop};
    if (!m->nodes || n == 1)
        return LH_OK;
    o.mine = lhi_grid_group(&job->grid, LHI_GRID_EXPERT, w->me, ranks);
    o.n_ranks = lhi_grid_near(&job->grid, m->nodes, n, ranks, &o.mine);
    lhi_group *near = w->groups[LHI_GRID_EXPERT];
    if (o.n_ranks == 1)
        return LH_OK;
    if (o.n_ranks < n) {
        LHI_TRY(lhi_group_make(w->net, &o, &w->near_experts, err));
        near = w->near_experts;
    }
    if (job->emulates)
        lhi_group_set_link(near, m->near_experts.latency_ns,
                           m->near_experts.ns_per_byte);
    return LH_OK;
}

lh_status lhi_member_join_groups(lhi_member *w, lh_error *err)
{
    for (unsigned i = 0; w->job->model && i < N_CALLED; i++)
        LHI_TRY(make_group(w, i, err));
    if (w->job->model)
        LHI_TRY(make_near_experts(w, err));
    const lhi_device_groups with = {.tensor = w->groups[LHI_GRID_TENSOR],
                                    .context = w->groups[LHI_GRID_CONTEXT],
                                    .expert = w->groups[LHI_GRID_EXPERT],
                                    .expert_tensor =
                                        w->groups[LHI_GRID_EXPERT_TENSOR],
                                    .near_expert = w->near_experts};
    if (w->device->ops->join)
        w->device->ops->join(w->device, &with);
    return LH_OK;
}

void lhi_member_spent(const lhi_member *w, double ns[LH_N_TRAIN_GROUPS])
{
    for (unsigned i = 0; i < N_CALLED; i++) {
        const lhi_group *group = w->groups[called[i].kind];
        double all_ns = group ? (double)lhi_group_spent_ns(group) : 0;
        ns[called[i].link] = all_ns - w->validating_ns[called[i].link];
    }
    if (w->near_experts)
        ns[LH_TRAIN_GROUP_EXPERT] += (double)lhi_group_spent_ns(w->near_experts);
}

void lhi_member_leave_groups(lhi_member *w)
{
    for (uint32_t i = 0; i < LHI_N_GRID_KINDS; i++)
        lhi_group_free(w->groups[i]);
    lhi_group_free(w->near_experts);
}
