/* SPDX-License-Identifier: Apache-2.0 */
/* How fast a path between two GPUs is: inside a datacenter and between two. */
#ifndef LHI_LINKS_H
#define LHI_LINKS_H

#include "cost/shape.h"

/* The job's profile's own numbers for a path, or NULL. */
const lh_profile_link *lhi_profile_link(const lh_job *job, lh_profile_path kind,
                                        uint32_t from, uint32_t to);

/* Inside a datacenter; `options` with defaults filled in. Between nodes a
 * group drives so many `interfaces` at once. */
lh_status lhi_inside(const lh_job *job, uint32_t datacenter, bool same_node,
                     double interfaces, const lh_cost_options *options,
                     lh_cost_path *out, lh_error *err);

/* What one GPU at `from` finds on its way to `to`; who else sends, and what, is
 * left to fill in. */
lh_link_load lhi_link_load(const lh_job *job, uint32_t from, uint32_t to,
                           const lh_cost_constants *constants);

/* Between datacenters, for one of `concurrent` equal shares of the link. */
lh_status lhi_between(const lh_job *job, uint32_t from, uint32_t to,
                      double concurrent, const lh_cost_options *options,
                      lh_cost_path *out, lh_error *err);

/* The members of a data-parallel group (LH_COST_DATA or LH_COST_DATA_SHARED)
 * that lie in one datacenter. */
void lhi_group_at(const lh_job *job, const lh_layout *layout,
                  lh_cost_dimension dimension, const lh_cost_site *site,
                  lh_cost_group *out);

#endif
