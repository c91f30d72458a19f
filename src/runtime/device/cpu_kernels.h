/* SPDX-License-Identifier: Apache-2.0 */
/* Training kernels other than matrix products, on vectors of 16 floats. One
 * source (cpu_kernels_body.inc) is compiled for several instruction sets. The
 * source fixes every sum's order, so all tables give equal bits at any
 * alignment. Matrices are row-major; row strides are in floats. */
#ifndef LHI_RUNTIME_DEVICE_CPU_KERNELS_H
#define LHI_RUNTIME_DEVICE_CPU_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Parameters of one AdamW step. */
typedef struct lhi_adamw {
    float rate, beta1, beta2, epsilon, decay;
    float correction1, correction2; /* 1 / (1 - beta^t); for beta2 its square
                                     * root */
    float scale;                    /* gradient factor, for clipping */
} lhi_adamw;

/* Kernel table for one instruction set. */
typedef struct lhi_kernels {
    const char *name; /* instruction set */
    /* RMSNorm (arXiv:1910.07467): out = x * inv * weight, with inv = 1 / the
     * row's root mean square. */
    void (*norm)(const float *x, const float *weight, float *out, float *inv,
                 size_t rows, size_t width, float epsilon);
    /* Computes the gradient from d_out plus `add` (may be NULL), in the place
     * of x. d_weight receives the sum over rows. */
    void (*norm_backward)(const float *d_out, const float *weight,
                          const float *inv, const float *add, float *x,
                          float *d_weight, size_t rows, size_t width);
    /* Layer norm (arXiv:1607.06450): out = (x - mean) * inv * weight + bias,
     * with inv = 1 / sqrt(the row's variance + epsilon). */
    void (*layer_norm)(const float *x, const float *weight, const float *bias,
                       float *out, float *inv, float *mean, size_t rows,
                       size_t width, float epsilon);
    /* Like norm_backward; d_weight receives the weight's sum, then the bias's.
     */
    void (*layer_norm_backward)(const float *d_out, const float *weight,
                                const float *inv, const float *mean,
                                const float *add, float *x, float *d_weight,
                                size_t rows, size_t width);
    /* Rotary positions (arXiv:2104.09864), rotating halves as in Llama's
     * Hugging Face weights. `cosines`, `sines`: dim / 2 per row. `direction` -1
     * inverts the rotation. */
    void (*rotate)(const float *in, size_t in_stride, float *out,
                   size_t out_stride, size_t rows, size_t dim,
                   const float *cosines, const float *sines, float direction);
    /* Softmax of causal attention scores. Row i has `first + i` scores; the
     * remaining columns up to `width` become 0. p = exp(scale * s - max); inv =
     * 1 / the row's sum. */
    void (*softmax)(float *s, size_t stride, size_t rows, size_t first,
                    size_t width, float scale, float *max, float *inv);
    /* Recomputes p times inv from the scores. */
    void (*softmax_recompute)(float *s, size_t stride, size_t rows,
                              size_t first, size_t width, float scale,
                              const float *max, const float *inv);
    /* d = scale * p * (d - the row's delta). */
    void (*softmax_backward)(const float *p, float *d, size_t stride,
                             size_t rows, size_t width, float scale,
                             const float *delta);
    /* Multiplies each row by its own factor, by[row]. */
    void (*scale_rows)(float *x, size_t stride, size_t rows, size_t width,
                       const float *by);
    /* out[row] = the dot product of a row of `a` and a row of `b`. */
    void (*row_dots)(const float *a, size_t a_stride, const float *b,
                     size_t b_stride, size_t rows, size_t width, float *out);
    /* SwiGLU (arXiv:2002.05202): each row in `gate_up` has gate, then up,
     * `width` each. out = silu * up with silu = gate * sigmoid(gate), which is
     * rounded to bf16 if `rounds`. */
    void (*swiglu)(const float *gate_up, float *out, size_t rows, size_t width,
                   bool rounds);
    /* Replaces gate and up by their gradients; `rounds`: rounds silu and its
     * gradient to bf16. */
    void (*swiglu_backward)(float *gate_up, const float *d_out, size_t rows,
                            size_t width, bool rounds);
    void (*sigmoid)(float *x, size_t n); /* in place */
    /* GeLU (arXiv:1606.08415) in its tanh approximation, as in GPT-2. */
    void (*gelu)(const float *x, float *out, size_t n);
    /* Replaces x by its gradient. */
    void (*gelu_backward)(float *x, const float *d_out, size_t n);
    /* Adds one row, such as a bias, to each row of x. */
    void (*add_row)(float *x, const float *row, size_t rows, size_t width);
    /* out (+)= the sum over the rows of x, in row order. */
    void (*sum_rows)(const float *x, float *out, size_t rows, size_t width,
                     bool adds);
    /* Dropout: sets a number to 0 if its hash from `key`, row and column
     * (counted from `column`) is below `threshold` out of 2^24; otherwise
     * multiplies it by `scale`. */
    void (*drop)(float *x, size_t stride, size_t rows, size_t width,
                 uint32_t column, uint64_t key, uint32_t threshold,
                 float scale);
    /* Cross-entropy between rows of logits and `targets`; returns the sum in
     * nats. If scale > 0, logits become their gradients times scale. */
    double (*cross_entropy)(float *logits, size_t rows, size_t width,
                            const int32_t *targets, float scale);
    void (*add)(float *to, const float *x, size_t n); /* to += x */
    /* Rounds each number to the nearest bf16, ties to even; NaN stays NaN.
     * `out` may be x. */
    void (*round_bf16)(const float *x, size_t stride, float *out,
                       size_t out_stride, size_t rows, size_t width);
    /* Returns the sum of squares in double precision. */
    double (*squares)(const float *x, size_t n);
    /* One AdamW step of n values (arXiv:1711.05101, algorithm 2). */
    void (*adamw)(const lhi_adamw *how, float *value, float *m, float *v,
                  const float *gradient, size_t n);
} lhi_kernels;

/* Returns the fastest kernel table (implementations of the inner loops) for
 * this processor. */
const lhi_kernels *lhi_kernels_find_fastest(void);
/* Lists the kernel tables (implementations of the inner loops) that this
 * processor supports, fastest first, at most `room`. Returns their number. */
size_t lhi_kernels_list_supported(const lhi_kernels **out, size_t room);

#endif
