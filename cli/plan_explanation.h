/* SPDX-License-Identifier: Apache-2.0 */
/* Explains a plan. */
#ifndef CLI_PLAN_EXPLANATION_H
#define CLI_PLAN_EXPLANATION_H

#include "cli.h"

#include <longhaul/experimental/plan.h>
#include <longhaul/experimental/report.h>

/* Splits an iteration into its parts; the optimizer and later steps come last.
 */
enum { CLI_BREAKDOWN_PARTS = 10 };
/* Fills in parts[], the parts of the iteration's time (compute, communication,
 * stalls and others) with names and ns, for a report. */
void cli_breakdown_parts(const lh_plan_breakdown *account,
                         lh_report_breakdown_part parts[CLI_BREAKDOWN_PARTS]);

/* Prints the iteration's breakdown; nothing if the plan has none. */
void cli_plan_breakdown(cli *c, const lh_plan *p);
/* Prints the fullest device's memory breakdown; nothing if the plan has
 * none. */
void cli_plan_memory(cli *c, const lh_plan *p);
/* Returns the memory by kind on the device with the least free memory, whose
 * peak and limit the plan reports; NULL: the plan has no memory by kind. */
const lh_plan_memory *cli_plan_fullest_device(const lh_plan *p);
/* Prints the best alternative plan for each search dimension (degrees,
 * placement, schedule). */
void cli_plan_alternatives(cli *c, const lh_plan *p);
/* Adds the best alternative plan for each search dimension to a report. */
lh_status cli_report_alternatives(cli *c, const lh_plan *p, lh_report *report);
/* Prints the advised network settings of all links. */
void cli_plan_network(cli *c, const lh_plan *p);
/* Prints the iteration times over link values with the pipeline (PP-out) and
 * with whole replicas (DP-out) across the datacenters. */
void cli_plan_curves(cli *c, const lh_plan *p);

/* Adds breakdown, network advice, curves and memory to a report. */
lh_status cli_plan_reasons(cli *c, const lh_plan *p, lh_report *report);

#endif
