/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the model: a pipeline as operations in rows on machines, with arcs
 * between them. */
#include "schedule/verifier/model.h"
#include "schedule/verifier/verifier.h"

#include "base/integer_math.h"
#include "schedule/pipeline/accessors.h"

#include <longhaul/experimental/pipeline.h>

#include <stdlib.h>
#include <string.h>

/* Limits of memory: operations, and positions in the tables of machines. */
enum { MOST_OPS = 1 << 22, MOST_SLOTS = 1 << 26 };

/* State while building the model. */
typedef struct builder {
    lhi_verify_model *c;
    const lh_pipeline *p;
    lhi_verifier links; /* link assignment */
    uint32_t n_chunks, n_devices, n, parts;
    bool joint;
    uint32_t *f, *d, *w, *mf, *md; /* rows by chunk; LH_NONE */
    /* the same; LH_NONE if alone on its device */
    uint32_t *gather, *scatter;
    uint32_t *alone;   /* per device: number of chunks */
    int64_t *held;     /* per device: static memory, */
    int64_t *gathered; /* ... total all-gather time */
} builder;

/* Returns chunk c of the pipeline. */
static const lh_chunk *get_chunk(const builder *b, uint32_t c)
{
    return lh_pipeline_chunk(b->p, c);
}

/* Returns the duration of chunk c's D in ns, or of D and W if they are joint.
 */
static int64_t get_back_ns(const builder *b, uint32_t c)
{
    return get_chunk(b, c)->d_ns + (b->joint ? get_chunk(b, c)->w_ns : 0);
}

/* Appends a row (same-kind operations, in fixed order) with `count` operations
 * to the last machine; returns its index. */
static uint32_t append_row(builder *b, lhi_verify_row row, uint32_t count)
{
    lhi_verify_model *c = b->c;
    lhi_verify_machine *m = &c->machines[c->n_machines - 1];
    row.machine = c->n_machines - 1;
    row.slot = m->n_rows++;
    row.first = c->n_ops;
    row.count = count;
    m->n_ops += row.count;
    c->n_ops += row.count;
    c->rows[c->n_rows] = row;
    return c->n_rows++;
}

/* Appends a row (same-kind operations, in fixed order) with `per` operations
 * per microbatch to the last machine; returns its index. */
static uint32_t append_microbatch_row(builder *b, lhi_verify_row row,
                                      uint32_t per)
{
    row.per = per;
    return append_row(b, row, b->n * per);
}

/* Appends a machine without rows and without memory limit to the model, for a
 * device or, with `device` LH_NONE, for a link. */
static void add_machine(builder *b, uint32_t device, const char *link)
{
    lhi_verify_model *c = b->c;
    c->machines[c->n_machines++] = (lhi_verify_machine){.device = device,
                                                        .link = link,
                                                        .first_row = c->n_rows,
                                                        .first_op = c->n_ops,
                                                        .room = INT64_MAX};
}

/* Appends a machine for a device, with a row (same-kind operations) for each
 * kind of pass of its chunks. */
static void add_device(builder *b, uint32_t device)
{
    uint32_t last = b->n_chunks - 1;
    int64_t limit = lh_pipeline_memory_limit(b->p, device);
    if (b->alone[device] == 0)
        return;
    add_machine(b, device, "");
    if (limit != LH_NO_LIMIT)
        b->c->machines[b->c->n_machines - 1].room = limit - b->held[device];
    for (uint32_t c = 0; c < b->n_chunks; c++) {
        const lh_chunk *k = get_chunk(b, c);
        if (k->device != device)
            continue;
        uint32_t down = 2 * c, up = 2 * (2 * last + 1 - c);
        b->f[c] = append_microbatch_row(b,
                                        (lhi_verify_row){.kind = LH_F,
                                                         .chunk = c,
                                                         .place = down,
                                                         .time = k->f_ns,
                                                         .memory = k->mem_f},
                                        1);
        b->d[c] = append_microbatch_row(
            b,
            (lhi_verify_row){.kind = b->joint ? LH_B : LH_D,
                             .chunk = c,
                             .place = up,
                             .time = get_back_ns(b, c),
                             .memory = k->mem_d + (b->joint ? k->mem_w : 0)},
            1);
        if (!b->joint)
            b->w[c] = append_microbatch_row(
                b,
                (lhi_verify_row){.kind = LH_W,
                                 .chunk = c,
                                 .place = up,
                                 .time = k->w_ns / b->parts,
                                 .memory = k->mem_w / b->parts},
                b->parts);
    }
}

/* Appends machines for a device's data-parallel links, one for gathers and one
 * for scatters, each with one operation per chunk. The model omits that their
 * order follows the passes' order. */
static void add_collectives(builder *b, uint32_t device)
{
    for (int after = 0; after < 2 && b->alone[device] > 1; after++) {
        bool any = false;
        for (uint32_t c = 0; c < b->n_chunks; c++) {
            const lh_chunk *k = get_chunk(b, c);
            int64_t time = after ? k->reduce_scatter_ns : k->all_gather_ns;
            if (k->device != device || time == 0)
                continue;
            if (!any)
                add_machine(b, LH_NONE, "");
            any = true;
            *(after ? &b->scatter[c] : &b->gather[c]) = append_row(
                b,
                (lhi_verify_row){.kind = after ? LHI_SCATTERED : LHI_GATHERED,
                                 .chunk = c,
                                 .per = 1,
                                 .time = time},
                1);
        }
    }
}

/* Appends a row of operations for chunk c's messages over link resource
 * `resource`, forward or (`back`) backward. Messages that have the link to
 * themselves (`only`) and are produced no faster than it carries them never
 * wait; for these it adds a delay instead. */
static void add_messages(builder *b, uint32_t resource, uint32_t c, bool back,
                         bool only)
{
    uint32_t link = back ? b->links.backward[c] : b->links.forward[c];
    uint32_t last = b->n_chunks - 1;
    if (back ? c == 0 : c == last)
        return;
    if (link == LHI_SAME_DEVICE || link == LHI_NO_LINK ||
        b->links.link_resources[link] != resource)
        return;
    int64_t time = lh_pipeline_link(b->p, link)->transfer_ns;
    if (time == 0 ||
        (only && time <= (back ? get_back_ns(b, c) : get_chunk(b, c)->f_ns)))
        return;
    lhi_verify_model *m = b->c;
    const char *name = b->links.resource_names[resource];
    if (m->n_machines == 0 ||
        strcmp(m->machines[m->n_machines - 1].link, name) != 0)
        add_machine(b, LH_NONE, name);
    uint32_t row = append_microbatch_row(
        b,
        (lhi_verify_row){.kind = back ? (b->joint ? LH_B : LH_D) : LH_F,
                         .message = true,
                         .chunk = c,
                         .place = back ? 2 * (2 * last + 1 - c) + 1 : 2 * c + 1,
                         .time = time},
        1);
    *(back ? &b->md[c] : &b->mf[c]) = row;
}

/* Returns the link resource of route i, which is 2 * chunk, plus 1 if
 * backward; LH_NONE: the route needs no link. */
static uint32_t get_resource(const builder *b, uint32_t i)
{
    uint32_t c = i / 2;
    bool back = i % 2 == 1;
    if (c == (back ? 0 : b->n_chunks - 1))
        return LH_NONE;
    uint32_t link = back ? b->links.backward[c] : b->links.forward[c];
    return link == LHI_SAME_DEVICE || link == LHI_NO_LINK
               ? LH_NONE
               : b->links.link_resources[link];
}

/* Appends machines to the model for all links whose messages can wait for each
 * other. */
static lh_status add_links(builder *b, lh_error *err)
{
    uint32_t n = b->links.n_resources, n_routes = 2 * b->n_chunks;
    uint32_t *head = LHI_NEW(b->c->mem, uint32_t, n);
    uint32_t *next = LHI_NEW(b->c->mem, uint32_t, n_routes);
    if (!head || !next)
        return lhi_fail_nomem(err);
    memset(head, 0xff, n * sizeof *head);
    for (uint32_t i = n_routes; i-- > 0;) {
        uint32_t r = get_resource(b, i);
        if (r == LH_NONE)
            continue;
        next[i] = head[r];
        head[r] = i;
    }
    for (uint32_t r = 0; r < n; r++)
        for (uint32_t i = head[r]; i != LH_NONE; i = next[i])
            add_messages(b, r, i / 2, i % 2 == 1,
                         i == head[r] && next[i] == LH_NONE);
    return LH_OK;
}

/* --- precedences ---------------------------------------------------------- */

/* Returns how many operations of row `from` (same-kind operations on one chunk)
 * must precede operation i of row `to`: all those of the same and earlier
 * microbatches. A part of a W therefore needs the whole preceding pass. */
static uint32_t count_same_microbatch(const lhi_verify_row *from,
                                      const lhi_verify_row *to, uint32_t i)
{
    return (i / to->per + 1) * from->per;
}

/* Returns how many operations of row `release`, which free memory, must precede
 * F number i so that the activations of i + 1 microbatches fit into the memory
 * `room`. At most all earlier microbatches can have released theirs. */
static uint32_t count_releases(const lhi_verify_row *release,
                               const lhi_verify_row *f, int64_t room,
                               uint32_t i)
{
    int64_t over = f->memory * ((int64_t)i + 1) - room;
    int64_t all = (int64_t)i * release->per, each = -release->memory;
    if (over <= 0)
        return 0;
    return (uint32_t)(each > 0 ? lhi_min_int64((over + each - 1) / each, all)
                               : all);
}

/* Appends a precedence between two rows (operations of one chunk and kind):
 * `to` follows `from` after delay `lag`. Its tables `need` and `first` are
 * still empty. NULL: out of memory. */
static lhi_verify_precedence *add_precedence(builder *b, uint32_t from,
                                             uint32_t to, int64_t lag)
{
    lhi_verify_model *c = b->c;
    lhi_verify_row *x = &c->rows[from], *y = &c->rows[to];
    lhi_verify_precedence *p = &c->precedences[c->n_precedences];
    *p = (lhi_verify_precedence){.from = from,
                                 .to = to,
                                 .lag = lag,
                                 .need = LHI_NEW(c->mem, uint32_t, y->count),
                                 .first = LHI_NEW(c->mem, uint32_t, x->count),
                                 .next_out = x->out,
                                 .next_in = y->in};
    x->out = y->in = c->n_precedences++;
    return p->need && p->first ? p : NULL;
}

/* Computes p->first[x], the first operation of row p->to that needs operation x
 * of row p->from, from p->need, the predecessor count per operation. */
static void invert_counts(const lhi_verify_model *c, lhi_verify_precedence *p)
{
    uint32_t i = 0;
    for (uint32_t x = 0; x < c->rows[p->from].count; x++) {
        while (i < c->rows[p->to].count && p->need[i] <= x)
            i++;
        p->first[x] = i;
    }
}

/* Adds a precedence with delay `lag` from row `from` to row `to` (same-kind
 * operations) within every microbatch; false: out of memory. */
static bool connect_rows(builder *b, uint32_t from, uint32_t to, int64_t lag)
{
    lhi_verify_precedence *p = add_precedence(b, from, to, lag);
    const lhi_verify_row *rows = b->c->rows;
    for (uint32_t i = 0; p && i < rows[to].count; i++)
        p->need[i] = count_same_microbatch(&rows[from], &rows[to], i);
    if (p)
        invert_counts(b->c, p);
    return p != NULL;
}

/* Adds a precedence with delay `lag` from all operations of row `from` to all
 * of row `to` (a row: same-kind operations on one chunk); false: out of
 * memory. */
static bool connect_whole_rows(builder *b, uint32_t from, uint32_t to,
                               int64_t lag)
{
    lhi_verify_precedence *p = add_precedence(b, from, to, lag);
    const lhi_verify_row *rows = b->c->rows;
    for (uint32_t i = 0; p && i < rows[to].count; i++)
        p->need[i] = rows[from].count;
    if (p)
        invert_counts(b->c, p);
    return p != NULL;
}

/* Adds the precedence from row `from` to row `to` (same-kind operations on one
 * chunk) over a link, through the row `message` if the link's messages have
 * one; false: out of memory. */
static bool connect_route(builder *b, uint32_t from, uint32_t message,
                          uint32_t to, uint32_t link)
{
    const lh_link *l = link == LHI_SAME_DEVICE || link == LHI_NO_LINK
                           ? NULL
                           : lh_pipeline_link(b->p, link);
    int64_t lag = l ? l->latency_ns : 0;
    if (message != LH_NONE)
        return connect_rows(b, from, message, 0) &&
               connect_rows(b, message, to, lag);
    return connect_rows(b, from, to, lag + (l ? l->transfer_ns : 0));
}

/* Expresses a chunk's memory limit as a precedence if it is alone on its
 * device, only F takes memory and one row releases it; false: out of memory. */
static bool connect_memory(builder *b, uint32_t chunk)
{
    const lhi_verify_row *rows = b->c->rows, *f = &rows[b->f[chunk]];
    uint32_t from = b->joint ? b->d[chunk] : b->w[chunk];
    const lhi_verify_machine *m = &b->c->machines[f->machine];
    if (b->alone[m->device] != 1 || m->room == INT64_MAX || f->memory <= 0 ||
        rows[from].memory > 0 || (!b->joint && rows[b->d[chunk]].memory != 0))
        return true;
    lhi_verify_precedence *p = add_precedence(b, from, b->f[chunk], 0);
    for (uint32_t i = 0; p && i < f->count; i++)
        p->need[i] = count_releases(&rows[from], f, m->room, i);
    if (p)
        invert_counts(b->c, p);
    return p != NULL;
}

/* Adds the precedences between a chunk's rows (F, D, W) and to its neighbours'
 * rows; false: out of memory. */
static bool connect_chunk(builder *b, uint32_t c)
{
    uint32_t next = c + 1, last = b->joint ? b->d[c] : b->w[c];
    bool ok = next == b->n_chunks
                  ? connect_rows(b, b->f[c], b->d[c], 0)
                  : connect_route(b, b->f[c], b->mf[c], b->f[next],
                                  b->links.forward[c]);
    if (c > 0)
        ok = ok && connect_route(b, b->d[c], b->md[c], b->d[c - 1],
                                 b->links.backward[c]);
    if (!b->joint)
        ok = ok && connect_rows(b, b->d[c], b->w[c], 0);
    if (b->gather[c] != LH_NONE)
        ok = ok && connect_whole_rows(b, b->gather[c], b->f[c],
                                      get_chunk(b, c)->dp_latency_ns);
    if (b->scatter[c] != LH_NONE)
        ok = ok && connect_whole_rows(b, last, b->scatter[c], 0);
    return ok && connect_memory(b, c);
}

/* Adds all precedences between rows to the model. At most seven per chunk: two
 * along each direction, W, memory, and one of each collective. */
static lh_status add_precedences(builder *b, lh_error *err)
{
    lhi_verify_model *c = b->c;
    c->precedences =
        LHI_NEW(c->mem, lhi_verify_precedence, 8 * (size_t)b->n_chunks);
    bool ok = c->precedences != NULL;
    for (uint32_t r = 0; r < c->n_rows; r++)
        c->rows[r].out = c->rows[r].in = LH_NONE;
    for (uint32_t i = 0; ok && i < b->n_chunks; i++)
        ok = connect_chunk(b, i);
    return ok ? LH_OK : lhi_fail_nomem(err);
}

/* --- time ---------------------------------------------------------------- */

/* Returns the greatest common divisor. */
static int64_t compute_divisor(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Sets heads and tails for data-parallel communication: times before a chunk's
 * first F and after its last W or B. Gathers are issued from the start, so all
 * have finished, one after another, before any scatter. */
static void set_heads_and_tails(builder *b)
{
    lhi_verify_model *c = b->c;
    for (uint32_t i = 0; i < b->n_chunks; i++) {
        const lh_chunk *k = get_chunk(b, i);
        const lhi_verify_row *last = &c->rows[b->joint ? b->d[i] : b->w[i]];
        bool alone = b->alone[k->device] == 1;
        if (alone && k->all_gather_ns > 0)
            c->head[c->rows[b->f[i]].first] =
                k->all_gather_ns + k->dp_latency_ns;
        if (alone && k->reduce_scatter_ns > 0)
            c->tail[last->first + last->count - 1] =
                k->reduce_scatter_ns + k->dp_latency_ns;
        if (b->scatter[i] == LH_NONE)
            continue;
        uint32_t o = c->rows[b->scatter[i]].first;
        c->tail[o] = k->dp_latency_ns;
        c->head[o] = b->gathered[k->device];
    }
}

/* Converts all times to units of their greatest common divisor; false: the sum
 * of all times is too large for the model. */
static bool scale_times(builder *b)
{
    lhi_verify_model *c = b->c;
    int64_t unit = 0;
    bool zero = false;
    double total = 0;
    for (uint32_t r = 0; r < c->n_rows; r++) {
        unit = compute_divisor(unit, c->rows[r].time);
        zero = zero || c->rows[r].time == 0;
        total += (double)c->rows[r].time * c->rows[r].count;
    }
    for (uint32_t o = 0; o < c->n_ops; o++) {
        unit = compute_divisor(compute_divisor(unit, c->head[o]), c->tail[o]);
        total += (double)c->head[o] + (double)c->tail[o];
    }
    for (uint32_t i = 0; i < c->n_precedences; i++) {
        const lhi_verify_precedence *p = &c->precedences[i];
        unit = compute_divisor(unit, p->lag);
        total += (double)p->lag * c->rows[p->to].count;
    }
    c->unit_ns = unit > 0 ? unit : 1;
    c->scale = zero ? (int64_t)c->n_ops + 1 : 1;
    if (total / (double)c->unit_ns * (double)c->scale > 1e17)
        return false;
    for (uint32_t r = 0; r < c->n_rows; r++)
        c->rows[r].time =
            c->rows[r].time ? c->rows[r].time / c->unit_ns * c->scale : 1;
    for (uint32_t o = 0; o < c->n_ops; o++) {
        c->head[o] = c->head[o] / c->unit_ns * c->scale;
        c->tail[o] = c->tail[o] / c->unit_ns * c->scale;
    }
    for (uint32_t i = 0; i < c->n_precedences; i++)
        c->precedences[i].lag = c->precedences[i].lag / c->unit_ns * c->scale;
    return true;
}

int64_t lhi_verify_get_deadline(const lhi_verify_model *claim, int64_t ns)
{
    int64_t units = ns / claim->unit_ns;
    if ((double)units * (double)claim->scale > 1e18)
        return -1;
    return units * claim->scale + claim->scale - 1;
}

int64_t lhi_verify_get_next_makespan(const lhi_verify_model *claim, int64_t ns)
{
    return (ns / claim->unit_ns + 1) * claim->unit_ns;
}

/* --- construction -------------------------------------------------------- */

/* Allocates the capacity check's scratch arrays, for the machine with the most
 * operations; false: out of memory. */
static bool allocate_capacity(lhi_verify_model *c)
{
    size_t most = 1, leaves = 1;
    for (uint32_t m = 0; m < c->n_machines; m++)
        most = c->machines[m].n_ops > most ? c->machines[m].n_ops : most;
    while (leaves < most)
        leaves *= 2;
    c->events = LHI_NEW(c->mem, lhi_verify_event, most);
    c->rank = LHI_NEW(c->mem, uint32_t, most);
    c->demand = LHI_NEW(c->mem, lhi_verify_demand, 2 * leaves);
    return c->events && c->rank && c->demand;
}

/* Allocates the model's arrays per operation, and per pair of an operation and
 * a row (same-kind operations on one chunk) of its machine. */
static lh_status allocate_ops(builder *b, const char **why, lh_error *err)
{
    lhi_verify_model *c = b->c;
    size_t n = c->n_ops, slots = 0;
    int64_t *times = LHI_NEW(c->mem, int64_t, 6 * n);
    uint32_t *ids = LHI_NEW(c->mem, uint32_t, 2 * n);
    bool *marks = LHI_NEW(c->mem, bool, n + c->n_machines);
    c->slot_at = LHI_NEW(c->mem, size_t, n + 1);
    if (!times || !ids || !marks || !c->slot_at || !allocate_capacity(c))
        return lhi_fail_nomem(err);
    int64_t **time_arrays[] = {&c->head,   &c->tail,      &c->start,
                               &c->finish, &c->new_start, &c->new_finish};
    for (size_t i = 0; i < 6; i++)
        *time_arrays[i] = times + i * n;
    c->row_of = ids;
    c->queue = ids + n;
    c->queued = marks;
    c->dirty = marks + n;
    for (uint32_t r = 0; r < c->n_rows; r++)
        for (uint32_t x = 0; x < c->rows[r].count; x++)
            c->row_of[c->rows[r].first + x] = r;
    for (size_t o = 0; o < n; o++) {
        c->slot_at[o] = slots;
        slots += c->machines[c->rows[c->row_of[o]].machine].n_rows;
    }
    c->slot_at[n] = slots;
    if (slots > MOST_SLOTS) {
        *why = "the pipeline is too large";
        return LH_OK;
    }
    c->least = LHI_NEW(c->mem, uint32_t, slots);
    c->most = LHI_NEW(c->mem, uint32_t, slots);
    return c->least && c->most ? LH_OK : lhi_fail_nomem(err);
}

/* Allocates the builder's tables, and sums up chunks, memory and gathers per
 * device. Sets *why to the reason if exact integers or size limits do not cover
 * the pipeline. */
static lh_status make_builder(builder *b, const char **why, lh_error *err)
{
    lhi_verify_model *c = b->c;
    size_t n = b->n_chunks;
    uint32_t *ids = LHI_NEW(c->mem, uint32_t, 7 * n);
    b->alone = LHI_NEW(c->mem, uint32_t, b->n_devices);
    b->held = LHI_NEW(c->mem, int64_t, b->n_devices);
    b->gathered = LHI_NEW(c->mem, int64_t, b->n_devices);
    if (!ids || !b->alone || !b->held || !b->gathered)
        return lhi_fail_nomem(err);
    memset(ids, 0xff, 7 * n * sizeof *ids);
    c->row_at = ids;
    b->f = ids;
    b->d = ids + n;
    b->w = ids + 2 * n;
    b->mf = ids + 3 * n;
    b->md = ids + 4 * n;
    b->gather = ids + 5 * n;
    b->scatter = ids + 6 * n;
    double total = 0;
    for (uint32_t i = 0; i < b->n_chunks; i++) {
        const lh_chunk *k = get_chunk(b, i);
        b->alone[k->device]++;
        b->held[k->device] += k->mem_static;
        b->gathered[k->device] += k->all_gather_ns;
        total += ((double)llabs(k->mem_f) + (double)llabs(k->mem_d) +
                  (double)llabs(k->mem_w)) *
                 b->n;
        if (!b->joint && (k->w_ns % b->parts || k->mem_w % b->parts))
            *why = "the parts of a weight-gradient pass have different times "
                   "or memory";
    }
    if (total > 1e18)
        *why = "its memory amounts add up to more than 10^18";
    if ((double)n * b->n * (4.0 + b->parts) > MOST_OPS ||
        (double)n * b->n_devices > 1e8)
        *why = "the pipeline is too large";
    c->rows = LHI_NEW(c->mem, lhi_verify_row, 7 * n);
    c->machines =
        LHI_NEW(c->mem, lhi_verify_machine, 3 * (size_t)b->n_devices + 2 * n);
    return c->rows && c->machines ? LH_OK : lhi_fail_nomem(err);
}

/* Builds the model's machines, rows (same-kind operations on one chunk),
 * precedences, heads (earliest starts) and tails (times that must follow). Sets
 * *why to the reason if the pipeline is unsupported. */
static lh_status build(builder *b, const char **why, lh_error *err)
{
    LHI_TRY(lhi_verify_find_links(&b->links, err));
    LHI_TRY(make_builder(b, why, err));
    if (*why)
        return LH_OK;
    for (uint32_t d = 0; d < b->n_devices; d++) {
        add_device(b, d);
        add_collectives(b, d);
    }
    LHI_TRY(add_links(b, err));
    LHI_TRY(allocate_ops(b, why, err));
    if (*why)
        return LH_OK;
    LHI_TRY(add_precedences(b, err));
    set_heads_and_tails(b);
    if (!scale_times(b))
        *why = "its times are too long for exact checking while some passes "
               "take none";
    return LH_OK;
}

lh_status lhi_verify_model_make(const lh_pipeline *p, uint32_t parts,
                                uint64_t most_work, lhi_arena *mem,
                                lhi_verify_model **out, const char **why,
                                lh_error *err)
{
    lhi_verify_model *c = LHI_NEW(mem, lhi_verify_model, 1);
    *out = NULL;
    *why = NULL;
    if (!c)
        return lhi_fail_nomem(err);
    c->p = p;
    c->mem = mem;
    c->most_work = most_work;
    builder b = {.c = c,
                 .p = p,
                 .n_chunks = lh_pipeline_n_chunks(p),
                 .n_devices = lh_pipeline_n_devices(p),
                 .n = lh_pipeline_n_microbatches(p),
                 .joint = lhi_pipeline_is_joint(p),
                 .parts = lhi_pipeline_is_joint(p) ? 1 : parts};
    b.links = (lhi_verifier){.pipeline = p,
                             .n_devices = b.n_devices,
                             .n_chunks = b.n_chunks,
                             .path_length = b.n_chunks,
                             .n_microbatches = b.n,
                             .mem = mem};
    LHI_TRY(build(&b, why, err));
    *out = *why ? NULL : c;
    return LH_OK;
}

const lhi_verify_row *lhi_verify_find_row(const lhi_verify_model *claim,
                                          uint32_t chunk, uint8_t kind,
                                          bool message)
{
    const size_t n = lh_pipeline_n_chunks(claim->p);
    const size_t type = message        ? (kind == LH_F ? 3 : 4)
                        : kind == LH_F ? 0
                        : kind == LH_W ? 2
                                       : 1;
    const uint32_t r = chunk < n ? claim->row_at[type * n + chunk] : LH_NONE;
    return r != LH_NONE && claim->rows[r].kind == kind ? &claim->rows[r] : NULL;
}

uint32_t lhi_verify_find_operation(const lhi_verify_model *claim,
                                   const lh_pass *pass, bool message)
{
    const lhi_verify_row *row =
        lhi_verify_find_row(claim, pass->chunk, pass->kind, message);
    if (!row || pass->n_parts != row->per ||
        pass->microbatch >= row->count / row->per)
        return LH_NONE;
    return row->first + pass->microbatch * row->per + pass->part;
}
