/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/simulator/link_orders.h"

#include <inttypes.h>

/* State while the orders are read. */
typedef struct order_reader {
    const lh_pipeline *p;
    lhi_arena *mem;
    lhi_departures *links; /* by resource */
    bool *joint;           /* by input: produced by a B */
    bool *listed;          /* by input: read in a link's order */
} order_reader;

/* Returns the number of the message that `pass` sends over link resource
 * `resource`; LHI_NO_INPUT: it sends none there. */
static uint64_t find_message(const lh_pipeline *p, const lh_pass *pass,
                             uint32_t resource)
{
    const lhi_route *route;
    if (pass->chunk >= p->n_chunks || pass->microbatch >= p->n_microbatches)
        return LHI_NO_INPUT;
    uint64_t out = lhi_get_output(p, pass, &route);
    if (out == LHI_NO_INPUT || !route->message || route->resource != resource)
        return LHI_NO_INPUT;
    return out;
}

/* Checks whether a link order's `pass` has the kind, D or B, that the schedule
 * runs for message `out`. The orders contain one or the other per chunk and
 * microbatch. */
static bool runs_named_kind(const order_reader *reader, const lh_pass *pass,
                            uint64_t out)
{
    return pass->kind == LH_F || reader->joint[out] == (pass->kind == LH_B);
}

/* Reads one explicit link order (the order of messages on a link) into its
 * resource's departures. Fails unless it has every message on the link exactly
 * once. */
static lh_status read_link_order(order_reader *reader,
                                 const lh_link_order *order, lh_error *err)
{
    uint32_t r = lhi_resource_find(reader->p, order->link);
    char text[LH_PASS_TEXT_SIZE];
    if (r == LH_NONE)
        return lhi_fail(err, LH_EINFEASIBLE,
                        "the schedule orders messages of link '%.60s', which "
                        "the pipeline does not have",
                        order->link);
    lhi_departures *l = &reader->links[r];
    uint64_t *ids = LHI_NEW(reader->mem, uint64_t, order->n_passes);
    if (!ids)
        return lhi_fail_nomem(err);
    if (l->order)
        return lhi_fail(err, LH_EINFEASIBLE,
                        "link '%.60s' has two message orders", order->link);
    for (uint32_t i = 0; i < order->n_passes; i++) {
        ids[i] = find_message(reader->p, &order->passes[i], r);
        if (ids[i] == LHI_NO_INPUT)
            return lhi_fail(
                err, LH_EINFEASIBLE, "link '%.60s': %s sends nothing over it",
                order->link, lh_pass_format(&order->passes[i], text));
        if (!runs_named_kind(reader, &order->passes[i], ids[i]))
            return lhi_fail(err, LH_EINFEASIBLE,
                            "link '%.60s': no device runs %s", order->link,
                            lh_pass_format(&order->passes[i], text));
        if (reader->listed[ids[i]])
            return lhi_fail(err, LH_EINFEASIBLE,
                            "link '%.60s': %s appears twice", order->link,
                            lh_pass_format(&order->passes[i], text));
        reader->listed[ids[i]] = true;
    }
    uint64_t n_messages =
        (uint64_t)reader->p->resource_routes[r] * reader->p->n_microbatches;
    if (order->n_passes != n_messages)
        return lhi_fail(err, LH_EINFEASIBLE,
                        "link '%.60s': %" PRIu32 " messages are ordered, but "
                        "%" PRIu64 " use it",
                        order->link, order->n_passes, n_messages);
    l->order = ids;
    l->n_order = order->n_passes;
    return LH_OK;
}

lh_status lhi_link_orders_read(const lh_pipeline *pipeline,
                               const lh_schedule *schedule, lhi_arena *mem,
                               lhi_departures *links, lh_error *err)
{
    const lhi_route *route;
    uint64_t n_inputs =
        2 * (uint64_t)pipeline->n_chunks * pipeline->n_microbatches;
    order_reader reader = {.p = pipeline,
                           .mem = mem,
                           .links = links,
                           .joint = LHI_NEW(mem, bool, n_inputs),
                           .listed = LHI_NEW(mem, bool, n_inputs)};
    if (!reader.joint || !reader.listed)
        return lhi_fail_nomem(err);
    for (uint32_t d = 0; d < pipeline->n_devices; d++)
        for (uint32_t i = 0; i < schedule->counts[d]; i++) {
            const lh_pass *pass = &schedule->orders[d][i];
            uint64_t out = lhi_get_output(pipeline, pass, &route);
            if (out != LHI_NO_INPUT)
                reader.joint[out] = pass->kind == LH_B;
        }
    for (uint32_t i = 0; i < schedule->n_link_orders; i++) {
        lh_status status =
            read_link_order(&reader, &schedule->link_orders[i], err);
        if (status == LH_EINFEASIBLE && schedule->name)
            lhi_fail_add_context(err, "%s: link order %" PRIu32, schedule->name,
                                 i + 1);
        if (status != LH_OK)
            return status;
    }
    return LH_OK;
}
