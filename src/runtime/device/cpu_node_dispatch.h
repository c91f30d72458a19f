/* SPDX-License-Identifier: Apache-2.0 */
/* Node-aware dispatch to experts: a row is sent once to each node that has some
 * of its experts (DeepEP: arXiv:2412.19437, section 3.2.2). On each such node
 * one rank is the sender's relay: the rank with the sender's local index. On
 * its own node the sender relays for itself. A relay copies the row for each
 * expert on its node, forwards the copies within the node, sums the outputs and
 * returns one row.
 *
 * Rows arrive at the experts in the same order as without relays
 * (cpu_expert_parallel.c), so products are bitwise equal. Outputs are summed
 * node by node. */
#ifndef LHI_RUNTIME_DEVICE_CPU_NODE_DISPATCH_H
#define LHI_RUNTIME_DEVICE_CPU_NODE_DISPATCH_H

#include "runtime/device/cpu_experts.h"

/* Node-aware dispatch state. Arrays are indexed by member of the
 * expert-parallel group unless stated otherwise. */
struct lhi_cpu_node_dispatch {
    uint32_t *node_of;
    uint32_t
        *node_members; /* [node_topology.node_ranks] members on this node */
    /* [node_topology.sources] members that this rank relays */
    uint32_t *sources;
    uint32_t *relays;      /* each member's relay on this node */
    bool *is_relay;        /* relays this rank's rows on its own node */
    int32_t *headers;      /* routing headers: sent, then received */
    int32_t *first_copies; /* [node_ranks * sources * n_local_experts + 1] */
    float *sent;    /* [nodes * max_rows][h + topk], to and from relays */
    float *relayed; /* [sources * max_rows][h + topk], the relay's side */
    float *copies;  /* [...][h + 1], ordered by the expert's local rank */
};

/* Computes the node count, the ranks on this rank's node, and the ranks
 * that it relays for. All 0 if there is one node: each row is then sent
 * directly to each expert (cpu_hierarchical_all_to_all.c). */
lhi_cpu_node_topology
lhi_cpu_compute_node_topology(const lhi_cpu_options *options);
/* Returns rank `member`'s relay on `node`: the rank there that receives its
 * rows and forwards them to the node's experts. nodes[i]: node of rank i,
 * n ranks. */
uint32_t lhi_cpu_find_relay(const uint32_t *nodes, uint32_t n, uint32_t member,
                            uint32_t node);
/* Allocates the buffers for node-aware dispatch; false: out of memory. */
bool lhi_cpu_make_node_dispatch(lhi_cpu *cpu, const lhi_cpu_options *options);
/* Allocates one microbatch's tables of the token copies that this rank relays
 * to its node's experts, in one layer; false: out of memory. */
bool lhi_cpu_make_copies(const lhi_cpu *cpu, lhi_arena *mem,
                         lhi_cpu_saved_activations *kept);

/* Returns the size of one rank's choice table. */
static inline size_t lhi_cpu_choice_table_size(const lhi_cpu *cpu)
{
    return (size_t)cpu->max_rows * cpu->topk;
}
/* Returns the headers' size, in words. Each choice table has a routing weight
 * table with it. */
static inline size_t lhi_cpu_header_words(const lhi_cpu *cpu)
{
    return 2 * ((size_t)cpu->n_expert_ranks * cpu->n_local_experts +
                (cpu->node_topology.nodes + cpu->node_topology.sources) *
                    lhi_cpu_choice_table_size(cpu));
}
/* Returns the size of the table of first copies. */
static inline size_t lhi_cpu_copy_table_size(const lhi_cpu *cpu)
{
    return (size_t)cpu->node_topology.node_ranks * cpu->node_topology.sources *
               cpu->n_local_experts +
           1;
}
/* Returns an upper bound on the copies: per row at most the number of its
 * experts on this node. */
static inline size_t lhi_cpu_max_copies(const lhi_cpu *cpu)
{
    size_t experts =
        (size_t)cpu->node_topology.node_ranks * cpu->n_local_experts;
    size_t each = cpu->max_rows * (cpu->topk < experts ? cpu->topk : experts);
    size_t room = cpu->microbatch * experts * cpu->capacity;
    return cpu->node_topology.sources * (room && room < each ? room : each);
}

/* Sends rows of x [router_rows][h] to their experts, into `in` in rank order;
 * `room` is a scratch buffer of equal size.
 *
 * Without `shares` the rows carry the routing headers. From these the function
 * fills the row counts (lhi_cpu_row_counts()), this rank's part of
 * recv_offsets, and the relay's tables. With `shares` each row is followed by
 * its routing weight. */
void lhi_cpu_send_rows_via_relays(lhi_cpu *cpu, lhi_cpu_saved_activations *kept,
                                  const float *x, bool shares, float *in,
                                  float *room);
/* Returns the rows `made` by this rank's experts over the relays to the
 * tokens' ranks. Expert outputs arrive summed with routing weights. With
 * `gradients`, input gradients arrive summed, and the routing weights'
 * gradients in cpu->d_routing_weights. */
void lhi_cpu_return_rows_via_relays(lhi_cpu *cpu,
                                    const lhi_cpu_saved_activations *kept,
                                    float *made, bool gradients);
/* Adds the rows that the relays returned to the tokens' rows x
 * [router_rows][h]; `gradients`: each returned row is followed by gradients of
 * routing weights. */
void lhi_cpu_add_returned_rows(const lhi_cpu *cpu,
                               const lhi_cpu_saved_activations *kept,
                               bool gradients, float *x);

#endif
