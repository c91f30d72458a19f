/* SPDX-License-Identifier: Apache-2.0 */
/* One rank of a run: carries out its instructions, step by step. The compute
 * thread runs passes, posts receives and hands over sends, none of which
 * block; the transport moves bytes meanwhile. It waits for inputs alone. */
#ifndef LHI_RANK_H
#define LHI_RANK_H

#include "dev/dev.h"
#include "engine/exec.h"
#include "engine/messages.h"
#include "engine/seats.h"
#include "net/net.h"

#include <pthread.h>

/* Messages of a run: class, step (24 bits), number (32 bits). What is in them:
 * docs/formats/wire.md. */
enum {
    LHI_TAG_MESSAGE = 1,
    LHI_TAG_NOTICE, /* a late receive is posted */
    LHI_TAG_COMMAND,
    LHI_TAG_DONE,
    LHI_TAG_RECORD,
    LHI_TAG_DATA, /* data-parallel */
    LHI_TAG_SUM,
    LHI_TAG_BARRIER,
    LHI_TAG_PING,
    LHI_TAG_SCHEDULE,
    LHI_TAG_VOTE,
    LHI_TAG_ARRIVED, /* a message of a coupled rank has */
    LHI_TAG_SEEN,
    LHI_TAG_GROUP, /* of ranks that compute a pass together */
    LHI_TAG_STATE /* what was trained, to where it moves */
};

static inline uint64_t lhi_tag(unsigned class, uint64_t step, uint32_t number)
{
    return (uint64_t) class << 56 | (step & 0xffffff) << 32 | number;
}

/* Room for one message, in a pool while it is free. */
typedef struct lhi_buffer {
    struct lhi_buffer *next;
    lhi_net_op op;
    void *data;
} lhi_buffer;

/* Buffers of one size, for one thread at a time. */
typedef struct lhi_pool {
    lhi_net *net; /* that they are sent over */
    size_t bytes;
    lhi_buffer *free, *sending, **sending_end;
    uint32_t n_buffers, n_grown; /* all; beyond those that it was made with */
} lhi_pool;

typedef struct lhi_late lhi_late;           /* late.c */
typedef struct lhi_coupled lhi_coupled;     /* coupled.c */
typedef struct lhi_delegated lhi_delegated; /* delegated.c */

/* Real data-parallel work around the passes; NULL: played from the
 * pipeline's times. */
typedef struct lhi_rank_hooks {
    void *context;
    /* Before the first F of a chunk: returns once its values are there. */
    lh_status (*first)(void *context, uint32_t chunk, lh_error *err);
    /* After the last W or B: takes note, returns at once. */
    void (*last)(void *context, uint32_t chunk);
    /* Before every pass, in the place of both; NULL: they are called. */
    lh_status (*pass)(void *context, uint32_t i, lhi_step_kind kind,
                      lh_error *err);
} lhi_rank_hooks;

typedef struct lhi_rank_options {
    const lh_pipeline *pipeline;
    const lh_exec *exec;
    uint32_t stage; /* the pipeline's device that it is */
    uint32_t base;  /* the place of stage 0 of its copy */
    const lhi_seats *seats; /* who has which; NULL: as the run began */
    lhi_net *net;
    lhi_device *device;
    bool emulates; /* messages take the pipeline's links */
    bool sees;     /* keeps lhi_rank.seen */
    const lhi_rank_hooks *hooks;
    const lhi_net_stop *stop; /* asked now and then; may be NULL */
} lhi_rank_options;

/* Of all steps of training: what copies of activations took, and how long
 * passes waited for them. */
typedef struct lhi_copy_sums {
    int64_t copied_ns, waited_ns;
} lhi_copy_sums;

typedef struct lhi_rank {
    lhi_rank_options o;
    lhi_arena *mem;
    const lhi_exec_rank *program;
    lhi_buffer *receives; /* one per slot */
    lhi_pool pool;        /* for outputs */
    lhi_buffer **local;   /* per input that stays here; NULL where none does */
    lhi_record *records;  /* per pass */
    lhi_seen_row *seen;   /* likewise, of the last step; NULL: not asked for */
    /* Played data-parallel link; played: as far as the data stream is through.
     */
    int64_t data_free_ns;
    int64_t *data_ready_ns; /* per pass: all that it waits for was there */
    uint32_t n_played;
    lhi_played *played;
    /* The offload stream: as far as it is launched, when each copy was. */
    int64_t copy_free_ns;
    uint32_t n_copied;
    lhi_copied *copied; /* one per copy of the program */
    lhi_copy_sums copy_sums;
    lhi_late *late;           /* NULL: receives are early */
    lhi_coupled *coupled;     /* NULL: sends never block */
    lhi_delegated *delegated; /* NULL: all messages take the direct path */
    uint64_t turns;           /* steps so far in which links had orders */
} lhi_rank;

/* The endpoint's number of a stage of its replica. */
static inline uint32_t lhi_rank_host(const lhi_rank *rank, uint32_t stage)
{
    return lhi_seats_host(rank->o.seats, rank->o.base + stage);
}

lh_status lhi_rank_make(const lhi_rank_options *options, lhi_rank **out,
                        lh_error *err);
/* Ends the rank's threads, before the endpoint is closed; after a failure, once
 * all ranks have been told. */
void lhi_rank_stop(lhi_rank *rank);
/* After a failure the endpoint must be closed before. NULL is fine. */
void lhi_rank_free(lhi_rank *rank);

/* Message buffers beyond those that were predicted, so far. */
uint32_t lhi_rank_grown(const lhi_rank *rank);

/* Bytes of its message buffers, added to bytes[]. */
void lhi_rank_held(const lhi_rank *rank, int64_t bytes[LH_N_MEMORY_KINDS]);

/* One step, from `t0_ns` on. *end_ns: when its last pass or data-parallel
 * communication ended, by the real clock. */
lh_status lhi_rank_step(lhi_rank *rank, uint64_t step, lhi_step_kind kind,
                        int64_t t0_ns, int64_t *end_ns, lh_error *err);

/* --- messages of passes (rank_send.c) --------------------------------------
 */

/* Of the message that is input `input`. */
size_t lhi_rank_input_bytes(const lhi_rank *rank, uint32_t input);
/* Sends a message of pass `pass` that was made at entered_ns. */
lh_status lhi_rank_send(lhi_rank *rank, const lhi_exec_pass *pass,
                        lhi_buffer *buffer, uint64_t step, lhi_step_kind kind,
                        int64_t entered_ns, lh_error *err);

/* --- buffers (pool.c) -------------------------------------------------------
 */

/* With n buffers; false: no memory (lhi_pool_fini() all the same). */
bool lhi_pool_init(lhi_pool *pool, lhi_net *net, size_t bytes, uint32_t n);
/* Of one buffer for messages of so many bytes, and of all that a pool has. */
size_t lhi_pool_room(size_t bytes);
size_t lhi_pool_held(const lhi_pool *pool);
void lhi_pool_fini(lhi_pool *pool);        /* zeroed is fine */
lhi_buffer *lhi_pool_take(lhi_pool *pool); /* NULL: no memory */
void lhi_pool_give(lhi_pool *pool, lhi_buffer *buffer);
/* The buffer is being sent; it is free again once that is done. */
void lhi_pool_sent(lhi_pool *pool, lhi_buffer *buffer);
/* Waits until all sends are done. */
lh_status lhi_pool_drain(lhi_pool *pool, const lhi_net_stop *stop,
                         lh_error *err);

/* --- late receives (late.c) ------------------------------------------------
 */

/* Rendezvous: a message is not sent before its receiver has told that the
 * receive is posted. Threads, one per rank that is sent to, wait for that, so
 * that no pass does. */
lh_status lhi_late_make(lhi_rank *rank, lh_error *err);
void lhi_late_stop(lhi_late *late);
void lhi_late_free(lhi_late *late);
/* The first time it starts these threads. */
lh_status lhi_late_begin(lhi_late *late, uint64_t step, lhi_step_kind kind,
                         lh_error *err);
/* A receive was posted at `posted_ns`. */
lh_status lhi_late_posted(lhi_late *late, const lhi_exec_post *post,
                          int64_t posted_ns, lh_error *err);
/* Pass `pass` has made its message at `made_ns`. */
void lhi_late_made(lhi_late *late, uint32_t pass, lhi_buffer *buffer,
                   int64_t made_ns);
/* All messages of the step are on their way. */
lh_status lhi_late_end(lhi_late *late, lh_error *err);

/* --- coupled sends (coupled.c) ---------------------------------------------
 */

/* Head-of-line blocking: the rank's sends share one queue with its passes, and
 * hold an entry until their receiver has told that they have arrived. A thread
 * of each rank tells and is told, whatever the passes do meanwhile. In steps of
 * training alone; in others every call below returns at once. */
lh_status lhi_coupled_make(lhi_rank *rank, lh_error *err);
/* Before the endpoint is closed. */
void lhi_coupled_stop(lhi_coupled *coupled);
void lhi_coupled_free(lhi_coupled *coupled);
lh_status lhi_coupled_begin(lhi_coupled *coupled, uint64_t step,
                            lhi_step_kind kind, lh_error *err);
/* Whether the step's receives are awaited by its thread; `op` is to be such a
 * one. */
bool lhi_coupled_awaits(const lhi_coupled *coupled);
/* The receive of `post` has begun. */
void lhi_coupled_posted(lhi_coupled *coupled, const lhi_exec_post *post);
/* Waits until what was posted into `slot` has arrived. */
lh_status lhi_coupled_await(lhi_coupled *coupled, uint32_t slot, lh_error *err);
/* Waits until the queue has an entry for a message of a pass that ended at
 * *at_ns, which is moved on to when it had. */
lh_status lhi_coupled_issue(lhi_coupled *coupled, int64_t *at_ns,
                            lh_error *err);
/* Waits until all that this rank has sent in the step has arrived. */
lh_status lhi_coupled_end(lhi_coupled *coupled, lh_error *err);
/* When the message that was received has arrived, as its link has it. */
int64_t lhi_rank_arrived_ns(const lhi_rank *rank, uint32_t link,
                            const lhi_net_op *op);

/* --- delegated messages (delegated.c) ---------------------------------------
 */

/* A message is copied to host memory, sent from there, and copied to the device
 * at the other end, by threads: one for each queue of a lane, with buffers of
 * its own. In steps of training alone; in others they go directly. */
lh_status lhi_delegated_make(lhi_rank *rank, lh_error *err);
/* Before the endpoint is closed. */
void lhi_delegated_stop(lhi_delegated *d);
void lhi_delegated_free(lhi_delegated *d);
/* The first time it starts these threads. */
lh_status lhi_delegated_begin(lhi_delegated *d, uint64_t step,
                              lhi_step_kind kind, lh_error *err);
/* Whether messages are moved so in this step; NULL: no. */
bool lhi_delegated_moves(const lhi_delegated *d);
/* The receive of post `post` has begun. */
void lhi_delegated_posted(lhi_delegated *d, uint32_t post);
/* Pass `pass` has made its message at `made_ns`; the buffer is the rank's again
 * once it is copied (lhi_delegated_reclaim()). */
void lhi_delegated_made(lhi_delegated *d, uint32_t pass, lhi_buffer *buffer,
                        int64_t made_ns);
/* Gives buffers that were copied back to the rank's pool. */
void lhi_delegated_reclaim(lhi_delegated *d);
/* Waits for the input in `slot`; *data is its copy, *there_ns when that was
 * there. */
lh_status lhi_delegated_await(lhi_delegated *d, uint32_t slot,
                              const void **data, int64_t *there_ns,
                              lh_error *err);
/* All messages of the step are on their way. */
lh_status lhi_delegated_end(lhi_delegated *d, lh_error *err);
/* Buffers beyond those that were made beforehand. */
uint32_t lhi_delegated_grown(const lhi_delegated *d);
/* All of them, in bytes. */
size_t lhi_delegated_bytes(const lhi_delegated *d);

/* --- activations that leave (offloaded.c) -----------------------------------
 * In steps of training alone.
 */

lh_status lhi_offloaded_make(lhi_rank *rank, lh_error *err);
void lhi_offloaded_begin(lhi_rank *rank, int64_t t0_ns);
/* Before pass i: returns once the copies that it waits for are done, and begins
 * those that go with its start; *ready_ns is moved on to when they were. */
lh_status lhi_offloaded_before(lhi_rank *rank, uint32_t i, int64_t *ready_ns,
                               lh_error *err);
lh_status lhi_offloaded_after(lhi_rank *rank, uint32_t i, const lhi_span *span,
                              lh_error *err);
/* All copies of the step are done, rank->copied complete. */
lh_status lhi_offloaded_end(lhi_rank *rank, lh_error *err);

/* --- played data-parallel communication (played.c) -------------------------
 */

lh_status lhi_played_make(lhi_rank *rank, lh_error *err);
void lhi_played_begin(lhi_rank *rank, int64_t t0_ns);
/* When all that the pass waits for has arrived; 0: it waits for nothing. */
int64_t lhi_played_ready(const lhi_rank *rank, const lhi_exec_pass *pass);
void lhi_played_start(lhi_rank *rank, const lhi_exec_pass *pass,
                      int64_t start_ns);
void lhi_played_end(lhi_rank *rank, const lhi_exec_pass *pass, int64_t end_ns);
/* Of the last communication; 0: there was none. */
int64_t lhi_played_last(const lhi_rank *rank);

#endif
