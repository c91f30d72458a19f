/* SPDX-License-Identifier: Apache-2.0 */
/* Optima of regular pipelines: 8 stages of a 70-billion-parameter model as in
 * CrossPipe's tables 5 and 6 (38 ms per forward, 20 ms per weight gradient),
 * and smaller ones with two chunks per device. Two independent searches found
 * every value. */
#ifndef TEST_SOLVE_ROWS_H
#define TEST_SOLVE_ROWS_H

/* One pipeline and its optimal makespan. */
typedef struct solve_row {
    const char *placement;
    /* memory: activations of one chunk */
    unsigned devices, microbatches, memory;
    double d_ms;
    unsigned datacenters;
    double latency, transfer; /* in a device's forward times */
    double optimum_ms;
} solve_row;

/* Case 1 (n = 16), case 3 (n = 32) and case 2 (n = 32, recomputation). */
static const solve_row solve_ud_rows[] = {
#define BOTH(n, k, d, lat, tr, two, four)                                      \
    {"ud", 8, n, k, d, 2, lat, tr, two},                                       \
    {                                                                          \
        "ud", 8, n, k, d, 4, lat, tr, four                                     \
    }
    BOTH(16, 8, 48, 0, 0, 2158, 2158),
    BOTH(16, 8, 48, .25, .25, 2234, 2386),
    BOTH(16, 8, 48, .25, 2, 2500, 3184),
    BOTH(16, 8, 48, 2, .25, 2500, 3184),
    BOTH(16, 8, 48, 2, 2, 2766, 3982),
    BOTH(32, 16, 48, 0, 0, 3694, 3694),
    BOTH(32, 16, 48, .25, .25, 3732, 3808),
    BOTH(32, 16, 48, .25, 2, 3865, 4207),
    BOTH(32, 16, 48, 2, .25, 3865, 4207),
    BOTH(32, 16, 48, 2, 2, 3998, 4830),
    BOTH(32, 8, 86, 0, 0, 5336, 5336),
    BOTH(32, 8, 86, .25, .25, 5412, 5564),
    BOTH(32, 8, 86, 2, 2, 6440, 8792),
};

/* These need twice the effort of any other. */
static const solve_row solve_long_ud_rows[] = {
    BOTH(32, 8, 86, .25, 2, 5926, 7200),
    BOTH(32, 8, 86, 2, .25, 5926, 7200),
#undef BOTH
};

static const solve_row solve_small_rows[] = {
    {"wave", 4, 8, 8, 48, 2, 1, 0, 1135},
    {"loop", 4, 8, 8, 48, 2, 0, 0, 937},
    {"loop", 4, 8, 8, 48, 2, .25, .25, 1059},
};

static const solve_row solve_large_rows[] = {
    {"wave", 8, 16, 16, 48, 2, 0, 0, 1882},
    {"wave", 8, 16, 16, 48, 2, 1, 0, 2075},
    {"wave", 8, 16, 16, 48, 2, .25, .25, 1961},
    {"loop", 8, 16, 16, 48, 2, 0, 0, 1907},
};

/* With this many passes, makespans near the bound are refuted first. */
static const solve_row solve_many_rows[] = {
    {"ud", 32, 48, 16, 48, 4, .25, .25, 10350},
};

/* State lattices are too large here: only live states give the proof. */
static const solve_row solve_live_rows[] = {
    {"wave", 8, 26, 32, 48, 4, 2, .25, 3598},
};

#endif
