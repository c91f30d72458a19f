/* SPDX-License-Identifier: Apache-2.0 */
/* Multi-token prediction (MTP) modules (DeepSeek-V3, arXiv:2412.19437, section
 * 2.2), in the last chunk. Module k, from 1, has two inputs per token: the
 * head's input from module k - 1 (or the model), and the embedding of the k-th
 * next token. Each passes a norm; a matrix joins both; a layer and a norm
 * follow (equations 21 and 22). The model's head then predicts the token after
 * that (equation 23).
 *
 * Modules share the model's head and embedding. If the head's matrix is not
 * tied to the embedding, the chunk has a copy of the embedding; its gradient is
 * added to the first chunk's as for a tied head.
 *
 * A module's layer is layer n_layers + k - 1 in the chunk. Each tensor-parallel
 * rank joins its own rows with the full matrix. */
#ifndef LHI_RUNTIME_DEVICE_CPU_MTP_H
#define LHI_RUNTIME_DEVICE_CPU_MTP_H

#include "runtime/device/cpu.h"

/* Weight of the modules' mean loss in the training loss (lambda in equation
 * 25): DeepSeek-V3's final value, and Megatron-LM's default for
 * mtp_loss_scaling_factor. */
#define LHI_MTP_LOSS_WEIGHT 0.1

/* Activations that a module saves for one microbatch, besides those of its
 * layer. */
typedef struct lhi_cpu_mtp_activations {
    float *embedded;                   /* [r][h], then its gradient */
    float *d_embedded;                 /* [t][h], with tensor parallelism */
    float *enormed, *hnormed;          /* [r][h]: the inputs to join */
    float *einv, *hinv, *inv;          /* [r]: inverse norms */
    float *d_enorm, *d_hnorm, *d_norm; /* [h]: gradients of the norm weights */
    float *normed, *logits;            /* like the model's */
} lhi_cpu_mtp_activations;

/* Allocates the activations of the multi-token prediction modules for one
 * microbatch, except those of their layers; false: out of memory. */
bool lhi_cpu_make_modules(const lhi_cpu *cpu, const lhi_cpu_chunk *chunk,
                          lhi_cpu_microbatch_state *slot);

/* Computes the input of multi-token prediction module k's layer (k from 0)
 * from the embedding and the state of the previous module or the model. Used
 * by F in training steps only. */
void lhi_cpu_mtp_join(lhi_cpu *cpu, const lhi_cpu_chunk *chunk,
                      const lhi_cpu_microbatch_state *slot, uint32_t microbatch,
                      uint32_t k);
/* Computes module k's multi-token prediction loss from its layer's output. */
double lhi_cpu_mtp_loss(lhi_cpu *cpu, const lhi_cpu_chunk *chunk,
                        const lhi_cpu_microbatch_state *slot, uint32_t k);
/* Replaces the output of module k's layer by its gradient from the module's
 * loss. D runs modules last to first. */
void lhi_cpu_mtp_loss_backward(lhi_cpu *cpu, const lhi_cpu_chunk *chunk,
                               const lhi_cpu_microbatch_state *slot,
                               uint32_t k);
/* Computes the gradients of a module's two inputs from its layer's input
 * gradient: the embedding's in place, the previous state's (this rank's rows)
 * in cpu->carried. */
void lhi_cpu_mtp_join_backward(lhi_cpu *cpu, const lhi_cpu_chunk *chunk,
                               const lhi_cpu_microbatch_state *slot,
                               uint32_t microbatch, uint32_t k);
/* Computes the weight gradients of one module's joining matrix and norms for
 * one microbatch (item LHI_ITEM_MTP_JOIN); `adds`: adds to the sums. */
void lhi_cpu_mtp_join_wgrad(const lhi_cpu *cpu, const lhi_cpu_chunk *chunk,
                            const lhi_cpu_microbatch_state *slot,
                            uint32_t layer, bool adds);
/* Adds the weight gradients of all multi-token prediction modules for the
 * shared head and embedding, after the model's own gradient of the head.
 * `adds`: adds to the sums of earlier microbatches. */
void lhi_cpu_mtp_shared_wgrad(const lhi_cpu *cpu, const lhi_cpu_chunk *chunk,
                              const lhi_cpu_microbatch_state *slot, bool adds);

/* --- embedding and head, shared with the model (cpu_embedding_head.c) ----- */

/* Embeds tokens [t] through this rank's part of the table [v][h], into rows x
 * [r][h]. t: tokens of a microbatch; r: this rank's; v: vocabulary; h: hidden
 * size. */
void lhi_cpu_embed(lhi_cpu *cpu, const int32_t *tokens, const float *table,
                   float *x);
/* Adds the gradients d [t][h] of the rows that `tokens` [t] embedded to
 * d_table, the gradient of this rank's part of the embedding table. */
void lhi_cpu_embed_wgrad(const lhi_cpu *cpu, const int32_t *tokens,
                         const float *d, float *d_table);
/* Applies the final norm and the head to x [r][h] and returns the loss. Stores
 * `normed` [t][h], the inverse norms, and the logits' gradient times `scale` in
 * the place of `logits`. */
double lhi_cpu_head_loss(lhi_cpu *cpu, const float *norm, const float *head,
                         const float *x, float *normed, float *inv,
                         float *logits, const int32_t *targets, float scale);
/* Replaces x by its gradient through the head's product and norm, given the
 * logits' gradient. `add`: a further gradient of the normed rows, NULL: none.
 * d_norm: gradient of the norm's weight. */
void lhi_cpu_head_loss_backward(lhi_cpu *cpu, const float *norm,
                                const float *head, const float *logits,
                                const float *inv, const float *add, float *x,
                                float *d_norm);

#endif
