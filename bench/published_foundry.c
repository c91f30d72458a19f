/* SPDX-License-Identifier: Apache-2.0 */
/* Published runs of MPT models with LLM Foundry: converts each to a job, and
 * predicts its throughput. */
#include "published.h"

#include <longhaul/experimental/plan.h>

#include <math.h>
#include <string.h>

enum { MAX_FOUNDRY = 32 };

/* One published run, with its prediction. */
typedef struct foundry_run {
    char job[JOB_TEXT], identity[80];
    char shown[120]; /* cells of the table */
    double tokens_per_s, predicted_tokens_per_s;
    bool held_out;
} foundry_run;

/* All published runs with LLM Foundry. */
typedef struct foundry_set {
    uint32_t n;
    foundry_run runs[MAX_FOUNDRY];
} foundry_set;

/* scripts/train/yamls/pretrain/mpt-3b.yaml, mpt-7b.yaml and mpt-13b.yaml. */
static const struct {
    const char *name;
    uint32_t layers, hidden, heads;
} models[] = {
    {"3b", 32, 2560, 20}, {"7b", 32, 4096, 32}, {"13b", 40, 5120, 40}};
enum { N_MODELS = sizeof models / sizeof *models };

/* Returns a model's index in models[]; N_MODELS: it is unknown. */
static int find_model(const char *name)
{
    int m = 0;

    while (m < N_MODELS && strcmp(models[m].name, name) != 0)
        m++;
    return m;
}

/* Writes the job of a run of models[m]: FSDP without replicas, gradients
 * reduced in fp32, and PyTorch's kernels one by one. H100 nodes have 400 Gb/s
 * per GPU, the usual rate, since theirs is not published. */
static void write_job(const table *t, uint32_t row, int m, foundry_run *run)
{
    const bool h100 = strcmp(table_text(t, row, "gpu"), "h100") == 0;
    const uint32_t gpus = table_count(t, row, "gpus");
    char fabric[64] = "";

    if (gpus > 8)
        snprintf(fabric, sizeof fabric, "  fabric: {gbps: %d, latency_us: 8}\n",
                 h100 ? 400 : 200);
    snprintf(run->job, sizeof run->job,
             "longhaul: job/1\n"
             "model: {name: mpt-%s, layers: %u, hidden: %u, ffn: %u, heads: "
             "%u, vocab: 50368, gated: false, norm: layer, positions: %u, "
             "tied_embeddings: true, qkv_bias: true, output_bias: true, "
             "mlp_bias: true}\n"
             "training: {global_batch: %u, sequence: %u, precision: bf16, "
             "zero: 3, recompute: %s, dropout: false}\n"
             "framework: {kernels: eager, attention: flash-attention-2}\n"
             "cluster:\n  gpu: {preset: %s, memory_gib: 4000}\n"
             "  gpus_per_node: 8\n"
             "  node_link: {gbps: %d, latency_us: 3}\n%s"
             "  datacenters: [{name: site, nodes: %u}]\n"
             "layout: {tensor: 1, context: 1, pipeline: 1, data: %u, "
             "micro_batch: %u, chunks_per_device: 1, schedule: 1f1b}\n",
             models[m].name, models[m].layers, models[m].hidden,
             4 * models[m].hidden, models[m].heads,
             table_count(t, row, "sequence"), table_count(t, row, "batch"),
             table_count(t, row, "sequence"), table_text(t, row, "recompute"),
             h100 ? "h100" : "a100-80g", h100 ? 3600 : 2400, fabric, gpus / 8,
             gpus, table_count(t, row, "micro"));
}

/* Reads one run. Returns false after printing an error. */
static bool read_run(const table *t, uint32_t row, foundry_run *run)
{
    const int m = find_model(table_text(t, row, "model"));

    *run = (foundry_run){.tokens_per_s = table_number(t, row, "tokens_per_s")};
    snprintf(run->identity, sizeof run->identity, "%s,%s,%s,%s,%s",
             table_text(t, row, "model"), table_text(t, row, "gpu"),
             table_text(t, row, "gpus"), table_text(t, row, "micro"),
             table_text(t, row, "sequence"));
    snprintf(run->shown, sizeof run->shown, "MPT %s | %s | %s | %s | %s | %s",
             table_text(t, row, "model"), table_text(t, row, "gpu"),
             table_text(t, row, "gpus"), table_text(t, row, "micro"),
             table_text(t, row, "sequence"), table_text(t, row, "recompute"));
    if (m == N_MODELS) {
        fprintf(stderr, "validate-published: %s: the model is unknown\n",
                run->identity);
        return false;
    }
    write_job(t, row, m, run);
    return true;
}

/* Holds out the half of the runs with the larger hashes. */
static void decide_halves(foundry_set *set)
{
    uint64_t hashes[MAX_FOUNDRY] = {0};

    for (uint32_t i = 0; i < set->n; i++)
        hashes[i] = published_hash(set->runs[i].identity);
    for (uint32_t i = 0; i < set->n; i++)
        set->runs[i].held_out = published_is_in_larger_half(hashes, set->n, i);
}

static bool read_all(const char *folder, foundry_set *set)
{
    char path[512];
    table t = {0};
    bool ok;

    snprintf(path, sizeof path, "%s/llm-foundry", folder);
    ok = table_read(path, "runs.csv", &t);
    set->n = 0;
    if (ok && t.n_rows > MAX_FOUNDRY) {
        fprintf(stderr, "validate-published: %s has more than %d rows\n", path,
                MAX_FOUNDRY);
        ok = false;
    }
    for (uint32_t i = 0; ok && i < t.n_rows; i++)
        ok = read_run(&t, i, &set->runs[set->n++]);
    table_fini(&t);
    decide_halves(set);
    return ok;
}

/* Predicts one run. Returns false after printing an error. */
static bool predict(foundry_run *run)
{
    lh_job *job = NULL;
    lh_plan *plan = NULL;
    lh_error err;
    lh_status status = lh_job_parse(run->job, strlen(run->job), "llm-foundry",
                                    NULL, &job, &err);

    if (status == LH_OK)
        status = lh_plan_make(job, NULL, &plan, &err);
    if (status == LH_OK)
        run->predicted_tokens_per_s = (double)job->training.global_batch *
                                      job->training.sequence * 1e9 /
                                      (double)plan->best.iteration_ns;
    else
        fprintf(stderr, "validate-published: %s: %s\n", run->identity,
                err.text);
    lh_plan_free(plan);
    lh_job_free(job);
    return status == LH_OK;
}

static double get_error(const foundry_run *run)
{
    return run->tokens_per_s / run->predicted_tokens_per_s - 1;
}

static void print_half(const foundry_set *set, bool held_out, FILE *to)
{
    double sum = 0, worst = 0;
    uint32_t n = 0;

    for (uint32_t i = 0; i < set->n; i++) {
        if (set->runs[i].held_out != held_out)
            continue;
        sum += fabs(get_error(&set->runs[i]));
        worst = fmax(worst, fabs(get_error(&set->runs[i])));
        n++;
    }
    fprintf(to, " %s%u, %.1f %%, %.1f %%%s |", held_out ? "**" : "", n,
            100 * sum / n, 100 * worst, held_out ? "**" : "");
}

bool published_foundry(const char *folder, FILE *to)
{
    static foundry_set set;

    if (!read_all(folder, &set))
        return false;
    for (uint32_t i = 0; i < set.n; i++)
        if (!predict(&set.runs[i]))
            return false;
    fputs("\n| LLM Foundry | first half: runs, mean, worst | held-out half: "
          "runs, mean, worst |\n| --- | --- | --- |\n| time |",
          to);
    print_half(&set, false, to);
    print_half(&set, true, to);
    fputs("\n\n| model | GPU | GPUs | microbatch | tokens of a sequence | "
          "recomputation | tokens/s, measured | predicted | error of the time "
          "| half |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | "
          "--- |\n",
          to);
    for (uint32_t i = 0; i < set.n; i++)
        fprintf(to, "| %s | %.0f | %.0f | %+.1f %% | %s |\n", set.runs[i].shown,
                set.runs[i].tokens_per_s, set.runs[i].predicted_tokens_per_s,
                100 * get_error(&set.runs[i]),
                set.runs[i].held_out ? "held out" : "first");
    return true;
}
