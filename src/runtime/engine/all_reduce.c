/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/engine/all_reduce.h"

#include "base/fail.h"
#include "base/realtime.h"
#include "runtime/engine/rank.h"

#include <stdlib.h>

/* Sends `size` bytes to rank `to` and waits until they are sent; fails if
 * `stop` is requested. */
static lh_status send_bytes(lhi_net *net, uint32_t to, uint64_t tag,
                            const void *data, size_t size,
                            const lhi_net_stop *stop, lh_error *err)
{
    lhi_net_op op = {0};
    LHI_TRY(lhi_net_send(net, to, tag, data, size, LHI_NET_NO_LINK,
                         lhi_now_ns(), LHI_NET_NO_TURN, &op, err));
    return lhi_net_wait_or_stop(net, &op, stop, err);
}

/* Receives exactly `size` bytes from rank `from` into `data`; fails if `stop`
 * is requested. */
static lh_status receive_bytes(lhi_net *net, uint32_t from, uint64_t tag,
                               void *data, size_t size,
                               const lhi_net_stop *stop, lh_error *err)
{
    lhi_net_op op = {0};
    LHI_TRY(lhi_net_receive(net, from, tag, data, size, &op, err));
    return lhi_net_wait_or_stop(net, &op, stop, err);
}

/* Sums `values` of all ranks, element by element, on every rank. Each element
 * is nonzero on one rank only, so the addition order does not change the
 * result. `turn`: distinguishes successive calls. */
lh_status lhi_all_reduce_sum(lhi_net *net, uint64_t turn, double *values,
                             size_t n, const lhi_net_stop *stop, lh_error *err)
{
    uint64_t up = lhi_tag(LHI_TAG_SUM, turn, 0);
    uint64_t down = lhi_tag(LHI_TAG_SUM, turn, 1);
    uint32_t n_ranks = lhi_net_n_ranks(net);
    size_t size = n * sizeof *values;
    if (lhi_net_rank(net) != 0) {
        LHI_TRY(send_bytes(net, 0, up, values, size, stop, err));
        return receive_bytes(net, 0, down, values, size, stop, err);
    }
    double *theirs = calloc(n + 1, sizeof *theirs);
    lh_status status = theirs ? LH_OK : lhi_fail_nomem(err);
    for (uint32_t r = 1; status == LH_OK && r < n_ranks; r++) {
        status = receive_bytes(net, r, up, theirs, size, stop, err);
        for (size_t i = 0; status == LH_OK && i < n; i++)
            values[i] += theirs[i];
    }
    for (uint32_t r = 1; status == LH_OK && r < n_ranks; r++)
        status = send_bytes(net, r, down, values, size, stop, err);
    free(theirs);
    return status;
}

lh_status lhi_send_text_to_root(lhi_net *net, uint32_t from, uint64_t turn,
                                char *text, size_t size,
                                const lhi_net_stop *stop, lh_error *err)
{
    uint64_t tag = lhi_tag(LHI_TAG_SUM, turn, 2);
    uint32_t me = lhi_net_rank(net);
    if (from == 0 || (me != from && me != 0))
        return LH_OK;
    if (me == from)
        return send_bytes(net, 0, tag, text, size, stop, err);
    LHI_TRY(receive_bytes(net, from, tag, text, size, stop, err));
    text[size - 1] = '\0';
    return LH_OK;
}
