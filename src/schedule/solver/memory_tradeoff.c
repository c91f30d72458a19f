/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the smallest memory limit by bisection. Each step asks lh_solve() for a
 * schedule within the limit and a given makespan. */
#include "base/fail.h"
#include "base/integer_math.h"
#include "base/options.h"
#include "schedule/pipeline/pipeline_internal.h"
#include "schedule/solver/model/budget.h"

#include <inttypes.h>
#include <longhaul/experimental/tradeoff.h>
#include <longhaul/simulate.h>
#include <stdlib.h>

/* Defaults: effort per point, and number of points. */
enum { EFFORT = 2000000, POINTS = 64 };

/* State for one trade-off. */
typedef struct tradeoff_state {
    const lh_pipeline *p;
    lh_tradeoff_options o;
    lh_solve_options each; /* copied from `o` */
    double begin_s;
    bool stopped; /* by the caller, or out of time */
    /* Per device: static memory, and the granularity in which its passes change
     * memory. Limits between two multiples are equivalent. */
    int64_t *held, *step;
    int64_t least; /* smallest limit worth testing */
} tradeoff_state;

/* Forwards progress `now` to the caller's callback. Returns whether the
 * callback requests a stop, and records that. */
static bool forward_progress(void *context, const lh_solve_progress *now)
{
    tradeoff_state *t = context;
    if (t->each.progress && t->each.progress(t->each.context, now))
        t->stopped = true;
    return t->stopped;
}

/* --- limits -------------------------------------------------------------- */

/* Computes per device the static memory, and the smallest step by which its
 * memory use can change; useful limits differ by multiples of that step. */
static lh_status compute_granularity(tradeoff_state *t, lh_error *err)
{
    const lh_pipeline *p = t->p;
    uint32_t parts = t->each.sub_blocks ? t->each.sub_blocks : 1;
    t->held = calloc(p->n_devices, sizeof *t->held);
    t->step = calloc(p->n_devices, sizeof *t->step);
    if (!t->held || !t->step)
        return lhi_fail_nomem(err);
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        const lh_chunk *k = &p->chunks[c];
        int64_t *step = &t->step[k->device];
        t->held[k->device] += k->mem_static;
        *step = lhi_gcd(*step, k->mem_f);
        *step = lhi_gcd(*step, p->joint ? k->mem_d + k->mem_w : k->mem_d);
        for (uint32_t i = 0; !p->joint && i < parts; i++)
            *step = lhi_gcd(*step, lhi_split_evenly(k->mem_w, i, parts));
    }
    for (uint32_t d = 0; d < p->n_devices; d++)
        if (t->held[d] > t->least)
            t->least = t->held[d];
    return LH_OK;
}

/* Returns the largest useful memory limit (level) up to `limit`, at which some
 * device fits exactly one more activation. All limits up to the next level are
 * equivalent. */
static int64_t find_level_at(const tradeoff_state *t, int64_t limit)
{
    int64_t best = t->least;
    for (uint32_t d = 0; d < t->p->n_devices; d++) {
        if (t->step[d] == 0 || limit < t->held[d])
            continue;
        int64_t level = limit - (limit - t->held[d]) % t->step[d];
        best = level > best ? level : best;
    }
    return best < limit ? best : limit;
}

/* Returns the next useful memory limit (level) above `limit`; INT64_MAX:
 * none. */
static int64_t find_level_above(const tradeoff_state *t, int64_t limit)
{
    int64_t best = INT64_MAX;
    for (uint32_t d = 0; d < t->p->n_devices; d++) {
        if (t->step[d] == 0)
            continue;
        int64_t over = limit < t->held[d] ? 0 : limit - t->held[d];
        int64_t level = t->held[d];
        if (limit >= t->held[d])
            level += (over / t->step[d] + 1) * t->step[d];
        best = level < best ? level : best;
    }
    return best;
}

/* Copies the pipeline with all memory limits lowered to at most `limit`. */
static lh_status copy_with_limit(const lh_pipeline *p, int64_t limit,
                                 lh_pipeline **out, lh_error *err)
{
    lh_pipeline_desc desc = {.size = sizeof desc};
    LHI_TRY(lh_pipeline_describe(p, &desc, err));
    int64_t *limits = malloc(p->n_devices * sizeof *limits);
    if (!limits)
        return lhi_fail_nomem(err);
    for (uint32_t d = 0; d < p->n_devices; d++)
        limits[d] = p->memory_limits[d] < limit ? p->memory_limits[d] : limit;
    desc.memory_limits = limits;
    lh_status status = lh_pipeline_make(&desc, out, err);
    free(limits);
    return status;
}

/* Returns in *out the memory limit that a schedule requires: a device's largest
 * peak. */
static lh_status compute_required_limit(const tradeoff_state *t,
                                        const lh_schedule *schedule,
                                        int64_t *out, lh_error *err)
{
    lh_timeline *timeline = NULL;
    LHI_TRY(lh_simulate(t->p, schedule, NULL, &timeline, err));
    *out = t->least;
    for (uint32_t d = 0; d < t->p->n_devices; d++) {
        int64_t peak = lh_timeline_peak_memory(timeline, d);
        *out = peak > *out ? peak : *out;
    }
    lh_timeline_free(timeline);
    return LH_OK;
}

/* --- steps --------------------------------------------------------------- */

/* Checks whether the wall-clock limit is exceeded, and records that it stopped
 * the search. */
static bool is_timed_out(tradeoff_state *t)
{
    double limit = t->each.time_limit_s;
    if (limit > 0 && lhi_seconds() - t->begin_s >= limit)
        t->stopped = true;
    return t->stopped;
}

/* Finds the fastest schedule within the memory limit `limit`; with target_ns >
 * 0, any schedule within that makespan. */
static lh_status solve_within(tradeoff_state *t, int64_t limit,
                              int64_t target_ns, lh_solution *out,
                              lh_error *err)
{
    lh_pipeline *p = NULL;
    lh_solve_options o = t->each;
    o.progress = forward_progress;
    o.context = t;
    o.target_ns = target_ns;
    if (limit != LH_NO_LIMIT)
        o.initial_schedule = NULL; /* may exceed the limit */
    if (o.time_limit_s > 0) {
        double left = o.time_limit_s - (lhi_seconds() - t->begin_s);
        o.time_limit_s = left > 1e-3 ? left : 1e-3;
    }
    LHI_TRY(copy_with_limit(t->p, limit, &p, err));
    lh_status status = lh_solve(p, &o, out, err);
    lh_pipeline_free(p);
    is_timed_out(t);
    return status;
}

/* Moves solution `from`'s schedule, with its makespan, into `point` of the
 * memory-time curve; the point then owns it. */
static void take_schedule(lh_memory_point *point, lh_solution *from)
{
    lh_schedule_free(point->schedule);
    point->schedule = from->schedule;
    point->makespan_ns = from->makespan_ns;
    from->schedule = NULL;
}

/* Checks whether a solution proves that no schedule takes target_ns or less. */
static bool is_target_refuted(const lh_solution *s, int64_t target_ns)
{
    return s->status == LH_SOLVE_INFEASIBLE || s->bound_ns > target_ns;
}

/* Lowers the memory limit of `point` (of the curve of makespan over memory),
 * and raises the proven lower bound on the limit, by bisection. Each step tries
 * to find or to refute a schedule within the middle limit; if it does neither,
 * only larger limits are tried, and the bound stays. */
static lh_status lower_limit(tradeoff_state *t, lh_memory_point *point,
                             lh_error *err)
{
    int64_t from = point->limit_bound;
    LHI_TRY(compute_required_limit(t, point->schedule, &point->limit, err));
    point->limit = find_level_at(t, point->limit);
    while (from < point->limit && !is_timed_out(t)) {
        int64_t middle = find_level_at(t, from + (point->limit - 1 - from) / 2);
        lh_solution s = {0};
        if (middle < from)
            middle = from;
        LHI_TRY(solve_within(t, middle, point->target_ns, &s, err));
        bool found = s.makespan_ns >= 0 && s.makespan_ns <= point->target_ns;
        lh_status status = LH_OK;
        if (found) {
            take_schedule(point, &s);
            status =
                compute_required_limit(t, point->schedule, &point->limit, err);
        } else {
            int64_t next = find_level_above(t, middle);
            bool proven = is_target_refuted(&s, point->target_ns) &&
                          point->limit_bound == from;
            from = next < point->limit ? next : point->limit;
            point->limit_bound = proven ? from : point->limit_bound;
        }
        lh_solution_fini(&s);
        LHI_TRY(status);
    }
    if (point->limit_bound > point->limit)
        point->limit_bound = point->limit;
    return LH_OK;
}

/* Fails with the reason why no schedule meets the requested makespan: none
 * exists, or none was found. */
static lh_status report_failure(const tradeoff_state *t, const lh_solution *s,
                                lh_error *err)
{
    int64_t asked = t->o.makespan_ns;
    if (s->status == LH_SOLVE_INFEASIBLE)
        return lhi_fail(err, LH_EINFEASIBLE, "infeasible: %s", s->why);
    if (asked > 0 && s->bound_ns > asked)
        return lhi_fail(err, LH_EINFEASIBLE,
                        "no schedule takes at most %.9g s, whatever the "
                        "memory limit: the least is %.9g s or more (%s)",
                        (double)asked / 1e9, (double)s->bound_ns / 1e9, s->why);
    if (s->status == LH_SOLVE_UNKNOWN)
        return lhi_fail(err, LH_EINFEASIBLE,
                        "no schedule was found before the search ended; give "
                        "it more time%s",
                        t->each.disabled_engines ? ", or exclude fewer engines"
                                                 : "");
    return lhi_fail(err, LH_EINFEASIBLE,
                    "no schedule of at most %.9g s was found before the search "
                    "was stopped; the best takes %.9g s, and the proven bound "
                    "is %.9g s",
                    (double)asked / 1e9, (double)s->makespan_ns / 1e9,
                    (double)s->bound_ns / 1e9);
}

/* Finds the smallest memory limit with which a schedule meets the requested
 * makespan. */
static lh_status find_least_memory(tradeoff_state *t, lh_memory_point *out,
                                   lh_error *err)
{
    lh_solution s = {0};
    int64_t asked = t->o.makespan_ns;
    LHI_TRY(solve_within(t, LH_NO_LIMIT, asked, &s, err));
    if (!s.schedule || (asked > 0 && s.makespan_ns > asked)) {
        lh_status status = report_failure(t, &s, err);
        lh_solution_fini(&s);
        return status;
    }
    *out = (lh_memory_point){.target_ns = asked > 0 ? asked : s.makespan_ns,
                             .limit_bound = t->least,
                             .bound_ns = s.bound_ns};
    take_schedule(out, &s);
    lh_status status = lower_limit(t, out, err);
    out->status = out->makespan_ns <= out->bound_ns ? LH_SOLVE_OPTIMAL
                                                    : LH_SOLVE_FEASIBLE;
    return status;
}

/* --- curve --------------------------------------------------------------- */

/* Removes the points at the curve's end that are no faster than a new point,
 * which has a lower limit. */
static void drop_dominated(lh_memory_curve *curve, int64_t makespan_ns)
{
    while (curve->n_points > 0 &&
           curve->points[curve->n_points - 1].makespan_ns >= makespan_ns)
        lh_memory_point_fini(&curve->points[--curve->n_points]);
}

/* Adds to the curve schedule `s`'s point, the fastest within the current
 * limit, with the smallest memory limit found for its makespan. */
static lh_status add_point(tradeoff_state *t, lh_memory_curve *curve,
                           lh_solution *s, lh_error *err)
{
    lh_memory_point point = {.target_ns = s->makespan_ns,
                             .limit_bound = t->least,
                             .bound_ns = s->bound_ns};
    take_schedule(&point, s);
    lh_status status = lower_limit(t, &point, err);
    if (status != LH_OK) {
        lh_memory_point_fini(&point);
        return status;
    }
    point.target_ns = point.makespan_ns;
    point.status = point.makespan_ns <= point.bound_ns ? LH_SOLVE_OPTIMAL
                                                       : LH_SOLVE_FEASIBLE;
    drop_dominated(curve, point.makespan_ns);
    curve->points[curve->n_points++] = point;
    return LH_OK;
}

/* Computes the memory-time curve: the fastest schedule without a limit, then
 * with ever lower limits. */
static lh_status trace_curve(tradeoff_state *t, lh_memory_curve *curve,
                             lh_error *err)
{
    int64_t limit = LH_NO_LIMIT;
    uint32_t most = t->o.points ? t->o.points : POINTS;
    curve->points = calloc(most, sizeof *curve->points);
    if (!curve->points)
        return lhi_fail_nomem(err);
    curve->infeasible_below = -1;
    for (uint32_t asked = 0; asked < most && !t->stopped; asked++) {
        lh_solution s = {0};
        LHI_TRY(solve_within(t, limit, 0, &s, err));
        if (!s.schedule) {
            if (asked == 0) {
                lh_status status = report_failure(t, &s, err);
                lh_solution_fini(&s);
                return status;
            }
            curve->complete = s.status == LH_SOLVE_INFEASIBLE;
            if (curve->complete)
                curve->infeasible_below = find_level_above(t, limit);
            lh_solution_fini(&s);
            return LH_OK;
        }
        lh_status status = add_point(t, curve, &s, err);
        lh_solution_fini(&s);
        LHI_TRY(status);
        int64_t now = curve->points[curve->n_points - 1].limit;
        /* If there are more levels than points, use equal steps. */
        int64_t stride = (now - t->least) / (most - asked);
        limit = find_level_at(t, now - (stride > 1 ? stride : 1));
        if (limit >= now || now <= t->least) {
            curve->complete = true;
            curve->infeasible_below = t->least;
            return LH_OK;
        }
    }
    return LH_OK;
}

/* --- driver -------------------------------------------------------------- */

/* Copies and checks the options and computes the useful memory limits (levels)
 * of the pipeline. */
static lh_status begin_trade(tradeoff_state *t, const lh_pipeline *pipeline,
                             const lh_tradeoff_options *options, lh_error *err)
{
    *t = (tradeoff_state){.p = pipeline, .begin_s = lhi_seconds()};
    LHI_TRY(LHI_OPTIONS_COPY(lh_tradeoff_options, &t->o, options, err));
    LHI_TRY(
        LHI_OPTIONS_COPY(lh_solve_options, &t->each, t->o.solve_options, err));
    if (t->each.objective != LH_SOLVE_OBJECTIVE_MAKESPAN)
        return lhi_fail(err, LH_EINVAL,
                        "memory can be traded off only against the makespan");
    if (t->each.effort == 0)
        t->each.effort = EFFORT;
    return compute_granularity(t, err);
}

/* Frees a memory-time computation's arrays, but not the struct itself. */
static void free_state(tradeoff_state *t)
{
    free(t->held);
    free(t->step);
}

lh_status lh_minimise_memory(const lh_pipeline *pipeline,
                             const lh_tradeoff_options *options,
                             lh_memory_point *out, lh_error *err)
{
    tradeoff_state t;
    lh_memory_point point = {0};
    lh_status status = begin_trade(&t, pipeline, options, err);
    if (status == LH_OK)
        status = find_least_memory(&t, &point, err);
    free_state(&t);
    if (status == LH_OK)
        *out = point;
    else
        lh_memory_point_fini(&point);
    return status;
}

void lh_memory_point_fini(lh_memory_point *point)
{
    if (!point)
        return;
    lh_schedule_free(point->schedule);
    point->schedule = NULL;
}

lh_status lh_memory_curve_make(const lh_pipeline *pipeline,
                               const lh_tradeoff_options *options,
                               lh_memory_curve *out, lh_error *err)
{
    tradeoff_state t;
    lh_memory_curve curve = {0};
    lh_status status = begin_trade(&t, pipeline, options, err);
    if (status == LH_OK)
        status = trace_curve(&t, &curve, err);
    free_state(&t);
    if (status == LH_OK)
        *out = curve;
    else
        lh_memory_curve_fini(&curve);
    return status;
}

void lh_memory_curve_fini(lh_memory_curve *curve)
{
    if (!curve)
        return;
    for (uint32_t i = 0; i < curve->n_points; i++)
        lh_memory_point_fini(&curve->points[i]);
    free(curve->points);
    curve->points = NULL;
    curve->n_points = 0;
}
