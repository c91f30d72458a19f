/* SPDX-License-Identifier: Apache-2.0 */
/* Models data-parallel communication: per-chunk gathers and reductions, and the
 * operations that passes launch. Each device has one link for them, which
 * serves them in issue order. The simulator reports each pass's start and end
 * and queries whether a pass may start. If devices share links with messages,
 * the simulator also offers their pieces to the links (dp_pieces.c). */
#ifndef LHI_SCHEDULE_SIMULATOR_DP_CLOCK_H
#define LHI_SCHEDULE_SIMULATOR_DP_CLOCK_H

#include "base/arena.h"
#include "base/fail.h"
#include "schedule/pipeline/pipeline_internal.h"

#include <longhaul/experimental/simulate.h>

/* One piece of a data-parallel communication on shared links. */
typedef struct lhi_dp_piece {
    uint32_t collective; /* index in the timeline */
    uint32_t n_messages; /* in the timeline when the piece was recorded */
    int64_t ready_ns, depart_ns, sent_ns;
    int64_t transfer_ns; /* at the links' full rate */
} lhi_dp_piece;

/* The communication of a device that shares links with messages: launched
 * collectives, of which the first is sent piece by piece. */
typedef struct lhi_dp_stream {
    uint32_t head, tail;         /* collectives not yet sent; LH_NONE: none */
    uint32_t piece;              /* next piece of `head` */
    uint64_t entry;              /* order among all waiting pieces */
    bool is_waiting;             /* the piece has entered its links' queues */
    int64_t ready_ns, depart_ns; /* of this piece; of the first one */
} lhi_dp_stream;

/* Data-parallel links for all devices. */
typedef struct lhi_dp_clock {
    const lh_pipeline *p;
    int64_t last_ns;        /* latest arrival; INT64_MIN: none */
    int64_t *free_ns;       /* per device: link free from */
    int64_t *gathered_ns;   /* per chunk: its all-gather's arrival */
    uint32_t *next_gather;  /* per chunk: the chunk whose all-gather its first
                             * forward issues, or LH_NONE */
    uint32_t *chunk_queue;  /* one device's chunks by first forward */
    uint32_t *n_unreleased; /* per chunk: remaining W and B passes */
    uint32_t *n_pending;    /* per point: prerequisites not yet launched; NULL:
                             * the pipeline has no operations */
    int64_t *ready_ns;      /* per point: latest arrival of launched ones */
    lh_collective *sent;    /* 2 n_chunks + n_dp_ops; NULL: not recorded */
    uint32_t n_sent;
    /* Only with shared links; `sent` and `n_messages` are then required. */
    const uint32_t *n_messages; /* of the timeline so far */
    lhi_dp_stream *streams;     /* per device; NULL: no device shares a link */
    uint32_t *next_launched;    /* per collective: the stream's next one */
    uint32_t *requests;         /* devices with a new piece; n_requests */
    uint32_t n_requests;
    uint64_t n_entries;
    lhi_dp_piece *pieces; /* all pieces, in departure order; with the priority
                           * `fair` in order of their ends */
    uint32_t n_pieces;
} lhi_dp_clock;

/* Takes the next request to send a piece (collective slice) on shared links.
 * Returns the piece's device and, in *ready_ns, the time at which to offer it;
 * LH_NONE: there is no request. */
uint32_t lhi_dp_clock_take_request(lhi_dp_clock *clock, int64_t *ready_ns);
/* Offers the next piece (collective slice) of a device to its links at time
 * `now`; free_ns[r] is the time from which link resource r is free. Sends it
 * and returns true, or returns false with the next offer's time in *again_ns.
 * Offers for the same time are made in ascending order of *entry. */
bool lhi_dp_clock_offer_piece(lhi_dp_clock *clock, uint32_t device,
                              int64_t *free_ns, int64_t now, int64_t *again_ns,
                              uint64_t *entry);

/* Returns the time in ns for which the next piece (collective slice) of a
 * device occupies its links at their full rate. */
int64_t lhi_dp_clock_get_piece_ns(const lhi_dp_clock *clock, uint32_t device);
/* Records the transfer of a device's next piece (collective slice), and
 * requests the device's next one. */
void lhi_dp_clock_record_piece(lhi_dp_clock *clock, uint32_t device,
                               int64_t depart_ns, int64_t sent_ns);

/* Initialises the clock of data-parallel collectives, the simulator's model of
 * when they run; all its memory belongs to `mem`. */
lh_status lhi_dp_clock_init(const lh_pipeline *pipeline, lhi_arena *mem,
                            lhi_dp_clock *out, lh_error *err);

/* Starts an iteration on the collectives' clock at time `now`; then call
 * lhi_dp_clock_add_device() for every device. */
void lhi_dp_clock_begin(lhi_dp_clock *clock, int64_t now);
/* Registers the `count` passes of a device in order, `stride` bytes apart, and
 * issues the all-gathers that start with the iteration, at time `now`. Call
 * once per device after lhi_dp_clock_begin(). */
void lhi_dp_clock_add_device(lhi_dp_clock *clock, const lh_pass *order,
                             size_t stride, uint32_t count, int64_t now);

/* Raises *start (ns) to the arrival of the collectives that the pass needs.
 * Returns false if one has not been launched or, on links shared with messages,
 * not been sent. */
bool lhi_dp_clock_get_start(const lhi_dp_clock *clock, const lh_pass *pass,
                            int64_t *start);
/* Launches the data-parallel collectives that begin when `pass` starts, at time
 * `start` (ns). Call in the order of each device's passes. */
void lhi_dp_clock_on_start(lhi_dp_clock *clock, const lh_pass *pass,
                           int64_t start);
/* Launches the reduce-scatter that follows `pass`, which ended at `now` (ns),
 * if it was the chunk's last backward. Returns true if the chunk exists in two
 * copies and both are complete. The caller then calls lhi_dp_clock_scatter()
 * for both, after all passes that end at `now`, lower chunks first. */
bool lhi_dp_clock_on_end(lhi_dp_clock *clock, const lh_pass *pass, int64_t now);
/* Launches a chunk's reduce-scatter at time `now`, if it has one. */
void lhi_dp_clock_scatter(lhi_dp_clock *clock, uint32_t chunk, int64_t now);

/* Fails with LH_EDEADLOCK: the pass with launch index `point` on `device` waits
 * for an operation that only a later pass of the device launches. `here`: the
 * pass's text for the message. */
lh_status lhi_dp_clock_fail_late_launch(const lhi_dp_clock *clock,
                                        uint32_t device, size_t point,
                                        const char *here, lh_error *err);

/* --- internal to the clock ------------------------------------------------ */

/* Allocates the queues of launched collectives for devices whose data-parallel
 * links are shared with messages; nothing if there are none. */
lh_status lhi_dp_clock_make_streams(lhi_dp_clock *clock, lhi_arena *mem,
                                    lh_error *err);
/* Empties the devices' queues of collectives on shared links, before an
 * iteration. */
void lhi_dp_clock_reset_streams(lhi_dp_clock *clock);
/* Appends collective number `index`, just launched, to its device's queue of
 * collectives on shared links. */
void lhi_dp_clock_add_to_stream(lhi_dp_clock *clock, uint32_t index);
/* Records the arrival time `arrives` (ns) of data-parallel operation `op` for
 * the pass that waits for it; nothing if no pass does. */
void lhi_dp_clock_note_operation(lhi_dp_clock *clock, const lh_dp_op *op,
                                 int64_t arrives);

#endif
