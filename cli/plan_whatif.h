/* SPDX-License-Identifier: Apache-2.0 */
/* Implements `plan --what-if` and `--sensitivity`: other values for the links
 * between datacenters. */
#ifndef CLI_PLAN_WHATIF_H
#define CLI_PLAN_WHATIF_H

#include "cli.h"
#include "wrap.h"

#include <longhaul/experimental/plan.h>

/* Maximum number of what-if questions per run; each one plans the job again. */
enum { CLI_MOST_QUESTIONS = 256 };

/* What-if questions and their storage. */
typedef struct cli_questions {
    uint32_t n;
    lh_plan_whatif_question *all;
    /* Storage that the questions point to. */
    lh_link_change *changes;
    char *texts;
} cli_questions;

/* Parses the --what-if text, such as `latency=10,20,40,west-east.bandwidth=x2`,
 * into one question per combination of values. ';' separates independent lists.
 * Release with cli_questions_fini(), also after a failure. */
lh_status cli_questions_parse(cli *c, const char *text, const lh_job *job,
                              cli_questions *out);
/* Frees the what-if questions. */
void cli_questions_fini(cli_questions *questions);

/* Adds a table note with the datacenters that a choice (evaluated plan) uses,
 * if they differ from those of choice `than`. */
void cli_note_sites(cli_table *table, const lh_plan *plan,
                    const lh_choice *choice, const lh_choice *than);

/* Prints the answers to a plan's --what-if questions. */
void cli_print_whatif(cli *c, const lh_plan *plan);
/* Prints the links' break-even values, at which another layout becomes the
 * best. */
void cli_print_sensitivity(cli *c, const lh_plan *plan);
/* Adds what-if answers and break-even values to a report. */
lh_status cli_report_links(cli *c, const lh_plan *plan, lh_report *report);

/* Formats the answers to the first --what-if questions as one sentence into
 * `text`, which it returns; "": no questions. */
const char *cli_whatif_text(const lh_plan *plan, char *text, size_t room);
/* Formats, for every link quantity, the range of values in which the plan's
 * layout stays the best into `text`, which it returns; in parentheses: the
 * searched range's end. "": sensitivity not requested. */
const char *cli_sensitivity_text(const lh_plan *plan, char *text, size_t room);

#endif
