/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/engine/worker.h"

#include "base/realtime.h"

lh_status lhi_run_worker_send(lhi_run_worker *w, uint32_t to, unsigned class,
                              const void *data, size_t size, lh_error *err)
{
    lhi_net_op op = {0};
    LHI_TRY(lhi_net_send(w->net, to, lhi_tag(class, w->turn, 0), data, size,
                         LHI_NET_NO_LINK, lhi_now_ns(), LHI_NET_NO_TURN, &op,
                         err));
    return lhi_net_wait(w->net, &op, 0, err);
}

lh_status lhi_run_worker_wrap_sender(uint32_t from, lh_status status,
                                     lh_error *err)
{
    if (status != LH_OK)
        lhi_fail_add_context(err, "rank %u sends", from);
    return status;
}

lh_status lhi_run_worker_receive(lhi_run_worker *w, uint32_t from,
                                 unsigned class, void *data, size_t size,
                                 lh_error *err)
{
    lhi_net_op op = {0};
    LHI_TRY(lhi_net_receive(w->net, from, lhi_tag(class, w->turn, 0), data,
                            size, &op, err));
    return lhi_net_wait_or_stop(w->net, &op, w->stop, err);
}

lh_status lhi_run_worker_send_command(lhi_run_worker *w, uint32_t to,
                                      const lhi_command *command, lh_error *err)
{
    unsigned char bytes[LHI_COMMAND_BYTES];
    lhi_command_write(command, bytes);
    return lhi_run_worker_send(w, to, LHI_TAG_COMMAND, bytes, sizeof bytes,
                               err);
}

lh_status lhi_run_worker_receive_command(lhi_run_worker *w, lhi_command *out,
                                         lh_error *err)
{
    unsigned char bytes[LHI_COMMAND_BYTES];
    LHI_TRY(lhi_run_worker_receive(w, 0, LHI_TAG_COMMAND, bytes, sizeof bytes,
                                   err));
    return lhi_run_worker_wrap_sender(
        0, lhi_command_read(bytes, sizeof bytes, out, err), err);
}

lh_status lhi_run_worker_send_report(lhi_run_worker *w,
                                     const lhi_command_report *done,
                                     lh_error *err)
{
    unsigned char bytes[LHI_COMMAND_REPORT_BYTES];
    lhi_command_report_write(done, bytes);
    return lhi_run_worker_send(w, 0, LHI_TAG_DONE, bytes, sizeof bytes, err);
}

lh_status lhi_run_worker_receive_report(lhi_run_worker *w, uint32_t from,
                                        lhi_command_report *out, lh_error *err)
{
    unsigned char bytes[LHI_COMMAND_REPORT_BYTES];
    LHI_TRY(lhi_run_worker_receive(w, from, LHI_TAG_DONE, bytes, sizeof bytes,
                                   err));
    return lhi_run_worker_wrap_sender(
        from, lhi_command_report_read(bytes, sizeof bytes, out, err), err);
}
