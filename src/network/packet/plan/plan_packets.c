/* SPDX-License-Identifier: Apache-2.0 */
/* Simulates a plan's messages between datacenters with several seeds. */
#include "network/packet/plan/plan_network.h"

#include "base/fail.h"
#include "base/options.h"
#include "base/thread_pool.h"
#include "network/packet/link.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

/* The iterations of a plan, in parallel. */
typedef struct plan_runs {
    const lh_packet_plan_run *run;
    lhi_plan_iteration base;
    lhi_plan_iteration_result *results; /* [seed] */
    lh_status *statuses;
    lh_error *errors;
    atomic_uint done;
    atomic_bool stops;
} plan_runs;

/* Calls the caller's progress callback; returns true if the simulation must
 * stop. For the calling thread. */
static bool report_and_check(void *context, uint64_t events)
{
    plan_runs *s = context;
    (void)events;
    if (s->run->progress &&
        s->run->progress(s->run->context, atomic_load(&s->done),
                         s->run->n_seeds))
        atomic_store(&s->stops, true);
    return atomic_load(&s->stops);
}

/* As report_and_check(), after a finished iteration. */
static void report_progress(void *context, uint32_t n_done)
{
    (void)n_done;
    report_and_check(context, 0);
}

/* Returns true if the progress callback has asked to stop. For worker threads,
 * which must not call it. */
static bool must_stop(void *context, uint64_t events)
{
    plan_runs *s = context;
    (void)events;
    return atomic_load(&s->stops);
}

/* Simulates the iteration with seed number `i`. */
static void run_seed(void *context, uint32_t i, uint32_t thread)
{
    plan_runs *s = context;
    lhi_plan_iteration it = s->base;
    it.seed = s->run->seed + i;
    it.progress = thread == 0 ? report_and_check : must_stop;
    it.context = s;
    s->statuses[i] =
        lhi_plan_iteration_simulate(&it, &s->results[i], &s->errors[i]);
    atomic_fetch_add(&s->done, 1);
}

/* Allocates the results of all seeds. */
static lh_status allocate(plan_runs *s, lhi_arena *mem, lh_error *err)
{
    const lhi_plan_links *links = s->base.links;
    uint32_t n = s->run->n_seeds;
    s->results = LHI_NEW(mem, lhi_plan_iteration_result, n);
    s->statuses = LHI_NEW(mem, lh_status, n);
    s->errors = LHI_NEW(mem, lh_error, n);
    for (uint32_t i = 0; s->results && i < n; i++) {
        double **message_ns = LHI_NEW(mem, double *, links->n);
        s->results[i].message_ns = message_ns;
        s->results[i].counters = LHI_NEW(mem, lh_packet_counters, links->n);
        if (!message_ns || !s->results[i].counters)
            return lhi_fail_nomem(err);
        for (uint32_t k = 0; k < links->n; k++)
            if (!(message_ns[k] =
                      LHI_NEW(mem, double, links->links[k].n_messages)))
                return lhi_fail_nomem(err);
    }
    if (!s->results || !s->statuses || !s->errors)
        return lhi_fail_nomem(err);
    s->results[0].records = LHI_NEW(mem, lh_packet_record, links->n);
    return s->results[0].records ? LH_OK : lhi_fail_nomem(err);
}

/* --- results --- */

/* Compares two doubles, for qsort(). */
static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Computes mean, 95th percentile and maximum of link `k`'s message times over
 * all seeds, and sums its counters. */
static lh_status summarise_link(const plan_runs *s, uint32_t k, lhi_arena *mem,
                                lh_packet_plan_link *out, lh_error *err)
{
    const lhi_plan_link *link = &s->base.links->links[k];
    size_t each = link->n_messages, n = each * s->run->n_seeds;
    double *all = LHI_NEW(mem, double, n + 1);
    if (!all)
        return lhi_fail_nomem(err);
    *out = (lh_packet_plan_link){.messages = link->n_messages,
                                 .replicas =
                                     (uint32_t)llround(link->link.load.senders),
                                 .gpus = link->gpus,
                                 .message_bytes = link->link.load.message_bytes,
                                 .planned_ns = link->planned_ns};
    out->record = s->results[0].records[k];
    snprintf(out->name, sizeof out->name, "%s", link->name);
    for (uint32_t i = 0; i < s->run->n_seeds; i++) {
        for (size_t m = 0; m < each; m++)
            all[i * each + m] = s->results[i].message_ns[k][m];
        lhi_packet_add_counters(&out->counters, &s->results[i].counters[k]);
    }
    qsort(all, n, sizeof *all, compare);
    for (size_t i = 0; i < n; i++)
        out->mean_ns += all[i] / (double)n;
    out->p95_ns = all[(size_t)ceil(0.95 * (double)n) - 1];
    out->max_ns = all[n - 1];
    return LH_OK;
}

/* Computes the result over all seeds. */
static lh_status summarise(const plan_runs *s, lhi_arena *mem,
                           lh_packet_plan *out, lh_error *err)
{
    const lh_choice *best = &s->base.plan->best;
    int64_t after_ns = best->optimizer_ns + best->overhead_ns;
    out->sample = s->base.sample;
    out->planned_ns = best->makespan_ns + after_ns;
    for (uint32_t i = 0; i < s->run->n_seeds; i++) {
        int64_t ns = s->results[i].makespan_ns + after_ns;
        out->mean_ns += (double)ns / s->run->n_seeds;
        if (i == 0 || ns < out->least_ns)
            out->least_ns = ns;
        if (ns > out->greatest_ns)
            out->greatest_ns = ns;
    }
    for (uint32_t k = 0; k < out->n_links; k++)
        LHI_TRY(summarise_link(s, k, mem, &out->links[k], err));
    return LH_OK;
}

/* --- run --- */

/* Decides how many messages of each sender are simulated: `given`, at most the
 * messages of an iteration; 0: all, unless they have too many packets. */
static uint32_t choose_sample(const lhi_plan_links *links, uint32_t given)
{
    double packets = 0;
    uint32_t most = 0;
    for (uint32_t k = 0; k < links->n; k++) {
        const lhi_plan_link *link = &links->links[k];
        packets += link->n_messages * link->link.load.senders *
                   ceil(link->link.load.message_bytes / LH_PACKET_BYTES);
        if (link->n_messages > most)
            most = link->n_messages;
    }
    if (given == LH_PACKET_ALL || (given == 0 && packets <= LH_PACKET_MOST))
        return LH_PACKET_ALL;
    uint32_t sample = given ? given : LH_PACKET_SAMPLE;
    return sample < most ? sample : most;
}

/* Simulates all seeds and computes *out. */
static lh_status run_all(plan_runs *s, lhi_arena *mem, lh_packet_plan *out,
                         lh_error *err)
{
    LHI_TRY(allocate(s, mem, err));
    const lhi_parallel_job job = {s, run_seed, report_progress};
    lhi_run_parallel(&job, s->run->n_seeds,
                     s->run->threads ? s->run->threads
                                     : lhi_count_processors());
    for (uint32_t i = 0; i < s->run->n_seeds; i++)
        if (s->statuses[i] != LH_OK) {
            if (err)
                *err = s->errors[i];
            return s->statuses[i];
        }
    return summarise(s, mem, out, err);
}

/* Simulates the plan; scratch memory is in `mem`. */
static lh_status simulate(const lh_plan *plan, const lh_packet_plan_run *run,
                          lhi_arena *mem, lh_packet_plan *out, lh_error *err)
{
    lhi_plan_links links;
    LHI_TRY(lhi_plan_links_find(plan, mem, &links, err));
    plan_runs s = {.run = run,
                   .base = {.plan = plan,
                            .links = &links,
                            .sample = choose_sample(&links, run->sample)}};
    atomic_init(&s.done, 0);
    atomic_init(&s.stops, false);
    out->links = calloc(links.n, sizeof *out->links);
    if (!out->links)
        return lhi_fail_nomem(err);
    out->n_links = links.n;
    return run_all(&s, mem, out, err);
}

lh_status lh_packets_simulate_plan(const lh_plan *plan,
                                   const lh_packet_plan_run *run,
                                   lh_packet_plan **out, lh_error *err)
{
    lh_packet_plan_run mine;
    LHI_TRY(LHI_OPTIONS_COPY(lh_packet_plan_run, &mine, run, err));
    mine.n_seeds = mine.n_seeds ? mine.n_seeds : 1;
    if (mine.n_seeds > LHI_MAX_PARALLEL_TASKS)
        return lhi_fail(err, LH_EINVAL, "n_seeds: %u is above %d", mine.n_seeds,
                        (int)LHI_MAX_PARALLEL_TASKS);
    lh_packet_plan *result = calloc(1, sizeof *result);
    lhi_arena *mem = lhi_arena_make(0);
    lh_status status = result && mem ? simulate(plan, &mine, mem, result, err)
                                     : lhi_fail_nomem(err);
    lhi_arena_free(mem);
    if (status == LH_OK)
        *out = result;
    else
        lh_packet_plan_free(result);
    return status;
}

void lh_packet_plan_free(lh_packet_plan *result)
{
    if (!result)
        return;
    free(result->links);
    free(result);
}
