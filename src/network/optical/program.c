/* SPDX-License-Identifier: Apache-2.0 */
#include "network/optical/program.h"

#include "schedule/pipeline/accessors.h"
#include "schedule/pipeline/pipeline_internal.h"

#include <longhaul/simulate.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Maximum number of tasks (passes and transfers) of a job. */
enum { MAX_TASKS = 1 << 22 };

/* Computes p->bound_ns, a lower bound on the iteration time: the iteration's
 * duration if every message takes no time. LH_EDEADLOCK: the pass orders
 * deadlock. */
static lh_status find_bound(lhi_program *p, lh_error *err)
{
    int64_t *end = calloc((size_t)p->n_tasks + 1, sizeof *end);
    uint32_t *next = calloc((size_t)p->n_devices + 1, sizeof *next);
    uint32_t done = 0;
    if (!end || !next) {
        free(end);
        free(next);
        return lhi_fail_nomem(err);
    }
    for (uint32_t d = 0; d < p->n_devices; d++)
        next[d] = p->first[d];
    p->bound_ns = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t d = 0; d < p->n_devices; d++)
            for (; next[d] < p->first[d + 1]; next[d]++) {
                uint32_t i = next[d];
                const lhi_task *task = &p->tasks[i];
                int64_t at = i > p->first[d] ? end[i - 1] : 0;
                /* end is 0 for tasks not yet run; otherwise the task's end plus
                 * 1, so that no real end is 0. */
                if (task->producer != LH_NONE) {
                    int64_t there = end[task->producer];
                    if (there == 0)
                        break;
                    at = there > at ? there : at;
                }
                end[i] = at + task->duration_ns + (at == 0);
                if (end[i] - 1 > p->bound_ns)
                    p->bound_ns = end[i] - 1;
                done++;
                moved = true;
            }
    }
    free(end);
    free(next);
    if (done < p->n_tasks)
        return lhi_fail(err, LH_EDEADLOCK,
                        "the pass orders of the devices deadlock");
    return LH_OK;
}

/* Computes a program's totals: busy time, largest message, messages per device
 * pair, and the lower bound. */
static lh_status compute_totals(lhi_program *p, lhi_arena *mem, lh_error *err)
{
    uint32_t *edges =
        LHI_NEW(mem, uint32_t, (size_t)p->n_devices * p->n_devices);
    if (!edges)
        return lhi_fail_nomem(err);
    p->busy_ns = p->max_bits = p->busiest_ns = 0;
    int64_t busy_ns = 0;
    p->max_pair_messages = 0;
    double total = 0;
    for (uint32_t i = 0; i < p->n_tasks; i++) {
        const lhi_task *task = &p->tasks[i];
        p->busy_ns += task->duration_ns;
        busy_ns =
            (i == p->first[task->device] ? 0 : busy_ns) + task->duration_ns;
        if (busy_ns > p->busiest_ns)
            p->busiest_ns = busy_ns;
        total += (double)task->duration_ns;
        if (total > 0x1p60)
            return lhi_fail(err, LH_EINPUT, "an iteration exceeds 36 years");
        if (task->consumer == LH_NONE)
            continue;
        uint32_t *edge = &edges[(size_t)task->device * p->n_devices +
                                p->tasks[task->consumer].device];
        if (++*edge > p->max_pair_messages)
            p->max_pair_messages = *edge;
        if (task->bits > p->max_bits)
            p->max_bits = task->bits;
    }
    p->edges = edges;
    p->n_messages = p->n_tasks;
    p->n_ports = 2 * p->n_devices;
    return find_bound(p, err);
}

const lhi_route *lhi_program_route(const lhi_program *program, uint32_t task)
{
    const lh_pipeline *p = program->pipeline;
    const lhi_task *t = &program->tasks[task];
    if (!p || t->consumer == LH_NONE)
        return NULL;
    uint32_t site = lh_pipeline_device_site(p, t->device);
    uint32_t there =
        lh_pipeline_device_site(p, program->tasks[t->consumer].device);
    if (site == LH_NONE || site != there)
        return NULL;
    return t->pass.kind == LH_F ? &p->forward[t->pass.chunk]
                                : &p->backward[t->pass.chunk];
}

/* Checks whether a program exceeds the limit of tasks. */
static bool exceeds_task_limit(uint64_t n_tasks)
{
    return n_tasks > MAX_TASKS;
}

lh_status lhi_program_build_chain(const lhi_chain *chain, lhi_arena *mem,
                                  lhi_program *out, lh_error *err)
{
    uint32_t n = chain->stages, m = chain->microbatches;
    if (exceeds_task_limit((uint64_t)n * m * 2))
        return lhi_fail(err, LH_EINPUT,
                        "%" PRIu32 " stages with %" PRIu32
                        " microbatches exceed %d passes",
                        n, m, MAX_TASKS);
    lhi_program p = {.n_devices = n, .n_tasks = n * m * 2};
    lhi_task *tasks = LHI_NEW(mem, lhi_task, p.n_tasks);
    uint32_t *first = LHI_NEW(mem, uint32_t, n + 1);
    /* F(i) and B(i) indices on each stage. */
    uint32_t *at = LHI_NEW(mem, uint32_t, p.n_tasks);
    if (!tasks || !first || !at)
        return lhi_fail_nomem(err);
    for (uint32_t s = 0; s < n; s++) {
        uint32_t t = first[s] = s * m * 2;
        uint64_t w = (uint64_t)(n - 1 - s) * chain->warm_up_factor;
        uint32_t warm = chain->order == LHI_GPIPE || w > m ? m : (uint32_t)w;
        uint32_t f = 0, b = 0;
        while (b < m) {
            bool forward = f < m && f <= b + warm;
            if (chain->order == LHI_GPIPE)
                forward = f < m;
            uint32_t i = forward ? f++ : b++;
            tasks[t] = (lhi_task){.duration_ns = forward ? chain->forward_ns
                                                         : chain->backward_ns,
                                  .bits = chain->bits,
                                  .device = s,
                                  .producer = LH_NONE,
                                  .consumer = LH_NONE,
                                  .after = LH_NONE,
                                  .port = s * 2 + !forward,
                                  .pass = {.chunk = s,
                                           .microbatch = i,
                                           .n_parts = 1,
                                           .kind = forward ? LH_F : LH_B}};
            at[(s * m + i) * 2 + !forward] = t++;
        }
    }
    first[n] = p.n_tasks;
    for (uint32_t s = 0; s + 1 < n; s++)
        for (uint32_t i = 0; i < m; i++) {
            uint32_t f = at[(s * m + i) * 2];
            uint32_t to_f = at[((s + 1) * m + i) * 2];
            uint32_t b = at[((s + 1) * m + i) * 2 + 1];
            uint32_t to_b = at[(s * m + i) * 2 + 1];
            tasks[f].consumer = to_f;
            tasks[to_f].producer = f;
            tasks[b].consumer = to_b;
            tasks[to_b].producer = b;
        }
    p.tasks = tasks;
    p.first = first;
    LHI_TRY(compute_totals(&p, mem, err));
    *out = p;
    return LH_OK;
}

/* Task index of F and of the input gradient per (chunk, microbatch). */
typedef struct places {
    uint32_t n_chunks, n_microbatches;
    uint32_t *at;
} places;

/* Returns the table entry for the forward pass (`forward`) or the input
 * gradient pass (D) of a chunk on a microbatch: the number of its task. */
static uint32_t *get_task_slot(const places *p, uint32_t chunk,
                               uint32_t microbatch, bool forward)
{
    return &p->at[((size_t)chunk * p->n_microbatches + microbatch) * 2 +
                  !forward];
}

/* Connects task `i` with the task on another device that consumes its message;
 * a W task (weight gradient) with the input gradient (D) before it. */
static void connect_task(lhi_task *tasks, const places *where, uint32_t i)
{
    const lh_pass *pass = &tasks[i].pass;
    bool forward = pass->kind == LH_F;
    if (pass->kind == LH_W) {
        tasks[i].after =
            *get_task_slot(where, pass->chunk, pass->microbatch, false);
        return;
    }
    if ((forward ? pass->chunk + 1 >= where->n_chunks : pass->chunk == 0))
        return;
    uint32_t to =
        *get_task_slot(where, forward ? pass->chunk + 1 : pass->chunk - 1,
                       pass->microbatch, forward);
    if (tasks[to].device == tasks[i].device)
        return; /* the order implies it: lh_simulate() accepted it */
    tasks[i].consumer = to;
    tasks[to].producer = i;
}

lh_status lhi_program_build_schedule(const lh_pipeline *pipeline,
                                     const lh_schedule *schedule, int64_t bits,
                                     lhi_arena *mem, lhi_program *out,
                                     lh_error *err)
{
    lh_timeline *timeline = NULL;
    lh_sim_options options = {.size = sizeof options, .fifo = true};
    LHI_TRY(lhi_pipeline_require_one_direction(
        pipeline, "the optical network simulation", err));
    LHI_TRY(lh_simulate(pipeline, schedule, &options, &timeline, err));
    lh_timeline_free(timeline);
    uint32_t n = lh_schedule_n_devices(schedule);
    places where = {.n_chunks = lh_pipeline_n_chunks(pipeline),
                    .n_microbatches = lh_pipeline_n_microbatches(pipeline)};
    uint64_t total = 0;
    for (uint32_t d = 0; d < n; d++) {
        uint32_t count;
        lh_schedule_order(schedule, d, &count);
        total += count;
    }
    if (exceeds_task_limit(total))
        return lhi_fail(err, LH_EINPUT, "more than %d passes", MAX_TASKS);
    lhi_program p = {.n_devices = n,
                     .n_tasks = (uint32_t)total,
                     .receives = lh_pipeline_receives(pipeline)};
    lhi_task *tasks = LHI_NEW(mem, lhi_task, p.n_tasks);
    uint32_t *first = LHI_NEW(mem, uint32_t, n + 1);
    where.at = LHI_NEW(mem, uint32_t,
                       (size_t)where.n_chunks * where.n_microbatches * 2);
    if (!tasks || !first || !where.at)
        return lhi_fail_nomem(err);
    uint32_t t = 0;
    for (uint32_t d = 0; d < n; d++) {
        uint32_t count;
        const lh_pass *order = lh_schedule_order(schedule, d, &count);
        first[d] = t;
        for (uint32_t i = 0; i < count; i++, t++) {
            const lh_pass *pass = &order[i];
            bool forward = pass->kind == LH_F;
            tasks[t] =
                (lhi_task){.duration_ns = lhi_pass_duration(pipeline, pass),
                           .bits = bits,
                           .device = d,
                           .producer = LH_NONE,
                           .consumer = LH_NONE,
                           .after = LH_NONE,
                           .port = d * 2 + !forward,
                           .pass = *pass};
            if (pass->kind != LH_W)
                *get_task_slot(&where, pass->chunk, pass->microbatch, forward) =
                    t;
        }
    }
    first[n] = t;
    for (uint32_t i = 0; i < p.n_tasks; i++)
        connect_task(tasks, &where, i);
    p.tasks = tasks;
    p.first = first;
    LHI_TRY(compute_totals(&p, mem, err));
    *out = p;
    return LH_OK;
}

lh_status lhi_program_add_replicas(const lhi_replica_ring *ring, lhi_arena *mem,
                                   lhi_program *program, lh_error *err)
{
    lhi_program *p = program;
    uint64_t n = p->n_tasks;
    uint32_t *device = LHI_NEW(mem, uint32_t, ring->n_chunks);
    if (!device)
        return lhi_fail_nomem(err);
    for (uint32_t c = 0; c < ring->n_chunks; c++)
        for (int i = 0; i < 2; i++)
            if ((i ? ring->reduce_bits[c] : ring->gather_bits[c]) > 0)
                n += ring->n_nodes;
    if (exceeds_task_limit(n))
        return lhi_fail(err, LH_EINPUT,
                        "more than %d passes and messages between replicas",
                        MAX_TASKS);
    lhi_task *tasks = LHI_NEW(mem, lhi_task, n);
    if (!tasks)
        return lhi_fail_nomem(err);
    memcpy(tasks, p->tasks, p->n_tasks * sizeof *tasks);
    for (uint32_t i = 0; i < p->n_tasks; i++)
        device[tasks[i].pass.chunk] = tasks[i].device;
    lhi_task *next = tasks + p->n_tasks;
    for (uint32_t i = 0; i < 2 * ring->n_chunks; i++) {
        uint32_t c = i / 2;
        int64_t bits = i % 2 ? ring->reduce_bits[c] : ring->gather_bits[c];
        for (uint32_t hop = 0; bits > 0 && hop < ring->n_nodes; hop++)
            *next++ = (lhi_task){
                .bits = bits,
                .device = device[c],
                .producer = LH_NONE,
                .consumer = LH_NONE,
                .after = LH_NONE,
                .port = 2 * p->n_devices + device[c] * ring->n_nodes + hop,
                .pass = {
                    .chunk = c, .n_parts = 1, .kind = i % 2 ? LH_W : LH_F}};
    }
    p->tasks = tasks;
    p->n_messages = (uint32_t)n;
    p->n_ports = (2 + ring->n_nodes) * p->n_devices;
    p->ring = *ring;
    return LH_OK;
}
