/* SPDX-License-Identifier: Apache-2.0 */
/* The search over layouts. Every layout that divides is built and gets a lower
 * bound; they are simulated, each under every method, in the order of their
 * bounds, until the next bound is no better than the best time found. What is
 * left then cannot win, so the result is the best of all there are. */
#include "plan/search.h"

#include "plan/candidate.h"
#include "plan/layouts.h"
#include "plan/money.h"
#include "plan/uneven.h"

#include <longhaul/methods.h>
#include <stdlib.h>
#include <string.h>

enum {
    SIMULATED_AT_LEAST = 8, /* so that runners-up are times, not bounds */
    ELASTIC_LAYOUTS = 2,    /* the fastest by other schedules */
    UNEVEN_LAYOUTS = 2,     /* the fastest with even chunks */
};

static int compare_bounds(const void *a, const void *b)
{
    const lhi_candidate *x = a, *y = b;
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

static lh_status simulate_all(lhi_search *s, lh_error *err)
{
    int64_t best_ns = INT64_MAX;
    uint32_t done = 0;
    for (; done < s->n; done++) {
        lhi_candidate *c = &s->candidates[done];
        if (c->bound_ns == INT64_MAX)
            break;
        if (c->bound_ns >= best_ns &&
            (done >= SIMULATED_AT_LEAST || s->options.quick))
            break;
        if (s->options.progress &&
            s->options.progress(s->options.context, done, s->n,
                                best_ns == INT64_MAX ? -1 : best_ns) &&
            best_ns != INT64_MAX)
            break;
        LHI_TRY(lhi_candidate_simulate(s, c, err));
        if (c->choice.status == LH_CHOICE_OK &&
            c->choice.iteration_ns < best_ns)
            best_ns = c->choice.iteration_ns;
    }
    return LH_OK;
}

/* --- elastic plans ---------------------------------------------------------
 */

static bool same_degrees(const lh_layout *x, const lh_layout *y)
{
    return x->tensor == y->tensor && x->context == y->context &&
           x->expert == y->expert && x->pipeline == y->pipeline &&
           x->data == y->data && x->micro_batch == y->micro_batch &&
           x->outermost == y->outermost;
}

/* How near to a plan a candidate came; less is better. */
static int64_t rank_of(const lhi_candidate *c)
{
    if (c->simulated && c->choice.status == LH_CHOICE_OK)
        return c->choice.iteration_ns;
    return INT64_MAX - 1 - (c->missing > 0 ? 0 : 1);
}

/* Chunks, groups, sharding and recomputation are searched together on the
 * degrees that do best without, or, where nothing fits without, on any. */
static lh_status search_elastic(lhi_search *s, lh_error *err)
{
    lhi_config likes[ELASTIC_LAYOUTS];
    uint32_t n = 0;
    while (n < ELASTIC_LAYOUTS) {
        const lhi_candidate *best = NULL;
        for (uint32_t i = 0; i < s->n; i++) {
            const lhi_candidate *c = &s->candidates[i];
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
    LHI_TRY(
        lhi_elastic_choices_make(s->job, likes, n, s->mem, &s->elastic, err));
    for (uint32_t i = 0; i < s->elastic.n_rows; i++)
        lhi_search_rates(s, &s->elastic.rows[i]);
    for (uint32_t i = 0; i < s->elastic.n_rows; i++)
        LHI_TRY(lhi_money_set(s->job, s->elastic.results[i].built.pipeline,
                              s->mem, &s->elastic.rows[i], err));
    return LH_OK;
}

/* --- uneven chunks -------------------------------------------------------- */

/* The fastest of those not `done` yet. */
static lhi_candidate *next_fastest(const lhi_search *s, const bool *done)
{
    lhi_candidate *best = NULL;
    for (uint32_t i = 0; i < s->n; i++) {
        lhi_candidate *c = &s->candidates[i];
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
static lh_status move_layers(lhi_search *s, lhi_candidate *c, lh_error *err)
{
    lhi_candidate moved = *c;
    int64_t ns = INT64_MAX;
    if (!lhi_uneven_possible(s->job, &moved.config, &s->options))
        return LH_OK;
    LHI_TRY(lhi_uneven_search(s->job, &s->options,
                              quick_method(c->choice.layout.schedule), s->mem,
                              &moved.config, &ns, err));
    if (moved.config.layers == c->config.layers)
        return LH_OK;
    LHI_TRY(lhi_candidate_bound(s, &moved, err));
    LHI_TRY(lhi_candidate_simulate(s, &moved, err));
    s->n_simulated--; /* a layout counts once */
    if (moved.choice.status == LH_CHOICE_OK &&
        moved.choice.iteration_ns < c->choice.iteration_ns)
        *c = moved;
    return LH_OK;
}

static lh_status move_all_layers(lhi_search *s, lh_error *err)
{
    bool *done = calloc(s->n + (size_t)1, sizeof *done);
    lh_status status = done ? LH_OK : lhi_fail_nomem(err);
    for (int i = 0; i < UNEVEN_LAYOUTS && status == LH_OK; i++) {
        lhi_candidate *c = next_fastest(s, done);
        if (!c)
            break;
        done[c - s->candidates] = true;
        status = move_layers(s, c, err);
    }
    free(done);
    return status;
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
static lh_status start(lhi_search *s, lh_error *err)
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
    lhi_search s = {.job = job, .options = *options, .mem = mem};
    LHI_TRY(check_schedule(job, err));
    lh_status status = start(&s, err);
    for (uint32_t i = 0; status == LH_OK && i < s.n; i++)
        status = lhi_candidate_bound(&s, &s.candidates[i], err);
    if (status == LH_OK && s.n)
        qsort(s.candidates, s.n, sizeof *s.candidates, compare_bounds);
    if (status == LH_OK)
        status = simulate_all(&s, err);
    if (status == LH_OK && !s.options.quick)
        status = move_all_layers(&s, err);
    if (status == LH_OK && !(s.options.quick && lhi_search_best(&s)))
        status = search_elastic(&s, err);
    if (status == LH_OK)
        status = lhi_search_finish(&s, plan, err);
    lhi_elastic_choices_fini(&s.elastic);
    free(s.candidates);
    return status;
}
