/* SPDX-License-Identifier: Apache-2.0 */
#include "plan_cost.h"
#include "plan_links.h"
#include "view.h"

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
    cli_print(c,
              "cost          USD %s per iteration, %s per 10^9 tokens; %" PRIu32
              " GPUs at %s an hour\n",
              amount(x->usd, one), amount(x->usd_per_1e9_tokens, tokens),
              x->gpus, amount(x->usd_per_hour, hour));
    if (x->between_gb > 0)
        cli_print(c, "              of it %s for %s GB between datacenters\n",
                  amount(x->between_usd, one), amount(x->between_gb, gb));
}

void cli_print_front(cli *c, const lh_plan *plan)
{
    bool priced = plan->best.cost != NULL;
    if (!plan->n_front)
        return;
    cli_print(c, "\nNothing%s is as good in time%s memory%s as one of these\n",
              plan->front_whole ? "" : " that was tried", priced ? "," : " and",
              priced ? " and cost" : "");
    cli_print(c, "  %10s  %9s%s\n", "iteration", "memory",
              priced ? "        cost" : "");
    for (uint32_t i = 0; i < plan->n_front; i++) {
        const lh_choice *x = &plan->front[i];
        char memory[CLI_MEMORY_TEXT], layout[240], usd[AMOUNT] = "";
        cli_print(c, "  %8.3f s  %9s", (double)x->iteration_ns / 1e9,
                  cli_memory_text(x->peak_memory_bytes, "bytes", memory));
        if (x->cost)
            cli_print(c, "  USD %6s", amount(x->cost->usd, usd));
        cli_print(c, "  %s, %s %s\n", cli_layout_text(x, layout, sizeof layout),
                  x->layout.schedule ? x->layout.schedule : "",
                  lh_placement_name(x->placement));
        cli_print_sites(c, plan, x, &plan->best, "              ");
    }
}
