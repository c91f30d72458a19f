/* SPDX-License-Identifier: Apache-2.0 */
/* Published torchtitan runs: reads them, converts each to a job, and predicts
 * its throughput and its memory. */
#include "published.h"

#include <longhaul/experimental/model.h>
#include <longhaul/experimental/plan.h>

#include <math.h>
#include <string.h>

enum { MAX_TITAN = 64 };

/* GPU memory: as torchtitan reports it for the H100, and the h200 preset's
 * memory. */
static const double GRAND_TETON_GIB = 94.99, H200_GIB = 131;

/* Tensor-parallel communication's hidden fraction with asynchronous tensor
 * parallelism: the value, in steps of 0.1, with the smallest mean error over
 * the fitted half. */
static const double ASYNC_OVERLAP = 0.1;

/* One published run, with its prediction. */
typedef struct titan_run {
    char job[JOB_TEXT], lifted_job[JOB_TEXT];
    char identity[160]; /* all columns but the measurements, by commas */
    char shown[160];    /* cells of the table */
    const char *exclusion_reason;
    double tokens_per_s, gib; /* per GPU, measured; 0: not published */
    double gpu_gib;           /* the GPU's memory */
    bool out_of_memory, held_out;
    double predicted_tokens_per_s, predicted_gib;
} titan_run;

/* All published torchtitan runs. */
typedef struct titan_set {
    uint32_t n;
    titan_run runs[MAX_TITAN];
} titan_set;

static const char *const identity[] = {
    "source", "model",   "gpu",      "gpus",      "precision",
    "batch",  "micro",   "sequence", "tp",        "pp",
    "cp",     "dp",      "schedule", "recompute", "model_kernels",
    "loss",   "async_tp"};

static void join_identity(const table *t, uint32_t row, char *text, size_t room)
{
    size_t used = 0;

    for (size_t i = 0; i < sizeof identity / sizeof *identity; i++)
        used += (size_t)snprintf(text + used, room - used, "%s%s", i ? "," : "",
                                 table_text(t, row, identity[i]));
}

static bool is_text(const table *t, uint32_t row, const char *column,
                    const char *text)
{
    return strcmp(table_text(t, row, column), text) == 0;
}

/* Qwen3-32B: config.json of Qwen/Qwen3-32B. */
static const char *const qwen3_32b =
    "{name: qwen3-32b, layers: 64, hidden: 5120, ffn: 25600, heads: 64, "
    "kv_heads: 8, head_dim: 128, vocab: 151936, qk_norm: true}";

static const char *find_model(const table *t, uint32_t row)
{
    const char *name = table_text(t, row, "model");

    return strcmp(name, "qwen3-32b") == 0 ? qwen3_32b : name;
}

/* Meta's H100 in Grand Teton: 96 GB of HBM2e (torchtitan reports 94.99 GiB) at
 * 2.4 TB/s, limited to 500 W. Sustained rates: torchao's
 * float8/roofline_utils.py at eab345c, the commit of the runs of 2024, which
 * gives 0.6 of the peaks for large products on this GPU. */
static void write_gpu(const table *t, uint32_t row, bool lifted, char *text,
                      size_t room)
{
    bool h200 = is_text(t, row, "gpu", "h200");

    snprintf(text, room, "{%s, memory_gib: %g}",
             h200 ? "preset: h200"
                  : "name: h100-96gb-500w, tflops: 989.5, "
                    "sustained_tflops: 593.7, fp8_tflops: "
                    "1979, sustained_fp8_tflops: 1187.4, memory_gbps: 2400",
             lifted ? 4000
             : h200 ? H200_GIB
                    : GRAND_TETON_GIB);
}

static void write_framework(const table *t, uint32_t row, char *text,
                            size_t room)
{
    char async[64] = "";

    if (is_text(t, row, "async_tp", "yes"))
        snprintf(async, sizeof async, ", overlap: {tensor: %g}", ASYNC_OVERLAP);
    snprintf(text, room,
             "framework: {preset: torchtitan, attention: flash-attention-2, "
             "kernels: %s, loss: %s%s%s}\n",
             is_text(t, row, "model_kernels", "eager") ? "eager" : "fused",
             is_text(t, row, "loss", "eager") ? "eager" : "fused",
             is_text(t, row, "precision", "BF16") ? "" : ", fp8: matmul",
             async);
}

/* Writes each chunk's layers as generate_split_points() in torchtitan's
 * pipelining_utils.py divides them: the first chunks but one get one more until
 * the remainder is spent. */
static void write_layers(const table *t, uint32_t row, uint32_t chunks,
                         char *text, size_t room)
{
    uint32_t layers = lh_model_preset(table_text(t, row, "model"))->layers;
    uint32_t n = table_count(t, row, "pp") * chunks;
    uint32_t rest = layers % n;
    size_t used = (size_t)snprintf(text, room, ", layers: [");

    for (uint32_t i = 0; i < n; i++) {
        bool more = i > 0 && i + 1 < n && rest > 0;
        uint32_t one = layers / n + more;

        rest -= more;
        if (i + 1 == n)
            one += rest;
        used += (size_t)snprintf(text + used, room - used, "%s%u",
                                 i ? ", " : "", one);
    }
    snprintf(text + used, room - used, "]");
}

/* Writes the job. In a pipeline parameters are not resharded after the forward
 * (fsdp_reshard_after_forward: default): ZeRO 2. */
static void write_job(const table *t, uint32_t row, bool lifted,
                      char text[JOB_TEXT])
{
    char framework[256], gpu[200], schedule[64] = "1f1b", layers[160] = "";
    uint32_t gpus = table_count(t, row, "gpus");
    bool pipeline = table_count(t, row, "pp") > 1;

    if (pipeline)
        snprintf(schedule, sizeof schedule, "%s",
                 table_text(t, row, "schedule"));
    uint32_t chunks = strcmp(schedule, "interleaved-1f1b") == 0 ? 2 : 1;
    if (pipeline)
        write_layers(t, row, chunks, layers, sizeof layers);
    write_framework(t, row, framework, sizeof framework);
    write_gpu(t, row, lifted, gpu, sizeof gpu);
    snprintf(text, JOB_TEXT,
             "longhaul: job/1\nmodel: %s\n"
             "training: {global_batch: %u, sequence: %u, precision: bf16, "
             "optimizer: adamw, zero: %d, recompute: %s}\n%s"
             "cluster:\n  gpu: %s\n  gpus_per_node: 8\n"
             "  node_link: {gbps: 3600, latency_us: 3}\n%s"
             "  datacenters: [{name: site, nodes: %u}]\n"
             "layout: {framework: any, outermost: %s, tensor: %u, context: %u, "
             "pipeline: %u, data: %u, micro_batch: %u, chunks_per_device: %u, "
             "schedule: %s%s}\n",
             find_model(t, row), table_count(t, row, "batch"),
             table_count(t, row, "sequence"), pipeline ? 2 : 3,
             table_text(t, row, "recompute"), framework, gpu,
             gpus > 8 ? "  fabric: {gbps: 400, latency_us: 8}\n" : "", gpus / 8,
             pipeline ? "pipeline" : "data", table_count(t, row, "tp"),
             table_count(t, row, "cp"), table_count(t, row, "pp"),
             table_count(t, row, "dp"), table_count(t, row, "micro"), chunks,
             schedule, layers);
}

/* Predicts one run. Returns false after printing an error. */
static bool predict(titan_run *run)
{
    lh_job *job = NULL;
    lh_plan *plan = NULL;
    lh_error err;
    lh_status status = lh_job_parse(run->lifted_job, strlen(run->lifted_job),
                                    "torchtitan", NULL, &job, &err);

    if (status == LH_OK)
        status = lh_plan_make(job, NULL, &plan, &err);
    if (status == LH_OK) {
        double tokens =
            (double)job->training.global_batch * job->training.sequence;

        run->predicted_tokens_per_s =
            tokens * 1e9 / (double)plan->best.iteration_ns / job->n_gpus;
        run->predicted_gib = (double)plan->best.peak_memory_bytes / 0x1p30;
    } else {
        fprintf(stderr, "validate-published: %s: %s\n", run->identity,
                err.text);
    }
    lh_plan_free(plan);
    lh_job_free(job);
    return status == LH_OK;
}

static void show_run(const table *t, uint32_t row, titan_run *run)
{
    snprintf(run->shown, sizeof run->shown,
             "%s | %s | %s | TP %s CP %s PP %s%s DP %s mb %s | %s | %s, %s, "
             "%s%s",
             table_text(t, row, "source"), table_text(t, row, "model"),
             table_text(t, row, "gpus"), table_text(t, row, "tp"),
             table_text(t, row, "cp"), table_text(t, row, "pp"),
             is_text(t, row, "schedule", "interleaved-1f1b") ? "x2" : "",
             table_text(t, row, "dp"), table_text(t, row, "micro"),
             table_text(t, row, "sequence"), table_text(t, row, "precision"),
             table_text(t, row, "model_kernels"),
             table_text(t, row, "recompute"),
             is_text(t, row, "async_tp", "yes") ? ", async" : "");
}

static void read_run(const table *t, uint32_t row, titan_run *run)
{
    *run = (titan_run){
        .tokens_per_s = table_number(t, row, "tokens_per_s_per_gpu"),
        .gib = table_number(t, row, "memory_gib"),
        .gpu_gib = is_text(t, row, "gpu", "h200") ? H200_GIB : GRAND_TETON_GIB,
        .out_of_memory = is_text(t, row, "memory_gib", "oom")};
    join_identity(t, row, run->identity, sizeof run->identity);
    show_run(t, row, run);
    if (is_text(t, row, "precision", "FP8-rowwise"))
        run->exclusion_reason = "8-bit products with a scale for each row";
    write_job(t, row, false, run->job);
    write_job(t, row, true, run->lifted_job);
}

/* Holds out the half of the runs with the larger hashes. */
static void decide_halves(titan_set *set)
{
    uint64_t hashes[MAX_TITAN] = {0};

    for (uint32_t i = 0; i < set->n; i++)
        hashes[i] = published_hash(set->runs[i].identity);
    for (uint32_t i = 0; i < set->n; i++)
        set->runs[i].held_out = published_is_in_larger_half(hashes, set->n, i);
}

static bool read_all(const char *folder, titan_set *set)
{
    char path[512];
    table t = {0};
    bool ok;

    snprintf(path, sizeof path, "%s/torchtitan", folder);
    ok = table_read(path, "runs.csv", &t);
    set->n = 0;
    if (ok && t.n_rows > MAX_TITAN) {
        fprintf(stderr, "validate-published: %s has more than %d rows\n", path,
                MAX_TITAN);
        ok = false;
    }
    for (uint32_t i = 0; ok && i < t.n_rows; i++)
        read_run(&t, i, &set->runs[set->n++]);
    table_fini(&t);
    decide_halves(set);
    return ok;
}

static double time_error(const titan_run *run)
{
    return run->tokens_per_s / run->predicted_tokens_per_s - 1;
}

/* The measured memory is reserved by PyTorch's allocator, the predicted one is
 * that of tensors: the reserve that a plan keeps free lies between the two. */
static double compute_reserved_gib(const titan_run *run)
{
    return run->predicted_gib +
           LH_MEMORY_RESERVE_PERCENT / 100.0 * run->gpu_gib;
}

static double memory_error(const titan_run *run)
{
    return run->predicted_gib / run->gib - 1;
}

static double reserved_error(const titan_run *run)
{
    return compute_reserved_gib(run) / run->gib - 1;
}

/* The errors of a run, in the order of the table. */
enum { TIME, TENSORS, RESERVED, N_ERRORS };

static double get_error(const titan_run *run, int kind)
{
    return kind == TIME      ? time_error(run)
           : kind == TENSORS ? memory_error(run)
                             : reserved_error(run);
}

/* Prints one half's mean and worst error. Returns the mean, in percent. */
static double print_half(const titan_set *set, bool held_out, int kind,
                         FILE *to)
{
    double sum = 0, worst = 0;
    uint32_t n = 0;

    for (uint32_t i = 0; i < set->n; i++) {
        const titan_run *run = &set->runs[i];

        if (run->exclusion_reason || run->held_out != held_out ||
            !((kind != TIME ? run->gib : run->tokens_per_s) > 0))
            continue;
        double error = fabs(get_error(run, kind));

        sum += error;
        worst = fmax(worst, error);
        n++;
    }
    fprintf(to, " %s%u, %.1f %%, %.1f %%%s |", held_out ? "**" : "", n,
            100 * sum / n, 100 * worst, held_out ? "**" : "");
    return 100 * sum / n;
}

static void print_halves(const titan_set *set, titan_errors *errors, FILE *to)
{
    static const char *const names[] = {"time", "memory, tensors alone",
                                        "memory, with the default reserve"};
    double means[N_ERRORS];

    fputs("\n| torchtitan | fitted half: runs, mean, worst | held-out half: "
          "runs, mean, worst |\n| --- | --- | --- |\n",
          to);
    for (int kind = 0; kind < N_ERRORS; kind++) {
        fprintf(to, "| %s |", names[kind]);
        print_half(set, false, kind, to);
        means[kind] = print_half(set, true, kind, to);
        fputc('\n', to);
    }
    *errors = (titan_errors){means[TIME], means[RESERVED]};
}

static void print_run(const titan_run *run, FILE *to)
{
    fprintf(to, "| %s |", run->shown);
    if (run->tokens_per_s > 0)
        fprintf(to, " %.0f | %.0f | %+.1f %% |", run->tokens_per_s,
                run->predicted_tokens_per_s, 100 * time_error(run));
    else
        fputs(" | | |", to);
    if (run->gib > 0)
        fprintf(to, " %.1f | %.1f | %+.1f %% | %.1f | %+.1f %% |", run->gib,
                run->predicted_gib, 100 * memory_error(run),
                compute_reserved_gib(run), 100 * reserved_error(run));
    else
        fprintf(to, " %s | %.1f | | %.1f | |",
                run->out_of_memory ? "out of memory" : "", run->predicted_gib,
                compute_reserved_gib(run));
    fprintf(to, " %s |\n", run->held_out ? "held out" : "fitted");
}

static void print_fits(const titan_set *set, FILE *to)
{
    uint32_t failed = 0, rejected = 0, ran = 0, accepted = 0;

    for (uint32_t i = 0; i < set->n; i++) {
        const titan_run *run = &set->runs[i];
        bool fits = run->predicted_gib <= run->gpu_gib;

        if (run->exclusion_reason)
            continue;
        failed += run->out_of_memory;
        rejected += run->out_of_memory && !fits;
        ran += !run->out_of_memory;
        accepted += !run->out_of_memory && fits;
    }
    fprintf(
        to,
        "\nOf the %u runs that ran out of memory, %u are predicted to need "
        "more than the GPU has. Of the %u others, %u are predicted to fit.\n",
        failed, rejected, ran, accepted);
}

static void print_all(const titan_set *set, titan_errors *errors, FILE *to)
{
    uint32_t excluded = 0;

    print_halves(set, errors, to);
    fputs(
        "\n| source | model | GPUs | layout | tokens of a sequence | products, "
        "kernels, recomputation | tokens/s per GPU, measured | predicted | "
        "error of the time | GiB, measured | tensors, predicted | error | "
        "with reserve | error | half |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | "
        "--- | --- | --- | --- |\n",
        to);
    for (uint32_t i = 0; i < set->n; i++) {
        excluded += set->runs[i].exclusion_reason != NULL;
        if (!set->runs[i].exclusion_reason)
            print_run(&set->runs[i], to);
    }
    print_fits(set, to);
    fprintf(to,
            "%u more runs cannot be written as a job: they use 8-bit products "
            "with a scale for each row.\n",
            excluded);
}

/* Checks that no run that ran out of memory is predicted to leave more than
 * MOST_SPARE_GIB of its GPU free. */
static bool check_spare(const titan_set *set)
{
    const double MOST_SPARE_GIB = 3;
    bool ok = true;

    for (uint32_t i = 0; i < set->n; i++) {
        const titan_run *run = &set->runs[i];
        double spare = run->gpu_gib - run->predicted_gib;

        if (run->exclusion_reason || !run->out_of_memory ||
            spare <= MOST_SPARE_GIB)
            continue;
        fprintf(stderr,
                "validate-published: %s: ran out of memory, but is predicted "
                "to leave %.1f GiB free\n",
                run->identity, spare);
        ok = false;
    }
    return ok;
}

bool published_torchtitan(const char *folder, titan_errors *errors, FILE *to)
{
    static titan_set set;

    if (!read_all(folder, &set))
        return false;
    for (uint32_t i = 0; i < set.n; i++)
        if (!set.runs[i].exclusion_reason && !predict(&set.runs[i]))
            return false;
    print_all(&set, errors, to);
    if (!check_spare(&set))
        return false;
    for (uint32_t i = 0; i < set.n; i++) {
        const titan_run *run = &set.runs[i];

        if (run->held_out && !run->exclusion_reason && run->tokens_per_s > 0 &&
            !published_add_accuracy(run->job, time_error(run)))
            return false;
    }
    return true;
}

bool published_torchtitan_job(const char *folder, long row)
{
    static titan_set set;

    if (!read_all(folder, &set))
        return false;
    if (row >= (long)set.n) {
        fprintf(stderr, "validate-published: there is no such row\n");
        return false;
    }
    fputs(set.runs[row].job, stdout);
    return true;
}
