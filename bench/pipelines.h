/* SPDX-License-Identifier: Apache-2.0 */
/* The pipelines that programs about the search for schedules share. Release
 * with lh_pipeline_free(); a program ends where one cannot be made. */
#ifndef BENCH_PIPELINES_H
#define BENCH_PIPELINES_H

#include <longhaul/pipeline.h>

/* Ends the program with the message if `status` is an error. */
void bench_must(lh_status status, const lh_error *err);

/* Stages and links that differ: F, D, W between 3/4 and 5/4 of 38, 48 and 20 ms
 * a device; latency and transfer of every boundary, in both directions, 0, 9.5
 * or 76 ms, or, where `slow`, of those between two or four datacenters only. */
typedef struct bench_family {
    const char *name;
    uint32_t devices, microbatches;
    uint32_t chunks; /* per device; 2: in V shape */
    uint32_t memory; /* activations, of a chunk */
    bool slow;       /* only links between datacenters are */
} bench_family;

extern const bench_family bench_families[];
extern const size_t bench_n_families;

/* The same for the same seed, everywhere. */
lh_pipeline *bench_irregular(const bench_family *family, uint64_t seed);

/* Stages alike, those of a 70-billion-parameter model (F, D, W = 38, 48, 20 ms
 * per device; CrossPipe, table 5). */
typedef struct bench_point {
    const char *placement;
    unsigned devices, microbatches, datacenters, memory; /* memory 0: none */
    double latency, transfer; /* of a device's forward */
    bool recomputes;          /* F again before D */
} bench_point;

lh_pipeline *bench_uniform(const bench_point *point);

#endif
