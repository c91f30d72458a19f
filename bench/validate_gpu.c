/* SPDX-License-Identifier: Apache-2.0 */
/* Compares layers measured on a GPU with the cost model.
 *
 *     validate-gpu [--check PAGE [--quick] | --write PAGE] [FOLDER]
 *
 * FOLDER contains several models' profiles (default data/profiles). The
 * comparison covers arithmetic only: the measurements include neither
 * communication nor host time. Without arguments the parts are printed. */
#include "page_section.h"

#include <longhaul.h>
#include <longhaul/experimental/cost.h>
#include <longhaul/experimental/profile.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One microbatch's cost. */
typedef struct pass_costs {
    double f, d, w; /* ms */
    double kept;    /* bytes, from F to W */
} pass_costs;

/* An entry's measured and predicted cost. */
typedef struct compared {
    const lh_profile_entry *entry;
    pass_costs measured, predicted;
    double error;
} compared;

static void fail(const char *what, const lh_error *err)
{
    fprintf(stderr, "validate-gpu: %s: %s\n", what, err->text);
    exit(1);
}

/* Returns a profile entry's attention kernel. The Python package selects
 * flash attention for its own layers. Models from transformers use PyTorch's
 * first choice on Hopper, cuDNN (check_prefer_cudnn_attention() in
 * sdp_utils.cpp). */
static const char *find_attention(const lh_profile_entry *e)
{
    const bool transformers = strcmp(e->model, "mixtral-8x7b") == 0 ||
                              strcmp(e->model, "deepseek-v3") == 0;
    return transformers ? "cudnn" : "flash-attention-2";
}

/* Builds a profile entry's job. The measured layers run one PyTorch kernel
 * per operation (data/profiles/README.md). */
static lh_job *job_of(const lh_profile_entry *e)
{
    char text[1024];
    lh_job *job = NULL;
    lh_error err = {0};
    const int n = snprintf(
        text, sizeof text,
        "longhaul: job/1\nmodel: %s\n"
        "framework: {kernels: eager, loss: eager, attention: %s}\n"
        "training: {global_batch: 1024, sequence: %u, precision: bf16}\n"
        "cluster:\n  gpu: %s\n  gpus_per_node: 8\n"
        "  node_link: {gbps: 3600, latency_us: 3}\n"
        "  fabric: {gbps: 400, latency_us: 8}\n"
        "  datacenters: [{name: here, nodes: 128}]\n",
        e->model, find_attention(e), e->sequence, e->gpu);

    if (lh_job_parse(text, (size_t)n, e->model, ".", &job, &err) != LH_OK)
        fail(e->model, &err);
    return job;
}

static pass_costs cost_of(const lh_job *job, const lh_profile_entry *e,
                          const lh_cost_layer_range *slice)
{
    lh_layout layout = job->layout;
    lh_cost cost;
    lh_error err = {0};

    layout.tensor = e->tensor;
    layout.context = layout.expert = layout.pipeline = layout.data = 1;
    layout.micro_batch = e->micro_batch;
    if (lh_cost_chunk(job, &layout, slice, NULL, &cost, &err) != LH_OK)
        fail(e->model, &err);
#define MS(p) ((double)((p).matmul_ns + (p).memory_ns + (p).kernel_ns) * 1e-6)
    return (pass_costs){MS(cost.f), MS(cost.d), MS(cost.w),
                        (double)cost.activation_bytes};
#undef MS
}

static pass_costs predict(const lh_profile_entry *e)
{
    lh_job *job = job_of(e);
    lh_cost_layer_range slice = {.n_layers = 1};
    const bool moe = e->kind == LH_PROFILE_MOE_LAYER;
    pass_costs made, rest = {0, 0, 0, 0};

    while (lh_model_layer_is_moe(job->model, slice.first_layer) != moe &&
           slice.first_layer + 1 < job->model->layers)
        slice.first_layer++;
    if (e->kind == LH_PROFILE_HEAD) {
        slice.first_layer = job->model->layers - 1;
        rest = cost_of(job, e, &slice);
        slice.head = true;
        slice.mtp = LH_MTP_ELSEWHERE;
    }
    made = cost_of(job, e, &slice);
    lh_job_free(job);
    return (pass_costs){made.f - rest.f, made.d - rest.d, made.w - rest.w,
                        made.kept - rest.kept};
}

static double sum(pass_costs t)
{
    return t.f + t.d + t.w;
}

static compared compare(const lh_profile_entry *e)
{
    compared c = {.entry = e,
                  .measured = {(double)e->f_ns * 1e-6, (double)e->d_ns * 1e-6,
                               (double)e->w_ns * 1e-6,
                               (double)e->activation_bytes},
                  .predicted = predict(e)};

    c.error = 100 * (sum(c.predicted) / sum(c.measured) - 1);
    return c;
}

static bool is_listed(const lh_profile_entry *e)
{
    return e->model && e->kind != LH_PROFILE_EMBEDDING;
}

static const char *kind_of(const lh_profile_entry *e)
{
    return e->kind == LH_PROFILE_HEAD        ? "head"
           : e->kind == LH_PROFILE_MOE_LAYER ? "layer with experts"
                                             : "layer";
}

static lh_profile *read_profile(const page_options *how)
{
    char path[512];
    lh_profile *p = NULL;
    lh_error err = {0};

    snprintf(path, sizeof path, "%s/h200.json", how->folder);
    if (lh_profile_read(path, &p, &err) != LH_OK)
        fail(path, &err);
    return p;
}

static bool begins_a_group(const lh_profile *p, uint32_t i)
{
    const lh_profile_entry *e = &p->entries[i];

    for (uint32_t k = 0; k < i; k++)
        if (strcmp(p->entries[k].model, e->model) == 0 &&
            p->entries[k].kind == e->kind)
            return false;
    return is_listed(e);
}

static void print_means(FILE *to, const page_options *how)
{
    lh_profile *p = read_profile(how);

    fputs("| model | | shapes | predicted / measured: F, D, W | bytes kept | "
          "error of F + D + W: mean, worst |\n"
          "| --- | --- | --- | --- | --- | --- |\n",
          to);
    for (uint32_t i = 0; i < p->n_entries; i++) {
        const lh_profile_entry *e = &p->entries[i];
        pass_costs ratio = {0, 0, 0, 0};
        double error = 0, worst = 0;
        uint32_t n = 0;

        if (!begins_a_group(p, i))
            continue;
        for (uint32_t k = i; k < p->n_entries; k++) {
            const lh_profile_entry *o = &p->entries[k];
            if (o->kind != e->kind || strcmp(o->model, e->model) != 0)
                continue;
            const compared c = compare(o);
            ratio.f += c.predicted.f / c.measured.f;
            ratio.d += c.predicted.d / c.measured.d;
            ratio.w += c.predicted.w / c.measured.w;
            ratio.kept += c.predicted.kept / c.measured.kept;
            error += fabs(c.error);
            if (fabs(c.error) > fabs(worst))
                worst = c.error;
            n++;
        }
        fprintf(to,
                "| %s | %s | %u | %.2f, %.2f, %.2f | %.2f | %.1f %%, %+.1f %% "
                "|\n",
                e->model, kind_of(e), n, ratio.f / n, ratio.d / n, ratio.w / n,
                ratio.kept / n, error / n, worst);
    }
    lh_profile_free(p);
}

static int by_shape(const void *a, const void *b)
{
    const lh_profile_entry *x = *(const lh_profile_entry *const *)a;
    const lh_profile_entry *y = *(const lh_profile_entry *const *)b;
    const int model = strcmp(x->model, y->model);

    if (model)
        return model;
    if (x->sequence != y->sequence)
        return x->sequence < y->sequence ? -1 : 1;
    if (x->micro_batch != y->micro_batch)
        return x->micro_batch < y->micro_batch ? -1 : 1;
    if (x->tensor != y->tensor)
        return x->tensor < y->tensor ? -1 : 1;
    return x->kind < y->kind ? -1 : x->kind > y->kind;
}

static void print_shapes(FILE *to, const page_options *how)
{
    lh_profile *p = read_profile(how);
    const lh_profile_entry **rows = calloc(p->n_entries, sizeof *rows);
    uint32_t n = 0;

    if (!rows)
        exit(1);
    for (uint32_t i = 0; i < p->n_entries; i++)
        if (is_listed(&p->entries[i]) && p->entries[i].kind != LH_PROFILE_HEAD)
            rows[n++] = &p->entries[i];
    qsort(rows, n, sizeof *rows, by_shape);
    fputs("| model | tokens | tensor | measured F, D, W, ms | predicted, ms | "
          "error of the sum |\n| --- | --- | --- | --- | --- | --- |\n",
          to);
    for (uint32_t i = 0; i < n; i++) {
        const lh_profile_entry *e = rows[i];
        const compared c = compare(e);

        fprintf(
            to,
            "| %s%s | %u x %u | %u | %.2f %.2f %.2f | %.2f %.2f %.2f | "
            "%+.1f %% |\n",
            e->model, e->kind == LH_PROFILE_MOE_LAYER ? ", with experts" : "",
            e->micro_batch, e->sequence, e->tensor, c.measured.f, c.measured.d,
            c.measured.w, c.predicted.f, c.predicted.d, c.predicted.w, c.error);
    }
    free(rows);
    lh_profile_free(p);
}

int main(int argc, char **argv)
{
    static const page_section tables[] = {{"means", print_means},
                                          {"shapes", print_shapes}};

    return page_program("validate-gpu", tables,
                        sizeof tables / sizeof tables[0], "data/profiles", argc,
                        argv);
}
