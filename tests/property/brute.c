/* SPDX-License-Identifier: Apache-2.0 */
/* Dynamic programming over states. A state is the number of completed passes
 * and messages per stream; it keeps the time vectors that no other vector
 * dominates. */
#include "brute.h"
#include "schedule/pipeline/accessors.h"

#include <longhaul/experimental/pipeline.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_STREAMS = 40, MAX_COUNT = 16 };

/* Operations with one kind and chunk that run in microbatch order on one
 * machine (a device or a link). `per`: operations per microbatch. */
typedef struct stream {
    uint32_t machine, chunk, count, per;
    int64_t time, memory;
    bool message, forward, weight;
} stream;

/* The search instance: pipeline, options and stream indices by chunk. */
typedef struct brute {
    const lh_pipeline *p;
    brute_options o;
    uint32_t n, n_devices, n_machines, n_streams, width;
    stream s[MAX_STREAMS];
    uint32_t f[16], d[16], w[16], mf[16], md[16];
    uint32_t ready_at[MAX_STREAMS]; /* index in a time vector */
    int64_t gathers[16];            /* per device: total all-gather time, ns */
} brute;

/* A time vector. In this order: when each machine is free, when each device's
 * all-gathers and reduce-scatters are done, the current end, and every
 * operation's input arrival (-1: not known yet, or already run). */
typedef struct label {
    struct label *next;
    int64_t at[];
} label;

/* Operation counts per stream and the non-dominated time vectors. */
typedef struct state {
    uint8_t counts[MAX_STREAMS];
    label *labels;
    struct state *next;
} state;

enum { N_TABLE = 1 << 12 };

/* Hash table with all states that have the same number of completed operations.
 */
typedef struct layer {
    state *table[N_TABLE];
    uint32_t n_labels;
} layer;

/* Checks whether chunk c begins or ends the path of its microbatches. */
static bool begins(const lh_pipeline *p, uint32_t c)
{
    uint32_t n = lh_pipeline_n_chunks(p);
    return c == 0 || (lhi_pipeline_is_bidirectional(p) && 2 * c == n);
}

static bool ends(const lh_pipeline *p, uint32_t c)
{
    return c + 1 == lh_pipeline_n_chunks(p) || begins(p, c + 1);
}

static const lh_link *link_of(const lh_pipeline *p, uint32_t a, uint32_t b)
{
    uint32_t from = lh_pipeline_chunk(p, a)->device;
    uint32_t to = lh_pipeline_chunk(p, b)->device;
    for (uint32_t i = 0; i < lh_pipeline_n_links(p) && from != to; i++) {
        const lh_link *l = lh_pipeline_link(p, i);
        if (l->from == from && l->to == to)
            return l;
    }
    return NULL;
}

/* Returns the number of a link: the index of the first link with its name. */
static uint32_t link_number(const lh_pipeline *p, const lh_link *l)
{
    for (uint32_t i = 0; i < lh_pipeline_n_links(p); i++)
        if (strcmp(lh_pipeline_link(p, i)->name, l->name) == 0)
            return i;
    return 0;
}

/* Counts the kinds of messages that the link carries. *several: whether more
 * than one device sends on it. */
static void count_users(const lh_pipeline *p, uint32_t number, uint32_t *kinds,
                        bool *several)
{
    uint32_t sender = UINT32_MAX;
    *kinds = 0;
    *several = false;
    for (uint32_t c = 0; c < lh_pipeline_n_chunks(p); c++)
        for (int back = 0; back < 2; back++) {
            if (back ? begins(p, c) : ends(p, c))
                continue;
            const lh_link *l = link_of(p, c, back ? c - 1 : c + 1);
            if (!l || link_number(p, l) != number)
                continue;
            ++*kinds;
            if (sender != UINT32_MAX && sender != l->from)
                *several = true;
            sender = l->from;
        }
}

bool brute_shared_links(const lh_pipeline *p)
{
    for (uint32_t i = 0; i < lh_pipeline_n_links(p); i++) {
        uint32_t kinds;
        bool several;
        count_users(p, i, &kinds, &several);
        if (several)
            return true;
    }
    return false;
}

/* Returns the share of the first x operations in a stream, if one microbatch
 * takes `total`. The parts of a W are as equal as integers allow. */
static int64_t first_of(const stream *s, int64_t total, uint32_t x)
{
    int64_t per = s->per, part = x % s->per;
    return x / s->per * total + total / per * part + total % per * part / per;
}

static uint32_t add(brute *b, stream s)
{
    b->s[b->n_streams] = s;
    return b->n_streams++;
}

static uint32_t add_message(brute *b, uint32_t c, bool forward)
{
    const lh_link *l = link_of(b->p, c, forward ? c + 1 : c - 1);
    uint32_t kinds = 0;
    bool several = false;
    if (l)
        count_users(b->p, link_number(b->p, l), &kinds, &several);
    if (kinds < 2 || (b->o.fifo && !several))
        return UINT32_MAX; /* sent immediately, in order */
    return add(b, (stream){.machine = b->n_devices + link_number(b->p, l),
                           .chunk = c,
                           .count = b->n,
                           .per = 1,
                           .time = l->transfer_ns,
                           .message = true,
                           .forward = forward});
}

static bool set_up(brute *b)
{
    const lh_pipeline *p = b->p;
    bool joint = lhi_pipeline_is_joint(p);
    b->n = lh_pipeline_n_microbatches(p);
    b->n_devices = lh_pipeline_n_devices(p);
    b->n_machines = b->n_devices + lh_pipeline_n_links(p);
    if (lh_pipeline_n_chunks(p) > 8 || b->n_devices > 8 ||
        b->n * b->o.parts > MAX_COUNT)
        return false;
    for (uint32_t c = 0; c < lh_pipeline_n_chunks(p); c++) {
        const lh_chunk *k = lh_pipeline_chunk(p, c);
        stream s = {.machine = k->device, .chunk = c, .count = b->n, .per = 1};
        b->gathers[k->device] += k->all_gather_ns;
        s.time = k->f_ns;
        s.memory = k->mem_f;
        s.forward = true;
        b->f[c] = add(b, s);
        s.forward = false;
        s.time = k->d_ns + (joint ? k->w_ns : 0);
        s.memory = k->mem_d + (joint ? k->mem_w : 0);
        b->d[c] = add(b, s);
        b->w[c] = UINT32_MAX;
        if (!joint) {
            s.per = b->o.parts;
            s.count = b->n * s.per;
            s.time = k->w_ns;
            s.memory = k->mem_w;
            s.weight = true;
            b->w[c] = add(b, s);
        }
        b->mf[c] = ends(p, c) ? UINT32_MAX : add_message(b, c, true);
        b->md[c] = begins(p, c) ? UINT32_MAX : add_message(b, c, false);
    }
    b->width = b->n_machines + 2 * b->n_devices + 1;
    for (uint32_t i = 0; i < b->n_streams; i++) {
        b->ready_at[i] = b->width;
        b->width += b->s[i].count;
    }
    return true;
}

static int64_t *free_at(const brute *b, int64_t *v, uint32_t machine)
{
    (void)b;
    return &v[machine];
}

static int64_t *gather_at(const brute *b, int64_t *v, uint32_t d)
{
    return &v[b->n_machines + d];
}

static int64_t *scatter_at(const brute *b, int64_t *v, uint32_t d)
{
    return &v[b->n_machines + b->n_devices + d];
}

static int64_t *end_at(const brute *b, int64_t *v)
{
    return &v[b->n_machines + 2 * b->n_devices];
}

static void arrives(const brute *b, int64_t *v, uint32_t s, uint32_t x,
                    int64_t time)
{
    v[b->ready_at[s] + x] = time;
}

/* Sends a message whose order needs no decision. */
static void send(const brute *b, int64_t *v, uint32_t from, uint32_t to,
                 uint32_t consumer, uint32_t x, int64_t now)
{
    const lh_link *l = link_of(b->p, from, to);
    if (l) {
        int64_t *busy = free_at(b, v, b->n_devices + link_number(b->p, l));
        int64_t depart = now > *busy ? now : *busy;
        *busy = depart + l->transfer_ns;
        now = *busy + l->latency_ns;
    }
    arrives(b, v, consumer, x, now);
}

static void hand_on(const brute *b, int64_t *v, uint32_t i, uint32_t x,
                    int64_t now)
{
    const stream *s = &b->s[i];
    uint32_t c = s->chunk;
    if (s->message) {
        uint32_t to = s->forward ? c + 1 : c - 1;
        arrives(b, v, s->forward ? b->f[to] : b->d[to], x,
                now + link_of(b->p, c, to)->latency_ns);
        return;
    }
    if (s->weight)
        return;
    if (s->forward) {
        if (ends(b->p, c))
            arrives(b, v, b->d[c], x, now);
        else if (b->mf[c] != UINT32_MAX)
            arrives(b, v, b->mf[c], x, now);
        else
            send(b, v, c, c + 1, b->f[c + 1], x, now);
        return;
    }
    if (b->w[c] != UINT32_MAX)
        for (uint32_t k = 0; k < b->o.parts; k++)
            arrives(b, v, b->w[c], x * b->o.parts + k, now);
    if (begins(b->p, c))
        return;
    if (b->md[c] != UINT32_MAX)
        arrives(b, v, b->md[c], x, now);
    else
        send(b, v, c, c - 1, b->d[c - 1], x, now);
}

/* Runs operation x of stream i as the next one on its machine. */
static void run_next(const brute *b, int64_t *v, uint32_t i, uint32_t x)
{
    const stream *s = &b->s[i];
    const lh_chunk *k = lh_pipeline_chunk(b->p, s->chunk);
    int64_t start = v[b->ready_at[i] + x], *busy = free_at(b, v, s->machine);
    if (*busy > start)
        start = *busy;
    if (i == b->f[s->chunk] && x == 0 && k->all_gather_ns > 0) {
        int64_t *line = gather_at(b, v, k->device);
        *line += k->all_gather_ns;
        if (*line + k->dp_latency_ns > start)
            start = *line + k->dp_latency_ns;
    }
    int64_t now = start + first_of(s, s->time, x + 1) - first_of(s, s->time, x);
    int64_t end = now;
    v[b->ready_at[i] + x] = -1;
    *busy = now;
    bool release = s->weight ||
                   (lhi_pipeline_is_joint(b->p) && !s->message && !s->forward);
    if (release && x + 1 == s->count && k->reduce_scatter_ns > 0 &&
        !b->o.first_device) {
        int64_t *line = scatter_at(b, v, k->device);
        *line = (now > *line ? now : *line) + k->reduce_scatter_ns;
        end = *line + k->dp_latency_ns;
    }
    bool asked =
        !b->o.first_device ||
        (!s->message && k->device == lh_pipeline_chunk(b->p, 0)->device);
    if (asked && end > *end_at(b, v))
        *end_at(b, v) = end;
    hand_on(b, v, i, x, now);
}

/* Checks whether the state can no longer meet the limit, given its end and each
 * device's remaining work. */
static bool is_late(const brute *b, const uint8_t *counts, int64_t *v)
{
    int64_t work[64] = {0};
    if (*end_at(b, v) >= b->o.below_ns)
        return true;
    for (uint32_t i = 0; i < b->n_streams; i++)
        work[b->s[i].machine] +=
            first_of(&b->s[i], b->s[i].time, b->s[i].count) -
            first_of(&b->s[i], b->s[i].time, counts[i]);
    for (uint32_t d = 0; d < b->n_devices && !b->o.first_device; d++)
        if (*free_at(b, v, d) + work[d] >= b->o.below_ns)
            return true;
    return false;
}

static state *find(layer *l, const brute *b, const uint8_t *counts)
{
    uint64_t h = 0;
    for (uint32_t i = 0; i < b->n_streams; i++)
        h = (h ^ counts[i]) * UINT64_C(0x9e3779b97f4a7c15);
    state **at = &l->table[(h >> 33) % N_TABLE];
    for (; *at; at = &(*at)->next)
        if (memcmp((*at)->counts, counts, b->n_streams) == 0)
            return *at;
    *at = calloc(1, sizeof **at);
    memcpy((*at)->counts, counts, b->n_streams);
    return *at;
}

static bool beats(const brute *b, const int64_t *x, const int64_t *y)
{
    for (uint32_t i = 0; i < b->width; i++)
        if (x[i] > y[i])
            return false;
    return true;
}

static void insert(layer *l, const brute *b, state *s, const int64_t *v)
{
    for (label **at = &s->labels; *at;) {
        label *old = *at;
        if (beats(b, old->at, v))
            return;
        if (beats(b, v, old->at)) {
            *at = old->next;
            free(old);
            l->n_labels--;
        } else {
            at = &old->next;
        }
    }
    label *made = malloc(sizeof *made + b->width * sizeof(int64_t));
    memcpy(made->at, v, b->width * sizeof(int64_t));
    made->next = s->labels;
    s->labels = made;
    l->n_labels++;
}

static bool fits(const brute *b, const uint8_t *counts, uint32_t i)
{
    uint32_t d = b->s[i].machine;
    int64_t held = 0;
    if (b->s[i].message)
        return true;
    for (uint32_t k = 0; k < b->n_streams; k++)
        if (!b->s[k].message && b->s[k].machine == d)
            held += first_of(&b->s[k], b->s[k].memory,
                             counts[k] + (k == i ? 1u : 0u));
    for (uint32_t c = 0; c < lh_pipeline_n_chunks(b->p); c++)
        if (lh_pipeline_chunk(b->p, c)->device == d)
            held += lh_pipeline_chunk(b->p, c)->mem_static;
    return held <= lh_pipeline_memory_limit(b->p, d);
}

static void expand(const brute *b, const state *s, layer *next)
{
    int64_t v[1024];
    uint8_t counts[MAX_STREAMS];
    for (const label *l = s->labels; l; l = l->next)
        for (uint32_t i = 0; i < b->n_streams; i++) {
            uint32_t x = s->counts[i];
            if (x == b->s[i].count || l->at[b->ready_at[i] + x] < 0 ||
                !fits(b, s->counts, i))
                continue;
            memcpy(v, l->at, b->width * sizeof *v);
            memcpy(counts, s->counts, b->n_streams);
            counts[i]++;
            run_next(b, v, i, x);
            if (!is_late(b, counts, v))
                insert(next, b, find(next, b, counts), v);
        }
}

static void clear(layer *l)
{
    for (uint32_t h = 0; h < N_TABLE; h++)
        for (state *s = l->table[h], *after; s; s = after) {
            after = s->next;
            for (label *k = s->labels, *then; k; k = then) {
                then = k->next;
                free(k);
            }
            free(s);
        }
    memset(l, 0, sizeof *l);
}

static brute_answer walk(const brute *b, layer *now, layer *next)
{
    uint32_t total = 0;
    uint64_t seen = 0;
    for (uint32_t i = 0; i < b->n_streams; i++)
        total += b->s[i].count;
    for (uint32_t step = 0; step < total; step++) {
        for (uint32_t h = 0; h < N_TABLE; h++)
            for (const state *s = now->table[h]; s; s = s->next) {
                expand(b, s, next);
                if (seen + next->n_labels > b->o.most)
                    return BRUTE_TOO_MANY;
            }
        seen += next->n_labels;
        layer *old = now;
        clear(old);
        now = next;
        next = old;
        if (now->n_labels == 0)
            return BRUTE_NONE;
    }
    return BRUTE_FASTER;
}

brute_answer brute_force(const lh_pipeline *p, const brute_options *options)
{
    brute b = {.p = p, .o = *options};
    if (b.o.parts == 0)
        b.o.parts = 1;
    if (!set_up(&b) || b.width > 1024)
        return BRUTE_TOO_MANY;
    int64_t v[1024];
    for (uint32_t i = 0; i < b.width; i++)
        v[i] = i <= b.n_machines + 2 * b.n_devices ? 0 : -1;
    for (uint32_t d = 0; d < b.n_devices; d++)
        *scatter_at(&b, v, d) = b.gathers[d];
    for (uint32_t c = 0; c < lh_pipeline_n_chunks(p); c++)
        for (uint32_t x = 0; begins(p, c) && x < b.n; x++)
            arrives(&b, v, b.f[c], x, 0);
    uint8_t counts[MAX_STREAMS] = {0};
    layer *layers = calloc(2, sizeof *layers);
    insert(&layers[0], &b, find(&layers[0], &b, counts), v);
    brute_answer answer = walk(&b, &layers[0], &layers[1]);
    clear(&layers[0]);
    clear(&layers[1]);
    free(layers);
    return answer;
}
