/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes and sends the messages of passes. */
#include "runtime/engine/rank.h"
#include "schedule/pipeline/pipeline_internal.h"

size_t lhi_rank_input_bytes(const lhi_rank *rank, uint32_t input)
{
    const lh_exec *x = rank->o.exec;
    uint32_t c = input % x->n_half / rank->o.pipeline->n_microbatches;
    const lhi_device_ops *ops = rank->o.device->ops;
    return input < x->n_half ? ops->message_bytes(rank->o.device, c - 1, false)
                             : ops->message_bytes(rank->o.device, c + 1, true);
}

/* Returns the emulated link of the output of `pass` in a rerouted plan, that of
 * its microbatch's replica; LHI_NET_NO_LINK: none. */
static uint32_t find_rerouted_link(const lhi_rank *rank, const lh_pass *pass)
{
    const lh_pipeline *p = rank->o.replica;
    const uint32_t c = pass->chunk % p->n_chunks;
    const lhi_route *route =
        pass->kind == LH_F ? &p->forward[c] : &p->backward[c];
    const uint32_t replica =
        pass->chunk / p->n_chunks % rank->o.rerouted_replicas;
    return route->resource == LH_NONE
               ? LHI_NET_NO_LINK
               : replica * p->n_resources + route->resource;
}

lh_status lhi_rank_send(lhi_rank *rank, const lhi_exec_pass *pass,
                        lhi_buffer *buffer, uint64_t step, lhi_step_kind kind,
                        int64_t entered_ns, lh_error *err)
{
    uint32_t link = LHI_NET_NO_LINK;
    uint64_t turn = LHI_NET_NO_TURN;
    if (rank->o.emulates && kind == LHI_STEP_TRAIN && pass->link != LH_NONE) {
        const lh_exec *x = rank->o.exec;
        /* each pipeline copy has its own links */
        link = rank->o.base / x->n_ranks * x->n_links + pass->link;
        if (rank->progress)
            link = find_rerouted_link(rank, &pass->pass);
        else if (pass->turn != UINT64_MAX)
            turn = rank->turns * x->link_messages[pass->link] + pass->turn;
    }
    buffer->op = (lhi_net_op){0};
    return lhi_net_send(rank->o.net, lhi_rank_of_stage(rank, pass->peer),
                        lhi_tag(LHI_TAG_MESSAGE, 2 * step + kind, pass->output),
                        buffer->data, lhi_rank_input_bytes(rank, pass->output),
                        link, entered_ns, turn, &buffer->op, err);
}
