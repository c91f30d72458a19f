/* SPDX-License-Identifier: Apache-2.0 */
/* All of training that is not a matrix product, in vectors of 16 floats.
 * The same source (cpu_kernels_body.inc) is compiled for several instruction
 * sets; the order of every sum is part of the source, so all of them give the
 * same bits, whatever the alignment. Matrices are row-major; a row's stride is
 * in floats. */
#ifndef LHI_CPU_KERNELS_H
#define LHI_CPU_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct lhi_adamw {
    float rate, beta1, beta2, epsilon, decay;
    float correction1, correction2; /* 1 / (1 - beta^t), the second's root */
    float scale;                    /* of the gradient: clipping */
} lhi_adamw;

typedef struct lhi_kernels {
    const char *name; /* of the instruction set */
    /* RMSNorm (arXiv:1910.07467): out = x * inv * weight, inv = 1 / the root
     * mean square of a row. */
    void (*norm)(const float *x, const float *weight, float *out, float *inv,
                 size_t rows, size_t width, float epsilon);
    /* From d_out to the gradient of x, plus `add` (may be NULL), in the place
     * of x; d_weight gets the sum over the rows. */
    void (*norm_back)(const float *d_out, const float *weight, const float *inv,
                      const float *add, float *x, float *d_weight, size_t rows,
                      size_t width);
    /* Layer norm (arXiv:1607.06450): out = (x - mean) * inv * weight + bias,
     * inv = 1 / the root of a row's variance plus epsilon. */
    void (*layer_norm)(const float *x, const float *weight, const float *bias,
                       float *out, float *inv, float *mean, size_t rows,
                       size_t width, float epsilon);
    /* As norm_back; d_weight gets the weight's sum, then the bias's. */
    void (*layer_norm_back)(const float *d_out, const float *weight,
                            const float *inv, const float *mean,
                            const float *add, float *x, float *d_weight,
                            size_t rows, size_t width);
    /* Rotary positions (arXiv:2104.09864), halves rotated as Llama's weights
     * at Hugging Face have it. `cosines`, `sines`: dim / 2 per row;
     * `direction` -1 rotates back. */
    void (*rotate)(const float *in, size_t in_stride, float *out,
                   size_t out_stride, size_t rows, size_t dim,
                   const float *cosines, const float *sines, float direction);
    /* Of causal attention scores: row i has `first + i` places, the rest up
     * to `width` becomes 0. p = exp(scale * s - max); inv = 1 / their sum. */
    void (*softmax)(float *s, size_t stride, size_t rows, size_t first,
                    size_t width, float scale, float *max, float *inv);
    /* The same p, times inv, from scores computed once more. */
    void (*softmax_again)(float *s, size_t stride, size_t rows, size_t first,
                          size_t width, float scale, const float *max,
                          const float *inv);
    /* d = scale * p * (d - delta of the row). */
    void (*softmax_back)(const float *p, float *d, size_t stride, size_t rows,
                         size_t width, float scale, const float *delta);
    void (*scale_rows)(float *x, size_t stride, size_t rows, size_t width,
                       const float *by);
    void (*row_dots)(const float *a, size_t a_stride, const float *b,
                     size_t b_stride, size_t rows, size_t width, float *out);
    /* SwiGLU (arXiv:2002.05202): rows of `gate_up` are gate, then up, `width`
     * each. out = gate * sigmoid(gate) * up. */
    void (*swiglu)(const float *gate_up, float *out, size_t rows, size_t width);
    /* Gradients in the place of gate and up. */
    void (*swiglu_back)(float *gate_up, const float *d_out, size_t rows,
                        size_t width);
    void (*sigmoid)(float *x, size_t n); /* in its place */
    /* GeLU (arXiv:1606.08415) by the hyperbolic tangent, as GPT-2 has it. */
    void (*gelu)(const float *x, float *out, size_t n);
    /* The gradient in the place of x. */
    void (*gelu_back)(float *x, const float *d_out, size_t n);
    void (*add_row)(float *x, const float *row, size_t rows, size_t width);
    /* out (+)= the sum of the rows of x, the first one first. */
    void (*add_up)(const float *x, float *out, size_t rows, size_t width,
                   bool adds);
    /* Dropout: each number is 0 if its own of `key`, its row and its column,
     * from `column` on, is below `threshold` of 2^24, else times `scale`. */
    void (*drop)(float *x, size_t stride, size_t rows, size_t width,
                 uint32_t column, uint64_t key, uint32_t threshold,
                 float scale);
    /* Cross-entropy of rows of logits with `targets`: the losses' sum in nats.
     * scale > 0: logits become their gradients times scale. */
    double (*cross_entropy)(float *logits, size_t rows, size_t width,
                            const int32_t *targets, float scale);
    void (*add)(float *to, const float *x, size_t n); /* to += x */
    double (*squares)(const float *x, size_t n);
    void (*adamw)(const lhi_adamw *how, float *value, float *m, float *v,
                  const float *gradient, size_t n);
} lhi_kernels;

/* The best that this processor has. */
const lhi_kernels *lhi_kernels_best(void);
/* All that this processor has, NULL-terminated, `room` at most. */
size_t lhi_kernels_list(const lhi_kernels **out, size_t room);

#endif
