/* SPDX-License-Identifier: Apache-2.0 */
#include "interop/import/omega_value.h"

#include "interop/import/config_keys.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Limits: depth of nested interpolations; operands of one expression. */
enum { MOST_DEPTH = 8, MOST_NUMBERS = 8 };

static bool resolve_text(const lhi_doc *doc, const lhi_node *at,
                         const char *text, uint32_t depth,
                         char out[LHI_OMEGA_SIZE]);

/* Finds the node that a reference in node `at` names by `path`, relative or
 * absolute. If no such node exists, tries an absolute path again without its
 * first part, such as "training", the name under which NeMo's launcher includes
 * the file. NULL: there is none. */
static const lhi_node *find_reference(const lhi_doc *doc, const lhi_node *at,
                                      const char *path)
{
    const lhi_node *from = doc->root;
    if (*path == '.') {
        for (from = at; from && *path == '.'; path++)
            from = from->parent;
        return from ? lhi_config_find(from, path) : NULL;
    }
    const lhi_node *found = lhi_config_find(from, path);
    const char *dot = strchr(path, '.');
    return found || !dot ? found : lhi_config_find(from, dot + 1);
}

/* Applies NeMo's function (multiply, sum, subtract or divide) to `n` integers,
 * at least two, into *out. Returns false if it is another function or the
 * result is no integer. */
static bool apply(const char *function, const int64_t *numbers, uint32_t n,
                  int64_t *out)
{
    if (n < 2)
        return false;
    *out = numbers[0];
    for (uint32_t i = 1; i < n; i++) {
        const int64_t b = numbers[i];
        if (*out > INT32_MAX || *out < INT32_MIN || b > INT32_MAX ||
            b < INT32_MIN)
            return false;
        if (strcmp(function, "multiply") == 0)
            *out *= b;
        else if (strcmp(function, "sum") == 0 || strcmp(function, "add") == 0)
            *out += b;
        else if (strcmp(function, "subtract") == 0)
            *out -= b;
        else if (b <= 0 || *out < 0)
            return false;
        else if (strcmp(function, "divide") == 0 && *out % b == 0)
            *out /= b;
        else if (strcmp(function, "divide_floor") == 0)
            *out /= b;
        else if (strcmp(function, "divide_ceil") == 0)
            *out = (*out + b - 1) / b;
        else
            return false;
    }
    return true;
}

/* Resolves a function's arguments in `list`, separated by commas, and writes
 * its result to `out`. `depth`: nesting of references so far. Returns false if
 * it is impossible. */
static bool resolve_function(const lhi_doc *doc, const lhi_node *at,
                             const char *function, char *list, uint32_t depth,
                             char out[LHI_OMEGA_SIZE])
{
    int64_t numbers[MOST_NUMBERS], result;
    uint32_t n = 0;
    for (char *next; list; list = next) {
        char *end, value[LHI_OMEGA_SIZE];
        int open = 0;
        for (end = list; *end && (open > 0 || *end != ','); end++)
            open += (*end == '{') - (*end == '}');
        next = *end ? end + 1 : NULL;
        *end = '\0';
        if (n == MOST_NUMBERS || !resolve_text(doc, at, list, depth, value))
            return false;
        numbers[n++] = strtoll(value, &end, 10);
        end += strspn(end, " ");
        if (end == value || *end)
            return false;
    }
    if (!apply(function, numbers, n, &result))
        return false;
    snprintf(out, LHI_OMEGA_SIZE, "%" PRId64, result);
    return true;
}

/* Resolves `inner`, the text between "${" and "}" (a function or a reference),
 * in node `at`, and writes its value to `out`. `depth`: nesting of references
 * so far. Returns false if it is impossible. */
static bool resolve_reference(const lhi_doc *doc, const lhi_node *at,
                              char *inner, uint32_t depth,
                              char out[LHI_OMEGA_SIZE])
{
    char *colon = strchr(inner, ':');
    if (colon) {
        *colon = '\0';
        return resolve_function(doc, at, inner, colon + 1, depth, out);
    }
    const lhi_node *node = find_reference(doc, at, inner);
    return node && node->kind == LHI_SCALAR &&
           resolve_text(doc, node, node->text, depth, out);
}

/* Resolves a text that is a value or one reference, and writes its value to
 * `out`. `depth`: nesting of references so far. Returns false if it is
 * impossible. */
static bool resolve_text(const lhi_doc *doc, const lhi_node *at,
                         const char *text, uint32_t depth,
                         char out[LHI_OMEGA_SIZE])
{
    text += strspn(text, " ");
    size_t len = strlen(text);
    while (len && text[len - 1] == ' ')
        len--;
    if (depth == MOST_DEPTH || len >= LHI_OMEGA_SIZE)
        return false;
    snprintf(out, LHI_OMEGA_SIZE, "%.*s", (int)len, text);
    if (!strstr(out, "${"))
        return true;
    if (strncmp(out, "${", 2) != 0 || out[len - 1] != '}')
        return false;
    char inner[LHI_OMEGA_SIZE];
    snprintf(inner, sizeof inner, "%.*s", (int)(len - 3), out + 2);
    return resolve_reference(doc, at, inner, depth + 1, out);
}

bool lhi_omega_resolve(const lhi_doc *doc, const lhi_node *node,
                       char text[LHI_OMEGA_SIZE])
{
    return resolve_text(doc, node, node->text, 0, text);
}
