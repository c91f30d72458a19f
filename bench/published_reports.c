/* SPDX-License-Identifier: Apache-2.0 */
/* Runs from papers and reports on several programs: converts each to a job and
 * predicts its time. vTrain's runs, whose errors `validate` prints, are
 * included because they are of DeepSpeed, too. */
#include "published.h"

#include <longhaul/experimental/plan.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_REPORTS = 128 };

/* Properties that all runs of a source share. */
typedef struct program {
    const char *source; /* column of runs.csv */
    const char *name, *gpu, *precision, *framework;
    uint32_t zero, node_gbps, fabric_gbps; /* per GPU, one way */
    bool by_layer; /* one bucket of gradients per layer without stages */
} program;

/* Megatron-LM of 2021 and 2022 sent a chunk's messages in blocking calls with
 * interleaved chunks, too. Selene has eight 200 Gb/s interfaces per node, Jean
 * Zay four with 100 Gb/s. */
#define MEGATRON_2021                                                          \
    "preset: megatron, attention: unfused, receives: late, "                   \
    "sequence_parallel: "
static const program programs[] = {
    {"2104.04473", "Megatron-LM, 2021", "a100-80g", "fp16",
     MEGATRON_2021 "false", 0, 2400, 200, false},
    {"2205.05198", "Megatron-LM, 2022", "a100-80g", "fp16",
     MEGATRON_2021 "false", 0, 2400, 200, false},
    {"2205.05198-sp", "Megatron-LM, 2022", "a100-80g", "fp16",
     MEGATRON_2021 "true", 0, 2400, 200, false},
    {"2201.11990", "MT-NLG", "a100-80g", "bf16",
     "preset: deepspeed, attention: unfused", 1, 2400, 200, false},
    {"BLOOM", "BLOOM", "a100-80g", "bf16",
     "preset: deepspeed, attention: unfused, gradients: fp32, reduce: fp32", 1,
     2400, 50, false},
    {"NeMo-24.07", "NeMo 24.07", "h100", "bf16",
     "preset: megatron, attention: cudnn, fp8: matmul, gradients: fp32, "
     "reduce: bf16",
     1, 3600, 400, true},
    {"torchtitan-2024-04", "torchtitan, April 2024", "a100-80g", "bf16",
     "preset: torchtitan, attention: flash-attention-2, kernels: eager, loss: "
     "eager",
     3, 2400, 200, false},
    {"SmolLM3", "nanotron, 2025", "h100", "bf16",
     "attention: flash-attention-2, kernels: eager, loss: eager, gradients: "
     "fp32, reduce: fp32",
     0, 3600, 400, true},
};
enum { N_PROGRAMS = sizeof programs / sizeof *programs };

/* One run, with its prediction. */
typedef struct report {
    char job[JOB_TEXT], identity[160];
    const program *by;
    char shown[200]; /* cells of the table; "": it is on the page elsewhere */
    double measured_s, predicted_s;
    bool held_out;
} report;

/* All runs. */
typedef struct report_set {
    uint32_t n;
    report runs[MAX_REPORTS];
} report_set;

/* The keys of a model beyond its sizes. */
static const struct {
    const char *family, *keys;
} families[] = {
    {"gpt", "gated: false, norm: layer, tied_embeddings: true, qkv_bias: true, "
            "output_bias: true, mlp_bias: true, positions: 2048"},
    {"bloom", "gated: false, norm: layer, tied_embeddings: true, qkv_bias: "
              "true, output_bias: true, mlp_bias: true"},
    {"nemotron", "gated: false, norm: layer, activation: relu2"},
    {"llama", "gated: true"},
    {"smollm3", "gated: true, tied_embeddings: true"},
};

static const char *find_keys(const char *family)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcmp(families[i].family, family) == 0)
            return families[i].keys;
    return NULL;
}

static const program *find_program(const char *source)
{
    for (size_t i = 0; i < N_PROGRAMS; i++)
        if (strcmp(programs[i].source, source) == 0)
            return &programs[i];
    return NULL;
}

/* Writes the layers of all chunks. BLOOM counts its embedding and its head as a
 * layer each (--pp-partition-method 'type:transformer|embedding'). */
static void write_layers(uint32_t layers, uint32_t chunks, bool bloom,
                         char *text, size_t room)
{
    const uint32_t each = (layers + (bloom ? 2 : 0)) / chunks;
    size_t used = 0;

    for (uint32_t i = 0; i < chunks && used < room; i++) {
        const bool end = bloom && (i == 0 || i + 1 == chunks);

        used += (size_t)snprintf(text + used, room - used, "%s%u",
                                 i ? ", " : "", each - end);
    }
}

/* Writes the job of a row. */
static void write_job(const table *t, uint32_t row, const char *keys,
                      report *run)
{
    const program *by = run->by;
    const uint32_t gpus = table_count(t, row, "gpus"),
                   layers = table_count(t, row, "layers"),
                   stages = table_count(t, row, "pp");
    const bool bloom = strcmp(table_text(t, row, "family"), "bloom") == 0,
               nemotron = strcmp(table_text(t, row, "family"), "nemotron") == 0;
    const uint32_t chunks =
        by->by_layer && stages == 1 ? layers : table_count(t, row, "vp");
    char list[1024] = "", fabric[64] = "";

    write_layers(layers, stages * chunks, bloom, list, sizeof list);
    if (gpus > 8)
        snprintf(fabric, sizeof fabric, "  fabric: {gbps: %u, latency_us: 8}\n",
                 by->fabric_gbps);
    snprintf(run->job, sizeof run->job,
             "longhaul: job/1\n"
             "model: {name: reported, layers: %u, hidden: %u, ffn: %u, heads: "
             "%u, kv_heads: %u, vocab: %u, %s}\n"
             "training: {global_batch: %u, sequence: %u, precision: %s, zero: "
             "%u, recompute: %s%s}\n"
             "framework: {%s%s}\n"
             "cluster:\n  gpu: {preset: %s, memory_gib: 4000}\n"
             "  gpus_per_node: 8\n"
             "  node_link: {gbps: %u, latency_us: 3}\n%s"
             "  datacenters: [{name: site, nodes: %u}]\n"
             "layout: {framework: any, outermost: pipeline, tensor: %u, "
             "context: %u, pipeline: %u, data: %u, micro_batch: %u, "
             "chunks_per_device: %u, schedule: %s, layers: [%s]}\n",
             layers, table_count(t, row, "hidden"), table_count(t, row, "ffn"),
             table_count(t, row, "heads"), table_count(t, row, "kv_heads"),
             table_count(t, row, "vocab"), keys, table_count(t, row, "batch"),
             table_count(t, row, "sequence"), by->precision, by->zero,
             table_text(t, row, "recompute"),
             nemotron ? ", dropout: false" : "", by->framework,
             strcmp(table_text(t, row, "overlap"), "yes") == 0
                 ? ", overlap: {tensor: 0.82}"
                 : "",
             by->gpu, by->node_gbps, fabric, gpus / 8,
             table_count(t, row, "tp"), table_count(t, row, "cp"), stages,
             table_count(t, row, "dp"), table_count(t, row, "micro"), chunks,
             chunks > 1 ? "interleaved-1f1b" : "1f1b", list);
}

/* Returns the seconds of an iteration: published, from tokens/s per GPU, or
 * from TFLOP/s per GPU with the operations that arXiv:2104.04473, equation 3,
 * counts (a second forward pass included). */
static double read_seconds(const table *t, uint32_t row)
{
    const double value = table_number(t, row, "value"),
                 gpus = table_number(t, row, "gpus"),
                 s = table_number(t, row, "sequence"),
                 tokens = table_number(t, row, "batch") * s,
                 l = table_number(t, row, "layers"),
                 h = table_number(t, row, "hidden"),
                 v = table_number(t, row, "vocab");
    const char *unit = table_text(t, row, "unit");

    if (strcmp(unit, "s") == 0)
        return value;
    if (strcmp(unit, "tokens/s") == 0)
        return tokens / (value * gpus);
    return 96 * tokens * l * h * h * (1 + s / (6 * h) + v / (16 * l * h)) /
           (value * 1e12 * gpus);
}

/* Reads one run. Returns false after printing an error. */
static bool read_run(const table *t, uint32_t row, report *run)
{
    const char *keys = find_keys(table_text(t, row, "family"));
    const published layout = {.tensor = table_count(t, row, "tp"),
                              .context = table_count(t, row, "cp"),
                              .pipeline = table_count(t, row, "pp"),
                              .chunks = table_count(t, row, "vp"),
                              .expert = 1,
                              .data = table_count(t, row, "dp"),
                              .micro = table_count(t, row, "micro")};
    char degrees[96];

    *run = (report){.by = find_program(table_text(t, row, "source"))};
    published_layout(&layout, degrees, sizeof degrees);
    snprintf(run->identity, sizeof run->identity, "%s,%s,%s,%s,%s,%s",
             table_text(t, row, "source"), table_text(t, row, "model"),
             table_text(t, row, "heads"), table_text(t, row, "gpus"), degrees,
             table_text(t, row, "recompute"));
    if (!keys || !run->by) {
        fprintf(stderr, "validate-published: %s: unknown source or family\n",
                run->identity);
        return false;
    }
    snprintf(run->shown, sizeof run->shown, "%s | %s | %s | %s | %s | %s",
             run->by->name, table_text(t, row, "model"),
             table_text(t, row, "heads"), table_text(t, row, "gpus"), degrees,
             table_text(t, row, "recompute"));
    run->measured_s = read_seconds(t, row);
    write_job(t, row, keys, run);
    return true;
}

/* Checks whether two runs are of one program: each has its own halves. */
static bool is_same_program(const report *a, const report *b)
{
    return strcmp(a->by->name, b->by->name) == 0;
}

/* Holds out the half of each program's runs with the larger hashes. */
static void decide_halves(report_set *set)
{
    for (uint32_t i = 0; i < set->n; i++) {
        uint64_t hashes[MAX_REPORTS] = {0};
        uint32_t n = 0, at = 0;

        for (uint32_t k = 0; k < set->n; k++) {
            if (!is_same_program(&set->runs[k], &set->runs[i]))
                continue;
            at = k == i ? n : at;
            hashes[n++] = published_hash(set->runs[k].identity);
        }
        set->runs[i].held_out = published_is_in_larger_half(hashes, n, at);
    }
}

/* Megatron-DeepSpeed on vTrain's cluster, as in validate_vtrain.c. */
static const program vtrain = {.name = "vTrain",
                               .gpu = "a100-80g",
                               .precision = "fp16",
                               .framework =
                                   "preset: deepspeed, attention: unfused"};

/* Writes the job of a run of vTrain's ground_truth_multi.csv. */
static void write_vtrain_job(const table *t, uint32_t row, report *run)
{
    const uint32_t layers = table_count(t, row, "# layers"),
                   hidden = table_count(t, row, "hidden size"),
                   stages = table_count(t, row, "pipeline parallelism");
    char list[256] = "";

    write_layers(layers, stages, false, list, sizeof list);
    snprintf(run->job, sizeof run->job,
             "longhaul: job/1\n"
             "model: {name: gpt, layers: %u, hidden: %u, ffn: %u, heads: %u, "
             "vocab: 50304, %s}\n"
             "training: {global_batch: %u, sequence: %u, precision: %s, zero: "
             "0, recompute: full}\n"
             "framework: {%s}\n"
             "cluster:\n  gpu: {preset: %s, memory_gib: 4000}\n"
             "  gpus_per_node: 8\n"
             "  node_link: {gbps: 2400, latency_us: 5}\n"
             "  fabric: {gbps: 100, latency_us: 10}\n"
             "  datacenters: [{name: kaist, nodes: %u}]\n"
             "layout: {tensor: %u, context: 1, pipeline: %u, data: %u, "
             "micro_batch: %u, chunks_per_device: 1, outermost: pipeline, "
             "schedule: 1f1b, layers: [%s]}\n",
             layers, hidden, 4 * hidden, table_count(t, row, "attention heads"),
             find_keys("gpt"), table_count(t, row, "global batch"),
             table_count(t, row, "sequence length"), vtrain.precision,
             vtrain.framework, vtrain.gpu, table_count(t, row, "# GPUs") / 8,
             table_count(t, row, "tensor parallelism"), stages,
             table_count(t, row, "data parallelism"),
             table_count(t, row, "micro batch"), list);
}

/* Reads vTrain's runs on several nodes. As in `validate`, every second row is
 * held out. */
static bool read_vtrain(const char *folder, report_set *set)
{
    char path[512];
    table t = {0};

    snprintf(path, sizeof path, "%s/vtrain", folder);
    bool ok = table_read(path, "ground_truth_multi.csv", &t) &&
              set->n + t.n_rows <= MAX_REPORTS;
    for (uint32_t i = 0; ok && i < t.n_rows; i++) {
        report *run = &set->runs[set->n++];

        *run = (report){.by = &vtrain, .held_out = i % 2 == 1};
        run->measured_s = table_number(&t, i, "iteration time (ms)") / 1e3;
        snprintf(run->identity, sizeof run->identity, "vTrain, row %u", i + 1);
        write_vtrain_job(&t, i, run);
    }
    table_fini(&t);
    return ok;
}

static bool read_all(const char *folder, report_set *set)
{
    char path[512];
    table t = {0};

    snprintf(path, sizeof path, "%s/reports", folder);
    bool ok = table_read(path, "runs.csv", &t);
    set->n = 0;
    if (ok && t.n_rows > MAX_REPORTS) {
        fprintf(stderr, "validate-published: %s has more than %d rows\n", path,
                MAX_REPORTS);
        ok = false;
    }
    for (uint32_t i = 0; ok && i < t.n_rows; i++)
        ok = read_run(&t, i, &set->runs[set->n++]);
    table_fini(&t);
    if (!ok)
        return false;
    decide_halves(set);
    return read_vtrain(folder, set);
}

/* Predicts the seconds of an iteration of a run's job `text`. Returns false
 * after printing an error. */
static bool predict(const report *run, const char *text, double *seconds)
{
    lh_job *job = NULL;
    lh_plan *plan = NULL;
    lh_error err;
    lh_status status =
        lh_job_parse(text, strlen(text), "reported", NULL, &job, &err);

    if (status == LH_OK)
        status = lh_plan_make(job, NULL, &plan, &err);
    if (status == LH_OK)
        *seconds = (double)plan->best.iteration_ns / 1e9;
    else
        fprintf(stderr, "validate-published: %s: %s\n", run->identity,
                err.text);
    lh_plan_free(plan);
    lh_job_free(job);
    return status == LH_OK;
}

static double get_error(const report *run)
{
    return run->predicted_s / run->measured_s - 1;
}

/* Adds the errors of a run to those of its kind: of its job under a program
 * with a preset and, under Megatron-LM or without a preset, of its job without
 * options of the program. */
static bool add_accuracy(const report *run)
{
    const char *line = strstr(run->job, "framework: {");
    const bool preset = strncmp(run->by->framework, "preset: ", 8) == 0,
               megatron =
                   strncmp(run->by->framework, "preset: megatron", 16) == 0;
    char text[sizeof run->job];
    double seconds;

    if (preset && !published_add_accuracy(run->job, get_error(run)))
        return false;
    if (preset && !megatron)
        return true;
    const char *end = strchr(line, '\n'), *fp8 = strstr(line, "fp8: matmul");
    snprintf(text, sizeof text, "%.*sframework: {fp8: %s}%s",
             (int)(line - run->job), run->job,
             fp8 && fp8 < end ? "matmul" : "none", end);
    return predict(run, text, &seconds) &&
           published_add_accuracy(text, seconds / run->measured_s - 1);
}

static void print_half(const report_set *set, const report *of, bool held_out,
                       FILE *to)
{
    double sum = 0, worst = 0;
    uint32_t n = 0;

    for (uint32_t i = 0; i < set->n; i++) {
        const report *run = &set->runs[i];

        if (run->held_out != held_out || !is_same_program(run, of))
            continue;
        sum += fabs(get_error(run));
        worst = fmax(worst, fabs(get_error(run)));
        n++;
    }
    if (n)
        fprintf(to, " %s%u, %.1f %%, %.1f %%%s |", held_out ? "**" : "", n,
                100 * sum / n, 100 * worst, held_out ? "**" : "");
    else
        fputs(" none |", to);
}

static void print_halves(const report_set *set, FILE *to)
{
    fputs("\n| reports | first half: runs, mean, worst | held-out half: runs, "
          "mean, worst |\n| --- | --- | --- |\n",
          to);
    for (uint32_t i = 0; i < set->n; i++) {
        uint32_t k = 0;

        while (!is_same_program(&set->runs[k], &set->runs[i]))
            k++;
        if (k < i)
            continue;
        fprintf(to, "| %s |", set->runs[i].by->name);
        print_half(set, &set->runs[i], false, to);
        print_half(set, &set->runs[i], true, to);
        fputc('\n', to);
    }
}

bool published_reports(const char *folder, FILE *to)
{
    static report_set set;

    if (!read_all(folder, &set))
        return false;
    for (uint32_t i = 0; i < set.n; i++)
        if (!predict(&set.runs[i], set.runs[i].job, &set.runs[i].predicted_s))
            return false;
    print_halves(&set, to);
    fputs("\n| program | model | heads | GPUs | layout | recomputation | "
          "measured, s | predicted, s | error | half |\n| --- | --- | --- | "
          "--- | --- | --- | --- | --- | --- | --- |\n",
          to);
    for (uint32_t i = 0; i < set.n; i++) {
        const report *run = &set.runs[i];

        if (*run->shown)
            fprintf(to, "| %s | %.2f | %.2f | %+.1f %% | %s |\n", run->shown,
                    run->measured_s, run->predicted_s, 100 * get_error(run),
                    run->held_out ? "held out" : "first");
        if (run->held_out && !add_accuracy(run))
            return false;
    }
    return true;
}
