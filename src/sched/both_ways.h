/* SPDX-License-Identifier: Apache-2.0 */
/* List scheduling in either direction of time: from the first F on, or from
 * the last W backward. Each device takes what is due first of what it could
 * start; what is due comes from the run the other way. `look-ahead` is made of
 * such runs.
 *
 * A stream is all passes of one kind of one chunk, in the order of
 * microbatches: F, D, W of chunk 0, F, D, W of chunk 1, ...; with a joint
 * backward F and B. Backward in time the microbatches count from the end. */
#ifndef LHI_BOTH_WAYS_H
#define LHI_BOTH_WAYS_H

#include "sched/sched.h"

/* What a pass hands to another stream, and over what. */
typedef struct lhi_arc {
    uint32_t to;
    uint32_t resource; /* LH_NONE: no link */
    int64_t transfer_ns, latency_ns;
} lhi_arc;

/* A stream in one direction of time. */
typedef struct lhi_way {
    lhi_arc out[2];
    uint32_t in[2]; /* the streams that it waits for */
    uint32_t n_out, n_in;
    int64_t memory; /* change by one pass */
    uint32_t slot;  /* of all streams, by device and as its `sequence` goes */
} lhi_way;

typedef struct lhi_lane {
    uint32_t device;
    int64_t time_ns;
    lhi_way way[2]; /* [1]: backward in time */
} lhi_lane;

typedef struct lhi_lane_device {
    /* Its streams as one microbatch passes them: F of its first chunk, ... */
    uint32_t *sequence;
    uint32_t n_streams, n_chunks, first_slot;
    int64_t room;      /* memory for activations; LH_NO_LIMIT: all fit */
    int64_t whole[2];  /* the most that a microbatch takes of it, both ways */
    bool one_takes[2]; /* only the first stream of the sequence takes memory */
    uint32_t *order;   /* what ran, as stream * n + microbatch */
    uint32_t count;
} lhi_lane_device;

/* How to run. */
typedef struct lhi_way_rules {
    const uint32_t *caps; /* per chunk: microbatches between F and W at most */
    bool crosspipe;       /* greedy's choice in place of the first due */
    bool hold_back;       /* no pass before its message could leave */
    bool reserve;         /* leave memory to those that are due before */
    /* Of the time from the first possible start to the first possible end on
     * a device, how many quarters later another pass may start and still be
     * preferred. */
    uint32_t patience;
} lhi_way_rules;

typedef struct lhi_both_ways {
    const lh_pipeline *p;
    lhi_arena *mem;
    uint32_t n, kinds, n_streams; /* kinds: 3, joint: 2 */
    lhi_lane *lanes;
    lhi_lane_device *devices;
    bool balanced; /* a microbatch leaves the memory as it found it */
    /* Per stream * n + microbatch. */
    int64_t *due, *start; /* what to go by; what came out */
    int64_t end_ns;       /* of the last pass */
    bool is_backward;     /* the last run was */
    struct lhi_way_state *state;
} lhi_both_ways;

/* `mem` owns what is made. W will be cut into at most `n_parts`. */
lh_status lhi_both_ways_make(const lh_pipeline *pipeline, uint32_t n_parts,
                             lhi_arena *mem, lhi_both_ways *out, lh_error *err);

/* The part of making that belongs to running; false: no memory. */
bool lhi_way_state_make(lhi_both_ways *b);

/* Runs all passes; each W in `n_parts` (backward: 1). False: it came to a
 * halt. What collectives add is not reckoned with. */
bool lhi_both_ways_run(lhi_both_ways *b, bool backward, uint32_t n_parts,
                       const lhi_way_rules *rules);

/* Makes the starts of the last run the dues of one the other way. */
void lhi_both_ways_turn(lhi_both_ways *b);

/* The orders of the last run, forward in time, into `out`, which has room. */
void lhi_both_ways_orders(const lhi_both_ways *b, lhi_orders *out);

/* About what a run costs: twice as many passes, twice as much. */
uint64_t lhi_both_ways_cost(const lhi_both_ways *b);

/* Shares of each device's memory for its chunks, by how long they hold it when
 * nothing waits (Little's law), rounded down or to the nearest; but for `all`,
 * a device's last chunk has no share of its own. */
lh_status lhi_both_ways_caps(const lhi_both_ways *b, bool nearest, bool all,
                             uint32_t *caps, lh_error *err);
/* As many microbatches in each chunk as fit into the device in all of them. */
void lhi_both_ways_whole(const lhi_both_ways *b, uint32_t *caps);

#endif
