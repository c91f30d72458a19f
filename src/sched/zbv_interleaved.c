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
#include "sched/sched.h"

#include <inttypes.h>

/* A pending weight gradient. */
typedef struct fold_pass {
    uint32_t chunk, microbatch;
} fold_pass;

/* Simulation state per device. */
typedef struct fold_device {
    int64_t free_ns;    /* end of its last pass */
    fold_pass *waiting; /* pending weight gradients, oldest first */
    uint32_t n_taken, n_waiting;
    const uint32_t *chunks; /* this device's, in model order */
} fold_device;

/* Simulation state. */
typedef struct fold {
    const lh_pipeline *p;
    const lh_method_options *options;
    lhi_orders *orders;
    uint32_t legs;
    int64_t unit_ns;
    fold_device *devices;
    int64_t *links;             /* per resource: free from this time */
    int64_t *f_ready, *d_ready; /* [chunk * n + microbatch]; < 0: unknown */
    uint32_t *f_next, *d_next;  /* per chunk: next microbatch */
    int64_t *f_end;             /* [chunk * n + microbatch] */
    uint32_t n_entered;         /* microbatches started */
    uint32_t n_left;            /* microbatches finished by now */
    int64_t *left_ns;           /* [microbatch] */
    lhi_heap events;
} fold;

static size_t cell(const fold *f, uint32_t chunk, uint32_t microbatch)
{
    return (size_t)chunk * f->p->n_microbatches + microbatch;
}

/* Schedules an event at which the device may start a pass. */
static lh_status wake(fold *f, uint32_t device, int64_t at, lh_error *err)
{
    if (lhi_heap_push(&f->events, (lhi_event){.time_ns = at, .rank = device}))
        return LH_OK;
    return lhi_fail_nomem(err);
}

/* Returns when a message sent at `at` arrives. */
static int64_t arrival(fold *f, const lhi_route *route, int64_t at)
{
    if (!route->message || route->link == LH_NONE || f->options->ignore_network)
        return at;
    int64_t *link = &f->links[route->resource];
    *link = (at > *link ? at : *link) + route->transfer_ns;
    return *link + route->latency_ns;
}

/* Runs a pass from `now` for one unit and sends its output. */
static lh_status take_pass(fold *f, uint32_t device, lh_pass_kind kind,
                           uint32_t chunk, uint32_t m, int64_t now,
                           lh_error *err)
{
    const lh_pipeline *p = f->p;
    fold_device *dev = &f->devices[device];
    int64_t end = now + f->unit_ns;
    dev->free_ns = end;
    lhi_put(&f->orders->devices[device], kind, chunk, m);
    LHI_TRY(wake(f, device, end, err));
    if (kind == LH_F) {
        f->f_end[cell(f, chunk, m)] = end;
        f->f_next[chunk]++;
        f->n_entered += chunk == 0;
        if (chunk + 1 == p->n_chunks) {
            f->d_ready[cell(f, chunk, m)] = end;
            return LH_OK;
        }
        int64_t there = arrival(f, &p->forward[chunk], end);
        f->f_ready[cell(f, chunk + 1, m)] = there;
        return wake(f, p->chunks[chunk + 1].device, there, err);
    }
    if (kind == LH_W) {
        dev->n_taken++;
        return LH_OK;
    }
    f->d_next[chunk]++;
    dev->waiting[dev->n_waiting++] = (fold_pass){chunk, m};
    if (chunk == 0) {
        f->left_ns[m] = end;
        return LH_OK;
    }
    int64_t there = arrival(f, &p->backward[chunk], end);
    f->d_ready[cell(f, chunk - 1, m)] = there;
    return wake(f, p->chunks[chunk - 1].device, there, err);
}

static bool is_there(int64_t ready_ns, int64_t now)
{
    return ready_ns >= 0 && ready_ns <= now;
}

/* Finds a chunk with a ready input gradient; LH_NONE: none. */
static uint32_t find_d(const fold *f, const fold_device *dev, int64_t now)
{
    for (uint32_t i = 0; i < f->legs; i++) {
        uint32_t chunk = dev->chunks[i], m = f->d_next[chunk];
        if (m == f->p->n_microbatches || m >= f->f_next[chunk])
            continue;
        size_t at = cell(f, chunk, m);
        if (is_there(f->d_ready[at], now) && f->f_end[at] <= now)
            return chunk;
    }
    return LH_NONE;
}

/* Checks whether another microbatch may start: at most 2P in flight. */
static bool may_enter(fold *f, int64_t now)
{
    while (f->n_left < f->d_next[0] && f->left_ns[f->n_left] <= now)
        f->n_left++;
    return f->n_entered - f->n_left < 2 * f->p->n_devices;
}

/* Finds a chunk with a ready forward; LH_NONE: none. */
static uint32_t find_f(fold *f, const fold_device *dev, int64_t now)
{
    for (uint32_t i = f->legs; i-- > 0;) {
        uint32_t chunk = dev->chunks[i], m = f->f_next[chunk];
        if (m == f->p->n_microbatches)
            continue;
        if (chunk == 0 ? may_enter(f, now)
                       : is_there(f->f_ready[cell(f, chunk, m)], now))
            return chunk;
    }
    return LH_NONE;
}

/* Starts the device's next pass, if any is ready. */
static lh_status serve(fold *f, uint32_t device, int64_t now, lh_error *err)
{
    fold_device *dev = &f->devices[device];
    uint32_t waiting = dev->n_waiting - dev->n_taken, chunk = LH_NONE;
    if (waiting <= f->p->n_devices) {
        chunk = find_d(f, dev, now);
        if (chunk != LH_NONE)
            return take_pass(f, device, LH_D, chunk, f->d_next[chunk], now,
                             err);
        chunk = find_f(f, dev, now);
        if (chunk != LH_NONE)
            return take_pass(f, device, LH_F, chunk, f->f_next[chunk], now,
                             err);
    }
    if (waiting == 0)
        return LH_OK;
    fold_pass of = dev->waiting[dev->n_taken];
    return take_pass(f, device, LH_W, of.chunk, of.microbatch, now, err);
}

static lh_status give_room(fold *f, lh_error *err)
{
    const lh_pipeline *p = f->p;
    lhi_arena *mem = f->orders->mem;
    size_t cells = (size_t)p->n_chunks * p->n_microbatches;
    uint32_t *chunks = LHI_NEW(mem, uint32_t, p->n_chunks);
    uint32_t *found = LHI_NEW(mem, uint32_t, p->n_devices);
    fold_pass *waiting = LHI_NEW(mem, fold_pass, cells);
    f->devices = LHI_NEW(mem, fold_device, p->n_devices);
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
static int64_t mean_forward(const lh_pipeline *p)
{
    int64_t mean = 0, rest = 0, n = p->n_chunks;
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        mean += p->chunks[c].f_ns / n;
        rest += p->chunks[c].f_ns % n;
    }
    mean += (rest + n / 2) / n;
    return mean > 0 ? mean : 1;
}

/* Runs the simulation until no event is left. */
static lh_status serve_all(fold *f, lh_error *err)
{
    lhi_event event;
    LHI_TRY(give_room(f, err));
    for (uint32_t d = 0; d < f->p->n_devices; d++)
        LHI_TRY(wake(f, d, 0, err));
    /* By time, then by device: the service order. */
    while (lhi_heap_pop(&f->events, &event)) {
        uint32_t device = (uint32_t)event.rank;
        if (f->devices[device].free_ns <= event.time_ns)
            LHI_TRY(serve(f, device, event.time_ns, err));
    }
    return LH_OK;
}

lh_status lhi_interleaved_zbv(const lh_pipeline *pipeline,
                              const lh_method_options *options, lhi_orders *out,
                              lh_error *err)
{
    LHI_TRY(lhi_orders_init(out, pipeline, 3, err));
    fold f = {.p = pipeline,
              .options = options,
              .orders = out,
              .legs = pipeline->n_chunks / pipeline->n_devices,
              .unit_ns = mean_forward(pipeline)};
    lh_status status = serve_all(&f, err);
    lhi_heap_fini(&f.events);
    if (status != LH_OK)
        lhi_orders_fini(out);
    return status;
}
