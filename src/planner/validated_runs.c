/* SPDX-License-Identifier: Apache-2.0 */
/* Errors of predicted times in published runs, by kind. */
#include "planner/validated_runs.h"

#include "base/fail.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The kinds of models. */
typedef enum model_kind { DENSE, EXPERTS, HYBRID } model_kind;

/* A kind of runs: the program, the model's kind and the type of products. */
typedef struct kind {
    lh_framework_preset preset;
    model_kind model;
    bool fp8;
    lh_validated_runs runs;
} kind;

/* The held-out halves of docs/validation.md, "Published runs as jobs";
 * `validate-published` fails if they differ from its results. The runs without
 * options are those under Megatron and nanotron, with only the type of products
 * in the job's `framework`. */
static const kind kinds[] = {
    {LH_FRAMEWORK_NONE,
     DENSE,
     false,
     {"dense models, predicted without framework options", 13, 14.2, 31.2,
      "a100-80g, h100-sxm", 8, 16384, 2048, 131072, NULL}},
    {LH_FRAMEWORK_NONE,
     DENSE,
     true,
     {"dense models in FP8, predicted without framework options", 37, 12.5,
      32.4, "h100-sxm, h200, b200, gb200, gb300", 8, 2432, 2048, 8192, NULL}},
    {LH_FRAMEWORK_NONE,
     EXPERTS,
     false,
     {"models with experts, predicted without framework options", 20, 19.3,
      45.2, "h100-sxm, h800, b300, gb200, gb300", 16, 256, 4096, 8192, NULL}},
    {LH_FRAMEWORK_NONE,
     EXPERTS,
     true,
     {"models with experts in FP8, predicted without framework options", 38,
      14.0, 48.7, "h100-sxm, b300, gb200, gb300", 8, 256, 4096, 4096, NULL}},
    {LH_FRAMEWORK_NONE,
     HYBRID,
     true,
     {"hybrid models in FP8, predicted without framework options", 27, 17.4,
      25.4, "b200, b300, gb200, gb300", 8, 64, 8192, 8192, NULL}},
    {LH_FRAMEWORK_MEGATRON,
     DENSE,
     false,
     {"dense models under Megatron", 12, 4.9, 9.8, "a100-80g, h100-sxm", 8,
      16384, 2048, 131072, NULL}},
    {LH_FRAMEWORK_MEGATRON,
     DENSE,
     true,
     {"dense models in FP8 under Megatron", 37, 4.5, 28.1,
      "h100-sxm, h200, b200, gb200, gb300", 8, 2432, 2048, 8192, NULL}},
    {LH_FRAMEWORK_MEGATRON,
     EXPERTS,
     false,
     {"models with experts under Megatron", 20, 10.1, 38.5,
      "h100-sxm, h800, b300, gb200, gb300", 16, 256, 4096, 8192, NULL}},
    {LH_FRAMEWORK_MEGATRON,
     EXPERTS,
     true,
     {"models with experts in FP8 under Megatron", 38, 9.5, 54.4,
      "h100-sxm, b300, gb200, gb300", 8, 256, 4096, 4096, NULL}},
    {LH_FRAMEWORK_MEGATRON,
     HYBRID,
     true,
     {"hybrid models in FP8 under Megatron", 27, 18.3, 34.9,
      "b200, b300, gb200, gb300", 8, 64, 8192, 8192, NULL}},
    {LH_FRAMEWORK_TORCHTITAN,
     DENSE,
     false,
     {"dense models under torchtitan", 12, 11.3, 21.8,
      "a100-80g, h100-96gb-500w", 8, 128, 4096, 8192, NULL}},
    {LH_FRAMEWORK_TORCHTITAN,
     DENSE,
     true,
     {"dense models in FP8 under torchtitan", 10, 10.1, 20.5, "h100-96gb-500w",
      8, 512, 8192, 65536, NULL}},
    {LH_FRAMEWORK_DEEPSPEED,
     DENSE,
     false,
     {"dense models under DeepSpeed", 38, 10.6, 39.2, "a100-80g", 64, 2800,
      2048, 2048, NULL}},
};

/* Checks whether the job replaces the cost model's times, by a profile or by
 * its own efficiency for some GPU. */
static bool replaces_times(const lh_job *job)
{
    bool replaces = job->profile != NULL;

    for (uint32_t i = 0; i < job->n_datacenters; i++)
        replaces = replaces || job->datacenters[i].gpu.efficiency > 0;
    return replaces;
}

/* Finds the kind of a job's runs: with its type of products or, if there are
 * none, with the other. NULL: no run has its program and model. */
static const kind *find_kind(const lh_job *job)
{
    const lh_model *m = job->model;
    const model_kind model = m->mamba_heads ? HYBRID
                             : m->experts   ? EXPERTS
                                            : DENSE;
    const bool fp8 = job->framework.fp8 != LH_FP8_NONE;
    const kind *found = NULL;

    /* None of these runs has other kinds of layers, or fp32 throughout; all are
     * on GPUs, not by longhaul's engine, which computes on processors. */
    if (replaces_times(job) || m->linear_value_heads || m->index_topk ||
        job->training.precision == LH_PRECISION_FP32 ||
        job->target == LH_TARGET_LONGHAUL)
        return NULL;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].preset == job->framework.preset &&
            kinds[i].model == model && (!found || kinds[i].fp8 == fp8))
            found = &kinds[i];
    return found;
}

const lh_validated_runs *lh_find_validated_runs(const lh_job *job)
{
    const kind *found = find_kind(job);

    return found ? &found->runs : NULL;
}

const char *lh_explain_no_validated_runs(const lh_job *job)
{
    if (find_kind(job))
        return NULL;
    if (replaces_times(job))
        return "unknown: a profile or an efficiency replaces modelled times";
    return "unknown: no published run is of this program with this kind of "
           "model and precision";
}

/* Checks whether the list "a, b" of GPU types has `type`. */
static bool has_type(const char *list, const char *type)
{
    const size_t n = strlen(type);

    for (const char *at = strstr(list, type); at; at = strstr(at + 1, type))
        if ((at == list || at[-1] == ' ') && (at[n] == '\0' || at[n] == ','))
            return true;
    return false;
}

/* Returns a datacenter's GPU type: the preset that it is based on, else its
 * name. */
static const char *get_type(const lh_datacenter *site)
{
    return site->gpu.preset ? site->gpu.preset : site->gpu.name;
}

/* A text that grows up to its capacity, with commas between its parts. */
typedef struct parts {
    char text[400];
    size_t used;
} parts;

/* Appends `text` after a comma. */
static void add_part(parts *to, const char *text)
{
    const int n = snprintf(to->text + to->used, sizeof to->text - to->used,
                           "%s%s", to->used ? ", " : "", text);
    to->used += n > 0 ? (size_t)n : 0;
    if (to->used >= sizeof to->text)
        to->used = sizeof to->text - 1;
}

/* Appends a number of things outside the range of the runs, as "8" followed by
 * `what`: " GPUs". */
static void add_outside(parts *to, const char *what, uint32_t value,
                        uint32_t least, uint32_t most)
{
    char part[80];

    if (value >= least && value <= most)
        return;
    snprintf(part, sizeof part, "%" PRIu32 "%s", value, what);
    add_part(to, part);
}

/* Appends the GPU types that none of the runs used, each once. */
static void add_types(parts *to, const lh_job *job,
                      const lh_validated_runs *runs)
{
    bool mixed = false;

    for (uint32_t i = 0; i < job->n_datacenters; i++) {
        const char *type = get_type(&job->datacenters[i]);
        uint32_t k = 0;

        while (strcmp(get_type(&job->datacenters[k]), type) != 0)
            k++;
        mixed = mixed || k != 0;
        if (k == i && !has_type(runs->gpu_types, type))
            add_part(to, type);
    }
    if (mixed)
        add_part(to, "different GPU types");
}

lh_status lhi_find_accuracy(lhi_arena *mem, const lh_job *job, uint32_t gpus,
                            const lh_validated_runs **out, lh_error *err)
{
    const kind *of = find_kind(job);
    const bool fp8 = job->framework.fp8 != LH_FP8_NONE;
    parts outside = {.used = 0};

    *out = NULL;
    if (!of)
        return LH_OK;
    const lh_validated_runs *found = &of->runs;
    if (of->fp8 != fp8)
        add_part(&outside, fp8 ? "products in FP8" : "16-bit products");
    add_types(&outside, job, found);
    add_outside(&outside, " datacenters", job->n_datacenters, 1, 1);
    add_outside(&outside, " GPUs", gpus, found->gpus_least, found->gpus_most);
    add_outside(&outside, "-token sequences", job->training.sequence,
                found->sequence_least, found->sequence_most);
    if (job->framework.fp8 == LH_FP8_DISPATCH)
        add_part(&outside, "dispatch in FP8");
    lh_validated_runs *runs = LHI_NEW(mem, lh_validated_runs, 1);
    if (!runs)
        return lhi_fail_nomem(err);
    *runs = *found;
    if (outside.used) {
        runs->outside = lhi_arena_strdup(mem, outside.text);
        if (!runs->outside)
            return lhi_fail_nomem(err);
    }
    *out = runs;
    return LH_OK;
}
