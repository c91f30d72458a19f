/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of reading a profiler's traces have of each other. */
#ifndef LHI_PROFILER_OWN_H
#define LHI_PROFILER_OWN_H

#include "diagnose/profiler.h"

/* Of one file, in the order of the file. */
typedef struct lhi_file_events {
    lhi_named_range *ranges;
    size_t n_ranges, ranges_room;
    lhi_kernel *kernels;
    size_t n_kernels, kernels_room;
} lhi_file_events;

/* Reads a file; `into` gets its rank, world and groups. What a range is, is
 * told by the map's names, then by those that are known. */
lh_status lhi_profiler_events(const lhi_profiler *p, lhi_unzip *zip,
                              const char *name, lhi_profiled *into,
                              lhi_file_events *out, lh_error *err);
void lhi_file_events_fini(lhi_file_events *events);

/* The operations of a file, added to those of `into`. */
lh_status lhi_profiler_ranges(lhi_file_events *events, lhi_profiled *into,
                              lh_error *err);

/* Says of each rank where it is. */
lh_status lhi_profiler_places(lhi_profiler *p, lh_error *err);
/* Sets the clocks of ranks where they contradict what was sent. */
lh_status lhi_profiler_clocks(lhi_profiler *p, lh_error *err);
/* Sets when messages arrived that nobody waited for, and ends sends then. */
lh_status lhi_profiler_messages(lhi_profiler *p, lh_error *err);

/* Makes room for one more item of `size` bytes. */
lh_status lhi_profiler_grow(void **items, size_t n, size_t *room, size_t size,
                            lh_error *err);

static inline bool lhi_range_is_pass(uint8_t is)
{
    return is <= LHI_OP_WEIGHT;
}

static inline bool lhi_range_is_message(uint8_t is)
{
    return is >= LHI_OP_FORWARD_SEND && is <= LHI_OP_BACKWARD_RECV;
}

/* A message: a direction, the chunk that takes it, the microbatch, the step, by
 * which its send and its receive are found; the replica is that of both. */
typedef struct lhi_message_end {
    uint64_t message, step;
    uint32_t replica;
    bool sends;
    lhi_profiled *of;
    lhi_rank_op *op;
} lhi_message_end;

/* The sends and receives of all ranks, those of one message one after the
 * other, the send first; release with free(). */
lh_status lhi_message_ends(const lhi_profiler *p, lhi_message_end **out,
                           size_t *n, lh_error *err);
/* The ends [i] and [i + 1] are the send and the receive of one message. */
bool lhi_message_is_whole(const lhi_message_end *ends, size_t n, size_t i);

#endif
