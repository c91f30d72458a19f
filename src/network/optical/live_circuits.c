/* SPDX-License-Identifier: Apache-2.0 */
/* A run's circuits: occupied, released, cut and restored. */
#include "network/optical/simulation_internal.h"

#include <stdlib.h>

/* Flags in a cut's payload, above the cable's number. */
#define RANDOM_CUT (UINT64_C(1) << 32)
#define NO_REPAIR (UINT64_C(1) << 33)

/* Checks whether an entry of the recorded iteration describes circuit `c`: the
 * same path, first slot and start. */
static bool is_record_of(const lhi_recorded_circuit *entry,
                         const lhi_circuit *c)
{
    return entry->path == c->path && entry->first == c->first &&
           entry->start_ns == c->start_ns;
}

/* Appends circuit `c`, in use until end_ns, to the recorded iteration; false on
 * allocation failure. */
static bool record_held(lhi_live_run *r, const lhi_circuit *c, int64_t end_ns)
{
    lhi_iteration_record *rec = r->in->record;
    if (rec->n_circuits == rec->circuits_capacity) {
        size_t room = rec->circuits_capacity ? rec->circuits_capacity * 2 : 256;
        lhi_recorded_circuit *held =
            realloc(rec->circuits, room * sizeof *held);
        if (!held) {
            r->no_memory = true;
            return false;
        }
        rec->circuits = held;
        rec->circuits_capacity = room;
    }
    rec->circuits[rec->n_circuits++] =
        (lhi_recorded_circuit){.path = c->path,
                               .first = c->first,
                               .slots = c->slots,
                               .job = c->job,
                               .task = c->task,
                               .start_ns = c->start_ns,
                               .end_ns = end_ns};
    return true;
}

bool lhi_live_is_recording(const lhi_live_run *r)
{
    return r->in->record && r->jobs[0].iteration == r->in->iterations;
}

void lhi_live_extend(lhi_live_run *r, uint32_t circuit, int64_t end_ns)
{
    lhi_circuit *c = &r->circuits.items[circuit];
    lhi_iteration_record *rec = r->in->record;
    for (size_t i = lhi_live_is_recording(r) ? rec->n_circuits : 0; i-- > 0;)
        if (is_record_of(&rec->circuits[i], c)) {
            rec->circuits[i].end_ns = end_ns;
            break;
        }
    c->end_ns = end_ns;
    c->release = r->seq;
    lhi_live_push(r, end_ns, LHI_EVENT_RELEASE, circuit);
}

uint32_t lhi_live_hold(lhi_live_run *r, const lhi_circuit_grant *grant,
                       int64_t end_ns, uint32_t owner, uint32_t task)
{
    uint32_t at = lhi_circuits_allocate(&r->circuits, grant);
    if (at == LH_NONE) {
        r->no_memory = true;
        return LH_NONE;
    }
    lhi_circuit *c = &r->circuits.items[at];
    c->job = owner;
    c->task = owner == LH_NONE ? LH_NONE : task;
    c->gbps = owner == LH_NONE ? task : 0;
    c->start_ns = r->now;
    c->end_ns = end_ns;
    c->release = r->seq;
    lhi_live_push(r, end_ns, LHI_EVENT_RELEASE, at);
    if (lhi_live_is_recording(r))
        record_held(r, c, end_ns);
    return at;
}

void lhi_live_start_record(lhi_live_run *r)
{
    for (uint32_t i = 0; i < r->circuits.count; i++)
        if (r->circuits.items[i].slots > 0 &&
            !record_held(r, &r->circuits.items[i], r->circuits.items[i].end_ns))
            return;
}

void lhi_live_release(lhi_live_run *r, const lhi_event *e)
{
    uint32_t at = (uint32_t)e->payload;
    if (r->circuits.items[at].release == e->seq)
        lhi_circuits_release(&r->circuits, at);
}

/* --- failures ------------------------------------------------------------- */

lh_status lhi_live_begin_failures(lhi_live_run *r)
{
    const lhi_failures *f = r->in->failures;
    uint32_t n = r->in->network->topology->n_cables;
    if (!f)
        return LH_OK;
    r->down = LHI_NEW(r->mem, uint32_t, n);
    r->forever = LHI_NEW(r->mem, bool, n);
    if (!r->down || !r->forever)
        return LH_ENOMEM;
    for (uint32_t i = 0; i < f->n_cuts; i++) {
        const lhi_link_cut *c = &f->cuts[i];
        bool repaired = c->repair_ns != INT64_MAX;
        lhi_live_push(r, r->begin_ns + c->at_ns, LHI_EVENT_CUT,
                      c->cable | (repaired ? 0 : NO_REPAIR));
        if (repaired)
            lhi_live_push(r, r->begin_ns + c->repair_ns, LHI_EVENT_REPAIR,
                          c->cable);
    }
    /* Another stream than that of placements and background traffic. */
    r->random = (lhi_random){.state = r->in->seed ^ UINT64_C(0x5F356495)};
    for (uint32_t i = 0; f->mtbf_ns > 0 && i < n; i++)
        lhi_live_push(
            r, r->begin_ns + lhi_random_exponential(&r->random, f->mtbf_ns),
            LHI_EVENT_CUT, i | RANDOM_CUT);
    return r->no_memory ? LH_ENOMEM : LH_OK;
}

/* Makes all spectrum slots of a cable's fibres unavailable if `block`, else
 * available again. */
static void block_cable(lhi_live_run *r, uint32_t cable, bool block)
{
    uint32_t n = r->in->network->shared_fibre ? 1 : 2;
    for (uint32_t i = 0; i < n; i++)
        lhi_spectrum_block(&r->circuits.spectrum, n * cable + i, block);
}

/* Checks whether a path contains one of the cable's fibres. */
static bool has_cable(const lhi_live_run *r, const lhi_path *path,
                      uint32_t cable)
{
    for (uint32_t h = 0; h < path->hops; h++)
        if (lhi_network_get_cable(r->in->network, path->fibres[h]) == cable)
            return true;
    return false;
}

bool lhi_live_is_separated(const lhi_live_run *r, const lhi_paths *paths,
                           uint32_t n_paths)
{
    if (!r->some_forever)
        return false;
    for (uint32_t i = 0; i < n_paths; i++) {
        bool cut = false;
        for (uint32_t h = 0; h < paths->paths[i].hops; h++)
            cut |= r->forever[lhi_network_get_cable(r->in->network,
                                                    paths->paths[i].fibres[h])];
        if (!cut)
            return false;
    }
    return true;
}

/* Appends a message (payload of its request event) to the list of messages that
 * wait for the repair of `cable`. Sets r->no_memory on failure. */
static void add_wait(lhi_live_run *r, uint32_t cable, uint64_t message)
{
    if (r->n_waits == r->waits_capacity) {
        uint32_t capacity = r->waits_capacity ? 2 * r->waits_capacity : 64;
        lhi_live_wait *waits = realloc(r->waits, capacity * sizeof *waits);
        if (!waits) {
            r->no_memory = true;
            return;
        }
        r->waits = waits;
        r->waits_capacity = capacity;
    }
    r->waits[r->n_waits++] = (lhi_live_wait){cable, message};
}

/* Appends an outage of a cable that begins now to the run's output. Sets
 * r->no_memory on failure. */
static void add_outage(lhi_live_run *r, uint32_t cable)
{
    lhi_optical_run_output *o = r->out;
    const lh_cable *c = &r->in->network->topology->cables[cable];
    if (o->n_outages == o->outages_capacity) {
        uint32_t capacity = o->outages_capacity ? 2 * o->outages_capacity : 16;
        lh_outage *outages = realloc(o->outages, capacity * sizeof *outages);
        if (!outages) {
            r->no_memory = true;
            return;
        }
        o->outages = outages;
        o->outages_capacity = capacity;
    }
    o->outages[o->n_outages++] = (lh_outage){.cable = cable,
                                             .a = c->a,
                                             .b = c->b,
                                             .down_ns = r->now - r->begin_ns,
                                             .up_ns = -1};
}

/* Sets circuit `c`'s end to now in the recorded iteration, because a cable
 * on its path is cut. */
static void cut_record(lhi_live_run *r, const lhi_circuit *c)
{
    lhi_iteration_record *rec = r->in->record;
    for (size_t i = rec->n_circuits; i-- > 0;) {
        lhi_recorded_circuit *h = &rec->circuits[i];
        if (is_record_of(h, c)) {
            h->end_ns = r->now;
            return;
        }
    }
}

/* Ends the messages in transit on circuit `c`, with index `circuit`, which was
 * released before its end: their arrivals are cancelled, and each requests a
 * new circuit at time `again_ns` or, if that is negative, after the repair of
 * `cable`. Returns the number of messages. */
static uint32_t repeat_messages(lhi_live_run *r, const lhi_circuit *c,
                                uint32_t circuit, int64_t again_ns,
                                uint32_t cable)
{
    lhi_live_job *j = &r->jobs[c->job];
    uint32_t n = 0;
    j->held_ns -=
        (double)c->slots * c->path->hops * (double)(c->end_ns - r->now);
    for (uint32_t i = 0; i < j->program->n_messages; i++) {
        if (j->circuit[i] != circuit || j->there[i] || j->arrive[i] < 0)
            continue;
        j->arrive[i] = -1;
        j->attempt[i] = 0;
        j->circuit[i] = LH_NONE;
        n++;
        if (again_ns < 0)
            add_wait(r, cable, lhi_live_payload(j, i));
        else
            lhi_live_push(r, again_ns, LHI_EVENT_REQUEST,
                          lhi_live_payload(j, i));
    }
    return n;
}

/* Releases circuit number `at` before its end; its release event has no
 * effect. Returns a copy of the circuit. */
static lhi_circuit end_circuit(lhi_live_run *r, uint32_t at)
{
    lhi_circuit c = r->circuits.items[at];
    r->circuits.items[at].release = UINT64_MAX;
    lhi_circuits_release(&r->circuits, at);
    if (lhi_live_is_recording(r))
        cut_record(r, &c);
    return c;
}

/* --- priorities ----------------------------------------------------------- */

/* Checks whether a job with this priority may take circuit `c`: it belongs to a
 * job with a lower one, and its messages have not arrived. */
static bool is_preemptible(const lhi_live_run *r, const lhi_circuit *c,
                           uint32_t priority)
{
    return c->slots > 0 && c->job != LH_NONE &&
           r->jobs[c->job].priority < priority &&
           c->end_ns - r->in->teardown_ns > r->now;
}

/* Checks whether a circuit and a grant share a slot of a fibre. */
static bool overlaps(const lhi_circuit *c, const lhi_circuit_grant *grant)
{
    if (c->first >= grant->first + grant->slots ||
        grant->first >= c->first + c->slots)
        return false;
    for (uint32_t i = 0; i < c->path->hops; i++)
        for (uint32_t k = 0; k < grant->path->hops; k++)
            if (c->path->fibres[i] == grant->path->fibres[k])
                return true;
    return false;
}

bool lhi_live_preempt(lhi_live_run *r, const lhi_live_job *j,
                      const lhi_request *request, lhi_circuit_grant *grant)
{
    lhi_circuits *all = &r->circuits;
    lhi_spectrum rest = all->spectrum;
    if (!r->residual)
        return false;
    rest.busy = r->residual;
    memcpy(rest.busy, all->spectrum.busy,
           (size_t)rest.n_fibres * rest.n_words * sizeof *rest.busy);
    for (uint32_t i = 0; i < all->count; i++) {
        const lhi_circuit *c = &all->items[i];
        if (is_preemptible(r, c, j->priority))
            lhi_spectrum_set(&rest, c->path, c->first, c->slots, false);
    }
    if (!lhi_assignment_choose(&rest, request, grant))
        return false;
    for (uint32_t i = 0; i < all->count; i++) {
        if (!is_preemptible(r, &all->items[i], j->priority) ||
            !overlaps(&all->items[i], grant))
            continue;
        lhi_circuit c = end_circuit(r, i);
        lhi_live_job *other = &r->jobs[c.job];
        uint32_t port = other->program->tasks[c.task].port;
        /* Behind the port's last circuit no message waits. */
        if (other->port_circuit[port] == i)
            other->port_free[port] = c.send_ns > r->now ? c.send_ns : r->now;
        uint32_t n = repeat_messages(r, &c, i, r->now, 0);
        other->out->preempted_messages += n;
        if (other->iteration == 0)
            other->out->warm_up_preempted_messages += n;
    }
    return true;
}

/* --- restoration ---------------------------------------------------------- */

/* Allocates a new circuit by first fit for a background circuit `c` that was
 * cut, until its original end; counts it as lost if none is free. */
static void restore_background(lhi_live_run *r, const lhi_circuit *c)
{
    const lhi_paths *paths = lhi_network_paths(
        r->in->network, c->path->nodes[0], c->path->nodes[c->path->hops]);
    lhi_circuit_grant grant;
    r->out->background_cut++;
    if (paths &&
        lhi_live_assign_background(
            r, paths, c->slots - r->circuits.spectrum.guard, c->gbps, &grant))
        lhi_live_hold(r, &grant, c->end_ns, LH_NONE, c->gbps);
    else
        r->out->background_lost++;
}

void lhi_live_cut(lhi_live_run *r, uint64_t payload)
{
    uint32_t cable = (uint32_t)payload, n = 0;
    const lhi_failures *f = r->in->failures;
    int64_t again_ns = f->wait ? -1 : r->now + f->detection_ns;
    if (payload & RANDOM_CUT)
        lhi_live_push(
            r, r->now + 1 + lhi_random_exponential(&r->random, f->mttr_ns),
            LHI_EVENT_REPAIR, payload);
    if (payload & NO_REPAIR)
        r->forever[cable] = r->some_forever = true;
    if (r->down[cable]++ > 0)
        return;
    add_outage(r, cable);
    lhi_circuits *all = &r->circuits;
    lhi_circuit *cut = malloc((all->count + 1) * sizeof *cut);
    uint32_t *numbers = malloc((all->count + 1) * sizeof *numbers);
    if (!cut || !numbers) {
        free(cut);
        free(numbers);
        r->no_memory = true;
        return;
    }
    for (uint32_t i = 0; i < all->count; i++)
        if (all->items[i].slots > 0 &&
            has_cable(r, all->items[i].path, cable)) {
            numbers[n] = i;
            cut[n++] = end_circuit(r, i);
        }
    block_cable(r, cable, true);
    for (uint32_t i = 0; i < n; i++)
        if (cut[i].job == LH_NONE)
            restore_background(r, &cut[i]);
        else
            r->jobs[cut[i].job].out->cut_messages +=
                repeat_messages(r, &cut[i], numbers[i], again_ns, cable);
    free(cut);
    free(numbers);
}

void lhi_live_repair(lhi_live_run *r, uint64_t payload)
{
    uint32_t cable = (uint32_t)payload, left = 0;
    lhi_optical_run_output *o = r->out;
    if (payload & RANDOM_CUT)
        lhi_live_push(
            r,
            r->now + 1 +
                lhi_random_exponential(&r->random, r->in->failures->mtbf_ns),
            LHI_EVENT_CUT, payload);
    if (--r->down[cable] > 0)
        return;
    for (uint32_t i = o->n_outages; i-- > 0;)
        if (o->outages[i].cable == cable) {
            o->outages[i].up_ns = r->now - r->begin_ns;
            break;
        }
    block_cable(r, cable, false);
    for (uint32_t i = 0; i < r->n_waits; i++)
        if (r->waits[i].cable == cable)
            lhi_live_push(r, r->now, LHI_EVENT_REQUEST, r->waits[i].message);
        else
            r->waits[left++] = r->waits[i];
    r->n_waits = left;
}
