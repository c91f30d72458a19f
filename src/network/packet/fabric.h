/* SPDX-License-Identifier: Apache-2.0 */
/* A packet network: hosts and switches, connected by ports, with the
 * shortest paths between all hosts.
 *
 * A port is an output queue and the fibre behind it, in one direction. Nodes
 * are numbered from 0 in creation order, hosts first. */
#ifndef LHI_NETWORK_PACKET_FABRIC_H
#define LHI_NETWORK_PACKET_FABRIC_H

#include "base/arena.h"

#include <longhaul/status.h>

#include <stdbool.h>
#include <stdint.h>

/* A port and the link behind it. */
typedef struct lhi_port_spec {
    uint32_t from, to;  /* nodes */
    double bytes_per_s; /* above 0 */
    int64_t latency_ns; /* propagation */
    /* Mean of an exponential latency that is added to every packet; packets of
     * a port stay in order. 0: none */
    int64_t variation_ns;
    double loss; /* share of packets that are lost on the link, 0..0.99 */
    /* Mean number of consecutive losses, 1 / (1 - loss) or more [Gilbert,
     * Capacity of a Burst-Noise Channel, BSTJ 39(5), 1960]; 0: losses are
     * independent */
    double burst;
    uint64_t buffer_bytes; /* packets beyond it are dropped; 0: no limit */
    /* ECN: marked never up to the first queue length, with mark_probability at
     * the second, linearly between, always above [Zhu et al., Congestion
     * Control for Large-Scale RDMA Deployments, SIGCOMM 2015]. 0: no marks */
    uint64_t mark_from_bytes, mark_to_bytes;
    double mark_probability;
    /* A packet that leaves the port from fails_ns on is lost. From avoided_ns
     * on packets take other ports of equally short paths, if any works. */
    bool fails;
    int64_t fails_ns, avoided_ns;
} lhi_port_spec;

/* The ports on the shortest paths from a node to a host. */
typedef struct lhi_next_ports {
    const uint32_t *ports;
    uint32_t n; /* 0: unreachable, or the node is the host */
} lhi_next_ports;

/* Memory of each switch, which the queues of its ports share. */
typedef struct lhi_switch_memory {
    uint64_t bytes; /* 0: no limit beside those of the ports */
    /* A queue or, with pauses, the packets of an incoming link may hold `share`
     * times the free memory. */
    double share;
    /* PFC: a switch drops no packet, but pauses a link that holds more. Port i
     * and port i ^ 1 must be the two directions of a link. */
    bool pauses;
} lhi_switch_memory;

/* A network. */
typedef struct lhi_fabric {
    uint32_t n_hosts, n_nodes, n_ports;
    const lhi_port_spec *ports;
    lhi_next_ports *next;     /* [node * n_hosts + host] */
    lhi_switch_memory buffer; /* none, unless the caller sets it */
} lhi_fabric;

/* Builds a network's forwarding tables (all shortest paths) from its directed
 * ports. Nodes below n_hosts are hosts, the others switches. *out refers to
 * `ports`. LH_EINPUT: a host has more than one port, or cannot reach another
 * host. */
lh_status lhi_fabric_build(uint32_t n_hosts, uint32_t n_nodes,
                           const lhi_port_spec *ports, uint32_t n_ports,
                           lhi_arena *mem, lhi_fabric *out, lh_error *err);

/* A link between two sites: `senders` hosts at a switch, as many receivers at
 * another one, `others` further hosts at each, `paths` equal ports between both
 * switches. With uplinks, each
 * site has a second switch at the link's end, and `uplinks` equal ports between
 * its two switches. */
typedef struct lhi_site_link {
    uint32_t senders, others, paths;
    uint32_t failed_paths; /* the first ones; only they fail as `path` does */
    uint32_t uplinks;      /* 0: one switch at each site */
    lhi_port_spec path;    /* each of them; nodes are not read */
    lhi_port_spec uplink;  /* the same */
    double interface_bytes_per_s; /* of a host */
    int64_t interface_latency_ns; /* between a host and its switch */
    int64_t return_latency_ns;    /* of the paths back */
    double return_loss;
} lhi_site_link;

/* Builds one long link's network between two sites. With n
 * = link->senders, sending hosts have indices 0 to n - 1, their receivers n to
 * 2n - 1; others of the sending site follow, then others of the receiving one.
 */
lh_status lhi_fabric_build_site_link(const lhi_site_link *link, lhi_arena *mem,
                                     lhi_fabric *out, lh_error *err);

/* A folded Clos network with three tiers of switches: racks of hosts, pods of
 * racks, and core switches. */
typedef struct lhi_clos {
    uint32_t pods, racks, hosts; /* racks of a pod, hosts of a rack */
    /* switches: aggregation of a pod; core, in as many groups: each aggregation
     * switch of a pod is connected to `cores` of its own group */
    uint32_t aggregation, cores;
    lhi_port_spec port;     /* each one; nodes are not read */
    double rack_up, pod_up; /* rates of those ports by that of `port` */
} lhi_clos;

/* Builds a folded Clos network (racks, aggregation and core switches) with its
 * forwarding tables; host h is in rack h / c->hosts. */
lh_status lhi_fabric_build_clos(const lhi_clos *clos, lhi_arena *mem,
                                lhi_fabric *out, lh_error *err);

#endif
