/* SPDX-License-Identifier: Apache-2.0 */
/* What a model is trained on: a long sequence of tokens from a file, cut into
 * windows. Formats and their limits: docs/training.md.
 *
 * Which windows a microbatch has follows from the seed, the step and the
 * microbatch's place in the global batch, and from nothing else: neither from
 * the pipeline's degree nor from how many replicas share the batch. */
#ifndef LHI_DATA_H
#define LHI_DATA_H

#include <longhaul/status.h>

#include <stdint.h>

typedef struct lhi_data lhi_data; /* may be shared by threads */

typedef enum lhi_data_kind {
    LHI_DATA_BYTES, /* plain text, a token per byte; with `tokenizer`, BPE */
    LHI_DATA_U16,   /* token files: little-endian numbers, nothing else */
    LHI_DATA_U32,
} lhi_data_kind;

typedef struct lhi_data_options {
    const char *path;
    lhi_data_kind kind;
    const char *tokenizer; /* tokenizer.json of a byte-level BPE; NULL: none */
    uint32_t vocab;        /* of the model: larger tokens are refused */
    uint32_t sequence;     /* tokens of a window */
    uint32_t ahead;        /* further tokens that are read behind it */
    /* Share of the tokens, at the file's end, that is for validation alone;
     * 0 <= share < 1. 0: none. */
    double validation;
    uint64_t seed; /* of the windows' order */
} lhi_data_options;

/* LH_EINPUT: the file is too short for one window of each part, or has a
 * token beyond the vocabulary (found when it is read). */
lh_status lhi_data_open(const lhi_data_options *options, lhi_data **out,
                        lh_error *err);
void lhi_data_close(lhi_data *data); /* NULL is fine */

uint64_t lhi_data_n_tokens(const lhi_data *data); /* both parts */
uint64_t lhi_data_n_windows(const lhi_data *data, int validation);

/* Fills tokens[0..sequence + ahead], one more than the window and what is ahead
 * have, since a position's target is the next position's token. `sample` counts from 0 for ever: every
 * pass over the data has its own order. Validation goes through its windows in
 * order and over again. */
lh_status lhi_data_window(const lhi_data *data, int validation, uint64_t sample,
                          int32_t *tokens, lh_error *err);

#endif
