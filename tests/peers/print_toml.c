/* SPDX-License-Identifier: Apache-2.0 */
/* Prints parsed TOML as JSON, one line per file: {"value": ...} or {"error":
 * "..."}. Strings become strings, all other scalars {"plain": "source text"}.
 */
#include "format/document/toml.h"

#include "base/text.h"

#include <jansson.h>
#include <stdio.h>

static json_t *json_of(const lhi_node *node)
{
    if (node->kind == LHI_SCALAR)
        return node->quoted ? json_string(node->text)
                            : json_pack("{s:s}", "plain", node->text);
    json_t *all = node->kind == LHI_MAP ? json_object() : json_array();
    for (const lhi_node *n = node->first; n; n = n->next) {
        if (node->kind == LHI_MAP)
            json_object_set_new(all, n->key, json_of(n));
        else
            json_array_append_new(all, json_of(n));
    }
    return node->kind == LHI_MAP ? json_pack("{s:o}", "map", all) : all;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        lhi_doc *doc = NULL;
        lh_error err = {0};
        char *text = NULL;
        size_t len = 0;
        lh_status status =
            lhi_input_read(argv[i], LHI_INPUT_ARGUMENTS, &text, &len, &err);
        if (status == LH_OK)
            status = lhi_toml_parse(text, len, argv[i], LHI_INPUT_ARGUMENTS,
                                    &doc, &err);
        json_t *line = status == LH_OK
                           ? json_pack("{s:o}", "value", json_of(doc->root))
                           : json_pack("{s:s}", "error", err.text);
        json_dumpf(line, stdout, JSON_COMPACT);
        putchar('\n');
        json_decref(line);
        lhi_doc_free(doc);
        lh_text_free(text);
    }
    return 0;
}
