/* SPDX-License-Identifier: Apache-2.0 */
/* The work of matrix products.
 *
 * A matrix product of m x k by k x n takes 2mkn operations and moves its three
 * matrices once; D and W of a linear layer are one such product each. W adds
 * its result to the gradient in memory. In FP8 the factors have half the bytes,
 * and quantisation passes are added. */
#include "model/work_internal.h"

#include <math.h>

/* A product's result is computed in tiles, and partial tiles take as long as
 * whole ones. 64 x 64 is the smallest among cuBLAS's tiles and wastes least
 * (NVIDIA, Matrix Multiplication Background User's Guide, "Tile
 * Quantization"). */
enum { TILE = 64 };

/* Returns the FLOPs that an m x k by k x n product wastes on partial tiles. */
static double count_padding_flops(double m, double k, double n)
{
    double rows = ceil(m / TILE) * TILE, columns = ceil(n / TILE) * TILE;

    return 2 * k * (rows * columns - m * n);
}

/* Adds the FLOPs wasted on partial tiles to the F, D and W products of a linear
 * map with m rows, from k to n columns. D's result has k columns, W's k rows.
 * `fp8`: counts them as FP8 FLOPs. */
static void add_padding(bool fp8, double m, double k, double n,
                        lhi_pass_work *out)
{
    double padding[] = {count_padding_flops(m, k, n),
                        count_padding_flops(m, n, k),
                        count_padding_flops(k, m, n)};
    lhi_work *pass[] = {&out->f, &out->d, &out->w};

    for (int i = 0; i < 3; i++)
        *(fp8 ? &pass[i]->fp8_padding_flops : &pass[i]->padding_flops) +=
            padding[i];
}

void lhi_work_add_linear(const lhi_shape *shape, lhi_pass_work *out, double m,
                         double k, double n, double matrices)
{
    double element = shape->element;
    double rows = m * (k + n) * element;
    double weights = matrices * k * n;

    out->f.flops += 2 * m * k * n;
    out->f.bytes += rows + weights * element;
    out->f.kernels += 1;
    out->d.flops += 2 * m * k * n;
    out->d.bytes += rows + weights * element;
    out->d.kernels += 1;
    out->w.flops += 2 * m * k * n;
    out->w.bytes += rows + weights * shape->gradient_traffic;
    out->w.kernels += 1 + shape->gradient_kernels;
    add_padding(false, m, k, n, out);
}

/* Adds a matrix product that may run in FP8: its FLOPs, `bytes` of memory
 * traffic and one kernel. */
static void add_product(lhi_work *work, double flops, double bytes)
{
    work->flops += flops;
    work->fp8_flops += flops;
    lhi_work_add_pointwise(work, bytes, 1);
}

void lhi_work_add_quantisation(const lhi_shape *shape, double elements,
                               lhi_work *work)
{
    lhi_work_add_pointwise(
        work, elements * (shape->element + 2 * shape->product_element), 1);
    if (shape->scales_tensors)
        lhi_work_add_pointwise(work, elements * shape->element, 1);
}

/* Adds the work of an FP8 linear map to F, D and W: `matrices` k x n weights
 * for m rows in all. The optimizer leaves the weights in 8 bits; products
 * output 16 bits. F quantises the input and D the output gradient; W reads the
 * other copy of both. */
static void add_fp8_linear(const lhi_shape *shape, lhi_pass_work *out, double m,
                           double k, double n, double matrices)
{
    double flops = 2 * m * k * n, weights = matrices * k * n;

    lhi_work_add_quantisation(shape, m * k, &out->f);
    add_product(&out->f, flops,
                (m * k + weights) * shape->product_element +
                    m * n * shape->element);
    lhi_work_add_quantisation(shape, m * n, &out->d);
    add_product(&out->d, flops,
                (m * n + weights) * shape->product_element +
                    m * k * shape->element);
    add_product(&out->w, flops,
                m * (k + n) * shape->product_element +
                    weights * shape->gradient_traffic);
    out->w.kernels += shape->gradient_kernels;
    add_padding(true, m, k, n, out);
}

void lhi_work_add_layer_linear(const lhi_shape *shape, lhi_pass_work *out,
                               double m, double k, double n, double matrices)
{
    if (shape->fp8)
        add_fp8_linear(shape, out, m, k, n, matrices);
    else
        lhi_work_add_linear(shape, out, m, k, n, matrices);
}

void lhi_work_linear(const lhi_shape *shape, double m, double k, double n,
                     double matrices, lhi_work *f)
{
    lhi_pass_work all = {0};

    lhi_work_add_layer_linear(shape, &all, m, k, n, matrices);
    lhi_work_add(f, &all.f, 1);
}

void lhi_work_add(lhi_work *to, const lhi_work *what, double times)
{
    to->flops += times * what->flops;
    to->fp8_flops += times * what->fp8_flops;
    to->grouped_flops += times * what->grouped_flops;
    to->padding_flops += times * what->padding_flops;
    to->fp8_padding_flops += times * what->fp8_padding_flops;
    to->bytes += times * what->bytes;
    to->kernels += times * what->kernels;
    to->dispatches += times * what->dispatches;
    to->experts += times * what->experts;
    to->ring_bytes += times * what->ring_bytes;
    to->ring_kernels += times * what->ring_kernels;
    to->tensor_bytes += times * what->tensor_bytes;
    to->tensor_calls += times * what->tensor_calls;
    to->expert_bytes += times * what->expert_bytes;
    to->expert_calls += times * what->expert_calls;
    to->sharing_bytes += times * what->sharing_bytes;
    to->sharing_calls += times * what->sharing_calls;
    to->context_bytes += times * what->context_bytes;
    to->context_calls += times * what->context_calls;
    to->core_flops += times * what->core_flops;
    to->flash_flops += times * what->flash_flops;
    to->flash_f_flops += times * what->flash_f_flops;
    to->flash_d_flops += times * what->flash_d_flops;
}
