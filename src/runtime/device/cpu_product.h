/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products of the cpu device, row-major like cblas_sgemm(): c = a b, or
 * c += a b if `adds`; a' and b' where LHI_BLAS_TRANSPOSED.
 *
 * In fp32 these are calls of OpenBLAS, for slices of large products. In bf16
 * they round as PyTorch's autocast does: operands are rounded to bf16 and
 * products are summed in fp32. The sum is rounded to bf16 before it is stored
 * or added to c, which has fp32: gradients and the residual stream accumulate
 * in fp32. The products of attention keep fp32 results, since attention is one
 * fused operation (FlashAttention): scores, softmax and sums over blocks are in
 * fp32. SwiGLU's two steps, SiLU and product, are rounded each (cpu_kernels.h).
 */
#ifndef LHI_RUNTIME_DEVICE_CPU_PRODUCT_H
#define LHI_RUNTIME_DEVICE_CPU_PRODUCT_H

#include "runtime/device/cpu.h"

/* Computes c = a b or, with `adds`, c += a b in a linear layer. Arguments as in
 * BLAS's sgemm: c is m x n, sums have k terms; transposes, and row strides lda,
 * ldb, ldc. With bf16 rounds operands and result. */
void lhi_cpu_multiply(const lhi_cpu *cpu, int transpose_a, int transpose_b,
                      int m, int n, int k, const float *a, int lda,
                      const float *b, int ldb, bool adds, float *c, int ldc);
/* Computes c = a b or, with `adds`, c += a b inside attention. Arguments as in
 * lhi_cpu_multiply(). With bf16 rounds only the operands; the result stays in
 * fp32. */
void lhi_cpu_multiply_in_attention(const lhi_cpu *cpu, int transpose_a,
                                   int transpose_b, int m, int n, int k,
                                   const float *a, int lda, const float *b,
                                   int ldb, bool adds, float *c, int ldc);

/* Returns the floats in cpu->bf16_blocks, the rounded copies of operand blocks;
 * 0 if the device computes in fp32. */
size_t lhi_cpu_count_bf16_floats(const lhi_cpu *cpu);

#endif
