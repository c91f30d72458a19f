/* SPDX-License-Identifier: Apache-2.0 */
/* Event-driven simulation for one run. */
#include "network/optical/load_gsnr.h"
#include "network/optical/simulation_internal.h"

#include <inttypes.h>
#include <stdlib.h>

/* Limit on a job's iterations, as a multiple of the requested number. */
enum { MAX_ITERATION_FACTOR = 100 };

/* Latest simulated time, 146 years; no run should reach it. */
#define MAX_TIME_NS (INT64_C(1) << 62)

/* Returns the device's next W pass (weight gradient), to fill the time in which
 * the device waits for task `m`'s message. LH_NONE: none is ready, or the
 * message is known to arrive before the pass would end. */
static uint32_t find_fill(const lhi_live_run *r, lhi_live_job *j,
                          uint32_t device, uint32_t m)
{
    const lhi_program *p = j->program;
    uint32_t end = p->first[device + 1], i = j->next_w[device];
    while (i < end && (j->started[i] || p->tasks[i].after == LH_NONE))
        i++;
    j->next_w[device] = i;
    if (i == end || !j->done[p->tasks[i].after])
        return LH_NONE;
    int64_t arrives = INT64_MAX;
    if (j->arrive[m] >= 0)
        arrives = j->arrive[m];
    else if (j->started[m] && !lhi_live_crosses_nodes(j, m))
        arrives = j->start[m] + p->tasks[m].duration_ns;
    return arrives < r->now + p->tasks[i].duration_ns ? LH_NONE : i;
}

static void request_circuit(lhi_live_run *r, lhi_live_job *j, uint32_t task);

/* Sends a task's message within a datacenter over the pipeline's own link, as
 * lh_simulate() models it; returns its arrival time. */
static int64_t send_within_site(const lhi_live_run *r, lhi_live_job *j,
                                uint32_t task)
{
    const lhi_route *route = lhi_program_route(j->program, task);
    int64_t depart = r->now;
    if (!route)
        return depart;
    if (route->resource != LH_NONE) {
        int64_t *free_ns = &j->link_free[route->resource];
        depart = *free_ns > depart ? *free_ns : depart;
        *free_ns = depart + route->transfer_ns;
    }
    return depart + route->transfer_ns + route->latency_ns;
}

/* Sends a task's message: requests a circuit if it goes to another node, else
 * uses the link within the datacenter. */
static void send_message(lhi_live_run *r, lhi_live_job *j, uint32_t task)
{
    if (lhi_live_crosses_nodes(j, task)) {
        request_circuit(r, j, task);
        return;
    }
    j->arrive[task] = send_within_site(r, j, task);
    lhi_live_push(r, j->arrive[task], LHI_EVENT_ARRIVAL,
                  lhi_live_payload(j, task));
}

/* Posts the receive for task i's input when the device reaches the task
 * (rendezvous receives); a finished producer then sends its message. */
static void post_receive(lhi_live_run *r, lhi_live_job *j, uint32_t device,
                         uint32_t i)
{
    const lhi_program *p = j->program;
    if (p->receives == LH_RECEIVES_LATE_FD)
        while (i < p->first[device + 1] && p->tasks[i].pass.kind == LH_W)
            i++;
    if (p->receives == LH_RECEIVES_EARLY || i == p->first[device + 1])
        return;
    uint32_t m = p->tasks[i].producer;
    if (m == LH_NONE || j->posted[m])
        return;
    j->posted[m] = true;
    if (j->done[m])
        send_message(r, j, m);
}

/* Checks whether task `i` of the device may start now: its parameters are
 * gathered, as data-parallel communication requires. If not, schedules a
 * wake-up, unless messages from other replicas will wake the device. *since:
 * the earliest permitted start. */
static bool is_data_ready(lhi_live_run *r, lhi_live_job *j, uint32_t device,
                          uint32_t i, int64_t *since)
{
    const lh_pass *pass = &j->program->tasks[i].pass;
    if (pass->kind == LH_F && j->gathers_left) {
        if (j->gathers_left[pass->chunk] > 0)
            return false;
        if (j->gathered_ns[pass->chunk] > *since)
            *since = j->gathered_ns[pass->chunk];
    }
    if (!j->program->pipeline || !lhi_dp_clock_get_start(&j->data, pass, since))
        return !j->program->pipeline;
    if (*since <= r->now) {
        lhi_dp_clock_on_start(&j->data, pass, r->now);
        return true;
    }
    if (j->wake_ns[device] != *since)
        lhi_live_push(r, *since, LHI_EVENT_WAKE,
                      (uint64_t)j->index << 32 | device);
    j->wake_ns[device] = *since;
    return false;
}

/* Starts the device's next task if the device is free, its message has arrived
 * and data-parallel communication permits it; else a W pass if the policy fills
 * idle time. */
static void try_start(lhi_live_run *r, lhi_live_job *j, uint32_t device)
{
    const lhi_program *p = j->program;
    if (j->running[device])
        return;
    uint32_t i = j->next[device];
    while (i < p->first[device + 1] && j->started[i])
        i++;
    j->next[device] = i;
    if (i == p->first[device + 1])
        return;
    post_receive(r, j, device, i);
    uint32_t m = p->tasks[i].producer;
    if (m != LH_NONE && !j->there[m])
        i = j->policy->fill_idle ? find_fill(r, j, device, m) : LH_NONE;
    int64_t since = j->free_ns[device];
    if (i == LH_NONE || !is_data_ready(r, j, device, i, &since))
        return;
    j->running[device] = j->started[i] = true;
    j->start[i] = r->now;
    j->before[i] = since;
    lhi_live_push(r, r->now + p->tasks[i].duration_ns, LHI_EVENT_TASK_END,
                  lhi_live_payload(j, i));
}

/* Starts an iteration's data-parallel communication in a job with a pipeline:
 * parameter gathers begin now, and all links of the pipeline are free. */
static void begin_data(const lhi_live_run *r, lhi_live_job *j)
{
    const lhi_program *p = j->program;
    lhi_dp_clock_begin(&j->data, r->now);
    for (uint32_t d = 0; d < p->n_devices; d++) {
        const lhi_task *first = &p->tasks[p->first[d]];
        lhi_dp_clock_add_device(&j->data, &first->pass, sizeof *first,
                                p->first[d + 1] - p->first[d], r->now);
        j->wake_ns[d] = -1;
    }
    for (uint32_t i = 0; i < p->pipeline->n_resources; i++)
        j->link_free[i] = r->now;
}

/* Sends the messages by which a chunk's parameters are gathered (kind F) or its
 * gradients reduced (W) between replicas. */
static void send_between_replicas(lhi_live_run *r, lhi_live_job *j,
                                  uint32_t chunk, lh_pass_kind kind)
{
    const lhi_program *p = j->program;
    for (uint32_t i = p->n_tasks; i < p->n_messages; i++)
        if (p->tasks[i].pass.chunk == chunk && p->tasks[i].pass.kind == kind)
            request_circuit(r, j, i);
}

/* Resets a job's state for an iteration and starts its first tasks. */
static void begin_iteration(lhi_live_run *r, lhi_live_job *j)
{
    const lhi_program *p = j->program;
    j->begin_ns = r->now;
    j->left = p->n_messages;
    j->held_ns = 0;
    memset(j->there, 0, p->n_messages * sizeof *j->there);
    memset(j->started, 0, p->n_messages * sizeof *j->started);
    memset(j->done, 0, p->n_messages * sizeof *j->done);
    memset(j->refused, 0, p->n_messages * sizeof *j->refused);
    memset(j->posted, 0, p->n_messages * sizeof *j->posted);
    memset(j->attempt, 0, p->n_messages * sizeof *j->attempt);
    for (uint32_t d = 0; d < p->n_devices; d++) {
        assert(!j->running[d]);
        j->next[d] = j->next_w[d] = p->first[d];
        j->free_ns[d] = r->now;
    }
    for (uint32_t i = 0; i < p->n_messages; i++)
        j->arrive[i] = -1;
    memset(j->circuit, 0xff, p->n_messages * sizeof *j->circuit);
    lhi_live_begin_replicas(j);
    if (p->pipeline)
        begin_data(r, j);
    for (uint32_t c = 0; c < p->ring.n_chunks; c++)
        send_between_replicas(r, j, c, LH_F);
    for (uint32_t d = 0; d < p->n_devices; d++)
        try_start(r, j, d);
}

/* Returns how many spectrum slots to request for a task's message. Depends on
 * the policy, on its labels in the last iteration (was it late, was it
 * refused?) and on the refused attempts so far. */
static uint32_t compute_requested_slots(const lhi_live_job *j, uint32_t task)
{
    const lhi_policy *policy = j->policy;
    uint32_t n = policy->request_slots;
    if (policy->assignment == LH_SLACK || policy->assignment == LH_CRITICAL)
        return 8 * n;
    if (policy->assignment == LH_CBA) {
        const lhi_cba_rules *rules = lhi_policy_rules(policy);
        if (j->flag[task])
            n = (uint32_t)(n * rules->refusal_factor);
        else if (j->label[task] && !j->guarded)
            n = (uint32_t)(n * rules->label_factor);
        n = n > 1 ? n : 1;
    }
    uint32_t attempt = j->attempt[task];
    n = attempt < 31 ? n >> attempt : 0;
    return n > 1 ? n : 1;
}

/* Sends a task's message over its port's open circuit, after the messages on it
 * (grooming); false: the port has no circuit that is still sending. */
static bool groom_message(lhi_live_run *r, lhi_live_job *j, uint32_t task)
{
    const lhi_task *t = &j->program->tasks[task];
    uint32_t at = j->port_circuit[t->port];
    if (at == LH_NONE || j->port_free[t->port] <= r->now)
        return false;
    lhi_circuit *c = &r->circuits.items[at];
    if (c->slots == 0 || c->job != j->index ||
        j->program->tasks[c->task].port != t->port)
        return false;
    /* A port between replicas leads to one node only. */
    const lhi_task *last = &j->program->tasks[c->task];
    if (task < j->program->n_tasks &&
        j->program->tasks[last->consumer].device !=
            j->program->tasks[t->consumer].device)
        return false;
    j->port_free[t->port] += lhi_serialisation_ns(
        t->bits, c->mbps, c->slots - r->circuits.spectrum.guard);
    int64_t arrive = j->port_free[t->port] + c->path->length_m * LHI_NS_PER_M;
    int64_t end = arrive + r->in->teardown_ns;
    j->held_ns += (double)c->slots * c->path->hops * (double)(end - c->end_ns);
    j->arrive[task] = arrive;
    j->circuit[task] = at;
    lhi_live_extend(r, at, end);
    lhi_live_push(r, arrive, LHI_EVENT_ARRIVAL, lhi_live_payload(j, task));
    return true;
}

/* Occupies a granted circuit for a task's message and schedules the message's
 * arrival. `wait`: ns until the send port is free and the circuit is set up. */
static void accept_grant(lhi_live_run *r, lhi_live_job *j, uint32_t task,
                         const lhi_circuit_grant *grant, int64_t wait)
{
    const lhi_task *t = &j->program->tasks[task];
    int64_t ser = lhi_serialisation_ns(
        t->bits, grant->mbps, grant->slots - r->circuits.spectrum.guard);
    int64_t arrive = r->now + wait + ser + grant->path->length_m * LHI_NS_PER_M;
    int64_t end = arrive + r->in->teardown_ns;
    j->port_free[t->port] = r->now + wait + ser;
    j->held_ns +=
        (double)grant->slots * grant->path->hops * (double)(end - r->now);
    j->arrive[task] = arrive;
    j->circuit[task] = lhi_live_hold(r, grant, end, j->index, task);
    j->port_circuit[t->port] = j->circuit[task];
    if (j->circuit[task] != LH_NONE)
        r->circuits.items[j->circuit[task]].send_ns = r->now + wait;
    lhi_live_push(r, arrive, LHI_EVENT_ARRIVAL, lhi_live_payload(j, task));
}

/* Requests a circuit for a task's message; with policy option ask_late, only
 * once the send port is free. A refused request is repeated after retry_ns;
 * j->attempt counts the refusals. */
static void request_circuit(lhi_live_run *r, lhi_live_job *j, uint32_t task)
{
    const lhi_optical_run_input *in = r->in;
    const lhi_task *t = &j->program->tasks[task];
    int64_t wait = j->port_free[t->port] - r->now;
    if (j->policy->groom && groom_message(r, j, task))
        return;
    if (wait < 0)
        wait = 0;
    if (j->policy->ask_late && wait > 0) {
        j->port_queue[t->port] += !j->deferred[task];
        j->deferred[task] = true;
        lhi_live_push(r, r->now + wait, LHI_EVENT_REQUEST,
                      lhi_live_payload(j, task));
        return;
    }
    j->port_queue[t->port] -= j->deferred[task];
    j->deferred[task] = false;
    if (wait < in->setup_ns)
        wait = in->setup_ns;
    uint32_t from = 0, to = 0;
    lhi_program_get_ends(j->program, j->sites, task, &from, &to);
    lhi_request request = {.paths = lhi_network_paths(in->network, from, to),
                           .policy = j->policy,
                           .slots = compute_requested_slots(j, task),
                           .bits = t->bits,
                           .wait_ns = wait,
                           .queued = j->port_queue[t->port],
                           .period_ns = t->duration_ns,
                           .deadline_ns =
                               j->allowed[task] < 0
                                   ? -1
                                   : j->begin_ns + j->allowed[task] - r->now};
    if (!request.paths) {
        r->no_memory = true;
        return;
    }
    bool counted = j->iteration <= in->iterations;
    if (j->attempt[task] == 0 && counted)
        j->out->requested[j->iteration]++;
    lhi_circuit_grant grant;
    if (lhi_assignment_choose(&r->circuits.spectrum, &request, &grant) ||
        lhi_live_preempt(r, j, &request, &grant)) {
        accept_grant(r, j, task, &grant, wait);
        return;
    }
    if (j->attempt[task] == 0) {
        j->refused[task] = true;
        if (counted)
            j->out->refused[j->iteration]++;
    }
    if (j->attempt[task] < UINT8_MAX)
        j->attempt[task]++;
    if (lhi_live_is_separated(
            r, request.paths,
            j->policy->assignment == LH_SD_FF ? 1 : request.paths->count)) {
        r->separated = j;
        r->separated_task = task;
    }
    lhi_live_push(r, r->now + in->retry_ns, LHI_EVENT_REQUEST,
                  lhi_live_payload(j, task));
}

/* Labels the messages that delayed their consuming passes, for
 * compute_requested_slots() in the next iteration. Returns the number of
 * delayed passes; counts only messages over the network. */
static uint32_t update_labels(lhi_live_run *r, lhi_live_job *j)
{
    const lhi_program *p = j->program;
    const lhi_policy *policy = j->policy;
    int64_t took = r->now - j->begin_ns;
    bool best = j->best_ns < 0 || took <= j->best_ns;
    uint32_t n_bound = 0;
    for (uint32_t d = 0; d < p->n_devices; d++)
        for (uint32_t i = p->first[d]; i < p->first[d + 1]; i++) {
            uint32_t m = p->tasks[i].producer;
            if (m == LH_NONE || !lhi_live_crosses_nodes(j, m))
                continue;
            int64_t ready = j->before[i];
            if (j->end[m] > ready)
                ready = j->end[m];
            bool bound = j->start[i] > ready;
            n_bound += bound;
            j->label[m] = bound || (policy->keep_labels && j->label[m]);
            j->flag[m] = j->refused[m];
            if (best && policy->assignment == LH_SLACK)
                j->allowed[m] =
                    j->arrive[m] < j->start[i] ? j->start[i] - j->begin_ns : -1;
        }
    if (best)
        j->best_ns = took;
    return n_bound + lhi_live_label_replicas(j);
}

/* Records the start, end and arrival times of all tasks of job 0 in the last
 * iteration. */
static void record_end(lhi_live_run *r, const lhi_live_job *j)
{
    lhi_iteration_record *rec = r->in->record;
    const lhi_program *p = j->program;
    rec->begin_ns = j->begin_ns;
    rec->end_ns = r->now;
    for (uint32_t i = 0; i < p->n_tasks; i++) {
        uint32_t m = p->tasks[i].producer;
        int64_t ready = j->before[i];
        rec->start_ns[i] = j->start[i];
        rec->finish_ns[i] = j->end[i];
        rec->arrive_ns[i] = j->arrive[i];
        if (m != LH_NONE && j->end[m] > ready)
            ready = j->end[m];
        rec->is_bound[i] =
            m != LH_NONE && lhi_live_crosses_nodes(j, m) && j->start[i] > ready;
    }
}

/* Asserts that an iteration's times and occupied slots are consistent; does
 * nothing with NDEBUG. */
static void check_iteration(const lhi_live_run *r, const lhi_live_job *j)
{
#ifndef NDEBUG
    const lhi_program *p = j->program;
    int64_t busy = 0;
    for (uint32_t i = 0; i < p->n_tasks; i++) {
        assert(j->end[i] - j->start[i] == p->tasks[i].duration_ns);
        assert(j->start[i] >= j->before[i] && j->before[i] >= j->begin_ns);
        assert(p->tasks[i].after == LH_NONE ||
               j->start[i] >= j->end[p->tasks[i].after]);
        busy += j->end[i] - j->start[i];
    }
    assert(busy == p->busy_ns);
    assert(r->now - j->begin_ns >=
           (j->policy->fill_idle ? p->busiest_ns : p->bound_ns));
    /* The occupied slots are the circuits', and all the job's circuits have
     * been released. */
    uint64_t held = 0, counted = 0;
    for (uint32_t i = 0; i < r->circuits.count; i++) {
        const lhi_circuit *c = &r->circuits.items[i];
        held += c->slots ? (uint64_t)c->slots * c->path->hops : 0;
        assert(c->slots == 0 || c->job != j->index || r->in->teardown_ns > 0);
        const lhi_load_gsnr *load = r->circuits.spectrum.load;
        assert(!load || c->slots == 0 ||
               load->circuits[i].noise <= load->circuits[i].most);
    }
    const lhi_spectrum *s = &r->circuits.spectrum;
    uint32_t per_cable = r->in->network->shared_fibre ? 1 : 2;
    for (uint32_t f = 0; f < s->n_fibres; f++)
        for (uint32_t w = 0; w < s->n_words; w++)
            if (!r->down || r->down[f / per_cable] == 0)
                counted += lhi_count_bits(lhi_fibre(s, f)[w]);
    assert(held == counted && held == r->circuits.held);
#else
    (void)r;
    (void)j;
#endif
}

/* Stores an iteration's time and counts, updates the labels, and begins the
 * job's next iteration unless the run is over. */
static void end_iteration(lhi_live_run *r, lhi_live_job *j)
{
    check_iteration(r, j);
    if (j->index == 0 && lhi_live_is_recording(r))
        record_end(r, j);
    uint32_t n_bound = update_labels(r, j);
    if (j->iteration <= r->in->iterations) {
        lhi_optical_job_output *o = j->out;
        o->iteration_ns[j->iteration] = r->now - j->begin_ns;
        o->labels[j->iteration] = n_bound;
        if (j->iteration > 0)
            o->held_ns += j->held_ns;
        /* Many refused: labels add no slots in the next iteration. */
        j->guarded =
            o->refused[j->iteration] >
            lhi_policy_rules(j->policy)->guard * o->requested[j->iteration];
        if (j->iteration == r->in->iterations)
            r->jobs_left--;
    }
    /* A finished job continues until the others have finished, so that they
     * share the network to their end. The limit stops a job that is far faster.
     */
    j->iteration++;
    if (r->jobs_left == 0 ||
        j->iteration / MAX_ITERATION_FACTOR > r->in->iterations)
        return;
    if (j->index == 0) {
        r->counting = j->iteration <= r->in->iterations;
        if (lhi_live_is_recording(r))
            lhi_live_start_record(r);
    }
    begin_iteration(r, j);
}

/* Schedules the end of a job's iteration after its last pass: when its
 * data-parallel reductions have ended, and the fixed time after the pipeline
 * has passed. */
static void end_passes(lhi_live_run *r, lhi_live_job *j)
{
    int64_t end = r->now;
    if (j->program->pipeline && j->data.last_ns > end)
        end = j->data.last_ns;
    end += j->program->after_ns;
    if (end > r->now)
        lhi_live_push(r, end, LHI_EVENT_END, lhi_live_payload(j, 0));
    else
        end_iteration(r, j);
}

/* Ends a task: sends its message, starts the device's next task, and ends the
 * iteration after the last task. */
static void end_task(lhi_live_run *r, lhi_live_job *j, uint32_t task)
{
    const lhi_task *t = &j->program->tasks[task];
    j->end[task] = r->now;
    j->done[task] = true;
    j->free_ns[t->device] = r->now;
    j->running[t->device] = false;
    if (t->consumer != LH_NONE) {
        j->attempt[task] = 0;
        if (j->program->receives == LH_RECEIVES_EARLY || j->posted[task])
            send_message(r, j, task);
    }
    if (j->program->pipeline)
        (void)lhi_dp_clock_on_end(&j->data, &t->pass, r->now);
    if (j->passes_left && (t->pass.kind == LH_W || t->pass.kind == LH_B) &&
        --j->passes_left[t->pass.chunk] == 0)
        send_between_replicas(r, j, t->pass.chunk, LH_W);
    try_start(r, j, t->device);
    if (--j->left == 0)
        end_passes(r, j);
}

/* Marks a message as arrived and starts the pass that needs it if that is
 * ready; after the last message between replicas, ends the iteration. */
static void arrive_message(lhi_live_run *r, lhi_live_job *j, uint32_t task)
{
    const lhi_program *p = j->program;
    const lhi_task *t = &p->tasks[task];
    j->there[task] = true;
    j->arrive[task] = r->now;
    if (task >= p->n_tasks) {
        if (t->pass.kind == LH_F && --j->gathers_left[t->pass.chunk] == 0) {
            j->gathered_ns[t->pass.chunk] = r->now;
            try_start(r, j, t->device);
        }
        if (--j->left == 0)
            end_passes(r, j);
        return;
    }
    try_start(r, j, p->tasks[p->tasks[task].consumer].device);
}

/* Processes a request of the background traffic: allocates a circuit by first
 * fit, or counts a refusal. */
static void arrive_background(lhi_live_run *r)
{
    lhi_arrival a = lhi_arrivals_next(&r->arrivals);
    const lhi_paths *paths = lhi_network_paths(r->in->network, a.from, a.to);
    lhi_circuit_grant grant;
    if (!paths) {
        r->no_memory = true;
        return;
    }
    bool ok = lhi_live_assign_background(r, paths, a.slots, a.gbps, &grant);
    if (ok)
        lhi_live_hold(r, &grant, r->now + a.holding_ns, LH_NONE, a.gbps);
    r->out->background += r->counting;
    r->out->background_refused += r->counting && !ok;
}

/* Processes one event from the queue by its kind (task end, arrival, request,
 * release, ...). */
static void process_event(lhi_live_run *r, const lhi_event *e)
{
    bool of_job = e->rank != LHI_EVENT_RELEASE && e->rank < LHI_EVENT_REPAIR;
    lhi_live_job *j = &r->jobs[of_job ? e->payload >> 32 : 0];
    uint32_t low = (uint32_t)e->payload;
    switch (e->rank) {
    case LHI_EVENT_CUT:
        lhi_live_cut(r, e->payload);
        break;
    case LHI_EVENT_REPAIR:
        lhi_live_repair(r, e->payload);
        break;
    case LHI_EVENT_RELEASE:
        lhi_live_release(r, e);
        break;
    case LHI_EVENT_ARRIVAL:
        /* Else its circuit was cut or taken by another job. */
        if (j->arrive[low] == r->now && !j->there[low])
            arrive_message(r, j, low);
        break;
    case LHI_EVENT_TASK_END:
        end_task(r, j, low);
        break;
    case LHI_EVENT_REQUEST:
        request_circuit(r, j, low);
        break;
    case LHI_EVENT_WAKE:
        try_start(r, j, low);
        break;
    case LHI_EVENT_END:
        end_iteration(r, j);
        break;
    default:
        if (j->index == 0)
            r->counting = false;
        begin_iteration(r, j);
        break;
    }
}

/* Fails: a message of a job has no path, and cuts on all its paths are never
 * repaired. */
static lh_status fail_separated(const lhi_live_run *r, lh_error *err)
{
    const lhi_live_job *j = r->separated;
    const lh_topology *topology = r->in->network->topology;
    uint32_t from = 0, to = 0;
    lhi_program_get_ends(j->program, j->sites, r->separated_task, &from, &to);
    return lhi_fail(
        err, LH_EINFEASIBLE,
        "failures: cuts without repair_s leave no candidate path from node "
        "%" PRId64 " to node %" PRId64 ", which device %" PRIu32
        " of job %" PRIu32 " needs under the policy %.60s; give repair_s, or "
        "more candidate_paths",
        topology->ids[from], topology->ids[to],
        j->program->tasks[r->separated_task].device, j->index, j->policy->name);
}

/* Processes all events in time order until every job has finished. */
static lh_status process_events(lhi_live_run *r, lh_error *err)
{
    while (r->jobs_left > 0) {
        const lhi_event *top = r->heap.count ? &r->heap.items[0] : NULL;
        int64_t next = r->arrivals.next_ns;
        assert(top || next != INT64_MAX);
        if (!top || next < top->time_ns ||
            (next == top->time_ns && top->rank > LHI_EVENT_BACKGROUND)) {
            r->now = next;
            arrive_background(r);
        } else {
            lhi_event e;
            lhi_heap_pop(&r->heap, &e);
            assert(e.time_ns >= r->now);
            r->now = e.time_ns;
            process_event(r, &e);
        }
        if (r->no_memory)
            return lhi_fail_nomem(err);
        if (r->separated)
            return fail_separated(r, err);
        if (r->now > MAX_TIME_NS)
            return lhi_fail(err, LH_EINFEASIBLE,
                            "the jobs do not end within 146 years");
    }
    return LH_OK;
}

lh_status lhi_optical_simulate(const lhi_optical_run_input *input,
                               lhi_optical_run_output *output, lh_error *err)
{
    lhi_live_run r = {.in = input, .out = output};
    lh_status status = lhi_live_run_make(&r, err);
    if (status == LH_OK)
        status = process_events(&r, err);
    lhi_heap_fini(&r.heap);
    free(r.waits);
    lhi_circuits_fini(&r.circuits);
    lhi_arena_free(r.mem);
    return status;
}
