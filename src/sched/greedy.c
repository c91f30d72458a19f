/* SPDX-License-Identifier: Apache-2.0 */
/* CrossPipe's greedy generator (§4.2, algorithm 1: CrossUDSub), with the same
 * rules for any placement: the passes of all chunks of a device compete. */
#include "sched/planner.h"

/* What there is to choose from among the Fs, or Ds, of a device at a time. */
typedef struct menu {
    uint32_t chunk; /* of the one to take; LH_NONE: none */
    bool refused;   /* memory forbids one that could start otherwise */
} menu;

static int64_t start_of(const lhi_planner *p, const lhi_plan_device *d,
                        const lhi_offer *o)
{
    return lhi_plan_start(p, d, o->chunk, o->kind);
}

/* The earliest start of an F or D that memory allows. */
static int64_t earliest(const lhi_planner *p, const lhi_plan_device *d)
{
    int64_t first = LHI_NEVER;
    for (uint32_t i = 0; i < d->n_offers; i++) {
        const lhi_offer *o = &d->offers[i];
        int64_t start = start_of(p, d, o);
        if (start < first && lhi_plan_fits(p, d, o->chunk, o->kind))
            first = start;
    }
    return first;
}

/* Of several that can start by then, the chunk furthest along the path. */
static menu look(const lhi_planner *p, const lhi_plan_device *d,
                 lh_pass_kind kind, int64_t by_ns)
{
    menu m = {.chunk = LH_NONE};
    for (uint32_t i = 0; i < d->n_offers; i++) {
        const lhi_offer *o = &d->offers[i];
        if (o->kind != kind || start_of(p, d, o) > by_ns)
            continue;
        if (!lhi_plan_fits(p, d, o->chunk, kind))
            m.refused = true;
        else if (m.chunk == LH_NONE || o->chunk > m.chunk)
            m.chunk = o->chunk;
    }
    return m;
}

/* Warm-up lasts until the first D is ready: waiting until it has run would let
 * one more F in before it. No F left: tear-down. */
static lh_pass_kind wanted(const lhi_planner *p, const lhi_plan_device *d,
                           const menu *back)
{
    if (d->f_left == 0)
        return LH_D;
    bool warm =
        d->d_left == (uint64_t)d->n_chunks * p->pipeline->n_microbatches;
    if (warm && back->chunk == LH_NONE && !back->refused)
        return LH_F;
    return d->last == LH_F ? LH_D : LH_F;
}

static lhi_choice choose(const lhi_planner *p, uint32_t device,
                         const void *policy)
{
    (void)policy;
    const lhi_plan_device *d = &p->devices[device];
    int64_t at = d->w_pending ? d->free_ns : earliest(p, d);
    lhi_choice choice = {.start_ns = at, .kind = LH_W};
    if (at == LHI_NEVER)
        return choice;
    menu f = look(p, d, LH_F, at), back = look(p, d, LH_D, at);
    lh_pass_kind first = wanted(p, d, &back);
    const menu *good = first == LH_F ? &f : &back;
    const menu *other = first == LH_F ? &back : &f;
    if (good->chunk != LH_NONE) {
        choice.kind = first;
        choice.chunk = good->chunk;
    } else if (good->refused && d->w_pending) {
        choice.kind = LH_W;
    } else if (other->chunk != LH_NONE) {
        choice.kind = first == LH_F ? LH_D : LH_F;
        choice.chunk = other->chunk;
    }
    return choice;
}

lh_status lhi_greedy(const lh_pipeline *pipeline,
                     const lh_method_options *options, lhi_orders *out,
                     lh_error *err)
{
    uint32_t n_parts = pipeline->joint ? 1 : options->sub_blocks;
    return lhi_plan(pipeline, n_parts, choose, NULL, out, err);
}
