/* SPDX-License-Identifier: Apache-2.0 */
/* Megatron-LM's rules. Sources: megatron/training/arguments.py,
 * megatron/core/parallel_state.py, transformer/transformer_config.py,
 * pipeline_parallel/schedules.py and distributed/fsdp/ (core 0.16.1). */
#include "planner/layout/target_megatron.h"

#include "format/job/job_values.h"
#include "format/job/parse.h"
#include "planner/layout/choice.h"
#include "planner/layout/target_internal.h"

#include <inttypes.h>

/* Checks whether the job overlaps expert-parallel communication with
 * computation in a layout with expert parallelism. */
static bool overlaps_experts(const lh_job *job, const lh_layout *l)
{
    return job->framework.overlap_expert > 0 && l->expert > 1;
}

/* Checks whether the job reduces gradients in the same type in which it stores
 * them. */
static bool supports_gradients(const lh_job *job)
{
    const lh_framework *f = &job->framework;
    return f->gradients == f->reduce;
}

/* Checks that the model's biases can be expressed in Megatron-LM: one argument
 * switches them for all products including routers, another one for query, key
 * and value. */
static bool supports_biases(const lh_model *m)
{
    return m->output_bias == m->mlp_bias && (m->qkv_bias || !m->mlp_bias) &&
           (!m->experts || m->router_bias == m->mlp_bias);
}

lh_status lhi_megatron_job(const lh_job *job, lh_error *err)
{
    if (job->model->parallel_block)
        return lhi_target_fail(
            LH_TARGET_MEGATRON, err,
            "runs attention and MLP sequentially; use a model with "
            "parallel_block: false");
    if (!supports_biases(job->model))
        return lhi_target_fail(
            LH_TARGET_MEGATRON, err,
            "has biases on all linear layers including routers, or "
            "only on queries, keys and values; set qkv_bias, "
            "output_bias, mlp_bias and router_bias of the model "
            "accordingly");
    if (!supports_gradients(job))
        return lhi_target_fail(
            LH_TARGET_MEGATRON, err,
            "reduces gradients in the type in which it stores them; "
            "use one value for framework.gradients and "
            "framework.reduce");
    if (job->framework.fp8 == LH_FP8_DISPATCH)
        return lhi_target_fail(LH_TARGET_MEGATRON, err,
                               "has no argument for 8-bit expert dispatch; use "
                               "framework.fp8: matmul");
    if (job->framework.fp8 == LH_FP8_HEAD)
        return lhi_target_fail(LH_TARGET_MEGATRON, err,
                               "has no 8-bit head; use framework.fp8: matmul");
    if (job->framework.attention == LH_ATTENTION_CUDNN_FP8)
        return lhi_target_fail(LH_TARGET_MEGATRON, err,
                               "has no argument for attention in 8 bits; use "
                               "framework.attention: cudnn");
    if (job->framework.fused_experts)
        return lhi_target_fail(
            LH_TARGET_MEGATRON, err,
            "has no argument to run experts as one kernel; use "
            "framework.experts: grouped");
    if (job->framework.overlap_f_b > 0)
        return lhi_target_fail(
            LH_TARGET_MEGATRON, err,
            "has no schedule with overlapped F and B of the dual pipeline; "
            "use framework.overlap.expert instead of framework.overlap.F+B");
    if (job->framework.overlap_expert > 0 && job->model->mtp_layers > 1)
        return lhi_target_fail(LH_TARGET_MEGATRON, err,
                               "overlaps expert communication with at most one "
                               "multi-token prediction layer; remove "
                               "framework.overlap.expert");
    if (job->framework.overlap_expert > 0 &&
        job->training.precision == LH_PRECISION_FP32)
        return lhi_target_fail(
            LH_TARGET_MEGATRON, err,
            "overlaps expert communication only in 16-bit precision; "
            "remove framework.overlap.expert");
    return LH_OK;
}

/* Checks whether DeepEP (a token dispatcher) supports `ranks`
 * expert-parallel ranks; it supports a fixed list (deep_ep/buffer.py,
 * get_dispatch_config()). */
static bool check_deepep_ranks(uint64_t ranks)
{
    static const uint64_t known[] = {2, 4, 8, 16, 24, 32, 64, 128, 144, 160};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (ranks == known[i])
            return true;
    return false;
}

/* Checks whether groups of `ranks` consecutive ranks are within nodes wherever
 * the layout's stages begin: they divide every node's GPUs and, with several
 * datacenters, every replica. */
static bool divides_nodes(const lh_job *job, const lh_layout *l, uint32_t ranks)
{
    bool divides =
        job->n_datacenters == 1 || l->tensor * l->context % ranks == 0;
    for (uint32_t i = 0; i < job->n_datacenters; i++)
        divides = divides && job->datacenters[i].gpus_per_node % ranks == 0;
    return divides;
}

/* Checks that each of DeepEP's NVLink domains is on one node of the placed
 * layout. DeepEP treats every eight ranks of an expert-parallel group as a
 * domain, or all of a smaller group (deepseek-ai/DeepEP, csrc/deep_ep.cpp:
 * rdma_rank = rank / NUM_MAX_NVL_PEERS; kernels/configs.cuh), and shares memory
 * within it. */
static lh_status check_megatron_deepep(const lh_job *job, const lh_layout *l,
                                       lh_error *err)
{
    enum { RANKS_OF_A_DOMAIN = 8 }; /* NUM_MAX_NVL_PEERS */
    const uint64_t block = lh_layout_expert_block(l);
    const uint32_t domain =
        block < RANKS_OF_A_DOMAIN ? (uint32_t)block : RANKS_OF_A_DOMAIN;
    bool whole;
    lh_error why = {0};
    if (job->training.dispatcher != LH_DISPATCHER_DEEPEP || l->expert == 1 ||
        divides_nodes(job, l, domain))
        return LH_OK;
    lh_status status = lhi_layout_check_runs(job, l, domain, &whole, &why);
    if (lhi_layout_is_infeasible(status)) /* reported by the placement */
        return LH_OK;
    if (status != LH_OK)
        return lhi_fail(err, status, "%s", why.text);
    return whole ? LH_OK
                 : lhi_target_fail(
                       LH_TARGET_MEGATRON, err,
                       "dispatches by DeepEP, which assumes that every eight "
                       "ranks share a node, but some of them are on two nodes; "
                       "use an expert x expert_tensor that divides the GPUs of "
                       "a node, or training.dispatcher: alltoall");
}

/* Checks that Megatron-LM supports the token dispatcher and sequence
 * parallelism of the job with the layout's tensor and expert degrees.
 * LH_EUNSUPPORTED otherwise. */
static lh_status check_megatron_group(const lh_job *job, const lh_layout *l,
                                      lh_error *err)
{
    uint64_t block = lh_layout_expert_block(l);
    if (job->training.dispatcher == LH_DISPATCHER_DEEPEP && l->expert > 1 &&
        !check_deepep_ranks(block))
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "Megatron-LM dispatches by DeepEP, which does not "
                        "support groups of %" PRIu64 " ranks; use an expert x "
                        "expert_tensor of 2, 4, 8, 16, 24, 32, 64, 128, 144 "
                        "or 160, or training.dispatcher: alltoall",
                        block);
    if (job->training.dispatcher == LH_DISPATCHER_ALL_GATHER &&
        overlaps_experts(job, l))
        return lhi_target_fail(LH_TARGET_MEGATRON, err,
                               "overlaps expert communication only without "
                               "training.dispatcher: allgather");
    if (job->training.dispatcher != LH_DISPATCHER_ALL_TO_ALL &&
        job->framework.overlap_shared_experts > 0 && l->expert > 1)
        return lhi_target_fail(LH_TARGET_MEGATRON, err,
                               "overlaps shared experts only with "
                               "training.dispatcher: alltoall");
    if (job->framework.no_sequence_parallel && job->model->experts &&
        l->tensor > 1)
        return lhi_target_fail(
            LH_TARGET_MEGATRON, err,
            "requires sequence parallelism if experts are combined "
            "with tensor parallelism; use "
            "framework.sequence_parallel: true");
    if (job->framework.no_sequence_parallel &&
        job->framework.overlap_tensor > 0 && l->tensor > 1)
        return lhi_target_fail(
            LH_TARGET_MEGATRON, err,
            "overlaps tensor-parallel communication only with "
            "sequence parallelism");
    return LH_OK;
}

/* Checks whether the configuration recomputes norms or activation functions,
 * whose outputs are inputs of 8-bit matrix products. */
static bool recomputes_8_bit_inputs(const lh_job *job, const lhi_config *c)
{
    if (c->recompute == LH_RECOMPUTE_MODULES)
        return (job->training.recompute_modules &
                (LHI_TARGET_BIT(LH_MODULE_LAYERNORM) |
                 LHI_TARGET_BIT(LH_MODULE_MOE_ACT))) != 0;
    return c->recompute == LH_RECOMPUTE_SELECTIVE &&
           job->framework.attention != LH_ATTENTION_UNFUSED;
}

/* Checks that Megatron-LM supports the recomputation. Rejects selective
 * recomputation with dense MLPs: fused kernels recompute norms and activation
 * functions, and Megatron-LM has a name only for those of experts. Rejects full
 * recomputation with overlapped expert communication, and recomputed shared
 * experts with overlapped ones. */
static lh_status check_megatron_recompute(const lh_job *job,
                                          const lhi_config *c, lh_error *err)
{
    const lh_model *m = job->model;
    bool overlaps = overlaps_experts(job, &c->layout);
    if (c->recompute == LH_RECOMPUTE_SELECTIVE &&
        job->framework.attention != LH_ATTENTION_UNFUSED &&
        (m->ffn || m->shared_expert_ffn))
        return lhi_target_fail(
            LH_TARGET_MEGATRON, err,
            "cannot recompute only the activation functions of MLPs; "
            "use training.recompute: [layernorm, mlp], full or none");
    if (job->framework.fp8 != LH_FP8_NONE && recomputes_8_bit_inputs(job, c))
        return lhi_target_fail(
            LH_TARGET_MEGATRON, err,
            "does not recompute norms and activation functions with "
            "delayed scaling; use training.recompute: full or none, "
            "or framework.fp8: none");
    if (job->framework.overlap_shared_experts > 0 && c->layout.expert > 1 &&
        c->recompute == LH_RECOMPUTE_MODULES &&
        job->training.recompute_modules >> LH_MODULE_SHARED_EXPERTS & 1)
        return lhi_target_fail(LH_TARGET_MEGATRON, err,
                               "overlaps shared experts only if "
                               "training.recompute does not list "
                               "shared_experts");
    if (overlaps && c->recompute == LH_RECOMPUTE_FULL)
        return lhi_target_fail(
            LH_TARGET_MEGATRON, err,
            "overlaps expert communication only without full "
            "recomputation");
    if (overlaps && c->recompute == LH_RECOMPUTE_MODULES &&
        job->training.recompute_modules >> LH_MODULE_MOE & 1)
        return lhi_target_fail(LH_TARGET_MEGATRON, err,
                               "overlaps expert communication only if "
                               "training.recompute does not list moe");
    return LH_OK;
}

/* Checks that Megatron-LM supports the rank order with these expert groups.
 * With replicas outermost a stage's ranks are not contiguous, and
 * parallel_state.py then distributes experts only over one replica's ranks. */
static lh_status check_megatron_rank_order(const lh_job *job,
                                           const lh_layout *l, lh_error *err)
{
    uint64_t block = lh_layout_expert_block(l);
    uint64_t replica = (uint64_t)l->tensor * l->context;
    if (job->model->experts && job->model->mlp_bias &&
        lh_layout_expert_tensor(l) > 1)
        return lhi_target_fail(LH_TARGET_MEGATRON, err,
                               "does not shard experts that have biases; use "
                               "layout.expert_tensor: 1");
    if (!job->model->experts || lh_layout_rank_order(l) != LH_OUTERMOST_DATA ||
        l->pipeline == 1 || block == replica)
        return LH_OK;
    return lhi_fail(
        err, LH_EUNSUPPORTED,
        "Megatron-LM with --use-tp-pp-dp-mapping distributes "
        "experts over the ranks of one replica's stage, tensor x "
        "context %" PRIu64 ", and not over expert x expert_tensor %" PRIu64
        "; use layout.%s: pipeline",
        replica, block, job->n_datacenters > 1 ? "rank_order" : "outermost");
}

/* Checks that Megatron-LM's FSDP (ZeRO 2 and 3) supports the layout: no
 * pipeline, and with several HSDP instances (`groups`) no expert parallelism.
 * Source: distributed/fsdp/mcore_fsdp_adapter.py, _get_dp_tp_mesh(). */
static lh_status check_megatron_fsdp(const lh_job *job, const lh_layout *l,
                                     uint32_t groups, lh_error *err)
{
    if (l->pipeline > 1)
        return lhi_target_fail(
            LH_TARGET_MEGATRON, err,
            "shards gradients and parameters by its FSDP, which does "
            "not support pipelines; use training.zero: 1, or "
            "layout.pipeline: 1");
    if (groups > 1 && job->model->experts &&
        (l->expert > 1 || lh_layout_expert_tensor(l) != l->tensor))
        return lhi_target_fail(
            LH_TARGET_MEGATRON, err,
            "reduces expert gradients over all replicas of an FSDP "
            "with several instances; use layout.sharding: full, or "
            "training.zero: 1");
    return LH_OK;
}

/* Checks that Megatron-LM supports the configuration's ZeRO stage and full or
 * hybrid sharding of optimizer state. LH_EUNSUPPORTED otherwise. */
static lh_status check_megatron_sharding(const lh_job *job, const lhi_config *c,
                                         lh_error *err)
{
    uint32_t groups = lhi_state_groups(job, &c->layout, c->zero);
    if (!groups)
        return lhi_target_fail(
            LH_TARGET_MEGATRON, err,
            "divides replicas into equal optimizer instances, but "
            "these datacenters have different numbers of replicas");
    if (c->zero >= 2)
        LHI_TRY(check_megatron_fsdp(job, &c->layout, groups, err));
    uint64_t copies = (uint64_t)c->layout.tensor * c->layout.context *
                      c->layout.data / lh_layout_expert_block(&c->layout);
    if (job->model->experts && copies % groups != 0)
        return lhi_fail(
            err, LH_EUNSUPPORTED,
            "Megatron-LM cannot evenly divide expert replicas (%" PRIu64
            ") over optimizer instances (%" PRIu32
            "); use layout.sharding: full, or fewer GPUs for "
            "layout.expert",
            copies, groups);
    if (groups > 1 && c->layout.sharding == LH_SHARDING_HYBRID_LEADERS)
        return lhi_target_fail(
            LH_TARGET_MEGATRON, err,
            "reduces gradients between the optimizer instances on "
            "every GPU; use layout.sharding: hybrid or full");
    if (job->framework.fp8 != LH_FP8_NONE && c->zero == 0)
        return lhi_target_fail(
            LH_TARGET_MEGATRON, err,
            "stores weights in 8 bits only with its distributed "
            "optimizer; use training.zero: 1");
    return LH_OK;
}

/* Checks that Megatron-LM supports the configuration's chunks per device,
 * microbatch count and time of posting receives. LH_EUNSUPPORTED otherwise. */
static lh_status check_megatron_pipeline(const lh_job *job, const lhi_config *c,
                                         lh_error *err)
{
    const lh_layout *l = &c->layout;
    uint32_t chunks = l->chunks_per_device;
    lh_receives receives = lhi_framework_receives(&job->framework, chunks);
    if (l->pipeline == 1 && job->model->mtp_layers && overlaps_experts(job, l))
        return lhi_target_fail(
            LH_TARGET_MEGATRON, err,
            "overlaps expert communication with multi-token "
            "prediction only in a pipeline; use layout.pipeline "
            "above 1");
    if (l->pipeline == 1)
        return LH_OK;
    if (job->layout.mtp_chunk &&
        job->layout.mtp_chunk / l->pipeline + 1 < chunks)
        return lhi_target_fail(
            LH_TARGET_MEGATRON, err,
            "runs multi-token prediction in the last chunk of a "
            "rank; use a layout.mtp_chunk among the last pipeline "
            "chunks");
    if (chunks == 1 && receives != LH_RECEIVES_LATE)
        return lhi_target_fail(
            LH_TARGET_MEGATRON, err,
            "posts receives late if devices have one chunk; remove "
            "framework.receives and preset");
    if (chunks == 1)
        return overlaps_experts(job, l)
                   ? lhi_target_fail(
                         LH_TARGET_MEGATRON, err,
                         "overlaps expert communication in a pipeline only "
                         "with several chunks per device")
                   : LH_OK;
    if (receives == LH_RECEIVES_LATE_FD)
        return lhi_target_fail(
            LH_TARGET_MEGATRON, err,
            "posts the receives of interleaved chunks either all "
            "early or all late");
    if (receives == LH_RECEIVES_LATE && l->pipeline == 2)
        return lhi_target_fail(
            LH_TARGET_MEGATRON, err,
            "posts receives of interleaved chunks late only with "
            "more than two stages");
    if (c->microbatches < l->pipeline)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "Megatron-LM interleaves groups of at least pipeline = "
                        "%" PRIu32 " microbatches; there are %" PRIu32
                        ", so use chunks_per_device: 1 or a larger batch",
                        l->pipeline, c->microbatches);
    return LH_OK;
}

lh_status lhi_megatron_level(const lh_job *job, lhi_level level,
                             const lhi_config *c, lh_error *err)
{
    switch (level) {
    case LHI_LEVEL_GROUP:
        return check_megatron_group(job, &c->layout, err);
    case LHI_LEVEL_WORK:
        return check_megatron_recompute(job, c, err);
    case LHI_LEVEL_PLACED:
        LHI_TRY(check_megatron_rank_order(job, &c->layout, err));
        return check_megatron_deepep(job, &c->layout, err);
    case LHI_LEVEL_STATE:
        return check_megatron_sharding(job, c, err);
    case LHI_LEVEL_COMPLETE:
        return check_megatron_pipeline(job, c, err);
    default:
        return LH_OK;
    }
}
