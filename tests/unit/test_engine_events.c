/* SPDX-License-Identifier: Apache-2.0 */
/* Runs whose links and devices become slow. Message times follow the devices'
 * deadlines and the link emulation; with unlimited slip they equal the
 * simulator's to the nanosecond on a busy machine, too. */
#include "format/job/events_file.h"
#include "test.h"
#include "uniform.h"
#include "virtual_time.h"

#include <longhaul/experimental/engine.h>
#include <longhaul/experimental/events.h>
#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/simulate.h>
#include <longhaul/experimental/trace.h>

enum { STEPS = 6 };

static const char events_text[] =
    "longhaul: events/1\n"
    "time_unit: ms\n"
    "events:\n"
    "  - {from: 1, to: 3, links: [0-1], latency: 6}\n"
    "  - {from: 2, to: 4, device: 2, slower: x1.5}\n"
    "  - {from: 2, to: 5, links: ['1>2'], transfer: 2, latency: x2}\n";

static lh_pipeline *pipeline_of(const char *links)
{
    return uniform_make((uniform){.placement = "ud",
                                  .devices = 4,
                                  .microbatches = 4,
                                  .f = 1,
                                  .d = 1,
                                  .w = 1,
                                  .more = links});
}

static const char plain_links[] = "links:\n"
                                  "  - {from: 1, to: 2, latency: 2}\n"
                                  "  - {from: 2, to: 1, latency: 2}\n";

/* A pipeline, its events, and a schedule. */
typedef struct setting {
    lh_pipeline *base;
    lh_event_timeline *course;
    lh_schedule *schedule;
    lh_exec *exec;
} setting;

static setting set_up(const char *text, const char *method)
{
    setting s = {0};
    lh_error err = {0};
    lh_events *events = NULL;
    lh_pipeline *p = pipeline_of(plain_links);
    CHECK_OK(lhi_events_parse(text, strlen(text), "e", &events, &err), err);
    CHECK_OK(lh_event_timeline_make(p, events, NULL, &s.course, &err), err);
    CHECK_OK(lh_event_timeline_pipeline(s.course, 0, &s.base, &err), err);
    CHECK_OK(lh_method_run(method, s.base, NULL, &s.schedule, NULL, &err), err);
    CHECK_OK(lh_exec_make(s.base, s.schedule, NULL, &s.exec, &err), err);
    lh_events_free(events);
    lh_pipeline_free(p);
    return s;
}

static void tear_down(setting *s)
{
    lh_exec_free(s->exec);
    lh_schedule_free(s->schedule);
    lh_pipeline_free(s->base);
    lh_event_timeline_free(s->course);
}

static const lh_message *made_by(const lh_timeline *t, const lh_pass *pass)
{
    uint32_t n;
    const lh_message *all = lh_timeline_messages(t, &n);
    for (uint32_t i = 0; i < n; i++)
        if (all[i].producer.chunk == pass->chunk &&
            all[i].producer.microbatch == pass->microbatch &&
            all[i].producer.kind == pass->kind)
            return &all[i];
    return NULL;
}

/* Compares the last iteration, `step`, with its simulation. */
static void compare(const setting *s, const lh_trace *trace, uint64_t step)
{
    lh_pipeline *p = NULL;
    lh_timeline *t = NULL;
    lh_error err = {0};
    CHECK_OK(lh_event_timeline_pipeline(
                 s->course, lh_event_timeline_state(s->course, step), &p, &err),
             err);
    CHECK_OK(lh_simulate(p, s->schedule, NULL, &t, &err), err);
    for (uint32_t i = 0; t && trace && i < trace->n_messages; i++) {
        const lh_trace_message *got = &trace->messages[i];
        const lh_message *want = made_by(t, &got->producer);
        CHECK(want != NULL);
        if (!want)
            continue;
        CHECK_INT(got->ready_ns, want->ready_ns);
        CHECK_INT(got->depart_ns, want->depart_ns);
        CHECK_INT(got->sent_ns, want->sent_ns);
        CHECK_INT(got->arrive_ns, want->arrive_ns);
    }
    CHECK(trace && trace->n_messages == 2 * 3 * 4);
    lh_timeline_free(t);
    lh_pipeline_free(p);
}

static void run_steps(const setting *s, const char *transport, uint64_t steps)
{
    lh_error err = {0};
    lh_train_result *r = NULL;
    int64_t ns[STEPS];
    const lh_train_options o = {.size = sizeof o,
                                .transport = transport,
                                .steps = steps,
                                .message_bytes = 64,
                                .tolerated_lateness_ns = INT64_C(3600000000000),
                                .event_timeline = s->course};
    CHECK_OK(lh_event_timeline_simulate(s->course, s->schedule, NULL, steps, ns,
                                        &err),
             err);
    CHECK_OK(lh_train_timed(s->base, s->exec, &o, &r, &err), err);
    if (!r)
        return;
    CHECK_INT(r->n_iterations, steps);
    for (uint32_t i = 0; i < r->n_iterations; i++)
        CHECK_MSG(r->iterations[i].ns >= ns[i],
                  "step %u took %lld ns, less than the %lld of its links and "
                  "devices",
                  i, (long long)r->iterations[i].ns, (long long)ns[i]);
    compare(s, r->trace, steps - 1);
    lh_train_result_free(r);
}

static void each_step_is_as_simulated(void)
{
    static const char *const methods[] = {"1f1b", "zb-h2"};
    for (int i = 0; i < 2; i++) {
        setting s = set_up(events_text, methods[i]);
        for (uint64_t steps = 1; steps <= STEPS; steps++)
            run_steps(&s, "inproc", steps);
        run_steps(&s, "local", 3);
        run_steps(&s, "local", STEPS);
        tear_down(&s);
    }
}

/* Predictions per state, not per step: normal, three slow states, normal again.
 */
static void predictions_differ(void)
{
    setting s = set_up(events_text, "1f1b");
    int64_t ns[STEPS];
    lh_error err = {0};
    CHECK_OK(
        lh_event_timeline_simulate(s.course, s.schedule, NULL, STEPS, ns, &err),
        err);
    CHECK(ns[0] == ns[5] && ns[1] > ns[0] && ns[2] > ns[1] && ns[3] > ns[0] &&
          ns[4] > ns[0]);
    tear_down(&s);
}

static void unsupported_events_are_rejected(void)
{
    lh_error err = {0};
    lh_train_result *r = NULL;
    setting s = set_up(events_text, "1f1b");
    lh_train_options o = {.size = sizeof o,
                          .steps = 1,
                          .real_links = true,
                          .event_timeline = s.course};
    CHECK_INT(lh_train_timed(s.base, s.exec, &o, &r, &err), LH_EUNSUPPORTED);
    CHECK_HAS(err.text, "requires emulated links");
    o.real_links = false;
    lh_exec *exec = NULL;
    lh_pipeline *other = pipeline_of(plain_links); /* without link 0-1 */
    CHECK_OK(lh_exec_make(other, s.schedule, NULL, &exec, &err), err);
    CHECK_INT(lh_train_timed(other, exec, &o, &r, &err), LH_EINVAL);
    CHECK_HAS(err.text, "belongs to another pipeline");
    CHECK(!r);
    lh_exec_free(exec);
    lh_pipeline_free(other);
    tear_down(&s);
}

int main(void)
{
    RUN_VIRTUAL(each_step_is_as_simulated);
    RUN_VIRTUAL(predictions_differ);
    RUN_VIRTUAL(unsupported_events_are_rejected);
    return test_summary();
}
