/* SPDX-License-Identifier: Apache-2.0 */
/* A plan's reasons in words. */
#ifndef CLI_PLAN_WHY_H
#define CLI_PLAN_WHY_H

#include "cli.h"

#include <longhaul/plan.h>
#include <longhaul/report.h>

/* What an iteration consists of, the optimizer and what is after it last. */
enum { CLI_ACCOUNT_PARTS = 10 };
void cli_account_parts(const lh_plan_account *account,
                       lh_report_part parts[CLI_ACCOUNT_PARTS]);

/* What the iteration consists of; what is next in each dimension; what the
 * links should be set to. Nothing where the plan does not say. */
void cli_plan_account(cli *c, const lh_plan *p);
/* What the fullest device holds, in parts; nothing where the plan has none. */
void cli_plan_memory(cli *c, const lh_plan *p);
/* Of the device with the least room left, whose peak and limit the plan has;
 * NULL: the plan does not say. */
const lh_plan_memory *cli_plan_fullest(const lh_plan *p);
void cli_plan_runners(cli *c, const lh_plan *p);
lh_status cli_report_runners(cli *c, const lh_plan *p, lh_report *report);
void cli_plan_network(cli *c, const lh_plan *p);
void cli_plan_curves(cli *c, const lh_plan *p);

/* The same in a report. */
lh_status cli_plan_reasons(cli *c, const lh_plan *p, lh_report *report);

#endif
