/* SPDX-License-Identifier: Apache-2.0 */
#include "plan_cost.h"

#include <inttypes.h>

enum { AMOUNT = 40 };

/* Four digits, and all of those before the point. */
static const char *amount(double x, char *text)
{
    snprintf(text, AMOUNT, x >= 1000 ? "%.0f" : "%.4g", x);
    return text;
}

void cli_print_cost(cli *c, const lh_choice *choice)
{
    const lh_plan_cost *x = choice->cost;
    char one[AMOUNT], tokens[AMOUNT], hour[AMOUNT], gb[AMOUNT];
    if (!x)
        return;
    fprintf(c->out,
            "cost          USD %s per iteration, %s per 10^9 tokens; %" PRIu32
            " GPUs at %s an hour\n",
            amount(x->usd, one), amount(x->usd_per_1e9_tokens, tokens), x->gpus,
            amount(x->usd_per_hour, hour));
    if (x->between_gb > 0)
        fprintf(c->out,
                "              of it %s for %s GB between datacenters\n",
                amount(x->between_usd, one), amount(x->between_gb, gb));
}
