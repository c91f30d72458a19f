/* SPDX-License-Identifier: Apache-2.0 */
/* Locations of a naive_llama's tensors: their sizes in order, and a layer's
 * tensors as matrix operands. */
#include "naive_parts.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TENSORS = 16 + 3 * NAIVE_MOST_EXPERTS };

double *naive_doubles(size_t n)
{
    double *x = calloc(n ? n : 1, sizeof *x);
    if (!x)
        abort();
    return x;
}

static bool is_gpt2(const lh_model *m)
{
    return m->norm == LH_NORM_LAYER;
}

/* Writes the sizes up to the norm before the MLP; omits the first two matrices
 * if queries are not compressed. */
static uint32_t latent_sizes(const lh_model *m, size_t *out)
{
    size_t h = m->hidden, q = (size_t)m->heads * m->head_dim;
    size_t rank = m->q_lora_rank, kv = m->kv_lora_rank;
    size_t made = (size_t)m->qk_nope_head_dim + m->v_head_dim;
    const size_t all[] = {h,
                          rank * h,
                          rank,
                          q * (rank ? rank : h),
                          (kv + m->qk_rope_head_dim) * h,
                          kv,
                          m->heads * made * kv,
                          h * m->heads * m->v_head_dim,
                          h};
    uint32_t n = 0;
    for (uint32_t i = 0; i < 9; i++)
        if (all[i] > 0)
            out[n++] = all[i];
    return n;
}

/* Writes the sizes after attention and its norms. */
static uint32_t expert_sizes(const lh_model *m, size_t *out)
{
    size_t h = m->hidden, shared = h * m->shared_expert_ffn;
    uint32_t n = 0;
    out[n++] = h * m->experts;
    if (m->router == LH_ROUTER_SIGMOID)
        out[n++] = m->experts;
    for (int i = 0; i < 3 && shared; i++)
        out[n++] = shared;
    if (m->shared_expert_gate)
        out[n++] = h;
    for (uint32_t i = 0; i < 3 * m->experts; i++)
        out[n++] = h * m->expert_ffn;
    return n;
}

/* Writes the sizes of a layer's tensors, in order. */
static uint32_t layer_sizes(const lh_model *m, uint32_t layer, size_t *out)
{
    size_t h = m->hidden, q = (size_t)m->heads * m->head_dim, f = m->ffn;
    size_t kv = (size_t)m->kv_heads * m->head_dim;
    const size_t gpt2[] = {h, h, 3 * h * h, 3 * h, h * h, h,
                           h, h, h * f,     f,     f * h, h};
    const size_t falcon[] = {h, h, (q + 2 * kv) * h, h * q, h * f, f * h};
    size_t d = m->head_dim;
    const size_t llama[] = {h,     q * h, kv * h, kv * h, d,     d,
                            q,     kv,    kv,     h * q,  h,     h,
                            f * h, f * h, f,      f,      h * f, h};
    const bool there[] = {1,
                          1,
                          1,
                          1,
                          m->qk_norm,
                          m->qk_norm,
                          m->qkv_bias,
                          m->qkv_bias,
                          m->qkv_bias,
                          1,
                          m->output_bias,
                          1,
                          1,
                          1,
                          m->mlp_bias,
                          m->mlp_bias,
                          1,
                          m->mlp_bias};
    uint32_t n = 0;
    bool moe = lh_model_layer_is_moe(m, layer);
    if (m->parallel_block) {
        memcpy(out, falcon, sizeof falcon);
        return 6;
    }
    if (is_gpt2(m)) {
        memcpy(out, gpt2, sizeof gpt2);
        return 12;
    }
    if (m->kv_lora_rank)
        n = latent_sizes(m, out);
    for (int i = n ? 12 : 0; i < (moe ? 12 : 18); i++)
        if (there[i])
            out[n++] = llama[i];
    return moe ? n + expert_sizes(m, out + n) : n;
}

static uint32_t front_of(const lh_model *m)
{
    return m->positions ? 2 : 1;
}

/* Returns the next tensor, [out][in]. */
static naive_matrix next_matrix(const naive_llama *n, uint32_t *at, size_t in,
                                size_t out)
{
    naive_matrix a = {n->w[*at], n->g[*at], NULL, NULL, in, out, in, 1};
    (*at)++;
    return a;
}

static void next_bias(const naive_llama *n, uint32_t *at, naive_matrix *to)
{
    to->b = n->w[*at];
    to->gb = n->g[*at];
    (*at)++;
}

/* Returns columns of the next tensor, [in][all], from `first` on, and its bias.
 */
static naive_matrix next_columns(const naive_llama *n, uint32_t at, size_t in,
                                 size_t all, size_t first, size_t out)
{
    return (naive_matrix){n->w[at] + first,
                          n->g[at] + first,
                          n->w[at + 1] + first,
                          n->g[at + 1] + first,
                          in,
                          out,
                          1,
                          all};
}

static naive_layer gpt2_weights(const naive_llama *n, uint32_t at)
{
    size_t h = n->model->hidden, f = n->model->ffn;
    naive_layer w = {
        .norm1 = {n->w[at], n->g[at], n->w[at + 1], n->g[at + 1]},
        .q = next_columns(n, at + 2, h, 3 * h, 0, h),
        .k = next_columns(n, at + 2, h, 3 * h, h, h),
        .v = next_columns(n, at + 2, h, 3 * h, 2 * h, h),
        .out = next_columns(n, at + 4, h, h, 0, h),
        .norm2 = {n->w[at + 6], n->g[at + 6], n->w[at + 7], n->g[at + 7]},
        .up = next_columns(n, at + 8, h, f, 0, f),
        .down = next_columns(n, at + 10, f, h, 0, h),
    };
    return w;
}

static naive_layer falcon_weights(const naive_llama *n, uint32_t at)
{
    const lh_model *m = n->model;
    size_t h = m->hidden, f = m->ffn, q = m->heads * m->head_dim;
    size_t kv = m->kv_heads * m->head_dim;
    naive_layer w = {.norm1 = {n->w[at], n->g[at], n->w[at + 1], n->g[at + 1]}};
    double *qkv = n->w[at + 2], *g = n->g[at + 2];
    w.q = (naive_matrix){qkv, g, NULL, NULL, h, q, h, 1};
    w.k = (naive_matrix){qkv + q * h, g + q * h, NULL, NULL, h, kv, h, 1};
    w.v = (naive_matrix){
        qkv + (q + kv) * h, g + (q + kv) * h, NULL, NULL, h, kv, h, 1};
    at += 3;
    w.out = next_matrix(n, &at, q, h);
    w.up = next_matrix(n, &at, h, f);
    w.down = next_matrix(n, &at, f, h);
    return w;
}

static void next_latent(const naive_llama *n, uint32_t *at, double **w,
                        double **g)
{
    *w = n->w[*at];
    *g = n->g[*at];
    (*at)++;
}

static void latent_weights(const naive_llama *n, uint32_t *at, naive_layer *w)
{
    naive_latent *l = &w->latent, *d = &w->d_latent;
    if (n->model->q_lora_rank) {
        next_latent(n, at, &l->q_down, &d->q_down);
        next_latent(n, at, &l->q_norm, &d->q_norm);
    }
    next_latent(n, at, &l->q_up, &d->q_up);
    next_latent(n, at, &l->kv_down, &d->kv_down);
    next_latent(n, at, &l->kv_norm, &d->kv_norm);
    next_latent(n, at, &l->kv_up, &d->kv_up);
}

/* Queries, keys and values as direct projections of the row. */
static void plain_weights(const naive_llama *n, uint32_t *at, naive_layer *w)
{
    const lh_model *m = n->model;
    size_t h = m->hidden, kv = (size_t)m->kv_heads * m->head_dim;
    w->q = next_matrix(n, at, h, (size_t)m->heads * m->head_dim);
    w->k = next_matrix(n, at, h, kv);
    w->v = next_matrix(n, at, h, kv);
    if (m->qk_norm) {
        w->q_norm = (naive_vectors){n->w[*at], n->g[*at], NULL, NULL};
        w->k_norm = (naive_vectors){n->w[*at + 1], n->g[*at + 1], NULL, NULL};
        *at += 2;
    }
    if (m->qkv_bias) {
        next_bias(n, at, &w->q);
        next_bias(n, at, &w->k);
        next_bias(n, at, &w->v);
    }
}

size_t naive_value_dim(const lh_model *m)
{
    return m->kv_lora_rank ? m->v_head_dim : m->head_dim;
}

naive_layer naive_weights_of(const naive_llama *n, uint32_t layer)
{
    const lh_model *m = n->model;
    size_t sizes[MOST_TENSORS], h = m->hidden, f = m->ffn;
    uint32_t at = front_of(m);
    naive_layer w = {0};
    for (uint32_t i = 0; i < layer; i++)
        at += layer_sizes(m, i, sizes);
    if (m->parallel_block)
        return falcon_weights(n, at);
    if (is_gpt2(m))
        return gpt2_weights(n, at);
    w.norm1 = (naive_vectors){n->w[at], n->g[at], NULL, NULL};
    at++;
    if (m->kv_lora_rank)
        latent_weights(n, &at, &w);
    else
        plain_weights(n, &at, &w);
    w.out = next_matrix(n, &at, m->heads * naive_value_dim(m), h);
    if (m->output_bias)
        next_bias(n, &at, &w.out);
    w.norm2 = (naive_vectors){n->w[at], n->g[at], NULL, NULL};
    at++;
    if (lh_model_layer_is_moe(m, layer)) {
        w.router = next_matrix(n, &at, h, m->experts);
        if (m->router == LH_ROUTER_SIGMOID)
            w.router_bias = n->w[at], w.counts = n->g[at++];
        for (int i = 0; i < 3 && m->shared_expert_ffn; i++)
            w.shared[i] = i < 2 ? next_matrix(n, &at, h, m->shared_expert_ffn)
                                : next_matrix(n, &at, m->shared_expert_ffn, h);
        if (m->shared_expert_gate)
            w.shared_gate = next_matrix(n, &at, h, 1);
        for (uint32_t e = 0; e < m->experts; e++) {
            w.experts[e][0] = next_matrix(n, &at, h, m->expert_ffn);
            w.experts[e][1] = next_matrix(n, &at, h, m->expert_ffn);
            w.experts[e][2] = next_matrix(n, &at, m->expert_ffn, h);
        }
        return w;
    }
    w.gate = next_matrix(n, &at, h, f);
    w.up = next_matrix(n, &at, h, f);
    if (m->mlp_bias) {
        next_bias(n, &at, &w.gate);
        next_bias(n, &at, &w.up);
    }
    w.down = next_matrix(n, &at, f, h);
    if (m->mlp_bias)
        next_bias(n, &at, &w.down);
    return w;
}

naive_vectors naive_last_norm(const naive_llama *n)
{
    uint32_t at = n->n_tensors - (is_gpt2(n->model) ? 3 : 2);
    naive_vectors v = {n->w[at], n->g[at], NULL, NULL};
    if (is_gpt2(n->model)) {
        v.b = n->w[at + 1];
        v.gb = n->g[at + 1];
    }
    return v;
}

naive_llama *naive_make(const lh_model *m)
{
    naive_llama *n = calloc(1, sizeof *n);
    size_t h = m->hidden, of_layer[MOST_TENSORS];
    uint32_t front = front_of(m), in_layers = 0, layer = 0, in_layer = 0;
    for (uint32_t i = 0; i < m->layers; i++)
        in_layers += layer_sizes(m, i, of_layer);
    if (!n)
        abort();
    n->model = m;
    n->norm_epsilon = 1e-5;
    n->rope_theta = 10000;
    n->n_tensors = front + in_layers + (is_gpt2(m) ? 3 : 2);
    n->sizes = calloc(n->n_tensors, sizeof *n->sizes);
    n->w = calloc(n->n_tensors, sizeof *n->w);
    n->g = calloc(n->n_tensors, sizeof *n->g);
    n->counts = calloc(n->n_tensors, sizeof *n->counts);
    if (!n->counts || !n->sizes || !n->w || !n->g)
        abort();
    for (uint32_t i = 0; i < n->n_tensors; i++) {
        bool inside = i >= front && i < front + in_layers;
        uint32_t of = inside ? layer_sizes(m, layer, of_layer) : 0;
        size_t size = i == 0 || i + 1 == n->n_tensors ? m->vocab * h
                      : i < front                     ? m->positions * h
                      : inside                        ? of_layer[in_layer]
                                                      : h;
        n->sizes[i] = size;
        n->counts[i] = inside && m->router == LH_ROUTER_SIGMOID &&
                       lh_model_layer_is_moe(m, layer) &&
                       in_layer + expert_sizes(m, of_layer) == of + 1;
        if (i + 1 == n->n_tensors && m->tied_embeddings) {
            n->w[i] = n->w[0];
            n->g[i] = n->g[0];
            continue;
        }
        n->w[i] = naive_doubles(size);
        n->g[i] = naive_doubles(size);
        if (inside && ++in_layer == of) {
            layer++;
            in_layer = 0;
        }
    }
    return n;
}

void naive_free(naive_llama *n)
{
    for (uint32_t i = 0; i < n->n_tensors; i++) {
        if (i + 1 == n->n_tensors && n->model->tied_embeddings)
            continue;
        free(n->w[i]);
        free(n->g[i]);
    }
    free(n->sizes);
    free(n->counts);
    free(n->w);
    free(n->g);
    free(n);
}
