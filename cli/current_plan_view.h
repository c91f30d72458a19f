/* SPDX-License-Identifier: Apache-2.0 */
/* Implements plan --from: compares the current configuration with longhaul's
 * plan. */
#ifndef CLI_CURRENT_PLAN_VIEW_H
#define CLI_CURRENT_PLAN_VIEW_H

#include "cli.h"

#include <longhaul/experimental/plan.h>

/* The current configuration's plan. */
typedef struct cli_current_plan {
    const lh_plan *plan; /* the current configuration's plan; NULL: none */
    const char *why;     /* reason if `plan` is NULL */
} cli_current_plan;

/* Prints how the current configuration compares with the plan, before the
 * plan's own lines. */
void cli_current_plan_text(cli *c, const cli_current_plan *today,
                           const lh_plan *plan);
/* Returns the current configuration's comparison with the plan as JSON; `text`:
 * the plan's own JSON. NULL: out of memory. */
json_t *cli_current_plan_json(const cli_current_plan *today,
                              const lh_plan *plan, const char *text);

#endif
