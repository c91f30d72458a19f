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

/* A command line's words. */
typedef struct lhi_command_line {
    const char *file; /* name in messages */
    uint32_t n;
    const lhi_command_line_word *all;
} lhi_command_line;

/* Splits a text into words as a shell would. The words are allocated in `mem`;
 * `name` is not copied.
 * LH_EINPUT: a NUL character, or a missing closing quote; `err` gives the line.
 */
lh_status lhi_command_line_parse(const char *text, size_t len, const char *name,
                                 lhi_arena *mem, lhi_command_line *out,
                                 lh_error *err);

/* Fails with LH_EINPUT if a word contains a shell expansion, such as $NAME,
 * whose value only the shell knows. `file` appears in the message. */
lh_status lhi_command_line_check_expanded(const char *file,
                                          const lhi_command_line_word *word,
                                          lh_error *err);

/* Returns the index of the first word after a launcher and its program.
 * Examples: "torchrun --nnodes 4 pretrain_gpt.py", "torchrun -m
 * torchtitan.train". Returns 0 if the text begins with arguments or names no
 * program. */
uint32_t lhi_command_line_find_arguments(const lhi_command_line *words);
/* Returns how many GPUs a launcher uses, from the first `n` words: --nnodes
 * (default 1, as in torchrun) x --nproc-per-node. Returns 0 if the latter is
 * missing, the nodes are a range, or there are too many. */
uint32_t lhi_command_line_count_gpus(const lhi_command_line *words, uint32_t n);

#endif
