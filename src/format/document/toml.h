/* SPDX-License-Identifier: Apache-2.0 */
/* TOML 1.0 (https://toml.io/en/v1.0.0) parsed into the tree of tree.h: tables
 * become maps, arrays lists, and arrays of tables lists of maps. The parser is
 * strict: it rejects everything invalid by the specification, and also dates
 * and times, which no key here uses, and integers beyond 64 bits.
 *
 * Numbers and booleans become plain scalars, strings quoted ones. Integers are
 * converted to decimal without underscores: "0x1_0" becomes "16". Keys retain
 * their order of first appearance. */
#ifndef LHI_FORMAT_DOCUMENT_TOML_H
#define LHI_FORMAT_DOCUMENT_TOML_H

#include "format/document/tree.h"

/* Parses like lhi_doc_parse(); a text without a key yields an empty map.
 * LH_EINPUT: `err` has the file, the line and the problem. */
lh_status lhi_toml_parse(const char *text, size_t len, const char *name,
                         lhi_input_kind kind, lhi_doc **out, lh_error *err);

#endif
