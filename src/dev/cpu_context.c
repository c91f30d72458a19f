/* SPDX-License-Identifier: Apache-2.0 */
/* Context parallelism: n ranks share each sequence. It is cut into 2 n pieces,
 * of which rank c has the c-th from both ends, so that with a causal mask all
 * have as much to compute (Megatron-LM's context parallelism; zigzag ring
 * attention). Keys and values go round the ranks (ring attention,
 * arXiv:2310.01889): in step j a rank has those of the rank j places before it.
 * Its queries see each piece of keys once, in the order in which they come, and
 * the softmax is joined from these parts (arXiv:1805.02867); backward goes
 * round once more, with the gradients of keys and values, to which every rank
 * adds its part before it hands them on. Orders follow from the rank alone, so the
 * result does not depend on timing. */
#include "base/fail.h"
#include "dev/cpu.h"

#include <math.h>
#include <string.h>

lh_status lhi_cpu_check_contexts(const lhi_cpu_options *o, lh_error *err)
{
    uint32_t n = o->n_contexts ? o->n_contexts : 1;
    if (o->context >= n)
        return lhi_fail(err, LH_EINVAL, "context %u is none of %u", o->context,
                        n);
    if (n > 1 && o->sequence % (2 * n) != 0)
        return lhi_fail(err, LH_EINVAL,
                        "sequences of %u tokens are no multiple of twice "
                        "context %u",
                        o->sequence, n);
    return LH_OK;
}

bool lhi_cpu_make_contexts(lhi_cpu *cpu)
{
    lhi_arena *mem = cpu->mem;
    if (cpu->n_contexts == 1)
        return true;
    const size_t width = lhi_cpu_ring_width(cpu);
    for (unsigned i = 0; i < sizeof cpu->ring / sizeof *cpu->ring; i++)
        if (!(cpu->ring[i] = lhi_cpu_floats(mem, cpu->t, width)))
            return false;
    return (cpu->d_queries = lhi_cpu_floats(mem, cpu->t, cpu->q)) &&
           (cpu->partial = lhi_cpu_floats(mem, cpu->block, cpu->value_dim)) &&
           (cpu->partial_max = lhi_cpu_floats(mem, cpu->block, 1)) &&
           (cpu->partial_inv = lhi_cpu_floats(mem, cpu->block, 1));
}

/* --- the ring ----------------------------------------------------------------
 */

static void note(lhi_cpu *cpu, lh_status status, const lh_error *err)
{
    if (status == LH_OK || cpu->met != LH_OK)
        return;
    cpu->met = status;
    cpu->met_err = *err;
}

void lhi_cpu_gather_contexts(lhi_cpu *cpu, const void *mine, void *all,
                             size_t bytes)
{
    lh_error err;
    if (cpu->n_contexts == 1 || cpu->met != LH_OK)
        return;
    for (uint32_t i = 0; i < cpu->n_contexts; i++)
        cpu->choice_bytes[i] = bytes;
    note(cpu,
         lhi_group_all_gather(cpu->contexts, mine, all, cpu->choice_bytes,
                              &err),
         &err);
}

void lhi_cpu_add_contexts(lhi_cpu *cpu, float *values, size_t n)
{
    lh_error err;
    if (cpu->n_contexts > 1 && cpu->met == LH_OK)
        note(cpu, lhi_group_all_reduce(cpu->contexts, values, n, &err), &err);
}

/* Room `room` goes on to the next rank, and that of the rank before comes to
 * the room behind it; until end_shift(), which makes that room `room`. */
static void begin_shift(lhi_cpu *cpu, unsigned room)
{
    size_t bytes = cpu->t * lhi_cpu_ring_width(cpu) * sizeof(float);
    lh_error err;
    if (cpu->met == LH_OK)
        note(cpu,
             lhi_group_shift_begin(cpu->contexts, false, cpu->ring[room], bytes,
                                   cpu->ring[room + 1], bytes, &err),
             &err);
}

static void end_shift(lhi_cpu *cpu, unsigned room)
{
    lh_error err;
    float *came = cpu->ring[room + 1];
    if (cpu->met == LH_OK)
        note(cpu, lhi_group_shift_end(cpu->contexts, &err), &err);
    cpu->ring[room + 1] = cpu->ring[room];
    cpu->ring[room] = came;
}

enum { KEYS = 0, GRADIENTS = 2 }; /* rooms */

/* The rank's own keys and values. */
static void fill_ring(lhi_cpu *cpu, const lhi_cpu_kept *kept)
{
    size_t width = lhi_cpu_ring_width(cpu);
    for (size_t row = 0; row < cpu->t; row++)
        memcpy(cpu->ring[KEYS] + row * width,
               kept->qkv + row * cpu->qkv + cpu->q, width * sizeof(float));
}

/* --- queries and a piece of keys ---------------------------------------------
 */

/* Some queries of one head and piece, and the keys of a piece that they see:
 * all of them, or those up to each query's own place. */
typedef struct meeting {
    lhi_drop drop;
    uint32_t sequence, head;
    uint32_t first, rows; /* queries: which of the piece */
    uint32_t keys;        /* how many the last query sees */
    bool causal;
    uint32_t row, column; /* positions of the first of both */
    size_t at;            /* row of t of the first query */
    size_t key, value;    /* in a room of the ring: first key's, value's */
    const float *query;
    float *max, *inv;
    float scale;
} meeting;

/* Calls `meet` for all that the rank's queries see of rank `source`. */
static void meet_all(lhi_cpu *cpu, const lhi_cpu_kept *kept, uint32_t source,
                     const float *d,
                     void (*meet)(lhi_cpu *, const lhi_cpu_kept *,
                                  const meeting *, bool, const float *))
{
    uint32_t halves = 2 * cpu->microbatch, piece = cpu->piece;
    uint32_t group = cpu->heads / cpu->kv_heads;
    for (uint32_t i = 0; i < halves * cpu->heads * 2; i++) {
        uint32_t half = i / 2 / cpu->heads, head = i / 2 % cpu->heads;
        uint32_t mine = lhi_cpu_piece_of(cpu, cpu->context, half % 2);
        uint32_t theirs = lhi_cpu_piece_of(cpu, source, i % 2);
        size_t from = (half / 2 * 2 + i % 2) * piece; /* row of t, of keys */
        size_t shared = head / group;
        for (uint32_t row = 0; theirs <= mine && row < piece;
             row += cpu->block) {
            uint32_t left = piece - row;
            size_t at = half * piece + row;
            meeting m = {
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
                .query = kept->qkv + at * cpu->qkv +
                         (size_t)head * cpu->head_dim,
                .max = kept->max + (size_t)head * cpu->t + at,
                .inv = kept->inv + (size_t)head * cpu->t + at,
                .scale = 1 / sqrtf((float)cpu->head_dim)};
            m.keys = m.causal ? row + m.rows : piece;
            meet(cpu, kept, &m, source == cpu->context && i % 2 == 0, d);
        }
    }
}

static void score(const lhi_cpu *cpu, const meeting *m)
{
    cpu->sgemm(LHI_BLAS_ROWS, LHI_BLAS_PLAIN, LHI_BLAS_TRANSPOSED, (int)m->rows,
               (int)m->keys, (int)cpu->head_dim, 1, m->query, (int)cpu->qkv,
               cpu->ring[KEYS] + m->key, (int)lhi_cpu_ring_width(cpu), 0,
               cpu->scores, (int)cpu->sequence);
}

static void drop(const lhi_cpu *cpu, const meeting *m, float *scores)
{
    lhi_cpu_drop(cpu, m->drop, m->sequence, cpu->first_head + m->head, m->row, m->column, scores,
                 cpu->sequence, m->rows, m->keys);
}

/* The softmax of one row's places at a time, where all rows have as many. */
static void soften(const lhi_cpu *cpu, const meeting *m)
{
    if (m->causal)
        cpu->k->softmax(cpu->scores, cpu->sequence, m->rows, m->first + 1,
                        m->keys, m->scale, cpu->partial_max, cpu->partial_inv);
    for (size_t i = 0; i < m->rows && !m->causal; i++)
        cpu->k->softmax(cpu->scores + i * cpu->sequence, cpu->sequence, 1,
                        m->keys, m->keys, m->scale, cpu->partial_max + i,
                        cpu->partial_inv + i);
}

static void soften_again(const lhi_cpu *cpu, const meeting *m)
{
    if (m->causal)
        cpu->k->softmax_again(cpu->scores, cpu->sequence, m->rows, m->first + 1,
                              m->keys, m->scale, m->max, m->inv);
    for (size_t i = 0; i < m->rows && !m->causal; i++)
        cpu->k->softmax_again(cpu->scores + i * cpu->sequence, cpu->sequence, 1,
                              m->keys, m->keys, m->scale, m->max + i,
                              m->inv + i);
}

/* A row's sum so far, and its maximum, with one more part of it. */
static void join_row(float *sum, float *max, float *total, const float *more,
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

/* Adds what the queries see to kept->attended; meanwhile kept->inv has sums. */
static void meet(lhi_cpu *cpu, const lhi_cpu_kept *kept, const meeting *m,
                 bool is_first, const float *unused)
{
    uint32_t v = cpu->value_dim;
    float *to = kept->attended + m->at * cpu->o + (size_t)m->head * v;
    (void)unused;
    score(cpu, m);
    soften(cpu, m);
    drop(cpu, m, cpu->scores);
    cpu->sgemm(LHI_BLAS_ROWS, LHI_BLAS_PLAIN, LHI_BLAS_PLAIN, (int)m->rows,
               (int)v, (int)m->keys, 1, cpu->scores, (int)cpu->sequence,
               cpu->ring[KEYS] + m->value, (int)lhi_cpu_ring_width(cpu), 0,
               cpu->partial, (int)v);
    for (size_t i = 0; i < m->rows; i++) {
        const float *part = cpu->partial + i * v;
        float total = 1 / cpu->partial_inv[i];
        if (is_first) { /* nothing is there yet */
            memcpy(to + i * cpu->o, part, v * sizeof *to);
            m->max[i] = cpu->partial_max[i];
            m->inv[i] = total;
        } else {
            join_row(to + i * cpu->o, &m->max[i], &m->inv[i], part,
                     cpu->partial_max[i], total, v);
        }
    }
}

void lhi_cpu_attend_ring(lhi_cpu *cpu, lhi_cpu_kept *kept)
{
    uint32_t n = cpu->n_contexts;
    fill_ring(cpu, kept);
    for (uint32_t j = 0; j < n; j++) {
        if (j + 1 < n)
            begin_shift(cpu, KEYS);
        meet_all(cpu, kept, (cpu->context + n - j) % n, NULL, meet);
        if (j + 1 < n)
            end_shift(cpu, KEYS);
    }
    for (size_t head = 0; head < cpu->heads; head++) {
        float *inv = kept->inv + head * cpu->t;
        for (size_t row = 0; row < cpu->t; row++)
            inv[row] = 1 / inv[row];
        cpu->k->scale_rows(kept->attended + head * cpu->value_dim, cpu->o,
                           cpu->t, cpu->value_dim, inv);
    }
}

/* The scores that values are weighed with; may lie in d_scores. */
static const float *after_drop(const lhi_cpu *cpu, const meeting *m)
{
    if (!lhi_cpu_drops(cpu))
        return cpu->scores;
    memcpy(cpu->d_scores, cpu->scores,
           (size_t)m->rows * cpu->sequence * sizeof *cpu->scores);
    drop(cpu, m, cpu->d_scores);
    return cpu->d_scores;
}

/* From d, the gradient of `attended`: adds to the gradients of queries and of
 * the keys and values that are here. */
static void meet_back(lhi_cpu *cpu, const lhi_cpu_kept *kept, const meeting *m,
                      bool is_first, const float *d)
{
    int s = (int)cpu->sequence, rows = (int)m->rows, n = (int)m->keys;
    int k = (int)cpu->head_dim, v = (int)cpu->value_dim, o = (int)cpu->o;
    int width = (int)lhi_cpu_ring_width(cpu);
    size_t at = m->at * cpu->o + (size_t)m->head * cpu->value_dim;
    const float *keys = cpu->ring[KEYS] + m->key, *d_out = d + at;
    float *to = cpu->d_queries + m->at * cpu->q + (size_t)m->head * (size_t)k;
    (void)is_first;
    score(cpu, m);
    soften_again(cpu, m);
    cpu->sgemm(LHI_BLAS_ROWS, LHI_BLAS_TRANSPOSED, LHI_BLAS_PLAIN, n, v, rows,
               1, after_drop(cpu, m), s, d_out, o, 1,
               cpu->ring[GRADIENTS] + m->value, width);
    cpu->sgemm(LHI_BLAS_ROWS, LHI_BLAS_PLAIN, LHI_BLAS_TRANSPOSED, rows, n, v,
               1, d_out, o, cpu->ring[KEYS] + m->value, width, 0, cpu->d_scores,
               s);
    drop(cpu, m, cpu->d_scores);
    cpu->k->row_dots(d_out, cpu->o, kept->attended + at, cpu->o, m->rows,
                     cpu->value_dim, cpu->delta);
    cpu->k->softmax_back(cpu->scores, cpu->d_scores, cpu->sequence, m->rows,
                         m->keys, m->scale, cpu->delta);
    cpu->sgemm(LHI_BLAS_ROWS, LHI_BLAS_PLAIN, LHI_BLAS_PLAIN, rows, k, n, 1,
               cpu->d_scores, s, keys, width, 1, to, (int)cpu->q);
    cpu->sgemm(LHI_BLAS_ROWS, LHI_BLAS_TRANSPOSED, LHI_BLAS_PLAIN, n, k, rows,
               1, cpu->d_scores, s, m->query, (int)cpu->qkv, 1,
               cpu->ring[GRADIENTS] + m->key, width);
}

/* The gradients to their places among qkv, turned back. */
static void place_gradients(const lhi_cpu *cpu, lhi_cpu_kept *kept)
{
    size_t width = lhi_cpu_ring_width(cpu), s = cpu->sequence;
    for (size_t i = 0; i < cpu->microbatch; i++) {
        float *to = kept->qkv + i * s * cpu->qkv;
        const float *from = cpu->ring[GRADIENTS] + i * s * width;
        for (size_t head = 0; head < cpu->heads; head++)
            lhi_cpu_turn_back(cpu,
                              cpu->d_queries + i * s * cpu->q +
                                  head * cpu->head_dim,
                              cpu->q, to + head * cpu->head_dim, 0,
                              cpu->sequence);
        to += cpu->q;
        for (size_t head = 0; head < cpu->kv_heads; head++)
            lhi_cpu_turn_back(cpu, from + head * cpu->head_dim, width,
                              to + head * cpu->head_dim, 0, cpu->sequence);
        for (size_t row = 0; row < s; row++)
            memcpy(to + row * cpu->qkv + cpu->kv, from + row * width + cpu->kv,
                   cpu->values * sizeof *to);
    }
}

/* After as many steps as there are ranks, and one more, the gradients are back
 * where their keys are from. */
void lhi_cpu_attend_ring_back(lhi_cpu *cpu, lhi_cpu_kept *kept, const float *d)
{
    uint32_t n = cpu->n_contexts;
    fill_ring(cpu, kept);
    memset(cpu->d_queries, 0, (size_t)cpu->t * cpu->q * sizeof(float));
    memset(cpu->ring[GRADIENTS], 0,
           cpu->t * lhi_cpu_ring_width(cpu) * sizeof(float));
    for (uint32_t j = 0; j < n; j++) {
        if (j + 1 < n)
            begin_shift(cpu, KEYS);
        meet_all(cpu, kept, (cpu->context + n - j) % n, d, meet_back);
        if (j + 1 < n)
            end_shift(cpu, KEYS);
        begin_shift(cpu, GRADIENTS);
        end_shift(cpu, GRADIENTS);
    }
    place_gradients(cpu, kept);
}
