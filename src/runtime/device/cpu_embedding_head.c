/* SPDX-License-Identifier: Apache-2.0 */
/* The embedding and the head, for the model and its multi-token prediction
 * modules. */
#include "runtime/device/cpu_mtp.h"
#include "runtime/device/cpu_tensor_parallel.h"

#include <string.h>

void lhi_cpu_embed(lhi_cpu *cpu, const int32_t *tokens, const float *table,
                   float *x)
{
    size_t h = cpu->h;
    float *to = cpu->tensor_group ? cpu->summands : x;
    for (uint32_t i = 0; i < cpu->t; i++) {
        uint32_t token = (uint32_t)tokens[i] - cpu->first_token;
        if (token < cpu->v) /* else another rank has the token */
            memcpy(to + i * h, table + token * h, h * sizeof(float));
        else
            memset(to + i * h, 0, h * sizeof(float));
    }
    if (cpu->tensor_group)
        lhi_cpu_reduce_scatter_rows(cpu, to, x);
}

void lhi_cpu_embed_wgrad(const lhi_cpu *cpu, const int32_t *tokens,
                         const float *d, float *d_table)
{
    size_t h = cpu->h;
    for (uint32_t i = 0; i < cpu->t; i++) {
        uint32_t token = (uint32_t)tokens[i] - cpu->first_token;
        if (token < cpu->v)
            cpu->k->add(d_table + token * h, d + i * h, h);
    }
}

/* Computes norm, logits and loss of the rows x, a few rows at a time, so that
 * they stay in the cache. `normed`, `inv`, `logits` are saved for the backward
 * pass; `scale`: factor on the logits' gradient. */
double lhi_cpu_head_loss(lhi_cpu *cpu, const float *norm, const float *head,
                         const float *x, float *normed, float *inv,
                         float *logits, const int32_t *targets, float scale)
{
    uint32_t t = cpu->t, h = cpu->h;
    double loss = 0;
    float *own = lhi_cpu_own_rows(cpu, normed);
    lhi_cpu_norm(cpu, x, norm, own, inv);
    lhi_cpu_gather_rows(cpu, own, normed);
    for (uint32_t row = 0; row < t; row += cpu->logit_rows) {
        uint32_t rows = t - row < cpu->logit_rows ? t - row : cpu->logit_rows;
        float *at = logits + (size_t)row * cpu->v;
        lhi_cpu_forward_product(cpu, normed + (size_t)row * h, head, at, rows,
                                h, cpu->v, false);
        if (!cpu->tensor_group)
            loss +=
                cpu->k->cross_entropy(at, rows, cpu->v, targets + row, scale);
    }
    return cpu->tensor_group
               ? lhi_cpu_vocab_parallel_loss(cpu, logits, targets, scale)
               : loss;
}

void lhi_cpu_head_loss_backward(lhi_cpu *cpu, const float *norm,
                                const float *head, const float *logits,
                                const float *inv, const float *add, float *x,
                                float *d_norm)
{
    float *own = lhi_cpu_own_rows(cpu, cpu->scratch);
    lhi_cpu_input_product(cpu, logits, head, cpu->scratch, cpu->t, cpu->h,
                          cpu->v);
    lhi_cpu_reduce_scatter_rows(cpu, cpu->scratch, own);
    if (add)
        cpu->k->add(own, add, (size_t)cpu->r * cpu->h);
    lhi_cpu_norm_backward(cpu, own, norm, inv, NULL, x, d_norm);
}
