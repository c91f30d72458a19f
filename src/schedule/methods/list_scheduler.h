/* SPDX-License-Identifier: Apache-2.0 */
/* List scheduling in either time direction: forward from the first F, or
 * backward from the last W. Each device runs the startable pass with the
 * earliest due date; due dates come from the previous run in the opposite
 * direction. `look-ahead` combines such runs.
 *
 * A stream is the sequence of all same-kind passes on a chunk, ordered by
 * microbatch: F, D, W on chunk 0, F, D, W on chunk 1, ...; with a joint
 * backward F and B. Backward in time, microbatches count from the end. */
#ifndef LHI_SCHEDULE_METHODS_LIST_SCHEDULER_H
#define LHI_SCHEDULE_METHODS_LIST_SCHEDULER_H

#include "schedule/methods/sched.h"

/* Data that a pass sends to another stream, with its link. */
typedef struct lhi_stream_arc {
    uint32_t to;
    uint32_t resource; /* LH_NONE: no link */
    int64_t transfer_ns, latency_ns;
} lhi_stream_arc;

/* A stream in one direction of time. */
typedef struct lhi_stream_direction {
    lhi_stream_arc out[2];
    uint32_t in[2]; /* streams that it depends on */
    uint32_t n_out, n_in;
    int64_t memory; /* change per pass */
    uint32_t slot;  /* index by device, then by `sequence` */
} lhi_stream_direction;

/* A stream: device, pass duration and both directions. */
typedef struct lhi_pass_stream {
    uint32_t device;
    int64_t time_ns;
    lhi_stream_direction direction[2]; /* [1]: backward in time */
} lhi_pass_stream;

/* A device's streams, memory and executed order. */
typedef struct lhi_stream_device {
    /* Its streams in the order in which one microbatch passes them: F on its
     * first chunk, ... */
    uint32_t *sequence;
    uint32_t n_streams, n_chunks, first_slot;
    int64_t room;                 /* activation memory; LH_NO_LIMIT: all fit */
    int64_t microbatch_peak[2];   /* one microbatch's peak, per direction */
    bool only_first_allocates[2]; /* only the first stream takes memory */
    uint32_t *order;              /* executed passes: stream * n + microbatch */
    uint32_t count;
} lhi_stream_device;

/* Rules for one run. */
typedef struct lhi_list_scheduler_rules {
    const uint32_t *caps; /* per chunk: max. microbatches between F and W */
    bool greedy;          /* greedy's rule rather than earliest due date */
    bool delay_sends;     /* delay passes until their message can leave */
    bool reserve;         /* reserve memory for passes due earlier */
    /* Quarters of the interval from the first possible start to the first
     * possible end on a device. A pass with an earlier due date is preferred if
     * it starts within this time. */
    uint32_t patience;
} lhi_list_scheduler_rules;

/* The bidirectional list scheduler for one pipeline. */
typedef struct lhi_list_scheduler {
    const lh_pipeline *p;
    lhi_arena *mem;
    uint32_t n, kinds, n_streams; /* kinds: 3; joint backward: 2 */
    lhi_pass_stream *streams;
    lhi_stream_device *devices;
    bool balanced; /* each microbatch releases all its memory */
    /* Indexed by stream * n + microbatch. */
    int64_t *due, *start; /* input due dates; resulting starts */
    int64_t end_ns;       /* the last pass's end */
    bool is_backward;     /* the last run's direction */
    struct lhi_list_scheduler_state *state;
} lhi_list_scheduler;

/* Builds a list scheduler for a pipeline; `mem` owns all its memory.
 * `n_parts`: maximum part count per W. */
lh_status lhi_list_scheduler_make(const lh_pipeline *pipeline, uint32_t n_parts,
                                  lhi_arena *mem, lhi_list_scheduler *out,
                                  lh_error *err);

/* Allocates the scheduler's state for a run; false: out of memory. */
bool lhi_list_scheduler_make_state(lhi_list_scheduler *b);

/* Runs the list scheduler over all passes, each W in n_parts parts, forward in
 * time or `backward` from the end (then n_parts is 1). `rules`: how a device
 * selects its next pass. Returns false if no device can continue. Ignores the
 * time of collectives. */
bool lhi_list_scheduler_run(lhi_list_scheduler *b, bool backward,
                            uint32_t n_parts,
                            const lhi_list_scheduler_rules *rules);

/* Sets every pass's due date for a run in the opposite direction of time from
 * its start in the last run. */
void lhi_list_scheduler_reverse_due_dates(lhi_list_scheduler *b);

/* Writes the last run's orders, in forward direction of time, into `out`,
 * which the caller has allocated. */
void lhi_list_scheduler_write_orders(const lhi_list_scheduler *b,
                                     lhi_orders *out);

/* Estimates one run's cost, in about nanoseconds; proportional to the pass
 * count. */
uint64_t lhi_list_scheduler_estimate_cost(const lhi_list_scheduler *b);

/* Computes caps, the maximum microbatch count in flight per chunk, as shares of
 * each device's memory. They are proportional to each chunk's activation
 * lifetime without waits (Little's law), rounded down or (`nearest`) to
 * nearest. Without `all`, a device's last chunk gets no cap. */
lh_status lhi_list_scheduler_compute_caps(const lhi_list_scheduler *b,
                                          bool nearest, bool all,
                                          uint32_t *caps, lh_error *err);
/* Computes caps with the same microbatch count in flight on every chunk of a
 * device: as many as fit on all chunks together. */
void lhi_list_scheduler_compute_uniform_caps(const lhi_list_scheduler *b,
                                             uint32_t *caps);

#endif
