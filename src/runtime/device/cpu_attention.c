/* SPDX-License-Identifier: Apache-2.0 */
/* Causal attention in blocks of query rows, so that scores stay in the cache
 * and only those below the diagonal are computed. Backward recomputes the
 * scores from queries and keys, with each row's maximum and sum saved by
 * forward (FlashAttention, arXiv:2205.14135, section 3.1). */
#include "runtime/device/cpu_attention.h"
#include "runtime/device/cpu_product.h"

#include <math.h>
#include <string.h>

/* One head in one sequence. */
typedef struct head {
    lhi_drop drop;
    uint32_t sequence, number;
    float *query; /* rows of qkv, which are `width` floats apart */
    /* Keys and values from the sequence's first position on, and their
     * gradients [key_rows][head_dim] and [key_rows][value_dim]. */
    float *key, *value, *d_key, *d_value;
    int key_width, value_width; /* row strides of keys and values */
    uint32_t first;             /* position of the first query */
    float *max, *inv;           /* [sequence] */
    int width;
    float scale;
} head;

/* Returns a head's keys in qkv: with slices only those of the current one. */
static float *get_own_keys(const lhi_cpu *cpu,
                           const lhi_cpu_saved_activations *kept,
                           uint32_t sequence, uint32_t number)
{
    size_t shared = number / (cpu->heads / cpu->kv_heads);
    return kept->qkv + (size_t)sequence * cpu->sequence * cpu->qkv + cpu->q +
           shared * cpu->head_dim;
}

/* Returns a head's values in qkv: with slices only those of the current one. */
static float *get_own_values(const lhi_cpu *cpu,
                             const lhi_cpu_saved_activations *kept,
                             uint32_t sequence, uint32_t number)
{
    size_t shared = number / (cpu->heads / cpu->kv_heads);
    return kept->qkv + (size_t)sequence * cpu->sequence * cpu->qkv + cpu->q +
           cpu->kv + shared * cpu->value_dim;
}

/* Returns the addresses of attention head `number` of a sequence in the saved
 * activations and, with slices, in the keys and values of all slices. Query
 * heads of one group share a key and value head (grouped-query attention). */
static head make_head(const lhi_cpu *cpu, const lhi_cpu_saved_activations *kept,
                      uint32_t sequence, uint32_t number)
{
    size_t row = (size_t)sequence * cpu->sequence;
    head a = {
        .drop = {kept->sample, kept->layer, LHI_DROP_SCORES},
        .sequence = sequence,
        .number = number,
        .query = kept->qkv + row * cpu->qkv + (size_t)number * cpu->head_dim,
        .key = get_own_keys(cpu, kept, sequence, number),
        .value = get_own_values(cpu, kept, sequence, number),
        .d_key = cpu->d_key,
        .d_value = cpu->d_value,
        .key_width = (int)cpu->qkv,
        .value_width = (int)cpu->qkv,
        .max = kept->max + (size_t)number * cpu->t + row,
        .inv = kept->inv + (size_t)number * cpu->t + row,
        .width = (int)cpu->qkv,
        .scale = 1 / sqrtf((float)cpu->head_dim),
    };
    if (!kept->keys)
        return a;
    uint32_t shared = number / (cpu->heads / cpu->kv_heads);
    size_t at = ((size_t)sequence * cpu->kv_heads + shared) * cpu->key_rows *
                ((size_t)cpu->head_dim + cpu->value_dim);
    size_t keys = (size_t)cpu->key_rows * cpu->head_dim;
    a.first = cpu->first_position;
    a.key = kept->keys + at;
    a.value = a.key + keys;
    a.key_width = (int)cpu->head_dim;
    a.value_width = (int)cpu->value_dim;
    if (kept->d_keys) {
        a.d_key = kept->d_keys + at;
        a.d_value = a.d_key + keys;
    }
    return a;
}

/* Copies a matrix [rows][columns] between rows that are from_width and to_width
 * floats apart. */
static void copy_rows(const float *from, size_t from_width, float *to,
                      size_t to_width, uint32_t rows, uint32_t columns)
{
    for (size_t row = 0; row < rows; row++)
        memcpy(to + row * to_width, from + row * from_width,
               columns * sizeof *to);
}

/* Copies the keys and values of the current slice, for head `a`, to the buffer
 * that has those of earlier slices. */
static void store_keys(const lhi_cpu *cpu,
                       const lhi_cpu_saved_activations *kept, const head *a)
{
    uint32_t d = cpu->head_dim, v = cpu->value_dim;
    copy_rows(get_own_keys(cpu, kept, a->sequence, a->number), cpu->qkv,
              a->key + (size_t)a->first * d, d, cpu->sequence, d);
    copy_rows(get_own_values(cpu, kept, a->sequence, a->number), cpu->qkv,
              a->value + (size_t)a->first * v, v, cpu->sequence, v);
}

/* Rotates one head's queries or keys `x` by their positions, in place, for all
 * positions of a sequence; rows are `stride` floats apart. */
static void rotate(const lhi_cpu *cpu, float *x, size_t stride)
{
    cpu->k->rotate(x, stride, x, stride, cpu->sequence, cpu->head_dim,
                   cpu->cosines, cpu->sines, 1);
}

/* Computes scores[rows][n], the products of the `rows` queries from `row` on
 * with the n keys up to the last of their positions, a->first + row + rows. */
static void compute_scores(const lhi_cpu *cpu, const head *a, uint32_t row,
                           uint32_t rows, float *scores)
{
    int d = (int)cpu->head_dim;
    lhi_cpu_multiply_in_attention(
        cpu, LHI_BLAS_PLAIN, LHI_BLAS_TRANSPOSED, (int)rows,
        (int)(a->first + row + rows), d, a->query + row * (size_t)a->width,
        a->width, a->key, a->key_width, false, scores, (int)cpu->key_rows);
}

/* Applies dropout to scores[rows][a->first + row + rows], or to their
 * gradients, in place. The queries are those from row `row` on of head `a`,
 * which select the random numbers. */
static void apply_score_dropout(const lhi_cpu *cpu, const head *a, uint32_t row,
                                uint32_t rows, float *scores)
{
    lhi_cpu_apply_dropout(cpu, a->drop, a->sequence,
                          cpu->first_head + a->number, a->first + row, 0,
                          scores, cpu->key_rows, rows, a->first + row + rows);
}

void lhi_cpu_apply_rotary(const lhi_cpu *cpu, lhi_cpu_saved_activations *kept)
{
    for (uint32_t i = 0; i < cpu->microbatch; i++)
        for (uint32_t number = 0; number < cpu->heads; number++) {
            head a = make_head(cpu, kept, i, number);
            rotate(cpu, a.query, (size_t)a.width);
            if (number % (cpu->heads / cpu->kv_heads) == 0)
                rotate(cpu, get_own_keys(cpu, kept, i, number),
                       (size_t)a.width);
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
            if (kept->keys && number % (cpu->heads / cpu->kv_heads) == 0)
                store_keys(cpu, kept, &a);
            for (uint32_t row = 0; row < s; row += cpu->block) {
                uint32_t rows = s - row < cpu->block ? s - row : cpu->block;
                uint32_t n = a.first + row + rows;
                float *to = kept->attention_output +
                            ((size_t)i * s + row) * cpu->o + (size_t)number * d;
                compute_scores(cpu, &a, row, rows, cpu->scores);
                cpu->k->softmax(cpu->scores, cpu->key_rows, rows,
                                a.first + row + 1, n, a.scale, a.max + row,
                                a.inv + row);
                apply_score_dropout(cpu, &a, row, rows, cpu->scores);
                lhi_cpu_multiply_in_attention(
                    cpu, LHI_BLAS_PLAIN, LHI_BLAS_PLAIN, (int)rows, (int)d,
                    (int)n, cpu->scores, (int)cpu->key_rows, a.value,
                    a.value_width, false, to, (int)cpu->o);
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
           (size_t)rows * cpu->key_rows * sizeof *cpu->scores);
    apply_score_dropout(cpu, a, row, rows, cpu->d_scores);
    return cpu->d_scores;
}

/* Computes the attention gradients of the block of queries from `row` on.
 * Replaces the queries by their gradient, with the rotation inverted; `adds`:
 * adds to a->d_key and a->d_value rather than overwriting them.
 * `attended`: attention output; `d_out`: its gradient. */
static void block_backward(lhi_cpu *cpu, const head *a, uint32_t row,
                           const float *attended, const float *d_out, bool adds)
{
    uint32_t s = cpu->key_rows, left = cpu->sequence - row;
    uint32_t rows = left < cpu->block ? left : cpu->block;
    uint32_t n = a->first + row + rows;
    int d = (int)cpu->head_dim, v = (int)cpu->value_dim, o = (int)cpu->o;
    float *query = a->query + row * (size_t)a->width;
    compute_scores(cpu, a, row, rows, cpu->scores);
    cpu->k->softmax_recompute(cpu->scores, s, rows, a->first + row + 1, n,
                              a->scale, a->max + row, a->inv + row);
    const float *after = get_dropped_scores(cpu, a, row, rows);
    lhi_cpu_multiply_in_attention(cpu, LHI_BLAS_TRANSPOSED, LHI_BLAS_PLAIN,
                                  (int)n, v, (int)rows, after, (int)s, d_out, o,
                                  adds, a->d_value, v);
    lhi_cpu_multiply_in_attention(cpu, LHI_BLAS_PLAIN, LHI_BLAS_TRANSPOSED,
                                  (int)rows, (int)n, v, d_out, o, a->value,
                                  a->value_width, false, cpu->d_scores, (int)s);
    apply_score_dropout(cpu, a, row, rows, cpu->d_scores);
    cpu->k->row_dots(d_out, cpu->o, attended, cpu->o, rows, cpu->value_dim,
                     cpu->delta);
    cpu->k->softmax_backward(cpu->scores, cpu->d_scores, s, rows, n, a->scale,
                             cpu->delta);
    lhi_cpu_multiply_in_attention(cpu, LHI_BLAS_PLAIN, LHI_BLAS_PLAIN,
                                  (int)rows, d, (int)n, cpu->d_scores, (int)s,
                                  a->key, a->key_width, false, cpu->d_query, d);
    lhi_cpu_multiply_in_attention(cpu, LHI_BLAS_TRANSPOSED, LHI_BLAS_PLAIN,
                                  (int)n, d, (int)rows, cpu->d_scores, (int)s,
                                  query, a->width, adds, a->d_key, d);
    lhi_cpu_apply_rotary_backward(cpu, cpu->d_query, cpu->head_dim, query, row,
                                  rows);
}

void lhi_cpu_attention_backward(lhi_cpu *cpu, lhi_cpu_saved_activations *kept,
                                const float *d)
{
    uint32_t s = cpu->sequence, dim = cpu->value_dim;
    uint32_t group = cpu->heads / cpu->kv_heads;
    uint32_t last = (s - 1) / cpu->block * cpu->block;
    /* slices run backwards from the last one, so only that one has no
     * gradients of later slices to add to */
    bool later = cpu->first_position + s < cpu->key_rows;
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
                               d + at,
                               later || number % group > 0 || row != last);
            }
            if (number % group != group - 1)
                continue;
            lhi_cpu_apply_rotary_backward(
                cpu, a.d_key + (size_t)a.first * cpu->head_dim, cpu->head_dim,
                get_own_keys(cpu, kept, i, number), 0, s);
            copy_rows(a.d_value + (size_t)a.first * dim, dim,
                      get_own_values(cpu, kept, i, number), cpu->qkv, s, dim);
        }
}
