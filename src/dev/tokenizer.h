/* SPDX-License-Identifier: Apache-2.0 */
/* Byte-level BPE as GPT-2 has it, from a tokenizer.json of Hugging Face's
 * tokenizers: what of that format is read stands in docs/training.md. */
#ifndef LHI_TOKENIZER_H
#define LHI_TOKENIZER_H

#include <longhaul/status.h>

#include <stdint.h>

typedef struct lhi_tokenizer lhi_tokenizer;

/* LH_EINPUT: not such a file; LH_EUNSUPPORTED: a kind of tokenizer that is not
 * known here. `err` says what. */
lh_status lhi_tokenizer_parse(const char *text, size_t len, const char *name,
                              lhi_tokenizer **out, lh_error *err);
lh_status lhi_tokenizer_read(const char *path, lhi_tokenizer **out,
                             lh_error *err);
void lhi_tokenizer_free(lhi_tokenizer *tokenizer); /* NULL is fine */

/* One more than the largest token. */
uint32_t lhi_tokenizer_size(const lhi_tokenizer *tokenizer);
/* Release *tokens with lhi_tokens_free(). LH_EINPUT: the vocabulary lacks a
 * byte that the text has, or a word of it has more than 256 KiB. */
lh_status lhi_tokenizer_encode(const lhi_tokenizer *tokenizer, const char *text,
                               size_t len, uint32_t **tokens, size_t *n,
                               lh_error *err);
void lhi_tokens_free(uint32_t *tokens); /* NULL is fine */

/* How many bytes the word that begins `text` (len > 0) has, as GPT-2 splits
 * text before it merges:
 * 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
size_t lhi_word(const char *text, size_t len);

#endif
