/* SPDX-License-Identifier: Apache-2.0 */
/* Input: TOML. The parsed tree must have consistent parent links, child
 * indices, keys and line numbers. */
#include "fuzz.h"

#include "base/escape.h"
#include "format/document/toml.h"

static uint32_t lines_of(const uint8_t *data, size_t size)
{
    uint32_t n = 1;
    for (size_t i = 0; i < size; i++)
        n += data[i] == '\n';
    return n;
}

static void check_node(const lhi_node *node, uint32_t n_lines, int depth)
{
    uint32_t n = 0;
    REQUIRE(depth <= LHI_DOC_MAX_DEPTH, "depth %d", depth);
    REQUIRE(node->line >= 1 && node->line <= n_lines, "line %u", node->line);
    if (node->kind == LHI_SCALAR) {
        REQUIRE(node->text && !node->first, "a scalar");
        REQUIRE(lhi_is_utf8(node->text), "no UTF-8");
        REQUIRE(node->quoted || *node->text, "a plain scalar without a letter");
        return;
    }
    for (const lhi_node *c = node->first; c; c = c->next, n++) {
        REQUIRE(c->parent == node && c->index == n, "child %u", n);
        REQUIRE((c->key != NULL) == (node->kind == LHI_MAP), "key of %u", n);
        REQUIRE(!c->key || lhi_node_find(node, c->key) == c, "'%s' twice",
                c->key);
        check_node(c, n_lines, depth + (c->kind != LHI_SCALAR));
    }
    REQUIRE(n == node->n_items, "%u children of %u", n, node->n_items);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lhi_doc *doc = NULL;
    lh_error err = {0};
    lh_status status = lhi_toml_parse((const char *)data, size, "t.toml",
                                      LHI_INPUT_ARGUMENTS, &doc, &err);
    if (status != LH_OK) {
        fuzz_refused(status, &err, doc);
        return 0;
    }
    check_node(doc->root, lines_of(data, size), 1);
    lhi_doc_free(doc);
    return 0;
}
