/* SPDX-License-Identifier: Apache-2.0 */
/* Internals shared by the transports: the endpoint's base, completion of
 * operations, and the run's failure. */
#ifndef LHI_RUNTIME_TRANSPORT_TRANSPORT_INTERNAL_H
#define LHI_RUNTIME_TRANSPORT_TRANSPORT_INTERNAL_H

#include "runtime/transport/emulated_links.h"
#include "runtime/transport/transport.h"

/* Interval at which a sleeping rank checks for a failed run. */
#define LHI_NET_POLL_NS INT64_C(150000000)

/* As a reporting rank: this rank observed the failure. */
#define LHI_NET_OBSERVED UINT32_MAX

enum {
    LHI_FAILURE_NONE,
    LHI_FAILURE_WRITING, /* being written */
    LHI_FAILURE_SET,
    LHI_FAILURE_INCOMPLETE, /* the writer was killed while writing */
};

/* The run's failure, set once; may be in memory shared between ranks. */
typedef struct lhi_failure {
    uint32_t state; /* atomic, LHI_FAILURE_NONE to LHI_FAILURE_INCOMPLETE */
    uint32_t rank;  /* failed rank; LHI_NET_NO_RANK: unknown */
    uint32_t reported_by; /* reporting rank; LHI_NET_OBSERVED: observed here */
    lhi_failure_cause cause;
    char text[500];
} lhi_failure;

/* Sets the failure of `rank` as observed by this rank; the run's first
 * failure remains. */
void lhi_failure_set(lhi_failure *failure, uint32_t rank, const char *reason);
/* Sets the failure of `rank` like lhi_failure_set(), as a loss: it was killed,
 * silent or disconnected, without its own error. */
void lhi_failure_set_loss(lhi_failure *failure, uint32_t rank,
                          const char *reason);
/* Sets the failure of `rank` that rank `from` reported; the run's first failure
 * remains. */
void lhi_failure_set_reported(lhi_failure *failure, uint32_t rank,
                              uint32_t from, lhi_failure_cause cause,
                              const char *text);
/* Returns the rank that failed first; LHI_NET_NO_RANK: none, or its report is
 * incomplete. */
uint32_t lhi_failure_rank(lhi_failure *failure);
/* Returns the rank whose loss is the run's failure; LHI_NET_NO_RANK: the run
 * has not failed, or for another reason. */
uint32_t lhi_failure_lost_rank(lhi_failure *failure);
/* Returns the reason of the run's failure; NULL: no failure. Waits for a
 * concurrent writer, so that the text is always complete. */
const char *lhi_failure_text(lhi_failure *failure);

/* Operations of a transport. */
typedef struct lhi_net_ops {
    const char *name;
    lh_status (*send)(lhi_net *net, lhi_net_op *op, lh_error *err);
    lh_status (*receive)(lhi_net *net, lhi_net_op *op, lh_error *err);
    /* Cancels a pending operation. On return it is in no queue and its data are
     * not accessed, or it is done after all. */
    void (*cancel)(lhi_net *net, lhi_net_op *op);
    void (*abort)(lhi_net *net, const char *reason);
    void (*close)(lhi_net *net);
} lhi_net_ops;

/* Base of every transport's endpoint. */
struct lhi_net {
    const lhi_net_ops *ops;
    uint32_t rank, n_ranks;
    /* Ranks whose messages for the user reach the same output as this rank's;
     * n_of_output 0: all ranks. */
    uint32_t first_of_output, n_of_output;
    uint32_t event_count; /* atomic, a futex */
    /* Work of the rank's thread: since when (atomic, 0: none or interrupted),
     * its number (atomic), its duration before interruptions, and the total and
     * longest (atomic) ended work. */
    int64_t work_since_ns;
    uint64_t work;
    int64_t work_ns;
    int64_t total_work_ns, longest_work_ns;
    lhi_links *links; /* NULL: no emulation */
    lhi_failure *failure;
    bool (*read_notice)(void *of, char *text,
                        size_t room); /* NULL: no notices */
    void *notice_context;
    void (*release)(void *of); /* called after close; may be NULL */
    void *release_context;
};

/* States of an operation. */
enum { LHI_OP_IDLE, LHI_OP_PENDING, LHI_OP_WAITED, LHI_OP_DONE };

/* Returns an operation's state, read atomically. */
static inline uint32_t lhi_op_state(const lhi_net_op *op)
{
    return __atomic_load_n(&op->state, __ATOMIC_ACQUIRE);
}

/* Completes an operation with `status` and wakes the thread that waits for it.
 * The operation may be freed before this returns. */
void lhi_op_done(lhi_net_op *op, lh_status status);

/* Enters the message of send `op` into its emulated link, if it has one, at
 * entered_ns; `turn`: position in the link's departure order. */
lh_status lhi_net_enter_link(lhi_net *net, lhi_net_op *op, int64_t entered_ns,
                             uint64_t turn, lh_error *err);

/* Fills `err` with the run's failure and returns its status, every later call's
 * result. */
lh_status lhi_net_fail(const lhi_net *net, lh_error *err);

/* Fails the run because a message from rank `from` with tag `tag` and its
 * receive differ in size: message_bytes and receive_bytes. */
void lhi_net_fail_size(lhi_net *net, uint32_t from, uint64_t tag,
                       size_t message_bytes, size_t receive_bytes);

#endif
