/* SPDX-License-Identifier: Apache-2.0 */
/* Computes time and memory in closed form (PipeMesh, section IV-A, equations 1
 * to 5). Partial communication is rounded up to 1 ns, memory to 1 byte. */
#include "schedule/elastic/elastic.h"
#include "schedule/elastic/elastic_internal.h"

int64_t lhi_elastic_get_sharded_ns(const lh_elastic_case *given)
{
    return given->sharded_ns > 0 ? given->sharded_ns : given->dp_ns;
}

int64_t lhi_elastic_compute_part_ns(int64_t sharded_ns, int64_t share,
                                    int64_t params)
{
    if (params == 0)
        return 0;
    return (int64_t)lhi_int128_divide_ceil((lhi_int128)sharded_ns * share,
                                           params);
}

int64_t lhi_elastic_compute_chunk_ns(int64_t at_once_ns, int64_t sharded_ns,
                                     int64_t share, int64_t params)
{
    return at_once_ns +
           lhi_elastic_compute_part_ns(sharded_ns - at_once_ns, share, params);
}

int64_t lhi_elastic_compute_partial_ns(const lh_elastic_case *given,
                                       int64_t share)
{
    return lhi_elastic_compute_part_ns(lhi_elastic_get_sharded_ns(given), share,
                                       given->params);
}

int64_t lhi_elastic_compute_first_last_ns(const lh_elastic_case *given,
                                          int64_t share)
{
    return lhi_elastic_compute_chunk_ns(
        given->dp_ns, lhi_elastic_get_sharded_ns(given), share, given->params);
}

/* Returns the part in ns of a communication of a_ns that `n` passes of pass_ns
 * each, which run at the same time, leave exposed; at least 0. */
static int64_t compute_exposed(int64_t a_ns, uint32_t n, int64_t pass_ns)
{
    lhi_int128 rest = (lhi_int128)a_ns - (lhi_int128)n * pass_ns;
    return rest > 0 ? (int64_t)rest : 0;
}

lh_elastic_terms lh_elastic_exposed_communication(const lh_elastic_case *given,
                                                  const lh_elastic_plan *plan,
                                                  int64_t backward_ns)
{
    const lh_elastic_case *g = given;
    int64_t b_ns = backward_ns > 0 ? backward_ns : g->b_ns;
    int64_t M = g->chunks, R = plan->n_enqueue, S = plan->n_dequeue;
    int64_t part_g = lhi_elastic_compute_partial_ns(g, plan->params_g);
    int64_t part_p = lhi_elastic_compute_partial_ns(g, plan->params_p);
    uint32_t last = plan->dequeue[plan->n_dequeue - 1];
    lh_elastic_terms t;
    int64_t gather = lhi_elastic_compute_first_last_ns(g, plan->params_p);
    int64_t scatter = lhi_elastic_compute_first_last_ns(g, plan->params_g);
    t.optimizer_ns =
        gather + scatter +
        (M - 1) * (compute_exposed(gather, plan->enqueue[0], g->f_ns) +
                   compute_exposed(scatter, last, b_ns));
    t.gradients_ns =
        (S - 1) * M * compute_exposed(part_g, plan->scatter_buckets, b_ns);
    t.forward_ns =
        (R - 1) * M * compute_exposed(part_p, plan->forward_buckets, g->f_ns);
    t.backward_ns =
        (S * M - 1) * compute_exposed(part_p, plan->backward_buckets, b_ns);
    t.sum_ns = t.optimizer_ns + t.gradients_ns + t.forward_ns + t.backward_ns;
    return t;
}

int64_t lhi_elastic_iteration_ns(const lh_elastic_case *given,
                                 const lh_elastic_plan *plan,
                                 int64_t recompute_ns)
{
    int64_t passes =
        (int64_t)given->chunks * given->microbatches + given->stages - 1;
    return passes * (given->f_ns + given->b_ns + recompute_ns) +
           2 * (int64_t)(given->stages - 1) * given->pp_ns +
           lh_elastic_exposed_communication(given, plan, 0).sum_ns;
}

lhi_int128 lhi_elastic_compute_resident_params(const lh_elastic_case *given,
                                               int64_t share)
{
    int64_t experts = given->expert_params, D = given->replicas;
    if (experts == 0 || given->expert_replicas == 0 || share == 0)
        return share;
    lhi_int128 all =
        (lhi_int128)(given->params - experts) * given->expert_replicas +
        (lhi_int128)experts * D;
    /* share * all may exceed 127 bits, so divide first. */
    lhi_int128 of = (lhi_int128)given->params * given->expert_replicas;
    return share * (all / of) + lhi_int128_divide_ceil(share * (all % of), of);
}

/* Returns the optimizer state's memory in bytes, by default 12 bytes per
 * parameter, as an integer numerator over D M (replicas times chunks). */
static lhi_int128 compute_optimizer_memory(const lh_elastic_case *g)
{
    int64_t bytes = g->optimizer_bytes ? g->optimizer_bytes : 12;
    return bytes * lhi_elastic_compute_resident_params(g, g->params) *
           g->chunks;
}

/* Returns the memory in bytes when `share` parameters in a chunk are sharded,
 * as a numerator over D M (replicas x chunks). `bytes`: per parameter, 0 means
 * 2; `buffers`: buffer count, each as large as an unsharded chunk. */
static lhi_int128 compute_sharded_memory(const lh_elastic_case *g,
                                         int64_t share, int64_t bytes,
                                         int64_t buffers)
{
    lhi_int128 D = g->replicas, M = g->chunks;
    return (bytes ? bytes : 2) *
           ((lhi_int128)(g->params - share) * D * M +
            M * lhi_elastic_compute_resident_params(g, share) +
            buffers * D * (lhi_int128)share);
}

/* Returns the gradients' memory in bytes as a numerator over D M (replicas
 * times chunks): the shard, and one unsharded chunk with its buffer. */
static lhi_int128 compute_gradient_memory(const lh_elastic_case *g,
                                          const lh_elastic_plan *p)
{
    return compute_sharded_memory(g, p->params_g, g->gradient_bytes, 2);
}

/* Returns the parameters' memory in bytes as a numerator over D M (replicas
 * times chunks): the shard, and one unsharded chunk with its buffer each for
 * forward and backward. */
static lhi_int128 compute_parameter_memory(const lh_elastic_case *g,
                                           const lh_elastic_plan *p)
{
    return compute_sharded_memory(g, p->params_p, g->weight_bytes, 4);
}

lhi_int128 lhi_elastic_compute_states(const lh_elastic_case *given,
                                      const lh_elastic_plan *plan)
{
    return compute_optimizer_memory(given) +
           compute_gradient_memory(given, plan) +
           compute_parameter_memory(given, plan) +
           (lhi_int128)given->other_bytes * given->replicas * given->chunks;
}

lh_elastic_memory lh_elastic_peak_memory(const lh_elastic_case *given,
                                         const lh_elastic_plan *plan,
                                         int64_t stored)
{
    lhi_int128 unit = (lhi_int128)given->replicas * given->chunks;
    lhi_int128 held = (lhi_int128)lh_elastic_resident_passes(given, plan, 1) *
                      (stored + given->base_bytes);
    lh_elastic_memory m;
    m.optimizer =
        (int64_t)lhi_int128_divide_ceil(compute_optimizer_memory(given), unit);
    m.gradients = (int64_t)lhi_int128_divide_ceil(
        compute_gradient_memory(given, plan), unit);
    m.parameters = (int64_t)lhi_int128_divide_ceil(
        compute_parameter_memory(given, plan), unit);
    m.activations = (int64_t)held;
    m.sum = (int64_t)lhi_int128_divide_ceil(
        lhi_elastic_compute_states(given, plan) + held * unit, unit);
    return m;
}
