/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the reports that test_report.py opens in a browser, their traces, and
 * a diagnosis of the recording into a folder:
 *     make_reports DIR RECORDING */
#include "report/diagnosis/recording.h"

#include <longhaul/experimental/analysis.h>
#include <longhaul/experimental/diagnose.h>
#include <longhaul/experimental/json_output.h>
#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/report.h>
#include <longhaul/experimental/status.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static lh_error err;

static void must(lh_status status)
{
    if (status == LH_OK)
        return;
    fprintf(stderr, "make_reports: %s\n", err.text);
    exit(1);
}

/* A simulated pipeline with everything that a report needs. */
typedef struct scene {
    lh_pipeline *pipeline;
    lh_schedule *schedule;
    lh_timeline *timeline;
    lh_analysis *analysis;
    lh_trace *trace;
    lh_report_analysis *shown;
    const char *method;
} scene;

static scene make_scene(const char *text, const char *method,
                        const lh_sim_options *options, const char *title)
{
    scene s = {.method = method};
    must(lh_pipeline_parse(text, strlen(text), "pipeline.yaml", &s.pipeline,
                           &err));
    must(lh_method_run(method, s.pipeline, NULL, &s.schedule, &s.method, &err));
    must(lh_simulate(s.pipeline, s.schedule, options, &s.timeline, &err));
    must(lh_analysis_make(s.pipeline, s.schedule, s.timeline, &s.analysis,
                          &err));
    must(lh_trace_make(s.pipeline, s.timeline, title, &s.trace, &err));
    must(lh_report_analysis_make(s.trace, s.analysis, &s.shown, &err));
    return s;
}

static void free_scene(scene *s)
{
    lh_report_analysis_free(s->shown);
    lh_trace_free(s->trace);
    lh_analysis_free(s->analysis);
    lh_timeline_free(s->timeline);
    lh_schedule_free(s->schedule);
    lh_pipeline_free(s->pipeline);
}

static void write_text(const char *dir, const char *name, char *text,
                       size_t len)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    must(lh_file_write(path, text, len, &err));
    lh_text_free(text);
}

static void write_all(const char *dir, const char *name, const scene *s,
                      lh_report *report)
{
    char file[64], *text;
    size_t len;
    lh_svg_options svg = {.size = sizeof svg, .analysis = s->shown};
    must(lh_report_format_html(report, &text, &len, &err));
    snprintf(file, sizeof file, "%s.html", name);
    write_text(dir, file, text, len);
    must(lh_report_svg(s->trace, &svg, &text, &len, &err));
    snprintf(file, sizeof file, "%s.svg", name);
    write_text(dir, file, text, len);
    must(lh_trace_format(s->trace, &text, &len, &err));
    snprintf(file, sizeof file, "%s.json", name);
    write_text(dir, file, text, len);
    must(lh_report_terminal(s->trace, NULL, &text, &len, &err));
    snprintf(file, sizeof file, "%s.txt", name);
    write_text(dir, file, text, len);
    lh_report_free(report);
}

/* --- two stages, two microbatches, malicious title ---------------------- */

static void tiny(const char *dir)
{
    static const char text[] =
        "longhaul: pipeline/1\ntime_unit: ms\nmicrobatches: 2\ndevices: 2\n"
        "backward: joint\nchunks:\n"
        "  - {device: 0, F: 10, D: 10, W: 10, memory: {F: 1, D: 0, W: -1}}\n"
        "  - {device: 1, F: 10, D: 10, W: 10, memory: {F: 1, D: 0, W: -1}}\n"
        "links:\n"
        "  - {from: 0, to: 1, latency: 5, transfer: 3}\n"
        "  - {from: 1, to: 0, latency: 5, transfer: 3}\n"
        "memory_limit: 2\n"
        "data_parallel:\n"
        "  - {chunk: 0, all_gather: 4, reduce_scatter: 6, latency: 1}\n";
    static const char title[] =
        "Two stages </script><script>alert(1)</script> & <b>\xe2\x80\xa8";
    scene s = make_scene(text, "1f1b", NULL, title);
    lh_report *report;
    must(lh_report_make(title, &report, &err));
    must(lh_report_add_fact(report, "job", "</script><img src=x>", &err));
    must(lh_report_add_trace(report, s.trace, s.method, s.shown, &err));
    write_all(dir, "tiny", &s, report);
    free_scene(&s);
}

/* --- Llama-3-70B-like, two sites ------------------------------------------ */

#define TWO_SITES(latency)                                                     \
    "longhaul: pipeline/1\ntime_unit: ms\nmicrobatches: 24\ndevices: 8\n"      \
    "uniform: {placement: ud, F: 21.4, D: 24.9, W: 19.6,\n"                    \
    "          memory: {F: 5, D: -1, W: -4}}\n"                                \
    "datacenters: {count: 2, latency: " latency ", transfer: 10.5}\n"          \
    "memory_limit: 80\nmemory_unit: GiB\n"

static int64_t makespan_of(const char *text, const char *method)
{
    scene s = {0};
    lh_error why;
    int64_t ns = -1;
    must(lh_pipeline_parse(text, strlen(text), "pipeline.yaml", &s.pipeline,
                           &err));
    if (lh_method_run(method, s.pipeline, NULL, &s.schedule, NULL, &why) ==
        LH_OK) {
        must(lh_simulate(s.pipeline, s.schedule, NULL, &s.timeline, &err));
        ns = lh_timeline_makespan(s.timeline);
    }
    free_scene(&s);
    return ns;
}

static void add_rows(lh_report *report, const char *text)
{
    static const char *const methods[] = {"greedy", "zb-h2", "zb-h1", "1f1b",
                                          "gpipe"};
    static const char *const whys[] = {
        "fills the wait for the other site with weight gradients",
        "warms up twice as deep, which memory does not allow",
        "its warm-up is too short for the 20 ms link",
        "each microbatch crosses the link while devices wait",
        "all backwards wait for all forwards"};
    for (int i = 0; i < 5; i++) {
        scene s = {0};
        lh_error why;
        lh_report_row row = {.method = methods[i],
                             .status = "ok",
                             .makespan_ns = -1,
                             .bubble_ratio = -1,
                             .peak_memory = -1,
                             .why = whys[i]};
        must(lh_pipeline_parse(text, strlen(text), "p", &s.pipeline, &err));
        lh_status status = lh_method_run(methods[i], s.pipeline, NULL,
                                         &s.schedule, NULL, &why);
        if (status == LH_OK) {
            must(lh_simulate(s.pipeline, s.schedule, NULL, &s.timeline, &err));
            row.makespan_ns = lh_timeline_makespan(s.timeline);
            row.bubble_ratio = lh_timeline_bubble_ratio(s.timeline);
            for (uint32_t d = 0; d < 8; d++) {
                int64_t peak = lh_timeline_peak_memory(s.timeline, d);
                if (peak > row.peak_memory)
                    row.peak_memory = peak;
            }
        } else {
            row.status = lh_status_name(status);
            row.why = why.text;
        }
        must(lh_report_add_row(report, &row, &err));
        free_scene(&s);
    }
}

static void add_sweep(lh_report *report)
{
    static const char *const texts[] = {TWO_SITES("0"),  TWO_SITES("5"),
                                        TWO_SITES("10"), TWO_SITES("20"),
                                        TWO_SITES("30"), TWO_SITES("40")};
    static const double xs[] = {0, 5, 10, 20, 30, 40};
    static const char *const names[] = {"greedy", "slack", "zb-h1", "1f1b",
                                        "gpipe"};
    int64_t makespans[5 * 6];
    for (int s = 0; s < 5; s++)
        for (int i = 0; i < 6; i++)
            makespans[s * 6 + i] = makespan_of(texts[i], names[s]);
    lh_report_sweep sweep = {.size = sizeof sweep,
                             .title = "transfer 10.5 ms",
                             .x = "latency between the sites (ms)",
                             .n_points = 6,
                             .xs = xs,
                             .n_series = 5,
                             .series = names,
                             .makespan_ns = makespans};
    must(lh_report_add_sweep(report, &sweep, &err));
}

static void add_reasons(lh_report *report)
{
    static const lh_report_breakdown_part parts[] = {
        {"compute", 12229000000},
        {"bubble", 571000000},
        {"nothing", 0},
        {"exposed messages", 310000000}};
    static const char *const head[] = {"Question", "setting", "#a flow"};
    static const char *const rows[][3] = {
        {"load_balancing", "ecmp, 4 queue pairs", "36.1 Gb/s"},
        {"", "spray <i>4</i>", "1.68 Gb/s"}};
    lh_report_table table = {.size = sizeof table,
                             .title = "Network: west>east",
                             .n_columns = 3,
                             .head = head};
    must(lh_report_add_breakdown(report, "Breakdown of the iteration", 4, parts,
                                 &err));
    must(lh_report_add_table(report, &table, &err));
    for (int i = 0; i < 2; i++)
        must(lh_report_add_cells(report, 3, rows[i], &err));
    table.title = "Runners-up";
    must(lh_report_add_table(report, &table, &err));
}

static void two_sites(const char *dir)
{
    scene s = make_scene(TWO_SITES("20"), "greedy", NULL,
                         "Llama-3-70B over two sites");
    lh_report *report;
    must(lh_report_make("Llama-3-70B over two sites", &report, &err));
    must(lh_report_add_fact(report, "job", "llama3-70b-two-sites.yaml", &err));
    must(
        lh_report_add_fact(report, "link", "west - east, 20 ms one way", &err));
    must(lh_report_add_fact(report, "schedule", s.method, &err));
    must(lh_report_add_trace(report, s.trace, s.method, s.shown, &err));
    add_rows(report, TWO_SITES("20"));
    add_sweep(report);
    add_reasons(report);
    write_all(dir, "two-sites", &s, report);
    free_scene(&s);
}

/* --- predicted and measured (with blocking sends) ----------------------- */

static void pair(const char *dir)
{
    lh_sim_options coupled = {.size = sizeof coupled, .coupled_queue = 1};
    scene s = make_scene(TWO_SITES("20"), "1f1b", NULL, "predicted");
    scene m = make_scene(TWO_SITES("20"), "1f1b", &coupled, "measured");
    lh_trace measured = *m.trace, *copy;
    lh_report *report;
    measured.source = "measured";
    must(lh_trace_copy(&measured, &copy, &err));
    must(lh_report_make("Predicted and measured", &report, &err));
    must(lh_report_add_trace(report, s.trace, "predicted", s.shown, &err));
    must(lh_report_add_trace(report, copy, "measured", m.shown, &err));
    write_all(dir, "pair", &s, report);
    lh_trace_free(copy);
    free_scene(&s);
    free_scene(&m);
}

/* --- 50,000 passes -------------------------------------------------------- */

static void large(const char *dir)
{
    static const char text[] =
        "longhaul: pipeline/1\ntime_unit: ms\nmicrobatches: 1042\ndevices: 16\n"
        "uniform: {placement: ud, F: 21.4, D: 24.9, W: 19.6,\n"
        "          memory: {F: 5, D: -1, W: -4}}\n"
        "datacenters: {count: 4, latency: 20, transfer: 10.5}\n"
        "memory_limit: 160\nmemory_unit: GiB\n";
    scene s = make_scene(text, "greedy", NULL, "50,000 passes");
    lh_report *report;
    must(lh_report_make("50,000 passes", &report, &err));
    must(lh_report_add_trace(report, s.trace, s.method, s.shown, &err));
    write_all(dir, "large", &s, report);
    free_scene(&s);
}

/* --- empty report -------------------------------------------------------- */

static void empty(const char *dir)
{
    lh_report *report;
    char *text;
    size_t len;
    must(lh_report_make("", &report, &err));
    must(lh_report_format_html(report, &text, &len, &err));
    write_text(dir, "empty.html", text, len);
    lh_report_free(report);
}

/* --- diagnosis report and its reference values --------------------------- */

static void diagnosis(const char *dir, const char *recorded)
{
    static const char *const sentences[] = {"slow </script><b>"};
    lh_recording *recording;
    lh_diagnosis *d;
    lh_report *report;
    char *text;
    size_t len;
    must(lhi_recording_read(&recorded, 1, &recording, &err));
    must(lh_diagnose(recording, NULL, &d, &err));
    must(lh_diagnosis_format(d, &text, &len, &err));
    write_text(dir, "diagnosis.json", text, len);
    must(lh_report_make("A diagnosis", &report, &err));
    const lh_report_diagnosis page = {.size = sizeof page,
                                      .recording = recording,
                                      .diagnosis = d,
                                      .n_sentences = 1,
                                      .sentences = sentences};
    must(lh_report_add_diagnosis(report, &page, &err));
    must(lh_report_format_html(report, &text, &len, &err));
    write_text(dir, "diagnosis.html", text, len);
    lh_report_free(report);
    lh_diagnosis_free(d);
    lh_recording_free(recording);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: make_reports DIR RECORDING\n");
        return 2;
    }
    tiny(argv[1]);
    two_sites(argv[1]);
    pair(argv[1]);
    large(argv[1]);
    empty(argv[1]);
    diagnosis(argv[1], argv[2]);
    return 0;
}
