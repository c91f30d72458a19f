/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts with two directions (placement BD): stages s and P - 1 - s of P have
 * the same two chunks, and reduce gradients with each other
 * (docs/theory/two-directions.md). */
#include "planner/layout/layout.h"

#include "base/integer_math.h"
#include "format/job/job_values.h"
#include "planner/layout/equivalence.h"

lh_status lhi_two_directions_check(const lh_job *job, const lhi_config *config,
                                   lh_error *err)
{
    const lh_layout *l = &config->layout;
    const char *needs = l->chunks_per_device != 1 ? "chunks_per_device: 1"
                        : l->pipeline % 2 != 0    ? "an even pipeline degree"
                        : config->microbatches % 2 != 0
                            ? "an even number of microbatches per replica"
                        : job->training.zero > 1 ? "training.zero: 0 or 1"
                        : job->training.offload_share > 0
                            ? "no training.offload"
                        : job->layout.slices     ? "no layout.slices"
                        : l->group_micro_batches ? "equal microbatches"
                        : l->site_tensors        ? "one tensor degree"
                        : job->layout.mtp_chunk
                            ? "the multi-token prediction modules with the head"
                            : NULL;
    if (!needs && !config->elastic)
        return LH_OK;
    return lhi_fail(err, LH_EUNSUPPORTED,
                    "plans with two directions (placement bd) require %s",
                    needs ? needs : "a schedule that is not elastic");
}

/* Adds `replicas` replicas in datacenter `dc` to the list of n sites; returns
 * its new length. */
static uint32_t add_site(lh_cost_site *sites, uint32_t n, uint32_t dc,
                         uint32_t replicas)
{
    uint32_t i = 0;
    while (i < n && sites[i].datacenter != dc)
        i++;
    if (i == n)
        sites[n++] = (lh_cost_site){dc, 0};
    sites[i].replicas += replicas;
    return n;
}

/* Lists the GPUs of two stages' replicas, by datacenter. */
static lh_status merge_runs(lhi_arena *mem, const lhi_stage_placement *x,
                            const lhi_stage_placement *y,
                            lhi_stage_placement *out, lh_error *err)
{
    const uint32_t n = x->n_runs + y->n_runs;
    lh_cost_run *runs = LHI_NEW(mem, lh_cost_run, n);
    if (!runs)
        return lhi_fail_nomem(err);
    for (uint32_t k = 0; k < n; k++) {
        const lh_cost_run run =
            k < x->n_runs ? x->runs[k] : y->runs[k - x->n_runs];
        uint32_t i = k;
        for (; i > 0 && runs[i - 1].datacenter > run.datacenter; i--)
            runs[i] = runs[i - 1];
        runs[i] = run;
    }
    out->n_runs = n;
    out->runs = runs;
    return LH_OK;
}

/* Merges stages s and `other` of the layout into *out; `sharing` stays open.
 * LH_EUNSUPPORTED: their GPUs differ, or expert groups could span datacenters.
 */
static lh_status merge_two_stages(const lh_job *job, const lh_layout *layout,
                                  const lhi_layout_placement *places,
                                  uint32_t s, uint32_t other, lhi_arena *mem,
                                  lhi_stage_placement *out, lh_error *err)
{
    const lhi_stage_placement *x = &places->stages[s],
                              *y = &places->stages[other];
    lh_cost_site *sites =
        LHI_NEW(mem, lh_cost_site, x->n_sites + (size_t)y->n_sites);
    if (!sites)
        return lhi_fail_nomem(err);
    uint32_t n = 0;
    for (uint32_t i = 0; i < x->n_sites; i++)
        n = add_site(sites, n, x->sites[i].datacenter, x->sites[i].replicas);
    for (uint32_t i = 0; i < y->n_sites; i++)
        n = add_site(sites, n, y->sites[i].datacenter, y->sites[i].replicas);
    for (uint32_t i = 1; i < n; i++)
        if (!lhi_datacenters_are_equivalent(job, sites[0].datacenter,
                                            sites[i].datacenter))
            return lhi_fail(err, LH_EUNSUPPORTED,
                            "plans with two directions (placement bd) require "
                            "equal datacenters for stages %u and %u, which "
                            "have the same chunks",
                            s, other);
    if (n > 1 && layout->expert > 1)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "plans with two directions (placement bd) and experts "
                        "require stages %u and %u in one datacenter",
                        s, other);
    *out = (lhi_stage_placement){.n_sites = n, .sites = sites};
    return merge_runs(mem, x, y, out, err);
}

/* Checks whether the rings of two merged stages could share a link: they have
 * two datacenters in common. */
static bool share_a_link(const lhi_stage_placement *x,
                         const lhi_stage_placement *y)
{
    uint32_t common = 0;
    for (uint32_t i = 0; i < x->n_sites; i++)
        for (uint32_t k = 0; k < y->n_sites; k++)
            common += x->sites[i].datacenter == y->sites[k].datacenter;
    return common > 1;
}

lh_status lhi_two_directions_merge_stages(const lh_job *job, lhi_arena *mem,
                                          lh_layout *layout,
                                          lhi_layout_placement *places,
                                          lh_error *err)
{
    const uint32_t P = layout->pipeline;
    const double group = lhi_group_size(layout);
    lhi_stage_placement *merged = LHI_NEW(mem, lhi_stage_placement, P);
    if (!merged)
        return lhi_fail_nomem(err);
    for (uint32_t s = 0; s < P / 2; s++)
        LHI_TRY(merge_two_stages(job, layout, places, s, P - 1 - s, mem,
                                 &merged[s], err));
    for (uint32_t s = 0; s < P / 2; s++) {
        lhi_stage_placement *m = &merged[s];
        m->sharing = 1;
        for (uint32_t k = 0; k < P / 2; k++)
            m->sharing += k != s && share_a_link(m, &merged[k]);
        const double replicas = lhi_stage_placement_min_replicas(m);
        /* As in placement.c: only the order of the ring depends on it. */
        const double bytes =
            4 * (double)lh_model_params(job->model) / (P * group * replicas);
        if (m->n_sites > 1)
            LHI_TRY(lhi_ring_order(job, m->n_sites, (lh_cost_site *)m->sites,
                                   group * m->sharing * replicas, bytes, err));
        merged[P - 1 - s] = *m;
    }
    layout->data *= 2;
    places->stages = merged;
    return LH_OK;
}
