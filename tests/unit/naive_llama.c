/* SPDX-License-Identifier: Apache-2.0 */
#include "naive_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- operations ----------------------------------------------------------- */

/* y[s][out] += x[s][in] w[out][in]' + b */
void naive_linear(const double *x, const naive_matrix *w, double *y, size_t s)
{
    for (size_t t = 0; t < s; t++)
        for (size_t o = 0; o < w->out; o++) {
            for (size_t i = 0; i < w->in; i++)
                y[t * w->out + o] +=
                    x[t * w->in + i] * w->w[o * w->o + i * w->i];
            y[t * w->out + o] += w->b ? w->b[o] : 0;
        }
}

void naive_linear_back(const double *x, const naive_matrix *w, const double *dy,
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

static bool has_mean(const lh_model *m)
{
    return m->norm == LH_NORM_LAYER;
}

/* RMS norms do not subtract the mean. */
static double mean_of(const naive_llama *n, const double *x, size_t h)
{
    double sum = 0;
    for (size_t i = 0; i < h && has_mean(n->model); i++)
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

static void norm(const naive_llama *n, const double *x, naive_vectors w,
                 double *y, size_t s, size_t h)
{
    for (size_t t = 0; t < s; t++) {
        double r = inv_root(n, x + t * h, h), mean = mean_of(n, x + t * h, h);
        for (size_t i = 0; i < h; i++)
            y[t * h + i] =
                (x[t * h + i] - mean) * r * w.w[i] + (w.b ? w.b[i] : 0);
    }
}

/* Chain rule through root and mean: for z = (x - mean) r, dx = r (dz - z
 * mean(dz z)), and with a mean also minus the mean of dz. */
static void norm_back(const naive_llama *n, const double *x, naive_vectors w,
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
        if (!has_mean(n->model))
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
        x[i] *=
            keep(n, site, layer, 0, i / n->model->hidden, i % n->model->hidden);
}

/* GPT-2's GeLU approximation, and its derivative. */
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

/* Activations saved for the backward pass. */
typedef struct prefix {
    double *x, *n1, *q, *k, *v, *p, *o, *mid, *n2, *gate, *up, *act;
    double *plain_q, *plain_k; /* before their norms */
} kept;

static void attend(const naive_llama *n, kept *a, uint32_t layer, size_t s)
{
    size_t heads = n->model->heads, kvs = n->model->kv_heads;
    size_t d = n->model->head_dim, vd = naive_value_dim(n->model);
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
                double by = keep(n, NAIVE_SCORES, layer, (uint32_t)head, t, u);
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
    size_t d = n->model->head_dim, vd = naive_value_dim(n->model);
    double *dp = naive_doubles(s);
    for (size_t head = 0; head < heads; head++)
        for (size_t t = 0; t < s; t++) {
            size_t kv = head / (heads / kvs);
            const double *p = a->p + (head * s + t) * s;
            const double *out = d_o + (t * heads + head) * vd;
            double all = 0;
            for (size_t u = 0; u <= t; u++) {
                double by = keep(n, NAIVE_SCORES, layer, (uint32_t)head, t, u);
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

static void make_qkv(const naive_llama *n, const naive_layer *w, kept *a,
                     size_t s)
{
    const lh_model *m = n->model;
    size_t d = m->head_dim, q = s * m->heads * d, kv = s * m->kv_heads * d;
    if (m->kv_lora_rank) {
        naive_latent_forward(m, n->rope_theta, &w->latent, a->n1, a->q, a->k,
                             a->v, s);
        return;
    }
    naive_linear(a->n1, &w->q, a->q, s);
    naive_linear(a->n1, &w->k, a->k, s);
    naive_linear(a->n1, &w->v, a->v, s);
    if (m->qk_norm) {
        memcpy(a->plain_q, a->q, q * sizeof *a->q);
        memcpy(a->plain_k, a->k, kv * sizeof *a->k);
        norm(n, a->plain_q, w->q_norm, a->q, s * m->heads, d);
        norm(n, a->plain_k, w->k_norm, a->k, s * m->kv_heads, d);
    }
    rotate(n, a->q, s, m->heads, 1);
    rotate(n, a->k, s, m->kv_heads, 1);
}

/* Replaces the gradient after a head norm by the gradient before it. */
static void heads_back(const naive_llama *n, const double *plain,
                       naive_vectors w, double *d, size_t heads)
{
    size_t all = heads * n->model->head_dim;
    double *dx = naive_doubles(all);
    norm_back(n, plain, w, d, dx, heads, n->model->head_dim);
    memcpy(d, dx, all * sizeof *d);
    free(dx);
}

static void qkv_back(const naive_llama *n, const naive_layer *w, const kept *a,
                     double *dq, double *dk, double *dv, double *d_n, size_t s)
{
    const lh_model *m = n->model;
    if (m->kv_lora_rank) {
        naive_latent_back(m, n->rope_theta, &w->latent, &w->d_latent, a->n1, dq,
                          dk, dv, d_n, s);
        return;
    }
    rotate(n, dq, s, m->heads, -1);
    rotate(n, dk, s, m->kv_heads, -1);
    if (m->qk_norm) {
        heads_back(n, a->plain_q, w->q_norm, dq, s * m->heads);
        heads_back(n, a->plain_k, w->k_norm, dk, s * m->kv_heads);
    }
    naive_linear_back(a->n1, &w->q, dq, d_n, s);
    naive_linear_back(a->n1, &w->k, dk, d_n, s);
    naive_linear_back(a->n1, &w->v, dv, d_n, s);
}

static kept layer_forward(naive_llama *n, uint32_t layer, double *x, double *y,
                          size_t s)
{
    const lh_model *m = n->model;
    size_t h = m->hidden, f = m->ffn, d = m->head_dim;
    size_t q = m->heads * d, kv = m->kv_heads * d;
    kept a = {x,
              naive_doubles(s * h),
              naive_doubles(s * q),
              naive_doubles(s * kv),
              naive_doubles(s * kv),
              naive_doubles(m->heads * s * s),
              naive_doubles(s * m->heads * naive_value_dim(m)),
              naive_doubles(s * h),
              naive_doubles(s * h),
              naive_doubles(s * f),
              naive_doubles(s * f),
              naive_doubles(s * f),
              naive_doubles(s * q),
              naive_doubles(s * kv)};
    naive_layer w = naive_weights_of(n, layer);
    norm(n, x, w.norm1, a.n1, s, h);
    make_qkv(n, &w, &a, s);
    attend(n, &a, layer, s);
    naive_linear(a.o, &w.out, a.mid, s);
    drop(n, NAIVE_ATTENTION, layer, a.mid, s);
    add(a.mid, x, s * h);
    if (m->parallel_block)
        memcpy(a.n2, a.n1, s * h * sizeof *a.n2);
    else
        norm(n, a.mid, w.norm2, a.n2, s, h);
    if (lh_model_layer_is_moe(m, layer)) {
        naive_experts_forward(n, &w, a.n2, y, s);
        n->balance_loss += naive_balance_loss(n, &w, a.n2, s);
        drop(n, NAIVE_MLP, layer, y, s);
        add(y, a.mid, s * h);
        return a;
    }
    naive_linear(a.n2, &w.up, a.up, s);
    if (m->gated)
        naive_linear(a.n2, &w.gate, a.gate, s);
    for (size_t i = 0; i < s * f; i++)
        a.act[i] = m->gated ? a.gate[i] / (1 + exp(-a.gate[i])) * a.up[i]
                            : gelu(a.up[i]);
    naive_linear(a.act, &w.down, y, s);
    drop(n, NAIVE_MLP, layer, y, s);
    add(y, a.mid, s * h);
    return a;
}

/* d: gradient of the output; overwritten by that of the input. */
static void layer_back(naive_llama *n, uint32_t layer, const kept *a, double *d,
                       size_t s, double scale)
{
    const lh_model *m = n->model;
    size_t h = m->hidden, f = m->ffn, dim = m->head_dim;
    size_t q = m->heads * dim, kv = m->kv_heads * dim;
    naive_layer w = naive_weights_of(n, layer);
    double *d_act = naive_doubles(s * f), *d_gate = naive_doubles(s * f);
    double *d_up = naive_doubles(s * f), *d_n = naive_doubles(s * h);
    double *d_o = naive_doubles(s * m->heads * naive_value_dim(m)),
           *dq = naive_doubles(s * q);
    double *dk = naive_doubles(s * kv), *dv = naive_doubles(s * kv);
    double *end = naive_doubles(s * h);
    memcpy(end, d, s * h * sizeof *d);
    drop(n, NAIVE_MLP, layer, end, s);
    bool moe = lh_model_layer_is_moe(m, layer);
    if (moe)
        naive_experts_back(n, &w, a->n2, end, d_n, s, scale);
    else
        naive_linear_back(a->act, &w.down, end, d_act, s);
    for (size_t i = 0; i < s * f && !moe; i++) {
        double z = 1 / (1 + exp(-a->gate[i]));
        d_up[i] = d_act[i] * (m->gated ? a->gate[i] * z : gelu_slope(a->up[i]));
        d_gate[i] = d_act[i] * a->up[i] * (z + a->gate[i] * z * (1 - z));
    }
    if (m->gated && !moe)
        naive_linear_back(a->n2, &w.gate, d_gate, d_n, s);
    if (!moe)
        naive_linear_back(a->n2, &w.up, d_up, d_n, s);
    if (!m->parallel_block) {
        norm_back(n, a->mid, w.norm2, d_n, d, s, h);
        memset(d_n, 0, s * h * sizeof *d_n);
    }
    memcpy(end, d, s * h * sizeof *d);
    drop(n, NAIVE_ATTENTION, layer, end, s);
    naive_linear_back(a->o, &w.out, end, d_o, s);
    attend_back(n, a, layer, d_o, dq, dk, dv, s);
    qkv_back(n, &w, a, dq, dk, dv, d_n, s);
    norm_back(n, a->x, w.norm1, d_n, d, s, h);
    double *all[] = {d_act, d_gate, d_up, d_n, d_o, dq, dk, dv, end};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

static void free_kept(kept *a)
{
    double *all[] = {a->x,  a->n1,  a->q,       a->k,      a->v,
                     a->p,  a->o,   a->mid,     a->n2,     a->gate,
                     a->up, a->act, a->plain_q, a->plain_k};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

/* Computes the loss from logits and overwrites them with their gradient. */
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
    const naive_matrix head = {n->w[last], n->g[last], NULL, NULL, h, v, h, 1};
    kept *layers = calloc(m->layers + 1, sizeof *layers);
    double *x = naive_doubles(s * h), *normed = naive_doubles(s * h);
    double *logits = naive_doubles(s * v), *d = naive_doubles(s * h);
    double *d_normed = naive_doubles(s * h);
    if (!layers)
        abort();
    for (size_t t = 0; t < s; t++)
        memcpy(x + t * h, n->w[0] + (size_t)tokens[t] * h, h * sizeof *x);
    if (m->positions)
        add(x, n->w[1], s * h);
    drop(n, NAIVE_EMBEDDING, 0, x, s);
    n->balance_loss = 0;
    for (uint32_t i = 0; i < m->layers; i++) {
        double *y = naive_doubles(s * h);
        layers[i] = layer_forward(n, i, x, y, s);
        x = y;
    }
    norm(n, x, naive_last_norm(n), normed, s, h);
    naive_linear(normed, &head, logits, s);
    double loss = entropy(logits, tokens + 1, s, v, scale);
    if (scale != 0) {
        naive_linear_back(normed, &head, logits, d_normed, s);
        norm_back(n, x, naive_last_norm(n), d_normed, d, s, h);
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
