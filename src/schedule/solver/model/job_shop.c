/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/solver/model/job_shop.h"

#include "base/integer_math.h"
#include "schedule/pipeline/pipeline_internal.h"

#include <string.h>

/* Maximum number of operations that are pieces of collectives on links. */
enum { MAX_SHARED_PIECES = 4096 };

/* A precedence with a minimum delay. */
typedef struct arc {
    uint32_t from, to;
    int64_t lag;
} arc;

/* State while building a job shop. */
typedef struct builder {
    lhi_shop *s;
    const lh_pipeline *p;
    bool fifo, loose;
    bool shares; /* collectives of devices that share links are on them */
    uint32_t *per_device, *chunk_at, *chunks; /* chunks by device */
    uint32_t *n_gathers, *n_scatters;         /* per device */
    int64_t *gather_sum;
    arc *arcs;
    size_t n_arcs, room_arcs;
} builder;

/* Appends a machine to the job shop, without streams, leader (machine whose
 * order it follows) or memory limit; returns its index. */
static uint32_t add_machine(builder *m, lhi_machine_kind kind, uint32_t index)
{
    lhi_shop *s = m->s;
    s->machines[s->n_machines] = (lhi_machine){.kind = kind,
                                               .index = index,
                                               .first_stream = s->n_streams,
                                               .leader = NONE,
                                               .memory_limit = LH_NO_LIMIT};
    return s->n_machines++;
}

/* Adds a stream (all same-kind passes on one chunk, or a route's
 * messages) with `count` operations to the machine added last. `per`:
 * operations per microbatch. Returns its index. */
static uint32_t add_stream(builder *m, lhi_stream_kind kind, uint32_t chunk,
                           uint32_t per, uint32_t count)
{
    lhi_shop *s = m->s;
    uint32_t machine = s->n_machines - 1;
    s->streams[s->n_streams] =
        (lhi_stream){.kind = kind,
                     .chunk = chunk,
                     .machine = machine,
                     .slot = s->machines[machine].n_streams++,
                     .first = s->n_ops,
                     .count = count,
                     .per = per};
    s->n_ops += count;
    return s->n_streams++;
}

/* Checks whether the collectives of `device` become operations on link
 * machines, because they share links with messages. Otherwise they are on
 * machines that follow the device's order. */
static bool shares_link(const builder *m, uint32_t device)
{
    return m->shares && lhi_shares_link(m->p, device);
}

/* Sorts the chunks by device, so that each device's chunks are contiguous. */
static void sort_chunks(builder *m)
{
    const lh_pipeline *p = m->p;
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        uint32_t d = p->chunks[c].device;
        m->per_device[d]++;
        if (!shares_link(m, d)) {
            m->n_gathers[d] += p->chunks[c].all_gather_ns > 0;
            m->n_scatters[d] += p->chunks[c].reduce_scatter_ns > 0;
        }
        m->gather_sum[d] += p->chunks[c].all_gather_ns;
    }
    uint32_t at = 0;
    for (uint32_t d = 0; d < p->n_devices; d++) {
        m->chunk_at[d] = at;
        at += m->per_device[d];
        m->per_device[d] = 0;
    }
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        uint32_t d = p->chunks[c].device;
        m->chunks[m->chunk_at[d] + m->per_device[d]++] = c;
    }
}

/* Adds a machine with pass streams for each device, and machines for the
 * data-parallel links of devices with several chunks. */
static void add_devices(builder *m)
{
    lhi_shop *s = m->s;
    const lh_pipeline *p = m->p;
    uint32_t n = p->n_microbatches;
    for (uint32_t d = 0; d < p->n_devices; d++) {
        s->device_machine[d] = NONE;
        if (m->per_device[d] == 0)
            continue;
        uint32_t machine = add_machine(m, LHI_DEVICE, d);
        s->device_machine[d] = machine;
        int64_t held = 0;
        for (uint32_t i = 0; i < m->per_device[d]; i++) {
            uint32_t c = m->chunks[m->chunk_at[d] + i];
            s->f[c] = add_stream(m, LHI_F, c, 1, n);
            s->d[c] = add_stream(m, LHI_D, c, 1, n);
            s->w[c] = p->joint
                          ? NONE
                          : add_stream(m, LHI_W, c, s->parts, n * s->parts);
            held += p->chunks[c].mem_static;
        }
        if (p->memory_limits[d] != LH_NO_LIMIT)
            s->machines[machine].memory_limit = p->memory_limits[d] - held;
    }
    for (uint32_t d = 0; d < p->n_devices; d++) {
        if (m->per_device[d] < 2 || m->n_gathers[d] + m->n_scatters[d] == 0)
            continue;
        for (int side = 0; side < 2; side++) {
            uint32_t machine =
                add_machine(m, side ? LHI_SCATTERS : LHI_GATHERS, d);
            s->machines[machine].leader = s->device_machine[d];
            for (uint32_t i = 0; i < m->per_device[d]; i++) {
                uint32_t c = m->chunks[m->chunk_at[d] + i];
                const lh_chunk *k = &p->chunks[c];
                if (side ? k->reduce_scatter_ns > 0 : k->all_gather_ns > 0)
                    add_stream(m, side ? LHI_SCATTER : LHI_GATHER, c, 1, 1);
            }
        }
    }
}

/* Returns message route i of the pipeline: from chunk i/2 to the next chunk if
 * i is even, to the previous one if it is odd. */
static const lhi_route *get_route(const lh_pipeline *p, uint32_t i)
{
    return i % 2 ? &p->backward[i / 2] : &p->forward[i / 2];
}

/* Returns the duration in ns of chunk c's F (`forward`) or of its D (D and W if
 * joint). */
static int64_t get_pass_ns(const lh_pipeline *p, uint32_t c, bool forward)
{
    const lh_chunk *k = &p->chunks[c];
    return forward ? k->f_ns : k->d_ns + (p->joint ? k->w_ns : 0);
}

/* Checks whether chunk c's collectives occupy link resource r. */
static bool occupies_link(const builder *m, uint32_t c, uint32_t r)
{
    const lh_pipeline *p = m->p;
    uint32_t d = p->chunks[c].device;
    if (!shares_link(m, d))
        return false;
    for (uint32_t i = p->shared_at[d]; i < p->shared_at[d + 1]; i++)
        if (p->shared[i] == r)
            return true;
    return false;
}

/* Adds the collectives that occupy link resource r as operations to the machine
 * added last, one per piece (collective slice). A collective on several links
 * has operations on each of them. That these run at the same times is
 * relaxed. */
static void add_shared_collectives(builder *m, uint32_t r)
{
    const lh_pipeline *p = m->p;
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        int64_t times[2] = {p->chunks[c].all_gather_ns,
                            p->chunks[c].reduce_scatter_ns};
        for (int i = 0; i < 2; i++) {
            if (times[i] == 0 || !occupies_link(m, c, r))
                continue;
            uint32_t n = lhi_count_pieces(p, times[i]);
            add_stream(m, i ? LHI_SCATTER : LHI_GATHER, c, n, n);
        }
    }
}

/* Checks whether collectives occupy link resource r. */
static bool carries_collectives(const builder *m, uint32_t r)
{
    const lh_pipeline *p = m->p;
    for (uint32_t c = 0; m->shares && c < p->n_chunks; c++)
        if ((p->chunks[c].all_gather_ns > 0 ||
             p->chunks[c].reduce_scatter_ns > 0) &&
            occupies_link(m, c, r))
            return true;
    return false;
}

/* Decides whether collectives on links shared with messages become operations
 * of the link machines: only if links carry one transfer at a time, and if
 * there are not too many pieces (slices of collectives). Otherwise each device
 * gets its own link for them, which is a relaxation. */
static void find_shared_links(builder *m)
{
    const lh_pipeline *p = m->p;
    uint64_t n = 0;
    for (uint32_t c = 0; p->shared_at && c < p->n_chunks; c++) {
        uint32_t d = p->chunks[c].device;
        n += (uint64_t)(p->shared_at[d + 1] - p->shared_at[d]) *
             (lhi_count_pieces(p, p->chunks[c].all_gather_ns) +
              lhi_count_pieces(p, p->chunks[c].reduce_scatter_ns));
    }
    m->shares = n > 0 && n <= MAX_SHARED_PIECES && p->dp_priority != LH_DP_FAIR;
    /* On shared links the order and the times of transfers differ from the
     * simulator's, and copies of offloaded activations are omitted. */
    m->s->shares_links = p->shared_at != NULL;
    m->s->times_relaxed = m->s->shares_links || p->offloads;
}

/* Adds the link of resource r as a machine if its messages can wait for each
 * other or for collectives. They can if several streams share it, or if one
 * sender is faster than the link. */
static void add_link(builder *m, uint32_t r, const uint32_t *routes, uint32_t n)
{
    lhi_shop *s = m->s;
    const lh_pipeline *p = m->p;
    bool shared = carries_collectives(m, r), busy = shared, one_sender = true;
    uint32_t sender = n > 0 ? p->chunks[routes[0] / 2].device : LH_NONE;
    for (uint32_t i = 0; i < n; i++) {
        busy = busy || get_route(p, routes[i])->transfer_ns > 0;
        one_sender = one_sender && p->chunks[routes[i] / 2].device == sender;
    }
    if (!busy)
        return;
    if (!shared && n == 1 &&
        get_route(p, routes[0])->transfer_ns <=
            get_pass_ns(p, routes[0] / 2, routes[0] % 2 == 0))
        return;
    uint32_t machine = add_machine(m, LHI_LINK, r);
    s->link_machine[r] = machine;
    if (m->fifo && n > 1 && one_sender && !shared)
        s->machines[machine].leader = s->device_machine[sender];
    else if (m->fifo && n > 1)
        s->times_relaxed = true;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t c = routes[i] / 2;
        uint32_t stream =
            add_stream(m, routes[i] % 2 ? LHI_MESSAGE_D : LHI_MESSAGE_F, c, 1,
                       p->n_microbatches);
        *(routes[i] % 2 ? &s->message_d[c] : &s->message_f[c]) = stream;
    }
    if (shared)
        add_shared_collectives(m, r);
}

/* Groups the routes by link resource and adds the links as machines. */
static lh_status add_links(builder *m, lh_error *err)
{
    const lh_pipeline *p = m->p;
    uint32_t n_routes = 2 * p->n_chunks;
    uint32_t *at = LHI_NEW(m->s->mem, uint32_t, (size_t)p->n_resources + 2);
    uint32_t *sorted = LHI_NEW(m->s->mem, uint32_t, n_routes);
    if (!at || !sorted)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < n_routes; i++)
        if (get_route(p, i)->message && get_route(p, i)->resource != LH_NONE)
            at[get_route(p, i)->resource + 2]++;
    for (uint32_t r = 0; r < p->n_resources; r++)
        at[r + 2] += at[r + 1];
    for (uint32_t i = 0; i < n_routes; i++)
        if (get_route(p, i)->message && get_route(p, i)->resource != LH_NONE)
            sorted[at[get_route(p, i)->resource + 1]++] = i;
    for (uint32_t r = 0; r < p->n_resources; r++) {
        m->s->link_machine[r] = NONE;
        if (at[r + 1] > at[r] || carries_collectives(m, r))
            add_link(m, r, sorted + at[r], at[r + 1] - at[r]);
    }
    return LH_OK;
}

/* --- operations ---------------------------------------------------------- */

/* Returns the smallest part if `total`, a time or memory amount, is divided
 * into `parts` integer parts that differ by at most 1. */
static int64_t compute_min_share(int64_t total, uint32_t parts)
{
    int64_t least = total;
    for (uint32_t i = 0; i < parts; i++) {
        int64_t share = lhi_split_evenly(total, i, parts);
        least = i == 0 || share < least ? share : least;
    }
    return least;
}

/* Returns the duration in ns of operation number x of stream `t`; for a divided
 * W that of one part. */
static int64_t get_operation_ns(const builder *m, const lhi_stream *t,
                                uint32_t x)
{
    const lh_chunk *c = &m->p->chunks[t->chunk];
    lh_pass part = {t->chunk,         0,    (uint16_t)(x % t->per),
                    (uint16_t)t->per, LH_W, false};
    if (t->kind == LHI_W && m->loose)
        return compute_min_share(c->w_ns, t->per);
    switch (t->kind) {
    case LHI_F:
    case LHI_D:
        return get_pass_ns(m->p, t->chunk, t->kind == LHI_F);
    case LHI_W:
        return lhi_pass_duration(m->p, &part);
    case LHI_MESSAGE_F:
        return m->p->forward[t->chunk].transfer_ns;
    case LHI_MESSAGE_D:
        return m->p->backward[t->chunk].transfer_ns;
    case LHI_GATHER:
        return lhi_split_evenly(c->all_gather_ns, x, t->count);
    default:
        return lhi_split_evenly(c->reduce_scatter_ns, x, t->count);
    }
}

/* Returns by how much operation number x of stream `t` changes the device's
 * memory; negative: it releases memory. */
static int64_t get_operation_memory(const builder *m, const lhi_stream *t,
                                    uint32_t x)
{
    const lh_chunk *c = &m->p->chunks[t->chunk];
    lh_pass part = {t->chunk,         0,    (uint16_t)(x % t->per),
                    (uint16_t)t->per, LH_W, false};
    if (t->kind == LHI_W && m->loose)
        return compute_min_share(c->mem_w, t->per);
    switch (t->kind) {
    case LHI_F:
        return c->mem_f;
    case LHI_D:
        return c->mem_d + (m->p->joint ? c->mem_w : 0);
    case LHI_W:
        return lhi_pass_memory_change(c, &part);
    default:
        return 0;
    }
}

/* Fills in durations and memory changes of all operations. */
static lh_status fill_ops(builder *m, lh_error *err)
{
    lhi_shop *s = m->s;
    s->stream_of = LHI_NEW(s->mem, uint32_t, s->n_ops);
    s->time = LHI_NEW(s->mem, int64_t, s->n_ops);
    s->memory = LHI_NEW(s->mem, int64_t, s->n_ops);
    s->head = LHI_NEW(s->mem, int64_t, s->n_ops);
    s->tail = LHI_NEW(s->mem, int64_t, s->n_ops);
    if (!s->stream_of || !s->time || !s->memory || !s->head || !s->tail)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < s->n_streams; i++) {
        const lhi_stream *t = &s->streams[i];
        for (uint32_t x = 0; x < t->count; x++) {
            s->stream_of[t->first + x] = i;
            s->time[t->first + x] = get_operation_ns(m, t, x);
            s->memory[t->first + x] = get_operation_memory(m, t, x);
            /* Unequal parts could gain from another order among them; pieces
             * of a collective have a fixed order. */
            if (t->kind != LHI_GATHER && t->kind != LHI_SCATTER &&
                (s->time[t->first + x] != s->time[t->first] ||
                 s->memory[t->first + x] != s->memory[t->first]))
                s->restricted = true;
        }
    }
    return LH_OK;
}

/* Adds an arc: operation `to` starts at least `lag` after the end of `from`.
 * Called in two rounds, first to count the arcs, then to store them. */
static void add_arc(builder *m, uint32_t from, uint32_t to, int64_t lag)
{
    if (m->arcs)
        m->arcs[m->n_arcs] = (arc){from, to, lag};
    m->n_arcs++;
}

/* Adds, per microbatch, precedence arcs from the pass in stream `from` to the
 * pass in stream `to` (a stream: same-kind operations on one chunk), through
 * the message in stream `message` unless that is NONE. `route` gives the
 * message's delays. */
static void add_flow(builder *m, uint32_t from, uint32_t message, uint32_t to,
                     const lhi_route *route)
{
    const lhi_shop *s = m->s;
    uint32_t a = s->streams[from].first, b = s->streams[to].first;
    for (uint32_t j = 0; j < s->n_microbatches; j++) {
        if (message == NONE) {
            add_arc(m, a + j, b + j, route->transfer_ns + route->latency_ns);
            continue;
        }
        uint32_t between = s->streams[message].first + j;
        add_arc(m, a + j, between, 0);
        add_arc(m, between, b + j, route->latency_ns);
    }
}

/* Expresses chunk c's memory limit by arcs (precedences) if only F takes memory
 * and only one stream (operations in fixed order) releases it. F number i then
 * starts after enough releases to make it fit. */
static void add_memory(builder *m, uint32_t c)
{
    const lhi_shop *s = m->s;
    const lh_chunk *k = &m->p->chunks[c];
    lhi_machine *device = &s->machines[s->device_machine[k->device]];
    int64_t room = device->memory_limit;
    bool joint = m->p->joint;
    if (m->per_device[k->device] != 1 || room == LH_NO_LIMIT || k->mem_f <= 0 ||
        (joint ? k->mem_d + k->mem_w > 0 : k->mem_d != 0 || k->mem_w > 0))
        return;
    const lhi_stream *f = &s->streams[s->f[c]];
    const lhi_stream *d = &s->streams[s->d[c]];
    const lhi_stream *w = joint ? d : &s->streams[s->w[c]];
    device->arcs_enforce_memory = true;
    int64_t held = 0, held_whole = 0;
    uint32_t released = 0, whole = 0;
    for (uint32_t i = 0; i < f->count; i++) {
        held += k->mem_f;
        while (held > room && released < i * w->per)
            held += s->memory[w->first + released++];
        if (released > 0)
            add_arc(m, w->first + released - 1, f->first + i, 0);
        /* However much its parts free, one microbatch releases at most a whole
         * W, so this many must have had their D. */
        held_whole += m->loose ? k->mem_f : 0;
        for (; m->loose && held_whole > room && whole < i; whole++)
            held_whole += k->mem_w;
        if (whole > 0)
            add_arc(m, d->first + whole - 1, f->first + i, 0);
    }
}

/* Adds precedence arcs for collectives that are operations: of data-parallel
 * links that are their own machines, or of links with messages. */
static void add_collectives(builder *m)
{
    lhi_shop *s = m->s;
    const lh_pipeline *p = m->p;
    for (uint32_t i = 0; i < s->n_streams; i++) {
        const lhi_stream *t = &s->streams[i];
        const lh_chunk *c = &p->chunks[t->chunk];
        if (t->kind == LHI_GATHER)
            add_arc(m, t->first + t->count - 1,
                    s->streams[s->f[t->chunk]].first, c->dp_latency_ns);
        if (t->kind != LHI_SCATTER)
            continue;
        const lhi_stream *last =
            &s->streams[p->joint ? s->d[t->chunk] : s->w[t->chunk]];
        add_arc(m, last->first + last->count - 1, t->first, 0);
        s->tail[t->first + t->count - 1] = c->dp_latency_ns;
        /* All gathers have finished by then, in any order. */
        s->head[t->first] = m->gather_sum[c->device];
    }
}

/* Returns the all-gather stream on link machine k of the first of device d's
 * chunks that has one; NULL: none. This all-gather is queued at time 0 before
 * the device's others, because no chunk is used before an earlier one. */
static const lhi_stream *find_first_gather(const builder *m,
                                           const lhi_machine *k, uint32_t d)
{
    const lhi_stream *t = &m->s->streams[k->first_stream], *first = NULL;
    for (uint32_t i = 0; i < k->n_streams; i++)
        if (t[i].kind == LHI_GATHER && m->p->chunks[t[i].chunk].device == d &&
            (!first || t[i].chunk < first->chunk))
            first = &t[i];
    return first;
}

/* Checks whether the data-parallel communication of two devices uses the same
 * links, which it shares with messages. */
static bool share_same_links(const lh_pipeline *p, uint32_t a, uint32_t b)
{
    uint32_t n = p->shared_at[a + 1] - p->shared_at[a];
    return n == p->shared_at[b + 1] - p->shared_at[b] &&
           memcmp(&p->shared[p->shared_at[a]], &p->shared[p->shared_at[b]],
                  n * sizeof *p->shared) == 0;
}

/* Adds precedence arcs between the first pieces (slices) of the devices' first
 * all-gathers on link machine k, which enter its queue at time 0 in device
 * order. With FIFO links all messages follow them, since no message is ready at
 * time 0. */
static void order_first_gathers(builder *m, const lhi_machine *k)
{
    const lhi_shop *s = m->s;
    const lh_pipeline *p = m->p;
    bool fifo = p->dp_priority == LH_DP_FIFO;
    uint32_t before = NONE, sender = 0;
    for (uint32_t d = 0; d < p->n_devices; d++) {
        const lhi_stream *t = find_first_gather(m, k, d);
        if (!t)
            continue;
        if (before != NONE && (fifo || share_same_links(p, sender, d)))
            add_arc(m, before, t->first, 0);
        before = t->first;
        sender = d;
    }
    for (uint32_t i = 0; fifo && before != NONE && i < k->n_streams; i++) {
        const lhi_stream *t = &s->streams[k->first_stream + i];
        if (t->kind == LHI_MESSAGE_F || t->kind == LHI_MESSAGE_D)
            add_arc(m, before, t->first, 0);
    }
}

/* Adds all precedence arcs between operations; called twice, first to count the
 * arcs, then to store them. */
static void add_arcs(builder *m)
{
    lhi_shop *s = m->s;
    const lh_pipeline *p = m->p;
    lhi_route here = {.link = LH_NONE, .resource = LH_NONE};
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        if (!lhi_is_last_chunk(p, c))
            add_flow(m, s->f[c], s->message_f[c], s->f[c + 1], &p->forward[c]);
        else
            add_flow(m, s->f[c], NONE, s->d[c], &here);
        if (!lhi_is_first_chunk(p, c))
            add_flow(m, s->d[c], s->message_d[c], s->d[c - 1], &p->backward[c]);
        for (uint32_t x = 0; !p->joint && x < s->streams[s->w[c]].count; x++)
            add_arc(m, s->streams[s->d[c]].first + x / s->parts,
                    s->streams[s->w[c]].first + x, 0);
        add_memory(m, c);
    }
    add_collectives(m);
    for (uint32_t i = 0; m->shares && i < s->n_machines; i++)
        if (s->machines[i].kind == LHI_LINK && p->chunks[0].f_ns > 0)
            order_first_gathers(m, &s->machines[i]);
}

/* Lists all arcs (precedences with a minimum delay) between operations: counts
 * them, allocates their arrays and stores them. */
static lh_status collect_arcs(builder *m, lh_error *err)
{
    lhi_shop *s = m->s;
    add_arcs(m);
    m->arcs = LHI_NEW(s->mem, arc, m->n_arcs);
    s->succ_at = LHI_NEW(s->mem, uint32_t, (size_t)s->n_ops + 2);
    s->pred_at = LHI_NEW(s->mem, uint32_t, (size_t)s->n_ops + 2);
    s->succ = LHI_NEW(s->mem, uint32_t, m->n_arcs);
    s->pred = LHI_NEW(s->mem, uint32_t, m->n_arcs);
    s->succ_lag = LHI_NEW(s->mem, int64_t, m->n_arcs);
    s->pred_lag = LHI_NEW(s->mem, int64_t, m->n_arcs);
    if (!m->arcs || !s->succ_at || !s->pred_at || !s->succ || !s->pred ||
        !s->succ_lag || !s->pred_lag)
        return lhi_fail_nomem(err);
    m->n_arcs = 0;
    add_arcs(m);
    return LH_OK;
}

/* Sorts the arcs (precedences with a minimum delay) by source and by target, so
 * that each operation's successors and predecessors are contiguous. */
static void index_arcs(builder *m)
{
    lhi_shop *s = m->s;
    for (size_t i = 0; i < m->n_arcs; i++) {
        s->succ_at[m->arcs[i].from + 2]++;
        s->pred_at[m->arcs[i].to + 2]++;
    }
    for (uint32_t o = 0; o < s->n_ops; o++) {
        s->succ_at[o + 2] += s->succ_at[o + 1];
        s->pred_at[o + 2] += s->pred_at[o + 1];
    }
    for (size_t i = 0; i < m->n_arcs; i++) {
        const arc *a = &m->arcs[i];
        uint32_t at = s->succ_at[a->from + 1]++;
        s->succ[at] = a->to;
        s->succ_lag[at] = a->lag;
        at = s->pred_at[a->to + 1]++;
        s->pred[at] = a->from;
        s->pred_lag[at] = a->lag;
    }
}

/* --- time ----------------------------------------------------------------- */

/* Sets heads (earliest starts) and tails (time that must follow) for the
 * data-parallel communication of devices with one chunk. */
static void set_heads_and_tails(builder *m, lh_solve_objective objective)
{
    lhi_shop *s = m->s;
    const lh_pipeline *p = m->p;
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        const lh_chunk *k = &p->chunks[c];
        if (m->per_device[k->device] != 1)
            continue;
        const lhi_stream *last = &s->streams[p->joint ? s->d[c] : s->w[c]];
        if (k->all_gather_ns > 0)
            s->head[s->streams[s->f[c]].first] =
                k->all_gather_ns + k->dp_latency_ns;
        if (k->reduce_scatter_ns > 0)
            s->tail[last->first + last->count - 1] =
                k->reduce_scatter_ns + k->dp_latency_ns;
    }
    if (objective != LH_SOLVE_OBJECTIVE_FIRST_DEVICE)
        return;
    uint32_t asked = s->device_machine[p->chunks[0].device];
    for (uint32_t o = 0; o < s->n_ops; o++)
        s->tail[o] = s->streams[s->stream_of[o]].machine == asked ? 0 : -1;
}

/* Divides all times of the job shop by their greatest common divisor, and
 * scales them so that no duration of 0 remains. */
static lh_status scale_times(builder *m, lh_error *err)
{
    lhi_shop *s = m->s;
    int64_t unit = 0;
    bool zero = false;
    for (uint32_t o = 0; o < s->n_ops; o++) {
        unit = lhi_gcd(unit, s->time[o]);
        unit = lhi_gcd(unit, s->head[o]);
        unit = lhi_gcd(unit, lhi_max_int64(s->tail[o], 0));
        zero = zero || s->time[o] == 0;
    }
    for (size_t i = 0; i < m->n_arcs; i++)
        unit = lhi_gcd(unit, s->succ_lag[i]);
    s->unit_ns = unit > 0 ? unit : 1;
    s->scale = zero ? (int64_t)s->n_ops + 1 : 1;
    long double total = 0;
    for (uint32_t o = 0; o < s->n_ops; o++)
        total += (long double)s->time[o] +
                 (long double)lhi_max_int64(s->tail[o], 0) +
                 (long double)s->head[o];
    for (size_t i = 0; i < m->n_arcs; i++)
        total += (long double)s->succ_lag[i];
    total = total / (long double)s->unit_ns * (long double)s->scale +
            (long double)s->n_ops;
    if (total > (long double)(FAR / 16))
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "the times are too long for exact search while some "
                        "passes take none; give every pass a time");
    s->horizon = s->n_ops;
    int64_t factor = s->scale, unit_ns = s->unit_ns;
    for (uint32_t o = 0; o < s->n_ops; o++) {
        s->time[o] = s->time[o] ? s->time[o] / unit_ns * factor : 1;
        s->head[o] = s->head[o] / unit_ns * factor;
        if (s->tail[o] > 0)
            s->tail[o] = s->tail[o] / unit_ns * factor;
        s->horizon += s->time[o] + s->head[o] + lhi_max_int64(s->tail[o], 0);
    }
    for (size_t i = 0; i < m->n_arcs; i++) {
        s->succ_lag[i] = s->succ_lag[i] / unit_ns * factor;
        s->pred_lag[i] = s->pred_lag[i] / unit_ns * factor;
        s->horizon += s->succ_lag[i];
    }
    for (uint32_t o = 0; o < s->n_ops; o++)
        if (s->tail[o] < 0)
            s->tail[o] = -s->horizon;
    return LH_OK;
}

bool lhi_shop_has_single_chunks(const lhi_shop *s)
{
    for (uint32_t m = 0; m < s->n_machines; m++)
        if (s->machines[m].kind == LHI_DEVICE && s->machines[m].n_streams > 3)
            return false;
    return true;
}

void lhi_shop_add_host_copies(lhi_shop *s, int64_t host_copy_ns)
{
    int64_t factor = s->unit_ns / lhi_gcd(s->unit_ns, host_copy_ns);
    if (factor > FAR / 16 / s->horizon)
        factor = 1;
    for (uint32_t o = 0; o < s->n_ops; o++) {
        s->time[o] *= factor;
        s->head[o] *= factor;
        s->tail[o] *= factor;
    }
    for (uint32_t i = 0; i < s->succ_at[s->n_ops]; i++) {
        s->succ_lag[i] *= factor;
        s->pred_lag[i] *= factor;
    }
    s->horizon *= factor;
    s->scale *= factor;
    const int64_t unit_ns = s->unit_ns / factor, most = FAR / 16 / s->n_ops;
    const int64_t units = host_copy_ns / unit_ns + (host_copy_ns % unit_ns > 0);
    const int64_t scale = s->scale / factor;
    s->host_copy = units > most / scale ? most : units * scale;
    /* Operations outside the objective stay so, however late they end. */
    for (uint32_t o = 0; o < s->n_ops; o++)
        if (s->tail[o] < 0)
            s->tail[o] -= s->n_ops * s->host_copy;
    s->times_relaxed = true;
}

int64_t lhi_shop_get_deadline(const lhi_shop *shop, int64_t units)
{
    return units * shop->scale + shop->scale - 1;
}

/* --- construction --------------------------------------------------------- */

/* Builds machines, streams, rules, arcs and scaled times of the job shop, in
 * this order. */
static lh_status make_all(builder *m, lh_solve_objective objective,
                          lh_error *err)
{
    find_shared_links(m);
    sort_chunks(m);
    add_devices(m);
    LHI_TRY(add_links(m, err));
    LHI_TRY(fill_ops(m, err));
    LHI_TRY(lhi_shop_make_rules(m->s, err));
    LHI_TRY(collect_arcs(m, err));
    index_arcs(m);
    set_heads_and_tails(m, objective);
    return scale_times(m, err);
}

/* Builds a job shop from the builder `m`, in which the caller has set the
 * pipeline (p), whether links are FIFO (fifo), and whether W parts are relaxed
 * to equal ones (loose). `parts`: parts per W. */
static lh_status make_shop(builder m, uint32_t parts,
                           lh_solve_objective objective, lhi_arena *mem,
                           lhi_shop **out, lh_error *err)
{
    const lh_pipeline *p = m.p;
    lhi_shop *s = LHI_NEW(mem, lhi_shop, 1);
    m.s = s;
    size_t chunks = p->n_chunks, devices = p->n_devices;
    m.per_device = LHI_NEW(mem, uint32_t, devices);
    m.chunk_at = LHI_NEW(mem, uint32_t, devices);
    m.chunks = LHI_NEW(mem, uint32_t, chunks);
    m.n_gathers = LHI_NEW(mem, uint32_t, devices);
    m.n_scatters = LHI_NEW(mem, uint32_t, devices);
    m.gather_sum = LHI_NEW(mem, int64_t, devices);
    uint32_t *ids = LHI_NEW(mem, uint32_t, 5 * chunks);
    if (!s || !m.per_device || !m.chunk_at || !m.chunks || !m.n_gathers ||
        !m.n_scatters || !m.gather_sum || !ids)
        return lhi_fail_nomem(err);
    memset(ids, 0xff, 5 * chunks * sizeof *ids);
    *s = (lhi_shop){.p = p,
                    .mem = mem,
                    .parts_relaxed = m.loose,
                    .n_microbatches = p->n_microbatches,
                    .parts = p->joint ? 1 : parts,
                    .f = ids,
                    .d = ids + chunks,
                    .w = ids + 2 * chunks,
                    .message_f = ids + 3 * chunks,
                    .message_d = ids + 4 * chunks};
    size_t n_shared = 0; /* collectives on links */
    for (uint32_t c = 0; p->shared_at && c < chunks; c++)
        n_shared += p->shared_at[p->chunks[c].device + 1] -
                    p->shared_at[p->chunks[c].device];
    s->streams = LHI_NEW(mem, lhi_stream, 7 * chunks + 2 * n_shared);
    s->machines = LHI_NEW(mem, lhi_machine, 3 * devices + p->n_resources);
    s->device_machine = LHI_NEW(mem, uint32_t, devices);
    s->link_machine = LHI_NEW(mem, uint32_t, p->n_resources);
    if (!s->streams || !s->machines || !s->device_machine || !s->link_machine)
        return lhi_fail_nomem(err);
    if ((uint64_t)chunks * p->n_microbatches * (4 + (uint64_t)parts) > 1u << 26)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "too many passes for exact search");
    LHI_TRY(make_all(&m, objective, err));
    *out = s;
    return LH_OK;
}

lh_status lhi_shop_make(const lh_pipeline *p, uint32_t parts, bool fifo,
                        lh_solve_objective objective, lhi_arena *mem,
                        lhi_shop **out, lh_error *err)
{
    return make_shop((builder){.p = p, .fifo = fifo}, parts, objective, mem,
                     out, err);
}

lh_status lhi_shop_make_relaxed(const lh_pipeline *p, uint32_t parts, bool fifo,
                                lh_solve_objective objective, lhi_arena *mem,
                                lhi_shop **out, lh_error *err)
{
    return make_shop((builder){.p = p, .fifo = fifo, .loose = true}, parts,
                     objective, mem, out, err);
}

uint32_t lhi_machine_count_operations(const lhi_shop *shop, uint32_t machine)
{
    const lhi_machine *m = &shop->machines[machine];
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->n_streams; i++)
        n += shop->streams[m->first_stream + i].count;
    return n;
}
