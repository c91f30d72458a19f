/* SPDX-License-Identifier: Apache-2.0 */
/* A configuration's keys in YAML or JSON, such as "zero_optimization.stage",
 * and the rules for keys without a counterpart in a job. */
#ifndef LHI_INTEROP_IMPORT_CONFIG_KEYS_H
#define LHI_INTEROP_IMPORT_CONFIG_KEYS_H

#include "format/document/tree.h"
#include "interop/import/import_internal.h"

/* A key's treatment. */
typedef enum lhi_config_treatment {
    LHI_CONFIG_READ,    /* passed to the visitor */
    LHI_CONFIG_IGNORED, /* no effect on cost */
    LHI_CONFIG_NOTED,   /* accepted; `why`: how it is costed */
    LHI_CONFIG_REFUSED, /* rejected; `why`: the reason */
} lhi_config_treatment;

/* A rule for a key; the first match counts. A final '.' matches all keys of a
 * section, which is listed once. */
typedef struct lhi_config_rule {
    const char *key;
    lhi_config_treatment treatment;
    const char *neutral; /* value without effect; may be NULL */
    const char *why;
} lhi_config_rule;

/* Reads a key, a scalar or a list, and returns in *known whether the program
 * has the key. */
typedef lh_status lhi_config_visit_fn(void *context, const lhi_doc *doc,
                                      const lhi_node *node, const char *key,
                                      bool *known, lh_error *err);

/* Treats each key of the document by its rule (ignore, note or reject), and
 * passes keys without a rule or with LHI_CONFIG_READ to the callback `visit`. A
 * null counts as an absent key. Keys unknown to both go to one note that names
 * `program`. LH_EUNSUPPORTED: a rejected key. */
lh_status lhi_config_walk(const lhi_doc *doc, const lhi_config_rule *rules,
                          size_t n_rules, const char *program,
                          lhi_config_visit_fn *visit, void *context,
                          lhi_imported_job *in, lh_error *err);

/* Finds a key by its path from `map`; NULL if it is absent or null. */
const lhi_node *lhi_config_find(const lhi_node *map, const char *key);

#endif
