/* SPDX-License-Identifier: Apache-2.0 */
/* Bound inputs: cost-model results for single layers and for the whole model,
 * and the stage placement. */
#include "planner/search/bound_inputs_internal.h"

#include "format/job/job_values.h"
#include "model/flop_count.h"
#include "model/shape.h"
#include "model/sharding.h"
#include "planner/layout/equivalence.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One kind of layer, or an end, at one datacenter. */
typedef struct part {
    lhi_bound_pass pass;
    lhi_bound_memory_part held;
    int64_t hold, passing;
} part;

/* --- kinds of layers ------------------------------------------------------ */

/* Groups the model's equivalent layers into kinds (f->kinds), each with a
 * representative and its layer count. */
static void find_kinds(lhi_bound_inputs *f)
{
    const lh_model *m = f->job->model;
    for (uint32_t layer = 0; layer < m->layers; layer++) {
        uint32_t k = 0;
        while (k < f->n_kinds &&
               !lhi_layers_are_equivalent(m, f->kinds[k].layer, layer))
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

/* Computes a layer range's least cost over all placements of the layout's ranks
 * on nodes, for lower bounds. */
static lh_status compute_least_cost(lhi_bound_inputs *f, const lh_job *job,
                                    const lh_layout *layout,
                                    const lh_cost_layer_range *slice,
                                    lh_cost *cost, lh_error *err)
{
    lh_cost_options options = {.size = sizeof options,
                               .estimate_missing = true};
    return lhi_chunk_cost_lower_bound(job, layout, slice, &options, &f->busiest,
                                      cost, err);
}

/* Computes a layer range's cost (times and memory) from the job's profile or,
 * where it has no measurement, by the cost model. */
static lh_status compute_cost(lhi_bound_inputs *f, const lh_job *job,
                              const lh_layout *layout,
                              const lh_cost_layer_range *slice, lh_cost *cost,
                              lh_error *err)
{
    lh_cost_options options = {.size = sizeof options,
                               .estimate_missing = true};
    return lhi_chunk_cost(job, layout, slice, &options, &f->busiest, cost, err);
}

/* Computes the least cost of a layer, the embedding or the head over all
 * placements of the layout. Times exclude the ZeRO 2 and 3 communication within
 * passes, because some of it overlaps with the next layer. */
static lh_status cost_part(lhi_bound_inputs *f, const lh_job *job,
                           const lh_layout *layout,
                           const lh_cost_layer_range *slice, part *out,
                           lh_error *err)
{
    lh_cost c;
    lh_job plain = *job;
    if (plain.training.zero > 1)
        plain.training.zero = 1;
    LHI_TRY(compute_least_cost(f, &plain, layout, slice, &c, err));
    out->pass = (lhi_bound_pass){lhi_bound_find_pass_ns(f, c.f.total_ns),
                                 lhi_bound_find_pass_ns(f, c.d.total_ns),
                                 lhi_bound_find_pass_ns(f, c.w.total_ns)};
    if (job->training.zero > 1)
        LHI_TRY(compute_least_cost(f, job, layout, slice, &c, err));
    int64_t held = c.weight_bytes + c.gradient_bytes + c.optimizer_bytes +
                   c.activation_bytes - 4;
    out->hold = lhi_max_int64(lhi_min_int64(held, LHI_BOUND_MAX_BYTES), 0);
    /* Buffers are unknown while the sharding is open; memory for offloaded
     * activations is unknown while the layers per chunk are. */
    bool known = f->state_known && job->training.offload_share == 0;
    out->passing = lhi_min_int64(
        c.workspace_bytes + (known ? c.buffer_bytes : 0), LHI_BOUND_MAX_BYTES);
    int64_t activation = lhi_min_int64(c.activation_bytes, LHI_BOUND_MAX_BYTES);
    out->held = (lhi_bound_memory_part){
        lhi_max_int64(activation - 1, 0),
        lhi_max_int64(
            lhi_min_int64(c.weight_input_bytes, LHI_BOUND_MAX_BYTES) - 1, 0),
        lhi_max_int64(out->hold - activation, 0), out->passing};
    return LH_OK;
}

/* Derives a site's least times of a layer and its sums over the model from the
 * times of its layer kinds, embedding and head. A site is one or more
 * datacenters. */
static void add_parts(const lhi_bound_inputs *f, lhi_bound_site *s)
{
    s->layer = s->parts[0];
    s->layer_fd = s->layer_all = INT64_MAX;
    for (uint32_t k = 0; k < f->n_kinds; k++) {
        const lhi_bound_pass *p = &s->parts[k];
        s->layer.f = lhi_min_int64(s->layer.f, p->f);
        s->layer.d = lhi_min_int64(s->layer.d, p->d);
        s->layer.w = lhi_min_int64(s->layer.w, p->w);
        s->layer_fd = lhi_min_int64(s->layer_fd, p->f + p->d);
        s->layer_all = lhi_min_int64(s->layer_all, p->f + p->d + p->w);
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

/* Computes pass times and memory of each layer kind, the embedding and the head
 * on one datacenter's GPUs. */
static lh_status cost_site(lhi_bound_inputs *f, const lh_job *job,
                           const lh_layout *layout, uint32_t datacenter,
                           lhi_bound_site *s, lh_error *err)
{
    part p, embedding, head;
    lh_cost_layer_range slice = {.datacenter = datacenter,
                                 .data_datacenters = 1};
    int64_t passing = INT64_MAX;
    *s = (lhi_bound_site){.layer_memory = INT64_MAX};
    for (uint32_t k = 0; k < f->n_kinds; k++) {
        slice.first_layer = f->kinds[k].layer;
        slice.n_layers = 1;
        LHI_TRY(cost_part(f, job, layout, &slice, &p, err));
        s->layer_memory = lhi_min_int64(s->layer_memory, p.hold);
        passing = lhi_min_int64(passing, p.passing);
        s->parts[k] = p.pass;
        s->part_memory[k] = p.held;
    }
    slice.n_layers = 0;
    slice.embedding = true;
    LHI_TRY(cost_part(f, job, layout, &slice, &embedding, err));
    slice.embedding = false;
    slice.head = true;
    slice.mtp = lhi_mtp_is_with_head(f->job);
    LHI_TRY(cost_part(f, job, layout, &slice, &head, err));
    s->parts[f->n_kinds] = embedding.pass;
    s->parts[f->n_kinds + 1] = head.pass;
    s->part_memory[f->n_kinds] = embedding.held;
    s->part_memory[f->n_kinds + 1] = head.held;
    add_parts(f, s);
    if (!lhi_layers_requested_min(f->job)) /* a chunk may be an end alone */
        passing = lhi_min_int64(passing,
                                lhi_min_int64(embedding.passing, head.passing));
    if (lhi_layers_requested_empty_chunks(f->job)) /* or empty */
        passing = 0;
    s->embedding_memory = embedding.hold;
    s->head_memory = head.hold;
    for (uint32_t k = 0; k < f->n_kinds; k++)
        s->part_memory[k].transient -= passing;
    s->part_memory[f->n_kinds].transient =
        s->part_memory[f->n_kinds + 1].transient = 0;
    s->capacity =
        lh_gpu_usable_bytes(&job->datacenters[datacenter].gpu) - passing;
    return LH_OK;
}

/* --- sites ---------------------------------------------------------------- */

/* Sets those times and memory values of site `s` (one or more datacenters) to 0
 * that are no valid lower bounds, because a profile measured them only for
 * whole chunks. */
static void clear_unknown(const lhi_bound_inputs *f, lhi_bound_site *s)
{
    if (!f->memory_known) {
        s->layer_memory = s->embedding_memory = s->head_memory =
            s->model_memory = 0;
        memset(s->part_memory, 0, sizeof s->part_memory);
    }
    if (!f->times_known)
        *s = (lhi_bound_site){.capacity = s->capacity,
                              .layer_memory = s->layer_memory,
                              .embedding_memory = s->embedding_memory,
                              .head_memory = s->head_memory};
}

/* Returns the sum of a bound's F, D and W times, in ns. */
static int64_t sum_passes(const lhi_bound_pass *p)
{
    return p->f + p->d + p->w;
}

/* Returns the least ratio of pass times at site `s` (one or more datacenters)
 * to the first site's, over layer kinds, embedding and head; 0: unknown. */
static double compute_slowness(const lhi_bound_site *s,
                               const lhi_bound_site *first)
{
    double least_ratio = 0;
    for (int i = 0; i < LHI_BOUND_PARTS; i++) {
        /* Parts without time there add no work. */
        int64_t there = sum_passes(&first->parts[i]);
        if (there <= 0)
            continue;
        double ratio = (double)sum_passes(&s->parts[i]) / (double)there;
        if (!(least_ratio > 0) || ratio < least_ratio)
            least_ratio = ratio;
        if (!(ratio > 0))
            return 0;
    }
    return least_ratio;
}

/* Returns the largest replica count over which all experts divide evenly. */
static uint32_t count_max_replicas(const lh_job *job, const lh_layout *l)
{
    uint64_t block = lh_layout_expert_block(l), group = lhi_group_size(l);
    uint64_t n = job->n_gpus / group;
    while (n > 1 && n * group % block != 0)
        n--;
    return (uint32_t)n;
}

/* Completes a configuration for a lower bound, into *job and *layout: no
 * recomputation, ZeRO 3, and state divided over as many replicas as there are
 * GPUs for. Keeps the values that the job fixes or that are decided on `level`
 * (depth in the search tree). */
static void complete_with_cheapest(const lhi_bound_inputs *f, lhi_level level,
                                   const lhi_config *config, lh_job *job,
                                   lh_layout *layout)
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
        layout->data = count_max_replicas(job, layout);
    }
}

/* Checks whether the costs of the previous configuration's sites also hold for
 * this one: job and layout are equal in every value decided on `level` (depth
 * in the search tree). */
static bool is_known(const lhi_bound_inputs *f, lhi_level level,
                     const lh_job *job, const lh_layout *l)
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

/* Returns the layout with the microbatch size and tensor degree that the job
 * fixes for a datacenter; without them, the layout itself. */
static lh_layout set_own_values(const lh_job *job, const lh_layout *layout,
                                uint32_t datacenter)
{
    lh_layout out = *layout;
    if (job->layout.site_tensors)
        out.tensor = job->layout.site_tensors[datacenter];
    if (job->layout.group_micro_batches)
        out.micro_batch =
            lhi_layout_in_datacenter(&job->layout, datacenter).micro_batch;
    return out;
}

/* Checks whether a datacenter's microbatch size and tensor degree are those of
 * the layout `own`. */
static bool have_own_values(const lh_job *job, const lh_layout *layout,
                            uint32_t datacenter, const lh_layout *own)
{
    const lh_layout other = set_own_values(job, layout, datacenter);
    return other.micro_batch == own->micro_batch && other.tensor == own->tensor;
}

/* Computes the costs of every datacenter (f->sites[1..n]) and the least over
 * all (f->sites[0]). */
static lh_status cost_sites(lhi_bound_inputs *f, const lh_job *job,
                            const lh_layout *layout, lh_error *err)
{
    for (uint32_t d = 0; d < job->n_datacenters; d++) {
        const lh_layout own = set_own_values(job, layout, d);
        uint32_t same = 0;
        while (same < d && (!lhi_datacenters_are_equivalent(job, same, d) ||
                            !have_own_values(job, layout, same, &own)))
            same++;
        lhi_bound_site *s = &f->sites[d + 1];
        if (same < d) {
            *s = f->sites[same + 1];
        } else {
            LHI_TRY(cost_site(f, job, &own, d, s, err));
            s->slowness = compute_slowness(s, d ? &f->sites[1] : s);
            clear_unknown(f, s);
        }
        if (d == 0)
            f->sites[0] = *s;
        else
            lhi_bound_inputs_merge_sites(f, &f->sites[0], s, false);
    }
    /* Each part may be on its fastest site. */
    lhi_bound_site *any = &f->sites[0];
    any->f = any->d = any->w = 0;
    for (int i = 0; i < LHI_BOUND_PARTS; i++) {
        any->f += f->n_of_part[i] * any->parts[i].f;
        any->d += f->n_of_part[i] * any->parts[i].d;
        any->w += f->n_of_part[i] * any->parts[i].w;
    }
    f->n_sites = job->n_datacenters + 1;
    return LH_OK;
}

/* Computes the data-parallel communication time of one layer on site `s`; a
 * chunk sends a multiple. Only if all layers or none have experts: both kinds
 * at once take less than the sum. */
static lh_status add_sending(lhi_bound_inputs *f, const lh_job *job,
                             const lh_layout *layout, lh_cost_layer_range slice,
                             const lh_cost *whole, lhi_bound_site *s,
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
    LHI_TRY(compute_cost(f, job, layout, &slice, &layer, err));
    s->reduce = lhi_bound_undo_rounding(layer.reduce_scatter_ns);
    /* Most of it overlaps with passes, for unknown layers. */
    if (lhi_gathers_in_first_microbatch(job, layout))
        return LH_OK;
    s->gather = lhi_bound_undo_rounding(layer.all_gather_ns);
    /* More bytes may take longest elsewhere, at a lower rate; but not with more
     * latency, or fewer bytes would take longest there too. A chunk's latency
     * is therefore at least the model's and at most a layer's. */
    s->latency = lhi_bound_undo_rounding(whole->data_latency_ns);
    s->late_reduce =
        lhi_max_int64(whole->reduce_extra_latency_ns + whole->data_latency_ns -
                          layer.data_latency_ns - 2,
                      0);
    if (experts || lhi_find_zero(job, layout) > 1)
        return LH_OK;
    /* Among the same GPUs as layers without experts. */
    lh_cost embedding;
    slice.n_layers = 0;
    slice.embedding = true;
    LHI_TRY(compute_cost(f, job, layout, &slice, &embedding, err));
    s->first_gather = lhi_bound_undo_rounding(embedding.all_gather_ns);
    s->first_reduce = lhi_bound_undo_rounding(embedding.reduce_scatter_ns);
    return LH_OK;
}

/* Subtracts the longest gather and reduction of each rank from the pass times.
 * With ZeRO 2 and 3 the first gather and the last reduction run outside the
 * passes (build.c). A rank's first layer is unknown. */
static lh_status remove_end_communication(lhi_bound_inputs *f,
                                          const lh_job *job,
                                          const lh_layout *layout,
                                          const lh_cost_layer_range *slice,
                                          lh_cost *cost, lh_error *err)
{
    lh_cost_options options = {.size = sizeof options,
                               .estimate_missing = true};
    lhi_sharding_times sent;
    double step = (double)lhi_layout_count_sequences(layout);
    double n = fmax(1, floor(job->training.global_batch / step)) *
               lhi_job_count_slices(job);
    double each = layout->pipeline / n;
    if (cost->f.blocking_ns == 0 && cost->w.blocking_ns == 0)
        return LH_OK;
    LHI_TRY(lhi_compute_sharding_times(job, layout, slice, &options,
                                       &f->busiest, &sent, err));
    if (cost->f.blocking_ns > 0)
        cost->f.total_ns -= (int64_t)ceil(each * sent.longest_gather);
    cost->w.total_ns -= (int64_t)ceil(each * sent.longest_reduce);
    return LH_OK;
}

/* Adds to site `s` (one or more datacenters) the whole model's costs that
 * depend on all replicas' datacenters: optimizer, data-parallel communication
 * and model memory. `microbatches`: passes per iteration, as in
 * lhi_bound_inputs_add_zero_traffic(). */
static lh_status add_state(lhi_bound_inputs *f, const lh_job *job,
                           const lh_layout *all, uint32_t microbatches,
                           const lhi_stage_placement *spread,
                           uint32_t datacenter, lhi_bound_site *s,
                           lh_error *err)
{
    lh_cost whole;
    const lh_layout own = lhi_layout_in_datacenter(all, datacenter);
    const lh_layout *layout = &own;
    lh_cost_layer_range slice = lhi_stage_range(spread);
    slice.n_layers = job->model->layers;
    slice.embedding = slice.head = true;
    slice.datacenter = datacenter;
    LHI_TRY(compute_cost(f, job, layout, &slice, &whole, err));
    LHI_TRY(remove_end_communication(f, job, layout, &slice, &whole, err));
    /* With one pipeline rank a chunk may wait for less than it sends, because
     * some of it overlaps with the previous chunk. The whole model does not. */
    if (lhi_find_zero(job, layout) > 1 && layout->pipeline > 1) {
        LHI_TRY(lhi_bound_inputs_add_zero_traffic(f, job, layout, microbatches,
                                                  &slice, s, err));
        add_parts(f, s);
    }
    s->f = lhi_max_int64(s->f, lhi_bound_find_pass_ns(f, whole.f.total_ns));
    s->d = lhi_max_int64(s->d, lhi_bound_find_pass_ns(f, whole.d.total_ns));
    s->w = lhi_max_int64(s->w, lhi_bound_find_pass_ns(f, whole.w.total_ns));
    s->optimizer = lhi_bound_undo_rounding(whole.optimizer_ns);
    if (whole.all_gather_ns > 0 || whole.reduce_scatter_ns > 0)
        LHI_TRY(add_sending(f, job, layout, slice, &whole, s, err));
    s->model_memory = whole.weight_bytes + whole.gradient_bytes +
                      whole.optimizer_bytes + whole.activation_bytes;
    return LH_OK;
}

/* Computes the costs of a stage whose replicas are in several datacenters, as
 * one site: the worst of them, because replicas wait for each other.
 * `microbatches` 0: ZeRO stage and sharding are open. */
static lh_status cost_spread(lhi_bound_inputs *f, const lh_job *job,
                             const lh_layout *layout, uint32_t microbatches,
                             const lhi_stage_placement *spread, lh_error *err)
{
    lhi_bound_site *out = &f->sites[f->n_sites];
    for (uint32_t i = 0; i < spread->n_sites; i++) {
        uint32_t dc = spread->sites[i].datacenter;
        lhi_bound_site s = f->sites[dc + 1];
        if (lhi_stage_placement_repeats(job, layout, spread, i))
            continue;
        if (microbatches) {
            LHI_TRY(
                add_state(f, job, layout, microbatches, spread, dc, &s, err));
            clear_unknown(f, &s);
        }
        if (i == 0)
            *out = s;
        else
            lhi_bound_inputs_merge_sites(f, out, &s, true);
    }
    f->n_sites++;
    return LH_OK;
}

/* Returns an earlier stage with the same datacenters and so the same costs as
 * stage `k`; `k` if there is none. Stages in the same datacenters are
 * contiguous. */
static uint32_t find_like_stage(const lhi_bound_inputs *f,
                                const lh_layout *layout,
                                const lhi_layout_placement *places, uint32_t k)
{
    const lhi_stage_placement *a = &places->stages[k];
    for (uint32_t i = k; i > 0 && a->sites == places->stages[i - 1].sites; i--)
        if (lhi_stage_placements_are_alike(f->job, layout, a,
                                           &places->stages[i - 1]))
            return i - 1;
    return k;
}

/* Computes the sites of all stages (each the stage's set of datacenters, with
 * their worst costs), into f->at[]. `microbatches` 0: ZeRO stage and sharding
 * are open. */
static lh_status cost_stages(lhi_bound_inputs *f, const lh_job *job,
                             const lh_layout *layout, uint32_t microbatches,
                             const lhi_layout_placement *places, lh_error *err)
{
    for (uint32_t k = 0; k < layout->pipeline; k++) {
        const lhi_stage_placement *a = &places->stages[k];
        uint32_t like = find_like_stage(f, layout, places, k);
        if (like == k)
            LHI_TRY(cost_spread(f, job, layout, microbatches, a, err));
        f->at[k] = like == k ? f->n_sites - 1 : f->at[like];
    }
    return LH_OK;
}

/* --- all bounds ----------------------------------------------------------- */

/* Raises the lower bound *out to `ns` if that is larger, and then stores the
 * kind of bound, `which`. */
static void raise_bound(lhi_lower_bound *out, int64_t ns, lhi_bound_kind which)
{
    if (ns > out->ns || out->kind == LHI_BOUND_NONE) {
        out->ns = lhi_max_int64(ns, out->ns);
        out->kind = which;
    }
}

/* Returns a lower bound on the iteration time for an open pipeline degree, in
 * ns: the whole work divided evenly over all GPUs. */
static int64_t compute_work_bound(const lhi_bound_inputs *f, const lh_layout *l)
{
    const lhi_bound_site *s = &f->sites[0];
    uint32_t groups = f->job->n_gpus / lhi_group_size(l);
    double microbatches = (double)f->job->training.global_batch /
                          l->micro_batch * lhi_job_count_slices(f->job);
    double ns = microbatches * (double)(s->f + s->d + s->w) / groups;
    return ns < 0x1p60 ? (int64_t)ns : INT64_C(1) << 60;
}

/* Raises the lower bound to the bounds by the messages on each link between
 * datacenters. */
static void apply_link_bounds(const lhi_bound_inputs *f,
                              const lhi_bound_case *c, lhi_lower_bound *out)
{
    size_t pairs = (size_t)f->job->n_datacenters * f->job->n_datacenters;
    for (size_t i = 0; i < pairs; i++)
        if (f->n_messages[i])
            raise_bound(out,
                        lhi_bound_compute_link(c, f->n_messages[i],
                                               f->transfers[i],
                                               f->latencies[i]),
                        LHI_BOUND_LINK);
}

/* Returns a site's datacenter; for a set of datacenters, the one with the least
 * memory. */
static uint32_t find_datacenter(const lhi_bound_inputs *f, uint32_t site)
{
    uint32_t smallest = 0;
    for (uint32_t d = 0; d < f->job->n_datacenters; d++) {
        if (site == d + 1 ||
            f->sites[d + 1].capacity == f->sites[site].capacity)
            return d;
        if (f->sites[d + 1].capacity < f->sites[smallest + 1].capacity)
            smallest = d;
    }
    return smallest;
}

/* Sets out->memory_bytes, the least memory per GPU. If the model does not fit
 * under any partition, sets out->missing and the bound to INT64_MAX. */
static void apply_memory_bound(const lhi_bound_inputs *f,
                               const lhi_bound_case *c, lhi_lower_bound *out)
{
    uint32_t site;
    int64_t held = INT64_MAX;
    for (uint32_t k = 0; k < (c->site_of_stage ? c->stages : 1); k++)
        held = lhi_min_int64(
            held,
            f->sites[c->site_of_stage ? c->site_of_stage[k] : 0].model_memory);
    out->memory_bytes = held / c->stages;
    out->missing = lhi_bound_compute_missing_memory(c, &site);
    if (out->missing == 0)
        return;
    out->missing_in = find_datacenter(f, site);
    out->ns = INT64_MAX;
    out->kind = LHI_BOUND_MEMORY;
}

/* Raises the bound *out on the iteration time to the largest of all lower
 * bounds for case `c` that are valid at `level`: the values decided so far. If
 * `below_ns` is positive, includes the partition bound, whose bisection ends at
 * `below_ns`. Sets out->ns to INT64_MAX if the memory bound excludes the case.
 */
static void apply_bounds(const lhi_bound_inputs *f, lhi_level level,
                         int64_t below_ns, const lhi_bound_case *c,
                         lhi_lower_bound *out)
{
    raise_bound(out, lhi_bound_compute_work(c), LHI_BOUND_WORK);
    raise_bound(out, lhi_bound_compute_layers(c), LHI_BOUND_LAYERS);
    if (level >= LHI_LEVEL_PLACED) {
        raise_bound(out, lhi_bound_compute_path(c), LHI_BOUND_PATH);
        raise_bound(out, lhi_bound_compute_warmup(c), LHI_BOUND_WARMUP);
        raise_bound(out, lhi_bound_compute_residency(c), LHI_BOUND_RESIDENCY);
        apply_link_bounds(f, c, out);
    }
    int64_t optimizer = INT64_MAX, late = INT64_MAX;
    for (uint32_t k = 0; c->site_of_stage && k < c->stages; k++) {
        optimizer =
            lhi_min_int64(optimizer, f->sites[c->site_of_stage[k]].optimizer);
        late = lhi_min_int64(late, f->sites[c->site_of_stage[k]].late_reduce);
    }
    int64_t after = lhi_find_iteration_overhead_ns(f->job);
    if (level >= LHI_LEVEL_STATE)
        after += optimizer / c->stages + late;
    if (below_ns > 0)
        raise_bound(
            out,
            lhi_bound_compute_partition(c, f->mem, out->ns, below_ns - after),
            LHI_BOUND_WARMUP);
    out->ns += after;
    apply_memory_bound(f, c, out);
}

/* Computes in *out the lower bound on the iteration time of all configurations
 * that agree with `config` in the values decided at `level`. If `below_ns` is
 * positive, includes the partition bound, whose bisection ends at `below_ns`.
 */
static lh_status compute_bound(lhi_bound_inputs *f, lhi_level level,
                               const lhi_config *config, int64_t below_ns,
                               lhi_lower_bound *out, lh_error *err)
{
    lh_job job;
    lh_layout layout;
    *out = (lhi_lower_bound){0};
    complete_with_cheapest(f, level, config, &job, &layout);
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
        /* The numbers of microbatches and ranks follow from `sites` if it fixes
         * them. */
        raise_bound(out,
                    job.layout.group_micro_batches || job.layout.site_tensors
                        ? 0
                        : compute_work_bound(f, &layout),
                    LHI_BOUND_WORK);
        return LH_OK;
    }
    uint32_t v = level >= LHI_LEVEL_COMPLETE ? layout.chunks_per_device : 0;
    lhi_bound_case c = {
        .layers = f->job->model->layers,
        .stages = config->layout.pipeline,
        .chunks_per_device = v,
        .microbatches = config->microbatches,
        .placement = v ? config->placement : LH_PLACEMENT_OTHER,
        .least_layers = lhi_layers_requested_min(f->job) ? 1 : 0,
        .n_empty_chunks = 2 + lhi_layers_requested_empty_chunks(f->job),
        .first_ns = f->sites[1].f + f->sites[1].d + f->sites[1].w,
        .n_kinds = f->n_kinds,
        .kind_of = f->kind_of,
        .sites = f->sites};
    memcpy(c.n_of_part, f->n_of_part, sizeof c.n_of_part);
    if (v && c.least_layers)
        c.least_layers =
            lhi_bound_compute_least_layers(c.layers, c.stages * v, f->ratio);
    if (level < LHI_LEVEL_PLACED) {
        apply_bounds(f, level, below_ns, &c, out);
        return LH_OK;
    }
    lhi_layout_placement places;
    lhi_mark mark = lhi_arena_mark(f->mem);
    const lh_layout *l = &config->layout;
    lh_status status = lhi_layout_place(f->job, l, f->mem, &places, err);
    if (status == LH_OK)
        status = cost_stages(
            f, &job, l, level >= LHI_LEVEL_STATE ? config->microbatches : 0,
            &places, err);
    if (status == LH_OK)
        status = lhi_bound_inputs_add_hops(f, l, &places, &c, err);
    c.site_of_stage = f->at;
    if (status == LH_OK)
        apply_bounds(f, level, below_ns, &c, out);
    lhi_arena_rewind(f->mem, mark);
    return status;
}

lh_status lhi_bound_inputs_compute(lhi_bound_inputs *f, lhi_level level,
                                   const lhi_config *config,
                                   lhi_lower_bound *out, lh_error *err)
{
    return compute_bound(f, level, config, 0, out, err);
}

lh_status lhi_bound_inputs_compute_tight(lhi_bound_inputs *f,
                                         const lhi_config *config,
                                         int64_t below_ns, lhi_lower_bound *out,
                                         lh_error *err)
{
    return compute_bound(f, LHI_LEVEL_COMPLETE, config, below_ns, out, err);
}

lh_status lhi_bound_inputs_compute_passes(lhi_bound_inputs *f,
                                          const lhi_config *config,
                                          uint32_t datacenter, int64_t *ns,
                                          lh_error *err)
{
    lh_job job;
    lh_layout layout;
    lhi_bound_site *s = &f->sites[0];
    complete_with_cheapest(f, LHI_LEVEL_GROUP, config, &job, &layout);
    f->last.tensor = 0; /* the sites' costs are overwritten */
    LHI_TRY(cost_site(f, &job, &layout, datacenter, s, err));
    clear_unknown(f, s);
    *ns = s->f + s->d + s->w;
    return LH_OK;
}

/* Sets f->times_known and f->memory_known: whether times and memory from the
 * cost model are valid lower bounds. A profile that measured passes replaces
 * the memory, one that measured whole chunks also the times. */
static void check_profile(lhi_bound_inputs *f)
{
    const lh_profile *p = f->job->profile;
    f->times_known = true;
    /* Each datacenter has its own activations with unequal microbatches or
     * tensor degrees. */
    f->memory_known =
        !f->job->layout.group_micro_batches && !f->job->layout.site_tensors;
    for (uint32_t i = 0; p && i < p->n_entries; i++) {
        f->memory_known = false;
        if (p->entries[i].kind == LH_PROFILE_CHUNK)
            f->times_known = false;
    }
}

/* Returns the least duration of a pass relative to its cost, for lower bounds;
 * below 1 in an overlapped pair (F and B as one pass), or for a sequence's
 * first slice. */
static double find_least_share(const lh_job *job)
{
    const double k = lhi_job_count_slices(job);
    if (job->framework.overlap_f_b > 0)
        return job->framework.overlap_f_b;
    return 1 + lhi_find_slice_attention(job) * (1 / k - 1);
}

lh_status lhi_bound_inputs_make(const lh_job *job, double ratio,
                                lhi_bound_inputs **out, lh_error *err)
{
    size_t n = job->n_datacenters, layers = job->model->layers;
    lhi_bound_inputs *f = calloc(1, sizeof *f);
    if (!f)
        return lhi_fail_nomem(err);
    *f = (lhi_bound_inputs){.job = job,
                            .ratio = ratio,
                            .least_share = find_least_share(job),
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
        lhi_bound_inputs_free(f);
        return lhi_fail_nomem(err);
    }
    find_kinds(f);
    check_profile(f);
    *out = f;
    return LH_OK;
}

void lhi_bound_inputs_ignore_memory(lhi_bound_inputs *f)
{
    f->memory_known = false;
}

void lhi_bound_inputs_free(lhi_bound_inputs *f)
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
