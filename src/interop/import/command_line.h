/* SPDX-License-Identifier: Apache-2.0 */
/* Splitting a command line into words like a shell: quotes, backslashes, line
 * continuations, comments after '#'. Shell expansions are kept as they are and
 * marked, since only the text is available. Other shell metacharacters are
 * ordinary characters, because argument lists contain them unquoted:
 * "([0]*3+[1]*58)", "Et|t|tL". */
#ifndef LHI_INTEROP_IMPORT_COMMAND_LINE_H
#define LHI_INTEROP_IMPORT_COMMAND_LINE_H

#include "base/arena.h"
#include "base/fail.h"

#include <stdint.h>

/* A word and its line. */
typedef struct lhi_command_line_word {
    const char *text;
    uint32_t line;
    const char *expansion; /* its first shell expansion, "$NAME"; NULL: none */
} lhi_command_line_word;

/* The words of a command line. */
typedef struct lhi_command_line {
    const char *file; /* name in messages */
    uint32_t n;
    const lhi_command_line_word *all;
} lhi_command_line;

/* Splits a text into words; *out is allocated in `mem`, except `name`.
 * LH_EINPUT: `err` has the line with an unterminated quote. */
lh_status lhi_command_line_parse(const char *text, size_t len, const char *name,
                                 lhi_arena *mem, lhi_command_line *out,
                                 lh_error *err);

/* Rejects a word whose value depends on a shell expansion; `file` is the name
 * in the message. */
lh_status lhi_command_line_check_expanded(const char *file,
                                          const lhi_command_line_word *word,
                                          lh_error *err);

/* Returns the index of the first word after a launcher and its program, as
 * "torchrun --nnodes 4 pretrain_gpt.py" or "torchrun -m torchtitan.train"; 0 if
 * the text begins with arguments. */
uint32_t lhi_command_line_find_arguments(const lhi_command_line *words);
/* Returns --nnodes (default 1, as in torchrun) x --nproc-per-node, in either
 * spelling, from the first `n` words; 0 if the latter is missing or the nodes
 * are a range. */
uint32_t lhi_command_line_count_gpus(const lhi_command_line *words, uint32_t n);

#endif
