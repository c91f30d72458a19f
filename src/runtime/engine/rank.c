/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/engine/rank.h"

#include "base/realtime.h"
#include "runtime/engine/watchdog.h"
#include "schedule/pipeline/accessors.h"

#include <stdlib.h>
#include <string.h>

/* --- construction --- */

/* Raises *most to the parts, apart from the first, of a message to or from
 * stage `stage`. */
static void count_others(const lhi_rank *rank, uint32_t stage, uint32_t *most)
{
    const uint32_t n = lhi_rank_count_parts(rank, stage) - 1;
    *most = n > *most ? n : *most;
}

/* Allocates receive buffers, the output buffer pool and the pass records, sized
 * for the largest message. */
static lh_status make_receives(lhi_rank *rank, lh_error *err)
{
    const lhi_exec_rank *program = rank->program;
    size_t most = 0;
    uint32_t max_sent = 0, max_received = 0; /* parts apart from the first */
    bool has_local = false;
    for (uint32_t i = 0; i < program->n_posts; i++)
        count_others(rank, program->posts[i].peer, &max_received);
    for (uint32_t i = 0; i < program->n_passes; i++) {
        const lhi_exec_pass *pass = &program->passes[i];
        if (pass->output != LH_NONE && !pass->local_output)
            count_others(rank, pass->peer, &max_sent);
        if (pass->input != LH_NONE &&
            lhi_rank_input_bytes(rank, pass->input) > most)
            most = lhi_rank_input_bytes(rank, pass->input);
        if (pass->output != LH_NONE &&
            lhi_rank_input_bytes(rank, pass->output) > most)
            most = lhi_rank_input_bytes(rank, pass->output);
        has_local =
            has_local || (pass->output != LH_NONE && pass->local_output);
    }
    rank->records = LHI_NEW(rank->mem, lhi_pass_record, program->n_passes);
    rank->receives = LHI_NEW(rank->mem, lhi_buffer, program->n_slots);
    rank->local = LHI_NEW(rank->mem, lhi_buffer *,
                          has_local ? 2 * (size_t)rank->o.exec->n_half : 0);
    if (!rank->records || !rank->receives || !rank->local)
        return lhi_fail_nomem(err);
    if (rank->o.observes &&
        !(rank->observation =
              LHI_NEW(rank->mem, lhi_pass_observation, program->n_passes)))
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < program->n_slots; i++)
        if (!(rank->receives[i].data = malloc(most ? most : 1)) ||
            !(rank->receives[i].others =
                  LHI_NEW(rank->mem, lhi_net_op, max_received)))
            return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < program->n_slots; i++)
        memset(rank->receives[i].data, 0, most);
    if (!lhi_pool_init(&rank->pool, rank->o.net, most, max_sent,
                       program->n_buffers))
        return lhi_fail_nomem(err);
    return LH_OK;
}

void lhi_rank_stop(lhi_rank *rank)
{
    if (rank->blocking_sends)
        lhi_blocking_sends_stop(rank->blocking_sends);
    if (rank->rendezvous)
        lhi_rendezvous_stop(rank->rendezvous);
    if (rank->delegated)
        lhi_delegated_path_stop(rank->delegated);
}

void lhi_rank_free(lhi_rank *rank)
{
    if (!rank)
        return;
    lhi_blocking_sends_free(rank->blocking_sends);
    lhi_rendezvous_free(rank->rendezvous);
    lhi_delegated_path_free(rank->delegated);
    for (uint32_t i = 0; rank->receives && i < rank->program->n_slots; i++)
        free(rank->receives[i].data);
    if (rank->local)
        for (uint32_t i = 0; i < rank->program->n_passes; i++) {
            const lhi_exec_pass *pass = &rank->program->passes[i];
            if (pass->output == LH_NONE || !pass->local_output)
                continue;
            lhi_buffer *left = rank->local[pass->output];
            if (left)
                free(left->data);
            free(left);
        }
    lhi_pool_fini(&rank->pool);
    lhi_arena_free(rank->mem);
}

void lhi_rank_add_memory(const lhi_rank *rank, int64_t bytes[LH_N_MEMORY_KINDS])
{
    size_t receives = rank->program->n_slots * rank->pool.bytes;
    bytes[LH_MEMORY_BUFFERS] +=
        (int64_t)(receives + lhi_pool_total_bytes(&rank->pool) +
                  lhi_delegated_path_count_bytes(rank->delegated));
}

uint32_t lhi_rank_pool_growth(const lhi_rank *rank)
{
    return rank->pool.growth + lhi_delegated_path_pool_growth(rank->delegated);
}

/* --- rerouted microbatches --- */

/* Returns a pass with the device's numbers for chunk and microbatch. */
static lh_pass get_device_pass(const lhi_rank *rank, const lh_pass *pass)
{
    lh_pass out = *pass;
    if (rank->progress) {
        const uint32_t n = lhi_pipeline_count_model_chunks(rank->o.pipeline);
        out.chunk = pass->chunk % n;
        out.microbatch = lhi_rerouted_microbatch(
            pass->chunk / n, rank->n_copies, rank->o.rerouted_replicas);
    }
    return out;
}

/* Counts the microbatches that the rank runs on each chunk. */
static lh_status make_progress(lhi_rank *rank, lh_error *err)
{
    const lhi_exec_rank *program = rank->program;
    if (!rank->o.rerouted_replicas || !rank->o.hooks)
        return LH_OK;
    rank->progress = LHI_NEW(rank->mem, lhi_chunk_progress,
                             lhi_pipeline_count_model_chunks(rank->o.pipeline));
    if (!rank->progress)
        return lhi_fail_nomem(err);
    rank->n_copies = lh_pipeline_n_chunks(rank->o.pipeline) /
                     lhi_pipeline_count_model_chunks(rank->o.pipeline);
    for (uint32_t i = 0; i < program->n_passes; i++) {
        const lh_pass pass = get_device_pass(rank, &program->passes[i].pass);
        rank->progress[pass.chunk].n_passes += program->passes[i].is_last;
    }
    return LH_OK;
}

/* Starts a step: no chunk has begun. */
static void reset_progress(lhi_rank *rank)
{
    const uint32_t n = lhi_pipeline_count_model_chunks(rank->o.pipeline);
    for (uint32_t c = 0; rank->progress && c < n; c++) {
        rank->progress[c].n_left = rank->progress[c].n_passes;
        rank->progress[c].has_begun = false;
    }
}

/* Checks whether pass `i` is the first on its chunk of the device. */
static bool is_first_on_chunk(lhi_rank *rank, uint32_t i)
{
    const lhi_exec_pass *pass = &rank->program->passes[i];
    if (!rank->progress || !pass->is_first)
        return pass->is_first;
    lhi_chunk_progress *at =
        &rank->progress[get_device_pass(rank, &pass->pass).chunk];
    const bool is_first = !at->has_begun;
    at->has_begun = true;
    return is_first;
}

/* Checks whether the pass, which has ended, is the last W or B on its chunk of
 * the device. */
static bool is_last_on_chunk(lhi_rank *rank, const lhi_exec_pass *pass)
{
    if (!rank->progress || !pass->is_last)
        return pass->is_last;
    return --rank->progress[get_device_pass(rank, &pass->pass).chunk].n_left ==
           0;
}

/* Completes a training step on the device's chunks without microbatches, whose
 * gradients are zero. */
static lh_status complete_unused_chunks(lhi_rank *rank, lh_error *err)
{
    const lhi_rank_hooks *hooks = rank->o.hooks;
    const lhi_device *device = rank->o.device;
    const uint32_t n = lhi_pipeline_count_model_chunks(rank->o.pipeline);
    for (uint32_t c = 0; rank->progress && c < n; c++) {
        if (rank->progress[c].n_passes > 0 ||
            device->ops->n_tensors(device, c) == 0)
            continue;
        LHI_TRY(hooks->first(hooks->context, c, err));
        hooks->last(hooks->context, c);
    }
    return LH_OK;
}

lh_status lhi_rank_make(const lhi_rank_options *options, lhi_rank **out,
                        lh_error *err)
{
    lhi_arena *mem = lhi_arena_make(0);
    lhi_rank *rank = mem ? LHI_NEW(mem, lhi_rank, 1) : NULL;
    if (!rank) {
        lhi_arena_free(mem);
        return lhi_fail_nomem(err);
    }
    rank->mem = mem;
    rank->o = *options;
    rank->program = &options->exec->ranks[options->stage];
    lh_status status = make_receives(rank, err);
    if (status == LH_OK)
        status = make_progress(rank, err);
    if (status == LH_OK)
        status = lhi_emulated_collectives_make(rank, err);
    if (status == LH_OK)
        status = lhi_activation_offload_make(rank, err);
    const lh_sim_options how = lhi_exec_sim_options(options->exec);
    if (status == LH_OK && how.receives != LH_RECEIVES_EARLY)
        status = lhi_rendezvous_make(rank, err);
    if (status == LH_OK && how.coupled_queue > 0)
        status = lhi_blocking_sends_make(rank, err);
    if (status == LH_OK && rank->program->n_lanes > 0)
        status = lhi_delegated_path_make(rank, err);
    if (status != LH_OK) {
        lhi_rank_free(rank);
        return status;
    }
    *out = rank;
    return LH_OK;
}

/* --- messages --- */

/* Posts the rank's receive number `k` at now_ns, and registers it with the
 * transfer protocol in use: blocking sends, rendezvous or delegated path. */
static lh_status post(lhi_rank *rank, uint32_t k, uint64_t step,
                      lhi_step_kind kind, int64_t now_ns, lh_error *err)
{
    const lhi_exec_post *what = &rank->program->posts[k];
    lhi_buffer *slot = &rank->receives[what->slot];
    const size_t bytes = lhi_rank_input_bytes(rank, what->input);
    const uint32_t n = lhi_rank_count_parts(rank, what->peer);
    slot->n_others = 0;
    for (uint32_t i = 0; i < n; i++) {
        const lhi_message_part part =
            lhi_rank_get_part(rank, what->peer, bytes, i);
        lhi_net_op *op = lhi_buffer_get_op(slot, i);
        *op = (lhi_net_op){.signals_event =
                               !what->delegated && lhi_blocking_sends_is_active(
                                                       rank->blocking_sends)};
        LHI_TRY(lhi_net_receive(
            rank->o.net, part.peer,
            lhi_tag(LHI_TAG_MESSAGE, 2 * step + kind, what->input),
            (char *)slot->data + part.offset, part.bytes, op, err));
        slot->n_others = i;
    }
    if (slot->op.signals_event)
        lhi_blocking_sends_add_receive(rank->blocking_sends, what);
    if (what->delegated && lhi_delegated_path_is_active(rank->delegated))
        lhi_delegated_path_add_receive(rank->delegated, k);
    if (rank->rendezvous && !what->delegated)
        return lhi_rendezvous_notify_posted(rank->rendezvous, what, now_ns,
                                            err);
    return LH_OK;
}

/* Posts the rank's receives that the plan places before pass `i`; in validation
 * steps only those of inputs for F. */
static lh_status post_before(lhi_rank *rank, uint32_t i, uint64_t step,
                             lhi_step_kind kind, int64_t now_ns, lh_error *err)
{
    const lhi_exec_pass *pass = &rank->program->passes[i];
    for (uint32_t k = pass->first_post; k < pass[1].first_post; k++) {
        const lhi_exec_post *what = &rank->program->posts[k];
        const lh_pass *consumer = &rank->program->passes[what->consumer].pass;
        if (kind == LHI_STEP_VALIDATE && consumer->kind != LH_F)
            continue;
        LHI_TRY(post(rank, k, step, kind, now_ns, err));
    }
    return LH_OK;
}

/* Waits for all parts of a received message. The first part's operation then
 * has the times of the message: when its first part entered the link and began,
 * and when its last part arrived. */
static lh_status await_parts(lhi_rank *rank, lhi_buffer *slot, lh_error *err)
{
    lhi_net_op *whole = &slot->op;
    LHI_TRY(lhi_net_wait_or_stop(rank->o.net, whole, rank->o.stop, err));
    for (uint32_t i = 0; i < slot->n_others; i++) {
        lhi_net_op *op = &slot->others[i];
        LHI_TRY(lhi_net_wait_or_stop(rank->o.net, op, rank->o.stop, err));
        if (op->entered_ns < whole->entered_ns)
            whole->entered_ns = op->entered_ns;
        if (op->began_ns < whole->began_ns)
            whole->began_ns = op->began_ns;
        if (op->arrived_ns > whole->arrived_ns)
            whole->arrived_ns = op->arrived_ns;
    }
    return LH_OK;
}

/* Waits for pass `i`'s input; raises *ready_ns to its arrival. *in: its
 * buffer. */
static lh_status take_input(lhi_rank *rank, uint32_t i, const void **in,
                            int64_t *ready_ns, lh_error *err)
{
    const lhi_exec_pass *pass = &rank->program->passes[i];
    *in = NULL;
    if (pass->input == LH_NONE)
        return LH_OK;
    if (pass->local_input) {
        *in = rank->local[pass->input]->data;
        return LH_OK;
    }
    lhi_buffer *slot = &rank->receives[pass->slot];
    lhi_pass_record *record = &rank->records[i];
    int64_t there_ns = 0;
    const bool copied =
        pass->in_delegated && lhi_delegated_path_is_active(rank->delegated);
    *in = slot->data;
    if (copied)
        LHI_TRY(lhi_delegated_path_await_input(rank->delegated, pass->slot, in,
                                               &there_ns, err));
    else if (!pass->in_delegated &&
             lhi_blocking_sends_is_active(rank->blocking_sends))
        LHI_TRY(lhi_blocking_sends_await_receive(rank->blocking_sends,
                                                 pass->slot, err));
    else
        LHI_TRY(await_parts(rank, slot, err));
    record->entered_ns = slot->op.entered_ns;
    record->arrived_ns = lhi_rank_arrived_ns(rank, pass->in_link, &slot->op);
    if (rank->observation) {
        lhi_pass_observation *seen = &rank->observation[i];
        seen->handed_over_ns = slot->op.entered_ns;
        seen->transfer_start_ns = slot->op.began_ns;
        seen->arrived_ns = record->arrived_ns;
    }
    if (copied) { /* includes the copies, as predicted */
        record->entered_ns -= rank->o.hooks ? 0 : pass->in_staging_ns;
        record->arrived_ns = there_ns;
    }
    if (record->arrived_ns > *ready_ns)
        *ready_ns = record->arrived_ns;
    return LH_OK;
}

/* Passes pass i's output on: to the next pass on this rank, to a thread of the
 * transfer protocol (blocking, rendezvous, delegated), or to the network.
 * *free_ns: in, end of the pass; out, when the rank may continue. */
static lh_status hand_over_output(lhi_rank *rank, uint32_t i,
                                  lhi_buffer *buffer, uint64_t step,
                                  lhi_step_kind kind, int64_t *free_ns,
                                  lh_error *err)
{
    const lhi_exec_pass *pass = &rank->program->passes[i];
    if (pass->local_output) {
        rank->local[pass->output] = buffer;
        return LH_OK;
    }
    int64_t ended_ns = *free_ns;
    lh_status status = LH_OK;
    if (pass->delegated && lhi_delegated_path_is_active(rank->delegated)) {
        lhi_delegated_path_add_output(rank->delegated, i, buffer, ended_ns);
        return LH_OK;
    }
    if (rank->blocking_sends && !pass->delegated)
        status = lhi_blocking_sends_acquire_entry(rank->blocking_sends, free_ns,
                                                  err);
    if (*free_ns > ended_ns)
        rank->records[i].issued_ns = lhi_now_ns();
    if (rank->observation)
        rank->observation[i].free_ns = *free_ns;
    if (status == LH_OK && rank->rendezvous && !pass->delegated) {
        lhi_rendezvous_add_output(rank->rendezvous, i, buffer, *free_ns);
        return LH_OK;
    }
    if (status == LH_OK)
        status = lhi_rank_send(rank, pass, buffer, step, kind, *free_ns, err);
    if (status == LH_OK)
        lhi_pool_give_after_send(&rank->pool, buffer);
    else
        lhi_pool_give(&rank->pool, buffer);
    return status;
}

/* --- step --- */

/* Waits for the data-parallel communication that pass `i` needs and raises
 * *ready_ns to its end. */
static lh_status await_pass_data(lhi_rank *rank, uint32_t i, lhi_step_kind kind,
                                 int64_t *ready_ns, lh_error *err)
{
    const lhi_exec_pass *pass = &rank->program->passes[i];
    const lhi_rank_hooks *hooks = rank->o.hooks;
    if (hooks && hooks->pass)
        return hooks->pass(hooks->context, i, kind, err);
    if (hooks)
        return is_first_on_chunk(rank, i)
                   ? hooks->first(hooks->context,
                                  get_device_pass(rank, &pass->pass).chunk, err)
                   : LH_OK;
    return lhi_emulated_collectives_await_pass(rank, i, ready_ns, err);
}

/* Launches the data-parallel communication (gathers or reductions) that follows
 * `pass`, which ran during `span`. */
static lh_status launch_pass_data(lhi_rank *rank, const lhi_exec_pass *pass,
                                  const lhi_span *span, lh_error *err)
{
    const lhi_rank_hooks *hooks = rank->o.hooks;
    if (!hooks) {
        LHI_TRY(lhi_emulated_collectives_start_pass(rank, pass, span->start_ns,
                                                    err));
        return lhi_emulated_collectives_end_pass(rank, pass, span->end_ns, err);
    }
    if (!hooks->pass && is_last_on_chunk(rank, pass))
        hooks->last(hooks->context, get_device_pass(rank, &pass->pass).chunk);
    return LH_OK;
}

/* Stores when pass `i` could start and when it ended, for the monitor. On the
 * timed device the possible start is the real one; elsewhere it is the input's
 * arrival, unless the pass also waited for collectives, copies or the step
 * command. */
static void record_observation(lhi_rank *rank, uint32_t i, int64_t ready_ns,
                               const lhi_span *span)
{
    lhi_pass_observation *seen = &rank->observation[i];
    const lhi_exec_pass *pass = &rank->program->passes[i];
    seen->ready_ns = ready_ns;
    if (!rank->o.hooks)
        seen->ready_ns = span->start_ns;
    else if ((i == 0 || pass->is_first || rank->o.hooks->pass ||
              pass->n_required_copies) &&
             rank->records[i].start_ns > seen->ready_ns)
        seen->ready_ns = rank->records[i].start_ns;
    seen->ended_ns = seen->free_ns = span->end_ns;
}

/* Runs pass `i`. *free_ns: in, when the rank reached it; out, when it may
 * continue, on the device's clock. */
static lh_status run_pass(lhi_rank *rank, uint32_t i, uint64_t step,
                          lhi_step_kind kind, int64_t *free_ns, lh_error *err)
{
    const lhi_exec_pass *pass = &rank->program->passes[i];
    lhi_device *device = rank->o.device;
    lhi_pass_record *record = &rank->records[i];
    lhi_buffer *buffer = NULL;
    lhi_span span = {0, 0};
    const lh_pass what = get_device_pass(rank, &pass->pass);
    const void *in;
    int64_t ready_ns = *free_ns;
    LHI_TRY(take_input(rank, i, &in, &ready_ns, err));
    LHI_TRY(await_pass_data(rank, i, kind, &ready_ns, err));
    if (kind == LHI_STEP_TRAIN)
        LHI_TRY(lhi_activation_offload_before_pass(rank, i, &ready_ns, err));
    if (pass->output != LH_NONE && rank->delegated)
        lhi_delegated_path_reclaim_buffers(rank->delegated);
    if (pass->output != LH_NONE && !(buffer = lhi_pool_take(&rank->pool)))
        return lhi_fail_nomem(err);
    record->start_ns = lhi_now_ns();
    /* Collectives on shared links delay messages while the pass runs. */
    lh_status status =
        rank->shares_links
            ? lhi_emulated_collectives_start_pass(rank, pass, ready_ns, err)
            : LH_OK;
    lhi_net_begin_work(rank->o.net, lhi_watchdog_pack_pass(&pass->pass),
                       record->start_ns);
    if (status == LH_OK)
        status =
            device->ops->run(device, &what, in, buffer ? buffer->data : NULL,
                             ready_ns, &span, err);
    record->end_ns = record->issued_ns = lhi_now_ns();
    lhi_net_end_work(rank->o.net, record->end_ns);
    record->peak_bytes = device->ops->peak_bytes(device);
    if (status != LH_OK) {
        char text[LH_PASS_TEXT_SIZE];
        lhi_fail_add_context(err, "pass %s", lh_pass_format(&pass->pass, text));
        if (buffer)
            lhi_pool_give(&rank->pool, buffer);
        return status;
    }
    *free_ns = span.end_ns;
    if (rank->observation)
        record_observation(rank, i, ready_ns, &span);
    if (!rank->o.hooks && pass->host_copy_ns > 0) {
        *free_ns = span.end_ns += pass->host_copy_ns;
        lhi_sleep_until(span.end_ns);
        record->end_ns = record->issued_ns = lhi_now_ns();
    }
    status = launch_pass_data(rank, pass, &span, err);
    if (status == LH_OK && kind == LHI_STEP_TRAIN)
        status = lhi_activation_offload_after_pass(rank, i, &span, err);
    if (status != LH_OK) {
        if (buffer)
            lhi_pool_give(&rank->pool, buffer);
        return status;
    }
    if (pass->input != LH_NONE && pass->local_input) {
        lhi_pool_give(&rank->pool, rank->local[pass->input]);
        rank->local[pass->input] = NULL;
    }
    if (buffer)
        return hand_over_output(rank, i, buffer, step, kind, free_ns, err);
    return LH_OK;
}

/* Sleeps until the step's last emulated collective has arrived and raises
 * *end_ns to now. */
static lh_status await_collectives(lhi_rank *rank, int64_t *end_ns,
                                   lh_error *err)
{
    int64_t last;
    LHI_TRY(lhi_emulated_collectives_end_step(rank, &last, err));
    int64_t now = lhi_now_ns();
    if (last > 0 && now > *end_ns)
        *end_ns = now;
    return LH_OK;
}

lh_status lhi_rank_run_step(lhi_rank *rank, uint64_t step, lhi_step_kind kind,
                            int64_t t0_ns, int64_t *end_ns, lh_error *err)
{
    const lhi_exec_rank *program = rank->program;
    lhi_device *device = rank->o.device;
    LHI_TRY(device->ops->begin(device, step, kind, err));
    reset_progress(rank);
    if (!rank->o.hooks)
        LHI_TRY(lhi_emulated_collectives_begin_step(rank, t0_ns, err));
    lhi_activation_offload_begin_step(rank, t0_ns);
    if (rank->rendezvous)
        LHI_TRY(lhi_rendezvous_begin_step(rank->rendezvous, step, kind, err));
    if (rank->blocking_sends)
        LHI_TRY(lhi_blocking_sends_begin_step(rank->blocking_sends, step, kind,
                                              err));
    if (rank->delegated)
        LHI_TRY(
            lhi_delegated_path_begin_step(rank->delegated, step, kind, err));
    int64_t free_ns = t0_ns;
    *end_ns = t0_ns;
    for (uint32_t i = 0; i < program->n_passes; i++) {
        if (lhi_net_is_stop_requested(rank->o.stop))
            return lhi_fail(err, LH_ECANCELED, "interrupted");
        LHI_TRY(post_before(rank, i, step, kind, free_ns, err));
        if (kind == LHI_STEP_VALIDATE && program->passes[i].pass.kind != LH_F)
            continue;
        LHI_TRY(run_pass(rank, i, step, kind, &free_ns, err));
        *end_ns = rank->records[i].end_ns;
    }
    if (kind == LHI_STEP_TRAIN)
        LHI_TRY(complete_unused_chunks(rank, err));
    LHI_TRY(lhi_activation_offload_end_step(rank, err));
    if (!rank->o.hooks)
        LHI_TRY(await_collectives(rank, end_ns, err));
    if (rank->rendezvous)
        LHI_TRY(lhi_rendezvous_end_step(rank->rendezvous, err));
    if (rank->blocking_sends)
        LHI_TRY(lhi_blocking_sends_end_step(rank->blocking_sends, err));
    if (rank->delegated)
        LHI_TRY(lhi_delegated_path_end_step(rank->delegated, err));
    if (kind == LHI_STEP_TRAIN)
        rank->turns++;
    return lhi_pool_drain(&rank->pool, rank->o.stop, err);
}
