/* SPDX-License-Identifier: Apache-2.0 */
/* A plan's own choice against the plan's pipeline and schedule: what follows
 * from these is counted again, and what the pipeline was built from is found by
 * building it. */
#include "pipe/pipeline_own.h"
#include "plan/explain/rank_memory.h"
#include "plan/file/plan_file.h"
#include "plan/layout/choice.h"
#include "plan/layout/sites.h"
#include "plan/layout/space.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Where chunks lie, of which the placement is one name. */
static lh_status check_devices(const lhi_doc *doc, const lh_plan *p,
                               lh_error *err)
{
    const lhi_config config = lhi_config_of(&p->best);
    for (uint32_t c = 0; c < p->pipeline->n_chunks; c++) {
        uint32_t has = p->pipeline->chunks[c].device;
        uint32_t want = lhi_config_device(&config, c);
        if (has != want)
            return lhi_doc_fail(doc, lhi_find(doc->root, "placement"), err,
                                LH_EINPUT,
                                "is '%s', but the plan's pipeline has chunk "
                                "%" PRIu32 " on device %" PRIu32
                                ", not %" PRIu32,
                                lh_placement_name(p->best.placement), c, has,
                                want);
    }
    return LH_OK;
}

/* No device has passes that the pipeline has not, or holds less than nothing. */
static lh_status check_passes(const lhi_doc *doc, const lh_plan *p,
                              lh_error *err)
{
    const lhi_node *root = doc->root;
    for (uint32_t d = 0; d < p->best.layout.pipeline; d++) {
        int64_t throughout, most;
        if (!lhi_rank_most(p->pipeline, p->schedule, d, &throughout, &most))
            return lhi_doc_fail(doc, lhi_find(root, "schedule"), err, LH_EINPUT,
                                "device %" PRIu32 " has passes that the "
                                "plan's pipeline has not",
                                d);
        if (most < 0)
            return lhi_doc_fail(doc, lhi_find(root, "pipeline"), err, LH_EINPUT,
                                "device %" PRIu32 " holds %" PRId64 " bytes "
                                "at most",
                                d, most);
    }
    return LH_OK;
}

/* Limits are those of the job's GPUs, or of the pipeline, which may be given
 * others. */
static lh_status check_peak(const lhi_doc *doc, const lh_plan *p,
                            const lh_pipeline *built, lh_error *err)
{
    const lh_choice *has = &p->best;
    lh_choice want = *has;
    lhi_choice_memory(&want, p->pipeline, p->schedule);
    if (built && (has->peak_memory_bytes != want.peak_memory_bytes ||
                  has->memory_limit_bytes != want.memory_limit_bytes))
        lhi_choice_memory_within(&want, p->pipeline, p->schedule, built);
    if (has->memory_limit_bytes != want.memory_limit_bytes)
        return lhi_doc_fail(doc, lhi_find(doc->root, "memory_limit_bytes"), err,
                            LH_EINPUT,
                            "is %" PRId64 ", but the device with the least "
                            "room left may hold %" PRId64,
                            has->memory_limit_bytes, want.memory_limit_bytes);
    if (has->peak_memory_bytes != want.peak_memory_bytes)
        return lhi_doc_fail(doc, lhi_find(doc->root, "peak_memory_bytes"), err,
                            LH_EINPUT,
                            "is %" PRId64 ", but the device with the least "
                            "room left holds %" PRId64 " at most",
                            has->peak_memory_bytes, want.peak_memory_bytes);
    return LH_OK;
}

static lh_status check_bubble(const lhi_doc *doc, const lh_plan *p,
                              lh_error *err)
{
    double all = (double)p->best.makespan_ns * p->pipeline->n_devices;
    double busy = 0;
    for (uint32_t c = 0; c < p->pipeline->n_chunks; c++) {
        const lh_chunk *chunk = &p->pipeline->chunks[c];
        busy += (double)p->pipeline->n_microbatches *
                ((double)chunk->f_ns + (double)chunk->d_ns +
                 (double)chunk->w_ns);
    }
    double want = all > 0 ? (all - busy) / all : 0;
    if (fabs(p->best.bubble_ratio - want) <= 1e-9)
        return LH_OK;
    return lhi_doc_fail(doc, lhi_find(doc->root, "bubble_ratio"), err,
                        LH_EINPUT,
                        "is not what makespan_ns and the passes of the plan's "
                        "pipeline say, %.6g",
                        want);
}

/* The account says two times of the choice again. */
static lh_status check_account(const lhi_doc *doc, const lh_plan *p,
                               lh_error *err)
{
    const lh_plan_account *a = p->account;
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
            return lhi_doc_fail(doc, lhi_find(doc->root, rows[i].key), err,
                                LH_EINPUT,
                                "is %" PRId64 ", but account.%s says %" PRId64,
                                rows[i].has, rows[i].of, rows[i].want);
    return LH_OK;
}

/* One of several words for one thing, of which plans have a fixed one. */
static lh_status check_outermost(const lhi_doc *doc, const lh_plan *p,
                                 lh_error *err)
{
    const lh_layout *l = &p->best.layout, *asked = &p->job->layout;
    lh_outermost want = asked->outermost;
    if (!want && l->sites)
        want = lhi_sites_outermost(l->sites);
    else if (!want && (p->job->n_datacenters == 1 || l->data == 1))
        want = LH_OUTERMOST_PIPELINE;
    if (!want || l->outermost == want)
        return LH_OK;
    return lhi_doc_fail(doc, lhi_find(lhi_find(doc->root, "layout"),
                                      "outermost"),
                        err, LH_EINPUT,
                        "is '%s', but %s '%s'; to have another, set "
                        "layout.outermost in the job and plan again",
                        lh_outermost_name(l->outermost),
                        asked->outermost ? "the job says"
                        : l->sites       ? "its 'sites' are"
                                         : "both are the same here, which "
                                           "plans call",
                        lh_outermost_name(want));
}

static lh_status check_sharding(const lhi_doc *doc, const lh_plan *p,
                                lh_error *err)
{
    const lh_layout *l = &p->best.layout;
    const lhi_config config = lhi_config_of(&p->best);
    lh_sharding want = p->job->layout.sharding;
    if (!want && !lhi_sharding_matters(p->job, &config))
        want = LH_SHARDING_FULL;
    if (!want || !l->sharding || l->sharding == want)
        return LH_OK;
    return lhi_doc_fail(doc, lhi_find(lhi_find(doc->root, "layout"),
                                      "sharding"),
                        err, LH_EINPUT,
                        "is '%s', but %s '%s'; to have another, set "
                        "layout.sharding in the job and plan again",
                        lh_sharding_name(l->sharding),
                        p->job->layout.sharding
                            ? "the job says"
                            : "all are the same for this layout, which plans "
                              "call",
                        lh_sharding_name(want));
}

/* --- what the pipeline was built from ---------------------------------------
 */

typedef enum likeness {
    UNLIKE,
    SAME_MEMORY,
    SAME, /* times as well */
} likeness;

/* D and W together: what is joined has no two. */
static likeness compare(const lh_pipeline *a, const lh_pipeline *b)
{
    bool times = true;
    if (a->n_chunks != b->n_chunks)
        return UNLIKE;
    for (uint32_t c = 0; c < a->n_chunks; c++) {
        const lh_chunk *x = &a->chunks[c], *y = &b->chunks[c];
        if (x->mem_static != y->mem_static || x->mem_f != y->mem_f ||
            x->mem_d + x->mem_w != y->mem_d + y->mem_w)
            return UNLIKE;
        times = times && x->f_ns == y->f_ns &&
                x->d_ns + x->w_ns == y->d_ns + y->w_ns &&
                x->all_gather_ns == y->all_gather_ns &&
                x->reduce_scatter_ns == y->reduce_scatter_ns;
    }
    return times ? SAME : SAME_MEMORY;
}

/* How like the plan's pipeline is to what a configuration comes to. What cannot
 * be built is UNLIKE anything. */
static lh_status likeness_of(const lh_plan *p, const lhi_config *config,
                             lhi_built *built, likeness *out, lh_error *err)
{
    lh_error why = {0};
    lh_status status = lhi_layout_build(p->job, config, built, &why);
    *out = UNLIKE;
    if (status == LH_OK) {
        *out = compare(p->pipeline, built->pipeline);
        return LH_OK;
    }
    built->pipeline = NULL;
    if (lhi_layout_refused(status))
        return LH_OK;
    if (err)
        *err = why;
    return status;
}

static lh_status refuse_state(const lhi_doc *doc, const lhi_config *has,
                              const lhi_config *fits, lh_error *err)
{
    char is[16], was[16];
    const lhi_node *root = doc->root;
    snprintf(is, sizeof is, "%" PRIu32, has->zero);
    snprintf(was, sizeof was, "%" PRIu32, fits->zero);
    const char *of = "training.zero", *said = is, *fit = was;
    const lhi_node *at = lhi_find(root, "zero");
    if (has->recompute != fits->recompute) {
        of = "training.recompute";
        at = lhi_find(root, "recompute");
        said = lh_recompute_name(has->recompute);
        fit = lh_recompute_name(fits->recompute);
    } else if (has->layout.sharding != fits->layout.sharding) {
        of = "layout.sharding";
        at = lhi_find(lhi_find(root, "layout"), "sharding");
        said = lh_sharding_name(has->layout.sharding);
        fit = lh_sharding_name(fits->layout.sharding);
    }
    return lhi_doc_fail(doc, at ? at : root, err, LH_EINPUT,
                        "is '%s', but the plan's pipeline is that of '%s'; to "
                        "have another, set %s in the job and plan again",
                        said, fit, of);
}

/* Whether other recomputation, stage or sharding comes nearer to the plan's
 * pipeline: an edit. Where none does, as in plans of versions with other costs,
 * the file says nothing against itself. */
static lh_status find_edit(const lhi_doc *doc, const lh_plan *p,
                           const lhi_config *has, likeness like, lh_error *err)
{
    lhi_config best = *has, try = *has;
    bool given = has->layout.sharding != LH_SHARDING_ANY;
    uint32_t last = given ? LH_SHARDING_HYBRID_LEADERS : LH_SHARDING_ANY;
    for (uint32_t r = LH_RECOMPUTE_NONE; r <= LH_RECOMPUTE_MODULES; r++)
        for (uint32_t zero = 0; zero <= 3; zero++)
            for (uint32_t k = given; k <= last; k++) {
                lhi_built built;
                likeness now;
                if (r == LH_RECOMPUTE_MODULES &&
                    p->job->training.recompute != LH_RECOMPUTE_MODULES)
                    continue;
                try.recompute = (lh_recompute)r;
                try.zero = zero;
                try.layout.sharding = (lh_sharding)k;
                LHI_TRY(likeness_of(p, &try, &built, &now, err));
                lh_pipeline_free(built.pipeline);
                if (now > like) {
                    like = now;
                    best = try;
                }
            }
    if (best.recompute == has->recompute && best.zero == has->zero &&
        best.layout.sharding == has->layout.sharding)
        return LH_OK;
    return refuse_state(doc, has, &best, err);
}

static lh_status check_source(const lhi_doc *doc, const lh_plan *p,
                              const char *want, lh_error *err)
{
    if (strcmp(p->cost_source, want) == 0)
        return LH_OK;
    return lhi_doc_fail(doc, lhi_find(doc->root, "cost_source"), err, LH_EINPUT,
                        "is '%.60s', but times of the plan's pipeline are "
                        "from '%s'",
                        p->cost_source, want);
}

static lh_status check_source_word(const lhi_doc *doc, const lh_plan *p,
                                   lh_error *err)
{
    for (int i = LH_COST_MODEL; i <= LH_COST_PART_EFFICIENCY; i++)
        if (strcmp(p->cost_source, lh_cost_source_name((lh_cost_source)i)) == 0)
            return LH_OK;
    return lhi_doc_fail(doc, lhi_find(doc->root, "cost_source"), err, LH_EINPUT,
                        "is '%.60s'; it may be model, efficiency, profile, "
                        "mixed or part-efficiency",
                        p->cost_source);
}

/* An elastic plan's pipeline has its groups' operations beside a layout's, but
 * its limits. */
static lh_status check_built(const lhi_doc *doc, const lh_plan *p,
                             lh_error *err)
{
    const lhi_config config = lhi_config_of(&p->best);
    lhi_built built;
    likeness like;
    LHI_TRY(likeness_of(p, &config, &built, &like, err));
    lh_status status = check_peak(doc, p, built.pipeline, err);
    lh_pipeline_free(built.pipeline);
    if (status != LH_OK || p->best.elastic)
        return status;
    if (like == SAME)
        return check_source(doc, p, lh_cost_source_name(built.source), err);
    return find_edit(doc, p, &config, like, err);
}

lh_status lhi_built_check(const lhi_doc *doc, const lh_plan *p, lh_error *err)
{
    LHI_TRY(check_devices(doc, p, err));
    LHI_TRY(check_passes(doc, p, err));
    LHI_TRY(check_bubble(doc, p, err));
    LHI_TRY(check_account(doc, p, err));
    LHI_TRY(check_outermost(doc, p, err));
    LHI_TRY(check_sharding(doc, p, err));
    LHI_TRY(check_source_word(doc, p, err));
    return check_built(doc, p, err);
}
