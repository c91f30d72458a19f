/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the outages of a run as events of the job's links: a cut fibre is a
 * slower link. */
#include "network/optical/scenario.h"

#include "base/text.h"

#include <inttypes.h>
#include <string.h>

/* Delay of the messages between two devices in one step. */
typedef struct delay {
    int64_t latency_ns; /* added */
    double transfer;    /* factor */
} delay;

/* Steps of one job, and its run's outages. */
typedef struct timeline {
    const lh_scenario *s;
    const lh_optical_run *run;
    const lhi_optical_run_job *job;
    int64_t from_ns, to_ns; /* the current step */
} timeline;

/* Returns the time (ns) at which all outages of a path's cables that
 * overlap the current iteration are repaired; INT64_MAX: never; -1: there
 * is no outage. */
static int64_t get_repair(const timeline *t, const lhi_path *path)
{
    int64_t repair = -1;
    bool shared = t->s->network->shared_fibre;
    for (uint32_t i = 0; i < t->run->n_outages; i++) {
        const lh_outage *o = &t->run->outages[i];
        int64_t up = o->up_ns < 0 ? INT64_MAX : o->up_ns;
        if (o->down_ns >= t->to_ns || up <= t->from_ns)
            continue;
        for (uint32_t h = 0; h < path->hops; h++)
            if ((shared ? path->fibres[h] : path->fibres[h] / 2) == o->cable)
                repair = up > repair ? up : repair;
    }
    return repair;
}

/* Computes the delay of messages from device `a` to device `b` in the current
 * iteration: extra latency and transfer factor of the first candidate path
 * without outages, else the wait for the first repair. LH_ENOMEM. */
static lh_status compute_delay(const timeline *t, uint32_t a, uint32_t b,
                               delay *out)
{
    const lhi_paths *paths =
        lhi_network_paths(t->s->network, t->job->sites[a], t->job->sites[b]);
    int64_t wait = t->to_ns;
    *out = (delay){0, 1};
    if (!paths)
        return LH_ENOMEM;
    for (uint32_t i = 0; i < paths->count; i++) {
        const lhi_path *p = &paths->paths[i], *usual = &paths->paths[0];
        int64_t repair = get_repair(t, p);
        if (repair < 0) {
            out->latency_ns = (p->length_m - usual->length_m) * LHI_NS_PER_M;
            out->transfer = (double)usual->mbps / (double)p->mbps;
            return LH_OK;
        }
        wait = repair < wait ? repair : wait;
    }
    out->latency_ns = wait - t->from_ns;
    return LH_OK;
}

/* Checks whether devices `a` and `b` are on different network nodes and
 * exchange messages, in either direction. */
static bool exchanges_messages(const lhi_optical_run_job *job, uint32_t a,
                               uint32_t b)
{
    const lhi_program *p = job->program;
    return job->sites[a] != job->sites[b] &&
           p->edges[a * p->n_devices + b] + p->edges[b * p->n_devices + a] > 0;
}

/* Adds a line to the events file: iterations `from` to `to`, the link between
 * devices a and b has delay `d`. Returns the number of lines added: 0 if `d` is
 * no delay. */
static uint32_t add_event(lhi_text *out, uint32_t from, uint32_t to, uint32_t a,
                          uint32_t b, const delay *d)
{
    if (d->latency_ns == 0 && d->transfer <= 1)
        return 0;
    lhi_text_printf(out,
                    "  - {from: %" PRIu32 ", to: %" PRIu32 ", links: [%" PRIu32
                    "-%" PRIu32 "]",
                    from, to, a, b);
    if (d->latency_ns > 0)
        lhi_text_printf(out, ", latency: %" PRId64, d->latency_ns);
    if (d->transfer > 1)
        lhi_text_printf(out, ", transfer: x%.9g", d->transfer);
    lhi_text_puts(out, "}\n");
    return 1;
}

/* Adds the lines for devices a and b to the events file: one for each run of
 * iterations with the same delay. Adds their number to *n_events. LH_ENOMEM. */
static lh_status add_pair(lhi_text *out, timeline *t, uint32_t a, uint32_t b,
                          uint32_t *n_events)
{
    const lh_optical_job *job = &t->run->jobs[0];
    delay last = {0, 1}, now;
    uint32_t since = 0;
    t->from_ns = 0;
    for (uint32_t i = 0; i < job->n_iterations; i++) {
        t->to_ns = t->from_ns + job->iteration_ns[i];
        LHI_TRY(compute_delay(t, a, b, &now));
        if (now.latency_ns != last.latency_ns || now.transfer > last.transfer ||
            now.transfer < last.transfer) {
            *n_events += add_event(out, since, i, a, b, &last);
            since = i;
            last = now;
        }
        t->from_ns = t->to_ns;
    }
    *n_events += add_event(out, since, job->n_iterations, a, b, &last);
    return LH_OK;
}

/* Adds the lines of all pairs of the first job's devices that exchange messages
 * to the events file. LH_EINFEASIBLE: no outage delays any of them. */
static lh_status add_events(lhi_text *out, timeline *t, lhi_arena *mem,
                            lh_error *err)
{
    lhi_optical_run_job *jobs = LHI_NEW(mem, lhi_optical_run_job, t->s->n_jobs);
    uint32_t n_events = 0;
    if (!jobs)
        return lhi_fail_nomem(err);
    LHI_TRY(lhi_scenario_prepare_jobs(t->s, &t->s->policies[0], t->run->seed,
                                      mem, jobs, err));
    t->job = &jobs[0];
    uint32_t n = jobs[0].program->n_devices;
    for (uint32_t a = 0; a < n; a++)
        for (uint32_t b = a + 1; b < n; b++)
            if (exchanges_messages(t->job, a, b) &&
                add_pair(out, t, a, b, &n_events) != LH_OK)
                return lhi_fail_nomem(err);
    if (n_events == 0)
        return lhi_fail(err, LH_EINFEASIBLE,
                        "no outage delays a link of the first job, so there "
                        "are no events to write");
    return LH_OK;
}

lh_status lh_optical_events(const lh_scenario *scenario,
                            const lh_optical *optical, char **text, size_t *len,
                            lh_error *err)
{
    if (optical->n_policies != scenario->n_policies)
        return lhi_fail(err, LH_EINVAL, "the result is for another scenario");
    if (!scenario->failures)
        return lhi_fail(err, LH_EINPUT, "the scenario has no failures");
    lhi_text out = {0};
    timeline t = {.s = scenario, .run = &optical->policies[0].runs[0]};
    lhi_arena *mem = lhi_arena_make(0);
    lhi_text_printf(&out,
                    "# Outages under the policy %s, seed %" PRIu64
                    ", as delays of the job's links.\n"
                    "longhaul: events/1\ntime_unit: ns\nevents:\n",
                    optical->policies[0].name, t.run->seed);
    lh_status status =
        mem ? add_events(&out, &t, mem, err) : lhi_fail_nomem(err);
    if (status == LH_OK)
        status = lhi_text_take(&out, text, len, err);
    lhi_text_fini(&out);
    lhi_arena_free(mem);
    return status;
}
