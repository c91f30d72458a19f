/* SPDX-License-Identifier: Apache-2.0 */
/* Builds a trace from the ranks' records of an iteration. */
#include "runtime/engine/job.h"

#include "schedule/simulator/timeline.h"

#include <inttypes.h>
#include <longhaul/experimental/trace.h>
#include <stdio.h>
#include <stdlib.h>

/* State of the construction. */
typedef struct trace_builder {
    const lhi_job *job;
    const lh_exec *exec; /* execution plan of the iteration */
    const lhi_pass_record *const *records;
    lh_timeline *t;
    uint32_t *makers; /* per input: run index of its producer */
    const lhi_net_link *links;
} trace_builder;

/* Returns the larger of `value` and `least`, a lower limit. */
static int64_t get_maximum(int64_t value, int64_t least)
{
    return value > least ? value : least;
}

/* Adds the message that pass `consumer` consumed to the trace; computes its
 * departure from the arrival and the emulated link's times. */
static void add_message(trace_builder *m, const lh_timeline_run *consumer,
                        const lhi_exec_pass *pass,
                        const lhi_pass_record *record)
{
    lh_timeline *t = m->t;
    const lh_timeline_run *producer = &t->runs[m->makers[pass->input]];
    lh_message *x = &t->messages[t->n_messages];
    int64_t transfer = 0, latency = 0;
    if (pass->in_link != LH_NONE && m->job->emulates) {
        latency = m->links[pass->in_link].latency_ns;
        transfer = m->links[pass->in_link].transfer_ns;
    }
    if (pass->in_delegated)
        latency += 2 * pass->in_staging_ns;
    *x = (lh_message){.producer = producer->pass,
                      .consumer = consumer->pass,
                      .from = producer->device,
                      .to = consumer->device,
                      .link = LH_NONE,
                      .resource = pass->in_link};
    /* The timed device dates its messages by their deadlines and wakes slightly
     * later. Without a shared clock, the sender's time is unusable. */
    x->ready_ns = get_maximum(
        m->job->shared_clock ? record->entered_ns : record->arrived_ns, 0);
    x->produced_ns =
        producer->end_ns < x->ready_ns ? producer->end_ns : x->ready_ns;
    x->arrive_ns = get_maximum(record->arrived_ns, x->ready_ns);
    x->sent_ns = get_maximum(x->arrive_ns - latency, x->ready_ns);
    x->depart_ns = get_maximum(x->sent_ns - transfer, x->ready_ns);
    t->n_messages++;
}

/* Adds all measured passes and their messages to the trace; moves passes that
 * overlap because of late wake-ups to the end of the previous one. */
static void add_runs(trace_builder *m)
{
    lh_timeline *t = m->t;
    const lh_exec *x = m->exec;
    for (uint32_t r = 0; r < x->n_ranks; r++)
        for (uint32_t i = 0; i < x->ranks[r].n_passes; i++) {
            const lhi_exec_pass *pass = &x->ranks[r].passes[i];
            const lhi_pass_record *record = &m->records[r][i];
            lh_timeline_run *run = &t->runs[t->offsets[r] + i];
            int64_t least = i > 0 ? run[-1].issued_ns : 0;
            run->pass = pass->pass;
            run->device = r;
            run->start_ns = get_maximum(record->start_ns, least);
            run->end_ns = get_maximum(record->end_ns, run->start_ns);
            run->issued_ns = get_maximum(record->issued_ns, run->end_ns);
            run->message = LH_NONE;
            if (pass->output != LH_NONE)
                m->makers[pass->output] = (uint32_t)(t->offsets[r] + i);
            t->makespan_ns = get_maximum(t->makespan_ns, run->end_ns);
        }
    for (uint32_t r = 0; r < x->n_ranks; r++)
        for (uint32_t i = 0; i < x->ranks[r].n_passes; i++) {
            const lhi_exec_pass *pass = &x->ranks[r].passes[i];
            lh_timeline_run *run = &t->runs[t->offsets[r] + i];
            if (pass->input == LH_NONE || pass->local_input)
                continue;
            run->message = t->n_messages;
            add_message(m, run, pass, &m->records[r][i]);
        }
}

/* Adds all recorded collectives to the trace, n_executed[r] records for each
 * rank r. */
static void add_collectives(trace_builder *m,
                            const lhi_collective_record *const *executed,
                            const uint32_t *n_executed)
{
    lh_timeline *t = m->t;
    for (uint32_t r = 0; r < t->n_devices; r++)
        for (uint32_t i = 0; i < n_executed[r]; i++) {
            const lhi_collective_record *from = &executed[r][i];
            if (from->copy)
                continue;
            lh_collective *x = &t->collectives[t->n_collectives++];
            *x = (lh_collective){.chunk = from->chunk,
                                 .device = r,
                                 .op = from->op,
                                 .is_reduce_scatter = from->is_reduce_scatter};
            x->ready_ns = get_maximum(from->ready_ns, 0);
            x->depart_ns = get_maximum(from->depart_ns, x->ready_ns);
            x->sent_ns = get_maximum(from->sent_ns, x->depart_ns);
            x->arrive_ns = get_maximum(from->arrive_ns, x->sent_ns);
            t->makespan_ns = get_maximum(t->makespan_ns, x->arrive_ns);
        }
}

/* Adds all recorded offload copies to the trace, n_executed[r] records for
 * each rank r. */
static void add_copies(trace_builder *m,
                       const lhi_collective_record *const *executed,
                       const uint32_t *n_executed)
{
    lh_timeline *t = m->t;
    for (uint32_t r = 0; r < t->n_devices; r++)
        for (uint32_t i = 0; i < n_executed[r]; i++) {
            const lhi_collective_record *from = &executed[r][i];
            if (!from->copy)
                continue;
            const lhi_offload_copy *what =
                &m->exec->ranks[r].copies[from->copy - 1];
            lh_offload_copy *x = &t->copies[t->n_copies++];
            *x = (lh_offload_copy){.chunk = what->chunk,
                                   .microbatch = what->microbatch,
                                   .device = r,
                                   .is_reload = what->to_device,
                                   .launching_run = what->at,
                                   .waiting_run = what->before};
            x->ready_ns = get_maximum(from->ready_ns, 0);
            x->depart_ns = get_maximum(from->depart_ns, x->ready_ns);
            x->end_ns = get_maximum(from->arrive_ns, x->depart_ns);
        }
}

/* Allocates the trace's tables, sized for all passes, messages and recorded
 * collectives. n_executed: recorded collectives and copies per rank. */
static lh_status allocate(trace_builder *m, const uint32_t *n_executed,
                          lhi_arena *mem, lh_error *err)
{
    const lh_exec *x = m->exec;
    lh_timeline *t = m->t = LHI_NEW(mem, lh_timeline, 1);
    size_t *offsets = LHI_NEW(mem, size_t, (size_t)x->n_ranks + 1);
    m->makers = LHI_NEW(mem, uint32_t, 2 * (size_t)x->n_half);
    if (!t || !offsets || !m->makers)
        return lhi_fail_nomem(err);
    size_t collectives = 0, messages = 0;
    for (uint32_t r = 0; r < x->n_ranks; r++) {
        offsets[r + 1] = offsets[r] + x->ranks[r].n_passes;
        messages += x->ranks[r].n_posts;
        collectives += n_executed[r];
    }
    *t = (lh_timeline){.mem = mem,
                       .n_devices = x->n_ranks,
                       .n_resources = x->n_links,
                       .resource_names = x->link_names,
                       .offsets = offsets,
                       .runs =
                           LHI_NEW(mem, lh_timeline_run, offsets[x->n_ranks]),
                       .messages = LHI_NEW(mem, lh_message, messages),
                       .collectives = LHI_NEW(mem, lh_collective, collectives),
                       .copies = LHI_NEW(mem, lh_offload_copy, collectives)};
    if (!t->runs || !t->messages || !t->collectives || !t->copies)
        return lhi_fail_nomem(err);
    return LH_OK;
}

/* Formats the trace's title into `text`, which it returns: the conditions that
 * make durations differ from a plain run (timed device, blocking sends,
 * messages delegated to helper threads). */
static const char *format_title(const lhi_job *job, const lh_exec *exec,
                                char *text, size_t room)
{
    static const char *const paths[] = {"", "messages are delegated",
                                        "messages of some links are delegated"};
    const uint32_t queue = lhi_exec_sim_options(exec).coupled_queue;
    const char *delegated = paths[exec->options.path];
    char held[100] = "";
    if (queue)
        snprintf(held, sizeof held,
                 "passes stop while a queue of %" PRIu32 " sends is full",
                 queue);
    const char *const parts[] = {
        job->model ? ""
                   : "timed device: passes wait for the prediction's deadlines",
        held, delegated};
    size_t at = 0;
    text[0] = 0;
    for (int i = 0; i < 3; i++)
        if (*parts[i] && at < room)
            at += (size_t)snprintf(text + at, room - at, "%s%s", at ? "; " : "",
                                   parts[i]);
    return text;
}

/* Copies a trace and clears the memory values that come from the plan, since
 * memory over time is not measured. */
static lh_status clear_planned_memory(const lhi_job *job, const lh_exec *exec,
                                      const lh_trace *from, lh_trace **out,
                                      lh_error *err)
{
    char title[256];
    lh_trace measured = *from;
    lh_trace_device *devices = calloc(from->n_devices, sizeof *devices);
    lh_trace_run *runs = calloc((size_t)from->n_runs + 1, sizeof *runs);
    lh_status status = devices && runs ? LH_OK : lhi_fail_nomem(err);
    for (uint32_t i = 0; status == LH_OK && i < from->n_devices; i++) {
        devices[i] = from->devices[i];
        devices[i].memory_static = 0;
        devices[i].memory_limit = LH_NO_LIMIT;
    }
    for (uint32_t i = 0; status == LH_OK && i < from->n_runs; i++) {
        runs[i] = from->runs[i];
        runs[i].memory = runs[i].memory_after = 0;
    }
    measured.devices = devices;
    measured.runs = runs;
    measured.memory_unit = "";
    measured.source = "measured";
    if (*format_title(job, exec, title, sizeof title))
        measured.title = title;
    if (status == LH_OK)
        status = lh_trace_copy(&measured, out, err);
    free(devices);
    free(runs);
    return status;
}

lh_status lhi_measured_trace(const lhi_job *job, const lh_exec *exec,
                             const lhi_pass_record *const *records,
                             const lhi_collective_record *const *executed,
                             const uint32_t *n_executed, lh_trace **out,
                             lh_error *err)
{
    lhi_arena *mem = lhi_arena_make(0);
    trace_builder m = {.job = job, .exec = exec, .records = records};
    lh_trace *made = NULL;
    lh_status status =
        mem ? allocate(&m, n_executed, mem, err) : lhi_fail_nomem(err);
    lhi_net_link *links =
        mem ? LHI_NEW(mem, lhi_net_link, lhi_job_count_links(job)) : NULL;
    if (status == LH_OK && !links)
        status = lhi_fail_nomem(err);
    if (status == LH_OK)
        status = lhi_job_list_links(job, links, err);
    if (status == LH_OK) {
        m.links = links;
        add_runs(&m);
        add_collectives(&m, executed, n_executed);
        add_copies(&m, executed, n_executed);
        status = lh_trace_make(job->pipeline, m.t, NULL, &made, err);
    }
    if (status == LH_OK)
        status = clear_planned_memory(job, exec, made, out, err);
    lh_trace_free(made);
    lhi_arena_free(mem);
    return status;
}
