/* SPDX-License-Identifier: Apache-2.0 */
#include "problem.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Seconds: often enough to be live, and seldom enough to be read in a log. */
#define SHOWN_EVERY_S 0.1
#define SAID_EVERY_S 10

/* What is on its way: the context of what is shown. */
typedef struct planning {
    const cli *c;
    double shown_at; /* on the terminal, by cli_now() */
    double said_at;  /* in a line, in seconds of the processor's time */
} planning;

static bool show_progress(void *context, uint32_t done, uint32_t total,
                          int64_t best_ns)
{
    planning *p = context;
    char time[CLI_TIME_TEXT];
    if (cli_now() - p->shown_at < SHOWN_EVERY_S)
        return cli_interrupts() > 0;
    p->shown_at = cli_now();
    if (best_ns > 0 && best_ns < INT64_MAX)
        cli_progress(
            p->c, "planning: layout %" PRIu32 " of %" PRIu32 ", best so far %s",
            done, total, cli_time_text(best_ns, time));
    else
        cli_progress(p->c, "planning: layout %" PRIu32 " of %" PRIu32, done,
                     total);
    return cli_interrupts() > 0;
}

/* "best 16.1 s, bound 10.2 s, 45.0 % of 4145931 layouts closed" */
static void describe(const lh_plan_progress *now, char *text, size_t size)
{
    char best[CLI_TIME_TEXT], bound[CLI_TIME_TEXT];
    uint64_t all = now->n_closed + now->n_open;
    int n = 0;
    if (now->best_ns > 0)
        n = snprintf(text, size, "best %s, ",
                     cli_time_text(now->best_ns, best));
    if (now->bound_ns > 0)
        n += snprintf(text + n, size - (size_t)n, "bound %s, ",
                      cli_time_text(now->bound_ns, bound));
    snprintf(text + n, size - (size_t)n, "%.1f %% of %" PRIu64 " closed",
             all ? 100 * (double)now->n_closed / (double)all : 0.0, all);
}

/* Live on a terminal; where there is none, a line now and then. */
static bool show_search(void *context, const lh_plan_progress *now)
{
    planning *p = context;
    char text[160];
    double used = (double)clock() / CLOCKS_PER_SEC;
    if (cli_now() - p->shown_at >= SHOWN_EVERY_S) {
        p->shown_at = cli_now();
        describe(now, text, sizeof text);
        cli_progress(p->c, "planning: %s", text);
    }
    if (used - p->said_at >= SAID_EVERY_S) {
        p->said_at = used;
        describe(now, text, sizeof text);
        if (!isatty(STDERR_FILENO))
            cli_note(p->c, "planning: %s", text);
    }
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
    planning now = {c, -1, (double)clock() / CLOCKS_PER_SEC};
    with.progress = show_progress;
    with.watch = show_search;
    with.context = &now;
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

lh_status cli_copy_schedule(cli *c, const lh_schedule *schedule, bool links,
                            lh_schedule **out)
{
    const uint32_t n = lh_schedule_n_devices(schedule);
    const uint32_t n_links = links ? lh_schedule_n_link_orders(schedule) : 0;
    const lh_pass **orders = calloc(n, sizeof *orders);
    uint32_t *counts = calloc(n, sizeof *counts);
    lh_link_order *link_orders = calloc(n_links + 1, sizeof *link_orders);
    lh_status status = LH_OK;
    if (!orders || !counts || !link_orders)
        status = cli_no_memory(c);
    for (uint32_t d = 0; status == LH_OK && d < n; d++)
        orders[d] = lh_schedule_order(schedule, d, &counts[d]);
    for (uint32_t i = 0; status == LH_OK && i < n_links; i++)
        link_orders[i] = *lh_schedule_link_order(schedule, i);
    if (status == LH_OK)
        status = lh_schedule_make(n, orders, counts, n_links, link_orders, out,
                                  &c->err);
    free(link_orders);
    free(orders);
    free(counts);
    return status;
}

static lh_status read_schedule(cli *c, const cli_input *input, bool fifo,
                               lh_schedule **out)
{
    if (strcmp(input->kind, "plan") == 0) {
        lh_plan *plan = NULL;
        CLI_TRY(cli_input_plan(c, input, &plan));
        lh_status status = cli_copy_schedule(c, plan->schedule, !fifo, out);
        lh_plan_free(plan);
        return status;
    }
    if (*input->kind)
        return cli_input_refuse(c, input,
                                "a plan or a CSV where it takes a schedule");
    if (input->text)
        return lh_schedule_parse(input->text, input->len, input->path, out,
                                 &c->err);
    return lh_schedule_read(input->path, fifo, out, &c->err);
}

lh_status cli_read_schedule(cli *c, const char *path, bool fifo,
                            lh_schedule **out)
{
    cli_input input;
    lh_status status = cli_input_open(c, path, &input);
    if (status == LH_OK)
        status = read_schedule(c, &input, fifo, out);
    cli_input_close(&input);
    if (status == LH_OK && lh_schedule_n_skipped(*out))
        cli_note(c, "%s: skipped %" PRIu32 " communication cells", path,
                 lh_schedule_n_skipped(*out));
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
