/* SPDX-License-Identifier: Apache-2.0 */
#include "network/optical/device_placement.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Maximum state count in the exact search; larger cases are rejected. */
enum { MAX_STATES = 1 << 22 };

lh_status lhi_device_placement_random(lhi_random *random, uint32_t n_nodes,
                                      uint32_t datacenters, uint32_t devices,
                                      uint32_t *sites, lh_error *err)
{
    uint32_t *pool = malloc(n_nodes * sizeof *pool);
    if (!pool)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < n_nodes; i++)
        pool[i] = i;
    for (uint32_t i = 0; i < datacenters; i++) {
        uint32_t other = i + lhi_random_below(random, n_nodes - i);
        uint32_t node = pool[i];
        pool[i] = pool[other];
        pool[other] = node;
        sites[i] = pool[i];
    }
    for (uint32_t i = datacenters; i < devices; i++)
        sites[i] = pool[lhi_random_below(random, datacenters)];
    for (uint32_t i = devices - 1; i > 0; i--) {
        uint32_t other = lhi_random_below(random, i + 1);
        uint32_t node = sites[i];
        sites[i] = sites[other];
        sites[other] = node;
    }
    free(pool);
    return LH_OK;
}

/* Distances between the distinct nodes in use. */
typedef struct stop_set {
    uint32_t count;
    uint32_t *nodes;  /* ascending */
    uint32_t *copies; /* device count at each */
    int64_t *metres;  /* [a * count + b] */
} stop_set;

/* Frees the arrays of a stop set (the devices' distinct nodes). */
static void free_stops(stop_set *s)
{
    free(s->nodes);
    free(s->copies);
    free(s->metres);
}

/* Orders node numbers, for qsort(). */
static int compare_nodes(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Builds the set of distinct nodes among the devices' sites, with the route
 * lengths between them; release with free_stops(). */
static lh_status make_stops(const lh_topology *t, const uint32_t *sites,
                            uint32_t devices, stop_set *s, lh_error *err)
{
    *s = (stop_set){.nodes = malloc(devices * sizeof *s->nodes),
                    .copies = calloc(devices, sizeof *s->copies)};
    int64_t *metres = malloc(t->n_nodes * sizeof *metres);
    lh_status status = LH_OK;
    if (!s->nodes || !s->copies || !metres) {
        status = LH_ENOMEM;
    } else {
        memcpy(s->nodes, sites, devices * sizeof *sites);
        qsort(s->nodes, devices, sizeof *s->nodes, compare_nodes);
        for (uint32_t i = 0; i < devices; i++) {
            if (i == 0 || s->nodes[i] != s->nodes[s->count - 1])
                s->nodes[s->count++] = s->nodes[i];
            s->copies[s->count - 1]++;
        }
        s->metres = malloc((size_t)s->count * s->count * sizeof *s->metres);
        if (!s->metres)
            status = LH_ENOMEM;
    }
    for (uint32_t a = 0; status == LH_OK && a < s->count; a++) {
        status = lhi_topology_distances(t, s->nodes[a], metres);
        for (uint32_t b = 0; status == LH_OK && b < s->count; b++)
            s->metres[(size_t)a * s->count + b] = metres[s->nodes[b]];
    }
    free(metres);
    if (status == LH_OK)
        return LH_OK;
    free_stops(s);
    return lhi_fail_nomem(err);
}

/* Returns a node's index in the stop set, which must contain it. */
static uint32_t find_stop(const stop_set *s, uint32_t node)
{
    uint32_t i = 0;
    while (s->nodes[i] != node)
        i++;
    return i;
}

lh_status lhi_device_placement_length(const lh_topology *topology,
                                      const uint32_t *sites, uint32_t devices,
                                      int64_t *metres, lh_error *err)
{
    stop_set s;
    LHI_TRY(make_stops(topology, sites, devices, &s, err));
    *metres = 0;
    for (uint32_t i = 0; i + 1 < devices; i++)
        *metres += s.metres[(size_t)find_stop(&s, sites[i]) * s.count +
                            find_stop(&s, sites[i + 1])];
    free_stops(&s);
    return LH_OK;
}

/* Fills least[state * count + last] by dynamic programming: a route's least
 * length from stop `last` through the devices counted in `state`. A state is a
 * mixed-radix number: digit i, with weight[i], is the devices left at stop i,
 * 0..copies[i]. */
static void fill_least(const stop_set *s, const uint64_t *weight,
                       uint64_t n_states, int64_t *least)
{
    uint32_t n = s->count;
    for (uint32_t last = 0; last < n; last++)
        least[last] = 0;
    for (uint64_t state = 1; state < n_states; state++)
        for (uint32_t last = 0; last < n; last++) {
            int64_t best = INT64_MAX;
            for (uint32_t i = 0; i < n; i++) {
                if (state / weight[i] % (s->copies[i] + 1) == 0)
                    continue;
                int64_t metres = s->metres[(size_t)last * n + i] +
                                 least[(state - weight[i]) * n + i];
                if (metres < best)
                    best = metres;
            }
            least[state * n + last] = best;
        }
}

/* Builds the devices' order with the least total length into `sites`, front to
 * back, from the table `least` of fill_least(). `state`: the devices per stop,
 * encoded with `weight`. Of equal continuations takes the lowest node. */
static void follow_least(const stop_set *s, const uint64_t *weight,
                         uint64_t state, const int64_t *least, uint32_t devices,
                         uint32_t *sites)
{
    uint32_t n = s->count, last = LH_NONE;
    for (uint32_t at = 0; at < devices; at++) {
        uint32_t next = LH_NONE;
        int64_t best = INT64_MAX;
        for (uint32_t i = 0; i < n; i++) {
            if (state / weight[i] % (s->copies[i] + 1) == 0)
                continue;
            int64_t metres = least[(state - weight[i]) * n + i];
            if (last != LH_NONE)
                metres += s->metres[(size_t)last * n + i];
            if (metres < best) {
                best = metres;
                next = i;
            }
        }
        sites[at] = s->nodes[next];
        state -= weight[next];
        last = next;
    }
}

lh_status lhi_device_placement_order(const lh_topology *topology,
                                     uint32_t *sites, uint32_t devices,
                                     lh_error *err)
{
    stop_set s;
    LHI_TRY(make_stops(topology, sites, devices, &s, err));
    uint64_t *weight = malloc(s.count * sizeof *weight), n_states = 1;
    lh_status status = weight ? LH_OK : lhi_fail_nomem(err);
    for (uint32_t i = 0; status == LH_OK && i < s.count; i++) {
        weight[i] = n_states;
        n_states *= s.copies[i] + 1;
        if (n_states * s.count > MAX_STATES)
            status =
                lhi_fail(err, LH_EUNSUPPORTED,
                         "%" PRIu32 " stages in %" PRIu32
                         " datacenters are too many for an exact search of the "
                         "best order",
                         devices, s.count);
    }
    int64_t *least = NULL;
    if (status == LH_OK) {
        least = malloc((size_t)n_states * s.count * sizeof *least);
        if (!least)
            status = lhi_fail_nomem(err);
    }
    if (status == LH_OK) {
        fill_least(&s, weight, n_states, least);
        follow_least(&s, weight, n_states - 1, least, devices, sites);
    }
    free(least);
    free(weight);
    free_stops(&s);
    return status;
}
