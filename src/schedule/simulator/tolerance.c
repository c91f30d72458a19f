/* SPDX-License-Identifier: Apache-2.0 */
/* Computes the delay that each boundary between devices absorbs, by simulation.
 *
 * With fixed device orders, an iteration is a longest path. If c is added in
 * both directions at a boundary, makespan(c) is the maximum over lines whose
 * slopes are the crossing count, so it is convex. A delay must be paid
 * once forward and once backward; bubbles cascade where it is paid more often.
 * The search therefore finds the last ns that costs at most 2 ns. That is the
 * right end of the minimum of makespan(c) - 2c, found by cutting lines from
 * both sides (Kelley 1960).
 *
 * If several devices share a link, or a coupled queue has two or more entries
 * (the first message to arrive frees one), a longer delay may become cheaper
 * again. Then several such ends exist, and one of them is found. */
#include "schedule/simulator/timeline.h"

#include "base/integer_math.h"

#include <stdlib.h>
#include <string.h>

/* State for one boundary; `extra` is added to the latency in both directions.
 */
typedef struct search {
    lh_pipeline *now; /* with its own routes */
    const lh_pipeline *p;
    const lh_schedule *schedule;
    lh_evaluator *evaluator;
    uint32_t boundary;
    lh_status status;
    lh_error *err;
} search;

/* Makespan that stands for a deadlock. */
#define DEADLOCK_NS (INT64_MAX / 8)

/* Returns the makespan in ns with `extra` ns added to the latency of the
 * boundary under test in both directions; DEADLOCK_NS if the schedule
 * deadlocks. */
static int64_t simulate(search *s, int64_t extra)
{
    lh_error why;
    int64_t ns = DEADLOCK_NS;
    uint32_t i = s->boundary;
    s->now->forward[i].latency_ns = s->p->forward[i].latency_ns + extra;
    s->now->backward[i + 1].latency_ns =
        s->p->backward[i + 1].latency_ns + extra;
    lh_status status = lh_evaluator_run(s->evaluator, s->schedule, &ns, &why);
    if (status != LH_OK && status != LH_EDEADLOCK && s->status == LH_OK) {
        s->status = status;
        if (s->err)
            *s->err = why;
    }
    return ns;
}

/* Returns the makespan increase in ns from one more ns of delay beyond `extra`,
 * minus the 2 ns that are tolerated. *ns: the makespan with `extra`.
 * DEADLOCK_NS: the schedule deadlocks. */
static int64_t compute_slope(search *s, int64_t extra, int64_t *ns)
{
    *ns = simulate(s, extra);
    return *ns == DEADLOCK_NS ? DEADLOCK_NS : simulate(s, extra + 1) - *ns - 2;
}

/* Returns the intersection of the lines through two points (delay, makespan,
 * slope), limited to between both delays. */
static int64_t intersect(int64_t low, double low_at, double low_slope,
                         int64_t high, double high_at, double high_slope)
{
    double width = (double)(high - low);
    double at =
        (high_at - low_at - high_slope * width) / (low_slope - high_slope);
    int64_t ns = low + (int64_t)lhi_max_int64((int64_t)at, 1);
    return lhi_min_int64(ns, high - 1);
}

/* Returns the largest delay in ns at one boundary whose last ns costs at most 2
 * ns of makespan; `least` if no delay is tolerated, LH_NO_LIMIT if any is. */
static int64_t find_extra(search *s, int64_t least)
{
    int64_t low = least, high, low_ns, high_ns;
    int64_t low_steep = compute_slope(s, low, &low_ns);
    if (low_steep > 0)
        return least;
    /* If the delay is ever paid more than twice, it is from here on. */
    high = simulate(s, 0) + 1;
    int64_t high_steep = compute_slope(s, high, &high_ns);
    if (high_steep <= 0)
        return LH_NO_LIMIT;
    /* Invariant: one ns after `low` costs at most 2, after `high` more. */
    for (uint32_t turn = 1; high - low > 1 && s->status == LH_OK; turn++) {
        int64_t at = low + (high - low) / 2, ns;
        if (turn % 3 != 0)
            at = intersect(
                low, (double)low_ns - 2 * (double)low, (double)low_steep, high,
                (double)high_ns - 2 * (double)high, (double)high_steep);
        int64_t steep = compute_slope(s, at, &ns);
        if (steep <= 0) {
            low = at;
            low_ns = ns;
            low_steep = steep;
        } else {
            high = at;
            high_ns = ns;
            high_steep = steep;
        }
    }
    return low + 1;
}

/* Finds tolerances[i], the delay tolerance in ns one way, for each boundary i
 * of the n boundaries between chunks. */
static void find_all(search *s, uint32_t n, int64_t *tolerances)
{
    for (uint32_t i = 0; i < n && s->status == LH_OK; i++) {
        s->boundary = i;
        const lhi_route *there = &s->p->forward[i];
        const lhi_route *back = &s->p->backward[i + 1];
        int64_t least = -lhi_min_int64(there->latency_ns, back->latency_ns);
        int64_t extra = find_extra(s, least);
        tolerances[i] = extra == LH_NO_LIMIT ? LH_NO_LIMIT
                        : extra == least
                            ? 0
                            : lhi_round_trip_ns(s->p, i) / 2 + extra;
        s->now->forward[i] = *there;
        s->now->backward[i + 1] = *back;
    }
}

/* Builds the pipeline with links in both directions between all neighbouring
 * devices, so that a delay can be added everywhere. Existing links keep their
 * numbers. */
static lh_status build_linked_pipeline(const lh_pipeline *p, lhi_arena *mem,
                                       lh_pipeline **out, lh_error *err)
{
    lh_pipeline_desc desc = {.size = sizeof desc};
    LHI_TRY(lh_pipeline_describe(p, &desc, err));
    lh_link *links = LHI_NEW(mem, lh_link, p->n_links + 2 * p->n_devices);
    if (!links)
        return lhi_fail_nomem(err);
    if (p->n_links)
        memcpy(links, p->links, p->n_links * sizeof *links);
    for (uint32_t i = 0; i + 1 < p->n_devices; i++) {
        if (p->forward[i].link == LH_NONE)
            links[desc.n_links++] = (lh_link){.from = i, .to = i + 1};
        if (p->backward[i + 1].link == LH_NONE)
            links[desc.n_links++] = (lh_link){.from = i + 1, .to = i};
    }
    desc.links = links;
    return lhi_pipeline_rebuild(p, &desc, out, err);
}

/* Copies `options`, and extends its array `delegated` to the links of `linked`;
 * added links are not delegated. */
static lh_status extend_options(const lh_pipeline *p, const lh_pipeline *linked,
                                const lh_sim_options *options, lhi_arena *mem,
                                lh_sim_options *out, lh_error *err)
{
    *out = *options;
    if (!options->delegated)
        return LH_OK;
    bool *delegated = LHI_NEW(mem, bool, linked->n_links + 1);
    if (!delegated)
        return lhi_fail_nomem(err);
    if (p->n_links)
        memcpy(delegated, options->delegated, p->n_links * sizeof *delegated);
    out->delegated = delegated;
    return LH_OK;
}

/* Computes tolerances[i], each boundary's delay tolerance, on the pipeline
 * `linked`, which has links between all neighbouring devices. */
static lh_status find_on_linked(const lh_pipeline *p, const lh_pipeline *linked,
                                const lh_schedule *schedule,
                                const lh_sim_options *options, lhi_arena *mem,
                                int64_t *tolerances, lh_error *err)
{
    lh_pipeline now = *linked;
    lh_sim_options fitting;
    size_t routes = linked->n_chunks * sizeof *now.forward;
    now.forward = LHI_NEW(mem, lhi_route, linked->n_chunks);
    now.backward = LHI_NEW(mem, lhi_route, linked->n_chunks);
    if (!now.forward || !now.backward)
        return lhi_fail_nomem(err);
    memcpy(now.forward, linked->forward, routes);
    memcpy(now.backward, linked->backward, routes);
    if (!p->shared_at) /* a link only added here carries no communication */
        now.shared_at = NULL;
    LHI_TRY(extend_options(p, linked, options, mem, &fitting, err));
    search s = {.now = &now, .p = linked, .schedule = schedule, .err = err};
    LHI_TRY(lh_evaluator_make(&now, &fitting, &s.evaluator, err));
    find_all(&s, p->n_devices - 1, tolerances);
    lh_evaluator_free(s.evaluator);
    return s.status;
}

/* Checks whether the simulations of a tolerance search stay within the work
 * limit, which corresponds to one or two tenths of a second. */
static bool is_small(const lh_pipeline *p, const lh_schedule *schedule,
                     const lh_sim_options *options)
{
    bool slow = options->coupled_queue || schedule->n_link_orders ||
                options->receives != LH_RECEIVES_EARLY || options->delegated ||
                p->shared_at || p->overlap_f_b > 0 || p->n_slices > 1 ||
                (options->host_copy_ns && lh_pipeline_has_host(p));
    uint64_t passes = 0;
    for (uint32_t d = 0; d < p->n_devices; d++)
        passes += schedule->counts[d];
    return passes * (p->n_devices - 1) <=
           (slow ? LHI_TOLERANCE_WORK / 16 : LHI_TOLERANCE_WORK);
}

lh_status lhi_sim_find_tolerances(const lh_pipeline *pipeline,
                                  const lh_schedule *schedule,
                                  const lh_sim_options *options,
                                  lhi_arena *scratch, int64_t *tolerances,
                                  lh_error *err)
{
    lh_pipeline *linked = NULL;
    if (!is_small(pipeline, schedule, options)) {
        for (uint32_t i = 0; i + 1 < pipeline->n_devices; i++)
            tolerances[i] = -1;
        return LH_OK;
    }
    LHI_TRY(build_linked_pipeline(pipeline, scratch, &linked, err));
    lh_status status = find_on_linked(pipeline, linked, schedule, options,
                                      scratch, tolerances, err);
    lh_pipeline_free(linked);
    return status;
}
