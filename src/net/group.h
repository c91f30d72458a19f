/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of ranks that compute one thing together, as tensor, context and
 * expert parallelism do: collectives over sends and receives alone (net.h), so
 * every transport has them.
 *
 * Every member calls the same collectives in the same order; each returns once
 * the caller has what it needs and its own bytes are its own again. Nothing
 * depends on timing: sums are made element by element in the order of the
 * members. Each member sends every other its part directly, which moves as many
 * bytes as a ring does and takes one step.
 *
 * Groups of several kinds may share ranks, and run at the same time in threads
 * of their own; a group is for one thread at a time. When a rank fails, waits
 * of the others end as those for any message do: LH_EIO, with the rank and the
 * reason. A call that fails ends the run, and leaves nothing under way. */
#ifndef LHI_GROUP_H
#define LHI_GROUP_H

#include "net/net.h"

typedef struct lhi_group lhi_group;

typedef struct lhi_group_options {
    uint32_t n_ranks, mine; /* ranks[mine] is the caller */
    const uint32_t *ranks;  /* the same list at every member; copied */
    /* The upper 32 bits of all its messages' tags; no other group or message
     * between the same ranks may have them. The lower 32 count its calls. */
    uint64_t tag;
    const lhi_net_stop *stop; /* as in lhi_net_wait_unless; may be NULL */
} lhi_group_options;

/* LH_EINVAL: the caller is not that member, a rank is there twice, or the tag
 * has lower bits. Release it between calls; the endpoint may be closed
 * before. */
lh_status lhi_group_make(lhi_net *net, const lhi_group_options *options,
                         lhi_group **out, lh_error *err);
void lhi_group_free(lhi_group *group); /* NULL is fine */

uint32_t lhi_group_n_ranks(const lhi_group *group);
uint32_t lhi_group_mine(const lhi_group *group);
/* Bytes that it holds: those of the largest sum so far; and those that it comes
 * to hold for a reduce-scatter of which the caller gets `count` values, or an
 * all-reduce of n. */
size_t lhi_group_held(const lhi_group *group);
size_t lhi_group_scatter_bytes(uint32_t n_ranks, size_t count);
size_t lhi_group_reduce_bytes(uint32_t n_ranks, uint32_t mine, size_t n);

/* Emulates a link, for members that share a clock: from now on each call ends
 * no sooner than `latency_ns` and then `ns_per_byte` for each byte that the
 * caller sends, or receives, whichever are more, after the last of those whose
 * bytes it needs has come to it. Zeros, as at first: it takes what it takes. */
void lhi_group_set_link(lhi_group *group, int64_t latency_ns,
                        double ns_per_byte);
/* The bytes of the next call are on emulated links while those of the last call
 * of `before` are: the time that these took is not taken again. */
void lhi_group_go_beside(lhi_group *group, const lhi_group *before);
/* What emulated links have made of calls so far, once all had come. */
int64_t lhi_group_linked_ns(const lhi_group *group);
/* What calls have taken so far, waits for other members included (of a shift in
 * halves the second one), and how many there were. */
int64_t lhi_group_spent_ns(const lhi_group *group);
uint64_t lhi_group_calls(const lhi_group *group);

/* Member i gives sizes[i] bytes, which all get, one member's after the other's,
 * in `all`. `mine` is the caller's part; it may be its place in `all`. */
lh_status lhi_group_all_gather(lhi_group *group, const void *mine, void *all,
                               const size_t *sizes, lh_error *err);
/* Member i gets, in out, the sums of its counts[i] values; `values` has all
 * members', one after the other. `out` may be their place in `values`. */
lh_status lhi_group_reduce_scatter(lhi_group *group, const float *values,
                                   float *out, const size_t *counts,
                                   lh_error *err);
/* All get the sums of n values, in the place of their own. */
lh_status lhi_group_all_reduce(lhi_group *group, float *values, size_t n,
                               lh_error *err);
/* Member i gets gives[i] bytes of `out`, where they lie in the order of the
 * members; what comes from member i, gets[i] bytes, lies so in `in`. What goes
 * from one to another has to have the same size at both. Buffers may not
 * overlap. */
lh_status lhi_group_all_to_all(lhi_group *group, const void *out,
                               const size_t *gives, void *in,
                               const size_t *gets, lh_error *err);
/* What a member gives each and gets of each, as above; `to_all`: all are given
 * the same gives[0] bytes. */
typedef struct lhi_group_bytes {
    const void *out;
    const size_t *gives;
    bool to_all;
    void *in;
    const size_t *gets;
} lhi_group_bytes;

/* Two all-to-alls in one step, for what comes in sizes that only those know who
 * give it: `told`, of sizes known to both ends, goes first, and `rest` right
 * behind it. Once the first has come, known(context) says what to expect of the
 * second: rest->gets[] is read after that. */
lh_status lhi_group_all_to_all_told(lhi_group *group,
                                    const lhi_group_bytes *told,
                                    const lhi_group_bytes *rest,
                                    void (*known)(void *context), void *context,
                                    lh_error *err);
/* Gives `gives` bytes to the next member, or back to the one before, and gets
 * `gets` from the other side; the last one's next is the first. In a group of
 * one it copies. */
lh_status lhi_group_shift(lhi_group *group, bool back, const void *out,
                          size_t gives, void *in, size_t gets, lh_error *err);

/* The same in two halves, so that the caller computes in between: begin, then
 * end, before any other call. Buffers are the group's until then. */
lh_status lhi_group_shift_begin(lhi_group *group, bool back, const void *out,
                                size_t gives, void *in, size_t gets,
                                lh_error *err);
lh_status lhi_group_shift_end(lhi_group *group, lh_error *err);

#endif
