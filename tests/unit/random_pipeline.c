/* SPDX-License-Identifier: Apache-2.0 */
#include "random_pipeline.h"
#include "schedule/pipeline/accessors.h"
#include "schedule/pipeline/file/schedule_csv.h"

#include <longhaul/experimental/pipeline.h>
#include <longhaul/experimental/schedule.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t rng_next(rng *r)
{
    uint64_t z = r->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint32_t rng_below(rng *r, uint32_t n)
{
    return (uint32_t)(rng_next(r) % n);
}

bool rng_chance(rng *r, uint32_t percent)
{
    return rng_below(r, 100) < percent;
}

static void *grab(size_t count, size_t size)
{
    void *p = calloc(count ? count : 1, size);
    if (!p) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return p;
}

static void must(lh_status status, const lh_error *err)
{
    if (status != LH_OK) {
        fprintf(stderr, "the generator made something bad: %s\n", err->text);
        exit(1);
    }
}

/* --- pipelines ------------------------------------------------------------ */

/* A pipeline under construction. */
typedef struct maker {
    rng *r;
    const random_shape *shape;
    lh_pipeline_desc desc;
    lh_chunk *chunks;
    lh_link *links;
    int64_t *limits;
    char (*names)[16];
    uint32_t *device_sites;
    const char **dp_links;
    lh_dp_op *ops;
    uint32_t *enqueue, *dequeue;
    uint32_t scale;               /* largest duration of a pass */
    int64_t unit_ns, memory_unit; /* scale small random numbers; often 1 */
} maker;

static int64_t some_time(maker *m, uint32_t below)
{
    int64_t t = rng_below(m->r, below);
    return (t == 0 && m->shape->no_zero_times ? 1 : t) * m->unit_ns;
}

static uint32_t up_to(rng *r, uint32_t most, uint32_t otherwise)
{
    return 1 + rng_below(r, most ? most : otherwise);
}

/* Assigns chunks to devices. */
static void place(maker *m)
{
    uint32_t devices = up_to(m->r, m->shape->max_devices, 5);
    uint32_t each = up_to(m->r, m->shape->max_chunks, 3);
    uint32_t kind = rng_below(m->r, m->shape->regular ? 3 : 4);
    uint32_t n = devices * (kind == 0 ? 1 : kind == 2 ? 2 : each);
    if (kind == 3)
        n = 1 + rng_below(m->r, n);
    m->desc.n_devices = devices;
    m->desc.n_chunks = n;
    m->chunks = grab(n, sizeof *m->chunks);
    for (uint32_t c = 0; c < n; c++) {
        if (kind == 3)
            m->chunks[c].device = rng_below(m->r, devices);
        else if (kind == 2)
            m->chunks[c].device = c < devices ? c : 2 * devices - 1 - c;
        else
            m->chunks[c].device = c % devices;
    }
}

static void give_times(maker *m)
{
    static const uint32_t scales[] = {1, 2, 4, 12, 1000};
    m->scale = scales[rng_below(m->r, 5)];
    if (m->shape->no_zero_times && m->scale == 1)
        m->scale = 2;
    bool same = rng_chance(m->r, 40), gather = rng_chance(m->r, 30);
    if (m->shape->no_data_parallel)
        gather = false;
    for (uint32_t c = 0; c < m->desc.n_chunks; c++) {
        lh_chunk *k = &m->chunks[c];
        if (same && c > 0) {
            uint32_t device = k->device;
            *k = m->chunks[0];
            k->device = device;
        } else {
            k->f_ns = some_time(m, m->scale + 1);
            k->d_ns = some_time(m, m->scale + 1);
            k->w_ns = some_time(m, m->scale + 1);
            uint32_t held = 1 + rng_below(m->r, same ? 1 : 3);
            uint32_t early = rng_below(m->r, held + 1);
            uint32_t fixed = rng_chance(m->r, 20) ? rng_below(m->r, 4) : 0;
            k->mem_f = held * m->memory_unit;
            k->mem_d = rng_chance(m->r, 60) ? 0 : -(early * m->memory_unit);
            k->mem_w = -k->mem_f - k->mem_d;
            k->mem_static = fixed * m->memory_unit;
        }
        if (gather && rng_chance(m->r, 70)) {
            k->all_gather_ns = some_time(m, m->scale * 3 + 1);
            k->reduce_scatter_ns = some_time(m, m->scale * 3 + 1);
            k->dp_latency_ns = some_time(m, m->scale + 1);
        }
    }
}

static void link_up(maker *m)
{
    link_kind kind = m->shape->links;
    if (kind == LINKS_ANY)
        kind = (link_kind)(LINKS_NONE + rng_below(m->r, 3));
    uint32_t n = m->desc.n_devices;
    m->links = grab((size_t)n * n, sizeof *m->links);
    m->names = grab((size_t)n * n, sizeof *m->names);
    if (kind == LINKS_NONE)
        return;
    uint32_t groups = 1 + rng_below(m->r, n), missing = rng_below(m->r, 30);
    if (rng_chance(m->r, 60))
        missing = 0;
    uint32_t below = m->scale * (1 + rng_below(m->r, 3)) + 1;
    bool latency_only = rng_chance(m->r, 20);
    for (uint32_t i = 0; i < n * n; i++) {
        uint32_t from = i / n, to = i % n;
        if (from == to || rng_chance(m->r, missing))
            continue;
        uint32_t a = from * groups / n, b = to * groups / n;
        lh_link *link = &m->links[m->desc.n_links++];
        *link = (lh_link){.from = from, .to = to};
        link->latency_ns = some_time(m, below);
        link->transfer_ns = latency_only ? 0 : some_time(m, below);
        if (kind == LINKS_SHARED && (a != b || rng_chance(m->r, 20))) {
            snprintf(m->names[i], sizeof m->names[i], "g%u-g%u", a % 100,
                     b % 100);
            link->name = m->names[i];
        }
    }
}

/* Sets memory limits: for at least one microbatch everywhere, often for few. */
static void limit(maker *m)
{
    uint32_t n = m->desc.n_devices;
    m->limits = grab(n, sizeof *m->limits);
    if (m->shape->no_limits || rng_chance(m->r, 50))
        return;
    uint32_t more = rng_below(m->r, 8);
    for (uint32_t c = 0; c < m->desc.n_chunks; c++) {
        const lh_chunk *k = &m->chunks[c];
        m->limits[k->device] += k->mem_static + k->mem_f;
    }
    for (uint32_t d = 0; d < n; d++)
        m->limits[d] += rng_below(m->r, more + 1) * m->memory_unit;
    m->desc.memory_limits = m->limits;
}

static void give_sites(maker *m)
{
    static const lh_site sites[] = {{"west"}, {"a \"b\""}, {"east"}};
    uint32_t n = m->desc.n_devices;
    m->device_sites = grab(n, sizeof *m->device_sites);
    m->desc.n_sites = 1 + rng_below(m->r, 3);
    m->desc.sites = sites;
    for (uint32_t d = 0; d < n; d++)
        m->device_sites[d] = rng_below(m->r, m->desc.n_sites);
    m->desc.device_sites = m->device_sites;
    /* Draws no random numbers, so that existing cases stay the same. */
    m->dp_links = grab(n, sizeof *m->dp_links);
    for (uint32_t d = 0; d < n; d++)
        m->dp_links[d] = (d + n) % 3 == 0 ? NULL : sites[d % 3 / 2 * 2].name;
    m->desc.dp_links = m->dp_links;
}

/* Returns a chunk on that device. */
static uint32_t chunk_on(maker *m, uint32_t device)
{
    uint32_t c = rng_below(m->r, m->desc.n_chunks);
    while (m->chunks[c].device != device)
        c = (c + 1) % m->desc.n_chunks;
    return c;
}

/* Picks a kind that fits the direction and the launch time. */
static void give_kind(rng *r, lh_dp_op *op)
{
    if (op->is_reduce_scatter && !op->launch.backward)
        return;
    op->kind = op->is_reduce_scatter
                   ? (rng_chance(r, 50) ? LH_DP_RSG : LH_DP_RSO)
               : op->launch.backward ? LH_DP_AGB
               : rng_chance(r, 50)   ? LH_DP_AGO
                                     : LH_DP_AGF;
    op->share = rng_chance(r, 50) ? 1 : (1 + rng_below(r, 999)) / 1000.0;
}

static void give_operations(maker *m)
{
    uint32_t n = rng_below(m->r, 20), M = m->desc.n_microbatches;
    m->ops = grab(n, sizeof *m->ops);
    for (uint32_t i = 0; i < n; i++) {
        lh_dp_op *op = &m->ops[i];
        *op = (lh_dp_op){.chunk = rng_below(m->r, m->desc.n_chunks),
                         .is_reduce_scatter = rng_chance(m->r, 50),
                         .n_buckets = 1 + rng_below(m->r, 3),
                         .transfer_ns = some_time(m, 40),
                         .needed_by = {LH_NONE, 0, false}};
        uint32_t device = m->chunks[op->chunk].device;
        op->bucket = rng_below(m->r, op->n_buckets);
        op->launch = (lh_dp_pass){chunk_on(m, device), rng_below(m->r, M),
                                  rng_chance(m->r, 50)};
        if (rng_chance(m->r, 30))
            give_kind(m->r, op);
        if (rng_chance(m->r, 70))
            op->needed_by = (lh_dp_pass){
                chunk_on(m, device), rng_below(m->r, M), !op->launch.backward};
    }
    m->desc.n_dp_ops = n;
    m->desc.dp_ops = m->ops;
}

static uint32_t *random_groups(maker *m, uint32_t *n)
{
    uint32_t left = m->desc.n_microbatches;
    uint32_t *groups = grab(left, sizeof *groups);
    for (*n = 0; left > 0; left -= groups[(*n)++])
        groups[*n] = 1 + rng_below(m->r, left);
    return groups;
}

static void give_the_rest(maker *m)
{
    if (rng_chance(m->r, 70))
        give_sites(m);
    if (rng_chance(m->r, 70))
        m->desc.memory_unit = "MiB";
    if (rng_chance(m->r, 70))
        give_operations(m);
    if (rng_chance(m->r, 70))
        m->desc.n_initial_gathers = 1 + rng_below(m->r, 3);
    if (rng_chance(m->r, 70)) {
        m->desc.enqueue = m->enqueue = random_groups(m, &m->desc.n_enqueue);
        m->desc.dequeue = m->dequeue = random_groups(m, &m->desc.n_dequeue);
    }
}

lh_pipeline *random_pipeline(rng *r, const random_shape *shape)
{
    static const random_shape any = {0};
    maker m = {.r = r, .shape = shape ? shape : &any};
    m.desc.size = sizeof m.desc;
    m.unit_ns = rng_chance(r, 3) ? INT64_C(1) << 30 : 1;
    m.memory_unit = rng_chance(r, 3) ? INT64_C(1) << 45 : 1;
    place(&m);
    m.desc.n_microbatches = up_to(r, m.shape->max_microbatches, 8);
    m.desc.joint =
        m.shape->joint_always || (!m.shape->joint_never && rng_chance(r, 30));
    give_times(&m);
    link_up(&m);
    limit(&m);
    if (m.shape->everything)
        give_the_rest(&m);
    m.desc.chunks = m.chunks;
    m.desc.links = m.links;
    lh_pipeline *p = NULL;
    lh_error err = {0};
    must(lh_pipeline_make(&m.desc, &p, &err), &err);
    free(m.chunks);
    free(m.links);
    free(m.names);
    free(m.limits);
    free(m.device_sites);
    free(m.dp_links);
    free(m.ops);
    free(m.enqueue);
    free(m.dequeue);
    return p;
}

/* A modifiable description of `p`; release with free_copy(). */
typedef struct copy {
    lh_pipeline_desc desc;
    lh_link *links;
    int64_t *limits;
} copy;

static copy copy_of(const lh_pipeline *p)
{
    copy c = {.desc = {.size = sizeof c.desc}};
    lh_error err = {0};
    must(lh_pipeline_describe(p, &c.desc, &err), &err);
    c.links = grab(c.desc.n_links, sizeof *c.links);
    c.limits = grab(c.desc.n_devices, sizeof *c.limits);
    for (uint32_t i = 0; i < c.desc.n_links; i++)
        c.links[i] = c.desc.links[i];
    for (uint32_t i = 0; i < c.desc.n_devices; i++)
        c.limits[i] = lh_pipeline_memory_limit(p, i);
    c.desc.links = c.links;
    return c;
}

static lh_pipeline *make_copy(copy *c)
{
    lh_pipeline *p = NULL;
    lh_error err = {0};
    must(lh_pipeline_make(&c->desc, &p, &err), &err);
    free(c->links);
    free(c->limits);
    return p;
}

lh_pipeline *slower_pipeline(const lh_pipeline *p, uint32_t link,
                             int64_t latency_ns, int64_t transfer_ns)
{
    copy c = copy_of(p);
    c.links[link].latency_ns += latency_ns;
    c.links[link].transfer_ns += transfer_ns;
    return make_copy(&c);
}

lh_pipeline *limited_pipeline(const lh_pipeline *p, const int64_t *limits)
{
    copy c = copy_of(p);
    memcpy(c.limits, limits, c.desc.n_devices * sizeof *limits);
    c.desc.memory_limits = c.limits;
    return make_copy(&c);
}

static bool random_point(rng *r, const lh_schedule *s, uint32_t device,
                         uint32_t from, uint32_t *at, lh_dp_pass *out)
{
    uint32_t n;
    const lh_pass *order = lh_schedule_order(s, device, &n);
    if (from >= n)
        return false;
    *at = from + rng_below(r, n - from);
    *out = (lh_dp_pass){order[*at].chunk, order[*at].microbatch,
                        order[*at].kind != LH_F};
    return order[*at].kind != LH_W;
}

static bool random_operation(rng *r, const lh_pipeline *p, const lh_schedule *s,
                             lh_dp_op *op)
{
    uint32_t at, later;
    *op = (lh_dp_op){.chunk = rng_below(r, lh_pipeline_n_chunks(p)),
                     .is_reduce_scatter = rng_chance(r, 50),
                     .n_buckets = 1 + rng_below(r, 3),
                     .transfer_ns = rng_below(r, 40),
                     .needed_by = {LH_NONE, 0, false}};
    op->bucket = rng_below(r, op->n_buckets);
    uint32_t device = lh_pipeline_chunk(p, op->chunk)->device;
    if (!random_point(r, s, device, 0, &at, &op->launch))
        return false;
    if (rng_chance(r, 30))
        return true;
    lh_dp_pass before;
    uint32_t from = rng_chance(r, 99) ? at + 1 : 0;
    if (random_point(r, s, device, from, &later, &before) && later != at)
        op->needed_by = before;
    return true;
}

lh_pipeline *communicating_pipeline(rng *r, const lh_pipeline *p,
                                    const lh_schedule *s)
{
    copy c = copy_of(p);
    lh_dp_op ops[12];
    uint32_t tries = rng_below(r, 13);
    c.desc.n_dp_ops = 0;
    for (uint32_t i = 0; i < tries; i++)
        if (random_operation(r, p, s, &ops[c.desc.n_dp_ops]))
            c.desc.n_dp_ops++;
    c.desc.dp_ops = ops;
    c.desc.n_initial_gathers = rng_below(r, 4);
    return make_copy(&c);
}

lh_pipeline *sharing_pipeline(rng *r, const lh_pipeline *p)
{
    copy c = copy_of(p);
    uint32_t n = lh_pipeline_n_devices(p), n_links = lh_pipeline_n_links(p);
    const char **names = grab(n, sizeof *names);
    char(*pairs)[64] = grab(n, sizeof *pairs);
    for (uint32_t d = 0; d < n && n_links > 0; d++) {
        names[d] = lh_pipeline_link(p, rng_below(r, n_links))->name;
        if (rng_chance(r, 20))
            names[d] = "elsewhere";
        if (!rng_chance(r, 30))
            continue;
        snprintf(pairs[d], sizeof pairs[d], "%s + %s", names[d],
                 lh_pipeline_link(p, rng_below(r, n_links))->name);
        names[d] = pairs[d];
    }
    c.desc.dp_links = names;
    int64_t longest = 0;
    for (uint32_t i = 0; i < lh_pipeline_n_chunks(p); i++) {
        const lh_chunk *k = lh_pipeline_chunk(p, i);
        longest = k->all_gather_ns > longest ? k->all_gather_ns : longest;
        longest =
            k->reduce_scatter_ns > longest ? k->reduce_scatter_ns : longest;
    }
    if (rng_chance(r, 50))
        c.desc.dp_piece_ns = longest / (1 + rng_below(r, 9)) + 1;
    c.desc.dp_priority = (lh_dp_priority)rng_below(r, LH_DP_FAIR + 1);
    lh_pipeline *out = make_copy(&c);
    free(names);
    free(pairs);
    return out;
}

lh_pipeline *two_way_pipeline(rng *r, const lh_pipeline *p)
{
    copy c = copy_of(p);
    c.desc.bidirectional = c.desc.n_chunks % 2 == 0 && rng_chance(r, 80);
    if (rng_chance(r, 70))
        c.desc.overlap_f_b = (50 + rng_below(r, 51)) / 100.0;
    return make_copy(&c);
}

/* --- schedules ------------------------------------------------------------ */

/* Progress of one chunk and microbatch. */
typedef struct cell {
    bool f_input, f_done; /* F's input is available; F has run */
    bool d_input, d_done;
    bool unite;             /* backward is B */
    uint16_t n_parts, part; /* parts of W: total, done */
} cell;

/* Random walk that builds a schedule; it holds messages back to send them in
 * its own order. */
typedef struct order_shape {
    rng *r;
    const lh_pipeline *p;
    uint32_t n, n_chunks;
    cell *cells;
    lh_pass **orders;
    uint32_t *counts;
    lh_pass *held;
    uint32_t n_held;
    uint32_t n_names;
    const char **names; /* distinct link names with an order */
    lh_link_order *links;
} walk;

static cell *cell_at(walk *w, uint32_t c, uint32_t m)
{
    return &w->cells[(size_t)c * w->n + m];
}

static const char *link_name(const lh_pipeline *p, uint32_t from, uint32_t to)
{
    for (uint32_t i = 0; i < lh_pipeline_n_links(p); i++) {
        const lh_link *link = lh_pipeline_link(p, i);
        if (link->from == from && link->to == to)
            return link->name;
    }
    return NULL;
}

/* Returns the number of chunks that a microbatch passes. */
static uint32_t path_length(const lh_pipeline *p)
{
    return lh_pipeline_n_chunks(p) / (lhi_pipeline_is_bidirectional(p) ? 2 : 1);
}

static bool consumer_of(const lh_pipeline *p, const lh_pass *pass, uint32_t *to)
{
    uint32_t length = path_length(p), at = pass->chunk % length;
    if (pass->kind == LH_F) {
        *to = pass->chunk + 1;
        return at + 1 < length;
    }
    *to = pass->chunk - 1;
    return pass->kind != LH_W && at > 0;
}

/* Returns the explicit order that a pass's message belongs to, or NULL. */
static lh_link_order *order_of(walk *w, const lh_pass *pass)
{
    uint32_t to;
    if (!consumer_of(w->p, pass, &to))
        return NULL;
    uint32_t a = lh_pipeline_chunk(w->p, pass->chunk)->device;
    uint32_t b = lh_pipeline_chunk(w->p, to)->device;
    const char *name = a == b ? NULL : link_name(w->p, a, b);
    for (uint32_t i = 0; name && i < w->n_names; i++)
        if (strcmp(w->names[i], name) == 0)
            return &w->links[i];
    return NULL;
}

static void arrive(walk *w, const lh_pass *pass)
{
    uint32_t to;
    if (!consumer_of(w->p, pass, &to))
        return;
    if (pass->kind == LH_F)
        cell_at(w, to, pass->microbatch)->f_input = true;
    else
        cell_at(w, to, pass->microbatch)->d_input = true;
}

static void run_pass(walk *w, lh_pass pass)
{
    cell *k = cell_at(w, pass.chunk, pass.microbatch);
    uint32_t device = lh_pipeline_chunk(w->p, pass.chunk)->device;
    w->orders[device][w->counts[device]++] = pass;
    if (pass.kind == LH_F)
        k->f_done = true;
    else if (pass.kind == LH_W)
        k->part++;
    else
        k->d_done = true;
    if (order_of(w, &pass))
        w->held[w->n_held++] = pass;
    else
        arrive(w, &pass);
}

static void send_some(walk *w)
{
    uint32_t i = rng_below(w->r, w->n_held);
    lh_pass pass = w->held[i];
    w->held[i] = w->held[--w->n_held];
    lh_link_order *order = order_of(w, &pass);
    ((lh_pass *)(uintptr_t)order->passes)[order->n_passes++] = pass;
    arrive(w, &pass);
}

/* Finds the cell's pass that can run now; false: none. */
static bool ready_pass(walk *w, uint32_t c, uint32_t m, lh_pass *out)
{
    cell *k = cell_at(w, c, m);
    *out = (lh_pass){.chunk = c, .microbatch = m, .n_parts = 1};
    if (!k->f_done) {
        out->kind = LH_F;
        return c % path_length(w->p) == 0 || k->f_input;
    }
    if (!k->d_done) {
        out->kind = k->unite ? LH_B : LH_D;
        return (c + 1) % path_length(w->p) == 0 || k->d_input;
    }
    if (k->unite || k->part == k->n_parts)
        return false;
    out->kind = LH_W;
    out->part = k->part;
    out->n_parts = k->n_parts;
    return true;
}

/* Takes one step: a random ready pass or a held message; false: all done. */
static bool step(walk *w, lh_pass *ready)
{
    uint32_t n = 0;
    for (uint32_t c = 0; c < w->n_chunks; c++)
        for (uint32_t m = 0; m < w->n; m++)
            n += ready_pass(w, c, m, &ready[n]);
    if (n + w->n_held == 0)
        return false;
    uint32_t i = rng_below(w->r, n + w->n_held);
    if (i < n) {
        /* Often the earliest microbatch with that kind, as in realistic
         * schedules. */
        for (uint32_t k = 0; k < n && rng_chance(w->r, 70); k++)
            if (ready[k].chunk == ready[i].chunk &&
                ready[k].kind == ready[i].kind &&
                ready[k].microbatch < ready[i].microbatch)
                i = k;
        run_pass(w, ready[i]);
    } else {
        send_some(w);
    }
    return true;
}

static void choose_orders(walk *w)
{
    uint32_t n = lh_pipeline_n_links(w->p);
    w->names = grab(n, sizeof *w->names);
    w->links = grab(n, sizeof *w->links);
    for (uint32_t i = 0; i < n; i++) {
        const char *name = lh_pipeline_link(w->p, i)->name;
        bool seen = false;
        for (uint32_t k = 0; k < i; k++)
            seen |= strcmp(lh_pipeline_link(w->p, k)->name, name) == 0;
        if (seen || rng_chance(w->r, 40))
            continue;
        w->names[w->n_names] = name;
        w->links[w->n_names++] = (lh_link_order){
            name, 0, grab((size_t)2 * w->n * w->n_chunks, sizeof(lh_pass))};
    }
}

lh_schedule *random_schedule(rng *r, const lh_pipeline *p, bool parts,
                             bool link_orders)
{
    walk w = {.r = r, .p = p};
    uint32_t devices = lh_pipeline_n_devices(p);
    w.n = lh_pipeline_n_microbatches(p);
    w.n_chunks = lh_pipeline_n_chunks(p);
    size_t cells = (size_t)w.n * w.n_chunks;
    bool joint = lhi_pipeline_is_joint(p), unite = rng_chance(r, 30);
    w.cells = grab(cells, sizeof *w.cells);
    for (size_t i = 0; i < cells; i++) {
        w.cells[i].unite = joint || (unite && rng_chance(r, 50));
        w.cells[i].n_parts = 1;
        if (parts && rng_chance(r, 40))
            w.cells[i].n_parts = (uint16_t)(1 + rng_below(r, 4));
    }
    w.orders = grab(devices, sizeof *w.orders);
    w.counts = grab(devices, sizeof *w.counts);
    for (uint32_t d = 0; d < devices; d++)
        w.orders[d] = grab(cells * 6, sizeof(lh_pass));
    w.held = grab(cells * 2, sizeof *w.held);
    if (link_orders)
        choose_orders(&w);
    lh_pass *ready = grab(cells + 1, sizeof *ready);
    while (step(&w, ready))
        ;
    lh_schedule *s = NULL;
    lh_error err = {0};
    must(lh_schedule_make(devices, (const lh_pass *const *)w.orders, w.counts,
                          w.n_names, w.links, &s, &err),
         &err);
    for (uint32_t d = 0; d < devices; d++)
        free(w.orders[d]);
    for (uint32_t i = 0; i < w.n_names; i++)
        free((void *)(uintptr_t)w.links[i].passes);
    free(w.orders);
    free(w.counts);
    free(w.cells);
    free(w.held);
    free(w.names);
    free(w.links);
    free(ready);
    return s;
}

lh_schedule *overlapping_schedule(rng *r, const lh_pipeline *p,
                                  const lh_schedule *s, bool valid)
{
    uint32_t devices = lh_schedule_n_devices(s), length = path_length(p);
    lh_pass **orders = grab(devices, sizeof *orders);
    uint32_t *counts = grab(devices, sizeof *counts);
    uint32_t n_links = lh_schedule_n_link_orders(s);
    for (uint32_t d = 0; d < devices; d++) {
        const lh_pass *order = lh_schedule_order(s, d, &counts[d]);
        orders[d] = grab(counts[d], sizeof(lh_pass));
        memcpy(orders[d], order, counts[d] * sizeof *order);
        for (uint32_t i = 0; i + 1 < counts[d]; i++) {
            lh_pass *a = &orders[d][i], *b = a + 1;
            if (a->kind != LH_F || b->kind != LH_B ||
                (valid && a->microbatch == b->microbatch &&
                 a->chunk / length == b->chunk / length) ||
                rng_chance(r, 30))
                continue;
            a->overlapped = b->overlapped = true;
            i++;
        }
    }
    lh_schedule *out = NULL;
    lh_error err = {0};
    must(lh_schedule_make(
             devices, (const lh_pass *const *)orders, counts, n_links,
             n_links ? lh_schedule_link_order(s, 0) : NULL, &out, &err),
         &err);
    for (uint32_t d = 0; d < devices; d++)
        free(orders[d]);
    free(orders);
    free(counts);
    return out;
}

/* --- broken schedules ----------------------------------------------------- */

static void spoil(rng *r, lh_pass **orders, uint32_t *counts, uint32_t devices)
{
    uint32_t d = rng_below(r, devices), e = rng_below(r, devices);
    if (counts[d] == 0)
        return;
    uint32_t i = rng_below(r, counts[d]), j = rng_below(r, counts[d]);
    lh_pass pass = orders[d][i];
    switch (rng_below(r, 7)) {
    case 0: /* lost */
        orders[d][i] = orders[d][--counts[d]];
        break;
    case 1: /* duplicated */
        orders[e][counts[e]++] = pass;
        break;
    case 2: /* swapped */
        orders[d][i] = orders[d][j];
        orders[d][j] = pass;
        break;
    case 3: /* moved to another device */
        memmove(orders[d] + i, orders[d] + i + 1,
                (--counts[d] - i) * sizeof pass);
        orders[e][counts[e]++] = pass;
        break;
    case 4: /* another kind */
        orders[d][i] = (lh_pass){pass.chunk, pass.microbatch,          0,
                                 1,          (uint8_t)rng_below(r, 4), false};
        break;
    case 5: /* different parts */
        if (pass.kind == LH_W) {
            orders[d][i].n_parts = (uint16_t)(1 + rng_below(r, 3));
            orders[d][i].part = (uint16_t)rng_below(r, orders[d][i].n_parts);
        }
        break;
    default: /* other numbers */
        orders[d][i].chunk += rng_below(r, 2);
        orders[d][i].microbatch += rng_below(r, 2);
        break;
    }
}

lh_schedule *broken_schedule(rng *r, const lh_schedule *s)
{
    uint32_t devices = lh_schedule_n_devices(s), times = 1 + rng_below(r, 3);
    lh_pass **orders = grab(devices, sizeof *orders);
    uint32_t *counts = grab(devices, sizeof *counts);
    uint32_t n_links = lh_schedule_n_link_orders(s);
    for (uint32_t d = 0; d < devices; d++) {
        const lh_pass *order = lh_schedule_order(s, d, &counts[d]);
        orders[d] = grab(counts[d] + 4u, sizeof(lh_pass));
        memcpy(orders[d], order, counts[d] * sizeof *order);
    }
    for (uint32_t i = 0; i < times; i++)
        spoil(r, orders, counts, devices);
    lh_schedule *out = NULL;
    lh_error err = {0};
    must(lh_schedule_make(
             devices, (const lh_pass *const *)orders, counts, n_links,
             n_links ? lh_schedule_link_order(s, 0) : NULL, &out, &err),
         &err);
    for (uint32_t d = 0; d < devices; d++)
        free(orders[d]);
    free(orders);
    free(counts);
    return out;
}

void print_case(const lh_pipeline *p, const lh_schedule *s)
{
    char *text = NULL;
    if (lh_pipeline_format(p, &text, NULL, NULL) == LH_OK)
        fprintf(stderr, "%s\n", text);
    lh_text_free(text);
    text = NULL;
    if (s && lh_schedule_format(s, &text, NULL, NULL) == LH_OK)
        fprintf(stderr, "%s\n", text);
    lh_text_free(text);
    text = NULL;
    if (s && lhi_schedule_format_links(s, &text, NULL, NULL) == LH_OK && text)
        fprintf(stderr, "%s\n", text);
    lh_text_free(text);
}
