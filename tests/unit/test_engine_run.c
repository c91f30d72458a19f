/* SPDX-License-Identifier: Apache-2.0 */
/* Execution plans in real time: measurements against the simulator, for random
 * pipelines too, and how runs end. */
#define _GNU_SOURCE
#include "dated_messages.h"
#include "random_pipeline.h"
#include "runtime/engine/execution_plan.h"
#include "schedule/pipeline/accessors.h"
#include "scheduled.h"
#include "test.h"
#include "virtual_time.h"

#include <dirent.h>
#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/trace.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static lh_exec *lower(const lh_pipeline *p, const lh_schedule *s,
                      lh_receives receives)
{
    lh_error err;
    lh_exec *x = NULL;
    lh_exec_options o = {.size = sizeof o, .receives = receives};
    CHECK_OK(lh_exec_make(p, s, &o, &x, &err), err);
    return x;
}

static const char *const transports[] = {"inproc"};

/* Checks that the trace has everything in the simulation, and that no pass ends
 * early; delays depend on the machine. */
static void compare(const lh_trace *measured, const lh_trace *predicted)
{
    CHECK_STR(measured->source, "measured");
    CHECK_INT(measured->n_runs, predicted->n_runs);
    CHECK_INT(measured->n_messages, predicted->n_messages);
    CHECK_INT(measured->n_collectives, predicted->n_collectives);
    for (uint32_t i = 0; i < measured->n_runs && !test_state.bad; i++) {
        const lh_trace_run *m = &measured->runs[i];
        const lh_trace_run *p = NULL;
        for (uint32_t j = 0; j < predicted->n_runs && !p; j++)
            if (memcmp(&predicted->runs[j].pass, &m->pass, sizeof m->pass) == 0)
                p = &predicted->runs[j];
        CHECK(p != NULL);
        if (!p)
            continue;
        CHECK_INT(m->device, p->device);
        CHECK_INT(m->memory, 0); /* not measured */
        CHECK_MSG(m->end_ns >= p->end_ns,
                  "a pass ends at %" PRId64 ", predicted %" PRId64, m->end_ns,
                  p->end_ns);
    }
    CHECK(measured->makespan_ns >= predicted->makespan_ns);
}

static void play(const lh_pipeline *p, const lh_schedule *s,
                 lh_receives receives, const char *transport)
{
    lh_error err;
    lh_exec *x = lower(p, s, receives);
    lh_train_options o = {.size = sizeof o,
                          .transport = transport,
                          .steps = 2,
                          .message_bytes = 1000,
                          /* Slips must not change the order of events on a busy
                           * machine. */
                          .tolerated_lateness_ns = 400000000};
    lh_train_result *r = NULL;
    CHECK_OK(lh_train_timed(p, x, &o, &r, &err), err);
    lh_sim_options sim = {.size = sizeof sim, .receives = receives};
    lh_timeline *t = NULL;
    lh_trace *predicted = NULL;
    CHECK_OK(lh_simulate(p, s, &sim, &t, &err), err);
    CHECK_OK(lh_trace_make(p, t, NULL, &predicted, &err), err);
    if (r && predicted) {
        CHECK_INT(r->n_iterations, 2);
        CHECK(!r->interrupted);
        CHECK(r->trace != NULL);
        if (r->trace)
            compare(r->trace, predicted);
        for (uint32_t i = 0; i < r->n_iterations; i++) {
            CHECK_INT(r->iterations[i].step, i);
            CHECK(r->iterations[i].ns >= lh_exec_predicted_ns(x));
            CHECK(isnan(r->iterations[i].loss));
        }
    }
    lh_trace_free(predicted);
    lh_timeline_free(t);
    lh_train_result_free(r);
    lh_exec_free(x);
}

static const char four[] =
    "longhaul: pipeline/1\ntime_unit: ms\nmicrobatches: 8\ndevices: 4\n"
    "uniform: {placement: %s, F: 2, D: 3, W: 2, memory: {F: 1, W: -1}}\n"
    "datacenters: {count: 2, latency: 5, transfer: 1}\n";

static void every_placement(void)
{
    static const char *const cases[][2] = {
        {"ud", "1f1b"},    {"ud", "zb-h1"},       {"ud", "greedy"},
        {"wave", "zb-v"},  {"wave", "dualpipev"}, {"loop", "greedy"},
        {"bd", "dualpipe"}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        for (int receives = 0; receives < 3; receives++) {
            char text[512];
            snprintf(text, sizeof text, four, cases[k][0]);
            lh_pipeline *p = pipeline_of(text);
            lh_schedule *s = schedule_by(p, cases[k][1]);
            play(p, s, (lh_receives)receives, transports[0]);
            lh_schedule_free(s);
            lh_pipeline_free(p);
        }
}

/* Overlapped passes, and data-parallel communication of two directions, are
 * rejected before a run. */
static void plain_passes_are_required(void)
{
    static const char *const cases[][4] = {
        {"bd", "data_parallel: [{chunk: 0, reduce_scatter: 1}]\n", "dualpipe",
         "train support two directions (placement bd) only without "
         "data-parallel communication; train a plan with --device cpu"},
        {"wave", "overlap: {F+B: 0.9}\n", "dualpipev",
         "train, explain) does not support overlapped"}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        char text[512];
        lh_exec *x = NULL;
        lh_error err = {0};
        int n = snprintf(text, sizeof text, four, cases[k][0]);
        snprintf(text + n, sizeof text - (size_t)n, "%s", cases[k][1]);
        lh_pipeline *p = pipeline_of(text);
        lh_schedule *s = schedule_by(p, cases[k][2]);
        CHECK_INT(lh_exec_make(p, s, NULL, &x, &err), LH_EUNSUPPORTED);
        CHECK_HAS(err.text, cases[k][3]);
        lh_exec_free(x);
        lh_schedule_free(s);
        lh_pipeline_free(p);
    }
}

/* Times in microseconds, so that only the order matters: runs with random
 * schedules, shared links, explicit message orders, split W passes and data
 * parallelism complete, and each pass runs. */
static void random_schedules(void)
{
    rng r = {7};
    for (int i = 0; i < 60 && !test_state.bad; i++) {
        random_shape shape = {.links = LINKS_PRIVATE};
        lh_pipeline *p = random_pipeline(&r, &shape);
        lh_schedule *s = random_schedule(&r, p, true, rng_chance(&r, 50));
        lh_error err;
        lh_exec *x = NULL;
        lh_exec_options o = {.size = sizeof o,
                             .receives = (lh_receives)rng_below(&r, 3)};
        if (lh_exec_make(p, s, &o, &x, &err) == LH_OK &&
            lh_exec_predicted_ns(x) < 10000000) {
            lh_train_options with = {.size = sizeof with, .steps = 3};
            lh_train_result *result = NULL;
            CHECK_OK(lh_train_timed(p, x, &with, &result, &err), err);
            CHECK(result && result->n_iterations == 3 && result->trace);
            lh_train_result_free(result);
        }
        lh_exec_free(x);
        if (test_state.bad)
            print_case(p, s);
        lh_schedule_free(s);
        lh_pipeline_free(p);
    }
}

static void data_parallel(void)
{
    lh_pipeline *p = pipeline_of(
        "longhaul: pipeline/1\ntime_unit: ms\nmicrobatches: 3\ndevices: 2\n"
        "chunks:\n"
        "  - {device: 0, F: 2, D: 2, W: 2}\n  - {device: 1, F: 2, D: 2, W: 2}\n"
        "links:\n  - {from: 0, to: 1, latency: 3, transfer: 1}\n"
        "data_parallel:\n"
        "  - {chunk: 0, all_gather: 9, reduce_scatter: 7, latency: 2}\n"
        "  - {chunk: 1, all_gather: 4, reduce_scatter: 30, latency: 1}\n");
    lh_schedule *s = schedule_by(p, "1f1b");
    play(p, s, LH_RECEIVES_EARLY, transports[0]);
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

/* Passes wait for their rank's data stream, including prefetched gathers and
 * operations launched by passes: all message times equal the simulator's to the
 * nanosecond. */
static void data_streams_have_simulated_times(void)
{
    static const random_shape shape = {.max_devices = 4,
                                       .max_microbatches = 6,
                                       .max_chunks = 2,
                                       .links = LINKS_PRIVATE,
                                       .no_limits = true};
    uint32_t n_run = 0, n_ops = 0;
    for (uint64_t seed = 0; seed < 120 && !test_state.bad; seed++) {
        rng r = {seed};
        lh_pipeline *own = random_pipeline(&r, &shape);
        lh_schedule *s = random_schedule(&r, own, true, false);
        lh_pipeline *p = communicating_pipeline(&r, own, s);
        lh_error err = {0};
        lh_timeline *t = NULL;
        lh_exec *x = NULL;
        if (lh_simulate(p, s, NULL, &t, &err) == LH_OK &&
            lh_timeline_makespan(t) < LONGEST_NS &&
            lh_exec_make(p, s, NULL, &x, &err) == LH_OK) {
            lh_trace *trace = run_dated(p, x, "inproc");
            if (trace)
                CHECK_INT(count_other_dates(t, trace), 0);
            n_run += trace != NULL;
            n_ops += trace != NULL && lhi_pipeline_n_dp_ops(p) > 0;
            lh_trace_free(trace);
        }
        if (test_state.bad)
            print_case(p, s);
        lh_exec_free(x);
        lh_timeline_free(t);
        lh_schedule_free(s);
        lh_pipeline_free(p);
        lh_pipeline_free(own);
    }
    CHECK_MSG(n_run > 40 && n_ops > 10, "%u runs, %u with operations", n_run,
              n_ops);
}

/* --- stopping ------------------------------------------------------------- */

/* Stop requests and their counts. */
typedef struct stopping {
    atomic_int after, seen;
    int how;
} stopping;

static void count_iteration(void *of, const lh_iteration *it)
{
    stopping *s = of;
    (void)it;
    atomic_fetch_add(&s->seen, 1);
}

static int stop_after(void *of)
{
    stopping *s = of;
    return atomic_load(&s->seen) >= atomic_load(&s->after) ? s->how
                                                           : LH_STOP_NO;
}

static void interrupted(void)
{
    char text[512];
    snprintf(text, sizeof text, four, "ud");
    lh_pipeline *p = pipeline_of(text);
    lh_schedule *s = schedule_by(p, "1f1b");
    for (int k = 0; k < 4; k++) {
        lh_exec *x = lower(p, s, k / 2 ? LH_RECEIVES_LATE : LH_RECEIVES_EARLY);
        stopping stop = {.how = k % 2 ? LH_STOP_NOW : LH_STOP_AFTER};
        atomic_init(&stop.after, 2);
        atomic_init(&stop.seen, 0);
        lh_train_options o = {.size = sizeof o,
                              .steps = 50,
                              .progress = count_iteration,
                              .stop = stop_after,
                              .context = &stop};
        lh_train_result *r = NULL;
        lh_error err;
        CHECK_OK(lh_train_timed(p, x, &o, &r, &err), err);
        if (r) {
            CHECK(r->interrupted);
            CHECK_INT(r->n_iterations, 2);
            /* Stopped between iterations, both ways: the trace is complete. */
            CHECK(r->trace != NULL);
        }
        lh_train_result_free(r);
        lh_exec_free(x);
    }
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

/* In the middle of an iteration that takes seconds. */
static int stop_soon(void *of)
{
    stopping *s = of;
    return atomic_fetch_add(&s->seen, 1) > 3 ? LH_STOP_NOW : LH_STOP_NO;
}

static void interrupted_in_the_middle(void)
{
    lh_pipeline *p = pipeline_of(
        "longhaul: pipeline/1\ntime_unit: ms\nmicrobatches: 20\ndevices: 4\n"
        "uniform: {placement: ud, F: 50, D: 50, W: 50}\n"
        "datacenters: {count: 2, latency: 200, transfer: 100}\n");
    lh_schedule *s = schedule_by(p, "1f1b");
    for (int k = 0; k < 3; k++) {
        lh_exec *x = lower(p, s, k == 1 ? LH_RECEIVES_LATE : LH_RECEIVES_EARLY);
        stopping stop = {.how = LH_STOP_NOW};
        atomic_init(&stop.seen, 0);
        lh_train_options o = {.size = sizeof o,
                              .transport = k == 2 ? "local" : "inproc",
                              .steps = 3,
                              .stop = stop_soon,
                              .context = &stop};
        lh_train_result *r = NULL;
        lh_error err;
        CHECK_OK(lh_train_timed(p, x, &o, &r, &err), err);
        CHECK(r && r->interrupted && r->n_iterations == 0 && !r->trace);
        lh_train_result_free(r);
        lh_exec_free(x);
    }
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

/* Delays the other threads by half a second after the last iteration, longer
 * than rank 0 waits before it polls. */
static void sleep_on(int signal)
{
    (void)signal;
    nanosleep(&(struct timespec){.tv_nsec = 500000000}, NULL);
}

static void hold_others(void *of, const lh_iteration *it)
{
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *d; tasks && (d = readdir(tasks));) {
        pid_t thread = (pid_t)strtol(d->d_name, NULL, 10);
        if (thread > 0 && thread != gettid())
            tgkill(getpid(), thread, SIGUSR1);
    }
    if (tasks)
        closedir(tasks);
    count_iteration(of, it);
}

static void interrupted_after_the_last(void)
{
    char text[512];
    snprintf(text, sizeof text, four, "ud");
    lh_pipeline *p = pipeline_of(text);
    lh_schedule *s = schedule_by(p, "1f1b");
    lh_exec *x = lower(p, s, LH_RECEIVES_EARLY);
    stopping stop = {.how = LH_STOP_NOW};
    atomic_init(&stop.after, 1);
    atomic_init(&stop.seen, 0);
    lh_train_options o = {.size = sizeof o,
                          .steps = 1,
                          .progress = hold_others,
                          .stop = stop_after,
                          .context = &stop};
    lh_train_result *r = NULL;
    lh_error err;
    struct sigaction held = {.sa_handler = sleep_on}, before;
    sigaction(SIGUSR1, &held, &before);
    CHECK_OK(lh_train_timed(p, x, &o, &r, &err), err);
    sigaction(SIGUSR1, &before, NULL);
    CHECK(r && r->n_iterations == 1);
    CHECK(r && r->interrupted == !r->trace);
    lh_train_result_free(r);
    lh_exec_free(x);
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

/* Only in the calling process, like a signal sent to it alone. */
typedef struct caller {
    pid_t pid;
    int says;
} caller;

static int stop_caller(void *of)
{
    const caller *c = of;
    return getpid() == c->pid ? c->says : LH_STOP_NO;
}

static void only_the_launching_process_stops_a_run(void)
{
    char text[512];
    snprintf(text, sizeof text, four, "ud");
    lh_pipeline *p = pipeline_of(text);
    lh_schedule *s = schedule_by(p, "1f1b");
    lh_exec *x = lower(p, s, LH_RECEIVES_EARLY);
    for (int how = LH_STOP_AFTER; how <= LH_STOP_NOW; how++) {
        caller c = {getpid(), how};
        lh_train_options o = {.size = sizeof o,
                              .transport = "local",
                              .steps = 1000,
                              .stop = stop_caller,
                              .context = &c};
        lh_train_result *r = NULL;
        lh_error err;
        CHECK_OK(lh_train_timed(p, x, &o, &r, &err), err);
        CHECK(r && r->interrupted && r->n_iterations < 1000);
        lh_train_result_free(r);
    }
    lh_exec_free(x);
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

static void refusals(void)
{
    lh_pipeline *p = pipeline_of(
        "longhaul: pipeline/1\nmicrobatches: 2\ndevices: 3\n"
        "uniform: {placement: ud, F: 1, D: 1, W: 1}\n"
        "links:\n  - {from: 0, to: 1, latency: 1, transfer: 1, name: a}\n"
        "  - {from: 1, to: 2, latency: 2, transfer: 1, name: a}\n");
    lh_schedule *s = schedule_by(p, "1f1b");
    lh_exec *x = lower(p, s, LH_RECEIVES_EARLY);
    lh_train_options o = {.size = sizeof o};
    lh_train_result *r = NULL;
    lh_error err;
    CHECK_INT(lh_train_timed(p, x, &o, &r, &err), LH_EUNSUPPORTED);
    CHECK_HAS(err.text, "link 'a' has a different latency");
    o.transport = "pigeon";
    CHECK_INT(lh_train_timed(p, x, &o, &r, &err), LH_EUNSUPPORTED);
    CHECK_HAS(err.text, "pigeon");
    o.size = 3;
    CHECK_INT(lh_train_timed(p, x, &o, &r, &err), LH_EINVAL);
    CHECK(r == NULL);
    lh_train_result_free(NULL);
    lh_exec_free(x);
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

int main(void)
{
    RUN_VIRTUAL(every_placement);
    RUN_VIRTUAL(plain_passes_are_required);
    RUN_VIRTUAL(random_schedules);
    RUN_VIRTUAL(data_parallel);
    RUN_VIRTUAL(data_streams_have_simulated_times);
    RUN(interrupted);
    RUN(interrupted_in_the_middle);
    RUN(interrupted_after_the_last);
    RUN(only_the_launching_process_stops_a_run);
    RUN_VIRTUAL(refusals);
    return test_summary();
}
