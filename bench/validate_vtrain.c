/* SPDX-License-Identifier: Apache-2.0 */
/* vTrain's runs: Megatron-DeepSpeed GPT in fp16 on nodes of eight A100. */
#include "validate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a run needs, in one piece. */
typedef struct setup {
    lh_model model;
    lh_datacenter site;
    lh_wan none;
    lh_job job;
} setup;

/* 800 Gbit/s per node (the authors' configuration files), eight GPUs; NVLink 3
 * has 300 GB/s per GPU and direction. Latencies: of the ring steps in the
 * all-reduce tables, and the usual one of InfiniBand. */
static void make_site(lh_datacenter *site, uint32_t gpus)
{
    *site = (lh_datacenter){
        .name = "kaist",
        .nodes = (gpus + 7) / 8,
        .gpus_per_node = 8,
        .gpu = *lh_gpu_preset("a100-80g"),
        .node_link = {.gbps = 2400, .bytes_per_s = 300e9, .latency_ns = 5000},
        .fabric = {.gbps = 100, .bytes_per_s = 12.5e9, .latency_ns = 10000},
    };
    site->gpus = site->nodes * 8;
}

static void make_setup(const table *t, uint32_t row, setup *s)
{
    uint32_t hidden = table_count(t, row, "hidden size");
    uint32_t heads = table_count(t, row, "attention heads");
    uint32_t gpus = table_count(t, row, "# GPUs");

    s->model = (lh_model){
        .name = "gpt",
        .layers = table_count(t, row, "# layers"),
        .hidden = hidden,
        .ffn = 4 * hidden,
        .vocab = 50304, /* 50257, padded to a multiple of 128 */
        .heads = heads,
        .kv_heads = heads,
        .head_dim = hidden / heads,
        .tied_embeddings = true,
        .qkv_bias = true,
        .output_bias = true,
        .mlp_bias = true,
        .norm = LH_NORM_LAYER,
        .positions = table_count(t, row, "sequence length"),
    };
    make_site(&s->site, gpus);
    s->job = (lh_job){
        .name = "vtrain",
        .model = &s->model,
        .training = {.global_batch = table_count(t, row, "global batch"),
                     .sequence = s->model.positions,
                     .precision = LH_PRECISION_FP16,
                     .recompute = LH_RECOMPUTE_FULL},
        .n_datacenters = 1,
        .datacenters = &s->site,
        .wans = &s->none,
        .n_gpus = s->site.gpus,
        .n_nodes = s->site.nodes,
    };
}

static bool make_run(const table *t, uint32_t row, dataset *set, run *r)
{
    setup *s = calloc(1, sizeof *s);
    uint32_t p, layers;

    if (!dataset_own(set, s))
        return false;
    make_setup(t, row, s);
    r->job = &s->job;
    r->measured_s = table_number(t, row, "iteration time (ms)") / 1e3;
    r->held_out = row % 2 == 1;
    r->layout = (lh_layout){
        .tensor = table_count(t, row, "tensor parallelism"),
        .context = 1,
        .expert = 1,
        .pipeline = table_count(t, row, "pipeline parallelism"),
        .data = table_count(t, row, "data parallelism"),
        .micro_batch = table_count(t, row, "micro batch"),
        .chunks_per_device = 1,
        .outermost = LH_OUTERMOST_PIPELINE,
    };
    r->options = (lh_cost_options){.size = sizeof r->options,
                                   .unfused_attention = true,
                                   .no_sequence_parallel = true,
                                   .gradient_bytes = 2,
                                   .gradient_wire_bytes = 2};
    p = r->layout.pipeline;
    layers = s->model.layers / (p ? p : 1);
    if (!p || p > MAX_STAGES || !r->layout.data || !r->layout.micro_batch)
        return false;
    r->n_microbatches =
        s->job.training.global_batch / (r->layout.data * r->layout.micro_batch);
    r->n_stages = p;
    for (uint32_t i = 0; i < p; i++) {
        r->stages[i].n_jobs = 1;
        r->stages[i].jobs[0] = &s->job;
        r->stages[i].slice = (lh_cost_slice){.first_layer = i * layers,
                                             .n_layers = layers,
                                             .embedding = i == 0,
                                             .head = i == p - 1};
    }
    snprintf(r->name, sizeof r->name,
             "hidden %u layers %u batch %u micro %u t %u d %u p %u",
             s->model.hidden, s->model.layers, s->job.training.global_batch,
             r->layout.micro_batch, r->layout.tensor, r->layout.data, p);
    snprintf(r->group, sizeof r->group, "hidden %u layers %u batch %u, %u GPUs",
             s->model.hidden, s->model.layers, s->job.training.global_batch,
             r->layout.tensor * r->layout.data * p);
    return true;
}

bool load_vtrain(const char *folder, const char *file, const char *name,
                 dataset *out)
{
    table t;
    bool ok;

    *out = (dataset){.name = name,
                     .about = "vTrain: GPT, Megatron-DeepSpeed, A100"};
    if (!table_read(folder, file, &t))
        return false;
    out->runs = calloc(t.n_rows, sizeof *out->runs);
    ok = out->runs != NULL;
    for (uint32_t i = 0; ok && i < t.n_rows; i++) {
        ok = make_run(&t, i, out, &out->runs[i]);
        out->n_runs += ok;
    }
    if (!ok)
        fprintf(stderr, "validate: %s/%s does not make sense\n", folder, file);
    table_fini(&t);
    return ok;
}

bool load_all_reduce(const char *folder, dataset *out)
{
    static const uint32_t gpus[] = {2, 4, 8};
    setup *s = calloc(1, sizeof *s);

    *out = (dataset){.name = "vtrain all-reduce",
                     .about = "vTrain: all-reduces inside a node, A100"};
    if (!dataset_own(out, s))
        return false;
    make_site(&s->site, 8);
    s->job = (lh_job){.name = "vtrain",
                      .n_datacenters = 1,
                      .datacenters = &s->site,
                      .wans = &s->none};
    for (uint32_t k = 0; k < 3; k++) {
        char file[64];
        table t;
        run *more;

        snprintf(file, sizeof file, "a100_allreduce_gpu%u_every8th.csv",
                 gpus[k]);
        if (!table_read(folder, file, &t))
            return false;
        more = realloc(out->runs, (out->n_runs + t.n_rows) * sizeof *more);
        if (!more) {
            table_fini(&t);
            return false;
        }
        out->runs = more;
        for (uint32_t i = 0; i < t.n_rows; i++) {
            run *r = &out->runs[out->n_runs++];

            *r = (run){.job = &s->job,
                       .held_out = i % 2 == 1,
                       .all_reduce_gpus = gpus[k],
                       .all_reduce_bytes = table_number(&t, i, "size(B)"),
                       .measured_s = table_number(&t, i, "time(ns)") / 1e9};
            snprintf(r->name, sizeof r->name, "%u GPUs, %.0f bytes", gpus[k],
                     r->all_reduce_bytes);
        }
        table_fini(&t);
    }
    return true;
}
