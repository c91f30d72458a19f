/* SPDX-License-Identifier: Apache-2.0 */
#include "report/diagnosis/replay_trace.h"

#include <inttypes.h>
#include <stdio.h>

lh_pass lhi_op_graph_pass(const lhi_op_graph *g, uint32_t i)
{
    static const uint8_t kinds[] = {[LHI_OP_FORWARD] = LH_F,
                                    [LHI_OP_BACKWARD] = LH_B,
                                    [LHI_OP_INPUT] = LH_D,
                                    [LHI_OP_WEIGHT] = LH_W};
    return (lh_pass){.chunk = g->chunk[i],
                     .microbatch = g->microbatch[i],
                     .n_parts = 1,
                     .kind = kinds[g->op[i]]};
}

/* Names the trace's datacenters: one per displayed replica, such as "replica
 * 3". */
static lh_status name_sites(const lhi_replayed_step *p, lhi_arena *arena,
                            lh_trace *out, lh_error *err)
{
    const char **names = LHI_NEW(arena, const char *, p->n_replicas);
    if (!names)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < p->n_replicas; i++) {
        char name[32];
        snprintf(name, sizeof name, "replica %" PRIu32,
                 p->step->graph->replicas[p->replicas[i]]);
        if (!(names[i] = lhi_arena_strdup(arena, name)))
            return lhi_fail_nomem(err);
    }
    out->n_sites = p->n_replicas;
    out->site_names = names;
    return LH_OK;
}

/* Creates the trace's devices, one per stage of each displayed replica.
 * device[worker]: the trace's device number of a worker (a replica's stage);
 * LH_NONE: not displayed. */
static lh_status make_devices(const lh_recording *r, const lhi_replayed_step *p,
                              lhi_arena *arena, uint32_t *device, lh_trace *out,
                              lh_error *err)
{
    uint32_t S = r->n_stages;
    lh_trace_device *devices =
        LHI_NEW(arena, lh_trace_device, (size_t)p->n_replicas * S);
    if (!devices)
        return lhi_fail_nomem(err);
    for (uint32_t w = 0; w < lhi_recording_n_workers(r); w++)
        device[w] = LH_NONE;
    for (uint32_t i = 0; i < p->n_replicas; i++)
        for (uint32_t s = 0; s < S; s++) {
            device[p->replicas[i] * S + s] = out->n_devices;
            devices[out->n_devices++] =
                (lh_trace_device){.site = i, .memory_limit = LH_NO_LIMIT};
        }
    out->devices = devices;
    return LH_OK;
}

/* Computes first[d], the index at which device d's passes begin in the trace;
 * first[n_devices] is their total. device[w]: worker w's device, LH_NONE if not
 * displayed. first[] must be zero before. */
static void count_runs(const lhi_op_graph *g, const uint32_t *device,
                       uint32_t n_devices, uint32_t *first)
{
    for (uint32_t i = 0; i < g->n_ops; i++)
        if (lhi_op_is_pass((lhi_op_type)g->op[i]) &&
            device[g->worker[i]] != LH_NONE)
            first[device[g->worker[i]] + 1]++;
    for (uint32_t d = 0; d < n_devices; d++)
        first[d + 1] += first[d];
}

/* Fills in the trace's passes with the replayed times ends[]; the graph has the
 * passes of a device in execution order. `next`: index of each device's next
 * pass in `runs`. */
static void fill_runs(const lhi_replayed_step *p, const uint32_t *device,
                      const int64_t *ends, uint32_t *next, lh_trace_run *runs)
{
    const lhi_op_graph *g = p->step->graph;
    for (uint32_t group = 0; group < g->n_groups; group++)
        for (uint32_t i = g->first[group]; i < g->first[group + 1]; i++) {
            uint32_t d = device[g->worker[i]];
            if (d == LH_NONE || !lhi_op_is_pass((lhi_op_type)g->op[i]))
                continue;
            int64_t end = ends[i + 1];
            runs[next[d]++] = (lh_trace_run){
                .pass = lhi_op_graph_pass(g, i),
                .device = d,
                .waits_for = LH_NONE,
                .start_ns =
                    end - lhi_replay_duration(p->step, p->scenario, group, i),
                .end_ns = end,
                .issued_ns = end};
        }
}

lh_status lhi_replay_trace_make(const lh_recording *recording,
                                const lhi_replayed_step *replayed,
                                lhi_arena *arena, lh_trace *out, lh_error *err)
{
    const lhi_op_graph *g = replayed->step->graph;
    lh_trace t = {.title = "", .source = "", .memory_unit = ""};
    uint32_t *device =
        LHI_NEW(arena, uint32_t, lhi_recording_n_workers(recording));
    int64_t *ends = LHI_NEW(arena, int64_t, (size_t)g->n_ops + 1);
    uint32_t *first =
        LHI_NEW(arena, uint32_t,
                (size_t)replayed->n_replicas * recording->n_stages + 2);
    if (!device || !ends || !first)
        return lhi_fail_nomem(err);
    LHI_TRY(name_sites(replayed, arena, &t, err));
    LHI_TRY(make_devices(recording, replayed, arena, device, &t, err));
    t.makespan_ns = lhi_replay_step(replayed->step, replayed->scenario, ends);
    count_runs(g, device, t.n_devices, first);
    t.n_runs = first[t.n_devices];
    lh_trace_run *runs = LHI_NEW(arena, lh_trace_run, t.n_runs);
    if (!runs)
        return lhi_fail_nomem(err);
    fill_runs(replayed, device, ends, first, runs);
    t.runs = runs;
    *out = t;
    return LH_OK;
}
