/* SPDX-License-Identifier: Apache-2.0 */
/* Where the devices of a job are. */
#ifndef LHI_OPTICAL_PLACE_H
#define LHI_OPTICAL_PLACE_H

#include "base/random.h"
#include "optical/optical_network.h"
#include "optical/program.h"

/* Draws `datacenters` different nodes, gives each at least one device, and
 * shuffles. datacenters <= devices, nodes. `sites` has room for `devices`.
 * LH_ENOMEM. */
lh_status lhi_place_random(lhi_random *random, uint32_t n_nodes,
                           uint32_t datacenters, uint32_t devices,
                           uint32_t *sites, lh_error *err);

/* Total km of shortest routes between neighbours. */
lh_status lhi_place_km(const lh_topology *topology, const uint32_t *sites,
                       uint32_t devices, int64_t *km, lh_error *err);

/* Reorders sites so that the shortest routes between neighbours have the least
 * total km; among those the order with the lowest nodes, element by element.
 * LH_EUNSUPPORTED: too many different ways to go through them. */
lh_status lhi_place_chain(const lh_topology *topology, uint32_t *sites,
                          uint32_t devices, lh_error *err);

#endif
