/* SPDX-License-Identifier: Apache-2.0 */
/* Checks a plan's own choice against its pipeline and schedule by computing the
 * derived values again. */
#include "planner/explain/rank_memory.h"
#include "planner/file/plan_file.h"
#include "planner/layout/choice.h"
#include "planner/layout/site_search.h"
#include "planner/layout/space.h"
#include "schedule/pipeline/pipeline_internal.h"
#include "schedule/pipeline/schedule_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Checks that each chunk of the plan's pipeline is on the device that the chunk
 * placement (ud, loop, wave) implies. */
static lh_status check_devices(const lhi_doc *doc, const lh_plan *p,
                               lh_error *err)
{
    const lhi_config config = lhi_config_from_choice(&p->best);
    for (uint32_t c = 0; c < p->pipeline->n_chunks; c++) {
        uint32_t has = p->pipeline->chunks[c].device;
        uint32_t want = lhi_config_device(&config, c);
        if (has != want)
            return lhi_doc_fail(
                doc, lhi_node_find(doc->root, "placement"), err, LH_EINPUT,
                "is '%s', but the plan's pipeline has chunk "
                "%" PRIu32 " on device %" PRIu32 ", not %" PRIu32,
                lh_placement_name(p->best.placement), c, has, want);
    }
    return LH_OK;
}

/* Checks that the schedule has only passes that the pipeline has, and that no
 * device's peak memory is negative. */
static lh_status check_passes(const lhi_doc *doc, const lh_plan *p,
                              lh_error *err)
{
    const lhi_node *root = doc->root;
    for (uint32_t d = 0; d < p->best.layout.pipeline; d++) {
        int64_t throughout, most;
        if (!lhi_rank_compute_peak_memory(p->pipeline, p->schedule, d,
                                          &throughout, &most))
            return lhi_doc_fail(doc, lhi_node_find(root, "schedule"), err,
                                LH_EINPUT,
                                "device %" PRIu32 " has passes that the plan's "
                                "pipeline does not have",
                                d);
        if (most < 0)
            return lhi_doc_fail(doc, lhi_node_find(root, "pipeline"), err,
                                LH_EINPUT,
                                "device %" PRIu32 " holds %" PRId64 " bytes "
                                "at most",
                                d, most);
    }
    return LH_OK;
}

/* Checks that the bubble ratio matches the makespan and the pass times, less
 * the time that overlapped pairs save. */
static lh_status check_bubble(const lhi_doc *doc, const lh_plan *p,
                              lh_error *err)
{
    double all = (double)p->best.makespan_ns * p->pipeline->n_devices;
    double busy = 0;
    for (uint32_t c = 0; c < p->pipeline->n_chunks; c++) {
        const lh_chunk *chunk = &p->pipeline->chunks[c];
        busy +=
            (double)p->pipeline->n_microbatches *
            ((double)chunk->f_ns + (double)chunk->d_ns + (double)chunk->w_ns);
    }
    for (uint32_t d = 0; d < p->pipeline->n_devices; d++)
        busy -=
            (double)lhi_schedule_measure_overlap(p->schedule, p->pipeline, d);
    double want = all > 0 ? (all - busy) / all : 0;
    if (fabs(p->best.bubble_ratio - want) <= 1e-9)
        return LH_OK;
    return lhi_doc_fail(doc, lhi_node_find(doc->root, "bubble_ratio"), err,
                        LH_EINPUT,
                        "does not match makespan_ns and the passes of the "
                        "plan's pipeline; expected %.6g",
                        want);
}

/* Checks that the time breakdown in a plan file and the plan itself have the
 * same optimizer and overhead times. LH_EINPUT otherwise. */
static lh_status check_account(const lhi_doc *doc, const lh_plan *p,
                               lh_error *err)
{
    const lh_plan_breakdown *a = p->breakdown;
    const struct {
        const char *key, *of;
        int64_t has, want;
    } rows[] = {
        {"optimizer_ns", "optimizer_s", p->best.optimizer_ns,
         a ? a->optimizer_ns : 0},
        {"overhead_ns", "overhead_s", p->best.overhead_ns,
         a ? a->overhead_ns : 0},
    };
    for (size_t i = 0; a && i < sizeof rows / sizeof *rows; i++)
        /* Seconds are written with fifteen digits. */
        if (fabs((double)rows[i].has - (double)rows[i].want) >
            1 + 1e-14 * (double)rows[i].want)
            return lhi_doc_fail(doc, lhi_node_find(doc->root, rows[i].key), err,
                                LH_EINPUT,
                                "is %" PRId64 ", but account.%s is %" PRId64,
                                rows[i].has, rows[i].of, rows[i].want);
    return LH_OK;
}

/* Checks the outermost parallelism's name: the job's, or the one that plans use
 * if several are equivalent. */
static lh_status check_outermost(const lhi_doc *doc, const lh_plan *p,
                                 lh_error *err)
{
    const lh_layout *l = &p->best.layout, *asked = &p->job->layout;
    lh_outermost want = asked->outermost;
    if (!want && l->sites)
        want = lhi_sites_outermost(l->sites);
    else if (!want && !lhi_outermost_matters(p->job, l))
        want = LH_OUTERMOST_PIPELINE;
    if (!want || l->outermost == want)
        return LH_OK;
    return lhi_doc_fail(
        doc, lhi_node_find(lhi_node_find(doc->root, "layout"), "outermost"),
        err, LH_EINPUT,
        "is '%s', but %s '%s'; to change it, set layout.outermost in the job "
        "and plan again",
        lh_outermost_name(l->outermost),
        asked->outermost ? "the job requires"
        : l->sites       ? "its 'sites' require"
                         : "both are equivalent here, and plans use",
        lh_outermost_name(want));
}

/* Checks that the layout's rank order is the job's or, if the job has none, one
 * that the search tries. */
static lh_status check_rank_order(const lhi_doc *doc, const lh_plan *p,
                                  lh_error *err)
{
    const lh_layout *l = &p->best.layout;
    const lh_outermost asked = p->job->layout.rank_order;
    lh_layout usual = *l;
    usual.rank_order = LH_OUTERMOST_ANY;
    if (asked ? l->rank_order == asked
              : !l->rank_order || lhi_rank_order_matters(p->job, &usual))
        return LH_OK;
    return lhi_doc_fail(
        doc, lhi_node_find(lhi_node_find(doc->root, "layout"), "rank_order"),
        err, LH_EINPUT,
        "is not the order of the job's ranks; to change it, set "
        "layout.rank_order in the job and plan again");
}

/* Checks that the layout's packing is the job's or, if the job has none, one
 * that the search tries. */
static lh_status check_packing(const lhi_doc *doc, const lh_plan *p,
                               lh_error *err)
{
    const lh_layout *l = &p->best.layout;
    const lh_packing asked = p->job->layout.packing;
    lh_layout usual = *l;
    usual.packing = LH_PACKING_ANY;
    if (asked ? l->packing == asked
              : !l->packing || (l->packing == LH_PACKING_ALIGNED &&
                                lhi_packing_matters(p->job, &usual)))
        return LH_OK;
    return lhi_doc_fail(
        doc, lhi_node_find(lhi_node_find(doc->root, "layout"), "packing"), err,
        LH_EINPUT,
        "is not the packing of the job's stages on nodes; to change it, set "
        "layout.packing in the job and plan again");
}

/* Checks that the layout's sharding is the one that the job requires, or full
 * where all are equivalent. */
static lh_status check_sharding(const lhi_doc *doc, const lh_plan *p,
                                lh_error *err)
{
    const lh_layout *l = &p->best.layout;
    const lhi_config config = lhi_config_from_choice(&p->best);
    lh_sharding want = p->job->layout.sharding;
    if (!want && !lhi_sharding_matters(p->job, &config))
        want = LH_SHARDING_FULL;
    if (!want || !l->sharding || l->sharding == want)
        return LH_OK;
    return lhi_doc_fail(
        doc, lhi_node_find(lhi_node_find(doc->root, "layout"), "sharding"), err,
        LH_EINPUT,
        "is '%s', but %s '%s'; to change it, set layout.sharding in the job "
        "and plan again",
        lh_sharding_name(l->sharding),
        p->job->layout.sharding
            ? "the job requires"
            : "all are equivalent for this layout, and plans use",
        lh_sharding_name(want));
}

/* Checks that `cost_source` in a plan file is one of the names of cost sources.
 * LH_EINPUT otherwise. */
static lh_status check_source_word(const lhi_doc *doc, const lh_plan *p,
                                   lh_error *err)
{
    for (int i = LH_COST_MODEL; i <= LH_COST_PART_EFFICIENCY; i++)
        if (strcmp(p->cost_source, lh_cost_source_name((lh_cost_source)i)) == 0)
            return LH_OK;
    return lhi_doc_fail(doc, lhi_node_find(doc->root, "cost_source"), err,
                        LH_EINPUT,
                        "is '%.60s'; expected model, efficiency, profile, "
                        "mixed or part-efficiency",
                        p->cost_source);
}

lh_status lhi_check_choice_pipeline(const lhi_doc *doc, const lh_plan *p,
                                    lh_error *err)
{
    LHI_TRY(check_devices(doc, p, err));
    LHI_TRY(check_passes(doc, p, err));
    LHI_TRY(check_bubble(doc, p, err));
    LHI_TRY(check_account(doc, p, err));
    LHI_TRY(check_outermost(doc, p, err));
    LHI_TRY(check_rank_order(doc, p, err));
    LHI_TRY(check_packing(doc, p, err));
    LHI_TRY(check_sharding(doc, p, err));
    LHI_TRY(check_source_word(doc, p, err));
    LHI_TRY(lhi_check_elastic_operations(doc, p, err));
    return lhi_check_rebuilt_pipeline(doc, p, err);
}
