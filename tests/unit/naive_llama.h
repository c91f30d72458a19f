/* SPDX-License-Identifier: Apache-2.0 */
/* Reference model: a Llama, Qwen, GPT-2, Falcon, DeepSeek or MoE model in plain
 * loops and doubles, forward and joint backward. The cpu device is compared
 * with it. Shares no code with it except the order and layout of tensors
 * (lhi_tensor.index). tests/peers/test_train_torch.py compares it with PyTorch.
 */
#ifndef NAIVE_LLAMA_H
#define NAIVE_LLAMA_H

#include <longhaul/experimental/model.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NAIVE_EMBEDDING, NAIVE_SCORES, NAIVE_ATTENTION, NAIVE_MLP };

/* Returns a number's dropout factor; 1 without dropout. */
typedef double naive_keep(const void *context, int site, uint32_t layer,
                          uint32_t head, uint32_t row, uint32_t column);

/* The reference model: weights, gradients and options. */
typedef struct naive_llama {
    const lh_model *model;
    uint32_t n_tensors;
    size_t *sizes;   /* per tensor */
    bool *counts;    /* per tensor: no gradient, but the count of expert choices
                      * times the number of experts, minus the mean */
    double **w, **g; /* weights, gradients; a tied head's are the embedding's,
                      * number 0 */
    double norm_epsilon, rope_theta;
    double balance;      /* with experts */
    double capacity;     /* expert capacity factor; 0: unlimited */
    double balance_loss; /* balance loss of the last sequence: in the gradients,
                          * not in the loss */
    naive_keep *keep;    /* NULL: no dropout */
    const void *context;
} naive_llama;

/* Allocates the model with zero weights; free with naive_free. */
naive_llama *naive_make(const lh_model *model);
void naive_free(naive_llama *n);

/* Adds `scale` times the gradients of the summed loss over one sequence with s
 * tokens, tokens[0..s]; returns the summed loss. scale 0: loss only. */
double naive_sequence(naive_llama *n, const int32_t *tokens, uint32_t s,
                      double scale);

#endif
