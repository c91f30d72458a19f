/* SPDX-License-Identifier: Apache-2.0 */
/* DeepSpeed's ds_config.json: deepspeed/runtime/config.py, constants.py and
 * zero/config.py (0.19.8). The file describes neither model nor machines nor
 * sequence length; the caller gives them. The value "auto" stands for the
 * setting of the training script (Hugging Face's Trainer). */
#include "interop/import/config_keys.h"

#include <stdio.h>
#include <string.h>

#define DEEPSPEED_LIST(X)                                                      \
    X(ACCUMULATION, "gradient_accumulation_steps")                             \
    X(BF16, "bf16.enabled")                                                    \
    X(CHECKPOINT_INTERVAL, "pipeline.activation_checkpoint_interval")          \
    X(CHECKPOINTS, "activation_checkpointing.number_checkpoints")              \
    X(COMMUNICATION_TYPE, "communication_data_type")                           \
    X(CONTIGUOUS, "activation_checkpointing.contiguous_memory_optimization")   \
    X(FP16, "fp16.enabled")                                                    \
    X(GLOBAL_BATCH, "train_batch_size")                                        \
    X(GRADIENT_TYPE, "data_types.grad_accum_dtype")                            \
    X(MICRO_BATCH, "train_micro_batch_size_per_gpu")                           \
    X(OPTIMIZER, "optimizer.type")                                             \
    X(OVERLAP, "zero_optimization.overlap_comm")                               \
    X(PARTITION, "activation_checkpointing.partition_activations")             \
    X(STAGES, "pipeline.stages")                                               \
    X(TENSOR, "tensor_parallel.autotp_size")                                   \
    X(ZERO, "zero_optimization.stage")

/* The keys with a counterpart in a job. */
typedef enum deepspeed_key {
#define DEEPSPEED_ROW(key, name) KEY_##key,
    DEEPSPEED_LIST(DEEPSPEED_ROW)
#undef DEEPSPEED_ROW
        N_KEYS
} deepspeed_key;

static const char *const names[N_KEYS] = {
#define DEEPSPEED_ROW(key, name) [KEY_##key] = name,
    DEEPSPEED_LIST(DEEPSPEED_ROW)
#undef DEEPSPEED_ROW
};

static const char host_memory[] =
    "longhaul does not model weights or optimizer state in host memory; set "
    "the device to none to plan without it";
static const char compressed[] =
    "longhaul does not model compressed communication; set it to false";
static const char by_layer[] =
    "ZeRO 2 and 3 are modelled with one message for each layer";

static const lhi_config_rule rules[] = {
    {"activation_checkpointing.cpu_checkpointing", LHI_CONFIG_REFUSED, "false",
     "longhaul does not model the layers' inputs in host memory; set it to "
     "false"},
    {"activation_checkpointing.profile", LHI_CONFIG_IGNORED, NULL, NULL},
    {"activation_checkpointing.synchronize_checkpoint_boundary",
     LHI_CONFIG_NOTED, "false", "recomputation is modelled without waiting"},
    {"aio.", LHI_CONFIG_IGNORED, NULL, NULL},
    {"amp.enabled", LHI_CONFIG_REFUSED, "false",
     "longhaul does not model Apex's mixed precision; use bf16 or fp16"},
    {"autotuning.", LHI_CONFIG_IGNORED, NULL, NULL},
    {"checkpoint.", LHI_CONFIG_IGNORED, NULL, NULL},
    {"comet.", LHI_CONFIG_IGNORED, NULL, NULL},
    {"comms_logger.", LHI_CONFIG_IGNORED, NULL, NULL},
    {"compression_training.", LHI_CONFIG_REFUSED, NULL,
     "longhaul does not model compressed weights; remove the section"},
    {"csv_monitor.", LHI_CONFIG_IGNORED, NULL, NULL},
    {"curriculum_learning.enabled", LHI_CONFIG_NOTED, "false",
     "sequences are modelled at their final length"},
    {"curriculum_learning.", LHI_CONFIG_IGNORED, NULL, NULL},
    {"data_efficiency.enabled", LHI_CONFIG_NOTED, "false",
     "sequences are modelled at their final length"},
    {"data_efficiency.", LHI_CONFIG_IGNORED, NULL, NULL},
    {"dataloader_drop_last", LHI_CONFIG_IGNORED, NULL, NULL},
    {"dump_state", LHI_CONFIG_IGNORED, NULL, NULL},
    {"elasticity.enabled", LHI_CONFIG_REFUSED, "false",
     "the batch depends on the number of GPUs; set it to false and give "
     "train_batch_size"},
    {"elasticity.", LHI_CONFIG_IGNORED, NULL, NULL},
    {"flops_profiler.", LHI_CONFIG_IGNORED, NULL, NULL},
    {"fp16.auto_cast", LHI_CONFIG_IGNORED, NULL, NULL},
    {"gradient_clipping", LHI_CONFIG_IGNORED, NULL, NULL},
    {"gradient_predivide_factor", LHI_CONFIG_IGNORED, NULL, NULL},
    {"hybrid_engine.enabled", LHI_CONFIG_REFUSED, "false",
     "longhaul does not model generation during training; set it to false"},
    {"hybrid_engine.", LHI_CONFIG_IGNORED, NULL, NULL},
    {"memory_breakdown", LHI_CONFIG_IGNORED, NULL, NULL},
    {"optimizer.params.", LHI_CONFIG_IGNORED, NULL, NULL},
    {"pipeline.partition", LHI_CONFIG_NOTED, "uniform",
     "layers are modelled as evenly divided over the stages"},
    {"pipeline.pipe_partitioned", LHI_CONFIG_IGNORED, NULL, NULL},
    {"pipeline.grad_partitioned", LHI_CONFIG_IGNORED, NULL, NULL},
    {"pipeline.seed_layers", LHI_CONFIG_IGNORED, NULL, NULL},
    {"prescale_gradients", LHI_CONFIG_IGNORED, NULL, NULL},
    {"progressive_layer_drop.enabled", LHI_CONFIG_REFUSED, "false",
     "longhaul does not model skipped layers; set it to false"},
    {"progressive_layer_drop.", LHI_CONFIG_IGNORED, NULL, NULL},
    {"scheduler.", LHI_CONFIG_IGNORED, NULL, NULL},
    {"sparse_attention.", LHI_CONFIG_REFUSED, NULL,
     "longhaul does not model sparse attention; remove the section"},
    {"sparse_gradients", LHI_CONFIG_REFUSED, "false",
     "longhaul does not model sparse gradients; set it to false"},
    {"steps_per_print", LHI_CONFIG_IGNORED, NULL, NULL},
    {"tensorboard.", LHI_CONFIG_IGNORED, NULL, NULL},
    {"torch_autocast.enabled", LHI_CONFIG_NOTED, "false",
     "weights are modelled as stored in the compute type"},
    {"wall_clock_breakdown", LHI_CONFIG_IGNORED, NULL, NULL},
    {"wandb.", LHI_CONFIG_IGNORED, NULL, NULL},
    {"zero_allow_untested_optimizer", LHI_CONFIG_IGNORED, NULL, NULL},
    {"zero_force_ds_cpu_optimizer", LHI_CONFIG_IGNORED, NULL, NULL},
    {"zero_optimization", LHI_CONFIG_REFUSED, "false",
     "is a form of DeepSpeed before 0.3; give zero_optimization.stage"},
    {"zero_optimization.allgather_bucket_size", LHI_CONFIG_NOTED, NULL,
     by_layer},
    {"zero_optimization.cpu_offload", LHI_CONFIG_REFUSED, "false", host_memory},
    {"zero_optimization.cpu_offload_params", LHI_CONFIG_REFUSED, "false",
     host_memory},
    {"zero_optimization.offload_optimizer.device", LHI_CONFIG_REFUSED, "none",
     host_memory},
    {"zero_optimization.offload_optimizer.", LHI_CONFIG_IGNORED, NULL, NULL},
    {"zero_optimization.offload_param.device", LHI_CONFIG_REFUSED, "none",
     host_memory},
    {"zero_optimization.offload_param.", LHI_CONFIG_IGNORED, NULL, NULL},
    {"zero_optimization.reduce_bucket_size", LHI_CONFIG_NOTED, NULL, by_layer},
    {"zero_optimization.reduce_scatter", LHI_CONFIG_NOTED, "true",
     "gradients are modelled as reduced and scattered"},
    {"zero_optimization.allgather_partitions", LHI_CONFIG_NOTED, "true",
     "weights are modelled as gathered by all-gathers"},
    {"zero_optimization.stage3_prefetch_bucket_size", LHI_CONFIG_NOTED, NULL,
     by_layer},
    {"zero_optimization.stage3_param_persistence_threshold", LHI_CONFIG_NOTED,
     NULL, by_layer},
    {"zero_optimization.stage3_max_live_parameters", LHI_CONFIG_NOTED, NULL,
     by_layer},
    {"zero_optimization.stage3_max_reuse_distance", LHI_CONFIG_NOTED, NULL,
     by_layer},
    {"zero_optimization.contiguous_gradients", LHI_CONFIG_IGNORED, NULL, NULL},
    {"zero_optimization.round_robin_gradients", LHI_CONFIG_IGNORED, NULL, NULL},
    {"zero_optimization.ignore_unused_parameters", LHI_CONFIG_IGNORED, NULL,
     NULL},
    {"zero_optimization.load_from_fp32_weights", LHI_CONFIG_IGNORED, NULL,
     NULL},
    {"zero_optimization.elastic_checkpoint", LHI_CONFIG_IGNORED, NULL, NULL},
    {"zero_optimization.stage3_gather_16bit_weights_on_model_save",
     LHI_CONFIG_IGNORED, NULL, NULL},
    {"zero_optimization.stage3_gather_fp16_weights_on_model_save",
     LHI_CONFIG_IGNORED, NULL, NULL},
    {"zero_optimization.sub_group_size", LHI_CONFIG_IGNORED, NULL, NULL},
    {"zero_optimization.zenflow.", LHI_CONFIG_REFUSED, NULL, host_memory},
    {"zero_optimization.zero_hpz_partition_size", LHI_CONFIG_REFUSED, "1",
     "longhaul does not model a second copy of the weights inside a node; set "
     "it to 1"},
    {"zero_optimization.zero_quantized_weights", LHI_CONFIG_REFUSED, "false",
     compressed},
    {"zero_optimization.zero_quantized_gradients", LHI_CONFIG_REFUSED, "false",
     compressed},
};

/* The configuration as given. */
typedef struct deepspeed {
    const char *file;
    lhi_imported_job *in;
    lhi_input_value keys[N_KEYS];
    lhi_text automatic; /* keys with the value "auto", with commas */
} deepspeed;

/* --- keys ----------------------------------------------------------------- */

/* Checks whether a key configures loss scaling (such as fp16.loss_scale), which
 * has no effect on time and memory. */
static bool is_loss_scaling(const char *key)
{
    static const char *const last[] = {
        "loss_scale", "initial_scale_power",    "loss_scale_window",
        "hysteresis", "consecutive_hysteresis", "min_loss_scale",
        NULL};
    const char *dot = strchr(key, '.');
    if (!dot ||
        (strncmp(key, "fp16.", 5) != 0 && strncmp(key, "bf16.", 5) != 0))
        return false;
    uint32_t i = 0;
    while (last[i] && strcmp(last[i], dot + 1) != 0)
        i++;
    return last[i] != NULL;
}

/* Stores the value of a key of DeepSpeed's configuration, or ignores a key for
 * loss scaling. *known: whether it is one of these. Callback for
 * lhi_config_walk(). */
static lh_status visit_key(void *context, const lhi_doc *doc,
                           const lhi_node *node, const char *key, bool *known,
                           lh_error *err)
{
    deepspeed *d = context;
    const bool old = strcmp(key, "bfloat16.enabled") == 0;
    uint32_t i = 0;
    while (i < N_KEYS && strcmp(names[i], old ? names[KEY_BF16] : key) != 0)
        i++;
    if (i == N_KEYS && is_loss_scaling(key)) {
        lhi_import_ignore(d->in, key);
        return LH_OK;
    }
    if (i == N_KEYS) {
        *known = false;
        return LH_OK;
    }
    if (node->kind != LHI_SCALAR)
        return lhi_doc_fail(doc, node, err, LH_EINPUT, "must be a value");
    if (strcmp(node->text, "auto") == 0) {
        lhi_text_printf(&d->automatic, "%s%s", d->automatic.len ? ", " : "",
                        key);
        return LH_OK;
    }
    lhi_command_line_word *word = LHI_NEW(d->in->mem, lhi_command_line_word, 1);
    const char *text = lhi_arena_strdup(d->in->mem, node->text);
    if (!word || !text)
        return lhi_fail_nomem(err);
    *word = (lhi_command_line_word){.text = text, .line = node->line};
    d->keys[i] = (lhi_input_value){
        .is_given = true, .line = node->line, .n = 1, .values = word};
    return LH_OK;
}

/* Returns DeepSpeed key `key` with its file, name and value, as input of the
 * lhi_input_value functions. */
static lhi_input_key key_of(const deepspeed *d, deepspeed_key key)
{
    return (lhi_input_key){d->file, names[key], &d->keys[key]};
}

/* Reads an integer key in least..most; *out is unchanged if it is not given.
 * LH_EINPUT: the value is not such an integer. */
static lh_status get_integer(const deepspeed *d, deepspeed_key key,
                             uint32_t least, uint32_t most, uint32_t *out,
                             lh_error *err)
{
    int64_t number = *out;
    LHI_TRY(
        lhi_input_value_get_integer(key_of(d, key), least, most, &number, err));
    *out = (uint32_t)number;
    return LH_OK;
}

/* Reads a boolean key; *out is unchanged if it is not given. LH_EINPUT: the
 * value is neither true nor false. */
static lh_status get_bool(const deepspeed *d, deepspeed_key key, bool *out,
                          lh_error *err)
{
    static const char *const words[] = {"false", "true", NULL};
    uint32_t is = *out;
    LHI_TRY(lhi_input_value_get_choice(key_of(d, key), words, &is, err));
    *out = is != 0;
    return LH_OK;
}

/* Records for each key of the job the DeepSpeed key that sets it, so that error
 * messages name that key. */
static lh_status add_origins(const deepspeed *d, lh_error *err)
{
    static const struct {
        const char *path;
        deepspeed_key key;
    } origins[] = {
        {"training.global_batch", KEY_GLOBAL_BATCH},
        {"training.precision", KEY_FP16},
        {"training.precision", KEY_BF16},
        {"training.optimizer", KEY_OPTIMIZER},
        {"training.zero", KEY_ZERO},
        {"training.recompute", KEY_PARTITION},
        {"framework.gradients", KEY_GRADIENT_TYPE},
        {"framework.reduce", KEY_COMMUNICATION_TYPE},
        {"cluster.gpu", KEY_BF16}, /* lacks the precision */
        {"layout.tensor", KEY_TENSOR},
        {"layout.pipeline", KEY_STAGES},
        {"layout.layers", KEY_STAGES},
        {"layout.micro_batch", KEY_MICRO_BATCH},
    };
    for (size_t i = 0; i < sizeof origins / sizeof *origins; i++)
        LHI_TRY(lhi_import_add_origin(d->in, origins[i].path,
                                      key_of(d, origins[i].key), err));
    return LH_OK;
}

/* --- training ------------------------------------------------------------- */

/* Reads the precision. One that the training script selects is modelled as
 * bf16, or as fp16 if the file disables bf16. LH_EINPUT: bf16 and fp16
 * together. */
static lh_status read_precision(const deepspeed *d, lh_error *err)
{
    bool half = false, brain = false;
    lh_training *t = &d->in->training;
    const bool is_auto = d->automatic.len && strstr(d->automatic.data, "16.");
    LHI_TRY(get_bool(d, KEY_FP16, &half, err));
    LHI_TRY(get_bool(d, KEY_BF16, &brain, err));
    if (half && brain)
        return lhi_input_value_fail(key_of(d, KEY_FP16), LH_EINPUT, err,
                                    "cannot be combined with bf16.enabled");
    const bool selects = is_auto && !half && !brain;
    const bool only_half = selects && d->keys[KEY_BF16].is_given;
    t->precision = half || only_half  ? LH_PRECISION_FP16
                   : brain || selects ? LH_PRECISION_BF16
                                      : LH_PRECISION_FP32;
    if (selects)
        lhi_import_note(
            d->in,
            "%s: the training script selects the precision; %s is modelled",
            names[only_half ? KEY_FP16 : KEY_BF16],
            only_half ? "fp16" : "bf16");
    return LH_OK;
}

/* Reads the optimizer: others than Adam are modelled as Adam, with a note.
 * LH_EUNSUPPORTED: it compresses gradients. */
static lh_status read_optimizer(const deepspeed *d, lh_error *err)
{
    const lhi_input_value *given = &d->keys[KEY_OPTIMIZER];
    d->in->training.optimizer = LH_OPTIMIZER_ADAMW;
    if (!given->is_given)
        return LH_OK;
    const char *name = given->values[0].text;
    if (strncmp(name, "OneBit", 6) == 0 || strncmp(name, "ZeroOne", 7) == 0)
        return lhi_input_value_fail(
            key_of(d, KEY_OPTIMIZER), LH_EUNSUPPORTED, err,
            "longhaul does not model compressed gradients; use AdamW");
    if (!lhi_is_same_word(name, "AdamW") && !lhi_is_same_word(name, "Adam"))
        lhi_import_note(d->in,
                        "optimizer.type: %.40s is modelled as adam: two "
                        "moments per parameter",
                        name);
    return LH_OK;
}

/* Reads the types in which gradients are stored and reduced; by default the
 * compute type. */
static lh_status read_gradients(const deepspeed *d, lh_error *err)
{
    static const char *const types[] = {"fp32", "bf16", "fp16", NULL};
    lh_framework *f = &d->in->framework;
    uint32_t type = 0;
    if (d->keys[KEY_GRADIENT_TYPE].is_given) {
        LHI_TRY(lhi_input_value_get_choice(key_of(d, KEY_GRADIENT_TYPE), types,
                                           &type, err));
        f->gradients_given = true;
        f->gradients = (lh_gradient)type;
    }
    if (d->keys[KEY_COMMUNICATION_TYPE].is_given) {
        LHI_TRY(lhi_input_value_get_choice(key_of(d, KEY_COMMUNICATION_TYPE),
                                           types, &type, err));
        f->reduce_given = true;
        f->reduce = (lh_gradient)type;
    }
    return LH_OK;
}

/* Reads whether activations are recomputed. The section configures the
 * checkpointing that the training script applies to its layers. */
static lh_status read_recompute(const deepspeed *d, lh_error *err)
{
    bool partition = false, contiguous = false;
    uint32_t interval = 0, checkpoints = 0;
    LHI_TRY(get_bool(d, KEY_PARTITION, &partition, err));
    LHI_TRY(get_bool(d, KEY_CONTIGUOUS, &contiguous, err));
    LHI_TRY(get_integer(d, KEY_CHECKPOINT_INTERVAL, 0, LHI_MAX_LAYERS,
                        &interval, err));
    LHI_TRY(
        get_integer(d, KEY_CHECKPOINTS, 0, LHI_MAX_LAYERS, &checkpoints, err));
    const bool full = partition || contiguous || interval || checkpoints;
    d->in->training.recompute_given = true;
    d->in->training.recompute = full ? LH_RECOMPUTE_FULL : LH_RECOMPUTE_NONE;
    if (!full)
        lhi_import_note(d->in, "activation_checkpointing: the training script "
                               "decides whether layers are recomputed; none "
                               "is modelled; else set training.recompute");
    if (interval > 1 || checkpoints)
        lhi_import_note(
            d->in, "%s: each layer is modelled as recomputed separately",
            names[interval > 1 ? KEY_CHECKPOINT_INTERVAL : KEY_CHECKPOINTS]);
    return LH_OK;
}

/* Reads the ZeRO stage. LH_EINPUT: stage 2 or 3 with a pipeline, which
 * DeepSpeed's pipeline engine rejects. */
static lh_status read_zero(const deepspeed *d, lh_error *err)
{
    lh_training *t = &d->in->training;
    bool overlap = false;
    t->zero_given = true;
    LHI_TRY(get_integer(d, KEY_ZERO, 0, 3, &t->zero, err));
    LHI_TRY(get_bool(d, KEY_OVERLAP, &overlap, err));
    if (t->zero >= 2 && d->in->layout.pipeline > 1)
        return lhi_input_value_fail(key_of(d, KEY_ZERO), LH_EINPUT, err,
                                    "DeepSpeed does not run stages 2 and 3 in "
                                    "a pipeline; use 0 or 1");
    if (overlap && t->zero < 2)
        lhi_import_note(d->in,
                        "%s: gradients are modelled as reduced after the last "
                        "backward",
                        names[KEY_OVERLAP]);
    if (!overlap && d->keys[KEY_OVERLAP].is_given && t->zero >= 2)
        lhi_import_note(d->in,
                        "%s: communication is modelled as overlapped with "
                        "compute",
                        names[KEY_OVERLAP]);
    return LH_OK;
}

/* --- layout --------------------------------------------------------------- */

/* Sets an equal layer count per stage. Adds a note if the layers do not divide
 * evenly; the planner then searches the division. */
static lh_status divide_layers(const deepspeed *d, lh_error *err)
{
    lh_layout *l = &d->in->layout;
    const uint32_t layers = d->in->model.layers;
    if (l->pipeline == 1)
        return LH_OK;
    if (layers % l->pipeline != 0) {
        lhi_import_note(d->in,
                        "%s: %u layers do not divide evenly over %u stages; "
                        "the division is searched",
                        names[KEY_STAGES], layers, l->pipeline);
        return LH_OK;
    }
    uint32_t *each = LHI_NEW(d->in->mem, uint32_t, l->pipeline);
    if (!each)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < l->pipeline; i++)
        each[i] = layers / l->pipeline;
    l->chunk_layers = each;
    l->n_chunk_layers = l->pipeline;
    return LH_OK;
}

/* Reads the tensor-parallel degree and the stage count, and divides the layers
 * over the stages. Sets the other degrees to 1, except data parallelism, which
 * follows from the GPUs. */
static lh_status read_degrees(const deepspeed *d, lh_error *err)
{
    lhi_imported_job *in = d->in;
    lh_layout *l = &in->layout;
    uint32_t tensor = 0;
    l->context = l->pipeline = l->expert = l->chunks_per_device = 1;
    l->schedule = "1f1b";
    LHI_TRY(get_integer(d, KEY_TENSOR, 0, LHI_MAX_DEGREE, &tensor, err));
    LHI_TRY(get_integer(d, KEY_STAGES, 1, LHI_MAX_DEGREE, &l->pipeline, err));
    l->tensor = tensor ? tensor : 1;
    l->outermost = l->pipeline == 1 ? LH_OUTERMOST_DATA : LH_OUTERMOST_PIPELINE;
    if (in->model.heads % l->tensor != 0)
        return lhi_input_value_fail(key_of(d, KEY_TENSOR), LH_EINPUT, err,
                                    "the %u heads are not divisible by %u",
                                    in->model.heads, l->tensor);
    if (in->model.experts)
        lhi_import_note(in, "the training script sets expert parallelism; "
                            "none is modelled; else set layout.expert");
    return divide_layers(d, err);
}

/* The three batch sizes; 0: not given. */
typedef struct batch_sizes {
    uint32_t global, micro, steps;
} batch_sizes;

/* Determines GPU and replica counts: from the machines in the options, else
 * from the batch sizes `b` (global / (microbatch x accumulation steps)).
 * LH_EINPUT: neither gives it, or GPUs are not a multiple of tensor x pipeline.
 * */
static lh_status find_replicas(const deepspeed *d,
                               const lh_import_options *options,
                               const batch_sizes *b, lh_error *err)
{
    lhi_imported_job *in = d->in;
    lh_layout *l = &in->layout;
    const uint64_t replica = (uint64_t)l->tensor * l->pipeline;
    const uint64_t share = (uint64_t)b->micro * b->steps;
    uint64_t gpus = 0;
    LHI_TRY(lhi_import_find_gpus(d->file, 0, options, in, &gpus, err));
    if (!gpus && b->global && share && b->global % share == 0)
        gpus = b->global / share * replica;
    if (!gpus)
        return lhi_fail(err, LH_EINPUT,
                        "%s: does not give the number of GPUs; give the number "
                        "of nodes",
                        d->file);
    if (gpus % replica != 0 || gpus > LH_MAX_GPUS)
        return lhi_fail(err, LH_EINPUT,
                        "%s: %llu GPUs are not a multiple of tensor x pipeline "
                        "parallelism, %u x %u = %llu",
                        d->file, (unsigned long long)gpus, l->tensor,
                        l->pipeline, (unsigned long long)replica);
    in->gpus = (uint32_t)gpus;
    l->data = (uint32_t)(gpus / replica);
    return LH_OK;
}

/* Fails with LH_EINPUT: the batch sizes `b` (0: not given and not derivable)
 * contradict each other or the replica count. */
static lh_status fail_batch(const deepspeed *d, const batch_sizes *b,
                            lh_error *err)
{
    const lhi_input_key key =
        key_of(d, d->keys[KEY_GLOBAL_BATCH].is_given ? KEY_GLOBAL_BATCH
                                                     : KEY_MICRO_BATCH);
    const uint32_t data = d->in->layout.data;
    if (!b->global)
        return lhi_input_value_fail(
            key, LH_EINPUT, err,
            "%u x %s %u x data parallelism %u exceeds the limit of 2^30 "
            "sequences",
            b->micro, names[KEY_ACCUMULATION], b->steps, data);
    if (!b->micro || !b->steps)
        return lhi_input_value_fail(
            key, LH_EINPUT, err,
            "%u is not a multiple of %s %u x data parallelism %u; change them "
            "or the number of nodes",
            b->global, names[b->micro ? KEY_MICRO_BATCH : KEY_ACCUMULATION],
            b->micro ? b->micro : b->steps, data);
    return lhi_input_value_fail(
        key, LH_EINPUT, err,
        "%u is not %s %u x %s %u x data parallelism %u; change them or the "
        "number of nodes",
        b->global, names[KEY_MICRO_BATCH], b->micro, names[KEY_ACCUMULATION],
        b->steps, data);
}

/* Reads global batch, microbatch and accumulation steps, derives those that are
 * not given, as DeepSpeed does (_set_batch_related_parameters()), and the
 * replica count. */
static lh_status read_batch(const deepspeed *d,
                            const lh_import_options *options, lh_error *err)
{
    lh_layout *l = &d->in->layout;
    batch_sizes b = {0};
    LHI_TRY(get_integer(d, KEY_GLOBAL_BATCH, 1, 1u << 30, &b.global, err));
    LHI_TRY(get_integer(d, KEY_MICRO_BATCH, 1, LHI_MAX_DEGREE, &b.micro, err));
    LHI_TRY(get_integer(d, KEY_ACCUMULATION, 1, 1u << 20, &b.steps, err));
    if (!b.global && !b.micro) {
        lhi_import_note(d->in,
                        "%s: is not given; 8 sequences are modelled, "
                        "the Trainer's default",
                        names[KEY_MICRO_BATCH]);
        b.micro = 8;
    }
    LHI_TRY(find_replicas(d, options, &b, err));
    if (!b.steps && !(b.global && b.micro))
        b.steps = 1;
    if (!b.micro && b.global % ((uint64_t)b.steps * l->data) == 0)
        b.micro = (uint32_t)(b.global / ((uint64_t)b.steps * l->data));
    const uint64_t share = (uint64_t)b.micro * l->data;
    if (!b.global && share * b.steps <= 1u << 30)
        b.global = (uint32_t)(share * b.steps);
    if (!b.global || !share || b.global % share != 0 ||
        (b.steps && b.global / share != b.steps))
        return fail_batch(d, &b, err);
    if (b.micro > LHI_MAX_DEGREE)
        return lhi_input_value_fail(
            key_of(d, KEY_GLOBAL_BATCH), LH_EUNSUPPORTED, err,
            "%u sequences at a time exceed the limit of %u", b.micro,
            LHI_MAX_DEGREE);
    l->micro_batch = b.micro;
    d->in->training.global_batch = b.global;
    return LH_OK;
}

/* Converts the keys into a job's model, training, framework and layout. */
static lh_status build_job(const deepspeed *d, const lh_import_options *options,
                           lh_error *err)
{
    lhi_imported_job *in = d->in;
    if (!options->model)
        return lhi_fail(err, LH_EINPUT,
                        "%s: a DeepSpeed configuration has no model; give it "
                        "by --model",
                        d->file);
    if (!options->machines->sequence)
        return lhi_fail(err, LH_EINPUT,
                        "%s: a DeepSpeed configuration has no sequence length; "
                        "give it by --sequence",
                        d->file);
    if (d->automatic.failed)
        return lhi_fail_nomem(err);
    if (d->automatic.len)
        lhi_import_note(in,
                        "%s: auto, set by the training script; modelled "
                        "as not given",
                        d->automatic.data);
    in->model = *options->model;
    lhi_import_name_model(in, NULL);
    in->training.sequence = options->machines->sequence;
    in->framework.given = true;
    in->framework.preset = LH_FRAMEWORK_DEEPSPEED;
    in->instances = 1;
    LHI_TRY(add_origins(d, err));
    LHI_TRY(read_degrees(d, err));
    LHI_TRY(read_precision(d, err));
    LHI_TRY(read_optimizer(d, err));
    LHI_TRY(read_gradients(d, err));
    LHI_TRY(read_recompute(d, err));
    LHI_TRY(read_zero(d, err));
    return read_batch(d, options, err);
}

/* Reads a DeepSpeed configuration (JSON) called `name` in messages into the
 * imported job `in`: model, training, framework and layout. */
lh_status lhi_import_deepspeed_text(const char *text, size_t len,
                                    const char *name,
                                    const lh_import_options *options,
                                    lhi_imported_job *in, lh_error *err)
{
    lhi_doc *doc;
    deepspeed *d = LHI_NEW(in->mem, deepspeed, 1);
    if (!d)
        return lhi_fail_nomem(err);
    *d = (deepspeed){.file = name, .in = in};
    in->source_name = "a DeepSpeed configuration";
    LHI_TRY(lhi_doc_parse(text, len, name, LHI_INPUT_ARGUMENTS, &doc, err));
    lh_status status = lhi_config_walk(doc, rules, sizeof rules / sizeof *rules,
                                       "DeepSpeed", visit_key, d, in, err);
    if (status == LH_OK)
        status = build_job(d, options, err);
    lhi_text_fini(&d->automatic);
    lhi_doc_free(doc);
    return status;
}
