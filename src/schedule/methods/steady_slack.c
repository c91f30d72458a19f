/* SPDX-License-Identifier: Apache-2.0 */
/* Method "steady-slack": maintains its slackness. After the warm-up every
 * device alternates one D and one F, so each device's lead over the next stays
 * constant (Adaptra, theorem 1). W waits until memory requires it or no F is
 * left. */
#include "schedule/methods/slack.h"

#include "schedule/pipeline/schedule_internal.h"
#include "schedule/simulator/timeline.h"

#include <longhaul/experimental/simulate.h>

/* A device's order under construction. */
typedef struct row {
    const lh_chunk *chunk;
    lhi_order *order;
    uint32_t device, f, d, w; /* passes per kind so far */
    int64_t held, limit;
} row;

/* Appends the next pass of a kind to the order of the row's device and updates
 * the device's memory. */
static void add_next_pass(row *r, lh_pass_kind kind)
{
    uint32_t *next = kind == LH_F ? &r->f : kind == LH_D ? &r->d : &r->w;
    lhi_order_add_pass(r->order, kind, r->device, (*next)++);
    r->held += kind == LH_F   ? r->chunk->mem_f
               : kind == LH_D ? r->chunk->mem_d
                              : r->chunk->mem_w;
}

/* Appends Ws whose D has run to the row's order, oldest first, until `more`
 * bytes fit into the device's memory or no W is left. */
static void run_pending_w(row *r, int64_t more)
{
    while (r->w < r->d && r->held > r->limit - more)
        add_next_pass(r, LH_W);
}

/* Writes a device's order for n microbatches: x forwards, then D and F
 * alternating, then D and W alternating, then W. Ws that memory requires
 * precede the F that needs their memory. */
static void write_order(row *r, uint32_t n, uint32_t x)
{
    int64_t d_takes = r->chunk->mem_d > 0 ? r->chunk->mem_d : 0;
    r->order->count = 0;
    while (r->f < x && r->f < n)
        add_next_pass(r, LH_F);
    while (r->d < n) {
        run_pending_w(r, d_takes);
        add_next_pass(r, LH_D);
        if (r->f == n) {
            add_next_pass(r, LH_W);
            continue;
        }
        run_pending_w(r, r->chunk->mem_f + d_takes);
        add_next_pass(r, LH_F);
    }
    while (r->w < n)
        add_next_pass(r, LH_W);
}

/* Writes all devices' orders, with x[d] forwards on device d before its
 * first D. */
static void write_orders(const lh_pipeline *p, const uint32_t *x,
                         lhi_orders *out)
{
    for (uint32_t i = 0; i < p->n_devices; i++) {
        row r = {.chunk = &p->chunks[i],
                 .order = &out->devices[i],
                 .device = i,
                 .held = p->chunks[i].mem_static,
                 .limit = lh_pipeline_memory_limit(p, i)};
        write_order(&r, p->n_microbatches, x[i]);
    }
}

/* --- selection of warm-ups ----------------------------------------------- */

/* Comparison state: the fastest orders so far. */
typedef struct comparison {
    const lh_pipeline *p;
    lh_evaluator *judge;
    lh_schedule view; /* view of `trial` */
    lhi_orders trial, *best;
    int64_t best_ns;
} comparison;

/* Builds and simulates the orders for warm-up forwards x per device; keeps
 * them if they are the fastest so far. */
static lh_status try_warmups(comparison *c, const uint32_t *x, lh_error *err)
{
    int64_t ns = INT64_MAX;
    write_orders(c->p, x, &c->trial);
    for (uint32_t d = 0; d < c->p->n_devices; d++) {
        c->view.orders[d] = c->trial.devices[d].passes;
        c->view.counts[d] = c->trial.devices[d].count;
    }
    lh_status status = lhi_orders_check_memory(&c->trial, c->p, err);
    if (status == LH_OK)
        status = lh_evaluator_run(c->judge, &c->view, &ns, err);
    if (status != LH_OK && !lhi_method_is_inapplicable(status))
        return status;
    if (ns < c->best_ns) {
        lhi_orders before = *c->best;
        *c->best = c->trial;
        c->trial = before;
        c->best_ns = ns;
        lhi_evaluator_set_useless(c->judge, ns);
    }
    return LH_OK;
}

/* Chooses the fastest of four reductions of the warm-up forwards x. If memory
 * cannot hold the warm-ups that the delays demand, it is unknown which
 * boundary tolerates less. */
static lh_status choose_warmups(const lh_pipeline *p,
                                const lh_method_options *options,
                                lhi_arena *mem, uint32_t *x, lhi_orders *out,
                                lh_error *err)
{
    comparison c = {.p = p, .best = out, .best_ns = INT64_MAX};
    lh_method_options initial = *options;
    bool cut;
    initial.slack_initial = true;
    write_orders(p, x, out); /* fallback for the error if no order fits */
    c.view.n_devices = p->n_devices;
    c.view.orders = LHI_NEW(mem, const lh_pass *, p->n_devices);
    c.view.counts = LHI_NEW(mem, uint32_t, p->n_devices);
    if (!c.view.orders || !c.view.counts)
        return lhi_fail_nomem(err);
    LHI_TRY(lhi_orders_init(&c.trial, p, 3, err));
    lh_status status = lh_evaluator_make(p, options->sim, &c.judge, err);
    for (uint32_t i = 0; i < 4 && status == LH_OK; i++) {
        if (i == 1 || i == 2)
            lhi_slack_compute_reduced_warmups(p, 3 - i, x);
        if (i == 3)
            status = lhi_slack_compute_warmups(p, &initial, x, &cut, err);
        if (status == LH_OK)
            status = try_warmups(&c, x, err);
    }
    if (c.best_ns < INT64_MAX)
        out->simulated_ns = c.best_ns;
    lh_evaluator_free(c.judge);
    lhi_orders_fini(&c.trial);
    return status;
}

/* Method "steady-slack": fixed orders with warm-up forwards by Adaptra's
 * algorithms, the fastest by simulation. */
lh_status lhi_steady_slack(const lh_pipeline *pipeline,
                           const lh_method_options *options, lhi_orders *out,
                           lh_error *err)
{
    lhi_arena *mem = lhi_arena_make(0);
    uint32_t *x =
        mem ? LHI_NEW(mem, uint32_t, 2 * (size_t)pipeline->n_devices) : NULL;
    bool cut = false;
    lh_status status =
        x ? lhi_slack_compute_warmups(pipeline, options, x, &cut, err)
          : lhi_fail_nomem(err);
    if (status == LH_OK)
        status = lhi_orders_init(out, pipeline, 3, err);
    if (status == LH_OK && cut && !options->slack_initial) {
        status = choose_warmups(pipeline, options, mem, x, out, err);
        if (status != LH_OK)
            lhi_orders_fini(out);
    } else if (status == LH_OK) {
        write_orders(pipeline, x, out);
    }
    lhi_arena_free(mem);
    return status;
}
