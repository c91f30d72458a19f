/* SPDX-License-Identifier: Apache-2.0 */
/* D: from the gradient of a chunk's output to that of its input. All that W
 * needs stays behind. */
#include "base/fail.h"
#include "dev/cpu.h"

#include <string.h>

void lhi_cpu_input_product(const lhi_cpu *cpu, const float *dy, const float *w,
                           float *dx, uint32_t rows, uint32_t in, uint32_t out)
{
    cpu->sgemm(LHI_BLAS_ROWS, LHI_BLAS_PLAIN, LHI_BLAS_PLAIN, (int)rows,
               (int)in, (int)out, 1, dy, (int)out, w, (int)in, 0, dx, (int)in);
}

/* `d`: gradient of the layer's output; x becomes that of its input. */
static void layer_back(lhi_cpu *cpu, const lhi_cpu_weights *w, lhi_cpu_kept *a,
                       const float *d, float *x)
{
    uint32_t t = cpu->t, h = cpu->h;
    float *wide = cpu->wide;
    lhi_cpu_input_product(cpu, d, w->down, wide, t, cpu->f, h);
    cpu->k->swiglu_back(a->gate_up, wide, t, cpu->f);
    lhi_cpu_input_product(cpu, a->gate_up, w->gate_up, wide, t, h, 2 * cpu->f);
    cpu->k->norm_back(wide, w->norm2, a->inv2, d, a->mid, a->d_norm2, t, h);
    lhi_cpu_input_product(cpu, a->mid, w->out, wide, t, cpu->q, h);
    lhi_cpu_attend_back(cpu, a, wide);
    lhi_cpu_input_product(cpu, a->qkv, w->qkv, wide, t, h,
                          cpu->q + 2 * cpu->kv);
    cpu->k->norm_back(wide, w->norm1, a->inv1, a->mid, x, a->d_norm1, t, h);
}

lh_status lhi_cpu_d(lhi_cpu *cpu, lhi_cpu_chunk *chunk, uint32_t microbatch,
                    bool joint, const float *in, float *out, lh_error *err)
{
    lhi_cpu_slot *slot = chunk->slots[microbatch];
    uint32_t n = chunk->n_layers;
    size_t bytes = (size_t)cpu->t * cpu->h * sizeof *in;
    if (!slot || slot->is_back)
        return lhi_fail(err, LH_EINVAL,
                        "D of chunk %u, microbatch %u, comes %s", chunk->chunk,
                        microbatch, slot ? "twice" : "before its F");
    if (chunk->is_last) {
        lhi_cpu_input_product(cpu, slot->logits, chunk->head, cpu->wide, cpu->t,
                              cpu->h, cpu->v);
        cpu->k->norm_back(cpu->wide, chunk->norm, slot->inv, NULL, slot->x[n],
                          slot->d_norm, cpu->t, cpu->h);
    } else {
        memcpy(slot->x[n], in, bytes);
    }
    for (uint32_t i = n; i-- > 0;) {
        lhi_cpu_kept *kept = &slot->layers[i];
        if (!lhi_cpu_attach(cpu, kept, chunk->again[i]))
            return lhi_fail_nomem(err);
        lhi_cpu_make_again(cpu, &chunk->weights[i], kept, slot->x[i],
                           chunk->again[i]);
        layer_back(cpu, &chunk->weights[i], kept, slot->x[i + 1], slot->x[i]);
        if (joint && i > 0)
            lhi_cpu_ask_layer(cpu, chunk, i, microbatch);
    }
    if (!chunk->is_first)
        memcpy(out, slot->x[0], bytes);
    slot->is_back = true;
    return LH_OK;
}
