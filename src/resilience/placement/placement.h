/* SPDX-License-Identifier: Apache-2.0 */
/* Hosts and links of a host placement. */
#ifndef LHI_RESILIENCE_PLACEMENT_PLACEMENT_H
#define LHI_RESILIENCE_PLACEMENT_PLACEMENT_H

#include <longhaul/experimental/host_placement.h>

/* Returns the host count: devices times replicas. */
uint32_t lhi_host_placement_n_hosts(const lh_host_placement *places);

/* Returns the link without slowdowns between hosts `from` and `to` at their
 * initial places, with name NULL. If links differ, only the pipeline's own
 * links are known; others take no time. */
lh_link lhi_host_placement_nominal_link(const lh_host_placement *places,
                                        uint32_t from, uint32_t to);

#endif
