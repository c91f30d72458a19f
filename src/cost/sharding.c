/* SPDX-License-Identifier: Apache-2.0 */
/* Communication of data parallelism [Raj section 7] inside datacenters and
 * between them. */
#include "cost/sharding.h"

#include "base/fail.h"

typedef struct sharer {
    const lh_job *job;
    const lh_layout *layout;
    const lh_cost_slice *slice;
    const lh_cost_options *options;
    lhi_busiest *known;
} sharer;

/* Over how many datacenters a group spreads. */
static uint32_t spread_of(const lh_cost_group *group)
{
    return group->n_sites > 1 ? group->n_sites
                              : group->size / group->per_datacenter;
}

static void add_times(lhi_collective *to, const lhi_collective *what)
{
    to->transfer += what->transfer;
    to->latency += what->latency;
}

/* Inside one datacenter, where `group` has only members of that. */
static lh_status in_one(const sharer *s, lh_collective_kind kind,
                        const lh_cost_group *group, double bytes,
                        lhi_collective *out, lh_error *err)
{
    lh_cost_path path;

    *out = (lhi_collective){0};
    if (group->size < 2)
        return LH_OK;
    LHI_TRY(lhi_group_path(s->job, group, s->options, s->known, &path, err));
    lh_cost_collective_ring(s->options->rings, kind, group->size, bytes, &path,
                            &out->transfer, &out->latency);
    return LH_OK;
}

/* Inside the datacenter in which that takes longest. */
static lh_status inside(const sharer *s, lh_collective_kind kind,
                        lh_cost_dimension dimension, const lh_cost_group *group,
                        double bytes, lhi_collective *out, lh_error *err)
{
    lh_cost_group inner = *group;

    *out = (lhi_collective){0};
    if (group->n_sites < 2) {
        inner.size = group->per_datacenter;
        return in_one(s, kind, &inner, bytes, out, err);
    }
    for (uint32_t i = 0; i < group->n_sites; i++) {
        lhi_collective here;

        lhi_group_at(s->job, s->layout, dimension, &group->sites[i], &inner);
        LHI_TRY(in_one(s, kind, &inner, bytes, &here, err));
        if (here.transfer + here.latency > out->transfer + out->latency)
            *out = here;
    }
    return LH_OK;
}

/* Between the datacenters, one member in each: of as many rings at once as a
 * datacenter has members, or of one ring. Only the few members of such a ring
 * pay the long latency. */
static lh_status between(const sharer *s, lh_collective_kind kind,
                         const lh_cost_group *group, double bytes,
                         bool one_ring, lhi_collective *out, lh_error *err)
{
    uint32_t n = spread_of(group);
    lh_cost_group ring = *group;
    lh_cost_path path;

    *out = (lhi_collective){0};
    if (n < 2)
        return LH_OK;
    ring.size = n;
    ring.per_node = ring.per_datacenter = 1;
    if (one_ring)
        ring.concurrent = group->concurrent / group->per_datacenter;
    LHI_TRY(lhi_group_path(s->job, &ring, s->options, s->known, &path, err));
    lh_cost_collective_ring(s->options->rings, kind, n,
                            one_ring ? bytes : bytes / group->per_datacenter,
                            &path, &out->transfer, &out->latency);
    return LH_OK;
}

/* Everything sharded over all of them: inside first, then the shares. */
static lh_status share_fully(const sharer *s, lh_collective_kind kind,
                             lh_cost_dimension dimension,
                             const lh_cost_group *group, double bytes,
                             lhi_collective *sum, lh_error *err)
{
    lhi_collective part;

    LHI_TRY(inside(s, kind, dimension, group, bytes, &part, err));
    add_times(sum, &part);
    LHI_TRY(between(s, kind, group, bytes, false, &part, err));
    add_times(sum, &part);
    return LH_OK;
}

/* Sharded inside each datacenter: what is between them is a sum
 * [SX section 4.1, there for two]. */
static lh_status share_inside(const sharer *s, lh_cost_dimension dimension,
                              const lh_cost_group *group, double gather_bytes,
                              double reduce_bytes, lhi_data_times *sum,
                              lh_error *err)
{
    bool leaders = s->layout->sharding == LH_SHARDING_HYBRID_LEADERS;
    lhi_collective part;

    LHI_TRY(
        inside(s, LH_ALL_GATHER, dimension, group, gather_bytes, &part, err));
    add_times(&sum->gather, &part);
    LHI_TRY(inside(s, LH_REDUCE_SCATTER, dimension, group, reduce_bytes, &part,
                   err));
    add_times(&sum->reduce, &part);
    LHI_TRY(
        between(s, LH_ALL_REDUCE, group, reduce_bytes, leaders, &part, err));
    add_times(&sum->between, &part);
    return LH_OK;
}

/* Of `params` parameters that the GPUs along `dimension` hold. */
static lh_status time_dimension(const sharer *s, lh_cost_dimension dimension,
                                double params, lhi_data_times *sum,
                                lh_error *err)
{
    uint32_t zero = s->job->training.zero;
    double gather = params * lh_precision_bytes(s->job->training.precision);
    double reduce = params * s->options->gradient_wire_bytes;
    lh_cost_group group;

    LHI_TRY(
        lh_cost_group_of(s->job, s->layout, dimension, s->slice, &group, err));
    if (group.size < 2 || params <= 0)
        return LH_OK;
    if (zero && s->layout->sharding > LH_SHARDING_FULL && spread_of(&group) > 1)
        return share_inside(s, dimension, &group, gather, reduce, sum, err);
    if (!zero)
        return share_fully(s, LH_ALL_REDUCE, dimension, &group, reduce,
                           &sum->reduce, err);
    LHI_TRY(share_fully(s, LH_ALL_GATHER, dimension, &group, gather,
                        &sum->gather, err));
    return share_fully(s, LH_REDUCE_SCATTER, dimension, &group, reduce,
                       &sum->reduce, err);
}

lh_status lhi_data_time(const lh_job *job, const lh_layout *layout,
                        const lh_cost_slice *slice,
                        const lh_cost_options *options,
                        const lhi_params *params, lhi_busiest *known,
                        lhi_data_times *out, lh_error *err)
{
    sharer s = {job, layout, slice, options, known};

    *out = (lhi_data_times){0};
    LHI_TRY(time_dimension(&s, LH_COST_DATA_SHARED,
                           params->total - params->experts, out, err));
    return time_dimension(&s, LH_COST_DATA, params->experts, out, err);
}

/* Members of a group in the slice's datacenter. */
static lh_status count_here(const sharer *s, lh_cost_dimension dimension,
                            double *out, lh_error *err)
{
    lh_cost_group group;

    LHI_TRY(
        lh_cost_group_of(s->job, s->layout, dimension, s->slice, &group, err));
    *out = group.per_datacenter;
    for (uint32_t i = 0; i < group.n_sites; i++) {
        lh_cost_group here;

        if (group.sites[i].datacenter != s->slice->datacenter)
            continue;
        lhi_group_at(s->job, s->layout, dimension, &group.sites[i], &here);
        *out = here.size;
    }
    return LH_OK;
}

lh_status lhi_state_ranks(const lh_job *job, const lh_layout *layout,
                          const lh_cost_slice *slice, double *shared,
                          double *experts, lh_error *err)
{
    sharer s = {job, layout, slice, NULL, NULL};

    *experts = (double)layout->data * layout->context;
    *shared = *experts * layout->expert;
    if (layout->sharding <= LH_SHARDING_FULL)
        return LH_OK;
    LHI_TRY(count_here(&s, LH_COST_DATA_SHARED, shared, err));
    return count_here(&s, LH_COST_DATA, experts, err);
}
