/* SPDX-License-Identifier: Apache-2.0 */
/* Speeds while a node is missing: docs/theory/sizes.md#goodput.
 *
 * The search over sizes assumes that the speed falls in proportion to the
 * nodes. One node less may fit the batch far worse, so that the sizes of the
 * result are planned again without one node of each datacenter. */
#include "planner/size/size_internal.h"

#include "base/fail.h"

#include <math.h>
#include <string.h>

enum {
    MAX_SETTLED = 8, /* sizes whose remaining nodes are planned in turn */
    MAX_GROWN = 4    /* larger sizes that are planned in turn */
};

lh_status lhi_size_plan_node_losses(lhi_size_search *s, const lh_size *run,
                                    bool *planned, lh_error *err)
{
    lh_failures f;
    lhi_size_set_failures(s, run->spot, &f);
    *planned = false;
    for (uint32_t i = 0; i < s->job->n_datacenters; i++) {
        uint32_t rest[LH_MAX_DATACENTERS];
        const lhi_planned_size *size;
        if (!run->nodes[i] || lhi_size_count_nodes(s, run->nodes) == 1 ||
            !lhi_goodput_lacks_nodes(s->job, run->nodes, i, &f))
            continue;
        memcpy(rest, run->nodes, sizeof rest);
        rest[i]--;
        size = lhi_size_find_planned(s, rest);
        if (size && size->depth != LHI_SIZE_QUICK)
            continue;
        LHI_TRY(lhi_size_plan(s, rest, LHI_SIZE_FULL, &size, err));
        *planned = true;
    }
    return LH_OK;
}

lh_status lhi_size_settle_best(lhi_size_search *s, bool all,
                               lhi_size_is_better_fn *is_better, bool *found,
                               lh_size *out, lh_error *err)
{
    bool planned = true;
    for (int i = 0; i < MAX_SETTLED && planned; i++) {
        LHI_TRY(lhi_size_find_best(s, all, is_better, found, out, err));
        if (!*found)
            return LH_OK;
        LHI_TRY(lhi_size_plan_node_losses(s, out, &planned, err));
    }
    return lhi_size_find_best(s, all, is_better, found, out, err);
}

lh_status lhi_size_grow(lhi_size_search *s, lh_error *err)
{
    bool found = false;
    lh_size best;
    for (int i = 0; i < MAX_GROWN && s->options.deadline_s > 0; i++) {
        uint32_t nodes[LH_MAX_DATACENTERS] = {0};
        const lhi_planned_size *size;
        bool larger = false;
        LHI_TRY(lhi_size_settle_best(s, false, lhi_size_has_fewer_gpus, &found,
                                     &best, err));
        if (found)
            return LH_OK;
        LHI_TRY(lhi_size_find_best(s, true, lhi_size_is_faster, &found, &best,
                                   err));
        if (!found || !isfinite(best.train_s))
            return LH_OK;
        const double factor = best.train_s / s->options.deadline_s;
        for (uint32_t k = 0; k < s->job->n_datacenters; k++) {
            const double wanted = ceil(best.nodes[k] * fmax(factor, 1));
            nodes[k] = (uint32_t)fmin(wanted, s->ranges[k].most);
            larger = larger || nodes[k] > best.nodes[k];
        }
        if (!larger)
            return LH_OK;
        LHI_TRY(lhi_size_plan(s, nodes, LHI_SIZE_FULL, &size, err));
    }
    return LH_OK;
}
