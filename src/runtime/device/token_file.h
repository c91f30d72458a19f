/* SPDX-License-Identifier: Apache-2.0 */
/* A file of tokens: text, bare numbers, or Megatron-LM's indexed dataset. */
#ifndef LHI_RUNTIME_DEVICE_TOKEN_FILE_H
#define LHI_RUNTIME_DEVICE_TOKEN_FILE_H

#include "base/arena.h"
#include "runtime/device/data.h"

#include <stddef.h>

typedef struct lhi_token_file lhi_token_file; /* thread-safe */

/* Opens a file of the kind of `options`, with its tokenizer and vocabulary; a
 * text with a tokenizer is encoded. `mem` owns the object. LH_EINPUT: not a
 * file of this kind. */
lh_status lhi_token_file_open(lhi_arena *mem, const char *path,
                              const lhi_data_options *options,
                              lhi_token_file **out, lh_error *err);
/* Closes a token file and frees all its memory but the arena's; NULL is
 * allowed. */
void lhi_token_file_close(lhi_token_file *file);

/* Returns the token count in the file. */
uint64_t lhi_token_file_count(const lhi_token_file *file);
/* Returns the file's path. */
const char *lhi_token_file_path(const lhi_token_file *file);
/* Reads `count` tokens from position `at`. LH_EINPUT: one of them is beyond
 * `vocab` (0: not checked). LH_EIO: another program has written to the file
 * since it was opened; a text with a tokenizer was read completely then. */
lh_status lhi_token_file_read(const lhi_token_file *file, uint64_t at,
                              size_t count, uint32_t vocab, int32_t *tokens,
                              lh_error *err);

#endif
