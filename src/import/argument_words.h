/* SPDX-License-Identifier: Apache-2.0 */
/* A command line as words, as a shell would cut it: quotes, backslashes, lines
 * that go on, remarks behind '#'. What a shell would fill in is refused: the
 * text is all there is. Other characters of shells stand for themselves, since
 * lists of arguments have them without quotes: "([0]*3+[1]*58)", "Et|t|tL". */
#ifndef LHI_ARGUMENT_WORDS_H
#define LHI_ARGUMENT_WORDS_H

#include "base/arena.h"
#include "base/fail.h"

#include <stdint.h>

typedef struct lhi_argument_word {
    const char *text;
    uint32_t line;
} lhi_argument_word;

typedef struct lhi_argument_words {
    const char *file; /* as messages call it */
    uint32_t n;
    const lhi_argument_word *all;
} lhi_argument_words;

/* All of *out is in `mem`, but for `name`. LH_EINPUT: `err` says in which line
 * a quote never ends, or what only a shell could fill in. */
lh_status lhi_argument_words_read(const char *text, size_t len,
                                  const char *name, lhi_arena *mem,
                                  lhi_argument_words *out, lh_error *err);

/* The first word behind a launcher and the program that it starts, as "torchrun
 * --nnodes 4 pretrain_gpt.py" or "torchrun -m torchtitan.train"; 0: arguments
 * come first. */
uint32_t lhi_argument_words_start(const lhi_argument_words *words);
/* --nnodes (1 where it is not given, as torchrun has it) x --nproc-per-node, in
 * either spelling, of the first `n` words; 0: that one is not there, or nodes
 * are a range. */
uint32_t lhi_argument_words_gpus(const lhi_argument_words *words, uint32_t n);

#endif
