/* SPDX-License-Identifier: Apache-2.0 */
/* Input: a trace. */
#include "fuzz.h"

#include <longhaul/experimental/report.h>
#include <longhaul/experimental/trace.h>

static lh_status parse(const char *text, size_t len, lh_trace **out,
                       lh_error *err)
{
    return lh_trace_parse(text, len, "trace.json", out, err);
}

FUZZ_ROUND_TRIP(read_twice, lh_trace, parse, lh_trace_format, lh_trace_free)

/* Renders the trace in every report format; each must succeed. */
static void draw(const lh_trace *trace)
{
    lh_report *report = NULL;
    lh_error err = {0};
    char *text = NULL;
    MUST(lh_report_svg(trace, NULL, &text, NULL, &err), err);
    lh_text_free(text);
    MUST(lh_report_terminal(trace, NULL, &text, NULL, &err), err);
    lh_text_free(text);
    MUST(lh_report_make("fuzz", &report, &err), err);
    MUST(lh_report_add_trace(report, trace, "x", NULL, &err), err);
    MUST(lh_report_format_html(report, &text, NULL, &err), err);
    lh_text_free(text);
    lh_report_free(report);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lh_trace *trace = read_twice((const char *)data, size);
    if (trace && trace->n_devices <= 64)
        draw(trace);
    lh_trace_free(trace);
    return 0;
}
