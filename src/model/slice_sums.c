/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over the parts of a layer range. */
#include "model/slice_sums.h"
#include "model/profile_lookup.h"

#include "base/fail.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

/* Sets the pass times *out from a profile measurement `m`. Adds the modelled
 * communication of `work`, and the recomputation of a layer (`is_layer`), if
 * the measurement lacks them. `est`: modelled times, for the FLOPs. */
static void use_measured_time(const lhi_cost_context *p,
                              const lhi_measurement *m,
                              const lhi_pass_work *work,
                              const lhi_pass_times *est, bool is_layer,
                              lhi_pass_times *out)
{
    lhi_hidden_exchange hidden;

    *out = (lhi_pass_times){0};
    out->f.flops = est->f.flops;
    out->d.flops = est->d.flops;
    out->w.flops = est->w.flops;
    out->f.total = m->f_ns;
    out->d.total = m->d_ns;
    out->w.total = m->w_ns;
    if (!m->communication) {
        lhi_compute_hidden_exchange(p, work, &hidden);
        out->f.communication =
            lhi_compute_communication_time(p, &work->f) - hidden.f_ns;
        out->d.communication =
            lhi_compute_communication_time(p, &work->d) - hidden.d_ns;
        out->f.total += out->f.communication;
        out->d.total += out->d.communication;
        out->f.inter_node = lhi_compute_wire_time(p, &work->f);
        out->d.inter_node = lhi_compute_wire_time(p, &work->d);
    }
    if (!m->recompute_done && is_layer) {
        /* Full recomputation repeats F; selective recomputation adds the
         * estimate. */
        if (p->shape.recompute == LH_RECOMPUTE_FULL)
            out->d.total += m->f_ns;
    }
}

/* Returns the time to add to a layer's D pass for recomputation that a
 * measurement lacks, in ns. With `communication` it includes the repeated
 * communication. */
static double compute_selective_recompute_time(const lhi_cost_context *p,
                                               uint32_t layer,
                                               bool communication)
{
    lhi_shape plain = p->shape;
    lhi_pass_work with, without;
    lhi_time_breakdown a, b;

    if (p->shape.recompute != LH_RECOMPUTE_SELECTIVE &&
        p->shape.recompute != LH_RECOMPUTE_MODULES)
        return 0;
    plain.recompute = LH_RECOMPUTE_NONE;
    lhi_work_layer(&p->shape, layer, &with);
    lhi_work_layer(&plain, layer, &without);
    lhi_compute_work_time(p, &with.d, &a);
    lhi_compute_work_time(p, &without.d, &b);
    return a.total - b.total -
           (communication ? 0 : a.communication - b.communication);
}

/* Returns the times and resident memory of one part: a layer (`is_layer`,
 * number `layer`), the embedding or the head. Measured where `m` has a
 * measurement, else modelled from `work`. `held`: modelled memory. */
static lhi_slice_part build_part(const lhi_cost_context *p,
                                 const lhi_measurement *m,
                                 const lhi_pass_work *work,
                                 const lhi_resident_memory *held, bool is_layer,
                                 uint32_t layer)
{
    lhi_pass_times estimate;
    lhi_slice_part out = {
        .memory = *held, .static_bytes = -1, .measured = m->found};

    lhi_compute_pass_times(p, work, is_layer, &estimate);
    out.times = estimate;
    if (m->found) {
        use_measured_time(p, m, work, &estimate, is_layer, &out.times);
        if (!m->recompute_done && is_layer)
            out.times.d.total +=
                compute_selective_recompute_time(p, layer, m->communication);
        out.static_bytes = m->static_bytes;
    }
    /* A measurement without recomputation does not give the resident memory
     * with it. */
    if (m->found && m->activation_bytes >= 0 && m->recompute_done) {
        out.memory.weight_input = fmin(held->weight_input, m->activation_bytes);
        out.memory.activation = m->activation_bytes;
        out.bytes_measured = true;
    }
    return out;
}

/* Adds the times and memory of part `one` (layer, embedding or head) to the
 * sums of its layer range. */
static void add_part(const lhi_slice_part *one, lhi_slice_sums *s)
{
    if (one->measured)
        s->any_measured = true;
    else
        s->any_estimated = true;
    if (one->bytes_measured)
        s->any_bytes_measured = true;
    else
        s->any_bytes_estimated = true;
    lhi_time_breakdown_add(&s->time.f, &one->times.f, 1);
    lhi_time_breakdown_add(&s->time.d, &one->times.d, 1);
    lhi_time_breakdown_add(&s->time.w, &one->times.w, 1);
    s->part_ns[0] += one->times.f.total;
    s->part_ns[1] += one->times.d.total;
    s->part_ns[2] += one->times.w.total;
    s->memory.activation += one->memory.activation;
    s->memory.weight_input += one->memory.weight_input;
    s->memory.d_workspace =
        fmax(s->memory.d_workspace, one->memory.d_workspace);
    if (one->static_bytes < 0)
        s->static_bytes = -1;
    else if (s->static_bytes >= 0)
        s->static_bytes += one->static_bytes;
}

/* Adds the times and memory of all layers in the range. Each kind of layer is
 * computed once. */
static lh_status sum_layers(const lhi_cost_context *p, lhi_slice_sums *s,
                            lh_error *err)
{
    const lh_model *model = p->job->model;
    bool made[LHI_LAYER_KINDS] = {false};
    uint32_t n;

    for (uint32_t i = 0; i < p->slice->n_layers; i += n) {
        uint32_t layer = p->slice->first_layer + i;
        bool moe = lh_model_layer_is_moe(model, layer);
        const uint32_t kind = lhi_find_layer_kind(model, layer);
        lhi_slice_part *one = &s->layers[kind];
        lhi_measurement m;
        lhi_pass_work work;
        lhi_resident_memory held;

        if (!made[kind]) {
            LHI_TRY(lhi_measurement_find(
                p->job, p->layout, p->slice, &p->options,
                moe ? LH_PROFILE_MOE_LAYER : LH_PROFILE_LAYER, &m, err));
            lhi_work_layer(&p->shape, layer, &work);
            lhi_resident_memory_compute_layer(&p->shape, layer, &held);
            *one = build_part(p, &m, &work, &held, true, layer);
            made[kind] = true;
        }
        n = lhi_count_equal_layers(model, layer, p->slice->n_layers - i);
        for (uint32_t k = 0; k < n; k++)
            add_part(one, s);
    }
    return LH_OK;
}

/* Computes the work and the resident memory (*held) of the parts after the
 * layers: multi-token prediction modules, the head, or both. */
static void compute_end_work(const lhi_cost_context *p, lhi_pass_work *work,
                             lhi_resident_memory *held)
{
    lhi_pass_work modules;
    lhi_resident_memory kept;

    *work = (lhi_pass_work){0};
    *held = (lhi_resident_memory){0};
    if (p->slice->head) {
        lhi_work_head(&p->shape, work);
        lhi_resident_memory_compute_head(&p->shape, held);
    }
    if (!lhi_slice_has_mtp(p->job->model, p->slice))
        return;
    lhi_work_mtp(&p->shape, &modules);
    lhi_resident_memory_compute_mtp(&p->shape, &kept);
    lhi_work_add(&work->f, &modules.f, 1);
    lhi_work_add(&work->d, &modules.d, 1);
    lhi_work_add(&work->w, &modules.w, 1);
    held->activation += kept.activation;
    held->weight_input += kept.weight_input;
    held->d_workspace = fmax(held->d_workspace, kept.d_workspace);
}

/* Subtracts the hidden time of the prediction modules' all-to-alls from the
 * modelled times of a layer range's end. */
static void hide_module_exchanges(const lhi_cost_context *p,
                                  lhi_pass_times *times)
{
    const lh_model *m = p->job->model;
    uint32_t first, n = lhi_model_mtp_layers(m, &first);

    for (uint32_t i = 0; i < n; i++) {
        lhi_pass_work layer;
        lhi_hidden_exchange hidden;

        lhi_work_layer(&p->shape, first + i, &layer);
        lhi_compute_hidden_exchange(p, &layer, &hidden);
        lhi_time_breakdown_hide(&times->f, m->mtp_layers * hidden.f_ns);
        lhi_time_breakdown_hide(&times->d, m->mtp_layers * hidden.d_ns);
    }
}

/* Adds the times and memory of embedding and head, if the layer range contains
 * them. */
static lh_status sum_ends(const lhi_cost_context *p, lhi_slice_sums *s,
                          lh_error *err)
{
    lhi_measurement m;
    lhi_pass_work work;
    lhi_resident_memory held;

    if (p->slice->embedding) {
        LHI_TRY(lhi_measurement_find(p->job, p->layout, p->slice, &p->options,
                                     LH_PROFILE_EMBEDDING, &m, err));
        lhi_work_embedding(&p->shape, &work);
        lhi_resident_memory_compute_embedding(&p->shape, &held);
        s->embedding = build_part(p, &m, &work, &held, false, 0);
        add_part(&s->embedding, s);
    }
    if (!lhi_slice_has_end(p->slice))
        return LH_OK;
    m = (lhi_measurement){0}; /* modules without the head are never measured */
    if (p->slice->head)
        LHI_TRY(lhi_measurement_find(p->job, p->layout, p->slice, &p->options,
                                     LH_PROFILE_HEAD, &m, err));
    compute_end_work(p, &work, &held);
    s->head = build_part(p, &m, &work, &held, false, 0);
    if (lhi_slice_has_mtp(p->job->model, p->slice) && !m.found)
        hide_module_exchanges(p, &s->head.times);
    add_part(&s->head, s);
    return LH_OK;
}

/* Sets the sums of the layer range from `m`, the profile's measurement of the
 * whole chunk. */
static lh_status sum_chunk(const lhi_cost_context *p, const lhi_measurement *m,
                           lhi_slice_sums *s, lh_error *err)
{
    lhi_cost_context bare = *p;

    bare.options.ignore_profile = true;
    LHI_TRY(sum_layers(&bare, s, err));
    LHI_TRY(sum_ends(&bare, s, err));
    const lhi_pass_times estimate = s->time;
    s->any_measured = true;
    s->any_estimated = false;
    s->static_bytes = m->static_bytes;
    s->time.f =
        (lhi_time_breakdown){.flops = estimate.f.flops, .total = m->f_ns};
    s->time.d =
        (lhi_time_breakdown){.flops = estimate.d.flops, .total = m->d_ns};
    s->time.w =
        (lhi_time_breakdown){.flops = estimate.w.flops, .total = m->w_ns};
    if (!m->communication) {
        s->time.f.communication = estimate.f.communication;
        s->time.d.communication = estimate.d.communication;
        s->time.f.total += s->time.f.communication;
        s->time.d.total += s->time.d.communication;
    }
    if (!m->recompute_done) {
        if (p->shape.recompute == LH_RECOMPUTE_FULL)
            s->time.d.total += m->f_ns;
        for (uint32_t i = 0; i < p->slice->n_layers; i++)
            s->time.d.total += compute_selective_recompute_time(
                p, p->slice->first_layer + i, m->communication);
    }
    if (m->activation_bytes >= 0 && m->recompute_done) {
        s->memory.activation = m->activation_bytes;
        s->memory.weight_input =
            fmin(s->memory.weight_input, m->activation_bytes);
        s->any_bytes_measured = true;
        s->any_bytes_estimated = false;
    }
    return LH_OK;
}

lh_status lhi_slice_sums_build(const lhi_cost_context *p, lhi_slice_sums *out,
                               lh_error *err)
{
    lhi_measurement m;

    memset(out, 0, offsetof(lhi_slice_sums, layers));
    if (p->slice->n_chunks) {
        LHI_TRY(lhi_measurement_find(p->job, p->layout, p->slice, &p->options,
                                     LH_PROFILE_CHUNK, &m, err));
        if (m.found)
            return sum_chunk(p, &m, out, err);
    }
    LHI_TRY(sum_layers(p, out, err));
    return sum_ends(p, out, err);
}
