/* SPDX-License-Identifier: Apache-2.0 */
/* Method "auto": simulates every other method that supports the pipeline and
 * keeps the fastest. */
#include "schedule/methods/sched.h"

#include <longhaul/experimental/simulate.h>

/* Comparison state: the fastest orders so far. */
typedef struct comparison {
    const lh_pipeline *pipeline;
    const lh_method_options *options;
    lh_evaluator *judge;
    lhi_orders best;
    int64_t best_ns;
    lh_error reason; /* why the last infeasible method failed */
} comparison;

/* Simulates the schedule in `orders` with the comparison's evaluator; *out is
 * its makespan in ns. */
static lh_status simulate(comparison *c, const lhi_orders *orders, int64_t *out,
                          lh_error *err)
{
    lh_schedule *schedule = NULL;
    LHI_TRY(lhi_orders_check_memory(orders, c->pipeline, err));
    LHI_TRY(lhi_orders_build_schedule(orders, &schedule, err));
    lh_status status = lh_evaluator_run(c->judge, schedule, out, err);
    lh_schedule_free(schedule);
    return status;
}

/* Runs one scheduling method and keeps its orders if they are the fastest so
 * far. Returns LH_OK also if the method does not support the pipeline. */
static lh_status try_method(comparison *c, const lhi_method *method,
                            lh_error *err)
{
    lhi_orders orders = {0};
    lh_error why = {0};
    int64_t time_ns = 0;
    lh_status status =
        lhi_method_build_orders(method, c->pipeline, c->options, &orders, &why);
    if (status == LH_OK) {
        orders.method = method->name;
        status = simulate(c, &orders, &time_ns, &why);
        if (status == LH_OK && (!c->best.mem || time_ns < c->best_ns)) {
            lhi_orders_fini(&c->best);
            c->best = orders;
            c->best_ns = time_ns;
            return LH_OK;
        }
        lhi_orders_fini(&orders);
    }
    if (status == LH_OK || status == LH_EUNSUPPORTED)
        return LH_OK;
    lhi_fail_add_context(&why, "%s", method->name);
    if (status != LH_EINFEASIBLE && status != LH_EDEADLOCK) {
        if (err)
            *err = why;
        return status;
    }
    c->reason = why;
    return LH_OK;
}

/* Checks whether the caller set an option that only one scheduling method
 * reads. Method "auto" then always runs that method, because an error in the
 * option would otherwise be reported for some pipelines only. */
static bool has_own_options(const lh_method_options *o)
{
    return o->n_warmup > 0 || o->round_size > 0 || o->n_enqueue > 0 ||
           o->n_dequeue > 0;
}

/* Method "auto": runs the applicable methods and returns the orders with the
 * shortest simulated makespan. */
lh_status lhi_auto(const lh_pipeline *pipeline,
                   const lh_method_options *options, lhi_orders *out,
                   lh_error *err)
{
    comparison c = {.pipeline = pipeline, .options = options};
    LHI_TRY(lh_evaluator_make(pipeline, options->sim, &c.judge, err));
    lh_status status = LH_OK;
    for (uint32_t i = 0; i < lhi_n_methods && status == LH_OK; i++) {
        if (c.best.mem && c.best_ns <= options->bound_ns &&
            !has_own_options(options))
            break;
        if (lhi_methods[i].kind != LHI_METHOD_META)
            status = try_method(&c, &lhi_methods[i], err);
    }
    lh_evaluator_free(c.judge);
    if (status != LH_OK) {
        lhi_orders_fini(&c.best);
        return status;
    }
    if (!c.best.mem)
        return lhi_fail(err, LH_EINFEASIBLE, "no method is feasible; %s",
                        c.reason.text);
    *out = c.best;
    return LH_OK;
}
