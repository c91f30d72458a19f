/* SPDX-License-Identifier: Apache-2.0 */
/* Computes makespans of many schedules for one pipeline, fast.
 *
 * Overlapped pairs, and reduce-scatters over two copies of the parameters, use
 * the event engine.
 *
 * If every link carries only one device's messages, FIFO equals that device's
 * own order, so no event queue is needed: devices run in any order as far as
 * their inputs are known, with the same end times. Links with several senders
 * or with data-parallel communication, explicit message orders, activation
 * offloading and non-ideal data paths use the event engine. */
#include "schedule/pipeline/idle_limits.h"
#include "schedule/simulator/timeline.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* As a time: not yet computed. */
#define UNKNOWN INT64_MIN

#if defined(__GNUC__)
#define NOINLINE __attribute__((noinline))
#define ALWAYS_INLINE inline __attribute__((always_inline))
#else
#define NOINLINE
#define ALWAYS_INLINE inline
#endif

/* Reusable state for one pipeline. */
struct lh_evaluator {
    const lh_pipeline *p;
    lh_sim_options options;
    lhi_arena *mem;
    bool private_links;
    int64_t *arrive[2]; /* input arrivals for F, and for D or B, per chunk,
                         * microbatch */
    lhi_observed_passes seen;
    int64_t *link_free, *device_free, *dp_free, *gathered;
    uint32_t *pos, *stack, *releases;
    uint32_t *dp_left; /* as in the event engine; NULL: no operations */
    int64_t *dp_ready;
    int64_t dp_last;       /* last arrival of operations issued by passes */
    uint32_t *next_gather; /* as in the event engine; NULL: all at the start */
    uint32_t *line;
    /* Runs end early once a device has been idle for idle_limits[device]. */
    int64_t useless_ns, *idle_limits, *busy;
    bool is_useless;
};

lh_status lh_evaluator_make(const lh_pipeline *pipeline,
                            const lh_sim_options *options, lh_evaluator **out,
                            lh_error *err)
{
    lh_sim_options checked;
    LHI_TRY(lhi_sim_options(pipeline, options, &checked, err));
    const lh_pipeline *p = pipeline;
    size_t n = (size_t)p->n_chunks * p->n_microbatches;
    lhi_arena *mem = lhi_arena_make(0);
    lh_evaluator *e = mem ? LHI_NEW(mem, lh_evaluator, 1) : NULL;
    uint32_t *sender = mem ? LHI_NEW(mem, uint32_t, p->n_resources) : NULL;
    if (!e || !sender)
        goto err_mem;
    *e = (lh_evaluator){
        .p = p,
        .options = checked,
        .mem = mem,
        .arrive = {LHI_NEW(mem, int64_t, n), LHI_NEW(mem, int64_t, n)},
        .seen = {LHI_NEW(mem, uint8_t, n), LHI_NEW(mem, uint32_t, n)},
        .link_free = LHI_NEW(mem, int64_t, p->n_resources),
        .device_free = LHI_NEW(mem, int64_t, p->n_devices),
        .dp_free = LHI_NEW(mem, int64_t, p->n_devices),
        .gathered = LHI_NEW(mem, int64_t, p->n_chunks),
        .pos = LHI_NEW(mem, uint32_t, p->n_devices),
        .stack = LHI_NEW(mem, uint32_t, p->n_devices),
        .releases = LHI_NEW(mem, uint32_t, p->n_chunks),
        .idle_limits = LHI_NEW(mem, int64_t, p->n_devices),
        .busy = LHI_NEW(mem, int64_t, p->n_devices),
    };
    if (!e->arrive[0] || !e->arrive[1] || !e->seen.state || !e->seen.parts ||
        !e->link_free || !e->device_free || !e->dp_free || !e->gathered ||
        !e->pos || !e->stack || !e->releases || !e->idle_limits || !e->busy)
        goto err_mem;
    if (p->n_dp_ops > 0) {
        e->dp_left = LHI_NEW(mem, uint32_t, 2 * n);
        e->dp_ready = LHI_NEW(mem, int64_t, 2 * n);
        if (!e->dp_left || !e->dp_ready)
            goto err_mem;
    }
    if (p->first_gathers > 0) {
        e->next_gather = LHI_NEW(mem, uint32_t, p->n_chunks);
        e->line = LHI_NEW(mem, uint32_t, p->n_chunks);
        if (!e->next_gather || !e->line)
            goto err_mem;
    }
    e->private_links = lhi_pipeline_has_private_links(p, sender);
    lhi_evaluator_set_useless(e, INT64_MAX);
    *out = e;
    return LH_OK;
err_mem:
    lhi_arena_free(mem);
    return lhi_fail_nomem(err);
}

void lh_evaluator_free(lh_evaluator *evaluator)
{
    if (evaluator)
        lhi_arena_free(evaluator->mem);
}

void lhi_evaluator_set_useless(lh_evaluator *evaluator, int64_t useless_ns)
{
    evaluator->useless_ns = useless_ns;
    lhi_pipeline_compute_idle_limits(evaluator->p, useless_ns,
                                     evaluator->idle_limits);
}

/* Computes when the all-gathers before the chunks' first forwards arrive, for
 * schedule `s`'s passes. Returns the last arrival in ns. */
static int64_t run_first_gathers(lh_evaluator *e, const lh_schedule *s)
{
    const lh_pipeline *p = e->p;
    int64_t last = 0;
    for (uint32_t d = 0; d < p->n_devices; d++) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < s->counts[d]; i++) {
            const lh_pass *pass = &s->orders[d][i];
            const lh_chunk *c = &p->chunks[pass->chunk];
            if (pass->kind == LH_W || pass->kind == LH_B)
                e->releases[pass->chunk]++;
            if (pass->kind != LH_F || c->all_gather_ns == 0 ||
                e->gathered[pass->chunk] != 0)
                continue;
            if (e->line) {
                e->line[n++] = pass->chunk;
                if (n > p->first_gathers) {
                    e->gathered[pass->chunk] = INT64_MAX;
                    e->next_gather[e->line[n - 1 - p->first_gathers]] =
                        pass->chunk;
                    continue;
                }
            }
            e->dp_free[d] += c->all_gather_ns;
            e->gathered[pass->chunk] = e->dp_free[d] + c->dp_latency_ns;
            if (e->gathered[pass->chunk] > last)
                last = e->gathered[pass->chunk];
        }
    }
    return last;
}

/* Issues the all-gather that waits for the first forward of `chunk`, which
 * starts at `now` (ns); does nothing if there is none. */
static void issue_next_gather(lh_evaluator *e, uint32_t chunk, int64_t now)
{
    uint32_t next = e->next_gather[chunk];
    if (next == LH_NONE)
        return;
    const lh_chunk *c = &e->p->chunks[next];
    int64_t *free = &e->dp_free[c->device];
    *free = (now > *free ? now : *free) + c->all_gather_ns;
    e->gathered[next] = *free + c->dp_latency_ns;
    if (e->gathered[next] > e->dp_last)
        e->dp_last = e->gathered[next];
    e->next_gather[chunk] = LH_NONE;
}

/* Returns when a chunk's reduce-scatter, issued at `now` (ns), arrives. The
 * device's data-parallel link is occupied until it is sent. */
static int64_t issue_scatter(lh_evaluator *e, const lh_chunk *c, int64_t now)
{
    int64_t *link_free = &e->dp_free[c->device];
    *link_free = (now > *link_free ? now : *link_free) + c->reduce_scatter_ns;
    return *link_free + c->dp_latency_ns;
}

/* Returns when the output from a pass that ends at `now` arrives over `route`,
 * and occupies the route's link. */
static inline int64_t compute_arrival(lh_evaluator *e, const lhi_route *route,
                                      int64_t now)
{
    if (route->resource == LH_NONE)
        return now;
    int64_t *link_free = &e->link_free[route->resource];
    *link_free = (now > *link_free ? now : *link_free) + route->transfer_ns;
    return *link_free + route->latency_ns;
}

/* Returns a pass's start on device d that may start at `now` (ns), delayed
 * until the data-parallel operations that it needs arrive. Launches the
 * operations that this pass launches. `point`: the pass's index for launches.
 * UNKNOWN: the pass never starts. */
static int64_t run_operations(lh_evaluator *e, uint32_t d, size_t point,
                              int64_t now)
{
    const lh_pipeline *p = e->p;
    if (e->dp_left[point] > 0)
        return UNKNOWN; /* launched only by later passes on the device */
    if (e->dp_ready[point] > now)
        now = e->dp_ready[point];
    for (uint32_t i = p->dp_first[point]; i < p->dp_first[point + 1]; i++) {
        const lh_dp_op *op = &p->dp_ops[i];
        int64_t *free = &e->dp_free[d];
        *free = (now > *free ? now : *free) + op->transfer_ns;
        int64_t arrive = *free + p->chunks[op->chunk].dp_latency_ns;
        e->dp_last = arrive > e->dp_last ? arrive : e->dp_last;
        if (op->needed_by.chunk == LH_NONE)
            continue;
        size_t waiting =
            lhi_pass_index(p, op->needed_by.chunk, op->needed_by.microbatch,
                           op->needed_by.backward);
        e->dp_left[waiting]--;
        if (arrive > e->dp_ready[waiting])
            e->dp_ready[waiting] = arrive;
    }
    return now;
}

/* Runs device d's passes until an input is not known yet, and pushes the
 * devices that its outputs wake to e->stack, which has *depth entries. Returns
 * the latest time reached. `operations`: the pipeline has data-parallel
 * operations. */
static ALWAYS_INLINE int64_t run_device(lh_evaluator *e, const lh_schedule *s,
                                        uint32_t d, uint32_t *depth,
                                        bool operations)
{
    const lh_pipeline *p = e->p;
    const lh_pass *order = s->orders[d];
    uint32_t n = p->n_microbatches, count = s->counts[d], i = e->pos[d];
    int64_t now = e->device_free[d], last = 0, busy = e->busy[d];
    for (; i < count; i++) {
        const lh_pass *pass = &order[i];
        uint32_t c = pass->chunk;
        const lh_chunk *chunk = &p->chunks[c];
        size_t at = (size_t)c * n + pass->microbatch;
        size_t out = at;
        const lhi_route *route = NULL;
        int side = pass->kind != LH_F;
        if (pass->kind != LH_W) {
            int64_t input = e->arrive[side][at];
            if (input == UNKNOWN)
                break;
            if (input > now)
                now = input;
            if (!side && e->gathered[c] > now)
                now = e->gathered[c];
            if (operations) {
                if (e->dp_left)
                    now = run_operations(e, d, 2 * at + (size_t)side, now);
                if (now == UNKNOWN)
                    break;
                if (!side && e->next_gather)
                    issue_next_gather(e, c, now);
            }
            if (!side && !lhi_is_last_chunk(p, c)) {
                route = &p->forward[c];
                out = at + n;
            } else if (side && !lhi_is_first_chunk(p, c)) {
                route = &p->backward[c];
                out = at - n;
            }
        }
        const int64_t duration = lhi_pass_duration(p, pass);
        now += duration;
        busy += duration;
        if (route) {
            uint32_t to = p->chunks[side ? c - 1 : c + 1].device;
            e->arrive[side][out] = compute_arrival(e, route, now);
            uint32_t j = e->pos[to];
            if (to != d && j < s->counts[to]) {
                const lh_pass *next = &s->orders[to][j];
                if ((size_t)next->chunk * n + next->microbatch == out &&
                    next->kind != LH_W && (next->kind != LH_F) == side)
                    e->stack[(*depth)++] = to;
            }
        }
        if (p->has_collectives && side && pass->kind != LH_D &&
            --e->releases[c] == 0 && chunk->reduce_scatter_ns > 0) {
            int64_t end = issue_scatter(e, chunk, now);
            if (end > last)
                last = end;
        }
    }
    e->pos[d] = i;
    e->device_free[d] = now;
    e->busy[d] = busy;
    if (now != UNKNOWN && now - busy >= e->idle_limits[d])
        e->is_useless = true;
    return now > last ? now : last;
}

/* Runs a device as run_device() does, for pipelines without data-parallel
 * operations; e->stack then has *depth entries. It is compiled separately,
 * since even an untaken branch costs a fifth of the run time. */
static int64_t run_plain(lh_evaluator *e, const lh_schedule *s, uint32_t d,
                         uint32_t *depth)
{
    return run_device(e, s, d, depth, false);
}

/* Runs a device as run_device() does, for pipelines with data-parallel
 * operations; e->stack then has *depth entries. It is compiled apart from the
 * fast path without them. */
static NOINLINE int64_t run_communicating(lh_evaluator *e, const lh_schedule *s,
                                          uint32_t d, uint32_t *depth)
{
    return run_device(e, s, d, depth, true);
}

/* Resets the evaluator's times, counters and link states before the next
 * schedule. */
static void reset(lh_evaluator *e)
{
    const lh_pipeline *p = e->p;
    size_t n = (size_t)p->n_chunks * p->n_microbatches;
    size_t row = p->n_microbatches;
    memset(e->seen.state, 0, n * sizeof *e->seen.state);
    memset(e->seen.parts, 0, n * sizeof *e->seen.parts);
    for (size_t i = 0; i < n; i++)
        e->arrive[0][i] = e->arrive[1][i] = UNKNOWN;
    /* A first chunk's F and a last chunk's backward need no input. */
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        if (lhi_is_first_chunk(p, c))
            memset(e->arrive[0] + c * row, 0, row * sizeof *e->arrive[0]);
        if (lhi_is_last_chunk(p, c))
            memset(e->arrive[1] + c * row, 0, row * sizeof *e->arrive[1]);
    }
    if (p->blocked_until_ns)
        memcpy(e->link_free, p->blocked_until_ns,
               p->n_resources * sizeof *e->link_free);
    else
        memset(e->link_free, 0, p->n_resources * sizeof *e->link_free);
    memset(e->device_free, 0, p->n_devices * sizeof *e->device_free);
    memset(e->busy, 0, p->n_devices * sizeof *e->busy);
    memset(e->dp_free, 0, p->n_devices * sizeof *e->dp_free);
    memset(e->gathered, 0, p->n_chunks * sizeof *e->gathered);
    memset(e->releases, 0, p->n_chunks * sizeof *e->releases);
    memset(e->pos, 0, p->n_devices * sizeof *e->pos);
    e->dp_last = 0;
    e->is_useless = false;
    if (e->next_gather)
        memset(e->next_gather, 0xff, p->n_chunks * sizeof *e->next_gather);
    if (e->dp_left) {
        memcpy(e->dp_left, p->dp_waits, 2 * n * sizeof *e->dp_left);
        memset(e->dp_ready, 0, 2 * n * sizeof *e->dp_ready);
    }
}

/* Computes the schedule's makespan in ns into *makespan_ns with the event
 * engine, for options that the fast evaluator does not support. */
static lh_status run_events(lh_evaluator *e, const lh_schedule *schedule,
                            int64_t *makespan_ns, lh_error *err)
{
    lhi_arena *mem = lhi_arena_make(0);
    lh_timeline *timeline;
    if (!mem)
        return lhi_fail_nomem(err);
    lh_status status = lhi_event_engine_run(
        e->p, schedule, &e->options, NULL, e->idle_limits, mem, &timeline, err);
    if (status == LH_OK)
        *makespan_ns = timeline->makespan_ns;
    lhi_arena_free(mem);
    return status;
}

lh_status lh_evaluator_run(lh_evaluator *evaluator, const lh_schedule *schedule,
                           int64_t *makespan_ns, lh_error *err)
{
    lh_evaluator *e = evaluator;
    const lh_pipeline *p = e->p;
    bool ordered = schedule->n_link_orders > 0 && !e->options.fifo;
    if (p->overlap_f_b > 0 || (p->bidirectional && p->has_collectives) ||
        !e->private_links || ordered || p->offloads || p->shared_at ||
        e->options.coupled_queue || e->options.receives != LH_RECEIVES_EARLY ||
        (e->options.host_copy_ns > 0 && lh_pipeline_has_host(p)))
        return run_events(e, schedule, makespan_ns, err);
    reset(e);
    LHI_TRY(lhi_orders_check(p, schedule, &e->seen, err));
    int64_t last = p->has_collectives ? run_first_gathers(e, schedule) : 0;
    uint32_t depth = 0;
    /* A device is on the stack at most once: only the input that it waits for
     * wakes it. The stack pops the last device first, so none is woken before
     * its turn. */
    for (uint32_t d = 0; d < p->n_devices; d++) {
        e->stack[depth++] = d;
        while (depth > 0) {
            uint32_t next = e->stack[--depth];
            int64_t end = e->dp_left || e->next_gather
                              ? run_communicating(e, schedule, next, &depth)
                              : run_plain(e, schedule, next, &depth);
            if (end > last)
                last = end;
            if (e->is_useless) {
                *makespan_ns = INT64_MAX;
                return LH_OK;
            }
        }
    }
    for (uint32_t d = 0; d < p->n_devices; d++)
        /* deadlock: the event engine explains it */
        if (e->pos[d] < schedule->counts[d])
            return run_events(e, schedule, makespan_ns, err);
    *makespan_ns = last > e->dp_last ? last : e->dp_last;
    return LH_OK;
}
