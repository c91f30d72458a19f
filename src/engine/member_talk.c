/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/member.h"

#include "base/realtime.h"

lh_status lhi_member_tell(lhi_member *w, uint32_t to, unsigned class,
                          const void *data, size_t size, lh_error *err)
{
    lhi_net_op op = {0};
    LHI_TRY(lhi_net_send(w->net, to, lhi_tag(class, w->turn, 0), data, size,
                         LHI_NET_NO_LINK, lhi_now_ns(), LHI_NET_NO_TURN, &op,
                         err));
    return lhi_net_wait(w->net, &op, 0, err);
}

lh_status lhi_member_from(uint32_t from, lh_status status, lh_error *err)
{
    if (status != LH_OK)
        lhi_wrap(err, "rank %u sends", from);
    return status;
}

lh_status lhi_member_hear(lhi_member *w, uint32_t from, unsigned class,
                          void *data, size_t size, lh_error *err)
{
    lhi_net_op op = {0};
    LHI_TRY(lhi_net_receive(w->net, from, lhi_tag(class, w->turn, 0), data,
                            size, &op, err));
    return lhi_net_wait_unless(w->net, &op, w->stop, err);
}

lh_status lhi_member_tell_command(lhi_member *w, uint32_t to,
                                  const lhi_command *command, lh_error *err)
{
    unsigned char bytes[LHI_COMMAND_BYTES];
    lhi_command_write(command, bytes);
    return lhi_member_tell(w, to, LHI_TAG_COMMAND, bytes, sizeof bytes, err);
}

lh_status lhi_member_hear_command(lhi_member *w, lhi_command *out,
                                  lh_error *err)
{
    unsigned char bytes[LHI_COMMAND_BYTES];
    LHI_TRY(lhi_member_hear(w, 0, LHI_TAG_COMMAND, bytes, sizeof bytes, err));
    return lhi_member_from(0, lhi_command_read(bytes, sizeof bytes, out, err),
                           err);
}

lh_status lhi_member_tell_done(lhi_member *w, const lhi_done *done,
                               lh_error *err)
{
    unsigned char bytes[LHI_DONE_BYTES];
    lhi_done_write(done, bytes);
    return lhi_member_tell(w, 0, LHI_TAG_DONE, bytes, sizeof bytes, err);
}

lh_status lhi_member_hear_done(lhi_member *w, uint32_t from, lhi_done *out,
                               lh_error *err)
{
    unsigned char bytes[LHI_DONE_BYTES];
    LHI_TRY(lhi_member_hear(w, from, LHI_TAG_DONE, bytes, sizeof bytes, err));
    return lhi_member_from(from, lhi_done_read(bytes, sizeof bytes, out, err),
                           err);
}
