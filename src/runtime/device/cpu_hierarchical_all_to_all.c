/* SPDX-License-Identifier: Apache-2.0 */
/* Selection of relay ranks for the hierarchical all-to-all. */
#include "runtime/device/cpu_node_dispatch.h"

/* Returns the number of ranks before `member` that are on the same node;
 * nodes[i] is rank i's node. */
static uint32_t find_index_on_node(const uint32_t *nodes, uint32_t member)
{
    uint32_t place = 0;
    for (uint32_t i = 0; i < member; i++)
        place += nodes[i] == nodes[member];
    return place;
}

uint32_t lhi_cpu_find_relay(const uint32_t *nodes, uint32_t n, uint32_t member,
                            uint32_t node)
{
    uint32_t size = 0, i = 0;
    for (uint32_t k = 0; k < n; k++)
        size += nodes[k] == node;
    uint32_t left = find_index_on_node(nodes, member) % size;
    while (nodes[i] != node || left-- > 0)
        i++;
    return i;
}

/* Computes the numbers of nodes, of ranks on this rank's node, and of ranks for
 * which this rank relays tokens; all 0 if there is one node. */
lhi_cpu_node_topology lhi_cpu_compute_node_topology(const lhi_cpu_options *o)
{
    const uint32_t *nodes = o->expert_nodes;
    lhi_cpu_node_topology s = {0};
    for (uint32_t i = 0; nodes && i < o->n_expert; i++) {
        s.nodes += find_index_on_node(nodes, i) == 0;
        s.node_ranks += nodes[i] == nodes[o->expert];
        s.sources += lhi_cpu_find_relay(nodes, o->n_expert, i,
                                        nodes[o->expert]) == o->expert;
    }
    return s.nodes > 1 ? s : (lhi_cpu_node_topology){0};
}
