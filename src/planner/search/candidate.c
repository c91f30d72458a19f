/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds for a built layout. */
#include "planner/search/candidate.h"

#include "base/integer_math.h"
#include "planner/layout/layer_partition.h"
#include "schedule/solver/bound/closed_forms.h"

#include <longhaul/experimental/bounds.h>
#include <stdlib.h>
#include <string.h>

/* Raises c->missing to the bytes by which the fullest device exceeds its memory
 * even with one microbatch in each of its chunks. */
static lh_status find_missing(const lh_pipeline *p, lhi_candidate *c,
                              lh_error *err)
{
    uint32_t n = lh_pipeline_n_devices(p);
    int64_t *least = calloc(n, sizeof *least);
    if (!least)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < lh_pipeline_n_chunks(p); i++) {
        const lh_chunk *k = lh_pipeline_chunk(p, i);
        least[k->device] += k->mem_static + k->mem_f;
    }
    for (uint32_t d = 0; d < n; d++) {
        int64_t over = least[d] - lh_pipeline_memory_limit(p, d);
        c->missing = lhi_max_int64(c->missing, over);
    }
    free(least);
    return LH_OK;
}

bool lhi_candidate_is_feasible(const lhi_candidate *c)
{
    return c->simulated && c->choice.status == LH_CHOICE_OK;
}

bool lhi_layout_search_count_refusal(lhi_layout_search *s, lh_status status,
                                     const lh_error *why, uint64_t n)
{
    if (!lhi_layout_is_infeasible(status))
        return false;
    s->n_unsupported += n;
    if (!s->first_refusal.text[0])
        s->first_refusal = *why;
    return true;
}

lh_status lhi_candidate_compute_bound_built(lhi_candidate *c,
                                            const lhi_built_layout *built,
                                            lh_error *err)
{
    lh_bound b;
    LHI_TRY(lhi_compute_closed_form_bound(built->pipeline, &b, err));
    c->bound_ns = b.ns + built->optimizer_ns + built->overhead_ns;
    memcpy(c->bound_text, b.text, sizeof c->bound_text);
    return LH_OK;
}

lh_status lhi_candidate_compute_bound(lhi_layout_search *s, lhi_candidate *c,
                                      lh_error *err)
{
    lhi_built_layout built;
    lh_error why = {0};
    c->bound_ns = INT64_MAX;
    if (!c->config.layers)
        LHI_TRY(lhi_layer_partition_by_speed(s->job, &s->options, s->mem,
                                             &c->config, err));
    lh_status status = lhi_layout_build(s->job, &c->config, &built, &why);
    if (lhi_layout_search_count_refusal(s, status, &why, 1)) {
        c->lower_bound.ns = INT64_MAX;
        return LH_OK;
    }
    if (status != LH_OK) {
        if (err)
            *err = why;
        return status;
    }
    status = find_missing(built.pipeline, c, err);
    if (status == LH_OK && c->missing == 0) {
        status = lhi_candidate_compute_bound_built(c, &built, err);
    } else if (status == LH_OK) {
        s->n_memory++;
    }
    lh_pipeline_free(built.pipeline);
    return status;
}

/* Replaces *c by `other`, the same layout with another partition, if its bound
 * is lower. */
static lh_status take_partition(lhi_layout_search *s, lhi_candidate *other,
                                lhi_candidate *c, lh_error *err)
{
    const uint64_t n_memory = s->n_memory, n_unsupported = s->n_unsupported;
    if (other->config.layers == c->config.layers)
        return LH_OK;
    other->missing = 0;
    LHI_TRY(lhi_candidate_compute_bound(s, other, err));
    s->n_memory = n_memory;
    s->n_unsupported = n_unsupported;
    if (other->bound_ns >= c->bound_ns)
        return LH_OK;
    s->n_memory -= c->missing > 0;
    *c = *other;
    return LH_OK;
}

lh_status lhi_candidate_rebalance(lhi_layout_search *s, lhi_candidate *c,
                                  lh_error *err)
{
    if (s->options.partition == LH_PARTITION_EXACT)
        return LH_OK; /* exhaustive search tries all methods */
    c->rebalanced = true;
    lhi_candidate other = *c;
    LHI_TRY(lhi_layer_partition_rebalance(s->job, &s->options, s->mem,
                                          &other.config, err));
    return take_partition(s, &other, c, err);
}

lh_status lhi_candidate_fit_memory(lhi_layout_search *s, lhi_candidate *c,
                                   lh_error *err)
{
    if (c->missing == 0 || s->options.partition == LH_PARTITION_EXACT)
        return LH_OK;
    c->rebalanced = true;
    lhi_candidate other = *c;
    LHI_TRY(lhi_layer_partition_fit_memory(s->job, &s->options, s->mem,
                                           &other.config, err));
    return take_partition(s, &other, c, err);
}
