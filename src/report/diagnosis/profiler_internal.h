/* SPDX-License-Identifier: Apache-2.0 */
/* Shared declarations for reading a profiler's traces. */
#ifndef LHI_REPORT_DIAGNOSIS_PROFILER_INTERNAL_H
#define LHI_REPORT_DIAGNOSIS_PROFILER_INTERNAL_H

#include "report/diagnosis/profiler.h"

#include "base/json_input.h"

#include <stdlib.h>

/* One file's ranges and kernels, in file order. */
typedef struct lhi_file_events {
    lhi_named_range *ranges;
    size_t n_ranges, ranges_room;
    lhi_kernel *kernels;
    size_t n_kernels, kernels_room;
    lhi_cpu_op *operators;
    size_t n_operators, operators_room;
} lhi_file_events;

/* Reads a PyTorch profiler file into *out; `into` receives its rank, world size
 * and process groups. A named range's kind follows from the rank map's patterns
 * or, if none matches, from the known names. */
lh_status lhi_profiler_read_events(const lhi_profiler *p, lhi_gzip_stream *zip,
                                   const char *name, lhi_profiled_rank *into,
                                   lhi_file_events *out, lh_error *err);
/* Allocates a flag for each name pattern in the rank map, which records whether
 * it matched a range. */
lh_status lhi_profiler_prepare_map(lhi_profiler *p, lh_error *err);
/* Frees the ranges, kernels and operators read from a file. */
void lhi_file_events_fini(lhi_file_events *events);

/* Adds a CPU operator, or a range of a communication library, called `name`
 * to the file's events; an operator inside an earlier one only adds its
 * autograd number to it. `op` has the times, thread, first autograd number
 * and is_range. */
lh_status lhi_profiler_add_operator(lhi_file_events *events, const char *name,
                                    lhi_cpu_op op, lh_error *err);
/* Adds a profiler's named range from start_ns to end_ns to file `file`'s
 * events if its name is of interest (such as a pass, message or step). Counts
 * an unknown pipeline range as a defect. */
lh_status lhi_profiler_add_range(const lhi_profiler *p, lhi_file_events *events,
                                 const char *file, const char *name,
                                 int64_t start_ns, int64_t end_ns,
                                 lh_error *err);
/* Converts one file's events to rank `r`'s operations and adds the rank to the
 * profiler. Owns `r`'s contents from then on, also on failure; sorts the
 * events. */
lh_status lhi_profiler_add_events(lhi_profiler *p, lhi_profiled_rank *r,
                                  lhi_file_events *events, lh_error *err);
/* Copies the file name `name` into rank `r`, for messages. */
lh_status lhi_profiled_rank_name(lhi_profiled_rank *r, const char *name,
                                 lh_error *err);
/* Adds one file's activity times (computation, communication, idle) to rank
 * `into`: from its GPU kernels or, without kernels, from its CPU operators. */
lh_status lhi_profiler_measure_activity(const lhi_profiler *p,
                                        const lhi_file_events *events,
                                        lhi_profiled_rank *into, lh_error *err);
/* Adds ranges for the passes and messages in a file that has messages between
 * ranks, but no ranges for messages; passes with ranges are kept. Sorts the
 * operators. */
lh_status lhi_profiler_derive_passes(lhi_file_events *events, lh_error *err);

/* Converts a file's ranges and kernels to rank `into`'s operations and assigns
 * them to steps. */
lh_status lhi_profiler_add_operations(lhi_file_events *events,
                                      lhi_profiled_rank *into, lh_error *err);

/* Sets the chunk of passes whose names lack it, for ranks with a place in a
 * pipeline: their index in the process group whose first rank receives no
 * activations, and whose last sends none. */
void lhi_profiler_find_positions(lhi_profiler *p);
/* Determines each rank's stage and replica, from the rank map or the process
 * groups. */
lh_status lhi_profiler_find_ranks(lhi_profiler *p, lh_error *err);
/* Corrects the ranks' clocks where their times contradict the messages and
 * collectives. */
lh_status lhi_profiler_correct_clocks(lhi_profiler *p, lh_error *err);
/* Estimates when the messages arrived for which no pass waited, and sets the
 * ends of their sends to these times. */
lh_status lhi_profiler_time_messages(lhi_profiler *p, lh_error *err);

/* Grows an array by at least one `size`-byte item. */
static inline lh_status lhi_profiler_grow_array(void **items, size_t n,
                                                size_t *room, size_t size,
                                                lh_error *err)
{
    if (n < *room)
        return LH_OK;
    size_t more = *room ? *room + *room / 2 : 16;
    void *grown = more < SIZE_MAX / size ? realloc(*items, more * size) : NULL;
    if (!grown)
        return lhi_fail_nomem(err);
    *items = grown;
    *room = more;
    return LH_OK;
}

/* Limits of a clock since 1970 and of a range: differences between larger times
 * could overflow. */
#define LHI_MOST_NS (INT64_C(2400000000) * 1000000000)
#define LHI_LONGEST_NS (INT64_C(1000000) * 1000000000)

/* Checks whether a range is a pass. */
static inline bool lhi_range_is_pass(uint8_t is)
{
    return is <= LHI_OP_WEIGHT;
}

/* Checks whether a range is a message between stages. */
static inline bool lhi_range_is_message(uint8_t is)
{
    return is >= LHI_OP_FORWARD_SEND && is <= LHI_OP_BACKWARD_RECV;
}

/* One message end. Direction, receiving chunk, microbatch and step identify the
 * message within a replica. */
typedef struct lhi_message_end {
    uint64_t message, step;
    uint32_t replica;
    bool is_send;
    lhi_profiled_rank *rank;
    lhi_rank_op *op;
} lhi_message_end;

/* Lists the sends and receives of all ranks, grouped by message with the send
 * first; release with free(). */
lh_status lhi_message_ends(const lhi_profiler *p, lhi_message_end **out,
                           size_t *n, lh_error *err);
/* Checks whether entries [i] and [i + 1] in the list are one message's send and
 * receive. */
bool lhi_message_is_complete(const lhi_message_end *ends, size_t n, size_t i);

#endif
