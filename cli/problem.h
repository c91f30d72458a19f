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
    lh_pipeline *hosted; /* either with host memory; NULL: without */
} cli_problem;

/* `jobs`: jobs are welcome, too, and planned. Release with
 * cli_problem_fini(), also after a failure. */
lh_status cli_problem_read(cli *c, const char *path, bool jobs,
                           cli_problem *out);
void cli_problem_fini(cli_problem *problem);
const lh_pipeline *cli_problem_pipeline(const cli_problem *problem);
/* --host-memory: raises the limits of what cli_problem_pipeline() gives by that
 * text; NULL: leaves them. */
lh_status cli_problem_host(cli *c, const char *text, cli_problem *problem);
/* How much beyond its own limit each device holds at its fullest, which rests
 * in host memory then: "4 activations of device 0 at most, 5 activations of all
 * devices". `peak` of `of` gives what it holds. */
typedef int64_t cli_peak_fn(const void *of, uint32_t device);
#define CLI_HOSTED_TEXT 200
char *cli_hosted_text(const lh_pipeline *pipeline, cli_peak_fn *peak,
                      const void *of, char *buffer);
/* Of an lh_timeline. */
cli_peak_fn cli_timeline_peak;
/* The plan's schedule; NULL where there is none. */
const lh_schedule *cli_problem_schedule(const cli_problem *problem);

/* The schedule of a CSV, with the link orders beside it, or of a plan; `fifo`:
 * without orders of links. Says how many cells were skipped. */
lh_status cli_read_schedule(cli *c, const char *path, bool fifo,
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
