/* SPDX-License-Identifier: Apache-2.0 */
/* Compares pipelines that cross datacenters (PP-out) with whole replicas per
 * datacenter (DP-out) over a parameter: ScaleAcross Explorer (2026), figures 7
 * and 10. Each point plans both, with the plan's tensor, context and expert
 * degrees; everything else is as open as in the job. */
#include "planner/explain/curves.h"

#include "base/fail.h"
#include "base/integer_math.h"
#include "planner/explain/found_plans.h"
#include "planner/layout/site_search.h"
#include "planner/search/plan_search.h"
#include "planner/search/search_budget.h"

#include <math.h>
#include <string.h>

/* Points of a curve; curves per quantity. */
enum { MOST_POINTS = 8, N_SERIES = 2 };

static const char *const series_names[N_SERIES] = {"PP-out", "DP-out"};

/* State for one plan's curves. */
typedef struct curve_builder {
    const lh_job *job;
    const lh_plan_options *options;
    lhi_arena *mem;
    lhi_evaluation_cache *tried;
    lh_plan *plan;
    lh_sites sites[N_SERIES]; /* counts left open */
    bool stopped;
} curve_builder;

/* Builds the two placements that the curves compare: one pipeline through all
 * datacenters in the job's order, and complete replicas in each datacenter. */
static lh_status make_sites(curve_builder *p, lh_error *err)
{
    uint32_t n = p->job->n_datacenters;
    lh_site_stages *parts = LHI_NEW(p->mem, lh_site_stages, n);
    lh_site_group *groups = LHI_NEW(p->mem, lh_site_group, n + (size_t)1);
    if (!parts || !groups)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < n; i++) {
        parts[i].datacenter = i;
        groups[i] = (lh_site_group){.n_parts = 1, .parts = &parts[i]};
    }
    groups[n] = (lh_site_group){.n_parts = n, .parts = parts};
    p->sites[0] = (lh_sites){1, &groups[n]};
    p->sites[1] = (lh_sites){n, groups};
    return LH_OK;
}

/* --- one point ------------------------------------------------------------ */

enum { PARTS = 12 }; /* work per point: the plan's divided by PARTS */

/* Lowers the iteration time *ns to that of a plan (-1: none known). */
static void keep_faster(const lh_choice *choice, int64_t *ns)
{
    *ns = *ns < 0 ? choice->iteration_ns
                  : lhi_min_int64(*ns, choice->iteration_ns);
}

/* Searches the best plan for one point of a curve, with placement `sites`, even
 * layers and the plan's tensor, context and expert degrees. *ns: the point's
 * least iteration time so far (-1: none), lowered if the plan is faster. The
 * plan joins the pool `known`; `job` must outlive it. */
static lh_status plan_point(const curve_builder *p, lh_job *job,
                            const lh_sites *sites, lhi_found_plans *known,
                            int64_t *ns, lh_error *err)
{
    const lh_layout *best = &p->plan->best.layout;
    const uint64_t whole = lhi_compute_layout_work(p->options);
    const uint64_t part = whole / PARTS + 1;
    const uint64_t least =
        whole < LHI_MIN_SEARCH_WORK ? whole : LHI_MIN_SEARCH_WORK;
    lh_plan_options how = {.size = sizeof how,
                           .sub_blocks = p->options->sub_blocks,
                           .no_optimal = true,
                           .partition = LH_PARTITION_EVEN,
                           .top = 1,
                           .layout_effort = part > least ? part : least,
                           .seconds = p->options->seconds / PARTS,
                           .threads = p->options->threads,
                           .progress = p->options->progress,
                           .context = p->options->context,
                           .max_chunk_ratio = p->options->max_chunk_ratio};
    lhi_arena *scratch = lhi_arena_make(0);
    lh_error why = {0};
    if (!scratch)
        return lhi_fail_nomem(err);
    job->layout = p->job->layout;
    job->layout.tensor = best->tensor;
    job->layout.context = best->context;
    job->layout.expert = best->expert;
    job->layout.outermost = LH_OUTERMOST_ANY;
    job->layout.sites = sites;
    job->layout.group_micro_batches = job->layout.site_tensors = NULL;
    job->layout.tensor_per_site = false;
    lh_plan there = {.job = job};
    lh_status status =
        lhi_plan_search(job, &how, scratch, NULL, lhi_max_int64(*ns, 0),
                        p->tried, &there, &why);
    if (status == LH_OK) {
        keep_faster(&there.best, ns);
        status = lhi_found_plans_keep(known, p->mem, &there, &why);
    } else {
        lh_pipeline_free((lh_pipeline *)there.pipeline);
        lh_schedule_free((lh_schedule *)there.schedule);
    }
    lhi_arena_free(scratch);
    if (status == LH_OK || status == LH_EINFEASIBLE)
        return LH_OK;
    if (err)
        *err = why;
    return status;
}

/* Checks whether the plan itself belongs to a curve series: 0, one pipeline
 * through all datacenters; 1, whole replicas in each datacenter. */
static bool belongs_to_series(const curve_builder *p, uint32_t series)
{
    const lh_sites *own = p->plan->best.layout.sites;
    const uint32_t n = p->job->n_datacenters;
    if (!own)
        return false;
    if (series == 0)
        return own->n_groups == 1 && own->groups[0].n_parts == n;
    return own->n_groups == n && lhi_sites_outermost(own) == LH_OUTERMOST_DATA;
}

/* Evaluates `plan`, with its layers and schedule, on `job`, and lowers *ns, the
 * least iteration time at a curve's point, if the plan is faster. */
static lh_status include_plan(const lh_plan *plan, const lh_job *job,
                              int64_t *ns, lh_error *err)
{
    lh_choice kept;
    lh_error why = {0};
    lhi_arena *scratch = lhi_arena_make(0);
    if (!scratch)
        return lhi_fail_nomem(err);
    lh_status status =
        lhi_plan_evaluate_on_job(plan, job, scratch, &kept, &why);
    lhi_arena_free(scratch);
    if (status == LH_OK)
        keep_faster(&kept, ns);
    if (status == LH_OK || status == LH_EUNSUPPORTED)
        return LH_OK; /* times exceed a pipeline's range */
    if (err)
        *err = why;
    return status;
}

/* Builds the job for one point of a curve: the plan's job with the curve's
 * parameter (number of experts, or oversubscription) set to `x`. */
static lh_status make_job(const curve_builder *p, const lh_plan_curve *curve,
                          double x, lh_job *job, lh_error *err)
{
    size_t n = (size_t)p->job->n_datacenters * p->job->n_datacenters;
    *job = *p->job;
    if (curve->over == LH_CURVE_EXPERTS) {
        lh_model *model = LHI_NEW(p->mem, lh_model, 1);
        if (!model)
            return lhi_fail_nomem(err);
        *model = *p->job->model;
        model->experts = (uint32_t)x;
        job->model = model;
        return LH_OK;
    }
    lh_wan *wans = LHI_NEW(p->mem, lh_wan, n);
    if (!wans)
        return lhi_fail_nomem(err);
    memcpy(wans, p->job->wans, n * sizeof *wans);
    for (size_t i = 0; i < n; i++)
        if (wans[i].bytes_per_s > 0)
            wans[i].oversubscription = x;
    job->wans = wans;
    return LH_OK;
}

/* --- curve ---------------------------------------------------------------- */

/* Finds where the two series of a curve cross between neighbouring points, by
 * interpolation on the parameter's logarithm. Stores the parameter values in
 * `crossings`; returns their number. */
static uint32_t find_crossings(const lh_plan_curve *c, double *crossings)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i + 1 < c->n_points; i++) {
        const int64_t *a = &c->iteration_ns[i], *b = a + c->n_points;
        if (a[0] < 0 || a[1] < 0 || b[0] < 0 || b[1] < 0)
            continue;
        double low = (double)(a[0] - b[0]), high = (double)(a[1] - b[1]);
        if ((low < 0) == (high < 0))
            continue;
        double share = low / (low - high);
        crossings[found++] =
            exp(log(c->xs[i]) + share * log(c->xs[i + 1] / c->xs[i]));
    }
    return found;
}

/* Reports progress to the caller. Returns true from the first time that the
 * caller asks to stop. */
static bool is_stopped(curve_builder *p, uint32_t done, uint32_t total)
{
    if (p->options->progress && !p->stopped)
        p->stopped = p->options->progress(p->options->context, done, total,
                                          p->plan->best.iteration_ns);
    return p->stopped;
}

/* Searches plans for both series of a curve at its x value xs[point]. Stores
 * their iteration times in ns[point] and ns[n_points + point], -1 if nothing
 * fits. `known`: each series' pool of plans. *reached: both were searched, as
 * the caller did not stop. */
static lh_status plan_all_series(curve_builder *p, const lh_plan_curve *out,
                                 uint32_t point, lhi_found_plans *known,
                                 int64_t *ns, bool *reached, lh_error *err)
{
    uint32_t n = out->n_points;
    for (uint32_t s = 0; s < N_SERIES; s++) {
        int64_t *at = &ns[s * n + point];
        *at = -1;
        if (is_stopped(p, N_SERIES * point + s, N_SERIES * n))
            break;
        lh_job *job = LHI_NEW(p->mem, lh_job, 1);
        if (!job)
            return lhi_fail_nomem(err);
        LHI_TRY(make_job(p, out, out->xs[point], job, err));
        /* Plans of another curve point have other links, but fit here, too. */
        const bool same_model = out->over == LH_CURVE_OVERSUBSCRIPTION;
        if (same_model && belongs_to_series(p, s))
            LHI_TRY(include_plan(p->plan, job, at, err));
        for (uint32_t i = 0; same_model && i < known[s].n; i++)
            LHI_TRY(include_plan(&known[s].all[i], job, at, err));
        LHI_TRY(plan_point(p, job, &p->sites[s], &known[s], at, err));
    }
    *reached = !is_stopped(p, N_SERIES * (point + 1), N_SERIES * n);
    return LH_OK;
}

/* Computes one curve: iteration times of both series over the parameter `over`
 * at the values xs[0..n-1], and their crossings. */
static lh_status build_curve(curve_builder *p, lh_curve_over over,
                             const double *xs, uint32_t n, lh_plan_curve *out,
                             lh_error *err)
{
    double *at = LHI_NEW(p->mem, double, MOST_POINTS);
    double *crossings = LHI_NEW(p->mem, double, MOST_POINTS);
    int64_t *ns = LHI_NEW(p->mem, int64_t, N_SERIES * MOST_POINTS);
    lhi_found_plans known[N_SERIES] = {{0}};
    lh_status status = LH_OK;
    uint32_t drawn = 0;
    bool reached = true;
    if (!at || !crossings || !ns)
        return lhi_fail_nomem(err);
    memcpy(at, xs, n * sizeof *xs);
    *out = (lh_plan_curve){.over = over,
                           .n_points = n,
                           .xs = at,
                           .n_series = N_SERIES,
                           .series = series_names,
                           .iteration_ns = ns};
    for (uint32_t i = 0; i < n && reached && status == LH_OK; i++) {
        status = plan_all_series(p, out, i, known, ns, &reached, err);
        drawn += reached;
    }
    for (uint32_t s = 0; s < N_SERIES; s++)
        lhi_found_plans_fini(&known[s]);
    LHI_TRY(status);
    for (uint32_t s = 1; s < N_SERIES; s++)
        memmove(ns + s * drawn, ns + s * n, drawn * sizeof *ns);
    out->n_points = drawn;
    out->n_crossings = find_crossings(out, crossings);
    out->crossings = crossings;
    return LH_OK;
}

/* Lists a curve's expert counts in xs[]: a quarter to four times the job's,
 * multiples of the expert degree. Returns their number. */
static uint32_t list_experts(const curve_builder *p, double *xs)
{
    const lh_model *m = p->job->model;
    uint32_t n = 0, degree = p->plan->best.layout.expert;
    for (int i = -2; i <= 2; i++) {
        double x = m->experts * exp2(i);
        if (x >= 1 && x >= m->experts_per_token && x <= 65536 &&
            !(x > floor(x)) && (uint32_t)x % degree == 0)
            xs[n++] = x;
    }
    return n;
}

lh_status lhi_plan_curves(const lh_job *job, const lh_plan_options *options,
                          lhi_arena *mem, lhi_evaluation_cache *tried,
                          lh_plan *plan, lh_error *err)
{
    static const double shares[] = {1, 2, 4, 8, 16, 32};
    curve_builder p = {.job = job,
                       .options = options,
                       .mem = mem,
                       .tried = tried,
                       .plan = plan};
    lh_plan_curve *curves = LHI_NEW(mem, lh_plan_curve, 2);
    double experts[MOST_POINTS];
    if (!curves)
        return lhi_fail_nomem(err);
    plan->curves = curves;
    if (job->n_datacenters < 2)
        return LH_OK;
    LHI_TRY(make_sites(&p, err));
    LHI_TRY(build_curve(&p, LH_CURVE_OVERSUBSCRIPTION, shares,
                        sizeof shares / sizeof *shares, &curves[0], err));
    plan->n_curves = curves[0].n_points > 0;
    uint32_t n = list_experts(&p, experts);
    if (job->model->experts == 0 || n < 2 || p.stopped)
        return LH_OK;
    LHI_TRY(build_curve(&p, LH_CURVE_EXPERTS, experts, n, &curves[1], err));
    plan->n_curves += curves[1].n_points > 0;
    return LH_OK;
}
