/* SPDX-License-Identifier: Apache-2.0 */
/* The vocabulary size, which Megatron-LM takes from its tokenizer. The
 * tokenizer's files are not read; its size follows from the given size, its
 * model's name, its type, or a default, in this order.
 *
 * Sources: vocab_size of the models' config.json on huggingface.co; for types,
 * megatron/core/tokenizers of core 0.20. */
#include "interop/import/megatron_internal.h"

#include <ctype.h>
#include <string.h>

/* A name or type, and the vocabulary size that it implies. */
typedef struct known_tokenizer {
    const char *name;
    uint32_t vocabulary;
} known_tokenizer;

/* Parts of a tokenizer's path or name, in lower case; the first match counts.
 */
static const known_tokenizer names[] = {
    {"nemotron_2_256k", 256000},
    {"multimixv8", 131072},
    {"nemotron", 131072},
    {"minitron", 256000},
    {"llama-4", 202048},
    {"llama4", 202048},
    {"llama-3", 128256},
    {"llama3", 128256},
    {"llama-2", 32000},
    {"llama2", 32000},
    {"mixtral", 32000},
    {"mistral-nemo", 131072},
    {"mistral-7b-v0.1", 32000},
    {"mistral", 32768},
    {"qwen", 151936},
    {"deepseek-v2", 102400},
    {"deepseek-v3", 129280},
    {"deepseek-r1", 129280},
    {"gpt-oss", 201088},
    {"gpt2", 50257},
    {"gemma-3", 262144},
    {"gemma", 256000},
};

static const known_tokenizer types[] = {
    {"GPT2BPETokenizer", 50257},  {"BertWordPieceLowerCase", 30522},
    {"BertWordPieceCase", 28996}, {"Llama2Tokenizer", 32000},
    {"TikTokenizer", 131072}, /* its largest: 2^17 */
};

enum {
    GPT2_VOCABULARY = 50257,    /* of --vocab-file and --merge-file */
    UNKNOWN_VOCABULARY = 131072 /* of most tokenizers since 2024, to 2^17 */
};

/* Checks whether `text` contains `part`, which is in lower case, with any case.
 */
static bool contains_ignoring_case(const char *text, const char *part)
{
    const size_t len = strlen(part);
    for (; *text; text++) {
        size_t i = 0;
        while (i < len && tolower((unsigned char)text[i]) == part[i])
            i++;
        if (i == len)
            return true;
    }
    return false;
}

/* Returns the vocabulary size that the tokenizer's arguments imply, or a
 * default. *why receives the reason for this size, as text for a note. */
static uint32_t infer_vocabulary(const lhi_megatron *m, const char **why)
{
    const lhi_input_value *model = &m->args[LHI_ARG_TOKENIZER_MODEL];
    const lhi_input_value *type = &m->args[LHI_ARG_TOKENIZER_TYPE];
    for (size_t i = 0; model->is_given && i < sizeof names / sizeof *names; i++)
        if (contains_ignoring_case(model->values[0].text, names[i].name)) {
            *why = "from --tokenizer-model";
            return names[i].vocabulary;
        }
    for (size_t i = 0; type->is_given && i < sizeof types / sizeof *types; i++)
        if (strcmp(type->values[0].text, types[i].name) == 0) {
            *why = "from --tokenizer-type";
            return types[i].vocabulary;
        }
    if (lhi_arg_is_given(m, LHI_ARG_VOCAB_FILE)) {
        *why = "as GPT-2's, from --vocab-file";
        return GPT2_VOCABULARY;
    }
    *why = "because the tokenizer is unknown";
    return UNKNOWN_VOCABULARY;
}

lh_status lhi_megatron_read_vocabulary(const lhi_megatron *m,
                                       lhi_imported_job *in, lh_error *err)
{
    lh_model *model = &in->model;
    uint32_t by = 128, tensor = 1;
    const char *why;
    const bool given = lhi_arg_is_given(m, LHI_ARG_VOCAB_SIZE);
    if (!given && lhi_arg_is_given(m, LHI_ARG_PADDED_VOCAB_SIZE))
        return lhi_arg_get_integer(m, LHI_ARG_PADDED_VOCAB_SIZE, 1,
                                   LHI_MAX_VOCAB, &model->vocab, err);
    if (!given) {
        model->vocab = infer_vocabulary(m, &why);
        lhi_import_note(in,
                        "--vocab-size: is not given; %u tokens are modelled, "
                        "%s; give the tokenizer's size if it differs",
                        model->vocab, why);
    }
    LHI_TRY(lhi_arg_get_integer(m, LHI_ARG_VOCAB_SIZE, 1, LHI_MAX_VOCAB,
                                &model->vocab, err));
    LHI_TRY(lhi_arg_get_integer(m, LHI_ARG_MAKE_VOCAB_SIZE_DIVISIBLE_BY, 1,
                                LHI_MAX_VOCAB, &by, err));
    LHI_TRY(lhi_arg_get_integer(m, LHI_ARG_TENSOR_MODEL_PARALLEL_SIZE, 1,
                                LHI_MAX_DEGREE, &tensor, err));
    uint64_t to = (uint64_t)by * tensor;
    uint64_t padded = (model->vocab + to - 1) / to * to;
    if (lhi_arg_is_given(m, LHI_ARG_PADDED_VOCAB_SIZE)) {
        uint32_t exact = 0;
        LHI_TRY(lhi_arg_get_integer(m, LHI_ARG_PADDED_VOCAB_SIZE, 1,
                                    LHI_MAX_VOCAB, &exact, err));
        padded = exact;
    }
    const uint32_t costed =
        lhi_megatron_padded_vocab(model->vocab, tensor, &by);
    if (padded != costed)
        lhi_import_note(in,
                        "--vocab-size: Megatron-LM pads the vocabulary to %llu "
                        "tokens; %u are modelled",
                        (unsigned long long)padded, costed);
    return LH_OK;
}
