/* SPDX-License-Identifier: Apache-2.0 */
/* YAML of NeMo 1 (megatron_gpt_config.yaml and the NeMo Framework Launcher's
 * training configurations) and of Megatron-Bridge (overrides of a recipe, and
 * the run_config.yaml of a run) as arguments of Megatron-LM, on which both
 * build. A key that is not in the tables below has its argument's name,
 * with '_' for '-' and a section before it.
 *
 * Sources: nemo/collections/nlp/models/language_modeling/megatron_base_model.py
 * and megatron_gpt_model.py of NeMo 2.4 (model_parallel_config(),
 * build_transformer_config()); megatron/bridge/training/config.py. */
#include "interop/import/config_keys.h"
#include "interop/import/megatron_internal.h"
#include "interop/import/omega_value.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Maximum length of a key's path, in bytes. */
enum { MOST_NAME = 120 };

/* --- tables --------------------------------------------------------------- */

static const char decoder_only[] =
    "longhaul imports decoders only; this is another kind of model";

/* Keys of NeMo's model without effect on time and memory, or with an effect by
 * another key. */
static const char *const ignored[] = {"model.apex_transformer_log_level",
                                      "model.attention_type",
                                      "model.batch_p2p_comm",
                                      "model.bias_activation_fusion",
                                      "model.bias_dropout_add_fusion",
                                      "model.do_layer_norm_weight_decay",
                                      "model.fp8_e4m3",
                                      "model.fp8_hybrid",
                                      "model.fsdp_grad_reduce_dtype",
                                      "model.fsdp_sharded_checkpoint",
                                      "model.fsdp_sharding_strategy",
                                      "model.gc_interval",
                                      "model.get_attention_mask_from_fusion",
                                      "model.grad_allreduce_chunk_size_mb",
                                      "model.grad_div_ar_fusion",
                                      "model.gradient_as_bucket_view",
                                      "model.headscale",
                                      "model.native_amp_growth_interval",
                                      "model.native_amp_init_scale",
                                      "model.normalize_attention_scores",
                                      "model.post_process",
                                      "model.pre_process",
                                      "model.reduce_amax",
                                      "model.restore_from_ckpt",
                                      "model.restore_from_path",
                                      "model.resume_from_checkpoint",
                                      "model.sync_batch_comm",
                                      "model.transformer_block_type",
                                      "model.use_emha",
                                      "model.use_scaled_init_method",
                                      NULL};

static const lhi_config_rule rules[] = {
    {"checkpoint.", LHI_CONFIG_IGNORED, NULL, NULL},
    {"dataset.seq_length", LHI_CONFIG_READ, NULL, NULL},
    {"dataset.sequence_length", LHI_CONFIG_READ, NULL, NULL},
    {"dataset.", LHI_CONFIG_IGNORED, NULL, NULL},
    {"defaults", LHI_CONFIG_IGNORED, NULL, NULL},
    {"env_vars.", LHI_CONFIG_IGNORED, NULL, NULL},
    {"exp_manager.", LHI_CONFIG_IGNORED, NULL, NULL},
    {"ft.", LHI_CONFIG_IGNORED, NULL, NULL},
    {"hydra.", LHI_CONFIG_IGNORED, NULL, NULL},
    {"inprocess_restart.", LHI_CONFIG_IGNORED, NULL, NULL},
    {"logger.", LHI_CONFIG_IGNORED, NULL, NULL},
    {"model._target_", LHI_CONFIG_READ, NULL, NULL},
    {"model.activations_checkpoint_recurrent", LHI_CONFIG_REFUSED, NULL,
     decoder_only},
    {"model.activation_func._target_", LHI_CONFIG_READ, NULL, NULL},
    {"model.activation_func.", LHI_CONFIG_IGNORED, NULL, NULL},
    {"model.cpu_offloading", LHI_CONFIG_NOTED, "false",
     "activations are modelled in GPU memory"},
    {"model.cpu_offloading_activations", LHI_CONFIG_IGNORED, NULL, NULL},
    {"model.cpu_offloading_num_layers", LHI_CONFIG_IGNORED, NULL, NULL},
    {"model.cpu_offloading_weights", LHI_CONFIG_IGNORED, NULL, NULL},
    {"model.data.", LHI_CONFIG_IGNORED, NULL, NULL},
    {"model.decoder.", LHI_CONFIG_REFUSED, NULL, decoder_only},
    {"model.encoder.", LHI_CONFIG_REFUSED, NULL, decoder_only},
    {"model.ffn_dropout", LHI_CONFIG_IGNORED, NULL, NULL},
    {"model.hyena.", LHI_CONFIG_REFUSED, NULL, decoder_only},
    {"model.kd_config.", LHI_CONFIG_REFUSED, NULL,
     "longhaul does not model distillation; remove the section and "
     "model.teacher"},
    {"model.mcore_customization_config.", LHI_CONFIG_IGNORED, NULL, NULL},
    {"model.mcore_gpt", LHI_CONFIG_NOTED, "true",
     "the decoder of Megatron Core is modelled"},
    {"model.megatron_amp_O2", LHI_CONFIG_NOTED, "true",
     "weights are modelled as stored in the compute type"},
    {"model.mm_cfg.", LHI_CONFIG_REFUSED, NULL, decoder_only},
    {"model.name", LHI_CONFIG_READ, NULL, NULL},
    {"model.nsys_profile.", LHI_CONFIG_IGNORED, NULL, NULL},
    {"model.optim.bucket_cap_mb", LHI_CONFIG_NOTED, NULL,
     "the number of gradient buckets follows from the model"},
    {"model.optim.grad_sync_dtype", LHI_CONFIG_READ, NULL, NULL},
    {"model.optim.name", LHI_CONFIG_READ, NULL, NULL},
    {"model.optim.overlap_grad_sync", LHI_CONFIG_READ, NULL, NULL},
    {"model.optim.overlap_param_sync", LHI_CONFIG_READ, NULL, NULL},
    {"model.optim.", LHI_CONFIG_IGNORED, NULL, NULL},
    {"model.precision", LHI_CONFIG_IGNORED, NULL, NULL},
    {"model.retro.", LHI_CONFIG_REFUSED, NULL, decoder_only},
    {"model.teacher.", LHI_CONFIG_REFUSED, NULL,
     "longhaul does not model distillation; remove the section and "
     "model.kd_config"},
    {"model.tokenizer.model", LHI_CONFIG_READ, NULL, NULL},
    {"model.tokenizer.type", LHI_CONFIG_READ, NULL, NULL},
    {"model.tokenizer.vocab_file", LHI_CONFIG_READ, NULL, NULL},
    {"model.tokenizer.", LHI_CONFIG_IGNORED, NULL, NULL},
    {"model.ub_tp_comm_overlap_cfg", LHI_CONFIG_IGNORED, NULL, NULL},
    {"model.ub_tp_comm_overlap_cfg.", LHI_CONFIG_IGNORED, NULL, NULL},
    {"model.vision_config.", LHI_CONFIG_REFUSED, NULL, decoder_only},
    {"name", LHI_CONFIG_IGNORED, NULL, NULL},
    {"nvrx_straggler.", LHI_CONFIG_IGNORED, NULL, NULL},
    {"optimizer.optimizer", LHI_CONFIG_READ, NULL, NULL},
    {"optimizer.use_distributed_optimizer", LHI_CONFIG_READ, NULL, NULL},
    {"optimizer.", LHI_CONFIG_IGNORED, NULL, NULL},
    {"peft.", LHI_CONFIG_REFUSED, NULL,
     "longhaul does not model adapters; remove the section to plan full "
     "training"},
    {"profiling.", LHI_CONFIG_IGNORED, NULL, NULL},
    {"restore_from_path", LHI_CONFIG_IGNORED, NULL, NULL},
    {"rng.", LHI_CONFIG_IGNORED, NULL, NULL},
    {"run.", LHI_CONFIG_IGNORED, NULL, NULL},
    {"s3_checkpointing.", LHI_CONFIG_IGNORED, NULL, NULL},
    {"scheduler.", LHI_CONFIG_IGNORED, NULL, NULL},
    {"trainer.accumulate_grad_batches", LHI_CONFIG_NOTED, "1",
     "the number of microbatches follows from the batch sizes"},
    {"trainer.devices", LHI_CONFIG_READ, NULL, NULL},
    {"trainer.num_nodes", LHI_CONFIG_READ, NULL, NULL},
    {"trainer.precision", LHI_CONFIG_READ, NULL, NULL},
    {"trainer.", LHI_CONFIG_IGNORED, NULL, NULL},
    {"validation.", LHI_CONFIG_IGNORED, NULL, NULL},
};

/* A key whose argument has another name. */
typedef struct renamed_key {
    const char *key, *argument;
    bool inverted; /* a flag that is given where the key is false */
} renamed_key;

static const renamed_key renamed[] = {
    {"ddp.grad_reduce_in_fp32", "grad-reduce-in-bf16", true},
    {"mixed_precision.grad_reduce_in_fp32", "grad-reduce-in-bf16", true},
    {"dataset.seq_length", "seq-length", false},
    {"dataset.sequence_length", "seq-length", false},
    {"train.micro_batch_size", "micro-batch-size", false},
    {"train.global_batch_size", "global-batch-size", false},
    {"model.activations_checkpoint_granularity", "recompute-granularity",
     false},
    {"model.activations_checkpoint_method", "recompute-method", false},
    {"model.activations_checkpoint_num_layers", "recompute-num-layers", false},
    {"model.add_bias_linear", "disable-bias-linear", true},
    {"model.bias", "disable-bias-linear", true},
    {"model.encoder_seq_length", "seq-length", false},
    {"model.fp8_param", "fp8-param-gather", false},
    {"model.fp8_params", "fp8-param-gather", false},
    {"model.gated_linear_unit", "swiglu", false},
    {"model.layernorm_epsilon", "norm-epsilon", false},
    {"model.layernorm_zero_centered_gamma", "apply-layernorm-1p", false},
    {"model.num_layers_in_first_pipeline_stage",
     "decoder-first-pipeline-num-layers", false},
    {"model.num_layers_in_last_pipeline_stage",
     "decoder-last-pipeline-num-layers", false},
    {"model.num_moe_experts", "num-experts", false},
    {"model.optim.overlap_grad_sync", "overlap-grad-reduce", false},
    {"model.optim.overlap_param_sync", "overlap-param-gather", false},
    {"model.overlap_p2p_comm", "no-overlap-p2p-communication", true},
    {"model.override_vocab_size", "vocab-size", false},
    {"model.qkv_bias", "add-qkv-bias", false},
    {"model.rotary_percentage", "rotary-percent", false},
    {"model.share_embeddings_and_output_weights",
     "untie-embeddings-and-output-weights", true},
    {"model.tokenizer.model", "tokenizer-model", false},
    {"model.tokenizer.vocab_file", "vocab-file", false},
    {"model.ub_tp_comm_overlap", "tp-comm-overlap", false},
    {"model.use_flash_attention", "use-flash-attn", false},
    {"model.virtual_pipeline_model_parallel_size",
     "num-virtual-stages-per-pipeline-rank", false},
    {"optimizer.optimizer", "optimizer", false},
};

/* Sections whose other keys are named as arguments. */
static const char *const sections[] = {
    "model.",           "train.",     "ddp.",       "dist.", "comm_overlap.",
    "mixed_precision.", "optimizer.", "tokenizer.", NULL};

/* --- words ---------------------------------------------------------------- */

/* The converter's state. */
typedef struct converter {
    const lhi_doc *doc;
    lhi_imported_job *in;
    lhi_command_line_word *all;
    uint32_t n, most;
} converter;

/* Appends a word to the Megatron-LM command line that is being built, with
 * `line`, the key's line from which it comes. */
static lh_status add_word(converter *c, const char *text, uint32_t line,
                          lh_error *err)
{
    if (c->n == c->most) {
        const uint32_t most = c->most ? 2 * c->most : 128;
        lhi_command_line_word *all =
            LHI_NEW(c->in->mem, lhi_command_line_word, most);
        if (!all)
            return lhi_fail_nomem(err);
        if (c->n)
            memcpy(all, c->all, c->n * sizeof *all);
        c->all = all;
        c->most = most;
    }
    const char *copy = lhi_arena_strdup(c->in->mem, text);
    if (!copy)
        return lhi_fail_nomem(err);
    c->all[c->n++] = (lhi_command_line_word){.text = copy, .line = line};
    return LH_OK;
}

/* Appends Megatron-LM's argument and its `value`, unless NULL, as words; `key`,
 * in line `line`: the file's key for it. */
static lh_status add_argument(converter *c, const char *argument,
                              const char *value, const char *key, uint32_t line,
                              lh_error *err)
{
    lhi_text word = {0};
    lhi_text_printf(&word, "--%s%s%s", argument, value ? "=" : "",
                    value ? value : "");
    lh_status status =
        word.failed ? lhi_fail_nomem(err) : add_word(c, word.data, line, err);
    lhi_text_fini(&word);
    return status == LH_OK ? lhi_import_add_name(c->in, argument, key, err)
                           : status;
}

/* Appends Megatron-LM's argument with the items of `list` as words; `key`: the
 * file's key for it. */
static lh_status add_items(converter *c, const char *argument,
                           const lhi_node *list, const char *key, lh_error *err)
{
    LHI_TRY(add_argument(c, argument, NULL, key, list->line, err));
    for (const lhi_node *n = list->first; n; n = n->next) {
        if (n->kind != LHI_SCALAR)
            return lhi_doc_fail(c->doc, n, err, LH_EINPUT, "must be a value");
        LHI_TRY(add_word(c, n->text, n->line, err));
    }
    return LH_OK;
}

/* Appends Megatron-LM's argument with the items of `list` joined by commas;
 * `key`: the file's key for it. */
static lh_status add_list(converter *c, const char *argument,
                          const lhi_node *list, const char *key, lh_error *err)
{
    lhi_text text = {0};
    const bool is_window = strcmp(argument, "window-size") == 0;
    lhi_text_puts(&text, is_window ? "" : "[");
    for (const lhi_node *n = list->first; n; n = n->next)
        lhi_text_printf(&text, "%s%s", n->index ? "," : "",
                        n->kind == LHI_SCALAR ? n->text : "?");
    lhi_text_puts(&text, is_window ? "" : "]");
    lh_status status = text.failed ? lhi_fail_nomem(err)
                                   : add_argument(c, argument, text.data, key,
                                                  list->line, err);
    lhi_text_fini(&text);
    return status;
}

/* Checks whether the file has the key `key` with the value true. */
static bool is_key_true(const converter *c, const char *key)
{
    const lhi_node *node = lhi_config_find(c->doc->root, key);
    return node && node->kind == LHI_SCALAR &&
           lhi_is_same_word(node->text, "true");
}

/* --- keys with their own rule --------------------------------------------- */

/* Fails with LH_EUNSUPPORTED: `node`'s value, followed by the reason `why`. */
static lh_status reject(const converter *c, const lhi_node *node, lh_error *err,
                        const char *why)
{
    char shown[60];
    lhi_doc_sanitise_text(node->text, shown, sizeof shown);
    return lhi_doc_fail(c->doc, node, err, LH_EUNSUPPORTED, "'%s' %s", shown,
                        why);
}

/* Converts NeMo's activation function `text` to Megatron-LM's argument.
 * LH_EUNSUPPORTED: it has none. */
static lh_status read_activation(converter *c, const lhi_node *node,
                                 const char *text, const char *key,
                                 lh_error *err)
{
    const char *name = strncmp(text, "fast-", 5) == 0 ? text + 5 : text;
    if (strcmp(name, "gelu") == 0)
        return LH_OK;
    if (strcmp(name, "swiglu") == 0)
        return add_argument(c, "swiglu", NULL, key, node->line, err);
    if (strcmp(name, "squared-relu") == 0)
        return add_argument(c, "squared-relu", NULL, key, node->line, err);
    if (strcmp(name, "geglu") != 0)
        return reject(c, node, err,
                      "is not one of gelu, geglu, swiglu, squared-relu");
    lhi_import_note(c->in,
                    "%s: %s is imported as quick GELU, which has the "
                    "same cost but other values",
                    key, text);
    return add_argument(c, "quick-geglu", NULL, key, node->line, err);
}

/* Converts the function in Megatron-Bridge's model.activation_func._target_ to
 * Megatron-LM's argument. LH_EUNSUPPORTED: it has none. */
static lh_status read_function(converter *c, const lhi_node *node,
                               const char *text, const char *key, lh_error *err)
{
    const bool gated = is_key_true(c, "model.gated_linear_unit");
    const char *dot = strrchr(text, '.');
    const char *name = dot ? dot + 1 : text;
    if (strcmp(name, gated ? "silu" : "gelu") == 0)
        return LH_OK;
    if (!gated && strcmp(name, "squared_relu") == 0)
        return add_argument(c, "squared-relu", NULL, key, node->line, err);
    if (gated && strstr(name, "gelu")) {
        if (!strstr(name, "quick_gelu"))
            lhi_import_note(c->in,
                            "%s: %s is imported as quick GELU, which "
                            "has the same cost but other values",
                            key, name);
        return add_argument(c, "quick-geglu", NULL, key, node->line, err);
    }
    return reject(c, node, err,
                  "is not an activation function that longhaul "
                  "imports; give the model by --model");
}

/* Converts NeMo's name of a norm, or Megatron's, to Megatron-LM's arguments. */
static lh_status read_normalization(converter *c, const lhi_node *node,
                                    const char *text, const char *key,
                                    lh_error *err)
{
    if (lhi_is_same_word(text, "rmsnorm"))
        return add_argument(c, "normalization", "RMSNorm", key, node->line,
                            err);
    if (!lhi_is_same_word(text, "layernorm") &&
        strcmp(text, "layernorm1p") != 0)
        return reject(c, node, err,
                      "is not one of layernorm, layernorm1p, rmsnorm");
    LHI_TRY(
        add_argument(c, "normalization", "LayerNorm", key, node->line, err));
    return strcmp(text, "layernorm1p") == 0
               ? add_argument(c, "apply-layernorm-1p", NULL, key, node->line,
                              err)
               : LH_OK;
}

/* Converts the kind of position embedding to Megatron-LM's argument. ALiBi is
 * modelled as none, with a note. */
static lh_status read_positions(converter *c, const lhi_node *node,
                                const char *text, const char *key,
                                lh_error *err)
{
    const bool biased = lhi_is_same_word(text, "alibi");
    if (biased)
        lhi_import_note(
            c->in, "%s: attention is modelled without position biases", key);
    return add_argument(c, "position-embedding-type", biased ? "none" : text,
                        key, node->line, err);
}

/* Converts the precision ("bf16", "16-mixed", "bf16_mixed") to Megatron-LM's
 * argument. */
static lh_status read_precision(converter *c, const lhi_node *node,
                                const char *text, const char *key,
                                lh_error *err)
{
    if (strncmp(text, "bf16", 4) == 0)
        return add_argument(c, "bf16", NULL, key, node->line, err);
    if (strncmp(text, "16", 2) == 0 || strncmp(text, "fp16", 4) == 0)
        return add_argument(c, "fp16", NULL, key, node->line, err);
    if (strncmp(text, "32", 2) == 0 || strncmp(text, "fp32", 4) == 0)
        return lhi_import_add_name(c->in, "bf16", key, err);
    return reject(c, node, err, "is not one of bf16, 16, 32");
}

/* Converts the use of FP8 in matrix products to Megatron-LM's --fp8-format:
 * `text` is the format, or true, with the format in NeMo's other keys. */
static lh_status read_fp8(converter *c, const lhi_node *node, const char *text,
                          const char *key, lh_error *err)
{
    const bool is_e4m3 = is_key_true(c, "model.fp8_e4m3");
    if (lhi_is_same_word(text, "false"))
        return LH_OK;
    return add_argument(c, "fp8-format",
                        !lhi_is_same_word(text, "true") ? text
                        : is_e4m3                       ? "e4m3"
                                                        : "hybrid",
                        key, node->line, err);
}

/* Checks whether NeMo's optimizer shards its state. */
static bool is_distributed(const char *optimizer)
{
    return strcmp(optimizer, "mcore_distributed_optim") == 0 ||
           strcmp(optimizer, "distributed_fused_adam") == 0;
}

/* Converts NeMo's optimizer to Megatron-LM's arguments; one that shards its
 * state becomes the distributed optimizer. */
static lh_status read_optimizer(converter *c, const lhi_node *node,
                                const char *text, const char *key,
                                lh_error *err)
{
    if (is_distributed(text))
        return add_argument(c, "use-distributed-optimizer", NULL, key,
                            node->line, err);
    if (strstr(text, "adam"))
        return LH_OK;
    return add_argument(c, "optimizer", text, key, node->line, err);
}

/* Converts the type in which NeMo reduces gradients to Megatron-LM's argument;
 * fp32 needs none. */
static lh_status read_reduction(converter *c, const lhi_node *node,
                                const char *text, const char *key,
                                lh_error *err)
{
    if (strcmp(text, "bf16") != 0)
        return LH_OK;
    return add_argument(c, "grad-reduce-in-bf16", NULL, key, node->line, err);
}

/* Converts the key/value head count to Megatron-LM's arguments for
 * grouped-query attention. */
static lh_status read_groups(converter *c, const lhi_node *node,
                             const char *text, const char *key, lh_error *err)
{
    LHI_TRY(
        add_argument(c, "group-query-attention", NULL, key, node->line, err));
    return add_argument(c, "num-query-groups", text, key, node->line, err);
}

/* Converts the tokenizer: a class name of Megatron's becomes its type, any
 * other name the tokenizer model. */
static lh_status read_tokenizer(converter *c, const lhi_node *node,
                                const char *text, const char *key,
                                lh_error *err)
{
    return add_argument(
        c, strstr(text, "Tokenizer") ? "tokenizer-type" : "tokenizer-model",
        text, key, node->line, err);
}

/* Converts the key that enables Transformer Engine: if `text` is false, appends
 * --transformer-impl local. */
static lh_status read_engine(converter *c, const lhi_node *node,
                             const char *text, const char *key, lh_error *err)
{
    if (!lhi_is_same_word(text, "false"))
        return LH_OK;
    return add_argument(c, "transformer-impl", "local", key, node->line, err);
}

/* Converts NeMo's key for FSDP: if true, Megatron-LM's PyTorch FSDP2, with or
 * without sharded parameters by NeMo's sharding strategy. */
static lh_status read_fsdp(converter *c, const lhi_node *node, const char *text,
                           const char *key, lh_error *err)
{
    const lhi_node *strategy =
        lhi_config_find(c->doc->root, "model.fsdp_sharding_strategy");
    if (!lhi_is_same_word(text, "true"))
        return LH_OK;
    LHI_TRY(add_argument(c, "use-torch-fsdp2", NULL, key, node->line, err));
    if (strategy && strategy->kind != LHI_SCALAR)
        return lhi_doc_fail(c->doc, strategy, err, LH_EINPUT,
                            "must be a value");
    if (strategy && strcmp(strategy->text, "grad") == 0)
        return add_argument(c, "torch-fsdp2-no-reshard-after-forward", NULL,
                            "model.fsdp_sharding_strategy", strategy->line,
                            err);
    return LH_OK;
}

/* Checks that the model provider is one for GPT models. LH_EUNSUPPORTED: it is
 * for another kind of model. */
static lh_status read_provider(converter *c, const lhi_node *node,
                               const char *text, const char *key, lh_error *err)
{
    static const char *const others[] = {
        "Mamba", "Hybrid", "T5", "Bert", "VL", "Omni", "NextProvider", NULL};
    (void)key;
    for (uint32_t i = 0; others[i]; i++)
        if (strstr(text, others[i]))
            return reject(c, node, err,
                          "is another kind of model; longhaul imports "
                          "decoders only");
    return LH_OK;
}

/* Converts the kind of layers, which has no argument. LH_EUNSUPPORTED:
 * Falcon's, with attention and MLP in parallel. */
static lh_status read_layers(converter *c, const lhi_node *node,
                             const char *text, const char *key, lh_error *err)
{
    if (strcmp(text, "megatron_falcon_gpt") == 0 &&
        is_key_true(c, "model.mcore_customization_config.parallel_attention"))
        return reject(c, node, err,
                      "has attention and MLP in parallel, which is not "
                      "imported; remove the key and give the model by --model");
    lhi_import_ignore(c->in, key);
    return LH_OK;
}

static const struct {
    const char *key;
    lh_status (*read)(converter *c, const lhi_node *node, const char *text,
                      const char *key, lh_error *err);
} special[] = {
    {"mixed_precision", read_precision},
    {"mixed_precision.fp8", read_fp8},
    {"model._target_", read_provider},
    {"model.activation", read_activation},
    {"model.activation_func", read_function},
    {"model.activation_func._target_", read_function},
    {"model.fp8", read_fp8},
    {"model.fsdp", read_fsdp},
    {"model.name", read_layers},
    {"model.normalization", read_normalization},
    {"model.num_query_groups", read_groups},
    {"model.optim.grad_sync_dtype", read_reduction},
    {"model.optim.name", read_optimizer},
    {"model.position_embedding_type", read_positions},
    {"model.tokenizer.type", read_tokenizer},
    {"model.transformer_engine", read_engine},
    {"tokenizer.tokenizer_type", read_tokenizer},
    {"trainer.precision", read_precision},
};

/* --- reading -------------------------------------------------------------- */

/* Finds Megatron-LM's argument for a NeMo or Bridge key: its name, its number
 * of values (`arity`) and how the import treats it (`kind`). *inverted: the
 * argument is a flag for the key's value false. Returns false if none. */
static bool find_argument(const char *key, char name[MOST_NAME],
                          lhi_arity *arity, bool *inverted,
                          lhi_argument_kind *kind)
{
    *inverted = false;
    for (size_t i = 0; i < sizeof renamed / sizeof *renamed; i++)
        if (strcmp(renamed[i].key, key) == 0) {
            snprintf(name, MOST_NAME, "%s", renamed[i].argument);
            *inverted = renamed[i].inverted;
            return lhi_megatron_find_argument(name, arity, kind);
        }
    uint32_t section = 0;
    while (sections[section] &&
           strncmp(sections[section], key, strlen(sections[section])) != 0)
        section++;
    if (!sections[section])
        return false;
    const char *own = key + strlen(sections[section]);
    if (strchr(own, '.'))
        return false;
    for (*inverted = false;; *inverted = true) {
        snprintf(name, MOST_NAME, "%s%s", *inverted ? "no-" : "", own);
        for (char *at = name; *at; at++)
            *at = *at == '_' ? '-' : *at;
        const bool found = lhi_megatron_find_argument(name, arity, kind);
        if (found && (!*inverted || *arity == LHI_ARITY_FLAG))
            return true;
        if (*inverted)
            return false;
    }
}

/* Removes ".0" from a whole number, as in "1000000.0". */
static void strip_fraction(char *text)
{
    char *dot = strchr(text, '.');
    if (dot && dot > text &&
        strspn(text, "0123456789") == (size_t)(dot - text) && dot[1] &&
        strspn(dot + 1, "0") == strlen(dot + 1))
        *dot = '\0';
}

/* Appends Megatron-LM's counterpart to `key`, if there is one (*known), with
 * the value `text`, or `node`'s items for a list (`text` is ""). */
static lh_status read_named(converter *c, const lhi_node *node, char *text,
                            const char *key, bool *known, lh_error *err)
{
    char name[MOST_NAME];
    lhi_arity arity;
    lhi_argument_kind kind;
    bool inverted;
    *known = find_argument(key, name, &arity, &inverted, &kind);
    if (!*known)
        return LH_OK;
    const bool is_true = lhi_is_same_word(text, "true");
    const bool is_false = lhi_is_same_word(text, "false");
    if (kind == LHI_ARGUMENT_IGNORED) {
        lhi_import_ignore(c->in, key);
        return LH_OK;
    }
    if (arity == LHI_ARITY_FLAG) {
        if (!is_true && !is_false)
            return lhi_doc_fail(c->doc, node, err, LH_EINPUT,
                                "must be true or false");
        return is_true != inverted
                   ? add_argument(c, name, NULL, key, node->line, err)
                   : LH_OK;
    }
    for (const lhi_node *n = node->first; n; n = n->next)
        if (kind == LHI_ARGUMENT_READ && n->kind != LHI_SCALAR)
            return lhi_doc_fail(c->doc, n, err, LH_EINPUT, "must be a value");
    if (node->kind == LHI_LIST)
        return arity == LHI_ARITY_SOME || arity == LHI_ARITY_THREE
                   ? add_items(c, name, node, key, err)
                   : add_list(c, name, node, key, err);
    if (is_false ||
        (strcmp(name, "recompute-num-layers") == 0 && strcmp(text, "0") == 0))
        return LH_OK;
    strip_fraction(text);
    return add_argument(c, name, text, key, node->line, err);
}

/* Checks whether a key has no effect on time and memory: a listed one, or one
 * for overlap with a distributed optimizer while NeMo's is another. */
static bool is_without_effect(const converter *c, const char *key)
{
    for (uint32_t i = 0; ignored[i]; i++)
        if (strcmp(ignored[i], key) == 0)
            return true;
    const lhi_node *name = lhi_config_find(c->doc->root, "model.optim.name");
    return strncmp(key, "model.optim.overlap_", 20) == 0 &&
           (!name || name->kind != LHI_SCALAR || !is_distributed(name->text));
}

/* Converts a key of a NeMo or Bridge file to Megatron-LM's arguments. *known:
 * whether these programs have the key. Callback for lhi_config_walk(). */
static lh_status visit_key(void *context, const lhi_doc *doc,
                           const lhi_node *node, const char *key, bool *known,
                           lh_error *err)
{
    converter *c = context;
    char text[LHI_OMEGA_SIZE] = "";
    if ((node->kind == LHI_SCALAR && strcmp(node->text, "???") == 0) ||
        strcmp(key, "trainer.devices") == 0 ||
        strcmp(key, "trainer.num_nodes") == 0)
        return LH_OK;
    if (is_without_effect(c, key)) {
        lhi_import_ignore(c->in, key);
        return LH_OK;
    }
    if (node->kind == LHI_SCALAR && !lhi_omega_resolve(doc, node, text)) {
        char name[MOST_NAME];
        lhi_arity arity = LHI_ARITY_ONE;
        lhi_argument_kind kind = LHI_ARGUMENT_UNKNOWN;
        bool inverted;
        *known = find_argument(key, name, &arity, &inverted, &kind);
        if (*known && kind == LHI_ARGUMENT_IGNORED)
            lhi_import_ignore(c->in, key);
        if (!*known || kind == LHI_ARGUMENT_IGNORED || arity == LHI_ARITY_PATH)
            return LH_OK;
        return reject(c, node, err,
                      "refers to a value that is not in this "
                      "file; replace it by the value");
    }
    if (lhi_is_same_word(text, "null"))
        return LH_OK;
    if (node->kind == LHI_SCALAR)
        for (size_t i = 0; i < sizeof special / sizeof *special; i++)
            if (strcmp(special[i].key, key) == 0)
                return special[i].read(c, node, text, key, err);
    return read_named(c, node, text, key, known, err);
}

/* Reads a number of GPUs or nodes into *out; 1 if the key is absent. *given:
 * the key is present. */
static lh_status get_count(const lhi_doc *doc, const char *key, uint32_t *out,
                           bool *given, lh_error *err)
{
    const lhi_node *node = lhi_config_find(doc->root, key);
    *out = 1;
    *given = node != NULL;
    return node ? lhi_node_get_u32(doc, node, 1, LH_MAX_GPUS, out, err) : LH_OK;
}

/* Reads the GPU count of the trainer into *gpus; 0 if the given machines define
 * it. They replace the trainer's number, with a note. */
static lh_status read_gpus(const lhi_doc *doc, const lh_import_options *options,
                           lhi_imported_job *in, uint32_t *gpus, lh_error *err)
{
    uint32_t nodes, devices;
    bool has_nodes, has_devices;
    const uint64_t there = lhi_import_count_gpus(options);
    LHI_TRY(get_count(doc, "trainer.num_nodes", &nodes, &has_nodes, err));
    LHI_TRY(get_count(doc, "trainer.devices", &devices, &has_devices, err));
    const uint64_t product = (uint64_t)nodes * devices;
    *gpus = 0;
    if (there || (!has_nodes && !has_devices)) {
        if (there && (has_nodes || has_devices) && there != product)
            lhi_import_note(in,
                            "trainer.num_nodes: %llu GPUs are replaced by the "
                            "%llu of the given machines",
                            (unsigned long long)product,
                            (unsigned long long)there);
        return LH_OK;
    }
    if (product > LH_MAX_GPUS)
        return lhi_fail(err, LH_EINPUT, "%s: %llu GPUs are above the limit",
                        doc->file, (unsigned long long)product);
    *gpus = (uint32_t)product;
    return LH_OK;
}

/* Records, for each Megatron-LM argument that the file does not set, the key
 * that would set it, so that messages name keys rather than arguments. */
static lh_status add_names(const lhi_doc *doc, lhi_imported_job *in,
                           lh_error *err)
{
    char section[MOST_NAME];
    const bool is_bridge = lhi_node_find(doc->root, "train") != NULL;
    if (is_bridge && !lhi_import_find_name(in, "seq-length"))
        LHI_TRY(lhi_import_add_name(in, "seq-length", "model.seq_length", err));
    for (size_t i = 0; i < sizeof renamed / sizeof *renamed; i++) {
        snprintf(section, sizeof section, "%.*s",
                 (int)strcspn(renamed[i].key, "."), renamed[i].key);
        if (lhi_node_find(doc->root, section) &&
            !lhi_import_find_name(in, renamed[i].argument))
            LHI_TRY(lhi_import_add_name(in, renamed[i].argument, renamed[i].key,
                                        err));
    }
    if (!lhi_import_find_name(in, "bf16"))
        LHI_TRY(lhi_import_add_name(
            in, "bf16", is_bridge ? "mixed_precision" : "trainer.precision",
            err));
    return LH_OK;
}

/* Appends the precision that Megatron-Bridge's recipes have by default, unless
 * the file gives one. */
static lh_status add_default_precision(converter *c, lh_error *err)
{
    const lhi_node *train = lhi_node_find(c->doc->root, "train");
    if (!train || lhi_import_find_name(c->in, "bf16") ||
        lhi_import_find_name(c->in, "fp16"))
        return LH_OK;
    lhi_import_note(c->in, "mixed_precision: is not given; bf16 is modelled, "
                           "as in Megatron-Bridge's recipes");
    return add_argument(c, "bf16", NULL, "mixed_precision", train->line, err);
}

/* Converts a NeMo or Bridge document to the words of a Megatron-LM command
 * line, and builds the job from them. Messages then name the document's keys,
 * but options of longhaul and torchrun as they are. */
static lh_status convert(const lhi_doc *doc, const char *name,
                         const lh_import_options *options, lhi_imported_job *in,
                         lh_error *err)
{
    uint32_t gpus;
    converter c = {.doc = doc, .in = in};
    static const char *const others[] = {"--model", "--nodes", "--nnodes",
                                         "--nproc-per-node", NULL};
    LHI_TRY(lhi_import_add_name(in, "", "model.", err));
    for (uint32_t i = 0; others[i]; i++)
        LHI_TRY(lhi_import_add_name(in, others[i] + 2, others[i], err));
    LHI_TRY(lhi_config_walk(doc, rules, sizeof rules / sizeof *rules,
                            "NeMo's or Megatron-Bridge", visit_key, &c, in,
                            err));
    LHI_TRY(add_default_precision(&c, err));
    LHI_TRY(add_names(doc, in, err));
    LHI_TRY(read_gpus(doc, options, in, &gpus, err));
    const lhi_command_line words = {name, c.n, c.all};
    return lhi_megatron_build_job(&words, gpus, options, in, err);
}

/* Reads a NeMo or Megatron-Bridge configuration (YAML), called `name` in
 * messages, into the imported job `in`: model, degrees, stages, training and
 * framework. */
lh_status lhi_import_nemo_text(const char *text, size_t len, const char *name,
                               const lh_import_options *options,
                               lhi_imported_job *in, lh_error *err)
{
    lhi_doc *doc;
    in->source_name = "YAML of NeMo or Megatron-Bridge";
    LHI_TRY(lhi_doc_parse(text, len, name, LHI_INPUT_ARGUMENTS, &doc, err));
    lh_status status = convert(doc, name, options, in, err);
    lhi_doc_free(doc);
    return status;
}
