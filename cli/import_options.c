/* SPDX-License-Identifier: Apache-2.0 */
#include "import_options.h"

#include "inputs.h"
#include "problem.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Maximum size of an imported file, in bytes. */
enum { MOST_BYTES = 1 << 20 };

const char *cli_import_source_name(uint32_t i)
{
    return lh_import_source_name((lh_import_source)i);
}

/* Options that --cluster replaces. */
static const char *const machine_options[] = {
    "gpu", "sites", "nodes", "gpus-per-node", "link-gbps", "latency-ms", NULL};
static const char *const source_options[] = {"cluster", "model", "schedule",
                                             "sequence", NULL};

const char *cli_given_import_option(const cli *c)
{
    for (uint32_t i = 0; source_options[i]; i++)
        if (cli_is_given(c, source_options[i]))
            return source_options[i];
    for (uint32_t i = 0; machine_options[i]; i++)
        if (cli_is_given(c, machine_options[i]))
            return machine_options[i];
    return NULL;
}

/* Reads the --cluster file, a job that defines the machines, into *out; fails
 * if other options define machines too. */
static lh_status read_cluster(cli *c, const char *path, lh_job **out)
{
    cli_input input;
    for (uint32_t i = 0; machine_options[i]; i++)
        if (cli_is_given(c, machine_options[i]))
            return cli_usage(c,
                             "--%s cannot be combined with --cluster, which "
                             "defines the machines",
                             machine_options[i]);
    lh_status status = cli_input_open(c, path, &input);
    if (status == LH_OK && cli_input_is_other(&input, "job"))
        status = cli_error(c, LH_EINPUT,
                           "%s: not a job; --cluster requires one", path);
    if (status == LH_OK)
        status = cli_input_job(c, &input, out);
    cli_input_close(&input);
    return status;
}

/* Model read from a file or preset, or taken from a job. */
typedef struct named_model {
    const lh_model *model; /* NULL: not given */
    lh_model *own;
    lh_job *job;
} named_model;

/* Frees the named model and the job it was read from. */
static void release_model(named_model *m)
{
    lh_model_free(m->own);
    lh_job_free(m->job);
}

/* Reads the model that --model names: a preset, a job, or a config.json; NULL
 * as name: none. */
static lh_status read_model(cli *c, const char *name, named_model *m)
{
    cli_input input;
    if (!name)
        return LH_OK;
    m->model = lh_model_preset(name);
    if (m->model)
        return LH_OK;
    if (access(name, F_OK) != 0)
        return cli_check_preset(c, "model", name, false, lh_model_presets());
    CLI_TRY(cli_input_open(c, name, &input));
    lh_status status;
    if (cli_input_is_other(&input, "job"))
        status = cli_reject_input(c, &input, "a job or a config.json");
    else if (strcmp(input.kind, "job") == 0)
        status = cli_input_job(c, &input, &m->job);
    else
        status = lh_model_read(name, &m->own, &c->err);
    if (status == LH_OK)
        m->model = m->job ? m->job->model : m->own;
    cli_input_close(&input);
    return status;
}

/* Checks whether the operand is a list of arguments rather than a file name: it
 * contains spaces or begins with a dash. */
static bool is_list(const char *operand)
{
    struct stat info;
    return stat(operand, &info) != 0 &&
           (strncmp(operand, "--", 2) == 0 || strpbrk(operand, " \t\n"));
}

/* Reads the configuration text (*text): the operand itself if it is an
 * argument list, else standard input (`piped`) or a file. *name is for
 * messages. Release *read with lh_text_free(). */
static lh_status read_text(cli *c, const char *operand, cli_input *piped,
                           char **read, const char **text, size_t *len,
                           const char **name)
{
    *name = operand;
    if (is_list(operand)) {
        *text = operand;
        *len = strlen(operand);
        *name = "the arguments";
        return LH_OK;
    }
    if (strcmp(operand, "-") == 0) {
        CLI_TRY(cli_input_open(c, operand, piped));
        *text = piped->text;
        *len = piped->len;
        *name = piped->path;
        return LH_OK;
    }
    CLI_TRY(lh_file_read(operand, MOST_BYTES, read, len, &c->err));
    *text = *read;
    return LH_OK;
}

/* Converts a configuration `text`, called `name` in messages, into a job; *out
 * is the caller's. `cluster` or `machines` define the machines, `model` (may be
 * NULL) the model. `folder`: the job's folder, to which its paths are relative.
 * */
static lh_status import_text(cli *c, const char *text, size_t len,
                             const char *name, const cli_import_options *source,
                             const cli_cluster_options *machines,
                             const char *folder, const lh_job *cluster,
                             const lh_model *model, lh_import **out)
{
    lh_draft_site sites[LH_MAX_DATACENTERS] = {{0}};
    lh_draft_options with = {.size = sizeof with, .folder = folder};
    const lh_import_options how = {.size = sizeof how,
                                   .machines = &with,
                                   .cluster = cluster,
                                   .model = model,
                                   .schedule = source->schedule};
    if (!cluster)
        CLI_TRY(cli_build_cluster(c, machines, sites, &with));
    with.sequence = source->sequence;
    CLI_TRY(lh_import_parse((lh_import_source)source->from, text, len, name,
                            &how, out, &c->err));
    for (uint32_t i = 0; i < (*out)->n_notes; i++)
        cli_note(c, "%s", (*out)->notes[i]);
    return LH_OK;
}

/* Rejects options that have no effect because the imported program's
 * configuration defines the value itself, missing required ones, and unknown
 * schedules. */
static lh_status check_source(cli *c, const cli_import_options *source)
{
    const lh_import_source from = (lh_import_source)source->from;
    const struct {
        const char *option;
        bool has_effect;
        const char *why;
    } rows[] = {
        {"model", from != LH_IMPORT_MEGATRON, "whose arguments contain it"},
        {"schedule", from == LH_IMPORT_TORCHTITAN, "which has its own"},
        {"sequence", from == LH_IMPORT_DEEPSPEED, "which has its own"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (cli_is_given(c, rows[i].option) && !rows[i].has_effect)
            return cli_usage(c, "--%s has no effect with --from %s, %s",
                             rows[i].option, lh_import_source_name(from),
                             rows[i].why);
    if (from == LH_IMPORT_DEEPSPEED && !source->model)
        return cli_usage(c, "--from deepspeed requires --model: its "
                            "configuration has none");
    if (from == LH_IMPORT_DEEPSPEED && !source->sequence)
        return cli_usage(c, "--from deepspeed requires --sequence: its "
                            "configuration has none");
    return source->schedule ? cli_check_method(c, "schedule", source->schedule)
                            : LH_OK;
}

lh_status cli_import(cli *c, const char *operand,
                     const cli_import_options *source,
                     const cli_cluster_options *machines, const char *folder,
                     lh_import **out)
{
    cli_input piped = {0};
    char *read = NULL;
    const char *text = NULL, *name;
    size_t len = 0;
    lh_job *cluster = NULL;
    named_model model = {0};
    CLI_TRY(cli_check_links(c, machines));
    CLI_TRY(check_source(c, source));
    lh_status status =
        source->cluster ? read_cluster(c, source->cluster, &cluster) : LH_OK;
    if (status == LH_OK)
        status = read_model(c, source->model, &model);
    if (status == LH_OK)
        status = read_text(c, operand, &piped, &read, &text, &len, &name);
    if (status == LH_OK)
        status = import_text(c, text, len, name, source, machines, folder,
                             cluster, model.model, out);
    lh_job_free(cluster);
    release_model(&model);
    lh_text_free(read);
    cli_input_close(&piped);
    return status;
}
