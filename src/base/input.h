/* SPDX-License-Identifier: Apache-2.0 */
/* How large an input may be, by kind: the one table of it. What is larger is
 * refused before it is held, and with it what never ends.
 *
 * A parser holds at most 8 times its input and 16 MiB. Where a form of values
 * in memory is more than that for some text (many values of one letter), such
 * a text is refused: doc/doc.h, base/json_input.h. */
#ifndef LHI_INPUT_H
#define LHI_INPUT_H

#include "base/fail.h"

#include <stddef.h>

/* name, what messages call it, MiB. docs/formats/README.md has the same. */
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
    X(STATE, "a checkpoint's state", 256)                                       \
    X(ARGUMENTS, "a list of arguments", 1)

typedef enum lhi_input {
#define LHI_INPUT_ROW(name, what, mib) LHI_INPUT_##name,
    LHI_INPUT_LIST(LHI_INPUT_ROW)
#undef LHI_INPUT_ROW
        LHI_N_INPUTS
} lhi_input;

enum {
    LHI_TOKEN_BYTES = 32 << 20, /* of a value in YAML: a row of a schedule */
    LHI_LINE_BYTES = 1 << 16,   /* of a line of a log */
};

const char *lhi_input_what(lhi_input kind);
size_t lhi_input_bytes(lhi_input kind);

/* Refuses a text that is too long for its kind. */
lh_status lhi_input_check(size_t len, const char *name, lhi_input kind,
                          lh_error *err);
/* A whole file, NUL-terminated; release with lh_text_free(). Also refuses what
 * is no text, at its first NULs. */
lh_status lhi_input_read(const char *path, lhi_input kind, char **out,
                         size_t *len, lh_error *err);

#endif
