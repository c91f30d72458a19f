/* SPDX-License-Identifier: Apache-2.0 */
/* Loads vTrain's runs: Megatron-DeepSpeed GPT in fp16 on nodes with eight A100.
 */
#include "validate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Appends the cluster: 800 Gbit/s per node (the authors' configuration files),
 * eight GPUs; NVLink 3 has 300 GB/s per GPU and direction. Latencies come from
 * the ring steps in the all-reduce tables and from typical InfiniBand. */
static void append_cluster(writer *w, uint32_t gpus)
{
    append(w,
           "cluster:\n"
           "  gpu: a100-80g\n"
           "  gpus_per_node: 8\n"
           "  node_link: {gbps: 2400, latency_us: 5}\n"
           "  fabric: {gbps: 100, latency_us: 10}\n"
           "  datacenters: [{name: kaist, nodes: %u}]\n",
           (gpus + 7) / 8);
}

/* Appends the model: Megatron-DeepSpeed's GPT-3 with its vocabulary of 50257
 * padded to a multiple of 128; all activations recomputed, no ZeRO. */
static void append_model(writer *w, uint32_t hidden, uint32_t heads,
                         uint32_t layers, uint32_t sequence)
{
    append(w,
           "longhaul: job/1\n"
           "model: {name: gpt, layers: %u, hidden: %u, ffn: %u, heads: %u, "
           "vocab: 50304, gated: false, tied_embeddings: true, "
           "qkv_bias: true, output_bias: true, mlp_bias: true, norm: layer, "
           "positions: %u}\n",
           layers, hidden, 4 * hidden, heads, sequence);
}

static bool make_run(const table *t, uint32_t row, run *r)
{
    char text[JOB_TEXT];
    writer w = {.text = text};
    uint32_t hidden = table_count(t, row, "hidden size");
    uint32_t layers = table_count(t, row, "# layers");
    uint32_t batch = table_count(t, row, "global batch");
    uint32_t micro = table_count(t, row, "micro batch");
    uint32_t sequence = table_count(t, row, "sequence length");
    uint32_t tensor = table_count(t, row, "tensor parallelism");
    uint32_t data = table_count(t, row, "data parallelism");
    uint32_t p = table_count(t, row, "pipeline parallelism");

    snprintf(r->name, sizeof r->name,
             "hidden %u layers %u batch %u micro %u t %u d %u p %u", hidden,
             layers, batch, micro, tensor, data, p);
    snprintf(r->group, sizeof r->group, "hidden %u layers %u batch %u, %u GPUs",
             hidden, layers, batch, tensor * data * p);
    r->measured_s = table_number(t, row, "iteration time (ms)") / 1e3;
    r->held_out = row % 2 == 1;
    append_model(&w, hidden, table_count(t, row, "attention heads"), layers,
                 sequence);
    append(&w,
           "training: {global_batch: %u, sequence: %u, precision: fp16, zero: "
           "0, recompute: full}\n"
           "framework: {preset: deepspeed, attention: unfused}\n",
           batch, sequence);
    append_cluster(&w, table_count(t, row, "# GPUs"));
    append(&w,
           "layout: {tensor: %u, context: 1, expert: 1, pipeline: %u, data: "
           "%u, micro_batch: %u, chunks_per_device: 1, outermost: pipeline, "
           "schedule: 1f1b, layers: [",
           tensor, p, data, micro);
    for (uint32_t i = 0; i < p; i++)
        append(&w, "%s%u", i ? ", " : "", layers / p);
    append(&w, "]}\n");
    return take_job(r, text);
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
        ok = make_run(&t, i, &out->runs[i]);
        out->n_runs++;
    }
    if (!ok)
        fprintf(stderr, "validate: %s/%s does not make sense\n", folder, file);
    table_fini(&t);
    return ok;
}

bool load_all_reduce(const char *folder, dataset *out)
{
    static const uint32_t gpus[] = {2, 4, 8};

    *out = (dataset){.name = "vtrain all-reduce",
                     .about = "vTrain: all-reduces inside a node, A100"};
    for (uint32_t k = 0; k < 3; k++) {
        char file[64], text[JOB_TEXT];
        writer w = {.text = text};
        table t;
        run *more;
        bool ok = true;

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
        append_model(&w, 1024, 16, 24, 1024);
        append(&w, "training: {global_batch: 1, sequence: 1024}\n");
        append_cluster(&w, 8);
        for (uint32_t i = 0; i < t.n_rows; i++) {
            run *r = &out->runs[out->n_runs++];

            *r = (run){.held_out = i % 2 == 1,
                       .all_reduce_gpus = gpus[k],
                       .all_reduce_bytes = table_number(&t, i, "size(B)"),
                       .measured_s = table_number(&t, i, "time(ns)") / 1e9};
            snprintf(r->name, sizeof r->name, "%u GPUs, %.0f bytes", gpus[k],
                     r->all_reduce_bytes);
            if (i == 0)
                ok = take_job(r, text);
            else
                r->job = r[-1].job;
        }
        table_fini(&t);
        if (!ok)
            return false;
    }
    return true;
}
