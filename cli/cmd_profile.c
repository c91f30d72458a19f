/* SPDX-License-Identifier: Apache-2.0 */
/* Implements longhaul profile: measures pass and message durations on this
 * machine. */
#include "commands.h"
#include "problem.h"
#include "profile_torch.h"

#include <inttypes.h>
#include <longhaul/experimental/engine.h>
#include <string.h>

typedef struct settings {
    uint32_t repeats;
    bool no_links, torch;
    const char *modules, *tensor, *micro_batch, *python;
} settings;

static const cli_option options[] = {
    {.name = "repeats",
     .type = CLI_COUNT,
     .at = offsetof(settings, repeats),
     .arg = "N",
     .preset = "9",
     .least = 1,
     .most = 100000,
     .help = "Run every pass and send every message at least N times; use the "
             "median."},
    {.name = "no-links",
     .type = CLI_FLAG,
     .at = offsetof(settings, no_links),
     .help = "Measure passes only."},
    {.name = "torch",
     .type = CLI_FLAG,
     .at = offsetof(settings, torch),
     .help = "Run the layers with PyTorch, on this machine's GPU if present. "
             "Needs a Python with the packages longhaul and torch."},
    {.name = "modules",
     .type = CLI_TEXT,
     .at = offsetof(settings, modules),
     .arg = "MODEL",
     .example_argument = "torchtitan:llama3:8B",
     .help = "torch: source of the layers: a folder with Hugging Face's "
             "config.json, or that file; torchtitan:MODEL:FLAVOR; or "
             "FILE.py:FUNCTION, which returns a module that takes tokens. "
             "Default: Llama-like layers of the job's shape."},
    {.name = "tensor",
     .type = CLI_TEXT,
     .at = offsetof(settings, tensor),
     .arg = "N,...",
     .example_argument = "2",
     .help = "torch: degrees of tensor parallelism; one rank's shard of a "
             "layer runs alone (default: the layout's, or 1). With --modules "
             "only 1."},
    {.name = "micro-batch",
     .type = CLI_TEXT,
     .at = offsetof(settings, micro_batch),
     .arg = "N,...",
     .example_argument = "2",
     .help = "torch: microbatch sizes in sequences (default: the layout's, or "
             "1)."},
    {.name = "python",
     .type = CLI_TEXT,
     .at = offsetof(settings, python),
     .arg = "FILE",
     .words = CLI_WORDS_FILES,
     .help = "torch: Python interpreter with longhaul and torch. Default: "
             "LONGHAUL_PYTHON of the environment (set to its own interpreter "
             "if pip installed this program), or python3."},
};

static const cli_example examples[] = {
    {"longhaul profile job.yaml -o profile.json",
     "Measure the job's model here; then set profile: profile.json in the "
     "job."},
    {"longhaul profile job.yaml --torch --tensor 1,2,4,8 -o profile.json",
     "Measure the shards of each degree with PyTorch, on the GPU."},
    {"longhaul profile job.yaml --torch --modules torchtitan:llama3:8B -o "
     "profile.json",
     "Measure torchtitan's layers."},
};

static const char *const kinds[] = {"layer", "MoE layer", "embedding", "head",
                                    "chunk"};

/* Prints a table of the measured times and memory of each model part (layer,
 * embedding, head); `path`: the file to which the profile was written. */
static void print_text(cli *c, const lh_profile *p, const char *path)
{
    char f[CLI_TIME_TEXT], d[CLI_TIME_TEXT], w[CLI_TIME_TEXT];
    char kept[CLI_MEMORY_TEXT], held[CLI_MEMORY_TEXT];
    cli_print(c, "  %-10s %12s %12s %12s %12s %12s\n", "", "F", "D", "W",
              "kept", "held");
    for (uint32_t i = 0; i < p->n_entries; i++) {
        const lh_profile_entry *e = &p->entries[i];
        cli_print(c, "  %-10s %12s %12s %12s %12s %12s\n", kinds[e->kind],
                  cli_time_text(e->f_ns, f), cli_time_text(e->d_ns, d),
                  cli_time_text(e->w_ns, w),
                  e->activation_bytes < 0
                      ? "-"
                      : cli_memory_text(e->activation_bytes, "bytes", kept),
                  cli_memory_text(e->static_bytes, "bytes", held));
    }
    for (uint32_t i = 0; i < p->n_links; i++)
        cli_print(
            c, "  message latency %s, plus %.3f ns per byte (%.1f Gbit/s)\n",
            cli_time_text(p->links[i].alpha_ns, f),
            p->links[i].beta_ns_per_byte,
            p->links[i].beta_ns_per_byte > 0 ? 8 / p->links[i].beta_ns_per_byte
                                             : 0.0);
    cli_print(
        c,
        "  links between hosts (fabric, wan) are not measured, as the program "
        "runs on one host; set them in the profile's links or in the job, or "
        "measure them with train --profile-out\n");
    if (path)
        cli_print(c, "written       %s\n", path);
}

/* Writes the profile to -o, and prints it as JSON or as a table. */
static lh_status write_output(cli *c, const lh_profile *p)
{
    char *text = NULL;
    size_t len;
    const char *path = c->common.output;
    CLI_TRY(lh_profile_format(p, &text, &len, &c->err));
    lh_status status = LH_OK;
    if (path)
        status = cli_write(c, path, text, len);
    if (status == LH_OK && (c->common.json || !path))
        cli_put_raw(c, text, len);
    else if (status == LH_OK)
        print_text(c, p, path);
    lh_text_free(text);
    return status;
}

/* Reads the operand as a job; rejects other formats. */
static lh_status read_job(cli *c, lh_job **out)
{
    cli_input input;
    lh_status status = cli_input_open(c, c->operands[0], &input);
    if (status == LH_OK && cli_input_is_other(&input, "job"))
        status = cli_reject_input(c, &input, "a job");
    else if (status == LH_OK)
        status = cli_input_job(c, &input, out);
    cli_input_close(&input);
    return status;
}

/* Rejects PyTorch measurement options without --torch, and --no-links with
 * it. */
static lh_status check_options(cli *c)
{
    static const char *const of_torch[] = {"modules", "tensor", "micro-batch",
                                           "python"};
    const settings *s = c->settings;
    for (uint32_t i = 0; !s->torch && i < CLI_COUNT_OF(of_torch); i++)
        if (cli_is_given(c, of_torch[i]))
            return cli_usage(c, "--%s requires --torch", of_torch[i]);
    if (s->torch && s->no_links)
        return cli_usage(c, "--no-links has no effect with --torch, which "
                            "measures no links; omit it");
    return LH_OK;
}

/* Measures the profile on this machine, with PyTorch if --torch is given. */
static lh_status measure(cli *c, const lh_job *job, lh_profile **out)
{
    const settings *s = c->settings;
    const torch_profile how = {s->python, s->modules, s->tensor, s->micro_batch,
                               s->repeats};
    const lh_measure_options with = {
        .size = sizeof with, .repeats = s->repeats, .links = !s->no_links};
    return s->torch ? cli_profile_torch(c, job, &how, out)
                    : lh_profile_measure(job, &with, out, &c->err);
}

/* Runs 'longhaul profile' and frees its results. */
static lh_status run_profile(cli *c)
{
    lh_job *job = NULL;
    lh_profile *profile = NULL;
    CLI_TRY(check_options(c));
    CLI_TRY(read_job(c, &job));
    cli_progress(c, "measuring");
    lh_status status = measure(c, job, &profile);
    cli_progress_end();
    if (status == LH_OK)
        status = write_output(c, profile);
    lh_profile_free(profile);
    lh_job_free(job);
    return status;
}

const cli_command cmd_profile = {
    .name = "profile",
    .operands = "JOB",
    .least_operands = 1,
    .most_operands = 1,
    .operand_words = CLI_WORDS_FILES,
    .about = "Measure passes and messages on this machine",
    .description =
        "Runs a layer of the job's model, its embedding and its head on the "
        "cpu device, with the job's sequence length and microbatch size (1 if "
        "the layout has none). Measures the times of F, D and W, the "
        "activations of a microbatch kept from F to W, and the static memory. "
        "Messages of several sizes between two processes give a latency and a "
        "time per byte: the profile's path node. Links between hosts (fabric, "
        "wan) are not measured; set them in the job or add them to the "
        "profile.\n"
        "\n"
        "With --torch, PyTorch runs the layers in the job's precision. F, D "
        "(input gradients) and W (weight gradients, accumulated in fp32) are "
        "timed separately, on a GPU with CUDA events. The memory kept from F "
        "to W consists of the tensors that autograd saves. Communication "
        "between GPUs is not "
        "included. The profile names the GPU of the measurement if it is a "
        "known one, otherwise the job's.\n"
        "\n"
        "To plan with the profile, name it in the job: profile: FILE.",
    .output_help = "Write the profile to FILE and print a summary (default: "
                   "print the profile).",
    .handles_output = true,
    CLI_OPTIONS(options),
    CLI_EXAMPLES(examples),
    .settings_size = sizeof(settings),
    .run = run_profile,
};
