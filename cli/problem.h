/* SPDX-License-Identifier: Apache-2.0 */
/* A pipeline to work on: from its own file, from a plan's, or of the plan that
 * a job comes to. */
#ifndef CLI_PROBLEM_H
#define CLI_PROBLEM_H

#include "inputs.h"

#include <longhaul/plan.h>

typedef struct cli_problem {
    lh_pipeline *pipeline; /* of a pipeline file */
    lh_plan *plan;         /* of a plan file, or made from a job */
    bool from_job;
} cli_problem;

/* `jobs`: jobs are welcome, too, and planned. Release with
 * cli_problem_fini(), also after a failure. */
lh_status cli_problem_read(cli *c, const char *path, bool jobs,
                           cli_problem *out);
void cli_problem_fini(cli_problem *problem);
const lh_pipeline *cli_problem_pipeline(const cli_problem *problem);
/* The plan's schedule; NULL where there is none. */
const lh_schedule *cli_problem_schedule(const cli_problem *problem);

/* The schedule of a CSV, with the link orders beside it, or of a plan; `fifo`:
 * without orders of links. Says how many cells were skipped. */
lh_status cli_read_schedule(cli *c, const char *path, bool fifo,
                            lh_schedule **out);
/* A copy, with the orders of links or without. */
lh_status cli_copy_schedule(cli *c, const lh_schedule *schedule, bool links,
                            lh_schedule **out);

/* Reads a job and plans it, with progress on the terminal; `options` says the
 * rest. */
lh_status cli_make_plan(cli *c, const cli_input *input,
                        const lh_plan_options *options, lh_plan **out);
/* The two halves of it. */
lh_status cli_input_job(cli *c, const cli_input *input, lh_job **out);
lh_status cli_plan_job(cli *c, const lh_job *job,
                       const lh_plan_options *options, lh_plan **out);
lh_status cli_input_plan(cli *c, const cli_input *input, lh_plan **out);

#endif
