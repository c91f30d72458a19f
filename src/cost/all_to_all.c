/* SPDX-License-Identifier: Apache-2.0 */
/* Everyone sends to everyone: within a node, a datacenter and between
 * datacenters at the same time, over the paths there. */
#include "cost/cost_links.h"

#include "base/fail.h"

#include <math.h>

/* Members of the group in each of its datacenters. */
static double in_datacenter(const lh_cost_group *group)
{
    return fmin(group->size, group->per_datacenter);
}

/* What goes between datacenters, and the path there. */
static lh_status across(const lh_job *job, const lh_cost_group *group,
                        const lh_cost_options *options, double each, double *ns,
                        double *latency_ns, lh_error *err)
{
    double elsewhere = group->size - in_datacenter(group);
    lh_cost_path path;

    *ns = *latency_ns = 0;
    if (elsewhere < 1)
        return LH_OK;
    LHI_TRY(lh_cost_group_path(job, group, options, &path, err));
    *ns = elsewhere * each * 1e9 / path.bytes_per_s;
    *latency_ns = elsewhere * path.latency_ns;
    return LH_OK;
}

/* To members on the own node, or on other nodes of the datacenter; there each
 * GPU has its own interface and no other. */
static lh_status within(const lh_job *job, const lh_cost_group *group,
                        const lh_cost_options *options, double members,
                        bool same_node, double each, double *ns,
                        double *latency_ns, lh_error *err)
{
    lh_cost_path path;

    *ns = *latency_ns = 0;
    if (members < 1)
        return LH_OK;
    LHI_TRY(
        lhi_inside(job, group->datacenter, same_node, 1, options, &path, err));
    *ns = members * each * 1e9 / path.bytes_per_s;
    *latency_ns = members * path.latency_ns;
    return LH_OK;
}

lh_status lh_cost_all_to_all(const lh_job *job, const lh_cost_group *group,
                             double bytes, const lh_cost_options *options,
                             double *transfer_ns, double *latency_ns,
                             lh_error *err)
{
    double node, fabric, wan, late[3], each = bytes / group->size;
    double near = fmin(group->size, group->per_node);
    double here = in_datacenter(group);
    lh_cost_options full;

    LHI_TRY(lhi_cost_options(options, &full, err));
    if (!group->size || !group->per_node || !group->per_datacenter ||
        group->datacenter >= job->n_datacenters)
        return lhi_fail(err, LH_EINVAL, "incomplete group of GPUs");
    LHI_TRY(
        within(job, group, &full, near - 1, true, each, &node, &late[0], err));
    LHI_TRY(within(job, group, &full, here - near, false, each, &fabric,
                   &late[1], err));
    LHI_TRY(across(job, group, &full, each, &wan, &late[2], err));
    /* The interface sends for both other nodes and other datacenters. */
    *transfer_ns = fmax(node, fabric + wan);
    *latency_ns = late[0] + late[1] + late[2];
    return LH_OK;
}
