/* SPDX-License-Identifier: Apache-2.0 */
/* Computes time and memory in closed form (PipeMesh, section IV-A, equations 1
 * to 5). Partial communication is rounded up to 1 ns, memory to 1 byte. */
#include "elastic/elastic_own.h"

int64_t lhi_elastic_sharded(const lh_elastic_case *given)
{
    return given->sharded_ns > 0 ? given->sharded_ns : given->dp_ns;
}

int64_t lhi_elastic_part_ns(int64_t sharded_ns, int64_t share, int64_t params)
{
    if (params == 0)
        return 0;
    return (int64_t)lhi_wide_ceil((lhi_wide)sharded_ns * share, params);
}

int64_t lhi_elastic_whole_ns(int64_t at_once_ns, int64_t sharded_ns,
                             int64_t share, int64_t params)
{
    return at_once_ns +
           lhi_elastic_part_ns(sharded_ns - at_once_ns, share, params);
}

int64_t lhi_elastic_partial(const lh_elastic_case *given, int64_t share)
{
    return lhi_elastic_part_ns(lhi_elastic_sharded(given), share,
                               given->params);
}

int64_t lhi_elastic_first_last(const lh_elastic_case *given, int64_t share)
{
    return lhi_elastic_whole_ns(given->dp_ns, lhi_elastic_sharded(given), share,
                                given->params);
}

/* Returns the exposed time when `n` passes lasting `pass_ns` hide a
 * communication lasting `a_ns`. */
static int64_t beyond(int64_t a_ns, uint32_t n, int64_t pass_ns)
{
    lhi_wide rest = (lhi_wide)a_ns - (lhi_wide)n * pass_ns;
    return rest > 0 ? (int64_t)rest : 0;
}

lh_elastic_terms lh_elastic_exposed(const lh_elastic_case *given,
                                    const lh_elastic_plan *plan,
                                    int64_t backward_ns)
{
    const lh_elastic_case *g = given;
    int64_t b_ns = backward_ns > 0 ? backward_ns : g->b_ns;
    int64_t M = g->chunks, R = plan->n_enqueue, S = plan->n_dequeue;
    int64_t part_g = lhi_elastic_partial(g, plan->params_g);
    int64_t part_p = lhi_elastic_partial(g, plan->params_p);
    uint32_t last = plan->dequeue[plan->n_dequeue - 1];
    lh_elastic_terms t;
    int64_t gather = lhi_elastic_first_last(g, plan->params_p);
    int64_t scatter = lhi_elastic_first_last(g, plan->params_g);
    t.optimizer_ns = gather + scatter +
                     (M - 1) * (beyond(gather, plan->enqueue[0], g->f_ns) +
                                beyond(scatter, last, b_ns));
    t.gradients_ns = (S - 1) * M * beyond(part_g, plan->scatter_buckets, b_ns);
    t.forward_ns = (R - 1) * M * beyond(part_p, plan->forward_buckets, g->f_ns);
    t.backward_ns = (S * M - 1) * beyond(part_p, plan->backward_buckets, b_ns);
    t.sum_ns = t.optimizer_ns + t.gradients_ns + t.forward_ns + t.backward_ns;
    return t;
}

int64_t lh_elastic_time(const lh_elastic_case *given,
                        const lh_elastic_plan *plan, int64_t recompute_ns)
{
    int64_t passes =
        (int64_t)given->chunks * given->microbatches + given->stages - 1;
    return passes * (given->f_ns + given->b_ns + recompute_ns) +
           2 * (int64_t)(given->stages - 1) * given->pp_ns +
           lh_elastic_exposed(given, plan, 0).sum_ns;
}

lhi_wide lhi_elastic_divided(const lh_elastic_case *given, int64_t share)
{
    int64_t experts = given->expert_params, D = given->replicas;
    if (experts == 0 || given->expert_replicas == 0 || share == 0)
        return share;
    lhi_wide all =
        (lhi_wide)(given->params - experts) * given->expert_replicas +
        (lhi_wide)experts * D;
    /* share * all may exceed 127 bits, so divide first. */
    lhi_wide of = (lhi_wide)given->params * given->expert_replicas;
    return share * (all / of) + lhi_wide_ceil(share * (all % of), of);
}

/* Memory for the three states, as numerators over D M: 16-bit parameters and
 * gradients and 12 bytes of optimizer state by default. The 4/M term for
 * gradients is one chunk plus its buffer; the 8/M term for parameters is the
 * same for forward and backward. */
static lhi_wide optimizer_part(const lh_elastic_case *g)
{
    int64_t bytes = g->optimizer_bytes ? g->optimizer_bytes : 12;
    return bytes * lhi_elastic_divided(g, g->params) * g->chunks;
}

/* Returns the memory when `share` parameters are sharded. `bytes`: per
 * parameter, 0 means 2; `buffers`: unsharded chunk buffers. */
static lhi_wide sharded_part(const lh_elastic_case *g, int64_t share,
                             int64_t bytes, int64_t buffers)
{
    lhi_wide D = g->replicas, M = g->chunks;
    return (bytes ? bytes : 2) *
           ((lhi_wide)(g->params - share) * D * M +
            M * lhi_elastic_divided(g, share) + buffers * D * (lhi_wide)share);
}

static lhi_wide gradient_part(const lh_elastic_case *g,
                              const lh_elastic_plan *p)
{
    return sharded_part(g, p->params_g, g->gradient_bytes, 2);
}

static lhi_wide parameter_part(const lh_elastic_case *g,
                               const lh_elastic_plan *p)
{
    return sharded_part(g, p->params_p, g->weight_bytes, 4);
}

lhi_wide lhi_elastic_states(const lh_elastic_case *given,
                            const lh_elastic_plan *plan)
{
    return optimizer_part(given) + gradient_part(given, plan) +
           parameter_part(given, plan) +
           (lhi_wide)given->other_bytes * given->replicas * given->chunks;
}

lh_elastic_memory lh_elastic_memory_of(const lh_elastic_case *given,
                                       const lh_elastic_plan *plan,
                                       int64_t stored)
{
    lhi_wide unit = (lhi_wide)given->replicas * given->chunks;
    lhi_wide held = (lhi_wide)lh_elastic_passes(given, plan, 1) *
                    (stored + given->kept_bytes);
    lh_elastic_memory m;
    m.optimizer = (int64_t)lhi_wide_ceil(optimizer_part(given), unit);
    m.gradients = (int64_t)lhi_wide_ceil(gradient_part(given, plan), unit);
    m.parameters = (int64_t)lhi_wide_ceil(parameter_part(given, plan), unit);
    m.activations = (int64_t)held;
    m.sum = (int64_t)lhi_wide_ceil(
        lhi_elastic_states(given, plan) + held * unit, unit);
    return m;
}
