/* SPDX-License-Identifier: Apache-2.0 */
/* Generates candidate schedules and evaluates their iteration times over each
 * data path. */
#include "resilience/adapt/adapt_internal.h"

#include "schedule/pipeline/pipeline_internal.h"
#include "schedule/pipeline/schedule_internal.h"
#include "schedule/solver/bound/closed_forms.h"

#include <longhaul/experimental/bounds.h>
#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/simulate.h>
#include <longhaul/experimental/solve.h>
#include <longhaul/scheduler.h>

#include <string.h>

/* Candidate kinds in evaluation order; the first of equals wins. SEARCH_METHOD
 * candidates cost SEARCHED_UNITS units of work per pass and run only on the
 * best data path so far. OPTIMAL spends the remaining budget. */
typedef enum candidate_kind {
    ORIGINAL,
    METHOD,
    SEARCH_METHOD,
    OPTIMAL
} candidate_kind;
static const struct {
    const char *name;
    candidate_kind kind;
} candidates[] = {
    {"original", ORIGINAL},        {"slack", METHOD},
    {"steady-slack", METHOD},      {"greedy", METHOD},
    {"look-ahead", SEARCH_METHOD}, {LH_OPTIMAL, OPTIMAL},
};
enum {
    N_CANDIDATES = sizeof candidates / sizeof *candidates,
    PASSES_PER_UNIT = 8, /* passes scheduled or simulated per work unit */
    SEARCHED_UNITS = 11
};

const char *lh_adapt_candidate(uint32_t i)
{
    return i < N_CANDIDATES ? candidates[i].name : NULL;
}

/* One data path with the pipeline transformed for it. */
typedef struct path_state {
    lh_data_path path;
    const bool *links; /* MIXED: the delegated links */
    lh_pipeline *pipeline;
    lh_sim_options sim;
    lh_evaluator *judge;
} path_state;

/* Maximum number of data paths: direct, delegated and mixed ones. */
enum { MAX_PATHS = 4 };

/* Search state. */
typedef struct search {
    const lh_adapt *adapt;
    const lh_pipeline *now;
    uint64_t passes;
    uint32_t n_ways; /* the first is the running one */
    path_state ways[MAX_PATHS];
    uint32_t best; /* best candidate's path index */
    lhi_adapt_candidate_result found;
} search;

/* --- paths ---------------------------------------------------------------- */

/* Prepares simulations of pipeline `p` with messages over data path `path`
 * (direct or delegated to helper threads): its own pipeline, options and
 * evaluator in *w. `links`: the mixed path's delegated links. The caller ends
 * *w with free_path(), after a failure too. */
static lh_status make_path(const lh_adapt *a, const lh_pipeline *p,
                           lh_data_path path, const bool *links, path_state *w,
                           lh_error *err)
{
    *w = (path_state){.path = path, .links = links, .sim = a->sim};
    if (path == LH_DATA_PATH_DIRECT) {
        LHI_TRY(lhi_pipeline_copy(p, &w->pipeline, err));
    } else {
        lh_delegation d = a->delegation;
        d.links = path == LH_DATA_PATH_MIXED ? links : NULL;
        LHI_TRY(lh_delegate(p, &a->sim, &d, &w->pipeline, &w->sim, err));
    }
    return lh_evaluator_make(w->pipeline, &w->sim, &w->judge, err);
}

/* Frees the pipeline and the evaluator (repeated simulation) of one data path,
 * but not `w` itself. */
static void free_path(path_state *w)
{
    lh_evaluator_free(w->judge);
    lh_pipeline_free(w->pipeline);
}

/* Adds data path `path` (direct or delegated messages; `links`: the mixed
 * path's delegated links) to the search. Lowers the search's bound on the
 * iteration time to this path's if that is lower. */
static lh_status add_path(search *s, lh_data_path path, const bool *links,
                          lh_error *err)
{
    lh_bound bound;
    path_state *w = &s->ways[s->n_ways++];
    LHI_TRY(make_path(s->adapt, s->now, path, links, w, err));
    LHI_TRY(lhi_compute_closed_form_bound(w->pipeline, &bound, err));
    if (s->n_ways == 1 || bound.ns < s->found.bound_ns)
        s->found.bound_ns = bound.ns;
    return LH_OK;
}

/* Sets slow[l] for every link l with an active slowdown event in `now`, and for
 * all links that share its resource. Returns whether any is set. */
static bool mark_slow_links(const lh_adapt *a, const lh_adapt_input *now,
                            bool *slow)
{
    const lh_pipeline *p = a->pipeline;
    bool any = false;
    memset(slow, 0, p->n_links * sizeof *slow);
    for (uint32_t i = 0; i < now->n_events; i++) {
        if (now->events[i].target != LH_MONITOR_LINK)
            continue;
        uint32_t r = p->link_resources[now->events[i].index];
        for (uint32_t l = 0; l < p->n_links; l++)
            slow[l] = slow[l] || p->link_resources[l] == r;
        any = true;
    }
    return any;
}

/* Adds the running data path to the search; if messages may be delegated to
 * helper threads, also the other paths. The mixed path delegates only the links
 * that are slow in `now`. */
static lh_status add_paths(search *s, const lh_adapt_input *now, lh_error *err)
{
    const lh_adapt *a = s->adapt;
    LHI_TRY(add_path(s, a->path, a->running_links, err));
    if (!a->may_delegate)
        return LH_OK;
    if (a->path != LH_DATA_PATH_DIRECT)
        LHI_TRY(add_path(s, LH_DATA_PATH_DIRECT, NULL, err));
    if (a->path != LH_DATA_PATH_DELEGATED)
        LHI_TRY(add_path(s, LH_DATA_PATH_DELEGATED, NULL, err));
    /* If copies take no time, delegating all links is at least as good as a
     * mix. */
    if (a->has_staging_time && mark_slow_links(a, now, a->slow_links))
        LHI_TRY(add_path(s, LH_DATA_PATH_MIXED, a->slow_links, err));
    return LH_OK;
}

/* Frees the pipelines and evaluators (repeated simulation) of all data paths of
 * the search. */
static void free_paths(search *s)
{
    for (uint32_t i = 0; i < s->n_ways; i++)
        free_path(&s->ways[i]);
}

/* --- candidates ----------------------------------------------------------- */

/* Checks whether a status means only that one candidate is unusable: its method
 * does not support the pipeline, or its schedule deadlocks or exceeds memory.
 * Any other failure must end the search. */
static bool is_inapplicable(lh_status status)
{
    return status == LH_EUNSUPPORTED || status == LH_EINFEASIBLE ||
           status == LH_EDEADLOCK;
}

/* Returns LH_OK if `status` excludes only one candidate, else returns `status`
 * and copies its message `why` into `err`. */
static lh_status filter_status(lh_status status, const lh_error *why,
                               lh_error *err)
{
    if (status == LH_OK || is_inapplicable(status))
        return LH_OK;
    if (err)
        *err = *why;
    return status;
}

/* Sets *may to whether the run may switch to the schedule: always, unless the
 * run needs bitwise equal results; then only if the schedule sums gradients in
 * the running order. */
static lh_status check_admissible(const search *s, const lh_schedule *schedule,
                                  bool *may, lh_error *err)
{
    *may = true;
    if (!s->adapt->reduction_order)
        return LH_OK;
    return lhi_reduction_order_matches(s->now, s->adapt->reduction_order,
                                       schedule, may, err);
}

/* Simulates `schedule` on data path number `w` and makes it the best candidate,
 * called `name`, if it is admissible and faster than the best so far; otherwise
 * frees it. */
static lh_status judge_schedule(search *s, uint32_t w, lh_schedule *schedule,
                                const char *name, lh_error *err)
{
    int64_t ns;
    bool may = false;
    lh_error why = {0};
    lh_status status = lh_evaluator_run(s->ways[w].judge, schedule, &ns, &why);
    s->found.effort += s->passes / PASSES_PER_UNIT;
    if (status == LH_OK && ns < s->found.predicted_ns)
        status = check_admissible(s, schedule, &may, &why);
    if (may) {
        lh_schedule_free(s->found.schedule);
        s->found.schedule = schedule;
        s->found.name = name;
        s->found.predicted_ns = ns;
        s->best = w;
        return LH_OK;
    }
    lh_schedule_free(schedule);
    return filter_status(status, &why, err);
}

/* Checks whether schedule `of`, made for another data path, fits into host
 * memory on path number `w`, whose delegated messages are copied through host
 * memory; stores the answer in *fits. */
static lh_status check_memory(const search *s, uint32_t w,
                              const lh_schedule *of, bool *fits, lh_error *err)
{
    lh_timeline *t;
    lh_error why = {0};
    *fits = true;
    if (s->adapt->delegation.host_memory == 0)
        return LH_OK;
    *fits = false;
    lh_status status =
        lh_simulate(s->ways[w].pipeline, of, &s->ways[w].sim, &t, &why);
    if (status != LH_OK)
        return filter_status(status, &why, err);
    *fits = lh_timeline_fits(t, NULL);
    lh_timeline_free(t);
    return LH_OK;
}

/* Evaluates a copy of schedule `of`, called `name`, on data path number `w`,
 * unless its messages exceed host memory there. */
static lh_status try_copy(search *s, uint32_t w, const lh_schedule *of,
                          const char *name, lh_error *err)
{
    bool fits;
    lh_schedule *copy = NULL;
    LHI_TRY(check_memory(s, w, of, &fits, err));
    if (!fits)
        return LH_OK;
    LHI_TRY(lhi_schedule_copy(of, &copy, err));
    return judge_schedule(s, w, copy, name, err);
}

/* Builds a schedule with the constructive method `name` (by rules, without
 * search) for data path number `w`, and evaluates it as a candidate. */
static lh_status try_method(search *s, uint32_t w, const char *name,
                            lh_error *err)
{
    lh_schedule *schedule = NULL;
    lh_error why = {0};
    const lh_method_options o = {.size = sizeof o,
                                 .sim = &s->ways[w].sim,
                                 .bound_ns = s->found.bound_ns};
    lh_status status =
        lh_method_run(name, s->ways[w].pipeline, &o, &schedule, NULL, &why);
    s->found.effort += s->passes / PASSES_PER_UNIT;
    if (status == LH_OK)
        return judge_schedule(s, w, schedule, name, err);
    return filter_status(status, &why, err);
}

/* Evaluates the schedule that the search method `name` finds for the data path
 * with the fastest schedule so far; skips it if the remaining evaluation budget
 * is too small. */
static lh_status try_searched(search *s, const char *name, lh_error *err)
{
    uint64_t units = SEARCHED_UNITS * s->passes;
    if (s->found.effort + units > s->adapt->effort)
        return LH_OK;
    s->found.effort += units;
    return try_method(s, s->best, name, err);
}

/* Evaluates the schedule that the exact solver finds with the remaining
 * evaluation budget, for the data path with the fastest schedule so far. */
static lh_status try_optimal(search *s, const char *name, lh_error *err)
{
    const lh_adapt *a = s->adapt;
    lh_solution solution;
    lh_error why = {0};
    if (s->found.effort >= a->effort)
        return LH_OK;
    const lh_solve_options o = {
        .size = sizeof o,
        .effort = a->effort - s->found.effort,
        .initial_schedule = s->found.schedule ? s->found.schedule : a->running};
    lh_status status = lh_solve(s->ways[s->best].pipeline, &o, &solution, &why);
    if (status != LH_OK)
        return filter_status(status, &why, err);
    s->found.effort += solution.effort;
    /* The solver's bound holds for this path only; another path may have a
     * lower one. */
    if (s->n_ways == 1 && solution.bound_ns > s->found.bound_ns)
        s->found.bound_ns = solution.bound_ns;
    lh_schedule *schedule = solution.schedule;
    solution.schedule = NULL;
    lh_solution_fini(&solution);
    return schedule ? judge_schedule(s, s->best, schedule, name, err) : LH_OK;
}

/* Evaluates the schedules of candidate number `i`: a constructive method on all
 * data paths, a search method only on the path with the fastest schedule so
 * far. */
static lh_status try_candidate(search *s, uint32_t i, lh_error *err)
{
    const char *name = candidates[i].name;
    if (candidates[i].kind == SEARCH_METHOD)
        return try_searched(s, name, err);
    if (candidates[i].kind == OPTIMAL)
        return try_optimal(s, name, err);
    for (uint32_t w = 0; w < s->n_ways; w++)
        LHI_TRY(candidates[i].kind == ORIGINAL
                    ? try_copy(s, w, s->adapt->original, name, err)
                    : try_method(s, w, name, err));
    return LH_OK;
}

/* Evaluates the running schedule on all data paths, then the selected
 * candidates in order. Stops when the best iteration time equals the lower
 * bound. */
static lh_status try_all(search *s, lh_error *err)
{
    const lh_adapt *a = s->adapt;
    LHI_TRY(lh_evaluator_run(s->ways[0].judge, a->running, &s->found.current_ns,
                             err));
    s->found.predicted_ns = s->found.current_ns;
    for (uint32_t w = 1; w < s->n_ways; w++)
        LHI_TRY(try_copy(s, w, a->running, s->found.name, err));
    for (uint32_t i = 0; i < N_CANDIDATES; i++) {
        /* Stops at the lower bound: the best candidate is optimal. */
        if (s->found.predicted_ns <= s->found.bound_ns)
            break;
        if (a->candidates >> i & 1)
            LHI_TRY(try_candidate(s, i, err));
    }
    return LH_OK;
}

/* Computes the iteration time in ns of a schedule on a data path once no link
 * or device is slow; *ns is 0 if the schedule does not fit the pipeline or
 * deadlocks. `links`: delegated links of the mixed path. */
static lh_status evaluate_without_slowdowns(const lh_adapt *a,
                                            lh_data_path path,
                                            const bool *links,
                                            const lh_schedule *schedule,
                                            int64_t *ns, lh_error *err)
{
    path_state w;
    lh_error why = {0};
    lh_status status = make_path(a, a->pipeline, path, links, &w, &why);
    *ns = 0;
    if (status == LH_OK)
        status = lh_evaluator_run(w.judge, schedule, ns, &why);
    free_path(&w);
    return filter_status(status, &why, err);
}

/* Computes the loss of keeping the best candidate after all slowdowns end: the
 * ns per iteration by which it is slower than the running schedule then. */
static lh_status compute_loss(search *s, lh_error *err)
{
    const lh_adapt *a = s->adapt;
    int64_t kept, found;
    if (!s->found.schedule)
        return LH_OK;
    LHI_TRY(evaluate_without_slowdowns(a, a->path, a->running_links, a->running,
                                       &kept, err));
    LHI_TRY(evaluate_without_slowdowns(a, s->found.path, s->found.links,
                                       s->found.schedule, &found, err));
    s->found.effort += 2 * (s->passes / PASSES_PER_UNIT);
    s->found.loss_after_ns = found > kept ? found - kept : 0;
    return LH_OK;
}

lh_status lhi_adapt_find_candidate(lh_adapt *a, const lh_adapt_input *now,
                                   lhi_adapt_candidate_result *out,
                                   lh_error *err)
{
    const lh_pipeline *p = now->pipeline;
    search s = {.adapt = a,
                .now = p,
                .passes = UINT64_C(3) * p->n_chunks * p->n_microbatches,
                .found = {.name = a->running_name}};
    lh_status status = add_paths(&s, now, err);
    if (status == LH_OK)
        status = try_all(&s, err);
    if (status == LH_OK) {
        s.found.path = s.ways[s.best].path;
        s.found.links = s.ways[s.best].links;
        if (now->n_events > 0)
            status = compute_loss(&s, err);
    }
    if (status == LH_OK) {
        *out = s.found;
    } else {
        lh_schedule_free(s.found.schedule);
    }
    free_paths(&s);
    return status;
}
