/* SPDX-License-Identifier: Apache-2.0 */
/* A layer's products, norms and rotary positions, in the model family's
 * variant. */
#include "runtime/device/cpu_attention.h"
#include "runtime/device/cpu_product.h"

#include <string.h>

void lhi_cpu_forward_product(const lhi_cpu *cpu, const float *x, const float *w,
                             float *y, uint32_t rows, uint32_t in, uint32_t out,
                             bool adds)
{
    lhi_cpu_multiply(cpu, LHI_BLAS_PLAIN, LHI_BLAS_TRANSPOSED, (int)rows,
                     (int)out, (int)in, x, (int)in, w, (int)in, adds, y,
                     (int)out);
}

void lhi_cpu_input_product(const lhi_cpu *cpu, const float *dy, const float *w,
                           float *dx, uint32_t rows, uint32_t in, uint32_t out)
{
    lhi_cpu_multiply(cpu, LHI_BLAS_PLAIN, LHI_BLAS_PLAIN, (int)rows, (int)in,
                     (int)out, dy, (int)out, w, (int)in, false, dx, (int)in);
}

void lhi_cpu_weight_product(const lhi_cpu *cpu, const float *dy, const float *x,
                            float *dw, uint32_t rows, uint32_t in, uint32_t out,
                            bool adds)
{
    lhi_cpu_multiply(cpu, LHI_BLAS_TRANSPOSED, LHI_BLAS_PLAIN, (int)out,
                     (int)in, (int)rows, dy, (int)out, x, (int)in, adds, dw,
                     (int)in);
}

void lhi_cpu_linear(const lhi_cpu *cpu, const float *x, const float *w,
                    const float *bias, float *y, uint32_t in, uint32_t out,
                    bool adds)
{
    if (cpu->weights_in_first)
        lhi_cpu_multiply(cpu, LHI_BLAS_PLAIN, LHI_BLAS_PLAIN, (int)cpu->t,
                         (int)out, (int)in, x, (int)in, w, (int)out, adds, y,
                         (int)out);
    else
        lhi_cpu_forward_product(cpu, x, w, y, cpu->t, in, out, adds);
    if (bias)
        cpu->k->add_row(y, bias, cpu->t, out);
}

/* Computes the input gradient dx of a layer's linear product from dy. For a
 * weight [in][out], dy w' is the forward product of the layout [out][in]. */
void lhi_cpu_linear_dgrad(const lhi_cpu *cpu, const float *dy, const float *w,
                          float *dx, uint32_t in, uint32_t out)
{
    if (cpu->weights_in_first)
        lhi_cpu_forward_product(cpu, dy, w, dx, cpu->t, out, in, false);
    else
        lhi_cpu_input_product(cpu, dy, w, dx, cpu->t, in, out);
}

void lhi_cpu_linear_wgrad(const lhi_cpu *cpu, const float *dy, const float *x,
                          float *dw, float *d_bias, uint32_t in, uint32_t out,
                          bool adds)
{
    if (cpu->weights_in_first)
        lhi_cpu_weight_product(cpu, x, dy, dw, cpu->t, out, in, adds);
    else
        lhi_cpu_weight_product(cpu, dy, x, dw, cpu->t, in, out, adds);
    if (d_bias)
        cpu->k->sum_rows(dy, d_bias, cpu->t, out, adds);
}

void lhi_cpu_norm(const lhi_cpu *cpu, const float *x, const float *weight,
                  float *out, float *inv)
{
    uint32_t t = cpu->r, h = cpu->h;
    if (cpu->norm_vectors == 2)
        cpu->k->layer_norm(x, weight, weight + h, out, inv, inv + t, t, h,
                           cpu->epsilon);
    else
        cpu->k->norm(x, weight, out, inv, t, h, cpu->epsilon);
}

void lhi_cpu_norm_backward(const lhi_cpu *cpu, const float *d_out,
                           const float *weight, const float *inv,
                           const float *add, float *x, float *d_weight)
{
    uint32_t t = cpu->r, h = cpu->h;
    if (cpu->norm_vectors == 2)
        cpu->k->layer_norm_backward(d_out, weight, inv, inv + t, add, x,
                                    d_weight, t, h);
    else
        cpu->k->norm_backward(d_out, weight, inv, add, x, d_weight, t, h);
}

void lhi_cpu_apply_rotary_backward(const lhi_cpu *cpu, const float *from,
                                   size_t from_stride, float *to, uint32_t row,
                                   uint32_t rows)
{
    size_t d = cpu->head_dim, turned = (size_t)row * (cpu->rope_dim / 2);
    if (!cpu->kv_rank) {
        cpu->k->rotate(from, from_stride, to, cpu->qkv, rows, d,
                       cpu->cosines + turned, cpu->sines + turned, -1);
        return;
    }
    for (size_t i = 0; i < rows; i++)
        memcpy(to + i * cpu->qkv, from + i * from_stride, d * sizeof *to);
}
