/* SPDX-License-Identifier: Apache-2.0 */
/* Implements longhaul init: writes a starting job file. */
#define _XOPEN_SOURCE 700 /* realpath */
#include "cluster_options.h"
#include "commands.h"
#include "inputs.h"
#include "values.h"

#include <longhaul/experimental/draft.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct settings {
    const char *model;
    cli_cluster_options machines;
    uint32_t batch, sequence;
    bool force;
} settings;

/* Capacity for a path, in bytes. */
enum { MOST_PATH = 4096 };

static const cli_option options[] = {
    {.name = "model",
     .letter = 'm',
     .type = CLI_TEXT,
     .at = offsetof(settings, model),
     .arg = "NAME|config.json",
     .example_argument = "deepseek-v3",
     .preset = "llama3-70b",
     .help = "Model to train: a name (see Models below), or the path of a "
             "Hugging Face config.json.",
     .words = CLI_WORDS_MODELS},
    CLI_CLUSTER_ROWS(settings),
    {.name = "batch",
     .letter = 'b',
     .type = CLI_COUNT,
     .at = offsetof(settings, batch),
     .arg = "N",
     .least = 1,
     .most = 1 << 30,
     .help = "Sequences per iteration (default: the number that gives "
             "4,194,304 tokens)."},
    {.name = "sequence",
     .type = CLI_COUNT,
     .at = offsetof(settings, sequence),
     .arg = "N",
     .least = 1,
     .most = 1 << 26,
     .help = "Tokens per sequence (default: 4096, or the model's number of "
             "learned positions)."},
    CLI_FORCE_ROW(settings),
};

static const cli_example examples[] = {
    {"longhaul init --sites 2 -o job.yaml",
     "Llama 3 70B on H100s in two datacenters; then: longhaul plan job.yaml"},
    {"longhaul init --model deepseek-v3 --gpu h200 --sites 2 --nodes 64",
     "Print a job of 1024 H200s in two datacenters."},
    {"longhaul init --sites gcp:us-east4,gcp:europe-west4",
     "Print a job for two cloud regions, with latencies and list prices."},
    {"longhaul init -m qwen2.5-32b -g h100,a100 -s 2 -n 4,8 --latency-ms 5",
     "Print a job for two unequal datacenters, 5 ms apart."},
};

/* Writes `file`'s path relative to `folder`; both are resolved paths that begin
 * with '/'. Returns false if `out` is too small. */
static bool write_relative_path(const char *folder, const char *file, char *out,
                                size_t size)
{
    char from[MOST_PATH];
    size_t same = 0, used = 0; /* same: length of the common folders with '/' */
    int len = snprintf(from, sizeof from, "%s%s", folder, folder[1] ? "/" : "");
    if (len < 0 || (size_t)len >= sizeof from)
        return false;
    for (size_t i = 0; from[i] && from[i] == file[i]; i++)
        if (file[i] == '/')
            same = i + 1;
    for (const char *at = from + same; (at = strchr(at, '/')); at++) {
        if (used + 3 >= size)
            return false;
        memcpy(out + used, "../", 3);
        used += 3;
    }
    len = snprintf(out + used, size - used, "%s", file + same);
    return len >= 0 && (size_t)len < size - used;
}

/* Determines the value for the job's key `model`: the preset, or the file's
 * path from the job's folder. --model's path is relative to the working folder,
 * as shells complete it. */
static lh_status find_model(cli *c, const char *folder, char *path, size_t size,
                            const char **out)
{
    const settings *s = c->settings;
    struct stat info;
    *out = s->model;
    if (lh_model_preset(s->model))
        return LH_OK;
    CLI_TRY(cli_check_preset(c, "model", s->model, stat(s->model, &info) == 0,
                             lh_model_presets()));
    if (*s->model == '/' || strcmp(folder, ".") == 0)
        return LH_OK;
    char *from = realpath(folder, NULL), *to = realpath(s->model, NULL);
    const bool found = from && to && write_relative_path(from, to, path, size);
    free(from);
    free(to);
    if (!found)
        return cli_error(c, LH_EIO, "%s: no such folder; create it first",
                         folder);
    *out = path;
    return LH_OK;
}

/* Formats a draft job for the model and machines in the options; *text is the
 * caller's. */
static lh_status make_draft(cli *c, const char *folder, char **text,
                            size_t *len)
{
    const settings *s = c->settings;
    char path[MOST_PATH];
    lh_draft_site sites[LH_MAX_DATACENTERS] = {{0}};
    lh_draft_options o = {.size = sizeof o,
                          .global_batch = s->batch,
                          .sequence = s->sequence,
                          .folder = folder};
    CLI_TRY(cli_check_links(c, &s->machines));
    CLI_TRY(find_model(c, folder, path, sizeof path, &o.model));
    CLI_TRY(cli_build_cluster(c, &s->machines, sites, &o));
    return lh_job_draft(&o, text, len, &c->err);
}

/* Prints the job with its model and cluster size as JSON. */
static lh_status print_json(cli *c, const lh_job *job, const char *text)
{
    json_t *object = json_pack("{s:s, s:I, s:i, s:i, s:s}", "model",
                               cli_utf8_name(c, job->model->name), "parameters",
                               (json_int_t)lh_model_params(job->model), "sites",
                               (int)job->n_datacenters, "gpus",
                               (int)job->n_gpus, "job", text);
    if (object && c->common.output)
        json_object_set_new(object, "file",
                            json_string(cli_utf8_name(c, c->common.output)));
    return cli_put_json(c, object);
}

/* Prints model, GPUs, the job's path and the next command. */
static void print_written(cli *c, const lh_job *job)
{
    cli_print(c,
              "model   %s, %.2f billion parameters\n"
              "GPUs    %" PRIu32 " in %" PRIu32 " datacenter%s\n"
              "job     %s\n"
              "next    longhaul plan %s\n",
              job->model->name, (double)lh_model_params(job->model) / 1e9,
              job->n_gpus, job->n_datacenters,
              job->n_datacenters > 1 ? "s" : "", c->common.output,
              c->common.output);
}

/* Writes the job to the file of -o, if given; fails if the job refers to that
 * file. Prints JSON with --json; otherwise a summary with -o, and the job
 * itself without -o. */
static lh_status write_draft(cli *c, const lh_job *job, const char *text,
                             size_t len)
{
    for (uint32_t i = 0; i < job->n_files; i++)
        CLI_TRY(cli_check_named_file(c, job->files[i]));
    if (c->common.output)
        CLI_TRY(cli_write(c, c->common.output, text, len));
    if (c->common.json)
        return print_json(c, job, text);
    if (c->common.output)
        print_written(c, job);
    else
        cli_put_raw(c, text, len);
    return LH_OK;
}

/* Runs 'longhaul init': drafts a job and parses it once, so that it is valid
 * when written. */
static lh_status run_init(cli *c)
{
    char path[MOST_PATH];
    const char *folder = cli_output_folder(c, path, sizeof path);
    char *text = NULL;
    size_t len;
    lh_job *job = NULL;
    CLI_TRY(cli_check_not_existing(c, ((const settings *)c->settings)->force));
    CLI_TRY(make_draft(c, folder, &text, &len));
    lh_status status = lh_job_parse(text, len, "draft", folder, &job, &c->err);
    if (status == LH_OK)
        status = write_draft(c, job, text, len);
    lh_job_free(job);
    lh_text_free(text);
    return status;
}

const cli_command cmd_init = {
    .name = "init",
    .about = "Write a commented job file to start from",
    .description =
        "Prints a job, or writes it to the FILE of -o: a model on machines as "
        "commonly sold with these GPUs, ready for 'longhaul plan'. A comment "
        "at each key explains it and its values; edit them as needed. "
        "docs/formats/job.md describes all keys. Remove the first # to enable "
        "lines such as '# zero: 1'.\n"
        "\n"
        "The path of a config.json is relative to the working folder; the job "
        "contains its path from the folder of FILE.",
    .output_help = "Write the job to FILE and print a summary; an existing "
                   "FILE requires --force.",
    .handles_output = true,
    CLI_OPTIONS(options),
    CLI_EXAMPLES(examples),
    .settings_size = sizeof(settings),
    .run = run_init,
};
