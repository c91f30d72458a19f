/* SPDX-License-Identifier: Apache-2.0 */
/* A mixture of experts (Mixtral: arXiv:2401.04088, section 2.1). A router's
 * softmax says for each row how likely each expert is; the likeliest ones make
 * something of it, and their results are added, each times its part of their
 * common probability. No row is dropped: rows are put in the order of experts,
 * within an expert in their own, so that each expert has one product, of as
 * many rows as chose it.
 *
 * A part of the loss keeps experts in use (Switch Transformers:
 * arXiv:2101.03961, equation 4), sequence by sequence (DeepSeek-V2:
 * arXiv:2405.04434, section 2.1.4), so that it does not depend on what shares a
 * microbatch: balance * experts * sum over experts of its share of the choices
 * times its mean probability. */
#include "dev/cpu.h"

#include <string.h>

bool lhi_cpu_make_routes(const lhi_cpu *cpu, lhi_arena *mem, lhi_cpu_kept *kept)
{
    size_t t = cpu->t, all = t * cpu->chosen;
    return (kept->probabilities = lhi_cpu_floats(mem, t, cpu->experts)) &&
           (kept->shares = lhi_cpu_floats(mem, t, cpu->chosen)) &&
           (kept->chosen = LHI_NEW(mem, int32_t, all)) &&
           (kept->place = LHI_NEW(mem, int32_t, all)) &&
           (kept->source = LHI_NEW(mem, int32_t, all)) &&
           (kept->first = LHI_NEW(mem, int32_t, cpu->experts + 1));
}

/* The likeliest experts of a row, of equal ones the first; their shares. */
static void choose(const lhi_cpu *cpu, const float *p, int32_t *chosen,
                   float *shares)
{
    float all = 0;
    for (uint32_t j = 0; j < cpu->chosen; j++) {
        uint32_t best = UINT32_MAX;
        for (uint32_t e = 0; e < cpu->experts; e++) {
            bool taken = false;
            for (uint32_t i = 0; i < j; i++)
                taken = taken || chosen[i] == (int32_t)e;
            if (!taken && (best == UINT32_MAX || p[e] > p[best]))
                best = e;
        }
        chosen[j] = (int32_t)best;
        shares[j] = p[best];
        all += p[best];
    }
    for (uint32_t j = 0; j < cpu->chosen; j++)
        shares[j] /= all;
}

/* Where the choices lie, expert by expert. */
static void put_in_order(const lhi_cpu *cpu, lhi_cpu_kept *kept)
{
    size_t all = (size_t)cpu->t * cpu->chosen;
    int32_t *first = kept->first;
    memset(first, 0, (cpu->experts + 1) * sizeof *first);
    for (size_t i = 0; i < all; i++)
        first[kept->chosen[i] + 1]++;
    for (uint32_t e = 0; e < cpu->experts; e++)
        first[e + 1] += first[e];
    for (size_t i = 0; i < all; i++) {
        int32_t at = first[kept->chosen[i]]++;
        kept->place[i] = at;
        kept->source[at] = (int32_t)(i / cpu->chosen);
    }
    for (uint32_t e = cpu->experts; e > 0; e--)
        first[e] = first[e - 1];
    first[0] = 0;
}

static void route(const lhi_cpu *cpu, const lhi_cpu_weights *w,
                  lhi_cpu_kept *kept)
{
    size_t n = cpu->experts;
    float max, inv;
    lhi_cpu_forward_product(cpu, kept->norm2, w->router, kept->probabilities,
                            cpu->t, cpu->h, cpu->experts, false);
    for (size_t row = 0; row < cpu->t; row++) {
        float *p = kept->probabilities + row * n;
        cpu->k->softmax(p, n, 1, n, n, 1, &max, &inv);
        cpu->k->scale_rows(p, n, 1, n, &inv);
        choose(cpu, p, kept->chosen + row * cpu->chosen,
               kept->shares + row * cpu->chosen);
    }
    put_in_order(cpu, kept);
}

/* Rows of x in the order of experts, in cpu->routed. */
static void gather(const lhi_cpu *cpu, const lhi_cpu_kept *kept, const float *x)
{
    size_t h = cpu->h, all = (size_t)cpu->t * cpu->chosen;
    for (size_t i = 0; i < all; i++)
        memcpy(cpu->routed + i * h, x + (size_t)kept->source[i] * h,
               h * sizeof *x);
}

static float *gate_up_of(const lhi_cpu *cpu, const lhi_cpu_weights *w,
                         uint32_t expert)
{
    return w->experts + (size_t)expert * 3 * cpu->f * cpu->h;
}

static float *down_of(const lhi_cpu *cpu, const lhi_cpu_weights *w,
                      uint32_t expert)
{
    return gate_up_of(cpu, w, expert) + 2 * (size_t)cpu->f * cpu->h;
}

static uint32_t rows_of(const lhi_cpu_kept *kept, uint32_t expert)
{
    return (uint32_t)(kept->first[expert + 1] - kept->first[expert]);
}

void lhi_cpu_experts_up(const lhi_cpu *cpu, const lhi_cpu_weights *w,
                        lhi_cpu_kept *kept)
{
    route(cpu, w, kept);
    gather(cpu, kept, kept->norm2);
    for (uint32_t e = 0; e < cpu->experts; e++) {
        size_t at = (size_t)kept->first[e];
        if (rows_of(kept, e))
            lhi_cpu_forward_product(cpu, cpu->routed + at * cpu->h,
                                    gate_up_of(cpu, w, e),
                                    kept->gate_up + at * cpu->up,
                                    rows_of(kept, e), cpu->h, cpu->up, false);
    }
}

/* to[row] += by * the row's `number`th of routed. */
static void add_routed(const lhi_cpu *cpu, const lhi_cpu_kept *kept, size_t row,
                       uint32_t number, float by, float *to)
{
    int32_t at = kept->place[row * cpu->chosen + number];
    const float *x = cpu->routed + (size_t)at * cpu->h;
    for (size_t i = 0; i < cpu->h; i++)
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
            lhi_cpu_forward_product(cpu, kept->act + first * cpu->f,
                                    down_of(cpu, w, e),
                                    cpu->routed + first * cpu->h,
                                    rows_of(kept, e), cpu->f, cpu->h, false);
    }
    memset(out, 0, n * sizeof *out);
    for (size_t row = 0; row < cpu->t; row++)
        for (uint32_t j = 0; j < cpu->chosen; j++)
            add_routed(cpu, kept, row, j, kept->shares[row * cpu->chosen + j],
                       out);
    lhi_cpu_drop_all(cpu, at, out);
    cpu->k->add(out, kept->mid, n);
}

/* Of one sequence, what the balancing part of the loss adds to the gradient of
 * each probability of `expert`. */
static float balance_of(const lhi_cpu *cpu, const lhi_cpu_kept *kept,
                        uint32_t sequence, uint32_t expert)
{
    size_t n = (size_t)cpu->sequence * cpu->chosen;
    const int32_t *chosen = kept->chosen + sequence * n;
    uint32_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += chosen[i] == (int32_t)expert;
    return cpu->balance * (float)cpu->experts * (float)count / (float)n *
           cpu->loss_scale;
}

/* Probabilities become gradients of the logits: from those of the shares, by
 * the chosen ones' sum, then by the softmax. `balance` [experts]. */
static void route_back(const lhi_cpu *cpu, lhi_cpu_kept *kept, size_t row,
                       const float *balance)
{
    float *p = kept->probabilities + row * cpu->experts, all = 0, dot = 0;
    const float *shares = kept->shares + row * cpu->chosen;
    const int32_t *chosen = kept->chosen + row * cpu->chosen;
    const int32_t *place = kept->place + row * cpu->chosen;
    float *d = cpu->d_experts;
    for (uint32_t j = 0; j < cpu->chosen; j++) {
        all += p[chosen[j]];
        dot += cpu->d_shares[place[j]] * shares[j];
    }
    memcpy(d, balance, cpu->experts * sizeof *d);
    for (uint32_t j = 0; j < cpu->chosen; j++)
        d[chosen[j]] += (cpu->d_shares[place[j]] - dot) / all;
    float mean = 0;
    for (uint32_t e = 0; e < cpu->experts; e++)
        mean += p[e] * d[e];
    for (uint32_t e = 0; e < cpu->experts; e++)
        p[e] *= d[e] - mean;
}

static void all_routes_back(const lhi_cpu *cpu, lhi_cpu_kept *kept)
{
    float *balance = cpu->d_experts + cpu->experts;
    for (uint32_t i = 0; i < cpu->microbatch; i++) {
        for (uint32_t e = 0; e < cpu->experts; e++)
            balance[e] = balance_of(cpu, kept, i, e);
        for (uint32_t k = 0; k < cpu->sequence; k++)
            route_back(cpu, kept, (size_t)i * cpu->sequence + k, balance);
    }
}

/* d times the row's share for each expert, in the order of experts. */
static void gather_shares(const lhi_cpu *cpu, const lhi_cpu_kept *kept,
                          const float *d)
{
    gather(cpu, kept, d);
    for (size_t i = 0; i < (size_t)cpu->t * cpu->chosen; i++)
        cpu->k->scale_rows(cpu->routed + (size_t)kept->place[i] * cpu->h,
                           cpu->h, 1, cpu->h, &kept->shares[i]);
}

void lhi_cpu_experts_back(const lhi_cpu *cpu, const lhi_cpu_weights *w,
                          lhi_cpu_kept *kept, const float *d)
{
    size_t h = cpu->h, f = cpu->f, all = (size_t)cpu->t * cpu->chosen;
    gather(cpu, kept, d);
    for (uint32_t e = 0; e < cpu->experts; e++) {
        size_t at = (size_t)kept->first[e];
        if (rows_of(kept, e))
            lhi_cpu_input_product(cpu, cpu->routed + at * h, down_of(cpu, w, e),
                                  cpu->wide + at * f, rows_of(kept, e), cpu->f,
                                  cpu->h);
    }
    /* d W' act' is d (W act)': what an expert's result is worth. */
    cpu->k->row_dots(cpu->wide, f, kept->act, f, all, f, cpu->d_shares);
    for (size_t i = 0; i < all; i++)
        cpu->k->scale_rows(cpu->wide + (size_t)kept->place[i] * f, f, 1, f,
                           &kept->shares[i]);
    cpu->k->swiglu_back(kept->gate_up, cpu->wide, all, f);
    all_routes_back(cpu, kept);
    for (uint32_t e = 0; e < cpu->experts; e++) {
        size_t at = (size_t)kept->first[e];
        if (rows_of(kept, e))
            lhi_cpu_input_product(cpu, kept->gate_up + at * cpu->up,
                                  gate_up_of(cpu, w, e), cpu->routed + at * h,
                                  rows_of(kept, e), cpu->h, cpu->up);
    }
    lhi_cpu_input_product(cpu, kept->probabilities, w->router, cpu->wide,
                          cpu->t, cpu->h, cpu->experts);
    for (size_t row = 0; row < cpu->t; row++)
        for (uint32_t j = 0; j < cpu->chosen; j++)
            add_routed(cpu, kept, row, j, 1, cpu->wide);
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
    lhi_cpu_weight_product(cpu, kept->probabilities, kept->norm2, d_w->router,
                           cpu->t, cpu->h, cpu->experts, adds);
    gather(cpu, kept, kept->norm2);
    for (uint32_t e = 0; e < cpu->experts; e++) {
        size_t at = (size_t)kept->first[e];
        expert_weights(cpu, kept->gate_up + at * cpu->up,
                       cpu->routed + at * cpu->h, gate_up_of(cpu, d_w, e),
                       rows_of(kept, e), cpu->h, cpu->up, adds);
    }
}

void lhi_cpu_experts_down_weights(const lhi_cpu *cpu, const lhi_cpu_kept *kept,
                                  const float *d, const lhi_cpu_weights *d_w,
                                  bool adds)
{
    gather_shares(cpu, kept, d);
    for (uint32_t e = 0; e < cpu->experts; e++) {
        size_t at = (size_t)kept->first[e];
        expert_weights(cpu, cpu->routed + at * cpu->h, kept->act + at * cpu->f,
                       down_of(cpu, d_w, e), rows_of(kept, e), cpu->f, cpu->h,
                       adds);
    }
}
