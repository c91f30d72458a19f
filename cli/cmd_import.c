/* SPDX-License-Identifier: Apache-2.0 */
/* Implements longhaul import: converts another program's configuration to a
 * job. */
#include "commands.h"
#include "import_options.h"
#include "inputs.h"

#include <inttypes.h>
#include <string.h>

typedef struct settings {
    cli_import_options source;
    cli_cluster_options machines;
    bool force;
} settings;

/* Capacity for a path, in bytes. */
enum { MOST_PATH = 4096 };

static const cli_option options[] = {
    CLI_SOURCE_ROWS(settings,
                    "Training program whose configuration to import."),
    CLI_FORCE_ROW(settings),
};

static const cli_example examples[] = {
    {"longhaul import --from megatron args.txt --nodes 32 -o job.yaml",
     "Import these arguments as a job on 256 H100s; then: longhaul plan "
     "job.yaml"},
    {"longhaul import --from megatron args.txt --sites 2 --nodes 16 "
     "--latency-ms 5",
     "Import them for two datacenters of 16 nodes, 5 ms apart."},
    {"longhaul import --from torchtitan today.toml --nodes 8 -o job.yaml",
     "Import a torchtitan configuration as a job on 64 H100s."},
    {"longhaul import --from torchtitan '--module qwen3 --config qwen3_32b' "
     "-n 4",
     "Import options of torchtitan 0.3."},
    {"longhaul import --from deepspeed ds_config.json --model config.json "
     "--sequence 4096 -n 2",
     "Import a DeepSpeed configuration of this model."},
    {"longhaul import --from nemo gpt.yaml -o job.yaml",
     "Import a NeMo configuration on the trainer's number of GPUs."},
};

/* Prints the imported job with the ignored and noted keys as JSON. */
static lh_status print_json(cli *c, const lh_import *in)
{
    json_t *ignored = json_array(), *noted = json_array();
    for (uint32_t i = 0; i < in->n_ignored; i++)
        json_array_append_new(ignored,
                              json_string(cli_utf8_name(c, in->ignored[i])));
    for (uint32_t i = 0; i < in->n_notes; i++)
        json_array_append_new(noted,
                              json_string(cli_utf8_name(c, in->notes[i])));
    json_t *object = json_pack("{s:s, s:o, s:o}", "job", in->job, "ignored",
                               ignored, "noted", noted);
    if (object && c->common.output)
        json_object_set_new(object, "file",
                            json_string(cli_utf8_name(c, c->common.output)));
    return cli_put_json(c, object);
}

/* Prints the job's path, the numbers of ignored and noted keys, and the next
 * command. */
static void print_written(cli *c, const lh_import *in)
{
    cli_print(c,
              "job      %s\n"
              "ignored  %" PRIu32 " that affect neither time nor memory\n"
              "noted    %" PRIu32 "\n"
              "next     longhaul plan %s\n",
              c->common.output, in->n_ignored, in->n_notes, c->common.output);
}

/* Writes the imported job to the -o file, and prints it, a summary, or JSON. */
static lh_status write_import(cli *c, const lh_import *in)
{
    if (c->common.output)
        CLI_TRY(cli_write(c, c->common.output, in->job, in->job_len));
    if (c->common.json)
        return print_json(c, in);
    if (c->common.output)
        print_written(c, in);
    else
        cli_put_raw(c, in->job, in->job_len);
    return LH_OK;
}

/* Runs 'longhaul import': converts a framework's configuration into a job. */
static lh_status run_import(cli *c)
{
    const settings *s = c->settings;
    char path[MOST_PATH];
    lh_import *in = NULL;
    if (!cli_is_given(c, "from"))
        return cli_usage(c, "--from megatron, torchtitan, deepspeed or nemo is "
                            "required");
    CLI_TRY(cli_check_not_existing(c, s->force));
    CLI_TRY(cli_import(c, c->operands[0], &s->source, &s->machines,
                       cli_output_folder(c, path, sizeof path), &in));
    lh_status status = write_import(c, in);
    lh_import_free(in);
    return status;
}

const cli_command cmd_import = {
    .name = "import",
    .operands = "FILE|ARGUMENTS",
    .least_operands = 1,
    .most_operands = 1,
    .operand_words = CLI_WORDS_FILES,
    .about = "Convert another program's configuration to a job",
    .description =
        "Reads arguments of Megatron-LM (core 0.16 to 0.20), options of "
        "torchtitan (0.3) or its TOML file (0.2), DeepSpeed's ds_config.json, "
        "or YAML of NeMo 1 and Megatron-Bridge, and prints a job with the same "
        "model, training and layout on the machines given by the options. "
        "'longhaul plan' costs this configuration as it is; delete the keys "
        "under 'layout' to search for a faster one.\n"
        "\n"
        "FILE may be - for standard input, or the arguments themselves as one "
        "word: \"$(cat args.txt)\". Words are split as in a shell; shell "
        "variables ($NAME) are rejected in values that the job needs. A file "
        "of Megatron-LM may also be a model_config.yaml with MODEL_ARGS. In a "
        "line that begins with torchrun, "
        "--nnodes and --nproc-per-node give the number of GPUs.\n"
        "\n"
        "torchtitan refers to models by name; longhaul has the sizes of "
        "Llama 3, DeepSeek-V3, Qwen3 and gpt-oss. --model sets another. "
        "A DeepSpeed configuration has no model and no sequence length: give "
        "--model and --sequence.\n"
        "\n"
        "Arguments that affect neither time nor memory are listed in the job. "
        "Arguments that are costed differently from their meaning are listed "
        "on standard error and in the job, and so are unknown ones; unknown "
        "keys of torchtitan are rejected.",
    .output_help = "Write the job to FILE; an existing FILE requires --force.",
    .handles_output = true,
    CLI_OPTIONS(options),
    CLI_EXAMPLES(examples),
    .settings_size = sizeof(settings),
    .run = run_import,
};
