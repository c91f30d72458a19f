/* SPDX-License-Identifier: Apache-2.0 */
#include "problem.h"

#include <inttypes.h>
#include <string.h>

static bool show_progress(void *context, uint32_t done, uint32_t total,
                          int64_t best_ns)
{
    char time[CLI_TIME_TEXT];
    if (best_ns > 0 && best_ns < INT64_MAX)
        cli_progress(context,
                     "planning: layout %" PRIu32 " of %" PRIu32
                     ", best so far %s",
                     done, total, cli_time_text(best_ns, time));
    else
        cli_progress(context, "planning: layout %" PRIu32 " of %" PRIu32, done,
                     total);
    return cli_interrupts() > 0;
}

lh_status cli_input_job(cli *c, const cli_input *input, lh_job **out)
{
    lh_job *job = NULL;
    lh_status status = input->text
                           ? lh_job_parse(input->text, input->len, input->path,
                                          NULL, &job, &c->err)
                           : lh_job_read(input->path, &job, &c->err);
    for (uint32_t i = 0; status == LH_OK && i < job->n_files; i++)
        status = cli_check_named_file(c, job->files[i]);
    if (status == LH_OK)
        *out = job;
    else
        lh_job_free(job);
    return status;
}

lh_status cli_plan_job(cli *c, const lh_job *job,
                       const lh_plan_options *options, lh_plan **out)
{
    lh_plan_options with = *options;
    with.progress = show_progress;
    with.context = c;
    cli_interrupts_begin(c, CLI_INTERRUPT_ONCE);
    lh_status status = lh_plan_make(job, &with, out, &c->err);
    bool interrupted = cli_interrupts_end() > 0;
    cli_progress_end();
    if (interrupted && status == LH_OK)
        cli_note(c, "interrupted: the plan is the best of what was searched");
    return status;
}

lh_status cli_make_plan(cli *c, const cli_input *input,
                        const lh_plan_options *options, lh_plan **out)
{
    lh_job *job = NULL;
    lh_status status = cli_input_job(c, input, &job);
    if (status == LH_OK)
        status = cli_plan_job(c, job, options, out);
    lh_job_free(job);
    return status;
}

lh_status cli_input_plan(cli *c, const cli_input *input, lh_plan **out)
{
    if (input->text)
        return lh_plan_parse(input->text, input->len, input->path, out,
                             &c->err);
    return lh_plan_read(input->path, out, &c->err);
}

static lh_status read_input(cli *c, const cli_input *input, bool jobs,
                            cli_problem *out)
{
    if (strcmp(input->kind, "plan") == 0)
        return cli_input_plan(c, input, &out->plan);
    if (strcmp(input->kind, "job") == 0 && jobs) {
        out->from_job = true;
        return cli_make_plan(
            c, input, &(lh_plan_options){.size = sizeof(lh_plan_options)},
            &out->plan);
    }
    if (cli_input_is_other(input, "pipeline"))
        return cli_input_refuse(c, input,
                                jobs ? "a pipeline, a plan or a job"
                                     : "a pipeline or a plan");
    return cli_input_pipeline(c, input, &out->pipeline);
}

lh_status cli_problem_read(cli *c, const char *path, bool jobs,
                           cli_problem *out)
{
    cli_input input;
    lh_status status = cli_input_open(c, path, &input);
    if (status == LH_OK)
        status = read_input(c, &input, jobs, out);
    cli_input_close(&input);
    return status;
}

void cli_problem_fini(cli_problem *problem)
{
    lh_pipeline_free(problem->pipeline);
    lh_plan_free(problem->plan);
    *problem = (cli_problem){0};
}

const lh_pipeline *cli_problem_pipeline(const cli_problem *problem)
{
    return problem->plan ? problem->plan->pipeline : problem->pipeline;
}

const lh_schedule *cli_problem_schedule(const cli_problem *problem)
{
    return problem->plan ? problem->plan->schedule : NULL;
}
