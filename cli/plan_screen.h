/* SPDX-License-Identifier: Apache-2.0 */
/* Prints `longhaul plan` output: one screen, and the parts requested with
 * --show. */
#ifndef CLI_PLAN_SCREEN_H
#define CLI_PLAN_SCREEN_H

#include "cli.h"

#include <longhaul/experimental/plan.h>
#include <longhaul/experimental/report.h>

/* A plan's parts beyond the screen: name, print function, contents. */
#define CLI_PART_LIST(X)                                                       \
    X(NETWORK, "network", cli_plan_network)                                    \
    X(LAYOUTS, "layouts", cli_plan_layouts)                                    \
    X(SCHEDULES, "schedules", cli_plan_schedules)                              \
    X(DIMENSIONS, "dimensions", cli_plan_alternatives)                         \
    X(SEARCH, "search", cli_plan_search)                                       \
    X(FLAGS, "flags", cli_plan_flags)

/* Values of --show, for help and errors; those that every plan has. */
#define CLI_SHOW_COMMON "network, layouts, schedules, dimensions, search"
#define CLI_SHOW_NAMES CLI_SHOW_COMMON ", flags"
enum {
    CLI_SCREEN_LINES = 40, /* maximum, at CLI_SCREEN_COLUMNS or more */
    CLI_SCREEN_COLUMNS = 100,
    CLI_SCREEN_OTHERS = 3,     /* alternatives, if they fit */
    CLI_SCREEN_FLAGS = 3,      /* options of the program, if they fit */
    CLI_SHOW_NETWORK = 1 << 0, /* first of the list */
    CLI_SHOW_ALL = 1 << 30,    /* all but the network, printed on request */
};

/* Plan output options. */
typedef struct cli_plan_output {
    uint32_t parts;           /* bits in list order, or all */
    const char *plan, *html;  /* files written; NULL: none */
    bool sensitivity, curves; /* requested */
} cli_plan_output;

/* Parses the --show value `text`, "network,search" or "all", into a bit set of
 * the plan's parts to print; NULL: none. Fails with a usage error for unknown
 * parts. */
lh_status cli_show_parse(cli *c, const char *text, uint32_t *parts);

/* Prints a plan on one terminal screen, and the parts requested by
 * --show below. */
void cli_plan_screen(cli *c, const lh_plan *plan, const cli_plan_output *shown);

/* Prints the mean error of the cost model's times in published runs of the
 * job's kind (`runs`), and the job's properties that these runs do not cover,
 * in at most two lines; if `runs` is NULL, why there is no such error. */
void cli_print_accuracy(cli *c, const lh_job *job,
                        const lh_validated_runs *runs);
/* Prints the model as read from the job, and the use of the cluster. */
void cli_plan_model(cli *c, const lh_plan *plan);
/* Formats a parameter count, "70.6 B", into `text`, which it returns, truncated
 * to `room` bytes. */
const char *cli_params_text(uint64_t n, char *text, size_t room);
/* Formats the precision, "bf16, products in FP8", into `text`, which it
 * returns, truncated to `room` bytes. */
const char *cli_precision_text(const lh_job *job, char *text, size_t room);
/* Formats the GPUs in use, "384 of 512: 256 h100-sxm, 128 a100-80g", into
 * `text`, which it returns, truncated to `room` bytes. */
const char *cli_plan_gpus_text(const lh_plan *plan, char *text, size_t room);
/* Prints the layout, each abbreviation with its meaning, and the schedule. */
void cli_plan_layout(cli *c, const lh_plan *plan);
/* Prints which stages and replicas run in which datacenter. */
void cli_plan_sites(cli *c, const lh_plan *plan);
/* Prints the `most` best layouts that differ from the plan and from each other.
 */
void cli_plan_other_layouts(cli *c, const lh_plan *plan, uint32_t most);
/* Prints at most `most` of the training program's options that gain more than
 * 1 %, and the gain of all; one option, if it is the only one. */
void cli_plan_flags_gain(cli *c, const lh_plan *plan, uint32_t most);
/* Prints a table of the iteration time with each single option of the training
 * program changed. */
void cli_plan_flags(cli *c, const lh_plan *plan);
/* Adds the table of cli_plan_flags(), the iteration time with each option of
 * the training program changed, to the report; nothing if the plan has none. */
lh_status cli_report_flags(cli *c, const lh_plan *plan, lh_report *report);
/* Prints the link settings that gain more than 1 %. */
void cli_plan_network_gain(cli *c, const lh_plan *plan);

/* Capacities for the texts below, in bytes. */
enum { CLI_SITE_TEXT = 1200, CLI_ENDS_TEXT = 300 };
/* Formats the stages and replicas that run in a datacenter, or that it is idle,
 * into `text`, truncated to `room` bytes; *gpus: its GPUs in use. False: the
 * plan does not place its GPUs. */
bool cli_plan_site_text(const lh_plan *plan, uint32_t datacenter,
                        uint32_t *gpus, char *text, size_t room);
/* Formats the link whose end points (NCCL windows and buffers) limit a GPU's
 * rate most, with that rate and the link's own, into `text`, which it returns;
 * "": no link's end points do. */
const char *cli_plan_ends_text(const lh_plan *plan, char *text, size_t room);

/* Adds key figures, model, layout, datacenters and the search statistics to a
 * report. */
lh_status cli_plan_summary(cli *c, const lh_plan *plan, lh_report *report);

/* --- decision ----------------------------------------------------------- */

/* Capacity for the texts below, in bytes. */
enum { CLI_NOTE_TEXT = 600 };
/* Formats the best plan that leaves the memory of --margin free into `text`,
 * which it returns; "": option not given. */
const char *cli_plan_margin_text(const lh_plan *plan, char *text, size_t room);
/* Formats the layout closest to published practice among those that are slower
 * by at most the cost model's mean error in published runs into `text`, which
 * it returns; "": the plan's layout is the closest. */
const char *cli_plan_ties_text(const lh_plan *plan, char *text, size_t room);
/* Sets the report's decision: recommendation, map of the sites, alternatives
 * and Pareto front. */
lh_status cli_plan_decision(cli *c, const lh_plan *plan, lh_report *report);

/* --- parts -------------------------------------------------------------- */

/* Prints a table of the evaluated layouts, with times and reasons, the plan's
 * first. */
void cli_plan_layouts(cli *c, const lh_plan *plan);
/* Prints the evaluated schedules for the plan's layout. */
void cli_plan_schedules(cli *c, const lh_plan *plan);
/* Prints the search's statistics: the numbers of layouts evaluated and
 * excluded, the lower bound and the work. */
void cli_plan_search(cli *c, const lh_plan *plan);

#endif
