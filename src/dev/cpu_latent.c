/* SPDX-License-Identifier: Apache-2.0 */
/* Steps between a layer's first norm and its queries, keys and values:
 *
 * - per-head norms for queries and keys (Qwen3: arXiv:2505.09388, section 2);
 * - multi-head latent attention (DeepSeek-V2: arXiv:2405.04434, equations 9 to
 *   19). Keys and values are computed from one latent per row, queries from
 *   another latent or from the row itself; each latent has a norm.
 *
 * With latents, the last rope_dim numbers in each query are rotated by
 * position. All keys in a row share one rotated vector, which accompanies the
 * latent. DeepSeek rotates the pairs 2i and 2i + 1; they are sorted into halves
 * here, so that the common rotation applies. Scores are unchanged. */
#include "dev/cpu.h"

#include <string.h>

/* Epsilon for the latents' norms, as in the transformers library, whatever the
 * model's epsilon. */
static const float latent_epsilon = 1e-6F;

/* Copies [rows][columns] between matrices with different strides. */
static void copy(const float *from, size_t from_stride, float *to,
                 size_t to_stride, size_t rows, size_t columns)
{
    for (size_t i = 0; i < rows; i++)
        memcpy(to + i * to_stride, from + i * from_stride,
               columns * sizeof *to);
}

/* --- per-head norms ----------------------------------------------------------
 */

/* Applies the norm to `n` heads, starting at `x`, in the rows of qkv. */
static void norm_heads(const lhi_cpu *cpu, float *x, uint32_t n,
                       const float *weight, float *plain, float *inv)
{
    size_t t = cpu->t, width = (size_t)n * cpu->head_dim;
    copy(x, cpu->qkv, plain, width, t, width);
    cpu->k->norm(plain, weight, cpu->wide, inv, t * n, cpu->head_dim,
                 cpu->epsilon);
    copy(cpu->wide, width, x, cpu->qkv, t, width);
}

static void norm_heads_back(const lhi_cpu *cpu, float *x, uint32_t n,
                            const float *weight, float *plain, const float *inv,
                            float *d_weight)
{
    size_t t = cpu->t, width = (size_t)n * cpu->head_dim;
    copy(x, cpu->qkv, cpu->wide, width, t, width);
    cpu->k->norm_back(cpu->wide, weight, inv, NULL, plain, d_weight, t * n,
                      cpu->head_dim);
    copy(plain, width, x, cpu->qkv, t, width);
}

void lhi_cpu_norm_heads(const lhi_cpu *cpu, const lhi_cpu_weights *w,
                        lhi_cpu_kept *kept)
{
    norm_heads(cpu, kept->qkv, cpu->heads, w->q_norm, kept->plain_q,
               kept->inv_q);
    norm_heads(cpu, kept->qkv + cpu->q, cpu->kv_heads, w->k_norm, kept->plain_k,
               kept->inv_k);
}

void lhi_cpu_norm_heads_back(const lhi_cpu *cpu, const lhi_cpu_weights *w,
                             lhi_cpu_kept *kept)
{
    norm_heads_back(cpu, kept->qkv, cpu->heads, w->q_norm, kept->plain_q,
                    kept->inv_q, kept->d_inner);
    norm_heads_back(cpu, kept->qkv + cpu->q, cpu->kv_heads, w->k_norm,
                    kept->plain_k, kept->inv_k, kept->d_inner + cpu->head_dim);
}

/* --- latents -----------------------------------------------------------------
 */

/* Moves element 2i to i and 2i + 1 to n / 2 + i; join_pairs() inverts it. */
static void sort_pairs(const float *from, float *to, uint32_t n)
{
    for (uint32_t i = 0; i < n / 2; i++) {
        to[i] = from[2 * i];
        to[n / 2 + i] = from[2 * i + 1];
    }
}

static void join_pairs(const float *from, float *to, uint32_t n)
{
    for (uint32_t i = 0; i < n / 2; i++) {
        to[2 * i] = from[i];
        to[2 * i + 1] = from[n / 2 + i];
    }
}

/* Rotates [t][rope_dim] in place, by the rows' positions. */
static void turn(const lhi_cpu *cpu, float *x, size_t stride, float direction)
{
    for (size_t i = 0; i < cpu->microbatch; i++) {
        float *first = x + i * cpu->sequence * stride;
        cpu->k->rotate(first, stride, first, stride, cpu->sequence, cpu->rope,
                       cpu->cosines, cpu->sines, direction);
    }
}

/* Returns the width of a head's query or key without its rotary part. */
static uint32_t plain_dim(const lhi_cpu *cpu)
{
    return cpu->head_dim - cpu->rope;
}

/* Returns the output width of kv_up. */
static uint32_t made(const lhi_cpu *cpu)
{
    return cpu->heads * (plain_dim(cpu) + cpu->value_dim);
}

void lhi_cpu_latents(const lhi_cpu *cpu, const lhi_cpu_weights *w,
                     lhi_cpu_kept *kept)
{
    uint32_t wide = cpu->kv_rank + cpu->rope;
    if (cpu->q_rank) {
        lhi_cpu_linear(cpu, kept->norm1, w->q_down, NULL, kept->q_latent,
                       cpu->h, cpu->q_rank, false);
        cpu->k->norm(kept->q_latent, w->q_norm, kept->q_normed, kept->inv_q,
                     cpu->t, cpu->q_rank, latent_epsilon);
    }
    lhi_cpu_linear(cpu, kept->norm1, w->kv_down, NULL, kept->kv_latent, cpu->h,
                   wide, false);
    copy(kept->kv_latent, wide, cpu->wide, cpu->kv_rank, cpu->t, cpu->kv_rank);
    cpu->k->norm(cpu->wide, w->k_norm, kept->kv_normed, kept->inv_k, cpu->t,
                 cpu->kv_rank, latent_epsilon);
}

/* Copies all queries from the scratch buffer to qkv. */
static void place_queries(const lhi_cpu *cpu, float *qkv)
{
    uint32_t d = cpu->head_dim, plain = plain_dim(cpu);
    for (size_t row = 0; row < cpu->t; row++)
        for (uint32_t head = 0; head < cpu->heads; head++) {
            const float *from = cpu->wide + row * cpu->q + (size_t)head * d;
            float *to = qkv + row * cpu->qkv + (size_t)head * d;
            memcpy(to, from, plain * sizeof *to);
            sort_pairs(from + plain, to + plain, cpu->rope);
        }
    for (uint32_t head = 0; head < cpu->heads; head++)
        turn(cpu, qkv + (size_t)head * d + plain, cpu->qkv, 1);
}

/* Copies kv_up's outputs from the scratch buffer to the keys and values in qkv.
 * Each key receives the row's rotary key from the second scratch buffer. */
static void place_keys(const lhi_cpu *cpu, float *qkv)
{
    uint32_t d = cpu->head_dim, plain = plain_dim(cpu), v = cpu->value_dim;
    for (size_t row = 0; row < cpu->t; row++)
        for (uint32_t head = 0; head < cpu->heads; head++) {
            const float *from =
                cpu->wide + row * made(cpu) + (size_t)head * (plain + v);
            float *keys = qkv + row * cpu->qkv + cpu->q;
            float *to = keys + (size_t)head * d;
            memcpy(to, from, plain * sizeof *to);
            memcpy(to + plain, cpu->beside + row * cpu->rope,
                   cpu->rope * sizeof *to);
            memcpy(keys + cpu->kv + (size_t)head * v, from + plain,
                   v * sizeof *to);
        }
}

void lhi_cpu_from_latents(const lhi_cpu *cpu, const lhi_cpu_weights *w,
                          lhi_cpu_kept *kept)
{
    size_t wide = cpu->kv_rank + cpu->rope;
    lhi_cpu_linear(cpu, cpu->q_rank ? kept->q_normed : kept->norm1, w->q_up,
                   NULL, cpu->wide, cpu->q_rank ? cpu->q_rank : cpu->h, cpu->q,
                   false);
    place_queries(cpu, kept->qkv);
    lhi_cpu_linear(cpu, kept->kv_normed, w->kv_up, NULL, cpu->wide,
                   cpu->kv_rank, made(cpu), false);
    for (size_t row = 0; row < cpu->t; row++)
        sort_pairs(kept->kv_latent + row * wide + cpu->kv_rank,
                   cpu->beside + row * cpu->rope, cpu->rope);
    turn(cpu, cpu->beside, cpu->rope, 1);
    place_keys(cpu, kept->qkv);
}

/* Computes the gradient of q_up's output, into the scratch buffer, from the
 * rotated queries' gradient. */
static void take_queries(const lhi_cpu *cpu, float *qkv)
{
    uint32_t d = cpu->head_dim, plain = plain_dim(cpu);
    for (uint32_t head = 0; head < cpu->heads; head++)
        turn(cpu, qkv + (size_t)head * d + plain, cpu->qkv, -1);
    for (size_t row = 0; row < cpu->t; row++)
        for (uint32_t head = 0; head < cpu->heads; head++) {
            const float *from = qkv + row * cpu->qkv + (size_t)head * d;
            float *to = cpu->wide + row * cpu->q + (size_t)head * d;
            memcpy(to, from, plain * sizeof *to);
            join_pairs(from + plain, to + plain, cpu->rope);
        }
}

/* Computes the gradient of kv_up's output, into the scratch buffer, from those
 * of keys and values. Adds the gradients of the shared rotary key over all
 * heads, in head order. */
static void take_keys(const lhi_cpu *cpu, const float *qkv, float *kv_latent)
{
    uint32_t d = cpu->head_dim, plain = plain_dim(cpu), v = cpu->value_dim;
    size_t latent = cpu->kv_rank + cpu->rope;
    for (size_t row = 0; row < cpu->t; row++) {
        const float *keys = qkv + row * cpu->qkv + cpu->q;
        float *shared = cpu->beside + row * cpu->rope;
        for (uint32_t head = 0; head < cpu->heads; head++) {
            const float *from = keys + (size_t)head * d;
            float *to =
                cpu->wide + row * made(cpu) + (size_t)head * (plain + v);
            memcpy(to, from, plain * sizeof *to);
            memcpy(to + plain, keys + cpu->kv + (size_t)head * v,
                   v * sizeof *to);
            if (head == 0)
                memcpy(shared, from + plain, cpu->rope * sizeof *to);
            else
                cpu->k->add(shared, from + plain, cpu->rope);
        }
    }
    turn(cpu, cpu->beside, cpu->rope, -1);
    for (size_t row = 0; row < cpu->t; row++)
        join_pairs(cpu->beside + row * cpu->rope,
                   kv_latent + row * latent + cpu->kv_rank, cpu->rope);
}

void lhi_cpu_latents_back(const lhi_cpu *cpu, const lhi_cpu_weights *w,
                          lhi_cpu_kept *kept)
{
    size_t t = cpu->t, latent = cpu->kv_rank + cpu->rope;
    float *wide = cpu->wide, *beside = cpu->beside;
    take_keys(cpu, kept->qkv, kept->kv_latent);
    copy(wide, made(cpu), kept->qkv + cpu->q, cpu->qkv, t, made(cpu));
    lhi_cpu_linear_input(cpu, wide, w->kv_up, beside, cpu->kv_rank, made(cpu));
    copy(kept->kv_latent, latent, wide, cpu->kv_rank, t, cpu->kv_rank);
    cpu->k->norm_back(beside, w->k_norm, kept->inv_k, NULL, wide,
                      kept->d_inner + cpu->q_rank, t, cpu->kv_rank);
    copy(wide, cpu->kv_rank, kept->kv_latent, latent, t, cpu->kv_rank);
    take_queries(cpu, kept->qkv);
    copy(wide, cpu->q, kept->qkv, cpu->qkv, t, cpu->q);
    lhi_cpu_linear_input(cpu, wide, w->q_up, beside,
                         cpu->q_rank ? cpu->q_rank : cpu->h, cpu->q);
    if (cpu->q_rank) {
        cpu->k->norm_back(beside, w->q_norm, kept->inv_q, NULL, kept->q_latent,
                          kept->d_inner, t, cpu->q_rank);
        lhi_cpu_linear_input(cpu, kept->q_latent, w->q_down, beside, cpu->h,
                             cpu->q_rank);
    }
    lhi_cpu_linear_input(cpu, kept->kv_latent, w->kv_down, wide, cpu->h,
                         (uint32_t)latent);
    cpu->k->add(wide, beside, t * cpu->h);
}

void lhi_cpu_latent_weights(const lhi_cpu *cpu, const lhi_cpu_kept *kept,
                            const lhi_cpu_weights *d, bool adds)
{
    copy(kept->qkv, cpu->qkv, cpu->wide, cpu->q, cpu->t, cpu->q);
    lhi_cpu_linear_weights(cpu, cpu->wide,
                           cpu->q_rank ? kept->q_normed : kept->norm1, d->q_up,
                           NULL, cpu->q_rank ? cpu->q_rank : cpu->h, cpu->q,
                           adds);
    copy(kept->qkv + cpu->q, cpu->qkv, cpu->wide, made(cpu), cpu->t, made(cpu));
    lhi_cpu_linear_weights(cpu, cpu->wide, kept->kv_normed, d->kv_up, NULL,
                           cpu->kv_rank, made(cpu), adds);
    if (cpu->q_rank)
        lhi_cpu_linear_weights(cpu, kept->q_latent, kept->norm1, d->q_down,
                               NULL, cpu->h, cpu->q_rank, adds);
    lhi_cpu_linear_weights(cpu, kept->kv_latent, kept->norm1, d->kv_down, NULL,
                           cpu->h, cpu->kv_rank + cpu->rope, adds);
}
