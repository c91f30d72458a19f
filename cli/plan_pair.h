/* SPDX-License-Identifier: Apache-2.0 */
/* Two plans beside each other. */
#ifndef CLI_PLAN_PAIR_H
#define CLI_PLAN_PAIR_H

#include "cli.h"

#include <longhaul/plan.h>
#include <longhaul/report.h>

/* Of the report of two: what each is, in a line of the heading; the numbers
 * that readers look for first; a table of all in which they differ. `names` are
 * what the report calls them. */
lh_status cli_plan_pair(cli *c, const lh_plan *const plans[2],
                        const char *const names[2], lh_report *report);

#endif
