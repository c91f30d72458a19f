/* SPDX-License-Identifier: Apache-2.0 */
/* Layer communication in passes with ZeRO 2 and 3:
 * docs/theory/plan-search.md. */
#include "planner/search/bound_inputs_internal.h"

#include "model/sharding.h"

#include <math.h>

/* Computes the times to gather parameters and reduce gradients with ZeRO 2 and
 * 3, into sent[]: per layer kind, embedding and head. A head that shares
 * the embedding's matrix has none. */
static lh_status compute_traffic(lhi_bound_inputs *f, const lh_job *job,
                                 const lh_layout *layout,
                                 lh_cost_layer_range slice,
                                 lhi_sharding_times *sent, lh_error *err)
{
    lh_cost_options options = {.size = sizeof options,
                               .estimate_missing = true};
    for (uint32_t i = 0; i < f->n_kinds + 2; i++) {
        bool layer = i < f->n_kinds;
        slice.n_layers = layer;
        slice.first_layer = layer ? f->kinds[i].layer : 0;
        slice.embedding = i == f->n_kinds;
        slice.head = i == f->n_kinds + 1;
        slice.mtp =
            slice.head ? lhi_mtp_is_with_head(f->job) : LH_MTP_WITH_HEAD;
        if (slice.head && job->model->tied_embeddings)
            continue;
        LHI_TRY(lhi_compute_sharding_times(job, layout, &slice, &options,
                                           &f->busiest, &sent[i], err));
    }
    return LH_OK;
}

/* Converts the time of communication within passes, ns, to a lower bound: an
 * integer, at most LHI_BOUND_MAX_NS, scaled to a pass's least duration. */
static int64_t round_down_ns(const lhi_bound_inputs *f, double ns)
{
    return lhi_bound_find_pass_ns(
        f, ns < (double)LHI_BOUND_MAX_NS ? (int64_t)ns : LHI_BOUND_MAX_NS);
}

/* Returns the sum of F, D and W times over the model's layers from the times
 * per layer kind. */
static lhi_bound_pass sum_layers(const lhi_bound_inputs *f,
                                 const lhi_bound_pass *parts)
{
    lhi_bound_pass sum = {0, 0, 0};
    for (uint32_t i = 0; i < f->n_kinds; i++) {
        sum.f += f->n_of_part[i] * parts[i].f;
        sum.d += f->n_of_part[i] * parts[i].d;
        sum.w += f->n_of_part[i] * parts[i].w;
    }
    return sum;
}

/* Raises the pass times of site `s` to the ZeRO 2 and 3 communication: a pass
 * takes the longer of its computation and its communication, plus the
 * computation that cannot overlap. A rank's first gather and last reduction are
 * outside its passes, so each of its `microbatches` passes has that fraction
 * less. */
lh_status lhi_bound_inputs_add_zero_traffic(lhi_bound_inputs *f,
                                            const lh_job *job,
                                            const lh_layout *layout,
                                            uint32_t microbatches,
                                            const lh_cost_layer_range *slice,
                                            lhi_bound_site *s, lh_error *err)
{
    lhi_sharding_times sent[LHI_BOUND_PARTS] = {{0}};
    lhi_bound_pass passes[LHI_BOUND_PARTS] = {{0, 0, 0}};
    double gather = 0, reduce = 0, n = microbatches;
    uint32_t embedding = f->n_kinds, head = embedding + 1;
    /* After some layer of its rank, if every chunk has one. */
    uint32_t later = lhi_layers_requested_min(job) ? head : UINT32_MAX;
    LHI_TRY(compute_traffic(f, job, layout, *slice, sent, err));
    for (uint32_t i = 0; i < f->n_kinds; i++) {
        gather = fmax(gather, sent[i].gather / n);
        reduce = fmax(reduce, sent[i].reduce / n);
    }
    for (uint32_t i = 0; i <= head; i++) {
        double g = job->training.zero >= 3 ? sent[i].gather : 0;
        double r = sent[i].reduce;
        double less_g = i < embedding ? gather : i == later ? 0 : g / n;
        double less_r = i < embedding ? reduce : i == later ? 0 : r / n;
        passes[i] = (lhi_bound_pass){round_down_ns(f, fmax(0, g - less_g)),
                                     round_down_ns(f, g),
                                     round_down_ns(f, fmax(0, r - less_r))};
    }
    passes[head].f += s->parts[head].f;
    passes[embedding].d += s->parts[embedding].d;
    passes[head].w += s->parts[head].w;
    lhi_bound_pass sends = sum_layers(f, passes);
    lhi_bound_pass computes = sum_layers(f, s->parts);
    for (uint32_t i = 0; i <= head; i++) {
        if (sends.f > computes.f)
            s->parts[i].f = passes[i].f;
        if (sends.d > computes.d)
            s->parts[i].d = passes[i].d;
        if (sends.w > computes.w)
            s->parts[i].w = passes[i].w;
    }
    return LH_OK;
}
