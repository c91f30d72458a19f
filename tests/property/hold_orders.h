/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that machine orders found by a search are feasible and correctly
 * evaluated. */
#ifndef HOLD_ORDERS_H
#define HOLD_ORDERS_H

#include "random_pipeline.h"
#include "test.h"

#include "schedule/solver/bound/closed_forms.h"
#include "schedule/solver/model/machine_orders.h"

#include <longhaul/check.h>
#include <longhaul/experimental/bounds.h>

/* Checks that the orders take the stated time, and that as a schedule of the
 * pipeline they run, respect its memory limits and are not below a proven
 * bound. */
static inline void hold_orders(const lh_pipeline *p, lhi_machine_orders *words,
                               int64_t time)
{
    const lhi_shop *s = words->shop;
    const uint32_t *const *orders = (const uint32_t *const *)words->order;
    lh_schedule *schedule = NULL;
    lh_verdict *v = NULL;
    lh_bound bound = {0};
    lh_error err = {0};
    CHECK_INT(lhi_machine_orders_evaluate(words), time);
    if (s->times_relaxed || test_state.bad)
        return;
    CHECK_OK(lhi_compute_closed_form_bound(p, &bound, &err), err);
    CHECK_OK(lhi_shop_build_schedule(s, orders, true, &schedule, &err), err);
    CHECK_OK(lh_check(p, schedule, &v, &err), err);
    CHECK_MSG(lh_verdict_valid(v), "%s", lh_verdict_violation(v, 0));
    int64_t ns = lh_verdict_makespan(v);
    CHECK(ns >= bound.ns);
    CHECK(lhi_shop_get_deadline(s, ns / s->unit_ns) >= time);
    if (s->scale == 1)
        CHECK_INT(time * s->unit_ns, ns);
    if (test_state.bad)
        print_case(p, schedule);
    lh_verdict_free(v);
    lh_schedule_free(schedule);
}

/* Checks whether both have the same order on every machine. */
static inline bool same_orders(const lhi_machine_orders *a,
                               const lhi_machine_orders *b)
{
    for (uint32_t m = 0; m < a->shop->n_machines; m++)
        if (memcmp(a->order[m], b->order[m], a->n[m] * sizeof **a->order) != 0)
            return false;
    return true;
}

/* Checks whether every operation alone fits its machine's memory limit. */
static inline bool is_possible(const lhi_shop *s)
{
    for (uint32_t o = 0; o < s->n_ops; o++) {
        const lhi_machine *m =
            &s->machines[s->streams[s->stream_of[o]].machine];
        if (m->memory_limit < s->memory[o])
            return false;
    }
    return true;
}

#endif
