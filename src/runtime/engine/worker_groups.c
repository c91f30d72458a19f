/* SPDX-License-Identifier: Apache-2.0 */
/* A device's process groups. */
#include "runtime/engine/worker.h"

/* Groups that passes use: kind and link. */
static const struct {
    lhi_grid_group_kind kind;
    lh_train_group_kind link;
} pass_groups[] = {
    {LHI_GRID_TENSOR, LH_TRAIN_GROUP_TENSOR},
    {LHI_GRID_CONTEXT, LH_TRAIN_GROUP_CONTEXT},
    {LHI_GRID_EXPERT, LH_TRAIN_GROUP_EXPERT},
    {LHI_GRID_EXPERT_TENSOR, LH_TRAIN_GROUP_EXPERT_TENSOR},
};
/* Number of process groups that passes use. */
enum { N_PASS_GROUPS = sizeof pass_groups / sizeof *pass_groups };

/* Makes the rank's process group number `i` (context, tensor, expert and
 * others) and its emulated link; makes none for a group of one rank. */
static lh_status make_group(lhi_run_worker *w, unsigned i, lh_error *err)
{
    const lhi_job *job = w->job;
    const lhi_grid_group_kind kind = pass_groups[i].kind;
    const uint32_t stage = lhi_grid_find_coords(&job->grid, w->me).device;
    uint32_t ranks[LHI_NET_MAX_RANKS];
    lhi_group_options o = {.n_ranks =
                               lhi_grid_group_size(&job->grid, kind, stage),
                           .ranks = ranks,
                           .tag = lhi_tag(LHI_TAG_GROUP, kind, 0),
                           .stop = w->stop};
    if (o.n_ranks == 1)
        return LH_OK;
    o.mine = lhi_grid_find_group(&job->grid, kind, w->me, ranks);
    LHI_TRY(lhi_group_make(w->net, &o, &w->groups[kind], err));
    const lh_train_group_link *link = &job->model->groups[pass_groups[i].link];
    if (job->emulates)
        lhi_group_set_link(w->groups[kind], link->latency_ns,
                           link->ns_per_byte);
    return LH_OK;
}

/* Makes the communication group of the ranks with different experts on this
 * rank's node. If the node has the whole expert group, that group gets the
 * node's link. */
static lh_status make_node_experts(lhi_run_worker *w, lh_error *err)
{
    const lhi_job *job = w->job;
    const lh_train_model *m = job->model;
    uint32_t ranks[LHI_NET_MAX_RANKS];
    const uint32_t n = lhi_grid_group_size(&job->grid, LHI_GRID_EXPERT, 0);
    lhi_group_options o = {.ranks = ranks,
                           .tag = lhi_tag(LHI_TAG_GROUP, LHI_N_GRID_KINDS, 0),
                           .stop = w->stop};
    if (!m->nodes || n == 1)
        return LH_OK;
    o.mine = lhi_grid_find_group(&job->grid, LHI_GRID_EXPERT, w->me, ranks);
    o.n_ranks =
        lhi_grid_select_same_node(&job->grid, m->nodes, n, ranks, &o.mine);
    lhi_group *near = w->groups[LHI_GRID_EXPERT];
    if (o.n_ranks == 1)
        return LH_OK;
    if (o.n_ranks < n) {
        LHI_TRY(lhi_group_make(w->net, &o, &w->node_experts, err));
        near = w->node_experts;
    }
    if (job->emulates)
        lhi_group_set_link(near, m->intra_node_experts.latency_ns,
                           m->intra_node_experts.ns_per_byte);
    return LH_OK;
}

lh_status lhi_run_worker_join_groups(lhi_run_worker *w, lh_error *err)
{
    for (unsigned i = 0; w->job->model && i < N_PASS_GROUPS; i++)
        LHI_TRY(make_group(w, i, err));
    if (w->job->model)
        LHI_TRY(make_node_experts(w, err));
    const lhi_device_groups with = {.tensor = w->groups[LHI_GRID_TENSOR],
                                    .context = w->groups[LHI_GRID_CONTEXT],
                                    .expert = w->groups[LHI_GRID_EXPERT],
                                    .expert_tensor =
                                        w->groups[LHI_GRID_EXPERT_TENSOR],
                                    .intra_node_expert = w->node_experts};
    if (w->device->ops->join)
        w->device->ops->join(w->device, &with);
    return LH_OK;
}

void lhi_run_worker_group_times(const lhi_run_worker *w,
                                double ns[LH_N_TRAIN_GROUPS])
{
    for (unsigned i = 0; i < N_PASS_GROUPS; i++) {
        const lhi_group *group = w->groups[pass_groups[i].kind];
        double all_ns = group ? (double)lhi_group_duration_ns(group) : 0;
        ns[pass_groups[i].link] =
            all_ns - w->validation_ns[pass_groups[i].link];
    }
    if (w->node_experts)
        ns[LH_TRAIN_GROUP_EXPERT] +=
            (double)lhi_group_duration_ns(w->node_experts);
}

void lhi_run_worker_leave_groups(lhi_run_worker *w)
{
    for (uint32_t i = 0; i < LHI_N_GRID_KINDS; i++)
        lhi_group_free(w->groups[i]);
    lhi_group_free(w->node_experts);
}
