/* SPDX-License-Identifier: Apache-2.0 */
/* Exports a Megatron-Bridge recipe: Megatron-LM's arguments as fields. Settings
 * absent from both keep Bridge's default only if an iteration does not depend
 * on them. */
#include "format/job/parse.h"
#include "interop/export/bridge_fields.h"
#include "interop/export/export_internal.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

/* --- arguments ------------------------------------------------------------ */

/* A line "--name words". */
typedef struct argument {
    const char *name, *words;
    size_t name_len, words_len;
} argument;

/* Reads the next argument of Megatron-LM's arguments at or after *text into
 * *out, skips comment lines, and advances *text past it. Returns false at the
 * end. */
static bool read_next_argument(const char **text, argument *out)
{
    const char *line = *text;
    while (*line && strncmp(line, "--", 2) != 0) {
        line += strcspn(line, "\n");
        line += *line == '\n';
    }
    if (!*line)
        return false;
    const size_t len = strcspn(line, "\n");
    const char *space = memchr(line, ' ', len);
    out->name = line + 2;
    out->name_len = (size_t)((space ? space : line + len) - out->name);
    out->words = space ? space + 1 : line + len;
    out->words_len = (size_t)(line + len - out->words);
    *text = line + len;
    return true;
}

/* Checks whether an argument has this name, given without dashes. */
static bool is_called(const argument *a, const char *name)
{
    return strlen(name) == a->name_len &&
           memcmp(a->name, name, a->name_len) == 0;
}

/* Checks whether Megatron-LM's arguments in `text` include one of this name,
 * given without dashes. */
static bool is_given(const char *text, const char *name)
{
    argument a;
    while (read_next_argument(&text, &a))
        if (is_called(&a, name))
            return true;
    return false;
}

/* --- fields --------------------------------------------------------------- */

/* Recipe export state. */
typedef struct recipe {
    const lh_plan *plan;
    const char *text; /* Megatron-LM's arguments */
    lhi_text parts[LHI_N_BRIDGE_PARTS];
} recipe;

/* Adds the line `field=value,` to the configuration object `part` of the Python
 * recipe. */
static void put_field(recipe *r, lhi_bridge_object part, const char *field,
                      const char *value)
{
    lhi_text_printf(&r->parts[part], "            %s=%s,\n", field, value);
}

/* Adds the recipe's field name for an argument: the one in its table row, or
 * the argument's name with '_' for '-'. */
static void put_field_name(lhi_text *out, const lhi_bridge_field *row)
{
    const char *name = row->field ? row->field : row->argument;
    for (; *name; name++)
        lhi_text_puts(out, (char[]){*name == '-' ? '_' : *name, '\0'});
}

/* Adds the words of an argument's value as a Python list of strings. */
static void put_string_list(lhi_text *out, const argument *a)
{
    const char *word = a->words, *end = word + a->words_len;
    while (word < end) {
        const char *space = memchr(word, ' ', (size_t)(end - word));
        const char *stop = space ? space : end;
        lhi_text_puts(out, word == a->words ? "[\"" : ", \"");
        lhi_text_add(out, word, (size_t)(stop - word));
        lhi_text_puts(out, "\"");
        word = space ? stop + 1 : end;
    }
    lhi_text_puts(out, "]");
}

/* Adds the recipe's field for an argument to its table row's configuration
 * object, in the Python form (number, string, list, flag) that the row
 * defines. */
static void put_argument_field(recipe *r, const lhi_bridge_field *row,
                               const argument *a)
{
    lhi_text *out = &r->parts[row->part];
    const bool is_text = row->value == LHI_BRIDGE_TEXT;
    const bool is_tuple = row->value == LHI_BRIDGE_TUPLE;
    if (row->value == LHI_BRIDGE_NONE)
        return;
    lhi_text_puts(out, "            ");
    put_field_name(out, row);
    lhi_text_puts(out, is_text ? "=\"" : is_tuple ? "=(" : "=");
    if (row->text)
        lhi_text_puts(out, row->text);
    if (row->value == LHI_BRIDGE_TEXTS)
        put_string_list(out, a);
    else if (row->value != LHI_BRIDGE_FIXED)
        lhi_text_add(out, a->words, a->words_len);
    lhi_text_puts(out, is_text ? "\",\n" : is_tuple ? "),\n" : ",\n");
}

/* Converts all of Megatron-LM's arguments to fields of the recipe.
 * LH_EUNSUPPORTED: Megatron-Bridge has no field for one. */
static lh_status put_arguments(recipe *r, lh_error *err)
{
    const char *text = r->text;
    argument a;
    while (read_next_argument(&text, &a)) {
        bool known = false;
        for (size_t i = 0; i < lhi_n_bridge_fields; i++)
            if (is_called(&a, lhi_bridge_fields[i].argument)) {
                put_argument_field(r, &lhi_bridge_fields[i], &a);
                known = true;
            }
        if (!known)
            return lhi_fail(err, LH_EUNSUPPORTED,
                            "Megatron-Bridge has no field for --%.*s",
                            (int)a.name_len, a.name);
    }
    return LH_OK;
}

/* --- derived fields ------------------------------------------------------- */

/* Adds the fields for several chunks per rank, which Megatron-LM derives from
 * its arguments at start-up. Adds none otherwise. */
static void put_virtual_stages(recipe *r)
{
    const lh_layout *l = &r->plan->best.layout;
    char chunks[16];
    if (l->pipeline == 1 || l->chunks_per_device == 1)
        return;
    snprintf(chunks, sizeof chunks, "%" PRIu32, l->chunks_per_device);
    put_field(r, LHI_BRIDGE_MODEL, "virtual_pipeline_model_parallel_size",
              chunks);
    if (!is_given(r->text, "no-overlap-p2p-communication")) {
        put_field(r, LHI_BRIDGE_MODEL, "overlap_p2p_comm", "True");
        put_field(r, LHI_BRIDGE_MODEL, "batch_p2p_comm", "False");
    }
    if (is_given(r->text, "overlap-param-gather"))
        put_field(r, LHI_BRIDGE_DDP, "align_param_gather", "True");
}

/* Adds the fields that enable the fusions which are on by default in
 * Megatron-LM, but not in Megatron-Bridge. */
static void put_fusions(recipe *r)
{
    const bool biases = !is_given(r->text, "disable-bias-linear") &&
                        !is_given(r->text, "no-bias-gelu-fusion");
    if (biases || is_given(r->text, "swiglu"))
        put_field(r, LHI_BRIDGE_MODEL, "bias_activation_fusion", "True");
    put_field(r, LHI_BRIDGE_MODEL, "bias_dropout_fusion", "True");
    put_field(r, LHI_BRIDGE_MODEL, "persist_layer_norm", "True");
    if (!r->plan->job->model->positions)
        put_field(r, LHI_BRIDGE_MODEL, "apply_rope_fusion", "True");
}

/* Adds the fields of latent attention and of scaled positions for which
 * Megatron-LM has no argument or another default. */
static void put_positions(recipe *r)
{
    const lh_model *m = r->plan->job->model;
    const lh_rope_scaling *s = m->rope_scaling;
    char number[32];
    if (m->kv_lora_rank && !m->q_lora_rank)
        put_field(r, LHI_BRIDGE_MODEL, "q_lora_rank", "None");
    if (s && s->type == LH_ROPE_LINEAR && !m->kv_lora_rank) {
        snprintf(number, sizeof number, "%.12g", s->factor);
        put_field(r, LHI_BRIDGE_MODEL, "seq_len_interpolation_factor", number);
    }
    if (!s || s->type != LH_ROPE_YARN || !m->kv_lora_rank)
        return;
    snprintf(number, sizeof number, "%" PRIu32, s->original_positions);
    put_field(r, LHI_BRIDGE_MODEL, "original_max_position_embeddings", number);
    snprintf(number, sizeof number, "%.12g", s->beta_fast);
    put_field(r, LHI_BRIDGE_MODEL, "beta_fast", number);
    snprintf(number, sizeof number, "%.12g", s->beta_slow);
    put_field(r, LHI_BRIDGE_MODEL, "beta_slow", number);
}

/* Adds the vocabulary size, padded as Megatron-LM pads it. */
static void put_vocabulary(recipe *r)
{
    uint32_t multiple;
    char words[16];
    snprintf(words, sizeof words, "%" PRIu32,
             lhi_megatron_padded_vocab(r->plan->job->model->vocab,
                                       r->plan->best.layout.tensor, &multiple));
    put_field(r, LHI_BRIDGE_MODEL, "vocab_size", words);
}

/* Checks whether the recipe needs a layer specification: it does with experts
 * or latent attention, which Bridge's default lacks. */
static bool needs_layer_specification(const recipe *r)
{
    return r->plan->job->model->experts || r->plan->job->model->kv_lora_rank;
}

/* Adds the fields for parameter precision, gradient reduction in fp32, and the
 * check for NaN gradients. */
static void put_precision(recipe *r)
{
    const bool bf16 = is_given(r->text, "bf16"),
               fp16 = is_given(r->text, "fp16");
    const bool in_fp32 =
        is_given(r->text, "accumulate-allreduce-grads-in-fp32") ||
        (bf16 && !is_given(r->text, "grad-reduce-in-bf16"));
    if (!bf16 && !fp16) {
        put_field(r, LHI_BRIDGE_PRECISION, "fp32", "True");
        put_field(r, LHI_BRIDGE_PRECISION, "params_dtype", "torch.float32");
        put_field(r, LHI_BRIDGE_PRECISION, "pipeline_dtype", "torch.float32");
    }
    put_field(r, LHI_BRIDGE_PRECISION, "grad_reduce_in_fp32",
              in_fp32 ? "True" : "False");
    /* With loss scaling, non-finite gradients are a signal for the scaler. */
    put_field(r, LHI_BRIDGE_DDP, "check_for_nan_in_grad",
              fp16 ? "False" : "True");
}

/* Adds the size of gradient buckets, in parameters, if the arguments give their
 * number: Bridge has no field for it. The size is a GPU's parameters divided by
 * that number, as in Megatron-LM. */
static void put_bucket_size(recipe *r)
{
    const lh_plan *plan = r->plan;
    const lh_layout *l = &plan->best.layout;
    char size[32];
    if (!is_given(r->text, "ddp-num-buckets"))
        return;
    snprintf(size, sizeof size, "%.0f",
             lhi_layout_count_all_params(plan->job->model, l) /
                 l->chunks_per_device);
    put_field(r, LHI_BRIDGE_DDP, "bucket_size", size);
}

/* Checks that the model has as many learned positions as tokens in a sequence,
 * or none.
 * LH_EUNSUPPORTED: the numbers differ. */
static lh_status check_positions(const lh_plan *plan, lh_error *err)
{
    const uint32_t positions = plan->job->model->positions;
    if (!positions || positions == plan->job->training.sequence)
        return LH_OK;
    return lhi_fail(err, LH_EUNSUPPORTED,
                    "Megatron-Bridge learns one position per token of a "
                    "sequence, %" PRIu32 ", and the model has %" PRIu32
                    "; set the model's positions to the sequence length, or "
                    "use --to megatron",
                    plan->job->training.sequence, positions);
}

/* --- text ----------------------------------------------------------------- */

static const char imports[] =
    "from functools import partial\n"
    "import sys\n"
    "\n"
    "import torch\n"
    "import torch.nn.functional as F\n"
    "from megatron.bridge.models.gpt_provider import GPTModelProvider\n"
    "from megatron.bridge.models.mla_provider import MLAModelProvider\n"
    "from megatron.bridge.training.config import (\n"
    "    CheckpointConfig,\n"
    "    ConfigContainer,\n"
    "    DistributedDataParallelConfig,\n"
    "    DistributedInitConfig,\n"
    "    GPTDatasetConfig,\n"
    "    LoggerConfig,\n"
    "    OptimizerConfig,\n"
    "    RNGConfig,\n"
    "    SchedulerConfig,\n"
    "    TokenizerConfig,\n"
    "    TrainingConfig,\n"
    ")\n"
    "from megatron.bridge.training.mixed_precision import "
    "MixedPrecisionConfig\n"
    "from megatron.core.activations import squared_relu\n"
    "from megatron.core.fusions.fused_bias_geglu import quick_gelu\n"
    "from megatron.core.models.gpt.gpt_layer_specs import "
    "get_gpt_decoder_block_spec\n"
    "from megatron.core.transformer.enums import AttnBackend\n";

#define NOT_PLANNED "            # Not of the plan:\n"

static const char unknown[] = "        # Not of the plan:\n"
                              "        scheduler=SchedulerConfig(\n"
                              "            lr_decay_style=\"cosine\",\n"
                              "            lr_warmup_iters=10,\n"
                              "        ),\n"
                              "        logger=LoggerConfig(log_interval=1),\n"
                              "        rng=RNGConfig(seed=1234),\n";

static const char run_it[] =
    "    )\n"
    "\n"
    "\n"
    "if __name__ == \"__main__\":\n"
    "    from megatron.bridge.training.gpt_step import forward_step\n"
    "    from megatron.bridge.training.pretrain import pretrain\n"
    "    from megatron.bridge.training.utils.omegaconf_utils import (\n"
    "        process_config_with_overrides,\n"
    "    )\n"
    "\n"
    "    config = pretrain_config()\n"
    "    if sys.argv[1:]:\n"
    "        config = process_config_with_overrides(\n"
    "            config, cli_overrides=sys.argv[1:]\n"
    "        )\n"
    "    pretrain(config, forward_step)\n";

/* Moves the fields collected for configuration object `part` to the recipe's
 * text `out`. `begin` is its constructor's call, and `more` are further fields
 * that no plan affects. */
static lh_status put_object(recipe *r, lhi_text *out, lhi_bridge_object part,
                            const char *begin, const char *more, lh_error *err)
{
    char *fields;
    lhi_text_puts(&r->parts[part], more);
    LHI_TRY(lhi_text_take(&r->parts[part], &fields, NULL, err));
    lhi_text_printf(
        out, *fields ? "        %s(\n%s        ),\n" : "        %s(%s),\n",
        begin, fields);
    lh_text_free(fields);
    return LH_OK;
}

/* Adds the ConfigContainer with all configuration objects. Objects and fields
 * that a plan does not determine get defaults. */
static lh_status put_container(recipe *r, lhi_text *out, lh_error *err)
{
    lhi_text_puts(out, "    return ConfigContainer(\n");
    LHI_TRY(put_object(r, out, LHI_BRIDGE_MODEL,
                       r->plan->job->model->kv_lora_rank
                           ? "model=MLAModelProvider"
                           : "model=GPTModelProvider",
                       "", err));
    LHI_TRY(put_object(r, out, LHI_BRIDGE_PRECISION,
                       "mixed_precision=MixedPrecisionConfig", "", err));
    LHI_TRY(put_object(r, out, LHI_BRIDGE_DDP,
                       "ddp=DistributedDataParallelConfig", "", err));
    LHI_TRY(put_object(r, out, LHI_BRIDGE_DIST, "dist=DistributedInitConfig",
                       "", err));
    LHI_TRY(put_object(r, out, LHI_BRIDGE_TRAIN, "train=TrainingConfig",
                       NOT_PLANNED "            train_iters=100,\n"
                                   "            eval_iters=0,\n",
                       err));
    LHI_TRY(put_object(r, out, LHI_BRIDGE_OPTIMIZER,
                       "optimizer=OptimizerConfig",
                       NOT_PLANNED "            optimizer=\"adam\",\n"
                                   "            lr=3e-4,\n"
                                   "            min_lr=3e-5,\n"
                                   "            weight_decay=0.1,\n"
                                   "            adam_beta2=0.95,\n"
                                   "            clip_grad=1.0,\n",
                       err));
    LHI_TRY(put_object(r, out, LHI_BRIDGE_DATASET, "dataset=GPTDatasetConfig",
                       NOT_PLANNED "            random_seed=1234,\n"
                                   "            reset_attention_mask=False,\n"
                                   "            reset_position_ids=False,\n"
                                   "            eod_mask_loss=False,\n"
                                   "            blend=None,\n"
                                   "            split=\"9999,8,2\",\n"
                                   "            dataloader_type=\"single\",\n",
                       err));
    LHI_TRY(put_object(r, out, LHI_BRIDGE_CHECKPOINT,
                       "checkpoint=CheckpointConfig", "", err));
    /* The null tokenizer adds an end-of-document token; training/setup.py fails
     * if the tokenizer has more tokens than the model. */
    lhi_text_printf(out,
                    "        tokenizer=TokenizerConfig(\n"
                    "            tokenizer_type=\"NullTokenizer\",\n"
                    "            vocab_size=%" PRIu32 ",  # and one more\n"
                    "        ),\n",
                    r->plan->job->model->vocab - 1);
    lhi_text_puts(out, unknown);
    return LH_OK;
}

/* Adds the complete Python recipe: comments, imports, pretrain_config() and the
 * main program. */
static lh_status put_recipe(recipe *r, lhi_text *out, lh_error *err)
{
    lhi_export_copy_comments(out, r->text);
    lhi_text_puts(
        out, "\"\"\"What was planned, for Megatron-Bridge 0.3.1.\n\n"
             "Model, layout, batches and precision are the plan's. Data, "
             "tokenizer, learning rate,\nlength of the run and checkpoints a "
             "plan does not know: data here are made up.\nAs a program it "
             "takes fields, as train.train_iters=1000.\n\"\"\"\n\n");
    lhi_text_puts(out, imports);
    lhi_text_puts(out, "\n\ndef pretrain_config() -> ConfigContainer:\n"
                       "    \"\"\"For pretrain() of "
                       "megatron.bridge.training.pretrain.\"\"\"\n");
    LHI_TRY(put_arguments(r, err));
    put_virtual_stages(r);
    put_fusions(r);
    put_positions(r);
    put_vocabulary(r);
    if (needs_layer_specification(r))
        put_field(r, LHI_BRIDGE_MODEL, "transformer_layer_spec",
                  "partial(\n                get_gpt_decoder_block_spec, "
                  "use_transformer_engine=True\n            )");
    put_precision(r);
    put_bucket_size(r);
    LHI_TRY(put_container(r, out, err));
    lhi_text_puts(out, run_it);
    return LH_OK;
}

lh_status lhi_export_write_megatron_bridge(const lh_plan *plan, char **text,
                                           size_t *len, lh_error *err)
{
    char *arguments = NULL;
    lhi_text out = {0};
    LHI_TRY(lhi_export_write_megatron_arguments(plan, LH_EXPORT_MEGATRON_BRIDGE,
                                                &arguments, NULL, err));
    recipe r = {.plan = plan, .text = arguments};
    lh_status status = check_positions(plan, err);
    if (status == LH_OK)
        status = put_recipe(&r, &out, err);
    if (status == LH_OK)
        status = lhi_text_take(&out, text, len, err);
    else
        lhi_text_fini(&out);
    for (int i = 0; i < LHI_N_BRIDGE_PARTS; i++)
        lhi_text_fini(&r.parts[i]);
    lh_text_free(arguments);
    return status;
}
