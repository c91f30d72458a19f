/* SPDX-License-Identifier: Apache-2.0 */
/* The search over layouts. Every layout that divides is built and gets a lower
 * bound; they are simulated, each under every method, in the order of their
 * bounds, until the next bound is no better than the best time found. What is
 * left then cannot win, so the result is the best of all there are. */
#include "plan/search.h"

#include "plan/elastic_choices.h"
#include "plan/layouts.h"
#include "plan/uneven.h"

#include <inttypes.h>
#include <longhaul/bounds.h>
#include <longhaul/methods.h>
#include <longhaul/simulate.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SIMULATED_AT_LEAST = 8,  /* so that runners-up are times, not bounds */
    ELASTIC_LAYOUTS = 2,      /* the fastest by other schedules */
    UNEVEN_LAYOUTS = 2,       /* the fastest with even chunks */
};

typedef struct candidate {
    lhi_config config;
    int64_t bound_ns;     /* of an iteration; INT64_MAX: does not fit */
    int64_t missing;      /* bytes, where it does not fit */
    uint32_t missing_on;  /* device */
    bool simulated;
    lh_choice choice;     /* best method, once simulated */
    char bound_text[160];
} candidate;

typedef struct search {
    const lh_job *job;
    lh_plan_options options;
    lhi_arena *mem; /* the plan's */
    candidate *candidates;
    uint32_t n;
    uint32_t n_memory, n_simulated, n_unsupported, n_dropped;
    lh_error first_refusal; /* why the first layout did not work */
    lhi_elastic_choices elastic;
} search;

/* --- bounds -------------------------------------------------------------- */

/* What a device holds with one microbatch in all its chunks is the least it
 * ever needs. */
static lh_status find_missing(const lh_pipeline *p, candidate *c,
                              lh_error *err)
{
    uint32_t n = lh_pipeline_n_devices(p);
    int64_t *least = calloc(n, sizeof *least);
    if (!least)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < lh_pipeline_n_chunks(p); i++) {
        const lh_chunk *k = lh_pipeline_chunk(p, i);
        least[k->device] += k->mem_static + k->mem_f;
    }
    for (uint32_t d = 0; d < n; d++) {
        int64_t over = least[d] - lh_pipeline_memory_limit(p, d);
        if (over > c->missing) {
            c->missing = over;
            c->missing_on = d;
        }
    }
    free(least);
    return LH_OK;
}

static lh_status bound(search *s, candidate *c, lh_error *err)
{
    lhi_built built;
    lh_bound b;
    lh_error why = {0};
    c->bound_ns = INT64_MAX;
    if (!c->config.layers)
        LHI_TRY(lhi_uneven_by_speed(s->job, &s->options, s->mem, &c->config,
                                    err));
    lh_status status = lhi_layout_build(s->job, &c->config, &built, &why);
    if (status == LH_EUNSUPPORTED || status == LH_EINPUT ||
        status == LH_EINVAL) {
        s->n_unsupported++;
        if (!s->first_refusal.text[0])
            s->first_refusal = why;
        return LH_OK;
    }
    if (status != LH_OK) {
        if (err)
            *err = why;
        return status;
    }
    status = find_missing(built.pipeline, c, err);
    if (status == LH_OK && c->missing == 0) {
        status = lh_lower_bound(built.pipeline, &b, err);
        if (status == LH_OK) {
            c->bound_ns = b.ns + built.optimizer_ns + built.overhead_ns;
            memcpy(c->bound_text, b.text, sizeof c->bound_text);
        }
    } else if (status == LH_OK) {
        s->n_memory++;
    }
    lh_pipeline_free(built.pipeline);
    return status;
}

static int compare_bounds(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->bound_ns != y->bound_ns)
        return x->bound_ns < y->bound_ns ? -1 : 1;
    const lh_layout *m = &x->config.layout, *n = &y->config.layout;
    const uint32_t keys[][2] = {
        {m->pipeline, n->pipeline},
        {m->tensor, n->tensor},
        {m->expert, n->expert},
        {m->micro_batch, n->micro_batch},
        {m->chunks_per_device, n->chunks_per_device},
        {x->config.placement, y->config.placement},
        {x->config.recompute, y->config.recompute},
        {m->outermost, n->outermost},
    };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (keys[i][0] != keys[i][1])
            return keys[i][0] < keys[i][1] ? -1 : 1;
    return 0;
}

/* --- simulation ---------------------------------------------------------- */

static lh_choice start_choice(const candidate *c, const char *method)
{
    lh_choice choice = {.status = LH_CHOICE_FAILED,
                        .layout = c->config.layout,
                        .placement = c->config.placement,
                        .recompute = c->config.recompute,
                        .microbatches = c->config.microbatches,
                        .chunk_layers = c->config.layers,
                        .iteration_ns = -1,
                        .makespan_ns = -1,
                        .lower_bound_ns = c->bound_ns,
                        .why = ""};
    choice.layout.schedule = method;
    return choice;
}

static void take_memory(lh_choice *choice, const lh_pipeline *p,
                        const lh_timeline *t)
{
    int64_t least_room = INT64_MAX;
    for (uint32_t d = 0; d < lh_pipeline_n_devices(p); d++) {
        int64_t limit = lh_pipeline_memory_limit(p, d);
        int64_t peak = lh_timeline_peak_memory(t, d);
        if (limit - peak < least_room) {
            least_room = limit - peak;
            choice->peak_memory_bytes = peak;
            choice->memory_limit_bytes = limit;
        }
    }
}

static double peak_flops(const search *s, const lh_layout *l)
{
    double all = 0;
    for (uint32_t i = 0; i < s->job->n_datacenters; i++)
        all += s->job->datacenters[i].gpus *
               s->job->datacenters[i].gpu.flops_per_s;
    double used = (double)lhi_group_size(l) * l->pipeline * l->data;
    return all * used / s->job->n_gpus;
}

/* Runs one method; *schedule is NULL, and `why` says so, where it does not
 * work. */
static lh_status try_method(const lh_plan_options *options,
                            const lhi_built *built, const char *method,
                            lh_choice *choice, lh_schedule **schedule,
                            lh_error *why, lh_error *err)
{
    lh_method_options how = {.size = sizeof how,
                             .sub_blocks = options->sub_blocks};
    lh_timeline *timeline;
    const lh_pipeline *p = built->pipeline;
    *schedule = NULL;
    lh_status status =
        lh_method_run(method, p, &how, schedule, NULL, why);
    if (status == LH_EUNSUPPORTED || status == LH_EINFEASIBLE) {
        choice->status = status == LH_EINFEASIBLE ? LH_CHOICE_MEMORY
                                                  : LH_CHOICE_FAILED;
        return LH_OK;
    }
    if (status != LH_OK) {
        if (err)
            *err = *why;
        return status;
    }
    status = lh_simulate(p, *schedule, NULL, &timeline, err);
    if (status != LH_OK) {
        lh_schedule_free(*schedule);
        *schedule = NULL;
        lhi_wrap(err, "method %s", method);
        return status;
    }
    uint32_t device;
    take_memory(choice, p, timeline);
    if (!lh_timeline_fits(timeline, &device)) {
        choice->status = LH_CHOICE_MEMORY;
        lhi_fail(why, LH_EINFEASIBLE,
                 "needs %.1f GiB more than device %" PRIu32 " has",
                 (double)(lh_timeline_peak_memory(timeline, device) -
                          lh_pipeline_memory_limit(p, device)) /
                     (1 << 30),
                 device);
        lh_schedule_free(*schedule);
        *schedule = NULL;
    } else {
        choice->status = LH_CHOICE_OK;
        choice->makespan_ns = lh_timeline_makespan(timeline);
        choice->optimizer_ns = built->optimizer_ns;
        choice->overhead_ns = built->overhead_ns;
        choice->iteration_ns = choice->makespan_ns + built->optimizer_ns +
                               built->overhead_ns;
        choice->bubble_ratio = lh_timeline_bubble_ratio(timeline);
    }
    lh_timeline_free(timeline);
    return LH_OK;
}

static void add_rates(const search *s, lh_choice *choice)
{
    if (choice->status != LH_CHOICE_OK || choice->iteration_ns == 0)
        return;
    double seconds = (double)choice->iteration_ns / 1e9;
    const lh_training *t = &s->job->training;
    choice->tokens_per_s =
        (double)t->global_batch * (double)t->sequence / seconds;
    choice->mfu = lh_cost_iteration_flops(s->job) /
                  (seconds * peak_flops(s, &choice->layout));
}

/* The methods that a plan considers: all that stand for themselves. */
static bool considered(const search *s, const char *name)
{
    const char *want = s->job->layout.schedule;
    if (want && strcmp(want, "auto") != 0 && strcmp(want, "optimal") != 0)
        return strcmp(want, name) == 0;
    return strcmp(name, "auto") != 0;
}

/* Tries every method; the best is left in c->choice, its schedule in *best
 * (NULL: none works). `all`, if not NULL, takes every method's result. */
static lh_status simulate(search *s, candidate *c, const lhi_built *built,
                          lh_schedule **best, lh_choice *all, uint32_t *n_all,
                          lh_error *err)
{
    *best = NULL;
    c->choice = start_choice(c, NULL);
    c->simulated = true;
    for (uint32_t m = 0; m < lh_method_count(); m++) {
        const char *name = lh_method_name(m);
        lh_schedule *schedule;
        lh_error why = {0};
        if (!considered(s, name))
            continue;
        lh_choice choice = start_choice(c, name);
        LHI_TRY(try_method(&s->options, built, name, &choice, &schedule, &why,
                           err));
        add_rates(s, &choice);
        choice.why = lhi_arena_strdup(s->mem, why.text);
        if (!choice.why) {
            lh_schedule_free(schedule);
            return lhi_fail_nomem(err);
        }
        if (all)
            all[(*n_all)++] = choice;
        bool better = choice.status == LH_CHOICE_OK &&
                      (c->choice.status != LH_CHOICE_OK ||
                       choice.iteration_ns < c->choice.iteration_ns);
        if (better) {
            lh_schedule_free(*best);
            *best = schedule;
            c->choice = choice;
        } else {
            lh_schedule_free(schedule);
            if (c->choice.status != LH_CHOICE_OK &&
                (!c->choice.layout.schedule ||
                 choice.status == LH_CHOICE_MEMORY))
                c->choice = choice;
        }
    }
    return LH_OK;
}

static lh_status simulate_candidate(search *s, candidate *c, lh_error *err)
{
    lhi_built built;
    lh_schedule *best;
    LHI_TRY(lhi_layout_build(s->job, &c->config, &built, err));
    lh_status status = simulate(s, c, &built, &best, NULL, NULL, err);
    lh_schedule_free(best);
    lh_pipeline_free(built.pipeline);
    s->n_simulated++;
    return status;
}

static lh_status simulate_all(search *s, lh_error *err)
{
    int64_t best_ns = INT64_MAX;
    uint32_t done = 0;
    for (; done < s->n; done++) {
        candidate *c = &s->candidates[done];
        if (c->bound_ns == INT64_MAX)
            break;
        if (c->bound_ns >= best_ns && done >= SIMULATED_AT_LEAST)
            break;
        if (s->options.progress &&
            s->options.progress(s->options.context, done, s->n,
                                best_ns == INT64_MAX ? -1 : best_ns) &&
            best_ns != INT64_MAX)
            break;
        LHI_TRY(simulate_candidate(s, c, err));
        if (c->choice.status == LH_CHOICE_OK &&
            c->choice.iteration_ns < best_ns)
            best_ns = c->choice.iteration_ns;
    }
    return LH_OK;
}

/* --- elastic plans --------------------------------------------------------- */

static bool same_degrees(const lh_layout *x, const lh_layout *y)
{
    return x->tensor == y->tensor && x->context == y->context &&
           x->expert == y->expert && x->pipeline == y->pipeline &&
           x->data == y->data && x->micro_batch == y->micro_batch &&
           x->outermost == y->outermost;
}

/* How near to a plan a candidate came; less is better. */
static int64_t rank_of(const candidate *c)
{
    if (c->simulated && c->choice.status == LH_CHOICE_OK)
        return c->choice.iteration_ns;
    return INT64_MAX - 1 - (c->missing > 0 ? 0 : 1);
}

/* Chunks, groups, sharding and recomputation are searched together on the
 * degrees that do best without, or, where nothing fits without, on any. */
static lh_status search_elastic(search *s, lh_error *err)
{
    lhi_config likes[ELASTIC_LAYOUTS];
    uint32_t n = 0;
    while (n < ELASTIC_LAYOUTS) {
        const candidate *best = NULL;
        for (uint32_t i = 0; i < s->n; i++) {
            const candidate *c = &s->candidates[i];
            bool known = !lhi_elastic_suits(s->job, &c->config);
            for (uint32_t k = 0; k < n && !known; k++)
                known = same_degrees(&likes[k].layout, &c->config.layout);
            if (!known && (c->simulated || c->missing > 0) &&
                (!best || rank_of(c) < rank_of(best)))
                best = c;
        }
        if (!best)
            break;
        likes[n] = best->config;
        likes[n++].layers = NULL; /* its chunks are of its own making */
    }
    LHI_TRY(lhi_elastic_choices_make(s->job, likes, n, s->mem, &s->elastic,
                                     err));
    for (uint32_t i = 0; i < s->elastic.n_rows; i++)
        add_rates(s, &s->elastic.rows[i]);
    return LH_OK;
}

/* --- uneven chunks -------------------------------------------------------- */

/* The fastest of those not `done` yet. */
static candidate *next_fastest(const search *s, const bool *done)
{
    candidate *best = NULL;
    for (uint32_t i = 0; i < s->n; i++) {
        candidate *c = &s->candidates[i];
        if (c->simulated && !done[i] && c->choice.status == LH_CHOICE_OK &&
            (!best || c->choice.iteration_ns < best->choice.iteration_ns))
            best = c;
    }
    return best;
}

/* look-ahead takes its time: what it is made from stands for it. */
static const char *quick_method(const char *method)
{
    return strcmp(method, "look-ahead") == 0 ? "greedy" : method;
}

/* A new partition is a new pipeline: with its own bound, under every method. It
 * stays if the best of them is faster than before. */
static lh_status move_layers(search *s, candidate *c, lh_error *err)
{
    candidate moved = *c;
    int64_t ns = INT64_MAX;
    if (!lhi_uneven_possible(s->job, &moved.config, &s->options))
        return LH_OK;
    LHI_TRY(lhi_uneven_search(s->job, &s->options,
                              quick_method(c->choice.layout.schedule), s->mem,
                              &moved.config, &ns, err));
    if (moved.config.layers == c->config.layers)
        return LH_OK;
    LHI_TRY(bound(s, &moved, err));
    LHI_TRY(simulate_candidate(s, &moved, err));
    s->n_simulated--; /* a layout counts once */
    if (moved.choice.status == LH_CHOICE_OK &&
        moved.choice.iteration_ns < c->choice.iteration_ns)
        *c = moved;
    return LH_OK;
}

static lh_status move_all_layers(search *s, lh_error *err)
{
    bool *done = calloc(s->n + (size_t)1, sizeof *done);
    lh_status status = done ? LH_OK : lhi_fail_nomem(err);
    for (int i = 0; i < UNEVEN_LAYOUTS && status == LH_OK; i++) {
        candidate *c = next_fastest(s, done);
        if (!c)
            break;
        done[c - s->candidates] = true;
        status = move_layers(s, c, err);
    }
    free(done);
    return status;
}

/* --- the result ---------------------------------------------------------- */

static candidate *find_best(const search *s)
{
    candidate *best = NULL;
    for (uint32_t i = 0; i < s->n; i++) {
        candidate *c = &s->candidates[i];
        if (c->simulated && c->choice.status == LH_CHOICE_OK &&
            (!best || c->choice.iteration_ns < best->choice.iteration_ns))
            best = c;
    }
    return best;
}

/* Nothing works: say what comes closest. */
static lh_status refuse(const search *s, lh_error *err)
{
    const candidate *closest = NULL;
    for (uint32_t i = 0; i < s->n; i++) {
        const candidate *c = &s->candidates[i];
        if (c->missing > 0 && (!closest || c->missing < closest->missing))
            closest = c;
    }
    for (uint32_t i = 0; i < s->n; i++) {
        const candidate *c = &s->candidates[i];
        if (c->simulated && c->choice.why[0])
            return lhi_fail(err, LH_EINFEASIBLE,
                            "%s: no schedule works with the layouts that fit "
                            "(tensor %" PRIu32 ", pipeline %" PRIu32
                            ", data %" PRIu32 "): %s",
                            s->job->name, c->config.layout.tensor,
                            c->config.layout.pipeline, c->config.layout.data,
                            c->choice.why);
    }
    if (closest) {
        const lh_layout *l = &closest->config.layout;
        return lhi_fail(err, LH_EINFEASIBLE,
                        "%s: no layout fits in memory; the closest (tensor "
                        "%" PRIu32 ", pipeline %" PRIu32 ", data %" PRIu32
                        ", micro_batch %" PRIu32 ", recompute %s) needs %.1f "
                        "GiB more than a GPU of device %" PRIu32
                        " has; use more GPUs, a higher ZeRO stage or larger "
                        "degrees",
                        s->job->name, l->tensor, l->pipeline, l->data,
                        l->micro_batch,
                        lh_recompute_name(closest->config.recompute),
                        (double)closest->missing / (1 << 30),
                        closest->missing_on);
    }
    if (s->n == 0 && s->n_dropped)
        return lhi_fail(err, LH_EINFEASIBLE,
                        "%s: every layout has more than %d microbatches; give "
                        "layout.micro_batch, or a smaller global batch",
                        s->job->name, LHI_MOST_MICROBATCHES);
    if (s->n == 0)
        return lhi_fail(err, LH_EINFEASIBLE,
                        "%s: no layout divides %" PRIu32 " GPUs and a global "
                        "batch of %" PRIu32
                        "; change the batch or what layout fixes",
                        s->job->name, s->job->n_gpus,
                        s->job->training.global_batch);
    return lhi_fail(err, LH_EINFEASIBLE, "%s: no layout works, e.g.: %s",
                    s->job->name, s->first_refusal.text);
}

static bool same_layout(const lhi_config *a, const lhi_config *b)
{
    const lh_layout *x = &a->layout, *y = &b->layout;
    return x->tensor == y->tensor && x->context == y->context &&
           x->expert == y->expert && x->pipeline == y->pipeline &&
           x->data == y->data && x->micro_batch == y->micro_batch &&
           x->chunks_per_device == y->chunks_per_device &&
           x->outermost == y->outermost && a->recompute == b->recompute;
}

static int compare_choices(const void *a, const void *b)
{
    const lh_choice *x = a, *y = b;
    if (x->status != y->status)
        return x->status < y->status ? -1 : 1;
    int64_t m = x->status == LH_CHOICE_OK ? x->iteration_ns : x->lower_bound_ns;
    int64_t n = y->status == LH_CHOICE_OK ? y->iteration_ns : y->lower_bound_ns;
    if (m != n)
        return m < n ? -1 : 1;
    return 0;
}

/* Why a layout that was looked at is not the best one. */
static const char *why_lost(search *s, const candidate *c,
                            const lh_choice *best)
{
    char text[320];
    const lh_choice *o = &c->choice;
    if (!c->simulated) {
        snprintf(text, sizeof text,
                 "%.1f %% slower even by its lower bound: %s",
                 100.0 * ((double)c->bound_ns / (double)best->iteration_ns - 1),
                 c->bound_text);
    } else if (o->status == LH_CHOICE_OK) {
        double scale = 1e-9;
        double work = (double)o->makespan_ns * (1 - o->bubble_ratio);
        double best_work = (double)best->makespan_ns * (1 - best->bubble_ratio);
        double idle = (double)o->makespan_ns * o->bubble_ratio;
        double best_idle = (double)best->makespan_ns * best->bubble_ratio;
        snprintf(text, sizeof text,
                 "%+.1f %%: work %+.3f s, waiting %+.3f s per device",
                 100.0 * ((double)o->iteration_ns /
                              (double)best->iteration_ns -
                          1),
                 (work - best_work) * scale, (idle - best_idle) * scale);
    } else {
        return o->why;
    }
    return lhi_arena_strdup(s->mem, text);
}

/* `first` is the plan's choice, and faster than `best` where it is not of it. */
static lh_status list_alternatives(search *s, const candidate *best,
                                   const lh_choice *first, lh_plan *plan,
                                   lh_error *err)
{
    uint32_t top = s->options.top ? s->options.top : 10;
    lh_choice *list = LHI_NEW(s->mem, lh_choice, s->n);
    if (!list)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < s->n; i++) {
        candidate *c = &s->candidates[i];
        bool won = c == best && first == &best->choice;
        if (won || c->bound_ns == INT64_MAX ||
            (c != best && same_layout(&c->config, &best->config)))
            continue;
        lh_choice *o = &list[plan->n_alternatives];
        if (c->simulated) {
            *o = c->choice;
        } else {
            *o = start_choice(c, NULL);
            o->status = LH_CHOICE_BOUNDED;
        }
        o->why = why_lost(s, c, first);
        if (!o->why)
            return lhi_fail_nomem(err);
        plan->n_alternatives++;
    }
    if (plan->n_alternatives)
        qsort(list, plan->n_alternatives, sizeof *list, compare_choices);
    if (plan->n_alternatives > top)
        plan->n_alternatives = top;
    plan->alternatives = list;
    return LH_OK;
}

/* Every method on the best layout, on each placement it can have. */
static lh_status list_methods(search *s, candidate *best, lh_plan *plan,
                              lh_error *err)
{
    lh_choice *list = LHI_NEW(s->mem, lh_choice,
                              2 * lh_method_count() + LHI_ELASTIC_ROWS);
    if (!list)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; best && i < s->n; i++) {
        candidate *c = &s->candidates[i];
        lhi_built built;
        lh_schedule *schedule;
        if (!same_layout(&c->config, &best->config) ||
            (c != best && plan->n_methods > lh_method_count()))
            continue;
        candidate again = *c;
        LHI_TRY(lhi_layout_build(s->job, &c->config, &built, err));
        lh_status status = simulate(s, &again, &built, &schedule, list,
                                    &plan->n_methods, err);
        if (status == LH_OK && c == best) {
            plan->pipeline = built.pipeline;
            plan->schedule = schedule;
            plan->cost_source = lh_cost_source_name(built.source);
        } else {
            lh_schedule_free(schedule);
            lh_pipeline_free(built.pipeline);
        }
        LHI_TRY(status);
    }
    for (uint32_t i = 0; i < s->elastic.n_rows; i++)
        list[plan->n_methods++] = s->elastic.rows[i];
    qsort(list, plan->n_methods, sizeof *list, compare_choices);
    plan->methods = list;
    return LH_OK;
}

/* The elastic plan takes the place of the best of the others. */
static lh_status finish_elastic(search *s, lh_plan *plan, lh_error *err)
{
    const lh_choice *won = &s->elastic.rows[0];
    char why[2 * LHI_ELASTIC_WHY];
    lh_pipeline_free((lh_pipeline *)plan->pipeline);
    lh_schedule_free((lh_schedule *)plan->schedule);
    lhi_elastic_result *best = &s->elastic.results[0];
    plan->pipeline = best->built.pipeline;
    plan->schedule = best->schedule;
    best->built.pipeline = NULL;
    best->schedule = NULL;
    plan->cost_source = lh_cost_source_name(best->built.source);
    int64_t other_ns = plan->best.iteration_ns;
    plan->best = *won;
    if (other_ns > 0)
        snprintf(why, sizeof why,
                 "%.1f %% faster than any other schedule on any layout: %s",
                 100 * ((double)other_ns / (double)won->iteration_ns - 1),
                 won->why);
    else
        snprintf(why, sizeof why, "the only one that fits: %s", won->why);
    plan->best.why = lhi_arena_strdup(s->mem, why);
    return plan->best.why ? LH_OK : lhi_fail_nomem(err);
}

static lh_status finish(search *s, lh_plan *plan, lh_error *err)
{
    candidate *best = find_best(s);
    if (!best && !s->elastic.n_rows)
        return refuse(s, err);
    plan->n_layouts = s->n - s->n_unsupported;
    plan->n_unsupported = s->n_unsupported;
    plan->n_dropped = s->n_dropped;
    plan->n_memory = s->n_memory;
    plan->n_simulated = s->n_simulated;
    plan->n_bounded =
        s->n - s->n_memory - s->n_unsupported - s->n_simulated;
    LHI_TRY(list_methods(s, best, plan, err));
    if (!best)
        return finish_elastic(s, plan, err);
    bool elastic =
        s->elastic.n_rows &&
        s->elastic.rows[0].iteration_ns < best->choice.iteration_ns;
    LHI_TRY(list_alternatives(s, best,
                              elastic ? &s->elastic.rows[0] : &best->choice,
                              plan, err));
    plan->best = best->choice;
    char why[320];
    double gap = (double)best->choice.iteration_ns /
                     (double)best->choice.lower_bound_ns - 1;
    snprintf(why, sizeof why,
             "the fastest of %" PRIu32 " layouts under every schedule; no "
             "schedule of this layout is more than %.1f %% faster (%s)",
             s->n - s->n_unsupported, 100 * gap, best->bound_text);
    plan->best.why = lhi_arena_strdup(s->mem, why);
    if (!plan->best.why)
        return lhi_fail_nomem(err);
    return elastic ? finish_elastic(s, plan, err) : LH_OK;
}

static lh_status check_schedule(const lh_job *job, lh_error *err)
{
    uint32_t method;
    if (!job->layout.schedule || strcmp(job->layout.schedule, "optimal") == 0)
        return LH_OK;
    lh_status status = lh_method_find(job->layout.schedule, &method, err);
    if (status != LH_OK) {
        lhi_wrap(err, "%s: layout.schedule", job->name);
        if (err)
            err->code = LH_EINPUT;
        return LH_EINPUT;
    }
    return LH_OK;
}

/* A candidate for every layout there is. */
static lh_status start(search *s, lh_error *err)
{
    lhi_layouts layouts;
    lh_status status = lhi_layouts_find(s->job, &layouts, err);
    s->n_dropped = layouts.n_dropped;
    if (status == LH_OK) {
        s->candidates = calloc(layouts.n + (size_t)1, sizeof *s->candidates);
        if (!s->candidates)
            status = lhi_fail_nomem(err);
    }
    if (status == LH_OK)
        s->n = layouts.n;
    for (uint32_t i = 0; i < s->n; i++)
        s->candidates[i].config = layouts.configs[i];
    lhi_layouts_fini(&layouts);
    return status;
}

lh_status lhi_plan_search(const lh_job *job, const lh_plan_options *options,
                          lhi_arena *mem, lh_plan *plan, lh_error *err)
{
    search s = {.job = job, .options = *options, .mem = mem};
    LHI_TRY(check_schedule(job, err));
    lh_status status = start(&s, err);
    for (uint32_t i = 0; status == LH_OK && i < s.n; i++)
        status = bound(&s, &s.candidates[i], err);
    if (status == LH_OK && s.n)
        qsort(s.candidates, s.n, sizeof *s.candidates, compare_bounds);
    if (status == LH_OK)
        status = simulate_all(&s, err);
    if (status == LH_OK)
        status = move_all_layers(&s, err);
    if (status == LH_OK)
        status = search_elastic(&s, err);
    if (status == LH_OK)
        status = finish(&s, plan, err);
    lhi_elastic_choices_fini(&s.elastic);
    free(s.candidates);
    return status;
}
