/* SPDX-License-Identifier: Apache-2.0 */
/* longhaul export: files for other programs. */
#include "commands.h"
#include "comms.h"
#include "megatron.h"
#include "torchtitan.h"
#include "view.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { TO_PYTORCH, TO_TORCHTITAN, TO_MEGATRON, TO_CHROME };
static const char *const formats[] = {"pytorch", "torchtitan", "megatron",
                                      "chrome", NULL};
enum { COMPUTE_ONLY, COMPUTE_COMMS };
static const char *const forms[] = {"compute_only", "compute_comms", NULL};

typedef struct settings {
    uint32_t to, form, sub_blocks;
    const char *schedule, *stages;
} settings;

static const cli_option options[] = {
    {.name = "to",
     .type = CLI_CHOICE,
     .at = offsetof(settings, to),
     .arg = "FORMAT",
     .preset = "pytorch",
     .choices = formats,
     .help = "For what program."},
    {.name = "schedule",
     .letter = 's',
     .type = CLI_TEXT,
     .at = offsetof(settings, schedule),
     .arg = "S.csv|METHOD",
     .help = "Another schedule than the plan's; for a pipeline without one: "
             "auto.",
     .words = CLI_WORDS_METHODS_OR_FILES},
    {.name = "form",
     .type = CLI_CHOICE,
     .at = offsetof(settings, form),
     .arg = "FORM",
     .preset = "compute_only",
     .choices = forms,
     .help = "pytorch: passes alone, between which PyTorch puts its "
             "communication, or with sends and receives in the order of the "
             "predicted iteration."},
    {.name = "stages",
     .type = CLI_TEXT,
     .at = offsetof(settings, stages),
     .arg = "FILE",
     .help = "Also write which modules each stage of the plan has, and its "
             "rank, as JSON.",
     .words = CLI_WORDS_FILES},
    {.name = "sub-blocks",
     .type = CLI_COUNT,
     .at = offsetof(settings, sub_blocks),
     .arg = "N",
     .preset = "1",
     .least = 1,
     .most = LH_MAX_PARTS,
     .help = "greedy: cut every weight-gradient pass into N parts."},
};

static const cli_example examples[] = {
    {"longhaul export plan.json --to pytorch -o schedule.csv",
     "A schedule for torch.distributed.pipelining, and so for torchtitan's "
     "--parallelism.pipeline_parallel_schedule_csv."},
    {"longhaul export plan.json --form compute_comms --stages stages.json",
     "Print the same with sends and receives, and write each stage's layers."},
    {"longhaul export plan.json --to torchtitan -o args.txt",
     "Options for torchtitan, a line each."},
    {"longhaul export plan.json --to megatron -o args.txt",
     "Arguments for Megatron-LM, a line each, with remarks on what it does "
     "otherwise than the plan."},
    {"longhaul export plan.json --to chrome -o trace.json",
     "The predicted iteration for Perfetto."},
};

/* Other programs know whole weight-gradient passes only. */
static lh_status make_whole(cli *c, cli_view *v, int64_t *cost_ns)
{
    lh_schedule *whole = NULL;
    lh_timeline *before = NULL, *after = NULL;
    lh_status status =
        lh_schedule_whole(v->pipeline, v->schedule, &whole, &c->err);
    if (status == LH_OK)
        status = lh_simulate(v->pipeline, v->schedule, NULL, &before, &c->err);
    /* Nor can they be told in which order messages should leave. */
    lh_sim_options fifo = {.size = sizeof fifo, .fifo = true};
    if (status == LH_OK)
        status = lh_simulate(v->pipeline, whole, &fifo, &after, &c->err);
    if (status == LH_OK) {
        *cost_ns = lh_timeline_makespan(after) - lh_timeline_makespan(before);
        lh_schedule_free(v->own_schedule);
        v->schedule = v->own_schedule = whole;
    } else {
        lh_schedule_free(whole);
    }
    lh_timeline_free(before);
    lh_timeline_free(after);
    return status;
}

static lh_status export_pytorch(cli *c, cli_view *v, char **text, char **own,
                                int64_t *cost_ns)
{
    const settings *s = c->settings;
    char time[CLI_TIME_TEXT];
    CLI_TRY(make_whole(c, v, cost_ns));
    if (*cost_ns)
        cli_note(c,
                 "PyTorch knows neither parts of weight-gradient passes nor "
                 "orders of messages; without them the iteration takes %s %s",
                 cli_time_text(llabs(*cost_ns), time),
                 *cost_ns > 0 ? "more" : "less");
    if (s->form == COMPUTE_ONLY)
        return lh_schedule_format(v->schedule, text, NULL, &c->err);
    CLI_TRY(cli_view_simulate(c, v, &(cli_model){.fifo = true}, ""));
    return cli_comms(c, v->trace, own);
}

static lh_status export_chrome(cli *c, cli_view *v, char **text)
{
    CLI_TRY(cli_view_simulate(c, v, &(cli_model){0}, c->operands[0]));
    return lh_trace_format(v->trace, text, NULL, &c->err);
}

static lh_status need_plan(cli *c, const cli_problem *problem)
{
    if (problem->plan)
        return LH_OK;
    return cli_error(c, LH_EUNSUPPORTED,
                     "%s: which layers a stage has and how a model is laid "
                     "out, a pipeline does not know; give a plan",
                     c->operands[0]);
}

static lh_status find_schedule(cli *c, const cli_problem *problem, cli_view *v)
{
    const settings *s = c->settings;
    v->pipeline = cli_problem_pipeline(problem);
    v->schedule = s->schedule ? NULL : cli_problem_schedule(problem);
    if (v->schedule)
        return LH_OK;
    return cli_view_schedule(c, v, s->schedule ? s->schedule : "auto",
                             &(cli_model){0}, s->sub_blocks);
}

typedef struct work {
    cli_problem problem;
    cli_view view;
    char *text; /* the library's */
    char *own;  /* our own: command lines */
    int64_t cost_ns;
} work;

static lh_status make(cli *c, work *w)
{
    const settings *s = c->settings;
    CLI_TRY(cli_problem_read(c, c->operands[0], false, &w->problem));
    if (s->stages || s->to == TO_MEGATRON || s->to == TO_TORCHTITAN)
        CLI_TRY(need_plan(c, &w->problem));
    if (s->to == TO_MEGATRON)
        return cli_megatron(c, w->problem.plan, &w->own);
    if (s->to == TO_TORCHTITAN)
        return cli_torchtitan(c, w->problem.plan, &w->own);
    CLI_TRY(find_schedule(c, &w->problem, &w->view));
    return s->to == TO_PYTORCH
               ? export_pytorch(c, &w->view, &w->text, &w->own, &w->cost_ns)
               : export_chrome(c, &w->view, &w->text);
}

static lh_status deliver(cli *c, const char *text, int64_t cost_ns)
{
    const settings *s = c->settings;
    const char *path = c->common.output;
    if (path)
        CLI_TRY(cli_write(c, path, text, strlen(text)));
    if (!c->common.json) {
        if (!path)
            fputs(text, c->out);
        else
            fprintf(c->out, "written       %s\n", path);
        return LH_OK;
    }
    return cli_put_json(c,
                        json_pack("{s:s, s:o, s:s, s:s?}", "to", formats[s->to],
                                  "cost_s", cli_seconds(cost_ns),
                                  path ? "file" : "text", path ? path : text));
}

static lh_status run(cli *c)
{
    work w = {0};
    lh_status status = make(c, &w);
    const settings *s = c->settings;
    if (status == LH_OK && s->stages)
        status = cli_write_stages(c, w.problem.plan, s->stages);
    if (status == LH_OK)
        status = deliver(c, w.text ? w.text : w.own, w.cost_ns);
    lh_text_free(w.text);
    free(w.own);
    cli_view_fini(&w.view);
    cli_problem_fini(&w.problem);
    return status;
}

const cli_command cmd_export = {
    .name = "export",
    .operands = "PLAN|PIPELINE",
    .least_operands = 1,
    .most_operands = 1,
    .operand_words = CLI_WORDS_FILES,
    .about = "Write a plan for PyTorch, torchtitan, Megatron-LM or Perfetto",
    .description =
        "pytorch: the schedule as CSV for _load_csv of "
        "torch.distributed.pipelining (format compute_only, or compute_comms "
        "of PyTorch 2.15). Weight-gradient passes that were cut are put "
        "together where that costs least, and what it costs is said.\n\n"
        "torchtitan: the layout as options of torchtitan, which runs the "
        "schedule by pytorch's CSV.\n\n"
        "megatron: the layout as command-line arguments. Megatron-LM brings "
        "its own schedules, 1f1b and interleaved 1f1b, which has groups of "
        "one size as elastic has; remarks say what the plan loses by that, "
        "and what of it no argument says.\n\n"
        "chrome: the predicted iteration as Chrome trace events.",
    .output_help = "Write the export to FILE.",
    .own_output = true,
    CLI_OPTIONS(options),
    CLI_EXAMPLES(examples),
    .settings_size = sizeof(settings),
    .run = run,
};
