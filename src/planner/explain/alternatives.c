/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the best alternative per dimension: another tensor degree, another
 * placement, ... Its other dimensions may differ too if that makes it better.
 */
#include "planner/explain/breakdown.h"

#include "base/integer_math.h"
#include "planner/elastic/layout_search.h"
#include "planner/layout/target.h"
#include "planner/search/objective.h"
#include "planner/search/plan_search.h"
#include "planner/search/unequal_bound.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    MAX_SIMULATED_PER_DIMENSION = 12, /* alternatives that only have a bound */
    MOST_PASSES = 300000              /* total passes over all simulations */
};

/* State for one plan's alternatives. */
typedef struct alternative_search {
    const lh_job *job;
    const lh_plan_options *options;
    lhi_arena *mem;
    lh_plan *plan;
    lh_choice *list; /* the plan's alternatives */
    const lhi_unexplored *unexplored;
    /* lower bound on plans whose datacenters have different values, which
     * `unexplored` does not cover; INT64_MAX: none are searched */
    int64_t differing_ns;
    uint64_t passes; /* passes simulated so far */
} alternative_search;

/* Checks whether two plan candidates differ in the value of layout dimension
 * `d` (tensor degree, placement, schedule and others). */
static bool differs_in_dimension(lhi_dimension d, const lh_choice *a,
                                 const lh_choice *b)
{
    if (d == LHI_DIMENSION_SCHEDULE)
        return a->layout.schedule && b->layout.schedule &&
               strcmp(a->layout.schedule, b->layout.schedule) != 0;
    lhi_config x = lhi_config_from_choice(a), y = lhi_config_from_choice(b);
    return lhi_dimension_value(d, &x) != lhi_dimension_value(d, &y);
}

/* Copies plan candidate `c` into *out with a value of dimension `d` (ZeRO stage
 * or sharding) other than the plan's, if `d` does not change `c`'s result.
 * Returns false if it does, or if the job or target program allows no other
 * value. */
static bool copy_with_other_value(const alternative_search *r, lhi_dimension d,
                                  const lh_choice *c, lh_choice *out)
{
    static const uint32_t stages[] = {2, 1, 3, 0};
    static const lh_sharding kinds[] = {
        LH_SHARDING_HYBRID, LH_SHARDING_HYBRID_LEADERS, LH_SHARDING_FULL};
    lhi_config config = lhi_config_from_choice(c);
    if (c->elastic || lhi_dimension_has_effect(r->job, d, &config) ||
        (d == LHI_DIMENSION_ZERO ? r->job->training.zero_given
                                 : r->job->layout.sharding != LH_SHARDING_ANY))
        return false;
    const size_t n = d == LHI_DIMENSION_ZERO ? sizeof stages / sizeof *stages
                                             : sizeof kinds / sizeof *kinds;
    for (size_t i = 0; i < n; i++) {
        *out = *c;
        if (d == LHI_DIMENSION_ZERO)
            out->zero = stages[i];
        else
            out->layout.sharding = kinds[i];
        if (differs_in_dimension(d, out, &r->plan->best) &&
            lhi_target_check_choice(r->job->target, r->job, out, NULL) == LH_OK)
            return true;
    }
    return false;
}

/* Checks whether plan candidate `c` could be the plan of a job that forbids the
 * plan's value of dimension `d`. */
static bool is_alternative(const alternative_search *r, lhi_dimension d,
                           const lh_choice *c)
{
    lh_choice other;
    return differs_in_dimension(d, c, &r->plan->best) ||
           copy_with_other_value(r, d, c, &other);
}

bool lhi_dimension_is_known(const char *name)
{
    for (int d = 0; d < LHI_N_DIMENSIONS; d++)
        if (strcmp(lhi_dimension_name((lhi_dimension)d), name) == 0)
            return true;
    return false;
}

/* Returns a plan candidate's objective value (time in ns, or cost) or, if it
 * was not simulated, its lower bound; INT64_MAX: unknown. */
static int64_t get_objective(const alternative_search *r, const lh_choice *c)
{
    if (c->status == LH_CHOICE_OK)
        return lhi_objective_value(r->options, c);
    bool bounded = c->status == LH_CHOICE_BOUNDED &&
                   r->options->objective == LH_PLAN_FASTEST;
    return bounded ? c->lower_bound_ns : INT64_MAX;
}

/* Checks whether plan candidate `a` has a lower objective value (or bound) than
 * `b`, which may be NULL. */
static bool is_better(const alternative_search *r, const lh_choice *a,
                      const lh_choice *b)
{
    return get_objective(r, a) < INT64_MAX &&
           (!b || get_objective(r, a) < get_objective(r, b));
}

/* Returns the alternative (plan candidate with another value of dimension `d`
 * than the plan) with the least objective value or bound. If `simulated`,
 * ignores candidates that only have a bound. */
static lh_choice *find_least(const alternative_search *r, lhi_dimension d,
                             bool simulated)
{
    const lh_plan *p = r->plan;
    const lh_choice *best = NULL;
    for (uint32_t i = 0; i < p->n_methods; i++)
        if (p->methods[i].status == LH_CHOICE_OK &&
            is_alternative(r, d, &p->methods[i]) &&
            is_better(r, &p->methods[i], best))
            best = &p->methods[i];
    for (uint32_t i = 0; i < p->n_alternatives; i++)
        if ((!simulated || r->list[i].status == LH_CHOICE_OK) &&
            is_alternative(r, d, &r->list[i]) &&
            is_better(r, &r->list[i], best))
            best = &r->list[i];
    return (lh_choice *)best;
}

/* Returns the best local-search result whose value of dimension `d` differs
 * from the plan's, or NULL. Considers only results missing in the plan's
 * alternatives: elastic plans and, if `d` is the schedule, single methods' best
 * results. */
static const lh_choice *find_local_search_best(const alternative_search *r,
                                               lhi_dimension d)
{
    const lh_choice *best = NULL;
    for (uint32_t i = 0; i < r->unexplored->heads.n; i++) {
        const lhi_best_with_value *h = &r->unexplored->heads.all[i];
        bool listed =
            h->dimension != LHI_N_DIMENSIONS &&
            (h->dimension != LHI_DIMENSION_SCHEDULE || h->dimension != d);
        if (!listed && is_alternative(r, d, &h->choice) &&
            is_better(r, &h->choice, best))
            best = &h->choice;
    }
    return best;
}

/* Replaces *best by plan candidate `c` (NULL: none) if `c` has a time, is an
 * alternative in dimension `d`, and is better. */
static void keep_better(const alternative_search *r, lhi_dimension d,
                        const lh_choice *c, const lh_choice **best)
{
    if (c && c->status == LH_CHOICE_OK && is_alternative(r, d, c) &&
        is_better(r, c, *best))
        *best = c;
}

/* Returns the best plan candidate, of those that the plan lists elsewhere, that
 * is an alternative in dimension `d`, or NULL. So the table of alternatives
 * contradicts neither the Pareto front nor the plans that use idle GPUs or
 * leave memory free. */
static const lh_choice *find_listed_best(const alternative_search *r,
                                         lhi_dimension d)
{
    const lh_plan *p = r->plan;
    const lh_choice *best = NULL;
    for (uint32_t i = 0; i < p->n_pareto; i++)
        keep_better(r, d, &p->pareto_front[i], &best);
    for (uint32_t i = 0; i < p->n_idle; i++)
        keep_better(r, d, p->idle[i].best, &best);
    if (p->margin)
        keep_better(r, d, p->margin->best, &best);
    return best;
}

/* Computes the difference to the plan, in percent, if the choice took `ns`. */
/* Returns by how much time `ns` of plan candidate `c` exceeds the plan's, in
 * percent, rounded to one decimal; never -0.0. */
static double compute_percent_at(const alternative_search *r,
                                 const lh_choice *c, int64_t ns)
{
    lh_choice then = *c;
    then.iteration_ns = ns;
    return lhi_compute_percent_gap(r->options, &then, &r->plan->best);
}

/* Returns the difference of a plan candidate's iteration time to the plan's, in
 * percent. */
static double compute_percent(const alternative_search *r, const lh_choice *c)
{
    return compute_percent_at(r, c, c->iteration_ns);
}

/* Checks whether the result for the plan candidate's value of dimension `d`
 * comes from a quick evaluation rather than a completed local search. Values
 * that no local search covers are final. */
static bool is_quick_result(const alternative_search *r, lhi_dimension d,
                            const lh_choice *c)
{
    lhi_config config = lhi_config_from_choice(c);
    const lhi_best_per_value *heads = &r->unexplored->heads;
    if (heads->n && d == LHI_DIMENSION_ZERO && c->zero >= 2 &&
        lhi_elastic_is_applicable(r->job, &config))
        return true; /* elastic plans with only this sharding are unknown */
    if (r->plan->best.elastic && !c->elastic && d != LHI_DIMENSION_SCHEDULE)
        return true; /* and so are those with other values than the best */
    for (uint32_t i = 0; i < heads->n; i++) {
        const lhi_best_with_value *h = &heads->all[i];
        if (h->dimension != d || d == LHI_DIMENSION_SCHEDULE)
            continue;
        if (lhi_dimension_value(d, &config) == h->value)
            return !h->is_local_optimum;
    }
    return false;
}

/* Formats the text that explains alternative `c` in the table into c->why: its
 * difference to the plan in per cent, and whether it is simulated, bounded or
 * the best found. `it`: the alternative's entry. */
static lh_status format_reason(const alternative_search *r,
                               const lh_plan_dimension_alternative *it,
                               lh_choice *c, lh_error *err)
{
    char text[120];
    /* A result outside the table describes its own layout. */
    bool closed = !it->dimension || it->bound_ns >= c->iteration_ns;
    const char *first = it->is_quick_evaluation ? ", by quick evaluation"
                        : closed                ? ""
                                                : ", best found";
    const char *in =
        r->options->objective == LH_PLAN_CHEAPEST ? " in cost" : "";
    if (c->status == LH_CHOICE_BOUNDED)
        snprintf(text, sizeof text, "%+.1f %% or more",
                 compute_percent_at(r, c,
                                    it->bound_ns >= 0 ? it->bound_ns
                                                      : c->lower_bound_ns));
    else if (it->bound_ns >= 0 && it->bound_ns < c->iteration_ns)
        snprintf(text, sizeof text, "%+.1f %%%s%s; none is below %+.1f %%",
                 compute_percent(r, c), in, first,
                 compute_percent_at(r, c, it->bound_ns));
    else
        snprintf(text, sizeof text, "%+.1f %%%s%s", compute_percent(r, c), in,
                 first);
    c->why = lhi_arena_strdup(r->mem, text);
    return c->why ? LH_OK : lhi_fail_nomem(err);
}

/* Returns the F, D and W pass count of one iteration, to estimate simulation
 * work. */
static uint64_t count_passes(const lh_choice *c)
{
    return (uint64_t)c->layout.pipeline * c->layout.chunks_per_device *
           c->microbatches * 3;
}

/* Simulates alternative *slot, which only has a lower bound, and stores its
 * result there. */
static lh_status simulate_alternative(alternative_search *r, lh_choice *slot,
                                      lh_error *err)
{
    lhi_layout_search s = {
        .job = r->job, .options = *r->options, .mem = r->mem};
    lhi_candidate c = {.config = lhi_config_from_choice(slot),
                       .bound_ns = slot->lower_bound_ns};
    int64_t bound_ns = slot->lower_bound_ns;
    r->passes += count_passes(slot);
    LHI_TRY(lhi_candidate_evaluate(&s, &c, err));
    *slot = c.choice;
    lhi_plan_count_simulated(r->plan, bound_ns);
    return slot->status == LH_CHOICE_OK
               ? format_reason(r,
                               &(lh_plan_dimension_alternative){.bound_ns = -1},
                               slot, err)
               : LH_OK;
}

/* Finds the best alternative for dimension `d` into *least: simulates the one
 * with the least bound until the least one is simulated, or the work limit is
 * reached. */
static lh_status find_best(alternative_search *r, lhi_dimension d,
                           lh_choice **least, lh_error *err)
{
    for (uint32_t i = 0;; i++) {
        *least = find_least(r, d, false);
        if (!*least || (*least)->status != LH_CHOICE_BOUNDED ||
            i == MAX_SIMULATED_PER_DIMENSION ||
            r->passes + count_passes(*least) > MOST_PASSES)
            return LH_OK;
        LHI_TRY(simulate_alternative(r, *least, err));
    }
}

/* Computes a lower bound on all layouts with another value of dimension `d`
 * than the plan's, explored or not; -1: unknown. `least`: the best known one of
 * these layouts. */
static int64_t compute_other_bound(const alternative_search *r, lhi_dimension d,
                                   const lh_choice *least)
{
    lhi_config own = lhi_config_from_choice(&r->plan->best);
    if (r->options->objective == LH_PLAN_CHEAPEST)
        return -1; /* no bounds on costs here */
    return lhi_min_int64(
        lhi_min_int64(get_objective(r, least), r->differing_ns),
        lhi_unexplored_bound_other_values(r->unexplored, d, &own));
}

/* Adds the plan itself with another ZeRO stage to the list `runners`, as an
 * alternative of equal time, if the ZeRO stage has no effect. Does nothing for
 * sharding without effect. */
static lh_status add_equal(alternative_search *r, lhi_dimension d,
                           lh_plan_dimension_alternative *runners,
                           lh_error *err)
{
    lh_choice equal;
    char text[120], bound[60] = "";
    if (d != LHI_DIMENSION_ZERO ||
        !copy_with_other_value(r, d, &r->plan->best, &equal))
        return LH_OK;
    const int64_t bound_ns = compute_other_bound(r, d, &equal);
    if (bound_ns >= 0 && bound_ns < equal.iteration_ns)
        snprintf(bound, sizeof bound, "; none is below %+.1f %%",
                 compute_percent_at(r, &equal, bound_ns));
    snprintf(text, sizeof text, "%+.1f %%, no effect on this layout%s",
             compute_percent(r, &equal), bound);
    equal.why = lhi_arena_strdup(r->mem, text);
    if (!equal.why)
        return lhi_fail_nomem(err);
    runners[r->plan->n_dimension_alternatives++] =
        (lh_plan_dimension_alternative){.dimension = lhi_dimension_name(d),
                                        .choice = equal,
                                        .bound_ns = bound_ns};
    return LH_OK;
}

/* Adds the best plan with another value of layout dimension `d` to the list of
 * alternatives, `runners`, with a bound on all others; adds nothing if none is
 * known. */
static lh_status add_alternative(alternative_search *r, lhi_dimension d,
                                 lh_plan_dimension_alternative *runners,
                                 lh_error *err)
{
    lh_choice *least, *best;
    lhi_config own = lhi_config_from_choice(&r->plan->best);
    if (!lhi_dimension_has_effect(r->job, d, &own))
        return add_equal(r, d, runners, err);
    LHI_TRY(find_best(r, d, &least, err));
    if (!least)
        return LH_OK;
    best = find_least(r, d, true);
    const lh_choice *others[] = {find_local_search_best(r, d),
                                 find_listed_best(r, d)};
    for (int i = 0; i < 2; i++)
        if (others[i] && is_better(r, others[i], best))
            best = (lh_choice *)others[i];
    if (best && is_better(r, best, least))
        least = best;
    lh_plan_dimension_alternative *out =
        &runners[r->plan->n_dimension_alternatives++];
    *out = (lh_plan_dimension_alternative){
        .dimension = lhi_dimension_name(d),
        .choice = best ? *best : *least,
        .bound_ns = compute_other_bound(r, d, least)};
    if (!differs_in_dimension(d, &out->choice, &r->plan->best))
        (void)copy_with_other_value(r, d, best ? best : least, &out->choice);
    out->is_quick_evaluation = is_quick_result(r, d, &out->choice);
    return format_reason(r, out, &out->choice, err);
}

lh_status lhi_plan_find_alternatives(const lh_job *job,
                                     const lh_plan_options *options,
                                     lhi_arena *mem,
                                     const lhi_unexplored *unexplored,
                                     lh_plan *plan, lh_error *err)
{
    alternative_search r = {.job = job,
                            .options = options,
                            .mem = mem,
                            .plan = plan,
                            .unexplored = unexplored,
                            .differing_ns = INT64_MAX};
    uint32_t n = plan->n_alternatives;
    lh_plan_dimension_alternative *runners =
        LHI_NEW(mem, lh_plan_dimension_alternative, LHI_N_DIMENSIONS);
    r.list = LHI_NEW(mem, lh_choice, n + (size_t)1);
    if (!runners || !r.list)
        return lhi_fail_nomem(err);
    if (n)
        memcpy(r.list, plan->alternatives, n * sizeof *r.list);
    LHI_TRY(lhi_differing_compute_bound(job, options, &r.differing_ns, err));
    for (int d = 0; d < LHI_N_DIMENSIONS; d++)
        LHI_TRY(add_alternative(&r, (lhi_dimension)d, runners, err));
    /* Some have times only now. Under jitter they are sorted by its mean. */
    if (!options->jitter)
        lhi_sort_choices(options, r.list, n);
    plan->dimension_alternatives = runners;
    plan->alternatives = r.list;
    return LH_OK;
}
