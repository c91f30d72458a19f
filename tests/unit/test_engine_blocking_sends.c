/* SPDX-License-Identifier: Apache-2.0 */
/* Runs with blocking sends (head-of-line blocking): all message times equal the
 * simulator's to the nanosecond, on a busy machine too. Plans that deadlock are
 * rejected; weights are unaffected. Passes take nanoseconds and may slip
 * without limit, so that times depend on each other alone. */
#include "dated_messages.h"
#include "random_pipeline.h"
#include "runtime/engine/execution_plan.h"
#include "scheduled.h"
#include "test.h"
#include "virtual_time.h"

#include <stdatomic.h>
#include <stdlib.h>

enum { PLANS = 400, RUNS = 150 };

static const random_shape small = {.max_devices = 4,
                                   .max_microbatches = 6,
                                   .max_chunks = 2,
                                   .links = LINKS_PRIVATE,
                                   .no_data_parallel = true,
                                   .no_limits = true};

static lh_exec_options coupled(uint32_t queue, lh_receives receives)
{
    return (lh_exec_options){.size = sizeof(lh_exec_options),
                             .receives = receives,
                             .override_receives = true,
                             .coupled_queue = queue};
}

/* Simulates: LH_OK with the timeline, or LH_EDEADLOCK. */
static lh_status simulate(const lh_pipeline *p, const lh_schedule *s,
                          const lh_exec_options *o, lh_timeline **out)
{
    lh_error err = {0};
    const lh_sim_options sim = {.size = sizeof sim,
                                .receives = o->receives,
                                .override_receives = true,
                                .coupled_queue = o->coupled_queue};
    lh_status status = lh_simulate(p, s, &sim, out, &err);
    CHECK_MSG(status == LH_OK || status == LH_EDEADLOCK, "%s", err.text);
    return status;
}

/* --- deadlocks are rejected ----------------------------------------------- */

/* Runs the proof alone, to compare with the simulator's deadlocks: with
 * rendezvous receives neither buffers messages in flight. */
static lh_status prove_as(lh_exec *x, uint32_t queue, lh_error *err)
{
    x->options.coupled_queue = queue;
    return lhi_exec_check_deadlock(x, err);
}

static void the_deadlock_check_models_the_queue(void)
{
    uint32_t n_stop = 0, n_go = 0;
    for (uint64_t seed = 0; seed < PLANS; seed++) {
        rng r = {seed};
        lh_pipeline *p = random_pipeline(&r, &small);
        lh_schedule *s = random_schedule(&r, p, false, seed % 3 == 0);
        lh_exec_options o = coupled(0, LH_RECEIVES_LATE);
        lh_exec *x = NULL;
        lh_error err = {0};
        if (lhi_exec_lower(p, s, &o, &x, &err) == LH_OK)
            for (o.coupled_queue = 1; o.coupled_queue < 4; o.coupled_queue++) {
                lh_timeline *t = NULL;
                lh_exec *whole = NULL;
                lh_status said = simulate(p, s, &o, &t);
                CHECK_INT(prove_as(x, o.coupled_queue, &err), said);
                CHECK(said == LH_OK ||
                      strstr(err.text, "send queue stays full"));
                CHECK_INT(lh_exec_make(p, s, &o, &whole, &err), said);
                CHECK(said == LH_OK ||
                      strncmp(err.text, "deadlock: ", 10) == 0);
                CHECK(!whole ||
                      lh_exec_predicted_ns(whole) == lh_timeline_makespan(t));
                n_stop += said != LH_OK;
                n_go += said == LH_OK;
                lh_exec_free(whole);
                lh_timeline_free(t);
            }
        lh_exec_free(x);
        lh_schedule_free(s);
        lh_pipeline_free(p);
    }
    CHECK_MSG(n_stop > PLANS / 20 && n_go > PLANS / 2, "%u stop, %u do not",
              n_stop, n_go);
}

/* --- runs match the model ------------------------------------------------- */

static void one_entry_gives_simulated_times(void)
{
    static const lh_receives receives[] = {
        LH_RECEIVES_LATE, LH_RECEIVES_LATE_FD, LH_RECEIVES_EARLY};
    uint32_t n_run = 0, n_blocked = 0;
    for (uint64_t seed = 0; seed < RUNS; seed++) {
        rng r = {seed};
        lh_pipeline *p = random_pipeline(&r, &small);
        lh_schedule *s = random_schedule(&r, p, seed % 2 == 0, false);
        lh_exec_options o = coupled(1, receives[seed % 4 % 3]), free_o = o;
        lh_timeline *t = NULL, *freely = NULL;
        lh_exec *x = NULL;
        lh_error err = {0};
        free_o.coupled_queue = 0;
        if (simulate(p, s, &o, &t) == LH_OK &&
            lh_timeline_makespan(t) < LONGEST_NS &&
            lh_exec_make(p, s, &o, &x, &err) == LH_OK) {
            const char *transport = seed % 5 == 4 ? "local" : "inproc";
            lh_trace *trace = run_dated(p, x, transport);
            if (trace)
                CHECK_MSG(count_other_dates(t, trace) == 0,
                          "seed %u, %s, receives %d: dates are not the "
                          "simulator's",
                          (unsigned)seed, transport, (int)o.receives);
            n_run += trace != NULL;
            if (simulate(p, s, &free_o, &freely) == LH_OK)
                n_blocked +=
                    lh_timeline_makespan(freely) < lh_timeline_makespan(t);
            lh_trace_free(trace);
        }
        lh_timeline_free(freely);
        lh_timeline_free(t);
        lh_exec_free(x);
        lh_schedule_free(s);
        lh_pipeline_free(p);
    }
    CHECK_MSG(n_run > RUNS / 3 && n_blocked > RUNS / 10,
              "%u runs, %u of them blocked", n_run, n_blocked);
}

/* --- published case ------------------------------------------------------- */

/* 8 stages, n = 16, F = D = W = 9, 60 on the last link; in us instead of ms. */
static const char eight[] =
    "longhaul: pipeline/1\ntime_unit: us\nmicrobatches: 16\ndevices: 8\n"
    "backward: split\n"
    "uniform: {placement: ud, F: 9, D: 9, W: 9, memory: {F: 1, W: -1}}\n"
    "links: [{from: 6, to: 7, latency: 60, transfer: 0}, "
    "{from: 7, to: 6, latency: 60, transfer: 0}]\n";

/* Counts passes after which the device was blocked. */
static uint32_t count_held(const lh_trace *t)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n_runs; i++)
        n += t->runs[i].issued_ns > t->runs[i].end_ns;
    return n;
}

static void eight_stages(void)
{
    static const struct {
        const char *method, *transport;
        int64_t us;
    } all[] = {{"1f1b", "inproc", 1641}, {"zb-h2", "local", 2334}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        lh_pipeline *p = pipeline_of(eight);
        lh_schedule *s = schedule_by(p, all[i].method);
        lh_exec_options o = coupled(1, LH_RECEIVES_LATE);
        lh_timeline *t = NULL;
        lh_exec *x = NULL;
        lh_error err = {0};
        CHECK_OK(lh_exec_make(p, s, &o, &x, &err), err);
        CHECK_INT(lh_exec_predicted_ns(x), 1000 * all[i].us);
        CHECK_INT(simulate(p, s, &o, &t), LH_OK);
        lh_trace *trace = run_dated(p, x, all[i].transport);
        if (trace && t)
            CHECK_INT(count_other_dates(t, trace), 0);
        CHECK(!trace || count_held(trace) > 0);
        lh_trace_free(trace);
        lh_timeline_free(t);
        lh_exec_free(x);
        lh_schedule_free(s);
        lh_pipeline_free(p);
    }
}

/* --- longer queues -------------------------------------------------------- */

static int by_time(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Checks that a device's message starts only after all but queue - 1 of its
 * predecessors have arrived. The clock decides which entry is free first if
 * several become free at about the same time. */
static void check_device(const lh_exec *x, uint32_t device,
                         const lh_trace *trace)
{
    const lhi_exec_rank *rank = &x->ranks[device];
    uint32_t n = 0, queue = x->options.coupled_queue;
    int64_t *arrived_ns = calloc(rank->n_passes + 1u, sizeof *arrived_ns);
    CHECK(arrived_ns != NULL);
    for (uint32_t i = 0; arrived_ns && i < rank->n_passes; i++)
        for (uint32_t k = 0; k < trace->n_messages; k++) {
            const lh_trace_message *m = &trace->messages[k];
            if (m->from != device ||
                !same_input(&m->producer, &rank->passes[i].pass) ||
                rank->passes[i].pass.kind == LH_W)
                continue;
            qsort(arrived_ns, n, sizeof *arrived_ns, by_time);
            CHECK(n < queue || m->ready_ns >= arrived_ns[n - queue]);
            arrived_ns[n++] = m->arrive_ns;
        }
    free(arrived_ns);
}

static void longer_queues_accept_as_many_sends(void)
{
    uint32_t n_run = 0;
    for (uint64_t seed = 0; seed < RUNS / 2; seed++) {
        rng r = {seed};
        lh_pipeline *p = random_pipeline(&r, &small);
        lh_schedule *s = random_schedule(&r, p, false, seed % 3 == 0);
        lh_exec_options o =
            coupled(2 + (uint32_t)seed % 2,
                    seed % 3 ? LH_RECEIVES_LATE : LH_RECEIVES_EARLY);
        lh_exec *x = NULL;
        lh_error err = {0};
        lh_trace *trace = NULL;
        if (lh_exec_make(p, s, &o, &x, &err) == LH_OK &&
            lh_exec_predicted_ns(x) < LONGEST_NS)
            trace = run_dated(p, x, "inproc");
        for (uint32_t d = 0; trace && d < trace->n_devices; d++)
            check_device(x, d, trace);
        n_run += trace != NULL;
        lh_trace_free(trace);
        lh_exec_free(x);
        lh_schedule_free(s);
        lh_pipeline_free(p);
    }
    CHECK(n_run > RUNS / 6);
}

/* --- stopping ------------------------------------------------------------- */

/* Stops after more polls than occur before the first wait for an entry. */
static int some_time(void *context)
{
    atomic_int *asked = context;
    return atomic_fetch_add(asked, 1) < 8 ? LH_STOP_NO : LH_STOP_NOW;
}

/* A rank that waits for a queue entry is notified when the run ends. */
static void runs_stop_in_a_full_queue(void)
{
    static const char slow[] =
        "longhaul: pipeline/1\ntime_unit: s\nmicrobatches: 4\ndevices: 2\n"
        "uniform: {placement: ud, F: 0.0001, D: 0.0001, W: 0.0001, "
        "memory: {F: 1, W: -1}}\n"
        "datacenters: {count: 2, latency: 100000}\n";
    lh_pipeline *p = pipeline_of(slow);
    lh_schedule *s = schedule_by(p, "gpipe");
    lh_exec_options o = coupled(1, LH_RECEIVES_EARLY);
    atomic_int asked = 0;
    const lh_train_options how = {
        .size = sizeof how, .steps = 1, .stop = some_time, .context = &asked};
    lh_exec *x = NULL;
    lh_error err = {0};
    lh_train_result *result = NULL;
    CHECK_OK(lh_exec_make(p, s, &o, &x, &err), err);
    CHECK_OK(lh_train_timed(p, x, &how, &result, &err), err);
    CHECK(result && result->interrupted);
    lh_train_result_free(result);
    lh_exec_free(x);
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

int main(void)
{
    RUN_VIRTUAL(the_deadlock_check_models_the_queue);
    RUN_VIRTUAL(one_entry_gives_simulated_times);
    RUN_VIRTUAL(eight_stages);
    RUN_VIRTUAL(longer_queues_accept_as_many_sends);
    RUN_VIRTUAL(runs_stop_in_a_full_queue);
    return test_summary();
}
