/* SPDX-License-Identifier: Apache-2.0 */
/* Branch and bound over the layouts that elastic plans can be on: degrees and
 * places, for all else is the elastic plan's own. */
#include "plan/search/elastic_search.h"

#include "base/heap.h"
#include "base/whole.h"
#include "plan/layout/alike.h"
#include "plan/layout/choice.h"
#include "plan/search/goal.h"
#include "plan/search/money.h"
#include "plan/search/search_limits.h"

#include <stdlib.h>
#include <string.h>

enum {
    LIKES = 2, /* layouts that come first: the fastest by other schedules */
    SHARE = 6, /* of the work that layouts have, one of so many */
    MOST_SHARES = 6 /* as long as nothing works at all */
};

typedef struct node {
    lhi_config config;
    lhi_floor floor;
    lhi_level level; /* PLACED at most */
    bool bounded;    /* by all chunks that it may have */
} node;

typedef struct stage {
    lhi_layout_search *s;
    lh_job plain; /* whose passes elastic plans begin with */
    lhi_space space;
    lhi_floors *floors;
    lhi_elastic_freedom freedom;
    lhi_search_limits limits;
    uint64_t work, seq;
    bool likes; /* are to be searched, once bounds say what is proven */
    lhi_heap open;
    node *nodes;
    uint32_t n, room;
    lhi_level level;             /* of the children of what is expanded */
    int64_t best_value, best_ns; /* of what counts beside elastic plans, too */
    int64_t own_value;           /* of *best */
    lhi_elastic_result *best;
} stage;

/* --- what is of use ----------------------------------------------------------
 */

static int64_t bound_of(const stage *t, const node *n)
{
    const lhi_objective *o = t->s->objective;
    return o ? o->bound(o->context, n->level, &n->config, &n->floor)
             : n->floor.ns;
}

static bool is_hopeless(const stage *t, const node *n)
{
    const lhi_objective *o = t->s->objective;
    if (n->floor.ns == INT64_MAX)
        return true;
    if (!o)
        return n->floor.ns >= t->best_ns;
    return o->hopeless(o->context, bound_of(t, n), n->level, &n->config,
                       &n->floor);
}

/* It was ruled out, was left, or has had its search: no plan there takes
 * less. */
static lh_status note(stage *t, const node *n, lh_error *err)
{
    lhi_layout_search *s = t->s;
    if (n->floor.ns == INT64_MAX)
        return LH_OK;
    s->proven_ns = lhi_least(s->proven_ns, n->floor.ns);
    if (s->objective)
        s->objective->left(s->objective->context, n->level, &n->config,
                           &n->floor);
    return s->unseen ? lhi_unseen_note(s->unseen, n->level, &n->config,
                                       n->floor.ns, err)
                     : LH_OK;
}

/* --- nodes -------------------------------------------------------------------
 */

static lh_status push(stage *t, uint32_t at, lh_error *err)
{
    const node *n = &t->nodes[at];
    lhi_event event = {.time_ns = bound_of(t, n),
                       .rank = (uint64_t)(LHI_LEVEL_PLACED - n->level),
                       .seq = t->seq++,
                       .what = at};
    return lhi_heap_push(&t->open, event) ? LH_OK : lhi_fail_nomem(err);
}

static lh_status add_node(stage *t, const node *n, lh_error *err)
{
    if (t->n == t->room) {
        uint32_t room = t->room ? 2 * t->room : 256;
        node *more = realloc(t->nodes, room * sizeof *more);
        if (!more)
            return lhi_fail_nomem(err);
        t->nodes = more;
        t->room = room;
    }
    t->nodes[t->n] = *n;
    return push(t, t->n++, err);
}

/* Operations are recomputed by the elastic plan itself. */
static bool suits(const stage *t, lhi_level level, const lhi_config *config)
{
    if (level == LHI_LEVEL_WORK && !t->s->job->training.recompute_given)
        return config->recompute == LH_RECOMPUTE_NONE;
    return level < LHI_LEVEL_DEGREES || lhi_elastic_suits(t->s->job, config);
}

static lh_status grow(void *context, const lhi_config *config, lh_error *err)
{
    stage *t = context;
    node child = {.config = *config, .level = t->level};
    lh_error why = {0};
    if (!suits(t, t->level, config))
        return LH_OK;
    if (child.level == LHI_LEVEL_PLACED)
        child.config.layout.sharding = LH_SHARDING_FULL;
    lh_status status =
        lhi_floors_find(t->floors, t->level, config, &child.floor, &why);
    t->work += lhi_work_of_bound(t->level, t->s->job->n_datacenters);
    if (lhi_layout_refused(status))
        return LH_OK;
    if (status != LH_OK) {
        if (err)
            *err = why;
        return status;
    }
    /* What they hold is not bounded: they are looked at for the rest. */
    child.floor.memory_bytes = INT64_MAX;
    if (is_hopeless(t, &child)) {
        t->s->n_elastic += child.level == LHI_LEVEL_PLACED;
        return note(t, &child, err);
    }
    return add_node(t, &child, err);
}

/* How many layouts lie below; as long as places are open, one for all. */
typedef struct counter {
    const stage *t;
    lhi_level level;
    uint64_t n;
} counter;

static lh_status count_below(void *context, const lhi_config *config,
                             lh_error *err)
{
    counter *c = context;
    counter below = {c->t, (lhi_level)(c->level + 1), 0};
    if (!suits(c->t, c->level, config))
        return LH_OK;
    if (c->level >= LHI_LEVEL_DEGREES) {
        c->n++;
        return LH_OK;
    }
    lh_status status = lhi_space_children(&c->t->space, c->level, config, NULL,
                                          count_below, &below, err);
    c->n += below.n;
    return status;
}

/* --- one layout --------------------------------------------------------------
 */

static lh_status bound_layout(stage *t, uint32_t at, lh_error *err)
{
    lhi_layout_search *s = t->s;
    node *n = &t->nodes[at];
    int64_t ns;
    lhi_elastic_freedom f = t->freedom;
    lhi_mark mark = lhi_arena_mark(s->mem);
    if (!s->objective && t->best_ns < INT64_MAX)
        f.below_ns = t->best_ns;
    lh_status status = lhi_elastic_layout_floor(s->job, &n->config, &f, s->mem,
                                                &ns, &t->work, err);
    lhi_arena_rewind(s->mem, mark);
    LHI_TRY(status);
    n->bounded = true;
    n->floor.ns = lhi_most(n->floor.ns, ns);
    if (!is_hopeless(t, n))
        return push(t, at, err);
    s->n_elastic++;
    return note(t, n, err);
}

lh_status lhi_elastic_choice_finish(const lhi_layout_search *s,
                                    lh_choice *choice, lh_error *err)
{
    if (!choice->elastic)
        choice->zero = s->job->training.zero;
    LHI_TRY(lhi_choice_rates(s->job, s->mem, choice, err));
    return lhi_money_set(s->job, s->mem, choice, err);
}

static lh_status take_result(stage *t, lhi_elastic_result *found, lh_error *err)
{
    lhi_layout_search *s = t->s;
    lhi_candidate c = {0};
    LHI_TRY(lhi_elastic_choice_of(found, &c.choice, err));
    LHI_TRY(lhi_elastic_choice_finish(s, &c.choice, err));
    if (s->front)
        LHI_TRY(lhi_front_add(s->front, &c.choice, err));
    if (s->objective)
        LHI_TRY(s->objective->offer(s->objective->context, &c, err));
    lhi_head head = {LHI_N_DIMENSIONS, 0, c.choice, false};
    if (s->unseen)
        LHI_TRY(lhi_heads_add(&s->unseen->heads, s->mem, &head, err));
    int64_t value = lhi_value_of(&s->options, &c.choice);
    t->best_ns = lhi_least(t->best_ns, c.choice.iteration_ns);
    t->best_value = lhi_least(t->best_value, value);
    if (value >= t->own_value)
        return LH_OK;
    lhi_elastic_result before = *t->best;
    t->own_value = value;
    *t->best = *found;
    *found = before;
    return LH_OK;
}

/* `below_ns`: as lhi_elastic_freedom has it. */
static lh_status search_layout(stage *t, const lhi_config *like,
                               int64_t below_ns, lh_error *err)
{
    lhi_elastic_result found;
    lhi_elastic_freedom f = t->freedom;
    lh_error why = {0};
    f.below_ns = below_ns;
    lh_status status =
        lhi_elastic_layout(t->s->job, like, &f, t->s->mem, &found, &why);
    t->work += found.work;
    if (lhi_method_refused(status))
        return LH_OK;
    if (status == LH_OK) {
        status = take_result(t, &found, &why);
        lh_pipeline_free(found.built.pipeline);
        lh_schedule_free(found.schedule);
    }
    if (status != LH_OK && err)
        *err = why;
    return status;
}

static lh_status search_node(stage *t, const node *n, lh_error *err)
{
    lhi_layout_search *s = t->s;
    const lhi_objective *o = s->objective;
    int64_t below_ns = t->best_ns < INT64_MAX ? t->best_ns : 0;
    if (o)
        below_ns = o->useless_ns(o->context, n->level, &n->config);
    s->n_elastic++;
    LHI_TRY(search_layout(t, &n->config, below_ns, err));
    return note(t, n, err);
}

/* --- what other schedules do best on -----------------------------------------
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

/* The best first: with what is found there more is ruled out. Elastic plans
 * stand beside other schedules in the plan's table, also where they are slower,
 * or nothing else is looked at. */
static lh_status search_likes(stage *t, lh_error *err)
{
    const lhi_layout_search *s = t->s;
    lhi_config likes[LIKES];
    for (uint32_t n = 0; n < LIKES; n++) {
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
        likes[n].layers = NULL; /* its chunks are of its own making */
        LHI_TRY(search_layout(t, &likes[n], 0, err));
    }
    return LH_OK;
}

/* --- all of them -------------------------------------------------------------
 */

static bool is_stopped(void *context, bool works)
{
    stage *t = context;
    return lhi_layout_search_stopped(t->s, t->s->n, works || t->best->schedule);
}

static bool has_ended(stage *t)
{
    bool works = t->best_value < INT64_MAX;
    if ((works && t->s->options.quick) || is_stopped(t, works))
        return true;
    if (!lhi_search_limits_reached(&t->limits, t->work, 1, 1))
        return false;
    return works || t->work / MOST_SHARES > t->limits.most_work;
}

static lh_status take_up(stage *t, uint32_t at, lh_error *err)
{
    node n = t->nodes[at];
    if (is_hopeless(t, &n)) {
        t->s->n_elastic += n.level == LHI_LEVEL_PLACED;
        return note(t, &n, err);
    }
    if (n.level < LHI_LEVEL_PLACED) {
        uint64_t dropped = 0;
        t->level = (lhi_level)(n.level + 1);
        return lhi_space_children(&t->space, n.level, &n.config, &dropped, grow,
                                  t, err);
    }
    return n.bounded ? search_node(t, &n, err) : bound_layout(t, at, err);
}

static lh_status note_left(stage *t, lh_error *err)
{
    lhi_layout_search *s = t->s;
    lhi_event e;
    while (lhi_heap_pop(&t->open, &e)) {
        const node *n = &t->nodes[e.what];
        LHI_TRY(note(t, n, err));
        counter below = {t, (lhi_level)(n->level + 1), 1};
        bool left = !is_hopeless(t, n);
        if (n->level < LHI_LEVEL_DEGREES) {
            below.n = 0;
            LHI_TRY(lhi_space_children(&t->space, n->level, &n->config, NULL,
                                       count_below, &below, err));
        }
        s->n_elastic += below.n;
        if (left)
            s->n_elastic_left += below.n;
    }
    return LH_OK;
}

/* Of what is open the least is a bound of all chunks that the layout may have,
 * so that nothing but a search of it shows more. */
static bool is_bounded(const stage *t)
{
    return !t->open.count || t->nodes[t->open.items[0].what].bounded;
}

/* What is proven does not wait for what is found: bounds take little. */
static lh_status raise_bounds(stage *t, lh_error *err)
{
    lhi_event e;
    while (!is_bounded(t) && !is_stopped(t, true) &&
           t->work <= t->limits.most_work) {
        lhi_heap_pop(&t->open, &e);
        LHI_TRY(take_up(t, (uint32_t)e.what, err));
    }
    return LH_OK;
}

static lh_status search_all(stage *t, lh_error *err)
{
    lhi_event e;
    lhi_config none = {0};
    uint64_t dropped = 0; /* counted by the search over layouts */
    if (t->s->job->layout.sharding > LH_SHARDING_FULL)
        return t->likes ? search_likes(t, err) : LH_OK;
    t->level = LHI_LEVEL_GROUP;
    LHI_TRY(lhi_space_children(&t->space, LHI_LEVEL_NONE, &none, &dropped, grow,
                               t, err));
    if (t->likes) {
        LHI_TRY(raise_bounds(t, err));
        LHI_TRY(search_likes(t, err));
    }
    while (t->open.count && !has_ended(t)) {
        lhi_heap_pop(&t->open, &e);
        LHI_TRY(take_up(t, (uint32_t)e.what, err));
    }
    return note_left(t, err);
}

static lh_status branch(stage *t, lh_error *err)
{
    lhi_layout_search *s = t->s;
    lh_status status = lhi_space_init(s->job, s->mem, &t->space, err);
    if (status == LH_OK)
        status = lhi_floors_make(&t->plain, 1, &t->floors, err);
    if (status == LH_OK) {
        lhi_floors_forget_memory(t->floors);
        status = search_all(t, err);
    }
    lhi_heap_fini(&t->open);
    lhi_floors_free(t->floors);
    lhi_space_fini(&t->space);
    free(t->nodes);
    return status;
}

lh_status lhi_elastic_search(lhi_layout_search *s, bool all,
                             lhi_elastic_result *out, lh_error *err)
{
    const lhi_candidate *best =
        lhi_elastic_alone(s->job) ? NULL : lhi_layout_search_best(s);
    lhi_elastic_result found = {0};
    stage t = {.s = s,
               .plain = *s->job,
               .freedom = lhi_elastic_freedom_of(s->job),
               .limits = lhi_search_limits_of(
                   &s->options, SHARE * (s->sharing ? s->sharing : 1)),
               .best_value = INT64_MAX,
               .best_ns = INT64_MAX,
               .own_value = INT64_MAX,
               .best = &found};
    lh_status status = LH_OK;
    if (best) {
        t.best_value = lhi_value_of(&s->options, &best->choice);
        t.best_ns = best->choice.iteration_ns;
    }
    t.plain.training.zero_given = true;
    t.plain.training.zero = 1;
    t.freedom.stopped = is_stopped;
    t.freedom.context = &t;
    t.likes = best && !s->options.quick && all;
    if (!t.likes && (!best || !s->options.quick))
        status = search_likes(&t, err);
    if (status == LH_OK && all)
        status = branch(&t, err);
    if (status != LH_OK) {
        lh_pipeline_free(found.built.pipeline);
        lh_schedule_free(found.schedule);
        return status;
    }
    *out = found;
    return LH_OK;
}
