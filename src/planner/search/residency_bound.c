/* SPDX-License-Identifier: Apache-2.0 */
/* Activation-residency bound over all devices together:
 * docs/theory/plan-search.md. */
#include "planner/search/lower_bound_internal.h"

#include <math.h>

/* Least values of each part over all sites. */
typedef struct least_values {
    double f[LHI_BOUND_PARTS], d[LHI_BOUND_PARTS];
    double activation[LHI_BOUND_PARTS];
    /* Largest of each: bytes left by its F, and bytes resident at once. */
    double most_left[LHI_BOUND_PARTS], most_at_once[LHI_BOUND_PARTS];
    /* Byte nanoseconds besides those between F and D: up to the end of D, and
     * up to W's end. */
    double in_d[LHI_BOUND_PARTS], in_w[LHI_BOUND_PARTS];
    double least_held[LHI_BOUND_PARTS]; /* under D or W */
    double state;                       /* whole model */
} least_values;

/* Computes the least times and memory of `part` (a layer kind, the embedding or
 * the head) over all sites (datacenter sets). With separate D and W, D starts
 * by allocating the input of W, which W frees, in shares if W is split. A
 * combined B keeps the activation until its end. */
static void find_least(const lhi_bound_case *c, uint32_t part,
                       least_values *out)
{
    const lhi_bound_site *s = lhi_bound_site_of_stage(c, 0);
    lhi_bound_pass p = s->parts[part];
    lhi_bound_memory_part held = s->part_memory[part];
    int64_t left = held.activation, input = held.weight_input;
    for (uint32_t k = 1; c->site_of_stage && k < c->stages; k++) {
        s = lhi_bound_site_of_stage(c, k);
        p.f = lhi_min_int64(p.f, s->parts[part].f);
        p.d = lhi_min_int64(p.d, s->parts[part].d);
        p.w = lhi_min_int64(p.w, s->parts[part].w);
        held.activation =
            lhi_min_int64(held.activation, s->part_memory[part].activation);
        held.weight_input =
            lhi_min_int64(held.weight_input, s->part_memory[part].weight_input);
        held.state = lhi_min_int64(held.state, s->part_memory[part].state);
        left = lhi_max_int64(left, s->part_memory[part].activation);
        input = lhi_max_int64(input, s->part_memory[part].weight_input);
    }
    out->most_left[part] = (double)left;
    out->most_at_once[part] = (double)lhi_max_int64(left, input);
    double joint = (double)held.activation * (double)p.w;
    double more = (double)(held.weight_input - held.activation);
    double apart = fmax(more, 0) * (double)p.d;
    out->f[part] = (double)p.f;
    out->d[part] = (double)p.d;
    out->activation[part] = (double)held.activation;
    out->in_d[part] = fmin(joint, apart);
    out->in_w[part] =
        fmin(joint, apart + (double)held.weight_input / 2 * (double)p.w);
    out->least_held[part] =
        (double)lhi_min_int64(held.activation, held.weight_input);
    out->state += (double)held.state * c->n_of_part[part];
}

/* Returns the least times and memory for every layer kind, the embedding and
 * the head over all sites (one or more datacenters each), each value
 * separately. */
static least_values compute_least_values(const lhi_bound_case *c)
{
    least_values out = {.state = 0};
    const lhi_bound_memory_part *ends =
        lhi_bound_site_of_stage(c, 0)->part_memory + c->n_kinds;
    for (uint32_t i = 0; i < c->n_kinds + 2; i++)
        find_least(c, i, &out);
    /* In one chunk the two may share a matrix. */
    if (c->stages == 1 && c->chunks_per_device <= 1)
        out.state -= (double)lhi_min_int64(ends[0].state, ends[1].state);
    return out;
}

/* Returns the time of the messages between a chunk and the next, forward and
 * back, in ns. */
static double compute_hops_after(const lhi_bound_case *c, uint32_t chunk)
{
    uint32_t P = c->stages, k = chunk % P;
    if (!c->forward_hops)
        return 0;
    if (k + 1 == P)
        return c->placement == LH_PLACEMENT_LOOP
                   ? (double)(c->wrap_forth + c->wrap_back)
                   : 0;
    if (c->placement == LH_PLACEMENT_WAVE && chunk / P % 2)
        k = P - 2 - k;
    return (double)(c->forward_hops[k] + c->backward_hops[k]);
}

/* Returns the least number of layer pairs that are in the same chunk, over all
 * partitions of `layers` layers into `chunks` chunks: even partitions have the
 * fewest. */
static double count_least_pairs(double layers, double chunks)
{
    double each = floor(layers / chunks), more = layers - each * chunks;
    return (chunks * each * (each - 1) / 2) + more * each;
}

/* Returns a lower bound on the residency within chunks, in byte nanoseconds: a
 * layer's activation is also resident while earlier layers of its chunk
 * compute. */
static double compute_residency_in_chunks(const lhi_bound_case *c,
                                          const least_values *l)
{
    double most = 0, chunks = (double)c->stages * c->chunks_per_device;
    for (uint32_t i = 0; chunks > 0 && i < c->n_kinds; i++)
        most = fmax(most, count_least_pairs(c->n_of_part[i], chunks) *
                              l->activation[i] * (l->f[i] + l->d[i]));
    return most;
}

/* Computes a lower bound on one microbatch's activation residency in byte
 * nanoseconds: each layer from its F to its D, with all F and D of later layers
 * and the messages between them. `with_w`: up to W's end. */
static double compute_microbatch_residency(const lhi_bound_case *c,
                                           const least_values *l, bool with_w)
{
    uint32_t e = c->n_kinds, h = e + 1;
    uint32_t chunks = c->stages * c->chunks_per_device;
    double after = l->f[h] + l->d[h], sum = l->activation[h] * after;
    double before = l->activation[e]; /* activations of the layers so far */
    for (uint32_t p = c->layers; p-- > 0;) {
        uint32_t kind = c->kind_of[p];
        after += l->f[kind] + l->d[kind];
        sum += l->activation[kind] * after;
    }
    sum += l->activation[e] * (after + l->f[e] + l->d[e]);
    for (uint32_t i = 0; i <= h; i++)
        sum += (with_w ? l->in_w[i] : l->in_d[i]) * c->n_of_part[i];
    /* Each chunk but the last has at least the fewest layers before its end. */
    for (uint32_t i = 0, p = 0; i + 1 < chunks; i++) {
        uint32_t up_to = (i + 1) * c->least_layers;
        for (; p < up_to && p < c->layers; p++)
            before += l->activation[c->kind_of[p]];
        sum += before * compute_hops_after(c, i);
    }
    return sum + compute_residency_in_chunks(c, l);
}

/* Computes the byte nanoseconds without activations on all devices: before each
 * device's earliest first F and, without `with_w`, after its last D. *longest:
 * the largest such time on one device. */
static double compute_idle_area(const lhi_bound_case *c, bool with_w,
                                double *longest)
{
    lhi_bound_pass layer = lhi_bound_find_least_layer(c);
    bool known = c->chunks_per_device != 0;
    double in = known ? (double)lhi_bound_site_of_stage(c, 0)->embedding.f : 0;
    double out = known ? (double)lhi_bound_site_of_stage(c, 0)->embedding.d : 0,
           sum = 0;
    *longest = 0;
    for (uint32_t k = 0; k < c->stages; k++) {
        double passed = k * (double)c->least_layers;
        double start = k ? in + passed * (double)layer.f : 0;
        double end = k ? out + passed * (double)layer.d : 0;
        double here = start + (with_w ? 0 : end);
        sum += here * (double)lhi_bound_site_of_stage(c, k)->capacity;
        *longest = fmax(*longest, here);
        if (c->forward_hops && k + 1 < c->stages) {
            in += (double)c->forward_hops[k];
            out += (double)c->backward_hops[k];
        }
    }
    return sum;
}

/* Returns the least time per byte to fill memory with activations (`pass`: F
 * times) or to free it (D times), over all chunks, in ns. */
static double compute_least_fill(const lhi_bound_case *c, const least_values *l,
                                 const double *pass)
{
    uint32_t e = c->n_kinds, h = e + 1;
    bool alone = c->least_layers == 0; /* otherwise a layer shares the
                                        * embedding's chunk */
    double least = INFINITY;
    for (uint32_t i = 0; i <= h; i++) {
        double with = l->most_left[e] + l->most_left[i];
        if ((i != e || alone) && l->most_left[i] > 0)
            least = fmin(least, pass[i] / l->most_left[i]);
        if (i < e && !alone && with > 0)
            least = fmin(least, (pass[e] + pass[i]) / with);
    }
    return least;
}

/* Computes a lower bound on the byte nanoseconds that stay empty while the
 * first F fill the memory and the last D free it. `room`: memory of all
 * devices; `ns`: the makespan. */
static double compute_empty_area(const lhi_bound_case *c, const least_values *l,
                                 double room, double ns)
{
    double fill =
        compute_least_fill(c, l, l->f) + compute_least_fill(c, l, l->d);
    double largest = 0, chunk = 0, most = 0;
    if (c->chunks_per_device == 0 || !(fill < INFINITY))
        return 0;
    for (uint32_t i = 0; i < c->n_kinds; i++)
        chunk = fmax(chunk, l->most_at_once[i]);
    uint32_t chunks = c->stages * c->chunks_per_device;
    chunk *= c->layers - (chunks - 1) * c->least_layers;
    chunk += l->most_at_once[c->n_kinds] + l->most_at_once[c->n_kinds + 1];
    for (uint32_t k = 0; k < c->stages; k++)
        largest =
            fmax(largest, (double)lhi_bound_site_of_stage(c, k)->capacity);
    most = fmax(room / c->stages - chunk, 0);
    return largest * fill > ns ? 0 : c->stages * most * most / 2 * fill;
}

/* Residency of one microbatch before the first D begins, or after it, without
 * waiting: the parts up to some layer. */
typedef struct slope {
    double held;  /* bytes of the parts so far */
    double area;  /* byte nanoseconds from there to the first D */
    double whole; /* nanoseconds from the first part on */
    double mean;  /* largest area / held, from any part on */
} slope;

/* Adds a model part or a message (hop) to the slope, the sequence of activation
 * bytes along a microbatch's path: it takes `ns` and retains `bytes` (a hop:
 * 0). */
static void add_part_to_slope(slope *s, double bytes, double ns)
{
    s->held += bytes;
    s->area += s->held * ns;
    s->whole += ns;
    if (s->held > 0)
        s->mean = fmax(s->mean, s->area / s->held);
}

/* Returns a message's time from a chunk to the next one, or with `back` of
 * its gradient, in ns. */
static double get_hop_ns(const lhi_bound_case *c, uint32_t chunk, bool back)
{
    uint32_t P = c->stages, k = chunk % P;
    bool home = c->placement == LH_PLACEMENT_WAVE && chunk / P % 2;
    if (!c->forward_hops)
        return 0;
    if (k + 1 == P)
        return c->placement != LH_PLACEMENT_LOOP
                   ? 0
                   : (double)(back ? c->wrap_back : c->wrap_forth);
    k = home ? P - 2 - k : k;
    return (double)(back == home ? c->forward_hops[k] : c->backward_hops[k]);
}

/* Computes the slope of a microbatch's activation memory over time: from the
 * first F to the first D or, with `back`, from there to the last D. The message
 * (hop) to a chunk comes after the fewest layers that can precede it. */
static slope compute_slope(const lhi_bound_case *c, const least_values *l,
                           bool back)
{
    const double *ns = back ? l->d : l->f;
    uint32_t e = c->n_kinds, h = e + 1, hop = 0;
    uint32_t hops = c->stages * c->chunks_per_device - 1;
    slope s = {0, 0, 0, 0};
    add_part_to_slope(&s, l->activation[e], ns[e]);
    for (uint32_t i = 0; i <= c->layers; i++) {
        for (; hop < hops && (hop + 1) * c->least_layers <= i; hop++)
            add_part_to_slope(&s, 0, get_hop_ns(c, hop, back));
        if (i < c->layers)
            add_part_to_slope(&s, l->activation[c->kind_of[i]],
                              ns[c->kind_of[i]]);
    }
    add_part_to_slope(&s, l->activation[h], ns[h]);
    return s;
}

/* Returns a lower bound on the makespan in ns, from the time between the first
 * microbatch's first D and the last microbatch's first D. `room`: memory of all
 * devices, which limits the residency. */
static double bound_by_first_and_last(const lhi_bound_case *c,
                                      const least_values *l, double room)
{
    double of_d = 0, most = 0;
    if (c->chunks_per_device == 0)
        return 0;
    slope up = compute_slope(c, l, false), down = compute_slope(c, l, true);
    for (uint32_t i = 0; i < c->n_kinds + 2; i++) {
        if (!(l->least_held[i] > 0))
            continue;
        of_d += l->in_w[i] * c->n_of_part[i];
        most = fmax(most, l->in_w[i] / l->least_held[i]);
    }
    double all = c->microbatches * (up.area + down.area + of_d);
    double span = all / room - up.mean - down.mean - most;
    double w = (double)lhi_bound_find_least_layer(c).w * c->least_layers;
    return (double)lhi_bound_first_gather_ns(c) + up.whole + fmax(span, 0) +
           down.whole + w + (double)lhi_bound_first_reduce_ns(c);
}

int64_t lhi_bound_compute_residency(const lhi_bound_case *c)
{
    double most = 0, longest, passing,
           room = lhi_bound_compute_total_memory(c, &passing);
    least_values l = compute_least_values(c);
    if (!(room > l.state) || !(room < INFINITY))
        return 0; /* covered by the memory bound */
    for (int with_w = 0; with_w <= 1; with_w++) {
        double all =
            compute_microbatch_residency(c, &l, with_w) * c->microbatches;
        double idle = compute_idle_area(c, with_w, &longest);
        double held = (l.state + passing) * longest; /* in this time */
        idle += compute_empty_area(c, &l, room - l.state,
                                   (double)lhi_bound_compute_work(c) - longest);
        double ns = (all + idle - held) / (room - l.state);
        most = fmax(most, ns);
    }
    most = fmax(most, bound_by_first_and_last(c, &l, room - l.state));
    return most < 0x1p60 ? (int64_t)(most * (1 - 1e-9)) : LHI_BOUND_INFINITY;
}
