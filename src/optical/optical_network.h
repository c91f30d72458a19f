/* SPDX-License-Identifier: Apache-2.0 */
/* A topology as routes see it: cables per node, candidate paths between
 * pairs, made when first asked for. */
#ifndef LHI_OPTICAL_NETWORK_H
#define LHI_OPTICAL_NETWORK_H

#include <longhaul/optical.h>

#include "base/arena.h"
#include "doc/doc.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    LHI_MAX_NODES = 512,
    LHI_MAX_CABLES = 8192,
    LHI_MAX_KM = 100000,
    LHI_MAX_CANDIDATES = 64,
};

/* A way out of a node. */
typedef struct lhi_network_way {
    uint32_t node, cable;
} lhi_network_way;

struct lh_topology {
    lhi_arena *mem;
    const char *name;
    uint32_t n_nodes, n_cables;
    const int64_t *ids;       /* ascending */
    const char *const *names; /* "" for none */
    const lh_cable *cables;
    const uint32_t *first_way;   /* [n_nodes + 1], into ways */
    const lhi_network_way *ways; /* by node, ascending at each */
};

/* Reads the topology that stands at `map`. */
lh_status lhi_topology_from(const lhi_doc *doc, const lhi_node *map,
                            lh_topology **out, lh_error *err);

/* What a slot carries on paths of up to so many km. */
typedef struct lhi_reach {
    int64_t km; /* INT64_MAX: any */
    int64_t mbps;
} lhi_reach;

typedef struct lhi_path {
    int64_t km;
    int64_t mbps; /* of one slot */
    uint32_t hops;
    uint32_t index;         /* among the candidates of its pair */
    const uint32_t *nodes;  /* [hops + 1] */
    const uint32_t *fibres; /* [hops] */
} lhi_path;

typedef struct lhi_paths {
    uint32_t count;
    const lhi_path *paths;
} lhi_paths;

/* Shared by the threads that run; paths are found under the lock, once. */
typedef struct lhi_network {
    const lh_topology *topology;
    uint32_t k, slots;
    bool shared_fibre;
    uint32_t n_reaches; /* ascending; the last is for any length */
    const lhi_reach *reaches;
    lhi_arena *mem, *scratch;
    pthread_mutex_t lock;
    _Atomic(const lhi_paths *) *pairs; /* [from * n_nodes + to] */
} lhi_network;

/* Borrows the topology; copies the reaches. */
lh_status lhi_network_make(const lh_topology *topology, uint32_t k,
                           uint32_t slots, bool shared_fibre,
                           const lhi_reach *reaches, uint32_t n_reaches,
                           lhi_network **out, lh_error *err);
void lhi_network_free(lhi_network *network); /* NULL is fine */

uint32_t lhi_network_n_fibres(const lhi_network *network);

/* Candidates between two different nodes; at least one. NULL: no memory. */
const lhi_paths *lhi_network_find(lhi_network *network, uint32_t from,
                                  uint32_t to);
static inline const lhi_paths *lhi_network_paths(lhi_network *network,
                                                 uint32_t from, uint32_t to)
{
    size_t at = (size_t)from * network->topology->n_nodes + to;
    const lhi_paths *found =
        atomic_load_explicit(&network->pairs[at], memory_order_acquire);
    return found ? found : lhi_network_find(network, from, to);
}

/* A route before it has fibres. */
typedef struct lhi_fibre_route {
    int64_t km;
    uint32_t hops;
    uint32_t *nodes; /* [hops + 1] */
} lhi_fibre_route;

/* Up to k routes, best first, in `mem`; `out` has room for k. LH_ENOMEM. */
lh_status lhi_routes_find(const lh_topology *topology, uint32_t from,
                          uint32_t to, uint32_t k, lhi_arena *mem,
                          lhi_fibre_route *out, uint32_t *count);

/* Shortest distances from one node; INT64_MAX where there is no way.
 * LH_ENOMEM. */
lh_status lhi_distances(const lh_topology *topology, uint32_t from,
                        int64_t *km);

#endif
