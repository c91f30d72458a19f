/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fail.h"
#include "base/integer_math.h"
#include "base/options.h"
#include "schedule/methods/sched.h"
#include "schedule/pipeline/pipeline_internal.h"
#include "schedule/solver/bound/closed_forms.h"

#include <longhaul/experimental/bounds.h>
#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/simulate.h>
#include <longhaul/experimental/solve.h>
#include <longhaul/scheduler.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Efforts of the searches for "optimal", and for "auto" without and with memory
 * limits, where methods are further from the optimum; number of passes above
 * which "auto" runs no search. */
enum {
    OPTIMAL_EFFORT = 1000000,
    AUTO_EFFORT = 200000,
    AUTO_MEMORY_EFFORT = OPTIMAL_EFFORT,
    MAX_PASSES = 200000
};

/* Gap to the bound above which "auto" also searches in less memory. */
static const double MEMORY_GAP = 0.005;

static const char optimal[] = LH_OPTIMAL;

uint32_t lh_n_schedulers(void)
{
    return lh_n_methods() + 1;
}

/* Returns scheduler name number i: the methods' names, then "optimal", then
 * "auto"; static storage. NULL: no such number. */
const char *lh_scheduler_name(uint32_t i)
{
    uint32_t last = lh_n_methods() - 1;
    return i < last    ? lh_method_name(i)
           : i == last ? optimal
                       : lh_method_name(i - 1);
}

const char *lh_scheduler_about(uint32_t i)
{
    uint32_t last = lh_n_methods() - 1;
    return i < last    ? lhi_method_about(i)
           : i == last ? "the fastest of all, by searching, with a proven bound"
                       : lhi_method_about(i - 1);
}

bool lh_scheduler_is_search(const char *name)
{
    return strcmp(name, optimal) == 0;
}

lh_status lh_scheduler_check_name(const char *name, lh_error *err)
{
    if (lh_scheduler_is_search(name))
        return LH_OK;
    lh_status status = lhi_method_find_number(name, NULL, err);
    if (status != LH_OK && err) {
        size_t len = strlen(err->text);
        snprintf(err->text + len, sizeof err->text - len, ", %s", optimal);
    }
    return status;
}

/* State for choosing a schedule. */
typedef struct choice_state {
    const lh_pipeline *p;
    lh_scheduler_options o;
    lh_method_options method; /* copied from `o` */
    lh_sim_options sim;       /* copied from `method` */
    lh_scheduler_result *out;
} choice_state;

/* Simulates a schedule under the caller's simulation options; *out is its
 * makespan in ns. */
static lh_status compute_makespan(const choice_state *k,
                                  const lh_schedule *schedule, int64_t *out,
                                  lh_error *err)
{
    lh_evaluator *judge = NULL;
    LHI_TRY(lh_evaluator_make(k->p, &k->sim, &judge, err));
    lh_status status = lh_evaluator_run(judge, schedule, out, err);
    lh_evaluator_free(judge);
    return status;
}

/* Runs the exact search with the effort limit that the caller requested or,
 * without one, with `effort`. */
static lh_status search(const choice_state *k, uint64_t effort,
                        lh_solution *out, lh_error *err)
{
    lh_solve_options o = {.size = sizeof o,
                          .effort = k->o.effort ? k->o.effort : effort,
                          .sub_blocks = k->method.sub_blocks,
                          .fifo = k->sim.fifo,
                          .host_copy_ns = k->sim.host_copy_ns,
                          .disabled_engines = k->o.disabled_engines,
                          .progress = k->o.progress,
                          .context = k->o.context};
    return lh_solve(k->p, &o, out, err);
}

/* Copies the search's lower bound, its proof and the reason why the search
 * ended from solution `s` to the result. */
static void store_bound(choice_state *k, const lh_solution *s)
{
    k->out->bound_ns = s->bound_ns;
    snprintf(k->out->why, sizeof k->out->why, "%s", s->why);
}

/* Replaces the search's schedule by the best method's if that is faster under
 * the caller's simulation options. The search assumes early receives and
 * separate message queues, but methods are ranked under the options
 * themselves. */
static lh_status take_best_method(choice_state *k, const lh_solution *s,
                                  lh_error *err)
{
    int64_t by_search = INT64_MAX, by_method = INT64_MAX;
    lh_schedule *other = NULL;
    lh_error why = {0};
    lh_status status = compute_makespan(k, k->out->schedule, &by_search, &why);
    if (status == LH_EDEADLOCK)
        by_search = INT64_MAX;
    /* In the search's own model, unless methods may overlap passes. */
    if (by_search == s->makespan_ns && k->p->overlap_f_b == 0)
        return LH_OK;
    if (status == LH_OK || status == LH_EDEADLOCK)
        status = lh_method_run("auto", k->p, &k->method, &other, NULL, &why);
    if (status == LH_OK)
        status = compute_makespan(k, other, &by_method, &why);
    if (by_method < by_search) {
        lh_schedule *slower = k->out->schedule;
        k->out->schedule = other;
        other = slower;
    }
    lh_schedule_free(other);
    if (status != LH_OK && status != LH_EINFEASIBLE && err)
        *err = why;
    return status == LH_EINFEASIBLE ? LH_OK : status;
}

/* Runs the exact search and returns its schedule, or a method's if this is
 * faster. Fails if the problem is infeasible or no schedule is found within the
 * effort limit. */
static lh_status run_optimal(choice_state *k, lh_error *err)
{
    lh_solution s = {0};
    LHI_TRY(search(k, OPTIMAL_EFFORT, &s, err));
    lh_status status = LH_OK;
    if (s.status == LH_SOLVE_INFEASIBLE)
        status =
            lhi_fail(err, LH_EINFEASIBLE, "optimal: infeasible: %s", s.why);
    else if (s.status == LH_SOLVE_UNKNOWN)
        status = lhi_fail(err, LH_EINFEASIBLE,
                          "optimal: no schedule was found within the effort "
                          "limit");
    store_bound(k, &s);
    k->out->method = optimal;
    k->out->schedule = s.schedule;
    s.schedule = NULL;
    if (status == LH_OK)
        status = take_best_method(k, &s, err);
    lh_solution_fini(&s);
    return status;
}

/* Checks whether a device has a memory limit. */
static bool has_memory_limit(const lh_pipeline *p)
{
    for (uint32_t d = 0; d < p->n_devices; d++)
        if (p->memory_limits[d] != LH_NO_LIMIT)
            return true;
    return false;
}

/* Copies the pipeline with each device's memory limit reduced by one forward's
 * activations on its smallest chunk. *out: NULL if a device has no limit, or
 * one too low for that. */
static lh_status reduce_memory(const lh_pipeline *p, lh_pipeline **out,
                               lh_error *err)
{
    lh_pipeline_desc desc = {.size = sizeof desc};
    *out = NULL;
    LHI_TRY(lh_pipeline_describe(p, &desc, err));
    int64_t *limits = malloc(p->n_devices * sizeof *limits);
    if (!limits)
        return lhi_fail_nomem(err);
    bool limited = true;
    for (uint32_t d = 0; d < p->n_devices; d++) {
        int64_t least = INT64_MAX;
        for (uint32_t c = 0; c < p->n_chunks; c++)
            if (p->chunks[c].device == d && p->chunks[c].mem_f > 0)
                least = lhi_min_int64(least, p->chunks[c].mem_f);
        limited = limited && p->memory_limits[d] != LH_NO_LIMIT &&
                  least < p->memory_limits[d];
        limits[d] = p->memory_limits[d] - (limited ? least : 0);
    }
    desc.memory_limits = limits;
    lh_status status = limited ? lh_pipeline_make(&desc, out, err) : LH_OK;
    free(limits);
    return status;
}

/* Searches again with less memory, and keeps the schedule if it is faster than
 * the result, which takes `best_ns`. The search commits memory early, so the
 * fastest schedule that it finds may need less than there is. */
static lh_status search_in_less_memory(choice_state *k, int64_t best_ns,
                                       lh_error *err)
{
    lh_pipeline *less;
    lh_solution s = {0};
    int64_t ns = INT64_MAX;
    LHI_TRY(reduce_memory(k->p, &less, err));
    if (!less)
        return LH_OK;
    choice_state reduced = *k;
    reduced.p = less;
    lh_error why = {0};
    lh_status status = search(&reduced, AUTO_MEMORY_EFFORT, &s, &why);
    if (status == LH_OK && s.schedule)
        status = compute_makespan(k, s.schedule, &ns, &why);
    if (status == LH_OK && ns < best_ns) {
        lh_schedule_free(k->out->schedule);
        k->out->schedule = s.schedule;
        k->out->method = optimal;
        s.schedule = NULL;
    }
    lh_solution_fini(&s);
    lh_pipeline_free(less);
    if (status == LH_EDEADLOCK) /* coupled queues */
        status = LH_OK;
    if (status != LH_OK && err)
        *err = why;
    return status;
}

/* Runs all methods first, then the search if the effort permits, and keeps the
 * faster schedule. The search does not model coupled queues. */
static lh_status run_auto(choice_state *k, lh_error *err)
{
    lh_solution s = {0};
    int64_t by_method = INT64_MAX, by_search = INT64_MAX;
    lh_error why = {0};
    uint64_t passes = (uint64_t)k->p->n_chunks * k->p->n_microbatches * 3;
    lh_status status = lh_method_run("auto", k->p, &k->method,
                                     &k->out->schedule, &k->out->method, &why);
    if (status == LH_OK)
        status = compute_makespan(k, k->out->schedule, &by_method, &why);
    bool none = status == LH_EINFEASIBLE;
    if ((status != LH_OK && !none) || (passes > MAX_PASSES && !k->o.effort)) {
        if (err)
            *err = why;
        return status;
    }
    if (by_method <= k->out->bound_ns)
        return LH_OK;
    status = search(
        k, has_memory_limit(k->p) ? AUTO_MEMORY_EFFORT : AUTO_EFFORT, &s, err);
    if (status == LH_EUNSUPPORTED) { /* fall back to the methods' result */
        if (none && err)
            *err = why;
        return none ? LH_EINFEASIBLE : LH_OK;
    }
    LHI_TRY(status);
    if (s.bound_ns > k->out->bound_ns)
        store_bound(k, &s);
    lh_error stop = {0};
    status =
        s.schedule ? compute_makespan(k, s.schedule, &by_search, &stop) : LH_OK;
    if (status == LH_EDEADLOCK && k->out->schedule)
        status = LH_OK; /* the search does not model coupled queues */
    else if (status != LH_OK && err)
        *err = stop;
    if (status == LH_OK && by_search < by_method) {
        lh_schedule_free(k->out->schedule);
        k->out->schedule = s.schedule;
        k->out->method = optimal;
        s.schedule = NULL;
    }
    lh_solution_fini(&s);
    if (status == LH_OK && !k->out->schedule) {
        if (err)
            *err = why;
        return LH_EINFEASIBLE;
    }
    int64_t best_ns = lhi_min_int64(by_method, by_search);
    if (status == LH_OK && !k->o.effort && has_memory_limit(k->p) &&
        (double)best_ns > (1 + MEMORY_GAP) * (double)k->out->bound_ns)
        status = search_in_less_memory(k, best_ns, err);
    return status;
}

/* Runs the scheduler called `name`: the search, "auto" plus search, or one
 * method. */
static lh_status run_scheduler(choice_state *k, const char *name, lh_error *err)
{
    lh_bound bound;
    LHI_TRY(lh_scheduler_check_name(name, err));
    LHI_TRY(lhi_compute_closed_form_bound(k->p, &bound, err));
    k->out->bound_ns = bound.ns;
    memcpy(k->out->why, bound.text, sizeof k->out->why);
    k->method.bound_ns = bound.ns;
    if (lh_scheduler_is_search(name))
        return run_optimal(k, err);
    if (lh_method_is_auto(name))
        return run_auto(k, err);
    return lh_method_run(name, k->p, &k->method, &k->out->schedule,
                         &k->out->method, err);
}

/* Copies the caller's options, and the method and simulation options to which
 * they point, into `k`, with defaults filled in. LH_EINVAL: an invalid option.
 * */
static lh_status complete_options(choice_state *k,
                                  const lh_scheduler_options *given,
                                  lh_error *err)
{
    LHI_TRY(LHI_OPTIONS_COPY(lh_scheduler_options, &k->o, given, err));
    LHI_TRY(LHI_OPTIONS_COPY(lh_method_options, &k->method, k->o.method, err));
    LHI_TRY(LHI_OPTIONS_COPY(lh_sim_options, &k->sim, k->method.sim, err));
    k->method.sim = &k->sim;
    return LH_OK;
}

lh_status lh_scheduler_run(const char *name, const lh_pipeline *pipeline,
                           const lh_scheduler_options *options,
                           lh_scheduler_result *out, lh_error *err)
{
    lh_scheduler_result best = {0};
    choice_state k = {.p = pipeline, .out = &best};
    LHI_TRY(complete_options(&k, options, err));
    lh_status status = run_scheduler(&k, name, err);
    if (status == LH_OK)
        *out = best;
    else
        lh_scheduler_result_fini(&best);
    return status;
}

/* Frees the schedule and a scheduler result's other contents. */
void lh_scheduler_result_fini(lh_scheduler_result *best)
{
    if (!best)
        return;
    lh_schedule_free(best->schedule);
    best->schedule = NULL;
}
