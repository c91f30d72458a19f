/* SPDX-License-Identifier: Apache-2.0 */
/* Adaptation decisions on pipelines and events with known outcomes. */
#include "schedule/simulator/delegate.h"
#include "schedule/solver/bound/closed_forms.h"
#include "test.h"
#include "uniform.h"

#include <longhaul/experimental/adapt.h>
#include <longhaul/experimental/bounds.h>
#include <longhaul/experimental/methods.h>

enum { MS = 1000000, MOST_EVENTS = 4 };

/* As in Adaptra's trace, except for the number of stages. */
static const uniform four = {.placement = "ud",
                             .devices = 4,
                             .microbatches = 12,
                             .f = 10,
                             .d = 10,
                             .w = 10,
                             .datacenters = 4,
                             .latency = 1};

/* The pipeline, its schedule, and the state of the adaptation. */
typedef struct setting {
    lh_pipeline *quiet;
    lh_schedule *schedule;
    lh_adapt *adapt;
    uint64_t step;
    int64_t extra_ns; /* added latency of the events' links */
    double noise;     /* of lh_adapt_input */
    lh_monitor_event events[MOST_EVENTS];
    uint32_t n_events;
} setting;

static void set_up(setting *t, const char *method, const lh_adapt_options *o)
{
    lh_error err = {0};
    memset(t, 0, sizeof *t);
    t->quiet = uniform_make(four);
    CHECK_OK(lh_method_run(method, t->quiet, NULL, &t->schedule, NULL, &err),
             err);
    CHECK_OK(lh_adapt_make(t->quiet, t->schedule, o, &t->adapt, &err), err);
}

static void tear_down(setting *t)
{
    lh_adapt_free(t->adapt);
    lh_schedule_free(t->schedule);
    lh_pipeline_free(t->quiet);
}

static lh_pipeline *slow_pipeline(const setting *t)
{
    lh_error err = {0};
    lh_link links[64];
    lh_pipeline *p = NULL;
    lh_pipeline_desc d = {.size = sizeof d};
    CHECK_OK(lh_pipeline_describe(t->quiet, &d, &err), err);
    CHECK(d.n_links <= 64);
    memcpy(links, d.links, d.n_links * sizeof *links);
    for (uint32_t i = 0; i < t->n_events; i++)
        links[t->events[i].index].latency_ns += t->extra_ns;
    d.links = links;
    CHECK_OK(lh_pipeline_make(&d, &p, &err), err);
    return p;
}

static void begin_event(setting *t, uint32_t link, int64_t extra_ns)
{
    const lh_link *l = lh_pipeline_link(t->quiet, link);
    t->extra_ns = extra_ns;
    t->events[t->n_events++] =
        (lh_monitor_event){.target = LH_MONITOR_LINK,
                           .index = link,
                           .first_step = t->step,
                           .baseline_ns = (double)l->latency_ns,
                           .current_ns = (double)(l->latency_ns + extra_ns)};
}

/* Decides after the next step. */
static lh_decision decide(setting *t)
{
    lh_error err = {0};
    const lh_decision *d = NULL;
    lh_pipeline *p = slow_pipeline(t);
    const lh_adapt_input now = {.size = sizeof now,
                                .pipeline = p,
                                .n_events = t->n_events,
                                .events = t->events,
                                .step = t->step++,
                                .steps_left = UINT64_MAX,
                                .noise = t->noise};
    CHECK_OK(lh_adapt_decide(t->adapt, &now, &d, &err), err);
    lh_pipeline_free(p);
    return d ? *d : (lh_decision){0};
}

static void answer(setting *t, bool followed)
{
    lh_error err = {0};
    CHECK_OK(lh_adapt_confirm(t->adapt, t->step + 1, followed, &err), err);
}

static int64_t makespan(const lh_pipeline *p, const lh_schedule *s)
{
    lh_error err = {0};
    lh_timeline *timeline = NULL;
    CHECK_OK(lh_simulate(p, s, NULL, &timeline, &err), err);
    int64_t ns = lh_timeline_makespan(timeline);
    lh_timeline_free(timeline);
    return ns;
}

static void quiet_is_left_alone(void)
{
    setting t;
    set_up(&t, "zb-h2", NULL);
    for (uint32_t i = 0; i < 30; i++) {
        lh_decision d = decide(&t);
        CHECK(!d.is_switch);
        CHECK(d.current_ns == d.predicted_ns);
        CHECK_STR(d.name, "original");
    }
    tear_down(&t);
}

/* All F, then all D, and weight gradients from the last microbatch backwards.
 */
static lh_schedule *backwards(void)
{
    char text[4096], *end = text;
    lh_error err = {0};
    lh_schedule *made = NULL;
    for (uint32_t d = 0; d < four.devices; d++)
        for (uint32_t i = 0; i < 3 * four.microbatches; i++) {
            uint32_t m = i % four.microbatches;
            bool is_w = i >= 2 * four.microbatches;
            end += sprintf(end, "%u%c%u%c", d, "FIW"[i / four.microbatches],
                           is_w ? four.microbatches - 1 - m : m,
                           i + 1 < 3 * four.microbatches ? ',' : '\n');
        }
    CHECK_OK(
        lh_schedule_parse(text, (size_t)(end - text), "backwards", &made, &err),
        err);
    return made;
}

/* Lists each device's microbatches in the order of their W. */
static void w_text(const lh_schedule *s, char *text)
{
    for (uint32_t d = 0; d < four.devices; d++) {
        uint32_t n;
        const lh_pass *row = lh_schedule_order(s, d, &n);
        for (uint32_t i = 0; i < n; i++)
            if (row[i].kind == LH_W && row[i].part + 1 == row[i].n_parts)
                text += sprintf(text, " %u", row[i].microbatch);
    }
}

static void gradients_are_added_as_before_where_that_is_asked_for(void)
{
    for (int same = 0; same < 2; same++) {
        const lh_adapt_options o = {.size = sizeof o,
                                    .keep_reduction_order = same};
        char was[1024], is[1024];
        lh_error err = {0};
        setting t;
        set_up(&t, "zb-h1", NULL);
        lh_adapt_free(t.adapt);
        lh_schedule_free(t.schedule);
        t.schedule = backwards();
        CHECK_OK(lh_adapt_make(t.quiet, t.schedule, &o, &t.adapt, &err), err);
        decide(&t);
        begin_event(&t, 2, 30 * MS);
        t.step += 2;
        lh_decision d = decide(&t);
        w_text(t.schedule, was);
        w_text(d.schedule, is);
        CHECK((strcmp(was, is) == 0) == same);
        CHECK(same || d.is_switch);
        tear_down(&t);
    }
}

/* The event is reported with the second iteration. The proposed schedule has
 * the predicted makespan and respects the reported bound. */
static void a_slow_link_is_answered(void)
{
    setting t;
    lh_bound bound;
    lh_error err = {0};
    set_up(&t, "zb-h2", NULL);
    for (uint32_t i = 0; i < 10; i++)
        decide(&t);
    begin_event(&t, 2, 30 * MS);
    t.step += 2;
    lh_decision d = decide(&t);
    lh_pipeline *slow = slow_pipeline(&t);
    CHECK(d.is_switch);
    CHECK(d.benefit_steps == 1);
    CHECK_INT(d.current_ns, makespan(slow, t.schedule));
    CHECK_INT(d.predicted_ns, makespan(slow, d.schedule));
    CHECK(d.predicted_ns < d.current_ns);
    CHECK_OK(lhi_compute_closed_form_bound(slow, &bound, &err), err);
    CHECK(d.bound_ns >= bound.ns && d.bound_ns <= d.predicted_ns);
    lh_pipeline_free(slow);
    CHECK(!decide(&t).is_switch); /* until the switch is answered */
    answer(&t, true);
    CHECK(!decide(&t).is_switch);
    tear_down(&t);
}

/* Device 1 receives late from both neighbours, and sends in time, also while
 * another link is slow; then one of its outgoing links is slow, too. */
static void a_late_receiver_is_named(void)
{
    static const uint32_t froms[] = {3, 0, 2, 1}, tos[] = {2, 1, 1, 2};
    static const char late[] = " (all links to device 1 and none from it: its "
                               "host may be paused or overloaded): ";
    setting t;
    set_up(&t, "zb-h2", NULL);
    for (uint32_t k = 0; k < 4; k++) {
        for (uint32_t i = 0; i < lh_pipeline_n_links(t.quiet); i++) {
            const lh_link *l = lh_pipeline_link(t.quiet, i);
            if (l->from == froms[k] && l->to == tos[k])
                begin_event(&t, i, 30 * MS);
        }
        CHECK_INT(t.n_events, k + 1);
        t.step += 2;
        const lh_decision d = decide(&t);
        CHECK_MSG((strstr(d.why, late) != NULL) == (k == 2), "%u: %s", k,
                  d.why);
        if (d.is_switch)
            answer(&t, false);
    }
    tear_down(&t);
}

/* A gain below two standard errors waits until more iterations have made the
 * error smaller. */
static void gains_within_the_scatter_wait(void)
{
    setting t;
    set_up(&t, "zb-h2", NULL);
    begin_event(&t, 2, 30 * MS);
    t.step += 2;
    t.noise = 10;
    lh_decision d = decide(&t);
    CHECK(!d.is_switch);
    CHECK_HAS(d.why, "; that is less than the scatter of the iterations");
    lh_schedule *best = NULL;
    lh_error err = {0};
    lh_pipeline *slow = slow_pipeline(&t);
    CHECK_OK(lh_method_run("slack", slow, NULL, &best, NULL, &err), err);
    const double gain =
        1 - (double)makespan(slow, best) / (double)makespan(slow, t.schedule);
    t.noise = gain / 2 + 0.01;
    CHECK(!decide(&t).is_switch);
    t.noise = gain / 2 - 0.01;
    CHECK(decide(&t).is_switch);
    lh_schedule_free(best);
    lh_pipeline_free(slow);
    tear_down(&t);
}

static void what_was_refused_waits(void)
{
    setting t;
    set_up(&t, "zb-h1", NULL);
    begin_event(&t, 2, 20 * MS);
    t.step += 2;
    CHECK(decide(&t).is_switch);
    answer(&t, false);
    for (uint32_t i = 0; i < 30; i++)
        CHECK(!decide(&t).is_switch);
    begin_event(&t, 0, 20 * MS);
    t.step += 2;
    CHECK(decide(&t).is_switch);
    tear_down(&t);
}

/* Adaptra, section 5.2: 8 activations produced per second, 2 moved per second
 * and queue. */
static void queues_keep_pace(void)
{
    CHECK_INT(lhi_delegation_count_queues(8, 2), 4);
    CHECK_INT(lhi_delegation_count_queues(9, 2), 5);
    CHECK_INT(lhi_delegation_count_queues(1, 2), 1);
    CHECK_INT(lhi_delegation_count_queues(0, 2), 1);
    CHECK_INT(lhi_delegation_count_queues(1e300, 1), UINT32_MAX);
    /* 4 MB at 8 GB/s and 20 us */
    CHECK_INT(lhi_delegation_staging_ns(4000000, 8e9, 20000), 520000);
}

static const lh_sim_options coupled = {
    .size = sizeof coupled, .coupled_queue = 1, .receives = LH_RECEIVES_LATE};

static int64_t makespan_on(const lh_pipeline *p, const lh_schedule *s,
                           const bool *links, int64_t staging_ns)
{
    lh_error err = {0};
    lh_pipeline *staged = NULL;
    lh_sim_options how;
    lh_timeline *timeline = NULL;
    const lh_delegation d = {
        .size = sizeof d, .links = links, .staging_ns = staging_ns};
    CHECK_OK(lh_delegate(p, &coupled, &d, &staged, &how, &err), err);
    CHECK_OK(lh_simulate(staged, s, &how, &timeline, &err), err);
    int64_t ns = lh_timeline_makespan(timeline);
    lh_timeline_free(timeline);
    lh_pipeline_free(staged);
    return ns;
}

static void copies_for_ever_are_refused(void)
{
    lh_error err = {0};
    setting t;
    lh_pipeline *staged = NULL;
    lh_sim_options how;
    lh_timeline *timeline = NULL;
    set_up(&t, "zb-h2", NULL);
    static const int64_t wrong[] = {-1, INT64_MAX};
    for (size_t i = 0; i < 2; i++) {
        const int64_t ns = wrong[i];
        const lh_delegation d = {.size = sizeof d, .staging_ns = ns};
        const lh_sim_options sim = {.size = sizeof sim, .host_copy_ns = ns};
        CHECK_INT(lh_delegate(t.quiet, NULL, &d, &staged, &how, &err),
                  LH_EINVAL);
        CHECK_HAS(err.text, "0 to 2^51 ns");
        CHECK_INT(lh_simulate(t.quiet, t.schedule, &sim, &timeline, &err),
                  LH_EINVAL);
        CHECK_HAS(err.text, "host_copy_ns");
    }
    tear_down(&t);
}

/* Two extra copies on a path without queues act like a longer latency. */
static void delegated_messages_are_staged(void)
{
    setting t;
    lh_error err = {0};
    set_up(&t, "zb-h1", NULL);
    lh_pipeline_desc d = {.size = sizeof d};
    lh_pipeline *longer = NULL;
    lh_link links[64];
    CHECK_OK(lh_pipeline_describe(t.quiet, &d, &err), err);
    memcpy(links, d.links, d.n_links * sizeof *links);
    for (uint32_t i = 0; i < d.n_links; i++)
        links[i].latency_ns += 6 * MS;
    d.links = links;
    CHECK_OK(lh_pipeline_make(&d, &longer, &err), err);
    CHECK_INT(makespan_on(t.quiet, t.schedule, NULL, 3 * MS),
              makespan(longer, t.schedule));
    bool none[64] = {false};
    lh_timeline *direct = NULL;
    CHECK_OK(lh_simulate(t.quiet, t.schedule, &coupled, &direct, &err), err);
    CHECK_INT(makespan_on(t.quiet, t.schedule, none, 3 * MS),
              lh_timeline_makespan(direct));
    lh_timeline_free(direct);
    lh_pipeline_free(longer);
    tear_down(&t);
}

/* Devices without links between them get links that include both copies. */
static void messages_without_links_are_staged(void)
{
    uniform u = four;
    u.datacenters = 0;
    lh_pipeline *p = uniform_make(u);
    u.datacenters = 4;
    u.latency = 6;
    lh_pipeline *linked = uniform_make(u);
    lh_schedule *s = NULL;
    lh_error err = {0};
    CHECK_OK(lh_method_run("zb-h2", p, NULL, &s, NULL, &err), err);
    CHECK_INT(makespan_on(p, s, NULL, 3 * MS), makespan(linked, s));
    lh_schedule_free(s);
    lh_pipeline_free(linked);
    lh_pipeline_free(p);
}

/* Head-of-line blocking makes the direct path slower even without events;
 * copies that are too slow do not pay off. */
static void the_path_is_chosen(void)
{
    static const struct {
        int64_t staging_ns, extra_ns;
        lh_data_path path;
    } cases[] = {{0, 0, LH_DATA_PATH_DELEGATED},
                 {0, 30 * MS, LH_DATA_PATH_DELEGATED},
                 {40 * MS, 0, LH_DATA_PATH_DIRECT},
                 {12 * MS, 60 * MS, LH_DATA_PATH_MIXED}};
    enum { N = sizeof cases / sizeof *cases };
    /* Each case with one time for all links, then with a time per link. */
    for (uint32_t k = 0; k < 2 * N; k++) {
        const uint32_t i = k % N;
        setting t;
        int64_t each[64];
        for (uint32_t l = 0; l < 64; l++)
            each[l] = cases[i].staging_ns;
        const lh_delegation delegation = {
            .size = sizeof delegation,
            .staging_ns = k < N ? cases[i].staging_ns : 0,
            .link_staging_ns = k < N ? NULL : each};
        const lh_adapt_options o = {
            .size = sizeof o, .sim = &coupled, .delegation = &delegation};
        set_up(&t, "zb-h2", &o);
        if (cases[i].extra_ns > 0)
            begin_event(&t, 2, cases[i].extra_ns);
        t.step += 2;
        lh_decision d = decide(&t);
        lh_pipeline *slow = slow_pipeline(&t);
        CHECK_INT(d.path, cases[i].path);
        CHECK_INT(d.delegated != NULL, d.path == LH_DATA_PATH_MIXED);
        if (d.path != LH_DATA_PATH_DIRECT)
            CHECK_INT(d.predicted_ns, makespan_on(slow, d.schedule, d.delegated,
                                                  cases[i].staging_ns));
        CHECK(!d.delegated || d.delegated[2]);
        CHECK(d.bound_ns <= d.predicted_ns);
        lh_pipeline_free(slow);
        tear_down(&t);
    }
}

/* Memory for four activations clips Adaptra's algorithm 2. Host offloading
 * lifts the limit, if its copies cost less than they save. */
static void activations_rest_in_the_host(void)
{
    static const struct {
        int64_t host, copy_ns;
        bool is_used;
    } cases[] = {
        {0, 0, false}, {12, 0, true}, {12, MS, true}, {12, 80 * MS, false}};
    int64_t before = 0;
    for (uint32_t i = 0; i < 4; i++) {
        setting t = {0};
        lh_error err = {0};
        uniform u = four;
        u.memory = 4;
        t.quiet = uniform_make(u);
        const lh_delegation delegation = {.size = sizeof delegation,
                                          .host_memory = cases[i].host,
                                          .host_copy_ns = cases[i].copy_ns};
        const lh_adapt_options o = {
            .size = sizeof o, .sim = &coupled, .delegation = &delegation};
        CHECK_OK(lh_method_run("zb-h1", t.quiet, NULL, &t.schedule, NULL, &err),
                 err);
        CHECK_OK(lh_adapt_make(t.quiet, t.schedule, &o, &t.adapt, &err), err);
        begin_event(&t, 0, 20 * MS);
        t.step += 2;
        lh_decision d = decide(&t);
        lh_pipeline *slow = slow_pipeline(&t);
        lh_pipeline *staged = NULL;
        lh_sim_options how;
        lh_timeline *timeline = NULL;
        CHECK_INT(d.path, LH_DATA_PATH_DELEGATED);
        CHECK_OK(lh_delegate(slow, &coupled, &delegation, &staged, &how, &err),
                 err);
        CHECK_OK(lh_simulate(staged, d.schedule, &how, &timeline, &err), err);
        CHECK_INT(lh_timeline_makespan(timeline), d.predicted_ns);
        CHECK(lh_timeline_fits(timeline, NULL));
        bool rests = false;
        for (uint32_t k = 0; k < 4; k++)
            rests = rests || lh_timeline_peak_memory(timeline, k) > 4;
        CHECK_INT(rests, cases[i].is_used);
        CHECK(i != 1 || d.predicted_ns < before);
        before = d.predicted_ns;
        lh_timeline_free(timeline);
        lh_pipeline_free(staged);
        lh_pipeline_free(slow);
        tear_down(&t);
    }
}

static void the_path_is_kept_if_asked(void)
{
    setting t;
    const lh_adapt_options o = {.size = sizeof o, .sim = &coupled};
    set_up(&t, "zb-h2", &o);
    begin_event(&t, 2, 60 * MS);
    t.step += 2;
    CHECK_INT(decide(&t).path, LH_DATA_PATH_DIRECT);
    tear_down(&t);
}

static void nonsense_is_refused(void)
{
    setting t;
    lh_error err = {0};
    lh_adapt *none = NULL;
    const lh_decision *d = NULL;
    set_up(&t, "zb-h1", NULL);
    CHECK(lh_adapt_confirm(t.adapt, 1, true, &err) == LH_EINVAL);
    const lh_adapt_options unknown = {.size = sizeof unknown,
                                      .candidates = "slack,fastest"};
    CHECK(lh_adapt_make(t.quiet, t.schedule, &unknown, &none, &err) ==
          LH_EINVAL);
    CHECK(strstr(err.text, "fastest"));
    const lh_adapt_options negative = {.size = sizeof negative,
                                       .switch_ns = -1};
    CHECK(lh_adapt_make(t.quiet, t.schedule, &negative, &none, &err) ==
          LH_EINVAL);
    CHECK(!none);
    decide(&t);
    lh_adapt_input now = {.size = sizeof now, .pipeline = t.quiet};
    CHECK(lh_adapt_decide(t.adapt, &now, &d, &err) == LH_EINVAL);
    lh_monitor_event e = {.target = LH_MONITOR_DEVICE, .index = 4};
    now.step = 1;
    now.n_events = 1;
    now.events = &e;
    CHECK(lh_adapt_decide(t.adapt, &now, &d, &err) == LH_EINVAL);
    CHECK(!d);
    tear_down(&t);
}

int main(void)
{
    RUN(quiet_is_left_alone);
    RUN(a_slow_link_is_answered);
    RUN(gradients_are_added_as_before_where_that_is_asked_for);
    RUN(a_late_receiver_is_named);
    RUN(gains_within_the_scatter_wait);
    RUN(what_was_refused_waits);
    RUN(queues_keep_pace);
    RUN(copies_for_ever_are_refused);
    RUN(delegated_messages_are_staged);
    RUN(messages_without_links_are_staged);
    RUN(the_path_is_chosen);
    RUN(activations_rest_in_the_host);
    RUN(the_path_is_kept_if_asked);
    RUN(nonsense_is_refused);
    return test_summary();
}
