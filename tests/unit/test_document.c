/* SPDX-License-Identifier: Apache-2.0 */
/* Documents: parsed values, and every error with file, line and key. */
#include "format/document/tree.h"

#include "test.h"

#include "base/text.h"

#include <stdlib.h>

static lhi_doc *parse_bytes(const char *text, size_t len, lh_error *err)
{
    lhi_doc *doc = NULL;
    *err = (lh_error){0};
    return lhi_doc_parse(text, len, "f", LHI_INPUT_JOB, &doc, err) == LH_OK
               ? doc
               : NULL;
}

static lhi_doc *parse(const char *text, lh_error *err)
{
    return parse_bytes(text, strlen(text), err);
}

static void refuse(const char *text, const char *says)
{
    lh_error err;
    lhi_doc *doc = parse(text, &err);
    CHECK_MSG(!doc, "accepted, where it should say '%s':\n%s", says, text);
    if (!doc) {
        CHECK_INT(err.code, LH_EINPUT);
        CHECK_HAS(err.text, says);
    }
    lhi_doc_free(doc);
}

static void a_tree_remembers_where_it_stood(void)
{
    lh_error err;
    lhi_doc *doc = parse("a: 1\nb:\n  - x\n  - {c: \"2\", d: [3, 4]}\n", &err);
    CHECK_MSG(doc, "%s", err.text);
    if (!doc)
        return;
    const lhi_node *a = lhi_node_find(doc->root, "a"),
                   *b = lhi_node_find(doc->root, "b");
    CHECK(a && a->kind == LHI_SCALAR && a->line == 1 && !a->quoted);
    CHECK(b && b->kind == LHI_LIST && b->n_items == 2);
    const lhi_node *map = b->first->next;
    const lhi_node *c = lhi_node_find(map, "c"), *d = lhi_node_find(map, "d");
    CHECK(c && c->quoted && c->line == 4 && strcmp(c->text, "2") == 0);
    CHECK(d && d->n_items == 2 && d->first->next->index == 1);
    CHECK(lhi_node_find(map, "e") == NULL);
    CHECK(lhi_doc_fail(doc, d->first->next, &err, LH_EINPUT, "no %d", 7) ==
          LH_EINPUT);
    CHECK_STR(err.text, "f:4: b[1].d[1]: no 7");
    lhi_doc_free(doc);
}

static void json_is_yaml(void)
{
    lh_error err;
    lhi_doc *doc = parse(
        "{\n\t\"a\\/b\": [1, -2.5e-3, true, null, \"\\u00e9\\n\"]}", &err);
    CHECK_MSG(doc, "%s", err.text);
    if (!doc)
        return;
    const lhi_node *list = lhi_node_find(doc->root, "a/b");
    CHECK(list && list->n_items == 5);
    if (list) {
        const lhi_node *null = list->first->next->next->next;
        CHECK(lhi_node_is_null(null));
        CHECK_STR(null->next->text, "\xc3\xa9\n");
        CHECK(!lhi_node_is_null(null->next));
    }
    lhi_doc_free(doc);
}

/* JSON writes these as surrogate pairs; in YAML the halves stay as they are. */
static void json_has_characters_of_two_halves(void)
{
    static const char one[] = "\\uD83d\\ude00", both[] = "\xf0\x9f\x98\x80";
    lh_error err;
    lhi_text text = {0}, wanted = {0};
    lhi_text_puts(&text, "\n {\"k\": \"\\\\ud83d\\u00e9");
    lhi_text_puts(&wanted, "\\ud83d\xc3\xa9");
    /* Longer than libyaml's buffer, at every offset. */
    for (int i = 0; i < 9000; i++) {
        lhi_text_puts(&text, one);
        lhi_text_puts(&wanted, both);
        lhi_text_puts(&text, i % 5 ? "" : "ab");
        lhi_text_puts(&wanted, i % 5 ? "" : "ab");
    }
    lhi_text_puts(&text, "\\n\"}");
    lhi_text_puts(&wanted, "\n");
    lhi_doc *doc = parse(text.data, &err);
    CHECK_MSG(doc, "%s", err.text);
    if (doc)
        CHECK(strcmp(lhi_node_find(doc->root, "k")->text, wanted.data) == 0);
    lhi_doc_free(doc);
    lhi_text_fini(&text);
    lhi_text_fini(&wanted);
    doc = parse("k: '\\ud83d\\ude00'\n", &err);
    CHECK(doc &&
          strcmp(lhi_node_find(doc->root, "k")->text, "\\ud83d\\ude00") == 0);
    lhi_doc_free(doc);
    refuse("{\"k\": \"\\ud83d\"}", "Unicode character escape");
    refuse("{\"k\": \"\\ude00\\ud83d\"}", "Unicode character escape");
    refuse("k: \"\\ud83d\\ude00\"", "Unicode character escape");
}

static void broken_texts_are_refused(void)
{
    static const char nul[] = "a: \"x\\0y\"", raw[] = "a: x\0y";
    lh_error err;
    refuse("", "f:1: the file is empty");
    refuse("# nothing\n", "the file is empty");
    refuse("---\n", "must be a map");
    refuse("7", "f:1: must be a map of keys and values");
    refuse("- 7", "f:1: must be a map of keys and values");
    refuse("a: 1\n---\nb: 2\n", "f:2: a file must contain only one document");
    refuse("a: [1, 2", "not valid YAML or JSON");
    refuse("a: 'x", "not valid YAML or JSON");
    refuse("a: 1\n b: 2\n", "f:2: not valid YAML or JSON");
    refuse("a: \xff\xfe", "not UTF-8 text (byte ");
    refuse("a: \x01", "not UTF-8 text");
    refuse("a: 1\na: 2\n", "f:2: key 'a' appears twice; keep one");
    refuse("a: {b: 1, \"b\": 2}", "f:1: key 'b' appears twice");
    refuse("{[1]: 2}", "f:1: a key must be a scalar");
    refuse("{{a: 1}: 2}", "a key must be a scalar");
    refuse("a: &x 1", "f:1: anchors (&name) are not supported");
    refuse("a: &x [1]", "anchors");
    refuse("a: &x {b: 1}", "anchors");
    refuse("b: 1\na: *x", "f:2: aliases (*name) are not supported");
    refuse("a: !!int 1", "tags (!name) are not supported");
    refuse("a: !x [1]", "tags");
    refuse("{a: 1, a\x07: 2, a\x07: 3}", "f");
    CHECK(!parse_bytes(nul, sizeof nul - 1, &err));
    CHECK_HAS(err.text, "a NUL character");
    CHECK(!parse_bytes(raw, sizeof raw - 1, &err));
}

static void depth_is_limited(void)
{
    char text[256];
    lh_error err;
    for (int depth = 1; depth < 100; depth++) {
        size_t n = (size_t)snprintf(text, sizeof text, "a: ");
        memset(text + n, '[', (size_t)depth);
        memset(text + n + depth, ']', (size_t)depth);
        lhi_doc *doc = parse_bytes(text, n + 2 * (size_t)depth, &err);
        CHECK_INT(doc != NULL, depth < LHI_DOC_MAX_DEPTH);
        if (!doc)
            CHECK_STR(err.text, "f:1: nested too deeply");
        lhi_doc_free(doc);
    }
}

/* Parses a map of n keys with a duplicate. */
static void try_long_map(uint32_t n, int64_t twice, const char *says)
{
    lhi_text text = {0};
    lh_error err;
    for (uint32_t i = 0; i < n; i++)
        lhi_text_printf(&text, "k%u: 1\n", i);
    if (twice >= 0)
        lhi_text_printf(&text, "k%u: 2\n", (unsigned)twice);
    CHECK(!text.failed);
    lhi_doc *doc = parse_bytes(text.data, text.len, &err);
    CHECK_INT(doc == NULL, says != NULL);
    if (says)
        CHECK_HAS(err.text, says);
    else if (doc)
        CHECK_INT(doc->root->n_items, n);
    lhi_doc_free(doc);
    lhi_text_fini(&text);
}

static void keys_are_compared_in_long_maps_too(void)
{
    for (uint32_t n = 30; n < 36; n++) {
        try_long_map(n, -1, NULL);
        try_long_map(n, 0, "key 'k0' appears twice");
        try_long_map(n, n - 1, "appears twice");
    }
    try_long_map(LHI_DOC_MAX_KEYS, -1, NULL);
    try_long_map(LHI_DOC_MAX_KEYS - 1, 7, "f:4096: key 'k7' appears twice");
    try_long_map(LHI_DOC_MAX_KEYS + 1, -1, "too many keys in one map");
}

/* Parses `text` as the value of a key "k". */
static const lhi_node *value(lhi_doc **doc, const char *text)
{
    char line[256];
    lh_error err;
    lhi_doc_free(*doc);
    snprintf(line, sizeof line, "k: %s\n", text);
    *doc = parse(line, &err);
    if (!*doc) {
        fprintf(stderr, "%s: %s\n", text, err.text);
        exit(1);
    }
    return lhi_node_find((*doc)->root, "k");
}

static void whole_numbers(void)
{
    static const struct {
        const char *text;
        int64_t want;
    } good[] = {
        {"0", 0},
        {"-0", 0},
        {"7", 7},
        {"007", 7},
        {"-12", -12},
        {"4.0", 4},
        {"2e9", 2000000000},
        {"9223372036854775807", INT64_MAX},
        {"-9223372036854775808", INT64_MIN},
    };
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"9223372036854775808", "out of range"},
        {"-9223372036854775809", "out of range"},
        {"99999999999999999999999999", "out of range"},
        {"1e18", "must be a whole number"},
        {"1.5", "must be a whole number, not '1.5'"},
        {"1e-1", "must be a whole number"},
        {"\"7\"", "must be a number, not '7' in quotes"},
        {"0x10", "must be a number, not '0x10'"},
        {"1_000", "must be a number"},
        {"+1", "must be a number"},
        {"-.", "f:1: k: must be a number"},
        {".nan", "must be a number, not '.nan'"},
        {"nan", "must be a number"},
        {"inf", "must be a number"},
        {"1e999", "is too large"},
        {"true", "must be a number"},
        {"~", "must be a number"},
        {"", "f:1: k: has no value; it must be a whole number"},
        {"[1]", "must be a whole number, not a list"},
        {"{a: 1}", "must be a whole number, not a map"},
    };
    lhi_doc *doc = NULL;
    lh_error err = {0};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        int64_t got = 99;
        const lhi_node *n = value(&doc, good[i].text);
        CHECK_OK(lhi_node_get_int(doc, n, INT64_MIN, INT64_MAX, &got, &err),
                 err);
        CHECK_INT(got, good[i].want);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int64_t got = 99;
        const lhi_node *n = value(&doc, bad[i].text);
        CHECK_MSG(lhi_node_get_int(doc, n, INT64_MIN, INT64_MAX, &got, &err) ==
                      LH_EINPUT,
                  "accepted: %s", bad[i].text);
        CHECK_HAS(err.text, bad[i].says);
        CHECK_INT(got, 99);
    }
    uint32_t small = 0;
    const lhi_node *n = value(&doc, "11");
    CHECK(lhi_node_get_u32(doc, n, 2, 10, &small, &err) == LH_EINPUT);
    CHECK_STR(err.text, "f:1: k: 11 is out of range; from 2 to 10 is possible");
    n = value(&doc, "4294967295");
    CHECK_OK(lhi_node_get_u32(doc, n, 0, UINT32_MAX, &small, &err), err);
    CHECK(small == UINT32_MAX);
    lhi_doc_free(doc);
}

static void numbers(void)
{
    static const struct {
        const char *text;
        double want;
    } good[] = {{"0", 0},
                {"-2.5", -2.5},
                {"1e3", 1000},
                {".5", 0.5},
                {"5.", 5},
                {"1E+2", 100},
                {"0.1", 0.1},
                {"1e-400", 0},
                {"123456789012345678901", 123456789012345678901.0}};
    static const char *const bad[] = {
        "1e400", "-1e400", ".inf", "-.inf", ".nan", "NaN",   "Infinity",
        "1e",    "1e+",    "e5",   ".",     "--1",  "1.2.3", "1 2",
        "0x1p3", "1,5",    "'1'",  "1k",    "1e5x", "١"};
    lhi_doc *doc = NULL;
    lh_error err = {0};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        double got = 99;
        const lhi_node *n = value(&doc, good[i].text);
        CHECK_OK(lhi_node_get_number(doc, n, -1e300, 1e300, &got, &err), err);
        CHECK_NEAR(got, good[i].want, 0);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        double got = 99;
        const lhi_node *n = value(&doc, bad[i]);
        CHECK_MSG(lhi_node_get_number(doc, n, -1e300, 1e300, &got, &err) ==
                      LH_EINPUT,
                  "accepted: %s", bad[i]);
        CHECK_NEAR(got, 99, 0);
    }
    double got;
    const lhi_node *n;
    n = value(&doc, "2");
    CHECK(lhi_node_get_number(doc, n, 0, 1, &got, &err) == LH_EINPUT);
    CHECK_STR(err.text, "f:1: k: 2 is out of range; from 0 to 1 is possible");
    lhi_doc_free(doc);
}

static void times(void)
{
    lhi_doc *doc = NULL;
    lh_error err = {0};
    int64_t ns = 0;
    const lhi_node *n = value(&doc, "4503599627370496");
    CHECK_OK(lhi_node_get_time(doc, n, 1, &ns, &err), err);
    CHECK_INT(ns, LHI_MAX_TIME_NS);
    n = value(&doc, "4503599627370497");
    CHECK(lhi_node_get_time(doc, n, 1, &ns, &err) == LH_EINPUT);
    n = value(&doc, "-1");
    CHECK(lhi_node_get_time(doc, n, 1, &ns, &err) == LH_EINPUT);
    n = value(&doc, "1.5");
    CHECK_OK(lhi_node_get_time(doc, n, 1000000, &ns, &err), err);
    CHECK_INT(ns, 1500000);
    n = value(&doc, "4503599");
    CHECK_OK(lhi_node_get_time(doc, n, 1000000000, &ns, &err), err);
    CHECK_INT(ns, INT64_C(4503599000000000));
    n = value(&doc, "4503600");
    CHECK(lhi_node_get_time(doc, n, 1000000000, &ns, &err) == LH_EINPUT);
    n = value(&doc, "0.0004");
    CHECK_OK(lhi_node_get_time(doc, n, 1000, &ns, &err), err);
    CHECK_INT(ns, 0);
    lhi_doc_free(doc);
}

static void texts_choices_and_flags(void)
{
    static const char *const names[] = {"red", "green", "blue", NULL};
    lhi_doc *doc = NULL;
    lh_error err = {0};
    const char *text = NULL;
    uint32_t choice = 9;
    bool flag = false;
    const lhi_node *n;
    n = value(&doc, "'7'");
    CHECK_OK(lhi_node_get_string(doc, n, &text, &err), err);
    CHECK_STR(text, "7");
    n = value(&doc, "''");
    CHECK(lhi_node_get_string(doc, n, &text, &err) == LH_EINPUT);
    CHECK_HAS(err.text, "must not be empty");
    n = value(&doc, "[]");
    CHECK(lhi_node_get_string(doc, n, &text, &err) == LH_EINPUT);
    n = value(&doc, "green");
    CHECK_OK(lhi_node_get_choice(doc, n, names, &choice, &err), err);
    CHECK_INT(choice, 1);
    n = value(&doc, "gren");
    CHECK(lhi_node_get_choice(doc, n, names, &choice, &err) == LH_EINPUT);
    CHECK_STR(err.text, "f:1: k: must be red, green or blue, not 'gren'");
    n = value(&doc, "{a: 1}");
    CHECK(lhi_node_get_choice(doc, n, names, &choice, &err) == LH_EINPUT);
    n = value(&doc, "true");
    CHECK_OK(lhi_node_get_bool(doc, n, &flag, &err), err);
    CHECK(flag);
    n = value(&doc, "yes");
    CHECK(lhi_node_get_bool(doc, n, &flag, &err) == LH_EINPUT);
    n = value(&doc, "'false'");
    CHECK(lhi_node_get_bool(doc, n, &flag, &err) == LH_EINPUT);
    n = value(&doc, "1");
    CHECK(lhi_node_get_bool(doc, n, &flag, &err) == LH_EINPUT);
    CHECK(flag);
    lhi_doc_free(doc);
}

static void unknown_keys_name_the_nearest(void)
{
    static const char *const keys[] = {"latency", "transfer", "to", "name",
                                       NULL};
    static const char *const many[] = {
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb",
        "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc",
        "dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd",
        NULL};
    lhi_doc *doc = NULL;
    lh_error err = {0};
    const lhi_node *n = value(&doc, "{latency: 1, name: 2}");
    CHECK_OK(lhi_node_check_keys(doc, n, keys, &err), err);
    n = value(&doc, "{latensy: 1}");
    CHECK(lhi_node_check_keys(doc, n, keys, &err) == LH_EINPUT);
    CHECK_STR(err.text, "f:1: k.latensy: unknown key; did you mean 'latency'?");
    n = value(&doc, "{xy: 1}");
    CHECK(lhi_node_check_keys(doc, n, keys, &err) == LH_EINPUT);
    CHECK_STR(err.text, "f:1: k.xy: unknown key; known here: latency, "
                        "transfer, to or name");
    n = value(&doc, "{x: 1}");
    CHECK(lhi_node_check_keys(doc, n, many, &err) == LH_EINPUT);
    CHECK_HAS(err.text, "cc, ...");
    n = value(&doc, "[1]");
    CHECK(lhi_node_check_keys(doc, n, keys, &err) == LH_EINPUT);
    CHECK_STR(err.text, "f:1: k: must be a map of keys and values");
    CHECK(lhi_node_require(doc, doc->root, "z", &n, &err) == LH_EINPUT);
    CHECK_STR(err.text, "f:1: key 'z' is missing");
    lhi_doc_free(doc);
}

static void formats_and_versions(void)
{
    lh_error err = {0};
    lhi_doc *doc = parse("longhaul: job/1\n", &err);
    CHECK(doc != NULL);
    CHECK_OK(lhi_doc_check_format(doc, "job", 1, &err), err);
    CHECK(lhi_doc_check_format(doc, "job", 2, &err) == LH_EINPUT);
    CHECK_STR(err.text, "f:1: longhaul: must be job/2, not 'job/1'");
    lhi_doc_free(doc);
    doc = parse("a: 1\n", &err);
    CHECK(lhi_doc_check_format(doc, "job", 1, &err) == LH_EINPUT);
    CHECK_HAS(err.text, "write 'longhaul: job/1'");
    lhi_doc_free(doc);
}

static void messages_show_no_control_characters(void)
{
    char shown[8];
    lh_error err = {0};
    lhi_doc *doc = NULL;
    int64_t got;
    const lhi_node *n = value(&doc, "\"\\e[31m\\n\\u00e9\"");
    CHECK(lhi_node_get_int(doc, n, 0, 1, &got, &err) == LH_EINPUT);
    CHECK_HAS(err.text, "not '?[31m?\xc3\xa9' in quotes");
    lhi_doc_free(doc);
    lhi_doc_sanitise_text("a\xff\xc3.\xe2\x82", shown, sizeof shown);
    CHECK_STR(shown, "a??.??");
    lhi_doc_sanitise_text("123456\xc3\xa9", shown, sizeof shown);
    CHECK_STR(shown, "123456");
    CHECK(!parse("{\"\\e\": 1, \"\\e\": 2}", &err));
    CHECK_STR(err.text, "f:1: key '?' appears twice; keep one");
}

static void errors_may_be_left_out(void)
{
    lhi_doc *doc = NULL;
    CHECK(lhi_doc_parse("a: [", 4, "f", LHI_INPUT_JOB, &doc, NULL) ==
          LH_EINPUT);
    CHECK(lhi_doc_load("/none/there", LHI_INPUT_JOB, &doc, NULL) == LH_EIO);
    CHECK(doc == NULL);
}

int main(void)
{
    RUN(a_tree_remembers_where_it_stood);
    RUN(json_is_yaml);
    RUN(json_has_characters_of_two_halves);
    RUN(broken_texts_are_refused);
    RUN(depth_is_limited);
    RUN(keys_are_compared_in_long_maps_too);
    RUN(whole_numbers);
    RUN(numbers);
    RUN(times);
    RUN(texts_choices_and_flags);
    RUN(unknown_keys_name_the_nearest);
    RUN(formats_and_versions);
    RUN(messages_show_no_control_characters);
    RUN(errors_may_be_left_out);
    return test_summary();
}
