/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the model: a pipeline as operations in rows on machines, with arcs
 * between them. */
#include "schedule/verifier/model.h"
#include "schedule/verifier/verifier.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_OPS = 1 << 22, MOST_SLOTS = 1 << 26 };

/* A precedence with a minimum delay. */
typedef struct arc {
    uint32_t from, to;
    int64_t lag;
} arc;

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
    arc *arcs;
    size_t n_arcs;
} builder;

static const lh_chunk *chunk_at(const builder *b, uint32_t c)
{
    return lh_pipeline_chunk(b->p, c);
}

static int64_t back_ns(const builder *b, uint32_t c)
{
    return chunk_at(b, c)->d_ns + (b->joint ? chunk_at(b, c)->w_ns : 0);
}

/* Adds a row with `count` operations to the last machine. */
static uint32_t add_row_of(builder *b, lhi_verify_row row, uint32_t count)
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

/* Adds a row with `per` operations per microbatch. */
static uint32_t add_row(builder *b, lhi_verify_row row, uint32_t per)
{
    row.per = per;
    return add_row_of(b, row, b->n * per);
}

static void add_machine(builder *b, uint32_t device, const char *link)
{
    lhi_verify_model *c = b->c;
    c->machines[c->n_machines++] = (lhi_verify_machine){.device = device,
                                                        .link = link,
                                                        .first_row = c->n_rows,
                                                        .first_op = c->n_ops,
                                                        .room = INT64_MAX};
}

/* Adds a device with rows for its chunks' passes. */
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
        const lh_chunk *k = chunk_at(b, c);
        if (k->device != device)
            continue;
        uint32_t down = 2 * c, up = 2 * (2 * last + 1 - c);
        b->f[c] = add_row(b,
                          (lhi_verify_row){.kind = LH_F,
                                           .chunk = c,
                                           .place = down,
                                           .time = k->f_ns,
                                           .memory = k->mem_f},
                          1);
        b->d[c] = add_row(
            b,
            (lhi_verify_row){.kind = b->joint ? LH_B : LH_D,
                             .chunk = c,
                             .place = up,
                             .time = back_ns(b, c),
                             .memory = k->mem_d + (b->joint ? k->mem_w : 0)},
            1);
        if (!b->joint)
            b->w[c] = add_row(b,
                              (lhi_verify_row){.kind = LH_W,
                                               .chunk = c,
                                               .place = up,
                                               .time = k->w_ns / b->parts,
                                               .memory = k->mem_w / b->parts},
                              b->parts);
    }
}

/* Adds a device's data-parallel links: its chunks take turns, all gathers
 * before all scatters. The model omits that their order follows the passes'
 * order. */
static void add_collectives(builder *b, uint32_t device)
{
    for (int after = 0; after < 2 && b->alone[device] > 1; after++) {
        bool any = false;
        for (uint32_t c = 0; c < b->n_chunks; c++) {
            const lh_chunk *k = chunk_at(b, c);
            int64_t time = after ? k->reduce_scatter_ns : k->all_gather_ns;
            if (k->device != device || time == 0)
                continue;
            if (!any)
                add_machine(b, LH_NONE, "");
            any = true;
            *(after ? &b->scatter[c] : &b->gather[c]) = add_row_of(
                b,
                (lhi_verify_row){.kind = after ? LHI_SCATTERED : LHI_GATHERED,
                                 .chunk = c,
                                 .per = 1,
                                 .time = time},
                1);
        }
    }
}

/* Adds chunk c's messages over the resource, forward or backward. If they have
 * a link alone, and are produced no faster than it carries them, they never
 * wait for each other and are modelled as a delay. */
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
        (only && time <= (back ? back_ns(b, c) : chunk_at(b, c)->f_ns)))
        return;
    lhi_verify_model *m = b->c;
    const char *name = b->links.resource_names[resource];
    if (m->n_machines == 0 ||
        strcmp(m->machines[m->n_machines - 1].link, name) != 0)
        add_machine(b, LH_NONE, name);
    uint32_t row = add_row(
        b,
        (lhi_verify_row){.kind = back ? (b->joint ? LH_B : LH_D) : LH_F,
                         .message = true,
                         .chunk = c,
                         .place = back ? 2 * (2 * last + 1 - c) + 1 : 2 * c + 1,
                         .time = time},
        1);
    *(back ? &b->md[c] : &b->mf[c]) = row;
}

/* Adds all links that need a machine. */
static lh_status add_links(builder *b, lh_error *err)
{
    /* Routes sorted by resource, for linear time. */
    uint32_t n = b->links.n_resources;
    uint32_t *at = LHI_NEW(b->c->mem, uint32_t, (size_t)n + 2);
    uint32_t *sorted = LHI_NEW(b->c->mem, uint32_t, 2 * (size_t)b->n_chunks);
    if (!at || !sorted)
        return lhi_fail_nomem(err);
    for (int fill = 0; fill < 2; fill++) {
        for (uint32_t i = 0; i < 2 * b->n_chunks; i++) {
            uint32_t c = i / 2;
            bool back = i % 2;
            if (back ? c == 0 : c == b->n_chunks - 1)
                continue;
            uint32_t link = back ? b->links.backward[c] : b->links.forward[c];
            if (link == LHI_SAME_DEVICE || link == LHI_NO_LINK)
                continue;
            uint32_t r = b->links.link_resources[link];
            if (fill)
                sorted[at[r + 1]++] = i;
            else
                at[r + 2]++;
        }
        for (uint32_t r = 0; !fill && r < n; r++)
            at[r + 2] += at[r + 1];
    }
    for (uint32_t r = 0; r < n; r++)
        for (uint32_t i = at[r]; i < at[r + 1]; i++)
            add_messages(b, r, sorted[i] / 2, sorted[i] % 2,
                         at[r + 1] - at[r] == 1);
    return LH_OK;
}

/* --- arcs ---------------------------------------------------------------- */

/* Adds an arc; called twice, first to count, then to fill. */
static void add_arc(builder *b, uint32_t from, uint32_t to, int64_t lag)
{
    if (b->arcs)
        b->arcs[b->n_arcs] = (arc){from, to, lag};
    b->n_arcs++;
}

/* Adds arcs between two rows, through a message row if there is one. */
static void add_path(builder *b, uint32_t from, uint32_t message, uint32_t to,
                     uint32_t link)
{
    const lhi_verify_row *rows = b->c->rows;
    int64_t lag = 0;
    if (link != LHI_SAME_DEVICE && link != LHI_NO_LINK) {
        const lh_link *l = lh_pipeline_link(b->p, link);
        lag = l->latency_ns + (message == LH_NONE ? l->transfer_ns : 0);
    }
    for (uint32_t j = 0; j < b->n; j++) {
        uint32_t x = rows[from].first + j, y = rows[to].first + j;
        if (message != LH_NONE) {
            add_arc(b, x, rows[message].first + j, 0);
            x = rows[message].first + j;
        }
        add_arc(b, x, y, lag);
    }
}

/* Adds memory as arcs if the chunk is alone, only F allocates and one row
 * releases: F number i follows enough releases to fit i + 1 activations. */
static void add_memory_arcs(builder *b, uint32_t c)
{
    const lhi_verify_row *f = &b->c->rows[b->f[c]];
    const lhi_verify_row *d = &b->c->rows[b->d[c]];
    const lhi_verify_row *back = b->joint ? d : &b->c->rows[b->w[c]];
    const lhi_verify_machine *m = &b->c->machines[f->machine];
    if (b->alone[m->device] != 1 || m->room == INT64_MAX || f->memory <= 0 ||
        back->memory > 0 || (!b->joint && d->memory != 0))
        return;
    int64_t held = 0;
    uint32_t released = 0;
    for (uint32_t i = 0; i < f->count; i++) {
        held += f->memory;
        while (held > m->room && released < i * back->per) {
            held += back->memory;
            released++;
        }
        if (released)
            add_arc(b, back->first + released - 1, f->first + i, 0);
    }
}

static void add_arcs(builder *b)
{
    const lhi_verify_row *rows = b->c->rows;
    for (uint32_t c = 0; c < b->n_chunks; c++) {
        if (c + 1 < b->n_chunks)
            add_path(b, b->f[c], b->mf[c], b->f[c + 1], b->links.forward[c]);
        else
            add_path(b, b->f[c], LH_NONE, b->d[c], LHI_SAME_DEVICE);
        if (c > 0)
            add_path(b, b->d[c], b->md[c], b->d[c - 1], b->links.backward[c]);
        for (uint32_t x = 0; !b->joint && x < rows[b->w[c]].count; x++)
            add_arc(b, rows[b->d[c]].first + x / b->parts,
                    rows[b->w[c]].first + x, 0);
        add_memory_arcs(b, c);
        const lhi_verify_row *last = &rows[b->joint ? b->d[c] : b->w[c]];
        if (b->gather[c] != LH_NONE)
            add_arc(b, rows[b->gather[c]].first, rows[b->f[c]].first,
                    chunk_at(b, c)->dp_latency_ns);
        if (b->scatter[c] != LH_NONE)
            add_arc(b, last->first + last->count - 1, rows[b->scatter[c]].first,
                    0);
    }
}

/* Builds the successor and predecessor lists. */
static lh_status connect(builder *b, lh_error *err)
{
    lhi_verify_model *c = b->c;
    size_t n = c->n_ops;
    add_arcs(b);
    b->arcs = LHI_NEW(c->mem, arc, b->n_arcs);
    c->succ_at = LHI_NEW(c->mem, uint32_t, n + 2);
    c->pred_at = LHI_NEW(c->mem, uint32_t, n + 2);
    c->succ = LHI_NEW(c->mem, uint32_t, b->n_arcs);
    c->pred = LHI_NEW(c->mem, uint32_t, b->n_arcs);
    c->succ_lag = LHI_NEW(c->mem, int64_t, b->n_arcs);
    c->pred_lag = LHI_NEW(c->mem, int64_t, b->n_arcs);
    if (!b->arcs || !c->succ_at || !c->pred_at || !c->succ || !c->pred ||
        !c->succ_lag || !c->pred_lag)
        return lhi_fail_nomem(err);
    size_t count = b->n_arcs;
    b->n_arcs = 0;
    add_arcs(b);
    for (size_t i = 0; i < count; i++) {
        c->succ_at[b->arcs[i].from + 2]++;
        c->pred_at[b->arcs[i].to + 2]++;
    }
    for (size_t o = 0; o < n; o++) {
        c->succ_at[o + 2] += c->succ_at[o + 1];
        c->pred_at[o + 2] += c->pred_at[o + 1];
    }
    for (size_t i = 0; i < count; i++) {
        uint32_t s = c->succ_at[b->arcs[i].from + 1]++;
        uint32_t p = c->pred_at[b->arcs[i].to + 1]++;
        c->succ[s] = b->arcs[i].to;
        c->pred[p] = b->arcs[i].from;
        c->succ_lag[s] = c->pred_lag[p] = b->arcs[i].lag;
    }
    return LH_OK;
}

/* --- time ---------------------------------------------------------------- */

/* Returns the greatest common divisor. */
static int64_t divisor(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Sets heads and tails for data-parallel communication before a chunk's first F
 * and after its last W or B. Gathers are issued from the start, so all have
 * finished, one after another, before any scatter. */
static void set_heads_and_tails(builder *b)
{
    lhi_verify_model *c = b->c;
    for (uint32_t i = 0; i < b->n_chunks; i++) {
        const lh_chunk *k = chunk_at(b, i);
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

/* Scales times to units; false: too large. */
static bool scale_times(builder *b)
{
    lhi_verify_model *c = b->c;
    int64_t unit = 0;
    bool zero = false;
    double total = 0;
    size_t n_arcs = b->n_arcs;
    for (uint32_t r = 0; r < c->n_rows; r++) {
        unit = divisor(unit, c->rows[r].time);
        zero = zero || c->rows[r].time == 0;
        total += (double)c->rows[r].time * c->rows[r].count;
    }
    for (uint32_t o = 0; o < c->n_ops; o++) {
        unit = divisor(divisor(unit, c->head[o]), c->tail[o]);
        total += (double)c->head[o] + (double)c->tail[o];
    }
    for (size_t i = 0; i < n_arcs; i++) {
        unit = divisor(unit, c->succ_lag[i]);
        total += (double)c->succ_lag[i];
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
    for (size_t i = 0; i < n_arcs; i++) {
        c->succ_lag[i] = c->succ_lag[i] / c->unit_ns * c->scale;
        c->pred_lag[i] = c->pred_lag[i] / c->unit_ns * c->scale;
    }
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

static lh_status allocate_ops(builder *b, const char **why, lh_error *err)
{
    lhi_verify_model *c = b->c;
    size_t n = c->n_ops, slots = 0;
    c->row_of = LHI_NEW(c->mem, uint32_t, n);
    c->slot_at = LHI_NEW(c->mem, size_t, n + 1);
    c->head = LHI_NEW(c->mem, int64_t, n);
    c->tail = LHI_NEW(c->mem, int64_t, n);
    c->start = LHI_NEW(c->mem, int64_t, n);
    c->finish = LHI_NEW(c->mem, int64_t, n);
    c->new_start = LHI_NEW(c->mem, int64_t, n);
    c->new_finish = LHI_NEW(c->mem, int64_t, n);
    c->queue = LHI_NEW(c->mem, uint32_t, n);
    c->queued = LHI_NEW(c->mem, bool, n);
    c->dirty = LHI_NEW(c->mem, bool, c->n_machines);
    if (!c->row_of || !c->slot_at || !c->head || !c->tail || !c->start ||
        !c->new_start || !c->new_finish || !c->finish || !c->queue ||
        !c->queued || !c->dirty)
        return lhi_fail_nomem(err);
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
    b->f = ids;
    b->d = ids + n;
    b->w = ids + 2 * n;
    b->mf = ids + 3 * n;
    b->md = ids + 4 * n;
    b->gather = ids + 5 * n;
    b->scatter = ids + 6 * n;
    double total = 0;
    for (uint32_t i = 0; i < b->n_chunks; i++) {
        const lh_chunk *k = chunk_at(b, i);
        b->alone[k->device]++;
        b->held[k->device] += k->mem_static;
        b->gathered[k->device] += k->all_gather_ns;
        total += ((double)llabs(k->mem_f) + (double)llabs(k->mem_d) +
                  (double)llabs(k->mem_w)) *
                 b->n;
        if (!b->joint && (k->w_ns % b->parts || k->mem_w % b->parts))
            *why = "the parts of a weight-gradient pass are not alike";
    }
    if (total > 1e18)
        *why = "its memory is beyond exact sums";
    if ((double)n * b->n * (4.0 + b->parts) > MOST_OPS ||
        (double)n * b->n_devices > 1e8)
        *why = "the pipeline is too large";
    c->rows = LHI_NEW(c->mem, lhi_verify_row, 7 * n);
    c->machines =
        LHI_NEW(c->mem, lhi_verify_machine, 3 * (size_t)b->n_devices + 2 * n);
    return c->rows && c->machines ? LH_OK : lhi_fail_nomem(err);
}

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
    LHI_TRY(connect(b, err));
    set_heads_and_tails(b);
    if (!scale_times(b))
        *why = "its times are too long for exact checking while some passes "
               "take none";
    return LH_OK;
}

lh_status lhi_verify_model_make(const lh_pipeline *p, uint32_t parts,
                                lhi_arena *mem, lhi_verify_model **out,
                                const char **why, lh_error *err)
{
    lhi_verify_model *c = LHI_NEW(mem, lhi_verify_model, 1);
    *out = NULL;
    *why = NULL;
    if (!c)
        return lhi_fail_nomem(err);
    c->p = p;
    c->mem = mem;
    builder b = {.c = c,
                 .p = p,
                 .n_chunks = lh_pipeline_n_chunks(p),
                 .n_devices = lh_pipeline_n_devices(p),
                 .n = lh_pipeline_n_microbatches(p),
                 .joint = lh_pipeline_is_joint(p),
                 .parts = lh_pipeline_is_joint(p) ? 1 : parts};
    b.links = (lhi_verifier){.pipeline = p,
                             .n_devices = b.n_devices,
                             .n_chunks = b.n_chunks,
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
    for (uint32_t r = 0; r < claim->n_rows; r++) {
        const lhi_verify_row *row = &claim->rows[r];
        if (row->chunk == chunk && row->kind == kind && row->message == message)
            return row;
    }
    return NULL;
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
