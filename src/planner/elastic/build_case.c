/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the pipeline and the schedule of an elastic plan through the library's
 * public functions. */
#include "planner/elastic/pipeline.h"
#include "schedule/elastic/elastic.h"
#include "schedule/elastic/elastic_internal.h"

#include <longhaul/experimental/schedule.h>

#include <stdlib.h>

/* Fills the chunks with pass times, memory and recomputation; `again`:
 * recomputed time and stored bytes per stage, `states`: model-state
 * bytes per device. */
static void fill_chunks(const lh_elastic_case *g, const lh_elastic_plan *plan,
                        const lhi_elastic_recompute *again, int64_t states,
                        lh_chunk *chunks)
{
    int64_t gather_ns = lhi_elastic_compute_first_last_ns(g, plan->params_p);
    int64_t scatter_ns = lhi_elastic_compute_first_last_ns(g, plan->params_g);
    for (uint32_t c = 0; c < g->chunks * g->stages; c++) {
        bool first = c < g->stages;
        chunks[c] = (lh_chunk){
            .device = c % g->stages,
            .f_ns = g->f_ns,
            .d_ns = g->b_ns + again[c % g->stages].ns,
            .mem_f = again[c % g->stages].stored + g->base_bytes,
            .mem_d = -again[c % g->stages].stored - g->base_bytes,
            .mem_static = first ? states : 0,
            .all_gather_ns = first ? gather_ns : 0,
            .reduce_scatter_ns = first ? scatter_ns : 0,
        };
    }
}

/* Adds links in both directions between neighbouring stages to links[]; returns
 * their number. The last stage connects to the first, and back, only if further
 * chunks follow. */
static uint32_t fill_links(const lh_elastic_case *g, lh_link *links)
{
    uint32_t P = g->stages, n = 0;
    for (uint32_t i = 0; P > 1 && i < P; i++) {
        uint32_t to = (i + 1) % P;
        if (to == 0 && (g->chunks == 1 || P == 2))
            continue; /* two stages already have neighbour links */
        links[n++] = (lh_link){i, to, g->pp_ns, 0, NULL};
        links[n++] = (lh_link){to, i, g->pp_ns, 0, NULL};
    }
    return n;
}

/* Builds the pipeline with its links, chunks and data-parallel operations
 * `ops`. `again`: recomputation per stage. */
static lh_status make_pipeline(const lh_elastic_case *g,
                               const lh_elastic_plan *plan,
                               const lhi_elastic_recompute *again,
                               lhi_arena *mem, const lh_dp_op *ops,
                               uint32_t n_ops, lh_pipeline **out, lh_error *err)
{
    lh_chunk *chunks = LHI_NEW(mem, lh_chunk, (size_t)g->chunks * g->stages);
    lh_link *links = LHI_NEW(mem, lh_link, 2 * (size_t)g->stages);
    if (!chunks || !links)
        return lhi_fail_nomem(err);
    lh_elastic_memory states = lh_elastic_peak_memory(g, plan, -g->base_bytes);
    fill_chunks(g, plan, again, states.sum, chunks);
    lh_pipeline_desc desc = {.size = sizeof desc,
                             .n_devices = g->stages,
                             .n_microbatches = g->microbatches,
                             .joint = true,
                             .n_chunks = g->chunks * g->stages,
                             .chunks = chunks,
                             .n_links = fill_links(g, links),
                             .links = links,
                             .memory_unit = "bytes",
                             .n_dp_ops = n_ops,
                             .dp_ops = ops,
                             .n_enqueue = plan->n_enqueue,
                             .n_dequeue = plan->n_dequeue,
                             .enqueue = plan->enqueue,
                             .dequeue = plan->dequeue};
    return lh_pipeline_make(&desc, out, err);
}

lh_status lhi_elastic_build_pipeline(const lh_elastic_case *given,
                                     const lh_elastic_plan *plan,
                                     const lhi_elastic_recompute *again,
                                     lh_pipeline **out, lh_error *err)
{
    lh_dp_op *ops;
    uint32_t n_ops;
    LHI_TRY(lhi_elastic_operations(given, plan, &ops, &n_ops, err));
    lhi_arena *mem = lhi_arena_make(0);
    lh_status status =
        mem ? make_pipeline(given, plan, again, mem, ops, n_ops, out, err)
            : lhi_fail_nomem(err);
    lhi_arena_free(mem);
    lhi_elastic_ops_free(ops);
    return status;
}

lh_status lhi_elastic_pipeline(const lh_elastic_case *given,
                               const lh_elastic_plan *plan,
                               int64_t recompute_ns, int64_t stored,
                               lh_pipeline **out, lh_error *err)
{
    lhi_elastic_recompute *again = calloc(given->stages, sizeof *again);
    if (!again)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < given->stages; i++)
        again[i] = (lhi_elastic_recompute){recompute_ns, stored};
    lh_status status = lhi_elastic_build_pipeline(given, plan, again, out, err);
    free(again);
    return status;
}

lh_status lhi_elastic_schedule(const lh_elastic_case *given,
                               const lh_elastic_plan *plan, lh_schedule **out,
                               lh_error *err)
{
    uint32_t P = given->stages;
    size_t count = 2 * (size_t)given->chunks * given->microbatches;
    lhi_arena *mem = lhi_arena_make(0);
    lh_pass *passes = mem ? LHI_NEW(mem, lh_pass, count * P) : NULL;
    const lh_pass **orders = mem ? LHI_NEW(mem, const lh_pass *, P) : NULL;
    uint32_t *counts = mem ? LHI_NEW(mem, uint32_t, P) : NULL;
    lh_status status;
    if (!passes || !orders || !counts) {
        status = lhi_fail_nomem(err);
    } else {
        for (uint32_t i = 0; i < P; i++) {
            lhi_elastic_order(given, plan, i + 1, passes + i * count);
            orders[i] = passes + i * count;
            counts[i] = (uint32_t)count;
        }
        status = lh_schedule_make(P, orders, counts, 0, NULL, out, err);
    }
    lhi_arena_free(mem);
    return status;
}
