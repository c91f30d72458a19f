/* SPDX-License-Identifier: Apache-2.0 */
/* A schedule's explicit link orders (message orders on a link), by message
 * number, for the event engine.
 *
 * A message or local result has the number of the pass that needs it, its
 * input: F(c, m) has number c * n + m, D or B(c, m) has N + c * n + m, N = all
 * chunks * microbatches. */
#ifndef LHI_SCHEDULE_SIMULATOR_LINK_ORDERS_H
#define LHI_SCHEDULE_SIMULATOR_LINK_ORDERS_H

#include "base/arena.h"
#include "schedule/pipeline/pipeline_internal.h"
#include "schedule/pipeline/schedule_internal.h"

/* As an input's number: the pass needs or produces none. */
#define LHI_NO_INPUT UINT64_MAX

/* One link's messages by departure. */
typedef struct lhi_departures {
    const uint64_t *order; /* inputs; NULL: first in, first out */
    uint32_t n_order;
    uint32_t next; /* index of the next to depart; the engine's */
} lhi_departures;

/* Returns the number of the input that a pass produces for another pass, and in
 * *route the route that delivers it; LHI_NO_INPUT: none. Inline, as the engine
 * calls it for every pass. */
static inline uint64_t lhi_get_output(const lh_pipeline *p, const lh_pass *pass,
                                      const lhi_route **route)
{
    uint64_t n = p->n_microbatches;
    uint64_t i = pass->chunk * n + pass->microbatch;
    if (pass->kind == LH_F) {
        *route = &p->forward[pass->chunk];
        return lhi_is_last_chunk(p, pass->chunk) ? LHI_NO_INPUT : i + n;
    }
    *route = &p->backward[pass->chunk];
    return pass->kind == LH_W || lhi_is_first_chunk(p, pass->chunk)
               ? LHI_NO_INPUT
               : p->n_chunks * n + i - n;
}

/* Reads all explicit link orders (orders of messages on a link) of a schedule
 * into `links`, which has one zeroed entry per link resource. Allocates the
 * orders in `mem`. LH_EINFEASIBLE: an order lacks or repeats a message of its
 * link. */
lh_status lhi_link_orders_read(const lh_pipeline *pipeline,
                               const lh_schedule *schedule, lhi_arena *mem,
                               lhi_departures *links, lh_error *err);

#endif
