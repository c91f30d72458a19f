/* SPDX-License-Identifier: Apache-2.0 */
/* What the page of a report reads, written without a library for JSON: in the
 * program, and in the page itself when it asks what would be. */
#ifndef LHI_PAGE_JSON_H
#define LHI_PAGE_JSON_H

#include "base/text.h"
#include "trace/jsonstring.h"

#include <longhaul/report.h>

/* A trace as the page reads it: columns of whole numbers, times counted in
 * the largest tick that divides them all. The columns are described in
 * docs/report.md. */
lh_status lhi_trace_to_page(lhi_text *out, const lh_trace *trace,
                            const char *label,
                            const lh_report_analysis *analysis, lh_error *err);
/* What the caller knows of a trace; NULL: nothing, counts of 0. LH_EINVAL:
 * indices or times that the trace does not have. */
lh_status lhi_take_analysis(const lh_trace *trace,
                            const lh_report_analysis *given,
                            lh_report_analysis *mine, lh_error *err);
/* Its texts are UTF-8, its ratio is finite. */
void lhi_row_to_page(lhi_text *out, const lh_report_row *row);

/* The letter of a pass for people: F, D, W, B. */
char lhi_kind_letter(const lh_pass *pass);

/* Adds JSON. What is not seen on a page stands there as its name: the
 * characters that JSON has as \u202e become the six of that. Halves are of
 * such characters alone. */
void lhi_add_seen(lhi_text *out, const char *json, size_t len);

#endif
