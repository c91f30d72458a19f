/* SPDX-License-Identifier: Apache-2.0 */
/* Moves layers under optimised schedules. The searches before compare layer
 * partitions by methods alone, and the solver's gain differs between partitions
 * by several percent. Each round collects the neighbours of a partition whose
 * bound is below the best, evaluates them under every method, and solves the
 * fastest of them. An improvement starts the next round; without one the effort
 * of each solve grows.
 *
 * The search ends when the plan is within its bound's tolerance, or when
 * the work is spent. It starts with a part of the plan's work. Each time that
 * is spent, as much again is added if it improved the plan by the tolerance, up
 * to all the plan's work: a plan is not left while doubling the work pays.
 * Work beyond that of the default effort is added without a gain, too; the
 * random changes are then others.
 */
#include "planner/search/refine_partitions_internal.h"

#include "base/sort.h"
#include "planner/layout/choice.h"
#include "planner/layout/equivalence.h"
#include "planner/layout/target.h"
#include "planner/search/objective.h"
#include "planner/search/search_budget.h"
#include "schedule/solver/bound/closed_forms.h"

#include <longhaul/experimental/bounds.h>
#include <stdio.h>
#include <string.h>

enum {
    DOUBLINGS = 3,       /* of the work at the start, up to that for layouts */
    FIRST_DIVISOR = 20,  /* first solves: 1/FIRST_DIVISOR of the effort each */
    SOLVE_DIVISOR = 2,   /* solves: 1/SOLVE_DIVISOR of it */
    LEVELS = 3,          /* effort levels for one partition's neighbours */
    GROWTH = 3,          /* effort of a level relative to the previous one, */
    FEWER = 3,           /* and the divisor for its solve count */
    MAX_BASES = 8,       /* partitions whose neighbours are tried */
    MAX_CLIMBED = 4,     /* alternatives climbed first, each with */
    CLIMB_DIVISOR = 6,   /* 1/CLIMB_DIVISOR of the first work */
    RESTART_DIVISOR = 5, /* restarts: 1/RESTART_DIVISOR of the work left */
    MAX_PARTITIONS = 20000, /* layouts with fewer have all as neighbours */
    MAX_BOUNDS = 6000,      /* else as many are visited, least bounds first */
    SLOTS = 1 << 15,        /* of the visited-partition table */
    EVALUATION_DIVISOR = 3, /* under every method: 1/EVALUATION_DIVISOR of it */
    MAX_NEAREST = 48,       /* at least as many of them one move away */
    FEW_CHUNKS = 12,        /* with more, only single layers move */
    TICKS_PER_PASS = 8      /* with less effort the solver only runs methods */
};

/* Neighbours whose best method is further behind are not solved. */
static const double SOLVED_RATIO = 1.04;

/* Returns the plan's objective value; less is better. */
static int64_t get_best_value(const lhi_partition_refinement *m)
{
    return lhi_objective_value(m->r->options, &m->r->plan->best);
}

/* Doubles the work for layer partitions if the budget allows it. Returns
 * whether it does. *gained: the last work improved the plan by the
 * tolerance. */
static bool add_work(lhi_partition_refinement *m, bool *gained)
{
    const lh_plan_options *o = m->r->options;
    const lh_choice *best = &m->r->plan->best;
    *gained = lhi_compute_relative_gap(o, &m->best_at_start, best) >=
              LHI_PARTITION_TOLERANCE;
    if (!lhi_may_double_work(o, m->given, *gained))
        return false;
    m->left += m->given;
    m->given *= 2;
    m->best_at_start = *best;
    return true;
}

/* --- neighbours --------------------------------------------------------- */

/* Grows the array of neighbouring partitions if it has no free entry for one
 * more. */
static lh_status ensure_capacity(lhi_partition_refinement *m, lh_error *err)
{
    if (m->n_neighbours < m->room)
        return LH_OK;
    const uint32_t room = m->room ? 2 * m->room : 256;
    lhi_partition_neighbour *more =
        LHI_NEW(m->mem, lhi_partition_neighbour, room);
    if (!more)
        return lhi_fail_nomem(err);
    if (m->n_neighbours)
        memcpy(more, m->neighbours, m->n_neighbours * sizeof *more);
    m->neighbours = more;
    m->room = room;
    return LH_OK;
}

/* Computes the lower bound of a layer partition's pipeline, in ns; INT64_MAX:
 * it cannot be built. */
static lh_status compute_bound(lhi_partition_refinement *m,
                               const uint32_t *layers, int64_t *ns,
                               lh_error *err)
{
    lhi_config config = m->base.config;
    lhi_built_layout built;
    lh_bound bound;
    lh_error why = {0};
    config.layers = layers;
    *ns = INT64_MAX;
    lhi_partition_refinement_spend(m, lhi_estimate_pipeline_work(&config));
    lh_status status =
        lhi_layout_build_cached(m->r->job, &config, m->known, &built, &why);
    if (status != LH_OK && lhi_layout_is_infeasible(status))
        return LH_OK;
    if (status == LH_OK) {
        status = lhi_compute_closed_form_bound(built.pipeline, &bound, &why);
        lh_pipeline_free(built.pipeline);
    }
    if (status == LH_OK)
        *ns = bound.ns + built.optimizer_ns + built.overhead_ns;
    else if (err)
        *err = why;
    return status;
}

/* Checks whether a layer partition is visited for the first time, and marks it
 * as visited. */
static bool is_new(const lhi_partition_refinement *m, const uint32_t *layers)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (uint32_t c = 0; c < m->p.n_chunks; c++)
        hash = (hash ^ layers[c]) * UINT64_C(1099511628211);
    hash |= 1;
    uint32_t at = (uint32_t)(hash >> 32) % SLOTS;
    while (m->visited[at] && m->visited[at] != hash)
        at = (at + 1) % SLOTS;
    if (m->visited[at])
        return false;
    m->visited[at] = hash;
    return true;
}

/* Adds a layer partition to the list of neighbours if its bound is below the
 * plan's objective value. Sets *ns to INT64_MAX ("not better"), so that the
 * enumeration continues. Partition callback. */
static lh_status add_neighbour(void *context, const uint32_t *layers,
                               int64_t useless_ns, int64_t *ns, lh_error *err)
{
    (void)useless_ns; /* the plan's value is the limit */
    lhi_partition_refinement *m = context;
    int64_t bound_ns;
    *ns = INT64_MAX;
    if (!m->left || m->n_bounds == MAX_PARTITIONS ||
        !lhi_partition_allows(&m->p, layers) || !is_new(m, layers))
        return LH_OK;
    m->n_bounds++;
    LHI_TRY(compute_bound(m, layers, &bound_ns, err));
    if (bound_ns == INT64_MAX ||
        lhi_objective_value_at(m->r->options, &m->base_choice, bound_ns) >=
            get_best_value(m))
        return LH_OK;
    LHI_TRY(ensure_capacity(m, err));
    uint32_t *own = LHI_NEW(m->mem, uint32_t, m->p.n_chunks);
    if (!own)
        return lhi_fail_nomem(err);
    memcpy(own, layers, m->p.n_chunks * sizeof *own);
    m->neighbours[m->n_neighbours++] =
        (lhi_partition_neighbour){own, bound_ns, m->nearest, false};
    return LH_OK;
}

/* Adds the layer partitions that differ from `layers` by a move of `step`
 * layers or, with `step` 0, by an exchange of two chunks. */
static lh_status collect_moves(lhi_partition_refinement *m, uint32_t step,
                               uint32_t *layers, lh_error *err)
{
    const uint32_t n = m->p.n_chunks;
    for (uint32_t a = 0; a < n; a++)
        for (uint32_t b = step ? 0 : a + 1; b < n && m->left; b++) {
            const uint32_t x = layers[a], y = layers[b];
            int64_t ns;
            if (a == b || (step ? x <= step : x == y))
                continue;
            layers[a] = step ? x - step : y;
            layers[b] = step ? y + step : x;
            LHI_TRY(add_neighbour(m, layers, INT64_MAX, &ns, err));
            layers[a] = x;
            layers[b] = y;
        }
    return LH_OK;
}

/* Adds the layer partitions one move away from `layers` to the neighbours: one
 * or two layers moved between chunks, or two chunks exchanged. */
static lh_status add_moved_partitions(lhi_partition_refinement *m,
                                      uint32_t *layers, lh_error *err)
{
    static const uint32_t steps[] = {1, 0, 2};
    for (int i = 0; i < (m->p.n_chunks > FEW_CHUNKS ? 1 : 3); i++)
        LHI_TRY(collect_moves(m, steps[i], layers, err));
    return LH_OK;
}

/* Returns the neighbouring partition with the least bound whose own neighbours
 * were not collected; NULL: none. */
static lhi_partition_neighbour *
find_next_to_expand(const lhi_partition_refinement *m)
{
    lhi_partition_neighbour *best = NULL;
    for (uint32_t i = 0; i < m->n_neighbours; i++) {
        lhi_partition_neighbour *o = &m->neighbours[i];
        if (!o->expanded && (!best || o->bound_ns < best->bound_ns))
            best = o;
    }
    return best;
}

/* Collects partition `layers`'s neighbours: all partitions if there are
 * few; otherwise those one move away, then those around the least bounds. */
static lh_status collect_neighbours(lhi_partition_refinement *m,
                                    uint32_t *layers, lh_error *err)
{
    int64_t ns = INT64_MAX;
    uint64_t all;
    lhi_partition_neighbour *next;
    m->visited = LHI_NEW(m->mem, uint64_t, SLOTS);
    if (!m->visited)
        return lhi_fail_nomem(err);
    LHI_TRY(lhi_partition_count(&m->p, &all, err));
    m->p.time = add_neighbour;
    m->p.context = m;
    m->nearest = true;
    m->n_bounds = 0;
    LHI_TRY(add_neighbour(m, layers, INT64_MAX, &ns, err));
    LHI_TRY(add_moved_partitions(m, layers, err));
    m->nearest = false;
    if (all <= MAX_PARTITIONS)
        return lhi_partition_exact(&m->p, layers, &ns, err);
    while (m->n_bounds < MAX_BOUNDS && m->left &&
           (next = find_next_to_expand(m))) {
        next->expanded = true;
        LHI_TRY(add_moved_partitions(m, next->layers, err));
    }
    return LH_OK;
}

/* Orders neighbouring partitions by lower bound, for qsort(). */
static int compare_bounds(const void *a, const void *b)
{
    const lhi_partition_neighbour *x = a, *y = b;
    return (x->bound_ns > y->bound_ns) - (x->bound_ns < y->bound_ns);
}

/* Sorts the neighbouring partitions by bound, and moves the first MAX_NEAREST
 * of those one move away to the front. */
static void sort_neighbours(lhi_partition_refinement *m)
{
    uint32_t n = 0;
    lhi_sort(m->neighbours, m->n_neighbours, sizeof *m->neighbours,
             compare_bounds);
    for (uint32_t i = 0; i < m->n_neighbours && n < MAX_NEAREST; i++) {
        const lhi_partition_neighbour o = m->neighbours[i];
        if (!o.nearest)
            continue;
        memmove(m->neighbours + n + 1, m->neighbours + n,
                (i - n) * sizeof *m->neighbours);
        m->neighbours[n++] = o;
    }
}

/* Inserts a partition into the list of contenders for the solver, sorted by
 * key; the list keeps the LHI_MAX_SOLVED least. */
static void insert_contender(lhi_partition_refinement *m,
                             const lhi_partition_contender *o)
{
    uint32_t at = m->n_contenders;
    if (at == LHI_MAX_SOLVED && o->key >= m->contenders[at - 1].key)
        return;
    if (at < LHI_MAX_SOLVED)
        m->n_contenders++;
    else
        at--;
    for (; at > 0 && m->contenders[at - 1].key > o->key; at--)
        m->contenders[at] = m->contenders[at - 1];
    m->contenders[at] = *o;
}

/* Evaluates a layer partition under every schedule method, into *o, a contender
 * for the solver; its value is INT64_MAX if no method works. */
static lh_status evaluate_partition(lhi_partition_refinement *m,
                                    const uint32_t *layers,
                                    lhi_partition_contender *o, lh_error *err)
{
    const lh_plan_options *options = m->r->options;
    *o = (lhi_partition_contender){.c = m->base, .value = INT64_MAX};
    o->c.config.layers = layers;
    m->s.best_ns = m->r->plan->best.iteration_ns;
    m->s.best_value = get_best_value(m);
    LHI_TRY(lhi_candidate_compute_bound(&m->s, &o->c, err));
    if (o->c.bound_ns == INT64_MAX)
        return LH_OK;
    LHI_TRY(lhi_candidate_evaluate(&m->s, &o->c, err));
    lhi_partition_refinement_spend(
        m, LHI_SLOW_FACTOR * lhi_estimate_schedule_work(&o->c.config, false));
    if (!lhi_candidate_is_feasible(&o->c))
        return LH_OK;
    o->value = lhi_objective_value(options, &o->c.choice);
    /* The solver's result lies between both, mostly closer to the bound. */
    o->key = lhi_objective_value_at(
        options, &o->c.choice,
        o->c.bound_ns + (o->c.choice.iteration_ns - o->c.bound_ns) / 2);
    return LH_OK;
}

/* Evaluates the neighbouring partitions with the least bounds under every
 * method, and stores those close to the plan as contenders for the solver. */
static lh_status evaluate_neighbours(lhi_partition_refinement *m, lh_error *err)
{
    const lh_choice *best = &m->r->plan->best;
    const uint64_t end = m->left - m->left / EVALUATION_DIVISOR;
    m->n_contenders = 0;
    sort_neighbours(m);
    for (uint32_t i = 0; i < m->n_neighbours &&
                         !lhi_partition_refinement_is_over(m) && m->left > end;
         i++) {
        lhi_partition_contender o;
        LHI_TRY(evaluate_partition(m, m->neighbours[i].layers, &o, err));
        if (o.value < INT64_MAX &&
            lhi_compute_relative_gap(m->r->options, &o.c.choice, best) <=
                SOLVED_RATIO - 1)
            insert_contender(m, &o);
    }
    return LH_OK;
}

/* --- solves ------------------------------------------------------------- */

/* Copies the layers per chunk of `row` to the plan's memory and lets `row`
 * refer to the copy. */
static lh_status keep_layers(const lhi_partition_refinement *m, lh_choice *row,
                             lh_error *err)
{
    const uint32_t n = m->p.n_chunks;
    uint32_t *own = LHI_NEW(m->r->mem, uint32_t, n);
    if (!own)
        return lhi_fail_nomem(err);
    memcpy(own, row->chunk_layers, n * sizeof *own);
    row->chunk_layers = own;
    return LH_OK;
}

/* Optimises the schedule of a contender (neighbouring partition) with the
 * solver, with work limit `effort`. *won: it became the plan. why[0..room-1]
 * receives the bound's text. */
static lh_status solve_contender(lhi_partition_refinement *m,
                                 lhi_partition_contender *o, uint64_t effort,
                                 bool *won, char *why, size_t room,
                                 lh_error *err)
{
    lhi_refinement *r = m->r;
    lhi_built_layout built;
    lh_schedule *schedule = NULL, *better = NULL;
    lh_choice row;
    char its_why[160] = "";
    *won = false;
    if (o->value >= get_best_value(m) &&
        lhi_refinement_was_solved(r, &o->c.choice, effort))
        return LH_OK;
    LHI_TRY(lhi_layout_build(r->job, &o->c.config, &built, err));
    lh_status status = LH_OK;
    if (o->value < get_best_value(m)) /* its method's schedule is the plan's */
        status = lhi_candidate_run_methods(&m->s, &o->c, &built, &schedule,
                                           NULL, NULL, err);
    row = o->c.choice;
    const uint64_t before = r->spent;
    if (status == LH_OK)
        status = lhi_refinement_improve(r, built.pipeline, effort, &row,
                                        &better, its_why, sizeof its_why, err);
    if (better) {
        lh_schedule_free(schedule);
        schedule = better;
    }
    if (status == LH_OK)
        lhi_refinement_record_solve(r, &o->c.choice, &row, effort);
    lhi_partition_refinement_spend(
        m, r->spent - before + lhi_estimate_pipeline_work(&o->c.config));
    *won = status == LH_OK && schedule &&
           lhi_objective_value(r->options, &row) < get_best_value(m);
    if (*won)
        status = keep_layers(m, &row, err);
    if (*won && status == LH_OK) {
        row.why = "";
        snprintf(why, room, "%s", its_why[0] ? its_why : o->c.bound_text);
        r->changed = true;
        return lhi_refinement_replace_best(r, &row, &built, schedule, err);
    }
    lh_schedule_free(schedule);
    lh_pipeline_free(built.pipeline);
    return status;
}

/* Optimises the schedules of the contenders (neighbouring partitions) with the
 * solver: each with work limit `effort`, then the fastest with a larger limit.
 * *won: a contender became the plan; why[0..room-1] then states how near its
 * schedule is to its lower bound. */
static lh_status solve_contenders(lhi_partition_refinement *m, uint64_t effort,
                                  bool *won, char *why, size_t room,
                                  lh_error *err)
{
    const uint64_t end = m->left - m->left / SOLVE_DIVISOR;
    uint32_t most = LHI_MAX_SOLVED;
    for (int level = 0; level < LEVELS; level++) {
        for (uint32_t i = 0; i < m->n_contenders && i < most; i++) {
            if (lhi_partition_refinement_is_over(m) || m->left <= end)
                return LH_OK;
            LHI_TRY(solve_contender(m, &m->contenders[i], effort, won, why,
                                    room, err));
            if (*won)
                return LH_OK;
        }
        most /= FEWER;
        effort *= GROWTH;
    }
    return LH_OK;
}

/* Returns the solver's work limit after a search with `effort` without gain. */
static uint64_t next_effort(uint64_t effort)
{
    for (int i = 0; i < LEVELS; i++)
        effort *= GROWTH;
    return effort;
}

/* Prepares the search over layer partitions for `from`'s layout. *layers: that
 * layout's own partition; NULL if it has no others. */
static lh_status begin_partitions(lhi_partition_refinement *m,
                                  const lh_choice *from, uint32_t **layers,
                                  lh_error *err)
{
    const lh_job *job = m->r->job;
    const lhi_config config = lhi_config_from_choice(from);
    const uint32_t n = config.layout.pipeline * config.layout.chunks_per_device;
    *layers = NULL;
    m->n_neighbours = m->room = m->n_contenders = 0;
    m->base = (lhi_candidate){.config = config, .from_local_search = true};
    m->base_choice = *from;
    m->p =
        (lhi_partition){.n_layers = job->model->layers,
                        .n_chunks = n,
                        .max_ratio = lhi_layer_partition_ratio(m->r->options)};
    if (!lhi_layer_partition_has_alternatives(job, &config, m->r->options))
        return LH_OK;
    uint32_t *own = LHI_NEW(m->mem, uint32_t, n);
    if (!own)
        return lhi_fail_nomem(err);
    for (uint32_t c = 0; c < n; c++) {
        uint32_t first;
        lhi_config_layers(job->model->layers, &config, c, &first, &own[c]);
    }
    *layers = own;
    return LH_OK;
}

/* Searches the neighbouring layer partitions of plan candidate `from` for a
 * better plan. *won: one became the plan. `effort`: the solver's work limit;
 * why[0..room-1]: how near its schedule is to its lower bound. */
static lh_status try_neighbours(lhi_partition_refinement *m,
                                const lh_choice *from, uint64_t effort,
                                bool *won, char *why, size_t room,
                                lh_error *err)
{
    uint32_t *layers;
    *won = false;
    const lhi_mark mark = lhi_arena_mark(m->mem);
    LHI_TRY(begin_partitions(m, from, &layers, err));
    const uint64_t passes =
        3 * (uint64_t)m->p.n_chunks * m->base.config.microbatches;
    if (!layers || effort < TICKS_PER_PASS * passes)
        return LH_OK;
    LHI_TRY(lhi_build_cache_make(&m->known, err));
    lh_status status = lhi_partition_refinement_climb(
        m, from, m->left / RESTART_DIVISOR, layers, err);
    if (status == LH_OK)
        status = collect_neighbours(m, layers, err);
    lhi_build_cache_free(m->known);
    if (status == LH_OK)
        status = evaluate_neighbours(m, err);
    if (status == LH_OK)
        status = solve_contenders(m, effort, won, why, room, err);
    lhi_arena_rewind(m->mem, mark);
    return status;
}

/* Checks whether two plan candidates have the same degrees and chunks or, by
 * equal times and bounds, equal pipelines: their best layer partitions then
 * hardly differ. */
static bool has_same_chunks(const lh_choice *a, const lh_choice *b)
{
    const lh_layout *x = &a->layout, *y = &b->layout;
    if (a->iteration_ns == b->iteration_ns &&
        a->lower_bound_ns == b->lower_bound_ns)
        return true;
    return x->tensor == y->tensor && x->pipeline == y->pipeline &&
           x->data == y->data && x->micro_batch == y->micro_batch &&
           x->chunks_per_device == y->chunks_per_device &&
           a->placement == b->placement;
}

/* Checks whether the plan, or an alternative before the i-th, has the same
 * chunks as alternative `i`. */
static bool is_tried(const lh_plan *p, uint32_t i)
{
    const lh_choice *c = &p->alternatives[i];
    bool tried = has_same_chunks(c, &p->best);
    for (uint32_t k = 0; k < i && !tried; k++)
        tried = has_same_chunks(c, &p->alternatives[k]);
    return tried;
}

/* Improves the layer partition of alternative `i` by climbs from random changes
 * within m->left. *won: it became the plan; `effort`: the solver's work limit
 * then; why[0..room-1]: the bound's text. */
static lh_status climb_alternative(lhi_partition_refinement *m, uint32_t i,
                                   uint64_t effort, bool *won, char *why,
                                   size_t room, lh_error *err)
{
    lh_plan *p = m->r->plan;
    lh_choice *c = (lh_choice *)&p->alternatives[i];
    const lh_choice before = p->best;
    uint32_t *layers;
    LHI_TRY(begin_partitions(m, c, &layers, err));
    if (!layers)
        return LH_OK;
    LHI_TRY(lhi_build_cache_make(&m->known, err));
    lh_status status =
        lhi_partition_refinement_climb(m, c, m->left, layers, err);
    lhi_build_cache_free(m->known);
    LHI_TRY(status);
    lhi_partition_contender o;
    LHI_TRY(evaluate_partition(m, layers, &o, err));
    if (o.value >= lhi_objective_value(m->r->options, c))
        return LH_OK;
    if (o.value < get_best_value(m))
        LHI_TRY(solve_contender(m, &o, effort, won, why, room, err));
    if (*won) {
        *c = before; /* the layouts change places */
        return LH_OK;
    }
    *c = o.c.choice;
    c->why = "";
    m->r->changed = true;
    return keep_layers(m, c, err);
}

/* Improves the layer partitions of the plan's closest alternatives with other
 * chunks under one method each, in addition to the other steps' work. The
 * searches before climb from fewer starts, and one partition may be ahead of
 * another layout's by chance. `effort`: the solver's work limit for a new plan;
 * why[0..room-1]: the bound's text. */
static lh_status climb_alternatives(lhi_partition_refinement *m,
                                    uint64_t effort, char *why, size_t room,
                                    lh_error *err)
{
    const lh_plan *p = m->r->plan;
    const uint64_t left = m->left;
    for (uint32_t i = 0, n = 0; i < p->n_alternatives && n < MAX_CLIMBED &&
                                !lhi_partition_refinement_is_done(m);
         i++) {
        const lh_choice *c = &p->alternatives[i];
        bool won = false;
        if (c->status != LH_CHOICE_OK || c->elastic || is_tried(p, i))
            continue;
        if (lhi_compute_relative_gap(m->r->options, c, &p->best) >
            SOLVED_RATIO - 1)
            break;
        n++;
        const lhi_mark mark = lhi_arena_mark(m->mem);
        m->left = m->given / CLIMB_DIVISOR;
        LHI_TRY(climb_alternative(m, i, effort, &won, why, room, err));
        m->left = left;
        lhi_arena_rewind(m->mem, mark);
    }
    lhi_sort_choices(m->r->options, (lh_choice *)p->alternatives,
                     p->n_alternatives);
    return LH_OK;
}

/* Searches the neighbouring layer partitions of the plan, then those of its
 * closest alternatives with other chunks. *won: one became the plan. `effort`:
 * the solver's work limit; why[0..room-1]: the bound's text. */
static lh_status try_all(lhi_partition_refinement *m, uint64_t effort,
                         bool *won, char *why, size_t room, lh_error *err)
{
    const lh_plan *p = m->r->plan;
    LHI_TRY(try_neighbours(m, &p->best, effort, won, why, room, err));
    uint32_t bases = 1;
    for (uint32_t i = 0; i < p->n_alternatives && bases < MAX_BASES && !*won &&
                         !lhi_partition_refinement_is_over(m);
         i++) {
        const lh_choice *c = &p->alternatives[i], before = p->best;
        if (c->status != LH_CHOICE_OK || c->elastic || is_tried(p, i))
            continue;
        if (lhi_compute_relative_gap(m->r->options, c, &before) >
            SOLVED_RATIO - 1)
            break;
        bases++;
        LHI_TRY(try_neighbours(m, c, effort, won, why, room, err));
        if (*won) /* the layouts change places */
            ((lh_choice *)p->alternatives)[i] = before;
    }
    return LH_OK;
}

/* Searches once more, with the first work, the neighbouring layer partitions of
 * the closest alternative with other chunks, if it is within the tolerance: a
 * plan that is ahead by less may be so by chance. `effort`: the solver's first
 * work limit; why[0..room-1]: the bound's text. */
static lh_status try_closest(lhi_partition_refinement *m, uint64_t effort,
                             char *why, size_t room, lh_error *err)
{
    const lh_plan *p = m->r->plan;
    const lh_choice before = p->best;
    uint32_t i = 0;
    while (i < p->n_alternatives &&
           (p->alternatives[i].status != LH_CHOICE_OK ||
            p->alternatives[i].elastic || is_tried(p, i)))
        i++;
    if (i == p->n_alternatives ||
        lhi_compute_relative_gap(m->r->options, &p->alternatives[i], &before) >=
            LHI_PARTITION_TOLERANCE)
        return LH_OK;
    m->left = lhi_compute_layout_work(m->r->options) >> DOUBLINGS;
    bool won = false;
    for (; !won && effort <= m->left && !lhi_partition_refinement_is_done(m);
         effort = next_effort(effort))
        LHI_TRY(try_neighbours(m, &p->alternatives[i], effort, &won, why, room,
                               err));
    if (won) /* the layouts change places */
        ((lh_choice *)p->alternatives)[i] = before;
    return LH_OK;
}

/* Searches layer partitions under optimised schedules for the plan's layout and
 * its closest alternatives; repeats with more effort as long as work is left.
 */
static lh_status search_partitions(lhi_refinement *r,
                                   lhi_evaluation_cache *tried, char *why,
                                   size_t room, lh_error *err)
{
    const uint64_t first = lhi_refinement_effort(r) / FIRST_DIVISOR;
    uint64_t effort = first;
    const uint64_t given = lhi_compute_layout_work(r->options) >> DOUBLINGS;
    lhi_partition_refinement m = {.r = r,
                                  .s = {.job = r->job,
                                        .options = *r->options,
                                        .mem = r->mem,
                                        .evaluation_cache = tried},
                                  .left = given,
                                  .given = given,
                                  .seed = 1,
                                  .best_at_start = r->plan->best};
    m.mem = lhi_arena_make(0);
    lh_status status = m.mem ? LH_OK : lhi_fail_nomem(err);
    if (status == LH_OK && effort > 0 && !lhi_partition_refinement_is_done(&m))
        status = climb_alternatives(&m, effort, why, room, err);
    while (status == LH_OK && effort > 0 &&
           !lhi_partition_refinement_is_done(&m)) {
        bool won = false, gained = true;
        if (effort > m.left && !add_work(&m, &gained))
            break;
        if (!gained) { /* other random changes, rather than longer solves */
            m.seed++;
            effort = first;
        }
        status = try_all(&m, effort, &won, why, room, err);
        if (!won)
            effort = next_effort(effort);
    }
    if (status == LH_OK && effort > 0)
        status = try_closest(&m, first, why, room, err);
    lhi_arena_free(m.mem);
    return status;
}

lh_status lhi_plan_refine(const lh_job *job, const lh_plan_options *options,
                          const lhi_best_per_value *heads, lhi_arena *mem,
                          lhi_evaluation_cache *tried, lh_plan *plan,
                          lh_error *err)
{
    lhi_refinement r = {
        .job = job, .options = options, .mem = mem, .plan = plan};
    char why[160] = "";
    if (options->no_optimal || options->quick ||
        !lhi_target_accepts_any_order(job->target, 0) ||
        lhi_schedule_requested(job) == LHI_REQUEST_METHOD)
        return LH_OK;
    LHI_TRY(lhi_refinement_improve_known(&r, heads, why, sizeof why, err));
    if (!plan->best.elastic)
        LHI_TRY(search_partitions(&r, tried, why, sizeof why, err));
    return lhi_refinement_finish(&r, why, err);
}
