/* SPDX-License-Identifier: Apache-2.0 */
/* Process groups along the dimensions of a layout. */
#ifndef LHI_MODEL_GROUPS_H
#define LHI_MODEL_GROUPS_H

#include "model/group_layout.h"

/* Computes the members of a data-parallel group (LH_COST_DATA_SHARED) in one
 * datacenter. */
void lhi_compute_site_group(const lh_job *job, const lh_layout *layout,
                            const lh_cost_layer_range *slice,
                            const lh_cost_site *site, lh_cost_group *out);

#endif
