/* SPDX-License-Identifier: Apache-2.0 */
/* Frames that arrive over UCX: receives them in arrival order and handles them
 * by kind. */
#include "runtime/transport/ucx_internal.h"

#ifdef LHI_HAVE_UCX

#include "base/fail.h"
#include "base/realtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Maximum size of a frame with its data, in bytes. */
enum { FRAME_MOST = LHI_FRAME_BYTES + LHI_NET_EAGER_BYTES };

/* Marks the incoming frame `of` as complete, or as failed; called by UCX when
 * its receive ends. */
static void frame_received(void *request, ucs_status_t status,
                           const ucp_tag_recv_info_t *info, void *of)
{
    lhi_ucx_incoming_frame *c = of;
    c->there = true;
    c->bad = status != UCS_OK || info->length != c->size;
    c->of->call.request_free(request);
}

/* Frees the memory of a message that was received only to be discarded; called
 * by UCX when its receive ends. */
static void discard_done(void *request, ucs_status_t status,
                         const ucp_tag_recv_info_t *info, void *of)
{
    (void)status, (void)info;
    ((lhi_ucx *)of)->call.request_free(request);
}

/* Receives and discards a message from outside the job, or for a cancelled
 * receive, which UCX would otherwise store until the run's end. */
static void discard_message(lhi_ucx *u, ucp_tag_message_h m)
{
    static char nowhere;
    ucp_request_param_t p = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                             UCP_OP_ATTR_FIELD_USER_DATA |
                                             UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
                             .cb.recv = discard_done,
                             .user_data = u};
    u->call.tag_msg_recv_nbx(u->worker, &nowhere, 0, m, &p);
}

lh_status lhi_ucx_receive_frames(lhi_ucx *u, lh_error *err)
{
    for (;;) {
        ucp_tag_recv_info_t info;
        ucp_tag_message_h m = u->call.tag_probe_nb(u->worker, 0, 0, 1, &info);
        if (!m)
            return LH_OK;
        if ((info.sender_tag & ~LHI_UCX_TAG_RANK) != u->frame_tag) {
            discard_message(u, m);
            continue;
        }
        if (info.length < LHI_FRAME_BYTES || info.length > FRAME_MOST)
            return lhi_fail(err, LH_EIO, "invalid frame of %zu bytes",
                            info.length);
        lhi_ucx_incoming_frame *c = calloc(1, sizeof *c + info.length);
        if (!c)
            return lhi_fail_nomem(err);
        c->of = u;
        c->size = info.length;
        c->from = (uint32_t)(info.sender_tag & LHI_UCX_TAG_RANK);
        if (u->first)
            u->last->next = c;
        else
            u->first = c;
        u->last = c;
        ucp_request_param_t p = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                                 UCP_OP_ATTR_FIELD_USER_DATA |
                                                 UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
                                 .cb.recv = frame_received,
                                 .user_data = c};
        ucs_status_ptr_t r =
            u->call.tag_msg_recv_nbx(u->worker, c->bytes, c->size, m, &p);
        if (UCS_PTR_IS_ERR(r))
            return lhi_fail(err, LH_EIO, "cannot receive a frame: %s",
                            u->call.status_string(UCS_PTR_STATUS(r)));
    }
}

/* Handles one received frame: an ABORT frame becomes the run's failure, any
 * other one goes to the protocol. LH_EIO: it is invalid. */
static lh_status handle_frame(lhi_ucx *u, const lhi_ucx_incoming_frame *c,
                              lh_error *err)
{
    lhi_frame f;
    void *into = NULL;
    lhi_net_op *op = NULL;
    lhi_unexpected *kept = NULL;
    const unsigned char *payload = c->bytes + LHI_FRAME_BYTES;
    if (c->bad)
        return lhi_fail(err, LH_EIO, "a truncated frame");
    LHI_TRY(lhi_frame_read(c->bytes, &f, err));
    if (f.kind == LHI_FRAME_DATA ||
        c->size - LHI_FRAME_BYTES != lhi_frame_payload(&f))
        return lhi_fail(err, LH_EIO, "a frame with %zu bytes after it",
                        c->size - LHI_FRAME_BYTES);
    if (f.kind == LHI_FRAME_ABORT) {
        char text[LHI_ABORT_BYTES + 1];
        lhi_wire_sanitise_text(payload, (size_t)f.size, text, sizeof text);
        lhi_failure_set_reported(u->proto.net.failure, (uint32_t)f.tag, c->from,
                                 (lhi_failure_cause)f.id, text);
        u->failure_shared = true;
        return LH_OK;
    }
    LHI_TRY(lhi_proto_frame_received(&u->proto, c->from, &f, &into, &op, &kept,
                                     err));
    if (into && f.size)
        memcpy(into, payload, (size_t)f.size);
    return op || kept ? lhi_proto_payload_received(&u->proto, op, kept, err)
                      : LH_OK;
}

void lhi_ucx_handle_frames(lhi_ucx *u)
{
    lh_error err = {0};
    if (lhi_ucx_receive_frames(u, &err) != LH_OK)
        lhi_failure_set(u->proto.net.failure, u->proto.net.rank, err.text);
    while (u->first && u->first->there) {
        lhi_ucx_incoming_frame *c = u->first;
        u->first = c->next;
        bool known =
            c->from < u->proto.net.n_ranks && c->from != u->proto.net.rank;
        if (known)
            u->ends[c->from].last_received_ns = lhi_now_ns();
        if (known && handle_frame(u, c, &err) != LH_OK) {
            char why[600];
            snprintf(why, sizeof why,
                     "rank %u received invalid data from it: %s",
                     u->proto.net.rank, err.text);
            lhi_failure_set_loss(u->proto.net.failure, c->from, why);
        }
        free(c);
    }
}

#endif
