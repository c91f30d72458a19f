/* SPDX-License-Identifier: Apache-2.0 */
/* Other values of the links between datacenters: `plan --what-if` and
 * `--sensitivity`. */
#ifndef CLI_PLAN_LINKS_H
#define CLI_PLAN_LINKS_H

#include "cli.h"
#include "wrap.h"

#include <longhaul/plan.h>

enum { CLI_MOST_QUESTIONS = 256 };

typedef struct cli_questions {
    uint32_t n;
    lh_plan_question *all;
    /* What they point to. */
    lh_link_change *changes;
    char *texts;
} cli_questions;

/* `latency=10,20,40,west-east.bandwidth=x2`: a question for every combination
 * of the values given; with ';' between them, those of several such lists.
 * Release with cli_questions_fini(), after a failure too. */
lh_status cli_questions_parse(cli *c, const char *text, const lh_job *job,
                              cli_questions *out);
void cli_questions_fini(cli_questions *questions);

/* A note with the datacenters of a choice, if they are others than those of
 * `than`. */
void cli_note_sites(cli_table *table, const lh_plan *plan,
                    const lh_choice *choice, const lh_choice *than);

/* The plan's answers, and where its layout stops being the best. */
void cli_print_answers(cli *c, const lh_plan *plan);
void cli_print_sensitivity(cli *c, const lh_plan *plan);
/* Both in a report. */
lh_status cli_report_links(cli *c, const lh_plan *plan, lh_report *report);

#endif
