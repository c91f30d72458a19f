/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
/* Sailor's runs: Megatron-DeepSpeed in fp32 on nodes of four GH200 (clariden)
 * and on nodes with RTX 3090, RTX 2080 and Titan RTX (mit). */
#include "validate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct setup {
    lh_model model;
    lh_datacenter site;
    lh_wan none;
    lh_profile profile;
    lh_job job;
} setup;

enum { SEQUENCE = 2048 };

static void make_model(const char *name, lh_model *out)
{
    bool opt = !strcmp(name, "OPT-350");
    uint32_t hidden = opt ? 1024 : 2560;

    *out = (lh_model){
        .name = opt ? "OPT-350" : "GPT-Neo-2.7",
        .layers = opt ? 24 : 32,
        .hidden = hidden,
        .ffn = 4 * hidden,
        .vocab = 50304,
        .heads = opt ? 16 : 32,
        .kv_heads = opt ? 16 : 32,
        .head_dim = opt ? 64 : 80,
        /* Their own count of parameters has the matrix at both ends. */
        .tied_embeddings = true,
        .qkv_bias = true,
        .output_bias = true,
        .mlp_bias = true,
        .norm = LH_NORM_LAYER,
        .positions = SEQUENCE,
    };
}

/* Entries of one microbatch and tensor degree: embedding, a layer (the mean of
 * all), head. Upstream's backward is one number; a joint backward needs no
 * more. */
static bool add_entries(const json_t *layers, uint32_t micro, uint32_t tensor,
                        const lh_model *m, lh_profile_entry *out)
{
    size_t n = json_object_size(layers);

    if (n != m->layers + 2)
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
        out[part] = (lh_profile_entry){
            .kind = part == 0   ? LH_PROFILE_EMBEDDING
                    : part == 1 ? LH_PROFILE_LAYER
                                : LH_PROFILE_HEAD,
            .tensor = tensor,
            .context = 1,
            .expert = 1,
            .micro_batch = micro,
            .sequence = SEQUENCE,
            .communication = true,
            .f_ns = (int64_t)(f * 1e9),
            .d_ns = (int64_t)(b * 5e8),
            .w_ns = (int64_t)(b * 5e8),
            .activation_bytes = LH_NOT_MEASURED,
            .static_bytes = LH_NOT_MEASURED,
        };
    }
    return true;
}

static bool load_profile(const char *folder, const char *prefix,
                         const char *model, const char *gpu, dataset *set,
                         const lh_model *m, lh_profile *out)
{
    char path[512];
    json_error_t where;
    json_t *root, *by_tensor, *layers;
    const char *micro, *tensor;
    lh_profile_entry *entries = calloc(512, sizeof *entries);
    uint32_t n = 0;
    bool ok = dataset_own(set, entries);

    snprintf(path, sizeof path, "%s/%s%s__%s.json", folder, prefix, model, gpu);
    root = json_load_file(path, 0, &where);
    if (!root && *prefix) { /* only some have a variant */
        snprintf(path, sizeof path, "%s/%s__%s.json", folder, model, gpu);
        root = json_load_file(path, 0, &where);
    }
    if (!root) {
        fprintf(stderr, "validate: %s: %s\n", path, where.text);
        return false;
    }
    json_object_foreach(root, micro, by_tensor)
        json_object_foreach(by_tensor, tensor, layers) if (ok && n + 3 <= 512)
    {
        ok = add_entries(layers, (uint32_t)atoi(micro), (uint32_t)atoi(tensor),
                         m, entries + n);
        n += 3;
    }
    json_decref(root);
    *out = (lh_profile){.name = gpu, .n_entries = n, .entries = entries};
    return ok;
}

/* Measured bytes per second of a GPU to another node. */
static double measured_rate(const char *folder, const char *gpu,
                            const char *gpus)
{
    char path[512];
    json_t *root;
    double rate = 0;

    snprintf(path, sizeof path, "%s/network_coeffs_all_homo.json", folder);
    root = json_load_file(path, 0, NULL);
    rate = json_number_value(json_array_get(
        json_object_get(json_object_get(json_object_get(root, "inter"), gpu),
                        gpus),
        1));
    json_decref(root);
    return rate;
}

/* GH200: the preset has 16-bit tensor operations; fp32 training there runs in
 * TF32, half as fast (NVIDIA H100 data sheet: 494 dense). The others are only
 * used with profiles, and have 24 GiB of memory, the RTX 2080 8. */
static void make_gpu(const char *name, lh_gpu *out)
{
    *out = *lh_gpu_preset("gh200");
    if (strcmp(name, "GH-96") != 0)
        out->memory_bytes = (strcmp(name, "RTX-2080") ? 24LL : 8LL) << 30;
    out->name = name;
    out->tflops /= 2;
    out->flops_per_s /= 2;
    out->efficiency = 0;
}

static bool make_job(const char *folder, const char *prefix, const table *t,
                     uint32_t row, const char *gpu, dataset *set,
                     const lh_job **out)
{
    setup *s = calloc(1, sizeof *s);
    bool mit = !strcmp(table_text(t, row, "cluster"), "mit");
    uint32_t used = table_count(t, row, "gpus") / table_count(t, row, "nodes");
    char *name = strdup(gpu);

    if (!dataset_own(set, s) || !dataset_own(set, name))
        return false;
    make_model(table_text(t, row, "model"), &s->model);
    s->site = (lh_datacenter){
        .name = mit ? "mit" : "clariden",
        .nodes = table_count(t, row, "nodes"),
        .gpus_per_node = used,
        .gpus = table_count(t, row, "gpus"),
        /* NVLink 4 between four GH200: 150 GB/s to each of the others. */
        .node_link = {.bytes_per_s = 150e9, .latency_ns = 5000},
        .fabric = {.latency_ns = mit ? 50000 : 10000},
    };
    make_gpu(name, &s->site.gpu);
    /* mit: pairs of different GPUs are joined by one gigabit interface per
     * node, which the GPUs used share; measured with the RTX 3090. */
    s->site.fabric.bytes_per_s =
        mit ? measured_rate(folder, "RTX-3090", "8") / used
            : measured_rate(folder, "GH-96", "1");
    s->job = (lh_job){
        .name = "sailor",
        .model = &s->model,
        .training = {.global_batch = table_count(t, row, "gbs"),
                     .sequence = SEQUENCE,
                     .precision = LH_PRECISION_FP32},
        .n_datacenters = 1,
        .datacenters = &s->site,
        .wans = &s->none,
        .n_gpus = s->site.gpus,
        .n_nodes = s->site.nodes,
    };
    if (prefix) {
        if (!load_profile(folder, prefix, s->model.name, gpu, set, &s->model,
                          &s->profile))
            return false;
        s->job.profile = &s->profile;
    }
    *out = &s->job;
    return true;
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

/* "12|14": layers of each stage, embedding and head counted as layers. */
static bool make_stages(const char *folder, const char *prefix, const table *t,
                        uint32_t row, dataset *set, run *r)
{
    const char *counts = table_text(t, row, "layers_per_stage");
    char gpus[256], *save = NULL, *of_stage;
    uint32_t at = 0;

    snprintf(gpus, sizeof gpus, "%s",
             table_text(t, row, "gpu_types_per_stage"));
    of_stage = strtok_r(gpus, "|", &save);
    for (uint32_t i = 0; i < r->n_stages; i++) {
        stage *s = &r->stages[i];
        uint32_t count = (uint32_t)strtoul(counts, NULL, 10);
        char *inner = NULL,
             *gpu = of_stage ? strtok_r(of_stage, "+", &inner) : NULL;

        s->slice.embedding = i == 0;
        s->slice.head = i == r->n_stages - 1;
        s->slice.first_layer = i == 0 ? 0 : at - 1;
        s->slice.n_layers = count - s->slice.embedding - s->slice.head;
        at += count;
        for (; gpu && s->n_jobs < 4; gpu = strtok_r(NULL, "+", &inner))
            if (!make_job(folder, prefix, t, row, gpu, set,
                          &s->jobs[s->n_jobs++]))
                return false;
        of_stage = strtok_r(NULL, "|", &save);
        counts = strchr(counts, '|');
        counts = counts ? counts + 1 : "0";
        if (!s->n_jobs)
            return false;
    }
    r->job = r->stages[0].jobs[0];
    return true;
}

static bool make_run(const char *folder, const char *prefix, const table *t,
                     uint32_t row, dataset *set, run *r)
{
    const char *file = table_text(t, row, "file");
    uint32_t per_step;

    snprintf(r->name, sizeof r->name, "%s", file);
    snprintf(r->group, sizeof r->group, "%s batch %s, %s GPUs",
             table_text(t, row, "model"), table_text(t, row, "gbs"),
             table_text(t, row, "gpus"));
    r->excluded = reason_to_exclude(file);
    r->measured_s = table_number(t, row, "measured_iter_s");
    r->measured_bytes = table_number(t, row, "measured_max_mem_bytes");
    r->layout = (lh_layout){
        .tensor = table_count(t, row, "tp"),
        .context = 1,
        .expert = 1,
        .pipeline = table_count(t, row, "pp"),
        .data = table_count(t, row, "dp"),
        .micro_batch = table_count(t, row, "mbs"),
        .chunks_per_device = 1,
        .outermost = LH_OUTERMOST_PIPELINE,
    };
    r->options = (lh_cost_options){.size = sizeof r->options,
                                   .unfused_attention = true,
                                   .no_sequence_parallel = true,
                                   /* Their count of what a layer keeps
                                    * (llm_info.json) has no masks. */
                                   .no_dropout = true,
                                   .gradient_bytes = 4,
                                   .gradient_wire_bytes = 4};
    r->n_stages = r->layout.pipeline;
    per_step = r->layout.data * r->layout.micro_batch;
    if (!r->n_stages || r->n_stages > MAX_STAGES || !per_step)
        return false;
    r->n_microbatches = table_count(t, row, "gbs") / per_step;
    return make_stages(folder, prefix, t, row, set, r);
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
        ok = make_run(folder, profiles, &t, i, out, r);
        if (!r->excluded)
            r->held_out = counted++ % 2 == 1;
        out->n_runs += ok;
    }
    if (!ok)
        fprintf(stderr, "validate: %s/measured_runs.csv does not make sense\n",
                folder);
    table_fini(&t);
    return ok;
}
