/* SPDX-License-Identifier: Apache-2.0 */
/* What `longhaul plan` prints: one screen, and what --show asks for. */
#ifndef CLI_PLAN_SCREEN_H
#define CLI_PLAN_SCREEN_H

#include "cli.h"

#include <longhaul/plan.h>
#include <longhaul/report.h>

/* Parts of a plan beyond the screen: name, what prints it, what it has. */
#define CLI_PART_LIST(X)                                                       \
    X(NETWORK, "network", cli_plan_network)                                    \
    X(LAYOUTS, "layouts", cli_plan_layouts)                                    \
    X(SCHEDULES, "schedules", cli_plan_schedules)                              \
    X(DIMENSIONS, "dimensions", cli_plan_runners)                              \
    X(SEARCH, "search", cli_plan_search)

#define CLI_SHOW_NAMES "network, layouts, schedules, dimensions, search"

enum {
    CLI_SCREEN_LINES = 40, /* at most, at CLI_SCREEN_COLUMNS or more */
    CLI_SCREEN_COLUMNS = 100,
    CLI_SCREEN_OTHERS = 3, /* alternatives, where there is room */
    CLI_SHOW_NETWORK = 1 << 0, /* the first of the list */
    CLI_SHOW_ALL = 1 << 30,    /* but the network, which is asked for */
};

typedef struct cli_plan_shown {
    uint32_t parts;          /* bits of the list's, in its order; or all */
    const char *plan, *html; /* files written; NULL: none */
    bool sensitivity, curves; /* were asked for */
} cli_plan_shown;

/* "network,search", "all"; NULL is nothing. Wrong usage where it names what
 * there is not. */
lh_status cli_show_parse(cli *c, const char *text, uint32_t *parts);

void cli_plan_screen(cli *c, const lh_plan *plan, const cli_plan_shown *shown);

/* What the model is, as the job was read, and how much of the cluster is used:
 * the lines after the iteration. */
void cli_plan_model(cli *c, const lh_plan *plan);
/* Their parts: "70.6 B" parameters; "bf16, products in FP8"; "384 of 512: 256
 * h100-sxm, 128 a100-80g". Each returns `text`, of `room` bytes, cut to them. */
const char *cli_params_text(uint64_t n, char *text, size_t room);
const char *cli_precision_text(const lh_job *job, char *text, size_t room);
const char *cli_plan_gpus_text(const lh_plan *plan, char *text, size_t room);
/* The layout in letters and in words; where it lies. */
void cli_plan_layout(cli *c, const lh_plan *plan);
void cli_plan_sites(cli *c, const lh_plan *plan);
/* The `most` best that differ from the plan and from each other. */
void cli_plan_others(cli *c, const lh_plan *plan, uint32_t most);
/* What to set the links to, where that gains more than 1 %. */
void cli_plan_gain(cli *c, const lh_plan *plan);

/* The same in a report, with how the search went. */
lh_status cli_plan_summary(cli *c, const lh_plan *plan, lh_report *report);

/* --- parts ---------------------------------------------------------------- */

void cli_plan_layouts(cli *c, const lh_plan *plan);
void cli_plan_schedules(cli *c, const lh_plan *plan);
void cli_plan_search(cli *c, const lh_plan *plan);

#endif
