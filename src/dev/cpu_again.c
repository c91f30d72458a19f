/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a layer that F does not keep: D makes them again, by the same calls
 * on the same operands, so that every bit is the same. Their room goes from
 * layer to layer: F has it while it runs, D until the layer's W is done. */
#include "dev/cpu.h"

#include <string.h>

static bool has(uint32_t again, lh_layer_part part)
{
    return again >> part & 1;
}

static float **place_of(lhi_cpu_kept *kept, lh_layer_part part)
{
    float **const places[LH_N_LAYER_PARTS] = {
        [LH_PART_ATTENTION_NORM] = &kept->norm1,
        [LH_PART_QKV] = &kept->qkv,
        [LH_PART_ATTENTION] = &kept->attended,
        [LH_PART_ATTENTION_OUTPUT] = &kept->mid,
        [LH_PART_MLP_NORM] = &kept->norm2,
        [LH_PART_GATE_UP] = &kept->gate_up,
        [LH_PART_ACTIVATION] = &kept->act,
    };
    return places[part];
}

static float *make_room(const lhi_cpu *cpu, lh_layer_part part, lhi_arena *in)
{
    return lhi_cpu_floats(in, cpu->t, lhi_cpu_columns(cpu, part));
}

/* Spare ones are a list: each begins with the address of the next. */
static float *take_room(lhi_cpu *cpu, lh_layer_part part)
{
    float *room = cpu->spare[part];
    if (!room)
        return make_room(cpu, part, cpu->mem);
    memcpy(&cpu->spare[part], (const void *)room, sizeof(float *));
    return room;
}

void lhi_cpu_forward_product(const lhi_cpu *cpu, const float *x, const float *w,
                             float *y, uint32_t rows, uint32_t in, uint32_t out,
                             bool adds)
{
    cpu->sgemm(LHI_BLAS_ROWS, LHI_BLAS_PLAIN, LHI_BLAS_TRANSPOSED, (int)rows,
               (int)out, (int)in, 1, x, (int)in, w, (int)in, adds ? 1 : 0, y,
               (int)out);
}

static bool attach(lhi_cpu *cpu, lhi_cpu_kept *kept, uint32_t again,
                   bool for_good)
{
    for (uint32_t i = 0; i < LH_N_LAYER_PARTS; i++) {
        if (!has(again, (lh_layer_part)i))
            continue;
        float *room = for_good
                          ? make_room(cpu, (lh_layer_part)i, cpu->activations)
                          : take_room(cpu, (lh_layer_part)i);
        if (!room)
            return false;
        *place_of(kept, (lh_layer_part)i) = room;
    }
    if (has(again, LH_PART_ATTENTION)) {
        kept->max = kept->attended + (size_t)cpu->t * cpu->q;
        kept->inv = kept->max + (size_t)cpu->t * cpu->heads;
    }
    return true;
}

bool lhi_cpu_attach(lhi_cpu *cpu, lhi_cpu_kept *kept, uint32_t again)
{
    return attach(cpu, kept, again, false);
}

bool lhi_cpu_attach_kept(lhi_cpu *cpu, lhi_cpu_kept *kept, uint32_t parts)
{
    return attach(cpu, kept, parts, true);
}

void lhi_cpu_detach(lhi_cpu *cpu, lhi_cpu_kept *kept, uint32_t again)
{
    for (uint32_t i = 0; i < LH_N_LAYER_PARTS; i++) {
        float **place = place_of(kept, (lh_layer_part)i);
        if (!has(again, (lh_layer_part)i) || !*place)
            continue;
        memcpy((void *)*place, &cpu->spare[i], sizeof(float *));
        cpu->spare[i] = *place;
        *place = NULL;
    }
}

void lhi_cpu_make_again(lhi_cpu *cpu, const lhi_cpu_weights *w,
                        lhi_cpu_kept *kept, const float *x, uint32_t again)
{
    uint32_t t = cpu->t, h = cpu->h;
    if (has(again, LH_PART_ATTENTION_NORM))
        cpu->k->norm(x, w->norm1, kept->norm1, kept->inv1, t, h, cpu->epsilon);
    if (has(again, LH_PART_QKV)) {
        lhi_cpu_forward_product(cpu, kept->norm1, w->qkv, kept->qkv, t, h,
                                cpu->q + 2 * cpu->kv, false);
        lhi_cpu_turn(cpu, kept);
    }
    if (has(again, LH_PART_ATTENTION))
        lhi_cpu_attend(cpu, kept);
    if (has(again, LH_PART_ATTENTION_OUTPUT)) {
        memcpy(kept->mid, x, (size_t)t * h * sizeof *x);
        lhi_cpu_forward_product(cpu, kept->attended, w->out, kept->mid, t,
                                cpu->q, h, true);
    }
    if (has(again, LH_PART_MLP_NORM))
        cpu->k->norm(kept->mid, w->norm2, kept->norm2, kept->inv2, t, h,
                     cpu->epsilon);
    if (has(again, LH_PART_GATE_UP))
        lhi_cpu_forward_product(cpu, kept->norm2, w->gate_up, kept->gate_up, t,
                                h, 2 * cpu->f, false);
    if (has(again, LH_PART_ACTIVATION))
        cpu->k->swiglu(kept->gate_up, kept->act, t, cpu->f);
}
