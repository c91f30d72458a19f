/* SPDX-License-Identifier: Apache-2.0 */
/* Exports Megatron-LM arguments. Names and meanings: megatron/training/
 * arguments.py and megatron/core/transformer/pipeline_parallel_layer_layout.py
 * (core 0.16). planner/layout/target_check.c rejects plans that arguments
 * cannot express; the Python module longhaul.megatron runs schedules that
 * Megatron-LM lacks. */
#include "interop/export/export_internal.h"

#include "base/integer_math.h"
#include "format/job/job_values.h"
#include "format/job/model_size.h"
#include "format/job/parse.h"
#include "planner/layout/target.h"
#include "planner/layout/target_flags.h"
#include "schedule/pipeline/accessors.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* --- plan ----------------------------------------------------------------- */

/* Adds --pipeline-model-parallel-layout, such as "Et*9|t*10|t*9L": embedding E,
 * decoder layers t, prediction layers m, loss L. Stage k is on rank k mod PP.
 * Also adds the microbatch group size if it differs from PP. */
static void put_pipeline_layout(lhi_text *out, const lh_plan *plan)
{
    const uint32_t chunks = lh_pipeline_n_chunks(plan->pipeline);
    const uint32_t asked = plan->job->layout.mtp_chunk;
    const uint32_t mtp_chunk = asked ? asked : chunks - 1;
    const uint32_t mtp_layers = plan->job->model->mtp_layers;
    lhi_text_puts(out, "--pipeline-model-parallel-layout E");
    for (uint32_t i = 0; i < chunks; i++) {
        uint32_t first, count;
        lh_plan_layers(plan, i, &first, &count);
        lhi_text_puts(out, i ? "|" : "");
        if (count)
            lhi_text_printf(out, "t*%" PRIu32, count);
        if (mtp_layers && i == mtp_chunk)
            lhi_text_printf(out, "m*%" PRIu32, mtp_layers);
    }
    lhi_text_puts(out, "L\n");
    const lh_layout *l = &plan->best.layout;
    const uint32_t group =
        lhi_find_divisor_at_least(plan->best.microbatches, l->pipeline);
    if (l->chunks_per_device > 1 && group != l->pipeline)
        lhi_export_add_option(
            out, "microbatch-group-size-per-virtual-pipeline-stage", group);
}

/* Adds Megatron-LM's options that recompute the modules in the bit set `named`,
 * its selective recomputation. */
static void put_selective_recompute(lhi_text *out, uint32_t named)
{
    lhi_text_puts(
        out, "--recompute-granularity selective\n" LHI_FLAG_RECOMPUTE_MODULES);
    for (uint32_t i = 0; i < LH_N_MODULES; i++)
        if (named >> i & 1)
            lhi_text_printf(out, " %s", lh_module_name((lh_module)i));
    lhi_text_puts(out, "\n");
}

/* Adds the options that recompute the modules which the cost model treats as
 * cheap. Megatron-LM's default is core_attn, which fused attention recomputes
 * itself. */
static void put_recompute_modules(lhi_text *out, const lh_job *job)
{
    if (job->framework.attention == LH_ATTENTION_UNFUSED)
        put_selective_recompute(out, 1u << LH_MODULE_CORE_ATTN);
    else
        put_selective_recompute(out, 1u << LH_MODULE_LAYERNORM |
                                         1u << LH_MODULE_MOE_ACT);
}

/* Adds the options for the plan's activation recomputation; none without
 * recomputation. */
static void put_recompute(lhi_text *out, const lh_plan *plan)
{
    switch (plan->best.recompute) {
    case LH_RECOMPUTE_NONE:
    case LH_RECOMPUTE_OPERATIONS: /* elastic: longhaul.megatron does it */
        break;
    case LH_RECOMPUTE_SELECTIVE:
        put_recompute_modules(out, plan->job);
        break;
    case LH_RECOMPUTE_FULL:
        lhi_text_puts(
            out, "--recompute-granularity full\n--recompute-method uniform\n"
                 "--recompute-num-layers 1\n");
        break;
    case LH_RECOMPUTE_MODULES:
        put_selective_recompute(out, plan->job->training.recompute_modules);
        break;
    }
}

/* Computes the parameter counts of the smallest and of the largest chunk on one
 * GPU, with the embedding and the head, into *least and *most. */
static void find_chunk_sizes(const lh_plan *plan, double *least, double *most)
{
    const lh_model *m = plan->job->model;
    const lh_layout *l = &plan->best.layout;
    const uint32_t n = lh_pipeline_n_chunks(plan->pipeline);
    double left = lhi_layout_count_all_params(m, l);
    *least = left;
    *most = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t first, count;
        lh_plan_layers(plan, i, &first, &count);
        double own = lhi_layout_count_params(m, l, first, count);
        if (i == 0)
            own += (double)lhi_model_embedding_params(m) / l->tensor;
        if (i == n - 1)
            own = left;
        left -= own;
        *least = fmin(*least, own);
        *most = fmax(*most, own);
    }
}

/* Adds the gradient bucket count of a single stage, and a comment on how
 * their sizes differ from the plan's chunks.
 * megatron/training/training.py divides a GPU's parameters by that number. DDP
 * starts a new bucket at that size. FSDP does so only outside its units, which
 * with ZeRO 3 are the layers. */
static void put_buckets(lhi_text *out, const lh_plan *plan)
{
    const uint32_t n = plan->best.layout.chunks_per_device;
    const lh_model *m = plan->job->model;
    double least, most;
    lhi_export_add_option(out, "ddp-num-buckets", n);
    if (n == 1)
        return;
    if (plan->best.zero == 3) {
        lhi_text_puts(out,
                      "# Megatron's FSDP gathers and reduces each layer "
                      "separately; buckets apply only outside of layers\n");
        return;
    }
    find_chunk_sizes(plan, &least, &most);
    lhi_text_printf(out,
                    "# Megatron-LM splits gradients%s into %" PRIu32
                    " buckets of %.1f million parameters each; the plan's "
                    "chunks of layers have %.1f to %.1f million\n",
                    m->experts ? ", with expert gradients separate," : "", n,
                    lhi_layout_count_all_params(m, &plan->best.layout) / n /
                        1e6,
                    least / 1e6, most / 1e6);
}

/* Adds the options for the ZeRO stage, its communication overlap and gradient
 * buckets, and for recomputation. */
static void put_sharding(lhi_text *out, const lh_plan *plan)
{
    uint32_t groups =
        lhi_state_groups(plan->job, &plan->best.layout, plan->best.zero);
    if (plan->best.elastic) { /* no option: longhaul.megatron shards */
        lhi_text_puts(out, "# Sharding: by longhaul.megatron, in place of "
                           "Megatron-LM's distributed optimizer\n");
        return;
    }
    switch (plan->best.zero) {
    case 0:
        if (plan->best.layout.chunks_per_device > 1)
            lhi_text_puts(out, "--overlap-grad-reduce\n");
        break;
    case 1:
        lhi_text_puts(out,
                      "--use-distributed-optimizer\n--overlap-grad-reduce\n"
                      "--overlap-param-gather\n");
        break;
    default:
        lhi_text_printf(out,
                        "--use-megatron-fsdp\n--use-distributed-optimizer\n"
                        "--overlap-grad-reduce\n--overlap-param-gather\n"
                        "--ckpt-format fsdp_dtensor\n"
                        "--data-parallel-sharding-strategy %s\n",
                        plan->best.zero == 2 ? "optim_grads"
                                             : "optim_grads_params");
        break;
    }
    if (groups > 1)
        lhi_export_add_option(out, "num-distributed-optimizer-instances",
                              groups);
    /* In a pipeline, whole stages overlap with passes. */
    if (plan->best.layout.pipeline == 1 &&
        (plan->best.zero || plan->best.layout.chunks_per_device > 1))
        put_buckets(out, plan);
    put_recompute(out, plan);
}

/* Adds the expert and expert tensor parallel degrees and, where tokens move
 * between ranks, the token dispatcher. */
static void put_experts(lhi_text *out, const lh_job *job, const lh_layout *l)
{
    lhi_export_add_option(out, "expert-model-parallel-size", l->expert);
    lhi_export_add_option(out, "expert-tensor-parallel-size",
                          lh_layout_expert_tensor(l));
    if (l->expert == 1 && lh_layout_expert_tensor(l) == l->tensor)
        /* Experts are sharded like other weights, and need no dispatcher. */
        return;
    const lh_dispatcher dispatcher =
        l->expert > 1 ? job->training.dispatcher : LH_DISPATCHER_ALL_TO_ALL;
    if (lhi_dispatches_once_per_node(dispatcher))
        lhi_text_printf(
            out, LHI_FLAG_DISPATCHER "flex\n" LHI_FLAG_FLEX_BACKEND "%s\n",
            lhi_dispatcher_names[dispatcher]);
    else
        lhi_text_printf(out, LHI_FLAG_DISPATCHER "%s\n",
                        lhi_dispatcher_names[dispatcher]);
}

/* Adds the options for the type in which gradients are kept, where it is not
 * the default: fp32 with bf16, and fp16 with fp16. */
static void put_gradients(lhi_text *out, const lh_job *job)
{
    const lh_gradient kept = job->framework.gradients;
    if (kept == LH_GRADIENT_BF16)
        lhi_text_puts(out, LHI_FLAG_REDUCE_BF16 "\n");
    if (job->training.precision == LH_PRECISION_FP16 &&
        kept == LH_GRADIENT_FP32)
        lhi_text_puts(out, "--accumulate-allreduce-grads-in-fp32\n");
}

/* Adds the options that follow from the job's framework settings: sequence
 * parallelism, attention, gradient types, FP8 and communication overlap. */
static void put_framework(lhi_text *out, const lh_plan *plan)
{
    const lh_framework *f = &plan->job->framework;
    const lh_layout *l = &plan->best.layout;
    if (l->tensor > 1 && !f->no_sequence_parallel)
        lhi_text_puts(out, "--sequence-parallel\n");
    if (f->attention == LH_ATTENTION_UNFUSED)
        lhi_text_puts(out, "--attention-backend unfused\n");
    put_gradients(out, plan->job);
    if (f->fp8 != LH_FP8_NONE)
        lhi_text_puts(out, "--fp8-format hybrid\n--fp8-param-gather\n");
    if (f->overlap_tensor > 0 && l->tensor > 1)
        lhi_text_puts(out, LHI_FLAG_TENSOR_OVERLAP "\n");
    if (f->overlap_expert > 0 && l->expert > 1)
        lhi_text_puts(out, LHI_FLAG_EXPERT_OVERLAP "\n");
    if (f->overlap_shared_experts > 0 && l->expert > 1)
        lhi_text_puts(out, LHI_FLAG_SHARED_OVERLAP "\n");
    if (l->chunks_per_device > 1 && l->pipeline > 1 &&
        lhi_framework_receives(f, l->chunks_per_device) == LH_RECEIVES_LATE)
        lhi_text_puts(out, "--no-overlap-p2p-communication\n");
}

lhi_megatron_connection_rule lhi_megatron_connections(const lh_plan *plan)
{
    const lh_layout *l = &plan->best.layout;
    if (plan->best.zero >= 2)
        return LHI_CONNECTIONS_UNSET;
    return l->tensor > 1 || l->context > 1 ? LHI_CONNECTIONS_ONE
                                           : LHI_CONNECTIONS_ANY;
}

/* Adds a comment on the CUDA_DEVICE_MAX_CONNECTIONS that the plan requires, if
 * any. */
static void put_connections(lhi_text *out, const lh_plan *plan)
{
    const lhi_megatron_connection_rule connections =
        lhi_megatron_connections(plan);
    if (connections == LHI_CONNECTIONS_UNSET)
        lhi_text_puts(out, "# In the environment: no "
                           "CUDA_DEVICE_MAX_CONNECTIONS\n");
    else if (connections == LHI_CONNECTIONS_ONE)
        lhi_text_puts(out, "# In the environment: "
                           "CUDA_DEVICE_MAX_CONNECTIONS=1\n");
}

/* Adds the Megatron-LM options that number ranks with replicas outermost.
 * Megatron's parallel_state.py then requires as many replicas of experts as of
 * the other parameters, even without experts. */
static void put_replicas_outermost(lhi_text *out, const lh_job *job,
                                   const lh_layout *l)
{
    lhi_text_puts(out, "--use-tp-pp-dp-mapping\n");
    if (!job->model->experts && l->context > 1)
        lhi_export_add_option(out, "expert-tensor-parallel-size",
                              (uint64_t)l->tensor * l->context);
}

bool lhi_megatron_needs_runtime(const lh_plan *plan)
{
    const lh_layout *l = &plan->best.layout;
    return l->pipeline > 1 &&
           !lhi_target_runs_passes(LH_TARGET_MEGATRON, &plan->best);
}

/* Fails with LH_EUNSUPPORTED and the text "longhaul.megatron why". */
static lh_status fail_runtime(lh_error *err, const char *why)
{
    return lhi_fail(err, LH_EUNSUPPORTED, "longhaul.megatron %s", why);
}

/* Tests whether longhaul.megatron can recompute an operation of a model's
 * layers. */
static bool is_recomputable(const lh_model *m, const char *operation)
{
    static const struct {
        const char *operation;
        bool is_mlp, is_projection;
    } known[] = {
        {"attention norm", false, false},
        {"attention", false, false},
        {"mlp norm", false, false},
        {"query", false, true},
        {"key", false, true},
        {"value", false, true},
        {"up", true, false},
        {"gate", true, false},
        {"activation", true, false},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(operation, known[i].operation) == 0)
            return !(known[i].is_mlp && m->experts) &&
                   !(known[i].is_projection && m->kv_lora_rank);
    return false;
}

/* Checks that longhaul.megatron can shard and recompute as elastic plan `plan`
 * of a job. LH_EUNSUPPORTED: it cannot; `err` has the reason. */
static lh_status check_elastic(const lh_plan *plan, lh_error *err)
{
    const lh_layout *l = &plan->best.layout;
    const lh_plan_elastic *e = plan->best.elastic;
    if (l->context > 1)
        return fail_runtime(err, "shards no parameters of an elastic plan over "
                                 "context parallelism; use layout.context: 1");
    if (l->sharding != LH_SHARDING_FULL)
        return fail_runtime(err, "shards an elastic plan over all replicas; "
                                 "use layout.sharding: full");
    if (plan->job->model->tied_embeddings)
        return fail_runtime(err, "shards no tied embedding of an elastic plan; "
                                 "use another layout.schedule, or "
                                 "tied_embeddings: false");
    for (uint32_t i = 0; i < e->n_recomputed; i++)
        if (!is_recomputable(plan->job->model, e->recomputed[i].operation))
            return lhi_fail(err, LH_EUNSUPPORTED,
                            "longhaul.megatron recomputes no operation '%.40s' "
                            "of single layers; plan for more GPUs or smaller "
                            "microbatches, or use another layout.schedule",
                            e->recomputed[i].operation);
    return LH_OK;
}

/* Checks that longhaul.megatron can run a plan's passes in Megatron-LM.
 * LH_EUNSUPPORTED: it cannot; `err` has the reason. */
static lh_status check_runtime(const lh_plan *plan, lh_error *err)
{
    const lh_job *job = plan->job;
    const lh_layout *l = &plan->best.layout;
    LHI_TRY(lhi_export_check_settings(plan, LH_TARGET_MEGATRON, err));
    if (job->model->mtp_layers)
        return fail_runtime(err, "runs no multi-token prediction; use longhaul "
                                 "plan --for megatron");
    if (job->framework.overlap_expert > 0 && l->expert > 1)
        return fail_runtime(err, "does not overlap expert communication; "
                                 "remove framework.overlap.expert");
    /* Transformer Engine cannot defer weight gradients of FP8 parameters, or
     * with overlapped tensor-parallel communication. */
    if (!lhi_pipeline_is_joint(plan->pipeline)) {
        if (job->framework.fp8 != LH_FP8_NONE)
            return fail_runtime(err, "separates no weight gradients of "
                                     "parameters in FP8; remove framework.fp8, "
                                     "or use longhaul plan --for megatron");
        if (job->framework.overlap_tensor > 0 && l->tensor > 1)
            return fail_runtime(err, "separates no weight gradients beside "
                                     "overlapped tensor parallelism; remove "
                                     "framework.overlap.tensor, or use "
                                     "longhaul plan --for megatron");
    }
    if (job->model->tied_embeddings &&
        plan->best.placement == LH_PLACEMENT_WAVE)
        return fail_runtime(err,
                            "shares no embedding between two chunks of a "
                            "rank; use a layout.schedule for one chunk per "
                            "device, or tied_embeddings: false");
    return plan->best.elastic ? check_elastic(plan, err) : LH_OK;
}

/* Checks that Megatron-LM can run a plan, with longhaul.megatron if it lacks
 * the schedule. LH_EUNSUPPORTED: it cannot; `err` has the reason. */
static lh_status check_plan(const lh_plan *plan, lh_export_target target,
                            lh_error *err)
{
    if (plan->best.placement == LH_PLACEMENT_BD)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "Megatron-LM does not support two directions "
                        "(placement bd); use longhaul plan --for megatron");
    return target == LH_EXPORT_MEGATRON && lhi_megatron_needs_runtime(plan)
               ? check_runtime(plan, err)
               : lhi_export_check(plan, LH_TARGET_MEGATRON, err);
}

/* Adds a comment on the program that runs the passes, if it is not Megatron-LM.
 */
static void put_runtime(lhi_text *out, const lh_plan *plan)
{
    if (lhi_megatron_needs_runtime(plan))
        lhi_text_puts(out, "# Passes: run by python -m longhaul.megatron "
                           "--plan plan.json, as launch.sh of a bundle does\n");
}

/* Adds all arguments of a plan for Megatron-LM or Megatron-Bridge, with
 * comments on its origin, ranks and deviations. */
static void put_all_arguments(lhi_text *out, const lh_plan *plan,
                              lh_export_target target)
{
    const lh_job *job = plan->job;
    const lh_layout *l = &plan->best.layout;
    lhi_export_add_origin(out, plan);
    lhi_text_printf(out, "# The plan: %s on %s, %.3f s per iteration.\n",
                    l->schedule, lh_placement_name(plan->best.placement),
                    (double)plan->best.iteration_ns / 1e9);
    lhi_export_add_ranks(out, plan);
    put_runtime(out, plan);
    put_connections(out, plan);
    lhi_export_put_inexact(out, plan, target);
    lhi_export_put_megatron_model(out, job, l->tensor);
    lhi_export_add_option(out, "tensor-model-parallel-size", l->tensor);
    lhi_export_add_option(out, "context-parallel-size", l->context);
    if (job->model->experts)
        put_experts(out, job, l);
    lhi_export_add_option(out, "pipeline-model-parallel-size", l->pipeline);
    if (l->pipeline > 1)
        put_pipeline_layout(out, plan);
    if (lh_layout_rank_order(l) == LH_OUTERMOST_DATA && l->pipeline > 1)
        put_replicas_outermost(out, job, l);
    lhi_export_add_option(out, "micro-batch-size", l->micro_batch);
    lhi_export_add_option(out, "global-batch-size", job->training.global_batch);
    if (job->training.precision != LH_PRECISION_FP32)
        lhi_text_printf(out, "--%s\n",
                        lh_precision_name(job->training.precision));
    put_framework(out, plan);
    put_sharding(out, plan);
}

lh_status lhi_export_write_megatron_arguments(const lh_plan *plan,
                                              lh_export_target target,
                                              char **text, size_t *len,
                                              lh_error *err)
{
    lhi_text out = {0};
    LHI_TRY(check_plan(plan, target, err));
    put_all_arguments(&out, plan, target);
    return lhi_text_take(&out, text, len, err);
}

lh_status lhi_export_write_megatron(const lh_plan *plan, char **text,
                                    size_t *len, lh_error *err)
{
    return lhi_export_write_megatron_arguments(plan, LH_EXPORT_MEGATRON, text,
                                               len, err);
}
