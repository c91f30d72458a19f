/* SPDX-License-Identifier: Apache-2.0 */
/* Shared internals of naive_llama.c, naive_weights.c and naive_experts.c. */
#ifndef NAIVE_PARTS_H
#define NAIVE_PARTS_H

#include "naive_latent.h"
#include "naive_llama.h"

/* A matrix operand: element (out, in) at out * o + in * i, and its bias, NULL:
 * none. */
typedef struct naive_matrix {
    double *w, *g, *b, *gb;
    size_t in, out, o, i;
} naive_matrix;

/* A norm's weight and bias with their gradients. */
typedef struct naive_vectors {
    double *w, *g, *b, *gb;
} naive_vectors;

enum { NAIVE_MOST_EXPERTS = 8 };

/* A layer's weights and gradients; absent ones are 0. */
typedef struct naive_layer {
    naive_vectors norm1, norm2, q_norm, k_norm;
    naive_latent latent, d_latent;
    naive_matrix q, k, v, out, gate, up, down;
    naive_matrix router, shared[3], shared_gate;
    double *router_bias, *counts;                /* NULL: none */
    naive_matrix experts[NAIVE_MOST_EXPERTS][3]; /* gate, up, down */
} naive_layer;

/* Allocates n zeros; exits when memory runs out. */
double *naive_doubles(size_t n);

/* --- tensor locations: naive_weights.c ------------------------------------ */

/* Returns the layer's weights and gradients, as views into the tensors. */
naive_layer naive_weights_of(const naive_llama *n, uint32_t layer);
/* Returns the final norm's weights and gradients. */
naive_vectors naive_last_norm(const naive_llama *n);
/* Returns the dimension of a head's values. */
size_t naive_value_dim(const lh_model *m);

/* --- products: naive_llama.c ---------------------------------------------- */

/* y[s][out] += x[s][in] w[out][in]' + b */
void naive_linear(const double *x, const naive_matrix *w, double *y, size_t s);
/* Adds to dx and to the gradients of w. */
void naive_linear_back(const double *x, const naive_matrix *w, const double *dy,
                       double *dx, size_t s);

/* --- MoE layer: naive_experts.c ------------------------------------------- */

/* y[s][hidden] += output of the experts for x[s][hidden]. */
void naive_experts_forward(const naive_llama *n, const naive_layer *w,
                           const double *x, double *y, size_t s);
/* Backward from d to dx, with `scale` times the gradients of the balance loss.
 */
void naive_experts_back(const naive_llama *n, const naive_layer *w,
                        const double *x, const double *d, double *dx, size_t s,
                        double scale);
/* Returns a sequence's balance loss, times s. */
double naive_balance_loss(const naive_llama *n, const naive_layer *w,
                          const double *x, size_t s);

#endif
