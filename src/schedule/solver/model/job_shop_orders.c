/* SPDX-License-Identifier: Apache-2.0 */
/* Converts between a job shop's orders and schedules. */
#include "schedule/pipeline/pipeline_internal.h"
#include "schedule/simulator/timeline.h"
#include "schedule/solver/model/job_shop.h"

#include <longhaul/experimental/simulate.h>
#include <string.h>

/* Returns operation `op`'s pass; for a message the pass that produces
 * it. */
static lh_pass convert_operation(const lhi_shop *s, uint32_t op)
{
    const lhi_stream *t = &s->streams[s->stream_of[op]];
    uint32_t x = op - t->first;
    lh_pass pass = {t->chunk, x / t->per, 0, 1, LH_F, false};
    uint8_t back = s->p->joint ? LH_B : LH_D;
    switch (t->kind) {
    case LHI_D:
    case LHI_MESSAGE_D:
        pass.kind = back;
        break;
    case LHI_W:
        pass.kind = LH_W;
        pass.part = (uint16_t)(x % t->per);
        pass.n_parts = (uint16_t)t->per;
        break;
    default:
        break;
    }
    return pass;
}

/* Checks whether a stream has pieces of a collective. */
static bool is_collective(const lhi_stream *t)
{
    return t->kind == LHI_GATHER || t->kind == LHI_SCATTER;
}

/* Converts the operation order of *n operations to passes, allocated in `mem`;
 * operations that are pieces of collectives are left out. Sets *n to the pass
 * count. NULL: out of memory. */
static lh_pass *convert_order(const lhi_shop *s, lhi_arena *mem,
                              const uint32_t *order, uint32_t *n)
{
    lh_pass *passes = LHI_NEW(mem, lh_pass, *n);
    uint32_t n_passes = 0;
    for (uint32_t i = 0; passes && i < *n; i++)
        if (!is_collective(&s->streams[s->stream_of[order[i]]]))
            passes[n_passes++] = convert_operation(s, order[i]);
    *n = n_passes;
    return passes;
}

/* Counts the message streams of a link's machine. */
static uint32_t count_message_streams(const lhi_shop *s, const lhi_machine *k)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < k->n_streams; i++)
        n += !is_collective(&s->streams[k->first_stream + i]);
    return n;
}

/* Builds a schedule from orders[machine], the order of operations on every
 * machine; `links`: includes the message orders of links. Scratch memory comes
 * from `mem`. */
static lh_status build_schedule(const lhi_shop *s,
                                const uint32_t *const *orders, bool links,
                                lhi_arena *mem, lh_schedule **out,
                                lh_error *err)
{
    const lh_pipeline *p = s->p;
    const lh_pass **rows = LHI_NEW(mem, const lh_pass *, p->n_devices);
    uint32_t *counts = LHI_NEW(mem, uint32_t, p->n_devices);
    lh_link_order *order = LHI_NEW(mem, lh_link_order, p->n_resources);
    uint32_t n_orders = 0;
    if (!rows || !counts || !order)
        return lhi_fail_nomem(err);
    for (uint32_t m = 0; m < s->n_machines; m++) {
        const lhi_machine *k = &s->machines[m];
        bool link =
            links && k->kind == LHI_LINK && count_message_streams(s, k) > 1;
        if (k->kind != LHI_DEVICE && !link)
            continue;
        uint32_t n = lhi_machine_count_operations(s, m);
        lh_pass *passes = convert_order(s, mem, orders[m], &n);
        if (!passes)
            return lhi_fail_nomem(err);
        if (link) {
            order[n_orders++] =
                (lh_link_order){p->resource_names[k->index], n, passes};
        } else {
            rows[k->index] = passes;
            counts[k->index] = n;
        }
    }
    return lh_schedule_make(p->n_devices, rows, counts, n_orders, order, out,
                            err);
}

lh_status lhi_shop_build_schedule(const lhi_shop *shop,
                                  const uint32_t *const *orders, bool links,
                                  lh_schedule **out, lh_error *err)
{
    lhi_arena *mem = lhi_arena_make(0);
    if (!mem)
        return lhi_fail_nomem(err);
    lh_status status = build_schedule(shop, orders, links, mem, out, err);
    lhi_arena_free(mem);
    return status;
}

/* State while reading orders from a schedule. */
typedef struct order_reader {
    const lhi_shop *s;
    uint32_t *const *orders;
    uint32_t *filled; /* per machine */
    uint32_t *next;   /* per stream */
} order_reader;

/* Appends the next `times` operations of a stream (operations in fixed order)
 * to the order of the stream's machine; false: the stream has fewer left. */
static bool append_next(order_reader *f, uint32_t stream, uint32_t times)
{
    if (stream == NONE)
        return true;
    const lhi_stream *t = &f->s->streams[stream];
    for (uint32_t i = 0; i < times; i++) {
        if (f->next[stream] == t->count)
            return false;
        f->orders[t->machine][f->filled[t->machine]++] =
            t->first + f->next[stream]++;
    }
    return true;
}

/* Appends device d's passes in the schedule to its machine's order; false:
 * they do not match the job shop. */
static bool append_device(order_reader *f, const lh_schedule *schedule,
                          uint32_t d)
{
    const lhi_shop *s = f->s;
    uint32_t n;
    const lh_pass *order = lh_schedule_order(schedule, d, &n);
    for (uint32_t i = 0; i < n; i++) {
        const lh_pass *pass = &order[i];
        uint32_t c = pass->chunk, times = 1;
        if (pass->kind == LH_W && pass->n_parts == 1)
            times = s->parts;
        else if (pass->kind == LH_W && pass->n_parts != s->parts)
            return false;
        uint32_t stream = pass->kind == LH_F   ? s->f[c]
                          : pass->kind == LH_W ? s->w[c]
                                               : s->d[c];
        if (!append_next(f, stream, times))
            return false;
    }
    return true;
}

/* Appends the operations of a data-parallel link's machine to its order, which
 * follows the device's passes. Gathers have the order of their chunks' first
 * forwards, scatters that of the last backwards. */
static void append_collectives(order_reader *f, uint32_t machine)
{
    const lhi_shop *s = f->s;
    const lhi_machine *k = &s->machines[machine];
    const uint32_t *order = f->orders[k->leader];
    uint32_t n = lhi_machine_count_operations(s, k->leader);
    for (uint32_t i = 0; i < n; i++) {
        const lhi_stream *t = &s->streams[s->stream_of[order[i]]];
        bool first = order[i] == t->first;
        bool last = order[i] == t->first + t->count - 1;
        bool release = t->kind == (s->p->joint ? LHI_D : LHI_W);
        if (k->kind == LHI_GATHERS ? !(first && t->kind == LHI_F)
                                   : !(last && release))
            continue;
        for (uint32_t j = 0; j < k->n_streams; j++)
            if (s->streams[k->first_stream + j].chunk == t->chunk)
                append_next(f, k->first_stream + j, 1);
    }
}

/* Appends a piece of a collective to the order of every link that it
 * occupies; false: it does not match the job shop. */
static bool append_piece(order_reader *f, const lh_timeline *timeline,
                         uint32_t piece)
{
    const lhi_shop *s = f->s;
    const lh_pipeline *p = s->p;
    const lh_collective *what =
        &timeline->collectives[timeline->pieces[piece].collective];
    lhi_stream_kind kind = what->is_reduce_scatter ? LHI_SCATTER : LHI_GATHER;
    uint32_t d = what->device;
    bool ok = true;
    for (uint32_t i = p->shared_at[d]; ok && i < p->shared_at[d + 1]; i++) {
        uint32_t machine = s->link_machine[p->shared[i]];
        const lhi_machine *k = machine == NONE ? NULL : &s->machines[machine];
        for (uint32_t j = 0; k && j < k->n_streams; j++) {
            const lhi_stream *t = &s->streams[k->first_stream + j];
            if (t->kind == kind && t->chunk == what->chunk)
                ok = append_next(f, k->first_stream + j, 1);
        }
    }
    return ok;
}

/* Appends the messages and pieces (slices of collectives) of the timeline to
 * the links' orders, in departure order; false: they do not match the job
 * shop. */
static bool append_messages(order_reader *f, const lh_timeline *timeline)
{
    const lhi_shop *s = f->s;
    uint32_t n, next = 0;
    const lh_message *all = lh_timeline_messages(timeline, &n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t c = all[i].producer.chunk;
        while (next < timeline->n_pieces &&
               timeline->pieces[next].n_messages <= i)
            if (!append_piece(f, timeline, next++))
                return false;
        if (!append_next(f,
                         all[i].producer.kind == LH_F ? s->message_f[c]
                                                      : s->message_d[c],
                         1))
            return false;
    }
    while (next < timeline->n_pieces)
        if (!append_piece(f, timeline, next++))
            return false;
    return true;
}

lh_status lhi_shop_read_orders(const lhi_shop *shop,
                               const lh_schedule *schedule,
                               uint32_t *const *orders, bool *fits,
                               lh_error *err)
{
    lh_timeline *timeline = NULL;
    lh_sim_options sim = {.size = sizeof sim};
    LHI_TRY(lh_simulate(shop->p, schedule, &sim, &timeline, err));
    *fits = false;
    lhi_arena *mem = lhi_arena_make(0);
    order_reader f = {.s = shop, .orders = orders};
    f.filled = mem ? LHI_NEW(mem, uint32_t, shop->n_machines) : NULL;
    f.next = mem ? LHI_NEW(mem, uint32_t, shop->n_streams) : NULL;
    if (!f.filled || !f.next) {
        lhi_arena_free(mem);
        lh_timeline_free(timeline);
        return lhi_fail_nomem(err);
    }
    bool ok = lh_timeline_fits(timeline, NULL);
    for (uint32_t d = 0; ok && d < shop->p->n_devices; d++)
        ok = append_device(&f, schedule, d);
    ok = ok && append_messages(&f, timeline);
    for (uint32_t m = 0; ok && m < shop->n_machines; m++)
        if (shop->machines[m].kind == LHI_GATHERS ||
            shop->machines[m].kind == LHI_SCATTERS)
            append_collectives(&f, m);
    for (uint32_t i = 0; ok && i < shop->n_streams; i++)
        ok = f.next[i] == shop->streams[i].count;
    *fits = ok;
    lhi_arena_free(mem);
    lh_timeline_free(timeline);
    return LH_OK;
}
