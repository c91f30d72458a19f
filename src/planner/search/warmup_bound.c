/* SPDX-License-Identifier: Apache-2.0 */
/* Warm-up bound: limits each stage's layers for a given makespan, from the
 * first stage on: docs/theory/plan-search.md. */
#include "planner/search/lower_bound_internal.h"

#include <math.h>

enum {
    HALVINGS = 14,   /* bisection steps in the bound's interval */
    KEPT_STAGES = 32 /* stages whose limits are kept over these steps */
};

/* Factors, layers and ns, whose product does not overflow. */
static const int64_t MOST_LAYERS = INT64_C(1) << 20;
static const int64_t MOST_LAYER_NS = INT64_C(1) << 40;

/* Computes lower bounds for one microbatch, in ns, with all messages between
 * stages: *forth, F through all stages with the first gather; *back, D back.
 * Each part is in its fastest datacenter. */
static void compute_paths(const lhi_bound_case *c, int64_t *forth,
                          int64_t *back)
{
    uint32_t v = c->chunks_per_device ? c->chunks_per_device : 1;
    *forth = lhi_bound_first_gather_ns(c);
    *back = 0;
    for (int i = 0; i < LHI_BOUND_PARTS; i++) {
        int64_t f = INT64_MAX, d = INT64_MAX;
        for (uint32_t k = 0; k < (c->site_of_stage ? c->stages : 1); k++) {
            f = lhi_min_int64(f, lhi_bound_site_of_stage(c, k)->parts[i].f);
            d = lhi_min_int64(d, lhi_bound_site_of_stage(c, k)->parts[i].d);
        }
        *forth += f * c->n_of_part[i];
        *back += d * c->n_of_part[i];
    }
    for (uint32_t k = 0; c->forward_hops && k + 1 < c->stages; k++) {
        /* A wave returns through the same stages. */
        bool wave = c->placement == LH_PLACEMENT_WAVE;
        int64_t there = c->forward_hops[k], home = c->backward_hops[k];
        *forth += wave ? there + home : there * v;
        *back += wave ? there + home : home * v;
    }
    if (c->placement == LH_PLACEMENT_LOOP) {
        *forth += c->wrap_forth * (v - 1);
        *back += c->wrap_back * (v - 1);
    }
}

/* Memory per layer of a kind on a stage, in bytes. */
typedef struct layer_memory {
    double room;       /* for layers, without transient memory */
    double state;      /* the least */
    double activation; /* the least */
    /* Most pass time per byte, in ns: F whose activations are resident, and D
     * and W still waiting for them. */
    double f, dw, w; /* w: W alone, after D */
    double f_of_ends, dw_of_ends, w_of_ends;
} layer_memory;

/* The same, cached for equivalent stages at a site; independent of the
 * makespan. */
typedef struct known_memory {
    const lhi_bound_site *of; /* NULL: empty */
    bool is_known;
    layer_memory m;
} known_memory;

/* Stage classes: the first, the one with the head, and all others. */
enum { FIRST_STAGE, HEAD_STAGE, OTHER_STAGE, STAGE_KINDS };

/* Facts about the stages before stage k. */
typedef struct stages_before {
    uint32_t k;
    int64_t forth, back; /* one microbatch: all F, all D, with hops */
    int64_t in, out;     /* hops and embedding, forward and back; with the first
                          * chunk's gather and its reduction */
    int64_t layers;      /* in the chunks that a microbatch passes before */
    double hops;         /* forward and back, all stages from here on */
    double least_fd;     /* F and D of a layer, on any stage */
    /* Hops for F from here to the last chunk, and for D from there. */
    int64_t hops_f, hops_d;
    known_memory *memory; /* array with STAGE_KINDS entries */
    /* Limits of the first KEPT_STAGES stages, with the fewest layers before
     * them, and for how many of these stages they are computed. */
    struct stage_limits *limits;
    uint32_t *n_limits;
} stages_before;

/* Returns the F, D and W times of the embedding (`end` 0) or the head (`end` 1)
 * if stage k has it, else zeros. */
static lhi_bound_pass get_end_passes(const lhi_bound_case *c, uint32_t k,
                                     uint32_t end)
{
    const lhi_bound_site *s = lhi_bound_site_of_stage(c, k);
    if (c->chunks_per_device == 0 ||
        k != (end == 0 ? 0 : lhi_bound_head_stage(c)))
        return (lhi_bound_pass){0, 0, 0};
    return end == 0 ? s->embedding : s->head;
}

/* Returns the F, D and W time of embedding and head on stage k. */
static lhi_bound_pass sum_end_passes(const lhi_bound_case *c, uint32_t k)
{
    lhi_bound_pass a = get_end_passes(c, k, 0), b = get_end_passes(c, k, 1);
    return (lhi_bound_pass){a.f + b.f, a.d + b.d, a.w + b.w};
}

/* Returns the bytes per GPU of stage `k` left for its layers: its memory
 * without the state of embedding and head and the transient memory of `kind`
 * layers. */
static double compute_layer_memory(const lhi_bound_case *c, int kind,
                                   uint32_t k)
{
    const lhi_bound_site *s = lhi_bound_site_of_stage(c, k);
    double room = (double)s->capacity;
    bool whole = c->stages * c->chunks_per_device == 1;
    double first = (double)s->part_memory[c->n_kinds].state;
    double last = (double)s->part_memory[c->n_kinds + 1].state;
    if (kind != LHI_ANY_KIND)
        room -= (double)s->part_memory[kind].transient;
    if (c->chunks_per_device == 0) /* unknown which has the head */
        return room;
    first = k == 0 ? first : 0;
    last = k == lhi_bound_head_stage(c) ? last : 0;
    /* In one chunk the two may share a matrix. */
    return room - (whole ? fmax(first, last) : first + last);
}

/* Raises a limit on pass times by memory for the embedding or head, whose
 * passes take `all` ns and need for_each_byte ns per byte of `room` free bytes.
 * Either *of_layers, the ns per byte, rises to that or *of_ends grows by `all`,
 * whichever raises the limit less. */
static void limit_by_end(double room, double all, double for_each_byte,
                         double *of_layers, double *of_ends)
{
    if (!(all > 0))
        return;
    if (room * (for_each_byte - *of_layers) < all)
        *of_layers = fmax(*of_layers, for_each_byte);
    else
        *of_ends += all;
}

/* Computes, for layers of one kind (dense, experts, ...; LHI_ANY_KIND: the most
 * favourable) on stage `k`, the memory left for activations and the ns of F, of
 * D and W, and of W per byte of activations that these passes keep in memory.
 * Returns false if memory is unknown or unlimited. */
static bool compute_memory_limits(const lhi_bound_case *c, int kind, uint32_t k,
                                  layer_memory *out)
{
    const lhi_bound_site *s = lhi_bound_site_of_stage(c, k);
    double kept = INFINITY;
    uint32_t first = kind == LHI_ANY_KIND ? 0 : (uint32_t)kind;
    uint32_t last = kind == LHI_ANY_KIND ? c->n_kinds - 1 : (uint32_t)kind;
    *out = (layer_memory){
        compute_layer_memory(c, kind, k), INFINITY, INFINITY, 0, 0, 0, 0, 0, 0};
    for (uint32_t i = first; i <= last; i++) {
        const lhi_bound_memory_part *h = &s->part_memory[i];
        const lhi_bound_pass *p = &s->parts[i];
        double w = (double)p->w;
        if (s->capacity == INT64_MAX || h->activation <= 0 ||
            h->weight_input <= 0)
            return false;
        out->state = fmin(out->state, (double)h->state);
        out->activation = fmin(out->activation, (double)h->activation);
        kept = fmin(kept, (double)h->weight_input);
        out->f = fmax(out->f, (double)p->f / (double)h->activation);
        out->dw = fmax(out->dw, ((double)p->d + w) / (double)h->activation);
        /* A combined B runs W with its activation still resident. */
        out->w = fmax(
            out->w, w / (double)lhi_min_int64(h->activation, h->weight_input));
    }
    /* Each microbatch in flight has a chunk's activations. */
    double n = c->microbatches, room = fmax(out->room, 0);
    double chunk = (double)c->least_layers;
    bool each = kind == LHI_ANY_KIND && chunk > 0;
    double before_d = each ? fmin(n, room / (chunk * out->activation)) : n;
    double before_w =
        each ? fmin(n, room / (chunk * fmin(kept, out->activation))) : n;
    out->dw = fmax(out->dw, out->w);
    for (uint32_t i = 0; i < 2; i++) {
        const lhi_bound_pass p = get_end_passes(c, k, i);
        const lhi_bound_memory_part *h = &s->part_memory[c->n_kinds + i];
        double left = (double)h->activation, w = (double)p.w,
               dw = (double)p.d + w;
        double held = (double)lhi_min_int64(h->activation, h->weight_input);
        limit_by_end(room, before_d * (double)p.f, (double)p.f / left, &out->f,
                     &out->f_of_ends);
        limit_by_end(room, before_w * w, w / held, &out->w, &out->w_of_ends);
        limit_by_end(room, fmax(before_d, before_w) * dw,
                     fmax(dw / left, w / held), &out->dw, &out->dw_of_ends);
    }
    return true;
}

/* A stage's least time from the start to its first F and first D, and from its
 * last F and last D to the end. */
typedef struct end_times {
    double first_f, first_d, after_f, after_d;
} end_times;

/* A memory limit on a stage's layers from one interval of the makespan, between
 * two events, in which memory limits the passes: the interval's time divided by
 * `each`. */
typedef struct memory_limit {
    double less[2];   /* subtracted from the makespan, one after the other */
    bool is_positive; /* the remainder is at least 0 */
    double of_ends;   /* ns added for passes of embedding and head */
    double passes;    /* ns added for passes that the memory allows */
    double each;      /* ns per layer */
} memory_limit;

enum { MEMORY_LIMITS = 5, TIME_LIMITS = 6 };

/* All limits on one stage's layers, for any makespan. */
typedef struct stage_limits {
    int64_t fit; /* layers that fit into memory */
    /* The makespan minus less_ns, divided by each_ns. */
    struct {
        int64_t less_ns, each_ns;
    } time[TIME_LIMITS];
    uint32_t n_time;
    bool has_memory; /* the following members are valid */
    layer_memory m;
    double rest;  /* ns, passes of embedding and head */
    double after; /* ns, activation residency per layer and microbatch */
    memory_limit memory[MEMORY_LIMITS];
} stage_limits;

/* Returns the most `kind` layers that stage b->k can have by activation
 * residency: activations of a stage's only chunk are needed while all later
 * layers run, and its memory without state limits them during its active time.
 */
static double limit_layers_by_residency(const lhi_bound_case *c,
                                        const stage_limits *l, int64_t ns)
{
    const layer_memory *m = &l->m;
    double share =
        l->after * c->microbatches * m->activation + m->state * (double)ns;
    return l->after > 0 ? fmax(m->room, 0) * (double)ns / share : INFINITY;
}

/* Fills the limits by memory: before its first D a device runs at most the F
 * whose activations fit. After its last F, and after its last D, only passes
 * whose activations are resident remain. `at`: times of these events. */
static void fill_memory_limits(const lhi_bound_case *c, int kind,
                               const stages_before *b,
                               const lhi_bound_pass *ends, const end_times *at,
                               stage_limits *l)
{
    const layer_memory *m = &l->m;
    const lhi_bound_site *s = lhi_bound_site_of_stage(c, b->k);
    double n = c->microbatches;
    double all = n * (double)lhi_bound_all_passes_ns(s, kind);
    /* A chunk is reduced after its last pass: the only one, or the least. */
    const bool only = c->chunks_per_device == 1;
    double each = only ? (double)s->reduce : 0;
    double last =
        (double)lhi_bound_reduce_ns(s, only ? 1 : c->least_layers) - each;
    const memory_limit ways[MEMORY_LIMITS] = {
        {{at->first_d, last}, false, m->f_of_ends, m->f, each},
        {{at->after_f, at->first_f}, false, m->dw_of_ends, m->dw, 0},
        {{at->after_d, at->first_f}, false, m->w_of_ends, m->w, 0},
        {{at->after_f, at->first_d},
         true,
         m->f_of_ends + m->dw_of_ends,
         m->f + m->dw,
         0},
        {{at->after_d, at->first_d},
         true,
         m->f_of_ends + m->w_of_ends,
         m->f + m->w,
         0},
    };
    l->rest = n * (double)(ends->f + ends->d + ends->w);
    l->after =
        (double)(lhi_bound_count_layers(c, kind) - b->layers) * b->least_fd +
        b->hops;
    for (size_t i = 0; i < MEMORY_LIMITS; i++) {
        l->memory[i] = ways[i];
        l->memory[i].each = all + ways[i].each + m->state * ways[i].passes;
        l->memory[i].passes = m->room * ways[i].passes;
    }
}

/* Returns the most layers, at most n >= 0, that a stage can have by its memory
 * limits if the makespan is `ns`; -1: none. */
static int64_t count_memory_layers(const lhi_bound_case *c,
                                   const stage_limits *l, int64_t ns, int64_t n)
{
    double most = (double)n;
    if (!l->has_memory)
        return n;
    for (size_t i = 0; i < MEMORY_LIMITS; i++) {
        const memory_limit *w = &l->memory[i];
        double between = (double)ns - w->less[0] - w->less[1];
        if (w->is_positive && !(between > 0))
            between = 0;
        double here = (between - l->rest + w->of_ends + w->passes) / w->each;
        /* rather than fmin(), which is a call */
        most = here < most ? here : most;
    }
    if (c->chunks_per_device == 1)
        most = fmin(most, limit_layers_by_residency(c, l, ns));
    most = most * (1 + 1e-9) + 1e-9;
    return most < 0 ? -1 : most < (double)n ? (int64_t)most : n;
}

/* Returns the fewest layers in the chunks after stage `k`'s last chunk. */
static int64_t count_later_layers(const lhi_bound_case *c, uint32_t k)
{
    if (c->chunks_per_device == 0)
        return 0;
    return c->least_layers * (c->placement == LH_PLACEMENT_WAVE
                                  ? (int64_t)k
                                  : (int64_t)c->stages - 1 - k);
}

/* Time outside a stage: D from the last chunk back to it, and F from it to the
 * last, with those layers, the head and the hops. */
typedef struct time_outside {
    int64_t f, d;
} time_outside;

/* Computes the least F and D time that a microbatch spends in the stages after
 * stage b->k, with the messages there and back. */
static time_outside compute_time_outside(const lhi_bound_case *c,
                                         const stages_before *b,
                                         const lhi_bound_pass *layer)
{
    const uint32_t last = lhi_bound_head_stage(c);
    int64_t layers = count_later_layers(c, b->k);
    time_outside o = {layers * layer->f, layers * layer->d};
    if (c->chunks_per_device == 0 || b->k == last)
        return o;
    o.f += lhi_bound_site_of_stage(c, last)->head.f + b->hops_f;
    o.d += lhi_bound_site_of_stage(c, last)->head.d + b->hops_d;
    return o;
}

/* Returns stage b->k's memory limits for `kind` layers from the cache, computed
 * once per site (datacenter set); NULL: memory is unknown or unlimited. */
static const layer_memory *get_memory_limits(const lhi_bound_case *c, int kind,
                                             const stages_before *b)
{
    const lhi_bound_site *site = lhi_bound_site_of_stage(c, b->k);
    known_memory *all =
        &b->memory[b->k == 0                         ? FIRST_STAGE
                   : b->k == lhi_bound_head_stage(c) ? HEAD_STAGE
                                                     : OTHER_STAGE];
    if (all->of != site)
        all->is_known = compute_memory_limits(c, kind, b->k, &all->m);
    all->of = site;
    return all->is_known ? &all->m : NULL;
}

/* Adds a limit on a stage's layers: the makespan minus less_ns, divided by
 * each_ns. */
static void add_time_limit(stage_limits *l, int64_t less_ns, int64_t each_ns)
{
    l->time[l->n_time].less_ns = less_ns;
    l->time[l->n_time++].each_ns = each_ns;
}

/* Computes the limits on the `kind` layers that stage b->k can have: its work,
 * the paths to it and back, and its memory. */
static void fill_limits(const lhi_bound_case *c, int kind,
                        const lhi_bound_pass *layer, const stages_before *b,
                        stage_limits *l)
{
    const lhi_bound_site *s = lhi_bound_site_of_stage(c, b->k);
    int64_t n = c->microbatches, a = c->least_layers;
    int64_t layer_fd = lhi_bound_fd_ns(s, kind),
            layer_all = lhi_bound_all_passes_ns(s, kind);
    lhi_bound_pass more = sum_end_passes(c, b->k);
    int64_t start = b->in + b->layers * layer->f;
    int64_t end = b->out + b->layers * layer->d + a * layer->w;
    int64_t gather = lhi_bound_gather_ns(s, 1),
            reduce = lhi_bound_reduce_ns(s, 1);
    int64_t all = n * (more.f + more.d + more.w);
    l->n_time = 0;
    l->fit = lhi_bound_count_layers_that_fit(c, kind, b->k, 0);
    if (c->chunks_per_device == 1) {
        int64_t late = reduce - s->reduce; /* the layers' reductions, and the
                                            * latency once */
        add_time_limit(l, late + all + start, n * layer_all + s->reduce);
        add_time_limit(l, late + all + gather - s->gather,
                       s->gather + s->reduce + n * layer_all);
    } else {
        start = lhi_max_int64(start, lhi_bound_gather_ns(s, a));
        add_time_limit(l, start + all + lhi_bound_reduce_ns(s, a),
                       n * layer_all);
    }
    const layer_memory *m = get_memory_limits(c, kind, b);
    l->has_memory = m != NULL;
    if (m) {
        time_outside outside = compute_time_outside(c, b, layer);
        end_times at = {.first_f = (double)start,
                        .first_d = (double)(b->forth + outside.d),
                        .after_f = (double)(b->back + outside.f + layer->w * a +
                                            lhi_bound_first_reduce_ns(c)),
                        .after_d = (double)end};
        l->m = *m;
        fill_memory_limits(c, kind, b, &more, &at, l);
    }
    /* All F of a microbatch come before any D, and all D after any F. */
    const lhi_bound_pass *p =
        kind == LHI_ANY_KIND ? &s->layer : &s->parts[kind];
    add_time_limit(l,
                   b->forth + n * (more.d + more.w) + lhi_bound_reduce_ns(s, a),
                   n * (p->d + p->w));
    add_time_limit(l, b->forth + end + n * more.d, n * p->d);
    add_time_limit(l,
                   start + b->back + a * layer->w +
                       lhi_bound_first_reduce_ns(c) + n * more.f,
                   n * p->f);
    add_time_limit(l, start + end + n * (more.f + more.d), n * layer_fd);
}

/* Returns the most `kind` layers that a stage can have by its limits if the
 * makespan is `ns`. */
static int64_t count_max_layers(const lhi_bound_case *c, int kind,
                                const stage_limits *l, int64_t ns)
{
    int64_t most = lhi_min_int64(l->fit, lhi_bound_count_layers(c, kind));
    for (uint32_t i = 0; i < l->n_time; i++) {
        const int64_t left = ns - l->time[i].less_ns, each = l->time[i].each_ns;
        /* Most limits are above the least so far: a product shows it faster
         * than a division. */
        if (most < 0 || each < 0 || each > MOST_LAYER_NS ||
            most > MOST_LAYERS || left < most * each)
            most = lhi_min_int64(most, lhi_bound_count_fitting(left, each));
    }
    return most < 0 ? most : count_memory_layers(c, l, ns, most);
}

/* Returns the fewest `kind` layers that every stage must have. */
static int64_t compute_min_layers(const lhi_bound_case *c, int kind)
{
    int64_t others = c->layers - lhi_bound_count_layers(c, kind);
    int64_t all = (int64_t)c->least_layers * c->chunks_per_device;
    return lhi_max_int64(all - others, 0);
}

/* Checks whether the stages can hold all `kind` layers, each at least its
 * minimum, if the makespan is `ns`. `way`: state before the first stage. */
static bool is_possible(const lhi_bound_case *c, int kind,
                        const lhi_bound_pass *layer, const stages_before *way,
                        int64_t ns)
{
    const bool wave = c->placement == LH_PLACEMENT_WAVE;
    int64_t sum = 0, a = c->least_layers, fewest = compute_min_layers(c, kind);
    stages_before b = *way;
    for (uint32_t k = 0; k < c->stages; k++) {
        const lhi_bound_site *s = lhi_bound_site_of_stage(c, k);
        b.k = k;
        /* A stage's limit is largest with the fewest layers before it. */
        b.layers = kind == LHI_ANY_KIND || c->chunks_per_device != 1
                       ? k * a
                       : k * fewest;
        stage_limits other;
        stage_limits *l = k < KEPT_STAGES ? &b.limits[k] : &other;
        if (k >= *b.n_limits) {
            fill_limits(c, kind, layer, &b, l);
            *b.n_limits += k < KEPT_STAGES;
        }
        int64_t most = count_max_layers(c, kind, l, ns);
        if (fewest > 0 && most < fewest)
            return false;
        if (c->chunks_per_device == 1 && b.layers != sum) {
            b.layers = sum;
            fill_limits(c, kind, layer, &b, &other);
            most = count_max_layers(c, kind, &other, ns);
        }
        sum += lhi_max_int64(most, 0);
        if (k == 0 && c->chunks_per_device) {
            b.in += s->embedding.f;
            b.out += s->embedding.d;
        }
        if (c->forward_hops && k + 1 < c->stages) {
            b.in += c->forward_hops[k];
            b.out += c->backward_hops[k];
            b.hops -= (double)(c->forward_hops[k] + c->backward_hops[k]);
            /* A wave's second chunks return through the stages. */
            b.hops_f += wave ? c->backward_hops[k] : -c->forward_hops[k];
            b.hops_d += wave ? c->forward_hops[k] : -c->backward_hops[k];
        }
    }
    return sum >= lhi_bound_count_layers(c, kind);
}

/* Computes the warm-up bound for layers of one kind by bisection, in ns; at
 * least `low`. */
static int64_t compute_kind_bound(const lhi_bound_case *c, int kind,
                                  int64_t low)
{
    lhi_bound_pass layer = lhi_bound_find_least_layer(c);
    int64_t high = low + 1;
    known_memory memory[STAGE_KINDS] = {{.of = NULL}};
    stage_limits limits[KEPT_STAGES];
    uint32_t n_limits = 0;
    stages_before way = {.k = 0,
                         .in = lhi_bound_first_gather_ns(c),
                         .out = lhi_bound_first_reduce_ns(c),
                         .least_fd = INFINITY,
                         .memory = memory,
                         .limits = limits,
                         .n_limits = &n_limits};
    compute_paths(c, &way.forth, &way.back);
    for (uint32_t k = 0; c->forward_hops && k + 1 < c->stages; k++) {
        way.hops += (double)(c->forward_hops[k] + c->backward_hops[k]);
        if (c->placement == LH_PLACEMENT_WAVE)
            continue;
        way.hops_f += c->forward_hops[k];
        way.hops_d += c->backward_hops[k];
    }
    for (uint32_t k = 0; k < c->stages; k++) {
        int64_t fd = lhi_bound_fd_ns(lhi_bound_site_of_stage(c, k), kind);
        if (fd <= 0)
            return 0;
        way.least_fd = fmin(way.least_fd, (double)fd);
    }
    if (is_possible(c, kind, &layer, &way, low))
        return low;
    while (high < LHI_BOUND_INFINITY &&
           !is_possible(c, kind, &layer, &way, high)) {
        low = high;
        high += high / 2 + 1;
    }
    for (int i = 0; i < HALVINGS && high - low > 1; i++) {
        int64_t middle = low + (high - low) / 2;
        if (is_possible(c, kind, &layer, &way, middle))
            high = middle;
        else
            low = middle;
    }
    return low;
}

int64_t lhi_bound_compute_warmup(const lhi_bound_case *c)
{
    int64_t ns =
        lhi_max_int64(lhi_bound_compute_work(c), lhi_bound_compute_layers(c));
    if (!lhi_bound_does_fit(c, 0))
        return 0; /* covered by the memory bound */
    for (int kind = LHI_ANY_KIND; kind < lhi_bound_count_kinds(c); kind++)
        ns = lhi_max_int64(ns, compute_kind_bound(c, kind, ns));
    return ns;
}
