/* SPDX-License-Identifier: Apache-2.0 */
/* Runs that monitor their links and devices and switch schedules. Times come
 * from the device and link models, and slips are unlimited. So the monitor's
 * input does not depend on machine load; only the moment of a decision, and its
 * first iteration, does. */
#define _GNU_SOURCE
#include "format/job/events_file.h"
#include "scheduled.h"
#include "test.h"
#include "uniform.h"
#include "virtual_time.h"

#include <longhaul/experimental/engine.h>
#include <longhaul/experimental/events.h>
#include <math.h>
#include <stdlib.h>

enum { MOST_STEPS = 3000, SLOW_FROM = 12, SLOW_TO = 40 };

/* One link permanently takes twenty times as long as a pass. */
static const char slow_link[] =
    "longhaul: events/1\n"
    "time_unit: ms\n"
    "events:\n"
    "  - {from: 12, to: 1000000, links: ['1>2'], latency: 20}\n";
static const char slow_for_a_while[] =
    "longhaul: events/1\n"
    "time_unit: ms\n"
    "events:\n"
    "  - {from: 12, to: 40, links: ['1>2'], latency: 20}\n"
    "  - {from: 12, to: 40, device: 3, slower: x3}\n";

static const char slow_at_first[] =
    "longhaul: events/1\n"
    "time_unit: ms\n"
    "events:\n"
    "  - {from: 0, to: 10, device: 3, slower: x3}\n";

/* A run, its events and the notices to it. */
typedef struct setting {
    lh_pipeline *base;
    lh_event_timeline *course;
    lh_schedule *schedule;
    lh_exec *exec;
    const lh_adapt_options *decides; /* NULL: defaults */
    /* Notices to rank 0, in its process. The run stops at the `until` counts.
     */
    uint32_t n_notices, n_answers, n_ended;
    uint32_t until_answers, until_ended, least_steps, n_steps;
    uint64_t last_step;
    bool real_links;
} setting;

static setting set_up(const char *text, const char *method, uint32_t coupled)
{
    setting s = {0};
    lh_error err = {0};
    lh_events *events = NULL;
    lh_pipeline *p = uniform_make((uniform){.placement = "ud",
                                            .devices = 4,
                                            .microbatches = 6,
                                            .f = 1,
                                            .d = 1,
                                            .w = 1});
    CHECK_OK(lhi_events_parse(text, strlen(text), "e", &events, &err), err);
    CHECK_OK(lh_event_timeline_make(p, events, NULL, &s.course, &err), err);
    CHECK_OK(lh_event_timeline_pipeline(s.course, 0, &s.base, &err), err);
    s.schedule = schedule_by(s.base, method);
    const lh_exec_options how = {.size = sizeof how,
                                 .receives = coupled ? LH_RECEIVES_LATE
                                                     : LH_RECEIVES_EARLY,
                                 .coupled_queue = coupled};
    CHECK_OK(lh_exec_make(s.base, s.schedule, &how, &s.exec, &err), err);
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

static void noticed(void *of, const lh_adapt_event *what)
{
    setting *s = of;
    s->n_notices++;
    CHECK(what->text[0] != 0 && what->step >= s->last_step);
    s->last_step = what->step;
    s->n_ended += !what->is_decision && what->event.change == LH_MONITOR_ENDS;
}

static void switched(void *of, const lh_switch *what)
{
    setting *s = of;
    s->n_answers++;
    CHECK_MSG(!what->refused, "%s: %s", what->to, what->refused);
}

static void count_step(void *of, const lh_iteration *it)
{
    setting *s = of;
    s->n_steps = (uint32_t)it->step + 1;
}

static int stop_in_time(void *of)
{
    const setting *s = of;
    return s->n_answers >= s->until_answers && s->n_ended >= s->until_ended &&
                   s->n_steps >= s->least_steps
               ? LH_STOP_AFTER
               : LH_STOP_NO;
}

static lh_train_result *play(setting *s, const char *transport)
{
    lh_error err = {0};
    lh_train_result *r = NULL;
    const lh_train_adapt adapt = {.size = sizeof adapt,
                                  .decision_options = s->decides,
                                  .on_event = noticed};
    const lh_train_options o = {.size = sizeof o,
                                .transport = transport,
                                .steps = MOST_STEPS,
                                .message_bytes = 64,
                                .real_links = s->real_links,
                                .tolerated_lateness_ns = INT64_C(3600000000000),
                                .progress = count_step,
                                .stop = stop_in_time,
                                .context = s,
                                .switched = switched,
                                .event_timeline = s->course,
                                .adapt = &adapt};
    CHECK_OK(lh_train_timed(s->base, s->exec, &o, &r, &err), err);
    return r;
}

static uint32_t link_between(const lh_pipeline *p, uint32_t from, uint32_t to)
{
    uint32_t i = 0;
    while (i < lh_pipeline_n_links(p) &&
           (lh_pipeline_link(p, i)->from != from ||
            lh_pipeline_link(p, i)->to != to))
        i++;
    return i;
}

/* Equal except for rounding of means. */
static bool is_about(double ns, double want_ns)
{
    return fabs(ns - want_ns) < 1;
}

/* Checks the notice for a link or device slow from SLOW_FROM on. An iteration
 * may be skipped while a decision is made. */
static void check_begin(const lh_monitor_event *e, double before_ns,
                        double now_ns)
{
    CHECK(e->first_step >= SLOW_FROM && e->first_step < SLOW_TO);
    CHECK(is_about(e->baseline_ns, before_ns) &&
          is_about(e->current_ns, now_ns));
    CHECK(e->cost_ns > 0);
}

static void a_slow_link_causes_a_switch(void)
{
    static const char *const transports[] = {"inproc", "local"};
    for (size_t t = 0; t < 2; t++) {
        setting s = set_up(slow_link, "1f1b", 0);
        s.until_answers = 1;
        lh_train_result *r = play(&s, transports[t]);
        uint32_t n = 0, n_switches = 0, begun = 0, decided = 0;
        const lh_adapt_event *all = r ? lh_train_adapt_events(r, &n) : NULL;
        const lh_switch *rows = r ? lh_train_switches(r, &n_switches) : NULL;
        for (uint32_t i = 0; i < n; i++) {
            CHECK(all[i].text[0] != 0);
            decided += all[i].is_decision && all[i].is_switch &&
                       all[i].predicted_ns < all[i].now_ns &&
                       all[i].predicted_ns >= all[i].bound_ns;
            if (all[i].is_decision)
                continue;
            CHECK_INT(all[i].event.target, LH_MONITOR_LINK);
            CHECK_INT(all[i].event.index, link_between(s.base, 1, 2));
            begun += all[i].event.change == LH_MONITOR_BEGINS;
            check_begin(&all[i].event, 0, 20e6);
        }
        CHECK_INT(begun, 1);
        CHECK(decided >= 1);
        CHECK_INT(n_switches, 1);
        CHECK(n_switches && rows[0].step > SLOW_FROM + 1 && !rows[0].refused);
        CHECK(n_switches && rows[0].why[0] && rows[0].predicted_ns > 0);
        if (t == 0)
            CHECK(s.n_notices == n && s.n_answers == n_switches);
        /* It is the schedule of the last iteration. */
        CHECK(r && lh_train_schedule(r) && r->interrupted);
        lh_train_result_free(r);
        tear_down(&s);
    }
}

/* Also with blocking sends and rendezvous receives: neither makes a link or a
 * device look slow. */
static void the_end_of_a_slowdown_is_reported(void)
{
    for (uint32_t coupled = 0; coupled <= 1; coupled++) {
        setting s = set_up(slow_for_a_while, "zb-h1", coupled);
        s.until_ended = 2;
        lh_train_result *r = play(&s, "inproc");
        uint32_t n = 0, begun[2] = {0}, ended[2] = {0};
        const lh_adapt_event *all = r ? lh_train_adapt_events(r, &n) : NULL;
        for (uint32_t i = 0; i < n; i++) {
            const lh_monitor_event *e = &all[i].event;
            if (all[i].is_decision)
                continue;
            const bool device = e->target == LH_MONITOR_DEVICE;
            CHECK(device || e->target == LH_MONITOR_LINK);
            CHECK_INT(e->index, device ? 3 : link_between(s.base, 1, 2));
            begun[device] += e->change == LH_MONITOR_BEGINS;
            ended[device] += e->change == LH_MONITOR_ENDS;
            if (e->change == LH_MONITOR_BEGINS)
                check_begin(e, device ? 18e6 : 0, device ? 54e6 : 20e6);
            if (e->change == LH_MONITOR_ENDS)
                CHECK(e->first_step >= SLOW_TO &&
                      is_about(e->current_ns, device ? 18e6 : 0));
        }
        for (uint32_t k = 0; k < 2; k++)
            CHECK(begun[k] == 1 && ended[k] == 1);
        lh_train_result_free(r);
        tear_down(&s);
    }
}

/* A device recovers just before the calibration is refined: the slow iterations
 * do not count as an overhead of the later ones. */
static void predicts_after_a_recovery(void)
{
    setting s = set_up(slow_at_first, "1f1b", 0);
    s.real_links = true;
    s.least_steps = 20;
    lh_train_result *r = play(&s, "inproc");
    CHECK(r && r->is_calibrated && r->n_iterations >= 20);
    if (r && r->n_iterations > 0) {
        const lh_iteration *last = &r->iterations[r->n_iterations - 1];
        CHECK_MSG(fabs((double)last->ns / (double)last->predicted_ns - 1) <
                      0.05,
                  "%g ms, predicted %g", (double)last->ns / 1e6,
                  (double)last->predicted_ns / 1e6);
    }
    lh_train_result_free(r);
    tear_down(&s);
}

/* With blocking sends, the message path switches with the schedule. Copies make
 * no link look slow, and no slow one slower. */
static void a_slow_link_is_delegated(void)
{
    static const char *const transports[] = {"inproc", "local"};
    const lh_delegation copies = {.size = sizeof copies, .staging_ns = 70000};
    const lh_adapt_options decides = {.size = sizeof decides,
                                      .delegation = &copies};
    for (size_t t = 0; t < 2; t++) {
        setting s = set_up(slow_link, "1f1b", 1);
        const bool *links = NULL;
        s.decides = &decides;
        s.until_answers = 1;
        s.least_steps = 60; /* some of them on the new path */
        lh_train_result *r = play(&s, transports[t]);
        uint32_t n = 0, n_switches = 0;
        const lh_adapt_event *all = r ? lh_train_adapt_events(r, &n) : NULL;
        const lh_switch *rows = r ? lh_train_switches(r, &n_switches) : NULL;
        for (uint32_t i = 0; i < n; i++) {
            if (all[i].is_switch)
                CHECK(all[i].path != LH_DATA_PATH_DIRECT);
            if (all[i].is_decision)
                continue;
            CHECK_INT(all[i].event.target, LH_MONITOR_LINK);
            CHECK_INT(all[i].event.change, LH_MONITOR_BEGINS);
            check_begin(&all[i].event, 0, 20e6);
        }
        CHECK_INT(n_switches, 1);
        CHECK(r && n_switches && rows[0].path != LH_DATA_PATH_DIRECT &&
              lh_train_path(r, &links) == rows[0].path);
        CHECK(!links || links[link_between(s.base, 1, 2)]);
        lh_train_result_free(r);
        tear_down(&s);
    }
}

/* Planned links between datacenters take 20 ms, real ones in virtual time none:
 * after the second iteration the run follows another schedule, whose predicted
 * duration is the measured one. Emulated links are as planned. */
static void planned_times_are_replaced_by_measured_ones(void)
{
    for (int real = 0; real <= 1; real++) {
        lh_error err = {0};
        setting s = {.least_steps = 8};
        s.base = uniform_make((uniform){.placement = "ud",
                                        .devices = 4,
                                        .microbatches = 6,
                                        .f = 1,
                                        .d = 1,
                                        .w = 1,
                                        .datacenters = 2,
                                        .latency = 20});
        s.schedule = schedule_by(s.base, "1f1b");
        CHECK_OK(lh_exec_make(s.base, s.schedule, NULL, &s.exec, &err), err);
        s.real_links = real;
        lh_train_result *r = play(&s, "inproc");
        uint32_t n_switches = 0, n = 0;
        const lh_switch *rows = r ? lh_train_switches(r, &n_switches) : NULL;
        const lh_adapt_event *all = r ? lh_train_adapt_events(r, &n) : NULL;
        CHECK_INT(n_switches, real);
        CHECK_INT(n, real);
        CHECK_INT(r && r->is_calibrated, real);
        if (real && n == 1 && n_switches == 1) {
            CHECK(all[0].is_switch && all[0].step == 1);
            CHECK_HAS(all[0].text, "message latency ");
            CHECK(rows[0].step >= 3 && rows[0].step <= 5);
            int64_t longest_ns = 0; /* fewer than ten: all are included */
            for (uint32_t i = 0; i < r->n_iterations; i++) {
                const lh_iteration *it = &r->iterations[i];
                if (it->predicted_ns > 0 && it->ns > longest_ns)
                    longest_ns = it->ns;
                CHECK(i < 4 || it->predicted_ns > 0);
                CHECK_MSG(it->predicted_ns == 0 ||
                              fabs((double)it->ns / (double)it->predicted_ns -
                                   1) < 0.01,
                          "%u: %g ms, predicted %g", i, (double)it->ns / 1e6,
                          (double)it->predicted_ns / 1e6);
            }
            CHECK_INT(r->max_ns, longest_ns);
            CHECK(rows[0].step < 4 || r->iterations[3].predicted_ns == 0 ||
                  longest_ns > r->iterations[7].ns);
            CHECK(fabs(r->error) < 0.01 &&
                  r->iterations[7].ns < r->iterations[1].ns);
            CHECK_MSG(llabs(r->predicted_ns - rows[0].predicted_ns) < 100000,
                      "%g ms, simulated %g", (double)r->predicted_ns / 1e6,
                      (double)rows[0].predicted_ns / 1e6);
        }
        lh_train_result_free(r);
        tear_down(&s);
    }
}

static void incompatible_options_are_rejected(void)
{
    lh_error err = {0};
    lh_train_result *r = NULL;
    setting s = set_up(slow_link, "1f1b", 0);
    const lh_train_adapt adapt = {.size = sizeof adapt};
    lh_train_adapt wrong = adapt;
    lh_train_options o = {.size = sizeof o, .profiles = true, .adapt = &adapt};
    CHECK_INT(lh_train_timed(s.base, s.exec, &o, &r, &err), LH_EINVAL);
    CHECK_HAS(err.text, "chooses its own schedules");
    o.profiles = false;
    wrong.size = 0;
    o.adapt = &wrong;
    CHECK_INT(lh_train_timed(s.base, s.exec, &o, &r, &err), LH_EINVAL);
    CHECK_HAS(err.text, "lh_train_adapt");
    const lh_adapt_options decides = {.size = sizeof decides,
                                      .candidates = "nonsense"};
    wrong =
        (lh_train_adapt){.size = sizeof wrong, .decision_options = &decides};
    CHECK_INT(lh_train_timed(s.base, s.exec, &o, &r, &err), LH_EINVAL);
    CHECK_HAS(err.text, "nonsense");
    const lh_exec_options delegated = {.size = sizeof delegated,
                                       .path = LH_DATA_PATH_DELEGATED};
    lh_exec *x = NULL;
    CHECK_OK(lh_exec_make(s.base, s.schedule, &delegated, &x, &err), err);
    o.adapt = &adapt;
    CHECK_INT(lh_train_timed(s.base, x, &o, &r, &err), LH_EINVAL);
    CHECK_HAS(err.text, "must start on the direct path");
    lh_exec_free(x);
    CHECK(r == NULL);
    tear_down(&s);
}

int main(void)
{
    RUN_VIRTUAL(a_slow_link_causes_a_switch);
    RUN_VIRTUAL(the_end_of_a_slowdown_is_reported);
    RUN_VIRTUAL(a_slow_link_is_delegated);
    RUN_VIRTUAL(planned_times_are_replaced_by_measured_ones);
    RUN_VIRTUAL(predicts_after_a_recovery);
    RUN_VIRTUAL(incompatible_options_are_rejected);
    return test_summary();
}
