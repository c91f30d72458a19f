/* SPDX-License-Identifier: Apache-2.0 */
/* Method "interleaved-zbv": zero bubble on a V folded as often as there are
 * chunks (ScaleAcross Explorer, 2026, section 4). Chunk c is on device c mod P
 * where floor(c/P) is even, and counts from the other end where it is odd.
 *
 * The order comes from a simulation in which all passes have equal duration. A
 * free device runs the first available pass in this priority:
 *
 * 1. a weight gradient, if more than P are pending;
 * 2. an input gradient, first chunk first;
 * 3. a forward, last chunk first, with at most 2P microbatches in flight;
 * 4. a weight gradient.
 *
 * Messages take their time on the pipeline's links, in units of the mean
 * forward, so the order suits the network; optionally they take no time. */
#include "base/heap.h"
#include "schedule/methods/sched.h"

#include <inttypes.h>

/* A pending weight gradient. */
typedef struct pending_w {
    uint32_t chunk, microbatch;
} pending_w;

/* Simulation state per device. */
typedef struct device_state {
    int64_t free_ns;    /* its last pass's end */
    pending_w *waiting; /* pending weight gradients, oldest first */
    uint32_t n_taken, n_waiting;
    const uint32_t *chunks; /* this device's, in model order */
} device_state;

/* Simulation state. */
typedef struct simulation {
    const lh_pipeline *p;
    const lh_method_options *options;
    lhi_orders *orders;
    uint32_t legs;
    int64_t unit_ns;
    device_state *devices;
    int64_t *links;             /* per resource: free from this time */
    int64_t *f_ready, *d_ready; /* [chunk * n + microbatch]; < 0: unknown */
    uint32_t *f_next, *d_next;  /* per chunk: next microbatch */
    int64_t *f_end;             /* [chunk * n + microbatch] */
    uint32_t n_entered;         /* microbatches started */
    uint32_t n_left;            /* microbatches finished by now */
    int64_t *left_ns;           /* [microbatch] */
    lhi_heap events;
} simulation;

/* Returns the index of the pass of a chunk and microbatch in the event
 * simulation's tables. */
static size_t get_pass_index(const simulation *f, uint32_t chunk,
                             uint32_t microbatch)
{
    return (size_t)chunk * f->p->n_microbatches + microbatch;
}

/* Adds an event at time `at` (ns) at which the device may start a pass;
 * LH_ENOMEM if out of memory. */
static lh_status push_event(simulation *f, uint32_t device, int64_t at,
                            lh_error *err)
{
    if (lhi_heap_push(&f->events, (lhi_event){.time_ns = at, .rank = device}))
        return LH_OK;
    return lhi_fail_nomem(err);
}

/* Returns the time in ns at which a message sent over `route` at time `at`
 * arrives. */
static int64_t compute_arrival(simulation *f, const lhi_route *route,
                               int64_t at)
{
    if (!route->message || route->link == LH_NONE || f->options->ignore_network)
        return at;
    int64_t *link = &f->links[route->resource];
    *link = (at > *link ? at : *link) + route->transfer_ns;
    return *link + route->latency_ns;
}

/* Appends a pass to the device's order, started at `now` and lasting one time
 * unit, and sends its output to the next chunk. */
static lh_status run_pass(simulation *f, uint32_t device, lh_pass_kind kind,
                          uint32_t chunk, uint32_t m, int64_t now,
                          lh_error *err)
{
    const lh_pipeline *p = f->p;
    device_state *dev = &f->devices[device];
    int64_t end = now + f->unit_ns;
    dev->free_ns = end;
    lhi_order_add_pass(&f->orders->devices[device], kind, chunk, m);
    LHI_TRY(push_event(f, device, end, err));
    if (kind == LH_F) {
        f->f_end[get_pass_index(f, chunk, m)] = end;
        f->f_next[chunk]++;
        f->n_entered += chunk == 0;
        if (chunk + 1 == p->n_chunks) {
            f->d_ready[get_pass_index(f, chunk, m)] = end;
            return LH_OK;
        }
        int64_t there = compute_arrival(f, &p->forward[chunk], end);
        f->f_ready[get_pass_index(f, chunk + 1, m)] = there;
        return push_event(f, p->chunks[chunk + 1].device, there, err);
    }
    if (kind == LH_W) {
        dev->n_taken++;
        return LH_OK;
    }
    f->d_next[chunk]++;
    dev->waiting[dev->n_waiting++] = (pending_w){chunk, m};
    if (chunk == 0) {
        f->left_ns[m] = end;
        return LH_OK;
    }
    int64_t there = compute_arrival(f, &p->backward[chunk], end);
    f->d_ready[get_pass_index(f, chunk - 1, m)] = there;
    return push_event(f, p->chunks[chunk - 1].device, there, err);
}

/* Checks whether an input is known (not negative) and has arrived by `now`. */
static bool has_arrived(int64_t ready_ns, int64_t now)
{
    return ready_ns >= 0 && ready_ns <= now;
}

/* Finds a chunk on the device whose next D has its input gradient by `now`;
 * LH_NONE: none. */
static uint32_t find_d(const simulation *f, const device_state *dev,
                       int64_t now)
{
    for (uint32_t i = 0; i < f->legs; i++) {
        uint32_t chunk = dev->chunks[i], m = f->d_next[chunk];
        if (m == f->p->n_microbatches || m >= f->f_next[chunk])
            continue;
        size_t at = get_pass_index(f, chunk, m);
        if (has_arrived(f->d_ready[at], now) && f->f_end[at] <= now)
            return chunk;
    }
    return LH_NONE;
}

/* Checks whether another microbatch may start at time `now`: at most 2P may be
 * in flight on P devices. */
static bool may_start_microbatch(simulation *f, int64_t now)
{
    while (f->n_left < f->d_next[0] && f->left_ns[f->n_left] <= now)
        f->n_left++;
    return f->n_entered - f->n_left < 2 * f->p->n_devices;
}

/* Finds a chunk on the device whose next F has its input by `now`; LH_NONE:
 * none. */
static uint32_t find_f(simulation *f, const device_state *dev, int64_t now)
{
    for (uint32_t i = f->legs; i-- > 0;) {
        uint32_t chunk = dev->chunks[i], m = f->f_next[chunk];
        if (m == f->p->n_microbatches)
            continue;
        if (chunk == 0
                ? may_start_microbatch(f, now)
                : has_arrived(f->f_ready[get_pass_index(f, chunk, m)], now))
            return chunk;
    }
    return LH_NONE;
}

/* Starts the device's next pass, D before F before W, if any is ready. */
static lh_status start_next_pass(simulation *f, uint32_t device, int64_t now,
                                 lh_error *err)
{
    device_state *dev = &f->devices[device];
    uint32_t waiting = dev->n_waiting - dev->n_taken, chunk = LH_NONE;
    if (waiting <= f->p->n_devices) {
        chunk = find_d(f, dev, now);
        if (chunk != LH_NONE)
            return run_pass(f, device, LH_D, chunk, f->d_next[chunk], now, err);
        chunk = find_f(f, dev, now);
        if (chunk != LH_NONE)
            return run_pass(f, device, LH_F, chunk, f->f_next[chunk], now, err);
    }
    if (waiting == 0)
        return LH_OK;
    pending_w of = dev->waiting[dev->n_taken];
    return run_pass(f, device, LH_W, of.chunk, of.microbatch, now, err);
}

/* Allocates and initialises the simulation's state in the orders' arena.
 */
static lh_status allocate_state(simulation *f, lh_error *err)
{
    const lh_pipeline *p = f->p;
    lhi_arena *mem = f->orders->mem;
    size_t cells = (size_t)p->n_chunks * p->n_microbatches;
    uint32_t *chunks = LHI_NEW(mem, uint32_t, p->n_chunks);
    uint32_t *found = LHI_NEW(mem, uint32_t, p->n_devices);
    pending_w *waiting = LHI_NEW(mem, pending_w, cells);
    f->devices = LHI_NEW(mem, device_state, p->n_devices);
    f->links = LHI_NEW(mem, int64_t, p->n_resources + 1);
    f->f_ready = LHI_NEW(mem, int64_t, cells);
    f->d_ready = LHI_NEW(mem, int64_t, cells);
    f->f_end = LHI_NEW(mem, int64_t, cells);
    f->f_next = LHI_NEW(mem, uint32_t, p->n_chunks);
    f->d_next = LHI_NEW(mem, uint32_t, p->n_chunks);
    f->left_ns = LHI_NEW(mem, int64_t, p->n_microbatches);
    if (!chunks || !found || !waiting || !f->devices || !f->links ||
        !f->f_ready || !f->d_ready || !f->f_end || !f->f_next || !f->d_next ||
        !f->left_ns)
        return lhi_fail_nomem(err);
    for (size_t i = 0; i < cells; i++)
        f->f_ready[i] = f->d_ready[i] = -1;
    size_t per_device = (size_t)f->legs * p->n_microbatches;
    for (uint32_t d = 0; d < p->n_devices; d++) {
        f->devices[d].chunks = chunks + (size_t)d * f->legs;
        f->devices[d].waiting = waiting + d * per_device;
    }
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        uint32_t d = p->chunks[c].device;
        chunks[d * f->legs + found[d]++] = c;
    }
    return LH_OK;
}

/* Returns the mean forward time in ns, or 1 if forwards take no time. */
static int64_t compute_mean_forward(const lh_pipeline *p)
{
    int64_t mean = 0, rest = 0, n = p->n_chunks;
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        mean += p->chunks[c].f_ns / n;
        rest += p->chunks[c].f_ns % n;
    }
    mean += (rest + n / 2) / n;
    return mean > 0 ? mean : 1;
}

/* Runs the event simulation until no event is left, which completes the
 * orders. */
static lh_status run_simulation(simulation *f, lh_error *err)
{
    lhi_event event;
    LHI_TRY(allocate_state(f, err));
    for (uint32_t d = 0; d < f->p->n_devices; d++)
        LHI_TRY(push_event(f, d, 0, err));
    /* By time, then by device: the service order. */
    while (lhi_heap_pop(&f->events, &event)) {
        uint32_t device = (uint32_t)event.rank;
        if (f->devices[device].free_ns <= event.time_ns)
            LHI_TRY(start_next_pass(f, device, event.time_ns, err));
    }
    return LH_OK;
}

/* Method "interleaved-zbv": zero-bubble orders on a V or wave by an event
 * simulation with unit passes. */
lh_status lhi_interleaved_zbv(const lh_pipeline *pipeline,
                              const lh_method_options *options, lhi_orders *out,
                              lh_error *err)
{
    LHI_TRY(lhi_orders_init(out, pipeline, 3, err));
    simulation f = {.p = pipeline,
                    .options = options,
                    .orders = out,
                    .legs = pipeline->n_chunks / pipeline->n_devices,
                    .unit_ns = compute_mean_forward(pipeline)};
    lh_status status = run_simulation(&f, err);
    lhi_heap_fini(&f.events);
    if (status != LH_OK)
        lhi_orders_fini(out);
    return status;
}
