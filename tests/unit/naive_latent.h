/* SPDX-License-Identifier: Apache-2.0 */
/* Queries, keys and values in latent attention (arXiv:2405.04434, equations 9
 * to 19), in plain loops and doubles, for naive_llama.c. */
#ifndef NAIVE_LATENT_H
#define NAIVE_LATENT_H

#include <longhaul/experimental/model.h>

#include <stddef.h>

/* Weights or gradients, [out][in]; q_down and q_norm are NULL where queries are
 * not compressed. */
typedef struct naive_latent {
    double *q_down, *q_norm, *q_up, *kv_down, *kv_norm, *kv_up;
} naive_latent;

/* Computes q, k [s][heads * head_dim] and v [s][heads * v_head_dim] from x
 * [s][hidden], for s positions from 0 on. */
void naive_latent_forward(const lh_model *m, double theta,
                          const naive_latent *w, const double *x, double *q,
                          double *k, double *v, size_t s);
/* Backward from the gradients of q, k and v: adds to dx and to the weight
 * gradients g. */
void naive_latent_back(const lh_model *m, double theta, const naive_latent *w,
                       const naive_latent *g, const double *x, const double *dq,
                       const double *dk, const double *dv, double *dx,
                       size_t s);

#endif
