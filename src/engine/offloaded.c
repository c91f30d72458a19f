/* SPDX-License-Identifier: Apache-2.0 */
/* Activation offload in training steps: the program's offload stream. A device
 * with real activations copies them, in the pipeline's time if links are
 * emulated. On a timed device copies take the pipeline's time, one after the
 * other, dated by the passes that launch them. */
#include "engine/rank.h"

#include "base/realtime.h"
#include "dev/timed.h"
#include "engine/sharded.h"

static bool is_real(const lhi_rank *rank)
{
    return rank->o.hooks != NULL;
}

lh_status lhi_offloaded_make(lhi_rank *rank, lh_error *err)
{
    rank->copied = LHI_NEW(rank->mem, lhi_copied, rank->program->n_copies);
    return rank->copied ? LH_OK : lhi_fail_nomem(err);
}

void lhi_offloaded_begin(lhi_rank *rank, int64_t t0_ns)
{
    rank->n_copied = 0;
    rank->copy_free_ns = t0_ns;
}

/* Waits for the first `n` copies; ends when the run does. */
static lh_status await(lhi_rank *rank, uint32_t n, lh_error *err)
{
    enum { LOOK_NS = 50000000 };
    lhi_device *device = rank->o.device;
    while (!device->ops->await_copies(device, n, lhi_now_ns() + LOOK_NS))
        LHI_TRY(lhi_look_for_end(rank->o.net, rank->o.stop, err));
    return LH_OK;
}

/* Emulates a copy on the timed device. */
static void play(lhi_rank *rank, uint32_t chunk, int64_t ready_ns)
{
    lhi_copied *when = &rank->copied[rank->n_copied++];
    when->ready_ns = ready_ns;
    when->depart_ns =
        ready_ns > rank->copy_free_ns ? ready_ns : rank->copy_free_ns;
    when->end_ns = rank->copy_free_ns =
        when->depart_ns + lhi_timed_chunk(rank->o.device, chunk)->offload_ns;
}

/* Launches the copies of pass `i` at its start (back) or end. */
static lh_status launch(lhi_rank *rank, uint32_t i, bool is_back,
                        int64_t now_ns, lh_error *err)
{
    const lhi_exec_rank *program = rank->program;
    uint32_t end = program->passes[i + 1].first_copy;
    while (rank->n_copied < end &&
           program->copies[rank->n_copied].is_back == is_back) {
        const lhi_offload *what = &program->copies[rank->n_copied];
        if (!is_real(rank)) {
            play(rank, what->chunk, now_ns);
            continue;
        }
        int64_t least_ns =
            rank->o.emulates ? rank->o.pipeline->chunks[what->chunk].offload_ns
                             : 0;
        LHI_TRY(rank->o.device->ops->copy(rank->o.device, what, least_ns, err));
        rank->n_copied++;
    }
    return LH_OK;
}

lh_status lhi_offloaded_before(lhi_rank *rank, uint32_t i, int64_t *ready_ns,
                               lh_error *err)
{
    uint32_t n = rank->program->passes[i].waits_copies;
    if (is_real(rank)) {
        int64_t from_ns = lhi_now_ns();
        if (n > 0) {
            LHI_TRY(await(rank, n, err));
            rank->copy_sums.waited_ns += lhi_now_ns() - from_ns;
        }
        return launch(rank, i, true, 0, err);
    }
    int64_t done_ns = n > 0 ? rank->copied[n - 1].end_ns : 0;
    if (done_ns > *ready_ns)
        *ready_ns = done_ns;
    return lhi_sleep_emulated(rank->o.net, rank->o.stop, done_ns, err);
}

lh_status lhi_offloaded_after(lhi_rank *rank, uint32_t i, const lhi_span *span,
                              lh_error *err)
{
    if (!is_real(rank))
        LHI_TRY(launch(rank, i, true, span->start_ns, err));
    return launch(rank, i, false, span->end_ns, err);
}

lh_status lhi_offloaded_end(lhi_rank *rank, lh_error *err)
{
    const lhi_device *device = rank->o.device;
    if (is_real(rank) && rank->n_copied > 0)
        LHI_TRY(await(rank, rank->n_copied, err));
    for (uint32_t i = 0; i < rank->n_copied; i++) {
        lhi_copied *when = &rank->copied[i];
        if (is_real(rank))
            *when = device->ops->copied(rank->o.device, i);
        rank->copy_sums.copied_ns += when->end_ns - when->depart_ns;
    }
    return LH_OK;
}
