/* SPDX-License-Identifier: Apache-2.0 */
/* The search over layouts: branch and bound with even chunks, then layers are
 * moved between the chunks of those that may win, and elastic plans are made.
 */
#include "plan/search/plan_search.h"

#include "plan/search/each.h"
#include "plan/search/elastic_search.h"
#include "plan/search/goal.h"
#include "plan/search/money.h"
#include "plan/search/refine.h"

#include <stdlib.h>

enum {
    FRONT_SEARCHES = 3 /* one of so many parts of the plan's work each */
};

/* --- elastic plans ---------------------------------------------------------
 */

static bool is_stopped(void *context, bool works)
{
    lhi_layout_search *s = context;
    return lhi_layout_search_stopped(s, s->n, works);
}

/* The best one, and what it would be without its parts. */
static lh_status search_elastic(lhi_layout_search *s, bool drawn, lh_error *err)
{
    lhi_elastic_result best;
    LHI_TRY(lhi_elastic_search(s, !drawn, &best, err));
    if (!best.schedule)
        return LH_OK;
    s->elastic.stopped = is_stopped;
    s->elastic.context = s;
    LHI_TRY(lhi_elastic_choices_make(s->job, &best, s->mem, &s->elastic, err));
    for (uint32_t i = 0; i < s->elastic.n_rows; i++)
        LHI_TRY(lhi_elastic_choice_finish(s, &s->elastic.rows[i], err));
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
                           .workers = like->workers,
                           .asked = like->asked,
                           .until_s = like->until_s,
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
                               .workers = like->workers,
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

static lh_status search(lhi_layout_search *s, lh_plan *plan, lh_error *err)
{
    bool drawn = s->options.partition == LH_PARTITION_MONTE_CARLO;
    LHI_TRY(drawn ? lhi_layout_search_draw(s, err) : branch(s, false, err));
    if (!s->options.quick && !drawn && !s->exact) /* which has done so */
        LHI_TRY(lhi_layout_search_move(s, err));
    if (!(drawn && lhi_layout_search_best(s)))
        LHI_TRY(search_elastic(s, drawn, err));
    LHI_TRY(lhi_layout_search_finish(s, plan, err));
    return s->front ? search_front(s, plan, err) : LH_OK;
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
    LHI_TRY(lhi_workers_make(options->threads, mem, &s.workers, err));
    lh_status status = search(&s, plan, err);
    plan->goal = options->goal;
    plan->front = front.all;
    plan->n_front = front.n;
    lhi_elastic_choices_fini(&s.elastic);
    lhi_workers_free(s.workers);
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
