/* SPDX-License-Identifier: Apache-2.0 */
/* Forward-backward improvement (Valls, Ballestin and Quintanilla,
 * "Justification and RCPSP: a technique that pays", 2005) with active rather
 * than serial schedules. Operations that start late in a schedule go first in
 * one built from the end; operations that start early in that one go first in
 * one built from the beginning. Each time the due dates are perturbed slightly:
 * everywhere or in a time interval, per operation or per stream. */
#include "schedule/solver/improve/justification.h"

#include "schedule/solver/improve/dispatch.h"
#include "schedule/solver/model/mirror.h"

#include <string.h>

/* Kinds of operations; steps of a random walk before it restarts at the best
 * schedule. */
enum { N_KINDS = LHI_SCATTER + 1, WALK_STEPS = 8 };

/* State for forward-backward improvement. */
struct lhi_justifier {
    lhi_arena *mem;
    const lhi_shop *shop;
    lhi_machine_orders *orders, *back; /* for the job shop and its mirror */
    int64_t *due, mean;
    uint64_t rng;
};

/* Scopes of a perturbation. */
typedef enum perturbation_kind {
    PERTURB_OPERATIONS,
    PERTURB_KINDS, /* all F, all D, ... */
    PERTURB_STREAMS,
    N_PERTURBATIONS,
    PERTURB_NOTHING
} perturbation_kind;

/* A perturbation of the due dates. */
typedef struct perturbation {
    perturbation_kind kind;
    int64_t most;     /* maximum change */
    int64_t from, to; /* operations that end in this interval */
} perturbation;

/* Returns the next 64 random bits. */
static uint64_t draw(lhi_justifier *j) /* splitmix64 */
{
    uint64_t z = j->rng += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Returns a random number less than n; 0 if n is not positive. */
static int64_t draw_below(lhi_justifier *j, int64_t n)
{
    return n > 0 ? (int64_t)(draw(j) % (uint64_t)n) : 0;
}

/* Returns a random number in -most..most. */
static int64_t draw_change(lhi_justifier *j, int64_t most)
{
    return draw_below(j, 2 * most + 1) - most;
}

lh_status lhi_justifier_make(const lhi_shop *shop, lhi_arena *mem,
                             lhi_justifier **out, lh_error *err)
{
    *out = NULL;
    for (uint32_t m = 0; m < shop->n_machines; m++)
        if (shop->machines[m].leader != NONE)
            return LH_OK;
    lhi_justifier *j = LHI_NEW(mem, lhi_justifier, 1);
    if (!j)
        return lhi_fail_nomem(err);
    *j = (lhi_justifier){.mem = mem, .shop = shop};
    j->due = LHI_NEW(mem, int64_t, shop->n_ops);
    if (!j->due)
        return lhi_fail_nomem(err);
    for (uint32_t o = 0; o < shop->n_ops; o++)
        j->mean += shop->time[o];
    j->mean = j->mean / shop->n_ops + 1;
    lhi_shop *mirror;
    LHI_TRY(lhi_mirror_make(shop, mem, &mirror, err));
    LHI_TRY(lhi_machine_orders_make(shop, mem, &j->orders, err));
    LHI_TRY(lhi_machine_orders_make(mirror, mem, &j->back, err));
    *out = j;
    return LH_OK;
}

/* --- due dates ------------------------------------------------------------ */

/* Draws a random perturbation of due dates: its kind, its size, and the time
 * interval of the schedule that it affects. `span`: the schedule's makespan. */
static perturbation draw_perturbation(lhi_justifier *j, int64_t span)
{
    perturbation k = {.kind = (perturbation_kind)draw_below(j, N_PERTURBATIONS),
                      .most = j->mean * (1 + draw_below(j, 24)) / 8,
                      .to = FAR};
    if (draw_below(j, 4) > 0) {
        int64_t length = span / (2 + draw_below(j, 20));
        k.from = draw_below(j, span - length);
        k.to = k.from + length;
    }
    return k;
}

/* Computes due[op] for dispatching in the opposite direction of time:
 * operations in order of their starts in `from`, last first. `span`: makespan
 * of `from`; `k`: perturbation of the due dates. */
static void fill_due_dates(lhi_justifier *j, const lhi_machine_orders *from,
                           int64_t span, const perturbation *k)
{
    const lhi_shop *s = j->shop;
    int64_t by_kind[N_KINDS] = {0};
    for (uint32_t i = 0; k->kind == PERTURB_KINDS && i < N_KINDS; i++)
        by_kind[i] = draw_change(j, k->most);
    for (uint32_t i = 0; i < s->n_streams; i++) {
        const lhi_stream *t = &s->streams[i];
        int64_t add = by_kind[t->kind];
        if (k->kind == PERTURB_STREAMS)
            add = draw_change(j, k->most);
        for (uint32_t o = t->first; o < t->first + t->count; o++) {
            int64_t due = span - from->end[o] + s->time[o];
            if (k->kind == PERTURB_OPERATIONS)
                add = draw_change(j, k->most);
            if (from->end[o] >= k->from && from->end[o] <= k->to)
                due += add;
            j->due[lhi_mirror_get_operation(s, o)] = due;
        }
    }
}

/* Builds machine orders `to` by dispatching with due dates from the orders
 * `from`, whose makespan is `span`, perturbed by `k`. *time: the objective of
 * `to`, or -1 if memory blocked it. */
static lh_status dispatch_from(lhi_justifier *j, const lhi_machine_orders *from,
                               int64_t span, const perturbation *k,
                               lhi_machine_orders *to, int64_t *time,
                               lh_error *err)
{
    bool ok = false;
    fill_due_dates(j, from, span, k);
    LHI_TRY(lhi_dispatch_by_due_date(to, j->due, &ok, j->mem, err));
    *time = ok ? lhi_machine_orders_evaluate(to) : -1;
    return LH_OK;
}

/* Copies the machine orders `orders` to `best` if their makespan `time` is
 * valid and shorter than *best_time; returns whether it did. */
static bool keep_better(lhi_machine_orders *best, int64_t *best_time,
                        const lhi_machine_orders *orders, int64_t time)
{
    if (time < 0 || time >= *best_time)
        return false;
    *best_time = time;
    lhi_machine_orders_copy(best, orders);
    lhi_machine_orders_evaluate(best);
    return true;
}

/* Builds schedules alternately backward and forward in time, with due dates
 * from the previous one, until the work limit how->ticks. Stores a better
 * schedule in `best` and its objective in *best_time. */
static lh_status justify(lhi_justifier *j, lhi_machine_orders *best,
                         int64_t *best_time,
                         const lhi_justification_options *how,
                         lhi_budget *budget, lh_error *err)
{
    const uint64_t each = j->shop->n_ops / 8 + 1;
    const uint64_t end = budget->used + how->ticks;
    const perturbation still = {.kind = PERTURB_NOTHING};
    const lhi_machine_orders *now = best;
    int64_t span = *best_time;
    j->rng = how->seed;
    for (uint32_t since = 0; *best_time > how->target;) {
        int64_t back, turned = -1, time = -1;
        perturbation k = since == 0 ? still : draw_perturbation(j, span);
        LHI_TRY(dispatch_from(j, now, span, &k, j->back, &back, err));
        if (lhi_budget_spend(budget, each))
            break;
        if (back >= 0) {
            lhi_mirror_convert_orders(j->orders, j->back);
            turned = lhi_machine_orders_evaluate(j->orders);
        }
        bool better = keep_better(best, best_time, j->orders, turned);
        if (back >= 0)
            LHI_TRY(
                dispatch_from(j, j->back, back, &still, j->orders, &time, err));
        better = keep_better(best, best_time, j->orders, time) || better;
        since = better ? 0 : since + 1;
        if (lhi_budget_spend(budget, each) || budget->used >= end ||
            (how->unperturbed && !better))
            break;
        /* Walk a few steps away from the best. */
        bool home = better || since % WALK_STEPS == 0 || time < 0;
        now = home ? best : j->orders;
        span = home ? *best_time : time;
    }
    return LH_OK;
}

lh_status lhi_justifier_run(lhi_justifier *j, lhi_machine_orders *best,
                            int64_t *best_time,
                            const lhi_justification_options *how,
                            lhi_budget *budget, lh_error *err)
{
    if (!lhi_budget_is_engine_enabled(budget, LHI_ENGINE_JUSTIFICATION))
        return LH_OK;
    const lhi_engine before =
        lhi_budget_enter_engine(budget, LHI_ENGINE_JUSTIFICATION);
    lh_status status = justify(j, best, best_time, how, budget, err);
    lhi_budget_restore_engine(budget, before);
    return status;
}

lh_status lhi_justifier_run_unperturbed(lhi_justifier *j,
                                        lhi_machine_orders *best,
                                        int64_t *best_time, uint64_t seed,
                                        int64_t target, lhi_budget *budget,
                                        lh_error *err)
{
    lhi_justification_options how = {.seed = seed,
                                     .ticks = UINT64_MAX / 2,
                                     .target = target,
                                     .unperturbed = true};
    return j ? lhi_justifier_run(j, best, best_time, &how, budget, err) : LH_OK;
}
