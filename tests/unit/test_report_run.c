/* SPDX-License-Identifier: Apache-2.0 */
/* Iterations of a run as a chart. */
#include "test.h"

#include <longhaul/experimental/report.h>
#include <stdlib.h>

static const char *const names[] = {"measured", "1f1b <b>"};
static const lh_report_span spans[] = {{7, 9, "2-3 & 4-5"}, {9, 10, "x"}};
static const lh_report_mark marks[] = {{8, "slack"}};
/* The third value of the first is unknown. */
static const int64_t ns[] = {1000000000, 2000000000, 0, 1000000000,
                             1000000000, 4000000000, 1, -1};

static lh_report_iterations course_of(uint32_t n, uint32_t n_series)
{
    return (lh_report_iterations){.size = sizeof(lh_report_iterations),
                                  .title = "A \"run\"",
                                  .first = 6,
                                  .n_iterations = n,
                                  .n_series = n_series,
                                  .series = names,
                                  .ns = ns,
                                  .n_spans = 2,
                                  .spans = spans,
                                  .n_marks = 1,
                                  .marks = marks};
}

static uint32_t count(const char *text, const char *what)
{
    uint32_t n = 0;
    for (; (text = strstr(text, what)); text++)
        n++;
    return n;
}

static void all_is_drawn(void)
{
    lh_error err = {0};
    char *text = NULL, *again = NULL;
    size_t len = 0;
    const lh_report_iterations c = course_of(4, 1);
    CHECK_OK(lh_report_iterations_svg(&c, NULL, &text, &len, &err), err);
    CHECK(text && strlen(text) == len);
    CHECK_INT(count(text, "<rect"), 2);
    CHECK_INT(count(text, "stroke-dasharray"), 1);
    CHECK_HAS(text, "slow: 2-3 &amp; 4-5");
    CHECK_HAS(text, ">slack</title>");
    /* 60 per minute are the maximum, and 30; 65 would be the top. 1120 pixels
     * from 64 on for four iterations. */
    CHECK_HAS(text, "iterations per minute");
    CHECK_HAS(text, "d=\"M64 78.3L344 78.3L344 180.15L624 180.15"
                    "M904 78.3L1184 78.3\"");
    CHECK_OK(lh_report_iterations_svg(&c, NULL, &again, NULL, &err), err);
    CHECK_STR(text, again);
    lh_text_free(text);
    lh_text_free(again);
}

/* Many iterations are merged into few points: the slowest and the fastest in
 * each group. */
static void long_runs_are_merged(void)
{
    enum { MANY = 100000 };
    lh_error err = {0};
    char *text = NULL;
    size_t len = 0;
    int64_t *all = calloc(MANY, sizeof *all);
    lh_report_iterations c = course_of(MANY, 1);
    for (uint32_t i = 0; i < MANY; i++)
        all[i] = i == 77777 ? 40000000 : 10000000;
    c.ns = all;
    CHECK_OK(lh_report_iterations_svg(&c, NULL, &text, &len, &err), err);
    CHECK(len < 400000);
    /* 25 per second instead of 100 */
    CHECK_HAS(text, " 231.07L");
    lh_text_free(text);
    free(all);
}

static void a_page_has_it(void)
{
    lh_error err = {0};
    lh_report *report = NULL;
    char *text = NULL;
    const lh_report_iterations c = course_of(4, 2);
    CHECK_OK(lh_report_make("t", &report, &err), err);
    CHECK_OK(lh_report_add_iterations(report, &c, &err), err);
    CHECK_OK(lh_report_format_html(report, &text, NULL, &err), err);
    CHECK_HAS(text, "<h2>A \"run\"</h2>");
    CHECK_HAS(text, "1f1b &lt;b&gt;");
    CHECK_INT(count(text, "<svg"), 1);
    CHECK(!strstr(text, "@COURSES@"));
    lh_text_free(text);
    lh_report_free(report);
}

static void what_cannot_be_drawn_is_refused(void)
{
    lh_error err = {0};
    char *text = NULL;
    lh_report_iterations c = course_of(0, 1);
    CHECK_INT(lh_report_iterations_svg(&c, NULL, &text, NULL, &err), LH_EINVAL);
    c = course_of(4, 7);
    CHECK_INT(lh_report_iterations_svg(&c, NULL, &text, NULL, &err), LH_EINVAL);
    CHECK_HAS(err.text, "1 to 6 series");
    c = course_of(1, 1);
    c.ns = ns + 2;
    CHECK_INT(lh_report_iterations_svg(&c, NULL, &text, NULL, &err), LH_EINVAL);
    CHECK_HAS(err.text, "has a time");
    const lh_report_span back = {4, 4, "x"};
    c = course_of(4, 1);
    c.spans = &back;
    c.n_spans = 1;
    CHECK_INT(lh_report_iterations_svg(&c, NULL, &text, NULL, &err), LH_EINVAL);
    CHECK_HAS(err.text, "ends before it begins");
    c = course_of(4, 1);
    const lh_svg_options narrow = {.size = sizeof narrow, .width = 100};
    CHECK_INT(lh_report_iterations_svg(&c, &narrow, &text, NULL, &err),
              LH_EINVAL);
    CHECK(text == NULL);
}

int main(void)
{
    RUN(all_is_drawn);
    RUN(long_runs_are_merged);
    RUN(a_page_has_it);
    RUN(what_cannot_be_drawn_is_refused);
    return test_summary();
}
