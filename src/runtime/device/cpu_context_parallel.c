/* SPDX-License-Identifier: Apache-2.0 */
/* Context parallelism: n ranks share each sequence. The sequence is cut into 2
 * n pieces. Rank c has the c-th piece from each end, so that a causal mask
 * gives all ranks equal work (Megatron-LM's context parallelism; zigzag ring
 * attention).
 *
 * Keys and values circulate among the ranks (ring attention, arXiv:2310.01889):
 * in step j a rank has those from the rank j places before it. Its queries are
 * multiplied with each piece of keys once, in arrival order, and the partial
 * softmaxes are merged (arXiv:1805.02867). Backward circulates them once more,
 * together with their gradients, to which each rank adds its part. All orders
 * depend only on the rank, so results do not depend on timing. */
#include "base/fail.h"
#include "runtime/device/cpu_attention.h"
#include "runtime/device/cpu_product.h"

#include <math.h>
#include <string.h>

lh_status lhi_cpu_check_context_parallel(const lhi_cpu_options *o,
                                         lh_error *err)
{
    uint32_t n = o->n_contexts ? o->n_contexts : 1;
    if (o->context >= n)
        return lhi_fail(err, LH_EINVAL, "context rank %u of %u does not exist",
                        o->context, n);
    if (n > 1 && o->sequence % (2 * n) != 0)
        return lhi_fail(
            err, LH_EINVAL,
            "sequences of %u tokens are not a multiple of twice context %u",
            o->sequence, n);
    return LH_OK;
}

bool lhi_cpu_make_context_parallel(lhi_cpu *cpu)
{
    lhi_arena *mem = cpu->mem;
    if (cpu->n_context_ranks == 1)
        return true;
    const size_t width = lhi_cpu_ring_width(cpu);
    for (unsigned i = 0; i < sizeof cpu->ring / sizeof *cpu->ring; i++)
        if (!(cpu->ring[i] = lhi_cpu_alloc_floats(mem, cpu->t, width)))
            return false;
    return (cpu->d_queries = lhi_cpu_alloc_floats(mem, cpu->t, cpu->q)) &&
           (cpu->partial =
                lhi_cpu_alloc_floats(mem, cpu->block, cpu->value_dim)) &&
           (cpu->partial_max = lhi_cpu_alloc_floats(mem, cpu->block, 1)) &&
           (cpu->partial_inv = lhi_cpu_alloc_floats(mem, cpu->block, 1));
}

/* ---- ring ---- */

/* Stores the first error of the pass's collectives in cpu->collective_status;
 * later collectives of the pass are then skipped. */
static void record_error(lhi_cpu *cpu, lh_status status, const lh_error *err)
{
    if (status == LH_OK || cpu->collective_status != LH_OK)
        return;
    cpu->collective_status = status;
    cpu->collective_err = *err;
}

void lhi_cpu_gather_contexts(lhi_cpu *cpu, const void *mine, void *all,
                             size_t bytes)
{
    lh_error err;
    if (cpu->n_context_ranks == 1 || cpu->collective_status != LH_OK)
        return;
    for (uint32_t i = 0; i < cpu->n_context_ranks; i++)
        cpu->choice_bytes[i] = bytes;
    record_error(cpu,
                 lhi_group_all_gather(cpu->context_group, mine, all,
                                      cpu->choice_bytes, &err),
                 &err);
}

void lhi_cpu_all_reduce_contexts(lhi_cpu *cpu, float *values, size_t n)
{
    lh_error err;
    if (cpu->n_context_ranks > 1 && cpu->collective_status == LH_OK)
        record_error(cpu,
                     lhi_group_all_reduce(cpu->context_group, values, n, &err),
                     &err);
}

/* Starts sending ring buffer `room` (keys and values, or their gradients) to
 * the next rank and receiving the previous rank's into the buffer after it.
 * end_ring_shift() swaps the two buffers. */
static void begin_ring_shift(lhi_cpu *cpu, unsigned room)
{
    size_t bytes = cpu->t * lhi_cpu_ring_width(cpu) * sizeof(float);
    lh_error err;
    if (cpu->collective_status == LH_OK)
        record_error(cpu,
                     lhi_group_shift_begin(cpu->context_group, false,
                                           cpu->ring[room], bytes,
                                           cpu->ring[room + 1], bytes, &err),
                     &err);
}

/* Waits until the shift begun by begin_ring_shift() is complete, and swaps ring
 * buffers `room` and `room` + 1. */
static void end_ring_shift(lhi_cpu *cpu, unsigned room)
{
    lh_error err;
    float *came = cpu->ring[room + 1];
    if (cpu->collective_status == LH_OK)
        record_error(cpu, lhi_group_shift_end(cpu->context_group, &err), &err);
    cpu->ring[room + 1] = cpu->ring[room];
    cpu->ring[room] = came;
}

enum { KEYS = 0, GRADIENTS = 2 }; /* ring buffer indices */

/* Copies the rank's own keys and values from qkv into the ring buffer that
 * circulates among context-parallel ranks. */
static void fill_ring(lhi_cpu *cpu, const lhi_cpu_saved_activations *kept)
{
    size_t width = lhi_cpu_ring_width(cpu);
    for (size_t row = 0; row < cpu->t; row++)
        memcpy(cpu->ring[KEYS] + row * width,
               kept->qkv + row * cpu->qkv + cpu->q, width * sizeof(float));
}

/* ---- attention between queries and one piece of keys ---- */

/* A query block from one head and piece, and the keys of one piece that they
 * attend to: all keys, or those up to each query's own position. */
typedef struct attention_block {
    lhi_drop drop;
    uint32_t sequence, head;
    uint32_t first, rows; /* queries, relative to the piece */
    uint32_t keys;        /* number for the last query */
    bool causal;
    uint32_t row, column; /* positions of the first query and key */
    size_t at;            /* first query's row in [t] */
    size_t key, value;    /* offsets in a ring buffer: first key, value */
    const float *query;
    float *max, *inv;
    float scale;
} attention_block;

/* Calls `meet` for every pair of a query block of this rank and keys of rank
 * `source` that the queries attend to. `d`: passed on to the callback. */
static void
for_each_block(lhi_cpu *cpu, const lhi_cpu_saved_activations *kept,
               uint32_t source, const float *d,
               void (*meet)(lhi_cpu *, const lhi_cpu_saved_activations *,
                            const attention_block *, bool, const float *))
{
    uint32_t halves = 2 * cpu->microbatch, piece = cpu->piece;
    uint32_t group = cpu->heads / cpu->kv_heads;
    for (uint32_t i = 0; i < halves * cpu->heads * 2; i++) {
        uint32_t half = i / 2 / cpu->heads, head = i / 2 % cpu->heads;
        uint32_t mine = lhi_cpu_piece_index(cpu, cpu->context_rank, half % 2);
        uint32_t theirs = lhi_cpu_piece_index(cpu, source, i % 2);
        /* first key's row in [t] */
        size_t from = (half / 2 * 2 + i % 2) * piece;
        size_t shared = head / group;
        for (uint32_t row = 0; theirs <= mine && row < piece;
             row += cpu->block) {
            uint32_t left = piece - row;
            size_t at = half * piece + row;
            attention_block m = {
                .drop = {kept->sample, kept->layer, LHI_DROP_SCORES},
                .sequence = half / 2,
                .head = head,
                .first = row,
                .rows = left < cpu->block ? left : cpu->block,
                .causal = theirs == mine,
                .row = mine * piece + row,
                .column = theirs * piece,
                .at = at,
                .key = from * lhi_cpu_ring_width(cpu) + shared * cpu->head_dim,
                .value = from * lhi_cpu_ring_width(cpu) + cpu->kv +
                         shared * cpu->value_dim,
                .query =
                    kept->qkv + at * cpu->qkv + (size_t)head * cpu->head_dim,
                .max = kept->max + (size_t)head * cpu->t + at,
                .inv = kept->inv + (size_t)head * cpu->t + at,
                .scale = 1 / sqrtf((float)cpu->head_dim)};
            m.keys = m.causal ? row + m.rows : piece;
            meet(cpu, kept, &m, source == cpu->context_rank && i % 2 == 0, d);
        }
    }
}

/* Computes the attention scores of block `m` (a range of queries and of keys):
 * the products of its queries with its keys, which are in the ring buffer. */
static void compute_scores(const lhi_cpu *cpu, const attention_block *m)
{
    lhi_cpu_multiply_in_attention(
        cpu, LHI_BLAS_PLAIN, LHI_BLAS_TRANSPOSED, (int)m->rows, (int)m->keys,
        (int)cpu->head_dim, m->query, (int)cpu->qkv, cpu->ring[KEYS] + m->key,
        (int)lhi_cpu_ring_width(cpu), false, cpu->scores, (int)cpu->sequence);
}

/* Applies dropout to block `m`'s scores, or to their gradients, in place.
 * */
static void apply_score_dropout(const lhi_cpu *cpu, const attention_block *m,
                                float *scores)
{
    lhi_cpu_apply_dropout(cpu, m->drop, m->sequence, cpu->first_head + m->head,
                          m->row, m->column, scores, cpu->sequence, m->rows,
                          m->keys);
}

/* Computes the softmax of block `m`'s scores. One kernel call covers causal
 * rows, whose lengths grow by one; without a mask each row needs its own call.
 * */
static void block_softmax(const lhi_cpu *cpu, const attention_block *m)
{
    if (m->causal)
        cpu->k->softmax(cpu->scores, cpu->sequence, m->rows, m->first + 1,
                        m->keys, m->scale, cpu->partial_max, cpu->partial_inv);
    for (size_t i = 0; i < m->rows && !m->causal; i++)
        cpu->k->softmax(cpu->scores + i * cpu->sequence, cpu->sequence, 1,
                        m->keys, m->keys, m->scale, cpu->partial_max + i,
                        cpu->partial_inv + i);
}

/* Recomputes a block's softmax in the backward pass from the saved maximum and
 * inverse sum of each row. */
static void recompute_softmax(const lhi_cpu *cpu, const attention_block *m)
{
    if (m->causal)
        cpu->k->softmax_recompute(cpu->scores, cpu->sequence, m->rows,
                                  m->first + 1, m->keys, m->scale, m->max,
                                  m->inv);
    for (size_t i = 0; i < m->rows && !m->causal; i++)
        cpu->k->softmax_recompute(cpu->scores + i * cpu->sequence,
                                  cpu->sequence, 1, m->keys, m->keys, m->scale,
                                  m->max + i, m->inv + i);
}

/* Merges a partial attention result (`more`, n values, with softmax maximum
 * more_max and exponential sum more_total) into the row's running result `sum`,
 * *max and *total. */
static void merge_row(float *sum, float *max, float *total, const float *more,
                      float more_max, float more_total, uint32_t n)
{
    float top = *max > more_max ? *max : more_max;
    float a = (float)exp((double)(*max - top));
    float b = (float)exp((double)(more_max - top));
    for (uint32_t i = 0; i < n; i++)
        sum[i] = sum[i] * a + more[i] * b;
    *total = *total * a + more_total * b;
    *max = top;
}

/* Adds the result of one attention block (a range of queries times a range of
 * keys) to the attention output; `is_first`: overwrites it. kept->inv has the
 * rows' exponential sums until the last block, and their inverses afterwards.
 * */
static void block_forward(lhi_cpu *cpu, const lhi_cpu_saved_activations *kept,
                          const attention_block *m, bool is_first,
                          const float *unused)
{
    uint32_t v = cpu->value_dim;
    float *to = kept->attention_output + m->at * cpu->o + (size_t)m->head * v;
    (void)unused;
    compute_scores(cpu, m);
    block_softmax(cpu, m);
    apply_score_dropout(cpu, m, cpu->scores);
    lhi_cpu_multiply_in_attention(
        cpu, LHI_BLAS_PLAIN, LHI_BLAS_PLAIN, (int)m->rows, (int)v, (int)m->keys,
        cpu->scores, (int)cpu->sequence, cpu->ring[KEYS] + m->value,
        (int)lhi_cpu_ring_width(cpu), false, cpu->partial, (int)v);
    for (size_t i = 0; i < m->rows; i++) {
        const float *part = cpu->partial + i * v;
        float total = 1 / cpu->partial_inv[i];
        if (is_first) { /* no earlier result to merge with */
            memcpy(to + i * cpu->o, part, v * sizeof *to);
            m->max[i] = cpu->partial_max[i];
            m->inv[i] = total;
        } else {
            merge_row(to + i * cpu->o, &m->max[i], &m->inv[i], part,
                      cpu->partial_max[i], total, v);
        }
    }
}

void lhi_cpu_ring_attention_forward(lhi_cpu *cpu,
                                    lhi_cpu_saved_activations *kept)
{
    uint32_t n = cpu->n_context_ranks;
    fill_ring(cpu, kept);
    for (uint32_t j = 0; j < n; j++) {
        if (j + 1 < n)
            begin_ring_shift(cpu, KEYS);
        for_each_block(cpu, kept, (cpu->context_rank + n - j) % n, NULL,
                       block_forward);
        if (j + 1 < n)
            end_ring_shift(cpu, KEYS);
    }
    for (size_t head = 0; head < cpu->heads; head++) {
        float *inv = kept->inv + head * cpu->t;
        for (size_t row = 0; row < cpu->t; row++)
            inv[row] = 1 / inv[row];
        cpu->k->scale_rows(kept->attention_output + head * cpu->value_dim,
                           cpu->o, cpu->t, cpu->value_dim, inv);
    }
}

/* Returns the softmax results of block `m` after dropout: cpu->scores itself
 * without dropout, else a copy in cpu->d_scores. */
static const float *get_dropped_scores(const lhi_cpu *cpu,
                                       const attention_block *m)
{
    if (!lhi_cpu_has_dropout(cpu))
        return cpu->scores;
    memcpy(cpu->d_scores, cpu->scores,
           (size_t)m->rows * cpu->sequence * sizeof *cpu->scores);
    apply_score_dropout(cpu, m, cpu->d_scores);
    return cpu->d_scores;
}

/* Adds the block's query gradients to cpu->d_queries, and its key and value
 * gradients to the ring buffer, given the attention output's gradient d.
 * Ignores is_first. */
static void block_backward(lhi_cpu *cpu, const lhi_cpu_saved_activations *kept,
                           const attention_block *m, bool is_first,
                           const float *d)
{
    int s = (int)cpu->sequence, rows = (int)m->rows, n = (int)m->keys;
    int k = (int)cpu->head_dim, v = (int)cpu->value_dim, o = (int)cpu->o;
    int width = (int)lhi_cpu_ring_width(cpu);
    size_t at = m->at * cpu->o + (size_t)m->head * cpu->value_dim;
    const float *keys = cpu->ring[KEYS] + m->key, *d_out = d + at;
    float *to = cpu->d_queries + m->at * cpu->q + (size_t)m->head * (size_t)k;
    (void)is_first;
    compute_scores(cpu, m);
    recompute_softmax(cpu, m);
    lhi_cpu_multiply_in_attention(cpu, LHI_BLAS_TRANSPOSED, LHI_BLAS_PLAIN, n,
                                  v, rows, get_dropped_scores(cpu, m), s, d_out,
                                  o, true, cpu->ring[GRADIENTS] + m->value,
                                  width);
    lhi_cpu_multiply_in_attention(
        cpu, LHI_BLAS_PLAIN, LHI_BLAS_TRANSPOSED, rows, n, v, d_out, o,
        cpu->ring[KEYS] + m->value, width, false, cpu->d_scores, s);
    apply_score_dropout(cpu, m, cpu->d_scores);
    cpu->k->row_dots(d_out, cpu->o, kept->attention_output + at, cpu->o,
                     m->rows, cpu->value_dim, cpu->delta);
    cpu->k->softmax_backward(cpu->scores, cpu->d_scores, cpu->sequence, m->rows,
                             m->keys, m->scale, cpu->delta);
    lhi_cpu_multiply_in_attention(cpu, LHI_BLAS_PLAIN, LHI_BLAS_PLAIN, rows, k,
                                  n, cpu->d_scores, s, keys, width, true, to,
                                  (int)cpu->q);
    lhi_cpu_multiply_in_attention(
        cpu, LHI_BLAS_TRANSPOSED, LHI_BLAS_PLAIN, n, k, rows, cpu->d_scores, s,
        m->query, (int)cpu->qkv, true, cpu->ring[GRADIENTS] + m->key, width);
}

/* Writes the gradients of queries, keys and values to kept->qkv. Rotates those
 * of queries and keys back (backward of the rotary positions). */
static void write_qkv_gradients(const lhi_cpu *cpu,
                                lhi_cpu_saved_activations *kept)
{
    size_t width = lhi_cpu_ring_width(cpu), s = cpu->sequence;
    for (size_t i = 0; i < cpu->microbatch; i++) {
        float *to = kept->qkv + i * s * cpu->qkv;
        const float *from = cpu->ring[GRADIENTS] + i * s * width;
        for (size_t head = 0; head < cpu->heads; head++)
            lhi_cpu_apply_rotary_backward(
                cpu, cpu->d_queries + i * s * cpu->q + head * cpu->head_dim,
                cpu->q, to + head * cpu->head_dim, 0, cpu->sequence);
        to += cpu->q;
        for (size_t head = 0; head < cpu->kv_heads; head++)
            lhi_cpu_apply_rotary_backward(cpu, from + head * cpu->head_dim,
                                          width, to + head * cpu->head_dim, 0,
                                          cpu->sequence);
        for (size_t row = 0; row < s; row++)
            memcpy(to + row * cpu->qkv + cpu->kv, from + row * width + cpu->kv,
                   cpu->values * sizeof *to);
    }
}

/* Computes the gradients of queries, keys and values. Key and value gradients
 * circulate in the ring; after as many shifts as there are ranks they are back
 * at the ranks that own the keys. */
void lhi_cpu_ring_attention_backward(lhi_cpu *cpu,
                                     lhi_cpu_saved_activations *kept,
                                     const float *d)
{
    uint32_t n = cpu->n_context_ranks;
    fill_ring(cpu, kept);
    memset(cpu->d_queries, 0, (size_t)cpu->t * cpu->q * sizeof(float));
    memset(cpu->ring[GRADIENTS], 0,
           cpu->t * lhi_cpu_ring_width(cpu) * sizeof(float));
    for (uint32_t j = 0; j < n; j++) {
        if (j + 1 < n)
            begin_ring_shift(cpu, KEYS);
        for_each_block(cpu, kept, (cpu->context_rank + n - j) % n, d,
                       block_backward);
        if (j + 1 < n)
            end_ring_shift(cpu, KEYS);
        begin_ring_shift(cpu, GRADIENTS);
        end_ring_shift(cpu, GRADIENTS);
    }
    write_qkv_gradients(cpu, kept);
}
