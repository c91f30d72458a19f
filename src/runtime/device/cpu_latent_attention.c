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
#include "runtime/device/cpu.h"
#include "runtime/device/cpu_attention.h"

#include <string.h>

/* Epsilon for the latents' norms, as in the transformers library, whatever the
 * model's epsilon. */
static const float latent_epsilon = 1e-6F;

/* Copies a matrix [rows][columns] from `from` to `to`, whose rows are
 * from_stride and to_stride floats apart. */
static void copy(const float *from, size_t from_stride, float *to,
                 size_t to_stride, size_t rows, size_t columns)
{
    for (size_t i = 0; i < rows; i++)
        memcpy(to + i * to_stride, from + i * from_stride,
               columns * sizeof *to);
}

/* ---- per-head norms ---- */

/* Applies RMSNorm to `n` heads in each row of qkv, the first at `x`. Saves the
 * inputs in `plain` and the inverse deviations in `inv`, for the backward pass.
 * */
static void norm_heads(const lhi_cpu *cpu, float *x, uint32_t n,
                       const float *weight, float *plain, float *inv)
{
    size_t t = cpu->t, width = (size_t)n * cpu->head_dim;
    copy(x, cpu->qkv, plain, width, t, width);
    cpu->k->norm(plain, weight, cpu->scratch, inv, t * n, cpu->head_dim,
                 cpu->epsilon);
    copy(cpu->scratch, width, x, cpu->qkv, t, width);
}

/* Computes the gradients of the RMSNorm of `n` heads in the rows of `x`, in
 * place; d_weight receives the weight's gradient. Leaves the input's gradient
 * also in `plain`. */
static void norm_heads_backward(const lhi_cpu *cpu, float *x, uint32_t n,
                                const float *weight, float *plain,
                                const float *inv, float *d_weight)
{
    size_t t = cpu->t, width = (size_t)n * cpu->head_dim;
    copy(x, cpu->qkv, cpu->scratch, width, t, width);
    cpu->k->norm_backward(cpu->scratch, weight, inv, NULL, plain, d_weight,
                          t * n, cpu->head_dim);
    copy(plain, width, x, cpu->qkv, t, width);
}

void lhi_cpu_norm_heads(const lhi_cpu *cpu, const lhi_cpu_weights *w,
                        lhi_cpu_saved_activations *kept)
{
    norm_heads(cpu, kept->qkv, cpu->heads, w->q_norm, kept->q_before_norm,
               kept->inv_q);
    norm_heads(cpu, kept->qkv + cpu->q, cpu->kv_heads, w->k_norm,
               kept->k_before_norm, kept->inv_k);
}

void lhi_cpu_norm_heads_backward(const lhi_cpu *cpu, const lhi_cpu_weights *w,
                                 lhi_cpu_saved_activations *kept)
{
    norm_heads_backward(cpu, kept->qkv, cpu->heads, w->q_norm,
                        kept->q_before_norm, kept->inv_q, kept->d_inner);
    norm_heads_backward(cpu, kept->qkv + cpu->q, cpu->kv_heads, w->k_norm,
                        kept->k_before_norm, kept->inv_k,
                        kept->d_inner + cpu->head_dim);
}

/* ---- latents ---- */

/* Reorders a vector of n floats from pairs (x0, y0, x1, y1, ...) to halves
 * (x0..., y0...), in which rotary positions rotate. */
static void pairs_to_halves(const float *from, float *to, uint32_t n)
{
    for (uint32_t i = 0; i < n / 2; i++) {
        to[i] = from[2 * i];
        to[n / 2 + i] = from[2 * i + 1];
    }
}

/* Reorders a vector from rotated halves (x0..., y0...) to pairs (x0, y0, x1,
 * y1, ...). */
static void halves_to_pairs(const float *from, float *to, uint32_t n)
{
    for (uint32_t i = 0; i < n / 2; i++) {
        to[2 * i] = from[i];
        to[2 * i + 1] = from[n / 2 + i];
    }
}

/* Rotates x [t][rope_dim] (a row per token of the microbatch, rows `stride`
 * floats apart) in place by the rows' positions; `direction` 1: rotates, -1:
 * inverts the rotation. */
static void apply_rotary(const lhi_cpu *cpu, float *x, size_t stride,
                         float direction)
{
    for (size_t i = 0; i < cpu->microbatch; i++) {
        float *first = x + i * cpu->sequence * stride;
        cpu->k->rotate(first, stride, first, stride, cpu->sequence,
                       cpu->rope_dim, cpu->cosines, cpu->sines, direction);
    }
}

/* Returns the width of a head's query or key without its rotary part. */
static uint32_t get_non_rotary_dim(const lhi_cpu *cpu)
{
    return cpu->head_dim - cpu->rope_dim;
}

/* Returns the output width of the latent attention's up-projection for keys
 * and values. */
static uint32_t get_kv_up_width(const lhi_cpu *cpu)
{
    return cpu->heads * (get_non_rotary_dim(cpu) + cpu->value_dim);
}

void lhi_cpu_compute_latents(const lhi_cpu *cpu, const lhi_cpu_weights *w,
                             lhi_cpu_saved_activations *kept)
{
    uint32_t wide = cpu->kv_rank + cpu->rope_dim;
    if (cpu->q_rank) {
        lhi_cpu_linear(cpu, kept->norm1, w->q_down, NULL, kept->q_latent,
                       cpu->h, cpu->q_rank, false);
        cpu->k->norm(kept->q_latent, w->q_norm, kept->q_normed, kept->inv_q,
                     cpu->t, cpu->q_rank, latent_epsilon);
    }
    lhi_cpu_linear(cpu, kept->norm1, w->kv_down, NULL, kept->kv_latent, cpu->h,
                   wide, false);
    copy(kept->kv_latent, wide, cpu->scratch, cpu->kv_rank, cpu->t,
         cpu->kv_rank);
    cpu->k->norm(cpu->scratch, w->k_norm, kept->kv_normed, kept->inv_k, cpu->t,
                 cpu->kv_rank, latent_epsilon);
}

/* Copies all queries from the scratch buffer to qkv, reordered for rotary
 * positions, and applies these. */
static void place_queries(const lhi_cpu *cpu, float *qkv)
{
    uint32_t d = cpu->head_dim, plain = get_non_rotary_dim(cpu);
    for (size_t row = 0; row < cpu->t; row++)
        for (uint32_t head = 0; head < cpu->heads; head++) {
            const float *from = cpu->scratch + row * cpu->q + (size_t)head * d;
            float *to = qkv + row * cpu->qkv + (size_t)head * d;
            memcpy(to, from, plain * sizeof *to);
            pairs_to_halves(from + plain, to + plain, cpu->rope_dim);
        }
    for (uint32_t head = 0; head < cpu->heads; head++)
        apply_rotary(cpu, qkv + (size_t)head * d + plain, cpu->qkv, 1);
}

/* Copies kv_up's outputs from the scratch buffer to the keys and values in qkv.
 * Each key receives the row's rotary key from the second scratch buffer. */
static void place_keys(const lhi_cpu *cpu, float *qkv)
{
    uint32_t d = cpu->head_dim, plain = get_non_rotary_dim(cpu),
             v = cpu->value_dim;
    for (size_t row = 0; row < cpu->t; row++)
        for (uint32_t head = 0; head < cpu->heads; head++) {
            const float *from = cpu->scratch + row * get_kv_up_width(cpu) +
                                (size_t)head * (plain + v);
            float *keys = qkv + row * cpu->qkv + cpu->q;
            float *to = keys + (size_t)head * d;
            memcpy(to, from, plain * sizeof *to);
            memcpy(to + plain, cpu->second_scratch + row * cpu->rope_dim,
                   cpu->rope_dim * sizeof *to);
            memcpy(keys + cpu->kv + (size_t)head * v, from + plain,
                   v * sizeof *to);
        }
}

void lhi_cpu_compute_qkv_from_latents(const lhi_cpu *cpu,
                                      const lhi_cpu_weights *w,
                                      lhi_cpu_saved_activations *kept)
{
    size_t wide = cpu->kv_rank + cpu->rope_dim;
    lhi_cpu_linear(cpu, cpu->q_rank ? kept->q_normed : kept->norm1, w->q_up,
                   NULL, cpu->scratch, cpu->q_rank ? cpu->q_rank : cpu->h,
                   cpu->q, false);
    place_queries(cpu, kept->qkv);
    lhi_cpu_linear(cpu, kept->kv_normed, w->kv_up, NULL, cpu->scratch,
                   cpu->kv_rank, get_kv_up_width(cpu), false);
    for (size_t row = 0; row < cpu->t; row++)
        pairs_to_halves(kept->kv_latent + row * wide + cpu->kv_rank,
                        cpu->second_scratch + row * cpu->rope_dim,
                        cpu->rope_dim);
    apply_rotary(cpu, cpu->second_scratch, cpu->rope_dim, 1);
    place_keys(cpu, kept->qkv);
}

/* Computes the gradient of q_up's output (queries' up-projection), into the
 * scratch buffer, from the rotated queries' gradient in qkv. */
static void compute_query_gradients(const lhi_cpu *cpu, float *qkv)
{
    uint32_t d = cpu->head_dim, plain = get_non_rotary_dim(cpu);
    for (uint32_t head = 0; head < cpu->heads; head++)
        apply_rotary(cpu, qkv + (size_t)head * d + plain, cpu->qkv, -1);
    for (size_t row = 0; row < cpu->t; row++)
        for (uint32_t head = 0; head < cpu->heads; head++) {
            const float *from = qkv + row * cpu->qkv + (size_t)head * d;
            float *to = cpu->scratch + row * cpu->q + (size_t)head * d;
            memcpy(to, from, plain * sizeof *to);
            halves_to_pairs(from + plain, to + plain, cpu->rope_dim);
        }
}

/* Computes the gradient of kv_up's output, into the scratch buffer, from those
 * of keys and values in qkv. The rotary key's gradient, which all heads share,
 * is summed over the heads in order, into kv_latent. */
static void compute_key_value_gradients(const lhi_cpu *cpu, const float *qkv,
                                        float *kv_latent)
{
    uint32_t d = cpu->head_dim, plain = get_non_rotary_dim(cpu),
             v = cpu->value_dim;
    size_t latent = cpu->kv_rank + cpu->rope_dim;
    for (size_t row = 0; row < cpu->t; row++) {
        const float *keys = qkv + row * cpu->qkv + cpu->q;
        float *shared = cpu->second_scratch + row * cpu->rope_dim;
        for (uint32_t head = 0; head < cpu->heads; head++) {
            const float *from = keys + (size_t)head * d;
            float *to = cpu->scratch + row * get_kv_up_width(cpu) +
                        (size_t)head * (plain + v);
            memcpy(to, from, plain * sizeof *to);
            memcpy(to + plain, keys + cpu->kv + (size_t)head * v,
                   v * sizeof *to);
            if (head == 0)
                memcpy(shared, from + plain, cpu->rope_dim * sizeof *to);
            else
                cpu->k->add(shared, from + plain, cpu->rope_dim);
        }
    }
    apply_rotary(cpu, cpu->second_scratch, cpu->rope_dim, -1);
    for (size_t row = 0; row < cpu->t; row++)
        halves_to_pairs(cpu->second_scratch + row * cpu->rope_dim,
                        kv_latent + row * latent + cpu->kv_rank, cpu->rope_dim);
}

void lhi_cpu_latents_backward(const lhi_cpu *cpu, const lhi_cpu_weights *w,
                              lhi_cpu_saved_activations *kept)
{
    size_t t = cpu->t, latent = cpu->kv_rank + cpu->rope_dim;
    float *wide = cpu->scratch, *beside = cpu->second_scratch;
    compute_key_value_gradients(cpu, kept->qkv, kept->kv_latent);
    copy(wide, get_kv_up_width(cpu), kept->qkv + cpu->q, cpu->qkv, t,
         get_kv_up_width(cpu));
    lhi_cpu_linear_dgrad(cpu, wide, w->kv_up, beside, cpu->kv_rank,
                         get_kv_up_width(cpu));
    copy(kept->kv_latent, latent, wide, cpu->kv_rank, t, cpu->kv_rank);
    cpu->k->norm_backward(beside, w->k_norm, kept->inv_k, NULL, wide,
                          kept->d_inner + cpu->q_rank, t, cpu->kv_rank);
    copy(wide, cpu->kv_rank, kept->kv_latent, latent, t, cpu->kv_rank);
    compute_query_gradients(cpu, kept->qkv);
    copy(wide, cpu->q, kept->qkv, cpu->qkv, t, cpu->q);
    lhi_cpu_linear_dgrad(cpu, wide, w->q_up, beside,
                         cpu->q_rank ? cpu->q_rank : cpu->h, cpu->q);
    if (cpu->q_rank) {
        cpu->k->norm_backward(beside, w->q_norm, kept->inv_q, NULL,
                              kept->q_latent, kept->d_inner, t, cpu->q_rank);
        lhi_cpu_linear_dgrad(cpu, kept->q_latent, w->q_down, beside, cpu->h,
                             cpu->q_rank);
    }
    lhi_cpu_linear_dgrad(cpu, kept->kv_latent, w->kv_down, wide, cpu->h,
                         (uint32_t)latent);
    cpu->k->add(wide, beside, t * cpu->h);
}

void lhi_cpu_latents_wgrad(const lhi_cpu *cpu,
                           const lhi_cpu_saved_activations *kept,
                           const lhi_cpu_weights *d, bool adds)
{
    copy(kept->qkv, cpu->qkv, cpu->scratch, cpu->q, cpu->t, cpu->q);
    lhi_cpu_linear_wgrad(
        cpu, cpu->scratch, cpu->q_rank ? kept->q_normed : kept->norm1, d->q_up,
        NULL, cpu->q_rank ? cpu->q_rank : cpu->h, cpu->q, adds);
    copy(kept->qkv + cpu->q, cpu->qkv, cpu->scratch, get_kv_up_width(cpu),
         cpu->t, get_kv_up_width(cpu));
    lhi_cpu_linear_wgrad(cpu, cpu->scratch, kept->kv_normed, d->kv_up, NULL,
                         cpu->kv_rank, get_kv_up_width(cpu), adds);
    if (cpu->q_rank)
        lhi_cpu_linear_wgrad(cpu, kept->q_latent, kept->norm1, d->q_down, NULL,
                             cpu->h, cpu->q_rank, adds);
    lhi_cpu_linear_wgrad(cpu, kept->kv_latent, kept->norm1, d->kv_down, NULL,
                         cpu->h, cpu->kv_rank + cpu->rope_dim, adds);
}
