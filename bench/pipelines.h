/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the pipelines shared by the solver benchmarks. Release with
 * lh_pipeline_free(); exits on error. */
#ifndef BENCH_PIPELINES_H
#define BENCH_PIPELINES_H

#include <longhaul.h>

/* Exits with the message if `status` is an error. */
void bench_check_status(lh_status status, const lh_error *err);

/* Family of pipelines with unequal stages and links: F, D, W between 3/4 and
 * 5/4 of 38, 48 and 20 ms per device. Latency and transfer of every boundary,
 * in both directions, are 0, 9.5 or 76 ms; with `slow`, only boundaries between
 * two or four datacenters have them. */
typedef struct bench_family {
    const char *name;
    uint32_t devices, microbatches;
    uint32_t chunks; /* per device; 2: V shape */
    uint32_t memory; /* activations of a chunk */
    bool slow;       /* only links between datacenters are slow */
} bench_family;

extern const bench_family bench_families[];
extern const size_t bench_n_families;

/* Builds a pipeline that depends only on the seed. */
lh_pipeline *bench_irregular(const bench_family *family, uint64_t seed);

/* Equal stages with the durations of a 70-billion-parameter model (F, D, W =
 * 38, 48, 20 ms per device; CrossPipe, table 5). */
typedef struct bench_point {
    const char *placement;
    /* memory 0: no limit */
    unsigned devices, microbatches, datacenters, memory;
    double latency, transfer; /* in units of a device's F */
    bool recomputes;          /* F again before D */
} bench_point;

/* Builds a grid point's pipeline. */
lh_pipeline *bench_uniform(const bench_point *point);

#endif
