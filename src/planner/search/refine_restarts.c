/* SPDX-License-Identifier: Apache-2.0 */
/* Iterated local search over one layout's layer partitions under one method,
 * and the limits of the search over partitions. */
#include "planner/search/refine_partitions_internal.h"

#include "base/random.h"
#include "planner/layout/target.h"
#include "planner/search/objective.h"
#include "planner/search/search_budget.h"

#include <string.h>

enum {
    FAST_DIVISOR = 4,  /* a fast method's work: a part of the estimate */
    SLOW_PASSES = 250, /* with more, partitions are not climbed by a slow one */
    MAX_VAIN = 40,     /* restarts without improvement */
    MAX_CHANGES = 6    /* layers moved for a restart, at most one more */
};

void lhi_partition_refinement_spend(lhi_partition_refinement *m, uint64_t work)
{
    m->left -= work < m->left ? work : m->left;
}

bool lhi_partition_refinement_is_done(const lhi_partition_refinement *m)
{
    lhi_refinement *r = m->r;
    const lh_plan *p = r->plan;
    const lh_plan_options *o = r->options;
    r->stopped =
        r->stopped ||
        (o->progress && o->progress(o->context, p->n_layouts, p->n_layouts,
                                    p->best.iteration_ns));
    return r->stopped || lhi_compute_bound_gap(o, p) <= LHI_PARTITION_TOLERANCE;
}

bool lhi_partition_refinement_is_over(const lhi_partition_refinement *m)
{
    return m->left == 0 || lhi_partition_refinement_is_done(m);
}

/* Returns the schedule method for hill climbing over partitions: that of
 * `from`, unless it is slow and there are more than SLOW_PASSES passes, or it
 * only selects others. Instead of it: with at most SLOW_PASSES passes the first
 * slow method that suits the pipeline, else the planner's quick method. */
static const char *find_climbing_method(const lhi_partition_refinement *m,
                                        const lh_choice *from, uint64_t passes)
{
    const lhi_method *own = lhi_method_find(from->layout.schedule);
    if (own && own->kind != LHI_METHOD_META &&
        (own->kind != LHI_METHOD_SLOW || passes <= SLOW_PASSES))
        return own->name;
    for (uint32_t i = 0; i < lhi_n_methods && passes <= SLOW_PASSES; i++)
        if (lhi_methods[i].kind == LHI_METHOD_SLOW &&
            lhi_method_is_considered(m->r->job, m->r->options,
                                     from->layout.pipeline, &lhi_methods[i]))
            return lhi_methods[i].name;
    return lhi_method_get_representative()->name;
}

/* Times a layer partition under schedule method m->method, in *ns; INT64_MAX:
 * it does not work or cannot be below useless_ns. Partition callback. */
static lh_status time_partition(void *context, const uint32_t *layers,
                                int64_t useless_ns, int64_t *ns, lh_error *err)
{
    lhi_partition_refinement *m = context;
    lhi_config config = m->base.config;
    lhi_built_layout built;
    lh_error why = {0};
    config.layers = layers;
    *ns = INT64_MAX;
    if (lhi_partition_refinement_is_over(m))
        return LH_OK;
    lhi_partition_refinement_spend(m, m->cost);
    lh_status status =
        lhi_layout_build_cached(m->r->job, &config, m->known, &built, &why);
    if (status == LH_OK) {
        status = lhi_layer_partition_time_built(
            &built, m->method, m->r->options->sub_blocks, m->s.evaluation_cache,
            useless_ns, m->mem, ns, &why);
        lh_pipeline_free(built.pipeline);
    }
    if (status == LH_OK || lhi_layout_is_infeasible(status) ||
        lhi_method_is_inapplicable(status))
        return LH_OK;
    if (err)
        *err = why;
    return status;
}

/* Changes partition `layers` by `moves` random moves of one layer between two
 * chunks; skips moves that the allowed ratio between chunks forbids. */
static void perturb_layers(const lhi_partition_refinement *m,
                           lhi_random *random, uint32_t moves, uint32_t *layers)
{
    const uint32_t n = m->p.n_chunks;
    for (uint32_t i = 0; i < moves; i++) {
        const uint32_t from = lhi_random_below(random, n);
        uint32_t to = lhi_random_below(random, n - 1);
        to += to >= from;
        layers[from]--;
        layers[to]++;
        if (lhi_partition_allows(&m->p, layers))
            continue;
        layers[from]++;
        layers[to]--;
    }
}

lh_status lhi_partition_refinement_climb(lhi_partition_refinement *m,
                                         const lh_choice *from, uint64_t most,
                                         uint32_t *layers, lh_error *err)
{
    const uint32_t n = m->p.n_chunks;
    const uint64_t end = most < m->left ? m->left - most : 0;
    lhi_random random = {m->seed};
    uint32_t *start = LHI_NEW(m->mem, uint32_t, n);
    int64_t best_ns;
    if (!start)
        return lhi_fail_nomem(err);
    m->method = find_climbing_method(
        m, from, 3 * (uint64_t)n * m->base.config.microbatches);
    const uint64_t cost = lhi_estimate_schedule_work(&m->base.config, false);
    m->cost = lhi_method_find(m->method)->kind == LHI_METHOD_SLOW
                  ? LHI_SLOW_FACTOR * cost
                  : cost / FAST_DIVISOR;
    m->p.time = time_partition;
    m->p.context = m;
    LHI_TRY(time_partition(m, layers, INT64_MAX, &best_ns, err));
    uint32_t n_vain = 0;
    for (uint32_t i = 0; n_vain < MAX_VAIN && m->left > end &&
                         !lhi_partition_refinement_is_over(m);
         i++) {
        int64_t ns;
        uint32_t first;
        const uint64_t times = (m->left - end) / m->cost;
        memcpy(start, layers, n * sizeof *start);
        for (uint32_t c = 0; c < n && i % 2 == 0; c++) /* even chunks */
            lhi_layer_range(m->p.n_layers, n, c, &first, &start[c]);
        perturb_layers(m, &random, 2 + i % MAX_CHANGES, start);
        LHI_TRY(time_partition(m, start, INT64_MAX, &ns, err));
        LHI_TRY(lhi_partition_climb(&m->p, times, start, &ns, err));
        n_vain++;
        if (ns >= best_ns)
            continue;
        n_vain = 0;
        best_ns = ns;
        memcpy(layers, start, n * sizeof *start);
    }
    return LH_OK;
}
