/* SPDX-License-Identifier: Apache-2.0 */
/* plan --from: what runs today beside what longhaul would run. */
#ifndef CLI_TODAY_VIEW_H
#define CLI_TODAY_VIEW_H

#include "cli.h"

#include <longhaul/plan.h>

typedef struct cli_today {
    const lh_plan *plan; /* of what runs today; NULL: there is none */
    const char *why;     /* then */
} cli_today;

/* Lines before the plan's own. */
void cli_today_text(cli *c, const cli_today *today, const lh_plan *plan);
/* `text` is the plan's. NULL: no memory. */
json_t *cli_today_json(const cli_today *today, const lh_plan *plan,
                       const char *text);

#endif
