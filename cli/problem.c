/* SPDX-License-Identifier: Apache-2.0 */
#include "problem.h"
#include "values.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Seconds between updates: live on a terminal, and rare enough for a log. */
#define TERMINAL_INTERVAL_S 0.1
#define LOG_INTERVAL_S 10

/* The progress display's state. */
typedef struct plan_progress {
    const cli *c;
    double shown_at; /* on the terminal, by cli_monotonic_seconds() */
    /* Last line, or the beginning of the current search, in seconds of
     * processor time. */
    double said_at;
    uint64_t n_closed; /* layouts closed at the last call */
} plan_progress;

/* Shows that the planner has evaluated `done` of `total` layouts, and best_ns,
 * the best iteration time so far; returns true after an interrupt, to stop it
 * (callback). */
static bool show_progress(void *context, uint32_t done, uint32_t total,
                          int64_t best_ns)
{
    plan_progress *p = context;
    char time[CLI_TIME_TEXT];
    if (cli_monotonic_seconds() - p->shown_at < TERMINAL_INTERVAL_S)
        return cli_interrupts() > 0;
    p->shown_at = cli_monotonic_seconds();
    if (best_ns > 0 && best_ns < INT64_MAX)
        cli_progress(
            p->c, "planning: layout %" PRIu32 " of %" PRIu32 ", best so far %s",
            done, total, cli_time_text(best_ns, time));
    else
        cli_progress(p->c, "planning: layout %" PRIu32 " of %" PRIu32, done,
                     total);
    return cli_interrupts() > 0;
}

/* Formats the plan search's progress into `text`: "best 16.1 s, bound 10.2 s,
 * 45.0 % of 4145931 layouts closed". */
static void describe_progress(const lh_plan_progress *now, char *text,
                              size_t size)
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

/* Shows the plan search's progress live on a terminal; otherwise prints a line
 * now and then. Returns true after an interrupt, to stop the search
 * (callback). */
static bool show_search(void *context, const lh_plan_progress *now)
{
    plan_progress *p = context;
    char text[160];
    double used = (double)clock() / CLOCKS_PER_SEC;
    if (now->n_closed < p->n_closed)
        p->said_at = used; /* another search */
    p->n_closed = now->n_closed;
    if (cli_monotonic_seconds() - p->shown_at >= TERMINAL_INTERVAL_S) {
        p->shown_at = cli_monotonic_seconds();
        describe_progress(now, text, sizeof text);
        cli_progress(p->c, "planning: %s", text);
    }
    if (used - p->said_at >= LOG_INTERVAL_S) {
        p->said_at = used;
        describe_progress(now, text, sizeof text);
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
    plan_progress now = {c, -1, (double)clock() / CLOCKS_PER_SEC, 0};
    with.progress = show_progress;
    with.layout_progress = show_search;
    with.context = &now;
    cli_interrupts_begin(c, CLI_INTERRUPT_ONCE);
    lh_status status = lh_plan_make(job, &with, out, &c->err);
    bool interrupted = cli_interrupts_end() > 0;
    cli_progress_end();
    if (interrupted && status == LH_OK)
        cli_note(c, "interrupted: the plan is the best one found so far");
    return status;
}

lh_status cli_read_and_plan_job(cli *c, const cli_input *input,
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

/* Reads a plan or a pipeline into *out. If `jobs`, also reads a job and plans
 * it. Rejects other formats. */
static lh_status read_input(cli *c, const cli_input *input, bool jobs,
                            cli_problem *out)
{
    if (strcmp(input->kind, "plan") == 0)
        return cli_input_plan(c, input, &out->plan);
    if (strcmp(input->kind, "job") == 0 && jobs) {
        out->from_job = true;
        return cli_read_and_plan_job(
            c, input, &(lh_plan_options){.size = sizeof(lh_plan_options)},
            &out->plan);
    }
    if (cli_input_is_other(input, "pipeline"))
        return cli_reject_input(c, input,
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

/* Reads a schedule from a plan or a CSV file; if `fifo`, without the message
 * orders on links (first in, first out). */
static lh_status read_schedule(cli *c, const cli_input *input, bool fifo,
                               lh_schedule **out)
{
    if (strcmp(input->kind, "plan") == 0) {
        lh_plan *plan = NULL;
        CLI_TRY(cli_input_plan(c, input, &plan));
        lh_status status =
            lh_schedule_copy(plan->schedule, !fifo, out, &c->err);
        lh_plan_free(plan);
        return status;
    }
    if (*input->kind)
        return cli_reject_input(c, input, "a plan or a CSV file as a schedule");
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
    return status;
}

lh_status cli_read_passes(cli *c, const char *path, bool fifo,
                          lh_schedule **out)
{
    CLI_TRY(cli_read_schedule(c, path, fifo, out));
    if (lh_schedule_n_comms(*out))
        cli_note(c,
                 "%s: %" PRIu32 " communication cells are not used, since the "
                 "messages follow from the passes; longhaul check judges them",
                 path, lh_schedule_n_comms(*out));
    return LH_OK;
}

void cli_problem_fini(cli_problem *problem)
{
    lh_pipeline_free(problem->pipeline);
    lh_pipeline_free(problem->both_directions);
    lh_pipeline_free(problem->with_host_memory);
    lh_plan_free(problem->plan);
    *problem = (cli_problem){0};
}

/* Returns the problem's pipeline (a pipeline or plan that was read), before
 * options such as --host-memory change it. */
static const lh_pipeline *get_base_pipeline(const cli_problem *problem)
{
    return problem->both_directions ? problem->both_directions
           : problem->plan          ? problem->plan->pipeline
                                    : problem->pipeline;
}

const lh_pipeline *cli_problem_pipeline(const cli_problem *problem)
{
    return problem->with_host_memory ? problem->with_host_memory
                                     : get_base_pipeline(problem);
}

/* --- two directions ----------------------------------------------------- */

/* Builds the pipeline `one` with a second direction in *out. `chunks`: space
 * for twice its chunks. */
static lh_status build_both_directions(cli *c, const lh_pipeline_desc *one,
                                       const char *method, lh_chunk *chunks,
                                       lh_pipeline **out)
{
    const uint32_t n = one->n_chunks;
    const char *needs = n != one->n_devices ? "chunks_per_device: 1"
                        : one->n_slices > 1 ? "no slices"
                        : one->n_microbatches % 2 != 0
                            ? "an even number of microbatches"
                        : one->n_dp_ops > 0 ? "a schedule that is not elastic"
                                            : NULL;
    lh_pipeline_desc both = *one;
    for (uint32_t i = 0; i < n; i++) {
        chunks[i] = chunks[n + i] = one->chunks[i];
        chunks[n + i].device = n - 1 - i;
        if (chunks[i].all_gather_ns > 0 || chunks[i].reduce_scatter_ns > 0)
            needs = "data: 1";
    }
    if (needs)
        return cli_error(c, LH_EUNSUPPORTED,
                         "--schedule %s runs the plan's chunks in two "
                         "directions, for which it needs %s: plan again",
                         method, needs);
    both.n_chunks = 2 * n;
    both.chunks = chunks;
    both.n_microbatches = one->n_microbatches / 2;
    both.bidirectional = true;
    return lh_pipeline_make(&both, out, &c->err);
}

/* Builds the pipeline `both`, which has two directions, without the times of
 * its gradient sums in *out. `chunks`: space for its chunks. */
static lh_status leave_out_sums(cli *c, const lh_pipeline_desc *both,
                                lh_chunk *chunks, lh_pipeline **out)
{
    lh_pipeline_desc without = *both;
    for (uint32_t i = 0; i < both->n_chunks; i++) {
        chunks[i] = both->chunks[i];
        chunks[i].all_gather_ns = chunks[i].reduce_scatter_ns = 0;
        chunks[i].dp_latency_ns = 0;
    }
    without.chunks = chunks;
    without.dp_links = NULL;
    return lh_pipeline_make(&without, out, &c->err);
}

lh_status cli_problem_add_direction(cli *c, const char *method, bool sums,
                                    cli_problem *problem)
{
    lh_pipeline_desc desc = {.size = sizeof desc};
    const bool has_two =
        problem->plan && problem->plan->best.placement == LH_PLACEMENT_BD;
    const bool needs_two = method && cli_has_word("dualpipe chimera", method);
    if (!problem->plan || (has_two ? !sums : !needs_two))
        return LH_OK;
    CLI_TRY(lh_pipeline_describe(problem->plan->pipeline, &desc, &c->err));
    lh_chunk *chunks = calloc(2 * (size_t)desc.n_chunks, sizeof *chunks);
    lh_status status =
        !chunks   ? cli_no_memory(c)
        : has_two ? leave_out_sums(c, &desc, chunks, &problem->both_directions)
                  : build_both_directions(c, &desc, method, chunks,
                                          &problem->both_directions);
    free(chunks);
    return status;
}

/* --- host memory -------------------------------------------------------- */

/* Parses a memory amount in the pipeline's unit into *out. `bytes`: that unit
 * is bytes, and the suffixes KiB, MiB, GiB and TiB are allowed. Returns false
 * if the text is invalid. */
static bool parse_memory(const char *text, bool bytes, int64_t *out)
{
    static const char *const units[] = {"", "KiB", "MiB", "GiB", "TiB"};
    double value;
    const char *rest;
    if (!cli_parse_real(text, &value, &rest))
        return false;
    rest += strspn(rest, " ");
    uint32_t i = 0;
    while (i < CLI_COUNT_OF(units) && strcmp(rest, units[i]) != 0)
        i++;
    if (i == CLI_COUNT_OF(units) || (i > 0 && !bytes))
        return false;
    value *= (double)(UINT64_C(1) << 10 * i);
    *out = value < 0x1p62 ? (int64_t)value : 0;
    return *out > 0 && (i > 0 || (double)*out == value);
}

lh_status cli_problem_add_host_memory(cli *c, const char *text,
                                      cli_problem *problem)
{
    const lh_pipeline *own = get_base_pipeline(problem);
    const char *unit = lh_pipeline_memory_unit(own);
    const bool bytes = strcmp(unit, "bytes") == 0;
    int64_t more = LH_NO_LIMIT;
    if (!text)
        return LH_OK;
    if (strcmp(text, "all") != 0 && !parse_memory(text, bytes, &more))
        return cli_usage(c,
                         "--host-memory: '%.40s' is not an amount of memory "
                         "above 0: %s%s, or all",
                         text,
                         bytes   ? "bytes, or with a unit as 64GiB"
                         : *unit ? "a whole number of "
                                 : "a whole number in the unit of the file",
                         bytes ? "" : unit);
    return lh_pipeline_with_host(own, more, &problem->with_host_memory,
                                 &c->err);
}

/* Returns a device's peak memory in the timeline `of` (callback for
 * cli_host_memory_text()). */
int64_t cli_timeline_peak(const void *of, uint32_t device)
{
    return lh_timeline_peak_memory(of, device);
}

char *cli_host_memory_text(const lh_pipeline *pipeline, cli_peak_fn *peak,
                           const void *of, char *buffer)
{
    const char *unit = lh_pipeline_memory_unit(pipeline);
    int64_t most = 0, sum = 0;
    uint32_t fullest = 0;
    char a[CLI_MEMORY_TEXT], b[CLI_MEMORY_TEXT];
    for (uint32_t d = 0; d < lh_pipeline_n_devices(pipeline); d++) {
        int64_t rests = peak(of, d) - lh_pipeline_device_limit(pipeline, d);
        sum += rests > 0 ? rests : 0;
        if (rests > most) {
            most = rests;
            fullest = d;
        }
    }
    if (sum == 0)
        snprintf(buffer, CLI_HOST_MEMORY_TEXT, "not needed");
    else
        snprintf(buffer, CLI_HOST_MEMORY_TEXT,
                 "%s of device %" PRIu32 " at most, %s over all devices",
                 cli_memory_text(most, unit, a), fullest,
                 cli_memory_text(sum, unit, b));
    return buffer;
}

const lh_schedule *cli_problem_schedule(const cli_problem *problem)
{
    return problem->plan ? problem->plan->schedule : NULL;
}
