/* SPDX-License-Identifier: Apache-2.0 */
/* Branch and bound over layouts, best bound first. An inner node has decided
 * some of a layout's values and carries a lower bound on everything below it. A
 * complete layout is first built, for its own pipeline's bound, and then
 * waits for its simulation. When no open bound is below the incumbent, the
 * remaining layouts are proven to be no better; see docs/theory/plan-search.md.
 *
 * Nodes are processed in batches, which grow with the node count already
 * processed. A batch's costs are computed on several threads; the results are
 * applied in batch order. */
#include "planner/search/branch_and_bound_internal.h"

#include "planner/layout/layer_partition.h"
#include "planner/search/objective.h"
#include "planner/search/parallel_for.h"
#include "planner/search/unequal_bound.h"

#include "base/integer_math.h"

#include <stdlib.h>

enum {
    MIN_SIMULATED = 8, /* so that alternatives have times, not bounds */
    /* builds between simulations of the best built one */
    BUILDS_PER_SIMULATION = 16,
    MAX_BUILT = 1000000,
    MAX_NODES = 4000000, /* open nodes */
    /* parts of the work budget; the last is for every method */
    PARTS = 5,
    MIN_WORK_DIVISOR =
        30, /* good enough only after 1/MIN_WORK_DIVISOR of the work */
    BATCH_DIVISOR = 32, /* batch size: nodes processed so far / BATCH_DIVISOR */
    BOUNDS_PER_TASK = 16,      /* children per bounding task */
    MAX_FULL_EVALUATIONS = 16, /* evaluated under every method in parallel */
    FAR_FACTOR = 2,            /* far: this multiple of the least bound */
    NO_NODE = -1
};

/* The search ends if nothing can be faster by more than 0.5 %. */
static const double GOOD_ENOUGH_RATIO = 1.005;

/* Checks whether enough layouts were simulated to prune others by their bounds:
 * the list of alternatives needs simulated times, not only bounds. */
static bool has_enough(const lhi_layout_search *s)
{
    return s->n_simulated >= (s->options.quick ? 1 : MIN_SIMULATED);
}

/* --- nodes ---------------------------------------------------------------- */

/* Returns the index of an unused search node in *at; grows the array as needed.
 */
static lh_status allocate_node(lhi_branch_and_bound *b, uint32_t *at,
                               lh_error *err)
{
    if (b->n_unused) {
        *at = b->unused[--b->n_unused];
        return LH_OK;
    }
    if (b->n_nodes == b->room) {
        uint32_t room = b->room ? 2 * b->room : 256;
        lhi_search_node *more = realloc(b->nodes, room * sizeof *more);
        if (!more)
            return lhi_fail_nomem(err);
        b->nodes = more;
        b->room = room;
        uint32_t *unused = realloc(b->unused, room * sizeof *unused);
        if (!unused)
            return lhi_fail_nomem(err);
        b->unused = unused;
    }
    *at = b->n_nodes++;
    return LH_OK;
}

/* Adds a node to the open nodes, ordered by lower bound; of equal bounds, the
 * deeper node comes first. *at: its index. */
static lh_status push_node(lhi_branch_and_bound *b, const lhi_search_node *n,
                           uint32_t *at, lh_error *err)
{
    LHI_TRY(allocate_node(b, at, err));
    b->nodes[*at] = *n;
    b->n_open += n->n_layouts;
    lhi_event event = {.time_ns = n->bound,
                       /* Of equal bounds, the deeper node comes first. */
                       .rank = (uint64_t)(LHI_LEVEL_COMPLETE - n->level),
                       .seq = b->seq++,
                       .payload = *at};
    return lhi_heap_push(&b->open, event) ? LH_OK : lhi_fail_nomem(err);
}

/* Adds a child with its computed bound to the open nodes, or counts it as
 * pruned by memory or by its bound. b->least_child: the child with the least
 * bound. */
static lh_status queue_child(lhi_branch_and_bound *b,
                             const lhi_search_node *child, lh_error *err)
{
    lhi_layout_search *s = b->s;
    b->work += lhi_estimate_bound_work(child->level, s->job->n_datacenters);
    if (child->refused)
        return LH_OK;
    if (child->floor.kind == LHI_BOUND_MEMORY) {
        s->n_memory += child->n_layouts;
        s->lacks_memory = true;
        return LH_OK;
    }
    if (has_enough(s) &&
        lhi_layout_search_is_pruned(s, child->bound, child->level,
                                    &child->config, &child->floor)) {
        s->pruned[child->floor.kind] += child->n_layouts;
        return lhi_layout_search_drop(s, child->level, &child->config,
                                      child->floor.ns, err);
    }
    uint32_t at;
    LHI_TRY(push_node(b, child, &at, err));
    if (b->least_child == NO_NODE || child->bound < b->least_bound) {
        b->least_child = at;
        b->least_bound = child->bound;
    }
    return LH_OK;
}

/* Appends child configuration `config` of the node in expansion to the current
 * batch, which computes its lower bound. Visitor callback. */
static lh_status add_child(void *context, const lhi_config *config,
                           lh_error *err)
{
    lhi_branch_and_bound *b = context;
    lhi_search_batch *t = &b->batch;
    if (t->n_children == t->room) {
        uint32_t room = t->room ? 2 * t->room : 256;
        lhi_search_node *more = realloc(t->children, room * sizeof *more);
        if (!more)
            return lhi_fail_nomem(err);
        t->children = more;
        t->room = room;
    }
    t->children[t->n_children++] =
        (lhi_search_node){.config = *config, .level = b->level};
    return LH_OK;
}

/* Lists a configuration's children in the search tree in the current batch. */
static lh_status list_children(lhi_branch_and_bound *b, lhi_level level,
                               const lhi_config *config, lh_error *err)
{
    b->level = (lhi_level)(level + 1);
    return lhi_space_children(&b->space, level, config, &b->s->n_dropped,
                              add_child, b, err);
}

/* --- complete layouts ----------------------------------------------------- */

/* Grows the array of candidates if it has no free entry for one more. */
static lh_status reserve_candidate(lhi_layout_search *s, lh_error *err)
{
    if (s->n < s->room)
        return LH_OK;
    uint32_t room = s->room ? 2 * s->room : 64;
    lhi_candidate *more = realloc(s->candidates, room * sizeof *more);
    if (!more)
        return lhi_fail_nomem(err);
    s->candidates = more;
    s->room = room;
    return LH_OK;
}

/* Adds a node's complete layout to the batch as a candidate, whose pipeline the
 * batch builds to compute its bound. */
static lh_status add_built(lhi_branch_and_bound *b, const lhi_search_node *n,
                           lh_error *err)
{
    lhi_layout_search *s = b->s;
    LHI_TRY(reserve_candidate(s, err));
    s->candidates[s->n] =
        (lhi_candidate){.config = n->config, .lower_bound = n->floor};
    b->batch.built[b->batch.n_built++] = s->n++;
    b->since_try++;
    return LH_OK;
}

/* Adds candidate `at`, whose pipeline was built, to the queue b->built, ordered
 * by its bound; ignores it if it does not fit into memory. */
static lh_status queue_built(lhi_branch_and_bound *b, uint32_t at,
                             lh_error *err)
{
    lhi_layout_search *s = b->s;
    const lhi_candidate *c = &s->candidates[at];
    b->work += c->rebalanced ? lhi_estimate_rebalance_work(&c->config)
                             : lhi_estimate_pipeline_work(&c->config);
    b->n_built++;
    if (c->bound_ns == INT64_MAX)
        return LH_OK;
    b->least_partition_bound =
        lhi_min_int64(b->least_partition_bound, c->lower_bound.ns);
    lhi_lower_bound own = lhi_candidate_built_bound(c);
    lhi_event event = {.time_ns = lhi_layout_search_bound(s, LHI_LEVEL_COMPLETE,
                                                          &c->config, &own),
                       .seq = b->seq++,
                       .payload = at};
    return lhi_heap_push(&b->built, event) ? LH_OK : lhi_fail_nomem(err);
}

/* Counts the work of simulated candidate `c`, and updates the best time and
 * objective value by its result; passes it to the objective's callback. */
static lh_status take_time(lhi_branch_and_bound *b, const lhi_candidate *c,
                           lh_error *err)
{
    lhi_layout_search *s = b->s;
    b->work += lhi_estimate_schedule_work(&c->config, c->fully_evaluated);
    if (c->choice.status != LH_CHOICE_OK)
        return LH_OK;
    int64_t value = lhi_objective_value(&s->options, &c->choice);
    if (value < s->best_value)
        s->best_value = value;
    s->best_ns = lhi_min_int64(s->best_ns, c->choice.iteration_ns);
    if (s->objective)
        return s->objective->add_candidate(s->objective->context, c, err);
    return LH_OK;
}

/* Moves the built candidate with the least bound to the batch, for a quick
 * evaluation (one schedule method). */
static void add_quick_evaluation(lhi_branch_and_bound *b)
{
    lhi_event event;
    b->since_try = 0;
    if (lhi_heap_pop(&b->built, &event))
        b->batch.quick_evaluations[b->batch.n_quick_evaluations++] =
            (uint32_t)event.payload;
}

/* --- batches -------------------------------------------------------------- */

/* Removes node `at` from the open nodes: adds its children to the batch or, for
 * a complete layout, its candidate. */
static lh_status process_node(lhi_branch_and_bound *b, uint32_t at,
                              lh_error *err)
{
    const lhi_search_node n = b->nodes[at];
    b->nodes[at].done = true;
    b->n_open -= n.n_layouts;
    b->batch.n_taken++;
    b->n_taken++;
    if (n.level == LHI_LEVEL_COMPLETE)
        return add_built(b, &n, err);
    return list_children(b, n.level, &n.config, err);
}

/* Computes a child node's lower bound and counts the layouts below it.
 * `own`: the thread's search copy; `thread`: number of the thread. */
static lh_status compute_bound(lhi_branch_and_bound *b, lhi_layout_search *own,
                               uint32_t thread, lhi_search_node *child,
                               lh_error *err)
{
    lh_error why; /* clearing all its text took 1 % of a search */
    why.code = LH_OK;
    why.text[0] = '\0';
    if (!b->floors[thread])
        LHI_TRY(
            lhi_bound_inputs_make(own->job, b->ratio, &b->floors[thread], err));
    lh_status status = lhi_bound_inputs_compute(
        b->floors[thread], child->level, &child->config, &child->floor, &why);
    child->n_layouts = lhi_space_count(&b->space, child->level, &child->config);
    child->refused =
        status != LH_OK &&
        lhi_layout_search_count_refusal(own, status, &why, child->n_layouts);
    if (status == LH_OK && child->floor.kind != LHI_BOUND_MEMORY)
        child->bound = lhi_layout_search_bound(own, child->level,
                                               &child->config, &child->floor);
    if (status == LH_OK || child->refused)
        return LH_OK;
    if (err)
        *err = why;
    return status;
}

/* Builds a candidate's pipeline and its bound. Repairs a partition that does
 * not fit in memory. Rebalances the layers if this partition's bound is too
 * high, but that over all partitions is not. */
static lh_status build_candidate(lhi_layout_search *own, lhi_candidate *c,
                                 lh_error *err)
{
    LHI_TRY(lhi_candidate_compute_bound(own, c, err));
    LHI_TRY(lhi_candidate_fit_memory(own, c, err));
    if (own->best_ns == INT64_MAX || own->options.quick ||
        lhi_candidate_can_win(own, c))
        return LH_OK;
    int64_t least = lhi_layout_search_bound(own, LHI_LEVEL_COMPLETE, &c->config,
                                            &c->lower_bound);
    if (lhi_layout_search_is_pruned(own, least, LHI_LEVEL_COMPLETE, &c->config,
                                    &c->lower_bound))
        return LH_OK;
    return lhi_candidate_rebalance(own, c, err);
}

/* Runs task `i` of the batch: first the quick evaluations, which take longest,
 * then candidate building, then the children's bounds. `own`, `thread`: the
 * thread's search and number. Parallel-for callback. */
static lh_status run_task(void *context, lhi_layout_search *own,
                          uint32_t thread, uint32_t i, lh_error *err)
{
    lhi_branch_and_bound *b = context;
    const lhi_search_batch *t = &b->batch;
    lhi_candidate *all = b->s->candidates;
    if (i < t->n_quick_evaluations)
        return lhi_candidate_evaluate_quickly(
            own, &all[t->quick_evaluations[i]], err);
    i -= t->n_quick_evaluations;
    if (i < t->n_built)
        return build_candidate(own, &all[t->built[i]], err);
    i -= t->n_built;
    for (uint32_t k = i * BOUNDS_PER_TASK;
         k < t->n_children && k < (i + 1) * BOUNDS_PER_TASK; k++)
        LHI_TRY(compute_bound(b, own, thread, &t->children[k], err));
    return LH_OK;
}

/* Runs all tasks of a batch in parallel, then applies their results in a fixed
 * order: simulated times first, because these prune other results. */
static lh_status run_batch(lhi_branch_and_bound *b, lh_error *err)
{
    lhi_search_batch *t = &b->batch;
    lhi_layout_search *s = b->s;
    uint32_t groups = (t->n_children + BOUNDS_PER_TASK - 1) / BOUNDS_PER_TASK;
    b->least_child = NO_NODE;
    LHI_TRY(lhi_layout_search_parallel_for(
        s, t->n_quick_evaluations + t->n_built + groups, run_task, b, err));
    for (uint32_t i = 0; i < t->n_quick_evaluations; i++)
        LHI_TRY(take_time(b, &s->candidates[t->quick_evaluations[i]], err));
    for (uint32_t i = 0; i < t->n_built; i++)
        LHI_TRY(queue_built(b, t->built[i], err));
    for (uint32_t i = 0; i < t->n_children; i++)
        LHI_TRY(queue_child(b, &t->children[i], err));
    t->n_quick_evaluations = t->n_built = t->n_children = t->n_taken = 0;
    return LH_OK;
}

/* --- search --------------------------------------------------------------- */

/* Returns a lower bound, in ns, on all plans of this search: the least of the
 * incumbent, the open nodes and the built candidates. */
static int64_t compute_open_bound(const lhi_branch_and_bound *b)
{
    int64_t ns = lhi_min_int64(b->s->best_ns, b->least_partition_bound);
    return b->open.count ? lhi_min_int64(ns, b->open.items[0].time_ns) : ns;
}

/* Checks whether the search has no incumbent (best plan so far) within the time
 * limit yet, or one above FAR_FACTOR times the lower bound, which prunes
 * little. */
static bool is_far(const lhi_branch_and_bound *b)
{
    const lhi_layout_search *s = b->s;
    if (s->best_ns == INT64_MAX ||
        lhi_objective_is_late(&s->options, s->best_ns))
        return true;
    return !s->objective && !s->options.quick &&
           lhi_search_limits_are_reached(&b->limits, b->work, 1,
                                         MIN_WORK_DIVISOR) &&
           s->best_ns / FAR_FACTOR > compute_open_bound(b);
}

/* Runs the batch. While the incumbent is missing or far from the bound,
 * expands only the child with each node's least bound (depth first). Finally
 * simulates the best built candidate if none was. */
static lh_status run_local_search(lhi_branch_and_bound *b, lh_error *err)
{
    const bool evaluated_quickly = b->batch.n_quick_evaluations > 0;
    LHI_TRY(run_batch(b, err));
    while (is_far(b) && b->least_child != NO_NODE) {
        LHI_TRY(process_node(b, (uint32_t)b->least_child, err));
        LHI_TRY(run_batch(b, err));
    }
    if (!is_far(b) || evaluated_quickly)
        return LH_OK;
    add_quick_evaluation(b);
    return run_batch(b, err);
}

/* Checks whether the incumbent is within 0.5 % of the lower bound, after a
 * minimum of work. */
static bool is_good_enough(const lhi_branch_and_bound *b)
{
    const lhi_layout_search *s = b->s;
    if (s->cutoff_ns > 0 && s->best_ns >= s->cutoff_ns)
        return false; /* a known plan is as good */
    return !s->objective && has_enough(s) &&
           lhi_search_limits_are_reached(&b->limits, b->work, 1,
                                         MIN_WORK_DIVISOR) &&
           (double)s->best_ns <=
               GOOD_ENOUGH_RATIO * (double)compute_open_bound(b);
}

/* Reports progress over layouts (best time, lower bound, closed and open
 * layouts). Returns true if the caller asks to stop. */
static bool is_stopped_by_watcher(const lhi_branch_and_bound *b)
{
    const lhi_layout_search *s = b->s;
    const lh_plan_options *o = &s->options;
    int64_t bound_ns = compute_open_bound(b);
    lh_plan_progress now = {
        .best_ns = s->best_ns == INT64_MAX ? -1 : s->best_ns,
        .bound_ns = s->objective || bound_ns == INT64_MAX ? 0 : bound_ns,
        .n_closed = s->n_memory + b->n_built,
        .n_open = b->n_open};
    for (int k = 0; k < LHI_N_BOUND_KINDS; k++)
        now.n_closed += s->pruned[k];
    return o->layout_progress && o->layout_progress(o->context, &now);
}

/* Checks whether `parts` out of PARTS equal parts of the work budget are used
 * up, or the caller asks to stop. Always false without an incumbent, unless the
 * job requires GPUs that another plan leaves idle. */
static bool has_stopped(lhi_branch_and_bound *b, uint32_t parts)
{
    lhi_layout_search *s = b->s;
    bool stop = is_stopped_by_watcher(b);
    if (lhi_layout_search_is_cancelled(s, b->n_built) || stop) {
        s->options.quick = s->options.quick || s->best_ns != INT64_MAX;
        return s->best_ns != INT64_MAX || s->job->min_gpus;
    }
    if (s->best_ns == INT64_MAX && !s->job->min_gpus)
        return false;
    return lhi_search_limits_are_reached(&b->limits, b->work, parts, PARTS) ||
           b->n_built > MAX_BUILT || b->n_nodes - b->n_unused > MAX_NODES;
}

/* Checks whether the next work item is a built candidate to simulate, rather
 * than an open node to expand: the one with the lower bound, and at least once
 * every BUILDS_PER_SIMULATION builds. */
static bool is_built_next(const lhi_branch_and_bound *b)
{
    if (b->built.count == 0)
        return false;
    if (b->open.count == 0 || b->since_try >= BUILDS_PER_SIMULATION)
        return true;
    return b->built.items[0].time_ns <= b->open.items[0].time_ns;
}

/* Checks whether the lower bound prunes the next item in the queue. `built`:
 * the item is a built candidate, otherwise an open node. */
static bool is_next_hopeless(const lhi_branch_and_bound *b, bool built)
{
    const lhi_layout_search *s = b->s;
    const lhi_event *e = built ? &b->built.items[0] : &b->open.items[0];
    if (!has_enough(s))
        return false;
    if (built) {
        const lhi_candidate *c = &s->candidates[e->payload];
        lhi_lower_bound own = lhi_candidate_built_bound(c);
        return lhi_layout_search_is_pruned(s, e->time_ns, LHI_LEVEL_COMPLETE,
                                           &c->config, &own);
    }
    const lhi_search_node *n = &b->nodes[e->payload];
    return !n->done && lhi_layout_search_is_pruned(s, e->time_ns, n->level,
                                                   &n->config, &n->floor);
}

/* Returns the number of nodes to expand in parallel: 1 until a plan is found,
 * then in proportion to the nodes expanded so far. */
static uint32_t compute_batch_size(const lhi_branch_and_bound *b)
{
    uint64_t n = b->n_taken / BATCH_DIVISOR;
    if (n < 1 || b->s->best_ns == INT64_MAX)
        return 1;
    return n < LHI_MAX_BATCH ? (uint32_t)n : LHI_MAX_BATCH;
}

/* Fills the next batch: nodes to expand, and built candidates to simulate. */
static lh_status fill_batch(lhi_branch_and_bound *b, lh_error *err)
{
    const uint32_t most = compute_batch_size(b);
    lhi_search_batch *t = &b->batch;
    lhi_event e;
    while ((b->open.count || b->built.count) && t->n_taken < most) {
        bool built = is_built_next(b), hopeless = is_next_hopeless(b, built);
        if (hopeless && built) {
            lhi_heap_pop(&b->built, &e);
            b->since_try = 0;
            continue;
        }
        if (built) {
            if (t->n_quick_evaluations > most / BUILDS_PER_SIMULATION)
                return LH_OK;
            add_quick_evaluation(b);
            continue;
        }
        lhi_heap_pop(&b->open, &e);
        if (hopeless)
            LHI_TRY(lhi_branch_and_bound_count_pruned(b, &e, err));
        else if (!b->nodes[e.payload].done)
            LHI_TRY(process_node(b, (uint32_t)e.payload, err));
        b->unused[b->n_unused++] = (uint32_t)e.payload;
    }
    return LH_OK;
}

/* Runs the branch and bound until it is complete, stopped or good enough. */
static lh_status run_search(lhi_branch_and_bound *b, lh_error *err)
{
    while ((b->open.count || b->built.count) && !has_stopped(b, PARTS - 1) &&
           !is_good_enough(b)) {
        LHI_TRY(fill_batch(b, err));
        if (is_far(b))
            LHI_TRY(run_local_search(b, err));
        else
            LHI_TRY(run_batch(b, err));
    }
    b->s->complete = !b->open.count && !b->built.count;
    return LH_OK;
}

/* --- every method --------------------------------------------------------- */

/* Returns a candidate's sort key for the full evaluation (every method), lowest
 * first: its quick-evaluation value; failed candidates follow by their bound.
 */
static int64_t get_evaluation_priority(const lhi_layout_search *s,
                                       const lhi_candidate *c)
{
    const lhi_objective *o = s->objective;
    if (c->choice.status != LH_CHOICE_OK)
        return INT64_MAX / 2 + c->bound_ns / 4;
    return o ? o->value(o->context, c) : c->choice.iteration_ns;
}

/* Adds the candidates that had only a quick evaluation (one schedule method) to
 * the queue `line`, ordered by get_evaluation_priority(). */
static lh_status queue_candidates(const lhi_layout_search *s, lhi_heap *line,
                                  lh_error *err)
{
    for (uint32_t i = 0; i < s->n; i++) {
        const lhi_candidate *c = &s->candidates[i];
        lhi_event e = {
            .time_ns = get_evaluation_priority(s, c), .seq = i, .payload = i};
        if (c->simulated && !c->fully_evaluated && !lhi_heap_push(line, e))
            return lhi_fail_nomem(err);
    }
    return LH_OK;
}

/* Evaluates candidate `i` of the list in `context` under every schedule method.
 * `own`: the thread's search copy; `thread` is unused. Parallel-for
 * callback. */
static lh_status evaluate_fully(void *context, lhi_layout_search *own,
                                uint32_t thread, uint32_t i, lh_error *err)
{
    lhi_candidate *const *list = context;
    (void)thread;
    return lhi_candidate_evaluate(own, list[i], err);
}

/* Takes candidates that may beat the incumbent from the queue `line` into
 * `list`; returns their number: at most `n`, the number evaluated so far, or 1
 * if n is 0. Takes the first MIN_SIMULATED in any case. */
static uint32_t take_candidates(const lhi_branch_and_bound *b, lhi_heap *line,
                                uint32_t n, lhi_candidate **list)
{
    lhi_layout_search *s = b->s;
    lhi_event e;
    uint32_t most = n < 1                      ? 1
                    : n < MAX_FULL_EVALUATIONS ? n
                                               : MAX_FULL_EVALUATIONS,
             found = 0;
    while (found < most && lhi_heap_pop(line, &e)) {
        bool few = n + found < MIN_SIMULATED && !s->options.quick;
        if (few || lhi_candidate_can_win(s, &s->candidates[e.payload]))
            list[found++] = &s->candidates[e.payload];
    }
    return found;
}

/* Evaluates the candidates that may beat the incumbent under every schedule
 * method, best quick evaluation first. */
static lh_status evaluate_promising(lhi_branch_and_bound *b, lh_error *err)
{
    lhi_layout_search *s = b->s;
    lhi_heap line = {0};
    lhi_candidate *list[MAX_FULL_EVALUATIONS];
    uint32_t n = 0, at_once;
    lh_status status = queue_candidates(s, &line, err);
    while (status == LH_OK && (at_once = take_candidates(b, &line, n, list))) {
        if (n > 0 && has_stopped(b, PARTS)) {
            s->complete = false;
            break;
        }
        status = lhi_layout_search_parallel_for(s, at_once, evaluate_fully,
                                                list, err);
        for (uint32_t i = 0; i < at_once && status == LH_OK; i++)
            status = take_time(b, list[i], err);
        n += at_once;
    }
    lhi_heap_fini(&line);
    return status;
}

/* --- branch and bound ----------------------------------------------------- */

/* Sets s->exact, which makes the search try all layer partitions of every
 * layout: on request, or if there are few. */
static lh_status decide_exact(lhi_layout_search *s, lh_error *err)
{
    const lh_plan_options *o = &s->options;
    s->exact = o->partition == LH_PARTITION_EXACT;
    if (o->partition == LH_PARTITION_HILL_CLIMBING && !s->objective &&
        !o->quick && o->objective == LH_PLAN_FASTEST && !s->candidates_only &&
        s->complete)
        return lhi_layout_search_can_enumerate(s, &s->exact, err);
    return LH_OK;
}

/* Frees the state of the branch and bound, but not the candidates. */
static void close_branch(lhi_branch_and_bound *b)
{
    lhi_heap_fini(&b->open);
    lhi_heap_fini(&b->built);
    for (uint32_t i = 0; b->floors && i < lhi_workers_count(b->s->workers); i++)
        lhi_bound_inputs_free(b->floors[i]);
    free(b->floors);
    lhi_space_fini(&b->space);
    free(b->batch.children);
    free(b->nodes);
    free(b->unused);
}

lh_status lhi_layout_search_branch_and_bound(lhi_layout_search *s,
                                             lh_error *err)
{
    lhi_branch_and_bound b = {
        .s = s,
        .limits = lhi_search_limits_from_options(&s->options, s->sharing),
        .ratio = lhi_layer_partition_max_ratio(s->job, &s->options),
        .least_partition_bound = INT64_MAX,
        .covers_differing = lhi_differing_is_searched(s->job, &s->options)};
    lhi_config none = {0};
    lhi_space_refusal refused = {0};
    s->best_ns = s->best_value = s->dropped_ns = INT64_MAX;
    b.floors = calloc(lhi_workers_count(s->workers), sizeof *b.floors);
    lh_status status = b.floors ? LH_OK : lhi_fail_nomem(err);
    if (status == LH_OK)
        status = lhi_space_init(s->job, s->mem, &b.space, err);
    b.space.refused = &refused;
    if (status == LH_OK)
        status = list_children(&b, LHI_LEVEL_NONE, &none, err);
    if (status == LH_OK)
        status = run_batch(&b, err);
    if (status == LH_OK)
        status = run_search(&b, err);
    if (status == LH_OK && !s->candidates_only)
        status = evaluate_promising(&b, err);
    if (status == LH_OK)
        status = decide_exact(s, err);
    if (status == LH_OK && s->exact)
        status = lhi_layout_search_enumerate_partitions(s, err);
    if (status == LH_OK)
        status = lhi_branch_and_bound_compute_proven(&b, err);
    if (!s->first_refusal.text[0])
        s->first_refusal = refused.why;
    close_branch(&b);
    return status;
}
