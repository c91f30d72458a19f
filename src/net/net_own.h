/* SPDX-License-Identifier: Apache-2.0 */
/* What the transports share: the endpoint's common part, completing an
 * operation and sleeping until it is, and why a run has failed. */
#ifndef LHI_NET_OWN_H
#define LHI_NET_OWN_H

#include "net/emulated_links.h"
#include "net/net.h"

/* Whatever happens, a sleeping rank looks this often whether the run failed. */
#define LHI_NET_LOOK_NS INT64_C(150000000)

#define LHI_NET_SEEN UINT32_MAX

enum {
    LHI_FAILURE_NONE,
    LHI_FAILURE_BEGUN, /* somebody is just writing it */
    LHI_FAILURE_THERE,
    LHI_FAILURE_UNSAID, /* who wrote it was killed while it did */
};

/* Why a run has failed: set once, in memory that ranks may share. */
typedef struct lhi_failure {
    uint32_t state; /* atomic, LHI_FAILURE_NONE to LHI_FAILURE_UNSAID */
    uint32_t rank;  /* that failed */
    uint32_t from;  /* the rank that told it, LHI_NET_SEEN: nobody */
    char text[500];
} lhi_failure;

void lhi_failure_set(lhi_failure *failure, uint32_t rank, const char *reason);
/* What rank `from` told of it. */
void lhi_failure_tell(lhi_failure *failure, uint32_t from, const char *text);
/* NULL: none. Waits for who is just writing it, so that the reason is never a
 * part of what another thread or rank is about to say. */
const char *lhi_failure_text(lhi_failure *failure);

typedef struct lhi_net_ops {
    const char *name;
    lh_status (*send)(lhi_net *net, lhi_net_op *op, lh_error *err);
    lh_status (*receive)(lhi_net *net, lhi_net_op *op, lh_error *err);
    /* Lets go of an operation that is not done; on return it is in no queue
     * and nothing touches its data, or it is done after all. */
    void (*withdraw)(lhi_net *net, lhi_net_op *op);
    void (*abort)(lhi_net *net, const char *reason);
    void (*close)(lhi_net *net);
} lhi_net_ops;

/* The start of every transport's endpoint. */
struct lhi_net {
    const lhi_net_ops *ops;
    uint32_t rank, n_ranks;
    uint32_t bell;    /* atomic, a futex */
    lhi_links *links; /* NULL: none are emulated */
    lhi_failure *failure;
    bool (*tell)(void *of, char *text, size_t room); /* NULL: says nothing */
    void *tell_of;
    void (*release)(void *of); /* once closed; NULL: nothing */
    void *release_of;
};

/* States of an operation. */
enum { LHI_OP_IDLE, LHI_OP_PENDING, LHI_OP_WAITED, LHI_OP_DONE };

static inline uint32_t lhi_op_state(const lhi_net_op *op)
{
    return __atomic_load_n(&op->state, __ATOMIC_ACQUIRE);
}

/* Marks it done and wakes who waits. The operation may be gone on return. */
void lhi_op_done(lhi_net_op *op, lh_status status);

/* Takes the message of `op` (a send) into its link, if it has one. */
lh_status lhi_net_enter(lhi_net *net, lhi_net_op *op, int64_t entered_ns,
                        uint64_t turn, lh_error *err);

/* The run has failed: the error of every call from now on. */
lh_status lhi_net_failed(const lhi_net *net, lh_error *err);

/* A message and its receive differ in size: ends the run. */
void lhi_net_wrong_size(lhi_net *net, uint32_t from, uint64_t tag,
                        size_t message_bytes, size_t receive_bytes);

#endif
