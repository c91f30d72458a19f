/* SPDX-License-Identifier: Apache-2.0 */
#include "network/optical/gnpy.h"
#include "network/optical/load_gsnr.h"

#include <stdlib.h>
#include <string.h>

const lhi_reach lhi_adaptive_reaches[LHI_N_ADAPTIVE] = {
    {625000, 50000}, {1250000, 37500}, {2500000, 25000}, {INT64_MAX, 12500}};

lh_status lhi_network_make(const lh_topology *topology, uint32_t k,
                           uint32_t slots, bool shared_fibre,
                           const lhi_reach *reaches, uint32_t n_reaches,
                           lhi_network **out, lh_error *err)
{
    lhi_network *n = calloc(1, sizeof *n);
    if (!n)
        return lhi_fail_nomem(err);
    size_t n_pairs = (size_t)topology->n_nodes * topology->n_nodes;
    n->topology = topology;
    n->k = k;
    n->slots = slots;
    n->shared_fibre = shared_fibre;
    n->n_reaches = n_reaches;
    n->mem = lhi_arena_make(0);
    n->scratch = lhi_arena_make(0);
    n->pairs = malloc(n_pairs * sizeof *n->pairs);
    lhi_reach *copy = n->mem ? LHI_NEW(n->mem, lhi_reach, n_reaches) : NULL;
    if (!n->scratch || !n->pairs || !copy ||
        pthread_mutex_init(&n->lock, NULL) != 0) {
        free(n->pairs);
        lhi_arena_free(n->scratch);
        lhi_arena_free(n->mem);
        free(n);
        return lhi_fail_nomem(err);
    }
    memcpy(copy, reaches, n_reaches * sizeof *copy);
    n->reaches = copy;
    for (size_t i = 0; i < n_pairs; i++)
        atomic_init(&n->pairs[i], NULL);
    *out = n;
    return LH_OK;
}

lh_status lhi_network_rate_by_load(lhi_network *network, lh_error *err)
{
    network->lines = calloc(1, sizeof *network->lines);
    if (!network->lines)
        return lhi_fail_nomem(err);
    return lhi_load_gsnr_init(network, network->lines, err);
}

void lhi_network_free(lhi_network *network)
{
    if (!network)
        return;
    if (network->lines)
        lhi_load_gsnr_fini(network->lines);
    free(network->lines);
    pthread_mutex_destroy(&network->lock);
    lhi_arena_free(network->scratch);
    lhi_arena_free(network->mem);
    free(network->pairs);
    free(network);
}

/* Returns the index of a cable's fibre that leads away from node `a`. */
static uint32_t get_fibre(const lhi_network *n, uint32_t cable, uint32_t a)
{
    return n->shared_fibre ? cable
                           : 2 * cable + (n->topology->cables[cable].a != a);
}

/* Returns a spectrum slot's rate in Mb/s on a path of this length: that of the
 * first modulation that reaches so far. */
static int64_t get_slot_mbps(const lhi_network *n, int64_t length_m)
{
    uint32_t i = 0;
    while (i + 1 < n->n_reaches && length_m > n->reaches[i].length_m)
        i++;
    return n->reaches[i].mbps;
}

/* Sets a path's GSNR and, if the scenario has a transceiver, its format and
 * rate per slot; or its rate if no other circuit is in use, if rates follow the
 * load. Returns false if no mode of the transceiver or no format reaches over
 * the path. */
static bool set_rate(const lhi_network *n, uint32_t from, uint32_t to,
                     const lhi_node_route *route, lhi_path *path)
{
    const lhi_gn *gn = n->topology->gn;
    if (n->lines) {
        path->mbps = lhi_load_gsnr_accept(n->lines, path, 0, 1);
        return path->mbps > 0;
    }
    if (!gn)
        return true;
    /* Lines are directed, also where directions share a spectrum. */
    uint32_t lines[LHI_MAX_NODES];
    for (uint32_t h = 0; h < route->hops; h++)
        lines[h] = 2 * route->cables[h] +
                   (n->topology->cables[route->cables[h]].a != route->nodes[h]);
    const lhi_gn_mode *mode =
        n->transceiver ? lhi_gn_choose_mode(gn, n->transceiver, n->margin_db,
                                            from, to, lines, route->hops)
                       : NULL;
    path->gsnr_db =
        lhi_gn_compute_gsnr(gn, from, to, lines, route->hops,
                            mode ? mode->tx_osnr_db : gn->tx_osnr_db)
            .least_db;
    if (mode) {
        path->format = mode->format;
        path->mbps = mode->mbps;
    }
    return mode || !n->transceiver;
}

/* Computes the k shortest paths from node `from` to node `to`, with their
 * fibres and slot rate, without those that no mode reaches; NULL on allocation
 * failure. */
static const lhi_paths *make_paths(lhi_network *n, uint32_t from, uint32_t to)
{
    lhi_node_route found[LHI_MAX_CANDIDATES];
    lhi_mark mark = lhi_arena_mark(n->scratch);
    uint32_t count = 0;
    if (lhi_routes_find(n->topology, from, to, n->k, n->scratch, found,
                        &count) != LH_OK) {
        lhi_arena_rewind(n->scratch, mark);
        return NULL;
    }
    lhi_paths *all = LHI_NEW(n->mem, lhi_paths, 1);
    lhi_path *paths = LHI_NEW(n->mem, lhi_path, count);
    bool ok = all && paths;
    uint32_t used = 0;
    for (uint32_t i = 0; ok && i < count; i++) {
        uint32_t hops = found[i].hops;
        uint32_t *nodes = LHI_NEW(n->mem, uint32_t, hops + 1);
        uint32_t *fibres = LHI_NEW(n->mem, uint32_t, hops);
        ok = nodes && fibres;
        if (!ok)
            break;
        memcpy(nodes, found[i].nodes, (hops + 1) * sizeof *nodes);
        for (uint32_t h = 0; h < hops; h++)
            fibres[h] = get_fibre(n, found[i].cables[h], nodes[h]);
        paths[used] = (lhi_path){.length_m = found[i].length_m,
                                 .mbps = get_slot_mbps(n, found[i].length_m),
                                 .hops = hops,
                                 .index = used,
                                 .nodes = nodes,
                                 .fibres = fibres};
        used += set_rate(n, from, to, &found[i], &paths[used]);
    }
    lhi_arena_rewind(n->scratch, mark);
    if (!ok)
        return NULL;
    *all = (lhi_paths){.count = used, .paths = paths};
    return all;
}

const lhi_paths *lhi_network_compute_paths(lhi_network *network, uint32_t from,
                                           uint32_t to)
{
    size_t at = (size_t)from * network->topology->n_nodes + to;
    pthread_mutex_lock(&network->lock);
    const lhi_paths *found =
        atomic_load_explicit(&network->pairs[at], memory_order_relaxed);
    if (!found) {
        found = make_paths(network, from, to);
        if (found)
            atomic_store_explicit(&network->pairs[at], found,
                                  memory_order_release);
    }
    pthread_mutex_unlock(&network->lock);
    return found;
}
