/* SPDX-License-Identifier: Apache-2.0 */
/* The table of size limits per kind of input. A larger (or endless) input is
 * rejected before it is stored.
 *
 * A parser uses at most 8 times the input size plus 16 MiB. A text whose
 * in-memory form would exceed that (many one-letter values) is rejected:
 * format/document/tree.h, base/json_input.h. */
#ifndef LHI_BASE_INPUT_LIMITS_H
#define LHI_BASE_INPUT_LIMITS_H

#include "base/fail.h"

#include <stddef.h>

/* name, term used in messages, limit in MiB. docs/formats/README.md repeats the
 * table. */
#define LHI_INPUT_LIST(X)                                                      \
    X(JOB, "a job", 16)                                                        \
    X(MODEL, "a model", 16)                                                    \
    X(PROFILE, "a profile", 16)                                                \
    X(EVENTS, "events", 16)                                                    \
    X(TOPOLOGY, "a topology", 16)                                              \
    X(SCENARIO, "a scenario", 16)                                              \
    X(PIPELINE, "a pipeline", 64)                                              \
    X(SCHEDULE, "a schedule", 256)                                             \
    X(PLAN, "a plan", 256)                                                     \
    X(CERTIFICATE, "a certificate", 256)                                       \
    X(TRACE, "a trace", 256)                                                   \
    X(RECORDING, "a recording", 16384)                                         \
    X(RANKS, "a map of ranks", 16)                                             \
    X(LOG, "a log", 64)                                                        \
    X(TOKENIZER, "a tokenizer", 128)                                           \
    X(TEXT, "a text to train on", 1024)                                        \
    X(STATE, "a checkpoint state", 256)                                        \
    X(ARGUMENTS, "an argument list", 1)

/* The kinds of input. */
typedef enum lhi_input_kind {
#define LHI_INPUT_ROW(name, what, mib) LHI_INPUT_##name,
    LHI_INPUT_LIST(LHI_INPUT_ROW)
#undef LHI_INPUT_ROW
        LHI_N_INPUTS
} lhi_input_kind;

enum {
    LHI_TOKEN_BYTES = 32 << 20, /* per YAML scalar: one row of a schedule */
    LHI_LINE_BYTES = 1 << 16,   /* per log line */
};

/* Returns the term for a kind of input in messages, such as "a job". */
const char *lhi_input_describe(lhi_input_kind kind);
/* Returns the size limit for a kind of input, in bytes. */
size_t lhi_input_max_bytes(lhi_input_kind kind);

/* Rejects an input text longer than the limit for its kind. `name`: file name
 * in the message. LH_EINPUT. */
lh_status lhi_input_check_size(size_t len, const char *name,
                               lhi_input_kind kind, lh_error *err);
/* Reads a whole input file of kind `kind` into the NUL-terminated text *out of
 * *len bytes; release it with lh_text_free(). Rejects files above the size
 * limit, and binary files at their first run of NULs. */
lh_status lhi_input_read(const char *path, lhi_input_kind kind, char **out,
                         size_t *len, lh_error *err);

#endif
