/* SPDX-License-Identifier: Apache-2.0 */
#include "naive_llama.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double *doubles(size_t n)
{
    double *x = calloc(n ? n : 1, sizeof *x);
    if (!x)
        abort();
    return x;
}

enum { NORM1, Q, K, V, O, NORM2, GATE, UP, DOWN, N_LAYER };

static uint32_t at(uint32_t layer, int which)
{
    return 1 + layer * N_LAYER + (uint32_t)which;
}

naive_llama *naive_make(const lh_model *m)
{
    naive_llama *n = calloc(1, sizeof *n);
    size_t h = m->hidden, q = (size_t)m->heads * m->head_dim, f = m->ffn;
    size_t kv = (size_t)m->kv_heads * m->head_dim;
    size_t of_layer[N_LAYER] = {h, q * h, kv * h, kv * h, q * h,
                                h, f * h, f * h,  f * h};
    if (!n)
        abort();
    n->model = m;
    n->norm_epsilon = 1e-5;
    n->rope_theta = 10000;
    n->n_tensors = at(m->layers, 0) + 2;
    n->sizes = calloc(n->n_tensors, sizeof *n->sizes);
    n->w = calloc(n->n_tensors, sizeof *n->w);
    n->g = calloc(n->n_tensors, sizeof *n->g);
    if (!n->sizes || !n->w || !n->g)
        abort();
    for (uint32_t i = 0; i < n->n_tensors; i++) {
        size_t size = i == 0 || i + 1 == n->n_tensors ? m->vocab * h
                      : i + 2 == n->n_tensors         ? h
                                              : of_layer[(i - 1) % N_LAYER];
        n->sizes[i] = size;
        if (i + 1 == n->n_tensors && m->tied_embeddings) {
            n->w[i] = n->w[0];
            n->g[i] = n->g[0];
            continue;
        }
        n->w[i] = doubles(size);
        n->g[i] = doubles(size);
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
    free(n->w);
    free(n->g);
    free(n);
}

/* y[s][out] (+)= x[s][in] w[out][in]' */
static void linear(const double *x, const double *w, double *y, size_t s,
                   size_t in, size_t out)
{
    for (size_t t = 0; t < s; t++)
        for (size_t o = 0; o < out; o++)
            for (size_t i = 0; i < in; i++)
                y[t * out + o] += x[t * in + i] * w[o * in + i];
}

static void linear_back(const double *x, const double *w, const double *dy,
                        double *dx, double *dw, size_t s, size_t in, size_t out)
{
    for (size_t t = 0; t < s; t++)
        for (size_t o = 0; o < out; o++)
            for (size_t i = 0; i < in; i++) {
                dx[t * in + i] += dy[t * out + o] * w[o * in + i];
                dw[o * in + i] += dy[t * out + o] * x[t * in + i];
            }
}

static double inv_root(const naive_llama *n, const double *x, size_t h)
{
    double sum = 0;
    for (size_t i = 0; i < h; i++)
        sum += x[i] * x[i];
    return 1 / sqrt(sum / (double)h + n->norm_epsilon);
}

static void norm(const naive_llama *n, const double *x, const double *w,
                 double *y, size_t s, size_t h)
{
    for (size_t t = 0; t < s; t++) {
        double r = inv_root(n, x + t * h, h);
        for (size_t i = 0; i < h; i++)
            y[t * h + i] = x[t * h + i] * r * w[i];
    }
}

static void norm_back(const naive_llama *n, const double *x, const double *w,
                      const double *dy, double *dx, double *dw, size_t s,
                      size_t h)
{
    for (size_t t = 0; t < s; t++) {
        const double *v = x + t * h, *d = dy + t * h;
        double r = inv_root(n, v, h), dot = 0;
        for (size_t i = 0; i < h; i++) {
            dot += d[i] * w[i] * v[i];
            dw[i] += d[i] * v[i] * r;
        }
        for (size_t i = 0; i < h; i++)
            dx[t * h + i] +=
                d[i] * w[i] * r - v[i] * dot * r * r * r / (double)h;
    }
}

static void rotate(const naive_llama *n, double *x, size_t s, size_t heads,
                   double sign)
{
    size_t d = n->model->head_dim;
    for (size_t t = 0; t < s; t++)
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
} kept;

static void attend(const naive_llama *n, kept *a, size_t s)
{
    size_t heads = n->model->heads, kvs = n->model->kv_heads;
    size_t d = n->model->head_dim;
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
                for (size_t i = 0; i < d; i++)
                    a->o[(t * heads + head) * d + i] +=
                        p[u] * a->v[(u * kvs + kv) * d + i];
            }
        }
}

static void attend_back(const naive_llama *n, const kept *a, const double *d_o,
                        double *dq, double *dk, double *dv, size_t s)
{
    size_t heads = n->model->heads, kvs = n->model->kv_heads;
    size_t d = n->model->head_dim;
    double *dp = doubles(s);
    for (size_t head = 0; head < heads; head++)
        for (size_t t = 0; t < s; t++) {
            size_t kv = head / (heads / kvs);
            const double *p = a->p + (head * s + t) * s;
            const double *out = d_o + (t * heads + head) * d;
            double all = 0;
            for (size_t u = 0; u <= t; u++) {
                dp[u] = 0;
                for (size_t i = 0; i < d; i++) {
                    dp[u] += out[i] * a->v[(u * kvs + kv) * d + i];
                    dv[(u * kvs + kv) * d + i] += p[u] * out[i];
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
              doubles(s * q),
              doubles(s * h),
              doubles(s * h),
              doubles(s * f),
              doubles(s * f),
              doubles(s * f)};
    double **w = n->w + at(layer, 0);
    norm(n, x, w[NORM1], a.n1, s, h);
    linear(a.n1, w[Q], a.q, s, h, q);
    linear(a.n1, w[K], a.k, s, h, kv);
    linear(a.n1, w[V], a.v, s, h, kv);
    rotate(n, a.q, s, m->heads, 1);
    rotate(n, a.k, s, m->kv_heads, 1);
    attend(n, &a, s);
    memcpy(a.mid, x, s * h * sizeof *x);
    linear(a.o, w[O], a.mid, s, q, h);
    norm(n, a.mid, w[NORM2], a.n2, s, h);
    linear(a.n2, w[GATE], a.gate, s, h, f);
    linear(a.n2, w[UP], a.up, s, h, f);
    for (size_t i = 0; i < s * f; i++)
        a.act[i] = a.gate[i] / (1 + exp(-a.gate[i])) * a.up[i];
    memcpy(y, a.mid, s * h * sizeof *y);
    linear(a.act, w[DOWN], y, s, f, h);
    return a;
}

/* d: gradient of the output; becomes that of the input. */
static void layer_back(naive_llama *n, uint32_t layer, const kept *a, double *d,
                       size_t s)
{
    const lh_model *m = n->model;
    size_t h = m->hidden, f = m->ffn, dim = m->head_dim;
    size_t q = m->heads * dim, kv = m->kv_heads * dim;
    double **w = n->w + at(layer, 0), **g = n->g + at(layer, 0);
    double *d_act = doubles(s * f), *d_gate = doubles(s * f);
    double *d_up = doubles(s * f), *d_n = doubles(s * h);
    double *d_o = doubles(s * q), *dq = doubles(s * q);
    double *dk = doubles(s * kv), *dv = doubles(s * kv);
    linear_back(a->act, w[DOWN], d, d_act, g[DOWN], s, f, h);
    for (size_t i = 0; i < s * f; i++) {
        double z = 1 / (1 + exp(-a->gate[i]));
        d_up[i] = d_act[i] * a->gate[i] * z;
        d_gate[i] = d_act[i] * a->up[i] * (z + a->gate[i] * z * (1 - z));
    }
    linear_back(a->n2, w[GATE], d_gate, d_n, g[GATE], s, h, f);
    linear_back(a->n2, w[UP], d_up, d_n, g[UP], s, h, f);
    norm_back(n, a->mid, w[NORM2], d_n, d, g[NORM2], s, h);
    linear_back(a->o, w[O], d, d_o, g[O], s, q, h);
    attend_back(n, a, d_o, dq, dk, dv, s);
    rotate(n, dq, s, m->heads, -1);
    rotate(n, dk, s, m->kv_heads, -1);
    memset(d_n, 0, s * h * sizeof *d_n);
    linear_back(a->n1, w[Q], dq, d_n, g[Q], s, h, q);
    linear_back(a->n1, w[K], dk, d_n, g[K], s, h, kv);
    linear_back(a->n1, w[V], dv, d_n, g[V], s, h, kv);
    norm_back(n, a->x, w[NORM1], d_n, d, g[NORM1], s, h);
    double *all[] = {d_act, d_gate, d_up, d_n, d_o, dq, dk, dv};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

static void free_kept(kept *a)
{
    double *all[] = {a->x, a->n1,  a->q,  a->k,    a->v,  a->p,
                     a->o, a->mid, a->n2, a->gate, a->up, a->act};
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
    kept *layers = calloc(m->layers + 1, sizeof *layers);
    double *x = doubles(s * h), *normed = doubles(s * h);
    double *logits = doubles(s * v), *d = doubles(s * h);
    double *d_normed = doubles(s * h);
    if (!layers)
        abort();
    for (size_t t = 0; t < s; t++)
        memcpy(x + t * h, n->w[0] + (size_t)tokens[t] * h, h * sizeof *x);
    for (uint32_t i = 0; i < m->layers; i++) {
        double *y = doubles(s * h);
        layers[i] = layer_forward(n, i, x, y, s);
        x = y;
    }
    norm(n, x, n->w[last - 1], normed, s, h);
    linear(normed, n->w[last], logits, s, h, v);
    double loss = entropy(logits, tokens + 1, s, v, scale);
    if (scale != 0) {
        linear_back(normed, n->w[last], logits, d_normed, n->g[last], s, h, v);
        norm_back(n, x, n->w[last - 1], d_normed, d, n->g[last - 1], s, h);
        for (uint32_t i = m->layers; i-- > 0;)
            layer_back(n, i, &layers[i], d, s);
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
