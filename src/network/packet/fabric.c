/* SPDX-License-Identifier: Apache-2.0 */
#include "network/packet/fabric.h"

#include "base/fail.h"

#include <string.h>

/* State of the breadth-first searches towards each host. */
typedef struct search {
    lhi_fabric *fabric;
    const uint32_t *first;             /* [n_nodes + 1], into by_node */
    const uint32_t *by_node;           /* ports by the node that they leave */
    uint32_t *distance, *queue;        /* [n_nodes] */
    const uint32_t *into_first, *into; /* ports by the node that they enter */
    lhi_arena *mem;
} search;

/* Sorts port indices by the node that the port leaves or, if `entered`, by the
 * node that it enters. Node v's ports are entries (*first)[v] to (*first)[v +
 * 1] - 1 of the result. Returns NULL on allocation failure. */
static uint32_t *sort_ports(const lhi_fabric *f, bool entered, lhi_arena *mem,
                            const uint32_t **first)
{
    uint32_t *start = LHI_NEW(mem, uint32_t, f->n_nodes + 2);
    uint32_t *sorted = LHI_NEW(mem, uint32_t, f->n_ports);
    if (!start || !sorted)
        return NULL;
    for (uint32_t i = 0; i < f->n_ports; i++)
        start[2 + (entered ? f->ports[i].to : f->ports[i].from)]++;
    for (uint32_t i = 0; i < f->n_nodes; i++)
        start[i + 2] += start[i + 1];
    for (uint32_t i = 0; i < f->n_ports; i++)
        sorted[start[1 + (entered ? f->ports[i].to : f->ports[i].from)]++] = i;
    *first = start;
    return sorted;
}

/* Computes s->distance[node], the hops on the shortest path from every node to
 * `host` (breadth-first search); UINT32_MAX: no path. Other hosts do not
 * forward. */
static void compute_distances(const search *s, uint32_t host)
{
    const lhi_fabric *f = s->fabric;
    memset(s->distance, 0xff, f->n_nodes * sizeof *s->distance);
    uint32_t n = 0;
    s->distance[host] = 0;
    s->queue[n++] = host;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t node = s->queue[i];
        for (uint32_t k = s->into_first[node]; k < s->into_first[node + 1];
             k++) {
            uint32_t from = f->ports[s->into[k]].from;
            /* Hosts do not forward packets. */
            if (s->distance[from] != UINT32_MAX)
                continue;
            s->distance[from] = s->distance[node] + 1;
            if (from >= f->n_hosts)
                s->queue[n++] = from;
        }
    }
}

/* Stores the ports of `node` that begin a shortest path to `host` in the
 * forwarding table. Shares the array with the previous host if the ports are
 * equal. */
static lh_status store_next(const search *s, uint32_t node, uint32_t host,
                            lh_error *err)
{
    lhi_fabric *f = s->fabric;
    lhi_next_ports *out = &f->next[(size_t)node * f->n_hosts + host];
    uint32_t n = 0;
    for (uint32_t k = s->first[node]; k < s->first[node + 1]; k++) {
        uint32_t to = f->ports[s->by_node[k]].to;
        if (s->distance[to] != UINT32_MAX &&
            s->distance[to] + 1 == s->distance[node] &&
            (to == host || to >= f->n_hosts))
            s->queue[n++] = s->by_node[k];
    }
    if (host > 0 && out[-1].n == n &&
        (n == 0 ||
         memcmp(out[-1].ports, s->queue, n * sizeof *s->queue) == 0)) {
        *out = out[-1];
        return LH_OK;
    }
    uint32_t *ports = LHI_NEW(s->mem, uint32_t, n);
    if (!ports)
        return lhi_fail_nomem(err);
    memcpy(ports, s->queue, n * sizeof *ports);
    *out = (lhi_next_ports){ports, n};
    return LH_OK;
}

/* Fills the forwarding table of all nodes for destination `host`. LH_EINPUT:
 * another host cannot reach it. */
static lh_status find_paths(const search *s, uint32_t host, lh_error *err)
{
    const lhi_fabric *f = s->fabric;
    compute_distances(s, host);
    for (uint32_t node = 0; node < f->n_nodes; node++) {
        if (node < f->n_hosts && s->distance[node] == UINT32_MAX)
            return lhi_fail(err, LH_EINPUT,
                            "no path leads from host %u to host %u", node,
                            host);
        LHI_TRY(store_next(s, node, host, err));
    }
    return LH_OK;
}

lh_status lhi_fabric_build(uint32_t n_hosts, uint32_t n_nodes,
                           const lhi_port_spec *ports, uint32_t n_ports,
                           lhi_arena *mem, lhi_fabric *out, lh_error *err)
{
    *out = (lhi_fabric){.n_hosts = n_hosts,
                        .n_nodes = n_nodes,
                        .n_ports = n_ports,
                        .ports = ports};
    search s = {.fabric = out, .mem = mem};
    uint32_t most = n_nodes > n_ports ? n_nodes : n_ports;
    s.by_node = sort_ports(out, false, mem, &s.first);
    s.into = sort_ports(out, true, mem, &s.into_first);
    s.distance = LHI_NEW(mem, uint32_t, n_nodes);
    s.queue = LHI_NEW(mem, uint32_t, most);
    out->next = LHI_NEW(mem, lhi_next_ports, (size_t)n_nodes * n_hosts);
    if (!s.by_node || !s.into || !s.distance || !s.queue || !out->next)
        return lhi_fail_nomem(err);
    for (uint32_t host = 0; host < n_hosts; host++)
        if (s.first[host + 1] - s.first[host] != 1)
            return lhi_fail(err, LH_EINPUT, "host %u has %u ports, not 1", host,
                            s.first[host + 1] - s.first[host]);
    for (uint32_t host = 0; host < n_hosts; host++)
        LHI_TRY(find_paths(&s, host, err));
    return LH_OK;
}

/* --- builders --- */

/* Ports under construction. */
typedef struct ports {
    lhi_port_spec *items;
    uint32_t n;
} ports;

/* Appends a directed port from node `from` to node `to` with the rate, latency
 * and queue of `spec`; returns it. */
static lhi_port_spec *add_port(ports *p, const lhi_port_spec *spec,
                               uint32_t from, uint32_t to)
{
    lhi_port_spec *port = &p->items[p->n++];
    *port = *spec;
    port->from = from;
    port->to = to;
    return port;
}

/* Appends two directed ports between nodes `a` and `b`, one in each direction,
 * with the rate, latency and queue of `spec`. */
static void add_ports(ports *p, const lhi_port_spec *spec, uint32_t a,
                      uint32_t b)
{
    add_port(p, spec, a, b);
    add_port(p, spec, b, a);
}

lh_status lhi_fabric_build_site_link(const lhi_site_link *link, lhi_arena *mem,
                                     lhi_fabric *out, lh_error *err)
{
    uint32_t n = link->senders, n_hosts = 2 * (n + link->others);
    uint32_t near = n_hosts, far = n_hosts + 1;
    uint32_t end = link->uplinks > 0 ? far + 1 : near; /* of the link */
    ports p = {
        LHI_NEW(mem, lhi_port_spec,
                ((size_t)n_hosts + link->paths + 2 * (size_t)link->uplinks) *
                    2),
        0};
    if (!p.items)
        return lhi_fail_nomem(err);
    const lhi_port_spec interface = {.bytes_per_s = link->interface_bytes_per_s,
                                     .latency_ns = link->interface_latency_ns};
    for (uint32_t i = 0; i < n_hosts; i++) {
        bool is_near = i < n || (i >= 2 * n && i < 2 * n + link->others);
        add_ports(&p, &interface, i, is_near ? near : far);
    }
    for (uint32_t i = 0; i < 2 * link->uplinks; i++)
        add_ports(&p, &link->uplink, near + i % 2, end + i % 2);
    for (uint32_t i = 0; i < link->paths; i++) {
        lhi_port_spec *out_port = add_port(&p, &link->path, end, end + 1);
        lhi_port_spec *back = add_port(&p, &link->path, end + 1, end);
        out_port->fails = back->fails = i < link->failed_paths;
        back->latency_ns = link->return_latency_ns;
        back->loss = link->return_loss;
    }
    return lhi_fabric_build(n_hosts, end + 2, p.items, p.n, mem, out, err);
}

lh_status lhi_fabric_build_clos(const lhi_clos *c, lhi_arena *mem,
                                lhi_fabric *out, lh_error *err)
{
    uint32_t n_racks = c->pods * c->racks, n_hosts = n_racks * c->hosts;
    uint32_t rack0 = n_hosts, pod0 = rack0 + n_racks;
    uint32_t core0 = pod0 + c->pods * c->aggregation;
    uint32_t n_nodes = core0 + c->aggregation * c->cores;
    size_t n = n_hosts + (size_t)n_racks * c->aggregation +
               (size_t)c->pods * c->aggregation * c->cores;
    ports p = {LHI_NEW(mem, lhi_port_spec, 2 * n), 0};
    if (!p.items)
        return lhi_fail_nomem(err);
    lhi_port_spec rack_up = c->port, pod_up = c->port;
    rack_up.bytes_per_s *= c->rack_up;
    pod_up.bytes_per_s *= c->pod_up;
    for (uint32_t i = 0; i < n_hosts; i++)
        add_ports(&p, &c->port, i, rack0 + i / c->hosts);
    for (uint32_t i = 0; i < n_racks; i++)
        for (uint32_t a = 0; a < c->aggregation; a++)
            add_ports(&p, &rack_up, rack0 + i,
                      pod0 + i / c->racks * c->aggregation + a);
    for (uint32_t i = 0; i < c->pods * c->aggregation; i++)
        for (uint32_t k = 0; k < c->cores; k++)
            add_ports(&p, &pod_up, pod0 + i,
                      core0 + i % c->aggregation * c->cores + k);
    return lhi_fabric_build(n_hosts, n_nodes, p.items, p.n, mem, out, err);
}
