/* SPDX-License-Identifier: Apache-2.0 */
/* List scheduling in either direction of time: forward from the first F, or
 * backward from the last W. Each device runs the startable pass with the
 * earliest due date; due dates come from the previous run in the opposite
 * direction. `look-ahead` combines such runs.
 *
 * A stream is the sequence of all passes with one kind and chunk, ordered by
 * microbatch: F, D, W on chunk 0, F, D, W on chunk 1, ...; with a joint
 * backward F and B. Backward in time, microbatches count from the end. */
#ifndef LHI_BOTH_WAYS_H
#define LHI_BOTH_WAYS_H

#include "sched/sched.h"

/* Data that a pass sends to another stream, with its link. */
typedef struct lhi_arc {
    uint32_t to;
    uint32_t resource; /* LH_NONE: no link */
    int64_t transfer_ns, latency_ns;
} lhi_arc;

/* A stream in one direction of time. */
typedef struct lhi_way {
    lhi_arc out[2];
    uint32_t in[2]; /* streams that it depends on */
    uint32_t n_out, n_in;
    int64_t memory; /* change per pass */
    uint32_t slot;  /* index by device, then by `sequence` */
} lhi_way;

/* A stream: device, pass duration and both directions. */
typedef struct lhi_lane {
    uint32_t device;
    int64_t time_ns;
    lhi_way way[2]; /* [1]: backward in time */
} lhi_lane;

/* A device's streams, memory and executed order. */
typedef struct lhi_lane_device {
    /* Its streams in the order in which one microbatch passes them: F on its
     * first chunk, ... */
    uint32_t *sequence;
    uint32_t n_streams, n_chunks, first_slot;
    int64_t room;      /* activation memory; LH_NO_LIMIT: all fit */
    int64_t whole[2];  /* peak of one microbatch, per direction */
    bool one_takes[2]; /* only the first stream takes memory */
    uint32_t *order;   /* executed passes: stream * n + microbatch */
    uint32_t count;
} lhi_lane_device;

/* Rules for one run. */
typedef struct lhi_way_rules {
    const uint32_t *caps; /* per chunk: max. microbatches between F and W */
    bool crosspipe;       /* greedy's rule instead of earliest due date */
    bool hold_back;       /* delay passes until their message can leave */
    bool reserve;         /* reserve memory for passes due earlier */
    /* Quarters of the interval from the first possible start to the first
     * possible end on a device. A pass with an earlier due date is preferred if
     * it starts within this time. */
    uint32_t patience;
} lhi_way_rules;

/* The bidirectional list scheduler for one pipeline. */
typedef struct lhi_both_ways {
    const lh_pipeline *p;
    lhi_arena *mem;
    uint32_t n, kinds, n_streams; /* kinds: 3; joint backward: 2 */
    lhi_lane *lanes;
    lhi_lane_device *devices;
    bool balanced; /* each microbatch releases all its memory */
    /* Indexed by stream * n + microbatch. */
    int64_t *due, *start; /* input due dates; resulting starts */
    int64_t end_ns;       /* end of the last pass */
    bool is_backward;     /* direction of the last run */
    struct lhi_way_state *state;
} lhi_both_ways;

/* Builds a scheduler for a pipeline; `mem` owns all its memory. `n_parts`:
 * maximum number of parts per W. */
lh_status lhi_both_ways_make(const lh_pipeline *pipeline, uint32_t n_parts,
                             lhi_arena *mem, lhi_both_ways *out, lh_error *err);

/* Allocates the run state; false: out of memory. */
bool lhi_way_state_make(lhi_both_ways *b);

/* Runs all passes, each W in `n_parts` parts (backward: 1). Returns false if no
 * device can continue. Ignores the time for collectives. */
bool lhi_both_ways_run(lhi_both_ways *b, bool backward, uint32_t n_parts,
                       const lhi_way_rules *rules);

/* Converts the last run's starts to due dates for a run in the opposite
 * direction. */
void lhi_both_ways_turn(lhi_both_ways *b);

/* Writes the last run's orders, forward in time, into `out`, which the caller
 * has allocated. */
void lhi_both_ways_orders(const lhi_both_ways *b, lhi_orders *out);

/* Estimates the cost of one run, in about nanoseconds; proportional to the
 * number of passes. */
uint64_t lhi_both_ways_cost(const lhi_both_ways *b);

/* Computes per-chunk caps: shares of each device's memory, proportional to each
 * chunk's activation lifetime without waits (Little's law), rounded down or to
 * nearest. Without `all`, a device's last chunk gets no share. */
lh_status lhi_both_ways_caps(const lhi_both_ways *b, bool nearest, bool all,
                             uint32_t *caps, lh_error *err);
/* Computes caps with the same number of microbatches on every chunk: the number
 * that fits into the device on all chunks together. */
void lhi_both_ways_whole(const lhi_both_ways *b, uint32_t *caps);

#endif
