/* SPDX-License-Identifier: Apache-2.0 */
/* Provides a simulated schedule with the data for its charts and tables. */
#ifndef CLI_VIEW_H
#define CLI_VIEW_H

#include "problem.h"

#include <longhaul/experimental/analysis.h>
#include <longhaul/experimental/report.h>

/* A simulated schedule. Owns everything except the pipeline. Zero-initialise;
 * cli_view_fini() is valid at any time. */
typedef struct cli_view {
    const lh_pipeline *pipeline;
    const char *method; /* scheduling method, or the schedule's file */
    const lh_schedule *schedule;
    lh_schedule *own_schedule; /* or NULL */
    lh_timeline *timeline;
    lh_analysis *analysis;
    lh_trace *trace;
    lh_report_analysis *shown; /* the analysis in chart format */
} cli_view;

/* Sets the view's schedule to the one from --schedule (`name`): builds it with
 * a method, or reads it from a file. sub_blocks: parts per W pass. */
lh_status cli_view_schedule(cli *c, cli_view *view, const char *name,
                            const cli_model *model, uint32_t sub_blocks);
/* Sets the view's schedule to the one from --schedule (`given`). NULL: the
 * plan's own, or for a pipeline the best over all methods. sub_blocks: parts
 * per W pass. */
lh_status cli_view_find_schedule(cli *c, cli_view *view,
                                 const cli_problem *problem, const char *given,
                                 const cli_model *model, uint32_t sub_blocks);
/* Simulates the view's schedule and analyses the result into the view;
 * `title`: the trace's title. */
lh_status cli_view_simulate(cli *c, cli_view *view, const cli_model *model,
                            const char *title);
/* Frees a view: schedule, timeline and analysis. */
void cli_view_fini(cli_view *view);

/* Adds the view's timeline to the report, and a table row called `label` with
 * its makespan, bubble and memory. */
lh_status cli_view_report(cli *c, const cli_view *view, lh_report *report,
                          const char *label);
/* Adds what-if controls to the report page for the view, which must be the
 * first in the report. `plan`: plan whose key figures follow the changes;
 * NULL: none. */
lh_status cli_view_add_whatif(cli *c, const cli_view *view,
                              const cli_model *model, const lh_plan *plan,
                              lh_report *report);
/* Writes the report as an HTML file to `path`. */
lh_status cli_write_html(cli *c, const lh_report *report, const char *path);
/* Writes the view's timeline chart as an SVG file to `path`. */
lh_status cli_write_svg(cli *c, const cli_view *view, const char *path);
/* Writes a trace as Chrome trace JSON to `path`. */
lh_status cli_write_trace(cli *c, const lh_trace *trace, const char *path);
/* Capacity for the sizes of all replica groups, of at most 7 digits each. */
enum { CLI_MICRO_BATCH_TEXT = LH_MAX_DATACENTERS * 8 };
/* Formats the sequences per microbatch into `text`, which it returns: "4", or
 * "2/4" with each replica group's if they are unequal. */
char *cli_micro_batch_text(const lh_layout *layout,
                           char text[CLI_MICRO_BATCH_TEXT]);
/* Capacity for cli_site_tensors_text()'s buffer, in bytes. */
enum { CLI_SITE_TENSORS_TEXT = 300 };
/* Formats a plan's tensor degree into `buffer`, which it returns: "8" or, if
 * datacenters have different ones, "8 in west, 1 in east". */
char *cli_site_tensors_text(const lh_plan *plan,
                            char buffer[CLI_SITE_TENSORS_TEXT]);
/* Formats the days for a trillion tokens into `text`, which it returns: "8.89
 * days", "1,389 days". */
char *cli_days_text(double tokens_per_s, char text[CLI_GROUPED_TEXT]);
/* Formats a layout into `buffer`, which it returns: "TP 4 PP 4x2 DP 16 mb 1
 * PP-out", with PP stages x chunks, mb microbatch size; PP-out: the pipeline
 * crosses the datacenters. */
char *cli_layout_text(const lh_choice *choice, char *buffer, size_t room);
/* Capacity for cli_sites_text()'s buffer, in bytes. */
enum { CLI_SITES_TEXT = 600 };
/* Formats how a plan uses the datacenters into `buffer`, which it returns:
 * "pipeline west>mid>east (4, 2, 2 stages)", "replicas west 3, east 1", "2
 * groups: 1 x a>c (2, 2 stages); 1 x b>d (2, 2 stages)". */
char *cli_sites_text(const lh_job *job, const lh_sites *sites, char *buffer,
                     size_t room);
/* Adds a plan's key facts, as the heading, and a table of all compared layouts
 * to a report. */
lh_status cli_plan_facts(cli *c, const lh_plan *plan, lh_report *report);
/* Adds the compared layouts as table rows. */
lh_status cli_plan_rows(cli *c, const lh_plan *plan, lh_report *report);

/* Formats "14.492 s", "63.504 ms", "-" below 0. All times in a plan use one
 * unit: ms if its iteration takes less than a second. `text`: CLI_TIME_TEXT
 * bytes. */
char *cli_plan_time(const lh_plan *plan, double ns, char *text);
/* Returns the source of a plan's times: "from measured passes", "modelled". */
const char *cli_time_source_text(const lh_plan *plan);
/* Capacity for cli_unmeasured_text()'s buffer, in bytes. */
enum { CLI_UNMEASURED_TEXT = 800 };
/* Formats which measured data in the job's profile do not apply to the plan, so
 * that formulas replace them, into `text`, which it returns; "" if all apply,
 * or without a profile. */
const char *cli_unmeasured_text(const lh_plan *plan, char *text, size_t room);
/* Rounds a number to the decimals shown and avoids -0.0. */
double cli_round_for_text(double value, int decimals);
/* Returns by how many percent `value` exceeds `than`, rounded to the tenth
 * that texts show. */
double cli_percent_slower(double value, double than);

/* Returns the properties of standard output: width, colours, characters. */
lh_terminal_options cli_terminal(const cli *c);

#endif
