/* SPDX-License-Identifier: Apache-2.0 */
/* Prints plan costs. */
#ifndef CLI_PLAN_COST_H
#define CLI_PLAN_COST_H

#include "cli.h"

#include <longhaul/experimental/plan.h>
#include <longhaul/experimental/report.h>

/* Option rows of prices; `settings` has gpu_hour_usd and per_gb_usd. */
#define CLI_PRICE_ROWS(settings)                                               \
    {.name = "gpu-hour",                                                       \
     .type = CLI_REAL_ABOVE,                                                   \
     .at = offsetof(settings, gpu_hour_usd),                                   \
     .arg = "USD",                                                             \
     .example_argument = "2.5",                                                \
     .high = 1e9,                                                              \
     .help = "Price of a GPU hour, instead of the job's usd_per_gpu_hour."},   \
    {                                                                          \
        .name = "per-gb", .type = CLI_REAL_ABOVE,                              \
        .at = offsetof(settings, per_gb_usd), .arg = "USD",                    \
        .example_argument = "0.02", .high = 1e9,                               \
        .help =                                                                \
            "Price of 10^9 bytes sent between datacenters, instead of the "    \
            "job's usd_per_gb."                                                \
    }

/* Prints an iteration's cost for the plan's heading; nothing if the job has no
 * prices. */
void cli_print_cost(cli *c, const lh_choice *choice);
/* Checks that the plan's iteration takes at most most_ns; 0: no limit.
 * LH_EINFEASIBLE otherwise. */
lh_status cli_check_iteration(cli *c, const lh_plan *plan, int64_t most_ns);
/* Prints a line about the knee (least product of time and cost) of all plans
 * that the plan lists, and about the cheapest of them, if the objective is not
 * cost and they cost at least 10 % less than this one. */
void cli_print_cheaper_plans(cli *c, const lh_plan *plan);
/* Formats the first of these plans, with its saving, time and layout, into
 * `text`, which it returns; "": none. */
const char *cli_cheaper_plan_text(const lh_plan *plan, char *text, size_t room);
/* Prints the Pareto front (plans that none improves in all objectives) over
 * time, memory and cost; nothing unless requested. */
void cli_print_pareto_front(cli *c, const lh_plan *plan);
/* Adds the Pareto front to a report. */
lh_status cli_report_pareto_front(cli *c, const lh_plan *plan,
                                  lh_report *report);

#endif
