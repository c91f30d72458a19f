/* SPDX-License-Identifier: Apache-2.0 */
/* From a layout to the scheduling problem: costs become passes, hops links. */
#include "plan/layout.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct builder {
    const lh_job *job; /* with the recomputation of the configuration */
    const lhi_config *config;
    lhi_arena *mem;
    lhi_rank *ranks;
    uint32_t data_datacenters;
    lh_chunk *chunks;
    uint32_t n_chunks, n_links;
    lh_link *links;
    uint32_t *last_link, *link_before; /* per device, per link: see hop_to() */
    int64_t *optimizer_ns, *workspace; /* per device */
    bool *has_chunk;                   /* per device */
    lhi_built *built;
} builder;

static void slower(lh_pass_cost *pass, const lh_pass_cost *other)
{
    if (other->total_ns > pass->total_ns)
        *pass = *other;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Replicas spread over datacenters wait for each other: each pass takes as long
 * as where it is slowest, and memory is that of the fullest. Their
 * communication is in `spread`. */
static lh_status cost_of_replicas(const builder *b, lh_cost_slice *slice,
                                  const lh_cost_options *options,
                                  const lh_cost *spread, lh_cost *cost,
                                  lh_error *err)
{
    slice->data_datacenters = 1;
    for (uint32_t dc = 0; dc < b->data_datacenters; dc++) {
        lh_cost here;
        slice->datacenter = dc;
        LHI_TRY(lh_cost_chunk(b->job, &b->config->layout, slice, options,
                              &here, err));
        if (dc == 0) {
            *cost = here;
            continue;
        }
        slower(&cost->f, &here.f);
        slower(&cost->d, &here.d);
        slower(&cost->w, &here.w);
        cost->optimizer_ns = larger(cost->optimizer_ns, here.optimizer_ns);
        if (cost->time_source != here.time_source)
            cost->time_source = LH_COST_MIXED;
    }
    cost->all_gather_ns = spread->all_gather_ns;
    cost->reduce_scatter_ns = spread->reduce_scatter_ns;
    cost->data_latency_ns = spread->data_latency_ns;
    /* State that is sharded is so over all replicas, wherever they are. */
    cost->static_bytes = spread->static_bytes;
    cost->workspace_bytes = spread->workspace_bytes;
    return LH_OK;
}

static lh_status cost_of(const builder *b, uint32_t c, lh_cost *cost,
                         lh_error *err)
{
    lh_cost_slice slice = {
        .embedding = c == 0,
        .head = c + 1 == b->n_chunks,
        .chunk = c,
        .of = b->n_chunks,
        .datacenter = b->ranks[lhi_config_device(b->config, c)].datacenter,
        .data_datacenters = b->data_datacenters,
    };
    lhi_config_layers(b->job->model->layers, b->config, c, &slice.first_layer,
                      &slice.n_layers);
    lh_cost_options options = {.size = sizeof options,
                               .estimate_missing = true};
    lh_cost spread;
    LHI_TRY(lh_cost_chunk(b->job, &b->config->layout, &slice, &options, &spread,
                          err));
    if (b->data_datacenters > 1)
        return cost_of_replicas(b, &slice, &options, &spread, cost, err);
    *cost = spread;
    return LH_OK;
}

static lh_status add_chunk(builder *b, uint32_t c, lh_error *err)
{
    lh_cost cost;
    LHI_TRY(cost_of(b, c, &cost, err));
    uint32_t d = lhi_config_device(b->config, c);
    lh_chunk *chunk = &b->chunks[c];
    chunk->device = d;
    chunk->f_ns = cost.f.total_ns;
    chunk->d_ns = cost.d.total_ns;
    chunk->w_ns = cost.w.total_ns;
    chunk->mem_f = cost.activation_bytes;
    chunk->mem_d = cost.weight_input_bytes - cost.activation_bytes;
    chunk->mem_w = -cost.weight_input_bytes;
    /* Weights, gradients, optimizer; measured where the profile says so. */
    chunk->mem_static =
        cost.static_bytes - cost.workspace_bytes - cost.reserved_bytes;
    /* What is there once, however many chunks a device has. */
    if (!b->has_chunk[d])
        chunk->mem_static += cost.reserved_bytes;
    b->has_chunk[d] = true;
    if (cost.workspace_bytes > b->workspace[d]) {
        chunk->mem_static += cost.workspace_bytes - b->workspace[d];
        b->workspace[d] = cost.workspace_bytes;
    }
    chunk->all_gather_ns = cost.all_gather_ns;
    chunk->reduce_scatter_ns = cost.reduce_scatter_ns;
    chunk->dp_latency_ns =
        cost.all_gather_ns || cost.reduce_scatter_ns ? cost.data_latency_ns : 0;
    b->optimizer_ns[d] += cost.optimizer_ns;
    if (c == 0)
        b->built->source = cost.time_source;
    else if (b->built->source != cost.time_source)
        b->built->source = LH_COST_MIXED;
    return LH_OK;
}

/* The message between two ranks; of replicas spread over datacenters, in the
 * one where it takes longest. */
static lh_status message_between(const builder *b, uint32_t from, uint32_t to,
                                 lh_cost_message *out, lh_error *err)
{
    const lhi_rank *a = &b->ranks[from], *z = &b->ranks[to];
    lh_cost_options options = {.size = sizeof options,
                               .estimate_missing = true};
    for (uint32_t dc = 0; dc < b->data_datacenters; dc++) {
        lh_cost_hop hop = {a->datacenter, z->datacenter, a->first_gpu,
                           z->first_gpu};
        lh_cost_message here;
        if (b->data_datacenters > 1)
            hop.from = hop.to = dc;
        LHI_TRY(lh_cost_hop_message(b->job, &b->config->layout, &hop, &options,
                                    &here, err));
        if (dc == 0) {
            *out = here;
            continue;
        }
        out->transfer_ns = larger(out->transfer_ns, here.transfer_ns);
        out->latency_ns = larger(out->latency_ns, here.latency_ns);
    }
    return LH_OK;
}

static lh_status add_link(builder *b, uint32_t from, uint32_t to, lh_error *err)
{
    const lh_datacenter *dcs = b->job->datacenters;
    lh_cost_message message;
    LHI_TRY(message_between(b, from, to, &message, err));
    lh_link *link = &b->links[b->n_links];
    *link = (lh_link){from, to, message.latency_ns, message.transfer_ns, NULL};
    if (message.kind == LH_PATH_WAN) {
        /* No site has '>' in its name, so no two links get one name. */
        char name[256];
        snprintf(name, sizeof name, "%s->%s",
                 dcs[b->ranks[from].datacenter].name,
                 dcs[b->ranks[to].datacenter].name);
        link->name = lhi_arena_strdup(b->mem, name);
        if (!link->name)
            return lhi_fail_nomem(err);
    }
    b->link_before[b->n_links] = b->last_link[from];
    b->last_link[from] = ++b->n_links;
    return LH_OK;
}

/* Links of a device are chained, the latest first, to find repeated ones. */
static lh_status hop_to(builder *b, uint32_t from, uint32_t to, lh_error *err)
{
    if (from == to)
        return LH_OK;
    for (uint32_t i = b->last_link[from]; i; i = b->link_before[i - 1])
        if (b->links[i - 1].to == to)
            return LH_OK;
    return add_link(b, from, to, err);
}

static lh_status allocate(builder *b, lh_error *err)
{
    uint32_t P = b->config->layout.pipeline;
    b->ranks = LHI_NEW(b->mem, lhi_rank, P);
    b->chunks = LHI_NEW(b->mem, lh_chunk, b->n_chunks);
    b->links = LHI_NEW(b->mem, lh_link, 2 * (size_t)b->n_chunks);
    b->link_before = LHI_NEW(b->mem, uint32_t, 2 * (size_t)b->n_chunks);
    b->last_link = LHI_NEW(b->mem, uint32_t, P);
    b->optimizer_ns = LHI_NEW(b->mem, int64_t, P);
    b->workspace = LHI_NEW(b->mem, int64_t, P);
    b->has_chunk = LHI_NEW(b->mem, bool, P);
    if (!b->ranks || !b->chunks || !b->links || !b->link_before ||
        !b->last_link || !b->optimizer_ns || !b->workspace || !b->has_chunk)
        return lhi_fail_nomem(err);
    return LH_OK;
}

/* The gradient of a matrix that embedding and head share, after everything. */
static lh_status add_tied_embedding(builder *b, lh_error *err)
{
    uint32_t first = b->chunks[0].device;
    uint32_t last = b->chunks[b->n_chunks - 1].device;
    if (first == last)
        return LH_OK;
    lh_cost_hop hop = {b->ranks[first].datacenter, b->ranks[last].datacenter,
                       b->ranks[first].first_gpu, b->ranks[last].first_gpu};
    lh_cost_options options = {.size = sizeof options,
                               .estimate_missing = true};
    int64_t ns;
    LHI_TRY(lh_cost_tied_embedding(b->job, &b->config->layout, &hop, &options,
                                   &ns, err));
    b->built->overhead_ns += ns;
    return LH_OK;
}

static lh_status finish(builder *b, lh_error *err)
{
    uint32_t P = b->config->layout.pipeline;
    int64_t *limits = LHI_NEW(b->mem, int64_t, P);
    uint32_t *at = LHI_NEW(b->mem, uint32_t, P);
    lh_site *sites = LHI_NEW(b->mem, lh_site, b->job->n_datacenters);
    if (!limits || !at || !sites)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < b->job->n_datacenters; i++)
        sites[i].name = b->job->datacenters[i].name;
    for (uint32_t d = 0; d < P; d++) {
        at[d] = b->ranks[d].datacenter;
        limits[d] = b->job->datacenters[at[d]].gpu.memory_bytes;
        /* Every replica has to fit where it is. */
        for (uint32_t dc = 0; dc < b->data_datacenters; dc++) {
            int64_t room = b->job->datacenters[dc].gpu.memory_bytes;
            if (b->data_datacenters > 1 && room < limits[d])
                limits[d] = room;
        }
        if (b->optimizer_ns[d] > b->built->optimizer_ns)
            b->built->optimizer_ns = b->optimizer_ns[d];
    }
    b->built->overhead_ns += (int64_t)lh_cost_defaults()->iteration_ns;
    lh_pipeline_desc desc = {
        .size = sizeof desc,
        .n_devices = P,
        .n_microbatches = b->config->microbatches,
        .n_chunks = b->n_chunks,
        .chunks = b->chunks,
        .n_links = b->n_links,
        .links = b->links,
        .memory_limits = limits,
        .memory_unit = "bytes",
        .n_sites = b->job->n_datacenters,
        .sites = sites,
        .device_sites = at,
    };
    return lh_pipeline_make(&desc, &b->built->pipeline, err);
}

static lh_status build(builder *b, lh_error *err)
{
    const lh_layout *l = &b->config->layout;
    LHI_TRY(allocate(b, err));
    LHI_TRY(lhi_layout_place(b->job, l, b->ranks, &b->data_datacenters, err));
    for (uint32_t c = 0; c < b->n_chunks; c++)
        LHI_TRY(add_chunk(b, c, err));
    for (uint32_t c = 0; c + 1 < b->n_chunks; c++) {
        LHI_TRY(hop_to(b, b->chunks[c].device, b->chunks[c + 1].device, err));
        LHI_TRY(hop_to(b, b->chunks[c + 1].device, b->chunks[c].device, err));
    }
    LHI_TRY(add_tied_embedding(b, err));
    return finish(b, err);
}

lh_status lhi_layout_build(const lh_job *job, const lhi_config *config,
                           lhi_built *built, lh_error *err)
{
    const lh_layout *l = &config->layout;
    lh_job as_configured = *job;
    as_configured.training.recompute = config->recompute;
    if (config->zero_given)
        as_configured.training.zero = config->zero;
    builder b = {.job = &as_configured, .config = config, .built = built};
    uint64_t n_chunks = (uint64_t)l->pipeline * l->chunks_per_device;
    if (n_chunks > job->model->layers)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "%" PRIu64 " chunks (pipeline x chunks_per_device) are "
                        "more than the model's %" PRIu32 " layers",
                        n_chunks, job->model->layers);
    b.n_chunks = (uint32_t)n_chunks;
    *built = (lhi_built){0};
    b.mem = lhi_arena_make(0);
    if (!b.mem)
        return lhi_fail_nomem(err);
    lh_status status = build(&b, err);
    lhi_arena_free(b.mem);
    return status;
}

lh_status lh_plan_pipeline(const lh_job *job, const lh_layout *layout,
                           lh_placement placement, lh_recompute recompute,
                           lh_pipeline **out, int64_t *optimizer_ns,
                           lh_error *err)
{
    lhi_config config = {
        .layout = *layout, .placement = placement, .recompute = recompute};
    lhi_built built;
    uint64_t step = (uint64_t)layout->data * layout->micro_batch;
    if (!layout->tensor || !layout->context || !layout->expert ||
        !layout->pipeline || !step || !layout->chunks_per_device)
        return lhi_fail(err, LH_EINVAL, "the layout is not complete");
    long double gpus = (long double)layout->tensor * layout->context *
                       layout->expert * layout->pipeline * layout->data;
    if (gpus > job->n_gpus)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "the layout takes %.0Lf GPUs; the job has %" PRIu32,
                        gpus, job->n_gpus);
    if (job->training.global_batch % step != 0)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "a global batch of %" PRIu32 " does not divide by data "
                        "%" PRIu32 " x micro_batch %" PRIu32,
                        job->training.global_batch, layout->data,
                        layout->micro_batch);
    config.microbatches = (uint32_t)(job->training.global_batch / step);
    if (placement == LH_PLACEMENT_WAVE && layout->chunks_per_device != 2)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "a wave has 2 chunks per device, not %" PRIu32,
                        layout->chunks_per_device);
    LHI_TRY(lhi_layout_build(job, &config, &built, err));
    *out = built.pipeline;
    if (optimizer_ns)
        *optimizer_ns = built.optimizer_ns + built.overhead_ns;
    return LH_OK;
}
