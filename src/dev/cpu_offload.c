/* SPDX-License-Identifier: Apache-2.0 */
/* Activation offload: parts of layers that leave the device between F and D.
 * Layers share their buffers like those of recomputed parts (cpu_recompute.c);
 * the contents are in storage meanwhile. */
#include "base/fail.h"
#include "dev/cpu.h"

/* Lists a microbatch's offloaded pieces. */
static uint32_t list_pieces(lhi_cpu *cpu, const lhi_cpu_chunk *chunk,
                            const lhi_cpu_slot *slot)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < chunk->n_layers; k++)
        for (uint32_t i = 0; i < LH_N_LAYER_PARTS; i++) {
            lh_layer_part part = (lh_layer_part)i;
            double floats = lhi_cpu_part_floats(cpu, part, chunk->moe[k]);
            if ((chunk->away[k] >> i & 1) && floats > 0)
                cpu->pieces[n++] =
                    (lhi_storage_piece){lhi_cpu_place(&slot->layers[k], part),
                                        (size_t)floats * sizeof(float)};
        }
    return n;
}

/* Detaches the offload buffers of all layers. */
static void detach_all(lhi_cpu *cpu, const lhi_cpu_chunk *chunk,
                       const lhi_cpu_slot *slot)
{
    for (uint32_t k = 0; k < chunk->n_layers; k++)
        lhi_cpu_detach_away(cpu, &slot->layers[k], chunk->away[k]);
}

/* Returns the microbatch's storage block to the free list. */
static void give_block(lhi_cpu_chunk *chunk, lhi_cpu_slot *slot)
{
    if (!slot->stored)
        return;
    slot->stored->next = chunk->free_blocks;
    chunk->free_blocks = slot->stored;
    slot->stored = NULL;
}

/* Takes a storage block from the free list, or grows the storage. */
static lh_status take_block(lhi_cpu *cpu, lhi_cpu_chunk *chunk,
                            lhi_cpu_slot *slot, lh_error *err)
{
    slot->stored = chunk->free_blocks;
    if (!slot->stored)
        return lhi_storage_grow(cpu->storage,
                                (size_t)lhi_cpu_away_bytes(cpu, chunk),
                                &slot->stored, err);
    chunk->free_blocks = slot->stored->next;
    return LH_OK;
}

lh_status lhi_cpu_copy(lhi_cpu *cpu, lhi_cpu_chunk *chunk,
                       const lhi_offload *what, int64_t least_ns, lh_error *err)
{
    lhi_cpu_slot *slot = chunk && what->microbatch < cpu->n_microbatches
                             ? chunk->slots[what->microbatch]
                             : NULL;
    bool away = slot && slot->stored;
    if (!slot || slot->is_back || away != what->is_back || !cpu->storage)
        return lhi_fail(err, LH_EINVAL,
                        "chunk %u, microbatch %u: nothing %s storage now",
                        what->chunk, what->microbatch,
                        what->is_back ? "comes back from" : "leaves for");
    for (uint32_t k = 0; what->is_back && k < chunk->n_layers; k++)
        if (!lhi_cpu_attach_away(cpu, &slot->layers[k], chunk->away[k]))
            return lhi_fail_nomem(err);
    if (!what->is_back)
        LHI_TRY(take_block(cpu, chunk, slot, err));
    cpu->copies[cpu->n_copies++] =
        (lhi_cpu_move){slot, (uint32_t)(chunk - cpu->mine), what->is_back};
    return lhi_storage_copy(cpu->storage, slot->stored, cpu->pieces,
                            list_pieces(cpu, chunk, slot), what->is_back,
                            least_ns, err);
}

bool lhi_cpu_await_copies(lhi_cpu *cpu, uint32_t n, int64_t until_ns)
{
    if (n <= cpu->n_copied)
        return true;
    if (!lhi_storage_await(cpu->storage, n, until_ns))
        return false;
    for (; cpu->n_copied < n && cpu->n_copied < cpu->n_copies;
         cpu->n_copied++) {
        const lhi_cpu_move *c = &cpu->copies[cpu->n_copied];
        if (c->is_back)
            give_block(&cpu->mine[c->chunk], c->slot);
        else
            detach_all(cpu, &cpu->mine[c->chunk], c->slot);
    }
    return true;
}

void lhi_cpu_begin_copies(lhi_cpu *cpu)
{
    if (!cpu->storage)
        return;
    lhi_cpu_await_copies(cpu, cpu->n_copies, INT64_MAX);
    lhi_storage_begin(cpu->storage);
    cpu->n_copies = cpu->n_copied = 0;
}

void lhi_cpu_drop_away(lhi_cpu *cpu, lhi_cpu_chunk *chunk, lhi_cpu_slot *slot)
{
    detach_all(cpu, chunk, slot);
    give_block(chunk, slot);
}

lh_status lhi_cpu_make_storage(lhi_cpu *cpu, const lhi_cpu_options *o,
                               lh_error *err)
{
    uint32_t layers = 0;
    bool leaves = false;
    for (uint32_t i = 0; i < cpu->n_mine; i++) {
        const lhi_cpu_chunk *chunk = &cpu->mine[i];
        layers = chunk->n_layers > layers ? chunk->n_layers : layers;
        leaves = leaves || lhi_cpu_away_bytes(cpu, chunk) > 0;
    }
    if (!leaves)
        return LH_OK;
    cpu->copies = LHI_NEW(cpu->mem, lhi_cpu_move,
                          2 * (size_t)cpu->n_mine * cpu->n_microbatches);
    cpu->pieces =
        LHI_NEW(cpu->mem, lhi_storage_piece, layers * LH_N_LAYER_PARTS);
    if (!cpu->copies || !cpu->pieces)
        return lhi_fail_nomem(err);
    if (!o->offload_to)
        return lhi_fail(err, LH_EINVAL,
                        "activations leave the device, and no folder is given");
    return lhi_storage_open(o->offload_to, &cpu->storage, err);
}

/* Bytes allocated by lhi_cpu_make_storage(). */
double lhi_cpu_copies_bytes(const lhi_cpu *cpu, uint32_t n_mine,
                            uint32_t layers)
{
    return 2.0 * n_mine * cpu->n_microbatches * sizeof(lhi_cpu_move) +
           (double)layers * LH_N_LAYER_PARTS * sizeof(lhi_storage_piece);
}
