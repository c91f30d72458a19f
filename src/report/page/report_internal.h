/* SPDX-License-Identifier: Apache-2.0 */
/* Shared report declarations.
 *
 * Input: traces with their analysis, rows, sweeps and tables. Output: text
 * (longhaul/experimental/report.h).
 *
 *     report.c         HTML page with its data as JSON; report.html, .css
 *                      and .js, decode.js, check.js and others draw it
 *     what_if_json.c   inputs for the page's own simulations
 *     page_json.c      writers that the page uses as well
 *     trace_json.c     a trace in the page's JSON: integer columns
 *     diagnosis_page.c a diagnosis with its replayed steps
 *     text_tables.c    text tables and breakdown bars
 *     differences.c    a table that compares two configurations
 *     distribution.c   a histogram for varying iterations
 *     decision.c       a plan's recommendation, map and Pareto front
 *     explain.c        an analysis in terms of its trace
 *     markup.c         markup helpers for pictures and the page
 *     timeline_rows.c  selection, order and names of a timeline's rows
 *     svg.c            a timeline as a static picture
 *     iterations_svg.c a run's iterations as a picture
 *     text_timeline.c  a timeline as text; text_plot.c a sweep's curves */
#ifndef LHI_REPORT_PAGE_REPORT_INTERNAL_H
#define LHI_REPORT_PAGE_REPORT_INTERNAL_H

#include "base/escape.h"
#include "base/fail.h"
#include "report/page/page_json.h"

#include <longhaul/experimental/report.h>

/* Page templates report.html, report.css and report.js, embedded by
 * tools/embed.py. */
extern const char lhi_report_page_html[];
extern const char lhi_report_page_css[];
extern const char lhi_report_page_js[];
/* The gzipped WebAssembly module as base64; "" if the build lacked its tools.
 */
extern const char lhi_report_page_wasm[];

/* A report under construction. */
struct lh_report {
    char *title;
    lhi_text facts, traces, rows, sweeps, reasons; /* JSON list items */
    lhi_text cards, memory, varied, differences;   /* JSON list items */
    lhi_text iteration_charts;                     /* page sections */
    lhi_text diagnosis, decision;                  /* JSON; empty: none */
    lhi_text what_if;   /* a JSON object; empty: none */
    uint32_t n_columns; /* in the last table; 0: none yet */
};

/* Appends `item` to a JSON list in the report, completely or not at all; frees
 * `item`. */
lh_status lhi_report_add_item(lhi_text *list, lhi_text *item, lh_error *err);

/* Copies and validates a sweep chart's data: makespans of several series
 * against a delay. LH_EINVAL: the delays xs do not increase, there are too many
 * points, or a text is not UTF-8. */
lh_status lhi_report_copy_sweep(const lh_report_sweep *given,
                                lh_report_sweep *mine, lh_error *err);

/* Copies the terminal options and fills in the default width. LH_EINVAL: it is
 * out of range. */
lh_status lhi_report_copy_terminal_options(const lh_terminal_options *given,
                                           lh_terminal_options *mine,
                                           lh_error *err);

/* Copies the SVG options and fills in the default width. LH_EINVAL: it is out
 * of range. */
lh_status lhi_report_copy_svg_options(const lh_svg_options *given,
                                      lh_svg_options *mine, lh_error *err);
/* Copies and validates a run's iteration times. LH_EINVAL: counts or times are
 * out of range. */
lh_status lhi_report_copy_iterations(const lh_report_iterations *given,
                                     lh_report_iterations *mine, lh_error *err);
/* Draws a run's validated iteration times as SVG, `width` units wide: pixels
 * or, with in_page, scaled to the page's width. */
lh_status lhi_report_draw_iterations(const lh_report_iterations *iterations,
                                     uint32_t width, bool in_page,
                                     lhi_text *out, lh_error *err);
/* Appends a length in 1/100 px as a decimal number of px, "12.5", in any
 * locale. */
void lhi_svg_add_hundredths(lhi_text *out, int64_t hundredths);

/* Returns the makespan in ns to which a sweep chart relates all others
 * (slowdown 1): the caller's baseline or, if that is not given, the shortest
 * makespan. */
int64_t lhi_report_sweep_baseline(const lh_report_sweep *sweep);

/* Appends a text as HTML or XML text content: escapes special and unprintable
 * characters. */
void lhi_report_add_markup(lhi_text *out, const char *text);

#endif
