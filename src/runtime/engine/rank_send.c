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

/* An emulated link and a position in its departure order. */
typedef struct part_link {
    uint32_t link; /* LHI_NET_NO_LINK: none */
    uint64_t turn; /* LHI_NET_NO_TURN: in order of entry */
} part_link;

/* Returns the emulated link of a part of a pass's output in a step of kind
 * `kind`. */
static part_link find_part_link(const lhi_rank *rank, const lhi_exec_pass *pass,
                                lhi_step_kind kind,
                                const lhi_message_part *part)
{
    part_link on = {LHI_NET_NO_LINK, LHI_NET_NO_TURN};
    const lh_exec *x = rank->o.exec;
    if (!rank->o.emulates || kind != LHI_STEP_TRAIN || pass->link == LH_NONE)
        return on;
    /* each pipeline copy has its own links */
    on.link = part->copy * x->n_links + pass->link;
    if (rank->progress)
        on.link = find_rerouted_link(rank, &pass->pass);
    else if (pass->turn != UINT64_MAX)
        on.turn = (rank->turns * x->link_messages[pass->link] + pass->turn) *
                      part->n_on_link +
                  part->position;
    return on;
}

lh_status lhi_rank_send(lhi_rank *rank, const lhi_exec_pass *pass,
                        lhi_buffer *buffer, uint64_t step, lhi_step_kind kind,
                        int64_t entered_ns, lh_error *err)
{
    const size_t bytes = lhi_rank_input_bytes(rank, pass->output);
    const uint32_t n = lhi_rank_count_parts(rank, pass->peer);
    const uint64_t tag =
        lhi_tag(LHI_TAG_MESSAGE, 2 * step + kind, pass->output);
    buffer->n_others = n - 1;
    for (uint32_t i = 0; i < n; i++)
        *lhi_buffer_get_op(buffer, i) = (lhi_net_op){.is_done = true};
    for (uint32_t i = 0; i < n; i++) {
        const lhi_message_part part =
            lhi_rank_get_part(rank, pass->peer, bytes, i);
        lhi_net_op *op = lhi_buffer_get_op(buffer, i);
        const part_link on = find_part_link(rank, pass, kind, &part);
        *op = (lhi_net_op){0};
        LHI_TRY(lhi_net_send(rank->o.net, part.peer, tag,
                             (char *)buffer->data + part.offset, part.bytes,
                             on.link, entered_ns, on.turn, op, err));
    }
    return LH_OK;
}
