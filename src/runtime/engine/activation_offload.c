/* SPDX-License-Identifier: Apache-2.0 */
/* Activation offload in training steps: the program's offload stream. A device
 * with real activations copies them, in the pipeline's time if links are
 * emulated. On a timed device copies take the pipeline's time, one after the
 * other, dated by the passes that launch them. */
#include "runtime/engine/rank.h"

#include "base/realtime.h"
#include "runtime/device/timed.h"
#include "runtime/engine/elastic_sharding.h"

/* Checks whether the rank's device has real activations to copy to and from
 * offload storage; timed devices only emulate the copies' durations. */
static bool has_activations(const lhi_rank *rank)
{
    return rank->o.hooks != NULL;
}

lh_status lhi_activation_offload_make(lhi_rank *rank, lh_error *err)
{
    rank->copied =
        LHI_NEW(rank->mem, lhi_storage_times, rank->program->n_copies);
    return rank->copied ? LH_OK : lhi_fail_nomem(err);
}

void lhi_activation_offload_begin_step(lhi_rank *rank, int64_t t0_ns)
{
    rank->n_copied = 0;
    rank->copy_free_ns = t0_ns;
}

/* Waits for the step's first `n` offload copies (activations copied to or from
 * storage); fails when the run ends. */
static lh_status await_copies(lhi_rank *rank, uint32_t n, lh_error *err)
{
    enum { POLL_NS = 50000000 };
    lhi_device *device = rank->o.device;
    while (!device->ops->wait_copies(device, n, lhi_now_ns() + POLL_NS))
        LHI_TRY(lhi_check_run_end(rank->o.net, rank->o.stop, err));
    return LH_OK;
}

/* Records an offload copy of `chunk` on a timed device: it starts when the
 * previous copy has ended and it is ready, and takes the chunk's offload
 * time. */
static void emulate_copy(lhi_rank *rank, uint32_t chunk, int64_t ready_ns)
{
    lhi_storage_times *when = &rank->copied[rank->n_copied++];
    when->ready_ns = ready_ns;
    when->depart_ns =
        ready_ns > rank->copy_free_ns ? ready_ns : rank->copy_free_ns;
    when->end_ns = rank->copy_free_ns =
        when->depart_ns +
        lhi_timed_find_chunk(rank->o.device, chunk)->offload_ns;
}

/* Launches pass `i`'s offload copies at time now_ns: with is_back those
 * to the device, at the pass's start; otherwise those to storage, at its
 * end. */
static lh_status launch_copies(lhi_rank *rank, uint32_t i, bool is_back,
                               int64_t now_ns, lh_error *err)
{
    const lhi_exec_rank *program = rank->program;
    uint32_t end = program->passes[i + 1].first_copy;
    while (rank->n_copied < end &&
           program->copies[rank->n_copied].to_device == is_back) {
        const lhi_offload_copy *what = &program->copies[rank->n_copied];
        if (!has_activations(rank)) {
            emulate_copy(rank, what->chunk, now_ns);
            continue;
        }
        const lh_exec_options *o = &rank->o.exec->options;
        int64_t least_ns =
            o->lists_host_copies
                ? o->host_copy_ns
                : rank->o.pipeline->chunks[what->chunk].offload_ns;
        if (!rank->o.emulates)
            least_ns = 0;
        LHI_TRY(rank->o.device->ops->copy(rank->o.device, what, least_ns, err));
        rank->n_copied++;
    }
    return LH_OK;
}

/* Waits for the step's first `n` copies of real activations before a pass, and
 * counts the time. */
static lh_status await_before_pass(lhi_rank *rank, uint32_t n, lh_error *err)
{
    const int64_t from_ns = lhi_now_ns();
    if (n == 0)
        return LH_OK;
    LHI_TRY(await_copies(rank, n, err));
    rank->copy_sums.waited_ns += lhi_now_ns() - from_ns;
    return LH_OK;
}

lh_status lhi_activation_offload_before_pass(lhi_rank *rank, uint32_t i,
                                             int64_t *ready_ns, lh_error *err)
{
    uint32_t n = rank->program->passes[i].n_required_copies;
    if (has_activations(rank)) {
        const uint32_t launched = rank->n_copied;
        LHI_TRY(await_before_pass(rank, n < launched ? n : launched, err));
        LHI_TRY(launch_copies(rank, i, true, 0, err));
        return await_before_pass(rank, n > launched ? n : 0, err);
    }
    int64_t done_ns = n > 0 ? rank->copied[n - 1].end_ns : 0;
    if (done_ns > *ready_ns)
        *ready_ns = done_ns;
    return lhi_sleep_emulated(rank->o.net, rank->o.stop, done_ns, err);
}

lh_status lhi_activation_offload_after_pass(lhi_rank *rank, uint32_t i,
                                            const lhi_span *span, lh_error *err)
{
    if (!has_activations(rank))
        LHI_TRY(launch_copies(rank, i, true, span->start_ns, err));
    return launch_copies(rank, i, false, span->end_ns, err);
}

lh_status lhi_activation_offload_end_step(lhi_rank *rank, lh_error *err)
{
    const lhi_device *device = rank->o.device;
    if (has_activations(rank) && rank->n_copied > 0)
        LHI_TRY(await_copies(rank, rank->n_copied, err));
    for (uint32_t i = 0; i < rank->n_copied; i++) {
        lhi_storage_times *when = &rank->copied[i];
        if (has_activations(rank))
            *when = device->ops->copy_times(rank->o.device, i);
        rank->copy_sums.copied_ns += when->end_ns - when->depart_ns;
    }
    return LH_OK;
}
