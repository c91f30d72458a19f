/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/search/front.h"

#include "base/sort.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Limit relative to the fastest iteration on a front. */
static const double TIMES = 4;

lhi_front_point lhi_point_of(const lh_choice *choice)
{
    return (lhi_front_point){choice->iteration_ns, choice->peak_memory_bytes,
                             choice->cost ? choice->cost->usd : 0};
}

bool lhi_point_covers(const lhi_front_point *a, const lhi_front_point *b)
{
    return a->iteration_ns <= b->iteration_ns &&
           a->memory_bytes <= b->memory_bytes && a->usd <= b->usd;
}

bool lhi_front_covers(const lhi_front *front, const lhi_front_point *point)
{
    for (uint32_t i = 0; i < front->n; i++) {
        lhi_front_point here = lhi_point_of(&front->all[i]);
        if (lhi_point_covers(&here, point))
            return true;
    }
    return false;
}

static lh_status grow(lhi_front *f, lh_error *err)
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

/* Copies the layers; successive partitions share their memory. */
static lh_status keep_layers(lhi_front *f, lh_choice *choice, lh_error *err)
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

lh_status lhi_front_add(lhi_front *f, const lh_choice *choice, lh_error *err)
{
    lhi_front_point point = lhi_point_of(choice);
    lh_choice own = *choice;
    uint32_t kept = 0;
    if (choice->status != LH_CHOICE_OK || lhi_front_covers(f, &point))
        return LH_OK;
    LHI_TRY(grow(f, err));
    LHI_TRY(keep_layers(f, &own, err));
    for (uint32_t i = 0; i < f->n; i++) {
        lhi_front_point here = lhi_point_of(&f->all[i]);
        if (!lhi_point_covers(&point, &here))
            f->all[kept++] = f->all[i];
    }
    f->all[kept++] = own;
    f->n = kept;
    return LH_OK;
}

static int compare(const void *a, const void *b)
{
    lhi_front_point x = lhi_point_of(a), y = lhi_point_of(b);
    if (x.iteration_ns != y.iteration_ns)
        return x.iteration_ns < y.iteration_ns ? -1 : 1;
    if (x.memory_bytes != y.memory_bytes)
        return x.memory_bytes < y.memory_bytes ? -1 : 1;
    return (x.usd > y.usd) - (x.usd < y.usd);
}

/* Drops slow entries from the list, which is sorted by time. Very slow choices
 * are numerous and seldom useful on a front. */
static void leave_slow(double times, lhi_front *f, lh_plan *plan)
{
    double most = (times > 0 ? times : TIMES) * (double)f->all[0].iteration_ns;
    uint32_t n = f->n;
    most = fmax(most, (double)plan->best.iteration_ns);
    while (n > 1 && (double)f->all[n - 1].iteration_ns > most)
        n--;
    plan->n_front_slow = f->n - n;
    f->n = n;
}

lh_status lhi_front_finish(double times, lhi_arena *mem, lh_plan *plan,
                           lh_error *err)
{
    lhi_front f = {.mem = mem,
                   .n = plan->n_front,
                   .room = plan->n_front,
                   .all = (lh_choice *)plan->front};
    LHI_TRY(lhi_front_add(&f, &plan->best, err));
    for (uint32_t i = 0; i < plan->n_alternatives; i++)
        LHI_TRY(lhi_front_add(&f, &plan->alternatives[i], err));
    if (f.n)
        lhi_sort(f.all, f.n, sizeof *f.all, compare);
    if (f.n)
        leave_slow(times, &f, plan);
    if (f.n > LHI_MOST_FRONT) {
        f.n = LHI_MOST_FRONT;
        plan->front_whole = false;
    }
    for (uint32_t i = 0; i < f.n; i++)
        f.all[i].why = "";
    plan->front = f.all;
    plan->n_front = f.n;
    return LH_OK;
}
