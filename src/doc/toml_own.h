/* SPDX-License-Identifier: Apache-2.0 */
/* What the reader of TOML shares: where it is, and the scalars. */
#ifndef LHI_TOML_OWN_H
#define LHI_TOML_OWN_H

#include "doc/node_memory.h"
#include "doc/toml.h"

typedef struct lhi_toml {
    lhi_doc *doc;
    lhi_node_memory memory;
    const char *at, *end;
    uint32_t line;
    char *scratch; /* as long as the text */
} lhi_toml;

lh_status lhi_toml_fail(const lhi_toml *t, lh_error *err, const char *format,
                        ...) LHI_PRINTF(3, 4);
/* The tree does not fit into memory, or not into what such a text may take. */
lh_status lhi_toml_fail_memory(const lhi_toml *t, lh_error *err);

/* Whether the text goes on with `word`. */
bool lhi_toml_is_next(const lhi_toml *t, const char *word);
/* A string that begins here; `lines`: it may have several of them. */
lh_status lhi_toml_string(lhi_toml *t, bool lines, const char **out,
                          lh_error *err);
/* A number or a truth, in the form that toml.h says. */
lh_status lhi_toml_word(lhi_toml *t, const char **out, lh_error *err);

#endif
