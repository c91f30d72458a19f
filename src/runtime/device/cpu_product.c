/* SPDX-License-Identifier: Apache-2.0 */
/* Products in bf16 are computed block by block, so that rounded copies of the
 * operands need a fixed amount of memory: a block of a, one of b, and one of
 * the result. OpenBLAS multiplies the rounded blocks in fp32. Blocks depend on
 * the shape alone, so results are repeatable. */
#include "runtime/device/cpu_product.h"

/* Rows and columns of a block. Each operand is rounded once per BLOCK columns
 * of the other: at 256, less than a tenth of the time of the products. */
enum { BLOCK = 256, BLOCK_FLOATS = BLOCK * BLOCK };

size_t lhi_cpu_count_bf16_floats(const lhi_cpu *cpu)
{
    return cpu->bf16 ? 3 * (size_t)BLOCK_FLOATS : 0;
}

/* A product; see cpu_product.h. */
typedef struct product {
    int transpose_a, transpose_b, m, n, k;
    const float *a, *b;
    float *c;
    int lda, ldb, ldc;
    bool adds, rounds_result;
} product;

/* Returns the length of the block of rows or columns that starts at index `at`
 * of `n`: BLOCK, or less at the end. */
static int block_length(int n, int at)
{
    return n - at < BLOCK ? n - at : BLOCK;
}

/* Rounds the block [row, row + rows) x [column, column + columns) of an operand
 * to bf16 and copies it to `out`; a transposed operand is stored with rows and
 * columns exchanged. Returns `out`'s row stride. */
static int round_block(const lhi_cpu *cpu, const float *x, int ld,
                       bool transposed, int row, int rows, int column,
                       int columns, float *out)
{
    size_t first = (size_t)(transposed ? column : row),
           start = (size_t)(transposed ? row : column);
    int lines = transposed ? columns : rows,
        width = transposed ? rows : columns;
    cpu->k->round_bf16(x + first * (size_t)ld + start, (size_t)ld, out,
                       (size_t)width, (size_t)lines, (size_t)width);
    return width;
}

/* Computes the block [row, row + rows) x [column, column + columns) of product
 * `p` from operands rounded to bf16, summed over k in order. */
static void multiply_block(const lhi_cpu *cpu, const product *p, int row,
                           int rows, int column, int columns)
{
    float *a = cpu->bf16_blocks, *b = a + BLOCK_FLOATS, *sum = b + BLOCK_FLOATS;
    float *c = p->c + (size_t)row * (size_t)p->ldc + column;
    float *to = p->rounds_result ? sum : c;
    int ld_to = p->rounds_result ? columns : p->ldc;
    bool adds = p->adds && !p->rounds_result;
    for (int at = 0; at < p->k; at += BLOCK) {
        int n = block_length(p->k, at);
        int lda = round_block(cpu, p->a, p->lda,
                              p->transpose_a == LHI_BLAS_TRANSPOSED, row, rows,
                              at, n, a);
        int ldb = round_block(cpu, p->b, p->ldb,
                              p->transpose_b == LHI_BLAS_TRANSPOSED, at, n,
                              column, columns, b);
        cpu->sgemm(LHI_BLAS_ROWS, p->transpose_a, p->transpose_b, rows, columns,
                   n, 1, a, lda, b, ldb, adds || at > 0 ? 1 : 0, to, ld_to);
    }
    if (!p->rounds_result)
        return;
    const size_t width = (size_t)columns;
    if (!p->adds) {
        cpu->k->round_bf16(sum, width, c, (size_t)p->ldc, (size_t)rows, width);
        return;
    }
    cpu->k->round_bf16(sum, width, sum, width, (size_t)rows, width);
    for (int i = 0; i < rows; i++)
        cpu->k->add(c + (size_t)i * (size_t)p->ldc, sum + (size_t)i * width,
                    width);
}

/* Computes the matrix product `p` in the device's precision: fp32 in one call,
 * bf16 block by block. */
static void multiply(const lhi_cpu *cpu, const product *p)
{
    if (!cpu->bf16) {
        cpu->sgemm(LHI_BLAS_ROWS, p->transpose_a, p->transpose_b, p->m, p->n,
                   p->k, 1, p->a, p->lda, p->b, p->ldb, p->adds ? 1 : 0, p->c,
                   p->ldc);
        return;
    }
    for (int column = 0; column < p->n; column += BLOCK)
        for (int row = 0; row < p->m; row += BLOCK)
            multiply_block(cpu, p, row, block_length(p->m, row), column,
                           block_length(p->n, column));
}

void lhi_cpu_multiply(const lhi_cpu *cpu, int transpose_a, int transpose_b,
                      int m, int n, int k, const float *a, int lda,
                      const float *b, int ldb, bool adds, float *c, int ldc)
{
    multiply(cpu, &(product){transpose_a, transpose_b, m, n, k, a, b, c, lda,
                             ldb, ldc, adds, true});
}

void lhi_cpu_multiply_in_attention(const lhi_cpu *cpu, int transpose_a,
                                   int transpose_b, int m, int n, int k,
                                   const float *a, int lda, const float *b,
                                   int ldb, bool adds, float *c, int ldc)
{
    multiply(cpu, &(product){transpose_a, transpose_b, m, n, k, a, b, c, lda,
                             ldb, ldc, adds, false});
}
