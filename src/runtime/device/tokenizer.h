/* SPDX-License-Identifier: Apache-2.0 */
/* Byte-level BPE as in GPT-2, Llama 3 and Qwen, from a tokenizer.json by
 * Hugging Face's tokenizers. The supported subset is in docs/training.md. */
#ifndef LHI_RUNTIME_DEVICE_TOKENIZER_H
#define LHI_RUNTIME_DEVICE_TOKENIZER_H

#include <longhaul/status.h>

#include <stdint.h>

typedef struct lhi_tokenizer lhi_tokenizer;

/* Parses a tokenizer.json. LH_EINPUT: not a valid file; LH_EUNSUPPORTED:
 * unsupported kind of tokenizer. `err` has the cause. */
lh_status lhi_tokenizer_parse(const char *text, size_t len, const char *name,
                              lhi_tokenizer **out, lh_error *err);
/* Reads and parses a tokenizer.json file, with the errors of
 * lhi_tokenizer_parse(); release with lhi_tokenizer_free(). */
lh_status lhi_tokenizer_read(const char *path, lhi_tokenizer **out,
                             lh_error *err);
/* Frees a tokenizer; NULL is allowed. */
void lhi_tokenizer_free(lhi_tokenizer *tokenizer);

/* Returns the vocabulary size: the largest token + 1. */
uint32_t lhi_tokenizer_size(const lhi_tokenizer *tokenizer);
/* Encodes text; release *tokens with lhi_tokens_free(). LH_EINPUT: the
 * vocabulary lacks a byte in the text, or a word exceeds 256 KiB. */
lh_status lhi_tokenizer_encode(const lhi_tokenizer *tokenizer, const char *text,
                               size_t len, uint32_t **tokens, size_t *n,
                               lh_error *err);
/* Frees the tokens of lhi_tokenizer_encode(); NULL is allowed. */
void lhi_tokens_free(uint32_t *tokens);

/* Rules that split text into words before merging. */
typedef enum lhi_word_rule {
    LHI_WORDS_NONE, /* the whole text is one word */
    /* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+
     * |\s+(?!\S)|\s+ */
    LHI_WORDS_GPT2,
    /* (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}
     * | ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ */
    LHI_WORDS_LLAMA3,
    LHI_WORDS_QWEN2, /* the same with \p{N} */
} lhi_word_rule;

/* Returns the length in bytes of the word at the start of `text` (len > 0). */
size_t lhi_pretokenize_word(lhi_word_rule rule, const char *text, size_t len);

/* Decodes and returns the first character in len > 0 bytes of text; *size: its
 * bytes. UINT32_MAX: one byte that is not UTF-8. */
uint32_t lhi_character_decode(const char *text, size_t len, size_t *size);
/* Converts a text to Unicode's normal form C; bytes that are not UTF-8 are
 * unchanged. Release *out with free(). */
lh_status lhi_text_normalize(const char *text, size_t len, char **out,
                             size_t *out_len, lh_error *err);

#endif
