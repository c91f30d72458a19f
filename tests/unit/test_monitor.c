/* SPDX-License-Identifier: Apache-2.0 */
/* The monitor with known measurements. */
#include "noisy_run.h"
#include "resilience/monitor/drift_detector.h"
#include "resilience/monitor/monitor.h"
#include "resilience/monitor/step_scatter.h"
#include "test.h"
#include "uniform.h"

#include <longhaul/experimental/methods.h>

enum { MS = 1000000 };

/* Four devices, 20 ms of latency and 2 ms of transfer. */
static const uniform four = {.placement = "ud",
                             .devices = 4,
                             .microbatches = 8,
                             .f = 10,
                             .d = 10,
                             .w = 10,
                             .datacenters = 4,
                             .latency = 20,
                             .transfer = 2};

/* The monitor and its measurement generator. */
typedef struct setting {
    lh_pipeline *p;
    lh_schedule *s;
    noisy_run n;
    lh_monitor *m;
    uint64_t step;
    double latency[64], transfer[64], slower[64], clock[64], drift[64];
} setting;

static void set_up(setting *t, uniform u, const char *method, double cv,
                   const lh_monitor_options *o)
{
    lh_error err = {0};
    memset(t, 0, sizeof *t);
    t->p = uniform_make(u);
    CHECK_OK(lh_method_run(method, t->p, NULL, &t->s, NULL, &err), err);
    t->n = noisy_make(t->p, t->s, cv, 7);
    for (uint32_t i = 0; i < 64; i++)
        t->latency[i] = t->transfer[i] = t->slower[i] = 1;
    t->n.latency = t->latency;
    t->n.transfer = t->transfer;
    t->n.slower = t->slower;
    t->n.clock = t->clock;
    t->n.drift = t->drift;
    CHECK_OK(lh_monitor_make(t->p, t->s, o, &t->m, &err), err);
}

static void tear_down(setting *t)
{
    lh_monitor_free(t->m);
    noisy_free(&t->n);
    lh_schedule_free(t->s);
    lh_pipeline_free(t->p);
}

/* Follows `schedule`, which stays the caller's. */
static void follow(setting *t, const lh_schedule *schedule)
{
    lh_error err = {0};
    CHECK_OK(lh_monitor_set_schedule(t->m, schedule, &err), err);
    t->n.s = schedule;
}

/* Follows a method's schedule; the caller frees it. */
static lh_schedule *follow_method(setting *t, const char *method)
{
    lh_error err = {0};
    lh_schedule *made = NULL;
    CHECK_OK(lh_method_run(method, t->p, NULL, &made, NULL, &err), err);
    follow(t, made);
    return made;
}

/* Runs some iterations; returns the number of events, and the last one in
 * *last. */
static uint32_t go_on(setting *t, uint32_t steps, lh_monitor_event *last)
{
    uint32_t told = 0;
    for (uint32_t i = 0; i < steps; i++) {
        lh_error err = {0};
        uint32_t n;
        noisy_iterate(&t->n, t->step++);
        CHECK_OK(lh_monitor_add(t->m, &t->n.seen, &err), err);
        const lh_monitor_event *e = lhi_monitor_events(t->m, &n);
        if (n > 0)
            *last = e[n - 1];
        told += n;
    }
    return told;
}

static uint32_t link_between(const lh_pipeline *p, uint32_t from, uint32_t to)
{
    for (uint32_t l = 0; l < p->n_links; l++)
        if (p->links[l].from == from && p->links[l].to == to)
            return l;
    return LH_NONE;
}

static int64_t makespan(const lh_pipeline *p, const lh_schedule *s)
{
    lh_timeline *timeline = NULL;
    lh_error err = {0};
    CHECK_OK(lh_simulate(p, s, NULL, &timeline, &err), err);
    int64_t ns = lh_timeline_makespan(timeline);
    lh_timeline_free(timeline);
    return ns;
}

/* Without noise the estimates are exact to the nanosecond, and a cost is the
 * iteration's increase. */
static void without_noise_all_is_exact(void)
{
    setting t;
    lh_monitor_event e;
    set_up(&t, four, "1f1b", 0, NULL);
    CHECK_INT(go_on(&t, 20, &e), 0);
    int64_t quiet = t.n.makespan_ns;
    CHECK_INT(quiet, makespan(t.p, t.s));
    uint32_t l = link_between(t.p, 1, 2);
    t.latency[l] = 2.5;
    CHECK_INT(go_on(&t, 20, &e), 1);
    CHECK(e.target == LH_MONITOR_LINK && e.index == l);
    CHECK(e.change == LH_MONITOR_BEGINS && e.first_step == 20);
    CHECK_NEAR(e.baseline_ns, 22 * MS, 1);
    CHECK_NEAR(e.current_ns, 52 * MS, 1);
    CHECK_INT(e.cost_ns, t.n.makespan_ns - quiet);
    CHECK(e.cost_ns > 0);
    lh_pipeline *now = NULL;
    lh_error err = {0};
    CHECK_OK(lh_monitor_pipeline(t.m, &now, &err), err);
    CHECK_INT(now->links[l].latency_ns, 50 * MS);
    CHECK_INT(now->links[l].transfer_ns, 2 * MS);
    CHECK_INT(makespan(now, t.s), t.n.makespan_ns);
    lh_pipeline_free(now);
    uint32_t n;
    CHECK_INT(lh_monitor_active_events(t.m, &n)->index, l);
    CHECK_INT(n, 1);
    t.latency[l] = 1;
    CHECK_INT(go_on(&t, 20, &e), 1);
    CHECK(e.change == LH_MONITOR_ENDS && e.first_step == 40);
    CHECK_INT(e.cost_ns, 0);
    lh_monitor_active_events(t.m, &n);
    CHECK_INT(n, 0);
    tear_down(&t);
}

/* Transfers of 25 ms behind passes of 10: messages queue, and the queueing is
 * neither latency nor transfer. */
static void a_queue_is_not_latency(void)
{
    setting t;
    lh_monitor_event e;
    uniform u = four;
    u.transfer = 25;
    set_up(&t, u, "1f1b", 0.05, NULL);
    CHECK_INT(go_on(&t, 60, &e), 0);
    uint32_t l = link_between(t.p, 0, 1);
    lh_link_estimate is = lhi_monitor_link(t.m, l);
    CHECK(is.transfer_measured && is.n_messages == 60 * u.microbatches);
    CHECK_NEAR(is.delay_ns, 45 * MS, 3 * is.error_ns);
    CHECK_NEAR(is.transfer_ns, 25 * MS, 0.5 * MS);
    CHECK_NEAR(is.latency_ns, 20 * MS, 0.8 * MS);
    CHECK_NEAR(is.gbps, 8e6 / 25e6, 0.01);
    tear_down(&t);
    /* Without queueing the transfer is the pipeline's. */
    u.transfer = 1;
    set_up(&t, u, "1f1b", 0.05, NULL);
    go_on(&t, 20, &e);
    is = lhi_monitor_link(t.m, l);
    CHECK(!is.transfer_measured && is.gbps == 0);
    CHECK_NEAR(is.transfer_ns, MS, 0);
    tear_down(&t);
}

/* Devices are sometimes busy longer, so receives are posted later. */
static void a_late_receive_is_not_latency(void)
{
    setting t;
    lh_monitor_event e;
    set_up(&t, four, "zb-h1", 0.05, NULL);
    CHECK_INT(go_on(&t, 30, &e), 0);
    t.n.late = true;
    CHECK_INT(go_on(&t, 30, &e), 0);
    tear_down(&t);
}

/* When a link with queueing loses bandwidth, its transfer is estimated anew
 * with the event: none of it counts as latency. */
static void less_bandwidth_is_not_latency(void)
{
    setting t;
    lh_monitor_event e;
    uniform u = four;
    u.transfer = 14;
    set_up(&t, u, "gpipe", 0, NULL);
    CHECK_INT(go_on(&t, 30, &e), 0);
    uint32_t l = link_between(t.p, 0, 1);
    t.transfer[l] = 2;
    CHECK(lhi_monitor_link(t.m, l).transfer_measured);
    uint32_t told = 0;
    for (uint32_t i = 0; i < 3 && !told; i++)
        told = go_on(&t, 1, &e);
    CHECK(told == 1 && e.index == l && e.change == LH_MONITOR_BEGINS);
    CHECK_NEAR(lhi_monitor_link(t.m, l).transfer_ns, 28 * MS, 1);
    CHECK_NEAR(lhi_monitor_link(t.m, l).latency_ns, 20 * MS, 1);
    tear_down(&t);
}

static void a_slow_device_is_not_a_slow_link(void)
{
    setting t;
    lh_monitor_event e;
    set_up(&t, four, "1f1b", 0.05, NULL);
    CHECK_INT(go_on(&t, 30, &e), 0);
    t.slower[2] = 1.3;
    CHECK_INT(go_on(&t, 30, &e), 1);
    CHECK(e.target == LH_MONITOR_DEVICE && e.index == 2 && e.first_step == 30);
    CHECK_NEAR(e.current_ns / e.baseline_ns, 1.3, 0.03);
    CHECK_NEAR(lhi_monitor_pass(t.m, 2, LH_F).ns, 13 * MS, 0.5 * MS);
    CHECK_NEAR(lhi_monitor_pass(t.m, 1, LH_F).ns, 10 * MS, 0.5 * MS);
    /* Never run here: scaled like the passes that ran. */
    lh_pass_estimate w = lhi_monitor_pass(t.m, 2, LH_W);
    CHECK_INT(w.n_passes, 0);
    CHECK_NEAR(w.ns, 13 * MS, 0.5 * MS);
    tear_down(&t);
}

/* Another schedule has other passes; this is no event. */
static void a_switch_is_no_event(void)
{
    setting t;
    lh_monitor_event e;
    set_up(&t, four, "1f1b", 0.05, NULL);
    CHECK_INT(go_on(&t, 30, &e), 0);
    lh_schedule *split = follow_method(&t, "zb-h1");
    CHECK_INT(go_on(&t, 30, &e), 0);
    CHECK_NEAR(lhi_monitor_pass(t.m, 2, LH_W).ns, 10 * MS, 0.5 * MS);
    t.slower[1] = 1.3;
    CHECK_INT(go_on(&t, 30, &e), 1);
    CHECK(e.target == LH_MONITOR_DEVICE && e.index == 1);
    lh_schedule_free(split);
    tear_down(&t);
}

/* Also for a schedule with new passes while a device is slow. */
static void a_switch_on_a_slow_device_is_no_event(void)
{
    setting t;
    lh_monitor_event e;
    set_up(&t, four, "1f1b", 0.02, NULL);
    CHECK_INT(go_on(&t, 30, &e), 0);
    t.slower[1] = 2;
    CHECK_INT(go_on(&t, 10, &e), 1);
    CHECK(e.change == LH_MONITOR_BEGINS && e.index == 1);
    lh_schedule *split = follow_method(&t, "zb-h1");
    CHECK_INT(go_on(&t, 30, &e), 0);
    t.slower[1] = 1;
    CHECK_INT(go_on(&t, 30, &e), 1);
    CHECK(e.change == LH_MONITOR_ENDS && e.index == 1 && e.first_step == 70);
    uint32_t n;
    lh_monitor_active_events(t.m, &n);
    CHECK_INT(n, 0);
    lh_schedule_free(split);
    tear_down(&t);
}

/* Passes last observed before the slowdown are measured anew. */
static void passes_come_back_on_a_slow_device(void)
{
    setting t;
    lh_monitor_event e;
    set_up(&t, four, "1f1b", 0.02, NULL);
    CHECK_INT(go_on(&t, 30, &e), 0);
    lh_schedule *split = follow_method(&t, "zb-h1");
    CHECK_INT(go_on(&t, 10, &e), 0);
    t.slower[1] = 2;
    CHECK_INT(go_on(&t, 10, &e), 1);
    follow(&t, t.s);
    CHECK_INT(go_on(&t, 2, &e), 0);
    CHECK_NEAR(lhi_monitor_pass(t.m, 1, LH_B).ns, 40 * MS, 2 * MS);
    CHECK_NEAR(lhi_monitor_pass(t.m, 2, LH_B).ns, 20 * MS, MS);
    lh_schedule_free(split);
    tear_down(&t);
}

/* A single microbatch waits for every message; with many and enough warm-up
 * passes a small latency overlaps. */
static void what_is_hidden_costs_nothing(void)
{
    setting t;
    lh_monitor_event e;
    uniform u = four;
    u.latency = 2;
    u.transfer = 0.1;
    u.microbatches = 32;
    set_up(&t, u, "zb-h2", 0.05, NULL);
    CHECK_INT(go_on(&t, 30, &e), 0);
    uint32_t l = link_between(t.p, 2, 3);
    t.latency[l] = 3;
    CHECK_INT(go_on(&t, 5, &e), 1);
    CHECK(e.target == LH_MONITOR_LINK && e.index == l);
    CHECK_NEAR(e.current_ns, 6.1 * MS, 0.3 * MS);
    lh_pipeline *slow = NULL;
    lh_error err = {0};
    CHECK_OK(lh_monitor_pipeline(t.m, &slow, &err), err);
    CHECK_MSG(e.cost_ns < makespan(slow, t.s) / 100, "costs %" PRId64,
              e.cost_ns);
    lh_pipeline_free(slow);
    tear_down(&t);
}

/* Devices 0 and 1 share a host; 2 and 3 another one, whose clock is 5 s ahead
 * and gains 50 us in every step. */
static void clocks_of_hosts(void)
{
    static const uint32_t hosts[] = {0, 0, 1, 1};
    lh_monitor_options o = {.size = sizeof o, .clocks = hosts};
    setting t;
    lh_monitor_event e = {0};
    set_up(&t, four, "1f1b", 0.05, &o);
    for (uint32_t d = 2; d < 4; d++) {
        t.clock[d] = 5e9;
        t.drift[d] = 5e4;
    }
    CHECK_INT(go_on(&t, 60, &e), 0);
    lh_clock_estimate c = lhi_monitor_clock(t.m, 0, 1);
    CHECK_NEAR(c.offset_ns, 5e9 + 59 * 5e4, 1e6);
    CHECK_NEAR(c.drift, 5e4, 1e4);
    CHECK_NEAR(lhi_monitor_clock(t.m, 1, 0).offset_ns, -c.offset_ns, 0);
    CHECK_INT(lhi_monitor_clock(t.m, 0, 2).n_iterations, 0);
    uint32_t there = link_between(t.p, 1, 2), back = link_between(t.p, 2, 1);
    CHECK(lhi_monitor_link(t.m, there).round_trip_only);
    CHECK(!lhi_monitor_link(t.m, link_between(t.p, 0, 1)).round_trip_only);
    double both = lhi_monitor_link(t.m, there).delay_ns +
                  lhi_monitor_link(t.m, back).delay_ns;
    CHECK_NEAR(both, 44 * MS, 1 * MS);
    /* The clock is set: no event, and the offset follows. */
    t.clock[2] = t.clock[3] = 2e9;
    CHECK_INT(go_on(&t, 20, &e), 0);
    CHECK_NEAR(lhi_monitor_clock(t.m, 0, 1).offset_ns, 2e9 + 79 * 5e4, 1.5e6);
    /* One direction becomes slower: the event names it, with the correct
     * amount. */
    t.latency[back] = 2;
    CHECK_INT(go_on(&t, 20, &e), 1);
    CHECK(e.target == LH_MONITOR_LINK && e.index == back);
    CHECK_NEAR(e.current_ns - e.baseline_ns, 20 * MS, 1.5 * MS);
    CHECK_NEAR(lhi_monitor_clock(t.m, 0, 1).offset_ns, 2e9 + 99 * 5e4, 2e6);
    t.latency[back] = 1;
    CHECK_INT(go_on(&t, 20, &e), 1);
    CHECK(e.index == back && e.change == LH_MONITOR_ENDS);
    tear_down(&t);
}

/* Messages in one direction alone cannot determine clock offsets, but can show
 * a slowdown. These agree to the nanosecond by chance. */
static void clocks_seen_from_one_side(void)
{
    static const uint32_t hosts[] = {0, 0, 1, 1};
    lh_monitor_options o = {.size = sizeof o, .clocks = hosts};
    setting t;
    lh_error err = {0};
    set_up(&t, four, "1f1b", 0, &o);
    uint32_t l = link_between(t.p, 1, 2), told = 0;
    for (uint64_t step = 0; step < 40; step++) {
        lh_observed_message message[] = {
            {.link = l, .arrived_ns = step < 20 ? 22 * MS : 40 * MS}};
        lh_observation s = {.size = sizeof s,
                            .step = step,
                            .n_messages = 1,
                            .messages = message};
        uint32_t n;
        CHECK_OK(lh_monitor_add(t.m, &s, &err), err);
        lhi_monitor_events(t.m, &n);
        told += n;
    }
    CHECK_INT(told, 1);
    CHECK_NEAR(lhi_monitor_link(t.m, l).delay_ns, 40 * MS, 1);
    tear_down(&t);
}

/* A single slow iteration is no event, nor is one slow message in each. */
static void hiccups_are_no_events(void)
{
    setting t;
    lh_monitor_event e;
    uniform u = four;
    u.microbatches = 16;
    set_up(&t, u, "1f1b", 0.05, NULL);
    CHECK_INT(go_on(&t, 30, &e), 0);
    t.latency[0] = 3;
    CHECK_INT(go_on(&t, 1, &e), 0);
    t.latency[0] = 1;
    CHECK_INT(go_on(&t, 30, &e), 0);
    for (uint32_t i = 0; i < 30; i++) {
        lh_error err = {0};
        uint32_t n;
        noisy_iterate(&t.n, t.step++);
        t.n.messages[i % t.n.seen.n_messages].arrived_ns += 200 * MS;
        CHECK_OK(lh_monitor_add(t.m, &t.n.seen, &err), err);
        lhi_monitor_events(t.m, &n);
        CHECK_INT(n, 0);
    }
    tear_down(&t);
}

static void drifts_are_followed(void)
{
    setting t;
    lh_monitor_event e;
    set_up(&t, four, "1f1b", 0.05, NULL);
    uint32_t told = 0;
    for (uint32_t i = 0; i < 400; i++) {
        told += go_on(&t, 1, &e);
        t.latency[0] *= 1.0005; /* 22 % in total */
    }
    CHECK_INT(told, 0);
    CHECK_NEAR(lhi_monitor_link(t.m, 0).delay_ns, (2 + 20 * t.latency[0]) * MS,
               1 * MS);
    tear_down(&t);
}

/* Invalid observations are rejected and have no effect. */
static void nonsense_is_refused(void)
{
    setting t;
    lh_monitor_event e;
    lh_error err = {0};
    set_up(&t, four, "1f1b", 0.05, NULL);
    go_on(&t, 10, &e);
    const lh_observed_message good = {
        .link = 0, .produced_ns = 5, .entered_ns = 5, .arrived_ns = 9};
    struct {
        lh_observed_message message;
        const char *says;
    } bad[] = {{good, "link 6"},
               {good, "was produced"},
               {good, "arrived before"},
               {good, "73 years"}};
    bad[0].message.link = t.p->n_links;
    bad[1].message.produced_ns = 6;
    bad[2].message.arrived_ns = 4;
    bad[3].message.produced_ns = INT64_MIN;
    uint64_t before = lhi_monitor_link(t.m, 0).n_messages;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        lh_observed_message both[] = {good, bad[i].message};
        lh_observation s = {
            .size = sizeof s, .step = 10, .n_messages = 2, .messages = both};
        CHECK_INT(lh_monitor_add(t.m, &s, &err), LH_EINVAL);
        CHECK_HAS(err.text, "message 1");
        CHECK_HAS(err.text, bad[i].says);
    }
    lh_observed_pass pass = {{.chunk = 4, .n_parts = 1}, 1};
    lh_observation s = {
        .size = sizeof s, .step = 10, .n_passes = 1, .passes = &pass};
    CHECK_INT(lh_monitor_add(t.m, &s, &err), LH_EINVAL);
    pass = (lh_observed_pass){{.chunk = 0, .n_parts = 1}, -1};
    CHECK_INT(lh_monitor_add(t.m, &s, &err), LH_EINVAL);
    lh_observed_collective gather = {.chunk = 4, .ns = 1};
    s = (lh_observation){.size = sizeof s,
                         .step = 10,
                         .n_collectives = 1,
                         .collectives = &gather};
    CHECK_INT(lh_monitor_add(t.m, &s, &err), LH_EINVAL);
    s = (lh_observation){.size = sizeof s, .step = 9};
    CHECK_INT(lh_monitor_add(t.m, &s, &err), LH_EINVAL);
    CHECK_HAS(err.text, "step 9");
    CHECK_INT(lhi_monitor_link(t.m, 0).n_messages, before);
    lh_monitor_options o = {.size = sizeof o, .warm_up = 3};
    lh_monitor *m = NULL;
    CHECK_INT(lh_monitor_make(t.p, t.s, &o, &m, &err), LH_EINVAL);
    CHECK(m == NULL);
    tear_down(&t);
    /* The monitor rejects a schedule that it cannot simulate, and keeps the old
     * one. */
    const lh_sim_options wrong = {.size = sizeof wrong, .host_copy_ns = -1};
    bool paths[8] = {true};
    const lh_sim_options right = {.size = sizeof right,
                                  .coupled_queue = 1,
                                  .override_receives = true,
                                  .receives = LH_RECEIVES_LATE,
                                  .delegated = paths};
    setting again;
    set_up(&again, four, "1f1b", 0, NULL);
    CHECK_OK(lhi_monitor_set_schedule_and_path(again.m, again.s, &right, &err),
             err);
    CHECK_INT(lhi_monitor_set_schedule_and_path(again.m, again.s, &wrong, &err),
              LH_EINVAL);
    CHECK_HAS(err.text, "host_copy_ns");
    CHECK_OK(lhi_monitor_set_schedule_and_path(again.m, again.s, NULL, &err),
             err);
    tear_down(&again);
}

/* Data-parallel communication becomes slower. */
static void slow_data_parallel_links(void)
{
    setting t;
    lh_error err = {0};
    uniform u = four;
    u.more = "data_parallel:\n"
             "  chunks:\n"
             "    - {chunk: 3, reduce_scatter: 47, latency: 4}\n"
             "  operations:\n"
             "    - {chunk: 2, reduce_scatter: 30, launch: 2B0}\n"
             "    - {chunk: 3, reduce_scatter: 30, launch: 3B0}\n";
    set_up(&t, u, "1f1b", 0, NULL);
    uint32_t told = 0;
    lh_monitor_event e = {0};
    for (uint64_t step = 0; step < 40; step++) {
        lh_observed_collective c[4];
        for (uint32_t i = 0; i < 4; i++)
            c[i] = (lh_observed_collective){
                i, true, (int64_t)(50 + (int)((step + i) % 3)) * MS};
        if (step >= 20)
            c[3].ns *= 2;
        lh_observation s = {.size = sizeof s,
                            .step = step,
                            .n_collectives = 4,
                            .collectives = c};
        uint32_t n;
        CHECK_OK(lh_monitor_add(t.m, &s, &err), err);
        const lh_monitor_event *news = lhi_monitor_events(t.m, &n);
        if (n > 0)
            e = news[0];
        told += n;
    }
    CHECK_INT(told, 1);
    CHECK(e.target == LH_MONITOR_DATA && e.index == 3 && e.first_step == 20);
    /* Device 3 takes 102 ms and not the 51 of the file, which scales all its
     * communication. */
    lh_pipeline *now = NULL;
    lh_pipeline_desc desc = {.size = sizeof desc};
    CHECK_OK(lh_monitor_pipeline(t.m, &now, &err), err);
    CHECK_OK(lh_pipeline_describe(now, &desc, &err), err);
    CHECK_INT(desc.n_dp_ops, 2);
    CHECK_INT(desc.dp_ops[0].transfer_ns, 30 * MS);
    CHECK_NEAR((double)desc.dp_ops[1].transfer_ns, 60 * MS, MS);
    CHECK_NEAR((double)desc.chunks[3].reduce_scatter_ns, 94 * MS, MS);
    CHECK_NEAR((double)desc.chunks[3].dp_latency_ns, 8 * MS, MS);
    lh_pipeline_free(now);
    tear_down(&t);
}

/* A tenth at either end is trimmed. */
static int by_size(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Computed from sorted values: trimmed by a tenth at either end for the mean,
 * winsorised for the variance. */
static void readings_are_of_the_middle(void)
{
    enum { MOST = 400 };
    static double x[MOST], sorted[MOST];
    lhi_random random = {3};
    for (size_t n = 2; n <= MOST; n += n < 60 ? 1 : 17)
        for (uint32_t kinds = 2; kinds < 1u << 30; kinds *= 1000) {
            for (size_t i = 0; i < n; i++)
                x[i] = sorted[i] = 1 + lhi_random_below(&random, kinds);
            qsort(sorted, n, sizeof *sorted, by_size);
            const size_t cut = n / 10, left = n - 2 * cut;
            double mean = 0, all = 0, squares = 0;
            for (size_t i = 0; i < n; i++) {
                size_t at = i < cut ? cut : i < cut + left ? i : cut + left - 1;
                mean += at == i ? sorted[i] / (double)left : 0;
                all += sorted[at] / (double)n;
            }
            for (size_t i = 0; i < n; i++) {
                size_t at = i < cut ? cut : i < cut + left ? i : cut + left - 1;
                squares += (sorted[at] - all) * (sorted[at] - all);
            }
            const double kept = (double)left / (double)n;
            const double variance =
                squares / (double)(n - 1) / (kept * kept) / (double)n;
            const lhi_drift_reading r = lhi_drift_reading_compute(x, n);
            CHECK_INT(r.n, n);
            CHECK_NEAR(r.mean, mean, 1e-9 * mean);
            CHECK_NEAR(r.variance, variance, 1e-9 * (variance + 1e-9));
        }
}

static void readings_are_trimmed(void)
{
    double x[] = {9, 1, 1e9, 3, 5, 7, -1e9, 5, 5, 5};
    lhi_drift_reading r = lhi_drift_reading_compute(x, 10);
    CHECK_NEAR(r.mean, 5, 1e-9);
    CHECK_INT(r.n, 10);
    /* Winsorised: 1 1 3 5 5 5 5 7 9 9; 72 over 9, 0.8 squared, 10. */
    CHECK_NEAR(r.variance, 72 / 9.0 / 0.64 / 10, 1e-9);
    double one = 4;
    r = lhi_drift_reading_compute(&one, 1);
    CHECK(r.mean == 4 && r.variance == 0);
}

/* A zero baseline has no relative scatter. */
static void what_takes_nothing_can_become_slow(void)
{
    lhi_drift_detector g = {0};
    uint32_t ago, left = 0;
    for (uint32_t i = 0; i < 20; i++) {
        lhi_drift_reading nothing = {.n = 4};
        CHECK_INT(lhi_drift_detector_add(&g, nothing, i < 8, MS, &ago),
                  LHI_DRIFT_UNCHANGED);
    }
    CHECK(lhi_drift_detector_error(&g) < 1000);
    for (uint32_t i = 0; i < 3; i++) {
        lhi_drift_reading slow = {10 * MS, 0, 4};
        left += lhi_drift_detector_add(&g, slow, false, MS, &ago) ==
                LHI_DRIFT_BEGINS;
    }
    CHECK_INT(left, 1);
    CHECK_NEAR(g.level, 10 * MS, 1);
}

/* Iterations may be missing. */
static void steps_may_be_left_out(void)
{
    setting t;
    lh_monitor_event last = {0};
    uint32_t told = 0;
    set_up(&t, four, "1f1b", 0, NULL);
    for (uint32_t i = 0; i < 30; i++) {
        lh_error err = {0};
        uint32_t n;
        if (i == 20)
            t.latency[link_between(t.p, 1, 2)] = 2.5;
        noisy_iterate(&t.n, 7 + 10 * (uint64_t)i);
        CHECK_OK(lh_monitor_add(t.m, &t.n.seen, &err), err);
        const lh_monitor_event *e = lhi_monitor_events(t.m, &n);
        last = n > 0 ? e[n - 1] : last;
        told += n;
    }
    CHECK_INT(told, 1);
    CHECK_INT(last.first_step, 207);
    tear_down(&t);
}

/* Transfers of 2 ms: of three messages that arrive 2 ms apart, after 22 ms, the
 * later ones waited; the one on another link did not. */
static void real_links_tell_entries_by_arrivals(void)
{
    lh_pipeline *p = uniform_make(four);
    const uint32_t on = link_between(p, 0, 1), back = link_between(p, 1, 0);
    lh_observed_message m[] = {
        {.link = on, .produced_ns = 0, .arrived_ns = 22 * MS},
        {.link = on, .produced_ns = MS, .arrived_ns = 24 * MS},
        {.link = back, .produced_ns = MS, .arrived_ns = 24 * MS},
        {.link = on, .produced_ns = MS, .arrived_ns = 26 * MS},
    };
    lh_error err = {0};
    for (size_t i = 0; i < 4; i++)
        m[i].entered_ns = m[i].produced_ns;
    CHECK_OK(lh_observation_estimate_entry(p, 4, m, &err), err);
    CHECK_INT(m[0].entered_ns, 0);
    CHECK_INT(m[1].entered_ns, 2 * MS);
    CHECK_INT(m[2].entered_ns, MS);
    CHECK_INT(m[3].entered_ns, 4 * MS);
    m[3].link = p->n_links;
    CHECK_INT(lh_observation_estimate_entry(p, 4, m, &err), LH_EINVAL);
    lh_pipeline_free(p);
}

/* The scatter of normally distributed iteration times, whose level doubles
 * every hundred iterations; none for equal ones. */
static void scatter_of_iterations(void)
{
    lhi_step_scatter s = {0};
    lhi_random g = {7};
    double sum = 0;
    for (int i = 0; i < 4; i++) {
        CHECK(lhi_step_scatter_compute(&s) == 0);
        lhi_step_scatter_add(&s, 5e6);
    }
    CHECK(lhi_step_scatter_compute(&s) == 0);
    for (int i = 0; i < 1000; i++) {
        double normal = -6; /* sum of 12 uniform numbers: variance 1 */
        for (int k = 0; k < 12; k++)
            normal += (double)(lhi_random_next(&g) >> 11) * 0x1p-53;
        lhi_step_scatter_add(&s, 1e6 * pow(2, i / 100) * (1 + 0.1 * normal));
        if (i >= 15)
            sum += lhi_step_scatter_compute(&s) / 985;
    }
    CHECK_NEAR(sum, 0.1, 0.01);
}

int main(void)
{
    RUN(readings_are_of_the_middle);
    RUN(readings_are_trimmed);
    RUN(without_noise_all_is_exact);
    RUN(a_queue_is_not_latency);
    RUN(a_late_receive_is_not_latency);
    RUN(less_bandwidth_is_not_latency);
    RUN(a_slow_device_is_not_a_slow_link);
    RUN(a_switch_is_no_event);
    RUN(a_switch_on_a_slow_device_is_no_event);
    RUN(passes_come_back_on_a_slow_device);
    RUN(what_is_hidden_costs_nothing);
    RUN(clocks_of_hosts);
    RUN(clocks_seen_from_one_side);
    RUN(hiccups_are_no_events);
    RUN(drifts_are_followed);
    RUN(slow_data_parallel_links);
    RUN(what_takes_nothing_can_become_slow);
    RUN(scatter_of_iterations);
    RUN(steps_may_be_left_out);
    RUN(real_links_tell_entries_by_arrivals);
    RUN(nonsense_is_refused);
    return test_summary();
}
