/* SPDX-License-Identifier: Apache-2.0 */
/* Activation offload: parts of layers that leave the device between F and D.
 * Layers share their buffers like those of recomputed parts (cpu_recompute.c);
 * the contents are in storage meanwhile. */
#include "base/fail.h"
#include "runtime/device/cpu.h"

/* Lists address and size of each offloaded activation buffer of a microbatch
 * in cpu->pieces; returns their number. */
static uint32_t list_offloaded_buffers(lhi_cpu *cpu, const lhi_cpu_chunk *chunk,
                                       const lhi_cpu_microbatch_state *slot)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < chunk->n_layers; k++)
        for (uint32_t i = 0; i < LH_N_LAYER_PARTS; i++) {
            lh_layer_part part = (lh_layer_part)i;
            double floats = lhi_cpu_part_floats(cpu, part, chunk->moe[k]);
            if ((chunk->offload[k] >> i & 1) && floats > 0)
                cpu->pieces[n++] = (lhi_storage_piece){
                    lhi_cpu_part_buffer(&slot->layers[k], part),
                    (size_t)floats * sizeof(float)};
        }
    return n;
}

/* Returns the offload buffers of all layers of a microbatch (activations to be
 * copied to storage) to the free list. */
static void detach_all(lhi_cpu *cpu, const lhi_cpu_chunk *chunk,
                       const lhi_cpu_microbatch_state *slot)
{
    for (uint32_t k = 0; k < chunk->n_layers; k++)
        lhi_cpu_detach_offload_buffers(cpu, &slot->layers[k],
                                       chunk->offload[k]);
}

/* Returns the microbatch's offload storage block to the free list. */
static void return_block(lhi_cpu_chunk *chunk, lhi_cpu_microbatch_state *slot)
{
    if (!slot->storage_block)
        return;
    slot->storage_block->next = chunk->free_blocks;
    chunk->free_blocks = slot->storage_block;
    slot->storage_block = NULL;
}

/* Gives the microbatch an offload storage block, from the free list or by
 * enlarging the storage. */
static lh_status take_block(lhi_cpu *cpu, lhi_cpu_chunk *chunk,
                            lhi_cpu_microbatch_state *slot, lh_error *err)
{
    slot->storage_block = chunk->free_blocks;
    if (!slot->storage_block)
        return lhi_storage_add_block(
            cpu->storage, (size_t)lhi_cpu_compute_offload_bytes(cpu, chunk),
            &slot->storage_block, err);
    chunk->free_blocks = slot->storage_block->next;
    return LH_OK;
}

lh_status lhi_cpu_start_copy(lhi_cpu *cpu, lhi_cpu_chunk *chunk,
                             const lhi_offload_copy *what, int64_t least_ns,
                             lh_error *err)
{
    lhi_cpu_microbatch_state *slot =
        chunk && what->microbatch < cpu->n_microbatches
            ? chunk->slots[what->microbatch]
            : NULL;
    bool away = slot && slot->storage_block;
    if (!slot || slot->d_done || away != what->to_device || !cpu->storage)
        return lhi_fail(
            err, LH_EINVAL,
            "chunk %u, microbatch %u: no activations to %s storage now",
            what->chunk, what->microbatch,
            what->to_device ? "reload from" : "offload to");
    for (uint32_t k = 0; what->to_device && k < chunk->n_layers; k++)
        if (!lhi_cpu_attach_offload_buffers(cpu, &slot->layers[k],
                                            chunk->offload[k]))
            return lhi_fail_nomem(err);
    if (!what->to_device)
        LHI_TRY(take_block(cpu, chunk, slot, err));
    cpu->copies[cpu->n_copies++] = (lhi_cpu_offload_copy){
        slot, (uint32_t)(chunk - cpu->local_chunks), what->to_device};
    return lhi_storage_copy(cpu->storage, slot->storage_block, cpu->pieces,
                            list_offloaded_buffers(cpu, chunk, slot),
                            what->to_device, least_ns, err);
}

bool lhi_cpu_wait_copies(lhi_cpu *cpu, uint32_t n, int64_t until_ns)
{
    if (n <= cpu->n_copied)
        return true;
    if (!lhi_storage_wait(cpu->storage, n, until_ns))
        return false;
    for (; cpu->n_copied < n && cpu->n_copied < cpu->n_copies;
         cpu->n_copied++) {
        const lhi_cpu_offload_copy *c = &cpu->copies[cpu->n_copied];
        if (c->is_back)
            return_block(&cpu->local_chunks[c->chunk], c->slot);
        else
            detach_all(cpu, &cpu->local_chunks[c->chunk], c->slot);
    }
    return true;
}

void lhi_cpu_reset_copies(lhi_cpu *cpu)
{
    if (!cpu->storage)
        return;
    lhi_cpu_wait_copies(cpu, cpu->n_copies, INT64_MAX);
    lhi_storage_begin_step(cpu->storage);
    cpu->n_copies = cpu->n_copied = 0;
}

void lhi_cpu_release_offload(lhi_cpu *cpu, lhi_cpu_chunk *chunk,
                             lhi_cpu_microbatch_state *slot)
{
    detach_all(cpu, chunk, slot);
    return_block(chunk, slot);
}

lh_status lhi_cpu_make_storage(lhi_cpu *cpu, const lhi_cpu_options *o,
                               lh_error *err)
{
    uint32_t layers = 0;
    bool leaves = false;
    for (uint32_t i = 0; i < cpu->n_local_chunks; i++) {
        const lhi_cpu_chunk *chunk = &cpu->local_chunks[i];
        layers = chunk->n_layers > layers ? chunk->n_layers : layers;
        leaves = leaves || lhi_cpu_compute_offload_bytes(cpu, chunk) > 0;
    }
    if (!leaves)
        return LH_OK;
    cpu->copies =
        LHI_NEW(cpu->mem, lhi_cpu_offload_copy,
                2 * (size_t)cpu->n_local_chunks * cpu->n_microbatches);
    cpu->pieces =
        LHI_NEW(cpu->mem, lhi_storage_piece, layers * LH_N_LAYER_PARTS);
    if (!cpu->copies || !cpu->pieces)
        return lhi_fail_nomem(err);
    if (!o->offload_to)
        return lhi_fail(err, LH_EINVAL,
                        "activations are offloaded, but no folder is given");
    return lhi_storage_open(o->offload_to, &cpu->storage, err);
}

/* Returns the bytes of the records of offload copies that
 * lhi_cpu_make_storage() allocates, for n_mine chunks with `layers` layers. */
double lhi_cpu_copy_record_bytes(const lhi_cpu *cpu, uint32_t n_mine,
                                 uint32_t layers)
{
    return 2.0 * n_mine * cpu->n_microbatches * sizeof(lhi_cpu_offload_copy) +
           (double)layers * LH_N_LAYER_PARTS * sizeof(lhi_storage_piece);
}
