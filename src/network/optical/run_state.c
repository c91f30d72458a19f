/* SPDX-License-Identifier: Apache-2.0 */
/* Builds a run's state. */
#include "network/optical/deadlines.h"
#include "network/optical/simulation_internal.h"

#include <stdlib.h>

/* Allocates the data-parallel communication's state in a job with a pipeline.
 * LH_EUNSUPPORTED: it shares links with messages. */
static lh_status make_data(lhi_live_job *j, lhi_arena *mem, lh_error *err)
{
    const lh_pipeline *p = j->program->pipeline;
    if (lh_pipeline_shares_links(p, LH_NONE))
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "data_parallel: 'link' names a link of messages; the "
                        "optical network simulation has no shared links");
    j->wake_ns = LHI_NEW(mem, int64_t, p->n_devices);
    j->link_free = LHI_NEW(mem, int64_t, p->n_resources);
    if (!j->wake_ns || !j->link_free)
        return lhi_fail_nomem(err);
    return lhi_dp_clock_init(p, mem, &j->data, err);
}

/* Allocates the state of job number `index`, with message deadlines if the
 * policy requires them. */
static lh_status make_job(lhi_live_run *r, uint32_t index, lh_error *err)
{
    const lhi_program *p = r->in->jobs[index].program;
    size_t n = p->n_messages;
    lhi_arena *mem = r->mem;
    lhi_live_job *j = &r->jobs[index];
    *j = (lhi_live_job){
        .program = p,
        .policy = r->in->jobs[index].policy,
        .sites = r->in->jobs[index].sites,
        .out = &r->out->jobs[index],
        .index = index,
        .priority = r->in->jobs[index].priority,
        .best_ns = -1,
        .next = LHI_NEW(mem, uint32_t, p->n_devices),
        .next_w = LHI_NEW(mem, uint32_t, p->n_devices),
        .free_ns = LHI_NEW(mem, int64_t, p->n_devices),
        .running = LHI_NEW(mem, bool, p->n_devices),
        .before = LHI_NEW(mem, int64_t, n),
        .started = LHI_NEW(mem, bool, n),
        .done = LHI_NEW(mem, bool, n),
        .port_free = LHI_NEW(mem, int64_t, p->n_ports),
        .port_queue = LHI_NEW(mem, uint32_t, p->n_ports),
        .port_circuit = LHI_NEW(mem, uint32_t, p->n_ports),
        .circuit = LHI_NEW(mem, uint32_t, n),
        .deferred = LHI_NEW(mem, bool, n),
        .start = LHI_NEW(mem, int64_t, n),
        .end = LHI_NEW(mem, int64_t, n),
        .arrive = LHI_NEW(mem, int64_t, n),
        .allowed = LHI_NEW(mem, int64_t, n),
        .attempt = LHI_NEW(mem, uint8_t, n),
        .there = LHI_NEW(mem, bool, n),
        .label = LHI_NEW(mem, bool, n),
        .flag = LHI_NEW(mem, bool, n),
        .refused = LHI_NEW(mem, bool, n),
        .posted = LHI_NEW(mem, bool, n),
    };
    if (!j->next || !j->next_w || !j->free_ns || !j->before || !j->started ||
        !j->done || !j->running || !j->port_free || !j->port_queue ||
        !j->deferred || !j->port_circuit || !j->circuit || !j->start ||
        !j->end || !j->arrive || !j->allowed || !j->attempt || !j->there ||
        !j->label || !j->flag || !j->refused || !j->posted)
        return lhi_fail_nomem(err);
    if (p->pipeline)
        LHI_TRY(make_data(j, mem, err));
    if (lhi_live_make_replicas(j, mem) != LH_OK)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < p->n_ports; i++)
        j->port_circuit[i] = LH_NONE;
    for (size_t i = 0; i < n; i++) {
        j->allowed[i] = -1;
        j->circuit[i] = LH_NONE;
    }
    if (j->policy->assignment != LH_CRITICAL)
        return LH_OK;
    int64_t ideal_ns;
    if (lhi_deadlines_compute(r->in->network, r->in->setup_ns,
                              &r->in->jobs[index], 8 * j->policy->request_slots,
                              j->allowed, &ideal_ns) != LH_OK)
        return lhi_fail_nomem(err);
    return LH_OK;
}

/* Allocates an iteration's record with `n` tasks, for figures. */
static lh_status make_record(lhi_iteration_record *rec, size_t n, lh_error *err)
{
    rec->start_ns = calloc(n + 1, sizeof *rec->start_ns);
    rec->finish_ns = calloc(n + 1, sizeof *rec->finish_ns);
    rec->arrive_ns = calloc(n + 1, sizeof *rec->arrive_ns);
    rec->is_bound = calloc(n + 1, sizeof *rec->is_bound);
    return rec->start_ns && rec->finish_ns && rec->arrive_ns && rec->is_bound
               ? LH_OK
               : lhi_fail_nomem(err);
}

void lhi_iteration_record_fini(lhi_iteration_record *record)
{
    free(record->start_ns);
    free(record->finish_ns);
    free(record->arrive_ns);
    free(record->is_bound);
    free(record->circuits);
    *record = (lhi_iteration_record){0};
}

lh_status lhi_live_run_make(lhi_live_run *r, lh_error *err)
{
    const lhi_optical_run_input *in = r->in;
    r->mem = lhi_arena_make(0);
    r->jobs = r->mem ? LHI_NEW(r->mem, lhi_live_job, in->n_jobs) : NULL;
    if (!r->jobs)
        return lhi_fail_nomem(err);
    LHI_TRY(lhi_circuits_make(in->network, &r->circuits, err));
    if (in->record)
        LHI_TRY(make_record(in->record, in->jobs[0].program->n_tasks, err));
    lhi_arrivals_init(&r->arrivals, in->background,
                      in->network->topology->n_nodes, in->seed);
    /* Background traffic reaches its steady state before the jobs begin. */
    int64_t begin_ns = (int64_t)(8 * in->background->holding_ns);
    r->begin_ns = begin_ns;
    for (uint32_t i = 0; i < in->n_jobs; i++) {
        LHI_TRY(make_job(r, i, err));
        if (!lhi_live_push(r, begin_ns, LHI_EVENT_BEGIN,
                           lhi_live_payload(&r->jobs[i], 0)))
            return lhi_fail_nomem(err);
    }
    r->jobs_left = in->n_jobs;
    bool ranked = false;
    for (uint32_t i = 1; i < in->n_jobs; i++)
        ranked |= r->jobs[i].priority != r->jobs[0].priority;
    const lhi_spectrum *s = &r->circuits.spectrum;
    if (ranked) {
        r->residual =
            LHI_NEW(r->mem, uint64_t, (size_t)s->n_fibres * s->n_words);
        if (!r->residual)
            return lhi_fail_nomem(err);
    }
    return lhi_live_begin_failures(r) == LH_OK ? LH_OK : lhi_fail_nomem(err);
}
