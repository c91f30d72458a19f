/* SPDX-License-Identifier: Apache-2.0 */
/* Places of stages and routes in optical networks, against enumerations. */
#include "nsfnet.h"
#include "test.h"

#include "network/optical/device_placement.h"
#include "network/optical/network.h"

#include <stdlib.h>

#define STAGES 8

/* --- random numbers and placement ----------------------------------------- */

/* SplitMix64 from the state 1, as its authors' program prints it. */
static void random_numbers(void)
{
    lhi_random r = {.state = 1};
    CHECK(lhi_random_next(&r) == UINT64_C(0x910a2dec89025cc1));
    CHECK(lhi_random_next(&r) == UINT64_C(0xbeeb8da1658eec67));
    CHECK(lhi_random_next(&r) == UINT64_C(0xf893a2eefb32555e));
}

static int64_t chain_m(int64_t metres[NODES][NODES], const uint32_t *sites)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i + 1 < STAGES; i++)
        sum += metres[sites[i]][sites[i + 1]];
    return sum;
}

static void swap(uint32_t *a, uint32_t *b)
{
    const uint32_t other = *a;
    *a = *b;
    *b = other;
}

/* Advances to the next permutation of the sites in lexicographic order. */
static bool next_order(uint32_t *sites)
{
    uint32_t i = STAGES - 1, k = STAGES - 1;
    while (i > 0 && sites[i - 1] >= sites[i])
        i--;
    if (i == 0)
        return false;
    while (sites[k] <= sites[i - 1])
        k--;
    swap(&sites[k], &sites[i - 1]);
    for (k = STAGES - 1; i < k; i++, k--)
        swap(&sites[i], &sites[k]);
    return true;
}

static int ascending(const void *x, const void *y)
{
    uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
    return (a > b) - (a < b);
}

/* Stages are at six different nodes; their order is the lexicographically first
 * one with the least metres. */
static void placements(void)
{
    lh_topology *t = nsfnet();
    lh_error err = {0};
    int64_t distance[NODES][NODES];
    all_distances(t, distance);
    for (uint32_t seed = 1; seed <= 20; seed++) {
        uint32_t sites[STAGES], order[STAGES], best[STAGES];
        int64_t metres, least = INT64_MAX;
        bool used[NODES] = {false};
        uint32_t n_used = 0;
        lhi_random r = {.state = seed};
        CHECK_OK(lhi_device_placement_random(&r, NODES, 6, STAGES, sites, &err),
                 err);
        for (uint32_t i = 0; i < STAGES; i++) {
            CHECK(sites[i] < NODES);
            n_used += !used[sites[i]];
            used[sites[i]] = true;
        }
        CHECK_INT(n_used, 6);
        CHECK_OK(lhi_device_placement_length(t, sites, STAGES, &metres, &err),
                 err);
        CHECK_INT(metres, chain_m(distance, sites));
        memcpy(order, sites, sizeof order);
        qsort(order, STAGES, sizeof *order, ascending);
        do {
            metres = chain_m(distance, order);
            if (metres < least)
                memcpy(best, order, sizeof best);
            least = metres < least ? metres : least;
        } while (next_order(order));
        CHECK_OK(lhi_device_placement_order(t, sites, STAGES, &err), err);
        CHECK(memcmp(sites, best, sizeof best) == 0);
    }
    lh_topology_free(t);
}

/* Every node is equally likely to be a site: six out of fourteen per seed. */
static void places_are_alike(void)
{
    enum { SEEDS = 7000 };
    uint32_t n[NODES] = {0};
    lh_error err = {0};
    for (uint32_t seed = 0; seed < SEEDS; seed++) {
        uint32_t sites[6];
        lhi_random r = {.state = seed};
        CHECK_OK(lhi_device_placement_random(&r, NODES, 6, 6, sites, &err),
                 err);
        for (uint32_t i = 0; i < 6; i++)
            n[sites[i]]++;
    }
    /* Within five standard deviations. */
    const double share = 6.0 / NODES;
    for (uint32_t i = 0; i < NODES; i++)
        CHECK_NEAR(n[i], SEEDS * share, 5 * sqrt(SEEDS * share * (1 - share)));
}

/* Every loop-free route of a small network, by depth-first search. */
typedef struct all_routes {
    const lh_topology *t;
    uint32_t to, n;
    lhi_node_route found[2048];
    uint32_t nodes[2048][NODES], cables[2048][NODES];
} all_routes;

static void search(all_routes *a, uint32_t *nodes, uint32_t *cables,
                   uint32_t hops, int64_t metres)
{
    uint32_t at = nodes[hops];
    if (at == a->to) {
        if (a->n == 2048)
            return;
        memcpy(a->nodes[a->n], nodes, (hops + 1) * sizeof *nodes);
        memcpy(a->cables[a->n], cables, hops * sizeof *cables);
        a->found[a->n] =
            (lhi_node_route){metres, hops, a->nodes[a->n], a->cables[a->n]};
        a->n++;
        return;
    }
    for (uint32_t w = a->t->first_way[at]; w < a->t->first_way[at + 1]; w++) {
        bool used = false;
        for (uint32_t i = 0; i <= hops; i++)
            used |= nodes[i] == a->t->ways[w].node;
        if (used)
            continue;
        nodes[hops + 1] = a->t->ways[w].node;
        cables[hops] = a->t->ways[w].cable;
        search(a, nodes, cables, hops + 1,
               metres + a->t->cables[cables[hops]].length_m);
    }
}

static int by_rule(const void *x, const void *y)
{
    const lhi_node_route *a = x, *b = y;
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

/* Each pair's 40 best routes equal those from enumerating all routes. */
static void check_all_routes(const lh_topology *t)
{
    all_routes *a = calloc(1, sizeof *a);
    lh_error err = {0};
    uint32_t n_nodes = t->n_nodes;
    for (uint32_t pair = 0; a && pair < n_nodes * n_nodes; pair++) {
        uint32_t from = pair / n_nodes, to = pair % n_nodes, n = 0;
        uint32_t nodes[NODES + 1] = {from}, cables[NODES];
        lh_route *got = NULL;
        if (from == to)
            continue;
        a->t = t;
        a->to = to;
        a->n = 0;
        search(a, nodes, cables, 0, 0);
        qsort(a->found, a->n, sizeof *a->found, by_rule);
        CHECK_OK(lhi_topology_routes(t, from, to, 40, &got, &n, &err), err);
        CHECK_INT(n, a->n < 40 ? a->n : 40);
        for (uint32_t k = 0; k < n; k++) {
            CHECK_INT(got[k].length_m, a->found[k].length_m);
            CHECK_INT(got[k].n_nodes, a->found[k].hops + 1);
            CHECK(memcmp(got[k].nodes, a->found[k].nodes,
                         got[k].n_nodes * sizeof *nodes) == 0);
            CHECK(memcmp(got[k].cables, a->found[k].cables,
                         a->found[k].hops * sizeof *cables) == 0);
        }
        lhi_routes_free(got);
    }
    free(a);
}

static void routes_are_all(void)
{
    lh_topology *t = nsfnet();
    check_all_routes(t);
    lh_topology_free(t);
}

/* Parallel cables, of equal and different lengths, give different routes. */
static void parallel_routes(void)
{
    static const char text[] =
        "nodes: [{id: 1}, {id: 2}, {id: 3}, {id: 4}]\nlinks:\n"
        "- {a: 1, b: 2, km: 80.5}\n- {a: 2, b: 1, km: 80.5}\n"
        "- {a: 2, b: 3, km: 0.4}\n- {a: 2, b: 3, km: 0.001}\n"
        "- {a: 3, b: 1, km: 80.9}\n- {a: 3, b: 4, km: 7}\n"
        "- {a: 4, b: 3, km: 6.9996}\n- {a: 4, b: 1, km: 100}\n";
    lh_topology *t = NULL;
    lh_error err = {0};
    CHECK_OK(lhi_topology_parse(text, strlen(text), "t.yaml", &t, &err), err);
    if (!t)
        return;
    CHECK_INT(lhi_topology_cable(t, 0)->length_m, 80500);
    CHECK_INT(lhi_topology_cable(t, 3)->length_m, 1);
    CHECK_INT(lhi_topology_cable(t, 6)->length_m, 7000);
    check_all_routes(t);
    lh_topology_free(t);
}

int main(void)
{
    RUN(random_numbers);
    RUN(placements);
    RUN(places_are_alike);
    RUN(routes_are_all);
    RUN(parallel_routes);
    return test_summary();
}
