/* SPDX-License-Identifier: Apache-2.0 */
/* The search over layouts: branch and bound with even chunks, then layers are
 * moved between the chunks of those that may win, and elastic plans are made.
 */
#include "plan/search/plan_search.h"

#include "plan/layout/alike.h"
#include "plan/search/goal.h"
#include "plan/search/money.h"
#include "plan/search/refine.h"

#include <stdlib.h>

enum {
    ELASTIC_LAYOUTS = 2, /* the fastest by other schedules */
    FRONT_SEARCHES = 3   /* one of so many parts of the plan's work each */
};

/* --- elastic plans ---------------------------------------------------------
 */

static bool is_like(const lh_layout *a, const lh_layout *b)
{
    return lhi_degrees_same(a, b) && a->outermost == b->outermost;
}

/* How near to a plan a candidate came; less is better. */
static int64_t rank_of(const lhi_layout_search *s, const lhi_candidate *c)
{
    if (lhi_candidate_works(c))
        return lhi_value_of(&s->options, &c->choice);
    return INT64_MAX - 1 - (c->missing > 0 ? 0 : 1);
}

static bool is_stopped(void *context, bool works)
{
    lhi_layout_search *s = context;
    return lhi_layout_search_stopped(s, s->n, works);
}

/* Chunks, groups, sharding and recomputation are searched together on the
 * degrees that do best without, or, where nothing fits without, on any. */
static lh_status search_elastic(lhi_layout_search *s, lh_error *err)
{
    lhi_config likes[ELASTIC_LAYOUTS];
    uint32_t n = 0;
    while (n < ELASTIC_LAYOUTS) {
        const lhi_candidate *best = NULL;
        for (uint32_t i = 0; i < s->n; i++) {
            const lhi_candidate *c = &s->candidates[i];
            bool known = !lhi_elastic_suits(s->job, &c->config);
            for (uint32_t k = 0; k < n && !known; k++)
                known = is_like(&likes[k].layout, &c->config.layout);
            if (!known && (c->simulated || c->missing > 0) &&
                (!best || rank_of(s, c) < rank_of(s, best)))
                best = c;
        }
        if (!best)
            break;
        likes[n] = best->config;
        likes[n++].layers = NULL; /* its chunks are of its own making */
    }
    s->elastic.stopped = is_stopped;
    s->elastic.context = s;
    LHI_TRY(
        lhi_elastic_choices_make(s->job, likes, n, s->mem, &s->elastic, err));
    for (uint32_t i = 0; i < s->elastic.n_rows; i++) {
        s->elastic.rows[i].zero = s->job->training.zero;
        lhi_choice_rates(s->job, &s->elastic.rows[i]);
    }
    for (uint32_t i = 0; i < s->elastic.n_rows; i++)
        LHI_TRY(lhi_money_set(s->job, s->mem, &s->elastic.rows[i], err));
    for (uint32_t i = 0; s->front && i < s->elastic.n_rows; i++)
        LHI_TRY(lhi_front_add(s->front, &s->elastic.rows[i], err));
    return LH_OK;
}

/* Of what the search for the fastest has found, the cheapest to begin with. */
static lh_status find_first(const lhi_layout_search *like, lhi_candidate *first,
                            lh_error *err)
{
    lhi_layout_search s = {.job = like->job,
                           .options = like->options,
                           .mem = like->mem,
                           .front = like->front,
                           .sharing = like->sharing};
    s.options.goal = LH_PLAN_FASTEST;
    lh_status status = lhi_layout_search_branch(&s, err);
    s.options.goal = like->options.goal;
    const lhi_candidate *best =
        status == LH_OK ? lhi_layout_search_best(&s) : NULL;
    if (best)
        *first = *best;
    free(s.candidates);
    return status;
}

static lh_status add_candidate(lhi_layout_search *s, const lhi_candidate *c,
                               lh_error *err)
{
    lhi_candidate *more =
        realloc(s->candidates, (s->n + (size_t)1) * sizeof *more);
    if (!more)
        return lhi_fail_nomem(err);
    more[s->n] = *c;
    s->candidates = more;
    s->room = ++s->n;
    s->n_simulated++;
    return LH_OK;
}

/* `whole_front`: until s->front covers all that is left. */
static lh_status branch(lhi_layout_search *s, bool whole_front, lh_error *err)
{
    lhi_goal goal = {0};
    lhi_candidate first = {0};
    bool cheapest = s->options.goal == LH_PLAN_CHEAPEST && !whole_front;
    if (whole_front || cheapest) {
        LHI_TRY(lhi_goal_init(s->job, &s->options,
                              whole_front ? s->front : NULL, &goal, err));
        s->objective = &goal.objective;
    }
    if (cheapest)
        LHI_TRY(find_first(s, &first, err));
    if (first.choice.cost)
        goal.best_usd = first.choice.cost->usd;
    lh_status status = lhi_layout_search_branch(s, err);
    s->objective = NULL;
    if (status == LH_OK && first.choice.cost)
        status = add_candidate(s, &first, err);
    return status == LH_OK && goal.no_memory ? lhi_fail_nomem(err) : status;
}

/* What the plan's own search leaves of the front. First the cheapest, where the
 * fastest were wanted, or the other way round: a space too large to be searched
 * to the end then has both on its front. */
static lh_status search_front(const lhi_layout_search *like, lh_plan *plan,
                              lh_error *err)
{
    bool priced = lhi_money_is_priced(like->job);
    lh_status status = LH_OK;
    for (int whole = !priced; whole <= 1 && status == LH_OK; whole++) {
        lhi_layout_search s = {.job = like->job,
                               .options = like->options,
                               .mem = like->mem,
                               .front = like->front,
                               .sharing = FRONT_SEARCHES};
        s.options.jitter = NULL;
        if (!whole)
            s.options.goal = like->options.goal == LH_PLAN_FASTEST
                                 ? LH_PLAN_CHEAPEST
                                 : LH_PLAN_FASTEST;
        status = branch(&s, whole, err);
        plan->front_whole = s.complete;
        free(s.candidates);
    }
    return status;
}

lh_status lhi_plan_search(const lh_job *job, const lh_plan_options *options,
                          lhi_arena *mem, lhi_unseen *unseen, lh_plan *plan,
                          lh_error *err)
{
    lhi_front front = {.mem = mem};
    lhi_layout_search s = {.job = job,
                           .options = *options,
                           .mem = mem,
                           .unseen = unseen,
                           .front = options->front ? &front : NULL};
    bool drawn = s.options.partition == LH_PARTITION_MONTE_CARLO;
    lh_status status =
        drawn ? lhi_layout_search_draw(&s, err) : branch(&s, false, err);
    if (status == LH_OK && !s.options.quick && !drawn &&
        !s.exact) /* which has done so */
        status = lhi_layout_search_move(&s, err);
    if (status == LH_OK &&
        !((s.options.quick || drawn) && lhi_layout_search_best(&s)))
        status = search_elastic(&s, err);
    if (status == LH_OK)
        status = lhi_layout_search_finish(&s, plan, err);
    if (status == LH_OK && s.front)
        status = search_front(&s, plan, err);
    plan->goal = options->goal;
    plan->front = front.all;
    plan->n_front = front.n;
    lhi_elastic_choices_fini(&s.elastic);
    free(s.candidates);
    return status;
}

lh_status lhi_plan_find(const lh_job *job, const lh_plan_options *options,
                        lhi_arena *mem, lhi_unseen *unseen, lh_plan *plan,
                        lh_error *err)
{
    LHI_TRY(lhi_plan_search(job, options, mem, unseen, plan, err));
    return lhi_plan_refine(job, options, mem, plan, err);
}
