/* SPDX-License-Identifier: Apache-2.0 */
/* Training data: long token sequences from files, cut into windows. Formats,
 * mixtures and limits: docs/training.md.
 *
 * The windows in a microbatch depend only on the seed, the step and the
 * microbatch's index in the global batch; not on the pipeline's degree or the
 * replica count. */
#ifndef LHI_RUNTIME_DEVICE_DATA_H
#define LHI_RUNTIME_DEVICE_DATA_H

#include <longhaul/status.h>

#include <stdint.h>

typedef struct lhi_data lhi_data; /* thread-safe */

/* File formats. */
typedef enum lhi_data_kind {
    LHI_DATA_BYTES, /* plain text, one token per byte; BPE with `tokenizer` */
    LHI_DATA_U16,   /* token files: bare little-endian numbers */
    LHI_DATA_U32,
    LHI_DATA_INDEXED, /* Megatron-LM's PREFIX.bin and PREFIX.idx */
} lhi_data_kind;

/* Options for lhi_data_open(). */
typedef struct lhi_data_options {
    /* Files, separated by ';': one sequence of tokens or, with WEIGHT=FILE, a
     * mixture of sequences. */
    const char *path;
    lhi_data_kind kind;
    const char *tokenizer; /* tokenizer.json, byte-level BPE; NULL: none */
    uint32_t vocab;        /* model's vocabulary; larger tokens are rejected */
    uint32_t sequence;     /* tokens per window */
    uint32_t look_ahead;   /* additional tokens read after a window */
    /* Share of the tokens, from each sequence's end, reserved for
     * validation; 0 <= share < 1. 0: none. */
    double validation;
    /* Files for validation instead, separated by ';'; NULL: none. */
    const char *validation_path;
    uint64_t seed; /* for the window order */
} lhi_data_options;

/* Opens a data set. LH_EINPUT: a sequence is too short for one window in each
 * part, or has a token beyond the vocabulary (detected when read). */
lh_status lhi_data_open(const lhi_data_options *options, lhi_data **out,
                        lh_error *err);
/* Closes the data set and frees it; NULL is allowed. */
void lhi_data_close(lhi_data *data);

/* Returns the token count in the data set, with the validation share, without
 * validation files. */
uint64_t lhi_data_n_tokens(const lhi_data *data);
/* Fingerprints of a data set's tokens, without validation files, and of a
 * mixture's weights. Other tokens give another value, except by accident; a
 * fingerprint does not protect against intent. */
typedef struct lhi_data_fingerprint {
    /* Of all tokens; above 2^32 tokens of 4096 evenly spaced blocks of 4096. */
    uint64_t value;
    /* Older checkpoints': above 2^24 tokens of such blocks. */
    uint64_t sampled;
} lhi_data_fingerprint;

/* Computes the data set's fingerprints; reads all tokens up to 2^32. */
lh_status lhi_data_compute_fingerprint(const lhi_data *data,
                                       lhi_data_fingerprint *out,
                                       lh_error *err);
/* Computes the value of the tokens in the validation files, by the same rule;
 * 0: none. */
lh_status lhi_data_hash_validation(const lhi_data *data, uint64_t *out,
                                   lh_error *err);
/* Returns the number of windows (training sequences) in the training part or,
 * with `validation` 1, the validation part. In a mixture all sequences'
 * windows, though not all occur in as many samples. */
uint64_t lhi_data_n_windows(const lhi_data *data, int validation);

/* Fills tokens[0..sequence + ahead], one token more than the window and the
 * look-ahead, since a position's target is the next token. `sample` counts from
 * 0 without limit. Each pass over the training data has its own order;
 * validation repeats its windows in order. LH_EIO: a file was changed since it
 * was opened. */
lh_status lhi_data_read_window(const lhi_data *data, int validation,
                               uint64_t sample, int32_t *tokens, lh_error *err);

#endif
