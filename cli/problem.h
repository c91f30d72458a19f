/* SPDX-License-Identifier: Apache-2.0 */
/* Provides a pipeline to work on: from a pipeline file, from a plan, or from a
 * job's plan. */
#ifndef CLI_PROBLEM_H
#define CLI_PROBLEM_H

#include "inputs.h"

#include <longhaul/experimental/plan.h>

/* The input and its derived pipelines. */
typedef struct cli_problem {
    lh_pipeline *pipeline; /* from a pipeline file */
    lh_plan *plan;         /* from a plan file, or planned from a job */
    bool from_job;
    /* The plan's pipeline with a second direction; NULL: it has one. */
    lh_pipeline *both_directions;
    lh_pipeline *with_host_memory; /* either one with host memory; NULL: none */
} cli_problem;

/* Reads an input as a problem: a plan or a pipeline. `jobs`: jobs are
 * accepted, too, and planned. Release with cli_problem_fini(), also after a
 * failure. */
lh_status cli_problem_read(cli *c, const char *path, bool jobs,
                           cli_problem *out);
/* Frees a problem (a pipeline or plan that was read). */
void cli_problem_fini(cli_problem *problem);
/* Returns the pipeline of the problem (a pipeline or plan that was read), with
 * the memory of --host-memory if given. */
const lh_pipeline *cli_problem_pipeline(const cli_problem *problem);
/* Adds a second direction to a plan's pipeline if `method`, which may be NULL,
 * needs two: copies of the chunks on the devices in reverse order, and half the
 * microbatches in each direction. If the plan has two directions and the run
 * sums gradients itself (`sums`), leaves out the planned times of the sums. */
lh_status cli_problem_add_direction(cli *c, const char *method, bool sums,
                                    cli_problem *problem);
/* Sets the host memory for cli_problem_pipeline(): raises its memory limits by
 * `text`, the --host-memory value. NULL: no change. */
lh_status cli_problem_add_host_memory(cli *c, const char *text,
                                      cli_problem *problem);
/* Formats the memory that each device offloads to the host, i.e. its peak
 * beyond its own limit: "4 activations of device 0 at most, 5 activations of
 * all devices". `peak` returns a device's peak in `of`. */
typedef int64_t cli_peak_fn(const void *of, uint32_t device);
/* Capacity for the text on host memory, in bytes. */
#define CLI_HOST_MEMORY_TEXT 200
/* Formats the peak memory offloaded to the host into `buffer`
 * (CLI_HOST_MEMORY_TEXT bytes). peak(of, device): a device's peak memory. */
char *cli_host_memory_text(const lh_pipeline *pipeline, cli_peak_fn *peak,
                           const void *of, char *buffer);
/* Returns a device's peak in an lh_timeline. */
cli_peak_fn cli_timeline_peak;
/* Returns the schedule of the problem's plan; NULL: none. */
const lh_schedule *cli_problem_schedule(const cli_problem *problem);

/* Reads a CSV file's schedule, with the link orders in the file beside it, or a
 * plan's. If `fifo`, omits the link orders: messages are sent first in, first
 * out. */
lh_status cli_read_schedule(cli *c, const char *path, bool fifo,
                            lh_schedule **out);
/* Reads a schedule as cli_read_schedule() does, but only its passes. Prints a
 * note with the number of communication cells in the file, which are not used.
 * `fifo`: omits the link orders. */
lh_status cli_read_passes(cli *c, const char *path, bool fifo,
                          lh_schedule **out);

/* Reads an input as a job and plans it under `options`, with progress on the
 * terminal; *out is the caller's. */
lh_status cli_read_and_plan_job(cli *c, const cli_input *input,
                                const lh_plan_options *options, lh_plan **out);
/* Reads an opened input as a job; *out is the caller's. Errors name the file.
 * */
lh_status cli_input_job(cli *c, const cli_input *input, lh_job **out);
/* Plans a job under `options`, with progress on the terminal; *out is the
 * caller's. */
lh_status cli_plan_job(cli *c, const lh_job *job,
                       const lh_plan_options *options, lh_plan **out);
/* Reads an opened input as a plan; *out is the caller's. Errors name the file.
 * */
lh_status cli_input_plan(cli *c, const cli_input *input, lh_plan **out);

#endif
