/* SPDX-License-Identifier: Apache-2.0 */
/* Data-parallel communication on links with messages: times computed by hand,
 * errors, and the text form. */
#include "schedule/simulator/timeline.h"
#include "test.h"

#include <longhaul/check.h>
#include <longhaul/experimental/analysis.h>
#include <longhaul/experimental/engine.h>
#include <longhaul/experimental/events.h>
#include <longhaul/experimental/jitter.h>
#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/pipeline.h>
#include <longhaul/experimental/schedule.h>
#include <longhaul/experimental/simulate.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIPELINE                                                               \
    "longhaul: pipeline/1\n"                                                   \
    "microbatches: 2\n"                                                        \
    "devices: 2\n"                                                             \
    "backward: joint\n"                                                        \
    "chunks:\n"                                                                \
    "  - {device: 0, F: 10, D: 10, W: 10}\n"                                   \
    "  - {device: 1, F: 10, D: 10, W: 10}\n"                                   \
    "links:\n"                                                                 \
    "  - {from: 0, to: 1, latency: 5, transfer: 4, name: wan}\n"               \
    "  - {from: 1, to: 0, latency: 5, transfer: 4, name: back}\n"              \
    "data_parallel:\n"

static lh_pipeline *parse(const char *data_parallel)
{
    char text[2000];
    lh_pipeline *p = NULL;
    lh_error err = {0};
    snprintf(text, sizeof text, PIPELINE "%s", data_parallel);
    CHECK_OK(lh_pipeline_parse(text, strlen(text), "p", &p, &err), err);
    return p;
}

/* Checks the text of the error for a pipeline with this data_parallel. */
static void rejects(const char *data_parallel, const char *why)
{
    char text[2000];
    lh_pipeline *p = NULL;
    lh_error err = {0};
    snprintf(text, sizeof text, PIPELINE "%s", data_parallel);
    CHECK_INT(lh_pipeline_parse(text, strlen(text), "p", &p, &err), LH_EINPUT);
    CHECK_HAS(err.text, why);
}

/* Expected times: departures of the two activations, arrival of the all-gather
 * and makespan. */
typedef struct row {
    const char *data_parallel;
    int64_t first_s, second_s, gathered_s, makespan_s;
} row;

enum { SECOND = 1000000000 };

/* Checks the busy time of the link: two messages of 4 s each, and the 27 s of
 * the all-gather if it is on this link, in one piece or three. */
static void check_use(const lh_pipeline *p, const lh_schedule *s,
                      const lh_timeline *t, bool is_shared)
{
    lh_analysis *a = NULL;
    lh_error err = {0};
    uint32_t n, found = 0;
    CHECK_OK(lh_analysis_make(p, s, t, &a, &err), err);
    const lh_link_use *links = lh_analysis_links(a, &n);
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(links[i].name, "wan") == 0) {
            found++;
            CHECK_INT(links[i].busy_ns, (is_shared ? 35 : 8) * (int64_t)SECOND);
        }
    CHECK_INT(found, 1);
    lh_analysis_free(a);
}

static void check_row(const row *r)
{
    lh_pipeline *p = parse(r->data_parallel);
    lh_schedule *s = NULL;
    lh_timeline *t = NULL;
    lh_verdict *v = NULL;
    lh_error err = {0};
    uint32_t n, found = 0;
    CHECK_OK(lh_method_run("1f1b", p, NULL, &s, NULL, &err), err);
    CHECK_OK(lh_simulate(p, s, NULL, &t, &err), err);
    CHECK_OK(lh_check(p, s, &v, &err), err);
    CHECK_INT(lh_timeline_makespan(t), r->makespan_s * SECOND);
    CHECK_INT(lh_verdict_makespan(v), r->makespan_s * SECOND);
    const lh_message *m = lh_timeline_messages(t, &n);
    for (uint32_t i = 0; i < n; i++)
        if (m[i].from == 0)
            CHECK_INT(m[i].depart_ns,
                      (found++ ? r->second_s : r->first_s) * SECOND);
    CHECK_INT(found, 2);
    const lh_collective *c = lh_timeline_collectives(t, &n);
    CHECK_INT(n, 1);
    CHECK_INT(c[0].arrive_ns, r->gathered_s * SECOND);
    check_use(p, s, t, strstr(r->data_parallel, "wan"));
    lh_verdict_free(v);
    lh_timeline_free(t);
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

/* The table of docs/formats/pipeline.md. */
static void worked_numbers(void)
{
    static const row rows[] = {
        {"  - {chunk: 1, all_gather: 27, latency: 5}\n", 10, 20, 32, 121},
        {"  - {chunk: 1, all_gather: 27, latency: 5, link: other}\n", 10, 20,
         32, 121},
        {"  - {chunk: 1, all_gather: 27, latency: 5, link: wan}\n", 27, 31, 32,
         125},
        {"  - {chunk: 1, all_gather: 27, latency: 5, link: other + wan}\n", 27,
         31, 32, 125},
        {"  piece: 9\n"
         "  chunks: [{chunk: 1, all_gather: 27, latency: 5, link: wan}]\n",
         18, 31, 36, 125},
        {"  piece: 9\n"
         "  priority: pipeline-first\n"
         "  chunks: [{chunk: 1, all_gather: 27, latency: 5, link: wan}]\n",
         18, 22, 40, 129},
        {"  priority: fair\n"
         "  chunks: [{chunk: 1, all_gather: 27, latency: 5, link: wan}]\n",
         10, 20, 40, 129},
        {"  piece: 9\n"
         "  priority: fair\n"
         "  chunks: [{chunk: 1, all_gather: 27, latency: 5, link: wan}]\n",
         10, 20, 40, 129},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_row(&rows[i]);
}

/* Checks the times of the only collective, in seconds. */
static void check_collective(const char *data_parallel, int64_t ready_s,
                             int64_t depart_s, int64_t arrive_s)
{
    lh_pipeline *p = parse(data_parallel);
    lh_schedule *s = NULL;
    lh_timeline *t = NULL;
    lh_error err = {0};
    uint32_t n;
    CHECK_OK(lh_method_run("1f1b", p, NULL, &s, NULL, &err), err);
    CHECK_OK(lh_simulate(p, s, NULL, &t, &err), err);
    const lh_collective *c = lh_timeline_collectives(t, &n);
    CHECK_INT(n, 1);
    CHECK_INT(c[0].ready_ns, ready_s * SECOND);
    CHECK_INT(c[0].depart_ns, depart_s * SECOND);
    CHECK_INT(c[0].arrive_ns, arrive_s * SECOND);
    lh_timeline_free(t);
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

/* The reduce-scatter of device 1 occupies `wan` and `back`. The last gradient
 * enters `back` at the same time, 79, and leaves first, until 83. If both share
 * the rate, the reduce-scatter has half of it until 87. */
static void several_links(void)
{
    check_collective("  - {chunk: 1, reduce_scatter: 20, latency: 5, "
                     "link: wan + back}\n",
                     79, 83, 108);
    check_collective("  priority: fair\n"
                     "  chunks: [{chunk: 1, reduce_scatter: 20, latency: 5, "
                     "link: wan + back}]\n",
                     79, 79, 108);
}

static void errors(void)
{
    rejects("  piece: 9\n"
            "  chunks: [{chunk: 1, all_gather: 27, latency: 5, link: other}]\n",
            "p:12: data_parallel.piece: has no effect: no 'link' of "
            "data_parallel is the name of a link in 'links'");
    rejects("  priority: fifo\n"
            "  chunks: [{chunk: 1, all_gather: 27}]\n",
            "p:12: data_parallel.priority: has no effect");
    rejects("  piece: 0\n"
            "  chunks: [{chunk: 1, all_gather: 27, link: wan}]\n",
            "p:12: data_parallel.piece:");
    rejects("  priority: even\n"
            "  chunks: [{chunk: 1, all_gather: 27, link: wan}]\n",
            "p:12: data_parallel.priority:");
    rejects("  piece: 0.0001\n"
            "  chunks: [{chunk: 1, all_gather: 27, link: wan}]\n",
            "p:12: data_parallel.piece: gives too many pieces");
    rejects("  piece: 1\n"
            "  chunks: [{chunk: 1, all_gather: 65537, link: wan}]\n",
            "p:12: data_parallel.piece: gives too many pieces");
}

/* A communication may have 65536 pieces. */
static void most_pieces(void)
{
    lh_pipeline_free(
        parse("  piece: 1\n"
              "  chunks: [{chunk: 1, all_gather: 65536, link: wan}]\n"));
}

/* The canonical text has the rules, and reads back the same. */
static void text_form(void)
{
    lh_pipeline *p =
        parse("  piece: 9\n"
              "  priority: pipeline-first\n"
              "  chunks: [{chunk: 1, all_gather: 27, link: wan}]\n");
    lh_pipeline *again = NULL;
    char *text = NULL, *copy = NULL;
    size_t len = 0;
    lh_error err = {0};
    CHECK(lh_pipeline_shares_links(p, LH_NONE));
    CHECK_OK(lh_pipeline_format(p, &text, &len, &err), err);
    CHECK_HAS(text, "\"piece\": 9000000000");
    CHECK_HAS(text, "\"priority\": \"pipeline-first\"");
    CHECK_OK(lh_pipeline_parse(text, len, "again", &again, &err), err);
    CHECK_OK(lh_pipeline_format(again, &copy, NULL, &err), err);
    CHECK_STR(copy, text);
    lh_text_free(text);
    lh_text_free(copy);
    lh_pipeline_free(again);
    lh_pipeline_free(p);
}

static lh_status receive_nothing(void *context, int64_t until_ns,
                                 uint32_t *number, int64_t *arrive_ns,
                                 lh_error *err)
{
    (void)context, (void)until_ns, (void)arrive_ns, (void)err;
    *number = LH_NONE;
    return LH_OK;
}

/* A simulated network does not deliver messages on links shared by rate. */
static void networks(void)
{
    static const bool carries[2];
    const lhi_sim_network network = {.carries = carries,
                                     .receive = receive_nothing};
    lh_pipeline *p =
        parse("  priority: fair\n"
              "  chunks: [{chunk: 1, all_gather: 27, link: wan}]\n");
    lh_schedule *s = NULL;
    lh_timeline *t = NULL;
    lh_error err = {0};
    CHECK_OK(lh_method_run("1f1b", p, NULL, &s, NULL, &err), err);
    CHECK_INT(lhi_simulate_with_network(p, s, NULL, &network, &t, &err),
              LH_EUNSUPPORTED);
    CHECK_HAS(err.text, "use 'priority: fifo'");
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

/* Timed devices share links only if these are emulated
 * (test_engine_link_sharing.c). */
static void real_links(void)
{
    lh_pipeline *p = parse("  - {chunk: 1, all_gather: 27, link: wan}\n");
    lh_schedule *s = NULL;
    lh_exec *x = NULL;
    lh_train_result *r = NULL;
    lh_error err = {0};
    CHECK_OK(lh_method_run("1f1b", p, NULL, &s, NULL, &err), err);
    CHECK_OK(lh_exec_make(p, s, NULL, &x, &err), err);
    const lh_train_options o = {.size = sizeof o, .real_links = true};
    CHECK_INT(lh_train_timed(p, x, &o, &r, &err), LH_EUNSUPPORTED);
    CHECK_HAS(err.text, "data_parallel: 'link' is the name of a link");
    lh_exec_free(x);
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

#define ONE                                                                    \
    "longhaul: pipeline/1\n"                                                   \
    "microbatches: 1\n"                                                        \
    "devices: 2\n"                                                             \
    "chunks: [{device: 0, F: 0, D: 1, W: 1}, {device: 1, F: 1, D: 1, W: 1}]\n"

/* In every sample a link slows its message and the all-gather alike, so that
 * both together take as long as one message of twice the length. */
static void jitter(void)
{
    static const char *const texts[] = {
        ONE "links: [{from: 0, to: 1, transfer: 100, name: wan}]\n"
            "data_parallel: [{chunk: 1, all_gather: 100, link: wan}]\n",
        ONE "links: [{from: 0, to: 1, transfer: 200, name: wan}]\n",
    };
    lh_jitter_result r[2] = {{0}};
    for (int i = 0; i < 2; i++) {
        lh_pipeline *p = NULL;
        lh_schedule *s = NULL;
        lh_error err = {0};
        lh_jitter j = {.size = sizeof j, .transfer = 0.5, .samples = 50};
        CHECK_OK(lh_pipeline_parse(texts[i], strlen(texts[i]), "p", &p, &err),
                 err);
        CHECK_OK(lh_method_run("1f1b", p, NULL, &s, NULL, &err), err);
        CHECK_OK(lh_jitter_run(p, s, NULL, &j, &r[i], &err), err);
        lh_schedule_free(s);
        lh_pipeline_free(p);
    }
    CHECK(r[1].max_ns > r[1].min_ns);
    CHECK(llabs(r[0].p50_ns - r[1].p50_ns) <= 2);
    CHECK(llabs(r[0].max_ns - r[1].max_ns) <= 2);
}

/* Events on a shared link would slow its messages only. */
static void events(void)
{
    lh_pipeline *p = parse("  - {chunk: 1, all_gather: 27, link: wan}\n");
    for (int i = 0; i < 2; i++) {
        const char *const links[] = {i ? "back" : "wan"};
        const lh_event event = {.first_step = 1,
                                .end_step = 2,
                                .n_links = 1,
                                .links = links,
                                .latency_factor = 2,
                                .transfer_factor = 1,
                                .slowdown = 1};
        const lh_events all = {.n_events = 1, .events = &event};
        lh_event_timeline *t = NULL;
        lh_error err = {0};
        lh_status status = lh_event_timeline_make(p, &all, NULL, &t, &err);
        CHECK_INT(status, i ? LH_OK : LH_EUNSUPPORTED);
        if (!i)
            CHECK_HAS(err.text, "data-parallel communication shares link "
                                "'wan'");
        lh_event_timeline_free(t);
    }
    lh_pipeline_free(p);
}

int main(void)
{
    RUN(worked_numbers);
    RUN(several_links);
    RUN(errors);
    RUN(most_pieces);
    RUN(text_form);
    RUN(networks);
    RUN(real_links);
    RUN(jitter);
    RUN(events);
    return test_summary();
}
