/* SPDX-License-Identifier: Apache-2.0 */
/* Text form of run logs. */
#ifndef LHI_REPORT_COMPARISON_RUN_LOG_H
#define LHI_REPORT_COMPARISON_RUN_LOG_H

#include <longhaul/experimental/trace_compare.h>

/* Parses the last run in a log with one JSON object per line and the keys
 * "step" and "seconds", as written by `longhaul train --log`. A new run begins
 * where the steps restart. `name` appears in error messages. Release with
 * lh_run_log_free(). LH_EINPUT: a line is not an iteration, or there is none.
 */
lh_status lhi_run_log_parse(const char *text, size_t len, const char *name,
                            lh_run_log **out, lh_error *err);

#endif
