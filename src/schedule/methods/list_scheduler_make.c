/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the list scheduler's tables for a pipeline, in both directions. */
#include "schedule/methods/list_scheduler.h"

/* Makes stream `to` depend on stream `from`, in both time directions; `route`
 * NULL: no message between them. */
static void link_streams(lhi_list_scheduler *b, uint32_t from, uint32_t to,
                         const lhi_route *route)
{
    lhi_stream_arc arc = {.to = to, .resource = LH_NONE};
    if (route) {
        arc.resource = route->resource;
        arc.transfer_ns = route->transfer_ns;
        arc.latency_ns = route->latency_ns;
    }
    lhi_stream_direction *there = &b->streams[from].direction[0],
                         *back = &b->streams[to].direction[1];
    there->out[there->n_out++] = arc;
    arc.to = from;
    back->out[back->n_out++] = arc;
    lhi_stream_direction *reader = &b->streams[to].direction[0],
                         *maker = &b->streams[from].direction[1];
    reader->in[reader->n_in++] = from;
    maker->in[maker->n_in++] = to;
}

/* Fills in durations, memory changes and dependencies of all streams (all
 * same-kind passes on one chunk). */
static void fill_streams(lhi_list_scheduler *b)
{
    const lh_pipeline *p = b->p;
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        const lh_chunk *chunk = &p->chunks[c];
        int64_t time[3] = {chunk->f_ns, chunk->d_ns, chunk->w_ns};
        int64_t memory[3] = {chunk->mem_f, chunk->mem_d, chunk->mem_w};
        uint32_t f = c * b->kinds;
        if (p->joint) {
            time[1] += time[2];
            memory[1] += memory[2];
        }
        for (uint32_t k = 0; k < b->kinds; k++) {
            lhi_pass_stream *lane = &b->streams[f + k];
            lane->device = chunk->device;
            lane->time_ns = time[k];
            lane->direction[0].memory = memory[k];
            lane->direction[1].memory = -memory[k];
        }
    }
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        uint32_t f = c * b->kinds, after = f + b->kinds;
        if (c + 1 < p->n_chunks) {
            link_streams(b, f, after, &p->forward[c]);
            link_streams(b, after + 1, f + 1, &p->backward[c + 1]);
        } else {
            link_streams(b, f, f + 1, NULL);
        }
        if (!p->joint)
            link_streams(b, f + 1, f + 2, NULL);
    }
}

/* Lists each device's streams in the order in which one microbatch passes
 * them; false: out of memory. */
static bool fill_sequences(lhi_list_scheduler *b)
{
    const lh_pipeline *p = b->p;
    uint32_t *next = LHI_NEW(b->mem, uint32_t, b->n_streams);
    if (!next)
        return false;
    for (uint32_t c = 0; c < p->n_chunks; c++)
        b->devices[p->chunks[c].device].n_chunks++;
    uint32_t *all = next;
    for (uint32_t d = 0; d < p->n_devices; d++) {
        b->devices[d].sequence = next;
        b->devices[d].first_slot = (uint32_t)(next - all);
        next += b->devices[d].n_chunks * b->kinds;
    }
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        lhi_stream_device *d = &b->devices[p->chunks[c].device];
        d->sequence[d->n_streams++] = c * b->kinds;
    }
    for (uint32_t c = p->n_chunks; c-- > 0;) {
        lhi_stream_device *d = &b->devices[p->chunks[c].device];
        for (uint32_t k = 1; k < b->kinds; k++)
            d->sequence[d->n_streams++] = c * b->kinds + k;
    }
    for (uint32_t i = 0; i < p->n_devices; i++) {
        const lhi_stream_device *d = &b->devices[i];
        for (uint32_t k = 0; k < d->n_streams; k++) {
            lhi_pass_stream *lane = &b->streams[d->sequence[k]];
            lane->direction[0].slot = d->first_slot + k;
            lane->direction[1].slot = d->first_slot + d->n_streams - 1 - k;
        }
    }
    return true;
}

/* Checks whether only the first stream on a microbatch's path on the device
 * takes memory (`back`: path backward in time). */
static bool does_only_first_allocate(const lhi_list_scheduler *b,
                                     const lhi_stream_device *d, uint32_t back)
{
    for (uint32_t i = 1; i < d->n_streams; i++) {
        uint32_t at = d->sequence[back ? d->n_streams - 1 - i : i];
        if (b->streams[at].direction[back].memory > 0)
            return false;
    }
    return true;
}

/* Returns the maximum memory rise over any interval on a microbatch's path on
 * the device (`back`: backward in time). */
static int64_t compute_peak(const lhi_list_scheduler *b,
                            const lhi_stream_device *d, uint32_t back)
{
    int64_t sum = 0, most = 0;
    for (uint32_t i = 0; i < d->n_streams; i++) {
        uint32_t at = d->sequence[back ? d->n_streams - 1 - i : i];
        sum += b->streams[at].direction[back].memory;
        sum = sum > 0 ? sum : 0;
        most = sum > most ? sum : most;
    }
    return most;
}

/* Sets each device's memory limit for activations (total minus static memory);
 * LH_NO_LIMIT if all microbatches fit together. */
static void fill_memory(lhi_list_scheduler *b)
{
    const lh_pipeline *p = b->p;
    b->balanced = true;
    for (uint32_t i = 0; i < p->n_devices; i++) {
        lhi_stream_device *d = &b->devices[i];
        int64_t limit = lh_pipeline_memory_limit(p, i), taken = 0, sum = 0;
        int64_t fixed = 0;
        for (uint32_t k = 0; k < d->n_streams; k++) {
            int64_t change = b->streams[d->sequence[k]].direction[0].memory;
            sum += change;
            taken += change > 0 ? change : 0;
        }
        for (uint32_t k = 0; k < d->n_chunks; k++)
            fixed += p->chunks[d->sequence[k] / b->kinds].mem_static;
        for (uint32_t back = 0; back < 2; back++) {
            d->only_first_allocates[back] =
                does_only_first_allocate(b, d, back);
            d->microbatch_peak[back] = compute_peak(b, d, back);
        }
        b->balanced = b->balanced && sum == 0;
        d->room = LH_NO_LIMIT;
        /* All amounts add up to less than 2^62 (lh_pipeline_make). */
        if (limit < INT64_C(1) << 62 && taken * b->n > limit - fixed)
            d->room = limit - fixed;
    }
}

lh_status lhi_list_scheduler_make(const lh_pipeline *pipeline, uint32_t n_parts,
                                  lhi_arena *mem, lhi_list_scheduler *out,
                                  lh_error *err)
{
    lhi_list_scheduler *b = out;
    *b = (lhi_list_scheduler){.p = pipeline,
                              .mem = mem,
                              .n = pipeline->n_microbatches,
                              .kinds = pipeline->joint ? 2 : 3};
    b->n_streams = pipeline->n_chunks * b->kinds;
    size_t numbers = (size_t)b->n_streams * b->n;
    size_t passes = (size_t)pipeline->n_chunks * b->n;
    passes *= pipeline->joint ? 2 : 2 + (size_t)n_parts;
    b->streams = LHI_NEW(mem, lhi_pass_stream, b->n_streams);
    b->devices = LHI_NEW(mem, lhi_stream_device, pipeline->n_devices);
    b->due = LHI_NEW(mem, int64_t, numbers);
    b->start = LHI_NEW(mem, int64_t, numbers);
    uint32_t *order = LHI_NEW(mem, uint32_t, passes);
    if (!b->streams || !b->devices || !b->due || !b->start || !order)
        return lhi_fail_nomem(err);
    fill_streams(b);
    if (!fill_sequences(b) || !lhi_list_scheduler_make_state(b))
        return lhi_fail_nomem(err);
    for (uint32_t d = 0; d < pipeline->n_devices; d++) {
        b->devices[d].order = order;
        order += passes / pipeline->n_chunks * b->devices[d].n_chunks;
    }
    fill_memory(b);
    return LH_OK;
}

/* --- memory shares ------------------------------------------------------- */

/* Computes lives[c] for every chunk c: how long it keeps a microbatch's
 * activations if no pass waits, from F's start to W's end, in ns. */
static void compute_lifetimes(const lhi_list_scheduler *b, int64_t *lives)
{
    const lh_pipeline *p = b->p;
    int64_t trip = 0;
    for (uint32_t c = p->n_chunks; c-- > 0;) {
        const lhi_pass_stream *lane = &b->streams[c * b->kinds];
        trip += lane[0].time_ns + lane[1].time_ns;
        lives[c] = trip + (b->kinds == 3 ? lane[2].time_ns : 0);
        if (c > 0)
            trip += lhi_round_trip_ns(p, c - 1);
    }
}

lh_status lhi_list_scheduler_compute_caps(const lhi_list_scheduler *b,
                                          bool nearest, bool all,
                                          uint32_t *caps, lh_error *err)
{
    lhi_mark mark = lhi_arena_mark(b->mem);
    int64_t *lives = LHI_NEW(b->mem, int64_t, b->p->n_chunks);
    if (!lives)
        return lhi_fail_nomem(err);
    compute_lifetimes(b, lives);
    for (uint32_t i = 0; i < b->p->n_devices; i++) {
        const lhi_stream_device *d = &b->devices[i];
        double sum = 0, most = 1;
        for (uint32_t k = 0; k < d->n_chunks; k++) {
            uint32_t f = d->sequence[k];
            double takes = (double)b->streams[f].direction[0].memory;
            most = takes > most ? takes : most;
            sum += (double)lives[f / b->kinds];
        }
        double fit = d->room == LH_NO_LIMIT ? (double)b->n * d->n_chunks
                                            : (double)d->room / most;
        for (uint32_t k = 0; k < d->n_chunks; k++) {
            uint32_t c = d->sequence[k] / b->kinds;
            double share = sum > 0 ? fit * ((double)lives[c] / sum) : fit;
            double others = fit - (d->n_chunks - 1);
            share = nearest ? share + .5 : share;
            share = share > others ? others : share;
            share = share > b->n ? b->n : share < 1 ? 1 : share;
            caps[c] = k + 1 == d->n_chunks && !all ? b->n : (uint32_t)share;
        }
    }
    lhi_arena_rewind(b->mem, mark);
    return LH_OK;
}

void lhi_list_scheduler_compute_uniform_caps(const lhi_list_scheduler *b,
                                             uint32_t *caps)
{
    for (uint32_t i = 0; i < b->p->n_devices; i++) {
        const lhi_stream_device *d = &b->devices[i];
        int64_t fit = b->n;
        if (d->microbatch_peak[0] > 0 && d->room / d->microbatch_peak[0] < fit)
            fit = d->room / d->microbatch_peak[0];
        for (uint32_t k = 0; k < d->n_chunks; k++)
            caps[d->sequence[k] / b->kinds] = (uint32_t)fit;
    }
}
