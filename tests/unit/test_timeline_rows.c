/* SPDX-License-Identifier: Apache-2.0 */
/* The page, the SVG and the terminal have the same rows, order and names. */
#include "test.h"

#include <longhaul/experimental/report.h>
#include <longhaul/experimental/trace.h>

#include <string.h>

/* A microbatch starts on device 3 at "first", then 2, then continues to "last",
 * devices 1 and 0; each has two chunks, so that it passes twice. */
static const char *const sites[] = {"last", "nobody", "first"};
static const char *const links[] = {"2-1", "within", "across"};
static const lh_trace_device devices[] = {{0, 0, LH_NO_LIMIT, NULL},
                                          {0, 0, LH_NO_LIMIT, NULL},
                                          {2, 0, LH_NO_LIMIT, NULL},
                                          {2, 0, LH_NO_LIMIT, NULL}};
enum { N_CHUNKS = 8 };

static uint32_t device_of(uint32_t chunk)
{
    return 3 - chunk % 4;
}

/* Chunk after chunk, each for 100 ns; a message within "first" takes 1 ns, one
 * within "last" 60, those across 20. */
static lh_trace *make_trace(void)
{
    lh_trace_run runs[N_CHUNKS] = {0};
    lh_trace_message messages[N_CHUNKS - 1] = {0};
    lh_trace *out = NULL;
    lh_error err = {0};
    int64_t now = 0;
    for (uint32_t c = 0; c < N_CHUNKS; c++) {
        const lh_pass pass = {c, 0, 0, 1, LH_F, false};
        runs[c] = (lh_trace_run){.pass = pass,
                                 .device = device_of(c),
                                 .waits_for = LH_NONE,
                                 .start_ns = now,
                                 .end_ns = now + 100,
                                 .issued_ns = now + 100};
        now += 100;
        if (c + 1 == N_CHUNKS)
            break;
        const uint32_t from = device_of(c), to = device_of(c + 1);
        const bool far = devices[from].site != devices[to].site;
        const int64_t takes = far ? 20 : from == 3 ? 1 : 60;
        messages[c] =
            (lh_trace_message){.producer = pass,
                               .consumer = {c + 1, 0, 0, 1, LH_F, false},
                               .from = from,
                               .to = to,
                               .link = far         ? 2
                                       : from == 3 ? 1
                                                   : 0,
                               .produced_ns = now,
                               .ready_ns = now,
                               .depart_ns = now,
                               .sent_ns = now + takes,
                               .arrive_ns = now + takes};
        now += takes;
    }
    const lh_trace t = {.title = "rows",
                        .source = "simulated",
                        .memory_unit = "",
                        .makespan_ns = now,
                        .n_devices = 4,
                        .n_sites = 3,
                        .n_links = 3,
                        .devices = devices,
                        .site_names = sites,
                        .link_names = links,
                        .n_runs = N_CHUNKS,
                        .n_messages = N_CHUNKS - 1,
                        .runs = runs,
                        .messages = messages};
    CHECK_OK(lh_trace_copy(&t, &out, &err), err);
    return out;
}

static const char *const in_order[] = {
    "first",    "device 3", "device 2", "last", "device 1",
    "device 0", "Links",    "across",   "2-1",  "1 quiet link"};

/* Checks that the names follow each other in `text`, each after `before`. */
static void check_order(const char *text, const char *before)
{
    const char *at = text;
    for (size_t i = 0; i < sizeof in_order / sizeof *in_order; i++) {
        char what[64];
        snprintf(what, sizeof what, "%s%s", before, in_order[i]);
        const char *next = strstr(at, what);
        if (!next)
            printf("'%s' is not behind what is before it in\n%s\n", in_order[i],
                   text);
        CHECK(next != NULL);
        at = next ? next : at;
    }
    CHECK(!strstr(text, "nobody") && !strstr(text, "within"));
}

static void pictures_have_the_same_rows(void)
{
    lh_error err = {0};
    lh_trace *t = make_trace();
    char *text = NULL;
    const lh_terminal_options plain = {
        .size = sizeof plain, .width = 100, .ascii = true};
    CHECK_OK(lh_report_terminal(t, &plain, &text, NULL, &err), err);
    check_order(text, "");
    lh_text_free(text);
    CHECK_OK(lh_report_svg(t, NULL, &text, NULL, &err), err);
    check_order(strstr(text, "</title>"), ">");
    /* Each device has two chunks: F in its color, and 45 % darker. */
    CHECK_HAS(text, "fill=\"#1f4e92\" d=");
    CHECK_HAS(text, "fill=\"#122b51\" d=");
    lh_text_free(text);
    lh_trace_free(t);
}

static void page_has_them_too(void)
{
    lh_error err = {0};
    lh_trace *t = make_trace();
    lh_report *report = NULL;
    char *text = NULL;
    CHECK_OK(lh_report_make("rows", &report, &err), err);
    CHECK_OK(lh_report_add_trace(report, t, "rows", NULL, &err), err);
    CHECK_OK(lh_report_format_html(report, &text, NULL, &err), err);
    CHECK_HAS(text, "\"rows\":{\"sites\":[2,0],\"devices\":[3,2,1,0],"
                    "\"turns\":[0,0,0,0,1,1,1,1],\"most\":2,\"grouped\":true,"
                    "\"heads\":[\"first\",\"last\"],\"labels\":[\"device 0\","
                    "\"device 1\",\"device 2\",\"device 3\"],\"links\":["
                    "[2,\"across\",1,0],[0,\"2-1\",0,0],[1,\"within\",0,1]],"
                    "\"quiet\":\"1 quiet link\"}");
    lh_text_free(text);
    lh_report_free(report);
    lh_trace_free(t);
}

/* Replicas, which have the same chunks, keep their numeric order. */
static void replicas_stay(void)
{
    static const char *const no_sites[] = {""};
    static const lh_trace_device four[4] = {{0, 0, LH_NO_LIMIT, NULL},
                                            {0, 0, LH_NO_LIMIT, NULL},
                                            {0, 0, LH_NO_LIMIT, NULL},
                                            {0, 0, LH_NO_LIMIT, NULL}};
    lh_error err = {0};
    lh_report *report = NULL;
    char *text = NULL;
    lh_trace_run runs[4] = {0};
    for (uint32_t d = 0; d < 4; d++)
        runs[d] = (lh_trace_run){.pass = {1 - d % 2, 0, 0, 1, LH_F, false},
                                 .device = d,
                                 .waits_for = LH_NONE,
                                 .end_ns = 100,
                                 .issued_ns = 100};
    const lh_trace t = {.title = "",
                        .source = "simulated",
                        .memory_unit = "",
                        .makespan_ns = 100,
                        .n_devices = 4,
                        .n_sites = 1,
                        .devices = four,
                        .site_names = no_sites,
                        .n_runs = 4,
                        .runs = runs};
    CHECK_OK(lh_report_make("", &report, &err), err);
    CHECK_OK(lh_report_add_trace(report, &t, "", NULL, &err), err);
    CHECK_OK(lh_report_format_html(report, &text, NULL, &err), err);
    CHECK_HAS(text, "\"devices\":[0,1,2,3],\"turns\":[0,0],\"most\":1,"
                    "\"grouped\":false");
    lh_text_free(text);
    lh_report_free(report);
}

int main(void)
{
    RUN(pictures_have_the_same_rows);
    RUN(page_has_them_too);
    RUN(replicas_stay);
    return test_summary();
}
