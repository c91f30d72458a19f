/* SPDX-License-Identifier: Apache-2.0 */
/* Compares two plans side by side. */
#ifndef CLI_PLAN_COMPARISON_H
#define CLI_PLAN_COMPARISON_H

#include "cli.h"

#include <longhaul/experimental/plan.h>
#include <longhaul/experimental/report.h>

/* Fills a report on two plans: a heading line for each, the key numbers, and a
 * table of all differences. `names` are their labels in the report. */
lh_status cli_compare_plans(cli *c, const lh_plan *const plans[2],
                            const char *const names[2], lh_report *report);

#endif
