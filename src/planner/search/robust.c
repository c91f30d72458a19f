/* SPDX-License-Identifier: Apache-2.0 */
/* Choice under jitter. Every schedule gets the same samples, and is abandoned
 * once the remaining samples cannot make it the best. A lower bound of a
 * layout's pipeline in one sample bounds every schedule in that sample. The
 * same test on bounds therefore abandons whole layouts; none could have won on
 * these samples. */
#include "planner/search/robust.h"

#include "base/format_units.h"
#include "base/options.h"
#include "base/sort.h"

#include "planner/layout/choice.h"
#include "planner/layout/equivalence.h"
#include "planner/layout/link_override.h"
#include "planner/search/objective.h"
#include "planner/search/parallel_for.h"
#include "planner/search/plan_search.h"
#include "planner/search/refine.h"
#include "schedule/simulator/jitter_samples.h"
#include "schedule/solver/bound/closed_forms.h"

#include <inttypes.h>
#include <longhaul/experimental/bounds.h>
#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/simulate.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

lh_status lh_plan_jitter(const lh_job *job, const lh_choice *choice,
                         const lh_jitter *given, lh_jitter *out, lh_error *err)
{
    const lh_layout *l = &choice->layout;
    /* The mean of all stages, if their tensor degrees differ. */
    const double gpus = (double)lh_layout_gpus(l) / l->pipeline;
    lh_jitter drawn;
    LHI_TRY(LHI_OPTIONS_COPY(lh_jitter, &drawn, given, err));
    if (drawn.straggler_probability > 0 && drawn.straggler_probability <= 1)
        drawn.straggler_probability =
            -expm1(gpus * log1p(-drawn.straggler_probability));
    drawn.shared_data_link =
        l->sites ? l->sites->n_groups > 1
                 : l->outermost == LH_OUTERMOST_DATA && job->n_datacenters > 1;
    *out = drawn;
    return LH_OK;
}

/* Jitter evaluation state. */
typedef struct robust {
    const lh_job *job;
    const lh_plan_options *options;
    lhi_arena *mem;
    lh_plan *plan;
    lh_plan_robust *about;
    int64_t *ns;     /* one schedule's samples */
    int64_t best_ns; /* statistic options->by of the best so far */
    bool moved;      /* the best has another layout than the search's */
} robust;

/* One layout's state. */
typedef struct drawn {
    lhi_built_layout built;
    lhi_jitter_sampler *draws;
    int64_t least_ns; /* lower bound on the nominal makespan */
    uint32_t n_rows;  /* methods */
    lh_choice *rows;
    /* the row's schedule if it is the overall best, or NULL */
    lh_schedule *best;
    uint32_t best_row;
} drawn;

/* Returns statistic `by` (mean or 95th percentile) of a plan candidate's jitter
 * samples, in ns; INT64_MAX: it has none. */
static int64_t get_score(const lh_choice *c, lh_plan_statistic by)
{
    if (!c->jitter)
        return INT64_MAX;
    return by == LH_PLAN_BY_P95 ? c->jitter->p95_ns
                                : llround(c->jitter->mean_ns);
}

/* --- samples -------------------------------------------------------------- */

/* Samples so far, compared with a time to beat. */
typedef struct tally {
    lh_plan_statistic by;
    uint32_t n, done, at_least; /* samples at or above the limit */
    int64_t limit_ns;
    double sum, least_ns; /* per remaining sample */
} tally;

/* Adds the iteration time (ns) of one jitter sample to a schedule's statistic.
 * Returns true if the schedule cannot beat the limit even if all its other
 * samples are as fast as the lower bound. */
static bool add_sample(tally *t, int64_t ns)
{
    t->done++;
    t->at_least += ns >= t->limit_ns;
    t->sum += (double)ns;
    if (t->by == LH_PLAN_BY_P95)
        return t->at_least >
               t->n - (uint32_t)(((uint64_t)t->n * 95 + 99) / 100);
    /* half a nanosecond: means are rounded before the comparison */
    return (t->sum + (t->n - t->done) * t->least_ns) / t->n >=
           (double)t->limit_ns - 0.5;
}

/* Returns an empty statistic for the jitter samples of layout `d`. Its limit,
 * which a schedule must beat, is limit_ns without the optimizer and overhead
 * times. */
static tally start_tally(const robust *r, const drawn *d, int64_t limit_ns)
{
    int64_t after_ns = d->built.optimizer_ns + d->built.overhead_ns;
    return (tally){.by = r->options->statistic,
                   .n = lhi_jitter_sampler_count(d->draws),
                   .limit_ns =
                       limit_ns == INT64_MAX ? INT64_MAX : limit_ns - after_ns,
                   .least_ns = (double)d->least_ns};
}

/* Checks whether no schedule of layout `d` can beat the best plan's statistic
 * under jitter, by the lower bounds of all samples; result in *out. */
static lh_status is_hopeless(const robust *r, drawn *d, bool *out,
                             lh_error *err)
{
    tally t = start_tally(r, d, r->best_ns);
    *out = false;
    for (uint32_t i = 0; i < t.n && !*out; i++) {
        lh_bound bound;
        lhi_jitter_sampler_draw(d->draws, i);
        LHI_TRY(lhi_compute_closed_form_bound(
            lhi_jitter_sampler_get_pipeline(d->draws), &bound, err));
        *out = add_sample(&t, bound.ns);
    }
    return LH_OK;
}

/* Simulates a schedule in each jitter sample of layout `d`; *out: the
 * statistics, or NULL if the schedule was abandoned because it cannot beat
 * limit_ns. */
static lh_status sample_iterations(const robust *r, drawn *d,
                                   const lh_schedule *schedule,
                                   int64_t limit_ns,
                                   const lh_jitter_result **out, lh_error *err)
{
    tally t = start_tally(r, d, limit_ns);
    lh_evaluator *evaluator;
    LHI_TRY(lh_evaluator_make(lhi_jitter_sampler_get_pipeline(d->draws), NULL,
                              &evaluator, err));
    lh_status status = LH_OK;
    bool lost = false;
    for (uint32_t i = 0; i < t.n && status == LH_OK && !lost; i++) {
        lhi_jitter_sampler_draw(d->draws, i);
        status = lh_evaluator_run(evaluator, schedule, &r->ns[i], err);
        if (status == LH_OK)
            lost = add_sample(&t, r->ns[i]) && limit_ns != INT64_MAX;
    }
    lh_evaluator_free(evaluator);
    *out = NULL;
    if (status != LH_OK || lost)
        return status;
    lh_jitter_result *result = LHI_NEW(r->mem, lh_jitter_result, 1);
    if (!result)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < t.n; i++)
        r->ns[i] += d->built.optimizer_ns + d->built.overhead_ns;
    lhi_jitter_summarise(r->ns, t.n, result);
    *out = result;
    r->about->n_schedules++;
    return LH_OK;
}

/* --- one layout ----------------------------------------------------------- */

/* Builds the layout of plan candidate `like` and prepares its jitter samples
 * (random link delays and device speeds), in *d. */
static lh_status open_layout(const robust *r, const lh_choice *like, drawn *d,
                             lh_error *err)
{
    lhi_config config = lhi_config_from_choice(like);
    lh_bound bound;
    *d = (drawn){0};
    LHI_TRY(lhi_layout_build(r->job, &config, &d->built, err));
    lh_status status =
        lhi_compute_closed_form_bound(d->built.pipeline, &bound, err);
    if (status == LH_OK) {
        lh_jitter jitter;
        d->least_ns = bound.ns;
        status = lh_plan_jitter(r->job, like, r->options->jitter, &jitter, err);
        if (status == LH_OK)
            status = lhi_jitter_sampler_make(d->built.pipeline, &jitter,
                                             &d->draws, err);
    }
    return status;
}

/* Frees a layout's sampler, schedule and pipeline. */
static void close_layout(drawn *d)
{
    lhi_jitter_sampler_free(d->draws);
    lh_schedule_free(d->best);
    lh_pipeline_free(d->built.pipeline);
}

/* Runs the schedule method that plan candidate `row` names on the sampled
 * layout `d`. *schedule is the caller's; NULL on failure. */
static lh_status try_method(const robust *r, const drawn *d, lh_choice *row,
                            lh_schedule **schedule, lh_error *err)
{
    return lhi_method_evaluate(r->job, r->options, &d->built, NULL, r->mem, row,
                               schedule, err);
}

/* Keeps `schedule`, that of d->rows[row], as the layout's best if its statistic
 * under jitter is the best over all layouts so far; otherwise frees it. */
static void store_if_best(robust *r, drawn *d, uint32_t row,
                          lh_schedule *schedule)
{
    if (get_score(&d->rows[row], r->options->statistic) >= r->best_ns) {
        lh_schedule_free(schedule);
        return;
    }
    r->best_ns = get_score(&d->rows[row], r->options->statistic);
    lh_schedule_free(d->best);
    d->best = schedule;
    d->best_row = row;
}

/* Simulates `schedule`, that of d->rows[row], in all jitter samples, unless
 * it cannot beat limit_ns, and keeps it if it is the best. Owns it from
 * then on. */
static lh_status sample_schedule(robust *r, drawn *d, uint32_t row,
                                 lh_schedule *schedule, int64_t limit_ns,
                                 lh_error *err)
{
    lh_status status =
        sample_iterations(r, d, schedule, limit_ns, &d->rows[row].jitter, err);
    if (status == LH_OK)
        store_if_best(r, d, row, schedule);
    else
        lh_schedule_free(schedule);
    return status;
}

/* Repeats the solver's search for the schedule of `like`, which no method
 * makes, and simulates it in the layout's jitter samples. `show`: in all
 * samples, even if it cannot win. */
static lh_status sample_solver_schedule(robust *r, const lh_choice *like,
                                        bool show, drawn *d, lh_error *err)
{
    lh_schedule *schedule = NULL;
    LHI_TRY(lhi_plan_refine_alternative(r->options, d->built.pipeline,
                                        &schedule, err));
    if (!schedule)
        return LH_OK;
    d->rows[d->n_rows] = *like;
    d->rows[d->n_rows++].jitter = NULL;
    return sample_schedule(r, d, d->n_rows - 1, schedule,
                           show ? INT64_MAX : r->best_ns, err);
}

/* Checks whether to skip a slow schedule method on layout `d`: no faster
 * method's time without jitter is below the best time with jitter. */
static bool is_too_slow(const robust *r, const drawn *d,
                        const lhi_method *method)
{
    bool hope = d->n_rows == 0;
    if (method->kind != LHI_METHOD_SLOW)
        return false;
    for (uint32_t i = 0; i < d->n_rows; i++)
        hope = hope || (d->rows[i].status == LH_CHOICE_OK &&
                        d->rows[i].iteration_ns < r->best_ns);
    return !hope;
}

/* Runs the schedule methods on layout `d` and simulates each in its jitter
 * samples; none if `hopeless`. `show`: the method of `like` in any case, and in
 * all samples. */
static lh_status try_methods(robust *r, const lh_choice *like, bool hopeless,
                             bool show, drawn *d, lh_error *err)
{
    d->rows = LHI_NEW(r->mem, lh_choice, lhi_n_methods + (size_t)1);
    if (!d->rows)
        return lhi_fail_nomem(err);
    for (uint32_t m = 0; m < lhi_n_methods; m++) {
        const lhi_method *method = &lhi_methods[m];
        const char *shown = like->layout.schedule;
        bool named = show && shown && strcmp(shown, method->name) == 0;
        if (!lhi_method_is_considered(r->job, r->options, like->layout.pipeline,
                                      method) ||
            (hopeless && !named) || (!named && is_too_slow(r, d, method)))
            continue;
        lh_choice *row = &d->rows[d->n_rows++];
        lh_schedule *schedule;
        *row = *like;
        row->layout.schedule = method->name;
        row->jitter = NULL;
        LHI_TRY(try_method(r, d, row, &schedule, err));
        if (schedule)
            LHI_TRY(sample_schedule(r, d, d->n_rows - 1, schedule,
                                    named ? INT64_MAX : r->best_ns, err));
    }
    if (like->layout.schedule && strcmp(like->layout.schedule, LH_OPTIMAL) == 0)
        return sample_solver_schedule(r, like, show, d, err);
    return LH_OK;
}

/* --- plan's layout -------------------------------------------------------- */

/* Simulates in jitter samples the schedules of rows[from] and all later rows
 * with the same pipeline, and marks them in done[]. A schedule that beats all
 * previous ones becomes the plan. */
static lh_status sample_rows(robust *r, lh_choice *rows, uint32_t n,
                             uint32_t from, bool *done, lh_error *err)
{
    drawn d;
    lh_plan *plan = r->plan;
    lh_status status = open_layout(r, &rows[from], &d, err);
    d.rows = rows;
    for (uint32_t i = from; i < n && status == LH_OK; i++) {
        lh_schedule *schedule;
        if (done[i] || !lhi_choices_share_pipeline(&rows[i], &rows[from]))
            continue;
        done[i] = true;
        lh_choice again = rows[i];
        status = try_method(r, &d, &again, &schedule, err);
        if (status != LH_OK || !schedule)
            continue;
        status = sample_schedule(r, &d, i, schedule, INT64_MAX, err);
    }
    if (status == LH_OK && d.best) {
        lh_pipeline_free((lh_pipeline *)plan->pipeline);
        lh_schedule_free((lh_schedule *)plan->schedule);
        plan->pipeline = d.built.pipeline;
        plan->schedule = d.best;
        plan->cost_source = lh_cost_source_name(d.built.source);
        const char *why = plan->best.why;
        plan->best = rows[d.best_row];
        plan->best.why = why;
        d.built.pipeline = NULL;
        d.best = NULL;
    }
    close_layout(&d);
    return status;
}

/* Simulates all schedule methods on the plan's layout in all jitter samples,
 * for the table of methods; the solver's schedule only in the plan's chunk
 * placement. */
static lh_status sample_methods(robust *r, lh_error *err)
{
    lh_plan *plan = r->plan;
    uint32_t n = plan->n_methods;
    lh_choice *rows = LHI_NEW(r->mem, lh_choice, n + (size_t)1);
    bool *done = LHI_NEW(r->mem, bool, n + (size_t)1);
    const lh_choice first = plan->best;
    if (!rows || !done)
        return lhi_fail_nomem(err);
    if (n)
        memcpy(rows, plan->methods, n * sizeof *rows);
    for (uint32_t i = 0; i < n; i++) {
        bool own =
            strcmp(rows[i].layout.schedule, first.layout.schedule) == 0 &&
            rows[i].iteration_ns == first.iteration_ns &&
            rows[i].elastic == first.elastic &&
            lhi_choices_share_pipeline(&rows[i], &first);
        if (own && !rows[i].jitter)
            rows[i].jitter = first.jitter;
        done[i] = own || rows[i].jitter || rows[i].elastic ||
                  rows[i].status != LH_CHOICE_OK ||
                  !lhi_method_find(rows[i].layout.schedule);
    }
    for (uint32_t i = 0; i < n; i++)
        if (!done[i])
            LHI_TRY(sample_rows(r, rows, n, i, done, err));
    plan->methods = rows;
    return LH_OK;
}

/* Simulates the plan's own schedule in all jitter samples; its statistic (mean
 * or 95th percentile) is the limit for all other schedules. */
static lh_status sample_best(robust *r, lh_error *err)
{
    lh_plan *plan = r->plan;
    drawn d = {.built = {.optimizer_ns = plan->best.optimizer_ns,
                         .overhead_ns = plan->best.overhead_ns}};
    lh_jitter jitter;
    LHI_TRY(
        lh_plan_jitter(r->job, &plan->best, r->options->jitter, &jitter, err));
    LHI_TRY(lhi_jitter_sampler_make(plan->pipeline, &jitter, &d.draws, err));
    uint32_t n = lhi_jitter_sampler_count(d.draws);
    r->ns = LHI_NEW(r->mem, int64_t, n);
    lh_status status = r->ns
                           ? sample_iterations(r, &d, plan->schedule, INT64_MAX,
                                               &plan->best.jitter, err)
                           : lhi_fail_nomem(err);
    r->about->jitter = *r->options->jitter;
    r->about->jitter.samples = n;
    lhi_jitter_sampler_free(d.draws);
    if (status == LH_OK)
        r->best_ns = get_score(&plan->best, r->options->statistic);
    return status;
}

/* --- alternatives --------------------------------------------------------- */

/* Checks whether plan candidate `x` is better than `y` (NULL: none): by status,
 * then by its statistic `by` under jitter, then by its time without jitter. */
static bool is_better_row(const lh_choice *x, const lh_choice *y,
                          lh_plan_statistic by)
{
    if (!y || x->status != y->status)
        return !y || x->status < y->status;
    int64_t a = get_score(x, by), b = get_score(y, by);
    return a != b ? a < b : x->iteration_ns < y->iteration_ns;
}

/* Makes layout `d`, with its best schedule under jitter, the plan; the previous
 * plan takes its entry *slot in the list of alternatives. */
static void replace_plan(robust *r, drawn *d, lh_choice *slot)
{
    lh_plan *plan = r->plan;
    lh_pipeline_free((lh_pipeline *)plan->pipeline);
    lh_schedule_free((lh_schedule *)plan->schedule);
    *slot = plan->best;
    plan->best = d->rows[d->best_row];
    plan->pipeline = d->built.pipeline;
    plan->schedule = d->best;
    plan->cost_source = lh_cost_source_name(d->built.source);
    plan->methods = d->rows;
    plan->n_methods = d->n_rows;
    d->built.pipeline = NULL;
    d->best = NULL;
    r->moved = true;
}

/* Stores the result of layout `d`'s best schedule under jitter in its
 * alternatives entry *slot. */
static void keep_row(robust *r, const drawn *d, lh_choice *slot)
{
    const lh_choice *best = NULL;
    bool was_bounded = slot->status == LH_CHOICE_BOUNDED;
    for (uint32_t i = 0; i < d->n_rows; i++)
        if (is_better_row(&d->rows[i], best, r->options->statistic))
            best = &d->rows[i];
    if (!best || (!was_bounded && !best->jitter))
        return;
    if (was_bounded)
        lhi_plan_count_simulated(r->plan, slot->lower_bound_ns);
    *slot = *best;
}

/* Simulates the schedules of alternative *slot in jitter samples, unless its
 * bounds show that it cannot win; it becomes the plan if it is the best.
 * `show`: simulates at least its own method. */
static lh_status sample_alternative(robust *r, lh_choice *slot, bool show,
                                    lh_error *err)
{
    drawn d;
    bool hopeless = slot->lower_bound_ns >= r->best_ns;
    show = show && slot->status == LH_CHOICE_OK;
    if (slot->elastic || slot->status > LH_CHOICE_BOUNDED ||
        (hopeless && !show))
        return LH_OK;
    lh_status status = open_layout(r, slot, &d, err);
    if (status == LH_OK && !hopeless)
        status = is_hopeless(r, &d, &hopeless, err);
    if (status == LH_OK && (!hopeless || show)) {
        r->about->n_layouts++;
        status = try_methods(r, slot, hopeless, show, &d, err);
    }
    if (status == LH_OK && d.best) {
        if (slot->status == LH_CHOICE_BOUNDED)
            lhi_plan_count_simulated(r->plan, slot->lower_bound_ns);
        replace_plan(r, &d, slot);
    } else if (status == LH_OK) {
        keep_row(r, &d, slot);
    }
    close_layout(&d);
    return status;
}

/* Orders plan candidates by status, then by the statistic of their samples,
 * then by nominal time or lower bound. */
static int compare_scores(const lh_choice *x, const lh_choice *y,
                          lh_plan_statistic by)
{
    if (x->status != y->status)
        return x->status < y->status ? -1 : 1;
    int64_t m = get_score(x, by), n = get_score(y, by);
    if (m == n) {
        bool ok = x->status == LH_CHOICE_OK;
        m = ok ? x->iteration_ns : x->lower_bound_ns;
        n = ok ? y->iteration_ns : y->lower_bound_ns;
    }
    return (m > n) - (m < n);
}

/* Orders plan candidates by the mean of their samples. */
static int compare_means(const void *a, const void *b)
{
    return compare_scores(a, b, LH_PLAN_BY_MEAN);
}

/* Orders plan candidates by the 95th percentile of their samples. */
static int compare_p95(const void *a, const void *b)
{
    return compare_scores(a, b, LH_PLAN_BY_P95);
}

/* Sorts plan candidates by the statistic of the options (mean or 95th
 * percentile). */
static void sort_by_statistic(const robust *r, lh_choice *list, uint32_t n)
{
    if (n)
        lhi_sort(list, n, sizeof *list,
                 r->options->statistic == LH_PLAN_BY_P95 ? compare_p95
                                                         : compare_means);
}

/* The plan's search dropped layouts no better than the best without jitter.
 * Sampled delays are never shorter than nominal, so here the limit is the
 * best's time with jitter. */
typedef struct wide_objective {
    int64_t limit_ns;
} wide_objective;

/* Returns the lower bound on the time in `floor`. Objective callback for the
 * wider layout search, which searches again for layouts that are slower without
 * jitter. */
static int64_t get_wide_bound(void *context, lhi_level level,
                              const lhi_config *config,
                              const lhi_lower_bound *floor)
{
    (void)context, (void)level, (void)config;
    return floor->ns;
}

/* Checks whether `bound` is at or above the best time under jitter, so that no
 * layout below this node is useful. Objective callback for the wider layout
 * search. */
static bool is_wide_useless(void *context, int64_t bound, lhi_level level,
                            const lhi_config *config,
                            const lhi_lower_bound *floor)
{
    const wide_objective *w = context;
    (void)level, (void)config, (void)floor;
    return bound >= w->limit_ns;
}

/* Does nothing. Objective callback for the wider layout search. */
static lh_status ignore_wide_candidate(void *context, const lhi_candidate *c,
                                       lh_error *err)
{
    (void)context, (void)c, (void)err;
    return LH_OK;
}

/* Returns a candidate's iteration time. Objective callback for the wider layout
 * search. */
static int64_t get_wide_value(void *context, const lhi_candidate *c)
{
    (void)context;
    return c->choice.iteration_ns;
}

/* Checks whether the plan, or one of the n candidates in the list, has the same
 * layout as `c` (all but schedule and layer partition). */
static bool is_known(const robust *r, const lh_choice *list, uint32_t n,
                     const lh_choice *c)
{
    bool known = lhi_choices_are_equal(&r->plan->best, c);
    for (uint32_t i = 0; i < n && !known; i++)
        known = lhi_choices_are_equal(&list[i], c);
    return known;
}

/* Appends the wider search's feasible candidates to the alternative list, which
 * has *n entries. */
static lh_status add_found(robust *r, const lhi_layout_search *s,
                           lh_choice **list, uint32_t *n, lh_error *err)
{
    lh_choice *all = LHI_NEW(r->mem, lh_choice, *n + (size_t)s->n + 1);
    if (!all)
        return lhi_fail_nomem(err);
    if (*n)
        memcpy(all, *list, *n * sizeof *all);
    *list = all;
    for (uint32_t i = 0; i < s->n; i++) {
        lh_choice c = lhi_candidate_make_choice(&s->candidates[i], NULL);
        c.status = LH_CHOICE_BOUNDED;
        c.why = "";
        if (s->candidates[i].bound_ns < r->best_ns && !is_known(r, all, *n, &c))
            all[(*n)++] = c;
    }
    sort_by_statistic(r, all, *n);
    return LH_OK;
}

/* Repeats the layout search for all layouts whose bound is below the best time
 * with jitter, and appends new ones to the list: layouts that are slower
 * without jitter may be better with it. */
static lh_status search_wider(robust *r, lh_choice **list, uint32_t *n,
                              lh_error *err)
{
    wide_objective w = {r->best_ns};
    lhi_objective objective = {.context = &w,
                               .bound = get_wide_bound,
                               .is_useless = is_wide_useless,
                               .add_candidate = ignore_wide_candidate,
                               .value = get_wide_value};
    lhi_layout_search s = {.job = r->job,
                           .options = *r->options,
                           .objective = &objective,
                           .mem = r->mem,
                           .candidates_only = true};
    s.options.quick = true;
    LHI_TRY(lhi_workers_make(s.options.threads, r->mem, &s.workers, err));
    lh_status status = lhi_layout_search_branch_and_bound(&s, err);
    if (status == LH_OK)
        status = add_found(r, &s, list, n, err);
    r->about->complete = s.complete;
    lhi_workers_free(s.workers);
    free(s.candidates);
    return status;
}

/* Calls the caller's progress callback; returns true if it asks to stop. */
static bool is_stopped(const robust *r)
{
    const lh_plan_options *o = r->options;
    return o->progress && o->progress(o->context, r->plan->n_layouts,
                                      r->plan->n_layouts, r->best_ns);
}

/* Simulates the n alternatives in jitter samples, in the list's order; the
 * first `top` at least by their own method. Counts those without simulation
 * that might be better. */
static lh_status sample_alternatives(robust *r, lh_choice *list, uint32_t n,
                                     uint32_t top, lh_error *err)
{
    for (uint32_t i = 0; i < n; i++) {
        if (i < LHI_ROBUST_LAYOUTS && !is_stopped(r))
            LHI_TRY(sample_alternative(r, &list[i], i < top, err));
        else
            r->about->n_unevaluated += list[i].lower_bound_ns < r->best_ns;
    }
    return LH_OK;
}

/* --- result --------------------------------------------------------------- */

/* Moves the row whose samples are the plan's own (`own`) to the front of n
 * rows, even if others have the same statistic. */
static void put_first(lh_choice *rows, uint32_t n, const lh_jitter_result *own)
{
    for (uint32_t i = 0; i < n; i++) {
        if (rows[i].jitter != own)
            continue;
        lh_choice row = rows[i];
        memmove(rows + 1, rows, i * sizeof *rows);
        rows[0] = row;
        rows[0].why = "";
    }
}

/* Returns by how many per cent `x` differs from `y`, rounded to one decimal. */
static double compute_percent(double x, double y)
{
    return lhi_drop_negative_zero(100 * (x / y - 1), 1);
}

/* Sets each alternative's text with jitter samples: its difference from the
 * plan in per cent, without and with jitter. */
static lh_status format_gap_text(robust *r, lh_choice *list, uint32_t n,
                                 lh_error *err)
{
    const lh_choice *best = &r->plan->best;
    char text[400];
    for (uint32_t i = 0; i < n; i++) {
        lh_choice *c = &list[i];
        if (!c->jitter)
            continue;
        snprintf(text, sizeof text,
                 "%+.1f %%; with jitter %+.1f %% on the mean, %+.1f %% at the "
                 "95th percentile",
                 compute_percent((double)c->iteration_ns,
                                 (double)best->iteration_ns),
                 compute_percent(c->jitter->mean_ns, best->jitter->mean_ns),
                 compute_percent((double)c->jitter->p95_ns,
                                 (double)best->jitter->p95_ns));
        c->why = lhi_arena_strdup(r->mem, text);
        if (!c->why)
            return lhi_fail_nomem(err);
    }
    return LH_OK;
}

/* Formats the reason why the plan is the best under jitter, into its text.
 * `nominal`: the best plan without jitter. */
static lh_status format_reason(robust *r, const lh_choice *nominal,
                               lh_error *err)
{
    lh_choice *best = &r->plan->best;
    bool p95 = r->options->statistic == LH_PLAN_BY_P95;
    int64_t other = get_score(nominal, r->options->statistic);
    char text[800], there[LHI_FORMAT_DURATION_SIZE],
        without[LHI_FORMAT_DURATION_SIZE];
    if (best->jitter == nominal->jitter)
        snprintf(text, sizeof text,
                 "the fastest without jitter and by the %s with it; %s",
                 p95 ? "95th percentile" : "mean", nominal->why);
    else
        snprintf(text, sizeof text,
                 "the lowest %s under jitter: the plan that is fastest without "
                 "jitter takes %s with it, %.1f %% more, and %s without, %.1f "
                 "%% less",
                 p95 ? "95th percentile" : "mean",
                 lhi_format_duration(other, there),
                 compute_percent((double)other, (double)r->best_ns),
                 lhi_format_duration(nominal->iteration_ns, without),
                 0 - compute_percent((double)nominal->iteration_ns,
                                     (double)best->iteration_ns));
    best->why = lhi_arena_strdup(r->mem, text);
    return best->why ? LH_OK : lhi_fail_nomem(err);
}

/* Makes the n sampled candidates the plan's alternatives, sorted by their
 * statistic, with their texts. `nominal`: the best plan without jitter. */
static lh_status list_sampled(robust *r, lh_choice *list, uint32_t n,
                              const lh_choice *nominal, lh_error *err)
{
    lh_plan *plan = r->plan;
    lh_choice *methods = (lh_choice *)plan->methods;
    sort_by_statistic(r, methods, plan->n_methods);
    sort_by_statistic(r, list, n);
    plan->alternatives = list;
    LHI_TRY(format_gap_text(r, list, plan->n_alternatives, err));
    LHI_TRY(format_gap_text(r, methods, plan->n_methods, err));
    LHI_TRY(format_reason(r, nominal, err));
    put_first(methods, plan->n_methods, plan->best.jitter);
    r->about->complete = r->about->complete && r->about->n_unevaluated == 0;
    plan->robust = r->about;
    return LH_OK;
}

lh_status lhi_plan_check_jitter(const lh_jitter *jitter, lh_error *err)
{
    return lh_jitter_check(jitter, err);
}

lh_status lhi_plan_choose_robust(const lh_job *job,
                                 const lh_plan_options *options, lhi_arena *mem,
                                 lh_plan *plan, lh_error *err)
{
    robust r = {.job = job, .options = options, .mem = mem, .plan = plan};
    uint32_t n = plan->n_alternatives, top = options->top ? options->top : 10;
    lh_choice *list = LHI_NEW(mem, lh_choice, n + (size_t)1);
    r.about = LHI_NEW(mem, lh_plan_robust, 1);
    if (!list || !r.about)
        return lhi_fail_nomem(err);
    if (n)
        memcpy(list, plan->alternatives, n * sizeof *list);
    r.about->statistic = options->statistic;
    r.about->n_layouts = 1;
    LHI_TRY(sample_best(&r, err));
    const lh_choice nominal = plan->best;
    LHI_TRY(sample_methods(&r, err));
    LHI_TRY(search_wider(&r, &list, &n, err));
    LHI_TRY(sample_alternatives(&r, list, n, top, err));
    if (r.moved) /* its methods were abandoned after losing */
        LHI_TRY(sample_methods(&r, err));
    return list_sampled(&r, list, n, &nominal, err);
}
