/* SPDX-License-Identifier: Apache-2.0 */
#include "naive_parts.h"

#include <math.h>
#include <stdlib.h>

/* Intermediate values of one row. */
typedef struct row {
    double *q_latent, *q_normed, *q, *kv_latent, *kv_normed, *made;
} row;

static void product(const double *w, const double *x, double *y, size_t in,
                    size_t out)
{
    for (size_t o = 0; o < out; o++)
        for (size_t i = 0; i < in; i++)
            y[o] += w[o * in + i] * x[i];
}

static void product_back(const double *w, double *g, const double *x,
                         const double *dy, double *dx, size_t in, size_t out)
{
    for (size_t o = 0; o < out; o++)
        for (size_t i = 0; i < in; i++) {
            dx[i] += w[o * in + i] * dy[o];
            g[o * in + i] += x[i] * dy[o];
        }
}

static double inv_root(const double *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return 1 / sqrt(sum / (double)n + 1e-6);
}

static void norm(const double *w, const double *x, double *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] * inv_root(x, n) * w[i];
}

static void norm_back(const double *w, double *g, const double *x,
                      const double *dy, double *dx, size_t n)
{
    double r = inv_root(x, n), dot = 0;
    for (size_t i = 0; i < n; i++)
        dot += dy[i] * w[i] * x[i];
    for (size_t i = 0; i < n; i++) {
        dx[i] += r * dy[i] * w[i] - r * r * r * x[i] * dot / (double)n;
        g[i] += dy[i] * x[i] * r;
    }
}

/* Rotates: numbers 2i and 2i + 1 as one complex number, times exp(sign i
 * angle). */
static void turn(double *x, size_t n, double theta, double position, int sign)
{
    for (size_t i = 0; i < n / 2; i++) {
        double angle =
            sign * position * pow(theta, -2.0 * (double)i / (double)n);
        double a = x[2 * i], b = x[2 * i + 1];
        x[2 * i] = a * cos(angle) - b * sin(angle);
        x[2 * i + 1] = a * sin(angle) + b * cos(angle);
    }
}

static size_t made_of(const lh_model *m)
{
    return m->heads * ((size_t)m->qk_nope_head_dim + m->v_head_dim);
}

static row forward(const lh_model *m, const naive_latent *w, const double *x)
{
    size_t h = m->hidden, q = (size_t)m->heads * m->head_dim;
    size_t rank = m->q_lora_rank, kv = m->kv_lora_rank;
    row r = {naive_doubles(rank), naive_doubles(rank),
             naive_doubles(q),    naive_doubles(kv + m->qk_rope_head_dim),
             naive_doubles(kv),   naive_doubles(made_of(m))};
    if (rank) {
        product(w->q_down, x, r.q_latent, h, rank);
        norm(w->q_norm, r.q_latent, r.q_normed, rank);
    }
    product(w->q_up, rank ? r.q_normed : x, r.q, rank ? rank : h, q);
    product(w->kv_down, x, r.kv_latent, h, kv + m->qk_rope_head_dim);
    norm(w->kv_norm, r.kv_latent, r.kv_normed, kv);
    product(w->kv_up, r.kv_normed, r.made, kv, made_of(m));
    return r;
}

static void release(row *r)
{
    double *all[] = {r->q_latent,  r->q_normed,  r->q,
                     r->kv_latent, r->kv_normed, r->made};
    for (size_t i = 0; i < 6; i++)
        free(all[i]);
}

void naive_latent_forward(const lh_model *m, double theta,
                          const naive_latent *w, const double *x, double *q,
                          double *k, double *v, size_t s)
{
    size_t d = m->head_dim, nope = m->qk_nope_head_dim, heads = m->heads;
    size_t rope = m->qk_rope_head_dim, vd = m->v_head_dim;
    for (size_t t = 0; t < s; t++) {
        row r = forward(m, w, x + t * m->hidden);
        double *turned = r.kv_latent + m->kv_lora_rank;
        turn(turned, rope, theta, (double)t, 1);
        for (size_t head = 0; head < heads; head++) {
            const double *made = r.made + head * (nope + vd);
            size_t at = (t * heads + head) * d;
            for (size_t i = 0; i < d; i++) {
                q[at + i] = r.q[head * d + i];
                k[at + i] = i < nope ? made[i] : turned[i - nope];
            }
            turn(q + at + nope, rope, theta, (double)t, 1);
            for (size_t i = 0; i < vd; i++)
                v[(t * heads + head) * vd + i] = made[nope + i];
        }
        release(&r);
    }
}

/* Backward from the gradients of a row's projections. */
static void row_back(const lh_model *m, const naive_latent *w,
                     const naive_latent *g, const double *x, const row *r,
                     const row *d, double *dx)
{
    size_t h = m->hidden, q = (size_t)m->heads * m->head_dim;
    size_t rank = m->q_lora_rank, kv = m->kv_lora_rank;
    product_back(w->kv_up, g->kv_up, r->kv_normed, d->made, d->kv_normed, kv,
                 made_of(m));
    norm_back(w->kv_norm, g->kv_norm, r->kv_latent, d->kv_normed, d->kv_latent,
              kv);
    product_back(w->kv_down, g->kv_down, x, d->kv_latent, dx, h,
                 kv + m->qk_rope_head_dim);
    product_back(w->q_up, g->q_up, rank ? r->q_normed : x, d->q,
                 rank ? d->q_normed : dx, rank ? rank : h, q);
    if (!rank)
        return;
    norm_back(w->q_norm, g->q_norm, r->q_latent, d->q_normed, d->q_latent,
              rank);
    product_back(w->q_down, g->q_down, x, d->q_latent, dx, h, rank);
}

void naive_latent_back(const lh_model *m, double theta, const naive_latent *w,
                       const naive_latent *g, const double *x, const double *dq,
                       const double *dk, const double *dv, double *dx, size_t s)
{
    size_t d = m->head_dim, nope = m->qk_nope_head_dim, heads = m->heads;
    size_t rope = m->qk_rope_head_dim, vd = m->v_head_dim;
    for (size_t t = 0; t < s; t++) {
        row r = forward(m, w, x + t * m->hidden);
        row back = {naive_doubles(m->q_lora_rank),
                    naive_doubles(m->q_lora_rank),
                    naive_doubles(heads * d),
                    naive_doubles(m->kv_lora_rank + rope),
                    naive_doubles(m->kv_lora_rank),
                    naive_doubles(made_of(m))};
        double *turned = back.kv_latent + m->kv_lora_rank;
        for (size_t head = 0; head < heads; head++) {
            double *made = back.made + head * (nope + vd);
            size_t at = (t * heads + head) * d;
            for (size_t i = 0; i < d; i++)
                back.q[head * d + i] = dq[at + i];
            turn(back.q + head * d + nope, rope, theta, (double)t, -1);
            for (size_t i = 0; i < nope; i++)
                made[i] = dk[at + i];
            for (size_t i = 0; i < rope; i++)
                turned[i] += dk[at + nope + i];
            for (size_t i = 0; i < vd; i++)
                made[nope + i] = dv[(t * heads + head) * vd + i];
        }
        turn(turned, rope, theta, (double)t, -1);
        row_back(m, w, g, x + t * m->hidden, &r, &back, dx + t * m->hidden);
        release(&r);
        release(&back);
    }
}
