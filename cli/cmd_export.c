/* SPDX-License-Identifier: Apache-2.0 */
/* Implements longhaul export: writes files for other programs. */
#include "commands.h"
#include "view.h"

#include <longhaul/experimental/export.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct settings {
    uint32_t to, form, sub_blocks;
    const char *schedule, *stages, *bundle;
    bool allow_inexact;
} settings;

/* Returns the name of choice i of --to; NULL: no more. */
static const char *get_target_name(uint32_t i)
{
    return lh_export_target_name((lh_export_target)i);
}

/* Returns the name of choice i of --form; NULL: no more. */
static const char *get_form_name(uint32_t i)
{
    return lh_pytorch_form_name((lh_pytorch_form)i);
}

static const cli_option options[] = {
    {.name = "to",
     .type = CLI_CHOICE,
     .at = offsetof(settings, to),
     .arg = "FORMAT",
     .preset = "pytorch",
     .choice_name = get_target_name,
     .help = "Target program."},
    {.name = "schedule",
     .letter = 's',
     .type = CLI_TEXT,
     .at = offsetof(settings, schedule),
     .arg = "S.csv|PLAN|METHOD",
     .example_argument = "zb-h1",
     .help =
         "Schedule to export instead of the plan's (default for a pipeline, "
         "which has no schedule: auto).",
     .words = CLI_WORDS_METHODS_OR_FILES},
    {.name = "form",
     .type = CLI_CHOICE,
     .at = offsetof(settings, form),
     .arg = "FORM",
     .preset = "compute_only",
     .choice_name = get_form_name,
     .help = "pytorch: passes only, to which PyTorch adds communication, or "
             "passes with sends and receives in the predicted order."},
    {.name = "stages",
     .type = CLI_TEXT,
     .at = offsetof(settings, stages),
     .arg = "FILE",
     .help = "Also write the modules and the rank of each stage of the plan, "
             "as JSON.",
     .words = CLI_WORDS_FILES},
    {.name = "bundle",
     .type = CLI_TEXT,
     .at = offsetof(settings, bundle),
     .arg = "DIR",
     .help = "Write a folder that starts the job: arguments, schedule, scripts "
             "for torchrun and Slurm, each site's hosts in rank order, and a "
             "README.md.",
     .words = CLI_WORDS_FOLDERS},
    {.name = "allow-inexact",
     .type = CLI_FLAG,
     .at = offsetof(settings, allow_inexact),
     .help = "Export a model that the target cannot be given exactly; print "
             "the differences."},
    CLI_SUB_BLOCKS_ROW(settings, CLI_SUB_BLOCKS),
};

static const cli_example examples[] = {
    {"longhaul export plan.json --to pytorch -o schedule.csv",
     "Write a schedule for torch.distributed.pipelining and torchtitan's "
     "--parallelism.pipeline_parallel_schedule_csv."},
    {"longhaul export plan.json --form compute_comms --stages stages.json",
     "Print the schedule with sends and receives; write each stage's layers."},
    {"longhaul export titan.json --to torchtitan -o args.txt",
     "Write torchtitan options, one per line, from a plan --for torchtitan."},
    {"longhaul export titan.json --to torchtitan-model -o longhaul_model.py",
     "Write the model for torchtitan, in Python."},
    {"longhaul export mega.json --to megatron -o args.txt",
     "Write Megatron-LM arguments, one per line, from a plan --for megatron."},
    {"longhaul export mega.json --to megatron-bridge -o longhaul_recipe.py",
     "Write a recipe for Megatron-Bridge, in Python."},
    {"longhaul export mega.json --to megatron --bundle job",
     "Write the folder job; launch.sh on each host, or job.sbatch, starts the "
     "plan."},
    {"longhaul export plan.json --to chrome -o trace.json",
     "Write the predicted iteration for Perfetto."},
    {"longhaul export plan.json --to chakra -o plan",
     "Write plan.0.et and so on, a Chakra execution trace per rank."},
};

/* Formats the schedule for PyTorch into *text (the caller frees it); *cost_ns:
 * time lost to features that PyTorch lacks, with a note. */
static lh_status export_pytorch(cli *c, const cli_view *v, char **text,
                                int64_t *cost_ns)
{
    const settings *s = c->settings;
    char time[CLI_TIME_TEXT];
    CLI_TRY(lh_export_pytorch(v->pipeline, v->schedule,
                              (lh_pytorch_form)s->form, text, NULL, cost_ns,
                              &c->err));
    if (*cost_ns)
        cli_note(c,
                 "PyTorch supports neither split weight-gradient passes nor "
                 "message orders; without them the iteration takes %s %s",
                 cli_time_text(llabs(*cost_ns), time),
                 *cost_ns > 0 ? "more" : "less");
    return LH_OK;
}

/* Checks whether export target `to` requires a plan rather than a pipeline,
 * because the target needs the model and layout. */
static bool requires_plan(uint32_t to)
{
    return to == LH_EXPORT_MEGATRON || to == LH_EXPORT_MEGATRON_BRIDGE ||
           to == LH_EXPORT_TORCHTITAN || to == LH_EXPORT_TORCHTITAN_MODEL;
}

/* Fails unless the operand is a plan: a pipeline lacks the layers and the
 * layout that the export needs. */
static lh_status check_plan(cli *c, const cli_problem *problem)
{
    if (problem->plan)
        return LH_OK;
    return cli_error(c, LH_EUNSUPPORTED,
                     "%s: a pipeline lacks the layers and the model layout; a "
                     "plan is required",
                     c->operands[0]);
}

/* Finds the schedule to export: the plan's, or the one that --schedule names.
 */
static lh_status find_schedule(cli *c, const cli_problem *problem, cli_view *v)
{
    const settings *s = c->settings;
    v->pipeline = cli_problem_pipeline(problem);
    return cli_view_find_schedule(c, v, problem, s->schedule, &(cli_model){0},
                                  s->sub_blocks);
}

/* An export's inputs and results. */
typedef struct work {
    cli_problem problem;
    cli_view view;
    char *text;
    int64_t cost_ns;
    uint32_t n_files; /* written beside -o, by chakra */
} work;

/* Capacity for an output path, in bytes. */
enum { MOST_PATH = 4096 };

/* Writes a Chakra file, with contents `data`. Its path is -o, '.' and the
 * suffix. */
static lh_status write_chakra_file(void *context, const char *suffix,
                                   const char *data, size_t len, lh_error *err)
{
    cli *c = context;
    char path[MOST_PATH];
    (void)err; /* cli_write() reports to the command */
    if (snprintf(path, sizeof path, "%s.%s", c->common.output, suffix) >=
        MOST_PATH)
        return cli_error(c, LH_EINPUT, "%s: the name is too long",
                         c->common.output);
    return cli_write(c, path, data, len);
}

/* Writes one trace file per rank with the prefix of -o. LH_EIO: a file for a
 * further rank exists, which a replay of the prefix would read, too. */
static lh_status export_chakra(cli *c, work *w)
{
    char next[MOST_PATH];
    const lh_plan *plan = w->problem.plan;
    w->n_files = lh_pipeline_n_devices(w->view.pipeline) *
                 (plan ? plan->best.layout.data : 1);
    snprintf(next, sizeof next, "%s.%" PRIu32 ".et", c->common.output,
             w->n_files);
    if (access(next, F_OK) == 0)
        return cli_error(c, LH_EIO,
                         "%s: is the trace of a further rank, from another "
                         "export; delete it or choose another -o",
                         next);
    return lh_export_chakra(w->view.pipeline, w->view.schedule, plan,
                            write_chakra_file, c, &c->err);
}

/* Reads the operand and formats its export into w->text. */
static lh_status export_problem(cli *c, work *w)
{
    const settings *s = c->settings;
    const lh_export_options o = {.size = sizeof o,
                                 .allow_inexact = s->allow_inexact};
    const lh_plan *plan;
    CLI_TRY(cli_problem_read(c, c->operands[0], false, &w->problem));
    plan = w->problem.plan;
    if (s->stages || requires_plan(s->to))
        CLI_TRY(check_plan(c, &w->problem));
    if (s->to == LH_EXPORT_MEGATRON)
        return lh_export_megatron(plan, &o, &w->text, NULL, &c->err);
    if (s->to == LH_EXPORT_MEGATRON_BRIDGE)
        return lh_export_megatron_bridge(plan, &o, &w->text, NULL, &c->err);
    if (s->to == LH_EXPORT_TORCHTITAN)
        return lh_export_torchtitan(plan, &o, &w->text, NULL, &c->err);
    if (s->to == LH_EXPORT_TORCHTITAN_MODEL)
        return lh_export_torchtitan_model(plan, &o, &w->text, NULL, &c->err);
    CLI_TRY(find_schedule(c, &w->problem, &w->view));
    if (s->to == LH_EXPORT_PYTORCH)
        return export_pytorch(c, &w->view, &w->text, &w->cost_ns);
    if (s->to == LH_EXPORT_CHAKRA)
        return export_chakra(c, w);
    return lh_export_chrome(w->view.pipeline, w->view.schedule, c->operands[0],
                            &w->text, NULL, &c->err);
}

/* Prints the model settings that the exported file cannot express. */
static void print_inexact(cli *c, const lh_plan *plan)
{
    const settings *s = c->settings;
    lh_inexact_setting found[LH_MAX_INEXACT];
    const uint32_t n = lh_export_list_inexact(plan, (lh_export_target)s->to,
                                              found, LH_MAX_INEXACT);
    for (uint32_t i = 0; i < n; i++)
        cli_note(c, "not the model's: %s (%s)", found[i].key, found[i].reason);
}

/* Adds the model settings that the exported file cannot express to a JSON
 * result; steals `json`. */
static json_t *add_inexact(cli *c, const lh_plan *plan, json_t *json)
{
    const settings *s = c->settings;
    lh_inexact_setting found[LH_MAX_INEXACT];
    uint32_t n;
    if (!plan || !json || !s->allow_inexact)
        return json;
    json_t *list = json_array();
    n = lh_export_list_inexact(plan, (lh_export_target)s->to, found,
                               LH_MAX_INEXACT);
    for (uint32_t i = 0; i < n; i++)
        json_array_append_new(list, json_pack("{s:s, s:s}", "key", found[i].key,
                                              "reason", found[i].reason));
    json_object_set_new(json, "inexact", list);
    return json;
}

/* Writes the --stages file, which lists the model modules of each pipeline
 * stage as JSON, to `path`. */
static lh_status write_stages(cli *c, const lh_plan *plan, const char *path)
{
    char *text = NULL;
    size_t len;
    CLI_TRY(lh_export_stages(plan, &text, &len, &c->err));
    return cli_write_text(c, path, text, len);
}

/* Prints the Chakra file count and prefix. */
static lh_status print_chakra(cli *c, const work *w)
{
    const char *prefix = c->common.output;
    if (c->common.json)
        return cli_put_json(c, json_pack("{s:s, s:s, s:I}", "to", "chakra",
                                         "file", cli_utf8_name(c, prefix),
                                         "ranks", (json_int_t)w->n_files));
    cli_print(c, "written       %s.0.et to %s.%" PRIu32 ".et, %s.groups.json\n",
              prefix, prefix, w->n_files - 1, prefix);
    return LH_OK;
}

/* Writes the export to the -o file, and prints it or, with --json, a
 * summary. */
static lh_status write_export(cli *c, const work *w)
{
    const settings *s = c->settings;
    const char *path = c->common.output, *text = w->text;
    if (s->to == LH_EXPORT_CHAKRA)
        return print_chakra(c, w);
    if (w->problem.plan)
        print_inexact(c, w->problem.plan);
    if (path)
        CLI_TRY(cli_write(c, path, text, strlen(text)));
    if (!c->common.json) {
        if (!path)
            cli_put_raw(c, text, strlen(text));
        else
            cli_print(c, "written       %s\n", path);
        return LH_OK;
    }
    return cli_put_json(
        c,
        add_inexact(c, w->problem.plan,
                    json_pack("{s:s, s:o, s:s}", "to", get_target_name(s->to),
                              "cost_s", cli_seconds(w->cost_ns),
                              path ? "file" : "text",
                              path ? cli_utf8_name(c, path) : text)));
}

/* Rejects options that have no effect with the chosen target: --form except for
 * pytorch; --schedule and --sub-blocks for a plan, which has its own schedule;
 * --allow-inexact except for targets that check the model. Also rejects --to
 * chakra without -o. */
static lh_status check_effects(cli *c)
{
    const settings *s = c->settings;
    const bool of_plan = s->bundle || requires_plan(s->to);
    const char *idle =
        s->to != LH_EXPORT_PYTORCH && cli_is_given(c, "form") ? "form"
        : of_plan && cli_is_given(c, "schedule")              ? "schedule"
        : of_plan && cli_is_given(c, "sub-blocks")            ? "sub-blocks"
        : !requires_plan(s->to) && s->allow_inexact           ? "allow-inexact"
                                                              : NULL;
    if (s->to == LH_EXPORT_CHAKRA && !c->common.output && !s->bundle)
        return cli_usage(c, "--to chakra requires -o PREFIX: it writes "
                            "PREFIX.RANK.et for each rank");
    if (idle)
        return cli_usage(c, "--%s has no effect with --to %s%s; omit it", idle,
                         get_target_name(s->to),
                         s->bundle ? " and --bundle" : "");
    return LH_OK;
}

/* Rejects -o and --stages together with --bundle, which writes the same files
 * itself. */
static lh_status check_bundle(cli *c)
{
    const settings *s = c->settings;
    const char *other = c->common.output ? "-o" : s->stages ? "--stages" : NULL;
    if (other)
        return cli_usage(c,
                         "%s cannot be combined with --bundle, which writes "
                         "the plan's own schedule and stages; omit %s",
                         other, other);
    return LH_OK;
}

/* Prints the model settings that the bundle cannot express, and its folder. */
static lh_status print_bundle(cli *c, const lh_plan *plan)
{
    const settings *s = c->settings;
    print_inexact(c, plan);
    if (c->common.json)
        return cli_put_json(
            c, add_inexact(c, plan,
                           json_pack("{s:s, s:s}", "to", get_target_name(s->to),
                                     "bundle", cli_utf8_name(c, s->bundle))));
    cli_print(c, "written       %s\n", s->bundle);
    return LH_OK;
}

/* Writes a folder with all files of an export, with signals deferred while it
 * writes. */
static lh_status make_bundle(cli *c)
{
    const settings *s = c->settings;
    const lh_bundle_options o = {.size = sizeof o,
                                 .form = (lh_pytorch_form)s->form,
                                 .allow_inexact = s->allow_inexact};
    cli_problem problem = {0};
    CLI_TRY(check_bundle(c));
    lh_status status = cli_problem_read(c, c->operands[0], false, &problem);
    if (status == LH_OK)
        status = check_plan(c, &problem);
    if (status == LH_OK) {
        cli_defer_signals();
        status = lh_export_bundle(problem.plan, (lh_export_target)s->to,
                                  s->bundle, &o, &c->err);
        cli_release_signals();
    }
    if (status == LH_OK)
        status = print_bundle(c, problem.plan);
    cli_problem_fini(&problem);
    return status;
}

/* Runs 'longhaul export' and frees its results. */
static lh_status run_export(cli *c)
{
    CLI_TRY(check_effects(c));
    if (((const settings *)c->settings)->bundle)
        return make_bundle(c);
    work w = {0};
    lh_status status = export_problem(c, &w);
    const settings *s = c->settings;
    if (status == LH_OK && s->stages)
        status = write_stages(c, w.problem.plan, s->stages);
    if (status == LH_OK)
        status = write_export(c, &w);
    lh_text_free(w.text);
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
    .about = "Write a plan for another program or simulator",
    .description =
        "pytorch: the schedule as CSV for _load_csv of "
        "torch.distributed.pipelining (format compute_only, or compute_comms "
        "of PyTorch 2.15). Split weight-gradient passes are merged where that "
        "costs least; the cost is printed.\n"
        "\n"
        "torchtitan: the layout as torchtitan options; torchtitan runs the "
        "schedule from the CSV of --to pytorch and builds the model from the "
        "Python module of --to torchtitan-model.\n"
        "\n"
        "megatron: model and layout as command-line arguments.\n"
        "\n"
        "megatron-bridge: the same plan as a recipe for Megatron-Bridge 0.3.1: "
        "a Python file to run with torchrun or to import. It uses mock data "
        "until you replace them.\n"
        "\n"
        "A bundle starts the job with one of these programs, with every rank "
        "on the host and site that the plan assigns.\n"
        "\n"
        "Plans that torchtitan or Megatron-LM cannot run are rejected; "
        "longhaul plan --for searches only plans that they can run. A model "
        "that they cannot be given exactly is rejected, too, unless "
        "--allow-inexact.\n"
        "\n"
        "chrome: the predicted iteration as Chrome trace events.\n"
        "\n"
        "chakra: the same as MLCommons Chakra execution traces, in files named "
        "after -o: FILE.RANK.et for each rank, for ASTRA-sim and other "
        "simulators, and FILE.groups.json.",
    .output_help = "Write the export to FILE.",
    .handles_output = true,
    CLI_OPTIONS(options),
    CLI_EXAMPLES(examples),
    .settings_size = sizeof(settings),
    .run = run_export,
};
