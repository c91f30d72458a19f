/* SPDX-License-Identifier: Apache-2.0 */
/* Executes one rank's instructions, step by step. The compute thread runs
 * passes, posts receives and hands over sends without blocking; the transport
 * moves the bytes meanwhile. Only inputs are waited for. */
#ifndef LHI_RUNTIME_ENGINE_RANK_H
#define LHI_RUNTIME_ENGINE_RANK_H

#include "runtime/device/device.h"
#include "runtime/engine/control_messages.h"
#include "runtime/engine/execution_plan.h"
#include "runtime/engine/process_grid.h"
#include "runtime/engine/rank_assignment.h"
#include "runtime/transport/transport.h"

#include <pthread.h>

/* Tag classes. A tag has a class, a step (24 bits) and a number (32 bits).
 * Contents: docs/formats/wire.md. */
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
    LHI_TAG_ARRIVED, /* arrival notice for blocking sends */
    LHI_TAG_OBSERVATION,
    LHI_TAG_GROUP, /* groups that compute a pass together */
    LHI_TAG_STATE  /* migrated training state */
};

/* Builds a message tag from its class, the low 24 bits of the step, and a
 * number. */
static inline uint64_t lhi_tag(unsigned class, uint64_t step, uint32_t number)
{
    return (uint64_t) class << 56 | (step & 0xffffff) << 32 | number;
}

/* A message buffer, linked in a pool while free. A message may have several
 * parts, from or to different ranks. */
typedef struct lhi_buffer {
    struct lhi_buffer *next;
    lhi_net_op op;      /* of the first part */
    lhi_net_op *others; /* of the other parts; NULL: messages have one part */
    uint32_t n_others;  /* parts in use apart from the first */
    void *data;
} lhi_buffer;

/* Buffers of equal size; not thread-safe. */
typedef struct lhi_pool {
    lhi_net *net; /* transport for the sends */
    size_t bytes;
    uint32_t max_others; /* parts per message apart from the first, at most */
    lhi_buffer *free, *sending, **sending_end;
    uint32_t n_buffers, growth; /* all; allocated after construction */
} lhi_pool;

typedef struct lhi_rendezvous lhi_rendezvous;         /* rendezvous.c */
typedef struct lhi_blocking_sends lhi_blocking_sends; /* blocking_sends.c */
typedef struct lhi_delegated_path lhi_delegated_path; /* delegated_path.c */

/* Real data-parallel work around the passes; NULL: emulated with the pipeline's
 * times. */
typedef struct lhi_rank_hooks {
    void *context;
    /* Called before a chunk's first F; returns once its values are gathered. */
    lh_status (*first)(void *context, uint32_t chunk, lh_error *err);
    /* Called after a chunk's last W or B; must not block. */
    void (*last)(void *context, uint32_t chunk);
    /* Called before every pass, replacing both; NULL: `first` and `last` are
     * called. */
    lh_status (*pass)(void *context, uint32_t i, lhi_step_kind kind,
                      lh_error *err);
} lhi_rank_hooks;

/* Options for an executing rank. */
typedef struct lhi_rank_options {
    const lh_pipeline *pipeline;
    const lh_exec *exec;
    uint32_t stage; /* pipeline device of this rank */
    uint32_t place; /* logical rank */
    /* Grid whose stages have different tensor degrees, and the rows of a
     * microbatch that the tensor-parallel ranks of a stage divide: messages
     * between different degrees then have parts (message_parts.c). NULL: one
     * part. */
    const lhi_grid *grid;
    uint32_t n_rows;
    const lhi_rank_assignment
        *assignment; /* rank assignment; NULL: the initial one */
    lhi_net *net;
    lhi_device *device;
    /* The plan is that of all replicas without a lost rank (rerouting.h). Hooks
     * and devices that train number chunks and microbatches as in the plan
     * before the loss: chunk c is c % n of n chunks in a copy of the model, and
     * copy m * rerouted_replicas + r is microbatch m of replica r. 0: not
     * rerouted. */
    uint32_t rerouted_replicas;
    const lh_pipeline *replica; /* one replica's pipeline before the loss */
    bool emulates;              /* messages use the pipeline's links */
    bool observes;              /* records lhi_rank.observation */
    const lhi_rank_hooks *hooks;
    const lhi_net_stop *stop; /* polled regularly; may be NULL */
} lhi_rank_options;

/* Returns the number, over all replicas, of the microbatch of a copy of the
 * model in a rerouted plan. */
static inline uint32_t lhi_rerouted_microbatch(uint32_t copy, uint32_t n_copies,
                                               uint32_t replicas)
{
    return copy % replicas * (n_copies / replicas) + copy / replicas;
}

/* Activation copies over all training steps: their duration, and the passes'
 * wait time for them, in ns. */
typedef struct lhi_copy_sums {
    int64_t copied_ns, waited_ns;
} lhi_copy_sums;

/* Progress of a step on a chunk whose microbatches are divided. */
typedef struct lhi_chunk_progress {
    uint32_t n_passes, n_left; /* last W or B of each microbatch */
    bool has_begun;
} lhi_chunk_progress;

/* An executing rank. */
typedef struct lhi_rank {
    lhi_rank_options o;
    lhi_arena *mem;
    const lhi_exec_rank *program;
    lhi_buffer *receives;     /* one per slot */
    lhi_pool pool;            /* for outputs */
    lhi_buffer **local;       /* per local input; NULL: none stored */
    lhi_pass_record *records; /* per pass */
    /* Per chunk of one copy of the model; NULL: not rerouted, or no hooks. */
    lhi_chunk_progress *progress;
    uint32_t n_copies; /* of the model, if `progress` is set */
    lhi_pass_observation
        *observation; /* last step, per pass; NULL: not requested */
    /* Emulated data-parallel link; progress in the data stream. */
    int64_t data_free_ns;
    int64_t *data_ready_ns; /* per pass: arrival of all that it waits for */
    uint32_t n_collectives;
    lhi_collective_record *collectives;
    /* The device shares links with messages: slots of the step's collectives on
     * the emulated links; LH_NONE: arrived. */
    bool shares_links;
    uint32_t *shared_slots;
    /* Offload stream: its progress and when the link is free. */
    int64_t copy_free_ns;
    uint32_t n_copied;
    lhi_storage_times *copied; /* one per copy in the program */
    lhi_copy_sums copy_sums;
    lhi_rendezvous *rendezvous;         /* NULL: receives are posted early */
    lhi_blocking_sends *blocking_sends; /* NULL: sends never block */
    lhi_delegated_path *delegated; /* NULL: all messages use the direct path */
    uint64_t turns;                /* steps so far with ordered links */
} lhi_rank;

/* Returns the endpoint's rank for a stage of its copy; requires equal tensor
 * degrees. */
static inline uint32_t lhi_rank_of_stage(const lhi_rank *rank, uint32_t stage)
{
    return lhi_rank_assignment_find_rank(rank->o.assignment,
                                         rank->o.place - rank->o.stage + stage);
}

/* Creates a rank with the buffers and threads that its execution plan needs. */
lh_status lhi_rank_make(const lhi_rank_options *options, lhi_rank **out,
                        lh_error *err);
/* Ends the rank's communication threads. Call it before the endpoint is closed;
 * after a failure, once all ranks are notified. */
void lhi_rank_stop(lhi_rank *rank);
/* Frees a rank; NULL is fine. After a failure, close the endpoint first. */
void lhi_rank_free(lhi_rank *rank);

/* Returns how many output buffers were allocated during steps,
 * beyond the predicted number. */
uint32_t lhi_rank_pool_growth(const lhi_rank *rank);

/* Adds the bytes of the rank's message buffers to bytes[], by memory kind. */
void lhi_rank_add_memory(const lhi_rank *rank,
                         int64_t bytes[LH_N_MEMORY_KINDS]);

/* Runs one step from `t0_ns` on. *end_ns: end of its last pass or data-parallel
 * communication, on the real clock. */
lh_status lhi_rank_run_step(lhi_rank *rank, uint64_t step, lhi_step_kind kind,
                            int64_t t0_ns, int64_t *end_ns, lh_error *err);

/* --- parts of messages (message_parts.c) --- */

/* A part of a message: consecutive rows that this rank exchanges with one rank
 * of another stage. */
typedef struct lhi_message_part {
    uint32_t peer;        /* endpoint's rank */
    uint32_t copy;        /* pipeline copy whose emulated links it uses */
    size_t offset, bytes; /* in this rank's message */
    /* Position among the parts that use the same link for one message, and
     * their number. */
    uint32_t position, n_on_link;
} lhi_message_part;

/* Returns the number of parts of a message to or from stage `stage`. */
uint32_t lhi_rank_count_parts(const lhi_rank *rank, uint32_t stage);
/* Returns part `i` of a message with `bytes` bytes on this rank to or from
 * stage `stage`. */
lhi_message_part lhi_rank_get_part(const lhi_rank *rank, uint32_t stage,
                                   size_t bytes, uint32_t i);
/* Returns the operation of part `i` of the message in the buffer. */
static inline lhi_net_op *lhi_buffer_get_op(lhi_buffer *buffer, uint32_t i)
{
    return i == 0 ? &buffer->op : &buffer->others[i - 1];
}

/* --- messages (rank_send.c) --- */

/* Returns the message's size for input `input`, in bytes. */
size_t lhi_rank_input_bytes(const lhi_rank *rank, uint32_t input);
/* Sends `pass`'s output, which enters its link at entered_ns, to the consuming
 * rank; `buffer` returns to its pool once it is sent. */
lh_status lhi_rank_send(lhi_rank *rank, const lhi_exec_pass *pass,
                        lhi_buffer *buffer, uint64_t step, lhi_step_kind kind,
                        int64_t entered_ns, lh_error *err);

/* --- buffers (buffer_pool.c) --- */

/* Makes a pool with n buffers for messages with up to max_others + 1 parts;
 * false: out of memory (call lhi_pool_fini() anyway). */
bool lhi_pool_init(lhi_pool *pool, lhi_net *net, size_t bytes,
                   uint32_t max_others, uint32_t n);
/* Returns the bytes that a pool allocates for one buffer that holds a message
 * of `bytes` bytes. */
size_t lhi_pool_buffer_bytes(size_t bytes);
/* Returns the bytes of all buffers that the pool has allocated. */
size_t lhi_pool_total_bytes(const lhi_pool *pool);
/* Frees a pool's buffers; a zeroed pool is allowed. */
void lhi_pool_fini(lhi_pool *pool);
/* Takes a free buffer from the pool, or allocates one; NULL: out of memory. */
lhi_buffer *lhi_pool_take(lhi_pool *pool);
/* Returns a buffer that no send uses to the pool's free list. */
void lhi_pool_give(lhi_pool *pool, lhi_buffer *buffer);
/* Gives a buffer back to the pool while its send is in flight; it becomes free
 * when the send completes. */
void lhi_pool_give_after_send(lhi_pool *pool, lhi_buffer *buffer);
/* Waits until all sends from the pool's buffers are complete and returns the
 * buffers to the pool. */
lh_status lhi_pool_drain(lhi_pool *pool, const lhi_net_stop *stop,
                         lh_error *err);

/* --- rendezvous receives (rendezvous.c) --- */

/* Makes the rendezvous protocol: a message is sent only after a notice that
 * its receive is posted. One thread per receiving rank waits for the notices,
 * so that passes do not. */
lh_status lhi_rendezvous_make(lhi_rank *rank, lh_error *err);
/* Ends the threads that send messages once their receive is posted. */
void lhi_rendezvous_stop(lhi_rendezvous *late);
/* Frees the rendezvous state (sends that wait for their receive); NULL is
 * allowed. */
void lhi_rendezvous_free(lhi_rendezvous *late);
/* Starts a step with rendezvous sends, which wait for their receive; the first
 * call starts the sender threads. */
lh_status lhi_rendezvous_begin_step(lhi_rendezvous *late, uint64_t step,
                                    lhi_step_kind kind, lh_error *err);
/* Sends the notice that receive `post` was posted at `posted_ns` to the rank
 * that sends its message. */
lh_status lhi_rendezvous_notify_posted(lhi_rendezvous *late,
                                       const lhi_exec_post *post,
                                       int64_t posted_ns, lh_error *err);
/* Passes the output of pass number `pass`, produced at made_ns, to its
 * receiver's sender thread. */
void lhi_rendezvous_add_output(lhi_rendezvous *late, uint32_t pass,
                               lhi_buffer *buffer, int64_t made_ns);
/* Waits until the sender threads have sent all messages of the step. */
lh_status lhi_rendezvous_end_step(lhi_rendezvous *late, lh_error *err);

/* --- blocking sends (blocking_sends.c) --- */

/* Makes the state of blocking sends: the rank's sends share one queue with its
 * passes (head-of-line blocking) and occupy an entry until the receiver's
 * arrival notice. A thread per rank exchanges the notices independently of the
 * passes. Training steps only; in others all calls below return at once. */
lh_status lhi_blocking_sends_make(lhi_rank *rank, lh_error *err);
/* Ends the notice thread, which reports arrivals to senders. Call it before
 * the endpoint is closed. */
void lhi_blocking_sends_stop(lhi_blocking_sends *coupled);
/* Frees the blocking-sends state; NULL is allowed. */
void lhi_blocking_sends_free(lhi_blocking_sends *coupled);
/* Starts a step with blocking sends; the first call starts the notice
 * thread. */
lh_status lhi_blocking_sends_begin_step(lhi_blocking_sends *coupled,
                                        uint64_t step, lhi_step_kind kind,
                                        lh_error *err);
/* Checks whether the notice thread polls this step's receives, so that their
 * `op` has to wake it on completion. */
bool lhi_blocking_sends_is_active(const lhi_blocking_sends *coupled);
/* Registers a posted receive, so that the notice thread reports its arrival to
 * the sender. */
void lhi_blocking_sends_add_receive(lhi_blocking_sends *coupled,
                                    const lhi_exec_post *post);
/* Waits for the message of receive buffer number `slot` with blocking sends,
 * when the notice thread polls the receives. */
lh_status lhi_blocking_sends_await_receive(lhi_blocking_sends *coupled,
                                           uint32_t slot, lh_error *err);
/* Waits for a free entry in the send queue for the output of a pass that ended
 * at *at_ns; raises *at_ns to the time at which the entry became free. */
lh_status lhi_blocking_sends_acquire_entry(lhi_blocking_sends *coupled,
                                           int64_t *at_ns, lh_error *err);
/* Waits until the arrival notices of all sends of the step are received. */
lh_status lhi_blocking_sends_end_step(lhi_blocking_sends *coupled,
                                      lh_error *err);
/* Returns the time in ns at which the message of receive `op` arrived over
 * `link`. On an emulated network, a message without a link (LH_NONE) arrives
 * when it is sent. */
int64_t lhi_rank_arrived_ns(const lhi_rank *rank, uint32_t link,
                            const lhi_net_op *op);

/* --- delegated path (delegated_path.c) --- */

/* Makes the delegated path: a message is copied to host memory, sent from
 * there, and copied to the device at the other end. One thread per queue in a
 * lane (the messages to or from one rank) does this with its own buffers.
 * Training steps only; other steps use the direct path. */
lh_status lhi_delegated_path_make(lhi_rank *rank, lh_error *err);
/* Ends the threads that copy and send delegated messages. Call it before the
 * endpoint is closed. */
void lhi_delegated_path_stop(lhi_delegated_path *d);
/* Frees the state of the delegated path (messages copied through host memory);
 * NULL is allowed. */
void lhi_delegated_path_free(lhi_delegated_path *d);
/* Starts step `step` of the delegated path (messages copied through host memory
 * by helper threads); the first call starts the threads. */
lh_status lhi_delegated_path_begin_step(lhi_delegated_path *d, uint64_t step,
                                        lhi_step_kind kind, lh_error *err);
/* Checks whether messages of this step take the delegated path: through host
 * memory, copied and sent by helper threads. */
bool lhi_delegated_path_is_active(const lhi_delegated_path *d);
/* Registers posted receive number `i` of the rank, so that its queue's helper
 * thread waits for the message. */
void lhi_delegated_path_add_receive(lhi_delegated_path *d, uint32_t post);
/* Passes pass `i`'s output, produced at `made_ns`, to the helper thread that
 * copies it to host memory and sends it. After the copy,
 * lhi_delegated_path_reclaim_buffers() returns the buffer to the rank. */
void lhi_delegated_path_add_output(lhi_delegated_path *d, uint32_t pass,
                                   lhi_buffer *buffer, int64_t made_ns);
/* Returns device buffers to the rank's pool once their delegated messages are
 * copied to host memory. */
void lhi_delegated_path_reclaim_buffers(lhi_delegated_path *d);
/* Waits for the input in receive slot `slot`. *data: its copy on the device;
 * *there_ns: when the copy was complete. */
lh_status lhi_delegated_path_await_input(lhi_delegated_path *d, uint32_t slot,
                                         const void **data, int64_t *there_ns,
                                         lh_error *err);
/* Waits until all delegated messages (sent by helper threads from host memory)
 * of the step have been sent. */
lh_status lhi_delegated_path_end_step(lhi_delegated_path *d, lh_error *err);
/* Returns how many host buffers were allocated during steps, because the pools
 * were empty. */
uint32_t lhi_delegated_path_pool_growth(const lhi_delegated_path *d);
/* Returns the bytes of all device and host buffers for delegated messages
 * (copied through host memory). */
size_t lhi_delegated_path_count_bytes(const lhi_delegated_path *d);

/* --- activation offload (activation_offload.c) ---
 *
 * Training steps only. */

/* Allocates the rank's records of offload copies (activations copied to and
 * from storage), one per copy in its program. */
lh_status lhi_activation_offload_make(lhi_rank *rank, lh_error *err);
/* Starts a step at t0_ns (time of the run's clock) without records of offload
 * copies. */
void lhi_activation_offload_begin_step(lhi_rank *rank, int64_t t0_ns);
/* Prepares pass i: waits for the offload copies that it needs, then launches
 * the copies that start with it. Raises *ready_ns to the awaited copies'
 * end. */
lh_status lhi_activation_offload_before_pass(lhi_rank *rank, uint32_t i,
                                             int64_t *ready_ns, lh_error *err);
/* Launches the offload copies to storage that follow pass i, which ran during
 * `span`. */
lh_status lhi_activation_offload_after_pass(lhi_rank *rank, uint32_t i,
                                            const lhi_span *span,
                                            lh_error *err);
/* Waits for all offload copies of the step and stores their times in
 * rank->copied. */
lh_status lhi_activation_offload_end_step(lhi_rank *rank, lh_error *err);

/* --- emulated collectives (emulated_collectives.c) --- */

/* Allocates the rank's collective records and arrival times. */
lh_status lhi_emulated_collectives_make(lhi_rank *rank, lh_error *err);
/* Starts a step at t0_ns (time of the run's clock) without records of emulated
 * collectives. */
lh_status lhi_emulated_collectives_begin_step(lhi_rank *rank, int64_t t0_ns,
                                              lh_error *err);
/* Sleeps until all collectives that pass number `pass` needs have arrived, and
 * raises *ready_ns to that time. */
lh_status lhi_emulated_collectives_await_pass(lhi_rank *rank, uint32_t pass,
                                              int64_t *ready_ns, lh_error *err);
/* Emulates the collectives that are launched at the start of `pass`. */
lh_status lhi_emulated_collectives_start_pass(lhi_rank *rank,
                                              const lhi_exec_pass *pass,
                                              int64_t start_ns, lh_error *err);
/* Emulates the collectives that are launched at the end of `pass`. */
lh_status lhi_emulated_collectives_end_pass(lhi_rank *rank,
                                            const lhi_exec_pass *pass,
                                            int64_t end_ns, lh_error *err);
/* Sleeps until the step's last collective has arrived, at *last_ns; 0: no
 * collectives. */
lh_status lhi_emulated_collectives_end_step(lhi_rank *rank, int64_t *last_ns,
                                            lh_error *err);

#endif
