/* SPDX-License-Identifier: Apache-2.0 */
/* Events: file syntax, the links and devices that they name, their combined
 * effect, and iterations simulated under them. */
#include "test.h"

#include "format/job/events_file.h"
#include "uniform.h"
#include <math.h>

#include <longhaul/experimental/delegate.h>
#include <longhaul/experimental/events.h>
#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/simulate.h>

#define MS INT64_C(1000000)

static lh_events *events_of(const char *lines)
{
    char text[2048];
    lh_events *events = NULL;
    lh_error err = {0};
    snprintf(text, sizeof text,
             "longhaul: events/1\ntime_unit: ms\nevents:\n%s", lines);
    CHECK_OK(lhi_events_parse(text, strlen(text), "e.yaml", &events, &err),
             err);
    return events;
}

static lh_pipeline *pipeline_of(const char *links)
{
    char more[512];
    snprintf(more, sizeof more, "links:\n%s", links);
    return uniform_make((uniform){.placement = "ud",
                                  .devices = 4,
                                  .microbatches = 8,
                                  .f = 10,
                                  .d = 10,
                                  .w = 10,
                                  .more = *links ? more : NULL});
}

static lh_event_timeline *course_of(const lh_pipeline *p, const char *lines)
{
    lh_event_timeline *course = NULL;
    lh_error err = {0};
    lh_events *events = events_of(lines);
    if (events)
        CHECK_OK(lh_event_timeline_make(p, events, NULL, &course, &err), err);
    lh_events_free(events);
    return course;
}

static lh_pipeline *at_step(const lh_event_timeline *course, uint64_t step)
{
    lh_pipeline *p = NULL;
    lh_error err = {0};
    CHECK_OK(lh_event_timeline_pipeline(
                 course, lh_event_timeline_state(course, step), &p, &err),
             err);
    return p;
}

static const lh_link *between(const lh_pipeline *p, uint32_t a, uint32_t b)
{
    static const lh_link none = {.latency_ns = -1, .transfer_ns = -1};
    for (uint32_t i = 0; i < lh_pipeline_n_links(p); i++)
        if (lh_pipeline_link(p, i)->from == a &&
            lh_pipeline_link(p, i)->to == b)
            return lh_pipeline_link(p, i);
    return &none;
}

/* --- file ----------------------------------------------------------------- */

static void units_are_the_files(void)
{
    static const struct {
        const char *unit;
        int64_t ns;
    } units[] = {{"", 3000000000},
                 {"time_unit: ms\n", 3000000},
                 {"time_unit: us\n", 3000},
                 {"time_unit: ns\n", 3}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        char text[256];
        lh_events *e = NULL;
        lh_error err = {0};
        snprintf(text, sizeof text,
                 "longhaul: events/1\n%sevents:\n"
                 "  - {from: 0, to: 9, links: [0-1], latency: 3}\n",
                 units[i].unit);
        CHECK_OK(lhi_events_parse(text, strlen(text), "e", &e, &err), err);
        if (e)
            CHECK_INT(e->events[0].latency_ns, units[i].ns);
        lh_events_free(e);
    }
}

static void what_makes_no_sense_is_refused(void)
{
    static const struct {
        const char *event, *says;
    } bad[] = {
        {"{from: 1, to: 2}", "events[0]: has no target"},
        {"{from: 1, to: 2, links: [0-1]}", "has no effect; set 'latency'"},
        {"{from: 2, to: 2, links: [0-1], latency: 1}",
         "events[0].to: must be above 'from': it is the first step without"},
        {"{to: 2, links: [0-1], latency: 1}", "'from'"},
        {"{from: 1, links: [0-1], latency: 1}", "'to'"},
        {"{from: 1, to: 2, links: [], latency: 1}", "at least 1"},
        {"{from: 1, to: 2, links: [0-1], latency: 0}", "0 has no effect"},
        {"{from: 1, to: 2, links: [0-1], latency: -3}", "events[0].latency"},
        {"{from: 1, to: 2, links: [0-1], slower: 4}",
         "slower: must be a factor, such as x4"},
        {"{from: 1, to: 2, links: [0-1], slower: x1}", "x1 has no effect"},
        {"{from: 1, to: 2, links: [0-1], slower: x0.5}", "events[0].slower"},
        {"{from: 1, to: 2, links: [0-1], slower: x}", "events[0].slower"},
        {"{from: 1, to: 2, links: [0-1], slower: x.nan}", "events[0].slower"},
        {"{from: 1, to: 2, device: 1}", "'slower'"},
        {"{from: 1, to: 2, device: 1, slower: x2, transfer: 1}",
         "transfer: is not valid in an event on a device"},
        {"{from: 1, to: 2, device: 1, slower: x2, links: [0-1]}",
         "device: is not valid in an event on links"},
        {"{at: 3, rail: down}", "'rank'"},
        {"{at: 3, rank: 1, rail: away}", "events[0].rail"},
        {"{from: 3, to: 4, rank: 1, rail: down}",
         "from: is not valid in an event on a rail"},
        {"{at: 3, process: killed}", "'rank'"},
        {"{at: 3, rank: 1, process: away}", "events[0].process"},
        {"{at: 3, rank: 1, process: killed, pause: 2}",
         "pause: is not valid in an event on a killed process"},
        {"{at: 3, rank: 1, process: stopped}", "'pause'"},
        {"{at: 3, rank: 1, process: stopped, pause: 0}", "0 has no effect"},
        {"{at: 3, rank: 1, process: killed, rail: down}",
         "process: is not valid in an event on a rail"},
        {"{from: -1, to: 4, links: [0-1], latency: 1}", "events[0].from"},
        {"{from: 1, to: 2, links: [0-1], lateny: 1}", "lateny"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[256];
        lh_events *e = NULL;
        lh_error err = {0};
        snprintf(text, sizeof text, "longhaul: events/1\nevents:\n  - %s\n",
                 bad[i].event);
        CHECK_INT(lhi_events_parse(text, strlen(text), "e.yaml", &e, &err),
                  LH_EINPUT);
        CHECK_HAS(err.text, "e.yaml:3: ");
        CHECK_HAS(err.text, bad[i].says);
        CHECK(!e);
    }
}

/* --- names ---------------------------------------------------------------- */

static void links_are_found_by_ends_and_by_name(void)
{
    static const struct {
        const char *name;
        int64_t to[3], back[3]; /* ms between 0 and 1, 1 and 2, 2 and 3 */
    } rows[] = {
        {"0-1", {11, 1, 0}, {10, 1, 0}},
        {"0>1", {11, 1, 0}, {0, 1, 0}},
        {"1>0", {1, 1, 0}, {10, 1, 0}},
        {"2-3", {1, 1, 10}, {0, 1, 10}},
        {"west>east", {1, 11, 0}, {0, 1, 0}},
        {"west-east", {1, 11, 0}, {0, 11, 0}},
        {"east-west", {1, 11, 0}, {0, 11, 0}},
        {"east>west", {1, 1, 0}, {0, 11, 0}},
    };
    lh_pipeline *p =
        pipeline_of("  - {from: 0, to: 1, latency: 1}\n"
                    "  - {from: 1, to: 2, latency: 1, name: west>east}\n"
                    "  - {from: 2, to: 1, latency: 1, name: east>west}\n");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char line[128];
        snprintf(line, sizeof line,
                 "  - {from: 5, to: 6, links: ['%s'], latency: 10}\n",
                 rows[i].name);
        lh_event_timeline *c = course_of(p, line);
        lh_pipeline *q = c ? at_step(c, 5) : NULL;
        for (uint32_t d = 0; q && d < 3; d++) {
            int64_t to = between(q, d, d + 1)->latency_ns;
            int64_t back = between(q, d + 1, d)->latency_ns;
            CHECK_MSG(
                to == rows[i].to[d] * MS || (to < 0 && rows[i].to[d] == 0),
                "%s: %u to %u is %lld", rows[i].name, d, d + 1, (long long)to);
            CHECK_MSG(back == rows[i].back[d] * MS ||
                          (back < 0 && rows[i].back[d] == 0),
                      "%s: %u to %u is %lld", rows[i].name, d + 1, d,
                      (long long)back);
        }
        lh_pipeline_free(q);
        lh_event_timeline_free(c);
    }
    lh_pipeline_free(p);
}

static void what_a_pipeline_has_not_is_refused(void)
{
    static const struct {
        const char *event, *says;
        lh_status status;
    } bad[] = {
        {"links: [8-9], latency: 1",
         "links: '8-9' is neither a link of the pipeline", LH_EINPUT},
        {"links: [mars], latency: 1", "a-b>c-d", LH_EINPUT},
        {"links: [0-3], latency: 1",
         "no messages are sent between devices 0 and 3", LH_EINPUT},
        {"links: [1-2], latency: 1", "use the link 'a-b>c-d'; use that name",
         LH_EINPUT},
        {"links: [a-b-c-d], latency: 1", "is ambiguous", LH_EINPUT},
        {"links: [0-1], latency: x2", "latency: a factor has no effect",
         LH_EINPUT},
        {"links: [0-1], slower: x2", "slower: a factor has no effect",
         LH_EINPUT},
        {"links: [2-3], transfer: x2", "transfer: a factor has no effect",
         LH_EINPUT},
        {"device: 4, slower: x2", "there is no device 4", LH_EINPUT},
        {"links: [2-3], latency: x1000000, slower: x1000000", "e.yaml",
         LH_EINPUT},
    };
    lh_pipeline *p =
        pipeline_of("  - {from: 1, to: 2, latency: 1, name: a-b>c-d}\n"
                    "  - {from: 2, to: 1, latency: 1, name: a>b-c-d}\n"
                    "  - {from: 2, to: 3, latency: 100}\n");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char line[128];
        lh_event_timeline *c = NULL;
        lh_error err = {0};
        snprintf(line, sizeof line, "  - {from: 5, to: 6, %s}\n", bad[i].event);
        lh_events *e = events_of(line);
        if (e)
            CHECK_INT(lh_event_timeline_make(p, e, NULL, &c, &err),
                      bad[i].status);
        CHECK_HAS(err.text, "e.yaml");
        CHECK_HAS(err.text, bad[i].says);
        CHECK(!c);
        lh_events_free(e);
    }
    lh_pipeline_free(p);
}

/* --- processes ------------------------------------------------------------ */

static void a_process_is_killed_or_stopped_in_one_step(void)
{
    static const char lines[] =
        "  - {at: 2, rank: 1, process: killed}\n"
        "  - {at: 2, rank: 2, process: stopped, pause: 3}\n";
    lh_pipeline *p = uniform_make((uniform){.placement = "ud",
                                            .devices = 3,
                                            .microbatches = 2,
                                            .f = 1,
                                            .d = 1,
                                            .w = 1});
    const char *names[2];
    int64_t ns[4];
    lh_method_options how = {.size = sizeof how};
    lh_schedule *s = NULL;
    lh_error err = {0};
    CHECK_OK(lh_method_run("zb-h1", p, &how, &s, NULL, &err), err);
    lh_event_timeline *c = course_of(p, lines);
    CHECK_INT(lh_event_timeline_state(c, 1), 0);
    CHECK_INT(lh_event_timeline_state(c, 3), 0);
    CHECK_INT(lh_event_timeline_slow_components(
                  c, lh_event_timeline_state(c, 2), names, 2),
              2);
    CHECK_STR(names[0], "rank 1 killed");
    CHECK_STR(names[1], "rank 2 stopped");
    lh_pipeline *same = at_step(c, 2);
    CHECK_INT(lh_pipeline_chunk(same, 1)->f_ns, lh_pipeline_chunk(p, 1)->f_ns);
    CHECK_INT(lh_event_timeline_simulate(c, s, NULL, 4, ns, &err),
              LH_EUNSUPPORTED);
    CHECK_HAS(err.text, "a simulation has no processes");
    lh_pipeline_free(same);
    lh_event_timeline_free(c);
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

/* --- rails ---------------------------------------------------------------- */

static void rails_that_cannot_be_are_refused(void)
{
    static const struct {
        const char *links, *events, *says;
    } bad[] = {
        {"0, to: 1", "  - {at: 5, rank: 4, rail: down}\n",
         "e.yaml:4: rank: there is no rank 4; the pipeline has 0 to 3"},
        {"0, to: 1", "  - {at: 5, rank: 2, rail: down}\n",
         "e.yaml:4: rank: rank 2 has no links"},
        {"0, to: 1", "  - {at: 5, rank: 1, rail: up}\n",
         "e.yaml:4: rail: none of rank 1 is down at step 5"},
        {"0, to: 1",
         "  - {at: 9, rank: 1, rail: down}\n"
         "  - {at: 5, rank: 1, rail: down}\n",
         "e.yaml:4: rail: the last rail of rank 1 goes down at step 9"},
        {"0, to: 1",
         "  - {at: 5, rank: 1, rail: down}\n"
         "  - {at: 5, rank: 1, rail: up}\n",
         "rail: two events of rank 1 at step 5"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char links[80];
        snprintf(links, sizeof links, "  - {from: %s, latency: 1}\n",
                 bad[i].links);
        lh_pipeline *p = pipeline_of(links);
        lh_events *e = events_of(bad[i].events);
        lh_event_timeline *c = NULL;
        lh_error err = {0};
        CHECK_INT(lh_event_timeline_make(p, e, NULL, &c, &err), LH_EINPUT);
        CHECK_HAS(err.text, bad[i].says);
        CHECK(!c);
        lh_events_free(e);
        lh_pipeline_free(p);
    }
}

/* Also links added by other events, in any order. */
static void a_rail_holds_links_that_events_add(void)
{
    lh_pipeline *p = pipeline_of("");
    lh_event_timeline *c =
        course_of(p, "  - {at: 1, rank: 0, rail: down}\n"
                     "  - {from: 0, to: 9, links: [0-1], latency: 3}\n");
    lh_method_options how = {.size = sizeof how};
    lh_schedule *s = NULL;
    lh_error err = {0};
    int64_t ns[2] = {0};
    CHECK_OK(lh_method_run("1f1b", p, &how, &s, NULL, &err), err);
    CHECK_OK(lh_event_timeline_simulate(c, s, NULL, 2, ns, &err), err);
    CHECK(ns[1] > ns[0] + 250 * MS && ns[1] <= ns[0] + 300 * MS);
    lh_schedule_free(s);
    lh_event_timeline_free(c);
    lh_pipeline_free(p);
}

/* One microbatch on three devices: F ends at 10, arrives at 14, F to 24,
 * arrives at 28, F D to 48, arrives at 52, D to 62, arrives at 66, D W to 86
 * ms. If rank 0's links are held for 300 ms, its first message arrives at 304
 * instead of 14, and the others are later than 300 anyway; for rank 2, at 304
 * instead of 28. */
static void a_rail_that_goes_down_holds_its_messages(void)
{
    lh_pipeline *p = uniform_make(
        (uniform){.placement = "ud",
                  .devices = 3,
                  .microbatches = 1,
                  .f = 10,
                  .d = 10,
                  .w = 10,
                  .more = "links:\n  - {from: 0, to: 1, latency: 4}\n"
                          "  - {from: 1, to: 0, latency: 4}\n"
                          "  - {from: 1, to: 2, latency: 4}\n"
                          "  - {from: 2, to: 1, latency: 4}\n"});
    static const char lines[] = "  - {at: 1, rank: 0, rail: down}\n"
                                "  - {at: 3, rank: 0, rail: up}\n"
                                "  - {at: 4, rank: 0, rail: down}\n"
                                "  - {at: 4, rank: 2, rail: down}\n"
                                "  - {at: 6, rank: 2, rail: up}\n"
                                "  - {at: 7, rank: 2, rail: down}\n";
    static const int64_t want[] = {86, 376, 86, 86, 376, 86, 86, 362};
    lh_method_options how = {.size = sizeof how};
    lh_schedule *s = NULL;
    lh_error err = {0};
    CHECK_OK(lh_method_run("zb-h1", p, &how, &s, NULL, &err), err);
    lh_event_timeline *c = course_of(p, lines);
    int64_t ns[8] = {0};
    CHECK_OK(lh_event_timeline_simulate(c, s, NULL, 8, ns, &err), err);
    for (int i = 0; i < 8; i++)
        CHECK_MSG(ns[i] == want[i] * MS, "step %d: %lld us", i,
                  (long long)(ns[i] / 1000));
    const char *names[2];
    CHECK_INT(lh_event_timeline_slow_components(
                  c, lh_event_timeline_state(c, 4), names, 2),
              2);
    CHECK_STR(names[0], "rail of rank 0");
    CHECK_STR(names[1], "rail of rank 2");
    CHECK_INT(lh_event_timeline_state(c, 3), 0);
    /* The fast evaluator agrees, and so does the delegated path with its copy
     * times added. */
    lh_pipeline *held = at_step(c, 7), *staged = NULL;
    lh_evaluator *fast = NULL;
    int64_t makespan = 0;
    CHECK_OK(lh_evaluator_make(held, NULL, &fast, &err), err);
    CHECK_OK(lh_evaluator_run(fast, s, &makespan, &err), err);
    CHECK_INT(makespan, 362 * MS);
    const lh_delegation copies = {.size = sizeof copies, .staging_ns = MS};
    lh_sim_options sim;
    CHECK_OK(lh_delegate(held, NULL, &copies, &staged, &sim, &err), err);
    lh_timeline *t = NULL;
    CHECK_OK(lh_simulate(staged, s, &sim, &t, &err), err);
    CHECK_INT(lh_timeline_makespan(t), (362 + 2 + 2 + 2) * MS);
    lh_timeline_free(t);
    lh_evaluator_free(fast);
    lh_pipeline_free(held);
    lh_pipeline_free(staged);
    lh_event_timeline_free(c);
    /* Without another rail, the event costs the step and five more. */
    lh_events *e = events_of("  - {at: 1, rank: 0, rail: down}\n"
                             "  - {at: 2, rank: 0, rail: down}\n");
    const lh_event_timeline_options o = {.size = sizeof o, .restart_steps = 5};
    c = NULL;
    CHECK_OK(lh_event_timeline_make(p, e, &o, &c, &err), err);
    CHECK_OK(lh_event_timeline_simulate(c, s, NULL, 4, ns, &err), err);
    for (int i = 0; i < 4; i++)
        CHECK_INT(ns[i], (i == 1 || i == 2 ? 6 : 1) * 86 * MS);
    lh_event_timeline_free(c);
    lh_events_free(e);
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

/* Events that no file can contain. */
static void what_a_program_says_is_looked_at(void)
{
    static const char *const ends[] = {"0-1"};
#define OF_LINKS .n_links = 1, .links = ends, .device = LH_NONE
#define FACTORS .latency_factor = 1, .transfer_factor = 1, .slowdown = 1
    static const struct {
        lh_event event;
        const char *says;
    } rows[] = {
        {{.first_step = 1, .end_step = 2, OF_LINKS, .latency_ns = 1, FACTORS},
         NULL},
        {{.first_step = 0,
          .end_step = 1,
          .slowdown = 2,
          .latency_factor = 1,
          .transfer_factor = 1},
         NULL},
        {{.first_step = -3, .end_step = -1, OF_LINKS, .latency_ns = 1, FACTORS},
         "from -3"},
        {{.first_step = 2, .end_step = 2, OF_LINKS, .latency_ns = 1, FACTORS},
         "to 2"},
        {{.first_step = 1, .end_step = 2, OF_LINKS, .latency_ns = 1},
         "factors at least 1"},
        {{.first_step = 1,
          .end_step = 2,
          OF_LINKS,
          .latency_ns = 1,
          .latency_factor = 1,
          .transfer_factor = 1,
          .slowdown = NAN},
         "factors at least 1"},
        {{.first_step = 1,
          .end_step = 2,
          OF_LINKS,
          .latency_ns = 5,
          .transfer_ns = -1,
          FACTORS},
         "times must be at least 0"},
        {{.first_step = 1, .end_step = 2, OF_LINKS, FACTORS},
         "it has no effect"},
        {{.first_step = 1,
          .end_step = 2,
          .device = 1,
          .latency_ns = 9,
          FACTORS},
         "a device has no latency"},
    };
    lh_pipeline *p = pipeline_of("  - {from: 0, to: 1, latency: 10}\n");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const lh_events one = {.n_events = 1, .events = &rows[i].event};
        lh_event_timeline *c = NULL;
        lh_error err = {0};
        CHECK_INT(lh_event_timeline_make(p, &one, NULL, &c, &err),
                  rows[i].says ? LH_EINPUT : LH_OK);
        CHECK_MSG(!rows[i].says || strstr(err.text, rows[i].says), "%s",
                  err.text);
        CHECK(!rows[i].says || strncmp(err.text, "event 0: ", 9) == 0);
        lh_event_timeline_free(c);
    }
    lh_pipeline_free(p);
}

/* --- combined events ------------------------------------------------------ */

static void events_at_once_multiply_and_add(void)
{
    lh_pipeline *p =
        pipeline_of("  - {from: 0, to: 1, latency: 10, transfer: 2}\n"
                    "  - {from: 1, to: 0, latency: 4, transfer: 1}\n");
    static const char *const orders[] = {
        "  - {from: 0, to: 10, links: ['0>1'], latency: 30}\n"
        "  - {from: 5, to: 15, links: [0-1], latency: x2}\n"
        "  - {from: 5, to: 10, links: ['0>1', 0-1], transfer: 5}\n"
        "  - {from: 5, to: 10, links: [0-1], slower: x3}\n",
        "  - {from: 5, to: 10, links: [0-1], slower: x3}\n"
        "  - {from: 5, to: 10, links: ['0>1', 0-1], transfer: 5}\n"
        "  - {from: 5, to: 15, links: [0-1], latency: x2}\n"
        "  - {from: 0, to: 10, links: ['0>1'], latency: 30}\n"};
    for (int i = 0; i < 2; i++) {
        lh_event_timeline *c = course_of(p, orders[i]);
        static const struct {
            uint64_t step;
            int64_t latency, transfer, back_latency, back_transfer;
        } want[] = {{0, 40, 2, 4, 1},   {4, 40, 2, 4, 1},
                    {5, 90, 11, 24, 8}, {9, 90, 11, 24, 8},
                    {10, 20, 2, 8, 1},  {14, 20, 2, 8, 1},
                    {15, 10, 2, 4, 1},  {UINT64_MAX >> 1, 10, 2, 4, 1}};
        for (size_t k = 0; c && k < sizeof want / sizeof *want; k++) {
            lh_pipeline *q = at_step(c, want[k].step);
            if (!q)
                continue;
            CHECK_INT(between(q, 0, 1)->latency_ns, want[k].latency * MS);
            CHECK_INT(between(q, 0, 1)->transfer_ns, want[k].transfer * MS);
            CHECK_INT(between(q, 1, 0)->latency_ns, want[k].back_latency * MS);
            CHECK_INT(between(q, 1, 0)->transfer_ns,
                      want[k].back_transfer * MS);
            lh_pipeline_free(q);
        }
        if (c) {
            const char *names[2];
            CHECK_INT(lh_event_timeline_n_states(c), 4);
            CHECK_INT(lh_event_timeline_state(c, 15), 0);
            CHECK_INT(lh_event_timeline_slow_components(c, 0, names, 2), 0);
            CHECK_INT(lh_event_timeline_slow_components(
                          c, lh_event_timeline_state(c, 7), names, 2),
                      2);
            CHECK_INT(lh_event_timeline_slow_components(
                          c, lh_event_timeline_state(c, 12), names, 2),
                      1);
            CHECK_STR(names[0], "0-1");
        }
        lh_event_timeline_free(c);
    }
    lh_pipeline_free(p);
}

static void devices_are_slower_in_all_their_passes(void)
{
    lh_pipeline *p = pipeline_of("");
    lh_event_timeline *c =
        course_of(p, "  - {from: 1, to: 9, device: 2, slower: x1.5}\n"
                     "  - {from: 4, to: 9, device: 2, slower: x2}\n");
    lh_pipeline *one = at_step(c, 1), *two = at_step(c, 4);
    for (uint32_t i = 0; i < 4; i++) {
        int64_t times = i == 2 ? 15 : 10;
        CHECK_INT(lh_pipeline_chunk(one, i)->f_ns, times * MS);
        CHECK_INT(lh_pipeline_chunk(one, i)->d_ns, times * MS);
        CHECK_INT(lh_pipeline_chunk(one, i)->w_ns, times * MS);
        CHECK_INT(lh_pipeline_chunk(two, i)->w_ns, (i == 2 ? 30 : 10) * MS);
    }
    const char *name = NULL;
    CHECK_INT(lh_event_timeline_slow_components(
                  c, lh_event_timeline_state(c, 4), &name, 1),
              1);
    CHECK_STR(name, "device 2");
    lh_pipeline_free(one);
    lh_pipeline_free(two);
    lh_event_timeline_free(c);
    lh_pipeline_free(p);
}

static void speed_is_of_the_events_too(void)
{
    lh_pipeline *p = pipeline_of("  - {from: 0, to: 1, latency: 10}\n");
    lh_events *e = events_of(
        "  - {from: 0, to: 2, links: [0-1], latency: 30, transfer: 6}\n");
    lh_event_timeline *c = NULL;
    lh_error err = {0};
    const lh_event_timeline_options o = {.size = sizeof o, .time_divisor = 3};
    CHECK_OK(lh_event_timeline_make(p, e, &o, &c, &err), err);
    lh_pipeline *q = c ? at_step(c, 0) : NULL;
    if (q) {
        CHECK_INT(between(q, 0, 1)->latency_ns, 20 * MS);
        CHECK_INT(between(q, 1, 0)->transfer_ns, 2 * MS);
    }
    lh_pipeline_free(q);
    lh_event_timeline_free(c);
    lh_events_free(e);
    lh_pipeline_free(p);
}

/* --- simulated iterations ------------------------------------------------- */

/* Each step takes as long as its manually built pipeline alone. */
static void steps_take_what_their_pipelines_take(void)
{
    lh_pipeline *p = pipeline_of("");
    lh_pipeline *slow = pipeline_of("  - {from: 1, to: 2, latency: 35}\n"
                                    "  - {from: 2, to: 1, latency: 35}\n");
    lh_event_timeline *c =
        course_of(p, "  - {from: 2, to: 5, links: [1-2], latency: 35}\n"
                     "  - {from: 7, to: 8, links: [1-2], latency: 35}\n");
    lh_schedule *s = NULL;
    lh_error err = {0};
    int64_t ns[10] = {0};
    CHECK_OK(lh_method_run("zb-h1", p, NULL, &s, NULL, &err), err);
    for (uint32_t coupled = 0; s && coupled < 3; coupled++) {
        const lh_sim_options o = {.size = sizeof o, .coupled_queue = coupled};
        lh_timeline *a = NULL, *b = NULL;
        CHECK_OK(lh_simulate(p, s, &o, &a, &err), err);
        CHECK_OK(lh_simulate(slow, s, &o, &b, &err), err);
        CHECK_OK(lh_event_timeline_simulate(c, s, &o, 10, ns, &err), err);
        for (int i = 0; a && b && i < 10; i++)
            CHECK_INT(ns[i], lh_timeline_makespan(
                                 (i >= 2 && i < 5) || i == 7 ? b : a));
        CHECK(!a || !b || lh_timeline_makespan(a) < lh_timeline_makespan(b));
        lh_timeline_free(a);
        lh_timeline_free(b);
    }
    lh_schedule_free(s);
    lh_event_timeline_free(c);
    lh_pipeline_free(slow);
    lh_pipeline_free(p);
}

int main(void)
{
    RUN(units_are_the_files);
    RUN(what_makes_no_sense_is_refused);
    RUN(links_are_found_by_ends_and_by_name);
    RUN(what_a_pipeline_has_not_is_refused);
    RUN(a_process_is_killed_or_stopped_in_one_step);
    RUN(rails_that_cannot_be_are_refused);
    RUN(a_rail_holds_links_that_events_add);
    RUN(a_rail_that_goes_down_holds_its_messages);
    RUN(what_a_program_says_is_looked_at);
    RUN(events_at_once_multiply_and_add);
    RUN(devices_are_slower_in_all_their_passes);
    RUN(speed_is_of_the_events_too);
    RUN(steps_take_what_their_pipelines_take);
    return test_summary();
}
