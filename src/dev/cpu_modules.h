/* SPDX-License-Identifier: Apache-2.0 */
/* Modules that predict further tokens (multi-token prediction, DeepSeek-V3,
 * arXiv:2412.19437, section 2.2), in the last chunk. Of each token module k,
 * from 1, takes what the head takes of module k - 1, or of the model, and the
 * embedding of the k-th token after it; both, each through a norm, are joined by
 * a matrix and pass a layer and a norm (equations 21 and 22), and from that the
 * model's head tells the token behind (equation 23).
 *
 * The head is the model's. So is the embedding: where the head is not the same
 * matrix the chunk has a copy, whose gradient is added to that of the first
 * chunk as a tied head's is.
 *
 * A module's layer is layer n_layers + k - 1 of the chunk. On ranks that share
 * layers each joins its own rows, with all of the matrix. */
#ifndef LHI_CPU_MODULES_H
#define LHI_CPU_MODULES_H

#include "dev/cpu.h"

/* What the mean of the modules' losses is times in the loss that is trained
 * (equation 25, lambda): DeepSeek-V3's last value, and what Megatron-LM has
 * unless mtp_loss_scaling_factor says otherwise. */
#define LHI_MODULES_WEIGHT 0.1

/* What a module keeps of one microbatch, beside its layer. */
typedef struct lhi_cpu_module {
    float *embedded;                   /* [r][h], then its gradient */
    float *d_embedded;                 /* [t][h], with tensor parallelism */
    float *enormed, *hnormed;          /* [r][h]: what is joined */
    float *einv, *hinv, *inv;          /* [r] of the norms */
    float *d_enorm, *d_hnorm, *d_norm; /* [h]: gradients of their weights */
    float *normed, *logits;            /* as the model's */
} lhi_cpu_module;

/* Room for what they keep of a microbatch, but for their layers; false: no
 * memory. */
bool lhi_cpu_make_modules(const lhi_cpu *cpu, const lhi_cpu_chunk *chunk,
                          lhi_cpu_slot *slot);

/* F of a step that trains: the input of the layer of module k, from 0, once what
 * is before has its `normed`; behind the layer the loss. */
void lhi_cpu_join(lhi_cpu *cpu, const lhi_cpu_chunk *chunk,
                  const lhi_cpu_slot *slot, uint32_t microbatch, uint32_t k);
double lhi_cpu_module_loss(lhi_cpu *cpu, const lhi_cpu_chunk *chunk,
                           const lhi_cpu_slot *slot, uint32_t k);
/* D, from the last module on: to the gradient of the layer's output, in its
 * place; and from that of the layer's input to those of what was joined, of the
 * embedding in its place, of the `normed` before in cpu->carried, this rank's
 * rows. */
void lhi_cpu_module_loss_back(lhi_cpu *cpu, const lhi_cpu_chunk *chunk,
                              const lhi_cpu_slot *slot, uint32_t k);
void lhi_cpu_join_back(lhi_cpu *cpu, const lhi_cpu_chunk *chunk,
                       const lhi_cpu_slot *slot, uint32_t microbatch,
                       uint32_t k);
/* What W adds: of one of them (LHI_ITEM_JOIN); and of all to the head and the
 * embedding, once the model's own part of the head's is there. */
void lhi_cpu_join_weights(const lhi_cpu *cpu, const lhi_cpu_chunk *chunk,
                          const lhi_cpu_slot *slot, uint32_t layer, bool adds);
void lhi_cpu_ends_weights(const lhi_cpu *cpu, const lhi_cpu_chunk *chunk,
                          const lhi_cpu_slot *slot, bool adds);

/* --- ends, which they have in common with the model (cpu_ends.c) ------------ */

/* Tokens [t] by this rank's part of a table [v][h]: rows x [r][h]; and the
 * gradient d [t][h] of these, added to the table's. */
void lhi_cpu_embed(lhi_cpu *cpu, const int32_t *tokens, const float *table,
                   float *x);
void lhi_cpu_embed_weights(const lhi_cpu *cpu, const int32_t *tokens,
                           const float *d, float *d_table);
/* x [r][h] through a norm and the head: `normed` [t][h], `inv` of the norm, and
 * the loss; in the place of `logits` its gradient, times `scale`. */
double lhi_cpu_judge(lhi_cpu *cpu, const float *norm, const float *head,
                     const float *x, float *normed, float *inv, float *logits,
                     const int32_t *targets, float scale);
/* Back: x becomes its gradient, of which `add` [r][h] is that of `normed` from
 * elsewhere (NULL: none). */
void lhi_cpu_judge_back(lhi_cpu *cpu, const float *norm, const float *head,
                        const float *logits, const float *inv,
                        const float *add, float *x, float *d_norm);

#endif
