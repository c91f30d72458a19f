/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
/* Loads Sailor's runs: Megatron-DeepSpeed in fp32 on nodes with four GH200
 * (clariden) and on nodes with RTX 3090, RTX 2080 and Titan RTX (mit). */
#include "validate.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEQUENCE = 2048, MAX_NODES = 64 };

const double sailor_gh200_share = 0.2162, sailor_mit_share = 0.791;

/* Model shape. */
typedef struct shape {
    const char *name;
    uint32_t layers, hidden, heads;
} shape;

static const shape opt = {"OPT-350", 24, 1024, 16};
static const shape neo = {"GPT-Neo-2.7", 32, 2560, 32};

/* GPU of the data: its name and description in a job. GH200: the preset has
 * 16-bit tensor operations, while fp32 training runs in TF32 at half the speed
 * (NVIDIA H100 data sheet: 494 dense). The other GPUs' passes are all measured.
 */
typedef struct gpu {
    const char *name, *job_name, *text;
} gpu;

static const gpu gpus[] = {
    {"GH-96", "gh200", "{preset: gh200, tflops: 494.75}"},
    {"RTX-3090", "rtx-3090",
     "{name: rtx-3090, tflops: 35.6, memory_gib: 24, memory_gbps: 936}"},
    {"RTX-2080", "rtx-2080",
     "{name: rtx-2080, tflops: 10.1, memory_gib: 8, memory_gbps: 448}"},
    {"Titan-RTX", "titan-rtx",
     "{name: titan-rtx, tflops: 16.3, memory_gib: 24, memory_gbps: 672}"},
};

static const gpu *find_gpu(const char *name)
{
    for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++)
        if (!strcmp(gpus[i].name, name))
            return &gpus[i];
    fprintf(stderr, "validate: no GPU '%s'\n", name);
    return NULL;
}

/* Appends the model. The authors' parameter count includes the embedding matrix
 * at both ends. */
static void append_model(writer *w, const shape *m)
{
    append(w,
           "longhaul: job/1\n"
           "model: {name: %s, layers: %u, hidden: %u, ffn: %u, heads: %u, "
           "vocab: 50304, gated: false, tied_embeddings: true, "
           "qkv_bias: true, output_bias: true, mlp_bias: true, norm: layer, "
           "positions: %u}\n",
           m->name, m->layers, m->hidden, 4 * m->hidden, m->heads, SEQUENCE);
}

/* Appends profile entries for one microbatch: embedding, a layer (the mean of
 * all), head. Upstream gives the backward pass as one number, which suffices
 * for a joint backward. */
static bool append_entries(writer *w, const json_t *layers, uint32_t micro,
                           uint32_t tensor, const shape *m, const gpu *g)
{
    static const char *const kinds[] = {"embedding", "layer", "head"};

    if (json_object_size(layers) != m->layers + 2)
        return false;
    for (uint32_t part = 0; part < 3; part++) {
        uint32_t first = part == 0 ? 0 : part == 1 ? 1 : m->layers + 1;
        uint32_t count = part == 1 ? m->layers : 1;
        double f = 0, b = 0;

        for (uint32_t i = first; i < first + count; i++) {
            char key[16];
            const json_t *times;

            snprintf(key, sizeof key, "%u", i);
            times = json_object_get(layers, key);
            f += json_number_value(json_array_get(times, 0)) / count;
            b += json_number_value(json_array_get(times, 1)) / count;
        }
        append(w,
               "    - {kind: %s, gpu: %s, tensor: %u, micro_batch: %u, "
               "sequence: %u, communication: true, F_us: %.3f, D_us: %.3f, "
               "W_us: %.3f}\n",
               kinds[part], g->job_name, tensor, micro, SEQUENCE, f * 1e6,
               b * 5e5, b * 5e5);
    }
    return true;
}

/* Appends the profile measured on one GPU type, at the run's tensor degree. */
static bool append_profile(writer *w, const char *folder, const char *prefix,
                           const shape *m, const gpu *g, const char *tensor)
{
    char path[512];
    json_error_t where;
    json_t *root, *by_tensor;
    const char *micro;
    bool ok = true;

    snprintf(path, sizeof path, "%s/%s%s__%s.json", folder, prefix, m->name,
             g->name);
    root = json_load_file(path, 0, &where);
    if (!root && *prefix) { /* only some have a variant */
        snprintf(path, sizeof path, "%s/%s__%s.json", folder, m->name, g->name);
        root = json_load_file(path, 0, &where);
    }
    if (!root) {
        fprintf(stderr, "validate: %s: %s\n", path, where.text);
        return false;
    }
    json_object_foreach(root, micro, by_tensor)
    {
        const json_t *layers = json_object_get(by_tensor, tensor);

        if (ok && layers)
            ok = append_entries(w, layers, (uint32_t)atoi(micro),
                                (uint32_t)atoi(tensor), m, g);
    }
    json_decref(root);
    return ok;
}

/* Returns the measured bytes per second between GPUs on different nodes. */
static double measured_rate(const char *folder, const char *kind,
                            const char *per_node)
{
    char path[512];
    json_t *root;
    double rate = 0;

    snprintf(path, sizeof path, "%s/network_coeffs_all_homo.json", folder);
    root = json_load_file(path, 0, NULL);
    rate = json_number_value(json_array_get(
        json_object_get(json_object_get(json_object_get(root, "inter"), kind),
                        per_node),
        1));
    json_decref(root);
    return rate;
}

static const char *reason_to_exclude(const char *file)
{
    if (strstr(file, "GPT-NEO/N4/plan_config_N4_D4"))
        return "another model's measurement (26 layers, all of it gradient "
               "reduction)";
    if (strstr(file, "mit/N3/plan_config_N3_D1") ||
        strstr(file, "mit/N6/plan_config_N6_D2"))
        return "two layouts with the same measurement to the last digit";
    return NULL;
}

/* GPUs of a run: for each stage its replicas in order. */
typedef struct nodes {
    uint32_t stages, replicas, n;
    const gpu *at[MAX_NODES]; /* [stage * replicas + replica] */
    bool used[sizeof gpus / sizeof *gpus];
} nodes;

/* Parses "A+B|C": replicas per stage; replicas beyond those listed repeat the
 * last. */
static bool read_nodes(const table *t, uint32_t row, nodes *out)
{
    char text[256], *save = NULL, *stage;

    *out = (nodes){.stages = table_count(t, row, "pp"),
                   .replicas = table_count(t, row, "dp")};
    snprintf(text, sizeof text, "%s",
             table_text(t, row, "gpu_types_per_stage"));
    stage = strtok_r(text, "|", &save);
    for (uint32_t i = 0; i < out->stages; i++) {
        char *inner = NULL, *name = stage ? strtok_r(stage, "+", &inner) : NULL;
        const gpu *g = NULL;

        for (uint32_t k = 0; k < out->replicas; k++) {
            if (name && !(g = find_gpu(name)))
                return false;
            if (!g || out->n == MAX_NODES)
                return false;
            out->at[out->n++] = g;
            out->used[g - gpus] = true;
            if (name)
                name = strtok_r(NULL, "+", &inner);
        }
        stage = strtok_r(NULL, "|", &save);
    }
    return out->n > 0;
}

/* Appends nodes with four GPUs, 150 GB/s between each pair over NVLink 4. */
static void append_clariden(writer *w, const char *folder, const table *t,
                            uint32_t row)
{
    uint32_t count = table_count(t, row, "nodes");

    append(w,
           "cluster:\n"
           "  gpu: %s\n"
           "  gpus_per_node: %u\n"
           "  node_link: {gbps: 1200, latency_us: 5}\n"
           "  fabric: {gbps: %.6g, latency_us: 10}\n"
           "  datacenters: [{name: clariden, nodes: %u}]\n",
           gpus[0].text, table_count(t, row, "gpus") / count,
           sailor_gh200_share * measured_rate(folder, "GH-96", "1") * 8e-9,
           count);
}

/* Appends one node per replica and stage, each a separate site with its own
 * GPUs. A gigabit interface shared by the node's GPUs connects each pair;
 * measured with the RTX 3090. */
static void append_mit(writer *w, const char *folder, const table *t,
                       uint32_t row, const nodes *n)
{
    double gbps =
        sailor_mit_share * measured_rate(folder, "RTX-3090", "8") * 8e-9;

    append(w,
           "cluster:\n"
           "  gpu: %s\n"
           "  gpus_per_node: %u\n"
           "  node_link: {gbps: 1200, latency_us: 5}\n"
           "  fabric: {gbps: %.6g, latency_us: 50}\n"
           "  datacenters:\n",
           gpus[1].text, table_count(t, row, "tp"), gbps);
    for (uint32_t i = 0; i < n->n; i++)
        append(w, "    - {name: n%u, nodes: 1, gpu: %s}\n", i, n->at[i]->text);
    if (n->n > 1)
        append(w, "  links:\n");
    for (uint32_t i = 0; i < n->n; i++)
        for (uint32_t k = i + 1; k < n->n; k++)
            append(w,
                   "    - {between: [n%u, n%u], latency_ms: 0.05, gbps: "
                   "%.6g}\n",
                   i, k, gbps);
}

/* Appends the layout: "12|14" gives the layers per stage, with embedding and
 * head counted as layers. */
static void append_layout(writer *w, const table *t, uint32_t row,
                          const nodes *n, bool mit)
{
    const char *counts = table_text(t, row, "layers_per_stage");

    append(w,
           "layout:\n"
           "  tensor: %u\n  context: 1\n  expert: 1\n  pipeline: %u\n"
           "  data: %u\n  micro_batch: %u\n  chunks_per_device: 1\n"
           "  schedule: 1f1b\n",
           table_count(t, row, "tp"), n->stages, n->replicas,
           table_count(t, row, "mbs"));
    if (!mit)
        append(w, "  outermost: pipeline\n");
    append(w, "  layers: [");
    for (uint32_t i = 0; i < n->stages; i++) {
        uint32_t layers = (uint32_t)strtoul(counts, NULL, 10);

        append(w, "%s%u", i ? ", " : "",
               layers - (i == 0) - (i + 1 == n->stages));
        counts = strchr(counts, '|');
        counts = counts ? counts + 1 : "0";
    }
    append(w, "]\n");
    if (mit)
        append(w, "  sites:\n");
    for (uint32_t k = 0; mit && k < n->replicas; k++) {
        append(w, "    - replicas: 1\n      pipeline: [");
        for (uint32_t i = 0; i < n->stages; i++)
            append(w, "%s{datacenter: n%u, stages: 1}", i ? ", " : "",
                   i * n->replicas + k);
        append(w, "]\n");
    }
}

/* Builds a run: DeepSpeed's engine, gradients in fp32, and no dropout masks in
 * the authors' activation size per layer (llm_info.json). */
static bool make_run(const char *folder, const char *prefix, const table *t,
                     uint32_t row, run *r)
{
    static char text[JOB_TEXT];
    writer w = {.text = text};
    const char *file = table_text(t, row, "file");
    const char *model = table_text(t, row, "model");
    const shape *m = !strcmp(model, opt.name) ? &opt : &neo;
    bool mit = !strcmp(table_text(t, row, "cluster"), "mit");
    nodes n;

    snprintf(r->name, sizeof r->name, "%s", file);
    snprintf(r->group, sizeof r->group, "%s batch %s, %s GPUs", model,
             table_text(t, row, "gbs"), table_text(t, row, "gpus"));
    r->excluded = reason_to_exclude(file);
    r->measured_s = table_number(t, row, "measured_iter_s");
    r->measured_bytes = table_number(t, row, "measured_max_mem_bytes");
    if (r->excluded)
        return true;
    if (!read_nodes(t, row, &n))
        return false;
    append_model(&w, m);
    append(&w,
           "training: {global_batch: %u, sequence: %u, precision: fp32, zero: "
           "0, recompute: none, dropout: false}\n"
           "framework: {preset: deepspeed, attention: unfused}\n",
           table_count(t, row, "gbs"), SEQUENCE);
    if (mit)
        append_mit(&w, folder, t, row, &n);
    else
        append_clariden(&w, folder, t, row);
    append_layout(&w, t, row, &n, mit);
    if (!prefix)
        return take_job(r, text);
    append(&w, "profile:\n  longhaul: profile/1\n  entries:\n");
    for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++)
        if (n.used[i] && !append_profile(&w, folder, prefix, m, &gpus[i],
                                         table_text(t, row, "tp")))
            return false;
    return take_job(r, text);
}

bool load_sailor(const char *folder, const char *name, const char *cluster,
                 const char *profiles, dataset *out)
{
    table t;
    uint32_t counted = 0;
    bool ok;

    *out = (dataset){.name = name,
                     .about = "Sailor: OPT 350M and GPT-Neo "
                              "2.7B, Megatron-DeepSpeed"};
    if (!table_read(folder, "measured_runs.csv", &t))
        return false;
    out->runs = calloc(t.n_rows, sizeof *out->runs);
    ok = out->runs != NULL;
    for (uint32_t i = 0; ok && i < t.n_rows; i++) {
        run *r = &out->runs[out->n_runs];

        if (strcmp(table_text(&t, i, "cluster"), cluster) != 0)
            continue;
        ok = make_run(folder, profiles, &t, i, r);
        if (!r->excluded)
            r->held_out = counted++ % 2 == 1;
        out->n_runs++;
    }
    if (!ok)
        fprintf(stderr, "validate: %s/measured_runs.csv does not make sense\n",
                folder);
    table_fini(&t);
    return ok;
}
