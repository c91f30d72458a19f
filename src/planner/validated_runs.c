/* SPDX-License-Identifier: Apache-2.0 */
/* Errors of predicted times in published runs, by kind. */
#include <longhaul/experimental/plan.h>

/* The held-out halves of docs/validation.md, "Published runs as jobs";
 * `validate-published` fails if they differ from its results. */
static const lh_validated_runs megatron_dense = {"dense models under Megatron",
                                                 34, 4.1, 9.8};
static const lh_validated_runs megatron_experts = {
    "models with experts under Megatron", 58, 10.2, 54.4};
static const lh_validated_runs megatron_hybrid = {
    "hybrid models under Megatron", 27, 18.3, 34.9};
static const lh_validated_runs torchtitan_dense = {
    "dense models under torchtitan", 19, 10.0, 21.8};

/* Checks whether the job replaces the cost model's times, by a profile or by
 * its own efficiency for some GPU. */
static bool replaces_times(const lh_job *job)
{
    bool replaces = job->profile != NULL;

    for (uint32_t i = 0; i < job->n_datacenters; i++)
        replaces = replaces || job->datacenters[i].gpu.efficiency > 0;
    return replaces;
}

const lh_validated_runs *lh_find_validated_runs(const lh_job *job)
{
    const lh_model *m = job->model;
    const bool experts = m->experts > 0;

    /* None of these runs has other kinds of layers. */
    if (replaces_times(job) || m->linear_value_heads || m->index_topk)
        return NULL;

    switch (job->framework.preset) {
    case LH_FRAMEWORK_MEGATRON:
        return m->mamba_heads ? &megatron_hybrid
               : experts      ? &megatron_experts
                              : &megatron_dense;
    case LH_FRAMEWORK_TORCHTITAN:
        return experts || m->mamba_heads ? NULL : &torchtitan_dense;
    case LH_FRAMEWORK_NONE:
    case LH_FRAMEWORK_DEEPSPEED:
        break;
    }
    return NULL;
}
