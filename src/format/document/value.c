/* SPDX-License-Identifier: Apache-2.0 */
/* Converts a document's nodes to checked values. */
#define _GNU_SOURCE /* strtod_l: numbers independent of the locale */
#include "format/document/tree.h"

#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns the length of the first character of `s` in bytes; 0: invalid. */
static size_t find_character_length(const char *s)
{
    const unsigned char *u = (const unsigned char *)s;
    size_t n = *u < 0x80   ? 1
               : *u < 0xc2 ? 0
               : *u < 0xe0 ? 2
               : *u < 0xf0 ? 3
                           : 4;
    for (size_t i = 1; i < n; i++)
        if ((u[i] & 0xc0) != 0x80)
            return 0;
    return *u < 0xf5 ? n : 0;
}

void lhi_doc_sanitise_text(const char *text, char *shown, size_t size)
{
    size_t used = 0;
    while (*text) {
        size_t n = find_character_length(text);
        bool odd = n == 0 || (unsigned char)*text < 0x20 || *text == 0x7f;
        if (used + (odd ? 1 : n) >= size)
            break;
        memcpy(shown + used, odd ? "?" : text, odd ? 1 : n);
        used += odd ? 1 : n;
        text += odd ? 1 : n;
    }
    shown[used] = '\0';
}

/* Writes a node's path, such as "chunks[3].memory.F", into `path`, outermost
 * key first. */
static void format_node_path(const lhi_node *node, char *path, size_t size)
{
    if (!node->parent) {
        path[0] = '\0';
        return;
    }
    format_node_path(node->parent, path, size);
    size_t used = strlen(path);
    if (node->key)
        snprintf(path + used, size - used, "%s%.60s", used ? "." : "",
                 node->key);
    else
        snprintf(path + used, size - used, "[%u]", node->index);
}

/* Returns the origin text (file and key) for `path`, or for the innermost value
 * that contains it; NULL if there is none. `origins`: list of a document
 * generated from other files. */
static const char *find_origin(const lhi_doc_origin *origins, const char *path)
{
    const char *found = NULL;
    size_t most = 0;
    for (; origins->path; origins++) {
        const size_t len = strlen(origins->path);
        if (len <= most || strncmp(origins->path, path, len) != 0 ||
            !strchr(".[", path[len]))
            continue;
        found = origins->where;
        most = len;
    }
    return found;
}

lh_status lhi_doc_fail(const lhi_doc *doc, const lhi_node *node, lh_error *err,
                       lh_status code, const char *format, ...)
{
    char raw[sizeof err->text], text[sizeof err->text];
    char raw_path[160], path[160];
    va_list args;
    va_start(args, format);
    vsnprintf(raw, sizeof raw, format, args);
    va_end(args);
    lhi_doc_sanitise_text(raw, text, sizeof text);
    format_node_path(node, raw_path, sizeof raw_path);
    lhi_doc_sanitise_text(raw_path, path, sizeof path);
    const char *const colon = path[0] ? ": " : "";
    const char *const origin =
        doc->origins ? find_origin(doc->origins, raw_path) : NULL;
    if (origin)
        return lhi_fail(err, code, "%s: %s", origin, text);
    if (doc->origins)
        return lhi_fail(err, code, "%s: %s%s%s", doc->file, path, colon, text);
    return lhi_fail(err, code, "%s:%u: %s%s%s", doc->file, node->line, path,
                    colon, text);
}

const lhi_node *lhi_node_find(const lhi_node *map, const char *key)
{
    for (const lhi_node *n = map->first; n; n = n->next)
        if (n->key && strcmp(n->key, key) == 0)
            return n;
    return NULL;
}

lh_status lhi_node_require(const lhi_doc *doc, const lhi_node *map,
                           const char *key, const lhi_node **out, lh_error *err)
{
    const lhi_node *node = lhi_node_find(map, key);
    if (!node)
        return lhi_doc_fail(doc, map, err, LH_EINPUT, "key '%s' is missing",
                            key);
    *out = node;
    return LH_OK;
}

lh_status lhi_node_check_map(const lhi_doc *doc, const lhi_node *node,
                             lh_error *err)
{
    if (node->kind != LHI_MAP)
        return lhi_doc_fail(doc, node, err, LH_EINPUT,
                            "must be a map of keys and values");
    return LH_OK;
}

lh_status lhi_node_check_list(const lhi_doc *doc, const lhi_node *node,
                              lh_error *err)
{
    if (node->kind != LHI_LIST)
        return lhi_doc_fail(doc, node, err, LH_EINPUT, "must be a list");
    return LH_OK;
}

/* Returns the Levenshtein distance of words up to 31 letters; 99 for longer
 * ones. */
static unsigned compute_edit_distance(const char *a, const char *b)
{
    enum { MOST = 32 };
    size_t n = strlen(a), m = strlen(b);
    if (n >= MOST || m >= MOST)
        return 99;
    unsigned row[MOST];
    for (size_t j = 0; j <= m; j++)
        row[j] = (unsigned)j;
    for (size_t i = 1; i <= n; i++) {
        unsigned diagonal = row[0];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= m; j++) {
            unsigned best = diagonal + (a[i - 1] != b[j - 1]);
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[m];
}

/* Returns the name in the NULL-terminated list with the least edit distance to
 * a word, as a suggestion. NULL: all names differ from it in more than 3
 * letters or in more than half of them. */
static const char *find_nearest_name(const char *word, const char *const *names)
{
    const char *best = NULL;
    unsigned best_distance = 4; /* larger distances are no useful suggestion */
    for (; *names; names++) {
        size_t n = strlen(word), m = strlen(*names);
        unsigned d = compute_edit_distance(word, *names);
        /* Nor is a word that differs in half its letters. */
        if (d < best_distance && 2 * d <= (n > m ? n : m)) {
            best_distance = d;
            best = *names;
        }
    }
    return best;
}

/* Formats a NULL-terminated name list as "a, b or c", truncated to fit. */
static void format_names(const char *const *names, char *text, size_t size)
{
    text[0] = '\0';
    for (size_t i = 0; names[i]; i++) {
        size_t used = strlen(text);
        const char *sep = i == 0 ? "" : names[i + 1] ? ", " : " or ";
        if (used + strlen(sep) + strlen(names[i]) + sizeof ", ..." > size) {
            snprintf(text + used, size - used, ", ...");
            return;
        }
        snprintf(text + used, size - used, "%s%s", sep, names[i]);
    }
}

lh_status lhi_node_check_keys(const lhi_doc *doc, const lhi_node *map,
                              const char *const *keys, lh_error *err)
{
    LHI_TRY(lhi_node_check_map(doc, map, err));
    for (const lhi_node *n = map->first; n; n = n->next) {
        const char *const *k = keys;
        while (*k && strcmp(*k, n->key) != 0)
            k++;
        if (*k)
            continue;
        char known[256];
        const char *near = find_nearest_name(n->key, keys);
        format_names(keys, known, sizeof known);
        if (near)
            return lhi_doc_fail(doc, n, err, LH_EINPUT,
                                "unknown key; did you mean '%s'?", near);
        return lhi_doc_fail(doc, n, err, LH_EINPUT,
                            "unknown key; known here: %s", known);
    }
    return LH_OK;
}

lh_status lhi_doc_check_format(const lhi_doc *doc, const char *name,
                               int version, lh_error *err)
{
    return lhi_node_check_format(doc, doc->root, name, version, err);
}

lh_status lhi_node_check_format(const lhi_doc *doc, const lhi_node *map,
                                const char *name, int version, lh_error *err)
{
    const lhi_node *node;
    char want[64];
    snprintf(want, sizeof want, "%s/%d", name, version);
    if (!(node = lhi_node_find(map, "longhaul")))
        return lhi_doc_fail(doc, map, err, LH_EINPUT,
                            "key 'longhaul' is missing; write 'longhaul: %s'",
                            want);
    if (node->kind != LHI_SCALAR || strcmp(node->text, want) != 0)
        return lhi_doc_fail(doc, node, err, LH_EINPUT,
                            "must be %s, not '%.60s'", want,
                            node->kind == LHI_SCALAR ? node->text : "...");
    return LH_OK;
}

/* Fails with LH_EINPUT if a node is a list, a map or empty. `what`: the
 * expected value, for the message. */
static lh_status check_scalar(const lhi_doc *doc, const lhi_node *node,
                              const char *what, lh_error *err)
{
    if (node->kind != LHI_SCALAR)
        return lhi_doc_fail(doc, node, err, LH_EINPUT, "must be %s, not a %s",
                            what, node->kind == LHI_LIST ? "list" : "map");
    if (node->text[0] == '\0' && !node->quoted)
        return lhi_doc_fail(doc, node, err, LH_EINPUT,
                            "has no value; it must be %s", what);
    return LH_OK;
}

/* Checks for a decimal number and nothing else:
 * [-]digits[.digits][e[+-]digits]. */
static bool is_decimal(const char *s)
{
    size_t digits = 0;
    if (*s == '-')
        s++;
    for (; *s >= '0' && *s <= '9'; s++)
        digits++;
    if (*s == '.')
        for (s++; *s >= '0' && *s <= '9'; s++)
            digits++;
    if (digits == 0)
        return false;
    if (*s == 'e' || *s == 'E') {
        s++;
        if (*s == '+' || *s == '-')
            s++;
        if (*s < '0' || *s > '9')
            return false;
        while (*s >= '0' && *s <= '9')
            s++;
    }
    return *s == '\0';
}

/* Reads a finite decimal number without quotes into *out, independent of the
 * locale. */
static lh_status read_double(const lhi_doc *doc, const lhi_node *node,
                             double *out, lh_error *err)
{
    LHI_TRY(check_scalar(doc, node, "a number", err));
    if (node->quoted || !is_decimal(node->text))
        return lhi_doc_fail(doc, node, err, LH_EINPUT,
                            "must be a number, not '%.60s'%s", node->text,
                            node->quoted ? " in quotes" : "");
    locale_t c = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    if (!c)
        return lhi_fail_nomem(err);
    double value = strtod_l(node->text, NULL, c);
    freelocale(c);
    if (!isfinite(value))
        return lhi_doc_fail(doc, node, err, LH_EINPUT, "%.60s is too large",
                            node->text);
    *out = value;
    return LH_OK;
}

lh_status lhi_node_get_number(const lhi_doc *doc, const lhi_node *node,
                              double min, double max, double *out,
                              lh_error *err)
{
    double value;
    LHI_TRY(read_double(doc, node, &value, err));
    if (value < min || value > max)
        return lhi_doc_fail(
            doc, node, err, LH_EINPUT,
            "%.60s is out of range; from %.15g to %.15g is possible",
            node->text, min, max);
    *out = value;
    return LH_OK;
}

lh_status lhi_node_get_int(const lhi_doc *doc, const lhi_node *node,
                           int64_t min, int64_t max, int64_t *out,
                           lh_error *err)
{
    LHI_TRY(check_scalar(doc, node, "a whole number", err));
    const char *digits = node->text + (node->text[0] == '-');
    bool whole = !node->quoted && digits[0] != '\0' &&
                 strspn(digits, "0123456789") == strlen(digits);
    if (!whole) {
        /* 2e9 and 4.0 are integers too. */
        double value;
        LHI_TRY(read_double(doc, node, &value, err));
        if (value != floor(value) || fabs(value) > 9007199254740992.0)
            return lhi_doc_fail(doc, node, err, LH_EINPUT,
                                "must be a whole number, not '%.60s'",
                                node->text);
        if (value < (double)min || value > (double)max)
            goto out_of_range;
        *out = (int64_t)value;
        return LH_OK;
    }
    errno = 0;
    long long value = strtoll(node->text, NULL, 10);
    if (errno == ERANGE || value < min || value > max)
        goto out_of_range;
    *out = value;
    return LH_OK;
out_of_range:
    return lhi_doc_fail(doc, node, err, LH_EINPUT,
                        "%.60s is out of range; from %" PRId64 " to %" PRId64
                        " is possible",
                        node->text, min, max);
}

lh_status lhi_node_get_u32(const lhi_doc *doc, const lhi_node *node,
                           uint32_t min, uint32_t max, uint32_t *out,
                           lh_error *err)
{
    int64_t value;
    LHI_TRY(lhi_node_get_int(doc, node, min, max, &value, err));
    *out = (uint32_t)value;
    return LH_OK;
}

lh_status lhi_node_get_bool(const lhi_doc *doc, const lhi_node *node, bool *out,
                            lh_error *err)
{
    LHI_TRY(check_scalar(doc, node, "true or false", err));
    bool yes = strcmp(node->text, "true") == 0;
    if (node->quoted || (!yes && strcmp(node->text, "false") != 0))
        return lhi_doc_fail(doc, node, err, LH_EINPUT,
                            "must be true or false, not '%.60s'", node->text);
    *out = yes;
    return LH_OK;
}

lh_status lhi_node_get_string(const lhi_doc *doc, const lhi_node *node,
                              const char **out, lh_error *err)
{
    LHI_TRY(check_scalar(doc, node, "a string", err));
    if (node->text[0] == '\0')
        return lhi_doc_fail(doc, node, err, LH_EINPUT, "must not be empty");
    *out = node->text;
    return LH_OK;
}

lh_status lhi_node_get_choice(const lhi_doc *doc, const lhi_node *node,
                              const char *const *names, uint32_t *out,
                              lh_error *err)
{
    char known[256];
    format_names(names, known, sizeof known);
    if (node->kind == LHI_SCALAR)
        for (uint32_t i = 0; names[i]; i++)
            if (strcmp(names[i], node->text) == 0) {
                *out = i;
                return LH_OK;
            }
    return lhi_doc_fail(doc, node, err, LH_EINPUT, "must be %s, not '%.60s'",
                        known, node->kind == LHI_SCALAR ? node->text : "...");
}

lh_status lhi_node_get_time(const lhi_doc *doc, const lhi_node *node,
                            int64_t unit_ns, int64_t *out_ns, lh_error *err)
{
    double value;
    double most = (double)(LHI_MAX_TIME_NS / unit_ns);
    LHI_TRY(lhi_node_get_number(doc, node, 0, most, &value, err));
    /* Integers, in any unit, avoid floating point. */
    if (strspn(node->text, "0123456789") == strlen(node->text))
        *out_ns = strtoll(node->text, NULL, 10) * unit_ns;
    else
        *out_ns = llround(value * (double)unit_ns);
    return LH_OK;
}

bool lhi_node_is_null(const lhi_node *node)
{
    return node->kind == LHI_SCALAR && !node->quoted &&
           (node->text[0] == '\0' || strcmp(node->text, "null") == 0 ||
            strcmp(node->text, "~") == 0);
}
