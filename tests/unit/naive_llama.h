/* SPDX-License-Identifier: Apache-2.0 */
/* A Llama, a Qwen, a GPT-2, a Falcon, a DeepSeek or one with experts, in plain
 * loops and doubles, forward and joint backward: what the cpu device is
 * compared with. Shares nothing with it but the order and layout of tensors
 * (lhi_tensor.index). tests/peers/test_train_torch.py compares it with PyTorch.
 */
#ifndef NAIVE_LLAMA_H
#define NAIVE_LLAMA_H

#include <longhaul/model.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NAIVE_EMBEDDING, NAIVE_SCORES, NAIVE_ATTENTION, NAIVE_MLP };

/* What a number is multiplied by: 1, or as dropout has it. */
typedef double naive_keep(const void *context, int site, uint32_t layer,
                          uint32_t head, uint32_t row, uint32_t column);

typedef struct naive_llama {
    const lh_model *model;
    uint32_t n_tensors;
    size_t *sizes;   /* by tensor */
    bool *counts;    /* by tensor: its gradient is none, but counts how often
                        experts are chosen, times their number, less the mean */
    double **w, **g; /* weights, gradients; a tied head's are those of the
                        embedding, which is number 0 */
    double norm_epsilon, rope_theta;
    double balance;      /* with experts */
    double capacity;     /* of experts; 0: all that come */
    double balance_loss; /* of the last sequence: of what balances them, which
                            gradients are of, too, and the loss has not */
    naive_keep *keep;    /* NULL: no dropout */
    const void *context;
} naive_llama;

naive_llama *naive_make(const lh_model *model);
void naive_free(naive_llama *n);

/* Adds `scale` times the gradients of the summed loss over one sequence of s
 * tokens, tokens[0..s]; gives the summed loss. scale 0: loss alone. */
double naive_sequence(naive_llama *n, const int32_t *tokens, uint32_t s,
                      double scale);

#endif
