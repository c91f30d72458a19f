/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the targets' features. Sources: target_check.c. */
#include "planner/layout/target_internal.h"

#include "format/job/job_values.h"
#include "format/job/parse.h"

#include <string.h>

#define ONE_DIRECTION                                                          \
    .placements =                                                              \
        LHI_TARGET_BIT(LH_PLACEMENT_UD) | LHI_TARGET_BIT(LH_PLACEMENT_LOOP) |  \
        LHI_TARGET_BIT(LH_PLACEMENT_WAVE) | LHI_TARGET_BIT(LH_PLACEMENT_OTHER)
#define ALL_OTHER_VALUES                                                       \
    .recomputes = LHI_TARGET_ALL_VALUES, .zeros = LHI_TARGET_ALL_VALUES,       \
    .precisions = LHI_TARGET_ALL_VALUES

static const lhi_target_capability capabilities[] = {
    [LH_TARGET_ANY] = {.shown = "longhaul's schedules",
                       .version = "",
                       .elastic = true,
                       .placements = LHI_TARGET_ALL_VALUES,
                       ALL_OTHER_VALUES},
    [LH_TARGET_LONGHAUL] = {.shown = "longhaul's engine",
                            .version = "this version",
                            .elastic = true,
                            .why_placement =
                                "sums no gradients between two directions "
                                "during an iteration; use placement wave",
                            ONE_DIRECTION,
                            ALL_OTHER_VALUES},
    [LH_TARGET_MEGATRON] = {.shown = "Megatron-LM",
                            .version = "core 0.16",
                            .schedules = {"1f1b", "interleaved-1f1b"},
                            .one_by_one = true,
                            .placements = LHI_TARGET_BIT(LH_PLACEMENT_UD) |
                                          LHI_TARGET_BIT(LH_PLACEMENT_LOOP),
                            .recomputes = LHI_TARGET_ALL_VALUES,
                            .zeros = LHI_TARGET_ALL_VALUES,
                            .precisions = LHI_TARGET_ALL_VALUES,
                            .why_placement =
                                "places stage k on rank k mod pipeline; use "
                                "layout.schedule: 1f1b or interleaved-1f1b"},
    [LH_TARGET_TORCHTITAN] =
        {.shown = "torchtitan",
         .version = "0.3",
         .one_by_one = true,
         .placements = LHI_TARGET_BIT(LH_PLACEMENT_UD) |
                       LHI_TARGET_BIT(LH_PLACEMENT_LOOP) |
                       LHI_TARGET_BIT(LH_PLACEMENT_WAVE),
         .recomputes = LHI_TARGET_BIT(LH_RECOMPUTE_NONE) |
                       LHI_TARGET_BIT(LH_RECOMPUTE_FULL),
         .zeros = LHI_TARGET_BIT(0) | LHI_TARGET_BIT(2) | LHI_TARGET_BIT(3),
         .precisions = LHI_TARGET_BIT(LH_PRECISION_BF16) |
                       LHI_TARGET_BIT(LH_PRECISION_FP32),
         .why_placement = "places stages on ranks with one stage per rank, in "
                          "a loop or in a V",
         .why_recompute =
             "recomputes whole layers or, with selective recomputation, norms, "
             "activations and every second matrix product in the order of the "
             "model's code, which a job cannot express; use "
             "training.recompute: none or full",
         .why_zero = "shards gradients whenever it shards optimizer state; use "
                     "training.zero: 0, 2 or 3"},
    [LH_TARGET_PYTORCH] = {.shown = "PyTorch",
                           .version = "2.15",
                           .one_by_one = true,
                           .why_placement =
                               "has no schedules in two directions; use "
                               "placement wave",
                           ONE_DIRECTION,
                           ALL_OTHER_VALUES},
};

const lhi_target_capability *lhi_target_get_capability(lh_target target)
{
    return &capabilities[target];
}

const char *lhi_target_display_name(lh_target target)
{
    return lhi_target_get_capability(target)->shown;
}

const char *lhi_target_version(lh_target target)
{
    return lhi_target_get_capability(target)->version;
}

bool lhi_target_accepts_any_order(lh_target target, uint32_t pipeline)
{
    const lhi_target_capability *c = lhi_target_get_capability(target);
    return c->schedules[0] == NULL && !(c->one_by_one && pipeline == 1);
}

bool lhi_target_supports_method(lh_target target, uint32_t pipeline,
                                const char *method)
{
    const lhi_target_capability *c = lhi_target_get_capability(target);
    if (strcmp(method, "elastic") == 0)
        return c->elastic;
    if (pipeline == 1 && c->one_by_one)
        return strcmp(method, "1f1b") == 0 ||
               strcmp(method, "interleaved-1f1b") == 0;
    for (int i = 0; c->schedules[i]; i++)
        if (strcmp(c->schedules[i], method) == 0)
            return true;
    return lhi_target_accepts_any_order(target, pipeline);
}

bool lhi_target_joins_backward(lh_target target, uint32_t pipeline,
                               uint32_t zero)
{
    return (target == LH_TARGET_TORCHTITAN || target == LH_TARGET_PYTORCH) &&
           pipeline > 1 && zero == 3;
}

bool lhi_layout_joins_backward(const lh_job *job, uint32_t pipeline)
{
    return job->training.offload_share > 0 ||
           lhi_target_joins_backward(job->target, pipeline, job->training.zero);
}

uint32_t lhi_target_chunks(lh_target target, uint32_t layers, uint32_t pipeline,
                           uint32_t zero)
{
    if (target != LH_TARGET_TORCHTITAN || pipeline != 1)
        return 0;
    return zero >= 2 ? 1 : layers;
}

uint32_t lhi_state_groups(const lh_job *job, const lh_layout *l, uint32_t zero)
{
    const lh_sites *sites = l->sites;
    if (l->sharding <= LH_SHARDING_FULL || !zero ||
        l->outermost == LH_OUTERMOST_PIPELINE || l->data == 1)
        return 1;
    if (!sites)
        return job->n_datacenters;
    for (uint32_t i = 1; i < sites->n_groups; i++)
        if (sites->groups[i].replicas != sites->groups[0].replicas)
            return 0;
    return sites->n_groups;
}

lh_status lhi_target_fail(lh_target target, lh_error *err, const char *why)
{
    return lhi_fail(err, LH_EUNSUPPORTED, "%s %s", capabilities[target].shown,
                    why);
}

lh_status lhi_target_check_tensors(lh_target target, const lh_layout *l,
                                   lh_error *err)
{
    if (target == LH_TARGET_ANY || target == LH_TARGET_PYTORCH ||
        target == LH_TARGET_LONGHAUL ||
        (!l->site_tensors && !l->tensor_per_site))
        return LH_OK;
    return lhi_fail(err, LH_EUNSUPPORTED,
                    "%s has one tensor degree for all stages; set "
                    "layout.tensor to a number, and no tensor in layout.sites",
                    capabilities[target].shown);
}
