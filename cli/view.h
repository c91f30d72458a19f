/* SPDX-License-Identifier: Apache-2.0 */
/* A simulated schedule with all that pictures and tables of it need. */
#ifndef CLI_VIEW_H
#define CLI_VIEW_H

#include "problem.h"

#include <longhaul/analysis.h>
#include <longhaul/report.h>

/* Owns what it points to but the pipeline. Zero-initialise; cli_view_fini()
 * at any stage. */
typedef struct cli_view {
    const lh_pipeline *pipeline;
    const char *method; /* that made the schedule, or the schedule's file */
    const lh_schedule *schedule;
    lh_schedule *own_schedule; /* or NULL */
    lh_timeline *timeline;
    lh_analysis *analysis;
    lh_trace *trace;
    lh_report_analysis *shown; /* the analysis as pictures take it */
} cli_view;

/* What `--schedule` names: a method, by which a schedule is made, or
 * the file of one. */
lh_status cli_view_schedule(cli *c, cli_view *view, const char *name,
                            const cli_model *model, uint32_t sub_blocks);
/* The schedule that --schedule gives; NULL: the plan's own, or of a pipeline
 * the best of all methods. */
lh_status cli_view_find_schedule(cli *c, cli_view *view,
                                 const cli_problem *problem, const char *given,
                                 const cli_model *model, uint32_t sub_blocks);
/* Simulates view->schedule and works out the rest. */
lh_status cli_view_simulate(cli *c, cli_view *view, const cli_model *model,
                            const char *title);
void cli_view_fini(cli_view *view);

/* Adds the view to a report, its numbers as a row of the table too. */
lh_status cli_view_report(cli *c, const cli_view *view, lh_report *report,
                          const char *label);
/* Has the page ask "what if?" of the view, the report's first; `plan`: whose
 * cards the report has, which then follow the changes; NULL: none. */
lh_status cli_view_ask(cli *c, const cli_view *view, const cli_model *model,
                       const lh_plan *plan, lh_report *report);
/* Writes the report to `path`. */
lh_status cli_write_html(cli *c, const lh_report *report, const char *path);
lh_status cli_write_svg(cli *c, const cli_view *view, const char *path);
lh_status cli_write_trace(cli *c, const lh_trace *trace, const char *path);
/* "TP 4 PP 4x2 DP 16 mb 1 PP-out": PIPELINExCHUNKS, the microbatch, what is
 * outermost. */
char *cli_layout_text(const lh_choice *choice, char *buffer, size_t room);
enum { CLI_SITES_TEXT = 600 };
/* "pipeline west>mid>east (4, 2, 2 stages)", "replicas west 3, east 1",
 * "2 groups: 1 x a>c (2, 2 stages); 1 x b>d (2, 2 stages)". */
char *cli_sites_text(const lh_job *job, const lh_sites *sites, char *buffer,
                     size_t room);
/* A plan's heading, and all that it compared. */
lh_status cli_plan_facts(cli *c, const lh_plan *plan, lh_report *report);
lh_status cli_plan_rows(cli *c, const lh_plan *plan, lh_report *report);

/* "14.492 s", "63.504 ms", "-" below 0: all times of a plan in one unit, ms
 * where its iteration takes less than a second. `text`: CLI_TIME_TEXT. */
char *cli_plan_time(const lh_plan *plan, double ns, char *text);
/* How sure a plan's time is: "from measured passes", "modelled". */
const char *cli_source_text(const lh_plan *plan);
enum { CLI_UNMEASURED_TEXT = 800 };
/* What the job's profile has beside a plan that it says nothing of; "" where it
 * does, or there is none. */
const char *cli_unmeasured_text(const lh_plan *plan, char *text, size_t room);
/* A number for a text that has so many of its decimals: nothing is -0.0. */
double cli_shown(double value, int decimals);
/* How much more that is than `than`, in percent, for a text that has a tenth of
 * one. */
double cli_percent_behind(double value, double than);

/* As standard output is: its width, colours, characters. */
lh_terminal_options cli_terminal(const cli *c);

#endif
