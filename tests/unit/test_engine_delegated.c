/* SPDX-License-Identifier: Apache-2.0 */
/* Runs with delegated messages, copied to host memory and sent from there:
 * times equal the simulator's to the nanosecond, the queue count follows the
 * rule, and plans that deadlock are rejected. */
#include "dated_messages.h"
#include "random_pipeline.h"
#include "runtime/engine/execution_plan.h"
#include "scheduled.h"
#include "test.h"
#include "virtual_time.h"

#include <stdatomic.h>
#include <stdlib.h>

enum { PLANS = 200, RUNS = 160, MOST_LINKS = 64 };

static const random_shape small = {.max_devices = 4,
                                   .max_microbatches = 6,
                                   .max_chunks = 2,
                                   .links = LINKS_PRIVATE,
                                   .no_data_parallel = true,
                                   .no_limits = true};

/* Some or all links; copy times uniform or per link. */
typedef struct paths {
    bool links[MOST_LINKS];
    int64_t staging_ns[MOST_LINKS];
    lh_delegation delegation;
    lh_exec_options exec;
} paths;

static void draw_paths(rng *r, const lh_pipeline *p, paths *out)
{
    uint32_t n = lh_pipeline_n_links(p);
    *out = (paths){.delegation = {.size = sizeof(lh_delegation)}};
    for (uint32_t i = 0; i < n; i++) {
        out->links[i] = rng_chance(r, 60);
        out->staging_ns[i] = rng_below(r, 60);
    }
    out->delegation.staging_ns = rng_below(r, 40);
    if (rng_chance(r, 50))
        out->delegation.link_staging_ns = out->staging_ns;
    out->exec = (lh_exec_options){
        .size = sizeof out->exec,
        .override_receives = true,
        .receives = (lh_receives)rng_below(r, 3),
        .coupled_queue = rng_chance(r, 60) ? 1 : 0,
        .path = LH_DATA_PATH_DELEGATED,
        .delegation = &out->delegation,
    };
    if (n && rng_chance(r, 60)) {
        out->exec.path = LH_DATA_PATH_MIXED;
        out->delegation.links = out->links;
    }
}

/* Simulates: LH_OK with the timeline, or LH_EDEADLOCK. */
static lh_status simulate(const lh_pipeline *p, const lh_schedule *s,
                          const paths *how, lh_timeline **out)
{
    lh_error err = {0};
    lh_pipeline *staged = NULL;
    lh_sim_options sim = {.size = sizeof sim,
                          .receives = how->exec.receives,
                          .override_receives = true,
                          .coupled_queue = how->exec.coupled_queue};
    CHECK_OK(lh_delegate(p, &sim, &how->delegation, &staged, &sim, &err), err);
    lh_status status = lh_simulate(staged, s, &sim, out, &err);
    CHECK_MSG(status == LH_OK || status == LH_EDEADLOCK, "%s", err.text);
    lh_pipeline_free(staged);
    return status;
}

static void times_are_those_of_the_simulator(void)
{
    uint32_t n_run = 0, n_mixed = 0, n_many = 0, n_blocked = 0;
    for (uint64_t seed = 0; seed < RUNS; seed++) {
        rng r = {seed};
        lh_pipeline *p = random_pipeline(&r, &small);
        lh_schedule *s = random_schedule(&r, p, seed % 2 == 0, false);
        paths how;
        lh_timeline *t = NULL;
        lh_exec *x = NULL;
        lh_error err = {0};
        CHECK(lh_pipeline_n_links(p) <= MOST_LINKS);
        draw_paths(&r, p, &how);
        if (simulate(p, s, &how, &t) == LH_OK &&
            lh_timeline_makespan(t) < LONGEST_NS &&
            lh_exec_make(p, s, &how.exec, &x, &err) == LH_OK) {
            const char *transport = seed % 5 == 4 ? "local" : "inproc";
            lh_trace *trace = run_dated(p, x, transport);
            CHECK_INT(lh_exec_predicted_ns(x), lh_timeline_makespan(t));
            if (trace)
                CHECK_MSG(count_other_dates(t, trace) == 0,
                          "seed %u, %s, path %d: dates are not the simulator's",
                          (unsigned)seed, transport, (int)how.exec.path);
            n_run += trace != NULL;
            n_mixed += how.exec.path == LH_DATA_PATH_MIXED;
            n_blocked += how.exec.path == LH_DATA_PATH_MIXED &&
                         how.exec.coupled_queue > 0;
            for (uint32_t d = 0; d < x->n_ranks; d++)
                for (uint32_t i = 0; i < x->ranks[d].n_lanes; i++)
                    n_many += x->ranks[d].lanes[i].n_queues > 1;
            lh_trace_free(trace);
        }
        lh_timeline_free(t);
        lh_exec_free(x);
        lh_schedule_free(s);
        lh_pipeline_free(p);
    }
    CHECK_MSG(n_run > RUNS / 3 && n_mixed > RUNS / 8 && n_blocked > RUNS / 16 &&
                  n_many > RUNS / 2,
              "%u runs, %u of them mixed, %u blocked; %u lanes of many queues",
              n_run, n_mixed, n_blocked, n_many);
}

/* --- number of queues ----------------------------------------------------- */

static const char every_eighth[] =
    "longhaul: pipeline/1\ntime_unit: ms\nmicrobatches: 12\ndevices: 2\n"
    "uniform: {placement: ud, F: 125, D: 125, W: 125}\n"
    "links: [{from: 0, to: 1, latency: 10, transfer: 1}, "
    "{from: 1, to: 0, latency: 10, transfer: 1}]\n";

static uint32_t queues_out(const lh_exec *x, uint32_t rank)
{
    for (uint32_t i = 0; i < x->ranks[rank].n_lanes; i++)
        if (!x->ranks[rank].lanes[i].receives)
            return x->ranks[rank].lanes[i].n_queues;
    return 0;
}

/* Device 0 produces 8 activations per second; copies of half a second move 2
 * per queue (Adaptra, section 5.2: 4 queues). */
static void copy_queues_are_counted_by_the_rule(void)
{
    static const struct {
        int64_t staging_ms;
        uint32_t queues;
    } all[] = {{0, 1}, {125, 1}, {126, 2}, {250, 2}, {500, 4}, {501, 5}};
    lh_pipeline *p = pipeline_of(every_eighth);
    lh_schedule *s = schedule_by(p, "gpipe");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const lh_delegation d = {.size = sizeof d,
                                 .staging_ns = 1000000 * all[i].staging_ms};
        const lh_exec_options o = {
            .size = sizeof o, .path = LH_DATA_PATH_DELEGATED, .delegation = &d};
        lh_exec *x = NULL;
        lh_error err = {0};
        uint32_t n, sends = 0;
        CHECK_OK(lh_exec_make(p, s, &o, &x, &err), err);
        CHECK_INT(queues_out(x, 0), all[i].queues);
        const lh_instruction *in = lh_exec_instructions(x, 0, &n);
        for (uint32_t k = 0; k < n; k++)
            if (in[k].stream == LH_STREAM_SEND_NEXT)
                CHECK_INT(in[k].queue, sends++ % all[i].queues);
        CHECK_INT(sends, 12);
        lh_exec_free(x);
    }
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

static void too_many_queues_are_rejected(void)
{
    char text[400];
    snprintf(text, sizeof text,
             "longhaul: pipeline/1\ntime_unit: us\nmicrobatches: 100\n"
             "devices: 2\nuniform: {placement: ud, F: 1, D: 1, W: 1}\n"
             "datacenters: {count: 2, latency: 10}\n");
    lh_pipeline *p = pipeline_of(text);
    lh_schedule *s = schedule_by(p, "gpipe");
    lh_delegation d = {.size = sizeof d, .staging_ns = 64000};
    lh_exec_options o = {
        .size = sizeof o, .path = LH_DATA_PATH_DELEGATED, .delegation = &d};
    lh_exec *x = NULL;
    lh_error err = {0};
    CHECK_OK(lh_exec_make(p, s, &o, &x, &err), err);
    lh_exec_free(x);
    d.staging_ns = 65000;
    CHECK_INT(lh_exec_make(p, s, &o, &x, &err), LH_EUNSUPPORTED);
    CHECK_HAS(err.text, "65 queues");
    o.path = LH_DATA_PATH_MIXED;
    CHECK_INT(lh_exec_make(p, s, &o, &x, &err), LH_EINVAL);
    CHECK_HAS(err.text, "without delegation->links");
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

/* --- few buffers ---------------------------------------------------------- */

/* One receive buffer, in any order of use: every proven plan completes. */
static void few_buffers_are_enough(void)
{
    uint32_t n_run = 0, n_refused = 0;
    for (uint64_t seed = 0; seed < PLANS; seed++) {
        rng r = {seed};
        lh_pipeline *p = random_pipeline(&r, &small);
        lh_schedule *s = random_schedule(&r, p, false, seed % 2 == 0);
        paths how;
        lh_exec *x = NULL;
        lh_error err = {0};
        draw_paths(&r, p, &how);
        how.exec.receive_slots = 1 + (uint32_t)seed % 2;
        how.exec.receives = LH_RECEIVES_EARLY;
        how.exec.coupled_queue = 0;
        lh_status status = lh_exec_make(p, s, &how.exec, &x, &err);
        CHECK(status == LH_OK || status == LH_EDEADLOCK);
        n_refused += status != LH_OK;
        if (status == LH_OK && lh_exec_predicted_ns(x) < LONGEST_NS) {
            lh_trace *trace = run_dated(p, x, "inproc");
            n_run += trace != NULL;
            lh_trace_free(trace);
        }
        lh_exec_free(x);
        lh_schedule_free(s);
        lh_pipeline_free(p);
    }
    CHECK_MSG(n_run > PLANS / 3 && n_refused < PLANS / 3, "%u runs, %u refused",
              n_run, n_refused);
}

/* Moves the first message behind all others in its queue. */
static void the_deadlock_check_models_the_queues(void)
{
    lh_pipeline *p = pipeline_of(every_eighth);
    lh_schedule *s = schedule_by(p, "1f1b");
    const lh_exec_options o = {.size = sizeof o,
                               .path = LH_DATA_PATH_DELEGATED};
    lh_exec *x = NULL;
    lh_error err = {0};
    CHECK_OK(lhi_exec_lower(p, s, &o, &x, &err), err);
    CHECK_OK(lhi_exec_check_deadlock(x, &err), err);
    for (uint32_t i = 0; i < x->ranks[1].n_lanes; i++) {
        const lhi_exec_lane *lane = &x->ranks[1].lanes[i];
        uint32_t first = lane->items[0];
        if (!lane->receives)
            continue;
        CHECK_INT(lane->n, 12);
        memmove(lane->items, lane->items + 1, 11 * sizeof first);
        lane->items[11] = first;
    }
    CHECK_INT(lhi_exec_check_deadlock(x, &err), LH_EDEADLOCK);
    CHECK_HAS(err.text, "1F0 on rank 1 has arrived by the delegated path");
    lh_exec_free(x);
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

/* --- activations in host memory ------------------------------------------- */

/* Memory for two out of four microbatches: the others are offloaded to the
 * host, and their copies make passes longer. */
static void offloaded_activations_are_copied(void)
{
    static const char text[] =
        "longhaul: pipeline/1\ntime_unit: us\nmicrobatches: 8\ndevices: 4\n"
        "uniform: {placement: ud, F: 9, D: 9, W: 9, memory: {F: 1, W: -1}}\n"
        "datacenters: {count: 2, latency: 30}\nmemory_limit: 2\n";
    static const char *const transports[] = {"inproc", "local"};
    lh_error err = {0};
    lh_pipeline *p = NULL, *own = pipeline_of(text);
    CHECK_OK(lh_pipeline_with_host(own, 10, &p, &err), err);
    lh_schedule *s = schedule_by(p, "zb-h2");
    const lh_delegation d = {.size = sizeof d, .staging_ns = 3000};
    for (int i = 0; i < 4; i++) {
        const lh_exec_options o = {.size = sizeof o,
                                   .path = i / 2 ? LH_DATA_PATH_DELEGATED
                                                 : LH_DATA_PATH_DIRECT,
                                   .delegation = &d,
                                   .host_copy_ns = 5000};
        lh_sim_options sim = {.size = sizeof sim, .host_copy_ns = 5000};
        lh_pipeline *staged = NULL;
        lh_timeline *t = NULL, *without = NULL;
        lh_exec *x = NULL;
        if (i / 2)
            CHECK_OK(lh_delegate(p, &sim, &d, &staged, &sim, &err), err);
        const lh_pipeline *as = staged ? staged : p;
        CHECK_OK(lh_simulate(as, s, &sim, &t, &err), err);
        sim.host_copy_ns = 0;
        CHECK_OK(lh_simulate(as, s, &sim, &without, &err), err);
        CHECK(lh_timeline_makespan(t) > lh_timeline_makespan(without));
        CHECK_OK(lh_exec_make(p, s, &o, &x, &err), err);
        CHECK_INT(lh_exec_predicted_ns(x), lh_timeline_makespan(t));
        lh_trace *trace = run_dated(p, x, transports[i % 2]);
        CHECK_INT(trace ? count_other_dates(t, trace) : 1, 0);
        lh_trace_free(trace);
        lh_exec_free(x);
        lh_timeline_free(without);
        lh_timeline_free(t);
        lh_pipeline_free(staged);
    }
    lh_schedule_free(s);
    lh_pipeline_free(p);
    lh_pipeline_free(own);
}

/* --- stopping ------------------------------------------------------------- */

static int some_time(void *context)
{
    atomic_int *asked = context;
    return atomic_fetch_add(asked, 1) < 8 ? LH_STOP_NO : LH_STOP_NOW;
}

/* A rank waits for a message that takes a day. */
static void runs_stop_during_a_transfer(void)
{
    static const char slow[] =
        "longhaul: pipeline/1\ntime_unit: s\nmicrobatches: 4\ndevices: 2\n"
        "uniform: {placement: ud, F: 0.0001, D: 0.0001, W: 0.0001, "
        "memory: {F: 1, W: -1}}\n"
        "datacenters: {count: 2, latency: 100000}\n";
    lh_pipeline *p = pipeline_of(slow);
    lh_schedule *s = schedule_by(p, "gpipe");
    const lh_exec_options o = {.size = sizeof o,
                               .path = LH_DATA_PATH_DELEGATED};
    static const char *const transports[] = {"inproc", "local"};
    for (int i = 0; i < 2; i++) {
        atomic_int asked = 0;
        const lh_train_options how = {.size = sizeof how,
                                      .transport = transports[i],
                                      .steps = 1,
                                      .stop = some_time,
                                      .context = &asked};
        lh_exec *x = NULL;
        lh_error err = {0};
        lh_train_result *result = NULL;
        CHECK_OK(lh_exec_make(p, s, &o, &x, &err), err);
        CHECK_OK(lh_train_timed(p, x, &how, &result, &err), err);
        CHECK(result && result->interrupted);
        lh_train_result_free(result);
        lh_exec_free(x);
    }
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

int main(void)
{
    RUN_VIRTUAL(copy_queues_are_counted_by_the_rule);
    RUN_VIRTUAL(too_many_queues_are_rejected);
    RUN_VIRTUAL(times_are_those_of_the_simulator);
    RUN_VIRTUAL(the_deadlock_check_models_the_queues);
    RUN_VIRTUAL(few_buffers_are_enough);
    RUN_VIRTUAL(offloaded_activations_are_copied);
    RUN_VIRTUAL(runs_stop_during_a_transfer);
    return test_summary();
}
