/* SPDX-License-Identifier: Apache-2.0 */
/* The k shortest loop-free routes: Yen, "Finding the k shortest loopless paths
 * in a network", Management Science 17(11), 1971. Routes are ordered by
 * (length, hops, nodes and cables element by element): parallel cables give
 * different routes. Each restricted problem is therefore solved for the least
 * route in that order: first the distances (length, hops) to the destination,
 * then a walk that always takes the lowest node, on the lowest cable, that
 * preserves them. Cables have at least 1 m, so the walk has no cycle. */
#include "base/heap.h"
#include "network/optical/network.h"

#include <stdlib.h>
#include <string.h>

/* Search state. */
typedef struct finder {
    const lh_topology *t;
    uint32_t to;
    int64_t *metres; /* to the destination; INT64_MAX: unreachable */
    uint32_t *hops;
    bool *closed;       /* nodes on the root path */
    bool *closed_first; /* cables excluded from the spur node */
    lhi_heap heap;
} finder;

/* Computes every node's distance to `root`, in metres, without passing
 * nodes that the finder has closed (Dijkstra's algorithm). Returns false on
 * allocation failure. */
static bool compute_distances(finder *f, uint32_t root)
{
    const lh_topology *t = f->t;
    for (uint32_t n = 0; n < t->n_nodes; n++)
        f->metres[n] = INT64_MAX;
    f->metres[root] = 0;
    f->hops[root] = 0;
    lhi_event e = {.payload = root};
    if (!lhi_heap_push(&f->heap, e))
        return false;
    while (lhi_heap_pop(&f->heap, &e)) {
        uint32_t n = (uint32_t)e.payload;
        if (e.time_ns != f->metres[n] || e.rank != f->hops[n])
            continue; /* outdated: a shorter route was found since */
        for (uint32_t w = t->first_way[n]; w < t->first_way[n + 1]; w++) {
            uint32_t m = t->ways[w].node;
            int64_t metres =
                f->metres[n] + t->cables[t->ways[w].cable].length_m;
            uint32_t hops = f->hops[n] + 1;
            if (f->closed[m] || metres > f->metres[m] ||
                (metres == f->metres[m] && hops >= f->hops[m]))
                continue;
            f->metres[m] = metres;
            f->hops[m] = hops;
            lhi_event next = {.time_ns = metres, .rank = hops, .payload = m};
            if (!lhi_heap_push(&f->heap, next))
                return false;
        }
    }
    return true;
}

/* Returns the next hop, an index into ways, on a shortest route from node n to
 * the target; of equals the one with fewer hops, then the lowest node and
 * cable; LH_NONE: there is none. `first`: n is the route's last fixed node, so
 * also avoids the cables in f->closed_first. */
static uint32_t find_next_way(const finder *f, uint32_t n, bool first)
{
    const lh_topology *t = f->t;
    uint32_t best = LH_NONE;
    int64_t best_m = INT64_MAX;
    for (uint32_t w = t->first_way[n]; w < t->first_way[n + 1]; w++) {
        uint32_t m = t->ways[w].node;
        if (f->closed[m] || f->metres[m] == INT64_MAX ||
            (first && f->closed_first[t->ways[w].cable]))
            continue;
        int64_t metres = f->metres[m] + t->cables[t->ways[w].cable].length_m;
        if (metres < best_m ||
            (metres == best_m && f->hops[m] < f->hops[t->ways[best].node])) {
            best = w;
            best_m = metres;
        }
    }
    return best;
}

/* Orders routes by length, then hops, then node and cable numbers; returns -1,
 * 0 or 1. */
static int compare_routes(const lhi_node_route *a, const lhi_node_route *b)
{
    if (a->length_m != b->length_m)
        return a->length_m < b->length_m ? -1 : 1;
    if (a->hops != b->hops)
        return a->hops < b->hops ? -1 : 1;
    for (uint32_t i = 0; i <= a->hops; i++)
        if (a->nodes[i] != b->nodes[i])
            return a->nodes[i] < b->nodes[i] ? -1 : 1;
    for (uint32_t i = 0; i < a->hops; i++)
        if (a->cables[i] != b->cables[i])
            return a->cables[i] < b->cables[i] ? -1 : 1;
    return 0;
}

/* Finds the shortest route that begins with the first `spur` hops of `root`,
 * root_m metres long, and does not continue like any route in `found` with the
 * same beginning (spur step of Yen's algorithm). out->nodes is NULL if there is
 * none. */
static lh_status find_spur_route(finder *f, const lhi_node_route *root,
                                 uint32_t spur, int64_t root_m,
                                 const lhi_node_route *found, uint32_t n_found,
                                 lhi_arena *mem, lhi_node_route *out)
{
    uint32_t n_nodes = f->t->n_nodes;
    memset(f->closed, 0, n_nodes * sizeof *f->closed);
    memset(f->closed_first, 0, f->t->n_cables * sizeof *f->closed_first);
    for (uint32_t i = 0; i <= spur; i++)
        f->closed[root->nodes[i]] = true;
    for (uint32_t i = 0; i < n_found; i++)
        if (found[i].hops > spur && memcmp(found[i].cables, root->cables,
                                           spur * sizeof *root->cables) == 0)
            f->closed_first[found[i].cables[spur]] = true;
    *out = (lhi_node_route){.length_m = root_m};
    if (!compute_distances(f, f->to))
        return LH_ENOMEM;
    if (find_next_way(f, root->nodes[spur], true) == LH_NONE)
        return LH_OK;
    uint32_t *nodes = LHI_NEW(mem, uint32_t, n_nodes);
    uint32_t *cables = LHI_NEW(mem, uint32_t, n_nodes);
    if (!nodes || !cables)
        return LH_ENOMEM;
    memcpy(nodes, root->nodes, (spur + 1) * sizeof *nodes);
    if (spur > 0)
        memcpy(cables, root->cables, spur * sizeof *cables);
    out->hops = spur;
    while (nodes[out->hops] != f->to) {
        const lhi_network_neighbour *way =
            &f->t->ways[find_next_way(f, nodes[out->hops], out->hops == spur)];
        nodes[out->hops + 1] = way->node;
        cables[out->hops++] = way->cable;
        out->length_m += f->t->cables[way->cable].length_m;
    }
    out->nodes = nodes;
    out->cables = cables;
    return LH_OK;
}

/* Candidate routes, not yet selected. */
typedef struct route_pool {
    lhi_node_route *items;
    uint32_t count, room;
} route_pool;

/* Adds a copy of a route to the candidate pool unless it contains an equal one;
 * false on allocation failure. */
static bool add_to_pool(route_pool *p, const lhi_node_route *route)
{
    for (uint32_t i = 0; i < p->count; i++)
        if (compare_routes(&p->items[i], route) == 0)
            return true;
    if (p->count == p->room) {
        uint32_t room = p->room ? p->room * 2 : 32;
        lhi_node_route *items = realloc(p->items, room * sizeof *items);
        if (!items)
            return false;
        p->items = items;
        p->room = room;
    }
    p->items[p->count++] = *route;
    return true;
}

/* Removes and returns a non-empty pool's shortest route. */
static lhi_node_route take_shortest(route_pool *p)
{
    uint32_t least = 0;
    for (uint32_t i = 1; i < p->count; i++)
        if (compare_routes(&p->items[i], &p->items[least]) < 0)
            least = i;
    lhi_node_route route = p->items[least];
    p->items[least] = p->items[--p->count];
    return route;
}

/* Finds the k shortest loop-free routes from node `from` to the finder's target
 * by Yen's algorithm; *count is less than k if there are no more. `waiting`:
 * candidate pool. */
static lh_status find_routes(finder *f, uint32_t from, uint32_t k,
                             lhi_arena *mem, route_pool *waiting,
                             lhi_node_route *out, uint32_t *count)
{
    lhi_node_route begin = {.nodes = &from}, route;
    *count = 0;
    LHI_TRY(find_spur_route(f, &begin, 0, 0, NULL, 0, mem, &route));
    while (route.nodes) {
        out[(*count)++] = route;
        if (*count == k)
            break;
        int64_t root_m = 0;
        for (uint32_t spur = 0; spur < route.hops; spur++) {
            lhi_node_route other;
            LHI_TRY(find_spur_route(f, &route, spur, root_m, out, *count, mem,
                                    &other));
            if (other.nodes && !add_to_pool(waiting, &other))
                return LH_ENOMEM;
            root_m += f->t->cables[route.cables[spur]].length_m;
        }
        route.nodes = NULL;
        if (waiting->count > 0)
            route = take_shortest(waiting);
    }
    return LH_OK;
}

lh_status lhi_routes_find(const lh_topology *topology, uint32_t from,
                          uint32_t to, uint32_t k, lhi_arena *mem,
                          lhi_node_route *out, uint32_t *count)
{
    uint32_t n = topology->n_nodes;
    finder f = {
        .t = topology,
        .to = to,
        .metres = LHI_NEW(mem, int64_t, n),
        .hops = LHI_NEW(mem, uint32_t, n),
        .closed = LHI_NEW(mem, bool, n),
        .closed_first = LHI_NEW(mem, bool, topology->n_cables),
    };
    route_pool waiting = {0};
    lh_status status = LH_ENOMEM;
    if (f.metres && f.hops && f.closed && f.closed_first)
        status = find_routes(&f, from, k, mem, &waiting, out, count);
    free(waiting.items);
    lhi_heap_fini(&f.heap);
    return status;
}

lh_status lhi_topology_distances(const lh_topology *topology, uint32_t from,
                                 int64_t *metres)
{
    uint32_t n = topology->n_nodes;
    finder f = {
        .t = topology,
        .metres = metres,
        .hops = calloc(n, sizeof *f.hops),
        .closed = calloc(n, sizeof *f.closed),
    };
    bool ok = f.hops && f.closed && compute_distances(&f, from);
    free(f.hops);
    free(f.closed);
    lhi_heap_fini(&f.heap);
    return ok ? LH_OK : LH_ENOMEM;
}

lh_status lhi_topology_routes(const lh_topology *topology, uint32_t from,
                              uint32_t to, uint32_t k, lh_route **out,
                              uint32_t *n_routes, lh_error *err)
{
    if (from >= topology->n_nodes || to >= topology->n_nodes || from == to)
        return lhi_fail(err, LH_EINVAL, "a route requires two different nodes");
    if (k < 1 || k > LHI_MAX_CANDIDATES)
        return lhi_fail(err, LH_EINVAL, "expected 1 to %d routes",
                        LHI_MAX_CANDIDATES);
    lhi_arena *mem = lhi_arena_make(0);
    lhi_node_route found[LHI_MAX_CANDIDATES];
    uint32_t n = 0;
    if (!mem ||
        lhi_routes_find(topology, from, to, k, mem, found, &n) != LH_OK) {
        lhi_arena_free(mem);
        return lhi_fail_nomem(err);
    }
    size_t n_numbers = 0;
    for (uint32_t i = 0; i < n; i++)
        n_numbers += 2 * found[i].hops + 1;
    lh_route *routes =
        malloc(n * sizeof *routes + n_numbers * sizeof(uint32_t));
    if (routes) {
        uint32_t *next = (uint32_t *)(void *)(routes + n);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t hops = found[i].hops;
            routes[i] = (lh_route){.length_m = found[i].length_m,
                                   .n_nodes = hops + 1,
                                   .nodes = next,
                                   .cables = next + hops + 1};
            memcpy(next, found[i].nodes, (hops + 1) * sizeof *next);
            memcpy(next + hops + 1, found[i].cables, hops * sizeof *next);
            next += 2 * hops + 1;
        }
        *out = routes;
        *n_routes = n;
    }
    lhi_arena_free(mem);
    return routes ? LH_OK : lhi_fail_nomem(err);
}

void lhi_routes_free(lh_route *routes)
{
    free(routes);
}
