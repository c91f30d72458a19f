/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluates, for every layout, all partitions that no bound rules out, under
 * every method: for small jobs, and to measure other searches' losses. */
#include "planner/layout/build_cache.h"
#include "planner/layout/layer_partition.h"
#include "planner/layout/partition_search.h"
#include "planner/search/candidate.h"
#include "schedule/solver/bound/closed_forms.h"

#include <inttypes.h>
#include <longhaul/experimental/bounds.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_PARTITIONS = 200000,   /* per layout */
    MAX_SMALL_PASSES = 500000, /* passes over all partitions of a small job */
};

/* State while enumerating one layout's partitions. */
typedef struct enumeration {
    lhi_layout_search *s;
    lhi_candidate *c;
    lhi_build_cache *known;
    int64_t least_ns; /* least bound over the evaluated partitions */
    bool cut;         /* some partitions were skipped */
} enumeration;

/* Computes the lower bound of a built layer partition. If that is below the
 * best time, runs every schedule method on candidate `one`, which has this
 * partition. */
static lh_status evaluate_built(enumeration *t, lhi_candidate *one,
                                const lhi_built_layout *built, lh_error *err)
{
    lhi_layout_search *s = t->s;
    lh_bound bound;
    LHI_TRY(lhi_compute_closed_form_bound(built->pipeline, &bound, err));
    one->bound_ns = bound.ns + built->optimizer_ns + built->overhead_ns;
    memcpy(one->bound_text, bound.text, sizeof one->bound_text);
    if (one->bound_ns < t->least_ns)
        t->least_ns = one->bound_ns;
    if (one->bound_ns >= s->best_ns)
        return LH_OK;
    return lhi_candidate_run_methods(s, one, built, NULL, NULL, NULL, err);
}

/* Evaluates one layer partition under every schedule method; it replaces the
 * candidate's if it is the best so far. *ns: its iteration time, INT64_MAX if
 * it is not the best. useless_ns is not used. Partition callback. */
static lh_status try_partition(void *context, const uint32_t *layers,
                               int64_t useless_ns, int64_t *ns, lh_error *err)
{
    (void)useless_ns; /* the search's best time is the limit */
    enumeration *t = context;
    lhi_layout_search *s = t->s;
    uint32_t n =
        t->c->config.layout.pipeline * t->c->config.layout.chunks_per_device;
    lhi_candidate one = *t->c;
    lhi_built_layout built;
    lh_error why = {0};
    *ns = INT64_MAX;
    t->cut = t->cut || lhi_layout_search_should_stop(s, s->n, false);
    if (t->cut)
        return LH_OK;
    one.config.layers = layers;
    one.simulated = false;
    lh_status status =
        lhi_layout_build_cached(s->job, &one.config, t->known, &built, &why);
    if (lhi_layout_is_infeasible(status))
        return LH_OK;
    if (status == LH_OK) {
        status = evaluate_built(t, &one, &built, &why);
        lh_pipeline_free(built.pipeline);
    }
    if (status != LH_OK) {
        if (err)
            *err = why;
        return status;
    }
    if (!lhi_candidate_is_feasible(&one) ||
        one.choice.iteration_ns >= s->best_ns)
        return LH_OK;
    uint32_t *kept = LHI_NEW(s->mem, uint32_t, n);
    if (!kept)
        return lhi_fail_nomem(err);
    memcpy(kept, layers, n * sizeof *kept);
    one.config.layers = one.choice.chunk_layers = kept;
    one.fully_evaluated = true;
    s->n_simulated += !t->c->simulated;
    s->n_memory -= !t->c->simulated && t->c->missing > 0;
    one.missing = 0; /* of even chunks */
    *ns = s->best_ns = one.choice.iteration_ns;
    *t->c = one;
    return LH_OK;
}

/* Returns the partition search's input for a candidate: number of layers,
 * number of chunks, and largest allowed ratio between chunks. */
static lhi_partition make_partition(const lhi_layout_search *s,
                                    const lhi_candidate *c)
{
    const lh_layout *l = &c->config.layout;
    return (lhi_partition){.n_layers = s->job->model->layers,
                           .n_chunks = l->pipeline * l->chunks_per_device,
                           .max_ratio = lhi_layer_partition_ratio(&s->options)};
}

/* Evaluates all a candidate's layer partitions. Raises its lower bound to the
 * least of them if none was skipped. LH_EINVAL: more than MAX_PARTITIONS. */
static lh_status enumerate_partitions(lhi_layout_search *s, lhi_candidate *c,
                                      lh_error *err)
{
    enumeration t = {s, c, NULL, INT64_MAX, false};
    int64_t best_ns = INT64_MAX;
    lhi_partition p = make_partition(s, c);
    p.time = try_partition;
    p.context = &t;
    uint64_t all;
    LHI_TRY(lhi_partition_count(&p, &all, err));
    if (all > MAX_PARTITIONS)
        return lhi_fail(err, LH_EINVAL,
                        "%" PRIu32 " layers in %" PRIu32
                        " chunks have more than %d partitions, too many to "
                        "enumerate; search by climb",
                        p.n_layers, p.n_chunks, MAX_PARTITIONS);
    uint32_t *best = calloc(p.n_chunks, sizeof *best);
    if (!best)
        return lhi_fail_nomem(err);
    lh_status status = lhi_build_cache_make(&t.known, err);
    if (status == LH_OK)
        status = lhi_partition_exact(&p, best, &best_ns, err);
    lhi_build_cache_free(t.known);
    free(best);
    /* All partitions are evaluated, so their bounds replace the general one. */
    if (status == LH_OK && !t.cut && t.least_ns > c->lower_bound.ns)
        c->lower_bound.ns = t.least_ns;
    return status;
}

/* Checks whether candidate `c`'s bound over all its layer partitions is below
 * the best result, so that another partition of it may be better. */
static bool is_open(const lhi_layout_search *s, const lhi_candidate *c)
{
    return c->lower_bound.ns < s->best_ns &&
           lhi_layer_partition_has_alternatives(s->job, &c->config,
                                                &s->options);
}

lh_status lhi_layout_search_can_enumerate(const lhi_layout_search *s, bool *out,
                                          lh_error *err)
{
    uint64_t left = MAX_SMALL_PASSES;
    *out = false;
    for (uint32_t i = 0; i < s->n; i++) {
        const lhi_candidate *c = &s->candidates[i];
        if (!is_open(s, c))
            continue;
        lhi_partition p = make_partition(s, c);
        uint64_t passes = (uint64_t)p.n_chunks * c->config.microbatches * 3;
        uint64_t all;
        LHI_TRY(lhi_partition_count(&p, &all, err));
        if (all > left / passes)
            return LH_OK;
        left -= all * passes;
    }
    *out = true;
    return LH_OK;
}

lh_status lhi_layout_search_enumerate_partitions(lhi_layout_search *s,
                                                 lh_error *err)
{
    for (uint32_t i = 0; i < s->n; i++) {
        lhi_candidate *c = &s->candidates[i];
        if (!is_open(s, c))
            continue;
        LHI_TRY(enumerate_partitions(s, c, err));
    }
    return LH_OK;
}
