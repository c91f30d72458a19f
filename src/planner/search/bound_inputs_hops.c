/* SPDX-License-Identifier: Apache-2.0 */
/* Message times between a configuration's stages, for its bounds. */
#include "planner/search/bound_inputs_internal.h"

#include <string.h>

/* Computes the message between two stages of the first replica group, with its
 * times limited to LHI_BOUND_MAX_NS. Every group waits for its own messages, so
 * the first group's times are a lower bound. */
static lh_status compute_hop(lhi_bound_inputs *f, const lh_layout *layout,
                             const lhi_layout_placement *places,
                             uint32_t from_stage, uint32_t to_stage,
                             lh_cost_message *out, lh_error *err)
{
    lh_cost_hop hop = lhi_layout_hop(places, layout, 0, from_stage, to_stage,
                                     places->sites->groups[0].replicas);
    lh_cost_options options = {.size = sizeof options,
                               .estimate_missing = true};
    const lh_layout own = lhi_layout_on_hop(layout, hop.from, hop.to);
    LHI_TRY(lhi_compute_hop_message(f->job, &own, &hop, &options, &f->busiest,
                                    out, err));
    out->transfer_ns = lhi_min_int64(out->transfer_ns, LHI_BOUND_MAX_NS);
    out->latency_ns = lhi_min_int64(out->latency_ns, LHI_BOUND_MAX_NS);
    return LH_OK;
}

/* Adds `n` messages per microbatch to the link's count between the
 * datacenters of ranks `from` and `to`; nothing if both are in one datacenter.
 */
static void count_messages(lhi_bound_inputs *f, const lhi_rank_location *from,
                           const lhi_rank_location *to,
                           const lh_cost_message *message, uint32_t n)
{
    size_t link =
        (size_t)from->datacenter * f->job->n_datacenters + to->datacenter;
    if (message->kind != LH_PATH_WAN)
        return;
    f->n_messages[link] += n;
    f->transfers[link] = message->transfer_ns;
    f->latencies[link] = message->latency_ns;
}

lh_status lhi_bound_inputs_add_hops(lhi_bound_inputs *f,
                                    const lh_layout *layout,
                                    const lhi_layout_placement *places,
                                    lhi_bound_case *c, lh_error *err)
{
    uint32_t P = layout->pipeline, v = c->chunks_per_device;
    size_t pairs = (size_t)f->job->n_datacenters * f->job->n_datacenters;
    uint32_t each = c->placement == LH_PLACEMENT_WAVE ? 2 : v ? v : 1;
    lh_cost_message forth, back;
    memset(f->n_messages, 0, pairs * sizeof *f->n_messages);
    for (uint32_t k = 0; k + 1 < P; k++) {
        const lhi_rank_location *a = &places->ranks[k],
                                *b = &places->ranks[k + 1];
        LHI_TRY(compute_hop(f, layout, places, k, k + 1, &forth, err));
        LHI_TRY(compute_hop(f, layout, places, k + 1, k, &back, err));
        f->forth[k] = forth.transfer_ns + forth.latency_ns;
        f->back[k] = back.transfer_ns + back.latency_ns;
        count_messages(f, a, b, &forth, each);
        count_messages(f, b, a, &back, each);
    }
    c->forward_hops = f->forth;
    c->backward_hops = f->back;
    if (P > 1 && v > 1 && c->placement == LH_PLACEMENT_LOOP) {
        const lhi_rank_location *a = &places->ranks[P - 1],
                                *b = &places->ranks[0];
        LHI_TRY(compute_hop(f, layout, places, P - 1, 0, &forth, err));
        LHI_TRY(compute_hop(f, layout, places, 0, P - 1, &back, err));
        c->wrap_forth = forth.transfer_ns + forth.latency_ns;
        c->wrap_back = back.transfer_ns + back.latency_ns;
        count_messages(f, a, b, &forth, v - 1);
        count_messages(f, b, a, &back, v - 1);
    }
    return LH_OK;
}
