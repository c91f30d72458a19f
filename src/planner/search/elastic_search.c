/* SPDX-License-Identifier: Apache-2.0 */
/* Branch and bound over the layouts that allow elastic plans: degrees and
 * placement. Everything else belongs to the elastic plan. */
#include "planner/search/elastic_search.h"

#include "base/heap.h"
#include "base/integer_math.h"
#include "planner/layout/choice.h"
#include "planner/layout/equivalence.h"
#include "planner/search/cost.h"
#include "planner/search/objective.h"
#include "planner/search/search_budget.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_FIRST_LAYOUTS =
        2,            /* first layouts: the fastest under other schedules */
    WORK_DIVISOR = 6, /* work share: that of layouts divided by WORK_DIVISOR */
    MOST_SHARES = 6   /* while nothing works at all */
};

/* A node: degrees or a placed layout. */
typedef struct node {
    lhi_config config;
    lhi_lower_bound floor;
    lhi_level level; /* at most LHI_LEVEL_PLACED */
    bool bounded;    /* over all allowed chunk counts */
} node;

/* Elastic search state. */
typedef struct elastic_branch {
    lhi_layout_search *s;
    lh_job plain; /* job with ZeRO-1, the basis of elastic plans */
    lhi_space space;
    lhi_bound_inputs *floors;
    lhi_elastic_options freedom;
    lhi_search_limits limits;
    uint64_t work, seq;
    bool likes; /* search them after the proven bound is known */
    lhi_heap open;
    node *nodes;
    uint32_t n, room;
    lhi_level level;             /* level of the expanded node's children */
    int64_t best_value, best_ns; /* including other schedules */
    int64_t own_value;           /* value of *best */
    lhi_elastic_result *best;
} elastic_branch;

/* --- bounds --------------------------------------------------------------- */

/* Returns a search node's lower bound in the objective's unit: time in ns, or a
 * cost as an ordered integer. */
static int64_t compute_bound(const elastic_branch *t, const node *n)
{
    const lhi_objective *o = t->s->objective;
    return o ? o->bound(o->context, n->level, &n->config, &n->floor)
             : n->floor.ns;
}

/* Checks whether a node's lower bound excludes that some plan below it is
 * better than the best so far. */
static bool is_hopeless(const elastic_branch *t, const node *n)
{
    const lhi_objective *o = t->s->objective;
    if (n->floor.ns == INT64_MAX)
        return true;
    if (!o)
        return n->floor.ns >= t->best_ns;
    return o->is_useless(o->context, compute_bound(t, n), n->level, &n->config,
                         &n->floor);
}

/* Records the lower bound of a node that the search is done with (searched,
 * pruned or skipped): no elastic plan below the node is faster. These bounds
 * prove the search's result. */
static lh_status record_bound(elastic_branch *t, const node *n, lh_error *err)
{
    lhi_layout_search *s = t->s;
    if (n->floor.ns == INT64_MAX)
        return LH_OK;
    s->proven_ns = lhi_min_int64(s->proven_ns, n->floor.ns);
    if (s->objective)
        s->objective->add_unexplored(s->objective->context, n->level,
                                     &n->config, &n->floor);
    return s->unexplored
               ? lhi_unexplored_add_bound(s->unexplored, n->level, &n->config,
                                          n->floor.ns, err)
               : LH_OK;
}

/* --- nodes ---------------------------------------------------------------- */

/* Adds node `at` to the open nodes, ordered by lower bound; of equal bounds,
 * the deeper node comes first. */
static lh_status push_node(elastic_branch *t, uint32_t at, lh_error *err)
{
    const node *n = &t->nodes[at];
    lhi_event event = {.time_ns = compute_bound(t, n),
                       .rank = (uint64_t)(LHI_LEVEL_PLACED - n->level),
                       .seq = t->seq++,
                       .payload = at};
    return lhi_heap_push(&t->open, event) ? LH_OK : lhi_fail_nomem(err);
}

/* Appends a node and adds it to the open nodes. */
static lh_status add_node(elastic_branch *t, const node *n, lh_error *err)
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
    return push_node(t, t->n++, err);
}

/* Checks whether elastic plans may have the values that the configuration
 * decides on `level` (depth in the search tree). Recomputation must be none,
 * because the elastic plan itself recomputes operations. */
static bool allows_elastic(const elastic_branch *t, lhi_level level,
                           const lhi_config *config)
{
    if (level == LHI_LEVEL_WORK && !t->s->job->training.recompute_given)
        return config->recompute == LH_RECOMPUTE_NONE;
    return level < LHI_LEVEL_DEGREES ||
           lhi_elastic_is_applicable(t->s->job, config);
}

/* Adds a child of the expanded node to the open nodes with its bound; records
 * the bound instead if it prunes the child. Visitor callback. */
static lh_status add_child(void *context, const lhi_config *config,
                           lh_error *err)
{
    elastic_branch *t = context;
    node child = {.config = *config, .level = t->level};
    lh_error why = {0};
    if (!allows_elastic(t, t->level, config))
        return LH_OK;
    if (child.level == LHI_LEVEL_PLACED)
        child.config.layout.sharding = LH_SHARDING_FULL;
    lh_status status = lhi_bound_inputs_compute(t->floors, t->level, config,
                                                &child.floor, &why);
    t->work += lhi_estimate_bound_work(t->level, t->s->job->n_datacenters);
    if (lhi_layout_is_infeasible(status))
        return LH_OK;
    if (status != LH_OK) {
        if (err)
            *err = why;
        return status;
    }
    /* Memory is not bounded here, so other limits decide. */
    child.floor.memory_bytes = INT64_MAX;
    if (is_hopeless(t, &child)) {
        t->s->n_elastic += child.level == LHI_LEVEL_PLACED;
        return record_bound(t, &child, err);
    }
    return add_node(t, &child, err);
}

/* Counts the layouts in a subtree; while placements are open, one per set of
 * degrees. */
typedef struct counter {
    const elastic_branch *t;
    lhi_level level;
    uint64_t n;
} counter;

/* Counts the layouts below a child of a node that allow elastic plans. Visitor
 * callback. */
static lh_status count_below(void *context, const lhi_config *config,
                             lh_error *err)
{
    counter *c = context;
    counter below = {c->t, (lhi_level)(c->level + 1), 0};
    if (!allows_elastic(c->t, c->level, config))
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

/* --- one layout ----------------------------------------------------------- */

/* Computes the lower bound of layout node `at` over all chunk counts. Unless
 * the bound prunes the node, puts it back into the queue of open nodes. */
static lh_status bound_layout(elastic_branch *t, uint32_t at, lh_error *err)
{
    lhi_layout_search *s = t->s;
    node *n = &t->nodes[at];
    int64_t ns;
    lhi_elastic_options f = t->freedom;
    lhi_mark mark = lhi_arena_mark(s->mem);
    if (!s->objective && t->best_ns < INT64_MAX)
        f.below_ns = t->best_ns;
    lh_status status = lhi_elastic_compute_layout_bound(
        s->job, &n->config, &f, s->mem, &ns, &t->work, err);
    lhi_arena_rewind(s->mem, mark);
    LHI_TRY(status);
    n->bounded = true;
    n->floor.ns = lhi_max_int64(n->floor.ns, ns);
    if (!is_hopeless(t, n))
        return push_node(t, at, err);
    s->n_elastic++;
    return record_bound(t, n, err);
}

lh_status lhi_elastic_choice_finish(const lhi_layout_search *s,
                                    lh_choice *choice, lh_error *err)
{
    if (!choice->elastic)
        choice->zero = s->job->training.zero;
    LHI_TRY(lhi_choice_compute_rates(s->job, s->mem, choice, err));
    return lhi_pricing_set_choice(s->job, s->mem, choice, err);
}

/* Adds elastic plan *found to the Pareto front and to the best results by
 * dimension value. If it is the best elastic plan so far, exchanges it with
 * *t->best, so that *found holds the previous one. */
static lh_status store_result(elastic_branch *t, lhi_elastic_result *found,
                              lh_error *err)
{
    lhi_layout_search *s = t->s;
    lhi_candidate c = {0};
    LHI_TRY(lhi_elastic_choice_of(found, &c.choice, err));
    LHI_TRY(lhi_elastic_choice_finish(s, &c.choice, err));
    if (s->front)
        LHI_TRY(lhi_pareto_front_add(s->front, &c.choice, err));
    if (s->objective)
        LHI_TRY(s->objective->add_candidate(s->objective->context, &c, err));
    lhi_best_with_value head = {LHI_N_DIMENSIONS, 0, c.choice, false};
    if (s->unexplored)
        LHI_TRY(
            lhi_best_per_value_add(&s->unexplored->heads, s->mem, &head, err));
    int64_t value = lhi_objective_value(&s->options, &c.choice);
    t->best_ns = lhi_min_int64(t->best_ns, c.choice.iteration_ns);
    t->best_value = lhi_min_int64(t->best_value, value);
    if (value >= t->own_value)
        return LH_OK;
    lhi_elastic_result before = *t->best;
    t->own_value = value;
    *t->best = *found;
    *found = before;
    return LH_OK;
}

/* Searches the best elastic plan with `like`'s degrees that is faster than
 * below_ns (0: any), and stores it. */
static lh_status search_layout(elastic_branch *t, const lhi_config *like,
                               int64_t below_ns, lh_error *err)
{
    lhi_elastic_result found;
    lhi_elastic_options f = t->freedom;
    lh_error why = {0};
    f.below_ns = below_ns;
    lh_status status =
        lhi_elastic_search_layout(t->s->job, like, &f, t->s->mem, &found, &why);
    t->work += found.work;
    if (lhi_method_is_inapplicable(status))
        return LH_OK;
    if (status == LH_OK) {
        status = store_result(t, &found, &why);
        lh_pipeline_free(found.built.pipeline);
        lh_schedule_free(found.schedule);
    }
    if (status != LH_OK && err)
        *err = why;
    return status;
}

/* Searches the best elastic plan of a layout node that can beat the best so
 * far, and records the node's bound. */
static lh_status search_node(elastic_branch *t, const node *n, lh_error *err)
{
    lhi_layout_search *s = t->s;
    const lhi_objective *o = s->objective;
    int64_t below_ns = t->best_ns < INT64_MAX ? t->best_ns : 0;
    if (o)
        below_ns = o->useless_ns(o->context, n->level, &n->config);
    s->n_elastic++;
    LHI_TRY(search_layout(t, &n->config, below_ns, err));
    return record_bound(t, n, err);
}

/* --- best degrees of other schedules -------------------------------------- */

/* Checks whether two layouts have the same parallel degrees, microbatch size,
 * outermost parallelism, rank order and packing on nodes. */
static bool has_same_degrees(const lh_layout *a, const lh_layout *b)
{
    return lhi_degrees_are_equal(a, b) && a->outermost == b->outermost &&
           a->rank_order == b->rank_order && a->packing == b->packing;
}

/* Returns a candidate's sort key for the search's order, lowest first:
 * objective value if feasible, then those whose missing memory is known. */
static int64_t rank_candidate(const lhi_layout_search *s,
                              const lhi_candidate *c)
{
    if (lhi_candidate_is_feasible(c))
        return lhi_objective_value(&s->options, &c->choice);
    return INT64_MAX - 1 - (c->missing > 0 ? 0 : 1);
}

/* Searches elastic plans on the two best sets of degrees under other schedules
 * first: their results prune more. These plans are listed even if they are
 * slower, unless only the best plan is required. */
static lh_status search_best_degrees(elastic_branch *t, lh_error *err)
{
    const lhi_layout_search *s = t->s;
    lhi_config likes[MAX_FIRST_LAYOUTS];
    for (uint32_t n = 0; n < MAX_FIRST_LAYOUTS; n++) {
        const lhi_candidate *best = NULL;
        for (uint32_t i = 0; i < s->n; i++) {
            const lhi_candidate *c = &s->candidates[i];
            bool known = !lhi_elastic_is_applicable(s->job, &c->config);
            for (uint32_t k = 0; k < n && !known; k++)
                known = has_same_degrees(&likes[k].layout, &c->config.layout);
            if (!known && (c->simulated || c->missing > 0) &&
                (!best || rank_candidate(s, c) < rank_candidate(s, best)))
                best = c;
        }
        if (!best)
            break;
        likes[n] = best->config;
        likes[n].layers = NULL; /* its chunks are its own */
        LHI_TRY(search_layout(
            t, &likes[n],
            s->best_only && !s->objective && t->best_ns < INT64_MAX ? t->best_ns
                                                                    : 0,
            err));
    }
    return LH_OK;
}

/* --- complete search ------------------------------------------------------ */

/* Checks whether the layout search must stop, by its deadline or on request;
 * never before it has a plan. `works`: there is one. */
static bool is_stopped(void *context, bool works)
{
    elastic_branch *t = context;
    return lhi_layout_search_should_stop(t->s, t->s->n,
                                         works || t->best->schedule);
}

/* Checks whether the elastic search ends: stopped, its work limit reached, or a
 * plan found in a quick search. Without any plan, the limit is MOST_SHARES
 * times as high. */
static bool has_ended(elastic_branch *t)
{
    bool works = t->best_value < INT64_MAX;
    if ((works && t->s->options.quick) || is_stopped(t, works))
        return true;
    if (!lhi_search_limits_are_reached(&t->limits, t->work, 1, 1))
        return false;
    return works || t->work / MOST_SHARES > t->limits.most_work;
}

/* Processes open node `at`: expands it, computes its bound over all chunk
 * counts or, with that bound, searches its elastic plans. */
static lh_status process_node(elastic_branch *t, uint32_t at, lh_error *err)
{
    node n = t->nodes[at];
    if (is_hopeless(t, &n)) {
        t->s->n_elastic += n.level == LHI_LEVEL_PLACED;
        return record_bound(t, &n, err);
    }
    if (n.level < LHI_LEVEL_PLACED) {
        uint64_t dropped = 0;
        t->level = (lhi_level)(n.level + 1);
        return lhi_space_children(&t->space, n.level, &n.config, &dropped,
                                  add_child, t, err);
    }
    return n.bounded ? search_node(t, &n, err) : bound_layout(t, at, err);
}

/* Records the bounds of all nodes that are open when the search ends, and
 * counts their layouts. */
static lh_status record_open(elastic_branch *t, lh_error *err)
{
    lhi_layout_search *s = t->s;
    lhi_event e;
    while (lhi_heap_pop(&t->open, &e)) {
        const node *n = &t->nodes[e.payload];
        LHI_TRY(record_bound(t, n, err));
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

/* Checks whether the open node with the least bound has a bound over all its
 * chunk counts; only a search of the layout can then raise it. */
static bool is_bounded(const elastic_branch *t)
{
    return !t->open.count || t->nodes[t->open.items[0].payload].bounded;
}

/* Repeatedly expands the open node with the least lower bound, until the least
 * bound belongs to a placed layout whose bound covers all its chunk counts.
 * Computes only bounds, which are cheap, and searches no elastic plans. */
static lh_status tighten_bounds(elastic_branch *t, lh_error *err)
{
    lhi_event e;
    while (!is_bounded(t) && !is_stopped(t, true) &&
           t->work <= t->limits.most_work) {
        lhi_heap_pop(&t->open, &e);
        LHI_TRY(process_node(t, (uint32_t)e.payload, err));
    }
    return LH_OK;
}

/* Searches elastic plans first on the degrees that are best under other
 * schedules, if there are such candidates, then on all degrees in the order of
 * their bounds. */
static lh_status search_degrees(elastic_branch *t, lh_error *err)
{
    lhi_event e;
    lhi_config none = {0};
    uint64_t dropped = 0; /* counted by the search over layouts */
    if (t->s->job->layout.sharding > LH_SHARDING_FULL)
        return t->likes ? search_best_degrees(t, err) : LH_OK;
    t->level = LHI_LEVEL_GROUP;
    LHI_TRY(lhi_space_children(&t->space, LHI_LEVEL_NONE, &none, &dropped,
                               add_child, t, err));
    if (t->likes) {
        LHI_TRY(tighten_bounds(t, err));
        LHI_TRY(search_best_degrees(t, err));
    }
    while (t->open.count && !has_ended(t)) {
        lhi_heap_pop(&t->open, &e);
        LHI_TRY(process_node(t, (uint32_t)e.payload, err));
    }
    return record_open(t, err);
}

/* Runs the branch and bound over layouts for elastic plans, with bounds that
 * ignore memory limits (sharding and recomputation reduce memory). */
static lh_status run_branch_and_bound(elastic_branch *t, lh_error *err)
{
    lhi_layout_search *s = t->s;
    lh_status status = lhi_space_init(s->job, s->mem, &t->space, err);
    if (status == LH_OK)
        status = lhi_bound_inputs_make(&t->plain, 1, &t->floors, err);
    if (status == LH_OK) {
        lhi_bound_inputs_ignore_memory(t->floors);
        status = search_degrees(t, err);
    }
    lhi_heap_fini(&t->open);
    lhi_bound_inputs_free(t->floors);
    lhi_space_fini(&t->space);
    free(t->nodes);
    return status;
}

lh_status lhi_elastic_search(lhi_layout_search *s, bool all,
                             lhi_elastic_result *out, lh_error *err)
{
    const lhi_candidate *best =
        lhi_elastic_is_required(s->job) ? NULL : lhi_layout_search_find_best(s);
    lhi_elastic_result found = {0};
    elastic_branch t = {
        .s = s,
        .plain = *s->job,
        .freedom = lhi_elastic_options_from_job(s->job),
        .limits = lhi_search_limits_from_options(
            &s->options, WORK_DIVISOR * (s->sharing ? s->sharing : 1)),
        .best_value = INT64_MAX,
        .best_ns = INT64_MAX,
        .own_value = INT64_MAX,
        .best = &found};
    lh_status status = LH_OK;
    if (s->job->layout.group_micro_batches || s->job->layout.site_tensors) {
        *out = found; /* elastic plans have equal stages */
        return LH_OK;
    }
    if (best) {
        t.best_value = lhi_objective_value(&s->options, &best->choice);
        t.best_ns = lhi_layout_search_useless_ns(s, best->choice.iteration_ns);
    }
    t.plain.training.zero_given = true;
    t.plain.training.zero = 1;
    t.freedom.stopped = is_stopped;
    t.freedom.context = &t;
    t.likes = best && !s->options.quick && all;
    if (!t.likes && (!best || !s->options.quick))
        status = search_best_degrees(&t, err);
    if (status == LH_OK && all)
        status = run_branch_and_bound(&t, err);
    if (status != LH_OK) {
        lh_pipeline_free(found.built.pipeline);
        lh_schedule_free(found.schedule);
        return status;
    }
    *out = found;
    return LH_OK;
}
