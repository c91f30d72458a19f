/* SPDX-License-Identifier: Apache-2.0 */
/* Optional keys of a scenario's maps. */
#ifndef LHI_NETWORK_OPTICAL_SCENARIO_KEYS_H
#define LHI_NETWORK_OPTICAL_SCENARIO_KEYS_H

#include "network/optical/scenario.h"

/* A scenario reader's state. */
typedef struct lhi_keys_reader {
    const lhi_doc *doc;
    lh_scenario *s;
    lh_error *err;
} lhi_keys_reader;

/* Reads an optional integer from `least` to `most`; *out is unchanged if the
 * key is absent. */
static inline lh_status lhi_keys_get_count(lhi_keys_reader *r,
                                           const lhi_node *map, const char *key,
                                           uint32_t least, uint32_t most,
                                           uint32_t *out)
{
    const lhi_node *node = lhi_node_find(map, key);
    return node ? lhi_node_get_u32(r->doc, node, least, most, out, r->err)
                : LH_OK;
}

/* Reads an optional number from `least` to `most`; *out is unchanged if the key
 * is absent. */
static inline lh_status lhi_keys_get_real(lhi_keys_reader *r,
                                          const lhi_node *map, const char *key,
                                          double least, double most,
                                          double *out)
{
    const lhi_node *node = lhi_node_find(map, key);
    return node ? lhi_node_get_number(r->doc, node, least, most, out, r->err)
                : LH_OK;
}

/* Reads an optional boolean; *out is unchanged if the key is absent. */
static inline lh_status lhi_keys_get_flag(lhi_keys_reader *r,
                                          const lhi_node *map, const char *key,
                                          bool *out)
{
    const lhi_node *node = lhi_node_find(map, key);
    return node ? lhi_node_get_bool(r->doc, node, out, r->err) : LH_OK;
}

/* Reads an optional choice of two words; *second: the second one is given. */
static inline lh_status
lhi_keys_get_choice(lhi_keys_reader *r, const lhi_node *map, const char *key,
                    const char *const words[3], bool *second)
{
    const lhi_node *node = lhi_node_find(map, key);
    uint32_t which = 0;
    if (node)
        LHI_TRY(lhi_node_get_choice(r->doc, node, words, &which, r->err));
    *second = which == 1;
    return LH_OK;
}

#endif
