/* SPDX-License-Identifier: Apache-2.0 */
/* The topology NSFNET and the distances between its nodes. */
#ifndef TEST_NSFNET_H
#define TEST_NSFNET_H

#include "test.h"

#include "network/optical/network.h"

#define NODES 14

/* Reads the topology; the caller frees it. */
static inline lh_topology *nsfnet(void)
{
    lh_topology *t = NULL;
    lh_error err = {0};
    CHECK_OK(lh_topology_read(TEST_DATA "/../../data/topologies/nsfnet.yaml",
                              &t, &err),
             err);
    return t;
}

/* Computes all shortest distances (Floyd-Warshall). */
static inline void all_distances(const lh_topology *t,
                                 int64_t metres[NODES][NODES])
{
    for (uint32_t a = 0; a < NODES; a++)
        for (uint32_t b = 0; b < NODES; b++)
            metres[a][b] = a == b ? 0 : INT32_MAX;
    for (uint32_t i = 0; i < t->n_cables; i++) {
        const lh_cable *c = &t->cables[i];
        metres[c->a][c->b] = metres[c->b][c->a] = c->length_m;
    }
    for (uint32_t k = 0; k < NODES; k++)
        for (uint32_t a = 0; a < NODES; a++)
            for (uint32_t b = 0; b < NODES; b++)
                if (metres[a][k] + metres[k][b] < metres[a][b])
                    metres[a][b] = metres[a][k] + metres[k][b];
}

#endif
