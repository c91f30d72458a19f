/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/device/cpu_mtp.h"
#include "runtime/device/cpu_product.h"
#include "runtime/device/cpu_tensor_parallel.h"

#include <string.h>

/* ---- memory ---- */

bool lhi_cpu_make_modules(const lhi_cpu *cpu, const lhi_cpu_chunk *chunk,
                          lhi_cpu_microbatch_state *slot)
{
    lhi_arena *mem = cpu->activations;
    size_t t = cpu->t, r = cpu->r, h = cpu->h;
    slot->modules = LHI_NEW(mem, lhi_cpu_mtp_activations, chunk->n_modules);
    bool ok = slot->modules != NULL;
    for (uint32_t k = 0; ok && k < chunk->n_modules; k++) {
        lhi_cpu_mtp_activations *m = &slot->modules[k];
        ok = (m->embedded = lhi_cpu_alloc_floats(mem, r, h)) &&
             (!lhi_cpu_has_sequence_parallel(cpu) ||
              (m->d_embedded = lhi_cpu_alloc_floats(mem, t, h))) &&
             (m->enormed = lhi_cpu_alloc_floats(mem, r, h)) &&
             (m->hnormed = lhi_cpu_alloc_floats(mem, r, h)) &&
             (m->einv = lhi_cpu_alloc_floats(mem, r, 1)) &&
             (m->hinv = lhi_cpu_alloc_floats(mem, r, 1)) &&
             (m->inv = lhi_cpu_alloc_floats(mem, r, 1)) &&
             (m->d_enorm = lhi_cpu_alloc_floats(mem, h, 1)) &&
             (m->d_hnorm = lhi_cpu_alloc_floats(mem, h, 1)) &&
             (m->d_norm = lhi_cpu_alloc_floats(mem, h, 1)) &&
             (m->normed = lhi_cpu_alloc_floats(mem, t, h)) &&
             (m->logits = lhi_cpu_alloc_floats(mem, t, cpu->v));
    }
    return ok;
}

/* ---- F and D ---- */

/* Multiplies a module's joined input (normed embedding and previous state) by
 * eh_proj into x. Each matrix row has the columns for the embedding, then those
 * for the state. */
static void join(const lhi_cpu *cpu, const float *w,
                 const lhi_cpu_mtp_activations *m, float *x)
{
    const int r = (int)cpu->r, h = (int)cpu->h;
    lhi_cpu_multiply(cpu, LHI_BLAS_PLAIN, LHI_BLAS_TRANSPOSED, r, h, h,
                     m->enormed, h, w, 2 * h, false, x, h);
    lhi_cpu_multiply(cpu, LHI_BLAS_PLAIN, LHI_BLAS_TRANSPOSED, r, h, h,
                     m->hnormed, h, w + h, 2 * h, true, x, h);
}

/* Computes the gradient of a module's embedding or state input into `out` from
 * dx; `w` points to that input's columns of eh_proj. */
static void join_dgrad(const lhi_cpu *cpu, const float *w, const float *dx,
                       float *out)
{
    const int r = (int)cpu->r, h = (int)cpu->h;
    lhi_cpu_multiply(cpu, LHI_BLAS_PLAIN, LHI_BLAS_PLAIN, r, h, h, dx, h, w,
                     2 * h, false, out, h);
}

/* Returns the embedding table that the modules use: the chunk's copy, or the
 * head's matrix if tied. */
static const float *get_embedding_table(const lhi_cpu_chunk *chunk)
{
    return chunk->embedding_copy ? chunk->embedding_copy : chunk->head;
}

/* Returns the state that module k reads: the head's normed input in the module
 * before or, for k = 0, in the model. */
static float *get_previous_state(const lhi_cpu *cpu,
                                 const lhi_cpu_microbatch_state *slot,
                                 uint32_t k)
{
    return lhi_cpu_own_rows(cpu,
                            k ? slot->modules[k - 1].normed : slot->normed);
}

/* Returns module k's input tokens: for each position the token k + 1 positions
 * later. */
static const int32_t *get_module_tokens(const lhi_cpu *cpu,
                                        const lhi_cpu_microbatch_state *slot,
                                        uint32_t k)
{
    return slot->targets + (size_t)k * cpu->t;
}

/* Returns module `k`'s dropout key in a microbatch; a module counts as a layer
 * after the model's last. */
static lhi_drop get_module_dropout(const lhi_cpu *cpu, uint32_t microbatch,
                                   uint32_t k)
{
    return (lhi_drop){lhi_cpu_first_sample(cpu, microbatch), cpu->layers + k,
                      LHI_DROP_EMBEDDING};
}

void lhi_cpu_mtp_join(lhi_cpu *cpu, const lhi_cpu_chunk *chunk,
                      const lhi_cpu_microbatch_state *slot, uint32_t microbatch,
                      uint32_t k)
{
    const uint32_t layer = chunk->n_layers + k;
    const lhi_cpu_weights *w = &chunk->weights[layer];
    lhi_cpu_mtp_activations *m = &slot->modules[k];
    lhi_cpu_embed(cpu, get_module_tokens(cpu, slot, k),
                  get_embedding_table(chunk), m->embedded);
    lhi_cpu_apply_dropout_rows(cpu, get_module_dropout(cpu, microbatch, k),
                               m->embedded);
    lhi_cpu_norm(cpu, m->embedded, w->enorm, m->enormed, m->einv);
    lhi_cpu_norm(cpu, get_previous_state(cpu, slot, k), w->hnorm, m->hnormed,
                 m->hinv);
    join(cpu, w->join, m, slot->x[lhi_cpu_input_index(chunk, layer)]);
}

double lhi_cpu_mtp_loss(lhi_cpu *cpu, const lhi_cpu_chunk *chunk,
                        const lhi_cpu_microbatch_state *slot, uint32_t k)
{
    const uint32_t layer = chunk->n_layers + k;
    const double share = LHI_MTP_LOSS_WEIGHT / chunk->n_modules;
    const lhi_cpu_mtp_activations *m = &slot->modules[k];
    return lhi_cpu_head_loss(
        cpu, chunk->weights[layer].module_norm, chunk->head,
        slot->x[lhi_cpu_input_index(chunk, layer) + 1], m->normed, m->inv,
        m->logits, get_module_tokens(cpu, slot, k + 1),
        (float)(share * (double)cpu->loss_scale));
}

void lhi_cpu_mtp_loss_backward(lhi_cpu *cpu, const lhi_cpu_chunk *chunk,
                               const lhi_cpu_microbatch_state *slot, uint32_t k)
{
    const uint32_t layer = chunk->n_layers + k;
    const lhi_cpu_mtp_activations *m = &slot->modules[k];
    lhi_cpu_head_loss_backward(
        cpu, chunk->weights[layer].module_norm, chunk->head, m->logits, m->inv,
        k + 1 < chunk->n_modules ? cpu->carried : NULL,
        slot->x[lhi_cpu_input_index(chunk, layer) + 1], m->d_norm);
}

void lhi_cpu_mtp_join_backward(lhi_cpu *cpu, const lhi_cpu_chunk *chunk,
                               const lhi_cpu_microbatch_state *slot,
                               uint32_t microbatch, uint32_t k)
{
    const uint32_t layer = chunk->n_layers + k;
    const lhi_cpu_weights *w = &chunk->weights[layer];
    const float *dx = slot->x[lhi_cpu_input_index(chunk, layer)];
    lhi_cpu_mtp_activations *m = &slot->modules[k];
    join_dgrad(cpu, w->join, dx, cpu->scratch);
    lhi_cpu_norm_backward(cpu, cpu->scratch, w->enorm, m->einv, NULL,
                          m->embedded, m->d_enorm);
    lhi_cpu_apply_dropout_rows(cpu, get_module_dropout(cpu, microbatch, k),
                               m->embedded);
    if (lhi_cpu_has_sequence_parallel(cpu))
        lhi_cpu_gather_rows(cpu, m->embedded, m->d_embedded);
    join_dgrad(cpu, w->join + cpu->h, dx, cpu->scratch);
    memcpy(cpu->carried, get_previous_state(cpu, slot, k),
           (size_t)cpu->r * cpu->h * sizeof *dx);
    lhi_cpu_norm_backward(cpu, cpu->scratch, w->hnorm, m->hinv, NULL,
                          cpu->carried, m->d_hnorm);
}

/* ---- W ---- */

/* Adds a norm's gradient, h values, to its sum; `adds` false: overwrites. */
static void add_norm(const lhi_cpu *cpu, float *to, const float *d, bool adds)
{
    if (adds)
        cpu->k->add(to, d, cpu->h);
    else
        memcpy(to, d, cpu->h * sizeof *d);
}

void lhi_cpu_mtp_join_wgrad(const lhi_cpu *cpu, const lhi_cpu_chunk *chunk,
                            const lhi_cpu_microbatch_state *slot,
                            uint32_t layer, bool adds)
{
    const int r = (int)cpu->r, h = (int)cpu->h;
    const lhi_cpu_mtp_activations *m = &slot->modules[layer - chunk->n_layers];
    const lhi_cpu_weights *d = &chunk->d_weights[layer];
    const float *dx = slot->x[lhi_cpu_input_index(chunk, layer)];
    add_norm(cpu, d->enorm, m->d_enorm, adds);
    add_norm(cpu, d->hnorm, m->d_hnorm, adds);
    add_norm(cpu, d->module_norm, m->d_norm, adds);
    for (int half = 0; half < 2; half++)
        lhi_cpu_multiply(cpu, LHI_BLAS_TRANSPOSED, LHI_BLAS_PLAIN, h, h, r, dx,
                         h, half ? m->hnormed : m->enormed, h, adds,
                         d->join + half * h, 2 * h);
}

void lhi_cpu_mtp_shared_wgrad(const lhi_cpu *cpu, const lhi_cpu_chunk *chunk,
                              const lhi_cpu_microbatch_state *slot, bool adds)
{
    float *d_table =
        chunk->embedding_copy ? chunk->d_embedding_copy : chunk->d_head;
    for (uint32_t k = 0; k < chunk->n_modules; k++)
        lhi_cpu_weight_product(cpu, slot->modules[k].logits,
                               slot->modules[k].normed, chunk->d_head, cpu->t,
                               cpu->h, cpu->v, true);
    if (chunk->embedding_copy && !adds)
        memset(d_table, 0, (size_t)cpu->v * cpu->h * sizeof *d_table);
    for (uint32_t k = 0; k < chunk->n_modules; k++) {
        const lhi_cpu_mtp_activations *m = &slot->modules[k];
        lhi_cpu_embed_wgrad(cpu, get_module_tokens(cpu, slot, k),
                            lhi_cpu_has_sequence_parallel(cpu) ? m->d_embedded
                                                               : m->embedded,
                            d_table);
    }
}
