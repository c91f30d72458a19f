/* SPDX-License-Identifier: Apache-2.0 */
#include "naive_latent.h"
#include "naive_llama.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static double *doubles(size_t n)
{
    double *x = calloc(n ? n : 1, sizeof *x);
    if (!x)
        abort();
    return x;
}

/* --- where tensors are -------------------------------------------------------
 */

/* A matrix as a product takes it: element (out, in) at out * o + in * i, and
 * its bias, NULL: none. */
typedef struct matrix {
    double *w, *g, *b, *gb;
    size_t in, out, o, i;
} matrix;

typedef struct vectors {
    double *w, *g, *b, *gb;
} vectors;

enum { MOST_EXPERTS = 8, MOST_TENSORS = 16 + 3 * MOST_EXPERTS };

typedef struct layer_weights {
    vectors norm1, norm2, q_norm, k_norm;
    naive_latent latent, d_latent;
    matrix q, k, v, out, gate, up, down;
    matrix router, shared[3], shared_gate;
    double *router_bias, *counts;    /* NULL: none */
    matrix experts[MOST_EXPERTS][3]; /* gate, up, down */
} layer_weights;

static bool is_gpt2(const lh_model *m)
{
    return m->norm == LH_NORM_LAYER;
}

/* Up to the norm before the MLP; where queries are not compressed the first two
 * products are left out. */
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

/* Behind attention and its norms: sizes. */
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

/* A layer's tensors in their order: sizes. */
static uint32_t layer_sizes(const lh_model *m, uint32_t layer, size_t *out)
{
    size_t h = m->hidden, q = (size_t)m->heads * m->head_dim, f = m->ffn;
    size_t kv = (size_t)m->kv_heads * m->head_dim;
    const size_t gpt2[] = {h, h, 3 * h * h, 3 * h, h * h, h,
                           h, h, h * f,     f,     f * h, h};
    const size_t falcon[] = {h, h, (q + 2 * kv) * h, h * q, h * f, f * h};
    size_t d = m->head_dim;
    const size_t llama[] = {
        h,      q * h,
        kv * h, kv * h,
        d,      d,
        q,      kv,
        kv,     h * q,
        h,      h,
        f * h,  f * h,
        f,      f,
        h * f,  h};
    const bool there[] = {1, 1, 1, 1, m->qk_norm, m->qk_norm, m->qkv_bias, m->qkv_bias, m->qkv_bias,
                          1, m->output_bias, 1, 1, 1, m->mlp_bias, m->mlp_bias,
                          1, m->mlp_bias};
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

/* The next tensor, [out][in]. */
static matrix next_matrix(const naive_llama *n, uint32_t *at, size_t in,
                          size_t out)
{
    matrix a = {n->w[*at], n->g[*at], NULL, NULL, in, out, in, 1};
    (*at)++;
    return a;
}

static void next_bias(const naive_llama *n, uint32_t *at, matrix *to)
{
    to->b = n->w[*at];
    to->gb = n->g[*at];
    (*at)++;
}

/* The next tensor, [in][all], columns from `first` on, and its bias. */
static matrix next_columns(const naive_llama *n, uint32_t at, size_t in,
                           size_t all, size_t first, size_t out)
{
    return (matrix){n->w[at] + first,
                    n->g[at] + first,
                    n->w[at + 1] + first,
                    n->g[at + 1] + first,
                    in,
                    out,
                    1,
                    all};
}

static layer_weights gpt2_weights(const naive_llama *n, uint32_t at)
{
    size_t h = n->model->hidden, f = n->model->ffn;
    layer_weights w = {
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

static layer_weights falcon_weights(const naive_llama *n, uint32_t at)
{
    const lh_model *m = n->model;
    size_t h = m->hidden, f = m->ffn, q = m->heads * m->head_dim;
    size_t kv = m->kv_heads * m->head_dim;
    layer_weights w = {.norm1 = {n->w[at], n->g[at], n->w[at + 1], n->g[at + 1]}};
    double *qkv = n->w[at + 2], *g = n->g[at + 2];
    w.q = (matrix){qkv, g, NULL, NULL, h, q, h, 1};
    w.k = (matrix){qkv + q * h, g + q * h, NULL, NULL, h, kv, h, 1};
    w.v = (matrix){qkv + (q + kv) * h, g + (q + kv) * h, NULL, NULL, h, kv,
                   h, 1};
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

static void latent_weights(const naive_llama *n, uint32_t *at,
                           layer_weights *w)
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

/* Queries, keys and values as products of the row itself. */
static void plain_weights(const naive_llama *n, uint32_t *at, layer_weights *w)
{
    const lh_model *m = n->model;
    size_t h = m->hidden, kv = (size_t)m->kv_heads * m->head_dim;
    w->q = next_matrix(n, at, h, (size_t)m->heads * m->head_dim);
    w->k = next_matrix(n, at, h, kv);
    w->v = next_matrix(n, at, h, kv);
    if (m->qk_norm) {
        w->q_norm = (vectors){n->w[*at], n->g[*at], NULL, NULL};
        w->k_norm = (vectors){n->w[*at + 1], n->g[*at + 1], NULL, NULL};
        *at += 2;
    }
    if (m->qkv_bias) {
        next_bias(n, at, &w->q);
        next_bias(n, at, &w->k);
        next_bias(n, at, &w->v);
    }
}

static size_t value_dim(const lh_model *m)
{
    return m->kv_lora_rank ? m->v_head_dim : m->head_dim;
}

static layer_weights weights_of(const naive_llama *n, uint32_t layer)
{
    const lh_model *m = n->model;
    size_t sizes[MOST_TENSORS], h = m->hidden, f = m->ffn;
    uint32_t at = front_of(m);
    layer_weights w = {0};
    for (uint32_t i = 0; i < layer; i++)
        at += layer_sizes(m, i, sizes);
    if (m->parallel_block)
        return falcon_weights(n, at);
    if (is_gpt2(m))
        return gpt2_weights(n, at);
    w.norm1 = (vectors){n->w[at], n->g[at], NULL, NULL};
    at++;
    if (m->kv_lora_rank)
        latent_weights(n, &at, &w);
    else
        plain_weights(n, &at, &w);
    w.out = next_matrix(n, &at, m->heads * value_dim(m), h);
    if (m->output_bias)
        next_bias(n, &at, &w.out);
    w.norm2 = (vectors){n->w[at], n->g[at], NULL, NULL};
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

static vectors last_norm(const naive_llama *n)
{
    uint32_t at = n->n_tensors - (is_gpt2(n->model) ? 3 : 2);
    vectors v = {n->w[at], n->g[at], NULL, NULL};
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
        n->w[i] = doubles(size);
        n->g[i] = doubles(size);
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

/* --- operations --------------------------------------------------------------
 */

/* y[s][out] += x[s][in] w[out][in]' + b */
static void linear(const double *x, const matrix *w, double *y, size_t s)
{
    for (size_t t = 0; t < s; t++)
        for (size_t o = 0; o < w->out; o++) {
            for (size_t i = 0; i < w->in; i++)
                y[t * w->out + o] += x[t * w->in + i] * w->w[o * w->o + i * w->i];
            y[t * w->out + o] += w->b ? w->b[o] : 0;
        }
}

static void linear_back(const double *x, const matrix *w, const double *dy,
                        double *dx, size_t s)
{
    for (size_t t = 0; t < s; t++)
        for (size_t o = 0; o < w->out; o++) {
            double d = dy[t * w->out + o];
            for (size_t i = 0; i < w->in; i++) {
                dx[t * w->in + i] += d * w->w[o * w->o + i * w->i];
                w->g[o * w->o + i * w->i] += d * x[t * w->in + i];
            }
            if (w->gb)
                w->gb[o] += d;
        }
}

/* RMS norms leave the mean in. */
static double mean_of(const naive_llama *n, const double *x, size_t h)
{
    double sum = 0;
    for (size_t i = 0; i < h && is_gpt2(n->model); i++)
        sum += x[i];
    return sum / (double)h;
}

static double inv_root(const naive_llama *n, const double *x, size_t h)
{
    double sum = 0, mean = mean_of(n, x, h);
    for (size_t i = 0; i < h; i++)
        sum += (x[i] - mean) * (x[i] - mean);
    return 1 / sqrt(sum / (double)h + n->norm_epsilon);
}

static void norm(const naive_llama *n, const double *x, vectors w, double *y,
                 size_t s, size_t h)
{
    for (size_t t = 0; t < s; t++) {
        double r = inv_root(n, x + t * h, h), mean = mean_of(n, x + t * h, h);
        for (size_t i = 0; i < h; i++)
            y[t * h + i] =
                (x[t * h + i] - mean) * r * w.w[i] + (w.b ? w.b[i] : 0);
    }
}

/* By the chain rule through root and mean: of z = (x - mean) r, dx = r (dz -
 * z mean(dz z)), and with a mean less what all have in common. */
static void norm_back(const naive_llama *n, const double *x, vectors w,
                      const double *dy, double *dx, size_t s, size_t h)
{
    for (size_t t = 0; t < s; t++) {
        const double *v = x + t * h, *d = dy + t * h;
        double r = inv_root(n, v, h), mean = mean_of(n, v, h);
        double dot = 0, all = 0;
        for (size_t i = 0; i < h; i++) {
            double z = (v[i] - mean) * r;
            dot += d[i] * w.w[i] * z;
            all += d[i] * w.w[i];
            w.g[i] += d[i] * z;
            if (w.gb)
                w.gb[i] += d[i];
        }
        if (!is_gpt2(n->model))
            all = 0;
        for (size_t i = 0; i < h; i++)
            dx[t * h + i] += r * (d[i] * w.w[i] - all / (double)h -
                                  (v[i] - mean) * r * dot / (double)h);
    }
}

static double keep(const naive_llama *n, int site, uint32_t layer,
                   uint32_t head, size_t row, size_t column)
{
    return n->keep ? n->keep(n->context, site, layer, head, (uint32_t)row,
                             (uint32_t)column)
                   : 1;
}

static void drop(const naive_llama *n, int site, uint32_t layer, double *x,
                 size_t s)
{
    for (size_t i = 0; i < s * n->model->hidden; i++)
        x[i] *= keep(n, site, layer, 0, i / n->model->hidden,
                     i % n->model->hidden);
}

/* --- experts: one row after the other ----------------------------------------
 */

typedef struct routed {
    double p[MOST_EXPERTS];     /* scores */
    double share[MOST_EXPERTS]; /* 0: not chosen, or without room */
    bool is[MOST_EXPERTS];      /* chosen */
    int nth[MOST_EXPERTS];      /* which choice it was */
} routed;

/* How many of n are better than `of`. */
static uint32_t better(const double *x, uint32_t n, uint32_t of)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++)
        count += x[i] > x[of] || (x[i] == x[of] && i < of);
    return count;
}

/* Ratings of experts in groups that are not chosen fall below all others. */
static void leave_groups(const lh_model *m, double *rating)
{
    uint32_t groups = m->expert_groups, size = m->experts / groups;
    double of[MOST_EXPERTS] = {0};
    bool sum_of_two = m->router == LH_ROUTER_SIGMOID && size > 1;
    for (uint32_t e = 0; e < m->experts; e++) {
        const double *group = rating + e / size * size;
        uint32_t place = better(group, size, e % size);
        if (place == 0 || (place == 1 && sum_of_two))
            of[e / size] += rating[e];
    }
    for (uint32_t e = 0; e < m->experts; e++)
        if (better(of, groups, e / size) >= m->groups_per_token)
            rating[e] -= 1e9;
}

static routed route(const naive_llama *n, const layer_weights *w,
                    const double *x)
{
    const lh_model *m = n->model;
    routed r = {{0}, {0}, {0}, {0}};
    uint32_t experts = m->experts;
    double all = 0, chosen = 0, rating[MOST_EXPERTS];
    bool sigmoid = m->router == LH_ROUTER_SIGMOID;
    linear(x, &w->router, r.p, 1);
    for (uint32_t e = 0; e < experts; e++) {
        r.p[e] = sigmoid ? 1 / (1 + exp(-r.p[e])) : exp(r.p[e]);
        all += r.p[e];
    }
    for (uint32_t e = 0; e < experts; e++) {
        r.p[e] /= sigmoid ? 1 : all;
        rating[e] = r.p[e] + (w->router_bias ? w->router_bias[e] : 0);
    }
    if (m->expert_groups)
        leave_groups(m, rating);
    for (uint32_t e = 0; e < experts; e++) {
        r.nth[e] = (int)better(rating, experts, e);
        r.is[e] = r.nth[e] < (int)m->experts_per_token;
        chosen += r.is[e] ? r.p[e] : 0;
    }
    for (uint32_t e = 0; e < experts; e++)
        if (r.is[e])
            r.share[e] = (m->routed_scale > 0 ? m->routed_scale : 1) * r.p[e] /
                         (m->raw_shares ? 1 : chosen);
    return r;
}

/* Of all rows of a sequence; what experts have no room for has no share. */
static routed *route_all(const naive_llama *n, const layer_weights *w,
                         const double *x, size_t s)
{
    const lh_model *m = n->model;
    routed *r = calloc(s + 1, sizeof *r);
    uint32_t taken[MOST_EXPERTS] = {0};
    double most = ceil(n->capacity * (double)s * m->experts_per_token /
                       m->experts);
    if (!r)
        abort();
    for (size_t t = 0; t < s; t++)
        r[t] = route(n, w, x + t * m->hidden);
    for (int nth = 0; nth < (int)m->experts_per_token; nth++)
        for (size_t t = 0; t < s; t++)
            for (uint32_t e = 0; e < m->experts; e++)
                if (r[t].nth[e] == nth && n->capacity > 0 &&
                    taken[e]++ >= most)
                    r[t].share[e] = 0;
    return r;
}

static double silu(double x)
{
    return x / (1 + exp(-x));
}

/* y += share times what one expert makes of x. */
static void expert_forward(const matrix *w, const double *x, double share,
                           double *y, size_t h, size_t f)
{
    double *gate = doubles(f), *up = doubles(f), *out = doubles(h);
    linear(x, &w[0], gate, 1);
    linear(x, &w[1], up, 1);
    for (size_t i = 0; i < f; i++)
        up[i] *= silu(gate[i]);
    linear(up, &w[2], out, 1);
    for (size_t i = 0; i < h; i++)
        y[i] += share * out[i];
    free(gate);
    free(up);
    free(out);
}

/* What the shared experts' result is times. */
static double gate_of(const layer_weights *w, const double *x)
{
    double logit = 0;
    if (!w->shared_gate.w)
        return 1;
    linear(x, &w->shared_gate, &logit, 1);
    return 1 / (1 + exp(-logit));
}

static void experts_forward(const naive_llama *n, const layer_weights *w,
                            const double *x, double *y, size_t s)
{
    size_t h = n->model->hidden, f = n->model->expert_ffn;
    routed *r = route_all(n, w, x, s);
    for (size_t t = 0; t < s; t++) {
        for (uint32_t e = 0; e < n->model->experts; e++)
            if (r[t].share[e] > 0)
                expert_forward(w->experts[e], x + t * h, r[t].share[e],
                               y + t * h, h, f);
        if (n->model->shared_expert_ffn)
            expert_forward(w->shared, x + t * h, gate_of(w, x + t * h),
                           y + t * h, h, n->model->shared_expert_ffn);
    }
    free(r);
}

/* One row through one expert, from `d` to dx; what its result is worth. */
static double expert_back(const matrix *w, const double *x, const double *d,
                          double share, double *dx, size_t h, size_t f)
{
    double *gate = doubles(f), *up = doubles(f), *act = doubles(f);
    double *out = doubles(h), *scaled = doubles(h), *d_act = doubles(f);
    double worth = 0;
    linear(x, &w[0], gate, 1);
    linear(x, &w[1], up, 1);
    for (size_t i = 0; i < f; i++)
        act[i] = silu(gate[i]) * up[i];
    linear(act, &w[2], out, 1);
    for (size_t i = 0; i < h; i++) {
        worth += out[i] * d[i];
        scaled[i] = share * d[i];
    }
    linear_back(act, &w[2], scaled, d_act, 1);
    for (size_t i = 0; i < f; i++) {
        double z = 1 / (1 + exp(-gate[i])), was = gate[i];
        gate[i] = d_act[i] * up[i] * (z + was * z * (1 - z));
        up[i] = d_act[i] * silu(was);
    }
    linear_back(x, &w[0], gate, dx, 1);
    linear_back(x, &w[1], up, dx, 1);
    double *all[] = {gate, up, act, out, scaled, d_act};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
    return worth;
}

/* A probability: a score's part of all. */
static double part_of(const naive_llama *n, const routed *r, uint32_t e)
{
    double all = 0;
    for (uint32_t i = 0; i < n->model->experts; i++)
        all += r->p[i];
    return r->p[e] / all;
}

/* Of the part of the loss that balances: experts / (k s) times how often an
 * expert was chosen, for each of its probabilities. */
static void balances(const naive_llama *n, const layer_weights *w,
                     const double *x, double *out, size_t s)
{
    size_t h = n->model->hidden;
    for (size_t t = 0; t < s; t++) {
        routed r = route(n, w, x + t * h);
        for (uint32_t e = 0; e < n->model->experts; e++)
            out[e] += r.is[e] * n->balance * n->model->experts /
                      (n->model->experts_per_token * (double)s);
    }
}

/* From what results are worth to the gradients of the logits, score by score:
 * each one's share of each expert's result, its part of all scores, and its own
 * slope. */
static void scores_back(const naive_llama *n, const routed *r,
                        const double *worth, const double *of_loss,
                        double scale, double *out)
{
    const lh_model *m = n->model;
    uint32_t experts = m->experts;
    double by = m->routed_scale > 0 ? m->routed_scale : 1, chosen = 0, sum = 0;
    double ds[MOST_EXPERTS] = {0};
    bool sigmoid = m->router == LH_ROUTER_SIGMOID;
    for (uint32_t e = 0; e < experts; e++) {
        chosen += r->is[e] ? r->p[e] : 0;
        sum += r->p[e];
    }
    for (uint32_t e = 0; e < experts; e++) {
        /* Of e's share by the score of i. */
        for (uint32_t i = 0; i < experts && r->share[e] > 0; i++) {
            if (m->raw_shares)
                ds[i] += i == e ? worth[e] * by : 0;
            else if (r->is[i])
                ds[i] += worth[e] * by *
                         ((i == e) / chosen - r->p[e] / (chosen * chosen));
        }
        for (uint32_t i = 0; i < experts; i++)
            ds[i] += scale * of_loss[e] *
                     ((i == e) / sum - r->p[e] / (sum * sum));
    }
    for (uint32_t e = 0; e < experts; e++) {
        out[e] = 0;
        if (sigmoid)
            out[e] = ds[e] * r->p[e] * (1 - r->p[e]);
        for (uint32_t i = 0; i < experts && !sigmoid; i++)
            out[e] += ds[i] * r->p[i] * ((i == e) - r->p[e]);
    }
}

static void experts_back(const naive_llama *n, const layer_weights *w,
                         const double *x, const double *d, double *dx, size_t s,
                         double scale)
{
    const lh_model *m = n->model;
    size_t h = m->hidden, f = m->expert_ffn;
    uint32_t experts = m->experts;
    double of_loss[MOST_EXPERTS] = {0};
    balances(n, w, x, of_loss, s);
    routed *all = route_all(n, w, x, s);
    for (size_t t = 0; t < s; t++) {
        routed r = all[t];
        double worth[MOST_EXPERTS] = {0}, dp[MOST_EXPERTS];
        for (uint32_t e = 0; e < experts; e++)
            if (r.share[e] > 0)
                worth[e] = expert_back(w->experts[e], x + t * h, d + t * h,
                                       r.share[e], dx + t * h, h, f);
        for (uint32_t e = 0; e < experts && w->counts; e++)
            w->counts[e] += r.is[e] * (double)experts - m->experts_per_token;
        scores_back(n, &r, worth, of_loss, scale, dp);
        linear_back(x + t * h, &w->router, dp, dx + t * h, 1);
        if (m->shared_expert_ffn) {
            double g = gate_of(w, x + t * h);
            double of = expert_back(w->shared, x + t * h, d + t * h, g,
                                    dx + t * h, h, m->shared_expert_ffn);
            of *= g * (1 - g);
            if (w->shared_gate.w)
                linear_back(x + t * h, &w->shared_gate, &of, dx + t * h, 1);
        }
    }
    free(all);
}

/* The part of the loss itself, of a sequence, times s. */
static double balance_loss(const naive_llama *n, const layer_weights *w,
                           const double *x, size_t s)
{
    double by[MOST_EXPERTS] = {0}, loss = 0;
    balances(n, w, x, by, s);
    for (size_t t = 0; t < s; t++) {
        routed r = route(n, w, x + t * n->model->hidden);
        for (uint32_t e = 0; e < n->model->experts; e++)
            loss += by[e] * part_of(n, &r, e);
    }
    return loss;
}

/* GeLU as GPT-2 has it, and its slope. */
static double gelu(double x)
{
    return 0.5 * x *
           (1 + tanh(sqrt(2 / 3.14159265358979323846) *
                     (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x)
{
    double c = sqrt(2 / 3.14159265358979323846);
    double h = tanh(c * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + h) +
           0.5 * x * (1 - h * h) * c * (1 + 3 * 0.044715 * x * x);
}

static void rotate(const naive_llama *n, double *x, size_t s, size_t heads,
                   double sign)
{
    size_t d = n->model->head_dim;
    for (size_t t = 0; t < s && !n->model->positions; t++)
        for (size_t head = 0; head < heads; head++)
            for (size_t i = 0; i < d / 2; i++) {
                double angle = (double)t *
                               pow(n->rope_theta, -2.0 * (double)i / (double)d);
                double c = cos(angle), z = sign * sin(angle);
                double *p = x + (t * heads + head) * d + i;
                double a = p[0], b = p[d / 2];
                p[0] = a * c - b * z;
                p[d / 2] = b * c + a * z;
            }
}

typedef struct kept {
    double *x, *n1, *q, *k, *v, *p, *o, *mid, *n2, *gate, *up, *act;
    double *plain_q, *plain_k; /* before their norms */
} kept;

static void attend(const naive_llama *n, kept *a, uint32_t layer, size_t s)
{
    size_t heads = n->model->heads, kvs = n->model->kv_heads;
    size_t d = n->model->head_dim, vd = value_dim(n->model);
    for (size_t head = 0; head < heads; head++)
        for (size_t t = 0; t < s; t++) {
            size_t kv = head / (heads / kvs);
            double *p = a->p + (head * s + t) * s, most = -1e300, sum = 0;
            for (size_t u = 0; u <= t; u++) {
                double dot = 0;
                for (size_t i = 0; i < d; i++)
                    dot += a->q[(t * heads + head) * d + i] *
                           a->k[(u * kvs + kv) * d + i];
                p[u] = dot / sqrt((double)d);
                most = p[u] > most ? p[u] : most;
            }
            for (size_t u = 0; u <= t; u++)
                sum += p[u] = exp(p[u] - most);
            for (size_t u = 0; u <= t; u++) {
                p[u] /= sum;
                double by =
                    keep(n, NAIVE_SCORES, layer, (uint32_t)head, t, u);
                for (size_t i = 0; i < vd; i++)
                    a->o[(t * heads + head) * vd + i] +=
                        by * p[u] * a->v[(u * kvs + kv) * vd + i];
            }
        }
}

static void attend_back(const naive_llama *n, const kept *a, uint32_t layer,
                        const double *d_o, double *dq, double *dk, double *dv,
                        size_t s)
{
    size_t heads = n->model->heads, kvs = n->model->kv_heads;
    size_t d = n->model->head_dim, vd = value_dim(n->model);
    double *dp = doubles(s);
    for (size_t head = 0; head < heads; head++)
        for (size_t t = 0; t < s; t++) {
            size_t kv = head / (heads / kvs);
            const double *p = a->p + (head * s + t) * s;
            const double *out = d_o + (t * heads + head) * vd;
            double all = 0;
            for (size_t u = 0; u <= t; u++) {
                double by =
                    keep(n, NAIVE_SCORES, layer, (uint32_t)head, t, u);
                dp[u] = 0;
                for (size_t i = 0; i < vd; i++) {
                    dp[u] += by * out[i] * a->v[(u * kvs + kv) * vd + i];
                    dv[(u * kvs + kv) * vd + i] += by * p[u] * out[i];
                }
                all += dp[u] * p[u];
            }
            for (size_t u = 0; u <= t; u++) {
                double ds = p[u] * (dp[u] - all) / sqrt((double)d);
                for (size_t i = 0; i < d; i++) {
                    dq[(t * heads + head) * d + i] +=
                        ds * a->k[(u * kvs + kv) * d + i];
                    dk[(u * kvs + kv) * d + i] +=
                        ds * a->q[(t * heads + head) * d + i];
                }
            }
        }
    free(dp);
}

static void add(double *to, const double *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] += x[i];
}

static void make_qkv(const naive_llama *n, const layer_weights *w, kept *a,
                     size_t s)
{
    const lh_model *m = n->model;
    size_t d = m->head_dim, q = s * m->heads * d, kv = s * m->kv_heads * d;
    if (m->kv_lora_rank) {
        naive_latent_forward(m, n->rope_theta, &w->latent, a->n1, a->q, a->k,
                             a->v, s);
        return;
    }
    linear(a->n1, &w->q, a->q, s);
    linear(a->n1, &w->k, a->k, s);
    linear(a->n1, &w->v, a->v, s);
    if (m->qk_norm) {
        memcpy(a->plain_q, a->q, q * sizeof *a->q);
        memcpy(a->plain_k, a->k, kv * sizeof *a->k);
        norm(n, a->plain_q, w->q_norm, a->q, s * m->heads, d);
        norm(n, a->plain_k, w->k_norm, a->k, s * m->kv_heads, d);
    }
    rotate(n, a->q, s, m->heads, 1);
    rotate(n, a->k, s, m->kv_heads, 1);
}

/* The gradient of what went through a head's norm, in its place. */
static void heads_back(const naive_llama *n, const double *plain, vectors w,
                       double *d, size_t heads)
{
    size_t all = heads * n->model->head_dim;
    double *dx = doubles(all);
    norm_back(n, plain, w, d, dx, heads, n->model->head_dim);
    memcpy(d, dx, all * sizeof *d);
    free(dx);
}

static void qkv_back(const naive_llama *n, const layer_weights *w,
                     const kept *a, double *dq, double *dk, double *dv,
                     double *d_n, size_t s)
{
    const lh_model *m = n->model;
    if (m->kv_lora_rank) {
        naive_latent_back(m, n->rope_theta, &w->latent, &w->d_latent, a->n1,
                          dq, dk, dv, d_n, s);
        return;
    }
    rotate(n, dq, s, m->heads, -1);
    rotate(n, dk, s, m->kv_heads, -1);
    if (m->qk_norm) {
        heads_back(n, a->plain_q, w->q_norm, dq, s * m->heads);
        heads_back(n, a->plain_k, w->k_norm, dk, s * m->kv_heads);
    }
    linear_back(a->n1, &w->q, dq, d_n, s);
    linear_back(a->n1, &w->k, dk, d_n, s);
    linear_back(a->n1, &w->v, dv, d_n, s);
}

static kept layer_forward(naive_llama *n, uint32_t layer, double *x, double *y,
                          size_t s)
{
    const lh_model *m = n->model;
    size_t h = m->hidden, f = m->ffn, d = m->head_dim;
    size_t q = m->heads * d, kv = m->kv_heads * d;
    kept a = {x,
              doubles(s * h),
              doubles(s * q),
              doubles(s * kv),
              doubles(s * kv),
              doubles(m->heads * s * s),
              doubles(s * m->heads * value_dim(m)),
              doubles(s * h),
              doubles(s * h),
              doubles(s * f),
              doubles(s * f),
              doubles(s * f),
              doubles(s * q),
              doubles(s * kv)};
    layer_weights w = weights_of(n, layer);
    norm(n, x, w.norm1, a.n1, s, h);
    make_qkv(n, &w, &a, s);
    attend(n, &a, layer, s);
    linear(a.o, &w.out, a.mid, s);
    drop(n, NAIVE_ATTENTION, layer, a.mid, s);
    add(a.mid, x, s * h);
    if (m->parallel_block)
        memcpy(a.n2, a.n1, s * h * sizeof *a.n2);
    else
        norm(n, a.mid, w.norm2, a.n2, s, h);
    if (lh_model_layer_is_moe(m, layer)) {
        experts_forward(n, &w, a.n2, y, s);
        n->balance_loss += balance_loss(n, &w, a.n2, s);
        drop(n, NAIVE_MLP, layer, y, s);
        add(y, a.mid, s * h);
        return a;
    }
    linear(a.n2, &w.up, a.up, s);
    if (m->gated)
        linear(a.n2, &w.gate, a.gate, s);
    for (size_t i = 0; i < s * f; i++)
        a.act[i] = m->gated ? a.gate[i] / (1 + exp(-a.gate[i])) * a.up[i]
                            : gelu(a.up[i]);
    linear(a.act, &w.down, y, s);
    drop(n, NAIVE_MLP, layer, y, s);
    add(y, a.mid, s * h);
    return a;
}

/* d: gradient of the output; becomes that of the input. */
static void layer_back(naive_llama *n, uint32_t layer, const kept *a, double *d,
                       size_t s, double scale)
{
    const lh_model *m = n->model;
    size_t h = m->hidden, f = m->ffn, dim = m->head_dim;
    size_t q = m->heads * dim, kv = m->kv_heads * dim;
    layer_weights w = weights_of(n, layer);
    double *d_act = doubles(s * f), *d_gate = doubles(s * f);
    double *d_up = doubles(s * f), *d_n = doubles(s * h);
    double *d_o = doubles(s * m->heads * value_dim(m)), *dq = doubles(s * q);
    double *dk = doubles(s * kv), *dv = doubles(s * kv);
    double *end = doubles(s * h);
    memcpy(end, d, s * h * sizeof *d);
    drop(n, NAIVE_MLP, layer, end, s);
    bool moe = lh_model_layer_is_moe(m, layer);
    if (moe)
        experts_back(n, &w, a->n2, end, d_n, s, scale);
    else
        linear_back(a->act, &w.down, end, d_act, s);
    for (size_t i = 0; i < s * f && !moe; i++) {
        double z = 1 / (1 + exp(-a->gate[i]));
        d_up[i] = d_act[i] * (m->gated ? a->gate[i] * z : gelu_slope(a->up[i]));
        d_gate[i] = d_act[i] * a->up[i] * (z + a->gate[i] * z * (1 - z));
    }
    if (m->gated && !moe)
        linear_back(a->n2, &w.gate, d_gate, d_n, s);
    if (!moe)
        linear_back(a->n2, &w.up, d_up, d_n, s);
    if (!m->parallel_block) {
        norm_back(n, a->mid, w.norm2, d_n, d, s, h);
        memset(d_n, 0, s * h * sizeof *d_n);
    }
    memcpy(end, d, s * h * sizeof *d);
    drop(n, NAIVE_ATTENTION, layer, end, s);
    linear_back(a->o, &w.out, end, d_o, s);
    attend_back(n, a, layer, d_o, dq, dk, dv, s);
    qkv_back(n, &w, a, dq, dk, dv, d_n, s);
    norm_back(n, a->x, w.norm1, d_n, d, s, h);
    double *all[] = {d_act, d_gate, d_up, d_n, d_o, dq, dk, dv, end};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

static void free_kept(kept *a)
{
    double *all[] = {a->x, a->n1,  a->q,  a->k,    a->v,  a->p,
                     a->o, a->mid, a->n2, a->gate, a->up, a->act, a->plain_q, a->plain_k};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

/* Logits to loss, and in their place the gradient. */
static double entropy(double *logits, const int32_t *targets, size_t s,
                      size_t v, double scale)
{
    double loss = 0;
    for (size_t t = 0; t < s; t++) {
        double *l = logits + t * v, most = l[0], sum = 0;
        for (size_t i = 1; i < v; i++)
            most = l[i] > most ? l[i] : most;
        for (size_t i = 0; i < v; i++)
            sum += exp(l[i] - most);
        loss += log(sum) + most - l[targets[t]];
        for (size_t i = 0; i < v; i++)
            l[i] = scale * exp(l[i] - most) / sum;
        l[targets[t]] -= scale;
    }
    return loss;
}

double naive_sequence(naive_llama *n, const int32_t *tokens, uint32_t s,
                      double scale)
{
    const lh_model *m = n->model;
    size_t h = m->hidden, v = m->vocab;
    uint32_t last = n->n_tensors - 1;
    const matrix head = {n->w[last], n->g[last], NULL, NULL, h, v, h, 1};
    kept *layers = calloc(m->layers + 1, sizeof *layers);
    double *x = doubles(s * h), *normed = doubles(s * h);
    double *logits = doubles(s * v), *d = doubles(s * h);
    double *d_normed = doubles(s * h);
    if (!layers)
        abort();
    for (size_t t = 0; t < s; t++)
        memcpy(x + t * h, n->w[0] + (size_t)tokens[t] * h, h * sizeof *x);
    if (m->positions)
        add(x, n->w[1], s * h);
    drop(n, NAIVE_EMBEDDING, 0, x, s);
    n->balance_loss = 0;
    for (uint32_t i = 0; i < m->layers; i++) {
        double *y = doubles(s * h);
        layers[i] = layer_forward(n, i, x, y, s);
        x = y;
    }
    norm(n, x, last_norm(n), normed, s, h);
    linear(normed, &head, logits, s);
    double loss = entropy(logits, tokens + 1, s, v, scale);
    if (scale != 0) {
        linear_back(normed, &head, logits, d_normed, s);
        norm_back(n, x, last_norm(n), d_normed, d, s, h);
        for (uint32_t i = m->layers; i-- > 0;)
            layer_back(n, i, &layers[i], d, s, scale);
        drop(n, NAIVE_EMBEDDING, 0, d, s);
        if (m->positions)
            add(n->g[1], d, s * h);
        for (size_t t = 0; t < s; t++)
            for (size_t i = 0; i < h; i++)
                n->g[0][(size_t)tokens[t] * h + i] += d[t * h + i];
    }
    for (uint32_t i = 0; i < m->layers; i++)
        free_kept(&layers[i]);
    free(layers);
    free(x);
    free(normed);
    free(logits);
    free(d);
    free(d_normed);
    return loss;
}
