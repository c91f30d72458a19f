/* SPDX-License-Identifier: Apache-2.0 */
/* Training settings and ranks from Megatron-LM's arguments: arguments.py,
 * transformer_config.py and training.py (core 0.16.1 and 0.20). */
#include "interop/import/megatron_internal.h"

#include "base/integer_math.h"

#include <stdlib.h>
#include <string.h>

/* --- training ------------------------------------------------------------- */

/* Reads the precision from --fp16 and --bf16; fp32 without them. LH_EINPUT:
 * both are given. */
static lh_status read_precision(const lhi_megatron *m, lhi_imported_job *in,
                                lh_error *err)
{
    const bool half = lhi_arg_is_given(m, LHI_ARG_FP16);
    const bool brain = lhi_arg_is_given(m, LHI_ARG_BF16);
    if (half && brain)
        return lhi_arg_fail(m, LHI_ARG_FP16, LH_EINPUT, err,
                            "cannot be combined with --bf16");
    in->training.precision = half    ? LH_PRECISION_FP16
                             : brain ? LH_PRECISION_BF16
                                     : LH_PRECISION_FP32;
    return LH_OK;
}

/* Reads the dropout of hidden states and attention: whether either has any, and
 * the rate if it is the same for both. */
static lh_status read_dropout(const lhi_megatron *m, lhi_imported_job *in,
                              lh_error *err)
{
    double hidden = 0.1, attention = 0.1;
    LHI_TRY(lhi_arg_get_real(m, LHI_ARG_HIDDEN_DROPOUT, 0, 1, &hidden, err));
    LHI_TRY(
        lhi_arg_get_real(m, LHI_ARG_ATTENTION_DROPOUT, 0, 1, &attention, err));
    in->training.dropout_given = true;
    in->training.dropout = hidden > 0 || attention > 0;
    if (hidden == attention && hidden != 0.1 && hidden <= 0.999)
        in->training.dropout_rate = hidden;
    if (in->training.dropout && !(hidden > 0 && attention > 0))
        lhi_import_note(in,
                        "--%s-dropout: dropout of both hidden states and "
                        "attention is modelled",
                        hidden > 0 ? "attention" : "hidden");
    return LH_OK;
}

/* Reads the optimizer, which is always modelled as Adam, with a note if it is
 * another.
 * LH_EUNSUPPORTED: it is soap. */
static lh_status read_optimizer(const lhi_megatron *m, lhi_imported_job *in,
                                lh_error *err)
{
    static const char *const kinds[] = {
        "adam",          "sgd",       "lion", "muon",
        "adaptive_muon", "dist_muon", "soap", NULL};
    uint32_t kind = 0;
    in->training.optimizer = LH_OPTIMIZER_ADAMW;
    LHI_TRY(lhi_arg_get_choice(m, LHI_ARG_OPTIMIZER, kinds, &kind, err));
    if (strcmp(kinds[kind], "soap") == 0)
        return lhi_arg_fail(m, LHI_ARG_OPTIMIZER, LH_EUNSUPPORTED, err,
                            "longhaul does not model the matrices that soap "
                            "keeps for each parameter; use adam");
    if (kind > 0)
        lhi_import_note(in,
                        "--optimizer: %s is modelled as adam: two moments per "
                        "parameter%s",
                        kinds[kind],
                        strstr(kinds[kind], "muon")
                            ? ", and no orthogonalisation of the updates"
                            : "");
    return LH_OK;
}

/* Reads the last batch size of a schedule such as "0:384 200B:768", if given,
 * with a note that only this one is modelled. */
static lh_status read_last_batch(const lhi_megatron *m, lhi_imported_job *in,
                                 lh_error *err)
{
    const lhi_megatron_key key = LHI_ARG_STEP_BATCH_SIZE_SCHEDULE;
    if (!lhi_arg_is_given(m, key))
        return LH_OK;
    if (lhi_arg_is_given(m, LHI_ARG_GLOBAL_BATCH_SIZE))
        return lhi_arg_fail(m, key, LH_EINPUT, err,
                            "cannot be combined with --global-batch-size");
    const char *last = strrchr(m->args[key].values[0].text, ':');
    char *end = NULL;
    const long batch = last ? strtol(last + 1, &end, 10) : 0;
    if (!end || *end || batch < 1 || batch > 1 << 30)
        return lhi_arg_fail(m, key, LH_EINPUT, err,
                            "'%.60s' does not end in :N, the last batch",
                            m->args[key].values[0].text);
    in->training.global_batch = (uint32_t)batch;
    lhi_import_note(in, "--step-batch-size-schedule: the batch is modelled at "
                        "its final size");
    return LH_OK;
}

/* Reads the sequence length, microbatch size and global batch.
 * LH_EINPUT: the batch is not a multiple of microbatch size x data parallelism.
 */
static lh_status read_batch(const lhi_megatron *m, lhi_imported_job *in,
                            lh_error *err)
{
    const lhi_megatron_key sequence =
        lhi_arg_is_given(m, LHI_ARG_ENCODER_SEQ_LENGTH)
            ? LHI_ARG_ENCODER_SEQ_LENGTH
            : LHI_ARG_SEQ_LENGTH;
    lh_layout *l = &in->layout;
    LHI_TRY(lhi_arg_require_integer(m, sequence, 1, LHI_MAX_VOCAB,
                                    &in->training.sequence, err));
    LHI_TRY(lhi_arg_require_integer(m, LHI_ARG_MICRO_BATCH_SIZE, 1,
                                    LHI_MAX_DEGREE, &l->micro_batch, err));
    const uint64_t share = (uint64_t)l->micro_batch * l->data;
    in->training.global_batch = share < 1u << 30 ? (uint32_t)share : 1u << 30;
    LHI_TRY(lhi_arg_get_integer(m, LHI_ARG_GLOBAL_BATCH_SIZE, 1, 1u << 30,
                                &in->training.global_batch, err));
    LHI_TRY(read_last_batch(m, in, err));
    const lhi_megatron_key batch =
        lhi_arg_is_given(m, LHI_ARG_STEP_BATCH_SIZE_SCHEDULE)
            ? LHI_ARG_STEP_BATCH_SIZE_SCHEDULE
            : LHI_ARG_GLOBAL_BATCH_SIZE;
    if (in->training.global_batch % share != 0)
        return lhi_arg_fail(m, batch, LH_EINPUT, err,
                            "%u is not a multiple of --micro-batch-size %u x "
                            "data parallelism %u",
                            in->training.global_batch, l->micro_batch, l->data);
    return LH_OK;
}

/* Checks the size of microbatch groups with several stages per rank, as
 * schedules.py requires it. A group needs at least one microbatch per rank; a
 * smaller last group must be empty. Notes a size that is modelled differently.
 */
static lh_status check_microbatch_groups(const lhi_megatron *m,
                                         lhi_imported_job *in, lh_error *err)
{
    const lhi_megatron_key key =
        LHI_ARG_MICROBATCH_GROUP_SIZE_PER_VIRTUAL_PIPELINE_STAGE;
    const lh_layout *l = &in->layout;
    const uint32_t ranks = l->pipeline;
    const uint32_t n = in->training.global_batch / (l->micro_batch * l->data);
    const uint32_t costed = lhi_find_divisor_at_least(n, ranks);
    uint32_t group = ranks;
    LHI_TRY(lhi_arg_get_integer(m, key, 1, 1u << 30, &group, err));
    if (ranks == 1 || l->chunks_per_device == 1)
        return LH_OK;
    if (n < ranks)
        return lhi_arg_fail(m, LHI_ARG_GLOBAL_BATCH_SIZE, LH_EINPUT, err,
                            "gives %u microbatches per replica; with several "
                            "stages per rank Megatron-LM requires at least %u",
                            n, ranks);
    if (group < ranks || group > n || (n % group && n % group < ranks))
        return lhi_arg_fail(m, key, LH_EINPUT, err,
                            "Megatron-LM cannot run %u microbatches on %u "
                            "ranks in groups of %u; use groups of %u",
                            n, ranks, group, costed);
    if (group != costed)
        lhi_import_note(in,
                        "--microbatch-group-size-per-virtual-pipeline-stage: "
                        "modelled with groups of %u microbatches",
                        costed);
    return LH_OK;
}

/* Reads the selectively recomputed modules; by default core attention.
 * LH_EINPUT: a module is unknown. */
static lh_status read_recomputed_modules(const lhi_megatron *m,
                                         lhi_imported_job *in, lh_error *err)
{
    const lhi_input_value *given = &m->args[LHI_ARG_RECOMPUTE_MODULES];
    in->training.recompute = LH_RECOMPUTE_MODULES;
    if (!given->is_given || given->n == 0)
        in->training.recompute_modules = 1u << LH_MODULE_CORE_ATTN;
    for (uint32_t i = 0; i < given->n; i++) {
        uint32_t module = 0;
        while (module < LH_N_MODULES &&
               strcmp(lhi_module_names[module], given->values[i].text) != 0)
            module++;
        if (module == LH_N_MODULES)
            return lhi_arg_fail(m, LHI_ARG_RECOMPUTE_MODULES, LH_EINPUT, err,
                                "unknown module '%.40s'",
                                given->values[i].text);
        in->training.recompute_modules |= 1u << module;
    }
    return LH_OK;
}

/* Reads the granularity and method of activation recomputation, with a note if
 * it is modelled differently.
 * LH_EINPUT: full recomputation without a method. */
static lh_status read_recompute(const lhi_megatron *m, lhi_imported_job *in,
                                lh_error *err)
{
    static const char *const kinds[] = {"full", "selective", NULL};
    static const char *const methods[] = {"uniform", "block", NULL};
    uint32_t kind = 2, method = 0, layers = 1;
    in->training.recompute_given = true;
    LHI_TRY(lhi_arg_get_choice(m, LHI_ARG_RECOMPUTE_GRANULARITY, kinds, &kind,
                               err));
    LHI_TRY(
        lhi_arg_get_choice(m, LHI_ARG_RECOMPUTE_METHOD, methods, &method, err));
    LHI_TRY(lhi_arg_get_integer(m, LHI_ARG_RECOMPUTE_NUM_LAYERS, 1,
                                LHI_MAX_LAYERS, &layers, err));
    if (lhi_arg_is_given(m, LHI_ARG_RECOMPUTE_ACTIVATIONS))
        kind = 1;
    if (lhi_arg_is_given(m, LHI_ARG_MOE_LAYER_RECOMPUTE))
        lhi_import_note(in, "--moe-layer-recompute: is not modelled; use "
                            "--recompute-modules moe");
    if (kind == 1)
        return read_recomputed_modules(m, in, err);
    if (kind == 2)
        return LH_OK;
    in->training.recompute = LH_RECOMPUTE_FULL;
    if (!lhi_arg_is_given(m, LHI_ARG_RECOMPUTE_METHOD))
        return lhi_arg_fail(m, LHI_ARG_RECOMPUTE_METHOD, LH_EINPUT, err,
                            "is required with --recompute-granularity full");
    if (method == 1 || layers != 1)
        lhi_import_note(in, "--recompute-num-layers: each layer is modelled as "
                            "recomputed separately, as with --recompute-method "
                            "uniform and 1");
    return LH_OK;
}

/* Notes which data-parallel communication is modelled as overlapped although
 * the arguments do not request it. */
static void note_overlap(const lhi_megatron *m, lhi_imported_job *in)
{
    const uint32_t zero = in->training.zero;
    const bool reduces = lhi_arg_is_given(m, LHI_ARG_OVERLAP_GRAD_REDUCE);
    const bool gathers = lhi_arg_is_given(m, LHI_ARG_OVERLAP_PARAM_GATHER);
    if (in->layout.data == 1 && in->layout.context == 1)
        return;
    if (!reduces && (zero > 0 || in->layout.chunks_per_device > 1))
        lhi_import_note(in, "--overlap-grad-reduce: is not set, but reductions "
                            "are modelled as overlapped");
    if (!gathers && zero > 0)
        lhi_import_note(in, "--overlap-param-gather: is not set, but gathers "
                            "are modelled as overlapped");
}

/* Checks that --overlap-param-gather comes with the arguments that
 * validate_args() in arguments.py requires. */
static lh_status check_overlap_arguments(const lhi_megatron *m, lh_error *err)
{
    const bool shards =
        lhi_arg_is_given(m, LHI_ARG_USE_DISTRIBUTED_OPTIMIZER) ||
        lhi_arg_is_given(m, LHI_ARG_USE_MEGATRON_FSDP);
    if (!lhi_arg_is_given(m, LHI_ARG_OVERLAP_PARAM_GATHER))
        return LH_OK;
    if (!shards)
        return lhi_arg_fail(m, LHI_ARG_OVERLAP_PARAM_GATHER, LH_EINPUT, err,
                            "requires --use-distributed-optimizer or "
                            "--use-megatron-fsdp");
    if (!lhi_arg_is_given(m, LHI_ARG_OVERLAP_GRAD_REDUCE))
        return lhi_arg_fail(m, LHI_ARG_OVERLAP_PARAM_GATHER, LH_EINPUT, err,
                            "needs --overlap-grad-reduce");
    return LH_OK;
}

/* Reads the ZeRO stage from the arguments of the distributed optimizer,
 * Megatron FSDP or PyTorch FSDP2. */
static lh_status read_zero(const lhi_megatron *m, lhi_imported_job *in,
                           lh_error *err)
{
    static const char *const kinds[] = {"no_shard", "optim", "optim_grads",
                                        "optim_grads_params", NULL};
    lh_training *t = &in->training;
    t->zero_given = true;
    t->zero = lhi_arg_is_given(m, LHI_ARG_USE_DISTRIBUTED_OPTIMIZER);
    if (lhi_arg_is_given(m, LHI_ARG_USE_MEGATRON_FSDP)) {
        t->zero = 0;
        LHI_TRY(lhi_arg_get_choice(m, LHI_ARG_DATA_PARALLEL_SHARDING_STRATEGY,
                                   kinds, &t->zero, err));
    } else if (lhi_arg_is_given(m, LHI_ARG_USE_TORCH_FSDP2)) {
        t->zero =
            lhi_arg_is_given(m, LHI_ARG_TORCH_FSDP2_NO_RESHARD_AFTER_FORWARD)
                ? 2
                : 3;
    }
    return LH_OK;
}

/* Reads the distributed optimizer instance count. Also checks the overlap
 * arguments and notes overlap that is modelled differently. */
static lh_status read_instances(const lhi_megatron *m, lhi_imported_job *in,
                                lh_error *err)
{
    LHI_TRY(check_overlap_arguments(m, err));
    note_overlap(m, in);
    in->instances = 1;
    in->instances_key = "--num-distributed-optimizer-instances";
    return lhi_arg_get_integer(m, LHI_ARG_NUM_DISTRIBUTED_OPTIMIZER_INSTANCES,
                               1, LHI_MAX_DEGREE, &in->instances, err);
}

/* Reads the experts' token dispatcher, with a note if it is modelled
 * differently. */
static lh_status read_dispatcher(const lhi_megatron *m, lhi_imported_job *in,
                                 lh_error *err)
{
    static const char *const kinds[] = {"allgather", "alltoall", "flex", NULL};
    static const char *const backends[] = {"deepep", "hybridep", "ncclep",
                                           NULL};
    uint32_t kind = 0, backend = 0;
    LHI_TRY(lhi_arg_get_choice(m, LHI_ARG_MOE_TOKEN_DISPATCHER_TYPE, kinds,
                               &kind, err));
    LHI_TRY(lhi_arg_get_choice(m, LHI_ARG_MOE_FLEX_DISPATCHER_BACKEND, backends,
                               &backend, err));
    if (!in->model.experts)
        return LH_OK;
    if (kind == 0 && in->layout.expert > 1)
        in->training.dispatcher = LH_DISPATCHER_ALL_GATHER;
    if (kind == 2)
        in->training.dispatcher =
            backend == 1 ? LH_DISPATCHER_HYBRIDEP : LH_DISPATCHER_DEEPEP;
    if (kind != 2 && lhi_arg_is_given(m, LHI_ARG_MOE_ENABLE_DEEPEP))
        in->training.dispatcher = LH_DISPATCHER_DEEPEP;
    if (kind == 2 && backend == 2)
        lhi_import_note(in, "--moe-flex-dispatcher-backend: token dispatch is "
                            "modelled as DeepEP");
    return LH_OK;
}

/* Reads the balancing of tokens between experts: by default no loss, and a bias
 * only with its argument. Leaves the job's default values unset. */
static lh_status read_balance(const lhi_megatron *m, lhi_imported_job *in,
                              lh_error *err)
{
    lh_training *t = &in->training;
    const lh_job plain = {.model = &in->model};
    const lhi_input_value *kind =
        &m->args[LHI_ARG_MOE_ROUTER_LOAD_BALANCING_TYPE];
    const lhi_input_value *losses = &m->args[LHI_ARG_MOE_AUX_LOSS_COEFF];
    double loss = 0, bias = 0.001;
    if (losses->is_given && losses->n == 0)
        return lhi_arg_fail(m, LHI_ARG_MOE_AUX_LOSS_COEFF, LH_EINPUT, err,
                            "needs a value");
    if (kind->is_given && kind->n == 0)
        return lhi_arg_fail(m, LHI_ARG_MOE_ROUTER_LOAD_BALANCING_TYPE,
                            LH_EINPUT, err, "needs a value");
    LHI_TRY(
        lhi_arg_get_real(m, LHI_ARG_MOE_AUX_LOSS_COEFF, 0, 1e6, &loss, err));
    LHI_TRY(lhi_arg_get_real(m, LHI_ARG_MOE_ROUTER_BIAS_UPDATE_RATE, 0, 1,
                             &bias, err));
    if (!in->model.experts)
        return LH_OK;
    if (losses->n > 1)
        lhi_import_note(in, "--moe-aux-loss-coeff: only the first of the "
                            "losses is imported");
    if (kind->is_given && !strstr(kind->values[0].text, "aux_loss"))
        loss = 0;
    if (!lhi_arg_is_given(m, LHI_ARG_MOE_ROUTER_ENABLE_EXPERT_BIAS))
        bias = 0;
    if (loss != lhi_job_balance_loss(&plain)) {
        t->balance_loss_given = true;
        t->balance_loss = loss;
    }
    if (in->model.router == LH_ROUTER_SIGMOID &&
        bias != lhi_job_balance_bias(&plain)) {
        t->balance_bias_given = true;
        t->balance_bias = bias;
    }
    return LH_OK;
}

/* Reads the training settings except ZeRO stage and batch: precision, dropout,
 * optimizer, recomputation, instances, balancing and dispatcher. */
static lh_status read_training(const lhi_megatron *m, lhi_imported_job *in,
                               lh_error *err)
{
    LHI_TRY(read_precision(m, in, err));
    LHI_TRY(read_dropout(m, in, err));
    LHI_TRY(read_optimizer(m, in, err));
    LHI_TRY(read_recompute(m, in, err));
    LHI_TRY(read_instances(m, in, err));
    LHI_TRY(read_balance(m, in, err));
    return read_dispatcher(m, in, err);
}

/* --- framework ------------------------------------------------------------ */

/* Reads the type in which gradients are stored and reduced; sets it only where
 * it differs from the default. */
static lh_status read_gradients(const lhi_megatron *m, lhi_imported_job *in,
                                lh_error *err)
{
    static const char *const kinds[] = {"fp32", "bf16", NULL};
    lh_framework *f = &in->framework;
    uint32_t main = 0;
    LHI_TRY(lhi_arg_get_choice(m, LHI_ARG_MAIN_GRADS_DTYPE, kinds, &main, err));
    f->gradients = LH_GRADIENT_FP32;
    if (in->training.precision == LH_PRECISION_BF16 &&
        (lhi_arg_is_given(m, LHI_ARG_GRAD_REDUCE_IN_BF16) || main == 1))
        f->gradients = LH_GRADIENT_BF16;
    if (in->training.precision == LH_PRECISION_FP16 &&
        !lhi_arg_is_given(m, LHI_ARG_ACCUMULATE_ALLREDUCE_GRADS_IN_FP32))
        f->gradients = LH_GRADIENT_FP16;
    f->reduce = f->gradients;
    f->gradients_given = f->reduce_given =
        in->training.precision == LH_PRECISION_BF16
            ? f->gradients != LH_GRADIENT_FP32
            : in->training.precision == LH_PRECISION_FP16 &&
                  f->gradients != LH_GRADIENT_FP16;
    return LH_OK;
}

/* Reads whether attention runs unfused, from the attention backend and the
 * transformer implementation. */
static lh_status read_attention(const lhi_megatron *m, lhi_imported_job *in,
                                lh_error *err)
{
    static const char *const kinds[] = {"auto",    "flash", "fused",
                                        "unfused", "local", NULL};
    static const char *const layers[] = {"transformer_engine", "local",
                                         "inference_optimized", NULL};
    uint32_t kind = 0, layer = 0;
    LHI_TRY(
        lhi_arg_get_choice(m, LHI_ARG_ATTENTION_BACKEND, kinds, &kind, err));
    LHI_TRY(
        lhi_arg_get_choice(m, LHI_ARG_TRANSFORMER_IMPL, layers, &layer, err));
    if (kind >= 3 ||
        (layer == 1 && !lhi_arg_is_given(m, LHI_ARG_USE_FLASH_ATTN)))
        in->framework.attention = LH_ATTENTION_UNFUSED;
    return LH_OK;
}

/* Reads sequence parallelism and whether tensor, expert and pipeline
 * communication overlaps compute, with a note on complete overlap. */
static lh_status read_overlaps(const lhi_megatron *m, lhi_imported_job *in,
                               lh_error *err)
{
    lh_framework *f = &in->framework;
    const lh_layout *l = &in->layout;
    const bool tensor = lhi_arg_is_given(m, LHI_ARG_TP_COMM_OVERLAP);
    const bool expert =
        lhi_arg_is_given(m, LHI_ARG_OVERLAP_MOE_EXPERT_PARALLEL_COMM);
    f->no_sequence_parallel =
        l->tensor > 1 && !lhi_arg_is_given(m, LHI_ARG_SEQUENCE_PARALLEL);
    f->overlap_tensor = tensor && l->tensor > 1;
    f->overlap_expert = expert && l->expert > 1;
    f->overlap_shared_experts =
        lhi_arg_is_given(m, LHI_ARG_MOE_SHARED_EXPERT_OVERLAP) && !expert &&
        l->expert > 1 && in->model.shared_expert_ffn;
    if (f->overlap_tensor > 0)
        lhi_import_note(in, "--tp-comm-overlap: modelled as complete overlap "
                            "with compute; lower framework.overlap.tensor if "
                            "the overlap is smaller");
    if (l->pipeline > 1 && l->chunks_per_device > 1 &&
        lhi_arg_is_given(m, LHI_ARG_NO_OVERLAP_P2P_COMMUNICATION)) {
        if (l->pipeline == 2)
            return lhi_arg_fail(m, LHI_ARG_NO_OVERLAP_P2P_COMMUNICATION,
                                LH_EINPUT, err,
                                "with several stages per rank requires "
                                "--pipeline-model-parallel-size above 2");
        f->receives_given = true;
        f->receives = LH_RECEIVES_LATE;
    }
    return LH_OK;
}

/* Reads the framework settings: gradient types, attention, overlap and FP8. */
static lh_status read_framework(const lhi_megatron *m, lhi_imported_job *in,
                                lh_error *err)
{
    static const char *const formats[] = {"e4m3", "hybrid", NULL};
    uint32_t format;
    in->framework.given = true;
    in->framework.preset = LH_FRAMEWORK_MEGATRON;
    LHI_TRY(read_gradients(m, in, err));
    LHI_TRY(read_attention(m, in, err));
    LHI_TRY(read_overlaps(m, in, err));
    LHI_TRY(lhi_arg_get_choice(m, LHI_ARG_FP8_FORMAT, formats, &format, err));
    if (!lhi_arg_is_given(m, LHI_ARG_FP8_FORMAT))
        return LH_OK;
    in->framework.fp8 = LH_FP8_MATMUL;
    if (!lhi_arg_is_given(m, LHI_ARG_FP8_PARAM_GATHER))
        lhi_import_note(in, "--fp8-format: weights are modelled as stored in 8 "
                            "bits, as with --fp8-param-gather");
    return LH_OK;
}

/* --- ranks ---------------------------------------------------------------- */

/* Computes the data-parallel degree from the GPU count and the other
 * degrees.
 * LH_EINPUT: the number is unknown or not a multiple. */
static lh_status find_data_degree(const lhi_megatron *m, lhi_imported_job *in,
                                  const lh_import_options *options,
                                  lh_error *err)
{
    lh_layout *l = &in->layout;
    uint64_t gpus = 0;
    const uint64_t replica = (uint64_t)l->tensor * l->context * l->pipeline;
    LHI_TRY(lhi_import_find_gpus(m->file, m->gpus, options, in, &gpus, err));
    if (!gpus)
        return lhi_fail(err, LH_EINPUT,
                        "%s: does not give the number of GPUs; give the number "
                        "of nodes, or the complete command line that begins "
                        "with torchrun --nnodes N --nproc-per-node N",
                        m->file);
    if (gpus % replica != 0 || gpus > LH_MAX_GPUS)
        return lhi_fail(err, LH_EINPUT,
                        "%s: %llu GPUs are not a multiple of tensor x context "
                        "x pipeline parallelism, %u x %u x %u = %llu",
                        m->file, (unsigned long long)gpus, l->tensor,
                        l->context, l->pipeline, (unsigned long long)replica);
    in->gpus = (uint32_t)gpus;
    l->data = (uint32_t)(gpus / replica);
    return LH_OK;
}

/* Reads the expert and expert tensor parallel degrees.
 * LH_EINPUT: the expert degree does not divide the expert count, or the
 * model has none. */
static lh_status read_expert_degrees(const lhi_megatron *m,
                                     lhi_imported_job *in, lh_error *err)
{
    lh_layout *l = &in->layout;
    uint32_t expert = 1, cut = l->tensor;
    LHI_TRY(lhi_arg_get_integer(m, LHI_ARG_EXPERT_MODEL_PARALLEL_SIZE, 1,
                                LHI_MAX_DEGREE, &expert, err));
    LHI_TRY(lhi_arg_get_integer(m, LHI_ARG_EXPERT_TENSOR_PARALLEL_SIZE, 1,
                                LHI_MAX_DEGREE, &cut, err));
    if (!in->model.experts) {
        if (expert > 1)
            return lhi_arg_fail(m, LHI_ARG_EXPERT_MODEL_PARALLEL_SIZE,
                                LH_EINPUT, err,
                                "requires --num-experts: the model has no "
                                "experts");
        l->expert = 1;
        return LH_OK;
    }
    if (in->model.experts % expert != 0)
        return lhi_arg_fail(m, LHI_ARG_EXPERT_MODEL_PARALLEL_SIZE, LH_EINPUT,
                            err, "the %u experts are not divisible by %u",
                            in->model.experts, expert);
    l->expert = expert;
    l->expert_tensor = cut;
    return LH_OK;
}

/* Reads all parallel degrees and the rank order, and computes the data-parallel
 * degree. */
static lh_status read_degrees(const lhi_megatron *m, lhi_imported_job *in,
                              const lh_import_options *options, lh_error *err)
{
    lh_layout *l = &in->layout;
    l->tensor = l->context = l->pipeline = 1;
    LHI_TRY(lhi_arg_get_integer(m, LHI_ARG_TENSOR_MODEL_PARALLEL_SIZE, 1,
                                LHI_MAX_DEGREE, &l->tensor, err));
    LHI_TRY(lhi_arg_get_integer(m, LHI_ARG_CONTEXT_PARALLEL_SIZE, 1,
                                LHI_MAX_DEGREE, &l->context, err));
    LHI_TRY(lhi_arg_get_integer(m, LHI_ARG_PIPELINE_MODEL_PARALLEL_SIZE, 1,
                                LHI_MAX_DEGREE, &l->pipeline, err));
    if (in->model.heads % l->tensor != 0)
        return lhi_arg_fail(m, LHI_ARG_TENSOR_MODEL_PARALLEL_SIZE, LH_EINPUT,
                            err, "the %u heads are not divisible by %u",
                            in->model.heads, l->tensor);
    if (in->model.mamba_groups % l->tensor != 0)
        return lhi_arg_fail(m, LHI_ARG_TENSOR_MODEL_PARALLEL_SIZE, LH_EINPUT,
                            err,
                            "the %u groups of Mamba layers are not divisible "
                            "by %u",
                            in->model.mamba_groups, l->tensor);
    LHI_TRY(read_expert_degrees(m, in, err));
    l->outermost =
        lhi_arg_is_given(m, LHI_ARG_USE_TP_PP_DP_MAPPING) || l->pipeline == 1
            ? LH_OUTERMOST_DATA
            : LH_OUTERMOST_PIPELINE;
    return find_data_degree(m, in, options, err);
}

lh_status lhi_megatron_build_job(const lhi_command_line *words, uint32_t gpus,
                                 const lh_import_options *options,
                                 lhi_imported_job *in, lh_error *err)
{
    lhi_megatron *m = LHI_NEW(in->mem, lhi_megatron, 1);
    if (!m)
        return lhi_fail_nomem(err);
    in->target = in->plan_for = LH_TARGET_MEGATRON;
    LHI_TRY(lhi_megatron_read(words, in, m, err));
    m->gpus = gpus ? gpus : m->gpus;
    LHI_TRY(lhi_megatron_add_origins(m, in, err));
    LHI_TRY(lhi_megatron_build_model(m, options->model, in, err));
    LHI_TRY(read_degrees(m, in, options, err));
    LHI_TRY(read_zero(m, in, err));
    LHI_TRY(lhi_megatron_build_stages(m, in, err));
    LHI_TRY(read_training(m, in, err));
    LHI_TRY(read_batch(m, in, err));
    LHI_TRY(check_microbatch_groups(m, in, err));
    return read_framework(m, in, err);
}

/* Reads Megatron-LM's arguments, or a model_config.yaml with them, into an
 * imported job: model, degrees, stages, training and framework. */
lh_status lhi_import_megatron_text(const char *text, size_t len,
                                   const char *name,
                                   const lh_import_options *options,
                                   lhi_imported_job *in, lh_error *err)
{
    lhi_command_line words;
    in->source_name = "Megatron-LM arguments (core 0.16 to 0.20)";
    if (lhi_megatron_is_config(text, len))
        LHI_TRY(lhi_megatron_read_config(text, len, name, in, &words, err));
    else
        LHI_TRY(lhi_command_line_parse(text, len, name, in->mem, &words, err));
    return lhi_megatron_build_job(&words, 0, options, in, err);
}
