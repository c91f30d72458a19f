/* SPDX-License-Identifier: Apache-2.0 */
/* Writers for the report page's input, without the JSON library. They run in
 * the program, and in the page itself for what-if analysis. */
#ifndef LHI_REPORT_PAGE_PAGE_JSON_H
#define LHI_REPORT_PAGE_PAGE_JSON_H

#include "base/text.h"
#include "report/trace/json_string.h"

#include <longhaul/experimental/report.h>

/* Adds a trace in the report page's format: integer columns, with times
 * counted in the largest tick that divides them all. docs/report.md describes
 * the columns. */
lh_status lhi_page_add_trace(lhi_text *out, const lh_trace *trace,
                             const char *label,
                             const lh_report_analysis *analysis, lh_error *err);
/* Copies and validates a trace's analysis; NULL: empty. LH_EINVAL: indices or
 * times are outside the trace. */
lh_status lhi_report_copy_analysis(const lh_trace *trace,
                                   const lh_report_analysis *given,
                                   lh_report_analysis *mine, lh_error *err);
/* Adds a row. Its texts have to be UTF-8 and its ratio finite. */
void lhi_page_add_row(lhi_text *out, const lh_report_row *row);

/* Returns the letter for a pass's kind: F, D, W or B. */
char lhi_pass_letter(const lh_pass *pass);

/* Appends JSON in which invisible characters are displayed by code: an escape
 * \u202e becomes that text's six characters. Surrogate pairs occur only for
 * invisible characters. */
void lhi_page_add_visible_json(lhi_text *out, const char *json, size_t len);

#endif
