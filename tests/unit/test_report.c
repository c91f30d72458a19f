/* SPDX-License-Identifier: Apache-2.0 */
/* Reports, SVGs and terminal timelines: required and forbidden contents.
 * tests/browser/ opens the same kind of report in a browser. */
#include "small_trace.h"
#include "test.h"

#include "base/format_units.h"
#include "report/page/report_internal.h"

#include <stdlib.h>

static char *html_of(const lh_report *report)
{
    lh_error err = {0};
    char *text = NULL;
    size_t len = 0;
    CHECK_OK(lh_report_format_html(report, &text, &len, &err), err);
    CHECK(text && strlen(text) == len);
    return text;
}

static uint32_t count(const char *text, const char *part)
{
    uint32_t n = 0;
    for (const char *p = strstr(text, part); p; p = strstr(p + 1, part))
        n++;
    return n;
}

/* --- HTML ---------------------------------------------------------------- */

static void page_of_nothing(void)
{
    lh_error err = {0};
    lh_report *report = NULL;
    CHECK_OK(lh_report_make("", &report, &err), err);
    char *text = html_of(report);
    CHECK_HAS(text, "\"traces\":[\n]");
    CHECK_INT(count(text, "@CSS@"), 0);
    CHECK_INT(count(text, "@JS@"), 0);
    lh_text_free(text);
    lh_report_free(report);
    CHECK_INT(lh_report_make("\xff", &report, &err), LH_EINVAL);
}

static void page_of_everything(void)
{
    lh_error err = {0};
    lh_report *report = NULL;
    lh_report_row row = {"zb-h1", "ok", 890, 0.25, 25, NULL};
    CHECK_OK(lh_report_make("x </script> @DATA@ & \"y\"", &report, &err), err);
    CHECK_OK(lh_report_add_fact(report, "job", "</script>\xe2\x80\xa9", &err),
             err);
    CHECK_OK(lh_report_add_trace(report, &small_trace, "zb-h1", &small_analysis,
                                 &err),
             err);
    CHECK_OK(lh_report_add_trace(report, &small_trace, "again", NULL, &err),
             err);
    CHECK_OK(lh_report_add_row(report, &row, &err), err);
    CHECK_OK(lh_report_add_sweep(report, &small_sweep, &err), err);
    const lh_report_breakdown_part parts[] = {{"compute", 30},
                                              {"</script>", 12}};
    const char *const head[] = {"Question", "#rate"};
    const char *const cells[] = {"ecmp", "12.5 <b>"};
    lh_report_table table = {
        .size = sizeof table, .title = "Links", .n_columns = 2, .head = head};
    CHECK_OK(lh_report_add_breakdown(report, "Parts", 2, parts, &err), err);
    CHECK_OK(lh_report_add_table(report, &table, &err), err);
    CHECK_OK(lh_report_add_cells(report, 2, cells, &err), err);
    const lh_report_memory_kind kinds[] = {{"weights", 7}, {"</script>", 0}};
    CHECK_OK(lh_report_add_card(report, "GPUs", "<8>", "of 8", &err), err);
    CHECK_OK(lh_report_add_memory(report, "rank 0", 9, 2, kinds, &err), err);
    char *text = html_of(report);
    CHECK_HAS(text, "\"cards\":[\n[\"GPUs\",\"\\u003c8>\",\"of 8\"]]");
    CHECK_HAS(text, "\"memory\":[\n{\"name\":\"rank 0\",\"limit\":9,\"parts\":"
                    "[[\"weights\",7],[\"\\u003c/script>\",0]]}]");
    CHECK_HAS(text, "{\"parts\":\"Parts\",\"list\":[[\"compute\",30],"
                    "[\"\\u003c/script>\",12]]},\n"
                    "{\"table\":\"Links\",\"head\":[\"Question\",\"#rate\"]},\n"
                    "{\"cells\":[\"ecmp\",\"12.5 \\u003cb>\"]}]");
    CHECK_HAS(text, "<title>x &lt;/script&gt; @DATA@ &amp; \"y\"</title>");
    CHECK_HAS(text, "[\"job\",\"\\u003c/script>\\\\u2029\"]");
    CHECK_HAS(text, "\"label\":\"zb-h1\"");
    CHECK_HAS(text, "\"kind\":\"FFDWWFBF\"");
    CHECK_HAS(text, "\"tick\":5,");
    CHECK_HAS(text, "\"gap\":[20,0,64,0,0,66,0,0]");
    CHECK_HAS(text, "\"step\":\"cptlpptlpppc\"");
    CHECK_HAS(text, "\"limit\":[40,null]");
    CHECK_HAS(text, "\"causes\":[\"link latency\",\"\\u003c/script>\"]");
    CHECK_HAS(text, "\"baseline\":90,\"xs\":[0.0,0.5,1.0]");
    CHECK_HAS(text, "[\"1f1b\",100,150,-1]");
    /* The page's four scripts, and none from the data. */
    CHECK_INT(count(text, "</script>"), 4);
    CHECK(!strstr(text, "\xe2\x80\xa9"));
    lh_text_free(text);
    lh_report_free(report);
}

static void page_refuses(void)
{
    lh_error err = {0};
    lh_report *report = NULL;
    lh_report_row row = {"x", "ok", 1, NAN, 1, NULL};
    CHECK_OK(lh_report_make("", &report, &err), err);
    CHECK_INT(lh_report_add_row(report, &row, &err), LH_EINVAL);
    row.bubble_ratio = 0;
    row.why = "\xc3";
    CHECK_INT(lh_report_add_row(report, &row, &err), LH_EINVAL);
    CHECK_INT(lh_report_add_fact(report, "\xc3", "", &err), LH_EINVAL);
    CHECK_INT(lh_report_add_card(report, "", "\xc3", "", &err), LH_EINVAL);
    const int64_t times[] = {3, -1};
    lh_report_distribution varied = {
        .size = sizeof varied, .title = "x", .n = 2, .ns = times};
    CHECK_INT(lh_report_add_distribution(report, &varied, &err), LH_EINVAL);
    CHECK_HAS(err.text, "ns[1]");
    varied.n = 0;
    CHECK_INT(lh_report_add_distribution(report, &varied, &err), LH_EINVAL);
    varied =
        (lh_report_distribution){.size = sizeof varied, .n = 1, .ns = times};
    CHECK_INT(lh_report_add_distribution(report, &varied, &err), LH_EINVAL);
    varied.title = "x";
    varied.nominal_ns = -1;
    CHECK_INT(lh_report_add_distribution(report, &varied, &err), LH_EINVAL);
    lh_report_what_if asked = {.size = sizeof asked, .after_ns = -1};
    CHECK_INT(lh_report_set_what_if(report, &asked, &err), LH_EINVAL);
    CHECK_HAS(err.text, "after_ns, tokens or mfu");
    asked.after_ns = 0;
    asked.tokens = NAN;
    CHECK_INT(lh_report_set_what_if(report, &asked, &err), LH_EINVAL);
    asked.tokens = 1;
    asked.mfu = -1;
    CHECK_INT(lh_report_set_what_if(report, &asked, &err), LH_EINVAL);
    const lh_report_memory_kind none = {"x", -1};
    CHECK_INT(lh_report_add_memory(report, "x", 0, 1, &none, &err), LH_EINVAL);
    CHECK_INT(lh_report_add_trace(report, &small_trace, "\xc3", NULL, &err),
              LH_EINVAL);

    lh_report_segment path[] = {{LH_STEP_PASS, 8, 0, 1}};
    lh_report_analysis a = {
        .size = sizeof a, .n_segments = 1, .critical_path = path};
    CHECK_INT(lh_report_add_trace(report, &small_trace, "", &a, &err),
              LH_EINVAL);
    CHECK_HAS(err.text, "critical_path[0]");
    path[0] = (lh_report_segment){LH_STEP_LATENCY, 3, 0, 1};
    CHECK_INT(lh_report_add_trace(report, &small_trace, "", &a, &err),
              LH_EINVAL);
    path[0] = (lh_report_segment){LH_STEP_COLLECTIVE, 2, 0, 1};
    CHECK_INT(lh_report_add_trace(report, &small_trace, "", &a, &err),
              LH_EINVAL);
    path[0] = (lh_report_segment){LH_STEP_PASS, 0, 1, 0};
    CHECK_INT(lh_report_add_trace(report, &small_trace, "", &a, &err),
              LH_EINVAL);

    lh_report_sweep sweep = small_sweep;
    const double same[] = {0, 1, 1}, nan[] = {0, NAN, 1};
    sweep.xs = same;
    CHECK_INT(lh_report_add_sweep(report, &sweep, &err), LH_EINVAL);
    CHECK_HAS(err.text, "xs[2]");
    sweep.xs = nan;
    CHECK_INT(lh_report_add_sweep(report, &sweep, &err), LH_EINVAL);
    const char *const cells[] = {"a", "\xc3"};
    lh_report_table table = {
        .size = sizeof table, .title = "t", .n_columns = 2, .head = cells};
    lh_report_breakdown_part part = {"p", -1};
    CHECK_INT(lh_report_add_cells(report, 0, cells, &err), LH_EINVAL);
    CHECK_INT(lh_report_add_table(report, &table, &err), LH_EINVAL);
    table.n_columns = 0;
    CHECK_INT(lh_report_add_table(report, &table, &err), LH_EINVAL);
    CHECK_INT(lh_report_add_breakdown(report, "t", 1, &part, &err), LH_EINVAL);
    char *text = html_of(report);
    CHECK_HAS(text, "\"facts\":[\n],\n\"cards\":[\n],\n\"memory\":[\n],\n"
                    "\"varied\":[\n],\n\"differences\":[\n],\n\"traces\":[\n],"
                    "\n\"rows\":[\n],\n"
                    "\"sweeps\":[\n],\n\"reasons\":[\n]}");
    lh_text_free(text);
    lh_report_free(report);
}

/* Bars with a round width from the fastest to the slowest. */
static void iterations_that_differ(void)
{
    lh_error err = {0};
    lh_report *report = NULL;
    int64_t ns[100];
    for (int i = 0; i < 100; i++)
        ns[i] = 20000 + 10 * (99 - i); /* 20000 to 20990 */
    ns[0] = 21200;
    const lh_report_distribution varied = {.size = sizeof varied,
                                           .title = "differ",
                                           .n = 100,
                                           .ns = ns,
                                           .nominal_ns = 19000};
    const int64_t far[] = {0, INT64_MAX};
    const lh_report_distribution apart = {
        .size = sizeof apart, .title = "apart", .n = 2, .ns = far};
    CHECK_OK(lh_report_make("", &report, &err), err);
    CHECK_OK(lh_report_add_distribution(report, &varied, &err), err);
    CHECK_OK(lh_report_add_distribution(report, &apart, &err), err);
    char *text = html_of(report);
    CHECK_HAS(text, "{\"title\":\"differ\",\"n\":100,\"usual\":19000,"
                    "\"mean\":20497,\"p50\":20490,\"p95\":20940,"
                    "\"p99\":20980,\"least\":20000,\"most\":21200,"
                    "\"from\":20000,\"width\":20,\"counts\":[2,2,2,");
    CHECK_HAS(text, "2,1,0,0,0,0,0,0,0,0,0,0,1]}");
    CHECK_HAS(text, "\"most\":9223372036854775807,\"from\":0,\"width\":"
                    "100000000000000000,\"counts\":[1,0,");
    lh_text_free(text);
    lh_report_free(report);
}

static void two_beside_each_other(void)
{
    lh_error err = {0};
    lh_report *report = NULL;
    lh_report_difference rows[] = {
        {"memory", "peak", "4 GiB", "3 <GiB>", "-25 %", 1},
        {"memory", "limit", "8 GiB", "8 GiB", NULL, 0},
        {"layout", "data", "1", "2", "", -5}};
    lh_report_differences d = {.size = sizeof d,
                               .first = "a",
                               .second = "b",
                               .n_rows = 3,
                               .rows = rows};
    CHECK_OK(lh_report_make("", &report, &err), err);
    CHECK_OK(lh_report_add_differences(report, &d, &err), err);
    char *text = html_of(report);
    CHECK_HAS(text, "{\"first\":\"a\",\"second\":\"b\",\"rows\":["
                    "[\"memory\",\"peak\",\"4 GiB\",\"3 \\u003cGiB>\","
                    "\"-25 %\",1],[\"memory\",\"limit\",\"8 GiB\","
                    "\"8 GiB\",\"\",0],[\"layout\",\"data\",\"1\",\"2\","
                    "\"\",-1]]}");
    lh_text_free(text);
    rows[2].second = NULL;
    CHECK_INT(lh_report_add_differences(report, &d, &err), LH_EINVAL);
    CHECK_HAS(err.text, "rows[2]");
    d.second = "\xc3";
    CHECK_INT(lh_report_add_differences(report, &d, &err), LH_EINVAL);
    d.second = "b";
    d.n_rows = 1001;
    CHECK_INT(lh_report_add_differences(report, &d, &err), LH_EINVAL);
    lh_report_free(report);
}

static void decisions(void)
{
    lh_error err = {0};
    lh_report *report = NULL;
    const char *const sentences[] = {"Train <it>."};
    const char *notes[] = {"Safe", "none"};
    lh_report_site sites[] = {{"west", "1 of 2 h100", "stage 0", 0.5},
                              {"east", "0 of 2 h100", "idle", 0}};
    lh_report_site_link link = {0, 1, "20 ms", "1 GB", 0.25};
    lh_report_tradeoff point = {"TP 1", NULL, 30, 7, -1};
    lh_report_decision d = {.size = sizeof d,
                            .n_sentences = 1,
                            .sentences = sentences,
                            .n_sites = 2,
                            .sites = sites,
                            .n_links = 1,
                            .links = &link,
                            .n_notes = 1,
                            .notes = notes,
                            .n_tradeoffs = 1,
                            .tradeoffs = &point};
    CHECK_OK(lh_report_make("", &report, &err), err);
    CHECK_OK(lh_report_set_decision(report, &d, &err), err);
    CHECK_OK(lh_report_set_decision(report, &d, &err), err);
    char *text = html_of(report);
    CHECK_INT(count(text, "\"decision\":"), 1);
    CHECK_HAS(text,
              "\"decision\":{\"sentences\":[\"Train \\u003cit>.\"],"
              "\"notes\":[\"Safe\",\"none\"],\"sites\":[{\"texts\":[\"west\","
              "\"1 of 2 h100\",\"stage 0\"],\"used\":500000},{\"texts\":["
              "\"east\",\"0 of 2 h100\",\"idle\"],\"used\":0}],\"links\":[{"
              "\"texts\":[\"20 ms\",\"1 GB\"],\"from\":0,\"to\":1,"
              "\"use\":250000}],\"tradeoffs\":[{\"texts\":[\"TP 1\",\"\"],"
              "\"ns\":30,\"bytes\":7,\"usd\":-1}]}");
    lh_text_free(text);
    point.usd = NAN;
    CHECK_INT(lh_report_set_decision(report, &d, &err), LH_EINVAL);
    CHECK_HAS(err.text, "tradeoffs[0]");
    link.to = 2;
    CHECK_INT(lh_report_set_decision(report, &d, &err), LH_EINVAL);
    CHECK_HAS(err.text, "links[0]");
    link.to = 1;
    link.use = NAN;
    CHECK_INT(lh_report_set_decision(report, &d, &err), LH_EINVAL);
    sites[1].used = 1.5;
    CHECK_INT(lh_report_set_decision(report, &d, &err), LH_EINVAL);
    CHECK_HAS(err.text, "sites[1]");
    notes[1] = NULL;
    CHECK_INT(lh_report_set_decision(report, &d, &err), LH_EINVAL);
    CHECK_HAS(err.text, "notes[0]");
    d.n_notes = 1001;
    CHECK_INT(lh_report_set_decision(report, &d, &err), LH_EINVAL);
    lh_report_free(report);
}

/* --- SVG ----------------------------------------------------------------- */

static void svg_of_everything(void)
{
    lh_error err = {0};
    char *text = NULL;
    lh_svg_options options = {
        .size = sizeof options, .width = 1000, .analysis = &small_analysis};
    CHECK_OK(lh_report_svg(&small_trace, &options, &text, NULL, &err), err);
    CHECK_HAS(text, "width=\"1000\"");
    CHECK_HAS(text, "a &lt;title&gt; &amp; more");
    CHECK_HAS(text, "east &amp; &lt;b&gt;");
    CHECK_HAS(text, "measured, makespan 890 ns");
    CHECK_HAS(text, ">0F0</text>");
    CHECK_HAS(text, ">1B0</text>");
    CHECK_HAS(text, "critical path");
    CHECK_HAS(text, ">200 ns</text>");
    /* 0F0: 856 pixels for 890 ns, from 120 on; minus a gap of 0.6. */
    CHECK_HAS(text, "M216.18 106H311.76V128H216.18z");
    CHECK(!strstr(text, "nan") && !strstr(text, "inf"));
    lh_text_free(text);
    text = NULL;
    CHECK_OK(lh_report_svg(&small_trace, NULL, &text, NULL, &err), err);
    CHECK(text && !strstr(text, "critical"));
    lh_text_free(text);
    options.width = 10;
    CHECK_INT(lh_report_svg(&small_trace, &options, &text, NULL, &err),
              LH_EINVAL);
}

/* Traces at the limits. */
static void pictures_of_extremes(void)
{
    static const char *const sites[] = {""};
    const int64_t far = INT64_C(1) << 53;
    lh_trace_device device = {0, 0, LH_NO_LIMIT, NULL};
    lh_trace_run runs[] = {
        {{0, 0, 0, 1, LH_F, false}, 0, LH_NONE, 0, 0, 0, 0, 0},
        {{0, 0, 0, 1, LH_B, false},
         0,
         LH_NONE,
         far,
         far,
         far,
         INT64_MAX,
         INT64_MIN}};
    lh_trace t = {.title = "\x01",
                  .source = "simulated",
                  .memory_unit = "",
                  .n_devices = 1,
                  .n_sites = 1,
                  .devices = &device,
                  .site_names = sites};
    const int64_t makespans[] = {0, 1, far};
    for (uint32_t n = 0; n <= 2; n++)
        for (int i = 0; i < 3; i++) {
            lh_error err = {0};
            char *text = NULL;
            lh_report *report = NULL;
            t.runs = runs;
            t.n_runs = n;
            t.makespan_ns = makespans[i];
            CHECK_OK(lh_report_svg(&t, NULL, &text, NULL, &err), err);
            CHECK(text && !strstr(text, "nan") && !strchr(text, '\x01'));
            lh_text_free(text);
            CHECK_OK(lh_report_terminal(&t, NULL, &text, NULL, &err), err);
            lh_text_free(text);
            CHECK_OK(lh_report_make("", &report, &err), err);
            CHECK_OK(lh_report_add_trace(report, &t, "", NULL, &err), err);
            lh_text_free(html_of(report));
            lh_report_free(report);
        }
}

/* 3,000 passes on one device: passes share columns, and the file stays small.
 */
static void svg_of_many(void)
{
    enum { N = 3000 };
    static const char *const sites[] = {""};
    lh_trace_device device = {0, 0, LH_NO_LIMIT, NULL};
    lh_trace_run *runs = calloc(N, sizeof *runs);
    for (uint32_t i = 0; i < N; i++)
        runs[i] = (lh_trace_run){{0, i / 3, 0, 1, (uint8_t)(i % 3), false},
                                 0,
                                 LH_NONE,
                                 i * 10,
                                 i * 10 + 9,
                                 i * 10 + 9,
                                 0,
                                 0};
    lh_trace t = {.title = "",
                  .source = "simulated",
                  .memory_unit = "",
                  .makespan_ns = 10 * N,
                  .n_devices = 1,
                  .n_sites = 1,
                  .devices = &device,
                  .site_names = sites,
                  .n_runs = N,
                  .runs = runs};
    lh_error err = {0};
    char *text = NULL;
    size_t len = 0;
    CHECK_OK(lh_report_svg(&t, NULL, &text, &len, &err), err);
    CHECK(len < 60000);
    CHECK_INT(count(text, "fill=\"#1f4e92\" d="), 1);
    CHECK_INT(count(text, "fill=\"#57b391\" d="), 1);
    lh_text_free(text);
    free(runs);
}

/* --- terminal ------------------------------------------------------------ */

/* Returns the width of the longest line in columns, without escape sequences.
 */
static uint32_t widest(const char *text)
{
    uint32_t now = 0, most = 0;
    for (const char *p = text; *p; p++) {
        if (*p == '\033') {
            p = strchr(p, 'm');
            continue;
        }
        now = *p == '\n' ? 0 : now + (((unsigned char)*p & 0xc0) != 0x80);
        most = now > most ? now : most;
    }
    return most;
}

static void terminal_fits(void)
{
    for (uint32_t width = 40; width <= 230; width += 19)
        for (int look = 0; look < 4; look++) {
            lh_error err = {0};
            char *text = NULL;
            lh_terminal_options options = {.size = sizeof options,
                                           .width = width,
                                           .color = look & 1,
                                           .ascii = look >> 1};
            CHECK_OK(
                lh_report_terminal(&small_trace, &options, &text, NULL, &err),
                err);
            CHECK(widest(text) <= width);
            CHECK_INT(count(text, "\n  device 0 "), 1);
            CHECK((strchr(text, '\033') != NULL) == options.color);
            for (const char *p = text; *p && options.ascii; p++)
                CHECK((unsigned char)*p < 0x80);
            lh_text_free(text);
            text = NULL;
            CHECK_OK(lh_report_terminal_plot(&small_sweep, &options, &text,
                                             NULL, &err),
                     err);
            CHECK(widest(text) <= width);
            lh_text_free(text);
        }
}

static void terminal_shows(void)
{
    lh_error err = {0};
    char *text = NULL;
    lh_terminal_options options = {
        .size = sizeof options, .width = 107, .ascii = true};
    CHECK_OK(lh_report_terminal(&small_trace, &options, &text, NULL, &err),
             err);
    /* 89 columns for 890 ns: a column is 10 ns. */
    CHECK_HAS(text, "west\n  device 0  ..........0FFFFFFFFF1FFFFFFFFF......");
    CHECK_HAS(text, "0DDDDDDDDDWWWWWWWWWW");
    CHECK_HAS(text, "0BBBBBBBBBBBBB1FFF");
    CHECK_HAS(text, "Links\n  west-east ....................FFFFFFFFFFF"
                    "FFFFFFFFFFF--....");
    CHECK_HAS(text, "F forward  D input gradient  W weight gradient  "
                    "B backward  - in flight\n");
    CHECK_HAS(text, "|0 ");
    CHECK_HAS(text, "890 ns|");
    CHECK_HAS(text, "45%\n"); /* 400 of 890 */
    lh_text_free(text);
    options.width = 39;
    CHECK_INT(lh_report_terminal(&small_trace, &options, &text, NULL, &err),
              LH_EINVAL);
    options.width = 1001;
    CHECK_INT(
        lh_report_terminal_plot(&small_sweep, &options, &text, NULL, &err),
        LH_EINVAL);
}

static void plot_shows(void)
{
    lh_error err = {0};
    char *text = NULL;
    CHECK_OK(lh_report_terminal_plot(&small_sweep, NULL, &text, NULL, &err),
             err);
    CHECK_HAS(text, "slowdown, transfer 1 ms\n");
    CHECK_HAS(text, "1.667 |");  /* 150 / 90 */
    CHECK_HAS(text, "1.000 |+"); /* greedy's first point is the baseline */
    CHECK_HAS(text, "latency (ms)");
    CHECK_HAS(text, "o 1f1b\n");
    CHECK_HAS(text, "+ greedy\n");
    lh_text_free(text);
    lh_report_sweep none = small_sweep;
    none.n_points = 0;
    CHECK_INT(lh_report_terminal_plot(&none, NULL, &text, NULL, &err),
              LH_EINVAL);
}

static void marks_of_a_plot_differ(void)
{
    static const double xs[] = {0};
    static const int64_t ns[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    static const char *const names[] = {"A", "B", "C", "D", "E", "F",
                                        "G", "H", "I", "J", "K", "L"};
    const lh_report_sweep sweep = {.size = sizeof sweep,
                                   .x = "x",
                                   .n_points = 1,
                                   .xs = xs,
                                   .n_series = 12,
                                   .series = names,
                                   .makespan_ns = ns};
    lh_error err = {0};
    char *text = NULL;
    CHECK_OK(lh_report_terminal_plot(&sweep, NULL, &text, NULL, &err), err);
    bool seen[128] = {false};
    for (int i = 0; i < 12; i++) {
        char line[] = " A\n";
        line[1] = names[i][0];
        const char *at = text ? strstr(text, line) : NULL;
        CHECK(at && !seen[at[-1] & 127]);
        if (at)
            seen[at[-1] & 127] = true;
    }
    lh_text_free(text);
}

static void times_as_text(void)
{
    static const struct {
        int64_t ns;
        const char *text;
    } cases[] = {{0, "0 ns"},
                 {999, "999 ns"},
                 {1000, "1 us"},
                 {1234567, "1.235 ms"},
                 {20500000, "20.5 ms"},
                 {123456789, "123.5 ms"},
                 {1761560000, "1.762 s"},
                 {69077300000, "69.08 s"},
                 {INT64_C(1234567000000), "1235 s"},
                 {INT64_C(1) << 53, "9007199 s"}};
    char text[LHI_FORMAT_DURATION_SIZE];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_STR(lhi_format_duration(cases[i].ns, text), cases[i].text);
}

int main(void)
{
    RUN(page_of_nothing);
    RUN(page_of_everything);
    RUN(iterations_that_differ);
    RUN(two_beside_each_other);
    RUN(decisions);
    RUN(page_refuses);
    RUN(svg_of_everything);
    RUN(pictures_of_extremes);
    RUN(svg_of_many);
    RUN(terminal_fits);
    RUN(terminal_shows);
    RUN(plot_shows);
    RUN(marks_of_a_plot_differ);
    RUN(times_as_text);
    return test_summary();
}
