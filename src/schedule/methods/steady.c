/* SPDX-License-Identifier: Apache-2.0 */
/* Method "steady": modulo scheduling (Lam 1988, Rau 1994, for program loops).
 * One microbatch's passes are placed on a cyclic clock with as many slots as
 * the fullest device has passes per microbatch, so no two passes on a device
 * collide. Every microbatch repeats this pattern, one round later than its
 * predecessor. Waiting time on a microbatch's path costs memory, so patterns
 * with less and less waiting are tried until one fits. See
 * docs/theory/schedules.md. */
#include "base/integer_math.h"
#include "schedule/methods/sched.h"
#include "schedule/pipeline/schedule_internal.h"
#include "schedule/simulator/timeline.h"

#include <longhaul/experimental/simulate.h>
#include <math.h>

/* Fraction of a slot by which a pass may start before its input is available on
 * this clock, which treats all passes as equally long. Smaller values leave
 * more time for longer passes but use more memory. */
static const double tolerances[] = {0,   0.05, 0.1, 0.15, 0.2,
                                    0.3, 0.4,  0.6, 0.8};
enum {
    N_TOLERANCES = sizeof tolerances / sizeof *tolerances,
    EXTRA_TRIALS = 3 /* trials after the first one that fits */
};

/* Search state: slot table, evaluator and the best orders so far. */
typedef struct steady {
    const lh_pipeline *p;
    lhi_arena *mem;
    uint32_t slots;  /* per round */
    double unit_ns;  /* per slot */
    uint32_t *taken; /* [device * slots + slot]: pass; LH_NONE: free */
    int64_t *at;     /* per pass: absolute slot */
    int64_t *first;  /* per pass: its first round, at / slots */
    lh_evaluator *judge;
    lh_schedule view; /* view of the orders under evaluation */
    lhi_orders *best, trial;
    int64_t best_ns;
    int64_t useless_ns; /* makespans that the caller does not need */
} steady;

/* Returns a pass's index in the pattern, the passes of one microbatch: first
 * all F, then D or B, then W. */
static uint32_t get_pass_number(const lh_pipeline *p, lh_pass_kind kind,
                                uint32_t chunk)
{
    uint32_t nth = kind == LH_F ? 0 : kind == LH_W ? 2 : 1;
    return nth * p->n_chunks + chunk;
}

/* Returns the kind of the pass with index `pass` in the pattern, the passes of
 * one microbatch: all F, then all backward passes, then all W. */
static lh_pass_kind get_pass_kind(const lh_pipeline *p, uint32_t pass)
{
    if (pass < p->n_chunks)
        return LH_F;
    if (pass >= 2 * p->n_chunks)
        return LH_W;
    return p->joint ? LH_B : LH_D;
}

/* Places pass number `pass` of the repeated pattern in the first free slot
 * (time interval of the cyclic pattern) of its device, from slot `ready` on.
 * Returns the slot, counted from the microbatch's start. */
static int64_t place_pass(steady *s, uint32_t pass, int64_t ready)
{
    uint32_t device = s->p->chunks[pass % s->p->n_chunks].device;
    uint32_t *taken = s->taken + (size_t)device * s->slots;
    uint32_t slot = (uint32_t)(ready % s->slots);
    for (; taken[slot] != LH_NONE; ready++)
        slot = slot + 1 < s->slots ? slot + 1 : 0;
    taken[slot] = pass;
    s->at[pass] = ready;
    s->first[pass] = ready / s->slots;
    return ready;
}

/* Places the passes of one microbatch, the repeated pattern, in slots of their
 * devices. First all F and D in the order of the microbatch's dependencies,
 * each in its device's first free slot, then each W after its D. `tolerance`:
 * by how many slots a pass may precede its input's arrival. A pass may get the
 * slot index of its predecessor: slots only order the passes of one device. */
static void place_passes(steady *s, double tolerance)
{
    const lh_pipeline *p = s->p;
    uint32_t C = p->n_chunks;
    int64_t last = 0;
    double now = 0;
    for (size_t i = 0; i < (size_t)p->n_devices * s->slots; i++)
        s->taken[i] = LH_NONE;
    for (uint32_t i = 0; i < 2 * C; i++) {
        bool back = i >= C;
        uint32_t c = back ? 2 * C - 1 - i : i;
        const lh_chunk *k = &p->chunks[c];
        const lhi_route none = {false, LH_NONE, LH_NONE, 0, 0};
        const lhi_route *r = &none;
        if (i > 0 && i != C)
            r = back ? &p->backward[c + 1] : &p->forward[c - 1];
        int64_t ns = k->f_ns;
        if (back)
            ns = k->d_ns + (p->joint ? k->w_ns : 0);
        now += (double)(r->transfer_ns + r->latency_ns) / s->unit_ns;
        double ready = ceil(fmax(now - tolerance, (double)last) - 1e-9);
        last = place_pass(s, get_pass_number(p, back ? LH_D : LH_F, c),
                          (int64_t)fmin(ready, 0x1p60));
        now = fmax(now, (double)last) + (double)ns / s->unit_ns;
    }
    for (uint32_t c = C; c-- > 0 && !p->joint;)
        place_pass(s, get_pass_number(p, LH_W, c),
                   s->at[get_pass_number(p, LH_D, c)]);
}

/* Returns the first round from `round` on in which the device runs any pass;
 * INT64_MAX: none. taken[i]: the pass that runs in slot i of a round. */
static int64_t next_round(const steady *s, const uint32_t *taken, int64_t round)
{
    int64_t next = INT64_MAX;
    for (uint32_t i = 0; i < s->slots; i++) {
        if (taken[i] == LH_NONE)
            continue;
        int64_t first = s->first[taken[i]];
        if (round < first + s->p->n_microbatches)
            next = lhi_min_int64(next, lhi_max_int64(first, round));
    }
    return next;
}

/* Writes a device's order: every microbatch repeats the pattern of passes, one
 * round (all slots of the pattern) after the previous microbatch. */
static void put_order(const steady *s, uint32_t device, lhi_order *out)
{
    uint32_t n = s->p->n_microbatches, C = s->p->n_chunks;
    const uint32_t *taken = s->taken + (size_t)device * s->slots;
    int64_t round = next_round(s, taken, 0);
    out->count = 0;
    for (; round != INT64_MAX; round = next_round(s, taken, round + 1))
        for (uint32_t i = 0; i < s->slots; i++) {
            uint32_t pass = taken[i];
            int64_t first = pass == LH_NONE ? 0 : s->first[pass];
            if (pass != LH_NONE && round >= first && round - first < n)
                lhi_order_add_pass(out, get_pass_kind(s->p, pass), pass % C,
                                   (uint32_t)(round - first));
        }
}

/* Builds and simulates the orders for one `tolerance` (slots by which a pass
 * may precede its input). Keeps them if they are faster than the best so far,
 * or if none has fitted in memory yet. */
static lh_status try_tolerance(steady *s, double tolerance, lh_error *err)
{
    int64_t ns = INT64_MAX;
    place_passes(s, tolerance);
    for (uint32_t d = 0; d < s->p->n_devices; d++) {
        put_order(s, d, &s->trial.devices[d]);
        s->view.orders[d] = s->trial.devices[d].passes;
        s->view.counts[d] = s->trial.devices[d].count;
    }
    lh_status status = lhi_orders_check_memory(&s->trial, s->p, err);
    if (status == LH_OK)
        status = lh_evaluator_run(s->judge, &s->view, &ns, err);
    /* Coupled queues can deadlock. */
    if (status != LH_OK && status != LH_EINFEASIBLE && status != LH_EDEADLOCK)
        return status;
    if (ns < s->best_ns || s->best_ns == INT64_MAX) {
        lhi_orders before = *s->best;
        *s->best = s->trial;
        s->trial = before;
        s->best_ns = ns;
        if (ns < INT64_MAX)
            lhi_evaluator_set_useless(s->judge,
                                      lhi_min_int64(ns, s->useless_ns));
    }
    return LH_OK;
}

/* Allocates the tables of slots. Computes the slot count per round (the
 * passes of one microbatch on the fullest device) and the slots' duration. */
static lh_status allocate_tables(steady *s, lh_error *err)
{
    const lh_pipeline *p = s->p;
    uint32_t each = p->joint ? 2 : 3;
    uint32_t *n = LHI_NEW(s->mem, uint32_t, p->n_devices);
    double *load = LHI_NEW(s->mem, double, p->n_devices), most = 0;
    if (!n || !load)
        return lhi_fail_nomem(err);
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        const lh_chunk *k = &p->chunks[c];
        n[k->device] += each;
        load[k->device] += (double)(k->f_ns + k->d_ns + k->w_ns);
        s->slots = n[k->device] > s->slots ? n[k->device] : s->slots;
        most = fmax(most, load[k->device]);
    }
    s->unit_ns = most > 0 ? most / s->slots : 1;
    s->taken = LHI_NEW(s->mem, uint32_t, (size_t)p->n_devices * s->slots);
    s->at = LHI_NEW(s->mem, int64_t, (size_t)each * p->n_chunks);
    s->first = LHI_NEW(s->mem, int64_t, (size_t)each * p->n_chunks);
    s->view =
        (lh_schedule){.n_devices = p->n_devices,
                      .orders = LHI_NEW(s->mem, const lh_pass *, p->n_devices),
                      .counts = LHI_NEW(s->mem, uint32_t, p->n_devices)};
    return s->taken && s->at && s->first && s->view.orders && s->view.counts
               ? LH_OK
               : lhi_fail_nomem(err);
}

/* Tries the tolerances (slots by which a pass may precede its input) in
 * ascending order. Ends EXTRA_TRIALS after the first that fits into memory, or
 * when the makespan equals the lower bound. */
static lh_status try_all(steady *s, const lh_method_options *o, lh_error *err)
{
    LHI_TRY(allocate_tables(s, err));
    LHI_TRY(lh_evaluator_make(s->p, o->sim, &s->judge, err));
    uint32_t fitting = 0;
    for (uint32_t i = 0; i < N_TOLERANCES && fitting <= EXTRA_TRIALS; i++) {
        LHI_TRY(try_tolerance(s, tolerances[i], err));
        fitting += s->best_ns < INT64_MAX;
        if (s->best_ns <= o->bound_ns)
            break;
    }
    return LH_OK;
}

/* Method "steady": a pattern of passes in fixed slots (time intervals) that
 * every microbatch repeats one round later. */
lh_status lhi_steady(const lh_pipeline *pipeline,
                     const lh_method_options *options, lhi_orders *out,
                     lh_error *err)
{
    uint32_t each = pipeline->joint ? 2 : 3;
    LHI_TRY(lhi_orders_init(out, pipeline, each, err));
    steady s = {.p = pipeline,
                .mem = lhi_arena_make(0),
                .best = out,
                .best_ns = INT64_MAX,
                .useless_ns = out->useless_ns ? out->useless_ns : INT64_MAX};
    lh_status status = lhi_orders_init(&s.trial, pipeline, each, err);
    if (status == LH_OK)
        status = s.mem ? try_all(&s, options, err) : lhi_fail_nomem(err);
    if (s.best_ns < INT64_MAX)
        out->simulated_ns = s.best_ns;
    lhi_orders_fini(&s.trial);
    lh_evaluator_free(s.judge);
    lhi_arena_free(s.mem);
    if (status != LH_OK)
        lhi_orders_fini(out);
    return status;
}
