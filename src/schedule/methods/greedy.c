/* SPDX-License-Identifier: Apache-2.0 */
/* Method "greedy": CrossPipe's generator (section 4.2, algorithm 1:
 * CrossUDSub), with the same rules for any placement. Passes from all chunks on
 * a device compete. */
#include "schedule/methods/dispatcher.h"

/* The candidate among a device's Fs, or Ds, at a given time. */
typedef struct candidate {
    uint32_t chunk; /* selected chunk; LH_NONE: none */
    bool refused;   /* memory blocks every startable pass */
} candidate;

/* Returns the earliest time in ns at which an F or D that fits into `room`
 * bytes could start on the device; LHI_NEVER: none. */
static int64_t find_earliest_start(const lhi_dispatcher_device *d, int64_t room)
{
    if (d->f.nodes[1].ready_need <= room || d->d.nodes[1].ready_need <= room)
        return d->free_ns;
    int64_t f_ns = lhi_ready_queue_get_next_arrival(&d->f, room);
    int64_t d_ns = lhi_ready_queue_get_next_arrival(&d->d, room);
    return f_ns < d_ns ? f_ns : d_ns;
}

/* Finds in the ready queue `offers` a pass that fits into `room` bytes and can
 * start by by_ns; of several chunks, the last along the model. The result's
 * `refused` is true if a pass was ready but did not fit. */
static candidate find_candidate(const lhi_dispatcher_device *d,
                                const lhi_ready_queue *offers, int64_t room,
                                int64_t by_ns)
{
    const lhi_ready_entry *all = &offers->nodes[1];
    candidate m = {.chunk = LH_NONE};
    uint32_t nth = lhi_ready_queue_find_ready(offers, room);
    if (nth == LH_NONE)
        nth = lhi_ready_queue_find_later(offers, room, by_ns);
    if (nth != LH_NONE)
        m.chunk = d->chunks[nth];
    else
        m.refused = all->ready_need != LHI_NEVER || all->later_ns <= by_ns;
    return m;
}

/* Returns the pass kind, F or D, that method "greedy" prefers now; `back`: the
 * best D. F until the first D is ready, since waiting until it has run would
 * admit one more F; then alternately D and F; D when no F is left. */
static lh_pass_kind get_preferred_kind(const lhi_dispatcher *p,
                                       const lhi_dispatcher_device *d,
                                       const candidate *back)
{
    if (d->f_left == 0)
        return LH_D;
    bool warm =
        d->d_left == (uint64_t)d->n_chunks * p->pipeline->n_microbatches;
    if (warm && back->chunk == LH_NONE && !back->refused)
        return LH_F;
    return d->last == LH_F ? LH_D : LH_F;
}

/* Extends the chosen F or D to an overlapped pair, if the pipeline has pairs
 * and one is worth its wait. Then the other pass gets its input by the time
 * that the pair saves, and both fit into `room` bytes. */
static void find_pair(const lhi_dispatcher *p, const lhi_dispatcher_device *d,
                      int64_t room, lhi_dispatcher_choice *choice)
{
    const lh_pipeline *pipe = p->pipeline;
    if (pipe->overlap_f_b == 0 || choice->kind == LH_W)
        return;
    bool forward = choice->kind == LH_F;
    int64_t best_ns = LHI_NEVER;
    for (uint32_t i = d->n_chunks; i-- > 0;) {
        const uint32_t f = forward ? choice->chunk : d->chunks[i];
        const uint32_t b = forward ? d->chunks[i] : choice->chunk;
        lh_pass pass = {.chunk = f, .kind = LH_F, .n_parts = 1};
        lh_pass back = {.chunk = b, .kind = LH_B, .n_parts = 1};
        int64_t at =
            lhi_dispatcher_get_start(p, d, d->chunks[i], forward ? LH_D : LH_F);
        int64_t saved =
            lhi_pass_duration(pipe, &pass) + lhi_pass_duration(pipe, &back);
        pass.overlapped = back.overlapped = true;
        saved -=
            lhi_pass_duration(pipe, &pass) + lhi_pass_duration(pipe, &back);
        if (at == LHI_NEVER || at - choice->start_ns > saved || at >= best_ns)
            continue;
        if (!lhi_dispatcher_fits_pair(p, f, b, room))
            continue;
        best_ns = at;
        choice->pair = d->chunks[i];
    }
    if (best_ns == LHI_NEVER)
        return;
    choice->has_pair = true;
    if (best_ns > choice->start_ns)
        choice->start_ns = best_ns;
    if (!forward) {
        uint32_t back = choice->chunk;
        choice->kind = LH_F;
        choice->chunk = choice->pair;
        choice->pair = back;
    }
}

/* Dispatch policy of method "greedy": chooses the F, D or W part that a device
 * runs next; `policy` is unused. */
static lhi_dispatcher_choice choose(const lhi_dispatcher *p, uint32_t device,
                                    const void *policy)
{
    (void)policy;
    const lhi_dispatcher_device *d = &p->devices[device];
    int64_t room = lhi_dispatcher_get_headroom(d);
    int64_t at = d->w_pending ? d->free_ns : find_earliest_start(d, room);
    lhi_dispatcher_choice choice = {.start_ns = at, .kind = LH_W};
    if (at == LHI_NEVER)
        return choice;
    candidate f = find_candidate(d, &d->f, room, at),
              back = find_candidate(d, &d->d, room, at);
    lh_pass_kind first = get_preferred_kind(p, d, &back);
    const candidate *good = first == LH_F ? &f : &back;
    const candidate *other = first == LH_F ? &back : &f;
    if (good->chunk != LH_NONE) {
        choice.kind = first;
        choice.chunk = good->chunk;
    } else if (good->refused && d->w_pending) {
        choice.kind = LH_W;
    } else if (other->chunk != LH_NONE) {
        choice.kind = first == LH_F ? LH_D : LH_F;
        choice.chunk = other->chunk;
    }
    find_pair(p, d, room, &choice);
    return choice;
}

lh_status lhi_greedy_run_with_reserve(const lh_pipeline *pipeline,
                                      const lh_method_options *options,
                                      uint32_t quarters, lhi_orders *out,
                                      lh_error *err)
{
    uint32_t n_parts = pipeline->joint ? 1 : options->sub_blocks;
    return lhi_dispatcher_run(pipeline, n_parts, quarters, choose, NULL, out,
                              err);
}

/* Method "greedy": list scheduling that starts F and D as early as possible
 * and fills waits with W. */
lh_status lhi_greedy(const lh_pipeline *pipeline,
                     const lh_method_options *options, lhi_orders *out,
                     lh_error *err)
{
    return lhi_greedy_run_with_reserve(pipeline, options, 0, out, err);
}
