/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/simulator/dp_clock.h"

#include <inttypes.h>
#include <string.h>

lh_status lhi_dp_clock_init(const lh_pipeline *p, lhi_arena *mem,
                            lhi_dp_clock *out, lh_error *err)
{
    size_t points = 2 * (size_t)p->n_chunks * p->n_microbatches;
    lhi_dp_clock c = {.p = p,
                      .free_ns = LHI_NEW(mem, int64_t, p->n_devices),
                      .gathered_ns = LHI_NEW(mem, int64_t, p->n_chunks),
                      .next_gather = LHI_NEW(mem, uint32_t, p->n_chunks),
                      .chunk_queue = LHI_NEW(mem, uint32_t, p->n_chunks),
                      .n_unreleased = LHI_NEW(mem, uint32_t, p->n_chunks)};
    if (!c.free_ns || !c.gathered_ns || !c.next_gather || !c.chunk_queue ||
        !c.n_unreleased)
        return lhi_fail_nomem(err);
    if (p->n_dp_ops) {
        c.n_pending = LHI_NEW(mem, uint32_t, points);
        c.ready_ns = LHI_NEW(mem, int64_t, points);
        if (!c.n_pending || !c.ready_ns)
            return lhi_fail_nomem(err);
    }
    LHI_TRY(lhi_dp_clock_make_streams(&c, mem, err));
    *out = c;
    return LH_OK;
}

void lhi_dp_clock_begin(lhi_dp_clock *c, int64_t now)
{
    const lh_pipeline *p = c->p;
    size_t points = 2 * (size_t)p->n_chunks * p->n_microbatches;
    c->last_ns = INT64_MIN;
    c->n_sent = 0;
    for (uint32_t d = 0; d < p->n_devices; d++)
        c->free_ns[d] = now;
    for (uint32_t i = 0; i < p->n_chunks; i++) {
        c->gathered_ns[i] = INT64_MIN;
        c->next_gather[i] = LH_NONE;
        c->n_unreleased[i] = 0;
    }
    lhi_dp_clock_reset_streams(c);
    if (!c->n_pending)
        return;
    memcpy(c->n_pending, p->dp_waits, points * sizeof *c->n_pending);
    for (size_t i = 0; i < points; i++)
        c->ready_ns[i] = now;
}

/* Sends a collective as soon as the device's data-parallel link is free, and
 * returns its arrival time in ns. On links shared with messages it only joins
 * the device's queue; the arrival is then unknown: INT64_MAX. */
static int64_t send_collective(lhi_dp_clock *c, lh_collective what,
                               int64_t transfer_ns, int64_t now)
{
    int64_t *free_ns = &c->free_ns[what.device];
    what.ready_ns = now;
    if (lhi_shares_link(c->p, what.device)) {
        c->sent[c->n_sent] = what;
        lhi_dp_clock_add_to_stream(c, c->n_sent++);
        return INT64_MAX;
    }
    what.depart_ns = now > *free_ns ? now : *free_ns;
    what.sent_ns = *free_ns = what.depart_ns + transfer_ns;
    what.arrive_ns = what.sent_ns + c->p->chunks[what.chunk].dp_latency_ns;
    if (what.arrive_ns > c->last_ns)
        c->last_ns = what.arrive_ns;
    if (c->sent)
        c->sent[c->n_sent] = what;
    c->n_sent++;
    return what.arrive_ns;
}

/* Sends a chunk's all-gather or, with is_scatter, its reduce-scatter as one
 * collective at time `now`. */
static void send_chunk(lhi_dp_clock *c, uint32_t chunk, bool is_scatter,
                       int64_t now)
{
    const lh_chunk *k = &c->p->chunks[chunk];
    int64_t arrives = send_collective(
        c,
        (lh_collective){.chunk = chunk,
                        .device = k->device,
                        .is_reduce_scatter = is_scatter,
                        .op = LH_NONE},
        is_scatter ? k->reduce_scatter_ns : k->all_gather_ns, now);
    if (!is_scatter)
        c->gathered_ns[chunk] = arrives;
}

/* Issues the all-gather for `chunk`, the device's n-th chunk that has one. It
 * starts at the iteration's start or, beyond the prefetch depth
 * p->first_gathers, when the chunk that many positions earlier starts its first
 * forward. */
static void issue_gather(lhi_dp_clock *c, uint32_t n, uint32_t chunk,
                         int64_t now)
{
    uint32_t first = c->p->first_gathers;
    c->chunk_queue[n] = chunk;
    if (first == 0 || n < first) {
        send_chunk(c, chunk, false, now);
        return;
    }
    c->gathered_ns[chunk] = INT64_MAX; /* issued before the first query */
    c->next_gather[c->chunk_queue[n - first]] = chunk;
}

void lhi_dp_clock_add_device(lhi_dp_clock *c, const lh_pass *order,
                             size_t stride, uint32_t count, int64_t now)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < count; i++) {
        const lh_pass *pass =
            (const void *)((const char *)order + (size_t)i * stride);
        if (pass->kind == LH_F && c->p->chunks[pass->chunk].all_gather_ns > 0 &&
            c->gathered_ns[pass->chunk] == INT64_MIN)
            issue_gather(c, n++, pass->chunk, now);
        if (pass->kind == LH_W || pass->kind == LH_B)
            c->n_unreleased[pass->chunk]++;
    }
}

/* Returns a pass's index among the points at which operations launch; D and B
 * of one chunk and microbatch have the same index. */
static size_t get_launch_index(const lhi_dp_clock *c, const lh_pass *pass)
{
    return lhi_pass_index(c->p, pass->chunk, pass->microbatch,
                          pass->kind != LH_F);
}

bool lhi_dp_clock_get_start(const lhi_dp_clock *c, const lh_pass *pass,
                            int64_t *start)
{
    if (pass->kind == LH_F && c->gathered_ns[pass->chunk] > *start)
        *start = c->gathered_ns[pass->chunk];
    if (*start == INT64_MAX)
        return false;
    if (!c->n_pending || pass->kind == LH_W)
        return true;
    size_t point = get_launch_index(c, pass);
    if (c->ready_ns[point] > *start)
        *start = c->ready_ns[point];
    return c->n_pending[point] == 0;
}

/* Launches at time `now` the data-parallel operations whose launching pass has
 * the index `point`, as from get_launch_index(). */
static void launch_operations(lhi_dp_clock *c, size_t point, int64_t now)
{
    const lh_pipeline *p = c->p;
    for (uint32_t i = p->dp_first[point]; i < p->dp_first[point + 1]; i++) {
        const lh_dp_op *op = &p->dp_ops[i];
        int64_t arrives = send_collective(
            c,
            (lh_collective){.chunk = op->chunk,
                            .device = p->chunks[op->chunk].device,
                            .is_reduce_scatter = op->is_reduce_scatter,
                            .op = i},
            op->transfer_ns, now);
        if (arrives < INT64_MAX)
            lhi_dp_clock_note_operation(c, op, arrives);
    }
}

void lhi_dp_clock_on_start(lhi_dp_clock *c, const lh_pass *pass, int64_t start)
{
    if (c->n_pending && pass->kind != LH_W)
        launch_operations(c, get_launch_index(c, pass), start);
    if (pass->kind != LH_F || c->next_gather[pass->chunk] == LH_NONE)
        return;
    send_chunk(c, c->next_gather[pass->chunk], false, start);
    c->next_gather[pass->chunk] = LH_NONE;
}

bool lhi_dp_clock_on_end(lhi_dp_clock *c, const lh_pass *pass, int64_t now)
{
    if ((pass->kind != LH_W && pass->kind != LH_B) ||
        --c->n_unreleased[pass->chunk] > 0)
        return false;
    uint32_t copy = lhi_get_copy(c->p, pass->chunk);
    if (copy != LH_NONE)
        return c->n_unreleased[copy] == 0;
    lhi_dp_clock_scatter(c, pass->chunk, now);
    return false;
}

void lhi_dp_clock_scatter(lhi_dp_clock *c, uint32_t chunk, int64_t now)
{
    if (c->p->chunks[chunk].reduce_scatter_ns > 0)
        send_chunk(c, chunk, true, now);
}

lh_status lhi_dp_clock_fail_late_launch(const lhi_dp_clock *c, uint32_t device,
                                        size_t point, const char *here,
                                        lh_error *err)
{
    const lh_pipeline *p = c->p;
    uint32_t i = 0;
    while (i + 1 < p->n_dp_ops) {
        const lh_dp_op *op = &p->dp_ops[i];
        if (op->needed_by.chunk != LH_NONE &&
            lhi_pass_index(p, op->needed_by.chunk, op->needed_by.microbatch,
                           op->needed_by.backward) == point)
            break;
        i++;
    }
    const lh_dp_op *op = &p->dp_ops[i];
    return lhi_fail(err, LH_EDEADLOCK,
                    "deadlock: device %" PRIu32 " waits at %s for the "
                    "%s of chunk %" PRIu32 " that %" PRIu32 "%c%" PRIu32
                    " launches later in its own order",
                    device, here,
                    op->is_reduce_scatter ? "reduce-scatter" : "all-gather",
                    op->chunk, op->launch.chunk,
                    op->launch.backward ? 'B' : 'F', op->launch.microbatch);
}
