/* SPDX-License-Identifier: Apache-2.0 */
/* Seeded random pipelines and schedules for tests. */
#ifndef RANDOM_PIPELINE_H
#define RANDOM_PIPELINE_H

#include <longhaul/pipeline.h>
#include <longhaul/schedule.h>

/* splitmix64; accepts any seed. */
typedef struct rng {
    uint64_t state;
} rng;

/* Returns the next random number. */
uint64_t rng_next(rng *r);
uint32_t rng_below(rng *r, uint32_t n); /* 0..n-1 */
/* Returns true with this probability. */
bool rng_chance(rng *r, uint32_t percent);

/* How links are distributed over device pairs. */
typedef enum link_kind {
    LINKS_ANY, /* random choice among the others */
    LINKS_NONE,
    LINKS_PRIVATE, /* one per pair of devices */
    LINKS_SHARED,  /* several pairs share a name */
} link_kind;

/* Limits of the random pipeline; 0: default. */
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
     * prefetch depth. The pipeline is well-formed, but a schedule may be unable
     * to run. */
    bool everything;
} random_shape;

/* Creates a random pipeline; exits the program if the library rejects it. */
lh_pipeline *random_pipeline(rng *r, const random_shape *shape);

/* Creates a schedule that can run: a random walk over ready passes. `parts`: W
 * passes may be split. `link_orders`: some links get the walk's order as an
 * explicit one. Ignores memory limits. */
lh_schedule *random_schedule(rng *r, const lh_pipeline *p, bool parts,
                             bool link_orders);

/* Copies a schedule and often breaks it: passes are lost, duplicated, swapped,
 * changed or moved. */
lh_schedule *broken_schedule(rng *r, const lh_schedule *s);

/* Copies the pipeline with a longer latency and transfer on one link
 * (slower_pipeline), or with other memory limits (limited_pipeline). */
lh_pipeline *slower_pipeline(const lh_pipeline *p, uint32_t link,
                             int64_t latency_ns, int64_t transfer_ns);
lh_pipeline *limited_pipeline(const lh_pipeline *p, const int64_t *limits);

/* Copies the pipeline and adds data-parallel operations that are launched, and
 * mostly awaited, in schedule order; some wait for later events. */
lh_pipeline *communicating_pipeline(rng *r, const lh_pipeline *p,
                                    const lh_schedule *s);

/* Copies the pipeline so that data-parallel communication of some devices, cut
 * into pieces in half of the cases, shares links with messages. */
lh_pipeline *sharing_pipeline(rng *r, const lh_pipeline *p);

/* Copies the pipeline, which has no data-parallel operations, with two
 * directions if its chunks are even in number, and often with overlapped
 * pairs. Call it before random_schedule(). */
lh_pipeline *two_way_pipeline(rng *r, const lh_pipeline *p);

/* Copies the schedule and marks some of its F and B that follow each other as
 * overlapped pairs; `valid`: only those that do not depend on each other. */
lh_schedule *overlapping_schedule(rng *r, const lh_pipeline *p,
                                  const lh_schedule *s, bool valid);

/* Prints both as text, for a failed check. */
void print_case(const lh_pipeline *p, const lh_schedule *s);

#endif
