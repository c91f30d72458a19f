/* SPDX-License-Identifier: Apache-2.0 */
/* What the report's files share.
 *
 * Pictures. In: traces, what an analysis says of them, rows, sweeps and tables.
 * Out: text (longhaul/report.h).
 *
 *   report.c         the HTML page, gathered as JSON; report.html, .css and .js
 *                    around it, decode.js, check.js and the rest draw from that
 *   what_if_json.c   what the page needs to simulate again
 *   page_json.c      what the page, too, writes as it simulates again
 *   trace_json.c     a trace in that JSON: columns of whole numbers
 *   diagnosis_page.c a diagnosis in it, with the steps that were played
 *   reasons.c        tables of text and bars of parts in it
 *   differences.c    what two of something have, as a table
 *   varied.c         iterations that differ, as a histogram
 *   explain.c        an analysis in terms of its trace
 *   markup.c         what pictures and the page write alike
 *   timeline_rows.c  which rows a timeline has, in which order, by which names
 *   svg.c            a timeline as a still picture
 *   course_svg.c     iterations one after the other, likewise
 *   text_timeline.c  the same as text; text_plot.c the curves of a sweep */
#ifndef LHI_PARTS_H
#define LHI_PARTS_H

#include "base/fail.h"
#include "base/show.h"
#include "report/page_json.h"

#include <longhaul/report.h>

/* The page around the data: report.html, report.css and report.js, embedded
 * by tools/embed.py. */
extern const char lhi_report_page_html[];
extern const char lhi_report_page_css[];
extern const char lhi_report_page_js[];
/* wasm/, in base64 of its gzip; "" where the build had no tools for it. */
extern const char lhi_report_page_wasm[];

struct lh_report {
    char *title;
    lhi_text facts, traces, rows, sweeps, reasons; /* items of JSON lists */
    lhi_text cards, memory, varied, differences;   /* the same */
    lhi_text courses;                              /* sections of the page */
    lhi_text diagnosis; /* JSON; empty: there is none */
    lhi_text what_if; /* an object of JSON; empty: there is none */
    uint32_t n_columns; /* of the last table; 0: there is none */
};

/* Adds `item` to a list, whole or not at all; it is released. */
lh_status lhi_report_add_item(lhi_text *list, lhi_text *item, lh_error *err);

/* LH_EINVAL: xs do not rise, or a text is not UTF-8. */
lh_status lhi_take_sweep(const lh_report_sweep *given, lh_report_sweep *mine,
                         lh_error *err);

/* With the width filled in. LH_EINVAL: it is out of range. */
lh_status lhi_take_terminal(const lh_terminal_options *given,
                            lh_terminal_options *mine, lh_error *err);

/* With the width filled in. LH_EINVAL: it is out of range. */
lh_status lhi_take_svg(const lh_svg_options *given, lh_svg_options *mine,
                       lh_error *err);
/* LH_EINVAL: counts or times are out of range. */
lh_status lhi_take_course(const lh_report_course *given, lh_report_course *mine,
                          lh_error *err);
/* Adds the picture of one that was taken, `width` units wide: pixels, or as
 * wide as there is room in a page. */
lh_status lhi_course_picture(const lh_report_course *course, uint32_t width,
                             bool in_page, lhi_text *out, lh_error *err);
/* "12.5": hundredths of a pixel, in every locale. */
void lhi_add_hundredths(lhi_text *out, int64_t hundredths);

/* The makespan that counts as slowdown 1. */
int64_t lhi_sweep_baseline(const lh_report_sweep *sweep);

/* Adds the text, shown, as text between tags of HTML or XML. */
void lhi_add_markup(lhi_text *out, const char *text);

#endif
