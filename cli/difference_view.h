/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a measured iteration in comparison with its prediction. */
#ifndef CLI_DIFFERENCE_VIEW_H
#define CLI_DIFFERENCE_VIEW_H

#include "cli.h"

#include <longhaul/experimental/report.h>
#include <longhaul/experimental/trace_compare.h>

/* Prints the differences between prediction and measurement. `how` is the
 * measurement method, "" if unknown. `log`, the run's iterations, may be
 * NULL. */
void cli_difference_text(cli *c, const lh_trace_difference *d, const char *how,
                         const lh_run_log *log);
/* Returns the differences between prediction and measurement as JSON. `d` may
 * be NULL: nothing was compared. */
json_t *cli_difference_json(const lh_trace_difference *d, const lh_run_log *log,
                            const char *how, const char *report);
/* Adds the differences between prediction and measurement to a report as
 * facts. */
lh_status cli_difference_facts(cli *c, const lh_trace_difference *d,
                               const char *how, const lh_run_log *log,
                               lh_report *report);
/* Adds only the differences between the passes' start times. */
lh_status cli_deviation_facts(cli *c, const lh_trace_difference *d,
                              lh_report *report);

#endif
