/* SPDX-License-Identifier: Apache-2.0 */
/* Sliced sequences (Seq1F1B): every microbatch is a slice of its sequences. F
 * of a slice attends to the keys and values of the slices before it, so these
 * stay until D of the first slice. D runs from the last slice to the first; it
 * adds to the gradients of the keys and values of all slices before it. */
#include "base/fail.h"
#include "runtime/device/cpu.h"
#include "runtime/device/cpu_attention.h"

#include <inttypes.h>
#include <string.h>

lh_status lhi_cpu_check_slices(const lhi_cpu_options *o, lh_error *err)
{
    const uint32_t k = o->n_slices;
    bool offloads = false;
    for (uint32_t i = 0; o->offload && i < o->model->layers; i++)
        offloads = offloads || o->offload[i];
    if (k <= 1)
        return LH_OK;
    if (o->sequence % k != 0 || o->n_microbatches % k != 0)
        return lhi_fail(err, LH_EINVAL,
                        "%" PRIu32 " slices do not divide sequences of %" PRIu32
                        " tokens, or %" PRIu32 " microbatches",
                        k, o->sequence, o->n_microbatches);
    if (o->model->experts || o->n_contexts > 1 || offloads)
        return lhi_fail(
            err, LH_EUNSUPPORTED,
            "the cpu device does not train sliced sequences (slices, "
            "layout.slices) with %s: remove one of them",
            o->model->experts   ? "experts, which balance whole sequences"
            : o->n_contexts > 1 ? "context parallelism"
                                : "activations in storage or host memory");
    return LH_OK;
}

double lhi_cpu_count_key_floats(const lhi_cpu *cpu, const lhi_cpu_chunk *chunk)
{
    if (cpu->n_slices == 1)
        return 0;
    return (double)lhi_cpu_count_layers(chunk) * cpu->microbatch *
           cpu->key_rows * ((double)cpu->kv + cpu->values);
}

/* Takes a buffer for keys and values, or for their gradients, from the free
 * list, or allocates one; NULL: out of memory. */
static float *take_buffer(lhi_cpu *cpu, lhi_cpu_chunk *chunk)
{
    float *out = chunk->free_keys;
    double n = lhi_cpu_count_key_floats(cpu, chunk);
    if (out)
        memcpy(&chunk->free_keys, (const void *)out, sizeof(float *));
    else if (n < 0x1p53)
        out = lhi_cpu_alloc_floats(cpu->activations, (size_t)n, 1);
    return out;
}

/* Returns a buffer to the free list and clears the pointer to it. */
static void return_buffer(lhi_cpu_chunk *chunk, float **buffer)
{
    if (!*buffer)
        return;
    memcpy((void *)*buffer, &chunk->free_keys, sizeof(float *));
    chunk->free_keys = *buffer;
    *buffer = NULL;
}

lh_status lhi_cpu_begin_slice(lhi_cpu *cpu, lhi_cpu_chunk *chunk,
                              uint32_t microbatch, bool forward, lh_error *err)
{
    const uint32_t k = cpu->n_slices, slice = microbatch % k;
    if (k == 1)
        return LH_OK;
    lhi_cpu_sliced_sequences *s = &chunk->sliced[microbatch / k];
    if (slice != (forward ? s->n_forward : k - 1 - s->n_backward))
        return lhi_fail(err, LH_EINVAL,
                        "%s of chunk %" PRIu32 ", microbatch %" PRIu32
                        ", slice %" PRIu32 " of %" PRIu32
                        ", runs before that of the %s slice",
                        forward ? "F" : "D", chunk->chunk, microbatch, slice, k,
                        forward ? "previous" : "next");
    float **take = forward ? &s->keys : &s->d_keys;
    if (!*take && !(*take = take_buffer(cpu, chunk)))
        return lhi_fail_nomem(err);
    size_t half = cpu->rope_dim / 2;
    cpu->first_position = slice * cpu->sequence;
    cpu->cosines = cpu->all_cosines + cpu->first_position * half;
    cpu->sines = cpu->all_sines + cpu->first_position * half;
    return LH_OK;
}

void lhi_cpu_end_slice(lhi_cpu *cpu, lhi_cpu_chunk *chunk, uint32_t microbatch,
                       bool forward)
{
    const uint32_t k = cpu->n_slices;
    if (k == 1)
        return;
    lhi_cpu_sliced_sequences *s = &chunk->sliced[microbatch / k];
    uint32_t done = forward ? ++s->n_forward : ++s->n_backward;
    bool is_over = !forward || cpu->kind == LHI_STEP_VALIDATE;
    if (done < k || !is_over)
        return;
    return_buffer(chunk, &s->keys);
    return_buffer(chunk, &s->d_keys);
}

void lhi_cpu_reset_slices(lhi_cpu *cpu, lhi_cpu_chunk *chunk)
{
    for (uint32_t i = 0;
         chunk->sliced && i < cpu->n_microbatches / cpu->n_slices; i++) {
        lhi_cpu_sliced_sequences *s = &chunk->sliced[i];
        return_buffer(chunk, &s->keys);
        return_buffer(chunk, &s->d_keys);
        s->n_forward = s->n_backward = 0;
    }
}

void lhi_cpu_set_layer_keys(const lhi_cpu *cpu, const lhi_cpu_chunk *chunk,
                            uint32_t microbatch, uint32_t layer,
                            lhi_cpu_saved_activations *kept)
{
    kept->keys = kept->d_keys = NULL;
    if (cpu->n_slices == 1)
        return;
    const lhi_cpu_sliced_sequences *s =
        &chunk->sliced[microbatch / cpu->n_slices];
    size_t at = (size_t)layer * cpu->microbatch * cpu->key_rows *
                ((size_t)cpu->kv + cpu->values);
    kept->keys = s->keys + at;
    kept->d_keys = s->d_keys ? s->d_keys + at : NULL;
}
