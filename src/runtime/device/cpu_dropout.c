/* SPDX-License-Identifier: Apache-2.0 */
/* Dropout (arXiv:1207.0580). The decision for each number depends only on the
 * seed, the sample's number in the run, layer, site, row and column; not on the
 * rank, the time or the batch that computes it. Backward and recompute
 * therefore drop the same numbers, and no masks are stored. */
#include "base/random.h"
#include "runtime/device/cpu.h"
#include "runtime/device/cpu_attention.h"

#include <string.h>

bool lhi_cpu_has_dropout(const lhi_cpu *cpu)
{
    return cpu->drop_threshold > 0 && cpu->kind == LHI_STEP_TRAIN;
}

uint64_t lhi_cpu_first_sample(const lhi_cpu *cpu, uint32_t microbatch)
{
    return cpu->step * cpu->step_sequences + cpu->first_sequence +
           ((uint64_t)cpu->first_microbatch + microbatch / cpu->n_slices) *
               cpu->microbatch;
}

lhi_drop lhi_cpu_embedding_dropout(const lhi_cpu *cpu, uint32_t microbatch)
{
    return (lhi_drop){lhi_cpu_first_sample(cpu, microbatch), 0,
                      LHI_DROP_EMBEDDING};
}

void lhi_cpu_apply_dropout(const lhi_cpu *cpu, lhi_drop at, uint32_t sequence,
                           uint32_t head, uint32_t row, uint32_t column,
                           float *x, size_t stride, uint32_t rows,
                           uint32_t width)
{
    if (!lhi_cpu_has_dropout(cpu))
        return;
    uint64_t key = lhi_mix64(cpu->seed + at.sample + sequence);
    key = lhi_mix64(key + 4 * (uint64_t)at.layer + at.site);
    key = lhi_mix64(key + head);
    cpu->k->drop(x, stride, rows, width, column, key + row, cpu->drop_threshold,
                 cpu->drop_scale);
}

void lhi_cpu_apply_dropout_rows(const lhi_cpu *cpu, lhi_drop at, float *x)
{
    uint32_t end = cpu->first_row + cpu->r, n = lhi_cpu_count_pieces(cpu);
    for (uint32_t row = cpu->first_row; row < end;) {
        uint32_t piece = row / cpu->piece, within = row % cpu->piece;
        uint32_t left = cpu->piece - within;
        uint32_t rows = left < end - row ? left : end - row;
        uint32_t position =
            lhi_cpu_piece_position(cpu, cpu->first_position, piece % n);
        lhi_cpu_apply_dropout(cpu, at, piece / n, 0, position + within, 0, x,
                              cpu->h, rows, cpu->h);
        x += (size_t)rows * cpu->h;
        row += rows;
    }
}

const float *lhi_cpu_dropout_backward(const lhi_cpu *cpu, lhi_drop at,
                                      const float *d)
{
    if (!lhi_cpu_has_dropout(cpu))
        return d;
    memcpy(cpu->dropped, d, (size_t)cpu->r * cpu->h * sizeof *d);
    lhi_cpu_apply_dropout_rows(cpu, at, cpu->dropped);
    return cpu->dropped;
}

void lhi_cpu_copy_dropout_gradient(const lhi_cpu *cpu, float *d)
{
    if (lhi_cpu_has_dropout(cpu))
        memcpy(d, cpu->dropped, (size_t)cpu->r * cpu->h * sizeof *d);
}
