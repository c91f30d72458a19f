/* SPDX-License-Identifier: Apache-2.0 */
/* TOML 1.0 (https://toml.io/en/v1.0.0) read into the tree of doc.h: tables are
 * maps, arrays lists, arrays of tables lists of maps. Strict: what the
 * specification calls invalid is refused, and with it dates and times, which
 * nothing here has, and whole numbers beyond 64 bits.
 *
 * Numbers and truths are plain scalars, strings quoted ones. Whole numbers are
 * there in decimal, without underscores: "0x1_0" as "16". Keys of tables come
 * in the order in which they were written first. */
#ifndef LHI_TOML_H
#define LHI_TOML_H

#include "doc/doc.h"

/* As lhi_doc_parse(); a text without a key is an empty map. LH_EINPUT: `err`
 * says file, line and what is wrong there. */
lh_status lhi_toml_parse(const char *text, size_t len, const char *name,
                         lhi_input kind, lhi_doc **out, lh_error *err);

#endif
