/* SPDX-License-Identifier: Apache-2.0 */
/* Partition bound: checks whether any partition into chunks meets a given
 * makespan, with each layer's own times: docs/theory/plan-search.md. */
#include "planner/search/lower_bound_internal.h"

#include <math.h>
#include <string.h>

enum {
    MOST_LAYERS = 256,
    HALVINGS = 7,
    MOST_TRIED = 64,       /* one chunk's passes */
    MOST_TRIALS = 4000000, /* checked device loads: about a tenth of a second */
};

/* Prefix sums over layers. */
typedef struct sums {
    double f, d, w, activation, weight_input, state;
} sums;

/* Partition bound state. */
typedef struct partition_search {
    const lhi_bound_case *c;
    sums *least;     /* [layer]: each on its cheapest site */
    sums **of;       /* [stage][layer]: on its own site */
    double *forth;   /* [stage]: hops up to there; [stages]: complete path */
    double *back;    /* [stage]: the same, back */
    double gather;   /* first chunk's, at least */
    double f, d;     /* all F after it, all D, with all hops */
    double w;        /* first chunk's, with its reduction, at least */
    double layer_ns; /* all passes of the fastest layer */
    /* [front * (layers + 1) + back]: reachable after a stage */
    bool *now, *next;
    double *refuted; /* [layers in all first chunks]: at this makespan */
    uint32_t around; /* for Loop: layers in all first chunks */
    uint32_t trials;
    double ns; /* the makespan */
} partition_search;

/* A stage's layers: those before it, its own in the first chunk, and in the
 * second chunk, which begins with layer `from`. */
typedef struct share {
    uint32_t stage, front, first, from, second;
} share;

/* A chunk on its device. */
typedef struct load {
    sums has;
    double stay; /* from F's start to D's end, without waiting */
} load;

/* Checks whether devices have two chunks in Wave placement. */
static bool is_wave(const lhi_bound_case *c)
{
    return c->placement == LH_PLACEMENT_WAVE && c->chunks_per_device == 2;
}

/* Checks whether devices have two chunks in Loop placement. */
static bool is_loop(const lhi_bound_case *c)
{
    return c->placement == LH_PLACEMENT_LOOP && c->chunks_per_device == 2;
}

/* Checks whether devices have two chunks, in Wave or Loop placement. */
static bool has_two(const lhi_bound_case *c)
{
    return is_wave(c) || is_loop(c);
}

/* Returns the times and memory of layers `from` to `to` - 1: the difference of
 * the prefix sums `all`. */
static sums subtract_sums(const sums *all, uint32_t from, uint32_t to)
{
    const sums *a = &all[from], *b = &all[to];
    return (sums){b->f - a->f,
                  b->d - a->d,
                  b->w - a->w,
                  b->activation - a->activation,
                  b->weight_input - a->weight_input,
                  b->state - a->state};
}

/* Adds the times `p` and the memory `h` of the embedding or the head to the
 * sums. */
static void add_end(sums *to, const lhi_bound_pass *p,
                    const lhi_bound_memory_part *h)
{
    to->f += (double)p->f;
    to->d += (double)p->d;
    to->w += (double)p->w;
    to->activation += (double)h->activation;
    to->weight_input += (double)h->weight_input;
    to->state += (double)h->state;
}

/* Adds two sets of pass times and memory, part by part. */
static sums add_sums(const sums *a, const sums *b)
{
    return (sums){a->f + b->f,
                  a->d + b->d,
                  a->w + b->w,
                  a->activation + b->activation,
                  a->weight_input + b->weight_input,
                  a->state + b->state};
}

/* --- one device ----------------------------------------------------------- */

/* A device's earliest pass times, as in the warm-up bound, with these layers.
 */
typedef struct pass_times {
    double start;   /* before the first F */
    double first_d; /* before the first D */
    double after_f; /* after the last F */
    double end;     /* after the last D */
} pass_times;

/* Computes lower bounds, in ns, on the time before stage h->stage's first F and
 * first D, and after its last F and last D. */
static pass_times compute_pass_times(const partition_search *s, const share *h)
{
    const lhi_bound_case *c = s->c;
    const lhi_bound_site *first = lhi_bound_site_of_stage(c, 0);
    uint32_t k = h->stage, P = c->stages, L = c->layers;
    uint32_t last = has_two(c) ? h->from + h->second : h->front + h->first;
    double f = s->least[L].f - s->least[last].f;
    double d = s->least[L].d - s->least[last].d;
    pass_times m = {s->gather + s->forth[k] + s->least[h->front].f, s->f,
                    s->d + s->w, s->back[k] + s->least[h->front].d + s->w};
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
    if (k != lhi_bound_head_stage(c)) {
        const lhi_bound_site *head =
            lhi_bound_site_of_stage(c, lhi_bound_head_stage(c));
        m.first_d += (double)head->head.d;
        m.after_f += (double)head->head.f;
    }
    return m;
}

/* Computes the work and memory of a stage's second chunk, and a microbatch's
 * residency time there: F, D and message times (hops) of all later chunks.
 * `head`: F and D time of the head. */
static load compute_second_load(const partition_search *s, const share *h,
                                double head)
{
    const lhi_bound_case *c = s->c;
    const lhi_bound_site *site = lhi_bound_site_of_stage(c, h->stage);
    const lhi_bound_memory_part *ends = &site->part_memory[c->n_kinds];
    uint32_t k = h->stage, P = c->stages, to = h->from + h->second;
    sums later = subtract_sums(s->least, to, c->layers);
    load out = {.has = subtract_sums(s->of[k], h->from, to)};
    if (k == lhi_bound_head_stage(c))
        add_end(&out.has, &site->head, &ends[1]);
    else
        out.stay += head;
    out.stay += out.has.f + out.has.d + later.f + later.d;
    if (is_wave(c))
        out.stay += s->forth[k] + s->back[k];
    else
        out.stay += s->forth[P] + s->back[P] - s->forth[k] - s->back[k];
    return out;
}

/* Computes the loads (work, memory, residency time) of the chunks on a device
 * whose layers are `h`, into out[]; returns their number, one or two. */
static uint32_t compute_chunk_loads(const partition_search *s, const share *h,
                                    load *out)
{
    const lhi_bound_case *c = s->c;
    const sums *own = s->of[h->stage], *l = s->least;
    const lhi_bound_site *site = lhi_bound_site_of_stage(c, h->stage);
    uint32_t k = h->stage, P = c->stages, L = c->layers;
    const lhi_bound_memory_part *ends = &site->part_memory[c->n_kinds];
    sums later = subtract_sums(l, h->front + h->first, L);
    const lhi_bound_pass *end =
        &lhi_bound_site_of_stage(c, lhi_bound_head_stage(c))->head;
    double head = (double)(end->f + end->d);
    out[0].has = subtract_sums(own, h->front, h->front + h->first);
    if (k == 0)
        add_end(&out[0].has, &site->embedding, &ends[0]);
    if (k == P - 1 && !has_two(c))
        add_end(&out[0].has, &site->head, &ends[1]);
    double hops = s->forth[P] + s->back[P] - s->forth[k] - s->back[k];
    out[0].stay = out[0].has.f + out[0].has.d + later.f + later.d + hops;
    if (k < P - 1 || has_two(c))
        out[0].stay += head;
    if (!has_two(c))
        return 1;
    out[0].stay += s->forth[P] + s->back[P]; /* on the way back, or once more */
    if (is_loop(c))
        out[0].stay += (double)(c->wrap_forth + c->wrap_back);
    out[1] = compute_second_load(s, h, head);
    return 2;
}

/* Returns how many passes of `each` bytes fit in `room` bytes, with a small
 * tolerance. */
static double count_fitting_passes(double room, double each)
{
    return floor(room / each * (1 + 1e-9) + 1e-9);
}

/* Returns the bytes per GPU of a stage that are left for activations after
 * `state` bytes and transient memory. */
static double compute_activation_memory(const partition_search *s,
                                        const share *h, double state)
{
    const lhi_bound_case *c = s->c;
    const lhi_bound_site *site = lhi_bound_site_of_stage(c, h->stage);
    int64_t passing = 0;
    for (uint32_t i = 0; i < h->first + h->second; i++) {
        uint32_t layer = i < h->first ? h->front + i : h->from + i - h->first;
        passing = lhi_max_int64(passing,
                                site->part_memory[c->kind_of[layer]].transient);
    }
    return (double)(site->capacity - passing) - state;
}

/* Returns the largest F time before a device's first D, in ns: whole passes
 * whose activations fit in `room` bytes, at most `n` per chunk.
 * loads[0..n_loads-1]: its chunks. Returns `most` if there are too many
 * combinations. */
static double compute_max_forwards(const load *loads, uint32_t n_loads,
                                   double room, double n, double most)
{
    const sums *a = &loads[0].has, *b = &loads[n_loads - 1].has;
    double best = 0;
    if (!(a->activation > 0) || !(b->activation > 0) ||
        room / a->activation > MOST_TRIED)
        return most;
    if (n_loads == 1)
        return fmin(most,
                    fmin(n, count_fitting_passes(room, a->activation)) * a->f);
    for (double i = 1; i <= n && i * a->activation <= room; i++) {
        double others = fmin(
            n, count_fitting_passes(room - i * a->activation, b->activation));
        best = fmax(best, i * a->f + others * b->f);
    }
    return fmin(most, best);
}

/* Checks that the `work` of a device fits into the makespan given its chunks'
 * memory, loads[0..n_loads-1]: limits before the first D, after the last F and
 * after the last D, and the activation residency. `reduce`: time of the final
 * reduction. */
static bool check_memory_limits(const partition_search *s, const share *h,
                                const pass_times *m, const load *loads,
                                uint32_t n_loads, double work, double reduce)
{
    double n = s->c->microbatches, ns = s->ns, stay = 0, f = 0, dw = 0, w = 0;
    double all = 0, state = 0;
    if (lhi_bound_site_of_stage(s->c, h->stage)->capacity == INT64_MAX)
        return true;
    for (uint32_t i = 0; i < n_loads; i++) {
        const sums *x = &loads[i].has;
        double kept = fmin(x->activation, x->weight_input);
        all += x->activation;
        state += x->state;
        stay += n * x->activation * loads[i].stay;
        if (!(kept > 0))
            f = dw = w = INFINITY; /* unknown */
        f = fmax(f, x->f / x->activation);
        w = fmax(w, x->w / kept);
        dw = fmax(dw, fmax((x->d + x->w) / x->activation, x->w / kept));
    }
    double room = compute_activation_memory(s, h, state);
    if (all > room)
        return false;
    /* At most, all are resident from the first F to the last D. */
    if (stay > room * (ns - m->start - m->end) * (1 + 1e-9))
        return false;
    double before = compute_max_forwards(loads, n_loads, room, n, room * f);
    double most = fmin(ns - m->first_d - reduce + before,
                       ns - m->start - m->after_f + room * dw);
    most = fmin(most, ns - m->start - m->end + room * w);
    most =
        fmin(most, fmax(0, ns - m->first_d - m->after_f) + before + room * dw);
    most = fmin(most, fmax(0, ns - m->first_d - m->end) + before + room * w);
    return !(work > most * (1 + 1e-9) + 1);
}

/* Checks whether a device with the layers `h` can run all its passes within the
 * makespan; *too_long: no device with more layers can, either. */
static bool does_fit(partition_search *s, const share *h, bool *too_long)
{
    const lhi_bound_case *c = s->c;
    const lhi_bound_site *site = lhi_bound_site_of_stage(c, h->stage);
    load loads[2];
    double n = c->microbatches, ns = s->ns + 1;
    uint32_t n_loads = compute_chunk_loads(s, h, loads), least = h->first;
    pass_times m = compute_pass_times(s, h);
    sums x = loads[0].has;
    if (n_loads > 1) {
        x = add_sums(&x, &loads[1].has);
        least = h->second < least ? h->second : least;
    }
    double work = n * (x.f + x.d + x.w);
    double start = fmax(m.start, (double)lhi_bound_gather_ns(site, h->first));
    double reduce = (double)lhi_bound_reduce_ns(site, least);
    s->trials++;
    *too_long = m.start + work > ns;
    return !*too_long && start + work + reduce <= ns &&
           start + n * (x.f + x.d) + m.end <= ns &&
           m.first_d + n * (x.d + x.w) + reduce <= ns &&
           m.first_d + n * x.d + m.end <= ns &&
           start + n * x.f + m.after_f <= ns &&
           check_memory_limits(s, h, &m, loads, n_loads, work, reduce);
}

/* --- all devices ---------------------------------------------------------- */

/* Layer ranges for a device's first and second chunks. */
typedef struct range {
    uint32_t first_least, first_most;
    uint32_t second_least, second_most; /* over all that leave enough */
    uint32_t both_most;
} range;

/* Finds the possible numbers of layers in stage `k`'s chunks. `front` layers
 * are before the stage, and `back` layers in the earlier stages' second
 * chunks. Returns false if there are none. */
static bool find_range(const partition_search *s, uint32_t k, uint32_t front,
                       uint32_t back, range *out)
{
    const lhi_bound_case *c = s->c;
    uint32_t v = has_two(c) ? 2 : 1, later = c->stages - 1 - k;
    uint32_t a = c->least_layers, left = c->layers - front - back;
    if (left < v * a * (later + 1))
        return false;
    uint32_t here = left - v * a * later, least = v > 1 ? a : 0;
    *out = (range){a, here - least, least, v > 1 ? here - a : 0, here};
    if (!is_loop(c))
        return true;
    /* The two rounds have separate layers. */
    uint32_t one = s->around - front, other = c->layers - s->around - back;
    if (front > s->around || back > c->layers - s->around ||
        one < a * (later + 1) || other < a * (later + 1))
        return false;
    out->first_most = one - a * later;
    out->second_most = other - a * later;
    if (later == 0) {
        out->first_least = one;
        out->second_least = other;
    }
    return true;
}

/* Tries every number of layers for stage `k`, given `front` layers before it
 * and `back` layers in the earlier stages' second chunks. Marks the pairs
 * (front, back) of the next stage that feasible numbers lead to in s->next. */
static void try_shares(partition_search *s, uint32_t k, uint32_t front,
                       uint32_t back)
{
    const lhi_bound_case *c = s->c;
    uint32_t row = c->layers + 1, later = c->stages - 1 - k;
    uint32_t left = c->layers - front - back;
    double most = floor(s->ns / (c->microbatches * s->layer_ns) + 1e-9);
    double fewest = later ? (double)left - most * later : (double)left;
    range can;
    if (!find_range(s, k, front, back, &can) ||
        (double)left > most * (later + 1))
        return;
    uint32_t all = fewest > 0 ? (uint32_t)fewest : 0;
    for (uint32_t first = can.first_least; first <= can.first_most; first++) {
        uint32_t second = can.second_least, last = can.second_most;
        bool too_long = false;
        if (first + second < all)
            second = all - first;
        if (!has_two(c) && second > 0)
            continue;
        if (first + last > can.both_most)
            last = can.both_most - first;
        const uint32_t from = second;
        for (; second <= last && !too_long; second++) {
            share h = {k, front, first,
                       is_loop(c) ? s->around + back
                                  : c->layers - back - second,
                       second};
            bool *at = &s->next[(size_t)(front + first) * row + back + second];
            if (!*at)
                *at = does_fit(s, &h, &too_long);
        }
        if (too_long && from == can.second_least && second == from + 1)
            break; /* also true with more layers */
    }
}

/* Checks whether any layer partition meets the makespan s->ns, by dynamic
 * programming over the stages. In Loop placement the second round begins after
 * s->around layers. */
static bool is_possible_with_rounds(partition_search *s)
{
    const lhi_bound_case *c = s->c;
    size_t row = c->layers + 1, n = row * row;
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
            return true; /* unknown */
        bool *was = s->now;
        s->now = s->next;
        s->next = was;
    }
    return true;
}

/* Checks whether any layer partition meets the makespan `ns`. */
static bool is_possible(partition_search *s, double ns)
{
    const lhi_bound_case *c = s->c;
    const uint32_t least = c->stages * c->least_layers;
    s->ns = ns;
    if (!is_loop(c))
        return is_possible_with_rounds(s);
    for (uint32_t i = least; i + least <= c->layers; i++) {
        if (ns <= s->refuted[i])
            continue;
        s->around = i;
        if (is_possible_with_rounds(s))
            return true;
        s->refuted[i] = ns;
    }
    return false;
}

/* Sums times and memory over the first n layers on site `s` (one or more
 * datacenters), for each n. */
static void compute_prefix_sums(const lhi_bound_case *c, sums *out,
                                const lhi_bound_site *s)
{
    out[0] = (sums){0};
    for (uint32_t i = 0; i < c->layers; i++) {
        out[i + 1] = out[i];
        add_end(&out[i + 1], &s->parts[c->kind_of[i]],
                &s->part_memory[c->kind_of[i]]);
    }
}

/* Returns a site with the least F, D and W time of each model part over all
 * sites (one or more datacenters each); memory is not set. */
static lhi_bound_site make_least_site(const lhi_bound_case *c)
{
    lhi_bound_site least = *lhi_bound_site_of_stage(c, 0);
    for (uint32_t k = 1; k < c->stages; k++)
        for (uint32_t i = 0; i < c->n_kinds; i++) {
            const lhi_bound_pass *p = &lhi_bound_site_of_stage(c, k)->parts[i];
            lhi_bound_pass *to = &least.parts[i];
            *to = (lhi_bound_pass){lhi_min_int64(to->f, p->f),
                                   lhi_min_int64(to->d, p->d),
                                   lhi_min_int64(to->w, p->w)};
        }
    return least;
}

/* Computes a microbatch's path times: messages (hops) up to each stage and
 * back, and F and D of the whole model. */
static void compute_paths(partition_search *s)
{
    const lhi_bound_case *c = s->c;
    uint32_t P = c->stages, L = c->layers;
    const lhi_bound_site *first = lhi_bound_site_of_stage(c, 0);
    const lhi_bound_site *head =
        lhi_bound_site_of_stage(c, lhi_bound_head_stage(c));
    for (uint32_t k = 0; k < P; k++) {
        bool last = k + 1 == P;
        s->forth[k + 1] = s->forth[k] + (last ? 0 : (double)c->forward_hops[k]);
        s->back[k + 1] = s->back[k] + (last ? 0 : (double)c->backward_hops[k]);
    }
    double home = is_wave(c) ? s->back[P] : 0,
           out = is_wave(c) ? s->forth[P] : 0;
    if (is_loop(c)) {
        home = s->forth[P] + (double)c->wrap_forth;
        out = s->back[P] + (double)c->wrap_back;
    }
    s->gather = (double)lhi_bound_first_gather_ns(c);
    s->f = s->gather + s->least[L].f + s->forth[P] + home +
           (double)(first->embedding.f + head->head.f);
    s->d = s->least[L].d + s->back[P] + out +
           (double)(first->embedding.d + head->head.d);
    s->w = s->of[0][c->least_layers].w + (double)lhi_bound_first_reduce_ns(c);
}

/* Allocates the partition bound's state in `mem` and computes its prefix sums
 * and path times. False: no memory. */
static bool make_splitter(partition_search *s, lhi_arena *mem)
{
    const lhi_bound_case *c = s->c;
    size_t row = c->layers + 1;
    lhi_bound_site least = make_least_site(c);
    s->least = LHI_NEW(mem, sums, row);
    s->of = LHI_NEW(mem, sums *, c->stages);
    s->forth = LHI_NEW(mem, double, c->stages + 1);
    s->back = LHI_NEW(mem, double, c->stages + 1);
    s->now = LHI_NEW(mem, bool, row *row);
    s->next = LHI_NEW(mem, bool, row *row);
    s->refuted = LHI_NEW(mem, double, row);
    if (!s->least || !s->of || !s->forth || !s->back || !s->now || !s->next ||
        !s->refuted)
        return false;
    compute_prefix_sums(c, s->least, &least);
    s->layer_ns = INFINITY;
    for (uint32_t k = 0; k < c->stages; k++) {
        const lhi_bound_site *site = lhi_bound_site_of_stage(c, k);
        s->layer_ns = fmin(s->layer_ns, (double)site->layer_all);
        if (k > 0 && c->site_of_stage[k] == c->site_of_stage[k - 1]) {
            s->of[k] = s->of[k - 1];
            continue;
        }
        s->of[k] = LHI_NEW(mem, sums, row);
        if (!s->of[k])
            return false;
        compute_prefix_sums(c, s->of[k], site);
    }
    compute_paths(s);
    return true;
}

int64_t lhi_bound_compute_partition(const lhi_bound_case *c, lhi_arena *mem,
                                    int64_t low, int64_t high)
{
    partition_search s = {.c = c};
    bool known = c->chunks_per_device == 1 || has_two(c);
    if (!known || !c->site_of_stage || !c->forward_hops || c->stages < 2 ||
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
