/* SPDX-License-Identifier: Apache-2.0 */
/* A Llama in plain loops and doubles, forward and joint backward: what the cpu
 * device is compared with. Shares nothing with it but the order of tensors
 * (lhi_tensor.index). tests/peers/test_train_torch.py compares it with PyTorch.
 */
#ifndef NAIVE_LLAMA_H
#define NAIVE_LLAMA_H

#include <longhaul/model.h>

#include <stddef.h>
#include <stdint.h>

typedef struct naive_llama {
    const lh_model *model;
    uint32_t n_tensors;
    size_t *sizes;   /* by tensor */
    double **w, **g; /* weights, gradients; a tied head's are those of the
                        embedding, which is number 0 */
    double norm_epsilon, rope_theta;
} naive_llama;

naive_llama *naive_make(const lh_model *model);
void naive_free(naive_llama *n);

/* Adds `scale` times the gradients of the summed loss over one sequence of s
 * tokens, tokens[0..s]; gives the summed loss. scale 0: loss alone. */
double naive_sequence(naive_llama *n, const int32_t *tokens, uint32_t s,
                      double scale);

#endif
