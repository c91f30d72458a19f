/* SPDX-License-Identifier: Apache-2.0 */
/* Seeded random pipelines and schedules for tests. */
#ifndef RANDOM_PIPELINE_H
#define RANDOM_PIPELINE_H

#include <longhaul/pipeline.h>
#include <longhaul/schedule.h>

/* splitmix64: any seed is fine. */
typedef struct rng {
    uint64_t state;
} rng;

uint64_t rng_next(rng *r);
uint32_t rng_below(rng *r, uint32_t n); /* 0..n-1 */
bool rng_chance(rng *r, uint32_t percent);

typedef enum link_kind {
    LINKS_ANY, /* one of the others, by chance */
    LINKS_NONE,
    LINKS_PRIVATE, /* one per pair of devices */
    LINKS_SHARED,  /* several pairs share a name */
} link_kind;

/* Bounds of what is made; 0: a default. */
typedef struct random_shape {
    uint32_t max_devices;      /* 5 */
    uint32_t max_microbatches; /* 8 */
    uint32_t max_chunks;       /* per device: 3 */
    link_kind links;
    bool regular;       /* no OTHER placement */
    bool no_zero_times; /* passes and transfers take at least 1 */
    bool no_data_parallel;
    bool no_limits; /* no memory limits */
    bool joint_never, joint_always;
    /* Often also sites, a memory unit, data-parallel operations, groups and a
     * prefetch depth. Such a pipeline is well-formed; that a schedule of it
     * can run is not looked at. */
    bool everything;
} random_shape;

/* Exits the program when the library refuses what it made. */
lh_pipeline *random_pipeline(rng *r, const random_shape *shape);

/* A schedule that can run: a random walk through what is ready. `parts`: W
 * passes may be cut. `link_orders`: some links get an explicit order that the
 * walk took. Memory is not looked at. */
lh_schedule *random_schedule(rng *r, const lh_pipeline *p, bool parts,
                             bool link_orders);

/* A copy in which something may have been broken: passes lost, doubled,
 * swapped, changed, moved. */
lh_schedule *broken_schedule(rng *r, const lh_schedule *s);

/* A copy of the pipeline with one link's latency and transfer longer by so
 * much, or with other memory limits. */
lh_pipeline *slower_pipeline(const lh_pipeline *p, uint32_t link,
                             int64_t latency_ns, int64_t transfer_ns);
lh_pipeline *limited_pipeline(const lh_pipeline *p, const int64_t *limits);

/* A copy with data-parallel operations launched, and mostly waited for, in the
 * order of the schedule: some wait for what comes later. */
lh_pipeline *communicating_pipeline(rng *r, const lh_pipeline *p,
                                    const lh_schedule *s);

/* Prints the text of both, for a failed check. */
void print_case(const lh_pipeline *p, const lh_schedule *s);

#endif
