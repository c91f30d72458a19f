/* SPDX-License-Identifier: Apache-2.0 */
/* Destroy and repair. Departure order determines the meeting costs in the rest
 * of a schedule, and a schedule with a good first half deserves a different
 * end. Therefore most insertion cycles keep the first microbatches of the
 * incumbent, or of an improved schedule with fewer microbatches. The result is
 * improved from both ends. */
#include "schedule/solver/improve/destroy_repair.h"

#include "base/fail.h"
#include "base/random.h"
#include "schedule/solver/improve/justification.h"
#include "schedule/solver/improve/reduction.h"

enum {
    JUSTIFY_DIVISOR = 200,  /* justify results within best / 200 */
    CYCLES_FROM_BEST = 4,   /* of 8 cycles: keep part of the best */
    CYCLES_FROM_REDUCED = 3 /* of 8: part of a reduced schedule; else nothing */
};

/* State for destroy and repair. */
struct lhi_repairer {
    lhi_inserter *inserters[2]; /* from the first microbatch, or the last */
    uint32_t turn;              /* inserter to use next */
    lhi_justifier *justifier;
    lhi_machine_orders *found;
    int64_t *start; /* starts in the best, per operation */
    lhi_random random;
};

/* Draws a random reduced problem with a known schedule for *m < n
 * microbatches; NULL: there is none. */
static const lhi_reduced_problem *
draw_reduced_problem(lhi_repairer *a, const lhi_reduction *reduction,
                     uint32_t n, uint32_t *m)
{
    uint32_t n_known = 0, pick;
    for (uint32_t i = 2; reduction && i < n; i++)
        n_known += reduction->problems[i].start != NULL;
    if (n_known == 0)
        return NULL;
    pick = lhi_random_below(&a->random, n_known);
    for (*m = 2; !reduction->problems[*m].start || pick-- > 0;)
        ++*m;
    return &reduction->problems[*m];
}

/* Chooses at random which operations the next insertion keeps, and stores them
 * in *out. They are a prefix of the best schedule `orders` with objective
 * `time`, a prefix of a schedule in `reduction` for fewer microbatches, or
 * none. */
static void draw_prefix(lhi_repairer *a, const lhi_machine_orders *orders,
                        int64_t time, const lhi_reduction *reduction,
                        lhi_insertion_options *out)
{
    const uint32_t what = lhi_random_below(&a->random, 8);
    const lhi_reduced_problem *problem = NULL;
    uint32_t m = 0;
    if (what >= CYCLES_FROM_BEST + CYCLES_FROM_REDUCED)
        return;
    if (what >= CYCLES_FROM_BEST)
        problem = draw_reduced_problem(a, reduction,
                                       orders->shop->n_microbatches, &m);
    if (!problem && time >= 0)
        m = orders->shop->n_microbatches;
    if (m < 2)
        return;
    out->start = problem ? problem->start : a->start;
    if (!problem) {
        const lhi_shop *s = orders->shop;
        for (uint32_t o = 0; o < s->n_ops; o++)
            a->start[o] = orders->end[o] - s->time[o];
    }
    out->n_microbatches = m;
    out->n_kept = 1 + lhi_random_below(&a->random, m - 1);
}

/* Runs one annealing cycle of insertion (building a schedule microbatch by
 * microbatch) and improves its result by justification. If that is better,
 * updates `orders`, *time, and *by: the engine that found it. */
static lh_status repair_once(lhi_repairer *a, lhi_machine_orders *orders,
                             int64_t *time, lhi_engine *by,
                             const lhi_repair_options *how, lhi_budget *budget,
                             lh_error *err)
{
    lhi_insertion_options insert = {.ticks = how->ticks, .target = how->target};
    int64_t found = -1;
    if (lhi_budget_is_engine_enabled(budget, LHI_ENGINE_DESTROY_REPAIR))
        draw_prefix(a, orders, *time, how->reduction, &insert);
    const lhi_engine engine = insert.n_kept > 0 ? LHI_ENGINE_DESTROY_REPAIR
                              : a->turn         ? LHI_ENGINE_MIRROR
                                                : LHI_ENGINE_INSERTION;
    const lhi_engine before = lhi_budget_enter_engine(budget, engine);
    lhi_inserter_run(a->inserters[a->turn], &insert, a->found, &found, budget);
    lhi_budget_restore_engine(budget, before);
    a->turn =
        !a->turn && lhi_budget_is_engine_enabled(budget, LHI_ENGINE_MIRROR);
    if (found < 0 || (*time >= 0 && found > *time + *time / JUSTIFY_DIVISOR))
        return LH_OK;
    const int64_t plain = found = lhi_machine_orders_evaluate(a->found);
    LHI_TRY(lhi_justifier_run_unperturbed(a->justifier, a->found, &found,
                                          how->seed, how->target, budget, err));
    if (*time >= 0 && found >= *time)
        return LH_OK;
    lhi_machine_orders_copy(orders, a->found);
    *time = lhi_machine_orders_evaluate(orders);
    *by = found < plain ? LHI_ENGINE_JUSTIFICATION : engine;
    return LH_OK;
}

lh_status lhi_repairer_run(lhi_repairer *a, lhi_machine_orders *orders,
                           int64_t *time, lhi_engine *by,
                           const lhi_repair_options *how, lhi_budget *budget,
                           lh_error *err)
{
    const uint64_t end = budget->used + how->ticks;
    a->turn =
        a->turn && lhi_budget_is_engine_enabled(budget, LHI_ENGINE_MIRROR);
    while (!budget->stop && budget->used < end &&
           (*time < 0 || *time > how->target)) {
        lhi_repair_options rest = *how;
        rest.ticks = end - budget->used;
        LHI_TRY(repair_once(a, orders, time, by, &rest, budget, err));
    }
    return LH_OK;
}

lh_status lhi_repairer_make(const lhi_shop *shop, uint64_t seed, lhi_arena *mem,
                            lhi_repairer **out, lh_error *err)
{
    *out = NULL;
    lhi_repairer *a = LHI_NEW(mem, lhi_repairer, 1);
    if (!a)
        return lhi_fail_nomem(err);
    lhi_random seeds = {seed};
    *a = (lhi_repairer){.random = {lhi_random_next(&seeds)}, .turn = seed & 1};
    for (uint32_t i = 0; i < 2; i++) {
        LHI_TRY(lhi_inserter_make(shop, i == 1, lhi_random_next(&seeds), mem,
                                  &a->inserters[i], err));
        if (!a->inserters[i])
            return LH_OK;
    }
    a->start = LHI_NEW(mem, int64_t, shop->n_ops);
    if (!a->start)
        return lhi_fail_nomem(err);
    LHI_TRY(lhi_justifier_make(shop, mem, &a->justifier, err));
    LHI_TRY(lhi_machine_orders_make(shop, mem, &a->found, err));
    *out = a;
    return LH_OK;
}
