/* SPDX-License-Identifier: Apache-2.0 */
/* Hugging Face's names for Llama's tensors, in the model's order, and the
 * checksum of values. */
#include "train/train_own.h"

#include <stdio.h>
#include <string.h>

enum { PER_LAYER = 9 };

uint32_t lhi_n_kept_tensors(const lh_model *model)
{
    return model->layers * PER_LAYER + 3;
}

bool lhi_kept_tensor_of(const lh_model *model, uint32_t index,
                        lhi_kept_tensor *out)
{
    uint32_t h = model->hidden, f = model->ffn;
    uint32_t q = model->heads * model->head_dim;
    uint32_t kv = model->kv_heads * model->head_dim;
    uint32_t last = lhi_n_kept_tensors(model) - 1;
    const struct {
        const char *name;
        uint32_t rows, columns;
    } of_layer[PER_LAYER] = {
        {"input_layernorm", h, 0},   {"self_attn.q_proj", q, h},
        {"self_attn.k_proj", kv, h}, {"self_attn.v_proj", kv, h},
        {"self_attn.o_proj", h, q},  {"post_attention_layernorm", h, 0},
        {"mlp.gate_proj", f, h},     {"mlp.up_proj", f, h},
        {"mlp.down_proj", h, f}};
    out->rows = model->vocab;
    out->columns = h;
    if (index == last && model->tied_embeddings)
        return false;
    if (index == 0) {
        snprintf(out->name, sizeof out->name, "model.embed_tokens.weight");
    } else if (index == last) {
        snprintf(out->name, sizeof out->name, "lm_head.weight");
    } else if (index == last - 1) {
        snprintf(out->name, sizeof out->name, "model.norm.weight");
        out->rows = h;
        out->columns = 0;
    } else {
        uint32_t layer = (index - 1) / PER_LAYER, i = (index - 1) % PER_LAYER;
        snprintf(out->name, sizeof out->name, "model.layers.%u.%s.weight",
                 layer, of_layer[i].name);
        out->rows = of_layer[i].rows;
        out->columns = of_layer[i].columns;
    }
    out->n = (size_t)out->rows * (out->columns ? out->columns : 1);
    return true;
}

/* Each step is a bijection of the state for a given word and of the word for a
 * given state, so one wrong word is always found before the final cut, and two
 * or more with all but certainty. */
double lhi_checksum(const void *data, size_t bytes)
{
    const char *from = data;
    uint64_t state = UINT64_C(0x9e3779b97f4a7c15) ^ bytes;
    for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
        uint64_t word = 0;
        size_t n = bytes - i < sizeof word ? bytes - i : sizeof word;
        memcpy(&word, from + i, n);
        state = (state ^ word) * UINT64_C(0xff51afd7ed558ccd);
        state ^= state >> 32;
    }
    state *= UINT64_C(0xc4ceb9fe1a85ec53);
    return (double)(state >> 12);
}
