/* SPDX-License-Identifier: Apache-2.0 */
/* Traces and reports with each allocation failing in turn, including jansson's.
 */
#include "fail_alloc.h"
#include "report/diagnosis/recording.h"
#include "small_recording.h"
#include "small_trace.h"
#include "test.h"

#include <jansson.h>
#include <stdlib.h>

static void *may_fail(size_t size)
{
    return malloc(size);
}

static void traces(void)
{
    lh_error err = {0};
    lh_trace *trace = NULL, *back;
    char *text = NULL, *again;
    FAIL_EACH_ALLOC({
        back = NULL;
        status = lh_trace_copy(&small_trace, &back, &err);
        CHECK((status == LH_OK) == (back != NULL));
        lh_trace_free(back);
    });
    CHECK_OK(lh_trace_copy(&small_trace, &trace, &err), err);
    FAIL_EACH_ALLOC({
        again = NULL;
        status = lh_trace_format(trace, &again, NULL, &err);
        CHECK((status == LH_OK) == (again != NULL));
        lh_text_free(again);
    });
    CHECK_OK(lh_trace_format(trace, &text, NULL, &err), err);
    FAIL_EACH_ALLOC({
        back = NULL;
        status = lh_trace_parse(text, strlen(text), "t", &back, &err);
        CHECK((status == LH_OK) == (back != NULL));
        lh_trace_free(back);
    });
    lh_text_free(text);
    lh_trace_free(trace);
}

static lh_status fill(lh_report *report, lh_error *err)
{
    lh_report_row row = {"zb-h1", "ok", 890, 0.25, 25, "why"};
    lh_status status = lh_report_add_fact(report, "job", "x", err);
    if (status == LH_OK)
        status = lh_report_add_trace(report, &small_trace, "a", &small_analysis,
                                     err);
    if (status == LH_OK)
        status = lh_report_add_row(report, &row, err);
    if (status == LH_OK)
        status = lh_report_add_sweep(report, &small_sweep, err);
    const lh_report_breakdown_part part = {"compute", 30};
    const char *const texts[] = {"ecmp"};
    lh_report_table table = {
        .size = sizeof table, .title = "Links", .n_columns = 1, .head = texts};
    if (status == LH_OK)
        status = lh_report_add_breakdown(report, "Parts", 1, &part, err);
    const lh_report_memory_kind kind = {"weights", 7};
    if (status == LH_OK)
        status = lh_report_add_card(report, "a", "b", "c", err);
    if (status == LH_OK)
        status = lh_report_add_memory(report, "rank 0", 9, 1, &kind, err);
    const lh_report_decision decision = {
        .size = sizeof decision, .n_sentences = 1, .sentences = texts};
    if (status == LH_OK)
        status = lh_report_set_decision(report, &decision, err);
    if (status == LH_OK)
        status = lh_report_add_table(report, &table, err);
    if (status == LH_OK)
        status = lh_report_add_cells(report, 1, texts, err);
    return status;
}

static void reports(void)
{
    lh_error err = {0};
    char *text;
    FAIL_EACH_ALLOC({
        lh_report *report = NULL;
        text = NULL;
        status = lh_report_make("title", &report, &err);
        if (status == LH_OK)
            status = fill(report, &err);
        if (status == LH_OK)
            status = lh_report_format_html(report, &text, NULL, &err);
        CHECK((status == LH_OK) == (text != NULL));
        lh_text_free(text);
        lh_report_free(report);
    });
}

static void diagnoses(void)
{
    lh_error err = {0};
    lh_recording *recording;
    lh_report_diagnosis page = {.size = sizeof page};
    lh_diagnosis *d;
    const small_job job = {
        .steps = 2, .stages = 2, .replicas = 2, .microbatches = 2, .slower = 2};
    small_recording(&job);
    CHECK_OK(lhi_recording_parse(small_text, small_len, "small.csv", &recording,
                                 &err),
             err);
    CHECK_OK(lh_diagnose(recording, NULL, &d, &err), err);
    page.recording = recording;
    page.diagnosis = d;
    FAIL_EACH_ALLOC({
        lh_report *report = NULL;
        status = lh_report_make("title", &report, &err);
        if (status == LH_OK)
            status = lh_report_add_diagnosis(report, &page, &err);
        lh_report_free(report);
    });
    lh_diagnosis_free(d);
    lh_recording_free(recording);
}

static void pictures(void)
{
    lh_error err = {0};
    char *text;
    lh_svg_options svg = {.size = sizeof svg, .analysis = &small_analysis};
    FAIL_EACH_ALLOC({
        text = NULL;
        status = lh_report_svg(&small_trace, &svg, &text, NULL, &err);
        CHECK((status == LH_OK) == (text != NULL));
        lh_text_free(text);
    });
    FAIL_EACH_ALLOC({
        text = NULL;
        status = lh_report_terminal(&small_trace, NULL, &text, NULL, &err);
        CHECK((status == LH_OK) == (text != NULL));
        lh_text_free(text);
    });
    FAIL_EACH_ALLOC({
        text = NULL;
        status = lh_report_terminal_plot(&small_sweep, NULL, &text, NULL, &err);
        CHECK((status == LH_OK) == (text != NULL));
        lh_text_free(text);
    });
}

int main(void)
{
    json_set_alloc_funcs(may_fail, free);
    RUN(traces);
    RUN(reports);
    RUN(diagnoses);
    RUN(pictures);
    return test_summary();
}
