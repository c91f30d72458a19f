/* SPDX-License-Identifier: Apache-2.0 */
/* Method "elastic": PipeMesh's schedule (Li et al., IEEE TPDS 2025).
 * Microbatches run forward in groups, chunk by chunk, and backward in separate
 * groups. Larger first and last groups hide more data-parallel communication
 * behind passes on another chunk. */
#include "schedule/elastic/elastic.h"
#include "schedule/methods/sched.h"

#include <inttypes.h>
#include <longhaul/experimental/elastic.h>
#include <stdlib.h>

/* Converts the pipeline to the closed formulas' input for elastic plans: equal
 * chunks like chunk 0, with the slowest data-parallel communication of any
 * chunk, nothing sharded. */
static lh_elastic_case describe_pipeline(const lh_pipeline *p)
{
    const lh_chunk *c = &p->chunks[0];
    int64_t b_ns = c->d_ns + c->w_ns;
    lh_elastic_case g = {.stages = p->n_devices,
                         .replicas = 1,
                         .chunks = p->n_chunks / p->n_devices,
                         .microbatches = p->n_microbatches,
                         .f_ns = c->f_ns > 0 ? c->f_ns : 1,
                         .b_ns = b_ns > 0 ? b_ns : 1};
    for (uint32_t i = 0; i < p->n_chunks; i++) {
        const lh_chunk *k = &p->chunks[i];
        g.dp_ns = k->all_gather_ns > g.dp_ns ? k->all_gather_ns : g.dp_ns;
        g.dp_ns =
            k->reduce_scatter_ns > g.dp_ns ? k->reduce_scatter_ns : g.dp_ns;
    }
    return g;
}

/* Writes the pass order on every device under an elastic plan to `out`. */
static void write_orders(const lh_elastic_case *g, const lh_elastic_plan *plan,
                         lhi_orders *out)
{
    for (uint32_t d = 0; d < out->n_devices; d++) {
        lhi_order *order = &out->devices[d];
        order->count = order->room;
        lhi_elastic_order(g, plan, d + 1, order->passes);
    }
}

/* Builds a plan from the group sizes in the options. Without `dequeue` it
 * divides the microbatches evenly into as many groups as `enqueue` has. */
static lh_status build_plan_from_options(const lh_elastic_case *g,
                                         const lh_method_options *o,
                                         lhi_arena *mem, lh_elastic_plan **out,
                                         lh_error *err)
{
    lh_elastic_plan wanted = {.n_enqueue = o->n_enqueue,
                              .enqueue = o->enqueue,
                              .n_dequeue = o->n_dequeue,
                              .dequeue = o->dequeue};
    if (!o->dequeue) {
        uint32_t n = o->n_enqueue;
        uint32_t *even = LHI_NEW(mem, uint32_t, n);
        if (!even)
            return lhi_fail_nomem(err);
        for (uint32_t i = 0; i < n; i++)
            even[i] = g->microbatches / n + (i < g->microbatches % n);
        wanted.n_dequeue = n;
        wanted.dequeue = even;
    }
    return lhi_elastic_plan_make(g, &wanted, out, err);
}

/* Finds the elastic plan whose queue size (microbatches per group) is fastest
 * by the closed formula, among those whose orders fit the memory limits; ties:
 * the smaller size. `orders` is scratch. */
static lh_status find_best_queue(const lh_elastic_case *g, const lh_pipeline *p,
                                 lhi_orders *orders, lh_elastic_plan **out,
                                 lh_error *err)
{
    lh_error why = {0};
    lh_elastic_plan *best = NULL;
    int64_t too_many = INT64_MAX; /* resident passes that did not fit */
    for (uint32_t q = g->stages; q <= g->microbatches; q++) {
        lh_elastic_plan *plan;
        lh_status status = lh_elastic_plan_queue(g, q, &plan, NULL);
        if (status == LH_EINFEASIBLE)
            continue; /* the full queue is always feasible */
        if (status != LH_OK) {
            lh_elastic_plan_free(best);
            return lhi_fail_nomem(err);
        }
        int64_t held = lh_elastic_resident_passes(g, plan, 1);
        if (held >= too_many ||
            (best && lhi_elastic_iteration_ns(g, plan, 0) >=
                         lhi_elastic_iteration_ns(g, best, 0))) {
            lh_elastic_plan_free(plan);
            continue;
        }
        write_orders(g, plan, orders);
        status = lhi_orders_check_memory(orders, p, &why);
        if (status == LH_OK) {
            lh_elastic_plan_free(best);
            best = plan;
            continue;
        }
        too_many = held;
        lh_elastic_plan_free(plan);
        if (status != LH_EINFEASIBLE) {
            lh_elastic_plan_free(best);
            if (err)
                *err = why;
            return status;
        }
    }
    if (!best)
        return lhi_fail(err, LH_EINFEASIBLE, "no queue is feasible; %s",
                        why.text);
    *out = best;
    return LH_OK;
}

/* Builds the elastic plan from the groups in the options or in the pipeline, or
 * else by searching the microbatch count per group. */
static lh_status make_plan(const lh_elastic_case *g, const lh_pipeline *p,
                           const lh_method_options *o, lhi_orders *orders,
                           lh_elastic_plan **out, lh_error *err)
{
    if (o->enqueue)
        return build_plan_from_options(g, o, orders->mem, out, err);
    if (!o->dequeue && p->n_enqueue > 0) {
        lh_elastic_plan wanted = {.n_enqueue = p->n_enqueue,
                                  .enqueue = p->enqueue,
                                  .n_dequeue = p->n_dequeue,
                                  .dequeue = p->dequeue};
        return lhi_elastic_plan_make(g, &wanted, out, err);
    }
    if (o->dequeue)
        return lhi_fail(err, LH_EINVAL,
                        "dequeue groups require enqueue groups");
    if (p->n_dp_ops > 0)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "the pipeline's data-parallel operations require "
                        "the groups they were made for; give these as enqueue "
                        "and dequeue");
    if (g->microbatches < g->stages)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "needs at least as many microbatches as the %" PRIu32
                        " devices, not %" PRIu32,
                        g->stages, g->microbatches);
    return find_best_queue(g, p, orders, out, err);
}

/* Method "elastic": orders by PipeMesh's enqueue and dequeue groups of
 * microbatches. */
lh_status lhi_elastic(const lh_pipeline *pipeline,
                      const lh_method_options *options, lhi_orders *out,
                      lh_error *err)
{
    lh_elastic_plan *plan;
    lh_elastic_case g = describe_pipeline(pipeline);
    LHI_TRY(lhi_orders_init(out, pipeline, 2, err));
    lh_status status = make_plan(&g, pipeline, options, out, &plan, err);
    if (status != LH_OK) {
        lhi_orders_fini(out);
        return status;
    }
    write_orders(&g, plan, out);
    lh_elastic_plan_free(plan);
    return LH_OK;
}
