/* SPDX-License-Identifier: Apache-2.0 */
/* Converts a simulated timeline into a trace. */
#include "base/arena.h"
#include "report/trace/trace_internal.h"
#include "schedule/pipeline/accessors.h"
#include "schedule/pipeline/pipeline_internal.h"

#include <longhaul/experimental/simulate.h>

/* Returns the sum of two memory amounts, limited to the int64_t range: it is
 * only drawn. */
static int64_t capped_sum(int64_t a, int64_t b)
{
    if (b > 0 && a > INT64_MAX - b)
        return INT64_MAX;
    if (b < 0 && a < INT64_MIN - b)
        return INT64_MIN;
    return a + b;
}

/* Fills in each device's datacenter, static memory in the pipeline's unit,
 * memory limit and data-parallel link. */
static void fill_devices(const lh_pipeline *pipeline, lh_trace_device *devices,
                         uint32_t n)
{
    for (uint32_t d = 0; d < n; d++) {
        uint32_t site = lh_pipeline_device_site(pipeline, d);
        devices[d].site = site == LH_NONE ? 0 : site;
        devices[d].memory_limit = lh_pipeline_memory_limit(pipeline, d);
        devices[d].dp_link = lh_pipeline_dp_link(pipeline, d);
    }
    for (uint32_t c = 0; c < lh_pipeline_n_chunks(pipeline); c++) {
        const lh_chunk *chunk = lh_pipeline_chunk(pipeline, c);
        lh_trace_device *device = &devices[chunk->device];
        device->memory_static =
            capped_sum(device->memory_static, chunk->mem_static);
    }
}

/* Fills in the trace's passes with times and memory. Memory that a pass
 * allocates counts from its start; memory that it frees counts from its end
 * (CrossPipe §4.1). */
static void fill_runs(const lh_pipeline *pipeline, const lh_timeline *timeline,
                      const lh_trace_device *devices, lh_trace_run *runs)
{
    for (uint32_t d = 0; d < lh_timeline_n_devices(timeline); d++) {
        uint32_t n;
        const lh_timeline_run *from = lh_timeline_runs(timeline, d, &n);
        int64_t memory = devices[d].memory_static;
        for (uint32_t i = 0; i < n; i++) {
            const lh_chunk *chunk =
                lh_pipeline_chunk(pipeline, from[i].pass.chunk);
            int64_t change = lhi_pass_memory_change(chunk, &from[i].pass);
            *runs++ = (lh_trace_run){
                .pass = from[i].pass,
                .device = d,
                .waits_for = from[i].message,
                .start_ns = from[i].start_ns,
                .end_ns = from[i].end_ns,
                .issued_ns = from[i].issued_ns,
                .memory = change > 0 ? capped_sum(memory, change) : memory,
                .memory_after = capped_sum(memory, change),
            };
            memory = capped_sum(memory, change);
        }
    }
}

/* Converts n simulated messages to trace messages. */
static void fill_messages(const lh_message *from, uint32_t n,
                          lh_trace_message *to)
{
    for (uint32_t i = 0; i < n; i++)
        to[i] = (lh_trace_message){
            .producer = from[i].producer,
            .consumer = from[i].consumer,
            .from = from[i].from,
            .to = from[i].to,
            .link = from[i].resource,
            .produced_ns = from[i].produced_ns,
            .ready_ns = from[i].ready_ns,
            .depart_ns = from[i].depart_ns,
            .sent_ns = from[i].sent_ns,
            .arrive_ns = from[i].arrive_ns,
        };
}

/* Converts the simulated data-parallel collectives, with their kind and bucket
 * if the pipeline defines them. */
static void fill_collectives(const lh_pipeline *pipeline,
                             const lh_collective *from, uint32_t n,
                             lh_trace_collective *to)
{
    for (uint32_t i = 0; i < n; i++) {
        to[i] = (lh_trace_collective){
            .chunk = from[i].chunk,
            .device = from[i].device,
            .is_reduce_scatter = from[i].is_reduce_scatter,
            .ready_ns = from[i].ready_ns,
            .depart_ns = from[i].depart_ns,
            .sent_ns = from[i].sent_ns,
            .arrive_ns = from[i].arrive_ns,
        };
        if (from[i].op == LH_NONE)
            continue;
        const lh_dp_op *op = lh_pipeline_dp_op(pipeline, from[i].op);
        to[i].kind = op->kind;
        if (op->n_buckets > 1) {
            to[i].bucket = op->bucket;
            to[i].n_buckets = op->n_buckets;
        }
    }
}

/* Converts n simulated copies to and from host memory to trace copies. */
static void fill_copies(const lh_offload_copy *from, uint32_t n,
                        lh_trace_offload *to)
{
    for (uint32_t i = 0; i < n; i++)
        to[i] = (lh_trace_offload){.chunk = from[i].chunk,
                                   .microbatch = from[i].microbatch,
                                   .device = from[i].device,
                                   .is_reload = from[i].is_reload,
                                   .ready_ns = from[i].ready_ns,
                                   .depart_ns = from[i].depart_ns,
                                   .end_ns = from[i].end_ns};
}

/* Converts all parts of a simulated timeline into the trace's arrays, allocated
 * in `mem`; names stay borrowed. */
static lh_status copy_timeline(const lh_pipeline *pipeline,
                               const lh_timeline *timeline, lhi_arena *mem,
                               lh_trace *t, lh_error *err)
{
    const lh_message *messages = lh_timeline_messages(timeline, &t->n_messages);
    const lh_collective *collectives =
        lh_timeline_collectives(timeline, &t->n_collectives);
    const lh_offload_copy *copies = lh_timeline_copies(timeline, &t->n_copies);
    for (uint32_t d = 0; d < t->n_devices; d++) {
        uint32_t n;
        lh_timeline_runs(timeline, d, &n);
        t->n_runs += n;
    }
    lh_trace_device *devices = LHI_NEW(mem, lh_trace_device, t->n_devices);
    const char **sites = LHI_NEW(mem, const char *, t->n_sites);
    const char **links = LHI_NEW(mem, const char *, t->n_links);
    lh_trace_run *runs = LHI_NEW(mem, lh_trace_run, t->n_runs);
    lh_trace_message *m = LHI_NEW(mem, lh_trace_message, t->n_messages);
    lh_trace_collective *x =
        LHI_NEW(mem, lh_trace_collective, t->n_collectives);
    lh_trace_offload *y = LHI_NEW(mem, lh_trace_offload, t->n_copies);
    if (!devices || !sites || !links || !runs || !m || !x || !y)
        return lhi_fail_nomem(err);
    sites[0] = "";
    for (uint32_t i = 0; i < lhi_pipeline_n_sites(pipeline); i++)
        sites[i] = lhi_pipeline_site_name(pipeline, i);
    for (uint32_t i = 0; i < t->n_links; i++)
        links[i] = lh_timeline_resource_name(timeline, i);
    fill_devices(pipeline, devices, t->n_devices);
    fill_runs(pipeline, timeline, devices, runs);
    fill_messages(messages, t->n_messages, m);
    fill_collectives(pipeline, collectives, t->n_collectives, x);
    t->devices = devices;
    t->site_names = sites;
    t->link_names = links;
    t->runs = runs;
    t->messages = m;
    fill_copies(copies, t->n_copies, y);
    t->collectives = x;
    t->copies = y;
    return LH_OK;
}

lh_status lh_trace_make(const lh_pipeline *pipeline,
                        const lh_timeline *timeline, const char *title,
                        lh_trace **out, lh_error *err)
{
    uint32_t n_sites = lhi_pipeline_n_sites(pipeline);
    lh_trace t = {
        .title = title,
        .source = "simulated",
        .memory_unit = lh_pipeline_memory_unit(pipeline),
        .makespan_ns = lh_timeline_makespan(timeline),
        .n_devices = lh_timeline_n_devices(timeline),
        .n_sites = n_sites ? n_sites : 1,
        .n_links = lh_timeline_n_resources(timeline),
    };
    lhi_arena *mem = lhi_arena_make(0);
    if (!mem)
        return lhi_fail_nomem(err);
    lh_status status = copy_timeline(pipeline, timeline, mem, &t, err);
    if (status == LH_OK)
        status = lh_trace_copy(&t, out, err);
    lhi_arena_free(mem);
    return status;
}
