/* SPDX-License-Identifier: Apache-2.0 */
#include "report/comparison/compare_internal.h"
#include "schedule/solver/bound/closed_forms.h"

#include <longhaul/experimental/bounds.h>
#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/simulate.h>
#include <longhaul/scheduler.h>

#include <stdio.h>
#include <string.h>

/* Default budget for `optimal` in a comparison, in units of about 1 us. */
enum { SEARCH_EFFORT = 200000 };

/* Checks whether a method's status is an outcome that the comparison's table
 * lists: success, infeasible, unsupported or deadlock. */
static bool is_result(lh_status status)
{
    return status == LH_OK || status == LH_EINFEASIBLE ||
           status == LH_EUNSUPPORTED || status == LH_EDEADLOCK;
}

/* Copies timeline `t`'s makespan, objective, peak memory and bubble ratio into
 * an outcome; its arrays are allocated in `mem`. */
static lh_status fill_outcome(const lh_compare_options *how,
                              const lh_timeline *t, lhi_arena *mem,
                              lh_outcome *out, lh_error *err)
{
    uint32_t n = lh_timeline_n_devices(t);
    int64_t *peaks = LHI_NEW(mem, int64_t, n);
    if (!peaks)
        return lhi_fail_nomem(err);
    out->peak_memory = INT64_MIN;
    for (uint32_t d = 0; d < n; d++) {
        peaks[d] = lh_timeline_peak_memory(t, d);
        if (peaks[d] > out->peak_memory)
            out->peak_memory = peaks[d];
    }
    out->peaks = peaks;
    out->makespan_ns = lh_timeline_makespan(t);
    out->ns = how->objective == LH_SOLVE_OBJECTIVE_FIRST_DEVICE
                  ? lh_timeline_first_device_end(t)
                  : out->makespan_ns;
    out->bubble_ratio = lh_timeline_bubble_ratio(t);
    out->fits = lh_timeline_fits(t, NULL);
    return LH_OK;
}

/* Simulates a schedule, with Monte Carlo jitter runs if requested, and fills in
 * the outcome's makespan, memory and ranking criterion. */
static lh_status simulate_outcome(const lh_compare_options *how,
                                  const lh_pipeline *p,
                                  const lh_schedule *schedule, lhi_arena *mem,
                                  lh_outcome *out, lh_error *err)
{
    lh_timeline *t = NULL;
    LHI_TRY(lh_simulate(p, schedule, how->sim, &t, err));
    lh_status status = fill_outcome(how, t, mem, out, err);
    lh_timeline_free(t);
    if (status != LH_OK || !how->jitter)
        return status;
    LHI_TRY(
        lh_jitter_run(p, schedule, how->sim, how->jitter, &out->jitter, err));
    if (how->by == LH_COMPARE_BY_MEAN)
        out->ns = (int64_t)out->jitter.mean_ns;
    if (how->by == LH_COMPARE_BY_P95)
        out->ns = out->jitter.p95_ns;
    return LH_OK;
}

/* Copies error message `why` into `mem` for the comparison's table: without a
 * leading name of the method, at most 190 bytes; NULL on allocation failure. */
static const char *copy_reason(const char *method, const char *why,
                               lhi_arena *mem)
{
    /* The row already shows the method's name. */
    size_t len = strlen(method);
    if (strncmp(why, method, len) == 0 && why[len] == ':')
        why += len + strspn(why + len, ": ");
    char text[200];
    snprintf(text, sizeof text, "%.190s", why);
    return lhi_arena_strdup(mem, text);
}

/* Evaluates the schedule that `method` builds or, if `on` has one, the
 * existing schedule. */
static lh_status evaluate_schedule(const lh_compare_options *how,
                                   const char *method,
                                   const lhi_compare_case *on, lhi_arena *mem,
                                   lh_outcome *out, lh_error *err)
{
    lh_method_options with = {
        .size = sizeof with, .sub_blocks = how->sub_blocks, .sim = how->sim};
    lh_scheduler_options search = {.size = sizeof search,
                                   .method = &with,
                                   .effort = how->effort ? how->effort
                                                         : SEARCH_EFFORT};
    lh_scheduler_result best = {0};
    if (on->schedule)
        return simulate_outcome(how, on->pipeline, on->schedule, mem, out, err);
    LHI_TRY(
        lh_scheduler_run(method, on->schedule_pipeline, &search, &best, err));
    lh_status status =
        simulate_outcome(how, on->pipeline, best.schedule, mem, out, err);
    if (status == LH_OK && on->pipeline == on->schedule_pipeline &&
        best.bound_ns > out->bound_ns)
        out->bound_ns = best.bound_ns;
    lh_scheduler_result_fini(&best);
    return status;
}

lh_status lhi_compare_evaluate_method(const lh_compare_options *how,
                                      const char *method,
                                      const lhi_compare_case *on,
                                      lhi_arena *mem, lh_outcome *out,
                                      lh_error *err)
{
    lh_bound bound;
    lh_error why = {0};
    LHI_TRY(lhi_compute_closed_form_bound(on->pipeline, &bound, err));
    *out = (lh_outcome){.bound_ns =
                            bound.ns > on->bound_ns ? bound.ns : on->bound_ns,
                        .why = "",
                        .fits = true};
    lh_status status = evaluate_schedule(how, method, on, mem, out, &why);
    out->status = status;
    out->bound_ns += on->after_ns;
    if (status == LH_OK) {
        out->ns += on->after_ns;
        return LH_OK;
    }
    if (!is_result(status)) {
        if (err)
            *err = why;
        return status;
    }
    out->ns = -1;
    out->why = copy_reason(method, why.text, mem);
    return out->why ? LH_OK : lhi_fail_nomem(err);
}

const char *lh_outcome_status_name(const lh_outcome *outcome)
{
    if (outcome->status != LH_OK)
        return lh_status_name(outcome->status);
    return outcome->fits ? "ok" : "over memory";
}
