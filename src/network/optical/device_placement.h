/* SPDX-License-Identifier: Apache-2.0 */
/* Places a job's devices on nodes. */
#ifndef LHI_NETWORK_OPTICAL_DEVICE_PLACEMENT_H
#define LHI_NETWORK_OPTICAL_DEVICE_PLACEMENT_H

#include "base/random.h"
#include "network/optical/network.h"
#include "network/optical/program.h"

/* Places devices on random nodes: samples `datacenters` distinct nodes, assigns
 * at least one device to each, and shuffles. sites[device] is the node.
 * Requires datacenters <= devices and n_nodes. LH_ENOMEM. */
lh_status lhi_device_placement_random(lhi_random *random, uint32_t n_nodes,
                                      uint32_t datacenters, uint32_t devices,
                                      uint32_t *sites, lh_error *err);

/* Computes the total length, in metres, of the shortest routes between
 * consecutive devices; sites[device] is a device's node. */
lh_status lhi_device_placement_length(const lh_topology *topology,
                                      const uint32_t *sites, uint32_t devices,
                                      int64_t *metres, lh_error *err);

/* Reorders the devices' nodes, sites[device], for the least total length of
 * shortest routes between consecutive devices; of equals, the lexicographically
 * first order. LH_EUNSUPPORTED: too many different orders. */
lh_status lhi_device_placement_order(const lh_topology *topology,
                                     uint32_t *sites, uint32_t devices,
                                     lh_error *err);

#endif
