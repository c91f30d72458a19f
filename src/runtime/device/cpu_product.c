/* SPDX-License-Identifier: Apache-2.0 */
/* Large products in fp32 are calls for slices of the result, which the rank's
 * threads share. The slices depend on the shape alone, so the bits do not
 * depend on the thread count. Products in bf16 are computed block by
 * block, so that rounded copies of the operands need a fixed amount of memory:
 * a block of a, one of b, and one of the result. OpenBLAS multiplies the
 * rounded blocks in fp32. Blocks depend on the shape alone, so results are
 * repeatable. */
#include "runtime/device/cpu_product.h"

#include <stdint.h>

/* Rows and columns of a block. Each operand is rounded once per BLOCK columns
 * of the other: at 256, less than a tenth of the products' time. */
enum { BLOCK = 256, BLOCK_FLOATS = BLOCK * BLOCK };
/* Rows or columns of a slice. OpenBLAS packs the other operand once per slice,
 * about a twentieth of the time of a slice's product. */
enum { SLICE = 512 };

size_t lhi_cpu_count_bf16_floats(const lhi_cpu *cpu)
{
    return cpu->bf16 ? 3 * (size_t)BLOCK_FLOATS * cpu->n_threads : 0;
}

/* A product; see cpu_product.h. */
typedef struct product {
    const lhi_cpu *cpu;
    int transpose_a, transpose_b, m, n, k;
    const float *a, *b;
    float *c;
    int lda, ldb, ldc;
    bool adds, rounds_result;
} product;

/* Returns the length of the block that starts at index `at` of n rows or
 * columns: `most`, or fewer at the end. */
static int part_length(int n, int at, int most)
{
    return n - at < most ? n - at : most;
}

/* Returns the number of blocks of `most` rows or columns in n. */
static int count_parts(int n, int most)
{
    return (n + most - 1) / most;
}

/* Rounds the block [row, row + rows) x [column, column + columns) of operand x,
 * whose rows are ld floats apart, to bf16 into `out`; `transposed`: with rows
 * and columns exchanged. Returns out's row stride. */
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
 * `p`, on one of the device's threads, from operands rounded to bf16, summed
 * over k in order. */
static void multiply_block(const product *p, int row, int rows, int column,
                           int columns, uint32_t thread)
{
    const lhi_cpu *cpu = p->cpu;
    float *a = cpu->bf16_blocks + 3 * (size_t)BLOCK_FLOATS * thread,
          *b = a + BLOCK_FLOATS, *sum = b + BLOCK_FLOATS;
    float *c = p->c + (size_t)row * (size_t)p->ldc + column;
    float *to = p->rounds_result ? sum : c;
    int ld_to = p->rounds_result ? columns : p->ldc;
    bool adds = p->adds && !p->rounds_result;
    for (int at = 0; at < p->k; at += BLOCK) {
        int n = part_length(p->k, at, BLOCK);
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

/* Computes block number `block` of a product in bf16, column by column (task of
 * lhi_thread_team_run()). */
static void run_block(void *of, uint32_t block, uint32_t thread)
{
    const product *p = of;
    const uint32_t n_rows = (uint32_t)count_parts(p->m, BLOCK);
    const int row = (int)(block % n_rows) * BLOCK;
    const int column = (int)(block / n_rows) * BLOCK;
    multiply_block(p, row, part_length(p->m, row, BLOCK), column,
                   part_length(p->n, column, BLOCK), thread);
}

/* Computes slice number `slice` of a product in fp32: of its rows or columns,
 * whichever are more (task of lhi_thread_team_run()). */
static void run_slice(void *of, uint32_t slice, uint32_t thread)
{
    const product *p = of;
    const bool by_rows = p->m >= p->n;
    const int at = (int)slice * SLICE;
    const int rows = by_rows ? part_length(p->m, at, SLICE) : p->m;
    const int columns = by_rows ? p->n : part_length(p->n, at, SLICE);
    const bool a_lines = p->transpose_a != LHI_BLAS_TRANSPOSED;
    const bool b_lines = p->transpose_b == LHI_BLAS_TRANSPOSED;
    const size_t first = (size_t)at;
    const float *a = p->a, *b = p->b;
    float *c = p->c;
    (void)thread;
    if (by_rows) {
        a += first * (a_lines ? (size_t)p->lda : 1);
        c += first * (size_t)p->ldc;
    } else {
        b += first * (b_lines ? (size_t)p->ldb : 1);
        c += first;
    }
    p->cpu->sgemm(LHI_BLAS_ROWS, p->transpose_a, p->transpose_b, rows, columns,
                  p->k, 1, a, p->lda, b, p->ldb, p->adds ? 1 : 0, c, p->ldc);
}

/* Computes the matrix product `p` in the device's precision: fp32 slice by
 * slice, bf16 block by block. */
static void multiply(const product *p)
{
    const lhi_cpu *cpu = p->cpu;
    void (*const run)(void *, uint32_t, uint32_t) =
        cpu->bf16 ? run_block : run_slice;
    const uint32_t n =
        cpu->bf16
            ? (uint32_t)(count_parts(p->m, BLOCK) * count_parts(p->n, BLOCK))
            : (uint32_t)count_parts(p->m > p->n ? p->m : p->n, SLICE);
    void *const of = (void *)(uintptr_t)p;
    if (cpu->threads && n > 1) {
        lhi_thread_team_run(cpu->threads, n, run, of);
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        run(of, i, 0);
}

void lhi_cpu_multiply(const lhi_cpu *cpu, int transpose_a, int transpose_b,
                      int m, int n, int k, const float *a, int lda,
                      const float *b, int ldb, bool adds, float *c, int ldc)
{
    multiply(&(product){cpu, transpose_a, transpose_b, m, n, k, a, b, c, lda,
                        ldb, ldc, adds, true});
}

void lhi_cpu_multiply_in_attention(const lhi_cpu *cpu, int transpose_a,
                                   int transpose_b, int m, int n, int k,
                                   const float *a, int lda, const float *b,
                                   int ldb, bool adds, float *c, int ldc)
{
    multiply(&(product){cpu, transpose_a, transpose_b, m, n, k, a, b, c, lda,
                        ldb, ldc, adds, false});
}
