/* SPDX-License-Identifier: Apache-2.0 */
/* Process groups along a layout's dimensions. */
#ifndef LHI_MODEL_GROUPS_H
#define LHI_MODEL_GROUPS_H

#include "model/group_layout.h"

#include <longhaul/experimental/cost.h>

/* Computes the members of a data-parallel group (LH_COST_DATA_SHARED) in one
 * datacenter. */
void lhi_compute_site_group(const lh_job *job, const lh_layout *layout,
                            const lh_cost_layer_range *slice,
                            const lh_cost_site *site, lh_cost_group *out);

/* Finds the group of GPUs along one dimension of parallelism. If groups differ,
 * as expert groups may between datacenters, returns one that spans the most
 * datacenters. If some straddle nodes, `per_node` is the smallest and `nodes`
 * the largest over all groups. LH_EUNSUPPORTED: the group spans only some of
 * the range's datacenters. */
lh_status lhi_cost_find_group(const lh_job *job, const lh_layout *layout,
                              lh_cost_dimension dimension,
                              const lh_cost_layer_range *slice,
                              lh_cost_group *out, lh_error *err);

#endif
