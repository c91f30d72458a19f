/* SPDX-License-Identifier: Apache-2.0 */
/* Bound inputs: cost-model results for single layers and for the whole model,
 * and the placement of stages. */
#include "plan/search/floors_own.h"

#include "cost/shape.h"
#include "cost/sharding.h"
#include "plan/layout/alike.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One kind of layer, or an end, at one datacenter. */
typedef struct part {
    lhi_floor_pass pass;
    lhi_floor_held held;
    int64_t hold, passing;
} part;

/* --- kinds of layers ------------------------------------------------------ */

/* Groups the layers into equivalent kinds. */
static void find_kinds(lhi_floors *f)
{
    const lh_model *m = f->job->model;
    for (uint32_t layer = 0; layer < m->layers; layer++) {
        uint32_t k = 0;
        while (k < f->n_kinds && !lhi_layers_alike(m, f->kinds[k].layer, layer))
            k++;
        if (k == f->n_kinds)
            f->kinds[f->n_kinds++].layer = layer;
        f->kind_of[layer] = k;
        f->kinds[k].n++;
        f->n_of_part[k]++;
    }
    f->n_of_part[f->n_kinds] = f->n_of_part[f->n_kinds + 1] = 1;
}

/* --- costs ---------------------------------------------------------------- */

/* Computes the least cost over all datacenters; placement is still open. */
static lh_status least_cost(lhi_floors *f, const lh_job *job,
                            const lh_layout *layout, const lh_cost_slice *slice,
                            lh_cost *cost, lh_error *err)
{
    lh_cost_options options = {.size = sizeof options,
                               .estimate_missing = true};
    return lhi_chunk_cost_least(job, layout, slice, &options, &f->busiest, cost,
                                err);
}

static lh_status cost_of(lhi_floors *f, const lh_job *job,
                         const lh_layout *layout, const lh_cost_slice *slice,
                         lh_cost *cost, lh_error *err)
{
    lh_cost_options options = {.size = sizeof options,
                               .estimate_missing = true};
    return lhi_chunk_cost(job, layout, slice, &options, &f->busiest, cost, err);
}

/* Computes a part's cost. Times are without the ZeRO 2 and 3 communication in
 * passes, because some of it overlaps with the next layer. */
static lh_status cost_part(lhi_floors *f, const lh_job *job,
                           const lh_layout *layout, const lh_cost_slice *slice,
                           part *out, lh_error *err)
{
    lh_cost c;
    lh_job plain = *job;
    if (plain.training.zero > 1)
        plain.training.zero = 1;
    LHI_TRY(least_cost(f, &plain, layout, slice, &c, err));
    out->pass = (lhi_floor_pass){lhi_floor_rounded_down(c.f.total_ns),
                                 lhi_floor_rounded_down(c.d.total_ns),
                                 lhi_floor_rounded_down(c.w.total_ns)};
    if (job->training.zero > 1)
        LHI_TRY(least_cost(f, job, layout, slice, &c, err));
    int64_t held = c.weight_bytes + c.gradient_bytes + c.optimizer_bytes +
                   c.activation_bytes - 4;
    out->hold = lhi_most(lhi_least(held, LHI_FLOOR_MOST_BYTES), 0);
    /* Buffers are unknown while the sharding is open; memory for offloaded
     * activations is unknown while the layers per chunk are. */
    bool known = f->state_known && job->training.offload_share == 0;
    out->passing = lhi_least(c.workspace_bytes + (known ? c.buffer_bytes : 0),
                             LHI_FLOOR_MOST_BYTES);
    int64_t activation = lhi_least(c.activation_bytes, LHI_FLOOR_MOST_BYTES);
    out->held = (lhi_floor_held){
        lhi_most(activation - 1, 0),
        lhi_most(lhi_least(c.weight_input_bytes, LHI_FLOOR_MOST_BYTES) - 1, 0),
        lhi_most(out->hold - activation, 0), out->passing};
    return LH_OK;
}

/* Derives the times of a layer and of the model from those of parts. */
static void add_parts(const lhi_floors *f, lhi_floor_site *s)
{
    s->layer = s->parts[0];
    s->layer_fd = s->layer_all = INT64_MAX;
    for (uint32_t k = 0; k < f->n_kinds; k++) {
        const lhi_floor_pass *p = &s->parts[k];
        s->layer.f = lhi_least(s->layer.f, p->f);
        s->layer.d = lhi_least(s->layer.d, p->d);
        s->layer.w = lhi_least(s->layer.w, p->w);
        s->layer_fd = lhi_least(s->layer_fd, p->f + p->d);
        s->layer_all = lhi_least(s->layer_all, p->f + p->d + p->w);
    }
    s->embedding = s->parts[f->n_kinds];
    s->head = s->parts[f->n_kinds + 1];
    s->f = s->d = s->w = 0;
    for (uint32_t i = 0; i < f->n_kinds + 2; i++) {
        s->f += f->n_of_part[i] * s->parts[i].f;
        s->d += f->n_of_part[i] * s->parts[i].d;
        s->w += f->n_of_part[i] * s->parts[i].w;
    }
}

/* Computes pass times and memory at one datacenter. */
static lh_status cost_site(lhi_floors *f, const lh_job *job,
                           const lh_layout *layout, uint32_t datacenter,
                           lhi_floor_site *s, lh_error *err)
{
    part p, embedding, head;
    lh_cost_slice slice = {.datacenter = datacenter, .data_datacenters = 1};
    int64_t passing = INT64_MAX;
    *s = (lhi_floor_site){.hold = INT64_MAX};
    for (uint32_t k = 0; k < f->n_kinds; k++) {
        slice.first_layer = f->kinds[k].layer;
        slice.n_layers = 1;
        LHI_TRY(cost_part(f, job, layout, &slice, &p, err));
        s->hold = lhi_least(s->hold, p.hold);
        passing = lhi_least(passing, p.passing);
        s->parts[k] = p.pass;
        s->held[k] = p.held;
    }
    slice.n_layers = 0;
    slice.embedding = true;
    LHI_TRY(cost_part(f, job, layout, &slice, &embedding, err));
    slice.embedding = false;
    slice.head = true;
    slice.mtp = lhi_mtp_of_head(f->job);
    LHI_TRY(cost_part(f, job, layout, &slice, &head, err));
    s->parts[f->n_kinds] = embedding.pass;
    s->parts[f->n_kinds + 1] = head.pass;
    s->held[f->n_kinds] = embedding.held;
    s->held[f->n_kinds + 1] = head.held;
    add_parts(f, s);
    if (!lhi_layers_least(f->job)) /* a chunk may be an end alone */
        passing =
            lhi_least(passing, lhi_least(embedding.passing, head.passing));
    if (lhi_layers_none(f->job)) /* or empty */
        passing = 0;
    s->embedding_hold = embedding.hold;
    s->head_hold = head.hold;
    for (uint32_t k = 0; k < f->n_kinds; k++)
        s->held[k].passing -= passing;
    s->held[f->n_kinds].passing = s->held[f->n_kinds + 1].passing = 0;
    s->room = lh_gpu_usable_bytes(&job->datacenters[datacenter].gpu) - passing;
    return LH_OK;
}

/* --- sites ---------------------------------------------------------------- */

static int64_t pick(int64_t a, int64_t b, bool larger)
{
    return larger ? lhi_most(a, b) : lhi_least(a, b);
}

static void pick_pass(lhi_floor_pass *a, const lhi_floor_pass *b, bool larger)
{
    a->f = pick(a->f, b->f, larger);
    a->d = pick(a->d, b->d, larger);
    a->w = pick(a->w, b->w, larger);
}

/* Sums F and D of all parts. */
static int64_t way_of(const lhi_floors *f, const lhi_floor_site *s)
{
    int64_t sum = 0;
    for (int i = 0; i < LHI_FLOOR_PARTS; i++)
        sum += f->n_of_part[i] * (s->parts[i].f + s->parts[i].d);
    return sum;
}

/* Sums the memory of the whole model. */
static lhi_floor_held all_held(const lhi_floors *f, const lhi_floor_site *s)
{
    lhi_floor_held sum = {0};
    for (int i = 0; i < LHI_FLOOR_PARTS; i++) {
        sum.activation += f->n_of_part[i] * s->held[i].activation;
        sum.weight_input += f->n_of_part[i] * s->held[i].weight_input;
        sum.state += f->n_of_part[i] * s->held[i].state;
    }
    return sum;
}

/* Merges memory: a chunk's memory is the largest over its datacenters in each
 * respect. */
static void merge_held(const lhi_floors *f, lhi_floor_site *a,
                       const lhi_floor_site *b, bool worst)
{
    lhi_floor_held x = all_held(f, a), y = all_held(f, b);
    for (int i = 0; i < LHI_FLOOR_PARTS; i++) {
        lhi_floor_held *to = &a->held[i];
        const lhi_floor_held *from = &b->held[i];
        if (worst ? y.activation > x.activation
                  : from->activation < to->activation)
            to->activation = from->activation;
        if (worst ? y.weight_input > x.weight_input
                  : from->weight_input < to->weight_input)
            to->weight_input = from->weight_input;
        if (worst ? y.state > x.state : from->state < to->state)
            to->state = from->state;
        to->passing = lhi_least(to->passing, from->passing);
    }
}

/* Merges the parts' times. The slowest datacenter may differ by part, so all
 * times of summed parts come from a single one; ends count with their least
 * times. */
static void merge_parts(const lhi_floors *f, lhi_floor_site *a,
                        const lhi_floor_site *b, bool worst)
{
    if (worst && way_of(f, b) > way_of(f, a))
        memcpy(a->parts, b->parts, sizeof a->parts);
    for (int i = 0; i < LHI_FLOOR_PARTS && !worst; i++)
        pick_pass(&a->parts[i], &b->parts[i], false);
    pick_pass(&a->embedding, &b->embedding, false);
    pick_pass(&a->head, &b->head, false);
    a->embedding_hold = lhi_least(a->embedding_hold, b->embedding_hold);
    a->head_hold = lhi_least(a->head_hold, b->head_hold);
}

/* Merges two sites: the best in every respect while the datacenter is open; the
 * worst if each has a replica and all wait for the last. */
static void merge(const lhi_floors *f, lhi_floor_site *a,
                  const lhi_floor_site *b, bool worst)
{
    int64_t *const to[] = {&a->layer_fd,
                           &a->layer_all,
                           &a->f,
                           &a->d,
                           &a->w,
                           &a->gather,
                           &a->reduce,
                           &a->optimizer,
                           &a->hold,
                           &a->late,
                           &a->model_hold,
                           &a->first_gather,
                           &a->first_reduce,
                           &a->latency};
    const int64_t from[] = {b->layer_fd,
                            b->layer_all,
                            b->f,
                            b->d,
                            b->w,
                            b->gather,
                            b->reduce,
                            b->optimizer,
                            b->hold,
                            b->late,
                            b->model_hold,
                            b->first_gather,
                            b->first_reduce,
                            b->latency};
    for (size_t i = 0; i < sizeof to / sizeof to[0]; i++)
        *to[i] = pick(*to[i], from[i], worst);
    pick_pass(&a->layer, &b->layer, worst);
    merge_parts(f, a, b, worst);
    merge_held(f, a, b, worst);
    a->room = pick(a->room, b->room, !worst);
    if (worst ? b->slowness > a->slowness : b->slowness < a->slowness)
        a->slowness = b->slowness;
}

/* Clears the values that the profile makes unknown. */
static void forget(const lhi_floors *f, lhi_floor_site *s)
{
    if (!f->memory_known) {
        s->hold = s->embedding_hold = s->head_hold = s->model_hold = 0;
        memset(s->held, 0, sizeof s->held);
    }
    if (!f->times_known)
        *s = (lhi_floor_site){.room = s->room,
                              .hold = s->hold,
                              .embedding_hold = s->embedding_hold,
                              .head_hold = s->head_hold};
}

static int64_t sum_of(const lhi_floor_pass *p)
{
    return p->f + p->d + p->w;
}

/* Returns the slowdown relative to the first datacenter. */
static double slowness_of(const lhi_floor_site *s, const lhi_floor_site *first)
{
    double least_ratio = 0;
    for (int i = 0; i < LHI_FLOOR_PARTS; i++) {
        /* Parts without time there add no work. */
        int64_t there = sum_of(&first->parts[i]);
        if (there <= 0)
            continue;
        double ratio = (double)sum_of(&s->parts[i]) / (double)there;
        if (!(least_ratio > 0) || ratio < least_ratio)
            least_ratio = ratio;
        if (!(ratio > 0))
            return 0;
    }
    return least_ratio;
}

/* Returns the most replicas over which all experts divide evenly. */
static uint32_t most_replicas(const lh_job *job, const lh_layout *l)
{
    uint64_t block = lh_layout_expert_block(l), group = lhi_group_size(l);
    uint64_t n = job->n_gpus / group;
    while (n > 1 && n * group % block != 0)
        n--;
    return (uint32_t)n;
}

/* Completes a configuration with the cheapest values: no recomputation, and
 * state divided over as many GPUs as there are. */
static void settle(const lhi_floors *f, lhi_level level,
                   const lhi_config *config, lh_job *job, lh_layout *layout)
{
    *job = *f->job;
    *layout = config->layout;
    if (level >= LHI_LEVEL_WORK)
        job->training.recompute = config->recompute;
    else if (!job->training.recompute_given)
        job->training.recompute = LH_RECOMPUTE_NONE;
    if (level >= LHI_LEVEL_STATE)
        job->training.zero = config->zero;
    else if (!job->training.zero_given)
        job->training.zero = 3;
    if (level < LHI_LEVEL_STATE) {
        layout->pipeline = 1;
        layout->data = most_replicas(job, layout);
    }
}

/* Checks whether the sites of the previous call can be reused. */
static bool is_known(const lhi_floors *f, lhi_level level, const lh_job *job,
                     const lh_layout *l)
{
    const lh_layout *k = &f->last;
    bool known = level < LHI_LEVEL_STATE &&
                 f->last_recompute == job->training.recompute &&
                 k->tensor == l->tensor && k->context == l->context &&
                 k->expert == l->expert &&
                 k->expert_tensor == l->expert_tensor &&
                 k->micro_batch == l->micro_batch;
    return known;
}

/* Computes all datacenters' sites. */
static lh_status cost_sites(lhi_floors *f, const lh_job *job,
                            const lh_layout *layout, lh_error *err)
{
    for (uint32_t d = 0; d < job->n_datacenters; d++) {
        uint32_t same = 0;
        while (same < d && !lhi_datacenter_same(job, same, d))
            same++;
        lhi_floor_site *s = &f->sites[d + 1];
        if (same < d) {
            *s = f->sites[same + 1];
        } else {
            LHI_TRY(cost_site(f, job, layout, d, s, err));
            s->slowness = slowness_of(s, d ? &f->sites[1] : s);
            forget(f, s);
        }
        if (d == 0)
            f->sites[0] = *s;
        else
            merge(f, &f->sites[0], s, false);
    }
    /* Each part may be on its fastest site. */
    lhi_floor_site *any = &f->sites[0];
    any->f = any->d = any->w = 0;
    for (int i = 0; i < LHI_FLOOR_PARTS; i++) {
        any->f += f->n_of_part[i] * any->parts[i].f;
        any->d += f->n_of_part[i] * any->parts[i].d;
        any->w += f->n_of_part[i] * any->parts[i].w;
    }
    f->n_sites = job->n_datacenters + 1;
    return LH_OK;
}

/* Computes a layer's share of data-parallel communication, if all layers have
 * the same parts; a chunk then sends a multiple of it. Layers with and without
 * experts may wait for different links, and both at once take less than the
 * sum. */
static lh_status add_sending(lhi_floors *f, const lh_job *job,
                             const lh_layout *layout, lh_cost_slice slice,
                             const lh_cost *whole, lhi_floor_site *s,
                             lh_error *err)
{
    lh_cost layer;
    bool experts = lh_model_layer_is_moe(job->model, f->kinds[0].layer);
    for (uint32_t k = 1; k < f->n_kinds; k++)
        if (lh_model_layer_is_moe(job->model, f->kinds[k].layer) != experts)
            return LH_OK;
    slice.first_layer = f->kinds[0].layer;
    slice.n_layers = 1;
    slice.embedding = slice.head = false;
    LHI_TRY(cost_of(f, job, layout, &slice, &layer, err));
    s->reduce = lhi_floor_rounded_down(layer.reduce_scatter_ns);
    /* Most of it overlaps with passes, for unknown layers. */
    if (lhi_gathers_on_the_way(job, layout))
        return LH_OK;
    s->gather = lhi_floor_rounded_down(layer.all_gather_ns);
    /* More bytes may take longest elsewhere, at a lower rate; but not with more
     * latency, or fewer bytes would take longest there too. A chunk's latency
     * is therefore at least the model's and at most a layer's. */
    s->latency = lhi_floor_rounded_down(whole->data_latency_ns);
    s->late = lhi_most(whole->data_late_ns + whole->data_latency_ns -
                           layer.data_latency_ns - 2,
                       0);
    if (experts || job->training.zero > 1)
        return LH_OK;
    /* Among the same GPUs as layers without experts. */
    lh_cost embedding;
    slice.n_layers = 0;
    slice.embedding = true;
    LHI_TRY(cost_of(f, job, layout, &slice, &embedding, err));
    s->first_gather = lhi_floor_rounded_down(embedding.all_gather_ns);
    s->first_reduce = lhi_floor_rounded_down(embedding.reduce_scatter_ns);
    return LH_OK;
}

/* Removes the first gather and last reduction of each rank from its passes,
 * which ZeRO 2 and 3 run separately (build.c). The first layer of a rank is
 * unknown, so passes count without the longest gather. */
static lh_status take_ends(lhi_floors *f, const lh_job *job,
                           const lh_layout *layout, const lh_cost_slice *slice,
                           lh_cost *cost, lh_error *err)
{
    lh_cost_options options = {.size = sizeof options,
                               .estimate_missing = true};
    lhi_sharded sent;
    double step = (double)layout->data * layout->micro_batch;
    double n = fmax(1, floor(job->training.global_batch / step));
    double each = layout->pipeline / n;
    if (cost->f.end_ns == 0 && cost->w.end_ns == 0)
        return LH_OK;
    LHI_TRY(lhi_sharded_time(job, layout, slice, &options, &f->busiest, &sent,
                             err));
    if (cost->f.end_ns > 0)
        cost->f.total_ns -= (int64_t)ceil(each * sent.longest_gather);
    cost->w.total_ns -= (int64_t)ceil(each * sent.longest_reduce);
    return LH_OK;
}

/* Adds the costs that depend on all replicas' sites, for the model as a whole.
 */
static lh_status add_state(lhi_floors *f, const lh_job *job,
                           const lh_layout *layout, uint32_t microbatches,
                           const lhi_spread *spread, uint32_t datacenter,
                           lhi_floor_site *s, lh_error *err)
{
    lh_cost whole;
    lh_cost_slice slice = {.n_layers = job->model->layers,
                           .embedding = true,
                           .head = true,
                           .datacenter = datacenter,
                           .n_sites = spread->n_sites,
                           .sites = spread->sites,
                           .sharing = spread->sharing};
    LHI_TRY(cost_of(f, job, layout, &slice, &whole, err));
    LHI_TRY(take_ends(f, job, layout, &slice, &whole, err));
    /* With one pipeline rank a chunk may wait for less than it sends, because
     * some of it overlaps with the previous chunk. The whole model does not. */
    if (job->training.zero > 1 && layout->pipeline > 1) {
        LHI_TRY(
            lhi_floors_take_sent(f, job, layout, microbatches, &slice, s, err));
        add_parts(f, s);
    }
    s->f = lhi_most(s->f, lhi_floor_rounded_down(whole.f.total_ns));
    s->d = lhi_most(s->d, lhi_floor_rounded_down(whole.d.total_ns));
    s->w = lhi_most(s->w, lhi_floor_rounded_down(whole.w.total_ns));
    s->optimizer = lhi_floor_rounded_down(whole.optimizer_ns);
    if (whole.all_gather_ns > 0 || whole.reduce_scatter_ns > 0)
        LHI_TRY(add_sending(f, job, layout, slice, &whole, s, err));
    s->model_hold = whole.weight_bytes + whole.gradient_bytes +
                    whole.optimizer_bytes + whole.activation_bytes;
    return LH_OK;
}

/* Computes the site of one set of datacenters. */
static lh_status cost_spread(lhi_floors *f, const lh_job *job,
                             const lh_layout *layout, uint32_t microbatches,
                             const lhi_spread *spread, lh_error *err)
{
    lhi_floor_site *out = &f->sites[f->n_sites];
    for (uint32_t i = 0; i < spread->n_sites; i++) {
        uint32_t dc = spread->sites[i].datacenter;
        lhi_floor_site s = f->sites[dc + 1];
        if (lhi_spread_repeats(job, layout, spread, i))
            continue;
        if (microbatches) {
            LHI_TRY(
                add_state(f, job, layout, microbatches, spread, dc, &s, err));
            forget(f, &s);
        }
        if (i == 0)
            *out = s;
        else
            merge(f, out, &s, true);
    }
    f->n_sites++;
    return LH_OK;
}

/* Computes all stages' sites; equally placed stages are contiguous.
 * `microbatches` 0: the sharding is open. */
static lh_status cost_stages(lhi_floors *f, const lh_job *job,
                             const lh_layout *layout, uint32_t microbatches,
                             const lhi_places *places, lh_error *err)
{
    for (uint32_t k = 0; k < layout->pipeline; k++) {
        const lhi_spread *a = &places->spreads[k];
        if (k == 0 || a->sites != places->spreads[k - 1].sites)
            LHI_TRY(cost_spread(f, job, layout, microbatches, a, err));
        f->at[k] = f->n_sites - 1;
    }
    return LH_OK;
}

/* --- all bounds ----------------------------------------------------------- */

/* Raises a bound and records its kind. */
static void raise_floor(lhi_floor *out, int64_t ns, lhi_floor_kind which)
{
    if (ns > out->ns || out->kind == LHI_FLOOR_NONE) {
        out->ns = lhi_most(ns, out->ns);
        out->kind = which;
    }
}

/* With an unknown pipeline, all GPUs work all the time. */
static int64_t floor_of_group(const lhi_floors *f, const lh_layout *l)
{
    const lhi_floor_site *s = &f->sites[0];
    uint32_t groups = f->job->n_gpus / lhi_group_size(l);
    double microbatches =
        (double)f->job->training.global_batch / l->micro_batch;
    double ns = microbatches * (double)(s->f + s->d + s->w) / groups;
    return ns < 0x1p60 ? (int64_t)ns : INT64_C(1) << 60;
}

/* Takes all links' bounds. */
static void take_links(const lhi_floors *f, const lhi_floor_case *c,
                       lhi_floor *out)
{
    size_t pairs = (size_t)f->job->n_datacenters * f->job->n_datacenters;
    for (size_t i = 0; i < pairs; i++)
        if (f->n_messages[i])
            raise_floor(out,
                        lhi_floor_link(c, f->n_messages[i], f->transfers[i],
                                       f->latencies[i]),
                        LHI_FLOOR_LINK);
}

/* Returns a site's datacenter; for replicas in several, the one with the least
 * memory. */
static uint32_t datacenter_of(const lhi_floors *f, uint32_t site)
{
    uint32_t smallest = 0;
    for (uint32_t d = 0; d < f->job->n_datacenters; d++) {
        if (site == d + 1 || f->sites[d + 1].room == f->sites[site].room)
            return d;
        if (f->sites[d + 1].room < f->sites[smallest + 1].room)
            smallest = d;
    }
    return smallest;
}

/* Takes the memory bound. */
static void take_memory(const lhi_floors *f, const lhi_floor_case *c,
                        lhi_floor *out)
{
    uint32_t site;
    int64_t held = INT64_MAX;
    for (uint32_t k = 0; k < (c->at ? c->stages : 1); k++)
        held = lhi_least(held, f->sites[c->at ? c->at[k] : 0].model_hold);
    out->memory_bytes = held / c->stages;
    out->missing = lhi_floor_memory(c, &site);
    if (out->missing == 0)
        return;
    out->missing_in = datacenter_of(f, site);
    out->ns = INT64_MAX;
    out->kind = LHI_FLOOR_MEMORY;
}

/* Takes the best of all bounds. Computes the partition bound below `below_ns`;
 * 0: never. */
static void take_all(const lhi_floors *f, lhi_level level, int64_t below_ns,
                     const lhi_floor_case *c, lhi_floor *out)
{
    raise_floor(out, lhi_floor_work(c), LHI_FLOOR_WORK);
    raise_floor(out, lhi_floor_layers(c), LHI_FLOOR_LAYERS);
    if (level >= LHI_LEVEL_PLACED) {
        raise_floor(out, lhi_floor_path(c), LHI_FLOOR_PATH);
        raise_floor(out, lhi_floor_ramp(c), LHI_FLOOR_RAMP);
        raise_floor(out, lhi_floor_stay(c), LHI_FLOOR_STAY);
        take_links(f, c, out);
    }
    int64_t optimizer = INT64_MAX, late = INT64_MAX;
    for (uint32_t k = 0; c->at && k < c->stages; k++) {
        optimizer = lhi_least(optimizer, f->sites[c->at[k]].optimizer);
        late = lhi_least(late, f->sites[c->at[k]].late);
    }
    int64_t after = lhi_iteration_ns(f->job);
    if (level >= LHI_LEVEL_STATE)
        after += optimizer / c->stages + late;
    if (below_ns > 0)
        raise_floor(out, lhi_floor_split(c, f->mem, out->ns, below_ns - after),
                    LHI_FLOOR_RAMP);
    out->ns += after;
    take_memory(f, c, out);
}

/* Computes a configuration's bound. */
static lh_status find_floor(lhi_floors *f, lhi_level level,
                            const lhi_config *config, int64_t below_ns,
                            lhi_floor *out, lh_error *err)
{
    lh_job job;
    lh_layout layout;
    *out = (lhi_floor){0};
    settle(f, level, config, &job, &layout);
    f->state_known = level >= LHI_LEVEL_STATE || job.training.zero_given;
    if (!is_known(f, level, &job, &layout)) {
        f->last.tensor = 0;
        LHI_TRY(cost_sites(f, &job, &layout, err));
        f->last_recompute = job.training.recompute;
        if (level < LHI_LEVEL_STATE)
            f->last = layout;
    }
    f->n_sites = job.n_datacenters + 1;
    if (level < LHI_LEVEL_DEGREES) {
        raise_floor(out, floor_of_group(f, &layout), LHI_FLOOR_WORK);
        return LH_OK;
    }
    uint32_t v = level >= LHI_LEVEL_WHOLE ? layout.chunks_per_device : 0;
    lhi_floor_case c = {.layers = f->job->model->layers,
                        .stages = config->layout.pipeline,
                        .chunks_per_device = v,
                        .microbatches = config->microbatches,
                        .placement = v ? config->placement : LH_PLACEMENT_OTHER,
                        .least_layers = lhi_layers_least(f->job) ? 1 : 0,
                        .n_without = 2 + lhi_layers_none(f->job),
                        .first_ns =
                            f->sites[1].f + f->sites[1].d + f->sites[1].w,
                        .n_kinds = f->n_kinds,
                        .kind_of = f->kind_of,
                        .sites = f->sites};
    memcpy(c.n_of_part, f->n_of_part, sizeof c.n_of_part);
    if (v && c.least_layers)
        c.least_layers =
            lhi_floor_least_layers(c.layers, c.stages * v, f->ratio);
    if (level < LHI_LEVEL_PLACED) {
        take_all(f, level, below_ns, &c, out);
        return LH_OK;
    }
    lhi_places places;
    lhi_mark mark = lhi_arena_mark(f->mem);
    const lh_layout *l = &config->layout;
    lh_status status = lhi_layout_place(f->job, l, f->mem, &places, err);
    if (status == LH_OK)
        status = cost_stages(
            f, &job, l, level >= LHI_LEVEL_STATE ? config->microbatches : 0,
            &places, err);
    if (status == LH_OK)
        status = lhi_floors_take_hops(f, l, &places, &c, err);
    c.at = f->at;
    if (status == LH_OK)
        take_all(f, level, below_ns, &c, out);
    lhi_arena_rewind(f->mem, mark);
    return status;
}

lh_status lhi_floors_find(lhi_floors *f, lhi_level level,
                          const lhi_config *config, lhi_floor *out,
                          lh_error *err)
{
    return find_floor(f, level, config, 0, out, err);
}

lh_status lhi_floors_find_closer(lhi_floors *f, const lhi_config *config,
                                 int64_t below_ns, lhi_floor *out,
                                 lh_error *err)
{
    return find_floor(f, LHI_LEVEL_WHOLE, config, below_ns, out, err);
}

/* Checks what the profile makes unknown. */
static void look_at_profile(lhi_floors *f)
{
    const lh_profile *p = f->job->profile;
    f->times_known = f->memory_known = true;
    for (uint32_t i = 0; p && i < p->n_entries; i++) {
        f->memory_known = false;
        if (p->entries[i].kind == LH_PROFILE_CHUNK)
            f->times_known = false;
    }
}

lh_status lhi_floors_make(const lh_job *job, double ratio, lhi_floors **out,
                          lh_error *err)
{
    size_t n = job->n_datacenters, layers = job->model->layers;
    lhi_floors *f = calloc(1, sizeof *f);
    if (!f)
        return lhi_fail_nomem(err);
    *f = (lhi_floors){.job = job,
                      .ratio = ratio,
                      .mem = lhi_arena_make(0),
                      .sites = calloc(n + 1 + layers, sizeof *f->sites),
                      .kind_of = calloc(layers, sizeof *f->kind_of),
                      .at = calloc(layers, sizeof *f->at),
                      .forth = calloc(layers, sizeof *f->forth),
                      .back = calloc(layers, sizeof *f->back),
                      .n_messages = calloc(n * n, sizeof *f->n_messages),
                      .transfers = calloc(n * n, sizeof *f->transfers),
                      .latencies = calloc(n * n, sizeof *f->latencies)};
    if (!f->mem || !f->sites || !f->kind_of || !f->at || !f->forth ||
        !f->back || !f->n_messages || !f->transfers || !f->latencies) {
        lhi_floors_free(f);
        return lhi_fail_nomem(err);
    }
    find_kinds(f);
    look_at_profile(f);
    *out = f;
    return LH_OK;
}

void lhi_floors_forget_memory(lhi_floors *f)
{
    f->memory_known = false;
}

void lhi_floors_free(lhi_floors *f)
{
    if (!f)
        return;
    lhi_arena_free(f->mem);
    free(f->sites);
    free(f->kind_of);
    free(f->at);
    free(f->forth);
    free(f->back);
    free(f->n_messages);
    free(f->transfers);
    free(f->latencies);
    free(f);
}
