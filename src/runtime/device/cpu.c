/* SPDX-License-Identifier: Apache-2.0 */
/* The cpu device: construction, and the device interface's operations. */
#include "runtime/device/cpu_attention.h"
#include "runtime/device/cpu_experts.h"
#include "runtime/device/cpu_product.h"
#include "runtime/device/cpu_sharding.h"
#include "runtime/device/cpu_tensor_parallel.h"

#include "base/fail.h"
#include "base/realtime.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum {
    LOGITS_PER_BLOCK = 1 << 20, /* 4 MiB */
    MAX_ROWS = 1 << 24,         /* per microbatch */
};

/* Checks that a cpu device supports its options: model family, dropout,
 * microbatch size, and layers per chunk. LH_EUNSUPPORTED or LH_EINVAL: it does
 * not. */
static lh_status check_options(const lhi_cpu_options *o, lh_error *err)
{
    uint64_t rows = (uint64_t)o->microbatch * o->sequence;
    LHI_TRY(lhi_family_check(o->model, o->sequence, err));
    if (!(o->dropout >= 0 && o->dropout < 1))
        return lhi_fail(err, LH_EINVAL, "dropout must be from 0 to below 1");
    if (rows == 0 || rows > MAX_ROWS || o->n_microbatches == 0 ||
        o->n_microbatches > LH_MAX_MICROBATCHES)
        return lhi_fail(err, LH_EINVAL,
                        "microbatch * sequence must be 1..%d tokens, not "
                        "%" PRIu64 ", and there must be microbatches",
                        MAX_ROWS, rows);
    if (o->n_replicas == 0 || o->replica >= o->n_replicas || o->n_chunks == 0 ||
        (o->bidirectional && o->n_chunks % 2 != 0) || o->first_layers[0] != 0 ||
        o->first_layers[lhi_cpu_count_model_chunks(o)] != o->model->layers)
        return lhi_fail(err, LH_EINVAL,
                        "the chunks do not cover layers 0..%u, or replica %u "
                        "of %u does not exist",
                        o->model->layers, o->replica, o->n_replicas);
    for (uint32_t c = 0; c < lhi_cpu_count_model_chunks(o); c++)
        if (o->first_layers[c] > o->first_layers[c + 1])
            return lhi_fail(err, LH_EINVAL, "chunk %u ends before it begins",
                            c);
    LHI_TRY(lhi_cpu_check_context_parallel(o, err));
    LHI_TRY(lhi_cpu_check_slices(o, err));
    LHI_TRY(lhi_cpu_check_tensor_parallel(o, err));
    LHI_TRY(lhi_cpu_check_expert_parallel(o, err));
    for (uint32_t i = 0; i < o->n_mine; i++) {
        if (o->mine[i] >= o->n_chunks)
            return lhi_fail(err, LH_EINVAL, "chunk %u does not exist",
                            o->mine[i]);
        lhi_cpu_chunk chunk = lhi_cpu_init_chunk(o, i);
        if (!o->data && (chunk.is_first || chunk.is_last))
            return lhi_fail(err, LH_EINVAL, "chunk %u needs data", o->mine[i]);
    }
    return LH_OK;
}

/* Builds the rotary tables, one row per local row of a whole sequence. The
 * angle for pair i at position p is p * theta^(-2 i / dim), or 0 if positions
 * are learned. */
static lh_status build_rotary_tables(lhi_cpu *cpu, double theta, lh_error *err)
{
    uint32_t half = cpu->rope_dim / 2;
    cpu->all_cosines = lhi_cpu_alloc_floats(cpu->mem, cpu->key_rows, half);
    cpu->all_sines = lhi_cpu_alloc_floats(cpu->mem, cpu->key_rows, half);
    if (!cpu->all_cosines || !cpu->all_sines)
        return lhi_fail_nomem(err);
    cpu->cosines = cpu->all_cosines;
    cpu->sines = cpu->all_sines;
    for (uint32_t row = 0; row < cpu->key_rows; row++) {
        uint32_t first = row / cpu->sequence * cpu->sequence;
        uint32_t p = lhi_cpu_piece_position(cpu, first,
                                            row % cpu->sequence / cpu->piece);
        p += row % cpu->piece;
        for (uint32_t i = 0; i < half; i++) {
            double angle =
                cpu->positions ? 0 : p * pow(theta, -2.0 * i / cpu->rope_dim);
            cpu->all_cosines[(size_t)row * half + i] = (float)cos(angle);
            cpu->all_sines[(size_t)row * half + i] = (float)sin(angle);
        }
    }
    return LH_OK;
}

/* Allocates the scratch buffers that all passes of the device share.
 * lhi_cpu_scratch_bytes() must count the same buffers. */
static lh_status make_scratch(lhi_cpu *cpu, const lhi_cpu_options *o,
                              lh_error *err)
{
    lhi_arena *mem = cpu->mem;
    size_t widest = lhi_cpu_scratch_width(cpu), d = cpu->head_dim;
    size_t all = (size_t)cpu->max_rows * cpu->max_choices,
           beside = lhi_cpu_second_scratch_width(cpu),
           losses = (size_t)cpu->n_microbatches * cpu->n_directions;
    cpu->logit_rows = LOGITS_PER_BLOCK / cpu->v;
    if (cpu->logit_rows < 64)
        cpu->logit_rows = 64;
    if (!(cpu->scratch = lhi_cpu_alloc_floats(mem, cpu->t, widest)) ||
        !(cpu->scores = lhi_cpu_alloc_floats(mem, cpu->block, cpu->key_rows)) ||
        !(cpu->d_scores =
              lhi_cpu_alloc_floats(mem, cpu->block, cpu->key_rows)) ||
        !(cpu->d_query = lhi_cpu_alloc_floats(mem, cpu->block, d)) ||
        !(cpu->d_key = lhi_cpu_alloc_floats(mem, cpu->sequence, d)) ||
        !(cpu->d_value =
              lhi_cpu_alloc_floats(mem, cpu->sequence, cpu->value_dim)) ||
        (cpu->bf16 && !(cpu->bf16_blocks = lhi_cpu_alloc_floats(
                            mem, lhi_cpu_count_bf16_floats(cpu), 1))) ||
        (beside &&
         !(cpu->second_scratch = lhi_cpu_alloc_floats(mem, cpu->t, beside))) ||
        !(cpu->delta = lhi_cpu_alloc_floats(mem, cpu->block, 1)) ||
        (cpu->experts &&
         (!(cpu->dispatch_buffer =
                lhi_cpu_alloc_floats(mem, lhi_cpu_dispatch_floats(cpu), 1)) ||
          !lhi_cpu_make_expert_parallel(cpu, o) || !lhi_cpu_make_choices(cpu) ||
          !(cpu->d_routing_weights = lhi_cpu_alloc_floats(mem, all, 1)) ||
          !(cpu->d_experts = lhi_cpu_alloc_floats(
                mem, 1 + (size_t)cpu->microbatch, cpu->experts)))) ||
        (cpu->drop_threshold &&
         !(cpu->dropped = lhi_cpu_alloc_floats(mem, cpu->r, cpu->h))) ||
        !lhi_cpu_make_context_parallel(cpu) ||
        !lhi_cpu_make_tensor_parallel(cpu) ||
        !(cpu->token_window =
              LHI_NEW(mem, int32_t, cpu->whole_sequence + 1 + cpu->modules)) ||
        (cpu->modules &&
         (!(cpu->carried = lhi_cpu_alloc_floats(mem, cpu->r, cpu->h)) ||
          !(cpu->module_losses = LHI_NEW(mem, double, losses)))) ||
        !(cpu->losses = LHI_NEW(mem, double, losses)) ||
        !(cpu->has_loss = LHI_NEW(mem, bool, losses)))
        return lhi_fail_nomem(err);
    return LH_OK;
}

/* Copies the list of the microbatches that run on chunk mine[i]. */
static lh_status copy_own_microbatches(lhi_cpu *cpu, const lhi_cpu_options *o,
                                       uint32_t i, lh_error *err)
{
    lhi_cpu_chunk *chunk = &cpu->local_chunks[i];
    chunk->n_own = o->n_own[i];
    chunk->own = LHI_NEW(cpu->mem, uint32_t, o->n_own[i] + 1u);
    if (!chunk->own)
        return lhi_fail_nomem(err);
    memcpy(chunk->own, o->own + (size_t)i * o->n_microbatches,
           o->n_own[i] * sizeof *chunk->own);
    return LH_OK;
}

/* Creates this device's chunks (ranges of layers) and draws or allocates their
 * weights and gradients. */
static lh_status make_chunks(lhi_cpu *cpu, const lhi_cpu_options *o,
                             lh_error *err)
{
    cpu->local_chunks = LHI_NEW(cpu->mem, lhi_cpu_chunk, o->n_mine);
    if (!cpu->local_chunks)
        return lhi_fail_nomem(err);
    cpu->n_local_chunks = o->n_mine;
    for (uint32_t i = 0; i < o->n_mine; i++) {
        cpu->local_chunks[i] = lhi_cpu_init_chunk(o, i);
        LHI_TRY(lhi_cpu_build_tensors(cpu, o, &cpu->local_chunks[i], err));
        if (o->own)
            LHI_TRY(copy_own_microbatches(cpu, o, i, err));
    }
    return LH_OK;
}

/* Returns the cpu device whose base struct is `device`. */
static lhi_cpu *as_cpu(const lhi_device *device)
{
    return (lhi_cpu *)(uintptr_t)device;
}

/* Closes the storage of offloaded activations, and frees all memory of the
 * device, which is itself in the last arena. */
static void free_cpu(lhi_cpu *cpu)
{
    /* its thread uses the arenas freed below */
    lhi_storage_close(cpu->storage);
    lhi_thread_team_free(cpu->threads);
    lhi_arena_free(cpu->parameters);
    lhi_arena_free(cpu->gradients);
    lhi_arena_free(cpu->activations);
    lhi_arena_free(cpu->full_values);
    lhi_arena_free(cpu->mem); /* also holds the device itself */
}

/* Frees the cpu device (lhi_device_ops.close). */
static void close_cpu(lhi_device *device)
{
    free_cpu(as_cpu(device));
}

/* Returns the state of model chunk `chunk` (a range of layers), if it is on
 * this device; NULL: it is not. */
static lhi_cpu_chunk *find_chunk(const lhi_cpu *cpu, uint32_t chunk)
{
    for (uint32_t i = 0; i < cpu->n_local_chunks; i++)
        if (cpu->local_chunks[i].chunk == chunk)
            return &cpu->local_chunks[i];
    return NULL;
}

/* Returns the bytes of the message that a forward (or `backward`) pass of the
 * chunk sends; 0 if there is no next chunk in that direction. */
static size_t message_bytes(const lhi_device *device, uint32_t chunk,
                            bool backward)
{
    const lhi_cpu *cpu = as_cpu(device);
    uint32_t n = cpu->n_chunks / cpu->n_directions;
    if (backward ? chunk % n == 0 : chunk % n + 1 == n)
        return 0;
    return (size_t)cpu->n_sent * cpu->h * sizeof(float);
}

/* Prepares the device for a step: returns all microbatches' saved activations
 * to the free lists, and clears losses and the progress of weight gradients. */
static lh_status begin_step(lhi_device *device, uint64_t step,
                            lhi_step_kind kind, lh_error *err)
{
    lhi_cpu *cpu = as_cpu(device);
    uint32_t n = cpu->n_microbatches;
    (void)err;
    lhi_cpu_reset_copies(cpu);
    cpu->step = step;
    cpu->kind = kind;
    memset(cpu->has_loss, 0,
           (size_t)n * cpu->n_directions * sizeof *cpu->has_loss);
    for (uint32_t i = 0; i < cpu->n_local_chunks; i++) {
        lhi_cpu_chunk *chunk = &cpu->local_chunks[i];
        memset(chunk->forward_done, 0, n * sizeof *chunk->forward_done);
        lhi_cpu_reset_slices(cpu, chunk);
        if (chunk->own && chunk->n_own == 0 && kind == LHI_STEP_TRAIN)
            memset(chunk->gradients, 0,
                   chunk->n_values * sizeof *chunk->gradients);
        for (uint32_t m = 0; m < n; m++)
            if (chunk->slots[m]) {
                for (uint32_t j = 0; j < lhi_cpu_count_layers(chunk); j++)
                    lhi_cpu_detach_recompute_buffers(
                        cpu, &chunk->slots[m]->layers[j], chunk->recompute[j]);
                lhi_cpu_release_offload(cpu, chunk, chunk->slots[m]);
                chunk->slots[m]->next = chunk->free;
                chunk->free = chunk->slots[m];
                chunk->slots[m] = NULL;
            }
        for (uint32_t j = 0; kind == LHI_STEP_TRAIN && j < chunk->n_items;
             j++) {
            memset(chunk->items[j].requested, 0, n * sizeof(bool));
            chunk->items[j].first = chunk->items[j].done = 0;
        }
    }
    return LH_OK;
}

/* Checks a pass and its message buffers, and runs the pass. `in`: received
 * activations or gradients, NULL: none; `out`: memory for those to be sent. */
static lh_status run_pass(lhi_cpu *cpu, const lh_pass *pass, const void *in,
                          void *out, lh_error *err)
{
    lhi_cpu_chunk *chunk = find_chunk(cpu, pass->chunk);
    uint32_t m = pass->microbatch;
    bool forward = pass->kind == LH_F;
    if (!chunk || m >= cpu->n_microbatches ||
        (!forward && cpu->kind == LHI_STEP_VALIDATE))
        return lhi_fail(err, LH_EINVAL,
                        "chunk %u, microbatch %u: this device has no such pass",
                        pass->chunk, m);
    LHI_TRY(lhi_cpu_check_sharded_buffers(chunk, pass, err));
    if ((cpu->n_tensor_ranks > 1 && !cpu->tensor_group) ||
        (cpu->n_expert_ranks > 1 && !cpu->expert_group) ||
        (cpu->n_expert_tensor_ranks > 1 && !cpu->expert_tensor_group) ||
        (cpu->node_topology.node_ranks > 1 && !cpu->intra_node_group))
        return lhi_fail(err, LH_EINVAL,
                        "a device with slices of layers, or with some of the "
                        "experts, has joined no group");
    if (pass->kind != LH_W &&
        ((!(forward ? chunk->is_first : chunk->is_last) && !in) ||
         (!(forward ? chunk->is_last : chunk->is_first) && !out)))
        return lhi_fail(err, LH_EINVAL,
                        "chunk %u, microbatch %u: the pass has no message",
                        pass->chunk, m);
    cpu->first_microbatch = chunk->direction * cpu->n_microbatches;
    switch (pass->kind) {
    case LH_F:
        return lhi_cpu_run_forward(cpu, chunk, m, in, out, err);
    case LH_D:
        return lhi_cpu_run_dgrad(cpu, chunk, m, false, in, out, err);
    case LH_W:
        return lhi_cpu_run_wgrad(cpu, chunk, pass, err);
    default:
        LHI_TRY(lhi_cpu_run_dgrad(cpu, chunk, m, true, in, out, err));
        return lhi_cpu_run_wgrad(cpu, chunk, pass, err);
    }
}

/* Runs one pass, reports a failed collective inside it, and stores its start
 * and end in `span`. `ready_ns`: when its inputs were available. */
static lh_status run_timed_pass(lhi_device *device, const lh_pass *pass,
                                const void *in, void *out, int64_t ready_ns,
                                lhi_span *span, lh_error *err)
{
    lhi_span spent = {.start_ns = lhi_now_ns()};
    (void)ready_ns;
    LHI_TRY(run_pass(as_cpu(device), pass, in, out, err));
    if (as_cpu(device)->collective_status != LH_OK) {
        if (err)
            *err = as_cpu(device)->collective_err;
        return as_cpu(device)->collective_status;
    }
    const lhi_device_part_hooks *hooks = as_cpu(device)->hooks;
    if (hooks)
        LHI_TRY(hooks->ended(hooks->context, pass, err));
    spent.end_ns = lhi_now_ns();
    if (span)
        *span = spent;
    return LH_OK;
}

/* Sums the losses of the step's microbatches into *sum, and counts their tokens
 * in *tokens. *has: whether this device reports the loss, as the first
 * tensor-parallel rank with the head does. */
static lh_status loss(lhi_device *device, double *sum, uint64_t *tokens,
                      bool *has, lh_error *err)
{
    const lhi_cpu *cpu = as_cpu(device);
    (void)err;
    *sum = 0;
    *tokens = 0;
    /* Tensor-parallel ranks compute the same loss, so only rank 0 reports it.
     */
    *has = false;
    for (uint32_t i = 0; i < cpu->n_local_chunks; i++)
        *has = *has || (cpu->local_chunks[i].is_last && cpu->tensor_rank == 0);
    for (uint32_t m = 0; m < cpu->n_microbatches * cpu->n_directions; m++)
        if (cpu->has_loss[m]) {
            *sum += cpu->losses[m];
            *tokens += cpu->t;
        }
    return LH_OK;
}

/* Returns the sum of the losses of multi-token prediction over the step's
 * microbatches; 0 without such modules. */
static double modules_loss(const lhi_device *device)
{
    const lhi_cpu *cpu = as_cpu(device);
    double sum = 0;
    for (uint32_t m = 0;
         cpu->module_losses && m < cpu->n_microbatches * cpu->n_directions; m++)
        sum += cpu->has_loss[m] ? cpu->module_losses[m] : 0;
    return sum;
}

/* Returns a chunk's parameter tensor count
 * (lhi_device_ops.n_tensors); 0: the chunk is on another device. */
static uint32_t n_tensors(const lhi_device *device, uint32_t chunk)
{
    const lhi_cpu_chunk *found = find_chunk(as_cpu(device), chunk);
    return found ? found->n_tensors : 0;
}

/* Returns parameter tensor `i` of a chunk (lhi_device_ops.tensor); NULL: the
 * device has no such tensor. */
static lhi_tensor *tensor(lhi_device *device, uint32_t chunk, uint32_t i)
{
    lhi_cpu_chunk *found = find_chunk(as_cpu(device), chunk);
    return found && i < found->n_tensors ? &found->tensors[i] : NULL;
}

/* Adds the device's memory by kind, in bytes, to bytes[]. Freed buffers go to
 * free lists and never back to the system, so the current size is also the
 * peak. */
static void add_memory(const lhi_device *device,
                       int64_t bytes[LH_N_MEMORY_KINDS])
{
    const lhi_cpu *cpu = as_cpu(device);
    bytes[LH_MEMORY_PARAMETERS] += (int64_t)lhi_arena_used(cpu->parameters);
    bytes[LH_MEMORY_GRADIENTS] += (int64_t)lhi_arena_used(cpu->gradients);
    bytes[LH_MEMORY_ACTIVATIONS] += (int64_t)lhi_arena_used(cpu->activations);
    bytes[LH_MEMORY_SCRATCH] += (int64_t)lhi_arena_used(cpu->mem);
    if (cpu->tensor_group)
        bytes[LH_MEMORY_SCRATCH] +=
            (int64_t)lhi_group_memory_bytes(cpu->tensor_group);
    if (cpu->storage)
        bytes[LH_MEMORY_STORAGE] +=
            (int64_t)lhi_storage_file_bytes(cpu->storage);
}

/* Returns the peak memory in bytes, without the storage for offloaded
 * activations. */
static size_t peak_bytes(const lhi_device *device)
{
    int64_t bytes[LH_N_MEMORY_KINDS] = {0};
    size_t sum = 0;
    add_memory(device, bytes);
    for (uint32_t i = 0; i < LH_N_MEMORY_KINDS; i++)
        sum += i == LH_MEMORY_STORAGE ? 0 : (size_t)bytes[i];
    return sum;
}

/* Counts the chunk's tensors, parameters and gradients that are sharded over
 * the data-parallel ranks (lhi_device_ops.sharded_tensors). */
static lhi_sharded_tensors sharded_tensors(const lhi_device *device,
                                           uint32_t chunk)
{
    lhi_sharded_tensors out = {0};
    const lhi_cpu_chunk *c = find_chunk(as_cpu(device), chunk);
    size_t at = 0;
    for (uint32_t i = 0; c && i < c->n_tensors; i++) {
        const lhi_tensor *t = &c->tensors[i];
        bool values = at < c->n_sharded_values;
        out.n_values += values;
        out.n_gradients += at < c->n_sharded_gradients;
        out.expert_values += values && t->is_expert ? t->n : 0;
        at += t->n;
    }
    out.values = c ? c->n_sharded_values : 0;
    out.gradients = c ? c->n_sharded_gradients : 0;
    return out;
}

/* Frees the full copy of all initial parameters. Chunks with sharded parameters
 * then need buffers from the caller in each step. */
static void finalise(lhi_device *device)
{
    lhi_cpu *cpu = as_cpu(device);
    for (uint32_t i = 0; i < cpu->n_local_chunks; i++)
        cpu->local_chunks[i].has_values =
            cpu->local_chunks[i].n_sharded_values == 0;
    lhi_arena_free(cpu->full_values);
    cpu->full_values = NULL;
}

/* Sets `room` as the buffer with a chunk's all-gathered sharded parameters
 * (lhi_device_ops.set_sharded_values). */
static void set_sharded_values(lhi_device *device, uint32_t chunk, float *room)
{
    lhi_cpu_set_sharded_values(find_chunk(as_cpu(device), chunk), room);
}

/* Sets `room` as the buffer for a chunk's sharded gradients of `n_microbatches`
 * microbatches from `first_microbatch` on
 * (lhi_device_ops.set_sharded_gradients). */
static void set_sharded_gradients(lhi_device *device, uint32_t chunk,
                                  float *room, uint32_t first_microbatch,
                                  uint32_t n_microbatches)
{
    lhi_cpu_set_sharded_gradients(find_chunk(as_cpu(device), chunk), room,
                                  first_microbatch, n_microbatches);
}

/* Returns the number of a chunk's parts, the units of per-layer sharding
 * (lhi_device_ops.n_parts); 0: the chunk is on another device. */
static uint32_t n_parts(const lhi_device *device, uint32_t chunk)
{
    const lhi_cpu_chunk *found = find_chunk(as_cpu(device), chunk);
    return found ? found->n_parts : 0;
}

/* Returns part `i`, a unit of per-layer sharding, of a chunk
 * (lhi_device_ops.part); NULL: none on this device. */
static const lhi_device_part *part(const lhi_device *device, uint32_t chunk,
                                   uint32_t i)
{
    const lhi_cpu_chunk *found = find_chunk(as_cpu(device), chunk);
    return found && i < found->n_parts ? &found->parts[i] : NULL;
}

/* Sets the callbacks that provide buffers for the parameters and gradients of
 * single parts under per-layer sharding (lhi_device_ops.set_part_hooks). */
static void set_part_hooks(lhi_device *device,
                           const lhi_device_part_hooks *hooks)
{
    as_cpu(device)->hooks = hooks;
}

/* Sets `room` as the buffer that has a part's parameters between steps under
 * per-layer sharding (lhi_device_ops.set_part_values). */
static void set_part_values(lhi_device *device, uint32_t chunk, uint32_t i,
                            float *room)
{
    lhi_cpu_set_part_values(find_chunk(as_cpu(device), chunk), i, room);
}

/* Sets the rank groups for the context-, tensor- and expert-parallel
 * collectives inside passes (lhi_device_ops.join). */
static void join(lhi_device *device, const lhi_device_groups *groups)
{
    as_cpu(device)->context_group = groups->context;
    as_cpu(device)->tensor_group = groups->tensor;
    as_cpu(device)->expert_group = groups->expert;
    as_cpu(device)->expert_tensor_group = groups->expert_tensor;
    as_cpu(device)->intra_node_group = groups->intra_node_expert;
}

/* Starts copying offloaded activations to or from storage, which takes at
 * least `least_ns` (lhi_device_ops.copy). */
static lh_status copy(lhi_device *device, const lhi_offload_copy *what,
                      int64_t least_ns, lh_error *err)
{
    lhi_cpu *cpu = as_cpu(device);
    return lhi_cpu_start_copy(cpu, find_chunk(cpu, what->chunk), what, least_ns,
                              err);
}

/* Waits for the step's first `n` offload copies, until `until_ns` at most;
 * returns whether they are done (lhi_device_ops.wait_copies). */
static bool await_copies(lhi_device *device, uint32_t n, int64_t until_ns)
{
    return lhi_cpu_wait_copies(as_cpu(device), n, until_ns);
}

/* Returns start and end of the step's offload copy `i`, which has completed
 * (lhi_device_ops.copy_times). */
static lhi_storage_times copy_times(lhi_device *device, uint32_t i)
{
    return lhi_storage_copy_times(as_cpu(device)->storage, i);
}

static const lhi_device_ops cpu_ops = {
    .name = "cpu",
    .close = close_cpu,
    .message_bytes = message_bytes,
    .begin = begin_step,
    .run = run_timed_pass,
    .loss = loss,
    .modules_loss = modules_loss,
    .n_tensors = n_tensors,
    .tensor = tensor,
    .peak_bytes = peak_bytes,
    .add_memory = add_memory,
    .sharded_tensors = sharded_tensors,
    .finalise = finalise,
    .set_sharded_values = set_sharded_values,
    .set_sharded_gradients = set_sharded_gradients,
    .n_parts = n_parts,
    .part = part,
    .set_part_hooks = set_part_hooks,
    .set_part_values = set_part_values,
    .join = join,
    .copy = copy,
    .wait_copies = await_copies,
    .copy_times = copy_times,
};

/* Initialises all fields of the cpu device from its options and allocates its
 * memory. */
static lh_status fill_cpu(lhi_cpu *cpu, const lhi_cpu_options *o, lh_error *err)
{
    lhi_cpu_compute_shape(cpu, o);
    cpu->base.ops = &cpu_ops;
    cpu->k = lhi_kernels_find_fastest();
    cpu->data = o->data;
    cpu->replica = o->replica;
    cpu->n_replicas = o->n_replicas;
    cpu->epsilon = (float)(o->norm_epsilon > 0 ? o->norm_epsilon : 1e-5);
    const uint64_t own = (uint64_t)cpu->microbatch * o->n_microbatches *
                         cpu->n_directions / cpu->n_slices;
    cpu->step_sequences =
        o->step_sequences ? o->step_sequences : own * o->n_replicas;
    cpu->first_sequence =
        o->step_sequences ? o->first_sequence : own * o->replica;
    cpu->loss_scale =
        (float)(1 / ((double)cpu->step_sequences * cpu->whole_sequence));
    cpu->sgemm = o->sgemm;
    if (!cpu->sgemm)
        LHI_TRY(lhi_blas_load(cpu->n_threads, &cpu->sgemm, err));
    if (cpu->n_threads > 1)
        LHI_TRY(lhi_thread_team_make(cpu->n_threads, &cpu->threads, err));
    LHI_TRY(build_rotary_tables(cpu, o->rope_theta > 0 ? o->rope_theta : 10000,
                                err));
    LHI_TRY(make_scratch(cpu, o, err));
    LHI_TRY(make_chunks(cpu, o, err));
    LHI_TRY(lhi_cpu_make_storage(cpu, o, err));
    cpu->model = NULL;
    return lhi_cpu_make_partial_gradients(cpu) ? LH_OK : lhi_fail_nomem(err);
}

lh_status lhi_device_cpu(const lhi_cpu_options *options, lhi_device **out,
                         lh_error *err)
{
    LHI_TRY(check_options(options, err));
    lhi_arena *mem = lhi_arena_make(0);
    lhi_cpu *cpu = mem ? LHI_NEW(mem, lhi_cpu, 1) : NULL;
    if (!cpu) {
        lhi_arena_free(mem);
        return lhi_fail_nomem(err);
    }
    cpu->mem = mem;
    lh_status status = (cpu->parameters = lhi_arena_make(0)) &&
                               (cpu->gradients = lhi_arena_make(0)) &&
                               (cpu->activations = lhi_arena_make(0)) &&
                               (cpu->full_values = lhi_arena_make(0))
                           ? fill_cpu(cpu, options, err)
                           : lhi_fail_nomem(err);
    if (status != LH_OK) {
        free_cpu(cpu);
        return status;
    }
    *out = &cpu->base;
    return LH_OK;
}
