/* SPDX-License-Identifier: Apache-2.0 */
/* What plans cost, in words. */
#ifndef CLI_PLAN_COST_H
#define CLI_PLAN_COST_H

#include "cli.h"

#include <longhaul/plan.h>
#include <longhaul/report.h>

/* A line of the plan's heading; nothing where the job has no prices. */
void cli_print_cost(cli *c, const lh_choice *choice);
/* A line where the fastest was wanted and far cheaper plans exist. */
void cli_print_cheaper(cli *c, const lh_plan *plan);
/* What is best in time, memory or cost; nothing where it
 * was not asked for. */
void cli_print_front(cli *c, const lh_plan *plan);
lh_status cli_report_front(cli *c, const lh_plan *plan, lh_report *report);

#endif
