/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/search/pareto_front.h"

#include "base/sort.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* An entry near the fastest takes at most this many times as long. */
static const double NEAR_FACTOR = 1.01;
/* Limit relative to the fastest iteration on a front. */
static const double SLOW_FACTOR = 4;

lhi_pareto_point lhi_pareto_point_of(const lh_choice *choice)
{
    return (lhi_pareto_point){choice->iteration_ns, choice->peak_memory_bytes,
                              choice->cost ? choice->cost->usd : 0};
}

bool lhi_pareto_point_covers(const lhi_pareto_point *a,
                             const lhi_pareto_point *b)
{
    return a->iteration_ns <= b->iteration_ns &&
           a->memory_bytes <= b->memory_bytes && a->usd <= b->usd;
}

bool lhi_pareto_front_covers(const lhi_pareto_front *front,
                             const lhi_pareto_point *point)
{
    for (uint32_t i = 0; i < front->n; i++) {
        lhi_pareto_point here = lhi_pareto_point_of(&front->all[i]);
        if (lhi_pareto_point_covers(&here, point))
            return true;
    }
    return false;
}

/* Grows the array of the front's plan candidates if it has no free entry for
 * one more. */
static lh_status ensure_capacity(lhi_pareto_front *f, lh_error *err)
{
    if (f->n < f->room)
        return LH_OK;
    uint32_t room = f->room ? 2 * f->room : 32;
    lh_choice *more = LHI_NEW(f->mem, lh_choice, room);
    if (!more)
        return lhi_fail_nomem(err);
    if (f->n)
        memcpy(more, f->all, f->n * sizeof *more);
    f->all = more;
    f->room = room;
    return LH_OK;
}

/* Copies a plan candidate's layers per chunk into the front's arena, because
 * successive partitions share their memory. */
static lh_status keep_layers(lhi_pareto_front *f, lh_choice *choice,
                             lh_error *err)
{
    size_t n =
        (size_t)choice->layout.pipeline * choice->layout.chunks_per_device;
    if (!choice->chunk_layers)
        return LH_OK;
    uint32_t *layers = LHI_NEW(f->mem, uint32_t, n);
    if (!layers)
        return lhi_fail_nomem(err);
    memcpy(layers, choice->chunk_layers, n * sizeof *layers);
    choice->chunk_layers = layers;
    return LH_OK;
}

lh_status lhi_pareto_front_add(lhi_pareto_front *f, const lh_choice *choice,
                               lh_error *err)
{
    lhi_pareto_point point = lhi_pareto_point_of(choice);
    lh_choice own = *choice;
    uint32_t kept = 0;
    if (choice->status != LH_CHOICE_OK || lhi_pareto_front_covers(f, &point))
        return LH_OK;
    LHI_TRY(ensure_capacity(f, err));
    LHI_TRY(keep_layers(f, &own, err));
    for (uint32_t i = 0; i < f->n; i++) {
        lhi_pareto_point here = lhi_pareto_point_of(&f->all[i]);
        if (!lhi_pareto_point_covers(&point, &here))
            f->all[kept++] = f->all[i];
    }
    f->all[kept++] = own;
    f->n = kept;
    return LH_OK;
}

/* Orders plan candidates by iteration time, then memory, then cost. */
static int compare_choices(const void *a, const void *b)
{
    lhi_pareto_point x = lhi_pareto_point_of(a), y = lhi_pareto_point_of(b);
    if (x.iteration_ns != y.iteration_ns)
        return x.iteration_ns < y.iteration_ns ? -1 : 1;
    if (x.memory_bytes != y.memory_bytes)
        return x.memory_bytes < y.memory_bytes ? -1 : 1;
    return (x.usd > y.usd) - (x.usd < y.usd);
}

/* Removes the slowest plan candidates from the front, which is sorted by time:
 * they are numerous and seldom useful. Keeps those within `times` (0: the
 * default) times the fastest, or as fast as the plan. Their number goes to
 * `plan`. */
static void drop_slow(double times, lhi_pareto_front *f, lh_plan *plan)
{
    double most =
        (times > 0 ? times : SLOW_FACTOR) * (double)f->all[0].iteration_ns;
    uint32_t n = f->n;
    most = fmax(most, (double)plan->best.iteration_ns);
    while (n > 1 && (double)f->all[n - 1].iteration_ns > most)
        n--;
    plan->n_pareto_slow = f->n - n;
    f->n = n;
}

/* Adds the plan and every candidate that it lists beside the front, with their
 * costs: later searches than the front's found some of them. */
static lh_status add_listed(lhi_pareto_front *f, const lh_plan *plan,
                            lh_error *err)
{
    LHI_TRY(lhi_pareto_front_add(f, &plan->best, err));
    for (uint32_t i = 0; i < plan->n_methods; i++)
        LHI_TRY(lhi_pareto_front_add(f, &plan->methods[i], err));
    for (uint32_t i = 0; i < plan->n_alternatives; i++)
        LHI_TRY(lhi_pareto_front_add(f, &plan->alternatives[i], err));
    for (uint32_t i = 0; i < plan->n_dimension_alternatives; i++)
        LHI_TRY(lhi_pareto_front_add(
            f, &plan->dimension_alternatives[i].choice, err));
    for (uint32_t i = 0; i < plan->n_idle; i++)
        if (plan->idle[i].best)
            LHI_TRY(lhi_pareto_front_add(f, plan->idle[i].best, err));
    if (plan->margin && plan->margin->best)
        LHI_TRY(lhi_pareto_front_add(f, plan->margin->best, err));
    return LH_OK;
}

lh_status lhi_pareto_front_finish(double times, lhi_arena *mem, lh_plan *plan,
                                  lh_error *err)
{
    lhi_pareto_front f = {.mem = mem,
                          .n = plan->n_pareto,
                          .room = plan->n_pareto,
                          .all = (lh_choice *)plan->pareto_front};
    LHI_TRY(add_listed(&f, plan, err));
    if (f.n)
        lhi_sort(f.all, f.n, sizeof *f.all, compare_choices);
    if (f.n)
        drop_slow(times, &f, plan);
    if (f.n > LHI_MAX_PARETO_FRONT) {
        f.n = LHI_MAX_PARETO_FRONT;
        plan->pareto_complete = false;
    }
    for (uint32_t i = 0; i < f.n; i++)
        f.all[i].why = "";
    plan->pareto_front = f.all;
    plan->n_pareto = f.n;
    lhi_pareto_front_find_knee(plan, &plan->pareto_knee, &plan->pareto_near);
    return LH_OK;
}

void lhi_pareto_front_find_knee(const lh_plan *plan, uint32_t *knee,
                                uint32_t *near)
{
    const lh_choice *all = plan->pareto_front;
    *knee = *near = 0;
    for (uint32_t i = 0; i < plan->n_pareto; i++) {
        if (!all[i].cost)
            continue;
        const double ns = (double)all[i].iteration_ns;
        const double usd = all[i].cost->usd;
        if (ns * usd < (double)all[*knee].iteration_ns * all[*knee].cost->usd)
            *knee = i;
        if (ns <= NEAR_FACTOR * (double)all[0].iteration_ns &&
            usd < all[*near].cost->usd)
            *near = i;
    }
}
