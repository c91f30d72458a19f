/* SPDX-License-Identifier: Apache-2.0 */
/* A topology's routing view: cables per node, and candidate paths between pairs
 * of nodes, computed on first use. */
#ifndef LHI_NETWORK_OPTICAL_NETWORK_H
#define LHI_NETWORK_OPTICAL_NETWORK_H

#include <longhaul/experimental/optical.h>

#include "base/arena.h"
#include "format/document/tree.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    LHI_MAX_NODES = 512,
    LHI_MAX_CABLES = 8192,
    LHI_MAX_KM = 100000,
    LHI_M_PER_KM = 1000,
    LHI_MAX_CANDIDATES = 64,
    LHI_MAX_FILES = 10, /* of a topology */
};

/* A node's neighbour. */
typedef struct lhi_network_neighbour {
    uint32_t node, cable;
} lhi_network_neighbour;

typedef struct lhi_gn lhi_gn; /* gnpy.h */
typedef struct lhi_gn_transceiver lhi_gn_transceiver;
typedef struct lhi_load_gsnr lhi_load_gsnr; /* load_gsnr.h */

/* A topology of nodes and cables. */
struct lh_topology {
    lhi_arena *mem;
    const char *name;
    uint32_t n_nodes, n_cables;
    const int64_t *ids;       /* ascending */
    const char *const *names; /* "" for none */
    const lh_cable *cables;
    const uint32_t *first_way; /* [n_nodes + 1], into ways */
    /* By node, neighbours ascending; of parallel cables, the first one first.
     */
    const lhi_network_neighbour *ways;
    const lhi_gn *gn;                 /* noise of its lines; NULL: unknown */
    const char *files[LHI_MAX_FILES]; /* of a GNPy network, as opened; NULL */
};

/* Returns in *path the path of a file that the document names at `node`,
 * relative to the document's folder unless absolute; allocated in `mem`. */
lh_status lhi_optical_resolve_file(const lhi_doc *doc, const lhi_node *node,
                                   lhi_arena *mem, const char **path,
                                   lh_error *err);
/* Reads a length in km, rounded to metres: 1 m to LHI_MAX_KM. */
lh_status lhi_topology_get_length(const lhi_doc *doc, const lhi_node *node,
                                  int64_t *length_m, lh_error *err);
/* Reads a network topology from the map `map`. */
lh_status lhi_topology_parse_node(const lhi_doc *doc, const lhi_node *map,
                                  lh_topology **out, lh_error *err);

/* A slot's capacity on paths up to a length. */
typedef struct lhi_reach {
    int64_t length_m; /* INT64_MAX: any */
    int64_t mbps;
} lhi_reach;

enum { LHI_N_ADAPTIVE = 4, LHI_MAX_BACKGROUND_GBPS = 1000000 };
/* Typical reaches of a 12.5 GHz slot: 16QAM, 8QAM, QPSK, BPSK. */
extern const lhi_reach lhi_adaptive_reaches[LHI_N_ADAPTIVE];

/* A candidate path with its fibres. */
typedef struct lhi_path {
    int64_t length_m;
    int64_t mbps; /* per slot; by the GSNR under the load: the most */
    uint32_t hops;
    uint32_t index;         /* among its pair's candidates */
    double gsnr_db;         /* least of the channels; 0: unknown */
    const char *format;     /* modulation by its GSNR; NULL: by length */
    const uint32_t *nodes;  /* [hops + 1] */
    const uint32_t *fibres; /* [hops] */
} lhi_path;

/* Candidate paths between two nodes; none if no mode of the network's
 * transceiver reaches, or no format under the load. */
typedef struct lhi_paths {
    uint32_t count;
    const lhi_path *paths;
} lhi_paths;

/* The network. Threads share it; paths are computed once, under the lock. */
typedef struct lhi_network {
    const lh_topology *topology;
    /* Rates of paths by their GSNR; NULL: by their length. */
    const lhi_gn_transceiver *transceiver;
    double margin_db;
    /* Noise of the lines without circuits, for rates by the GSNR under the
     * current load; NULL: the rate of a path is fixed. */
    lhi_load_gsnr *lines;
    uint32_t k, slots;
    uint32_t guard_slots; /* above every circuit */
    bool shared_fibre;
    uint32_t n_reaches; /* ascending; the last covers any length */
    const lhi_reach *reaches;
    lhi_arena *mem, *scratch;
    pthread_mutex_t lock;
    _Atomic(const lhi_paths *) *pairs; /* [from * n_nodes + to] */
} lhi_network;

/* Builds a network from a topology: k candidate paths per pair, `slots`
 * spectrum slots per fibre, and modulations with their reaches (maximum path
 * lengths). shared_fibre: both directions of a cable share one fibre. Borrows
 * the topology and copies the reaches. */
lh_status lhi_network_make(const lh_topology *topology, uint32_t k,
                           uint32_t slots, bool shared_fibre,
                           const lhi_reach *reaches, uint32_t n_reaches,
                           lhi_network **out, lh_error *err);
/* Makes circuits have rates by the GSNR under the current load (load_gsnr.h)
 * rather than by the length of the path. Call it before any path is
 * computed. */
lh_status lhi_network_rate_by_load(lhi_network *network, lh_error *err);
/* Frees a network, but not its topology; accepts NULL. */
void lhi_network_free(lhi_network *network);

/* Returns the number of fibres with separate spectrum: one per cable if both
 * directions share it, else two. */
static inline uint32_t lhi_network_n_fibres(const lhi_network *network)
{
    return network->topology->n_cables * (network->shared_fibre ? 1 : 2);
}
/* Returns the cable that contains a fibre. */
static inline uint32_t lhi_network_get_cable(const lhi_network *network,
                                             uint32_t fibre)
{
    return network->shared_fibre ? fibre : fibre / 2;
}

/* Returns the candidate paths from node `from` to another node `to`; NULL on
 * allocation failure. */
const lhi_paths *lhi_network_compute_paths(lhi_network *network, uint32_t from,
                                           uint32_t to);
/* Returns a pair's candidates without locking if they are known already. */
static inline const lhi_paths *lhi_network_paths(lhi_network *network,
                                                 uint32_t from, uint32_t to)
{
    size_t at = (size_t)from * network->topology->n_nodes + to;
    const lhi_paths *found =
        atomic_load_explicit(&network->pairs[at], memory_order_acquire);
    return found ? found : lhi_network_compute_paths(network, from, to);
}

/* A route as nodes and cables. */
typedef struct lhi_node_route {
    int64_t length_m;
    uint32_t hops;
    uint32_t *nodes;  /* [hops + 1] */
    uint32_t *cables; /* [hops] */
} lhi_node_route;

/* Finds up to k loop-free routes from node `from` to node `to`, shortest first,
 * into out[0..k-1]; *count is their number. Allocated in `mem`. LH_ENOMEM. */
lh_status lhi_routes_find(const lh_topology *topology, uint32_t from,
                          uint32_t to, uint32_t k, lhi_arena *mem,
                          lhi_node_route *out, uint32_t *count);

/* Computes the shortest distance from one node to every node, in metres;
 * INT64_MAX if unreachable. LH_ENOMEM. */
lh_status lhi_topology_distances(const lh_topology *topology, uint32_t from,
                                 int64_t *metres);

/* Parses a network topology from text; `name` appears in error messages.
 * LH_EINPUT: invalid text. Release with lh_topology_free(). */
lh_status lhi_topology_parse(const char *text, size_t len, const char *name,
                             lh_topology **out, lh_error *err);

/* Returns the id that a node has in the topology file. */
int64_t lhi_topology_node_id(const lh_topology *topology, uint32_t node);

/* Returns the node's index with this id in the topology file; LH_NONE: no
 * such node. */
uint32_t lhi_topology_find(const lh_topology *topology, int64_t id);

/* Returns a network cable, with its two ends and length; borrowed. */
const lh_cable *lhi_topology_cable(const lh_topology *topology, uint32_t cable);

/* Finds up to `k` routes from node `from` to another node `to`, ordered by
 * length, then hops, then the lower node where they diverge, then the lower
 * cable. *out is one block including its arrays; release it with
 * lhi_routes_free(). */
lh_status lhi_topology_routes(const lh_topology *topology, uint32_t from,
                              uint32_t to, uint32_t k, lh_route **out,
                              uint32_t *n_routes, lh_error *err);
/* Frees routes from lhi_topology_routes(); NULL is a no-op. */
void lhi_routes_free(lh_route *routes);

#endif
