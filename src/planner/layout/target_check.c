/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of torchtitan, of PyTorch's pipelining and of all targets. Sources:
 * torchtitan 0.3.0's config/configs.py and distributed/; torch 2.15's
 * distributed/pipelining/schedules.py. */
#include "planner/layout/target_internal.h"

#include "format/job/job_values.h"
#include "format/job/parse.h"
#include "planner/layout/choice.h"
#include "planner/layout/target_longhaul.h"
#include "planner/layout/target_megatron.h"

#include <inttypes.h>
#include <string.h>

/* Checks whether `bits`, a bit set of enum values (LHI_TARGET_ALL_VALUES: all),
 * contains a value. */
static bool has_bit(uint32_t bits, uint32_t value)
{
    return bits == LHI_TARGET_ALL_VALUES || (bits >> value & 1) != 0;
}

/* --- torchtitan ----------------------------------------------------------- */

/* Checks that torchtitan supports the context degree with this ZeRO stage: it
 * shards parameters over the context ranks in any case (parallel_dims.py: fsdp
 * = dp_shard * cp). */
static lh_status check_torchtitan_context(uint32_t context, uint32_t zero,
                                          lh_error *err)
{
    if (context <= 1 || zero > 0)
        return LH_OK;
    return lhi_target_fail(
        LH_TARGET_TORCHTITAN, err,
        "shards parameters over the GPUs of layout.context; use "
        "training.zero: 2 or 3, or layout.context: 1");
}

/* Checks that torchtitan supports the job's model, training and framework
 * settings. LH_EUNSUPPORTED otherwise. */
static lh_status check_torchtitan_job(const lh_job *job, lh_error *err)
{
    const lh_framework *f = &job->framework;
    if (f->fp8 != LH_FP8_NONE)
        return lhi_target_fail(LH_TARGET_TORCHTITAN, err,
                               "has no option for 8-bit matrix products; use "
                               "framework.fp8: none");
    if (f->reduce != LH_GRADIENT_FP32 || f->gradients != LH_GRADIENT_FP32)
        return lhi_target_fail(
            LH_TARGET_TORCHTITAN, err,
            "stores and reduces gradients in fp32; use "
            "framework.gradients and framework.reduce: fp32");
    if (f->attention == LH_ATTENTION_UNFUSED)
        return lhi_target_fail(
            LH_TARGET_TORCHTITAN, err,
            "runs fused attention; use framework.attention: fused");
    if (f->overlap_expert > 0 || f->overlap_shared_experts > 0 ||
        f->fused_experts)
        return lhi_target_fail(
            LH_TARGET_TORCHTITAN, err,
            "has no option to overlap expert communication or to "
            "fuse experts; remove framework.overlap.expert, "
            "framework.overlap.shared_experts and framework.experts");
    if (job->training.dispatcher != LH_DISPATCHER_ALL_TO_ALL)
        return lhi_target_fail(
            LH_TARGET_TORCHTITAN, err,
            "selects another dispatcher by the model, not by an option; use "
            "training.dispatcher: alltoall");
    if (job->model->mtp_layers)
        return lhi_target_fail(
            LH_TARGET_TORCHTITAN, err,
            "has no multi-token prediction; use a model with "
            "mtp_layers: 0");
    if (job->model->parallel_block)
        return lhi_target_fail(
            LH_TARGET_TORCHTITAN, err,
            "runs attention and MLP sequentially; use a model with "
            "parallel_block: false");
    if (job->model->layer_pattern)
        return lhi_target_fail(
            LH_TARGET_TORCHTITAN, err,
            "has no layers of one block, such as Mamba-2; use a model without "
            "layer_pattern");
    if (lhi_job_uses_dropout(job))
        return lhi_target_fail(
            LH_TARGET_TORCHTITAN, err,
            "does not support dropout; use training.dropout: false");
    return job->training.zero_given
               ? check_torchtitan_context(job->layout.context,
                                          job->training.zero, err)
               : LH_OK;
}

/* Checks that torchtitan supports the tensor degrees: its Decoder requires
 * whole key-value heads on each rank. */
static lh_status check_torchtitan_group(const lh_job *job, const lh_layout *l,
                                        lh_error *err)
{
    const lh_model *m = job->model;
    uint32_t etp = lh_layout_expert_tensor(l);
    if (!m->kv_lora_rank && m->kv_heads % l->tensor != 0)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "torchtitan does not share a key-value head between "
                        "ranks; with %" PRIu32
                        " kv_heads layout.tensor %" PRIu32 " is not possible",
                        m->kv_heads, l->tensor);
    if (!m->experts || etp == (l->expert > 1 ? 1 : l->tensor))
        return LH_OK;
    return lhi_fail(err, LH_EUNSUPPORTED,
                    "torchtitan shards experts over layout.tensor if expert is "
                    "1, and not at all otherwise; with expert %" PRIu32
                    " and tensor %" PRIu32 " not in %" PRIu32,
                    l->expert, l->tensor, etp);
}

/* Checks that the rank order has the pipeline outermost, as torchtitan
 * requires. */
static lh_status check_torchtitan_rank_order(const lh_job *job,
                                             const lh_layout *l, lh_error *err)
{
    if (lh_layout_rank_order(l) != LH_OUTERMOST_DATA || l->pipeline == 1 ||
        l->data == 1)
        return LH_OK;
    return job->n_datacenters > 1
               ? lhi_target_fail(
                     LH_TARGET_TORCHTITAN, err,
                     "places the pipeline outermost in the rank order; use "
                     "layout.rank_order: pipeline")
               : lhi_target_fail(
                     LH_TARGET_TORCHTITAN, err,
                     "places the pipeline outermost in the rank order; use "
                     "layout.outermost: pipeline");
}

/* Checks that torchtitan supports the ZeRO stage and sharding: equal groups of
 * replicas, and experts spread over replicas that share state. */
static lh_status check_torchtitan_sharding(const lh_job *job,
                                           const lhi_config *c, lh_error *err)
{
    const lh_layout *l = &c->layout;
    LHI_TRY(check_torchtitan_context(l->context, c->zero, err));
    uint32_t groups = lhi_state_groups(job, l, c->zero);
    if (!groups)
        return lhi_target_fail(
            LH_TARGET_TORCHTITAN, err,
            "shards over equal groups of replicas, but these "
            "datacenters have different numbers of replicas");
    if (groups > 1 && l->sharding == LH_SHARDING_HYBRID_LEADERS)
        return lhi_target_fail(
            LH_TARGET_TORCHTITAN, err,
            "reduces gradients between groups on every GPU; use "
            "layout.sharding: hybrid or full");
    uint64_t sharers =
        (uint64_t)l->tensor * l->context * (c->zero ? l->data / groups : 1);
    if (job->model->experts && l->expert > 1 && sharers % l->expert != 0)
        return lhi_fail(
            err, LH_EUNSUPPORTED,
            "torchtitan distributes experts over replicas that "
            "share parameters, %" PRIu64
            " GPUs of a stage, which is not a multiple of expert %" PRIu32
            "; use training.zero: 2 and "
            "layout.sharding: full",
            sharers, l->expert);
    return LH_OK;
}

/* Checks that torchtitan supports the chunks per device and the receives, and
 * shares no embedding between stages. */
static lh_status check_torchtitan_pipeline(const lh_job *job,
                                           const lhi_config *c, lh_error *err)
{
    const lh_layout *l = &c->layout;
    const uint32_t chunks = lhi_target_chunks(
        LH_TARGET_TORCHTITAN, job->model->layers, l->pipeline, c->zero);
    if (job->model->tied_embeddings && l->pipeline > 1)
        return lhi_target_fail(
            LH_TARGET_TORCHTITAN, err,
            "does not share an embedding between the stages of a "
            "pipeline; use layout.pipeline: 1");
    if (chunks > 1 && job->layout.schedule &&
        strcmp(job->layout.schedule, "1f1b") == 0)
        return lhi_target_fail(
            LH_TARGET_TORCHTITAN, err,
            "without a pipeline and with ZeRO 0 is modelled as one "
            "chunk per layer; remove layout.schedule, or use "
            "interleaved-1f1b");
    if (chunks && chunks != l->chunks_per_device)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "torchtitan without a pipeline gathers and reduces "
                        "layer by layer, with ZeRO %" PRIu32 " costed as "
                        "%" PRIu32 " chunk%s; remove layout.chunks_per_device",
                        c->zero, chunks, chunks > 1 ? "s" : "");
    if (l->pipeline > 1 &&
        lhi_framework_receives(&job->framework, l->chunks_per_device) !=
            LH_RECEIVES_EARLY)
        return lhi_target_fail(
            LH_TARGET_TORCHTITAN, err,
            "posts receives early; remove framework.receives and "
            "preset");
    return LH_OK;
}

/* --- PyTorch's pipelining ------------------------------------------------- */

/* Checks that every stage has layers: PyTorch's stage.py requires each stage to
 * produce its output, with a gradient function. */
static lh_status check_stages(lh_target target, const lh_job *job,
                              lh_error *err)
{
    if (!lhi_layers_requested_empty_chunks(job))
        return LH_OK;
    return lhi_target_fail(
        target, err,
        "requires layers in every stage; use 0 in layout.layers only "
        "for the first and the last chunk");
}

/* --- all targets ---------------------------------------------------------- */

lh_status lhi_target_check_job(lh_target target, const lh_job *job,
                               lh_error *err)
{
    const lhi_target_capability *c = lhi_target_get_capability(target);
    const char *schedule = job->layout.schedule;
    /* Names that stand for a choice select among the supported schedules. */
    bool chosen = schedule && (strcmp(schedule, "auto") == 0 ||
                               strcmp(schedule, "optimal") == 0);
    if (schedule &&
        (!chosen ||
         !lhi_target_accepts_any_order(target, job->layout.pipeline)) &&
        !lhi_target_supports_method(target, job->layout.pipeline, schedule))
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "%s does not support schedule '%.60s'; remove "
                        "layout.schedule, or use a supported one: %s",
                        c->shown, schedule,
                        target == LH_TARGET_MEGATRON ? "1f1b, interleaved-1f1b"
                                                     : "all but elastic");
    if (job->training.offload_share > 0 && target != LH_TARGET_LONGHAUL &&
        target != LH_TARGET_ANY)
        return lhi_target_fail(target, err,
                               "does not support activation offloading; remove "
                               "training.offload");
    if (job->layout.slices && target != LH_TARGET_LONGHAUL &&
        target != LH_TARGET_ANY)
        return lhi_target_fail(target, err,
                               "does not cut sequences; remove layout.slices");
    LHI_TRY(lhi_target_check_tensors(target, &job->layout, err));
    if (!has_bit(c->precisions, job->training.precision))
        return lhi_fail(err, LH_EUNSUPPORTED, "%s does not train in %s",
                        c->shown, lh_precision_name(job->training.precision));
    if (job->training.zero_given && !has_bit(c->zeros, job->training.zero))
        return lhi_target_fail(target, err, c->why_zero);
    if (job->training.recompute_given &&
        !has_bit(c->recomputes, job->training.recompute))
        return lhi_target_fail(target, err, c->why_recompute);
    switch (target) {
    case LH_TARGET_MEGATRON:
        return lhi_megatron_job(job, err);
    case LH_TARGET_TORCHTITAN:
        LHI_TRY(check_torchtitan_job(job, err));
        return check_stages(target, job, err);
    case LH_TARGET_PYTORCH:
        return check_stages(target, job, err);
    case LH_TARGET_LONGHAUL:
        return lhi_longhaul_job(job, err);
    default:
        return LH_OK;
    }
}

/* Checks the values that a configuration decides on `level`, its depth in the
 * search tree, against torchtitan's limits. LH_EUNSUPPORTED: it cannot run
 * them. */
static lh_status check_torchtitan(const lh_job *job, lhi_level level,
                                  const lhi_config *c, lh_error *err)
{
    switch (level) {
    case LHI_LEVEL_GROUP:
        return check_torchtitan_group(job, &c->layout, err);
    case LHI_LEVEL_PLACED:
        return check_torchtitan_rank_order(job, &c->layout, err);
    case LHI_LEVEL_STATE:
        return check_torchtitan_sharding(job, c, err);
    case LHI_LEVEL_COMPLETE:
        return check_torchtitan_pipeline(job, c, err);
    default:
        return LH_OK;
    }
}

/* Checks the values that a configuration decides on `level`, its depth in the
 * search tree, against the limits of longhaul's own engine. LH_EUNSUPPORTED: it
 * cannot run them. */
static lh_status check_longhaul(const lh_job *job, lhi_level level,
                                const lhi_config *c, lh_error *err)
{
    switch (level) {
    case LHI_LEVEL_GROUP:
        return lhi_longhaul_group(job, &c->layout, err);
    case LHI_LEVEL_PLACED:
        return lhi_longhaul_placed(job, &c->layout, err);
    case LHI_LEVEL_STATE:
        return lhi_longhaul_state(job, c, err);
    default:
        return LH_OK;
    }
}

/* Checks that the target framework supports one kind of value: recomputation,
 * ZeRO stage or chunk placement, whichever a configuration decides on `level`,
 * its depth in the search tree. */
static lh_status check_values(lh_target target, lhi_level level,
                              const lhi_config *config, lh_error *err)
{
    const lhi_target_capability *c = lhi_target_get_capability(target);
    if (level == LHI_LEVEL_WORK && !has_bit(c->recomputes, config->recompute))
        return lhi_target_fail(target, err, c->why_recompute);
    if (level == LHI_LEVEL_STATE && !has_bit(c->zeros, config->zero))
        return lhi_target_fail(target, err, c->why_zero);
    if (level == LHI_LEVEL_COMPLETE && config->layout.pipeline > 1 &&
        !has_bit(c->placements, config->placement))
        return lhi_target_fail(target, err, c->why_placement);
    return LH_OK;
}

lh_status lhi_target_check(lh_target target, const lh_job *job, lhi_level level,
                           const lhi_config *config, lh_error *err)
{
    LHI_TRY(check_values(target, level, config, err));
    if (target != LH_TARGET_ANY && target != LH_TARGET_LONGHAUL &&
        level == LHI_LEVEL_PLACED && config->layout.group_micro_batches)
        return lhi_target_fail(target, err,
                               "has one micro_batch for all replicas; plan "
                               "with this layout.framework, and without "
                               "micro_batch in the groups of layout.sites");
    if (level == LHI_LEVEL_PLACED)
        LHI_TRY(lhi_target_check_tensors(target, &config->layout, err));
    switch (target) {
    case LH_TARGET_MEGATRON:
        return lhi_megatron_level(job, level, config, err);
    case LH_TARGET_TORCHTITAN:
        return check_torchtitan(job, level, config, err);
    case LH_TARGET_LONGHAUL:
        return check_longhaul(job, level, config, err);
    case LH_TARGET_ANY:
    case LH_TARGET_PYTORCH:
        break;
    }
    return LH_OK;
}

/* Checks a plan candidate with schedule `schedule` (NULL: any), on all levels
 * of the search tree up to `last`. LH_EUNSUPPORTED: the target framework cannot
 * run it. */
static lh_status check_levels(lh_target target, const lh_job *job,
                              const lh_choice *choice, const char *schedule,
                              lhi_level last, lh_error *err)
{
    lhi_config config = lhi_config_from_choice(choice);
    /* checks the resulting values, not the requested ones */
    lh_job asked = *job;
    asked.training.zero_given = asked.training.recompute_given = false;
    asked.layout.schedule = schedule;
    asked.layout.pipeline = choice->layout.pipeline;
    asked.layout.tensor_per_site = false;
    LHI_TRY(lhi_target_check_job(target, &asked, err));
    for (int level = LHI_LEVEL_GROUP; level <= (int)last; level++)
        LHI_TRY(lhi_target_check(target, job, (lhi_level)level, &config, err));
    return LH_OK;
}

lh_status lhi_target_check_choice(lh_target target, const lh_job *job,
                                  const lh_choice *choice, lh_error *err)
{
    return check_levels(target, job, choice, choice->layout.schedule,
                        LHI_LEVEL_COMPLETE, err);
}

lh_status lhi_target_check_settings(lh_target target, const lh_job *job,
                                    const lh_choice *choice, lh_error *err)
{
    return check_levels(target, job, choice, NULL,
                        (lhi_level)(LHI_LEVEL_COMPLETE - 1), err);
}

bool lhi_target_runs_passes(lh_target target, const lh_choice *choice)
{
    const lh_layout *l = &choice->layout;
    return lhi_target_supports_method(target, l->pipeline, l->schedule) &&
           (l->pipeline == 1 ||
            has_bit(lhi_target_get_capability(target)->placements,
                    choice->placement));
}
