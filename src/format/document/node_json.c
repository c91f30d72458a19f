/* SPDX-License-Identifier: Apache-2.0 */
/* Parsed nodes as JSON, for the file writers. */
#include "format/document/schema.h"

#include <string.h>

/* Converts a scalar node to a JSON boolean, null, integer, real or string;
 * quoted scalars are strings. */
static json_t *scalar_to_json(const lhi_doc *doc, const lhi_node *node)
{
    const char *s = node->text;
    const char *digits = s + (*s == '-');
    int64_t whole;
    double number;
    if (node->quoted)
        return json_string_nocheck(s);
    if (strcmp(s, "true") == 0 || strcmp(s, "false") == 0)
        return json_boolean(*s == 't');
    if (*s == '\0' || strcmp(s, "null") == 0)
        return json_null();
    if (strspn(digits, "0123456789") == strlen(digits) &&
        lhi_node_get_int(doc, node, INT64_MIN, INT64_MAX, &whole, NULL) ==
            LH_OK)
        return json_integer(whole);
    if (lhi_node_get_number(doc, node, -1e308, 1e308, &number, NULL) == LH_OK)
        return json_real(number);
    return json_string_nocheck(s);
}

json_t *lhi_json_from_node(const lhi_doc *doc, const lhi_node *node)
{
    if (node->kind == LHI_SCALAR)
        return scalar_to_json(doc, node);
    const bool is_map = node->kind == LHI_MAP;
    json_t *all = is_map ? json_object() : json_array();
    bool ok = all != NULL;
    for (const lhi_node *n = node->first; n && ok; n = n->next) {
        json_t *value = lhi_json_from_node(doc, n);
        ok = value && (is_map ? lhi_json_set(all, n->key, value)
                              : json_array_append_new(all, value) == 0);
    }
    return lhi_json_finish(all, ok);
}
