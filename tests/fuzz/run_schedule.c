/* SPDX-License-Identifier: Apache-2.0 */
#include "run_schedule.h"

#include "fuzz.h"
#include "schedule/pipeline/schedule_internal.h"
#include "schedule/solver/bound/closed_forms.h"

#include <inttypes.h>
#include <longhaul/check.h>
#include <longhaul/experimental/analysis.h>
#include <longhaul/experimental/bounds.h>
#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/pipeline.h>
#include <longhaul/experimental/schedule.h>
#include <longhaul/experimental/simulate.h>

bool fuzz_is_small(const lh_pipeline *p)
{
    return lh_pipeline_n_devices(p) <= 64 && lh_pipeline_n_links(p) <= 512 &&
           (uint64_t)lh_pipeline_n_chunks(p) * lh_pipeline_n_microbatches(p) <=
               400;
}

/* Checks that busy and idle times add up to the makespan on every device, and
 * that the critical path runs from the start to the end without gaps. */
static void analyse(const lh_pipeline *p, const lh_schedule *s,
                    const lh_timeline *t)
{
    lh_analysis *a = NULL;
    lh_error err = {0};
    uint32_t count;
    MUST(lh_analysis_make(p, s, t, &a, &err), err);
    int64_t makespan = lh_timeline_makespan(t);
    for (uint32_t d = 0; d < lh_pipeline_n_devices(p); d++) {
        const int64_t *idle = lh_analysis_idle(a, d);
        const lh_timeline_run *runs = lh_timeline_runs(t, d, &count);
        int64_t sum = 0;
        for (uint32_t i = 0; i < LH_N_CAUSES; i++) {
            REQUIRE(idle[i] >= 0, "device %" PRIu32, d);
            sum += idle[i];
        }
        for (uint32_t i = 0; i < count; i++)
            sum += runs[i].end_ns - runs[i].start_ns;
        REQUIRE(sum == makespan, "%" PRId64 " of %" PRId64, sum, makespan);
    }
    const lh_segment *path = lh_analysis_critical_path(a, &count);
    int64_t at = 0;
    for (uint32_t i = 0; i < count; i++) {
        REQUIRE(path[i].start_ns == at && path[i].end_ns >= at,
                "segment %" PRIu32, i);
        at = path[i].end_ns;
    }
    REQUIRE(at == makespan, "the path ends at %" PRId64, at);
    lh_analysis_free(a);
}

/* Returns the makespan under the given simulation options, or -1 if the
 * schedule cannot run. The evaluator must agree. */
static int64_t simulate(const lh_pipeline *p, const lh_schedule *s,
                        const lh_sim_options *o, bool *fits)
{
    lh_timeline *t = NULL;
    lh_evaluator *e = NULL;
    lh_error err = {0};
    int64_t ns = -1, again = -1;
    lh_status status = lh_simulate(p, s, o, &t, &err);
    if (status == LH_OK) {
        ns = lh_timeline_makespan(t);
        *fits = lh_timeline_fits(t, NULL);
        analyse(p, s, t);
    } else {
        REQUIRE(status == LH_EINFEASIBLE || status == LH_EDEADLOCK, "%s",
                err.text);
        fuzz_refused(status, &err, t);
    }
    MUST(lh_evaluator_make(p, o, &e, &err), err);
    lh_status other = lh_evaluator_run(e, s, &again, &err);
    REQUIRE(other == status && (status != LH_OK || again == ns),
            "%" PRId64 " and %" PRId64, ns, again);
    lh_evaluator_free(e);
    lh_timeline_free(t);
    return ns;
}

/* Compares the verdict on the schedule's passes with the simulator's result.
 * Returns whether they are valid. */
static bool judge_passes(const lh_pipeline *p, const lh_schedule *s, int64_t ns,
                         bool fits)
{
    lh_schedule passes = *s;
    lh_verdict *v = NULL;
    lh_error err = {0};
    passes.n_comms = 0;
    passes.comms = NULL;
    MUST(lh_check(p, &passes, &v, &err), err);
    bool valid = lh_verdict_valid(v);
    REQUIRE((lh_verdict_n_violations(v, NULL) == 0) == valid, "no reason");
    REQUIRE(lh_verdict_makespan(v) == ns,
            "judge %" PRId64 ", simulator %" PRId64 ", %s",
            lh_verdict_makespan(v), ns,
            valid ? "valid" : lh_verdict_violation(v, 0));
    REQUIRE(valid == (ns >= 0 && fits), "%s",
            valid ? "valid" : lh_verdict_violation(v, 0));
    lh_verdict_free(v);
    return valid;
}

/* Checks the verdict on a schedule with communication cells, which the
 * simulator ignores: they can only make it invalid. */
static void judge_cells(const lh_pipeline *p, const lh_schedule *s, int64_t ns,
                        bool passes_are_valid)
{
    lh_verdict *v = NULL;
    lh_error err = {0};
    MUST(lh_check(p, s, &v, &err), err);
    bool valid = lh_verdict_valid(v);
    REQUIRE((lh_verdict_n_violations(v, NULL) == 0) == valid, "no reason");
    REQUIRE(!valid || (passes_are_valid && lh_verdict_makespan(v) == ns),
            "judge %" PRId64 ", simulator %" PRId64, lh_verdict_makespan(v),
            ns);
    lh_verdict_free(v);
}

void fuzz_run(const lh_pipeline *p, const lh_schedule *s)
{
    lh_error err = {0};
    lh_bound bound = {0};
    bool fits = false, any;
    lh_sim_options o = {.size = sizeof o};
    int64_t ns = simulate(p, s, &o, &fits);
    const bool valid = judge_passes(p, s, ns, fits);
    if (s->n_comms > 0)
        judge_cells(p, s, ns, valid);
    MUST(lhi_compute_closed_form_bound(p, &bound, &err), err);
    REQUIRE(ns < 0 || !fits || bound.ns <= ns,
            "bound %" PRId64 " (%s), makespan %" PRId64, bound.ns, bound.text,
            ns);
    o.coupled_queue = 1;
    simulate(p, s, &o, &any);
    o.receives = LH_RECEIVES_LATE;
    simulate(p, s, &o, &any);
    o.coupled_queue = 0;
    simulate(p, s, &o, &any);
    o.receives = LH_RECEIVES_LATE_FD;
    o.fifo = true;
    simulate(p, s, &o, &any);
    lh_schedule *whole = NULL;
    lh_status status = lh_schedule_merge_parts(p, s, &whole, &err);
    if (status != LH_OK)
        fuzz_refused(status, &err, whole);
    lh_schedule_free(whole);
}

void fuzz_methods(const lh_pipeline *p)
{
    for (uint32_t m = 0; m < lh_n_methods(); m++) {
        lh_method_options o = {.size = sizeof o, .sub_blocks = 1 + m % 3};
        lh_schedule *s = NULL;
        lh_error err = {0};
        lh_status status =
            lh_method_run(lh_method_name(m), p, &o, &s, NULL, &err);
        if (status != LH_OK) {
            fuzz_refused(status, &err, s);
            continue;
        }
        lh_verdict *v = NULL;
        MUST(lh_check(p, s, &v, &err), err);
        REQUIRE(lh_verdict_valid(v), "%s: %s", lh_method_name(m),
                lh_verdict_violation(v, 0));
        lh_verdict_free(v);
        fuzz_run(p, s);
        lh_schedule_free(s);
    }
}
