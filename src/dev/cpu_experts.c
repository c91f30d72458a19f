/* SPDX-License-Identifier: Apache-2.0 */
/* A mixture of experts: what those that the router has chosen (cpu_router.c)
 * make of a row is added, each times its share. Rows are put in the order of
 * experts, within an expert in their own, so that each expert has one product,
 * of as many rows as come to it. Shared experts (DeepSeekMoE: arXiv:2401.06066,
 * section 3.2) are one that all rows pass, behind the others' rows; its result
 * may be times a sigmoid of the row's product with a gate (Qwen2-MoE). */
#include "dev/cpu.h"

#include <string.h>

static size_t routed_rows(const lhi_cpu *cpu, const lhi_cpu_kept *kept)
{
    return (size_t)kept->first[cpu->experts];
}

/* Rows of x in the order of experts, in cpu->routed. */
static void gather(const lhi_cpu *cpu, const lhi_cpu_kept *kept, const float *x)
{
    size_t h = cpu->h, all = routed_rows(cpu, kept);
    for (size_t i = 0; i < all; i++)
        memcpy(cpu->routed + i * h, x + (size_t)kept->source[i] * h,
               h * sizeof *x);
}

static float *gate_up_of(const lhi_cpu *cpu, const lhi_cpu_weights *w,
                         uint32_t expert)
{
    return w->experts + (size_t)expert * 3 * cpu->expert_f * cpu->h;
}

static float *down_of(const lhi_cpu *cpu, const lhi_cpu_weights *w,
                      uint32_t expert)
{
    return gate_up_of(cpu, w, expert) + 2 * (size_t)cpu->expert_f * cpu->h;
}

static float *shared_down_of(const lhi_cpu *cpu, const lhi_cpu_weights *w)
{
    return w->shared + 2 * (size_t)cpu->shared_f * cpu->h;
}

/* Where the shared experts' rows begin. */
static float *shared_gate_up(const lhi_cpu *cpu, const lhi_cpu_kept *kept)
{
    return kept->gate_up + (size_t)cpu->t * cpu->chosen * 2 * cpu->expert_f;
}

static float *shared_act(const lhi_cpu *cpu, const lhi_cpu_kept *kept)
{
    return kept->act + (size_t)cpu->t * cpu->chosen * cpu->expert_f;
}

static uint32_t rows_of(const lhi_cpu_kept *kept, uint32_t expert)
{
    return (uint32_t)(kept->first[expert + 1] - kept->first[expert]);
}

void lhi_cpu_experts_up(const lhi_cpu *cpu, const lhi_cpu_weights *w,
                        lhi_cpu_kept *kept)
{
    uint32_t up = 2 * cpu->expert_f;
    lhi_cpu_route(cpu, w, kept);
    gather(cpu, kept, kept->norm2);
    for (uint32_t e = 0; e < cpu->experts; e++) {
        size_t at = (size_t)kept->first[e];
        if (rows_of(kept, e))
            lhi_cpu_forward_product(cpu, cpu->routed + at * cpu->h,
                                    gate_up_of(cpu, w, e),
                                    kept->gate_up + at * up, rows_of(kept, e),
                                    cpu->h, up, false);
    }
    if (!w->shared)
        return;
    lhi_cpu_forward_product(cpu, kept->norm2, w->shared,
                            shared_gate_up(cpu, kept), cpu->t, cpu->h,
                            2 * cpu->shared_f, false);
    if (!w->shared_gate)
        return;
    cpu->k->row_dots(kept->norm2, cpu->h, w->shared_gate, 0, cpu->t, cpu->h,
                     kept->gate);
    cpu->k->sigmoid(kept->gate, cpu->t);
}

void lhi_cpu_experts_act(const lhi_cpu *cpu, const lhi_cpu_weights *w,
                         lhi_cpu_kept *kept)
{
    cpu->k->swiglu(kept->gate_up, kept->act, routed_rows(cpu, kept),
                   cpu->expert_f);
    if (w->shared)
        cpu->k->swiglu(shared_gate_up(cpu, kept), shared_act(cpu, kept),
                       cpu->t, cpu->shared_f);
}

static void add_shared(const lhi_cpu *cpu, const lhi_cpu_weights *w,
                       const lhi_cpu_kept *kept, float *out)
{
    lhi_cpu_forward_product(cpu, shared_act(cpu, kept), shared_down_of(cpu, w),
                            cpu->wide, cpu->t, cpu->shared_f, cpu->h, false);
    if (w->shared_gate)
        cpu->k->scale_rows(cpu->wide, cpu->h, cpu->t, cpu->h, kept->gate);
    cpu->k->add(out, cpu->wide, (size_t)cpu->t * cpu->h);
}

/* to[row] += by * the row's `number`th of routed, if it is there. */
static void add_routed(const lhi_cpu *cpu, const lhi_cpu_kept *kept, size_t row,
                       uint32_t number, float by, float *to)
{
    int32_t at = kept->place[row * cpu->chosen + number];
    const float *x = cpu->routed + (size_t)(at < 0 ? 0 : at) * cpu->h;
    for (size_t i = 0; at >= 0 && i < cpu->h; i++)
        to[row * cpu->h + i] += by * x[i];
}

void lhi_cpu_experts_down(const lhi_cpu *cpu, const lhi_cpu_weights *w,
                          const lhi_cpu_kept *kept, float *out)
{
    size_t n = (size_t)cpu->t * cpu->h;
    lhi_drop at = {kept->sample, kept->layer, LHI_DROP_MLP};
    for (uint32_t e = 0; e < cpu->experts; e++) {
        size_t first = (size_t)kept->first[e];
        if (rows_of(kept, e))
            lhi_cpu_forward_product(cpu, kept->act + first * cpu->expert_f,
                                    down_of(cpu, w, e),
                                    cpu->routed + first * cpu->h,
                                    rows_of(kept, e), cpu->expert_f, cpu->h,
                                    false);
    }
    memset(out, 0, n * sizeof *out);
    for (size_t row = 0; row < cpu->t; row++)
        for (uint32_t j = 0; j < cpu->chosen; j++)
            add_routed(cpu, kept, row, j, kept->shares[row * cpu->chosen + j],
                       out);
    if (w->shared)
        add_shared(cpu, w, kept, out);
    lhi_cpu_drop_all(cpu, at, out);
    cpu->k->add(out, kept->mid, n);
}

/* Rows in the order of experts, each times its share. */
static void scale_by_shares(const lhi_cpu *cpu, const lhi_cpu_kept *kept,
                            float *x, size_t width)
{
    for (size_t i = 0; i < (size_t)cpu->t * cpu->chosen; i++)
        if (kept->place[i] >= 0)
            cpu->k->scale_rows(x + (size_t)kept->place[i] * width, width, 1,
                               width, &kept->shares[i]);
}

/* d times the row's share for each expert, in the order of experts. */
static void gather_shares(const lhi_cpu *cpu, const lhi_cpu_kept *kept,
                          const float *d)
{
    gather(cpu, kept, d);
    scale_by_shares(cpu, kept, cpu->routed, cpu->h);
}

/* Gradients of the shared experts' gate_up, and of their gate's logit. */
static void shared_back(const lhi_cpu *cpu, const lhi_cpu_weights *w,
                        lhi_cpu_kept *kept, const float *d)
{
    size_t f = cpu->shared_f;
    lhi_cpu_input_product(cpu, d, shared_down_of(cpu, w), cpu->wide, cpu->t,
                          cpu->shared_f, cpu->h);
    if (w->shared_gate) {
        cpu->k->row_dots(cpu->wide, f, shared_act(cpu, kept), f, cpu->t, f,
                         kept->d_gate);
        for (size_t i = 0; i < cpu->t; i++)
            kept->d_gate[i] *= kept->gate[i] * (1 - kept->gate[i]);
        cpu->k->scale_rows(cpu->wide, f, cpu->t, f, kept->gate);
    }
    cpu->k->swiglu_back(shared_gate_up(cpu, kept), cpu->wide, cpu->t, f);
}

/* What of that comes to norm2, on top of cpu->wide. */
static void add_shared_back(const lhi_cpu *cpu, const lhi_cpu_weights *w,
                            const lhi_cpu_kept *kept)
{
    size_t h = cpu->h;
    lhi_cpu_input_product(cpu, shared_gate_up(cpu, kept), w->shared,
                          cpu->routed, cpu->t, cpu->h, 2 * cpu->shared_f);
    cpu->k->add(cpu->wide, cpu->routed, cpu->t * h);
    for (size_t row = 0; w->shared_gate && row < cpu->t; row++)
        for (size_t i = 0; i < h; i++)
            cpu->wide[row * h + i] += kept->d_gate[row] * w->shared_gate[i];
}

void lhi_cpu_experts_back(lhi_cpu *cpu, const lhi_cpu_weights *w,
                          lhi_cpu_kept *kept, const float *d)
{
    size_t h = cpu->h, f = cpu->expert_f, all = routed_rows(cpu, kept);
    gather(cpu, kept, d);
    for (uint32_t e = 0; e < cpu->experts; e++) {
        size_t at = (size_t)kept->first[e];
        if (rows_of(kept, e))
            lhi_cpu_input_product(cpu, cpu->routed + at * h, down_of(cpu, w, e),
                                  cpu->wide + at * f, rows_of(kept, e),
                                  cpu->expert_f, cpu->h);
    }
    /* d W' act' is d (W act)': what an expert's result is worth. */
    cpu->k->row_dots(cpu->wide, f, kept->act, f, all, f, cpu->d_shares);
    scale_by_shares(cpu, kept, cpu->wide, f);
    cpu->k->swiglu_back(kept->gate_up, cpu->wide, all, f);
    lhi_cpu_route_back(cpu, kept);
    for (uint32_t e = 0; e < cpu->experts; e++) {
        size_t at = (size_t)kept->first[e];
        if (rows_of(kept, e))
            lhi_cpu_input_product(cpu, kept->gate_up + at * 2 * f,
                                  gate_up_of(cpu, w, e), cpu->routed + at * h,
                                  rows_of(kept, e), cpu->h, 2 * cpu->expert_f);
    }
    if (w->shared)
        shared_back(cpu, w, kept, d);
    lhi_cpu_input_product(cpu, kept->scores, w->router, cpu->wide,
                          cpu->t, cpu->h, cpu->experts);
    for (size_t row = 0; row < cpu->t; row++)
        for (uint32_t j = 0; j < cpu->chosen; j++)
            add_routed(cpu, kept, row, j, 1, cpu->wide);
    if (w->shared)
        add_shared_back(cpu, w, kept);
}

/* An expert that no row has chosen gets nothing. */
static void expert_weights(const lhi_cpu *cpu, const float *dy, const float *x,
                           float *dw, uint32_t rows, uint32_t in, uint32_t out,
                           bool adds)
{
    if (rows)
        lhi_cpu_weight_product(cpu, dy, x, dw, rows, in, out, adds);
    else if (!adds)
        memset(dw, 0, (size_t)in * out * sizeof *dw);
}

void lhi_cpu_experts_up_weights(const lhi_cpu *cpu, const lhi_cpu_kept *kept,
                                const lhi_cpu_weights *d_w, bool adds)
{
    uint32_t up = 2 * cpu->expert_f;
    lhi_cpu_route_weights(cpu, kept, d_w, adds);
    gather(cpu, kept, kept->norm2);
    for (uint32_t e = 0; e < cpu->experts; e++) {
        size_t at = (size_t)kept->first[e];
        expert_weights(cpu, kept->gate_up + at * up, cpu->routed + at * cpu->h,
                       gate_up_of(cpu, d_w, e), rows_of(kept, e), cpu->h, up,
                       adds);
    }
    if (d_w->shared)
        lhi_cpu_weight_product(cpu, shared_gate_up(cpu, kept), kept->norm2,
                               d_w->shared, cpu->t, cpu->h, 2 * cpu->shared_f,
                               adds);
    if (d_w->shared_gate)
        lhi_cpu_weight_product(cpu, kept->d_gate, kept->norm2, d_w->shared_gate,
                               cpu->t, cpu->h, 1, adds);
}

void lhi_cpu_experts_down_weights(const lhi_cpu *cpu, const lhi_cpu_kept *kept,
                                  const float *d, const lhi_cpu_weights *d_w,
                                  bool adds)
{
    gather_shares(cpu, kept, d);
    for (uint32_t e = 0; e < cpu->experts; e++) {
        size_t at = (size_t)kept->first[e];
        expert_weights(cpu, cpu->routed + at * cpu->h,
                       kept->act + at * cpu->expert_f, down_of(cpu, d_w, e),
                       rows_of(kept, e), cpu->expert_f, cpu->h, adds);
    }
    if (!d_w->shared)
        return;
    if (d_w->shared_gate) {
        memcpy(cpu->routed, d, (size_t)cpu->t * cpu->h * sizeof *d);
        cpu->k->scale_rows(cpu->routed, cpu->h, cpu->t, cpu->h, kept->gate);
        d = cpu->routed;
    }
    lhi_cpu_weight_product(cpu, d, shared_act(cpu, kept),
                           shared_down_of(cpu, d_w), cpu->t, cpu->shared_f,
                           cpu->h, adds);
}
