/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the TOML parser's files: the parser's position, and the scalars. */
#ifndef LHI_FORMAT_DOCUMENT_TOML_INTERNAL_H
#define LHI_FORMAT_DOCUMENT_TOML_INTERNAL_H

#include "format/document/node_memory.h"
#include "format/document/toml.h"

/* The TOML parser's state. */
typedef struct lhi_toml {
    lhi_doc *doc;
    lhi_node_memory memory;
    const char *at, *end;
    uint32_t line;
    char *scratch; /* as long as the text */
} lhi_toml;

/* Fails with LH_EINPUT and the formatted message, prefixed by the file and the
 * current line. */
lh_status lhi_toml_fail(const lhi_toml *t, lh_error *err, const char *format,
                        ...) LHI_PRINTF(3, 4);
/* Reports that the tree exceeds memory or the budget for its text. */
lh_status lhi_toml_fail_memory(const lhi_toml *t, lh_error *err);

/* Checks whether `word` is the next text to be read. */
bool lhi_toml_is_next(const lhi_toml *t, const char *word);
/* Reads a string that begins here; `lines`: multi-line strings are allowed. */
lh_status lhi_toml_read_string(lhi_toml *t, bool lines, const char **out,
                               lh_error *err);
/* Reads a number or boolean into *out, as decimal text without underscores.
 * LH_EINPUT: a date, an integer beyond 64 bits, or no valid TOML value. */
lh_status lhi_toml_read_scalar(lhi_toml *t, const char **out, lh_error *err);

#endif
