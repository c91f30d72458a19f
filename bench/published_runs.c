/* SPDX-License-Identifier: Apache-2.0 */
#include "published.h"

#include <longhaul/experimental/model.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How a Nemotron 3 model's map begins. */
#define HYBRID(n, width)                                                       \
    "{name: hybrid, layers: " #n ", hidden: " #width ", heads: 32, "           \
    "head_dim: 128, vocab: 131072, gated: false, router: sigmoid, "            \
    "mamba_head_dim: 64, mamba_groups: 8, mamba_state_dim: 128, "              \
    "mamba_conv_kernel: 4, "

/* The order determines each run's half: it places, for each GPU that two dense
 * models ran on, one model in either half. */
static const struct {
    const char *name, *preset;
    const char *map; /* as in a job, for a model that is no preset */
} models[] = {
    {"LLAMA3_8B", "llama3-8b", NULL},
    {"LLAMA3.1_405B", "llama3.1-405b", NULL},
    {"LLAMA3_70B", "llama3-70b", NULL},
    {"Qwen3_30B_a3B", "qwen3-30b-a3b", NULL},
    {"Qwen3_235B_a22B", "qwen3-235b-a22b", NULL},
    {"GPT OSS 120B", "gpt-oss-120b", NULL},
    {"DeepSeekV3", "deepseek-v3", NULL},
    {"Kimi_K2", "kimi-k2", NULL},
    {"Nemotron_3_Nano", "nemotron-3-nano",
     HYBRID(52, 2688) "kv_heads: 2, mamba_heads: 64, experts: 128, "
                      "experts_per_token: 6, expert_ffn: 1856, "
                      "shared_expert_ffn: 3712, layer_pattern: "
                      "\"MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*"
                      "EMEMEMEME\"}"},
    {"Nemotron_3_Super", "nemotron-3-super",
     HYBRID(88, 4096) "kv_heads: 2, mamba_heads: 128, experts: 512, "
                      "experts_per_token: 22, expert_ffn: 2688, "
                      "shared_expert_ffn: 5376, expert_latent: 1024, "
                      "mtp_layers: 2, layer_pattern: "
                      "\"MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*"
                      "EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME/*E\"}"},
    {"Mixtral_8x7B", "mixtral-8x7b", NULL},
};
static const char *const systems[] = {"H100", "B200", "B300", "GB200", "GB300"};

/* Checks for a prefix: names are followed by remarks, e.g. "DeepSeekV3 (w/o
 * MTP)". */
static bool begins(const char *text, const char *name)
{
    size_t n = strlen(name);

    return strncmp(text, name, n) == 0 && (text[n] == '\0' || text[n] == ' ');
}

static int model_index(const published *run)
{
    for (int i = 0; i < (int)(sizeof models / sizeof *models); i++)
        if (begins(run->model, models[i].name))
            return i;
    return -1;
}

static int system_index(const published *run)
{
    for (int i = 0; i < (int)(sizeof systems / sizeof *systems); i++)
        if (strcmp(run->system, systems[i]) == 0)
            return i;
    return -1;
}

const char *published_model(const published *run)
{
    int i = model_index(run);

    return i < 0 ? NULL : models[i].preset;
}

const char *published_map(const published *run)
{
    int i = model_index(run);

    return i < 0 ? NULL : models[i].map;
}

static const char *exclusion_reason(const published *run)
{
    if (begins(run->model, "Nemotron_3_Ultra"))
        return "activations are moved to the host";
    if (begins(run->model, "Nemotron_3_5_Lightning"))
        return "prediction modules with shared weights";
    if (strstr(run->model, "DeepSeekV4"))
        return "its kind of attention is not modelled";
    if (strcmp(run->precision, "NVFP4") == 0)
        return "products in 4 bits";
    if (run->fsdp > 1)
        return "activations are moved to the host";
    if (!published_model(run))
        return "no such model";
    if (!published_map(run) &&
        run->pipeline * run->chunks >
            lh_model_preset(published_model(run))->layers + 2)
        return "more chunks than layers";
    if (run->expert > run->tensor * run->context * run->data)
        return "experts over more GPUs than a stage has, as published";
    return NULL;
}

bool published_by_user(const published *run)
{
    return strchr(run->release, '#') != NULL;
}

static void copy_text(char *to, size_t room, const char *from)
{
    snprintf(to, room, "%s", from);
}

static bool fits(const char *pattern, const char *text)
{
    return strcmp(pattern, "*") == 0 || begins(text, pattern);
}

static bool is_yes(const table *t, uint32_t row, const char *column)
{
    return strcmp(table_text(t, row, column), "yes") == 0;
}

static void find_recipe(const table *t, published *run)
{
    copy_text(run->how.recompute, sizeof run->how.recompute, "none");
    copy_text(run->how.graphs, sizeof run->how.graphs, "none");
    copy_text(run->how.dispatcher, sizeof run->how.dispatcher, "alltoall");
    for (uint32_t i = 0; i < t->n_rows; i++) {
        const char *last = table_text(t, i, "to");

        if (!fits(table_text(t, i, "model"), run->model) ||
            !fits(table_text(t, i, "system"), run->system) ||
            !fits(table_text(t, i, "precision"), run->precision) ||
            (strcmp(last, "*") != 0 && strcmp(run->release, last) > 0))
            continue;
        copy_text(run->how.recompute, sizeof run->how.recompute,
                  table_text(t, i, "recompute"));
        copy_text(run->how.graphs, sizeof run->how.graphs,
                  table_text(t, i, "graphs"));
        copy_text(run->how.dispatcher, sizeof run->how.dispatcher,
                  table_text(t, i, "dispatcher"));
        run->how.expert_overlap = is_yes(t, i, "expert");
        run->how.tensor_overlap = is_yes(t, i, "tensor");
        run->how.fused_experts = is_yes(t, i, "fused");
        run->how.fp8_attention = is_yes(t, i, "attention");
        run->how.fp8_head = is_yes(t, i, "head");
        return;
    }
}

/* Decides the half of a run. Hybrid models are held out. Every second other
 * (model, system) pair is held out in a chessboard pattern: both halves contain
 * each GPU, and no held-out pair appears in the fitted half. */
static void decide_half(published *run)
{
    run->held_out = (model_index(run) + system_index(run)) % 2 != 0 ||
                    strcmp(run->release, "Meta") == 0 || /* other software */
                    published_map(run);
}

static uint32_t or_one(uint32_t value)
{
    return value ? value : 1;
}

static void read_bridge(const table *t, const table *recipes, uint32_t row,
                        published *run)
{
    const char *system = table_text(t, row, "system");
    double tokens = table_number(t, row, "tokens_per_s_per_gpu");

    copy_text(run->release, sizeof run->release, table_text(t, row, "release"));
    copy_text(run->model, sizeof run->model, table_text(t, row, "model"));
    copy_text(run->system, sizeof run->system,
              strncmp(system, "DGX-", 4) == 0 ? system + 4 : system);
    copy_text(run->precision, sizeof run->precision,
              table_text(t, row, "precision"));
    run->gpus = table_count(t, row, "gpus");
    run->batch = table_count(t, row, "global_batch");
    run->micro = table_count(t, row, "micro_batch");
    run->sequence = table_count(t, row, "sequence");
    run->fsdp = table_count(t, row, "fsdp");
    run->tensor = table_count(t, row, "tp");
    run->pipeline = table_count(t, row, "pp");
    run->context = table_count(t, row, "cp");
    run->chunks = or_one(table_count(t, row, "vp"));
    run->expert = or_one(table_count(t, row, "ep"));
    run->data = run->gpus / (run->tensor * run->pipeline * run->context);
    run->measured_s = (double)run->batch * run->sequence / (tokens * run->gpus);
    find_recipe(recipes, run);
}

static bool read_all_bridge(const char *folder, published_set *out)
{
    char path[512];
    table t = {0}, recipes = {0};
    bool ok;

    snprintf(path, sizeof path, "%s/megatron-bridge", folder);
    ok = table_read(path, "performance.csv", &t) &&
         table_read(path, "recipes.csv", &recipes);
    for (uint32_t i = 0; ok && i < t.n_rows && out->n < MAX_PUBLISHED; i++)
        read_bridge(&t, &recipes, i, &out->runs[out->n++]);
    table_fini(&t);
    table_fini(&recipes);
    return ok;
}

static void read_users(const table *t, uint32_t row, published *run)
{
    copy_text(run->release, sizeof run->release, table_text(t, row, "source"));
    copy_text(run->model, sizeof run->model, table_text(t, row, "model"));
    copy_text(run->system, sizeof run->system, table_text(t, row, "system"));
    copy_text(run->precision, sizeof run->precision, "BF16");
    run->gpus = table_count(t, row, "gpus");
    run->batch = table_count(t, row, "batch");
    run->micro = table_count(t, row, "micro");
    run->sequence = table_count(t, row, "sequence");
    run->tensor = table_count(t, row, "tp");
    run->context = 1;
    run->pipeline = table_count(t, row, "pp");
    run->chunks = table_count(t, row, "vp");
    run->data = table_count(t, row, "dp");
    run->expert = table_count(t, row, "ep");
    run->expert_tensor = table_count(t, row, "etp");
    run->measured_s = table_number(t, row, "seconds");
    copy_text(run->how.recompute, sizeof run->how.recompute,
              table_text(t, row, "recompute"));
    copy_text(run->how.graphs, sizeof run->how.graphs, "none");
    copy_text(run->how.dispatcher, sizeof run->how.dispatcher,
              table_text(t, row, "dispatcher"));
    run->how.tensor_overlap = is_yes(t, row, "tensor");
}

uint64_t published_hash(const char *text)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return h;
}

bool published_is_in_larger_half(const uint64_t *hashes, uint32_t n, uint32_t i)
{
    uint32_t smaller = 0;

    for (uint32_t k = 0; k < n; k++)
        smaller += hashes[k] < hashes[i];
    return smaller >= n / 2;
}

/* Returns a row's hash without its measurement: source, system and
 * layout. */
static uint64_t hash_run(const published *run)
{
    char layout[96], text[256];

    published_layout(run, layout, sizeof layout);
    snprintf(text, sizeof text, "%s,%s,%s,%u,%u,%s,%s", run->release,
             run->model, run->system, run->gpus, run->batch, layout,
             run->how.recompute);
    return published_hash(text);
}

/* Holds out the half of the users' runs with the larger hashes. */
static void hold_out_half(published *runs, uint32_t n)
{
    uint64_t hashes[MAX_PUBLISHED] = {0};

    for (uint32_t i = 0; i < n; i++)
        hashes[i] = hash_run(&runs[i]);
    for (uint32_t i = 0; i < n; i++) {
        runs[i].held_out = published_is_in_larger_half(hashes, n, i);
        runs[i].by_hash = true;
    }
}

static bool read_all_users(const char *folder, published_set *out)
{
    char path[512];
    table t = {0};
    bool ok;
    uint32_t first = out->n;

    snprintf(path, sizeof path, "%s/experts", folder);
    ok = table_read(path, "runs.csv", &t);
    for (uint32_t i = 0; ok && i < t.n_rows && out->n < MAX_PUBLISHED; i++)
        read_users(&t, i, &out->runs[out->n++]);
    hold_out_half(&out->runs[first], out->n - first);
    table_fini(&t);
    return ok;
}

static void read_meta(const table *t, uint32_t row, published *run)
{
    copy_text(run->release, sizeof run->release, "Meta");
    copy_text(run->model, sizeof run->model, "LLAMA3.1_405B");
    copy_text(run->system, sizeof run->system, "H100");
    copy_text(run->precision, sizeof run->precision, "BF16");
    run->gpus = table_count(t, row, "gpus");
    run->tensor = table_count(t, row, "tp");
    run->context = table_count(t, row, "cp");
    run->pipeline = table_count(t, row, "pp");
    run->chunks = table_count(t, row, "vp");
    run->data = table_count(t, row, "dp");
    run->sequence = table_count(t, row, "sequence");
    run->batch = run->data * table_count(t, row, "batch_per_dp");
    run->micro = 1;
    run->expert = 1;
    copy_text(run->how.recompute, sizeof run->how.recompute, "none");
    copy_text(run->how.graphs, sizeof run->how.graphs, "none");
}

/* Converts TFLOP/s per GPU to a time with our operation count. */
static bool time_meta(published *run, double tflops)
{
    const fitted by = published_fitted();
    char text[JOB_TEXT];
    lh_job *job = NULL;
    lh_error err;

    published_job(run, &by, true, text);
    if (lh_job_parse(text, strlen(text), "meta", NULL, &job, &err) != LH_OK) {
        fprintf(stderr, "validate-published: %s\n", err.text);
        return false;
    }
    run->measured_s =
        lh_cost_iteration_flops(job) / (tflops * 1e12 * run->gpus);
    lh_job_free(job);
    return true;
}

static bool read_all_meta(const char *folder, published_set *out)
{
    char path[512];
    table t = {0};
    bool ok;

    snprintf(path, sizeof path, "%s/meta", folder);
    ok = table_read(path, "llama3_405b.csv", &t);
    for (uint32_t i = 0; ok && i < t.n_rows && out->n < MAX_PUBLISHED; i++) {
        published *run = &out->runs[out->n++];

        read_meta(&t, i, run);
        ok = time_meta(run, table_number(&t, i, "tflops_per_gpu"));
    }
    table_fini(&t);
    return ok;
}

static void read_mlperf(const table *t, uint32_t row, published *run)
{
    copy_text(run->release, sizeof run->release, "MLPerf v5.0");
    copy_text(run->model, sizeof run->model, "LLAMA3.1_405B");
    copy_text(run->system, sizeof run->system, table_text(t, row, "system"));
    copy_text(run->precision, sizeof run->precision, "FP8");
    run->gpus = table_count(t, row, "gpus");
    run->batch = table_count(t, row, "batch");
    run->micro = table_count(t, row, "micro");
    run->sequence = table_count(t, row, "sequence");
    run->tensor = table_count(t, row, "tp");
    run->context = table_count(t, row, "cp");
    run->pipeline = table_count(t, row, "pp");
    run->chunks = table_count(t, row, "vp");
    run->data = table_count(t, row, "dp");
    run->expert = 1;
    run->measured_s = table_number(t, row, "seconds");
    run->data_outermost = strcmp(table_text(t, row, "outermost"), "data") == 0;
    copy_text(run->how.recompute, sizeof run->how.recompute, "none");
    copy_text(run->how.graphs, sizeof run->how.graphs, "none");
    run->how.tensor_overlap = true;
}

static bool read_all_mlperf(const char *folder, published_set *out)
{
    char path[512];
    table t = {0};
    bool ok;
    const uint32_t first = out->n;

    snprintf(path, sizeof path, "%s/mlperf", folder);
    ok = table_read(path, "llama3_405b.csv", &t);
    for (uint32_t i = 0; ok && i < t.n_rows && out->n < MAX_PUBLISHED; i++)
        read_mlperf(&t, i, &out->runs[out->n++]);
    hold_out_half(&out->runs[first], out->n - first);
    table_fini(&t);
    return ok;
}

bool published_read(const char *folder, published_set *out)
{
    *out = (published_set){0};
    if (!read_all_bridge(folder, out) || !read_all_meta(folder, out) ||
        !read_all_users(folder, out) || !read_all_mlperf(folder, out))
        return false;
    for (uint32_t i = 0; i < out->n; i++) {
        published *run = &out->runs[i];
        const lh_model *model = NULL;

        run->exclusion_reason = exclusion_reason(run);
        if (run->exclusion_reason)
            continue;
        if (!run->by_hash)
            decide_half(run);
        model = lh_model_preset(published_model(run));
        run->hybrid = published_map(run) != NULL;
        run->moe = run->hybrid || (model && model->experts > 0);
    }
    return true;
}
