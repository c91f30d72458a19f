/* SPDX-License-Identifier: Apache-2.0 */
/* Converts a published run to a job, using only job file features. */
#include "published.h"

#include <longhaul/experimental/plan.h>

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

fitted published_fitted(void)
{
    const lh_cost_constants *c = lh_cost_defaults();

    return (fitted){.tensor_overlap = 0.82,
                    .experts = c->experts_efficiency,
                    .fused_experts = c->fused_experts_efficiency,
                    .fp8 = {1, 1, 1},
                    .dispatch_ms = c->dispatch_ns / 1e6,
                    .expert_ms = c->expert_ns / 1e6};
}

/* Output buffer for the job text. */
typedef struct writer {
    char *text;
    size_t used;
} writer;

static void append(writer *w, const char *format, ...)
{
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(w->text + w->used, JOB_TEXT - w->used, format, args);
    va_end(args);
    if (n > 0)
        w->used += (size_t)n;
    if (w->used >= JOB_TEXT)
        w->used = JOB_TEXT - 1;
}

/* DeepSeek-V3 without its multi-token prediction module. */
static const char *const without_mtp =
    "{name: deepseek-v3-without-mtp, layers: 61, hidden: 7168, ffn: 18432, "
    "heads: 128, vocab: 129280, experts: 256, experts_per_token: 8, "
    "expert_ffn: 2048, shared_expert_ffn: 2048, dense_layers: 3, "
    "q_lora_rank: 1536, kv_lora_rank: 512, qk_nope_head_dim: 128, "
    "qk_rope_head_dim: 64, v_head_dim: 128}";

/* Machine from data sheets: NVLink 4 (H800: 400 GB/s in both directions
 * together, arXiv:2412.19437, section 3.1) and 5, and the network bandwidth per
 * GPU between nodes (ConnectX-7; ConnectX-8 with B300 and GB300), one way. */
typedef struct machine {
    const char *system, *gpu;
    uint32_t node, link_gbps, fabric_gbps;
} machine;

static const machine machines[] = {
    {"H100", "h100", 8, 3600, 400},    {"B200", "b200", 8, 7200, 400},
    {"H200", "h200", 8, 3600, 400},    {"H800", "h800", 8, 1600, 400},
    {"B300", "b300", 8, 7200, 800},    {"GB200", "gb200", 64, 7200, 400},
    {"GB300", "gb300", 64, 7200, 800},
};

static const machine *find_machine(const published *run)
{
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++)
        if (strcmp(machines[i].system, run->system) == 0)
            return &machines[i];
    return NULL;
}

static void append_cluster(const published *run, bool lifted, writer *w)
{
    const machine *m = find_machine(run);
    uint32_t node = run->gpus < m->node ? run->gpus : m->node;

    append(w, "cluster:\n");
    if (lifted)
        append(w, "  gpu: {preset: %s, memory_gib: 4000}\n", m->gpu);
    else
        append(w, "  gpu: %s\n", m->gpu);
    append(w,
           "  gpus_per_node: %u\n"
           "  node_link: {gbps: %u, latency_us: 3}\n"
           "  fabric: {gbps: %u, latency_us: 8}\n"
           "  datacenters: [{name: site, nodes: %u}]\n",
           node, m->link_gbps, m->fabric_gbps, run->gpus / node);
}

/* The layers of all chunks but the first and the last, and of these two, in the
 * recipes for DeepSeek-V3 and Kimi K2 with 61 layers: Megatron-Bridge's
 * set_deepseek_v3_pipeline_model_parallel_layout() and
 * _get_kimi_k2_pipeline_layout(), and the layouts "Et*4|(t*4|)*14tmL" and
 * "Et|(tt|)*30mL" of its performance recipes. */
static const struct {
    uint32_t chunks, layers, first, last;
} of_61_layers[] = {{8, 8, 8, 5}, {16, 4, 4, 1}, {32, 2, 1, 0}};

/* Finds the layers of chunk `i` of `n` if the recipe fixes them. With more
 * chunks than layers the end chunks are empty, as Megatron counts with
 * --account-for-embedding-in-pipeline-split and -for-loss-. */
static bool find_chunk_layers(const published *run, uint32_t i, uint32_t n,
                              uint32_t layers, uint32_t *out)
{
    const size_t known = sizeof of_61_layers / sizeof *of_61_layers;

    *out = i == 0 || (i + 1 == n && n > layers + 1) ? 0 : 1;
    if (n > layers)
        return true;
    /* no known recipe has this layout */
    if (layers != 61 || (run->pipeline == 2 && run->chunks == 4))
        return false;
    for (size_t k = 0; k < known; k++) {
        if (of_61_layers[k].chunks != n)
            continue;
        *out = i == 0       ? of_61_layers[k].first
               : i + 1 == n ? of_61_layers[k].last
                            : of_61_layers[k].layers;
        return true;
    }
    return false;
}

static void append_layers(const published *run, writer *w)
{
    const uint32_t n = run->pipeline * run->chunks;
    uint32_t layers, one;

    if (published_map(run))
        return;
    layers = lh_model_preset(published_model(run))->layers;
    if (!find_chunk_layers(run, 0, n, layers, &one))
        return;
    append(w, ", layers: [");
    for (uint32_t i = 0; i < n; i++) {
        find_chunk_layers(run, i, n, layers, &one);
        append(w, "%s%u", i ? ", " : "", one);
    }
    append(w, "]");
}

/* Meta's interleaved schedule runs as many warm-up microbatches as memory and
 * messages allow (arXiv:2407.21783, section 3.3.2), unlike Megatron's. The
 * number is unpublished and left to the planner. */
static bool has_unpublished_schedule(const published *run)
{
    return strcmp(run->release, "Meta") == 0;
}

static void append_layout(const published *run, writer *w)
{
    /* Megatron-LM's default rank order; any framework, since the runs have
     * settings beyond the supported version. */
    append(w,
           "layout: {framework: any, outermost: %s, tensor: %u, "
           "context: %u, pipeline: %u, data: %u, ",
           run->data_outermost ? "data" : "pipeline", run->tensor, run->context,
           run->pipeline, run->data);
    if (run->moe || run->expert > 1)
        append(w, "expert: %u, ", run->expert);
    if (run->expert_tensor > 1)
        append(w, "expert_tensor: %u, ", run->expert_tensor);
    append(w, "micro_batch: %u, chunks_per_device: %u", run->micro,
           run->pipeline > 1 ? run->chunks : 1);
    if (!has_unpublished_schedule(run))
        append(w, ", schedule: %s",
               run->pipeline > 1 && run->chunks > 1 ? "interleaved-1f1b"
                                                    : "1f1b");
    append_layers(run, w);
    append(w, "}\n");
}

/* Appends the recomputation: "none", or modules joined by "+". */
static void append_recompute(const published *run, writer *w)
{
    const char *modules = run->how.recompute;

    if (strcmp(modules, "none") == 0 || strcmp(modules, "full") == 0) {
        append(w, "recompute: %s}\n", modules);
        return;
    }
    append(w, "recompute: [");
    for (; *modules; modules++)
        append(w, *modules == '+' ? ", " : "%c", *modules);
    append(w, "]}\n");
}

/* Appends the framework; without `by` only the type of products.
 * Megatron-Bridge's recipes reduce gradients as they arrive, Meta in fp32
 * (arXiv:2407.21783, section 3.3.2). */
static void append_framework(const published *run, const fitted *by, writer *w)
{
    bool bridge = strcmp(run->release, "Meta") != 0 && !published_by_user(run);
    bool fp8 = strcmp(run->precision, "BF16") != 0;

    if (!by) {
        append(w, "framework: {fp8: %s}\n", fp8 ? "matmul" : "none");
        return;
    }
    append(w, "framework:\n  preset: megatron\n  attention: %s\n",
           fp8 && run->how.fp8_attention ? "cudnn-fp8" : "cudnn");
    if (bridge)
        append(w, "  gradients: bf16\n  reduce: bf16\n");
    if (fp8)
        append(w, "  fp8: %s\n", run->how.fp8_head ? "head" : "matmul");
    if (run->how.fused_experts && run->moe)
        append(w, "  experts: fused\n");
    if (run->how.tensor_overlap && run->tensor > 1)
        append(w, "  overlap: {tensor: %g}\n", by->tensor_overlap);
    if (run->how.expert_overlap && run->moe)
        append(w, "  overlap: {expert: 1}\n");
}

void published_job(const published *run, const fitted *by, bool lifted,
                   char text[JOB_TEXT])
{
    writer w = {.text = text};

    append(&w, "longhaul: job/1\nmodel: %s\n",
           published_map(run)              ? published_map(run)
           : strstr(run->model, "w/o MTP") ? without_mtp
                                           : published_model(run));
    append(&w,
           "training: {global_batch: %u, sequence: %u, precision: bf16, zero: "
           "1, ",
           run->batch, run->sequence);
    if (run->moe)
        append(&w, "dispatcher: %s, ", run->how.dispatcher);
    append_recompute(run, &w);
    append_framework(run, by, &w);
    append_cluster(run, lifted, &w);
    append_layout(run, &w);
}

static double fp8_rate(const published *run, const fitted *by)
{
    if (run->system[0] == 'H')
        return by->fp8[0];
    return by->fp8[strstr(run->system, "300") ? 2 : 1];
}

static lh_status plan_with(lh_job *job, const published *run, const fitted *by,
                           bool quick, lh_plan **plan, lh_error *err)
{
    const lh_plan_options options = {.size = sizeof options,
                                     .no_optimal = quick};
    const lh_datacenter *as_parsed = job->datacenters;
    lh_datacenter site = as_parsed[0]; /* the job has exactly one */
    lh_cost_constants constants = *lh_cost_defaults();
    lh_status status;

    site.gpu.fp8_tflops *= fp8_rate(run, by);
    constants.experts_efficiency = by->experts;
    constants.fused_experts_efficiency = by->fused_experts;
    constants.dispatch_ns = by->dispatch_ms * 1e6;
    constants.expert_ns = by->expert_ms * 1e6;
    job->datacenters = &site;
    job->constants = &constants;
    status = lh_plan_make(job, &options, plan, err);
    job->datacenters = as_parsed;
    job->constants = NULL;
    return status;
}

/* Parses a run's job into *job. */
static lh_status parse_run(const published *run, const fitted *by, bool lifted,
                           lh_job **job, lh_error *err)
{
    char text[JOB_TEXT];
    published_job(run, by, lifted, text);
    return lh_job_parse(text, strlen(text), "published", NULL, job, err);
}

/* Plans a run's job. Without `by` it skips the search for optimal schedules,
 * which takes seconds for each run whose schedule the planner chooses. */
static lh_status plan_run(const published *run, const fitted *by, bool lifted,
                          lh_plan **plan, lh_error *err)
{
    const fitted own = published_fitted();
    lh_job *job = NULL;
    lh_status status = parse_run(run, by, lifted, &job, err);

    if (status == LH_OK)
        status = plan_with(job, run, by ? by : &own, !by, plan, err);
    lh_job_free(job);
    return status;
}

/* Finds the memory in bytes that plans of a run may use on its GPU. */
static lh_status find_usable_bytes(const published *run, const fitted *by,
                                   double *usable, lh_error *err)
{
    lh_job *job = NULL;
    lh_status status = parse_run(run, by, false, &job, err);

    if (status == LH_OK)
        *usable = (double)lh_gpu_usable_bytes(&job->datacenters[0].gpu);
    lh_job_free(job);
    return status;
}

static bool print_reason(const published *run, const lh_error *err)
{
    fprintf(stderr, "validate-published: %s %s %s: %s\n", run->release,
            run->model, run->system, err->text);
    return false;
}

bool published_seconds(const published *run, const fitted *by, double *out)
{
    lh_plan *plan = NULL;
    lh_error err;

    if (plan_run(run, by, !has_unpublished_schedule(run), &plan, &err) != LH_OK)
        return print_reason(run, &err);
    *out = (double)plan->best.iteration_ns / 1e9;
    lh_plan_free(plan);
    return true;
}

/* Memory limits do not change a run's measured time. If our estimate exceeds
 * the memory, or fits only after layers move between chunks, time and peak come
 * from the same job on GPUs with more memory. If the planner chooses the
 * schedule, the memory limit applies. */
bool published_predict(const published *run, const fitted *by, prediction *out)
{
    lh_plan *used = NULL, *as_it_is = NULL;
    lh_error err;

    *out = (prediction){0};
    if (find_usable_bytes(run, by, &out->usable_bytes, &err) != LH_OK ||
        plan_run(run, by, !has_unpublished_schedule(run), &used, &err) != LH_OK)
        return print_reason(run, &err);
    out->seconds = (double)used->best.iteration_ns / 1e9;
    out->peak_bytes = (double)used->best.peak_memory_bytes;
    lh_plan_free(used);
    if (out->peak_bytes <= out->usable_bytes)
        return true;
    lh_status status = plan_run(run, by, false, &as_it_is, &err);
    lh_plan_free(as_it_is);
    out->exceeds_memory = status == LH_EINFEASIBLE;
    return status == LH_OK || out->exceeds_memory || print_reason(run, &err);
}
