/* SPDX-License-Identifier: Apache-2.0 */
/* Finds each link quantity's break-even value: the value from which another
 * layout becomes better than the plan's.
 *
 * 1. Scale one quantity by powers of two away from the job's value and plan the
 *    job again, until another layout wins.
 * 2. Bisect to find where that begins. A layout that is best only strictly
 *    between two powers of two is missed.
 * 3. These are quick searches (lh_plan_options); the plan's own layout and
 *    schedule compete with their results.
 * 4. Verify with full searches, at the last point where the layout was best and
 *    halfway to it. If one finds a better layout, the break-even value is
 *    between that point and the job's value.
 *
 * Every search adds its plan to a pool. The pool's plans are evaluated before a
 * search, which then looks for faster ones only. A bisection step costs a few
 * simulations, and two searches as a rule verify the result. */
#include "planner/explain/break_even.h"

#include "base/fail.h"
#include "planner/explain/whatif.h"
#include "planner/layout/equivalence.h"
#include "planner/layout/link_override.h"
#include "planner/search/objective.h"
#include "planner/search/plan_search.h"
#include "planner/search/search_budget.h"

#include <math.h>
#include <string.h>

/* Relative amount by which another layout must be faster. */
#define MARGIN                                                                 \
    0.01 /* for results of full searches; see lh_plan_sensitivity              \
          */

enum {
    MAX_DATACENTERS = 8, /* up to here every pair is examined separately */
    MAX_BREAK_EVENS = 2, /* per quantity: down and up */
    SHARE = 2            /* time: SHARE times the plan's, if limited */
};

/* A plan for one scale factor. */
typedef struct point {
    double factor;
    lh_choice best;
    bool same; /* the plan's layout, or none better by the margin */
    bool full; /* of full searches */
} point;

/* Sensitivity analysis state. */
typedef struct sensitivity_search {
    lh_plan_options options; /* for the quick searches */
    const lh_plan_options *given;
    lhi_arena *mem;
    lhi_arena *points; /* of the points' choices, and of the pools' jobs */
    lh_plan *plan;
    lhi_found_plans quick;  /* plans found by quick searches */
    lhi_found_plans *known; /* by full searches and --what-if questions */
    bool stopped;
    double until_s; /* process time; 0: no limit */
    /* Quantity under variation. */
    lh_plan_range *range;
    lh_plan_break_even *flips;
    uint32_t n_flips;
} sensitivity_search;

/* Calls the caller's progress callback for a search within the break-even
 * analysis. Returns true, which stops the search, from the first time that the
 * callback does. */
static bool watch_progress(void *context, uint32_t done, uint32_t total,
                           int64_t best_ns)
{
    sensitivity_search *f = context;
    if (f->given->progress && !f->stopped)
        f->stopped =
            f->given->progress(f->given->context, done, total, best_ns);
    return f->stopped;
}

/* Checks whether the break-even analysis has used up its processor time. Then
 * it takes the whole range in one step, does not bisect, and examines no
 * further quantity. */
static bool is_late(const sensitivity_search *f)
{
    return f->until_s > 0 && lhi_read_processor_seconds() >= f->until_s;
}

/* --- one plan ------------------------------------------------------------- */

/* Plans the job by a quick search; *best is its plan's layout and times. Its
 * pipeline and schedule join the pool f->quick. Plans of cutoff_ns or longer
 * may be missed. */
static lh_status plan_quickly(sensitivity_search *f, const lh_job *job,
                              int64_t cutoff_ns, lhi_arena *mem,
                              lh_choice *best, lh_error *err)
{
    lh_plan there = {.job = job};
    lh_status status = lhi_plan_search(job, &f->options, mem, NULL, cutoff_ns,
                                       f->known->evaluations, &there, err);
    *best = there.best;
    best->why = "";
    if (status == LH_OK)
        return lhi_found_plans_keep(&f->quick, f->points, &there, err);
    lh_pipeline_free((lh_pipeline *)there.pipeline);
    lh_schedule_free((lh_schedule *)there.schedule);
    return status;
}

/* Plans the job by a full search, as for --what-if, but without optimal
 * schedules. All these searches together do about as much work as the plan's
 * own search. Plans of cutoff_ns or longer may be missed. */
static lh_status plan_fully(sensitivity_search *f, const lh_job *job,
                            int64_t cutoff_ns, lhi_arena *mem, lh_choice *best,
                            lh_error *err)
{
    /* per range: halfway, last, each twice */
    enum { MIN_PARTS = 10, EACH = 4 };
    const uint32_t n = EACH * f->plan->sensitivity->n_ranges;
    const uint32_t parts = n > MIN_PARTS ? n : MIN_PARTS;
    lhi_found_plans found = {.evaluations = f->known->evaluations};
    lh_plan_options full = *f->given;
    full.no_optimal = true;
    full.progress = watch_progress;
    full.layout_progress = NULL;
    full.context = f;
    LHI_TRY(lhi_plan_search_again(job, &full, parts, cutoff_ns, mem, &found,
                                  best, err));
    best->why = "";
    lh_status status =
        lhi_found_plans_keep(f->known, f->points, &found.all[0], err);
    found.n = 0; /* its plan has moved */
    lhi_found_plans_fini(&found);
    LHI_TRY(status);
    /* With many ranges, a part is less than a quick search has. */
    if (lhi_compute_layout_work(&full) / parts >=
        lhi_search_limits_from_options(&f->options, 1).most_work)
        return LH_OK;
    lh_choice quick;
    LHI_TRY(plan_quickly(f, job, cutoff_ns, mem, &quick, err));
    if (lhi_objective_value(f->given, &quick) <
        lhi_objective_value(f->given, best))
        *best = quick;
    return LH_OK;
}

/* Builds a copy of the job in which the examined quantity (latency or bandwidth
 * of one or all links) is scaled by `factor`. */
static lh_status change_job(sensitivity_search *f, double factor,
                            lhi_arena *mem, lh_job **out, lh_error *err)
{
    lh_link_change changes[2] = {
        {f->range->from, f->range->to, f->range->quantity, true, factor},
        {f->range->to, f->range->from, f->range->quantity, true, factor}};
    uint32_t n = f->range->from == LH_ALL_LINKS ? 1 : 2;
    *out = LHI_NEW(mem, lh_job, 1);
    return *out ? lhi_job_override_links(f->plan->job, changes, n, mem, *out,
                                         err)
                : lhi_fail_nomem(err);
}

/* The best plans known for one job; without a status of LH_CHOICE_OK: none. */
typedef struct known_best {
    lh_choice own;   /* with the plan's layout */
    lh_choice quick; /* other layouts: by quick searches, and by full ones */
    lh_choice full;
} known_best;

/* Replaces *best by `choice` if that is better. */
static void keep_better(const sensitivity_search *f, const lh_choice *choice,
                        lh_choice *best)
{
    if (best->status != LH_CHOICE_OK || lhi_objective_value(f->given, choice) <
                                            lhi_objective_value(f->given, best))
        *best = *choice;
}

/* Records a search result in *all, the best results at one scale factor, which
 * are kept apart: of the plan's own layout, of full searches (`full`), and of
 * quick searches. */
static void add_result(const sensitivity_search *f, const lh_choice *choice,
                       bool full, known_best *all)
{
    const bool own =
        lhi_choices_are_equal(choice, &f->plan->sensitivity->reference);
    keep_better(f, choice, own ? &all->own : full ? &all->full : &all->quick);
}

/* Evaluates a pool's plans, with their own pass orders, on `job` and records
 * the results in *all, the best results at one scale factor. */
static lh_status add_pool(sensitivity_search *f, const lhi_found_plans *pool,
                          const lh_job *job, lhi_arena *mem, known_best *all,
                          lh_error *err)
{
    for (uint32_t i = 0; i < pool->n; i++) {
        lh_choice c;
        if (watch_progress(f, i, pool->n, all->own.iteration_ns))
            break;
        const lh_status status =
            lhi_plan_evaluate_on_job(&pool->all[i], job, mem, &c, err);
        if (status == LH_EUNSUPPORTED) /* times exceed a pipeline's range */
            continue;
        LHI_TRY(status);
        add_result(f, &c, pool == f->known, all);
    }
    return LH_OK;
}

/* Sets point p's best plan from the best results `all`. Layouts from full
 * searches only win if they beat the plan's own by more than the margin.
 * p->same: the plan's own layout wins. */
static void choose(const sensitivity_search *f, const known_best *all, point *p)
{
    const double margin = f->plan->sensitivity->margin;
    const bool kept = all->own.status == LH_CHOICE_OK;
    const double own = (double)lhi_objective_value(f->given, &all->own);
    lh_choice other = all->quick;
    if (all->full.status == LH_CHOICE_OK &&
        (!kept || own > (1 + margin) *
                            (double)lhi_objective_value(f->given, &all->full)))
        keep_better(f, &all->full, &other);
    p->same = kept && (other.status != LH_CHOICE_OK ||
                       own <= (double)lhi_objective_value(f->given, &other));
    p->best = p->same ? all->own : other;
}

/* Finds the best plan with the examined quantity scaled by p->factor, among all
 * plans found so far and, if `search`, by a new search. p->same: the plan's own
 * layout is still the best. */
static lh_status plan_at_factor(sensitivity_search *f, lhi_arena *mem, point *p,
                                bool search, lh_error *err)
{
    const lh_choice none = {.status = LH_CHOICE_FAILED};
    known_best all = {none, none, none};
    lh_choice found;
    lh_job *job;
    LHI_TRY(change_job(f, p->factor, f->points, &job, err));
    const lh_status status =
        lhi_plan_evaluate_on_job(f->plan, job, mem, &found, err);
    if (status == LH_OK)
        add_result(f, &found, true, &all);
    else if (status != LH_EUNSUPPORTED) /* times exceed a pipeline's range */
        return status;
    LHI_TRY(add_pool(f, &f->quick, job, mem, &all, err));
    LHI_TRY(add_pool(f, f->known, job, mem, &all, err));
    choose(f, &all, p);
    const bool works = p->best.status == LH_CHOICE_OK;
    if ((!search && works) || f->stopped)
        return LH_OK;
    const double margin = p->full && p->same ? f->plan->sensitivity->margin : 0;
    const int64_t cutoff_ns =
        works ? (int64_t)((double)p->best.iteration_ns / (1 + margin)) : 0;
    LHI_TRY(p->full ? plan_fully(f, job, cutoff_ns, mem, &found, err)
                    : plan_quickly(f, job, cutoff_ns, mem, &found, err));
    add_result(f, &found, p->full, &all);
    choose(f, &all, p);
    return LH_OK;
}

/* Evaluates the job with the examined quantity scaled by `factor`, into *out,
 * whose plan is kept. `search`: also searches if no known plan beats the plan's
 * layout; `full`: by a full search rather than a quick one. */
static lh_status evaluate_point(sensitivity_search *f, double factor, bool full,
                                bool search, point *out, lh_error *err)
{
    *out = (point){factor, f->plan->sensitivity->reference, true, full};
    if (!(factor < 1) && !(factor > 1))
        return LH_OK; /* already known */
    lhi_arena *scratch = lhi_arena_make(0);
    if (!scratch)
        return lhi_fail_nomem(err);
    lh_status status = plan_at_factor(f, scratch, out, search, err);
    if (status == LH_OK)
        status =
            lhi_found_plans_copy_choice(&out->best, f->points, &out->best, err);
    lhi_arena_free(scratch);
    return status;
}

/* --- break-even values ---------------------------------------------------- */

/* Copies point p's best plan into the permanent arena, into *out. Searches
 * again if it is an elastic plan other than the plan, whose details were not
 * kept. */
static lh_status keep_choice(sensitivity_search *f, point *p, lh_choice *out,
                             lh_error *err)
{
    if (!p->best.elastic || p->best.elastic == f->plan->best.elastic)
        return lhi_found_plans_copy_choice(&p->best, f->mem, out, err);
    LHI_TRY(plan_at_factor(f, f->mem, p, true, err));
    *out = p->best;
    return LH_OK;
}

/* Adds a break-even value, bracketed by the scale factors of *same, where the
 * plan's layout is best, and *other, where another layout is. */
static lh_status add_break_even(sensitivity_search *f, const point *same,
                                const point *other, lh_error *err)
{
    const bool up = same->factor < other->factor;
    point low = up ? *same : *other, high = up ? *other : *same;
    lh_plan_break_even *flip = &f->flips[f->n_flips++];
    *flip = (lh_plan_break_even){.factor_below = low.factor,
                                 .factor_above = high.factor};
    LHI_TRY(keep_choice(f, &low, &flip->below, err));
    return keep_choice(f, &high, &flip->above, err);
}

/* Checks whether the ratio of two points' scale factors is within a break-even
 * value's tolerance. */
static bool are_close(const sensitivity_search *f, const point *a,
                      const point *b)
{
    return fmax(a->factor, b->factor) / fmin(a->factor, b->factor) <=
           1 + f->plan->sensitivity->tolerance;
}

/* Narrows the interval of scale factors between *same, where the plan's layout
 * is best, and *other, where another layout is, by bisection; compares known
 * plans only. */
static lh_status bisect_known(sensitivity_search *f, point *same, point *other,
                              lh_error *err)
{
    while (!f->stopped && !is_late(f) && !are_close(f, same, other)) {
        point middle;
        LHI_TRY(evaluate_point(f, sqrt(same->factor * other->factor),
                               other->full, false, &middle, err));
        *(middle.same ? same : other) = middle;
    }
    return LH_OK;
}

/* Narrows the interval of scale factors between *same, where the plan's layout
 * is best, and *other, where another layout is, by bisection among known plans;
 * then verifies both ends by searches. A better plan found there becomes known,
 * and the bisection repeats, from halfway. */
static lh_status bisect_factor(sensitivity_search *f, point *same, point *other,
                               lh_error *err)
{
    const bool full = other->full;
    for (bool halfway = false;
         !f->stopped && !is_late(f) && !are_close(f, same, other);
         halfway = !halfway) {
        point last = *same, next = *other, there;
        LHI_TRY(bisect_known(f, &last, &next, err));
        if (f->stopped || is_late(f))
            break;
        LHI_TRY(evaluate_point(
            f, halfway ? sqrt(same->factor * last.factor) : last.factor, full,
            true, &there, err));
        *(there.same ? same : other) = there;
        if (halfway || !there.same ||
            !(next.factor < other->factor || next.factor > other->factor))
            continue;
        LHI_TRY(evaluate_point(f, next.factor, false, true, &there, err));
        *(there.same ? same : other) = there;
    }
    return LH_OK;
}

/* Verifies with full searches that the plan's layout is best up to the scale
 * factor of *same. If not, narrows *same and *other to the points of full
 * searches that bracket the change, and sets *found. */
static lh_status confirm_factor(sensitivity_search *f, point *same,
                                point *other, bool *found, lh_error *err)
{
    const double last = same->factor;
    point stands = {1, f->plan->sensitivity->reference, true, true};
    for (int i = 0; i < 2 && !f->stopped && !is_late(f); i++) {
        point there;
        LHI_TRY(
            evaluate_point(f, i ? last : sqrt(last), true, true, &there, err));
        if (!there.same) {
            *found = true;
            *same = stands;
            *other = there;
            return bisect_factor(f, same, other, err);
        }
        stands = there;
    }
    return LH_OK;
}

/* Finds the factor nearest to 1, between 1 and `end`, at which scaling the link
 * quantity makes another layout the best; adds it to the results. */
static lh_status find_break_even(sensitivity_search *f, double end,
                                 lh_error *err)
{
    const lh_plan_sensitivity *s = f->plan->sensitivity;
    bool up = end > 1, found = false;
    point same = {1, s->reference, true, false}, next = same;
    while (!f->stopped && !found &&
           (up ? same.factor < end : same.factor > end)) {
        double factor = is_late(f) ? end
                        : up       ? fmin(same.factor * 2, end)
                                   : fmax(same.factor / 2, end);
        LHI_TRY(evaluate_point(f, factor, false, true, &next, err));
        if (next.same)
            same = next;
        else
            found = true;
    }
    if (found)
        LHI_TRY(bisect_factor(f, &same, &next, err));
    if (s->margin > 0 && (same.factor < 1 || same.factor > 1))
        LHI_TRY(confirm_factor(f, &same, &next, &found, err));
    return found && !f->stopped ? add_break_even(f, &same, &next, err) : LH_OK;
}

/* Finds the break-even values of one range (latency or bandwidth of one or all
 * links), below and above the job's value. */
static lh_status find_break_evens(sensitivity_search *f, lh_plan_range *range,
                                  lh_error *err)
{
    const lh_plan_sensitivity *s = f->plan->sensitivity;
    f->range = range;
    f->flips = LHI_NEW(f->mem, lh_plan_break_even, MAX_BREAK_EVENS);
    f->n_flips = 0;
    if (!f->flips)
        return lhi_fail_nomem(err);
    LHI_TRY(find_break_even(f, s->min_factor, err));
    LHI_TRY(find_break_even(f, s->max_factor, err));
    range->break_evens = f->flips;
    range->n_break_evens = f->n_flips;
    return LH_OK;
}

/* --- links ---------------------------------------------------------------- */

/* Appends two empty sensitivity ranges to ranges[*n..], one for latency and one
 * for bandwidth, for the links between datacenters `from` and `to`. A later
 * search fills their break-even values. */
static void add_range(lh_plan_range *ranges, uint32_t *n, uint32_t from,
                      uint32_t to)
{
    ranges[(*n)++] =
        (lh_plan_range){.from = from, .to = to, .quantity = LH_LINK_LATENCY};
    ranges[(*n)++] =
        (lh_plan_range){.from = from, .to = to, .quantity = LH_LINK_BANDWIDTH};
}

/* Adapts the stated accuracy of an analysis that ran out of time to the work
 * done: margin 0, and a tolerance as wide as the widest bracket. */
static void restrict_statements(const sensitivity_search *f,
                                lh_plan_sensitivity *s)
{
    if (!is_late(f))
        return;
    s->margin = 0;
    for (uint32_t i = 0; i < s->n_ranges; i++)
        for (uint32_t k = 0; k < s->ranges[i].n_break_evens; k++) {
            const lh_plan_break_even *b = &s->ranges[i].break_evens[k];
            s->tolerance =
                fmax(s->tolerance, b->factor_above / b->factor_below - 1);
        }
}

/* Finds the break-even values of latency and bandwidth for all links together
 * and, with a few datacenters, for each pair of them. */
static lh_status find_all(sensitivity_search *f, lh_plan_sensitivity *s,
                          lh_error *err)
{
    uint32_t n = f->plan->job->n_datacenters;
    lh_plan_range *ranges = LHI_NEW(f->mem, lh_plan_range, 2 + (size_t)n * n);
    if (!ranges)
        return lhi_fail_nomem(err);
    if (n > 1)
        add_range(ranges, &s->n_ranges, LH_ALL_LINKS, LH_ALL_LINKS);
    for (uint32_t a = 0; n > 2 && n <= MAX_DATACENTERS && a < n; a++)
        for (uint32_t b = a + 1; b < n; b++)
            add_range(ranges, &s->n_ranges, a, b);
    /* A range's quick searches have about sixty such parts. */
    f->options.seconds /= 4 * (s->n_ranges ? s->n_ranges : 1);
    f->until_s = lhi_compute_search_deadline(
        f->given, lhi_read_processor_seconds(), SHARE);
    s->ranges = ranges;
    s->reference = f->plan->best;
    s->reference.why = "";
    uint32_t n_done = 0;
    while (n_done < s->n_ranges && !f->stopped && (n_done == 0 || !is_late(f)))
        LHI_TRY(find_break_evens(f, &ranges[n_done++], err));
    s->n_ranges = n_done;
    restrict_statements(f, s);
    return LH_OK;
}

lh_status lhi_plan_find_break_even(const lh_plan_options *options,
                                   lhi_arena *mem, lhi_found_plans *known,
                                   lh_plan *plan, lh_error *err)
{
    sensitivity_search f = {.options = *options,
                            .given = options,
                            .mem = mem,
                            .known = known,
                            .plan = plan};
    const uint32_t n_given = known->n;
    double range = options->range > 0 ? options->range : 16;
    lh_plan_sensitivity *s = LHI_NEW(mem, lh_plan_sensitivity, 1);
    if (!s)
        return lhi_fail_nomem(err);
    s->tolerance = options->tolerance > 0 ? options->tolerance : 0.01;
    if (!(range > 1 && range <= 0x1p20) || !(s->tolerance >= 1e-9))
        return lhi_fail(
            err, LH_EINVAL,
            "range %g or tolerance %g is invalid: the range must "
            "be above 1 and at most %g, the tolerance at least 1e-9",
            range, s->tolerance, 0x1p20);
    s->margin = options->quick ? 0 : MARGIN;
    s->max_factor = range;
    s->min_factor = 1 / range;
    f.options.n_questions = 0;
    f.options.sensitivity = false;
    f.options.top = 1;
    f.options.quick = true;
    lhi_ensure_quick_work(&f.options);
    f.options.jitter = NULL;
    f.options.pareto_front = false;
    f.options.progress = watch_progress;
    f.options.layout_progress = NULL;
    f.options.context = &f;
    plan->sensitivity = s;
    f.points = lhi_arena_make(0);
    lh_status status = f.points ? find_all(&f, s, err) : lhi_fail_nomem(err);
    lhi_found_plans_fini(&f.quick);
    lhi_found_plans_truncate(known, n_given);
    lhi_arena_free(f.points);
    if (f.stopped)
        plan->sensitivity = NULL;
    return status;
}
