/* SPDX-License-Identifier: Apache-2.0 */
/* The bounds themselves; docs/theory/plan-search.md proves each. */
#include "plan/search/floor.h"

#include "base/whole.h"

#include <math.h>

enum { HALVINGS = 14 }; /* of the interval that the ramp's bound lies in */

const char *lhi_floor_name(lhi_floor_kind kind)
{
    static const char *const names[] = {"none", "work", "layers", "ramp",
                                        "path", "link", "memory"};
    return (unsigned)kind < LHI_N_FLOORS ? names[kind] : "unknown";
}

/* Rounded down, for negative numbers too. */
static int64_t quotient(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

uint32_t lhi_floor_least_layers(uint32_t layers, uint32_t chunks, double ratio)
{
    uint32_t a = 1;
    if (chunks == 0 || layers / chunks < 2)
        return 1;
    /* With `a` in the smallest the others have at most floor(ratio * a). */
    while (a < layers / chunks &&
           a + (chunks - 1.0) * floor(ratio * a + 1e-9) < layers)
        a++;
    return a;
}

/* So large that nothing wins any more, and that sums have room. */
#define LARGEST (INT64_C(1) << 60)

static int64_t product(int64_t a, int64_t b)
{
    return (double)a * (double)b < 0x1p60 ? a * b : LARGEST;
}

/* The site of a stage; where that is open, or all replicas count, one that is
 * least in everything has been put first. */
static const lhi_floor_site *site_of(const lhi_floor_case *c, uint32_t stage)
{
    return &c->sites[c->at ? c->at[stage] : 0];
}

static uint32_t head_stage(const lhi_floor_case *c)
{
    return c->placement == LH_PLACEMENT_WAVE ? 0 : c->stages - 1;
}

static bool is_uniform(const lhi_floor_case *c)
{
    for (uint32_t k = 1; c->at && k < c->stages; k++)
        if (c->at[k] != c->at[0])
            return false;
    return true;
}

/* Work is counted in the time that it takes in the first datacenter. A stage
 * that is s times slower, at least, in everything does n / s of it in n, so
 * that all together do n times the sum of 1 / s at most. */
int64_t lhi_floor_work(const lhi_floor_case *c)
{
    double rate = 0;
    if (is_uniform(c)) {
        const lhi_floor_site *s = site_of(c, 0);
        return (int64_t)((double)c->microbatches / c->stages *
                         (double)(s->f + s->d + s->w));
    }
    for (uint32_t k = 0; k < c->stages; k++) {
        double slowness = site_of(c, k)->slowness;
        if (!(slowness > 0))
            return 0;
        rate += 1 / slowness;
    }
    return (int64_t)((double)c->microbatches * (double)c->first_ns / rate);
}

int64_t lhi_floor_layers(const lhi_floor_case *c)
{
    int64_t layer = INT64_MAX;
    for (uint32_t k = 0; k < (c->at ? c->stages : 1); k++)
        layer = lhi_least(layer, site_of(c, k)->layer_all);
    int64_t n = (c->layers + (int64_t)c->stages - 1) / c->stages;
    return product(n * c->microbatches, layer);
}

/* F and D of the whole model, each part where it is fastest. */
static int64_t fastest_way(const lhi_floor_case *c)
{
    int64_t sum = 0;
    for (int i = 0; i < LHI_FLOOR_PARTS; i++) {
        int64_t part = INT64_MAX;
        for (uint32_t k = 0; k < (c->at ? c->stages : 1); k++) {
            const lhi_floor_pass *p = &site_of(c, k)->parts[i];
            part = lhi_least(part, p->f + p->d);
        }
        sum += part * c->n_of_part[i];
    }
    return sum;
}

/* F of all chunks one after the other, their D, and between them the messages;
 * then W of the first. */
int64_t lhi_floor_path(const lhi_floor_case *c)
{
    int64_t w = INT64_MAX, hops = 0;
    for (uint32_t k = 0; k < (c->at ? c->stages : 1); k++)
        w = lhi_least(w, site_of(c, k)->layer.w);
    uint32_t v = c->chunks_per_device ? c->chunks_per_device : 1;
    for (uint32_t k = 0; c->forth && k + 1 < c->stages; k++)
        hops += (c->forth[k] + c->back[k]) * v;
    if (c->placement == LH_PLACEMENT_LOOP)
        hops += (c->wrap_forth + c->wrap_back) * (v - 1);
    return fastest_way(c) + w * c->least_layers + hops;
}

/* What of each pass a layer takes at least, wherever it is. */
static lhi_floor_pass least_layer(const lhi_floor_case *c)
{
    lhi_floor_pass p = site_of(c, 0)->layer;
    for (uint32_t k = 1; c->at && k < c->stages; k++) {
        const lhi_floor_pass *q = &site_of(c, k)->layer;
        p.f = lhi_least(p.f, q->f);
        p.d = lhi_least(p.d, q->d);
        p.w = lhi_least(p.w, q->w);
    }
    return p;
}

/* As many layers as fit in the memory of a stage. */
static int64_t layers_that_fit(const lhi_floor_case *c, uint32_t stage,
                               int64_t more)
{
    const lhi_floor_site *s = site_of(c, stage);
    int64_t room = s->room;
    if (s->hold <= 0 || room == INT64_MAX)
        return c->layers;
    room += more;
    if (c->chunks_per_device) { /* else it is not known which has the head */
        int64_t first = stage == 0 ? s->embedding_hold : 0;
        int64_t last = stage == head_stage(c) ? s->head_hold : 0;
        /* In one chunk the two may share a matrix. */
        room -= c->stages * c->chunks_per_device == 1 ? lhi_most(first, last)
                                                      : first + last;
    }
    return lhi_least(quotient(room, s->hold), c->layers);
}

/* On all stages together; 0 if one cannot even have a chunk. */
static int64_t all_that_fit(const lhi_floor_case *c, int64_t more)
{
    int64_t sum = 0, fewest = c->least_layers;
    fewest *= c->chunks_per_device ? c->chunks_per_device : 1;
    for (uint32_t k = 0; k < (c->at ? c->stages : 1); k++) {
        int64_t here = layers_that_fit(c, k, more);
        if (here < fewest)
            return 0;
        sum += here;
    }
    return c->at ? sum : product(c->stages, sum);
}

int64_t lhi_floor_memory(const lhi_floor_case *c, uint32_t *site)
{
    int64_t low = 0, high = 1 << 20;
    *site = c->at ? c->at[0] : 0;
    if (all_that_fit(c, 0) >= c->layers)
        return 0;
    while (all_that_fit(c, high) < c->layers && high < INT64_C(1) << 55) {
        low = high;
        high *= 2;
    }
    while (high - low > 1 << 20) {
        int64_t middle = low + (high - low) / 2;
        if (all_that_fit(c, middle) < c->layers)
            low = middle;
        else
            high = middle;
    }
    for (uint32_t k = 1; c->at && k < c->stages; k++)
        if (site_of(c, k)->room < c->sites[*site].room)
            *site = c->at[k];
    return lhi_most(low, 1);
}

/* Layers that the stages up to each can have if the makespan is `ns`. */
static bool is_possible(const lhi_floor_case *c, const lhi_floor_pass *layer,
                        int64_t ns)
{
    uint32_t v = c->chunks_per_device, head = head_stage(c);
    int64_t n = c->microbatches, in = 0, out = 0, sum = 0;
    int64_t a = c->least_layers, known = v != 0;
    for (uint32_t k = 0; k < c->stages; k++) {
        const lhi_floor_site *s = site_of(c, k);
        lhi_floor_pass more = {0, 0, 0};
        if (known && k == 0)
            more = s->embedding;
        if (known && k == head) {
            more.f += s->head.f;
            more.d += s->head.d;
            more.w += s->head.w;
        }
        /* Chunks that a microbatch passes before it gets here. */
        int64_t before = v == 1 ? sum : (int64_t)k * a;
        int64_t start = in + before * layer->f;
        int64_t end = out + before * layer->d + a * layer->w;
        int64_t gather = s->gather, reduce = s->reduce;
        int64_t all = n * (more.f + more.d + more.w);
        int64_t most_here = layers_that_fit(c, k, 0);
        if (v == 1) {
            most_here =
                lhi_least(most_here, quotient(ns - start - all,
                                              n * s->layer_all + reduce));
            most_here =
                lhi_least(most_here, quotient(ns - all, gather + reduce +
                                                            n * s->layer_all));
        } else {
            most_here =
                lhi_least(most_here, quotient(ns - lhi_most(start, a * gather) -
                                                  all - a * reduce,
                                              n * s->layer_all));
        }
        most_here = lhi_least(most_here,
                              quotient(ns - start - end - n * (more.f + more.d),
                                       n * s->layer_fd));
        sum += most_here;
        if (k == 0 && known) {
            in += s->embedding.f;
            out += s->embedding.d;
        }
        if (c->forth && k + 1 < c->stages) {
            in += c->forth[k];
            out += c->back[k];
        }
    }
    return sum >= c->layers;
}

int64_t lhi_floor_ramp(const lhi_floor_case *c)
{
    lhi_floor_pass layer = least_layer(c);
    for (uint32_t k = 0; k < c->stages; k++)
        if (site_of(c, k)->layer_fd <= 0)
            return 0;
    if (all_that_fit(c, 0) < c->layers)
        return 0; /* the bound of memory has that */
    int64_t low = lhi_most(lhi_floor_work(c), lhi_floor_layers(c)),
            high = low + 1;
    if (is_possible(c, &layer, low))
        return low;
    while (high < LARGEST && !is_possible(c, &layer, high)) {
        low = high;
        high += high / 2 + 1;
    }
    for (int i = 0; i < HALVINGS && high - low > 1; i++) {
        int64_t middle = low + (high - low) / 2;
        if (is_possible(c, &layer, middle))
            high = middle;
        else
            low = middle;
    }
    return low;
}

/* A link carries one message at a time. Where each device has one chunk, all
 * are of one kind, F or D, and lie on the path of their microbatch. */
int64_t lhi_floor_link(const lhi_floor_case *c, uint32_t per_microbatch,
                       int64_t transfer_ns, int64_t latency_ns)
{
    lhi_floor_pass layer = least_layer(c);
    int64_t messages = (int64_t)per_microbatch * c->microbatches;
    if (c->chunks_per_device == 1 && per_microbatch == 1)
        return lhi_floor_path(c) + product(messages - 1, transfer_ns);
    return product(messages, transfer_ns) + latency_ns +
           c->least_layers * (layer.f + layer.d + layer.w);
}
