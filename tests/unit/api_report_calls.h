/* SPDX-License-Identifier: Apache-2.0 */
/* Calls the API for reports once for each struct that begins with `size` and
 * records the result as text. */
#ifndef API_REPORT_CALLS_H
#define API_REPORT_CALLS_H

#include "api_calls.h"
#include "small_trace.h"

/* Writes the report to outcome and frees it. */
static lh_status say_report(lh_status status, lh_report *report, lh_error *err)
{
    char *text = NULL;
    if (status == LH_OK)
        status = lh_report_format_html(report, &text, NULL, err);
    lh_report_free(report);
    return say_text(status, text);
}

static lh_report *report(void)
{
    lh_report *r = NULL;
    lh_error err = {0};
    CHECK_OK(lh_report_make("title", &r, &err), err);
    return r;
}

static lh_status with_analysis(const void *given, lh_error *err)
{
    lh_report *r = report();
    lh_status status = lh_report_add_trace(r, &small_trace, "x", given, err);
    return say_report(status, r, err);
}

static lh_status with_sweep(const void *given, lh_error *err)
{
    lh_report *r = report();
    lh_status status = lh_report_add_sweep(r, given, err);
    return say_report(status, r, err);
}

static lh_status with_varied(const void *given, lh_error *err)
{
    lh_report *r = report();
    lh_status status = lh_report_add_distribution(r, given, err);
    return say_report(status, r, err);
}

static lh_status with_differences(const void *given, lh_error *err)
{
    lh_report *r = report();
    lh_status status = lh_report_add_differences(r, given, err);
    return say_report(status, r, err);
}

static lh_status with_table(const void *given, lh_error *err)
{
    lh_report *r = report();
    lh_status status = lh_report_add_table(r, given, err);
    return say_report(status, r, err);
}

static lh_status with_decision(const void *given, lh_error *err)
{
    lh_report *r = report();
    lh_status status = lh_report_set_decision(r, given, err);
    return say_report(status, r, err);
}

/* Fills in the recording and the diagnosis; the test owns the block. */
static lh_status with_diagnosis(const void *given, lh_error *err)
{
    lh_recording *r = NULL;
    lh_diagnosis *d = NULL;
    lh_report_diagnosis *page = (lh_report_diagnosis *)given;
    lh_report *to = report();
    small_recording(&(small_job){
        .steps = 2, .stages = 2, .replicas = 1, .microbatches = 2});
    lh_status status =
        lhi_recording_parse(small_text, small_len, "small.csv", &r, err);
    if (status == LH_OK)
        status = lh_diagnose(r, NULL, &d, err);
    page->recording = r;
    page->diagnosis = d;
    if (status == LH_OK)
        status = lh_report_add_diagnosis(to, page, err);
    lh_diagnosis_free(d);
    lh_recording_free(r);
    return say_report(status, to, err);
}

/* main() sets the pipeline and the schedule. */
static lh_report_what_if what_if = {.size = sizeof what_if, .method = "1f1b"};

static lh_status asked(const void *given, lh_error *err)
{
    lh_report *r = report();
    lh_status status = lh_report_set_what_if(r, given, err);
    return say_report(status, r, err);
}

static lh_status plotted(const void *given, lh_error *err)
{
    char *text = NULL;
    lh_status status = lh_report_terminal_plot(given, NULL, &text, NULL, err);
    return say_text(status, text);
}

static lh_status drawn(const void *given, lh_error *err)
{
    char *text = NULL;
    lh_status status = lh_report_svg(&small_trace, given, &text, NULL, err);
    return say_text(status, text);
}

static lh_status typed(const void *given, lh_error *err)
{
    char *text = NULL;
    lh_status status =
        lh_report_terminal(&small_trace, given, &text, NULL, err);
    return say_text(status, text);
}

static lh_status course_drawn(const void *given, lh_error *err)
{
    char *text = NULL;
    lh_status status = lh_report_iterations_svg(given, NULL, &text, NULL, err);
    return say_text(status, text);
}

static lh_status plotted_on(const void *given, lh_error *err)
{
    char *text = NULL;
    lh_status status =
        lh_report_terminal_plot(&small_sweep, given, &text, NULL, err);
    return say_text(status, text);
}

#endif
