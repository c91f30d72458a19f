/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of ranks for tensor, context and expert parallelism: collectives built
 * only on sends and receives (transport.h), so all transports support them.
 *
 * Every member calls the same collectives in the same order. A call returns
 * when the caller has its results and may reuse its buffers. Results do not
 * depend on timing: sums are element by element in member order. Each member
 * sends every other member's part directly, which moves as many bytes as a ring
 * in one step.
 *
 * Groups may share ranks and run concurrently in separate threads; one thread
 * at a time may use a group. If a rank fails, the others' waits end as for any
 * message: LH_EIO with the rank and the reason. A failed call ends the run and
 * leaves no operation pending. */
#ifndef LHI_RUNTIME_TRANSPORT_GROUP_H
#define LHI_RUNTIME_TRANSPORT_GROUP_H

#include "runtime/transport/transport.h"

typedef struct lhi_group lhi_group;

/* Options for lhi_group_make(). */
typedef struct lhi_group_options {
    uint32_t n_ranks, mine; /* ranks[mine] is the caller */
    const uint32_t *ranks;  /* identical on every member; copied */
    /* Upper 32 bits in the tags of all its messages, unique among groups and
     * messages between the same ranks. The lower 32 bits count the calls. */
    uint64_t tag;
    const lhi_net_stop *stop; /* as in lhi_net_wait_or_stop(); may be NULL */
} lhi_group_options;

/* Creates a group of ranks for collectives. LH_EINVAL: the caller is not the
 * given member, a rank is listed twice, or the group's tag has bits in its
 * lower half, which number the collectives. Free it only between collectives;
 * the endpoint may be closed before. */
lh_status lhi_group_make(lhi_net *net, const lhi_group_options *options,
                         lhi_group **out, lh_error *err);
/* Frees a group; NULL is allowed. */
void lhi_group_free(lhi_group *group);

/* Returns the group's rank count. */
uint32_t lhi_group_n_ranks(const lhi_group *group);
/* Returns the caller's index in the group. */
uint32_t lhi_group_index(const lhi_group *group);
/* Returns the group's memory in bytes: the buffer of its largest reduction so
 * far. */
size_t lhi_group_memory_bytes(const lhi_group *group);
/* Returns the memory that a reduce-scatter needs, in bytes, if the caller
 * receives `count` values. */
size_t lhi_group_scatter_bytes(uint32_t n_ranks, size_t count);
/* Returns the bytes of memory that an all-reduce of n values over n_ranks ranks
 * needs on member `mine`. */
size_t lhi_group_reduce_bytes(uint32_t n_ranks, uint32_t mine, size_t n);

/* Emulates a link in every later collective of a group whose members share a
 * clock: the collective takes at least latency_ns plus ns_per_byte times the
 * larger of its sent and received bytes, after the last message that it needs
 * has arrived. Zeros (the default): no emulation. */
void lhi_group_set_link(lhi_group *group, int64_t latency_ns,
                        double ns_per_byte);
/* Lets the emulated transfer of the next collective of `g` overlap with that
 * of the last collective of `before`: the latter's duration is subtracted. */
void lhi_group_overlap_next(lhi_group *group, const lhi_group *before);
/* Returns the total emulated link time (latency plus transfer) of the group's
 * collectives so far, in ns; each collective counts it from its last message's
 * real arrival. */
int64_t lhi_group_emulated_ns(const lhi_group *group);
/* Returns the total duration in ns of all collectives of the group so far, with
 * waits for other members; of shifts begun by lhi_group_shift_begin(), only
 * from lhi_group_shift_end() on. */
int64_t lhi_group_duration_ns(const lhi_group *group);
/* Returns the collective count of the group so far. */
uint64_t lhi_group_count_calls(const lhi_group *group);

/* All-gather: member i contributes sizes[i] bytes; all members receive them in
 * member order in `all`. `mine` is the caller's part and may be at its position
 * in `all`. */
lh_status lhi_group_all_gather(lhi_group *group, const void *mine, void *all,
                               const size_t *sizes, lh_error *err);
/* Reduce-scatter: member i receives the sums of its counts[i] values in `out`;
 * `values` has all members' values in member order. `out` may be their position
 * in `values`. */
lh_status lhi_group_reduce_scatter(lhi_group *group, const float *values,
                                   float *out, const size_t *counts,
                                   lh_error *err);
/* All-reduce: replaces `values` (n of them) by their sums over all members, in
 * place. */
lh_status lhi_group_all_reduce(lhi_group *group, float *values, size_t n,
                               lh_error *err);
/* All-to-all: sends gives[i] bytes of `out` to member i and receives gets[i]
 * bytes from it into `in`, both in member order. Sizes must match at both ends.
 * Buffers may not overlap. */
lh_status lhi_group_all_to_all(lhi_group *group, const void *out,
                               const size_t *gives, void *in,
                               const size_t *gets, lh_error *err);
/* Buffers and sizes of an all-to-all. `to_all`: every member receives the same
 * gives[0] bytes. */
typedef struct lhi_group_bytes {
    const void *out;
    const size_t *send_bytes;
    bool to_all;
    void *in;
    const size_t *recv_bytes;
} lhi_group_bytes;

/* Runs two all-to-alls in one step, when only the senders have the sizes of the
 * second one. `counts` has sizes known at both ends and is sent first; `rows`
 * follows directly. After receiving the first, calls known(context), which sets
 * rows->recv_bytes[]. */
lh_status lhi_group_all_to_all_with_counts(lhi_group *group,
                                           const lhi_group_bytes *counts,
                                           const lhi_group_bytes *rows,
                                           void (*known)(void *context),
                                           void *context, lh_error *err);
/* Shift around a ring: sends `gives` bytes of `out` to the next member (`back`:
 * to the previous one), and receives `gets` bytes from the opposite side into
 * `in`. A group of one copies. */
lh_status lhi_group_shift(lhi_group *group, bool back, const void *out,
                          size_t gives, void *in, size_t gets, lh_error *err);

/* Starts a shift as lhi_group_shift() does, so that the caller can compute
 * until lhi_group_shift_end(). No other call of the group is allowed in
 * between, and the buffers may not be touched. */
lh_status lhi_group_shift_begin(lhi_group *group, bool back, const void *out,
                                size_t gives, void *in, size_t gets,
                                lh_error *err);
/* Waits until a shift begun by lhi_group_shift_begin() is complete. */
lh_status lhi_group_shift_end(lhi_group *group, lh_error *err);

#endif
