/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments by their names, as in Python's argparse without abbreviations:
 * "--name value" or "--name=value"; the last one counts. Unknown ones are
 * collected in one note. */
#include "interop/import/megatron_internal.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Length of "--". */
enum { DASHES = 2 };

static const struct {
    const char *shown; /* with its dashes */
    lhi_arity arity;
} rows[] = {
#define LHI_MEGATRON_ROW(key, name, arity) {"--" name, LHI_ARITY_##arity},
    LHI_MEGATRON_LIST(LHI_MEGATRON_ROW)
#undef LHI_MEGATRON_ROW
};

/* Maximum length of an option's name, in bytes. */
enum { MOST_NAME = 80 };

/* The reader's position in the words, and the output. */
typedef struct reader {
    const lhi_command_line *words;
    lhi_imported_job *in;
    lhi_megatron *out;
    uint32_t i;       /* index of the next word */
    lhi_text unknown; /* unknown argument names, with commas */
} reader;

/* --- words of an argument ------------------------------------------------- */

/* Checks whether a word is an argument's name. A negative number is a value. */
static bool is_name(const char *word)
{
    return word[0] == '-' && word[1] && !isdigit((unsigned char)word[1]) &&
           word[1] != '.';
}

/* One argument with its values. */
typedef struct option {
    char name[MOST_NAME];
    uint32_t line;
    lhi_input_value given; /* its values */
} option;

/* Reads an argument's name, without dashes and `=value`.
 * LH_EINPUT: the word does not begin with --. */
static lh_status read_name(const reader *r, const lhi_command_line_word *word,
                           option *o, lh_error *err)
{
    const char *text = word->text;
    size_t len;
    if (text[0] != '-')
        LHI_TRY(lhi_command_line_check_expanded(r->words->file, word, err));
    if (strncmp(text, "--", 2) != 0 || !text[2])
        return lhi_fail(err, LH_EINPUT,
                        "%s:%u: '%.60s' is neither an argument nor a value of "
                        "one; arguments begin with --",
                        r->words->file, word->line, text);
    len = strcspn(text + 2, "=");
    if (len >= sizeof o->name)
        len = sizeof o->name - 1;
    memcpy(o->name, text + 2, len);
    o->name[len] = '\0';
    o->line = word->line;
    return LH_OK;
}

/* Checks whether an argument takes exactly one value, such as a number or a
 * path. */
static bool takes_one_value(lhi_arity arity)
{
    return arity == LHI_ARITY_ONE || arity == LHI_ARITY_PATH;
}

/* Counts the words after an argument's name that are its values: up to the next
 * name, at most as many as `arity` allows. */
static uint32_t count_values(const reader *r, lhi_arity arity)
{
    const uint32_t most = arity == LHI_ARITY_FLAG    ? 0
                          : takes_one_value(arity)   ? 1
                          : arity == LHI_ARITY_THREE ? 3
                                                     : UINT32_MAX;
    uint32_t n = 0;
    while (n < most && r->i + n < r->words->n &&
           !is_name(r->words->all[r->i + n].text))
        n++;
    return n;
}

/* Reads argument `o`'s values: the text after `=`, or the words that follow, as
 * many as `arity` requires. LH_EINPUT: there are too many or too few. */
static lh_status read_values(reader *r, const lhi_command_line_word *word,
                             lhi_arity arity, option *o, lh_error *err)
{
    const char *equals = strchr(word->text, '=');
    lhi_command_line_word *own; /* the value behind '=' */
    o->given = (lhi_input_value){.is_given = true, .line = o->line};
    if (!equals) {
        o->given.n = count_values(r, arity);
        o->given.values = r->words->all + r->i;
        r->i += o->given.n;
    } else if (arity == LHI_ARITY_FLAG) {
        return lhi_fail(err, LH_EINPUT, "%s:%u: --%s takes no value",
                        r->words->file, o->line, o->name);
    } else {
        if (!(own = LHI_NEW(r->in->mem, lhi_command_line_word, 1)))
            return lhi_fail_nomem(err);
        *own = *word;
        own->text = equals + 1;
        o->given.n = 1;
        o->given.values = own;
    }
    const bool wants = takes_one_value(arity);
    if ((wants && o->given.n != 1) ||
        (arity == LHI_ARITY_THREE && o->given.n != 3))
        return lhi_fail(err, LH_EINPUT, "%s:%u: --%s needs %s", r->words->file,
                        o->line, o->name, wants ? "a value" : "three values");
    return LH_OK;
}

/* --- lookup --------------------------------------------------------------- */

/* Returns an argument's index, by its name without dashes, in the table of
 * supported arguments; LHI_N_ARGS: not in the table. */
static uint32_t find_row(const char *name)
{
    uint32_t i = 0;
    while (i < LHI_N_ARGS && strcmp(rows[i].shown + DASHES, name) != 0)
        i++;
    return i;
}

bool lhi_megatron_find_argument(const char *name, lhi_arity *arity,
                                lhi_argument_kind *kind)
{
    const uint32_t row = find_row(name);
    const lhi_unmapped_argument other = lhi_megatron_find_unmapped(name);
    *arity = row < LHI_N_ARGS ? rows[row].arity : other.arity;
    *kind = row < LHI_N_ARGS ? LHI_ARGUMENT_READ : other.kind;
    return *kind != LHI_ARGUMENT_UNKNOWN;
}

/* Records an argument that Megatron-LM does not have, for a note.
 * LH_EINPUT: an existing argument has a similar name; `err` suggests it. */
static lh_status add_unknown(reader *r, const option *o, lh_error *err)
{
    for (uint32_t i = 0; i < LHI_N_ARGS; i++)
        if (lhi_is_similar_name(rows[i].shown + DASHES, o->name))
            return lhi_fail(err, LH_EINPUT,
                            "%s:%u: Megatron-LM (core 0.20) has no argument "
                            "--%s; did you mean %s?",
                            r->words->file, o->line, o->name, rows[i].shown);
    lhi_text_printf(&r->unknown, "%s--%s", r->unknown.len ? ", " : "", o->name);
    return LH_OK;
}

/* Treats an argument that the job cannot represent: rejects it, notes its
 * effect, or records it as ignored or unknown. */
static lh_status read_unmapped(reader *r, const lhi_command_line_word *word,
                               option *o, lh_error *err)
{
    const lhi_unmapped_argument a = lhi_megatron_find_unmapped(o->name);
    LHI_TRY(read_values(r, word, a.arity, o, err));
    if (strcmp(o->name, "use-checkpoint-args") == 0)
        r->out->from_checkpoint = true;
    switch (a.kind) {
    case LHI_ARGUMENT_UNKNOWN:
        return add_unknown(r, o, err);
    case LHI_ARGUMENT_REFUSED:
        return lhi_fail(err, LH_EUNSUPPORTED, "%s:%u: --%s %s", r->words->file,
                        o->line, o->name, a.why);
    case LHI_ARGUMENT_NOTED:
        lhi_import_note(r->in, "--%s: %s", o->name, a.why);
        return LH_OK;
    case LHI_ARGUMENT_READ:
    case LHI_ARGUMENT_IGNORED:
        break;
    }
    lhi_import_ignore(r->in, o->name);
    return LH_OK;
}

/* Reads the next argument and its values, and stores them or handles an
 * argument without a counterpart. */
static lh_status read_option(reader *r, lh_error *err)
{
    const lhi_command_line_word *word = &r->words->all[r->i++];
    option o;
    LHI_TRY(read_name(r, word, &o, err));
    const uint32_t row = find_row(o.name);
    if (row == LHI_N_ARGS)
        return read_unmapped(r, word, &o, err);
    LHI_TRY(read_values(r, word, rows[row].arity, &o, err));
    for (uint32_t k = 0; rows[row].arity != LHI_ARITY_PATH && k < o.given.n;
         k++)
        LHI_TRY(lhi_command_line_check_expanded(r->words->file,
                                                &o.given.values[k], err));
    r->out->args[row] = o.given;
    return LH_OK;
}

/* --- launcher ------------------------------------------------------------- */

/* Reads the GPU count from the launcher's part of the command line, and skips
 * that part. */
static void read_launcher(reader *r)
{
    const uint32_t n = lhi_command_line_find_arguments(r->words);
    r->i = n;
    r->out->gpus = lhi_command_line_count_gpus(r->words, n);
    if (n > 0)
        lhi_import_ignore(r->in, r->words->all[n - 1].text);
}

lh_status lhi_megatron_read(const lhi_command_line *words, lhi_imported_job *in,
                            lhi_megatron *out, lh_error *err)
{
    reader r = {.words = words, .in = in, .out = out};
    *out = (lhi_megatron){.file = words->file};
    read_launcher(&r);
    if (r.i == words->n)
        return lhi_fail(err, LH_EINPUT, "%s: has no arguments", words->file);
    lh_status status = LH_OK;
    while (r.i < words->n && status == LH_OK)
        status = read_option(&r, err);
    if (status == LH_OK && r.unknown.failed)
        status = lhi_fail_nomem(err);
    if (status == LH_OK && r.unknown.len)
        lhi_import_note(in,
                        "not among Megatron-LM's arguments (core 0.20), taken "
                        "as without effect on time and memory: %s",
                        r.unknown.data);
    lhi_text_fini(&r.unknown);
    return status;
}

/* --- values --------------------------------------------------------------- */

bool lhi_arg_is_given(const lhi_megatron *m, lhi_megatron_key key)
{
    return m->args[key].is_given;
}

/* Returns argument `key` with its file, name and given value, as input of the
 * lhi_input_value functions. */
static lhi_input_key make_key(const lhi_megatron *m, lhi_megatron_key key)
{
    return (lhi_input_key){m->file, rows[key].shown, &m->args[key]};
}

lh_status lhi_megatron_add_origins(const lhi_megatron *m, lhi_imported_job *in,
                                   lh_error *err)
{
    static const struct {
        const char *path;
        lhi_megatron_key key;
    } origins[] = {
        {"model", LHI_ARG_NUM_LAYERS},
        {"model.layers", LHI_ARG_ENCODER_NUM_LAYERS},
        {"model.layers", LHI_ARG_NUM_LAYERS},
        {"model", LHI_ARG_HYBRID_OVERRIDE_PATTERN},
        {"model", LHI_ARG_HYBRID_LAYER_PATTERN},
        {"model.hidden", LHI_ARG_HIDDEN_SIZE},
        {"model.ffn", LHI_ARG_FFN_HIDDEN_SIZE},
        {"model.heads", LHI_ARG_NUM_ATTENTION_HEADS},
        {"model.kv_heads", LHI_ARG_NUM_QUERY_GROUPS},
        {"model.head_dim", LHI_ARG_KV_CHANNELS},
        {"model.vocab", LHI_ARG_VOCAB_SIZE},
        {"model.vocab", LHI_ARG_PADDED_VOCAB_SIZE},
        {"model.positions", LHI_ARG_MAX_POSITION_EMBEDDINGS},
        {"model.rope_theta", LHI_ARG_ROTARY_BASE},
        {"model.partial_rotary_factor", LHI_ARG_ROTARY_PERCENT},
        {"model.no_rope_interval", LHI_ARG_NO_ROPE_FREQ},
        {"model.rope_scaling", LHI_ARG_USE_ROPE_SCALING},
        {"model.rope_scaling", LHI_ARG_ROTARY_SCALING_FACTOR},
        {"model.qk_l2_norm", LHI_ARG_QK_L2_NORM},
        {"model.norm_epsilon", LHI_ARG_NORM_EPSILON},
        {"model.norm_zero_centered", LHI_ARG_APPLY_LAYERNORM_1P},
        {"model.activation", LHI_ARG_SQUARED_RELU},
        {"model.activation", LHI_ARG_QUICK_GEGLU},
        {"model.glu_linear_offset", LHI_ARG_GLU_LINEAR_OFFSET},
        {"model.swiglu_limit", LHI_ARG_ACTIVATION_FUNC_CLAMP_VALUE},
        {"model.initializer_range", LHI_ARG_INIT_METHOD_STD},
        {"model.sliding_window", LHI_ARG_WINDOW_SIZE},
        {"model.full_interval", LHI_ARG_WINDOW_ATTN_SKIP_FREQ},
        {"model.window_first_layer", LHI_ARG_WINDOW_ATTN_SKIP_FREQ},
        {"model.experts", LHI_ARG_NUM_EXPERTS},
        {"model.experts_per_token", LHI_ARG_MOE_ROUTER_TOPK},
        {"model.expert_ffn", LHI_ARG_MOE_FFN_HIDDEN_SIZE},
        {"model.expert_ffn", LHI_ARG_FFN_HIDDEN_SIZE},
        {"model.shared_expert_ffn",
         LHI_ARG_MOE_SHARED_EXPERT_INTERMEDIATE_SIZE},
        {"model.router", LHI_ARG_MOE_ROUTER_SCORE_FUNCTION},
        {"model.routed_scale", LHI_ARG_MOE_ROUTER_TOPK_SCALING_FACTOR},
        {"model.expert_groups", LHI_ARG_MOE_ROUTER_NUM_GROUPS},
        {"model.groups_per_token", LHI_ARG_MOE_ROUTER_GROUP_TOPK},
        {"model.dense_layers", LHI_ARG_MOE_LAYER_FREQ},
        {"model.moe_interval", LHI_ARG_MOE_LAYER_FREQ},
        {"model.moe_phase", LHI_ARG_MOE_LAYER_FREQ},
        {"model.dense_list", LHI_ARG_MOE_LAYER_FREQ},
        {"model.q_lora_rank", LHI_ARG_Q_LORA_RANK},
        {"model.kv_lora_rank", LHI_ARG_KV_LORA_RANK},
        {"model.qk_nope_head_dim", LHI_ARG_QK_HEAD_DIM},
        {"model.qk_rope_head_dim", LHI_ARG_QK_POS_EMB_HEAD_DIM},
        {"model.v_head_dim", LHI_ARG_V_HEAD_DIM},
        {"model.mtp_layers", LHI_ARG_MTP_NUM_LAYERS},
        {"training.global_batch", LHI_ARG_GLOBAL_BATCH_SIZE},
        {"training.sequence", LHI_ARG_ENCODER_SEQ_LENGTH},
        {"training.sequence", LHI_ARG_SEQ_LENGTH},
        {"training.precision", LHI_ARG_FP16},
        {"training.precision", LHI_ARG_BF16},
        {"training.optimizer", LHI_ARG_OPTIMIZER},
        {"training.zero", LHI_ARG_DATA_PARALLEL_SHARDING_STRATEGY},
        {"training.zero", LHI_ARG_USE_DISTRIBUTED_OPTIMIZER},
        {"training.recompute", LHI_ARG_RECOMPUTE_MODULES},
        {"training.recompute", LHI_ARG_RECOMPUTE_GRANULARITY},
        {"training.dropout", LHI_ARG_HIDDEN_DROPOUT},
        {"training.balance_loss", LHI_ARG_MOE_AUX_LOSS_COEFF},
        {"training.balance_bias", LHI_ARG_MOE_ROUTER_BIAS_UPDATE_RATE},
        {"training.dispatcher", LHI_ARG_MOE_TOKEN_DISPATCHER_TYPE},
        {"framework.attention", LHI_ARG_ATTENTION_BACKEND},
        {"framework.gradients", LHI_ARG_MAIN_GRADS_DTYPE},
        {"framework.reduce", LHI_ARG_MAIN_GRADS_DTYPE},
        {"framework.receives", LHI_ARG_NO_OVERLAP_P2P_COMMUNICATION},
        {"framework.fp8", LHI_ARG_FP8_FORMAT},
        {"cluster.gpu", LHI_ARG_BF16}, /* lacks the precision */
        {"layout.tensor", LHI_ARG_TENSOR_MODEL_PARALLEL_SIZE},
        {"layout.context", LHI_ARG_CONTEXT_PARALLEL_SIZE},
        {"layout.expert", LHI_ARG_EXPERT_MODEL_PARALLEL_SIZE},
        {"layout.expert_tensor", LHI_ARG_EXPERT_TENSOR_PARALLEL_SIZE},
        {"layout.pipeline", LHI_ARG_PIPELINE_MODEL_PARALLEL_SIZE},
        {"layout.micro_batch", LHI_ARG_MICRO_BATCH_SIZE},
        {"layout.layers", LHI_ARG_PIPELINE_MODEL_PARALLEL_LAYOUT},
        {"layout.layers", LHI_ARG_PIPELINE_MODEL_PARALLEL_SIZE},
        {"layout.mtp_chunk", LHI_ARG_PIPELINE_MODEL_PARALLEL_LAYOUT},
        {"layout.chunks_per_device", LHI_ARG_DDP_NUM_BUCKETS},
        {"layout.chunks_per_device",
         LHI_ARG_NUM_LAYERS_PER_VIRTUAL_PIPELINE_STAGE},
        {"layout.chunks_per_device",
         LHI_ARG_NUM_VIRTUAL_STAGES_PER_PIPELINE_RANK},
    };
    for (size_t i = 0; i < sizeof origins / sizeof *origins; i++)
        LHI_TRY(lhi_import_add_origin(in, origins[i].path,
                                      make_key(m, origins[i].key), err));
    return LH_OK;
}

lh_status lhi_arg_fail(const lhi_megatron *m, lhi_megatron_key key,
                       lh_status code, lh_error *err, const char *format, ...)
{
    char why[400];
    va_list list;
    va_start(list, format);
    vsnprintf(why, sizeof why, format, list);
    va_end(list);
    return lhi_input_value_fail(make_key(m, key), code, err, "%s", why);
}

lh_status lhi_arg_get_integer(const lhi_megatron *m, lhi_megatron_key key,
                              uint32_t least, uint32_t most, uint32_t *out,
                              lh_error *err)
{
    int64_t number = *out;
    LHI_TRY(lhi_input_value_get_integer(make_key(m, key), least, most, &number,
                                        err));
    *out = (uint32_t)number;
    return LH_OK;
}

lh_status lhi_arg_require_integer(const lhi_megatron *m, lhi_megatron_key key,
                                  uint32_t least, uint32_t most, uint32_t *out,
                                  lh_error *err)
{
    if (!lhi_arg_is_given(m, key))
        return lhi_arg_fail(m, key, LH_EINPUT, err, "is missing%s",
                            m->from_checkpoint
                                ? "; --use-checkpoint-args reads it from the "
                                  "checkpoint, which longhaul does not open"
                                : "");
    return lhi_arg_get_integer(m, key, least, most, out, err);
}

lh_status lhi_arg_get_real(const lhi_megatron *m, lhi_megatron_key key,
                           double low, double high, double *out, lh_error *err)
{
    double number = *out;
    if (!lhi_arg_is_given(m, key))
        return LH_OK;
    LHI_TRY(lhi_input_value_get_real(make_key(m, key), &number, err));
    if (number < low || number > high)
        return lhi_arg_fail(m, key, LH_EINPUT, err,
                            "is out of range; expected %.12g to %.12g", low,
                            high);
    *out = number;
    return LH_OK;
}

void lhi_arg_ignore(const lhi_megatron *m, lhi_megatron_key key,
                    lhi_imported_job *in)
{
    if (lhi_arg_is_given(m, key))
        lhi_import_ignore(in, rows[key].shown);
}

lh_status lhi_arg_get_choice(const lhi_megatron *m, lhi_megatron_key key,
                             const char *const *names, uint32_t *out,
                             lh_error *err)
{
    return lhi_input_value_get_choice(make_key(m, key), names, out, err);
}
