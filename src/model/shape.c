/* SPDX-License-Identifier: Apache-2.0 */
#include "model/shape.h"

#include "base/fail.h"
#include "base/options.h"
#include "format/job/job_values.h"
#include "format/job/parse.h"

#include <inttypes.h>
#include <math.h>

/* Fitted by `validate --fit`, the experts' constants by `validate-published
 * --fit` (bench/); docs/validation.md lists the runs. Links between datacenters
 * are not fitted: the job specifies them. */
static const lh_cost_constants defaults = {
    .matmul_efficiency = 0.8335,
    .memory_efficiency = 0.841,
    .kernel_ns = 6100,
    .layer_host_ns = 870000,
    .node_efficiency = 0.725,
    .fabric_efficiency = 0.985,
    .wan_efficiency = 1,
    .iteration_ns = 2.5e6,
    .experts_efficiency = 0.84,
    .fused_experts_efficiency = 0.72,
    .dispatch_ns = 400000,
    .expert_ns = 53000,
};

const lh_cost_constants *lh_cost_defaults(void)
{
    return &defaults;
}

const lh_cost_constants *lhi_find_cost_constants(const lh_job *job)
{
    return job->constants ? job->constants : &defaults;
}

bool lhi_is_iteration_end_measured(const lh_job *job)
{
    return job->profile && job->profile->iteration_ns > 0;
}

int64_t lhi_find_iteration_overhead_ns(const lh_job *job)
{
    return lhi_is_iteration_end_measured(job)
               ? job->profile->iteration_ns
               : (int64_t)lhi_find_cost_constants(job)->iteration_ns;
}

const char *lh_cost_source_name(lh_cost_source source)
{
    switch (source) {
    case LH_COST_MODEL:
        return "model";
    case LH_COST_EFFICIENCY:
        return "efficiency";
    case LH_COST_PROFILE:
        return "profile";
    case LH_COST_MIXED:
        return "mixed";
    case LH_COST_PART_EFFICIENCY:
        return "part-efficiency";
    }
    return "model";
}

/* Checks that the cost constant named `what` is a fraction: above 0, at most 1.
 */
static lh_status check_share(double value, const char *what, lh_error *err)
{
    if (!(value > 0 && value <= 1))
        return lhi_fail(err, LH_EINVAL,
                        "cost constant %s is %g; it must be above 0 and at "
                        "most 1",
                        what, value);
    return LH_OK;
}

/* Checks that the cost constant named `what` is from 0 to 1e15. */
static lh_status check_amount(double value, const char *what, lh_error *err)
{
    if (!(value >= 0 && value <= 1e15))
        return lhi_fail(err, LH_EINVAL,
                        "cost constant %s is %g; it must be from 0 to 1e15",
                        what, value);
    return LH_OK;
}

/* Counts the kernels of DeepSpeed's BF16_Optimizer after the product of a W
 * pass, which writes e bytes per weight: a conversion to fp32 (e + 4), and the
 * addition to the sum over microbatches (12) (update_hp_grads()). */
static void add_fp32_sums(lhi_shape *shape)
{
    shape->gradient_traffic = 2 * shape->element + 16;
    shape->gradient_kernels = 2;
}

/* Fills the cost options that default to the job's framework: attention,
 * sequence parallelism and gradient types. */
static void add_framework(const lh_framework *f, lh_cost_options *options)
{
    options->unfused_attention |= f->attention == LH_ATTENTION_UNFUSED;
    options->no_sequence_parallel |= f->no_sequence_parallel;
    if (!options->gradient_bytes)
        options->gradient_bytes = lhi_gradient_bytes(f->gradients);
    if (!options->gradient_wire_bytes)
        options->gradient_wire_bytes = lhi_gradient_bytes(f->reduce);
}

lh_status lhi_complete_cost_options(const lh_job *job,
                                    const lh_cost_options *in,
                                    lh_cost_options *out, lh_error *err)
{
    const lh_cost_constants *c;

    if (in == out)
        LHI_TRY(lhi_options_check_size(in, "lh_cost_options", err));
    else
        LHI_TRY(LHI_OPTIONS_COPY(lh_cost_options, out, in, err));
    if (!out->constants)
        out->constants = lhi_find_cost_constants(job);
    add_framework(&job->framework, out);
    if (out->gradient_bytes > 8 || out->gradient_wire_bytes > 8)
        return lhi_fail(err, LH_EINVAL,
                        "a gradient element has at most 8 bytes");
    c = out->constants;
    LHI_TRY(check_share(c->matmul_efficiency, "matmul_efficiency", err));
    LHI_TRY(check_share(c->memory_efficiency, "memory_efficiency", err));
    LHI_TRY(check_share(c->node_efficiency, "node_efficiency", err));
    LHI_TRY(check_share(c->fabric_efficiency, "fabric_efficiency", err));
    LHI_TRY(check_share(c->wan_efficiency, "wan_efficiency", err));
    LHI_TRY(check_share(c->experts_efficiency, "experts_efficiency", err));
    LHI_TRY(check_share(c->fused_experts_efficiency, "fused_experts_efficiency",
                        err));
    LHI_TRY(check_amount(c->kernel_ns, "kernel_ns", err));
    LHI_TRY(check_amount(c->layer_host_ns, "layer_host_ns", err));
    LHI_TRY(check_amount(c->dispatch_ns, "dispatch_ns", err));
    LHI_TRY(check_amount(c->expert_ns, "expert_ns", err));
    return check_amount(c->iteration_ns, "iteration_ns", err);
}

lh_status lhi_round_up_checked(double value, const char *what, int64_t *out,
                               lh_error *err)
{
    /* Below the range of int64_t, so that sums of a few values cannot overflow.
     */
    if (!(value >= 0 && value < 0x1p62))
        return lhi_fail(err, LH_EUNSUPPORTED, "%s is out of range (%g)", what,
                        value);
    *out = (int64_t)ceil(value - 1e-6);
    return LH_OK;
}

/* Checks that the parallel degree named `what` is set (`value` not 0) and
 * within the limit of all degrees. */
static lh_status check_degree(uint32_t value, const char *what, lh_error *err)
{
    if (value == 0 || value > LH_MAX_GPUS)
        return lhi_fail(err, LH_EINVAL,
                        "layout: %s is %" PRIu32
                        ": every degree must be set, from 1 to %u",
                        what, value, LH_MAX_GPUS);
    return LH_OK;
}

/* Checks that the degree named `degree`, with value `by`, divides `value`,
 * named `what` in the message. */
static lh_status check_divides(uint32_t value, uint32_t by, const char *what,
                               const char *degree, lh_error *err)
{
    if (value % by)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "%s (%" PRIu32 ") is not a "
                        "multiple of %s (%" PRIu32 ")",
                        what, value, degree, by);
    return LH_OK;
}

/* Checks that one pipeline stage's ranks are a multiple of expert x
 * expert_tensor. */
static lh_status check_block(const lh_layout *layout, lh_error *err)
{
    uint64_t block = lh_layout_expert_block(layout);
    uint64_t ranks = (uint64_t)layout->tensor * layout->context * layout->data;

    if (ranks % block)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "the GPUs of a pipeline stage, tensor x context x data "
                        "(%" PRIu64 "), are not a multiple of expert x "
                        "expert_tensor (%" PRIu64 ")",
                        ranks, block);
    return LH_OK;
}

/* Checks that all degrees are set and divide the model's heads, widths, experts
 * and sequence. LH_EUNSUPPORTED: they do not. */
static lh_status check_layout(const lh_job *job, const lh_layout *layout,
                              lh_error *err)
{
    const lh_model *m = job->model;

    LHI_TRY(check_degree(layout->tensor, "tensor", err));
    LHI_TRY(check_degree(layout->context, "context", err));
    LHI_TRY(check_degree(layout->expert, "expert", err));
    LHI_TRY(check_degree(layout->pipeline, "pipeline", err));
    LHI_TRY(check_degree(layout->data, "data", err));
    LHI_TRY(check_degree(layout->micro_batch, "micro_batch", err));
    LHI_TRY(check_divides(m->heads, layout->tensor, "the model's heads",
                          "tensor", err));
    LHI_TRY(check_divides(job->training.sequence, layout->context,
                          "the sequence", "context", err));
    /* Two pieces per GPU, one from each end: with a causal mask, later tokens
     * attend to more, and the pairing balances the load. */
    if (layout->context > 1)
        LHI_TRY(check_divides(job->training.sequence, 2 * layout->context,
                              "the sequence", "twice context", err));
    if (layout->context > 1 && job->layout.slices)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "context parallelism of sliced sequences is not "
                        "modelled; use context 1");
    LHI_TRY(check_divides(m->linear_key_heads, layout->tensor,
                          "the model's linear_key_heads", "tensor", err));
    LHI_TRY(check_divides(m->mamba_groups, layout->tensor,
                          "the model's mamba_groups", "tensor", err));
    LHI_TRY(check_divides(m->mamba_heads / layout->tensor, layout->context,
                          "the model's mamba_heads / tensor", "context", err));
    if (layout->context > 1 && (m->linear_value_heads || m->index_topk))
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "context parallelism of models with %s is not "
                        "modelled; use context 1",
                        m->index_topk ? "an indexer" : "gated delta networks");
    if (m->experts) {
        LHI_TRY(check_divides(m->experts, layout->expert, "the model's experts",
                              "expert", err));
        LHI_TRY(check_divides(m->expert_ffn, lh_layout_expert_tensor(layout),
                              "the experts' width", "expert_tensor", err));
        LHI_TRY(check_block(layout, err));
        LHI_TRY(check_divides(m->shared_expert_ffn, layout->tensor,
                              "the shared experts' width", "tensor", err));
    } else if (layout->expert > 1 || layout->expert_tensor) {
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "expert is %" PRIu32 " and expert_tensor %" PRIu32
                        ", but the model has no experts",
                        layout->expert, lh_layout_expert_tensor(layout));
    }
    return check_divides(m->ffn, layout->tensor, "the model's ffn", "tensor",
                         err);
}

bool lhi_is_module_recomputed(const lhi_shape *shape, lh_module module)
{
    return shape->recompute == LH_RECOMPUTE_MODULES &&
           (shape->modules >> module & 1) != 0;
}

/* Returns the token count of the GPU with most tokens, relative to the mean
 * over GPUs. At most all tokens are on one of the ranks that share the experts,
 * and each expert has at most its capacity. */
static double compute_imbalance(const lh_training *t, const lh_layout *layout)
{
    double most = fmin(t->imbalance, layout->expert);
    if (t->expert_capacity > 0)
        most = fmin(most, t->expert_capacity);
    return fmax(1, most);
}

/* Sets in the shape how torchtitan runs the model: saved products, FP8 scales
 * per tensor, and copies around gathers and sequence exchanges. Asynchronous
 * tensor parallelism moves blocks directly, without copies. */
static void add_torchtitan(const lh_job *job, const lh_layout *layout,
                           lhi_shape *out)
{
    bool parallel = layout->tensor > 1 && out->norm_share < 1;

    out->saves_products =
        out->recompute == LH_RECOMPUTE_SELECTIVE && !out->model->kv_lora_rank;
    out->scales_tensors = out->fp8;
    out->gathers_context = layout->context > 1;
    if (job->framework.attention == LH_ATTENTION_FLASH_2)
        out->attention_kv_heads = out->heads;
    out->keeps_gathered = true;
    out->copies_gathers =
        job->training.zero == 3 && (uint64_t)layout->data * layout->context > 1;
    out->copies_sequence = parallel && !(job->framework.overlap_tensor > 0);
}

lh_status lhi_shape_make(const lh_job *job, const lh_layout *layout,
                         const lh_cost_options *options, lhi_shape *out,
                         lh_error *err)
{
    const lh_model *m = job->model;
    double t, element = lhi_precision_bytes(job->training.precision);
    uint64_t block = lh_layout_expert_block(layout);

    LHI_TRY(check_layout(job, layout, err));
    t = layout->tensor;
    const double words = lhi_job_padded_vocab(job, layout->tensor);
    *out = (lhi_shape){
        .model = m,
        .tensor = layout->tensor,
        .context = layout->context,
        .expert = layout->expert,
        .expert_tensor = lh_layout_expert_tensor(layout),
        /* Attention of a slice, on average, is that of all tokens. */
        .tokens = (double)layout->micro_batch * job->training.sequence /
                  (double)layout->context / lhi_job_count_slices(job),
        .norm_share = options->no_sequence_parallel ? 1 : 1 / t,
        .sequence = job->training.sequence,
        .element = element,
        .fp8 = job->framework.fp8 != LH_FP8_NONE,
        .fp8_head = job->framework.fp8 == LH_FP8_HEAD,
        .product_element = job->framework.fp8 != LH_FP8_NONE ? 1 : element,
        .dispatch_element = job->framework.fp8 == LH_FP8_DISPATCH ? 1 : element,
        .gradient = options->gradient_bytes,
        .gradient_traffic = 2 * options->gradient_bytes,
        .heads = m->heads / t,
        /* With fewer key-value heads than GPUs, some GPUs hold the same head.
         */
        .kv_heads = fmax(1, ceil(m->kv_heads / t)),
        .qk_dim = m->head_dim,
        .v_dim = m->kv_lora_rank ? m->v_head_dim : m->head_dim,
        .vocab = ceil(words / t),
        .vocab_padding = words - m->vocab,
        .expert_divisor =
            options->expert_divisor ? options->expert_divisor : (double)block,
        .unfused = options->unfused_attention,
        .dropout = lhi_job_uses_dropout(job) && !options->no_dropout,
        .eager = job->framework.kernels == LH_KERNELS_EAGER,
        .loss = job->framework.loss,
        .recompute = job->training.recompute,
        .modules = job->training.recompute_modules,
    };
    out->attention_kv_heads = out->kv_heads;
    out->fp8_attention = job->framework.attention == LH_ATTENTION_CUDNN_FP8;
    out->cudnn_attention =
        job->framework.attention == LH_ATTENTION_CUDNN || out->fp8_attention;
    if (job->framework.preset == LH_FRAMEWORK_TORCHTITAN)
        add_torchtitan(job, layout, out);
    out->adds_biases = m->experts && m->mlp_bias &&
                       job->framework.preset == LH_FRAMEWORK_MEGATRON &&
                       !job->framework.fused_experts;
    out->clamps_activations = m->experts && m->gated && m->swiglu_limit > 0 &&
                              m->activation == LH_ACTIVATION_QUICK_GELU &&
                              job->framework.preset == LH_FRAMEWORK_MEGATRON &&
                              !job->framework.fused_experts;
    out->weights_expert_results =
        job->framework.preset == LH_FRAMEWORK_DEEPSPEED;
    if (job->framework.preset == LH_FRAMEWORK_DEEPSPEED &&
        job->training.precision == LH_PRECISION_BF16 &&
        options->gradient_bytes == 4)
        add_fp32_sums(out);
    out->dispatches_tokens =
        layout->expert > 1 || out->expert_tensor != layout->tensor;
    out->fused_experts = job->framework.fused_experts;
    out->sorts_tokens = job->training.dispatcher == LH_DISPATCHER_ALL_TO_ALL &&
                        layout->expert > 1 && m->experts > layout->expert;
    if (m->experts) {
        out->dispatched = m->experts_per_token *
                          (out->dispatches_tokens ? 1 / t : out->norm_share);
        out->expert_rows = m->experts_per_token;
        if (out->dispatches_tokens)
            out->expert_rows *= out->expert_tensor / t;
        const double imbalance = compute_imbalance(&job->training, layout);
        out->received =
            out->dispatched *
            (job->training.dispatcher == LH_DISPATCHER_ALL_GATHER ? 1
                                                                  : imbalance);
        out->expert_rows *= imbalance;
    }
    return LH_OK;
}
