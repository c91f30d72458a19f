/* SPDX-License-Identifier: Apache-2.0 */
/* JSON output: no leaks and no partial output when memory runs out; required
 * fields; text escapes. The program prints the same numbers: tests/cli. */
#include "fail_alloc.h"
#include "test.h"
#include "uniform.h"

#include <longhaul/experimental/json_output.h>
#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/schedule.h>
#include <longhaul/experimental/status.h>

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static void *may_fail(size_t size)
{
    return malloc(size);
}

/* A pipeline with links between datacenters, its 1f1b schedule and their
 * analysis. */
typedef struct planning_result {
    lh_pipeline *pipeline;
    lh_schedule *schedule;
    lh_timeline *timeline;
    lh_analysis *analysis;
} made;

static made make(void)
{
    made m = {.pipeline = uniform_make((uniform){.placement = "ud",
                                                 .devices = 4,
                                                 .microbatches = 6,
                                                 .f = 2,
                                                 .d = 2,
                                                 .w = 2,
                                                 .datacenters = 2,
                                                 .latency = 3,
                                                 .transfer = 1})};
    lh_error err = {0};
    CHECK_OK(lh_method_run("1f1b", m.pipeline, NULL, &m.schedule, NULL, &err),
             err);
    CHECK_OK(lh_simulate(m.pipeline, m.schedule, NULL, &m.timeline, &err), err);
    CHECK_OK(
        lh_analysis_make(m.pipeline, m.schedule, m.timeline, &m.analysis, &err),
        err);
    return m;
}

static void unmake(made *m)
{
    lh_analysis_free(m->analysis);
    lh_timeline_free(m->timeline);
    lh_schedule_free(m->schedule);
    lh_pipeline_free(m->pipeline);
}

static lh_simulated told(const made *m)
{
    static const lh_jitter_result jitter = {.samples = 3, .mean_ns = 5e9};
    return (lh_simulated){.size = sizeof(lh_simulated),
                          .name = "1f1b",
                          .pipeline = m->pipeline,
                          .schedule = m->schedule,
                          .timeline = m->timeline,
                          .analysis = m->analysis,
                          .jitter = &jitter};
}

static lh_scheduled made_by(const made *m)
{
    static const lh_solve_engine engines[] = {{.name = "beams", .on = true},
                                              {.name = "search"}};
    static const lh_memory_point point = {.limit = 3, .limit_bound = 3};
    return (lh_scheduled){.size = sizeof(lh_scheduled),
                          .requested = "optimal",
                          .method = "optimal",
                          .pipeline = m->pipeline,
                          .timeline = m->timeline,
                          .bound_ns = 1,
                          .limited_by = "a device",
                          .fifo_ns = 7,
                          .split_ns = 7,
                          .certificate = "c.json",
                          .proof = "lattice",
                          .n_engines = 2,
                          .engines = engines,
                          .memory = &point};
}

/* Checks that there is a text exactly on success. */
static void look_at(lh_status status, char *text)
{
    CHECK((status == LH_OK) == (text != NULL));
    lh_text_free(text);
}

static void memory(void)
{
    made m = make();
    const lh_simulated all = told(&m);
    const lh_scheduled how = made_by(&m);
    lh_scheduled none = how;
    none.timeline = NULL;
    lh_error err = {0};
    lh_verdict *verdict = NULL;
    CHECK_OK(lh_check(m.pipeline, m.schedule, &verdict, &err), err);
    const char *const methods[] = {"1f1b", "zb-v"};
    lh_compare_options options = {
        .size = sizeof options, .n_methods = 2, .methods = methods};
    const lh_compare_base base = {.name = "ud", .pipeline = m.pipeline};
    lh_comparison *x = NULL;
    CHECK_OK(lh_compare(1, &base, &options, &x, &err), err);
    json_set_alloc_funcs(may_fail, free);
    FAIL_EACH_ALLOC({
        char *text = NULL;
        status = lh_simulated_format(&all, &text, NULL, &err);
        look_at(status, text);
    });
    FAIL_EACH_ALLOC({
        char *text = NULL;
        status = lh_scheduled_format(&how, &text, NULL, &err);
        look_at(status, text);
    });
    FAIL_EACH_ALLOC({
        char *text = NULL;
        status = lh_scheduled_format(&none, &text, NULL, &err);
        look_at(status, text);
    });
    FAIL_EACH_ALLOC({
        char *text = NULL;
        status = lh_verdict_format(verdict, m.pipeline, NULL, NULL, &text, NULL,
                                   &err);
        look_at(status, text);
    });
    FAIL_EACH_ALLOC({
        char *text = NULL;
        status = lh_comparison_format(x, &text, NULL, &err);
        look_at(status, text);
    });
    FAIL_EACH_ALLOC({
        lh_schedule *copy = NULL;
        status = lh_schedule_copy(m.schedule, true, &copy, &err);
        CHECK((status == LH_OK) == (copy != NULL));
        lh_schedule_free(copy);
    });
    lh_comparison_free(x);
    lh_verdict_free(verdict);
    unmake(&m);
}

static void what_has_to_be_there(void)
{
    made m = make();
    lh_simulated all = told(&m);
    lh_scheduled how = made_by(&m);
    lh_error err = {0};
    lh_bound bound = {.ns = -7};
    char *text = NULL;
    all.timeline = NULL;
    CHECK_INT(lh_simulated_format(&all, &text, NULL, &err), LH_EINVAL);
    CHECK_INT(lh_simulated_bound(&all, &bound, &err), LH_EINVAL);
    CHECK(strstr(err.text, "timeline"));
    CHECK_INT(bound.ns, -7);
    how.engines = NULL;
    CHECK_INT(lh_scheduled_format(&how, &text, NULL, &err), LH_EINVAL);
    CHECK(strstr(err.text, "engines"));
    CHECK(!text);
    unmake(&m);
}

/* An explicit FIFO order gains nothing and is removed. */
static void orders_of_links(void)
{
    made m = make();
    lh_error err = {0};
    const lh_pass *orders[4];
    uint32_t counts[4];
    for (uint32_t d = 0; d < 4; d++)
        orders[d] = lh_schedule_order(m.schedule, d, &counts[d]);
    lh_pass forwards[6];
    for (uint32_t i = 0; i < 6; i++)
        forwards[i] = (lh_pass){1, i, 0, 1, LH_F, false};
    const lh_link_order order = {lh_pipeline_link(m.pipeline, 0)->name, 6,
                                 forwards};
    lh_schedule *said = NULL, *plain = NULL;
    int64_t fifo_ns = -1;
    CHECK_OK(lh_schedule_make(4, orders, counts, 1, &order, &said, &err), err);
    CHECK_OK(lh_schedule_drop_useless_link_orders(m.pipeline, said, NULL,
                                                  &plain, &fifo_ns, &err),
             err);
    CHECK(plain && lh_schedule_n_link_orders(plain) == 0);
    CHECK_INT(fifo_ns, 0);
    lh_schedule_free(plain);
    plain = NULL;
    CHECK_OK(lh_schedule_drop_useless_link_orders(m.pipeline, m.schedule, NULL,
                                                  &plain, &fifo_ns, &err),
             err);
    CHECK(!plain);
    lh_schedule_free(said);
    unmake(&m);
}

static void kinds(void)
{
    static const struct {
        const char *text, *kind;
    } some[] = {
        {"longhaul: job/1\nmodel: x\n", "job"},
        {"# longhaul: plan/1\n{\"a\": 1, \"longhaul\": \"plan/1\"}", "plan"},
        {"{'longhaul': 'pipeline/1'}", "pipeline"},
        {"name: longhaul/job\n", ""},
        {"note: longhaul: job/1\n", ""},
        {"longhaul: abcdefghijklmnopqrstuvwxyz/1\n", ""},
        {"{\"traceEvents\": []}", "trace"},
        {"", ""}};
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        char kind[LH_KIND_TEXT_SIZE];
        CHECK_STR(lh_text_detect_kind(some[i].text, kind), some[i].kind);
    }
}

int main(void)
{
    RUN(memory);
    RUN(what_has_to_be_there);
    RUN(orders_of_links);
    RUN(kinds);
    return test_summary();
}
