/* SPDX-License-Identifier: Apache-2.0 */
/* Builds ScaleAcross Explorer's workloads and topologies (2026) as job files.
 * Parameters that the paper withholds come from other publications and were not
 * tuned to the results; docs/papers/scaleacross-figures.md lists them. */
#define _POSIX_C_SOURCE 200809L
#include "scaleacross.h"

#include <longhaul.h>
#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/plan.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- workloads ---- */

/* Shapes and fractions of peak follow docs/papers/scaleacross.md; the degrees
 * follow table 2. */
workload across_dense_17b(uint32_t microbatches)
{
    return (workload){
        .name = "dense-17b",
        .model = "{layers: 48, hidden: 5120, ffn: 16384, heads: 40, vocab: "
                 "32000}",
        .training = "sequence: 8192, zero: 1, rings: pipelined",
        .framework = "overlap: {tensor: 1}",
        .gpu = "{preset: h100-sxm, efficiency: 0.47}",
        .layers = 48,
        .tensor = 8,
        .context = 1,
        .expert = 1,
        .pipeline = 2,
        .data = 4,
        .chunks = 24,
        .microbatch_size = 4,
        .microbatches = microbatches};
}

workload across_dense_17b_per_pass(uint32_t microbatches)
{
    workload w = across_dense_17b(microbatches);

    w.training = "sequence: 8192, zero: 3, rings: pipelined";
    return w;
}

static const char *mixture_preset(uint32_t experts)
{
    switch (experts) {
    case 16:
        return "{layers: 48, hidden: 2048, ffn: 1024, heads: 16, vocab: 32000, "
               "experts: 16, experts_per_token: 8, expert_ffn: 1024}";
    case 64:
        return "{layers: 48, hidden: 2048, ffn: 1024, heads: 16, vocab: 32000, "
               "experts: 64, experts_per_token: 8, expert_ffn: 1024}";
    default:
        return "{layers: 48, hidden: 2048, ffn: 1024, heads: 16, vocab: 32000, "
               "experts: 128, experts_per_token: 8, expert_ffn: 1024}";
    }
}

workload across_moe_40b(uint32_t experts, uint32_t microbatches)
{
    return (workload){.name = "moe-40b",
                      .model = mixture_preset(experts),
                      .training = "sequence: 8192, zero: 1, rings: pipelined",
                      .framework = "overlap: {tensor: 1, expert: 1}",
                      .gpu = "{preset: h100-sxm, efficiency: 0.25}",
                      .layers = 48,
                      .tensor = 4,
                      .context = 1,
                      .expert = 16,
                      .pipeline = 2,
                      .data = 16,
                      .chunks = 12,
                      .microbatch_size = 1,
                      .microbatches = microbatches};
}

workload across_moe_40b_narrow(uint32_t experts, uint32_t microbatches)
{
    workload w = across_moe_40b(experts, microbatches);

    w.framework = "gradients: bf16, reduce: bf16, overlap: {tensor: 1, expert: "
                  "1}";
    return w;
}

/* "31 chunks" with one layer on each of two stages make 62 layers. The layer
 * shape is Llama 4's (Meta, 2025: Scout has 16 experts, Maverick 128), for the
 * dense layer too. */
workload across_8k(uint32_t experts, uint32_t pipeline)
{
    static const char dense[] =
        "{layers: 62, hidden: 5120, ffn: 16384, heads: 40, kv_heads: 8, "
        "head_dim: 128, vocab: 202048}";
    static const char few[] =
        "{layers: 62, hidden: 5120, ffn: 16384, heads: 40, kv_heads: 8, "
        "head_dim: 128, vocab: 202048, experts: 16, experts_per_token: 1, "
        "expert_ffn: 8192, shared_expert_ffn: 8192}";
    static const char many[] =
        "{layers: 62, hidden: 5120, ffn: 16384, heads: 40, kv_heads: 8, "
        "head_dim: 128, vocab: 202048, experts: 128, experts_per_token: 1, "
        "expert_ffn: 8192, shared_expert_ffn: 8192}";

    return (workload){.name = "8k",
                      .model = !experts       ? dense
                               : experts > 16 ? many
                                              : few,
                      .training = "sequence: 8192, zero: 1",
                      .framework = NULL,
                      .gpu = "{preset: h100-sxm, memory_gib: 4000}",
                      .layers = 62,
                      .tensor = 4,
                      .context = 1,
                      .expert = experts ? 16 : 1,
                      .pipeline = pipeline,
                      .data = 2048 / pipeline,
                      .chunks = pipeline == 2 ? 31 : 64 / pipeline,
                      .microbatch_size = 1,
                      .microbatches = 2 * pipeline};
}

/* Llama 3 405B's layers (arXiv:2407.21783), 120 instead of 126 for equal
 * stages; its longest sequences with TP 8 and CP 16. Microbatches equal stages,
 * the minimum in section 3.1. Twelve stages exceed an H100's memory. */
workload across_100k(const topology *on)
{
    return (workload){.name = on->name,
                      .model = "{layers: 120, hidden: 16384, ffn: 53248, "
                               "heads: 128, kv_heads: 8, vocab: 128256}",
                      .training = "sequence: 131072, zero: 1",
                      .framework = NULL,
                      .gpu = on->pipeline < 20
                                 ? "{preset: h100-sxm, memory_gib: 160}"
                                 : "h100-sxm",
                      .layers = 120,
                      .tensor = 8,
                      .context = 16,
                      .expert = 1,
                      .pipeline = on->pipeline,
                      .data = on->replicas,
                      .chunks = 120 / on->pipeline,
                      .microbatch_size = 1,
                      .microbatches = on->pipeline};
}

/* The same layout with small layers and short sequences: layers of the shape of
 * Llama 3 70B, 4096 tokens, and the dense model's share of the peak. Of four
 * lengths (4096 to 32768) the one whose response to latency with pipelines
 * across buildings is nearest to figure 12's; 405B's layers stay below half of
 * that response. */
workload across_100k_short(const topology *on)
{
    workload w = across_100k(on);

    w.model = "{layers: 120, hidden: 8192, ffn: 28672, heads: 64, kv_heads: 8, "
              "vocab: 128256}";
    w.training = "sequence: 4096, zero: 1";
    w.gpu = "{preset: h100-sxm, efficiency: 0.47, memory_gib: 160}";
    return w;
}

/* ---- topologies ---- */

/* Table 3 lists the differences. Four buildings become five where one has 0.8
 * of the GPUs; three become four where one has 0.75. Each building has four
 * zones. Series A has no oversubscription inside a building, series B has 1:2
 * (the minimum in table 1). */
const topology *across_topology(const char *name)
{
    static const topology all[] = {
        {"A1", 4, 4, 1, 20, 40}, {"A2", 4, 4, 2, 20, 40},
        {"A3", 4, 4, 4, 20, 40}, {"A4", 5, 4, 1, 20, 40},
        {"B1", 3, 4, 2, 12, 60}, {"B2", 3, 4, 1, 12, 60},
        {"B3", 3, 4, 4, 12, 60}, {"B4", 4, 4, 2, 12, 60},
    };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(all[i].name, name) == 0)
            return &all[i];
    return NULL;
}

static const topology two_buildings = {"two", 2, 1, 1, 0, 0};

static uint32_t count_gpus(const workload *w)
{
    return w->tensor * w->context * w->pipeline * w->data;
}

/* ---- job text ---- */

static void print_buildings(FILE *to, const workload *w, const topology *on)
{
    uint32_t nodes = count_gpus(w) / on->buildings / 8;

    if (on->zones > 1)
        fprintf(to,
                "  zone_link: {gbps: 400, latency_us: 25, oversubscription: "
                "%g}\n",
                on->zone_oversubscription);
    fputs("  datacenters:\n", to);
    for (uint32_t b = 0; b < on->buildings; b++) {
        fprintf(to, "    - {name: b%" PRIu32, b);
        if (on->zones > 1)
            fputs(", zones: [", to);
        else
            fprintf(to, ", nodes: %" PRIu32 "}\n", nodes);
        for (uint32_t z = 0; z < on->zones && on->zones > 1; z++)
            fprintf(to, "%s{name: z%" PRIu32 ", nodes: %" PRIu32 "}%s",
                    z ? ", " : "", z, nodes / on->zones,
                    z + 1 == on->zones ? "]}\n" : "");
    }
}

static void print_links(FILE *to, const workload *w, const topology *on,
                        const crossing *c)
{
    double gbps = 400.0 * count_gpus(w) / on->buildings;

    fputs("  links:\n", to);
    for (uint32_t a = 0; a < on->buildings; a++)
        for (uint32_t b = a + 1; b < on->buildings; b++) {
            bool far = c->last_building_us > 0 && b + 1 == on->buildings;

            fprintf(to,
                    "    - {between: [b%" PRIu32 ", b%" PRIu32
                    "], latency_ms: %.9g, gbps: %.9g, oversubscription: %.9g",
                    a, b, (far ? c->last_building_us : c->latency_us) / 1e3,
                    gbps, c->oversubscription);
            fprintf(to, "%s%s}\n", c->link_keys ? ", " : "",
                    c->link_keys ? c->link_keys : "");
        }
}

/* Prints the sites: replicas within buildings, each with its pipeline across
 * the zones; or pipelines across buildings, with replicas inside the zones. */
static void print_sites(FILE *to, const workload *w, const topology *on,
                        outer outermost)
{
    bool data = outermost == DATA_OUT;
    uint32_t groups = data ? on->buildings : on->zones;
    uint32_t parts = data ? on->zones : on->buildings;

    fputs("  sites:\n", to);
    for (uint32_t g = 0; g < groups; g++) {
        fprintf(to, "    - {replicas: %" PRIu32 ", pipeline: [",
                w->data / groups);
        for (uint32_t i = 0; i < parts; i++)
            fprintf(to,
                    "%s{datacenter: b%" PRIu32 "/z%" PRIu32 ", stages: %" PRIu32
                    "}",
                    i ? ", " : "", data ? g : i, data ? i : g,
                    w->pipeline / parts);
        fputs("]}\n", to);
    }
}

/* Prints the layers per chunk. With more chunks than layers the end chunks are
 * empty; with fewer, the first ones have two layers. */
static void print_layers(FILE *to, const workload *w)
{
    uint32_t n = w->pipeline * w->chunks;
    uint32_t none = n > w->layers ? n - w->layers : 0;

    if (!none && !w->two_layer_chunks)
        return;
    fputs("  layers: [", to);
    for (uint32_t i = 0; i < n; i++) {
        bool empty = (i == 0 && none > 0) || (i + 1 == n && none > 1);

        fprintf(to, "%s%d", i ? ", " : "",
                empty                     ? 0
                : i < w->two_layer_chunks ? 2
                                          : 1);
    }
    fputs("]\n", to);
}

static void print_layout(FILE *to, const workload *w, const topology *on,
                         const crossing *c)
{
    if (c->layout || c->planner_layout) {
        if (c->layout)
            fprintf(to, "layout: {%s}\n", c->layout);
        return;
    }
    fprintf(to,
            "layout:\n  tensor: %" PRIu32 "\n  context: %" PRIu32
            "\n  pipeline: %" PRIu32 "\n  data: %" PRIu32
            "\n  micro_batch: %" PRIu32 "\n  chunks_per_device: %" PRIu32
            "\n  sharding: %s\n",
            w->tensor, w->context, w->pipeline, w->data, w->microbatch_size,
            w->chunks, c->sharding ? c->sharding : "full");
    if (w->expert > 1)
        fprintf(to, "  expert: %" PRIu32 "\n", w->expert);
    print_layers(to, w);
    if (on->zones > 1)
        print_sites(to, w, on, c->outermost);
    else
        fprintf(to, "  outermost: %s\n",
                c->outermost == DATA_OUT ? "data" : "pipeline");
}

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "validate-scaleacross: %s: %s\n", what, why);
    exit(1);
}

char *across_job_text(const workload *w, const topology *on, const crossing *c)
{
    char *text = NULL;
    size_t len;
    FILE *to = open_memstream(&text, &len);

    if (!to)
        fail(w->name, "no memory");
    on = on ? on : &two_buildings;
    fprintf(to,
            "longhaul: job/1\nmodel: %s\n"
            "training: {global_batch: %" PRIu32 ", %s}\n",
            w->model, w->microbatches * w->microbatch_size * w->data,
            w->training);
    if (w->framework)
        fprintf(to, "framework: {%s}\n", w->framework);
    fprintf(to,
            "cluster:\n  gpu: %s\n  gpus_per_node: 8\n"
            "  node_link: {gbps: 3600, latency_us: 3}\n"
            "  fabric: {gbps: 400, latency_us: 10}\n",
            w->gpu);
    print_buildings(to, w, on);
    print_links(to, w, on, c);
    print_layout(to, w, on, c);
    if (fclose(to) != 0)
        fail(w->name, "no memory");
    return text;
}

/* ---- times ---- */

static lh_job *read_job(const workload *w, const topology *on,
                        const crossing *c)
{
    char *text = across_job_text(w, on, c);
    lh_job *job = NULL;
    lh_error err;

    if (lh_job_parse(text, strlen(text), w->name, NULL, &job, &err) != LH_OK)
        fail(w->name, err.text);
    free(text);
    return job;
}

/* Changes the n_chunks chunks `all` of a pipeline. */
typedef void change_chunks(lh_chunk *all, const lh_pipeline_desc *d,
                           const void *by);

/* Rebuilds a pipeline with changed chunks and without memory limits. Frees the
 * old pipeline. */
static lh_pipeline *rebuild_with_chunks(lh_pipeline *old, change_chunks *change,
                                        const void *by)
{
    lh_pipeline_desc d = {.size = sizeof d};
    lh_pipeline *made;
    lh_chunk *chunks;
    lh_error err;

    if (lh_pipeline_describe(old, &d, &err) != LH_OK)
        fail("pipeline", err.text);
    chunks = malloc(d.n_chunks * sizeof *chunks);
    if (!chunks)
        fail("pipeline", "no memory");
    memcpy(chunks, d.chunks, d.n_chunks * sizeof *chunks);
    change(chunks, &d, by);
    d.chunks = chunks;
    d.memory_limits = NULL;
    if (lh_pipeline_make(&d, &made, &err) != LH_OK)
        fail("pipeline", err.text);
    free(chunks);
    lh_pipeline_free(old);
    return made;
}

/* Emulates ScaleAcross's interleaved ZBV. Its chunks run up and down the
 * devices more than once, and its finer split takes 4 % longer; the paper gives
 * neither the durations nor a memory limit. Both pipeline ranks are equal, so
 * chunk durations are unchanged. */
static void arrange_zbv_chunks(lh_chunk *all, const lh_pipeline_desc *d,
                               const void *by)
{
    const double split = *(const double *)by;

    for (uint32_t i = 0; i < d->n_chunks; i++) {
        all[i].d_ns = (int64_t)((double)all[i].d_ns * split);
        all[i].w_ns = (int64_t)((double)all[i].w_ns * split);
        if (i / d->n_devices % 2)
            all[i].device = d->n_devices - 1 - all[i].device;
    }
}

/* Adds ring latency to the collectives: they run one after the other, each with
 * the same total wait. */
static void add_ring_latency(lh_chunk *all, const lh_pipeline_desc *d,
                             const void *by)
{
    const double ns = *(const double *)by;

    for (uint32_t i = 0; i < d->n_chunks; i++) {
        all[i].all_gather_ns += (int64_t)ns;
        all[i].reduce_scatter_ns += (int64_t)ns;
        all[i].dp_latency_ns = 0;
    }
}

/* Returns the makespan in ns; exits with a message on error. */
static int64_t compute_makespan(const char *name, const lh_pipeline *p,
                                const char *method)
{
    lh_method_options how = {.size = sizeof how};
    lh_schedule *s;
    lh_timeline *t = NULL;
    lh_error err;
    int64_t ns;

    if (lh_method_run(method, p, &how, &s, NULL, &err) != LH_OK ||
        lh_simulate(p, s, NULL, &t, &err) != LH_OK)
        fail(name, err.text);
    ns = lh_timeline_makespan(t);
    lh_timeline_free(t);
    lh_schedule_free(s);
    return ns;
}

/* Returns the pipeline of a job's own layout. *after_ns: time after it in every
 * iteration. */
static lh_pipeline *build_pipeline(const workload *w, const topology *on,
                                   const crossing *c, int64_t *after_ns)
{
    lh_job *job = read_job(w, on, c);
    lh_layout layout = job->layout;
    lh_pipeline *p;
    lh_error err;

    layout.expert = w->expert;
    if (lh_plan_pipeline(job, &layout, LH_PLACEMENT_LOOP, LH_RECOMPUTE_NONE, &p,
                         after_ns, &err) != LH_OK)
        fail(w->name, err.text);
    lh_job_free(job);
    return p;
}

double across_seconds(const workload *w, const topology *on, const crossing *c,
                      const char *method)
{
    int64_t ns, after;
    lh_pipeline *p = build_pipeline(w, on, c, &after);

    if (strcmp(method, "interleaved-zbv") == 0)
        p = rebuild_with_chunks(p, arrange_zbv_chunks, &(double){1.04});
    if (c->flat_rings)
        p = rebuild_with_chunks(
            p, add_ring_latency,
            &(double){(w->data * w->context - 1.0) * 1e3 *
                      (c->outermost == DATA_OUT ? c->latency_us : 10)});
    ns = compute_makespan(w->name, p, method) + after;
    lh_pipeline_free(p);
    return (double)ns / 1e9;
}

/* Counts the passes per run of a schedule: passes of one kind and chunk without
 * one of the same kind and another chunk in between on the device. */
static double count_passes_per_run(const lh_schedule *s)
{
    double passes = 0, runs = 0;

    for (uint32_t device = 0; device < lh_schedule_n_devices(s); device++) {
        enum { KINDS = LH_B + 1 };
        uint32_t n, last[KINDS];
        const lh_pass *order = lh_schedule_order(s, device, &n);

        for (int kind = 0; kind < KINDS; kind++)
            last[kind] = UINT32_MAX;
        for (uint32_t i = 0; i < n; i++) {
            passes++;
            runs += order[i].chunk != last[order[i].kind];
            last[order[i].kind] = order[i].chunk;
        }
    }
    return passes / runs;
}

/* Returns the duration of a pass that takes `alone` ns without communication
 * and `sent` ns if all of it is exposed, if the communication is shared by a
 * run of `run` passes and proceeds beside the run before. */
static int64_t share_among_run(int64_t alone, int64_t sent, double run)
{
    const double waits = (double)(sent - alone) / run - (double)alone;

    return alone + (waits > 0 ? (int64_t)waits : 0);
}

/* The chunks of a pipeline without communication in passes, and the passes per
 * run. */
typedef struct run_sharing {
    const lh_chunk *alone;
    double passes;
} run_sharing;

/* Shares the communication of each pass of ZeRO 3 among a run's passes. */
static void share_communication(lh_chunk *all, const lh_pipeline_desc *d,
                                const void *by)
{
    const run_sharing *run = by;

    for (uint32_t i = 0; i < d->n_chunks; i++) {
        const lh_chunk *alone = &run->alone[i];

        all[i].f_ns = share_among_run(alone->f_ns, all[i].f_ns, run->passes);
        all[i].d_ns = share_among_run(alone->d_ns, all[i].d_ns, run->passes);
        all[i].w_ns = share_among_run(alone->w_ns, all[i].w_ns, run->passes);
    }
}

double across_fsdp_by_run_seconds(const workload *w, const crossing *c,
                                  const char *method)
{
    workload kept = *w, freed = *w;
    lh_pipeline_desc from = {.size = sizeof from};
    lh_method_options how = {.size = sizeof how};
    lh_schedule *s = NULL;
    lh_error err;
    int64_t ns, after, unused;

    kept.training = across_dense_17b(1).training;
    freed.training = across_dense_17b_per_pass(1).training;
    lh_pipeline *alone = build_pipeline(&kept, NULL, c, &unused);
    lh_pipeline *p = build_pipeline(&freed, NULL, c, &after);
    if (lh_pipeline_describe(alone, &from, &err) != LH_OK ||
        lh_method_run(method, alone, &how, &s, NULL, &err) != LH_OK)
        fail(w->name, err.text);
    p = rebuild_with_chunks(
        p, share_communication,
        &(run_sharing){from.chunks, count_passes_per_run(s)});
    ns = compute_makespan(w->name, p, method) + after;
    lh_schedule_free(s);
    lh_pipeline_free(alone);
    lh_pipeline_free(p);
    return (double)ns / 1e9;
}

/* Plans `w` with a free layout except for `layout`. Exits with a message on
 * error. */
static lh_plan *search_layouts(const workload *w, const topology *on,
                               const crossing *c, const char *layout,
                               lh_partition_search partition)
{
    crossing open = *c;
    lh_plan_options options = {
        .size = sizeof options, .partition = partition, .no_optimal = true};
    lh_plan *plan;
    lh_job *job;
    lh_error err;

    open.planner_layout = true;
    open.layout = layout;
    job = read_job(w, on, &open);
    if (lh_plan_make(job, &options, &plan, &err) != LH_OK)
        fail(w->name, err.text);
    lh_job_free(job);
    return plan;
}

across_plan across_best_plan(const workload *w, const topology *on,
                             const crossing *c, const char *layout)
{
    lh_plan *plan =
        search_layouts(w, on, c, layout, LH_PARTITION_HILL_CLIMBING);
    const lh_layout *best = &plan->best.layout;
    const across_plan found = {
        .seconds = (double)plan->best.iteration_ns / 1e9,
        .pipeline = best->pipeline,
        .data = best->data,
        .chunks = best->chunks_per_device,
        .microbatch_size = best->micro_batch,
        .microbatches = w->microbatch_size * w->microbatches * w->data /
                        (best->data * best->micro_batch),
        .pipeline_out = best->outermost == LH_OUTERMOST_PIPELINE};

    lh_plan_free(plan);
    return found;
}

double across_best_seconds(const workload *w, const topology *on,
                           const crossing *c, const char *layout)
{
    return across_best_plan(w, on, c, layout).seconds;
}

across_search across_search_layouts(const workload *w, const crossing *c,
                                    bool sampled)
{
    lh_plan *plan = search_layouts(w, NULL, c, NULL,
                                   sampled ? LH_PARTITION_MONTE_CARLO
                                           : LH_PARTITION_HILL_CLIMBING);
    across_search found = {(double)plan->best.iteration_ns / 1e9,
                           plan->n_simulated};

    lh_plan_free(plan);
    return found;
}
