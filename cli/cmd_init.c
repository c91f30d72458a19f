/* SPDX-License-Identifier: Apache-2.0 */
/* longhaul init: a job file to begin with. */
#include "commands.h"
#include "inputs.h"
#include "values.h"

#include <longhaul/draft.h>

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

typedef struct settings {
    const char *model, *gpu, *nodes, *gpus_per_node;
    uint32_t sites, batch, sequence;
    double link_gbps, latency_ms;
    bool force;
} settings;

enum { MOST = 1 << 24, MOST_PATH = 4096 };

static const cli_option options[] = {
    {.name = "model",
     .letter = 'm',
     .type = CLI_TEXT,
     .at = offsetof(settings, model),
     .arg = "NAME|config.json",
     .like = "deepseek-v3",
     .preset = "llama3-70b",
     .help = "What to train: a model by name (see Models below), or the path "
             "of a Hugging Face config.json.",
     .words = CLI_WORDS_MODELS},
    {.name = "gpu",
     .letter = 'g',
     .type = CLI_TEXT,
     .at = offsetof(settings, gpu),
     .arg = "NAME[,NAME...]",
     .like = "h100-sxm",
     .preset = "h100-sxm",
     .help = "On which GPUs (see GPUs below): of all sites, or a name for "
             "each, as h100-sxm,a100-80g.",
     .words = CLI_WORDS_GPUS},
    {.name = "sites",
     .letter = 's',
     .type = CLI_COUNT,
     .at = offsetof(settings, sites),
     .arg = "N",
     .preset = "1",
     .least = 1,
     .most = LH_MAX_DATACENTERS,
     .help = "In how many datacenters, each linked to each."},
    {.name = "nodes",
     .letter = 'n',
     .type = CLI_TEXT,
     .at = offsetof(settings, nodes),
     .arg = "N[,N...]",
     .like = "16",
     .help = "Nodes of each datacenter, as 16, or 16,8 for two of them. "
             "Without it a power of two with room for the model."},
    {.name = "gpus-per-node",
     .type = CLI_TEXT,
     .at = offsetof(settings, gpus_per_node),
     .arg = "N[,N...]",
     .like = "8",
     .help = "GPUs of a node, likewise. Without it as these GPUs are sold."},
    {.name = "link-gbps",
     .type = CLI_ABOVE,
     .at = offsetof(settings, link_gbps),
     .arg = "GBPS",
     .like = "800",
     .preset = "3200",
     .high = 1e9,
     .help = "Between two datacenters: 10^9 bits per second in each direction, "
             "for all traffic of the job."},
    {.name = "latency-ms",
     .type = CLI_REAL,
     .at = offsetof(settings, latency_ms),
     .arg = "MS",
     .like = "7.5",
     .preset = "20",
     .low = 1e-6,
     .high = 3.6e6,
     .help = "Between two datacenters, one way, in milliseconds."},
    {.name = "batch",
     .letter = 'b',
     .type = CLI_COUNT,
     .at = offsetof(settings, batch),
     .arg = "N",
     .least = 1,
     .most = 1 << 30,
     .help = "Sequences of an iteration. Without it as many as have 4,194,304 "
             "tokens."},
    {.name = "sequence",
     .type = CLI_COUNT,
     .at = offsetof(settings, sequence),
     .arg = "N",
     .least = 1,
     .most = 1 << 26,
     .help = "Tokens of a sequence. Without it 4096, or as many positions as "
             "the model has learned."},
    {.name = "force",
     .letter = 'f',
     .type = CLI_FLAG,
     .at = offsetof(settings, force),
     .help = "Write over the FILE of -o where there is one."},
};

static const cli_example examples[] = {
    {"longhaul init --sites 2 -o job.yaml",
     "Llama 3 70B on H100s of two datacenters; then: longhaul plan job.yaml"},
    {"longhaul init --model deepseek-v3 --gpu h200 --sites 2 --nodes 64",
     "Print a job of 1024 H200s in two datacenters."},
    {"longhaul init -m qwen2.5-32b -g h100,a100 -s 2 -n 4,8 --latency-ms 5",
     "Two unequal datacenters, 5 ms apart."},
};

/* Refuses a name that neither `find` nor `names` has. */
static lh_status check_name(cli *c, const char *option, const char *name,
                            bool is_known, const char *const *names)
{
    char all[400] = "";
    if (is_known)
        return LH_OK;
    for (uint32_t i = 0; names[i]; i++) {
        size_t len = strlen(all);
        snprintf(all + len, sizeof all - len, "%s%s", i ? ", " : "", names[i]);
    }
    const char *near = cli_nearest(name, names);
    if (near)
        return cli_usage(c,
                         "--%s: there is no '%.60s'; did you mean %s? There "
                         "are %s",
                         option, name, near, all);
    return cli_usage(c, "--%s: there is no '%.60s'; there are %s", option, name,
                     all);
}

/* The i-th part between commas, into `part`; false: there is none. */
static bool find_part(const char *list, uint32_t i, char part[64])
{
    for (; i > 0; i--) {
        list = strchr(list, ',');
        if (!list)
            return false;
        list++;
    }
    const size_t len = strcspn(list, ",");
    snprintf(part, 64, "%.*s", (int)(len < 64 ? len : 63), list);
    return true;
}

/* Of a list with one part for all sites, or one for each. */
static lh_status part_of(cli *c, const char *option, const char *list,
                         uint32_t i, char part[64])
{
    const settings *s = c->settings;
    uint32_t n = 1;
    for (const char *at = list; (at = strchr(at, ',')); at++)
        n++;
    if (n > 1 && n != s->sites)
        return cli_usage(c,
                         "--%s: %" PRIu32 " values for %" PRIu32
                         " site%s; give one, or one for each of --sites",
                         option, n, s->sites, s->sites > 1 ? "s" : "");
    find_part(list, n > 1 ? i : 0, part);
    return LH_OK;
}

static lh_status count_of(cli *c, const char *option, const char *list,
                          uint32_t i, uint32_t *out)
{
    char part[64];
    uint64_t count;
    if (!list)
        return LH_OK;
    CLI_TRY(part_of(c, option, list, i, part));
    if (!cli_parse_count(part, 1, MOST, &count))
        return cli_usage(c, "--%s: '%s' is not a whole number from 1 to %d",
                         option, part, MOST);
    *out = (uint32_t)count;
    return LH_OK;
}

static lh_status find_sites(cli *c, lh_draft_site *sites)
{
    const settings *s = c->settings;
    for (uint32_t i = 0; i < s->sites; i++) {
        char part[64];
        CLI_TRY(part_of(c, "gpu", s->gpu, i, part));
        const lh_gpu *gpu = lh_gpu_preset(part);
        CLI_TRY(check_name(c, "gpu", part, gpu != NULL, lh_gpu_presets()));
        sites[i].gpu = gpu->name;
        CLI_TRY(count_of(c, "nodes", s->nodes, i, &sites[i].nodes));
        CLI_TRY(count_of(c, "gpus-per-node", s->gpus_per_node, i,
                         &sites[i].gpus_per_node));
    }
    return LH_OK;
}

/* Where the job will lie, and look for a config.json. */
static const char *find_folder(const cli *c, char *folder, size_t room)
{
    const char *file = c->common.output;
    const char *slash = file ? strrchr(file, '/') : NULL;
    if (!slash || (size_t)(slash - file) >= room)
        return ".";
    snprintf(folder, room, "%.*s", (int)(slash == file ? 1 : slash - file),
             file);
    return folder;
}

/* A preset, or a file of the job's folder. */
static lh_status check_model(cli *c, const char *folder)
{
    const settings *s = c->settings;
    char path[MOST_PATH];
    struct stat info;
    const bool own = *s->model == '/';
    const int len = snprintf(path, sizeof path, "%s%s%s", own ? "" : folder,
                             own ? "" : "/", s->model);
    const bool is_file = len < (int)sizeof path && stat(path, &info) == 0;
    return check_name(c, "model", s->model,
                      is_file || lh_model_preset(s->model), lh_model_presets());
}

static lh_status make_draft(cli *c, const char *folder, char **text,
                            size_t *len)
{
    const settings *s = c->settings;
    lh_draft_site sites[LH_MAX_DATACENTERS] = {{0}};
    if (s->sites == 1 &&
        (cli_given(c, "latency-ms") || cli_given(c, "link-gbps")))
        return cli_usage(c,
                         "--%s does nothing with one site; it is for "
                         "--sites 2 and more",
                         cli_given(c, "latency-ms") ? "latency-ms"
                                                    : "link-gbps");
    CLI_TRY(check_model(c, folder));
    CLI_TRY(find_sites(c, sites));
    lh_draft_options o = {.size = sizeof o,
                          .model = s->model,
                          .n_sites = s->sites,
                          .sites = sites,
                          .gbps = s->link_gbps,
                          .latency_ns = llround(s->latency_ms * 1e6),
                          .global_batch = s->batch,
                          .sequence = s->sequence,
                          .folder = folder};
    return lh_job_draft(&o, text, len, &c->err);
}

static lh_status check_absent(cli *c)
{
    const settings *s = c->settings;
    struct stat info;
    const char *file = c->common.output;
    if (!file) {
        return s->force ? cli_usage(c, "--force is for -o FILE") : LH_OK;
    }
    if (s->force || stat(file, &info) != 0 || !S_ISREG(info.st_mode))
        return LH_OK;
    return cli_error(c, LH_EIO,
                     "%s is there already; name another file, or write over "
                     "it with --force",
                     file);
}

static lh_status print_json(cli *c, const lh_job *job, const char *text)
{
    json_t *object = json_pack(
        "{s:s, s:I, s:i, s:i, s:s}", "model", cli_name(c, job->model->name),
        "parameters", (json_int_t)lh_model_params(job->model), "sites",
        (int)job->n_datacenters, "gpus", (int)job->n_gpus, "job", text);
    if (object && c->common.output)
        json_object_set_new(object, "file",
                            json_string(cli_name(c, c->common.output)));
    return cli_put_json(c, object);
}

static void say_written(cli *c, const lh_job *job)
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

static lh_status put_draft(cli *c, const lh_job *job, const char *text,
                           size_t len)
{
    for (uint32_t i = 0; i < job->n_files; i++)
        CLI_TRY(cli_check_named_file(c, job->files[i]));
    if (c->common.output)
        CLI_TRY(cli_write(c, c->common.output, text, len));
    if (c->common.json)
        return print_json(c, job, text);
    if (c->common.output)
        say_written(c, job);
    else
        cli_put_file(c, text, len);
    return LH_OK;
}

static lh_status run_init(cli *c)
{
    char path[MOST_PATH];
    const char *folder = find_folder(c, path, sizeof path);
    char *text = NULL;
    size_t len;
    lh_job *job = NULL;
    CLI_TRY(check_absent(c));
    CLI_TRY(make_draft(c, folder, &text, &len));
    lh_status status = lh_job_parse(text, len, "draft", folder, &job, &c->err);
    if (status == LH_OK)
        status = put_draft(c, job, text, len);
    lh_job_free(job);
    lh_text_free(text);
    return status;
}

const cli_command cmd_init = {
    .name = "init",
    .about = "Write a commented job file to begin with",
    .description =
        "Prints a job, or writes it to the FILE of -o, that 'longhaul plan' "
        "plans as it is: a model on machines as they are usually sold with "
        "these GPUs. Beside each key stands what it means and what it takes; "
        "what is different is changed there, and docs/formats/job.md has all "
        "keys. Lines such as '# zero: 1' hold once their first # is gone.\n\n"
        "A config.json is looked for where the job will look for it: from the "
        "folder of FILE on.",
    .output_help = "Write the job to FILE, which must not be there yet (see "
                   "--force), and say what is in it.",
    .own_output = true,
    CLI_OPTIONS(options),
    CLI_EXAMPLES(examples),
    .settings_size = sizeof(settings),
    .run = run_init,
};
