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

void lhi_cpu_residual(const lhi_cpu *cpu, const lhi_cpu_kept *kept,
                      lhi_drop_site site, const float *residual, const float *x,
                      const float *w, const float *bias, uint32_t in,
                      float *out)
{
    size_t n = (size_t)cpu->t * cpu->h;
    bool drops = lhi_cpu_drops(cpu);
    if (!drops)
        memcpy(out, residual, n * sizeof *out);
    lhi_cpu_linear(cpu, x, w, bias, out, in, cpu->h, !drops);
    if (drops) {
        lhi_cpu_drop_all(cpu, (lhi_drop){kept->sample, kept->layer, site}, out);
        cpu->k->add(out, residual, n);
    }
}

void lhi_cpu_make_again(lhi_cpu *cpu, const lhi_cpu_weights *w,
                        lhi_cpu_kept *kept, const float *x, uint32_t again)
{
    uint32_t h = cpu->h;
    if (has(again, LH_PART_ATTENTION_NORM))
        lhi_cpu_norm(cpu, x, w->norm1, kept->norm1, kept->inv1);
    if (has(again, LH_PART_QKV)) {
        lhi_cpu_linear(cpu, kept->norm1, w->qkv, w->qkv_bias, kept->qkv, h,
                       cpu->q + 2 * cpu->kv, false);
        lhi_cpu_turn(cpu, kept);
    }
    if (has(again, LH_PART_ATTENTION))
        lhi_cpu_attend(cpu, kept);
    if (has(again, LH_PART_ATTENTION_OUTPUT))
        lhi_cpu_residual(cpu, kept, LHI_DROP_ATTENTION, x, kept->attended,
                         w->out, w->out_bias, cpu->q, kept->mid);
    if (has(again, LH_PART_MLP_NORM))
        lhi_cpu_norm(cpu, kept->mid, w->norm2, kept->norm2, kept->inv2);
    if (has(again, LH_PART_GATE_UP) && cpu->experts)
        lhi_cpu_experts_up(cpu, w, kept);
    else if (has(again, LH_PART_GATE_UP))
        lhi_cpu_linear(cpu, kept->norm2, w->gate_up, w->gate_up_bias,
                       kept->gate_up, h, cpu->up, false);
    if (has(again, LH_PART_ACTIVATION) && cpu->gated)
        cpu->k->swiglu(kept->gate_up, kept->act, (size_t)cpu->t * cpu->chosen,
                       cpu->f);
    else if (has(again, LH_PART_ACTIVATION))
        cpu->k->gelu(kept->gate_up, kept->act, (size_t)cpu->t * cpu->f);
}
