/* SPDX-License-Identifier: Apache-2.0 */
/* Method "zb-v" (Qi et al., "Pipeline Parallelism with Controllable Memory",
 * 2024), constructed as its authors do: every pass takes one time unit,
 * messages take none, and a device holds 2P chunks' activations.
 *
 * Forward and backward both walk the V in two legs: leg 0 visits devices
 * 0..P-1, leg 1 returns. A forward's leg 0 is chunk d, its leg 1 chunk 2P-1-d;
 * a backward uses them the other way round. */
#include "schedule/methods/sched.h"

#include <string.h>

enum { FORWARD, BACKWARD };

/* Progress per device. */
typedef struct v_device {
    int64_t now, idle;        /* units; idle: waited since its first pass */
    uint32_t held;            /* activations, in chunks */
    uint32_t done[2][2];      /* [FORWARD, BACKWARD][leg] */
    uint32_t w_pending, w_at; /* w_at: position of the D whose W is next */
} v_device;

/* Which Ws may fill a wait shorter than one W. */
typedef struct fill_policy {
    bool before_f, before_d; /* before_d: on a backward's leg 0 */
} fill_policy;

/* State for one construction. */
typedef struct v_plan {
    uint32_t n_devices, n; /* n: microbatches */
    fill_policy policy;
    const struct v_plan *before; /* previous run to improve on; NULL: none */
    int64_t most_idle;
    v_device *devices;
    /* [kind][leg][device * n + microbatch]; < 0: not run */
    int64_t *ends[2][2];
    lhi_orders orders; /* also owns the arrays above */
} v_plan;

/* Returns the address of the end time of a `kind` pass on device d and
 * microbatch m, in time units. `leg`: way of the V, 0 for the first chunk that
 * the pass visits on the device, 1 for the second. */
static int64_t *get_end(const v_plan *v, int kind, uint32_t leg, uint32_t d,
                        uint32_t m)
{
    return &v->ends[kind][leg][(size_t)d * v->n + m];
}

/* Returns the chunk on device d that a kind of pass visits on its first or
 * second leg (way down or up) in the V. */
static uint32_t get_chunk(const v_plan *v, int kind, uint32_t leg, uint32_t d)
{
    bool down = (kind == FORWARD) == (leg == 0);
    return down ? d : 2 * v->n_devices - 1 - d;
}

/* Returns when the device's next pass of that kind and leg gets its input from
 * the leg's previous device; < 0: not yet, or the leg starts here. */
static int64_t get_input_time(const v_plan *v, int kind, uint32_t leg,
                              uint32_t d)
{
    uint32_t m = v->devices[d].done[kind][leg];
    if (m == v->n || (leg == 0 ? d == 0 : d == v->n_devices - 1))
        return -1;
    return *get_end(v, kind, leg, leg == 0 ? d - 1 : d + 1, m);
}

/* Advances a device's time to `end`, where a pass lasting one time unit ends,
 * and adds the wait before the pass to the device's idle time. */
static void advance_time(v_plan *v, uint32_t d, int64_t end)
{
    v_device *dev = &v->devices[d];
    if (dev->done[FORWARD][0] > 0)
        dev->idle += end - dev->now - 1;
    if (dev->idle > v->most_idle)
        v->most_idle = dev->idle;
    dev->now = end;
}

/* Appends the device's next F or D on a leg (way down or up the V) to its
 * order, and updates its time and memory. */
static void put_pass(v_plan *v, int kind, uint32_t leg, uint32_t d)
{
    v_device *dev = &v->devices[d];
    uint32_t m = dev->done[kind][leg];
    int64_t input = get_input_time(v, kind, leg, d);
    int64_t end = (input > dev->now ? input : dev->now) + 1;
    assert(m < v->n);
    advance_time(v, d, end);
    dev->done[kind][leg]++;
    *get_end(v, kind, leg, d, m) = end;
    if (kind == FORWARD)
        dev->held++;
    else
        dev->w_pending++;
    lhi_order_add_pass(&v->orders.devices[d], kind == FORWARD ? LH_F : LH_D,
                       get_chunk(v, kind, leg, d), m);
}

/* Appends the W of the device's oldest D without one to its order, and updates
 * its time and memory. */
static void put_w(v_plan *v, uint32_t d)
{
    v_device *dev = &v->devices[d];
    lhi_order *order = &v->orders.devices[d];
    while (order->passes[dev->w_at].kind != LH_D)
        dev->w_at++;
    lh_pass of = order->passes[dev->w_at++];
    lhi_order_add_pass(order, LH_W, of.chunk, of.microbatch);
    advance_time(v, d, dev->now + 1);
    dev->w_pending--;
    dev->held--;
}

/* Fills a device's wait before its next pass with Ws: as many as fit
 * completely. Adds one that does not if the policy allows it and the wait would
 * be the device's longest. */
static void fill_wait(v_plan *v, int kind, uint32_t leg, uint32_t d)
{
    v_device *dev = &v->devices[d];
    int64_t input = get_input_time(v, kind, leg, d);
    if (input < 0)
        return;
    while (dev->w_pending && input >= dev->now + 1)
        put_w(v, d);
    int64_t bearable = v->most_idle;
    if (v->before) {
        int64_t spare = v->before->most_idle - v->before->devices[d].idle;
        bearable = spare > bearable ? spare : bearable;
    }
    bool may =
        kind == FORWARD ? v->policy.before_f : leg == 1 || v->policy.before_d;
    if (dev->w_pending && may && input - dev->now > bearable - dev->idle)
        put_w(v, d);
}

/* Runs the warm-up: the first microbatch down and back up, meanwhile more
 * forwards on the first leg while time and memory allow. Then forwards on both
 * legs alternate until no device has run fewer than its predecessor. */
static void warm_up(v_plan *v)
{
    uint32_t last = v->n_devices - 1, leg = 0;
    for (uint32_t d = 0; d <= last; d++)
        put_pass(v, FORWARD, 0, d);
    for (uint32_t d = last + 1; d-- > 0;) {
        const v_device *dev = &v->devices[d];
        int64_t back = d < last ? *get_end(v, FORWARD, 1, d + 1, 0) : -1;
        while (dev->held + 2 + 2 * d <= 2 * v->n_devices &&
               dev->now + 1 <= back && dev->done[FORWARD][0] < v->n)
            for (uint32_t e = 0; e <= d; e++)
                put_pass(v, FORWARD, 0, e);
        put_pass(v, FORWARD, 1, d);
    }
    for (uint32_t d = 1; d <= last; d++) {
        const uint32_t *before = v->devices[d - 1].done[FORWARD];
        const uint32_t *here = v->devices[d].done[FORWARD];
        while (here[0] + here[1] < before[0] + before[1] ||
               (here[1] <= before[1] && before[1] < v->n)) {
            for (uint32_t e = last + 1; e-- > d;)
                if (v->devices[e].done[FORWARD][leg] < v->n)
                    put_pass(v, FORWARD, leg, e);
            leg = 1 - leg;
        }
    }
}

/* Returns the leg of the V (0: first half of the backward's path, 1: second) on
 * which device d runs its next backward. Leg 1 if it has run fewer there and
 * the input is available, otherwise 0. */
static uint32_t choose_backward_leg(const v_plan *v, uint32_t d)
{
    const uint32_t *done = v->devices[d].done[BACKWARD];
    if (done[1] >= done[0])
        return 0;
    if (d == v->n_devices - 1 || done[0] == v->n)
        return 1;
    return get_input_time(v, BACKWARD, 1, d) >= 0;
}

/* Runs one backward per device, first on the devices whose leg (half the path
 * through the V) is 1; legs[d]: device d's leg. */
static void put_backwards(v_plan *v, unsigned char *legs)
{
    for (uint32_t d = 0; d < v->n_devices; d++)
        legs[d] = (unsigned char)choose_backward_leg(v, d);
    for (uint32_t d = v->n_devices; d-- > 0;)
        if (legs[d] == 1) {
            fill_wait(v, BACKWARD, 1, d);
            put_pass(v, BACKWARD, 1, d);
        }
    for (uint32_t d = 0; d < v->n_devices; d++)
        if (legs[d] == 0) {
            fill_wait(v, BACKWARD, 0, d);
            put_pass(v, BACKWARD, 0, d);
        }
}

/* Returns the leg of the V (0: way down, 1: way back) on which device d runs
 * its next forward; 2: none. Leg 1 if it has run fewer there and the input is
 * available, else leg 0 if that input is available. */
static uint32_t choose_forward_leg(const v_plan *v, uint32_t d)
{
    const uint32_t *done = v->devices[d].done[FORWARD];
    if (done[1] == v->n)
        return 2;
    if (done[1] >= done[0])
        return 0;
    if (d == v->n_devices - 1 || get_input_time(v, FORWARD, 1, d) >= 0)
        return 1;
    if (done[0] < v->n && (d == 0 || get_input_time(v, FORWARD, 0, d) >= 0))
        return 0;
    return 2;
}

/* Runs at most one forward per device. If a forward does not fit into memory,
 * the device first runs pending Ws, which release memory. */
static void put_forwards(v_plan *v)
{
    for (uint32_t d = 0; d < v->n_devices; d++) {
        uint32_t leg = choose_forward_leg(v, d);
        if (leg == 2)
            continue;
        while (v->devices[d].held + 1 > 2 * v->n_devices)
            put_w(v, d);
        fill_wait(v, FORWARD, leg, d);
        put_pass(v, FORWARD, leg, d);
    }
}

/* Constructs all devices' orders with the fill policy v->policy. */
static lh_status construct(v_plan *v, const lh_pipeline *pipeline,
                           lh_error *err)
{
    LHI_TRY(lhi_orders_init(&v->orders, pipeline, 3, err));
    lhi_arena *mem = v->orders.mem;
    size_t n_ends = (size_t)v->n_devices * v->n;
    unsigned char *legs = LHI_NEW(mem, unsigned char, v->n_devices);
    int64_t *ends = LHI_NEW(mem, int64_t, 4 * n_ends);
    v->devices = LHI_NEW(mem, v_device, v->n_devices);
    if (!legs || !ends || !v->devices) {
        lhi_orders_fini(&v->orders);
        return lhi_fail_nomem(err);
    }
    memset(ends, -1, 4 * n_ends * sizeof *ends);
    for (uint32_t i = 0; i < 4; i++)
        v->ends[i / 2][i % 2] = ends + i * n_ends;
    warm_up(v);
    for (uint64_t round = 0; round < 2 * (uint64_t)v->n; round++) {
        put_backwards(v, legs);
        put_forwards(v);
    }
    for (uint32_t d = 0; d < v->n_devices; d++)
        while (v->devices[d].w_pending)
            put_w(v, d);
    return LH_OK;
}

/* Constructs the orders with one policy repeatedly, each time with the
 * previous run's idle times, until the longest idle time decreases no more. */
static lh_status refine(const lh_pipeline *pipeline, fill_policy policy,
                        v_plan *out, lh_error *err)
{
    v_plan best = {.n_devices = pipeline->n_devices,
                   .n = pipeline->n_microbatches,
                   .policy = policy};
    LHI_TRY(construct(&best, pipeline, err));
    for (;;) {
        v_plan next = {.n_devices = best.n_devices,
                       .n = best.n,
                       .policy = policy,
                       .before = &best};
        lh_status status = construct(&next, pipeline, err);
        if (status != LH_OK) {
            lhi_orders_fini(&best.orders);
            return status;
        }
        if (next.most_idle >= best.most_idle) {
            lhi_orders_fini(&next.orders);
            *out = best;
            return LH_OK;
        }
        lhi_orders_fini(&best.orders);
        best = next;
    }
}

/* Method "zb-v": ZB-V with two chunks per device in a V, constructed by
 * heuristics. */
lh_status lhi_zb_v(const lh_pipeline *pipeline,
                   const lh_method_options *options, lhi_orders *out,
                   lh_error *err)
{
    (void)options;
    v_plan best = {0};
    for (uint32_t i = 0; i < 4; i++) {
        fill_policy policy = {.before_d = i < 2, .before_f = i % 2 == 0};
        v_plan plan;
        lh_status status = refine(pipeline, policy, &plan, err);
        if (status != LH_OK) {
            lhi_orders_fini(&best.orders);
            return status;
        }
        if (best.orders.mem && plan.most_idle >= best.most_idle) {
            lhi_orders_fini(&plan.orders);
            continue;
        }
        lhi_orders_fini(&best.orders);
        best = plan;
    }
    *out = best.orders;
    return LH_OK;
}
