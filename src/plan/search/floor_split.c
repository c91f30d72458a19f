/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the layers can be split among the chunks at all if the makespan is
 * given, with each layer's own times: docs/theory/plan-search.md. */
#include "plan/search/floor_own.h"

#include <math.h>
#include <string.h>

enum {
    MOST_LAYERS = 256,
    HALVINGS = 7,
    MOST_TRIALS = 4000000, /* of what a device has: about a tenth of a second */
};

/* What so many layers from the first on come to. */
typedef struct sums {
    double f, d, w, activation, weight_input, state;
} sums;

typedef struct splitter {
    const lhi_floor_case *c;
    sums *least;      /* [layer]: each where it takes least */
    sums **of;        /* [stage][layer]: at its own site */
    double *forth;    /* [stage]: hops up to there; [stages]: all of one way */
    double *back;     /* [stage]: the same, back */
    double f, d;      /* all F, all D, with all hops */
    double w;         /* of the first chunk, at least */
    double layer_ns;  /* all passes of the fastest layer */
    bool *now, *next; /* [front * (layers + 1) + back]: can be behind a stage */
    uint32_t trials;
    double ns; /* the makespan */
} splitter;

/* Layers in front of and behind those of a stage, and its own, in its first
 * chunk and in the one on the way back. */
typedef struct share {
    uint32_t stage, front, first, behind, second;
} share;

/* A chunk on its device. */
typedef struct load {
    sums has;
    double stay; /* from its F's begin to its D's end, without waiting */
} load;

static bool is_wave(const lhi_floor_case *c)
{
    return c->placement == LH_PLACEMENT_WAVE && c->chunks_per_device == 2;
}

static sums between(const sums *all, uint32_t from, uint32_t to)
{
    const sums *a = &all[from], *b = &all[to];
    return (sums){b->f - a->f,
                  b->d - a->d,
                  b->w - a->w,
                  b->activation - a->activation,
                  b->weight_input - a->weight_input,
                  b->state - a->state};
}

static void add_end(sums *to, const lhi_floor_pass *p, const lhi_floor_held *h)
{
    to->f += (double)p->f;
    to->d += (double)p->d;
    to->w += (double)p->w;
    to->activation += (double)h->activation;
    to->weight_input += (double)h->weight_input;
    to->state += (double)h->state;
}

static sums sum_of(const sums *a, const sums *b)
{
    return (sums){a->f + b->f,
                  a->d + b->d,
                  a->w + b->w,
                  a->activation + b->activation,
                  a->weight_input + b->weight_input,
                  a->state + b->state};
}

/* --- one device --------------------------------------------------------------
 */

/* When passes can run, at least: as in the bound of ramps, with these layers.
 */
typedef struct moments {
    double start;   /* before the first F */
    double first_d; /* before the first D */
    double after_f; /* behind the last F */
    double end;     /* behind the last D */
} moments;

static moments moments_of(const splitter *s, const share *h)
{
    const lhi_floor_case *c = s->c;
    const lhi_floor_site *first = lhi_floor_site_of(c, 0);
    uint32_t k = h->stage, P = c->stages, L = c->layers;
    uint32_t last = is_wave(c) ? L - h->behind : h->front + h->first;
    double f = s->least[L].f - s->least[last].f;
    double d = s->least[L].d - s->least[last].d;
    moments m = {s->forth[k] + s->least[h->front].f, s->f, s->d + s->w,
                 s->back[k] + s->least[h->front].d + s->w};
    if (k > 0) {
        m.start += (double)first->embedding.f;
        m.end += (double)first->embedding.d;
    }
    if (is_wave(c)) {
        m.first_d += d + s->forth[k];
        m.after_f += f + s->back[k];
    } else {
        m.first_d += d + s->back[P] - s->back[k];
        m.after_f += f + s->forth[P] - s->forth[k];
    }
    if (k != lhi_floor_head_stage(c)) {
        const lhi_floor_site *head =
            lhi_floor_site_of(c, lhi_floor_head_stage(c));
        m.first_d += (double)head->head.d;
        m.after_f += (double)head->head.f;
    }
    return m;
}

/* Chunks of a device: one or two. */
static uint32_t loads_of(const splitter *s, const share *h, load *out)
{
    const lhi_floor_case *c = s->c;
    const sums *own = s->of[h->stage], *l = s->least;
    const lhi_floor_site *site = lhi_floor_site_of(c, h->stage);
    uint32_t k = h->stage, P = c->stages, L = c->layers;
    const lhi_floor_held *ends = &site->held[c->n_kinds];
    sums later = between(l, h->front + h->first, L);
    const lhi_floor_pass *end =
        &lhi_floor_site_of(c, lhi_floor_head_stage(c))->head;
    double head = (double)(end->f + end->d);
    out[0].has = between(own, h->front, h->front + h->first);
    if (k == 0)
        add_end(&out[0].has, &site->embedding, &ends[0]);
    if (k == P - 1 && !is_wave(c))
        add_end(&out[0].has, &site->head, &ends[1]);
    double hops = s->forth[P] + s->back[P] - s->forth[k] - s->back[k];
    out[0].stay = out[0].has.f + out[0].has.d + later.f + later.d + hops;
    if (k < P - 1 || is_wave(c))
        out[0].stay += head;
    if (!is_wave(c))
        return 1;
    later = between(l, L - h->behind, L);
    out[0].stay += s->forth[P] + s->back[P]; /* on the way home */
    out[1].has = between(own, L - h->behind - h->second, L - h->behind);
    if (k == 0)
        add_end(&out[1].has, &site->head, &ends[1]);
    out[1].stay = out[1].has.f + out[1].has.d + later.f + later.d +
                  s->forth[k] + s->back[k] + (k > 0 ? head : 0);
    return 2;
}

/* For activations: without the state, and what its kinds need in passing. */
static double room_of(const splitter *s, const share *h, double state)
{
    const lhi_floor_case *c = s->c;
    const lhi_floor_site *site = lhi_floor_site_of(c, h->stage);
    int64_t passing = 0;
    for (uint32_t i = 0; i < h->first + h->second; i++) {
        uint32_t layer = i < h->first
                             ? h->front + i
                             : c->layers - h->behind - h->second + i - h->first;
        passing = lhi_most(passing, site->held[c->kind_of[layer]].passing);
    }
    return (double)(site->room - passing) - state;
}

/* With what memory allows before the first D, behind the last F and behind the
 * last D; and how long activations stay. */
static bool does_memory_do(const splitter *s, const share *h, const moments *m,
                           const load *loads, uint32_t n_loads, double work)
{
    double n = s->c->microbatches, ns = s->ns, stay = 0, f = 0, dw = 0, w = 0;
    double all = 0, state = 0;
    if (lhi_floor_site_of(s->c, h->stage)->room == INT64_MAX)
        return true;
    for (uint32_t i = 0; i < n_loads; i++) {
        const sums *x = &loads[i].has;
        double kept = fmin(x->activation, x->weight_input);
        all += x->activation;
        state += x->state;
        stay += n * x->activation * loads[i].stay;
        if (!(kept > 0))
            f = dw = w = INFINITY; /* nothing is known */
        f = fmax(f, x->f / x->activation);
        w = fmax(w, x->w / kept);
        dw = fmax(dw, fmax((x->d + x->w) / x->activation, x->w / kept));
    }
    double room = room_of(s, h, state);
    if (all > room)
        return false;
    /* All of them are there from the first F to the last D, at most. */
    if (stay > room * (ns - m->start - m->end) * (1 + 1e-9))
        return false;
    double most = fmin(ns - m->first_d + room * f,
                       ns - m->start - m->after_f + room * dw);
    most = fmin(most, ns - m->start - m->end + room * w);
    most = fmin(most, fmax(0, ns - m->first_d - m->after_f) + room * (f + dw));
    most = fmin(most, fmax(0, ns - m->first_d - m->end) + room * (f + w));
    return !(work > most * (1 + 1e-9) + 1);
}

/* Whether the device can do all its passes in time; *too_long: and no device
 * with more layers, either. */
static bool does_fit(splitter *s, const share *h, bool *too_long)
{
    const lhi_floor_case *c = s->c;
    const lhi_floor_site *site = lhi_floor_site_of(c, h->stage);
    load loads[2];
    double n = c->microbatches, ns = s->ns + 1;
    uint32_t n_loads = loads_of(s, h, loads), least = h->first;
    moments m = moments_of(s, h);
    sums x = loads[0].has;
    if (n_loads > 1) {
        x = sum_of(&x, &loads[1].has);
        least = h->second < least ? h->second : least;
    }
    double work = n * (x.f + x.d + x.w);
    double start = fmax(m.start, (double)site->gather * h->first);
    s->trials++;
    *too_long = m.start + work > ns;
    return !*too_long && start + work + (double)site->reduce * least <= ns &&
           start + n * (x.f + x.d) + m.end <= ns &&
           m.first_d + n * (x.d + x.w) <= ns &&
           m.first_d + n * x.d + m.end <= ns &&
           start + n * x.f + m.after_f <= ns &&
           does_memory_do(s, h, &m, loads, n_loads, work);
}

/* --- all of them -------------------------------------------------------------
 */

/* From `front` layers before stage `k` and `behind` after it on. */
static void try_shares(splitter *s, uint32_t k, uint32_t front, uint32_t behind)
{
    const lhi_floor_case *c = s->c;
    uint32_t a = c->least_layers, v = is_wave(c) ? 2 : 1, row = c->layers + 1;
    uint32_t left = c->layers - front - behind, later = c->stages - 1 - k;
    double most = floor(s->ns / (c->microbatches * s->layer_ns) + 1e-9);
    double fewest = later ? (double)left - most * later : (double)left;
    if (left < v * a * (later + 1) || (double)left > most * (later + 1))
        return;
    uint32_t here = left - v * a * later;
    uint32_t all = fewest > 0 ? (uint32_t)fewest : 0;
    for (uint32_t first = a; first + (v - 1) * a <= here; first++) {
        uint32_t least = v > 1 ? a : 0, second = least;
        bool too_long = false;
        if (first + second < all)
            second = all - first;
        if (v == 1 && second > 0)
            continue;
        uint32_t from = second, last = v > 1 ? here - first : 0;
        for (; second <= last && !too_long; second++) {
            share h = {k, front, first, behind, second};
            bool *at =
                &s->next[(size_t)(front + first) * row + behind + second];
            if (!*at)
                *at = does_fit(s, &h, &too_long);
        }
        if (too_long && from == least && second == from + 1)
            break; /* and so it is with more layers */
    }
}

static bool is_possible(splitter *s, double ns)
{
    const lhi_floor_case *c = s->c;
    size_t row = c->layers + 1, n = row * row;
    s->ns = ns;
    memset(s->now, 0, n);
    s->now[0] = true;
    for (uint32_t k = 0; k < c->stages; k++) {
        bool any = false;
        memset(s->next, 0, n);
        for (uint32_t i = 0; i <= c->layers; i++)
            for (uint32_t j = 0; i + j <= c->layers; j++)
                if (s->now[i * row + j])
                    try_shares(s, k, i, j);
        for (size_t i = 0; i < n && !any; i++)
            any = s->next[i];
        if (!any)
            return false;
        if (s->trials > MOST_TRIALS)
            return true; /* who knows */
        bool *was = s->now;
        s->now = s->next;
        s->next = was;
    }
    return true;
}

/* Of each layer, from the first on. */
static void add_up(const lhi_floor_case *c, sums *out, const lhi_floor_site *s)
{
    out[0] = (sums){0};
    for (uint32_t i = 0; i < c->layers; i++) {
        out[i + 1] = out[i];
        add_end(&out[i + 1], &s->parts[c->kind_of[i]], &s->held[c->kind_of[i]]);
    }
}

/* Each pass where it takes least; what is held is not asked for. */
static lhi_floor_site least_site(const lhi_floor_case *c)
{
    lhi_floor_site least = *lhi_floor_site_of(c, 0);
    for (uint32_t k = 1; k < c->stages; k++)
        for (uint32_t i = 0; i < c->n_kinds; i++) {
            const lhi_floor_pass *p = &lhi_floor_site_of(c, k)->parts[i];
            lhi_floor_pass *to = &least.parts[i];
            *to =
                (lhi_floor_pass){lhi_least(to->f, p->f), lhi_least(to->d, p->d),
                                 lhi_least(to->w, p->w)};
        }
    return least;
}

static void find_ways(splitter *s)
{
    const lhi_floor_case *c = s->c;
    uint32_t P = c->stages, L = c->layers;
    const lhi_floor_site *first = lhi_floor_site_of(c, 0);
    const lhi_floor_site *head = lhi_floor_site_of(c, lhi_floor_head_stage(c));
    for (uint32_t k = 0; k < P; k++) {
        bool last = k + 1 == P;
        s->forth[k + 1] = s->forth[k] + (last ? 0 : (double)c->forth[k]);
        s->back[k + 1] = s->back[k] + (last ? 0 : (double)c->back[k]);
    }
    double home = is_wave(c) ? s->back[P] : 0,
           out = is_wave(c) ? s->forth[P] : 0;
    s->f = s->least[L].f + s->forth[P] + home +
           (double)(first->embedding.f + head->head.f);
    s->d = s->least[L].d + s->back[P] + out +
           (double)(first->embedding.d + head->head.d);
    s->w = s->of[0][c->least_layers].w;
}

static bool make_splitter(splitter *s, lhi_arena *mem)
{
    const lhi_floor_case *c = s->c;
    size_t row = c->layers + 1;
    lhi_floor_site least = least_site(c);
    s->least = LHI_NEW(mem, sums, row);
    s->of = LHI_NEW(mem, sums *, c->stages);
    s->forth = LHI_NEW(mem, double, c->stages + 1);
    s->back = LHI_NEW(mem, double, c->stages + 1);
    s->now = LHI_NEW(mem, bool, row *row);
    s->next = LHI_NEW(mem, bool, row *row);
    if (!s->least || !s->of || !s->forth || !s->back || !s->now || !s->next)
        return false;
    add_up(c, s->least, &least);
    s->layer_ns = INFINITY;
    for (uint32_t k = 0; k < c->stages; k++) {
        const lhi_floor_site *site = lhi_floor_site_of(c, k);
        s->layer_ns = fmin(s->layer_ns, (double)site->layer_all);
        if (k > 0 && c->at[k] == c->at[k - 1]) {
            s->of[k] = s->of[k - 1];
            continue;
        }
        s->of[k] = LHI_NEW(mem, sums, row);
        if (!s->of[k])
            return false;
        add_up(c, s->of[k], site);
    }
    find_ways(s);
    return true;
}

int64_t lhi_floor_split(const lhi_floor_case *c, lhi_arena *mem, int64_t low,
                        int64_t high)
{
    splitter s = {.c = c};
    bool known = c->chunks_per_device == 1 || is_wave(c);
    if (!known || !c->at || !c->forth || c->stages < 2 ||
        c->layers > MOST_LAYERS || low >= high)
        return low;
    if (!make_splitter(&s, mem) || !(s.layer_ns > 0))
        return low;
    if (!is_possible(&s, (double)high))
        return high;
    for (int i = 0; i < HALVINGS && high - low > 1; i++) {
        int64_t middle = low + (high - low) / 2;
        if (is_possible(&s, (double)middle))
            high = middle;
        else
            low = middle;
    }
    return low;
}
