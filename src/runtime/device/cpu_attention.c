/* SPDX-License-Identifier: Apache-2.0 */
/* Causal attention in blocks of query rows, so that scores stay in the cache
 * and only those below the diagonal are computed. Backward recomputes the
 * scores from queries and keys, with each row's maximum and sum saved by
 * forward (FlashAttention, arXiv:2205.14135, section 3.1). */
#include "runtime/device/cpu_product.h"

#include <math.h>
#include <string.h>

/* One head in one sequence. */
typedef struct head {
    lhi_drop drop;
    uint32_t sequence, number;
    float *query, *key, *value; /* rows of qkv */
    float *max, *inv;           /* [sequence] */
    int width;                  /* row stride of qkv */
    float scale;
} head;

/* Returns the addresses of attention head `number` of a sequence in the saved
 * activations. Query heads of one group share a key and value head
 * (grouped-query attention). */
static head make_head(const lhi_cpu *cpu, const lhi_cpu_saved_activations *kept,
                      uint32_t sequence, uint32_t number)
{
    uint32_t group = cpu->heads / cpu->kv_heads;
    size_t width = cpu->qkv, shared = number / group;
    size_t row = (size_t)sequence * cpu->sequence;
    float *first = kept->qkv + row * width;
    return (head){
        .drop = {kept->sample, kept->layer, LHI_DROP_SCORES},
        .sequence = sequence,
        .number = number,
        .query = first + (size_t)number * cpu->head_dim,
        .key = first + cpu->q + shared * cpu->head_dim,
        .value = first + cpu->q + cpu->kv + shared * cpu->value_dim,
        .max = kept->max + (size_t)number * cpu->t + row,
        .inv = kept->inv + (size_t)number * cpu->t + row,
        .width = (int)width,
        .scale = 1 / sqrtf((float)cpu->head_dim),
    };
}

/* Rotates one head's queries or keys `x` by their positions, in place, for all
 * positions of a sequence; rows are `stride` floats apart. */
static void rotate(const lhi_cpu *cpu, float *x, size_t stride)
{
    cpu->k->rotate(x, stride, x, stride, cpu->sequence, cpu->head_dim,
                   cpu->cosines, cpu->sines, 1);
}

/* Computes scores[rows][row + rows], the products of the `rows` queries from
 * `row` on with all keys up to the last of these positions. */
static void compute_scores(const lhi_cpu *cpu, const head *a, uint32_t row,
                           uint32_t rows, float *scores)
{
    int d = (int)cpu->head_dim;
    lhi_cpu_multiply_in_attention(
        cpu, LHI_BLAS_PLAIN, LHI_BLAS_TRANSPOSED, (int)rows, (int)(row + rows),
        d, a->query + row * (size_t)a->width, a->width, a->key, a->width, false,
        scores, (int)cpu->sequence);
}

/* Applies dropout to scores[rows][row + rows], or to their gradients, in place.
 * The queries are those from position `row` on of head `a`, which select the
 * random numbers. */
static void apply_score_dropout(const lhi_cpu *cpu, const head *a, uint32_t row,
                                uint32_t rows, float *scores)
{
    lhi_cpu_apply_dropout(cpu, a->drop, a->sequence,
                          cpu->first_head + a->number, row, 0, scores,
                          cpu->sequence, rows, row + rows);
}

void lhi_cpu_apply_rotary(const lhi_cpu *cpu, lhi_cpu_saved_activations *kept)
{
    for (uint32_t i = 0; i < cpu->microbatch; i++)
        for (uint32_t number = 0; number < cpu->heads; number++) {
            head a = make_head(cpu, kept, i, number);
            rotate(cpu, a.query, (size_t)a.width);
            if (number % (cpu->heads / cpu->kv_heads) == 0)
                rotate(cpu, a.key, (size_t)a.width);
        }
}

void lhi_cpu_attention_forward(lhi_cpu *cpu, lhi_cpu_saved_activations *kept)
{
    uint32_t s = cpu->sequence, d = cpu->value_dim;
    if (cpu->n_context_ranks > 1) {
        lhi_cpu_ring_attention_forward(cpu, kept);
        return;
    }
    for (uint32_t i = 0; i < cpu->microbatch; i++) {
        for (uint32_t number = 0; number < cpu->heads; number++) {
            head a = make_head(cpu, kept, i, number);
            for (uint32_t row = 0; row < s; row += cpu->block) {
                uint32_t rows = s - row < cpu->block ? s - row : cpu->block;
                uint32_t n = row + rows;
                float *to = kept->attention_output +
                            ((size_t)i * s + row) * cpu->o + (size_t)number * d;
                compute_scores(cpu, &a, row, rows, cpu->scores);
                cpu->k->softmax(cpu->scores, s, rows, row + 1, n, a.scale,
                                a.max + row, a.inv + row);
                apply_score_dropout(cpu, &a, row, rows, cpu->scores);
                lhi_cpu_multiply_in_attention(
                    cpu, LHI_BLAS_PLAIN, LHI_BLAS_PLAIN, (int)rows, (int)d,
                    (int)n, cpu->scores, (int)s, a.value, a.width, false, to,
                    (int)cpu->o);
                cpu->k->scale_rows(to, cpu->o, rows, d, a.inv + row);
            }
        }
    }
}

/* Returns the softmax results after dropout for `rows` queries from `row` on:
 * cpu->scores itself without dropout, else a copy in cpu->d_scores. */
static const float *get_dropped_scores(const lhi_cpu *cpu, const head *a,
                                       uint32_t row, uint32_t rows)
{
    if (!lhi_cpu_has_dropout(cpu))
        return cpu->scores;
    memcpy(cpu->d_scores, cpu->scores,
           (size_t)rows * cpu->sequence * sizeof *cpu->scores);
    apply_score_dropout(cpu, a, row, rows, cpu->d_scores);
    return cpu->d_scores;
}

/* Computes the attention gradients of the block of queries from `row` on.
 * Replaces the queries by their gradient, with the rotation inverted; `adds`:
 * adds to the gradients of keys and values instead of overwriting them.
 * `attended`: attention output; `d_out`: its gradient. */
static void block_backward(lhi_cpu *cpu, const head *a, uint32_t row,
                           const float *attended, const float *d_out, bool adds)
{
    uint32_t s = cpu->sequence, left = s - row;
    uint32_t rows = left < cpu->block ? left : cpu->block, n = row + rows;
    int d = (int)cpu->head_dim, v = (int)cpu->value_dim, o = (int)cpu->o;
    float *query = a->query + row * (size_t)a->width;
    compute_scores(cpu, a, row, rows, cpu->scores);
    cpu->k->softmax_recompute(cpu->scores, s, rows, row + 1, n, a->scale,
                              a->max + row, a->inv + row);
    const float *after = get_dropped_scores(cpu, a, row, rows);
    lhi_cpu_multiply_in_attention(cpu, LHI_BLAS_TRANSPOSED, LHI_BLAS_PLAIN,
                                  (int)n, v, (int)rows, after, (int)s, d_out, o,
                                  adds, cpu->d_value, v);
    lhi_cpu_multiply_in_attention(cpu, LHI_BLAS_PLAIN, LHI_BLAS_TRANSPOSED,
                                  (int)rows, (int)n, v, d_out, o, a->value,
                                  a->width, false, cpu->d_scores, (int)s);
    apply_score_dropout(cpu, a, row, rows, cpu->d_scores);
    cpu->k->row_dots(d_out, cpu->o, attended, cpu->o, rows, cpu->value_dim,
                     cpu->delta);
    cpu->k->softmax_backward(cpu->scores, cpu->d_scores, s, rows, n, a->scale,
                             cpu->delta);
    lhi_cpu_multiply_in_attention(cpu, LHI_BLAS_PLAIN, LHI_BLAS_PLAIN,
                                  (int)rows, d, (int)n, cpu->d_scores, (int)s,
                                  a->key, a->width, false, cpu->d_query, d);
    lhi_cpu_multiply_in_attention(cpu, LHI_BLAS_TRANSPOSED, LHI_BLAS_PLAIN,
                                  (int)n, d, (int)rows, cpu->d_scores, (int)s,
                                  query, a->width, adds, cpu->d_key, d);
    lhi_cpu_apply_rotary_backward(cpu, cpu->d_query, cpu->head_dim, query, row,
                                  rows);
}

void lhi_cpu_attention_backward(lhi_cpu *cpu, lhi_cpu_saved_activations *kept,
                                const float *d)
{
    uint32_t s = cpu->sequence, dim = cpu->value_dim;
    uint32_t group = cpu->heads / cpu->kv_heads;
    uint32_t last = (s - 1) / cpu->block * cpu->block;
    if (cpu->n_context_ranks > 1) {
        lhi_cpu_ring_attention_backward(cpu, kept, d);
        return;
    }
    for (uint32_t i = 0; i < cpu->microbatch; i++)
        for (uint32_t number = 0; number < cpu->heads; number++) {
            head a = make_head(cpu, kept, i, number);
            /* The last block covers all keys, so it runs first: it sets the
             * gradients to which the others add. */
            for (uint32_t row = last + cpu->block; row > 0;) {
                row -= cpu->block;
                size_t at =
                    ((size_t)i * s + row) * cpu->o + (size_t)number * dim;
                block_backward(cpu, &a, row, kept->attention_output + at,
                               d + at, number % group > 0 || row != last);
            }
            if (number % group != group - 1)
                continue;
            lhi_cpu_apply_rotary_backward(cpu, cpu->d_key, cpu->head_dim, a.key,
                                          0, s);
            for (uint32_t row = 0; row < s; row++)
                memcpy(a.value + row * (size_t)a.width,
                       cpu->d_value + (size_t)row * dim, dim * sizeof(float));
        }
}
