/* SPDX-License-Identifier: Apache-2.0 */
/* Attention on the cpu device.
 *
 *     cpu_attention.c            attention of whole or sliced sequences
 *     cpu_latent_attention.c     queries, keys and values from latents
 *     cpu_context_parallel.c     ranks that share sequences
 *     cpu_slices.c               keys and values of sliced sequences
 *
 * cpu.h defines the shapes. */
#ifndef LHI_RUNTIME_DEVICE_CPU_ATTENTION_H
#define LHI_RUNTIME_DEVICE_CPU_ATTENTION_H

#include "runtime/device/cpu.h"

/* ---- attention (cpu_attention.c, cpu_latent_attention.c) ---- */

/* Applies the per-head norms to queries and keys in qkv, in place. */
void lhi_cpu_norm_heads(const lhi_cpu *cpu, const lhi_cpu_weights *w,
                        lhi_cpu_saved_activations *kept);
/* Computes the gradients of the per-head RMSNorms of queries and keys, and of
 * their weights. The rows in kept->qkv are replaced in place. */
void lhi_cpu_norm_heads_backward(const lhi_cpu *cpu, const lhi_cpu_weights *w,
                                 lhi_cpu_saved_activations *kept);
/* Computes the query and key-value latents (low-rank projections) from
 * norm1. */
void lhi_cpu_compute_latents(const lhi_cpu *cpu, const lhi_cpu_weights *w,
                             lhi_cpu_saved_activations *kept);
/* Computes qkv from the latents and applies rotary positions. */
void lhi_cpu_compute_qkv_from_latents(const lhi_cpu *cpu,
                                      const lhi_cpu_weights *w,
                                      lhi_cpu_saved_activations *kept);
/* Computes norm1's gradient, into the scratch buffer, from qkv's gradient.
 * Reorders qkv's gradient into the layout of the products' outputs.
 */
void lhi_cpu_latents_backward(const lhi_cpu *cpu, const lhi_cpu_weights *w,
                              lhi_cpu_saved_activations *kept);
/* Computes the weight gradients of latent attention's products (W) in `d`;
 * `adds`: adds to the sums there rather than overwriting them. */
void lhi_cpu_latents_wgrad(const lhi_cpu *cpu,
                           const lhi_cpu_saved_activations *kept,
                           const lhi_cpu_weights *d_w, bool adds);

/* ---- context parallelism (cpu_context_parallel.c) ---- */

/* Checks that each sequence can be divided over the context-parallel ranks, in
 * twice as many pieces; otherwise LH_EINVAL. */
lh_status lhi_cpu_check_context_parallel(const lhi_cpu_options *options,
                                         lh_error *err);
/* Allocates the ring buffers and partial results of context parallelism; false:
 * out of memory. */
bool lhi_cpu_make_context_parallel(lhi_cpu *cpu);
/* Counts a rank's pieces of each sequence; their rows are contiguous. */
static inline uint32_t lhi_cpu_count_pieces(const lhi_cpu *cpu)
{
    return cpu->n_context_ranks > 1 ? 2 : 1;
}
/* Returns the sequence piece that is half `half` of a rank. */
static inline uint32_t lhi_cpu_piece_index(const lhi_cpu *cpu, uint32_t rank,
                                           uint32_t half)
{
    return half ? 2 * cpu->n_context_ranks - 1 - rank : rank;
}
/* Returns the first token's position in this rank's half `half` of a sequence
 * or, with slices, of a slice that begins at `first`. */
static inline uint32_t lhi_cpu_piece_position(const lhi_cpu *cpu,
                                              uint32_t first, uint32_t half)
{
    return first +
           lhi_cpu_piece_index(cpu, cpu->context_rank, half) * cpu->piece;
}
/* Returns the floats per row in a ring buffer: keys and values, adjacent as in
 * qkv. */
static inline size_t lhi_cpu_ring_width(const lhi_cpu *cpu)
{
    return (size_t)cpu->kv + cpu->values;
}
/* All-gathers `bytes` bytes, `mine`, from each context-parallel rank; the part
 * of rank i is then at offset i * bytes in `all`. Does nothing with one
 * rank. */
void lhi_cpu_gather_contexts(lhi_cpu *cpu, const void *mine, void *all,
                             size_t bytes);
/* All-reduces n values over the context-parallel ranks. */
void lhi_cpu_all_reduce_contexts(lhi_cpu *cpu, float *values, size_t n);
/* Computes attention like lhi_cpu_attention_forward(), with the keys and values
 * of all context-parallel ranks. Errors are in collective_status. */
void lhi_cpu_ring_attention_forward(lhi_cpu *cpu,
                                    lhi_cpu_saved_activations *kept);
/* Computes qkv's gradient like lhi_cpu_attention_backward(), across all
 * context-parallel ranks. */
void lhi_cpu_ring_attention_backward(lhi_cpu *cpu,
                                     lhi_cpu_saved_activations *kept,
                                     const float *d);

/* ---- sliced sequences (cpu_slices.c) ---- */

/* Checks that slices divide sequences and microbatches, and that no option
 * requires whole sequences; otherwise LH_EINVAL or LH_EUNSUPPORTED. */
lh_status lhi_cpu_check_slices(const lhi_cpu_options *options, lh_error *err);
/* Returns the floats in a chunk's buffer for the keys and values of all slices
 * of one microbatch group; 0: whole sequences. */
double lhi_cpu_count_key_floats(const lhi_cpu *cpu, const lhi_cpu_chunk *chunk);
/* Selects the microbatch's slice for the pass that begins, F or D, and provides
 * buffers for its keys, values and their gradients. LH_EINVAL: another slice of
 * the sequence has to run first. */
lh_status lhi_cpu_begin_slice(lhi_cpu *cpu, lhi_cpu_chunk *chunk,
                              uint32_t microbatch, bool forward, lh_error *err);
/* Records the end of the slice's F or D, and returns the buffers to the free
 * list after the sequence's last pass. */
void lhi_cpu_end_slice(lhi_cpu *cpu, lhi_cpu_chunk *chunk, uint32_t microbatch,
                       bool forward);
/* Returns the buffers of all sequences to the free list, at a step's start. */
void lhi_cpu_reset_slices(lhi_cpu *cpu, lhi_cpu_chunk *chunk);
/* Sets the layer's pointers to the keys and values of the sequence's slices. */
void lhi_cpu_set_layer_keys(const lhi_cpu *cpu, const lhi_cpu_chunk *chunk,
                            uint32_t microbatch, uint32_t layer,
                            lhi_cpu_saved_activations *kept);

/* Writes gradients `from` [rows][head_dim] of sequence rows `row` on,
 * from_stride floats apart, to their place `to` in qkv, and inverts the
 * rotation. With latent attention lhi_cpu_latents_backward() inverts it. */
void lhi_cpu_apply_rotary_backward(const lhi_cpu *cpu, const float *from,
                                   size_t from_stride, float *to, uint32_t row,
                                   uint32_t rows);
/* Applies rotary positions to the queries and keys of all heads in kept->qkv,
 * in place. */
void lhi_cpu_apply_rotary(const lhi_cpu *cpu, lhi_cpu_saved_activations *kept);
/* Computes the attention output from the rotated queries, keys and values in
 * kept->qkv. Stores the softmax maximum and inverse sum of each row in
 * kept->max and kept->inv, for the backward pass. */
void lhi_cpu_attention_forward(lhi_cpu *cpu, lhi_cpu_saved_activations *kept);
/* Replaces kept->qkv by its gradient, given the attention output's gradient d
 * [t][o]. With latent attention the gradient of queries and keys remains
 * rotated. */
void lhi_cpu_attention_backward(lhi_cpu *cpu, lhi_cpu_saved_activations *kept,
                                const float *d);

#endif
