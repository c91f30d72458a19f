/* SPDX-License-Identifier: Apache-2.0 */
/* TOML 1.0: each paragraph in https://toml.io/en/v1.0.0, with its valid and
 * invalid forms. tests/peers/test_toml.py compares random texts with Python's
 * tomllib. */
#include "format/document/toml.h"

#include "base/text.h"

#include "test.h"

#include <stdlib.h>

static lhi_doc *parse_bytes(const char *text, size_t len, lh_error *err)
{
    lhi_doc *doc = NULL;
    *err = (lh_error){0};
    return lhi_toml_parse(text, len, "f", LHI_INPUT_ARGUMENTS, &doc, err) ==
                   LH_OK
               ? doc
               : NULL;
}

/* Returns the value at "a.b.1": table keys, array indices. */
static const lhi_node *node_at(const lhi_doc *doc, const char *path)
{
    const lhi_node *node = doc->root;
    char part[40];
    while (node && *path) {
        size_t n = strcspn(path, ".");
        snprintf(part, sizeof part, "%.*s", (int)n, path);
        path += path[n] ? n + 1 : n;
        if (node->kind == LHI_MAP) {
            node = lhi_node_find(node, part);
            continue;
        }
        uint32_t i = (uint32_t)strtoul(part, NULL, 10);
        for (node = node->first; node && node->index != i;)
            node = node->next;
    }
    return node;
}

static void has_value(const char *text, const char *path, const char *value,
                      bool quoted)
{
    lh_error err;
    lhi_doc *doc = parse_bytes(text, strlen(text), &err);
    CHECK_MSG(doc, "%s\n%s", err.text, text);
    const lhi_node *node = doc ? node_at(doc, path) : NULL;
    CHECK_MSG(node && node->kind == LHI_SCALAR, "no '%s' in\n%s", path, text);
    if (node && node->kind == LHI_SCALAR) {
        CHECK_STR(node->text, value);
        CHECK_MSG(node->quoted == quoted, "quotes of '%s'", path);
    }
    lhi_doc_free(doc);
}

static void string_is(const char *text, const char *path, const char *value)
{
    has_value(text, path, value, true);
}

static void word_is(const char *text, const char *path, const char *value)
{
    has_value(text, path, value, false);
}

static void refuse_bytes(const char *text, size_t len, const char *says)
{
    lh_error err;
    lhi_doc *doc = parse_bytes(text, len, &err);
    CHECK_MSG(!doc, "accepted, where it should say '%s':\n%s", says, text);
    if (!doc) {
        CHECK_INT(err.code, LH_EINPUT);
        CHECK_HAS(err.text, says);
    }
    lhi_doc_free(doc);
}

static void refuse(const char *text, const char *says)
{
    refuse_bytes(text, strlen(text), says);
}

static void keys(void)
{
    word_is("# all\nkey = 1 # here\n", "key", "1");
    word_is("1234 = true", "1234", "true");
    word_is("bare-key_ = 1", "bare-key_", "1");
    word_is("\"ʎǝʞ\" = 1", "ʎǝʞ", "1");
    word_is("'quoted \"value\"' = 1", "quoted \"value\"", "1");
    word_is("a.\"b\" . c=1\na.'d' = 2", "a.d", "2");
    word_is("3.14159 = 0", "3.14159", "0");
    word_is("apple.type = 1\norange.type = 2\napple.skin = 3", "apple.skin",
            "3");
    refuse("key = # nothing", "f:1: expected a value");
    refuse("= 1", "f:1: expected a key");
    refuse("a b = 1", "f:1: expected = after a key");
    refuse("a. = 1", "f:1: expected a key");
    refuse("first = 1 last = 2",
           "f:1: 'last = 2': expected the end of the line");
    refuse("\na = 1\na = 2", "f:3: 'a' is already defined on line 2");
    refuse("a = 1\n\"a\" = 2", "f:2: 'a' is already defined");
    refuse("a = 1\na.b = 2", "f:2: 'a' is already defined");
    refuse("a.b = 1\na = 2", "f:2: 'a' is already defined");
    refuse("\"\"\"a\"\"\" = 1", "f:1: expected = after a key");
    refuse("\"a\nb\" = 1", "f:1: missing closing \"");
}

static void strings(void)
{
    string_is("s = \"\\b\\t\\n\\f\\r\\\"\\\\\\u00e9\\U0001F600\"", "s",
              "\b\t\n\f\r\"\\\xc3\xa9\xf0\x9f\x98\x80");
    string_is("s = \"\"", "s", "");
    string_is("s = 'C:\\Users\\nodejs'", "s", "C:\\Users\\nodejs");
    string_is("s = \"\"\"\nRoses\r\nViolets\"\"\"", "s", "Roses\nViolets");
    string_is("s = \"\"\"\\\n   The quick \\  \n\n  fox.\\\n  \"\"\"", "s",
              "The quick fox.");
    string_is("s = \"\"\"\"two\"\" quotes\"\"\"\"\"", "s",
              "\"two\"\" quotes\"\"");
    string_is("s = '''\nraw \\ ''and'\n'''''", "s", "raw \\ ''and'\n''");
    string_is("s = \"1\"", "s", "1");
    refuse("s = \"a\\qb\"", "f:1: invalid escape in \"...\"");
    refuse("s = \"\\ud800\"", "f:1: \\uD800 is not a character");
    refuse("s = \"\\u0000\"", "f:1: \\u0000 is not a character");
    refuse("s = \"\\u12\"", "f:1: \\u requires 4 hexadecimal digits");
    refuse("s = \"\\U00110000\"", "is not a character");
    refuse("s = \"a\nb\"", "f:1: missing closing \"");
    refuse("\ns = '''a\nb''", "f:2: missing closing '");
    refuse("s = \"a \\\n b\"", "f:1: invalid escape");
    refuse("s = 'a'b'", "f:1: 'b'': expected the end of the line");
    refuse("s = \"\"\"a\"\"\"\"\"\"", "expected the end of the line");
    refuse("s = 'a\x01'", "f:1: contains a control character, number 1");
    refuse("# \x7f", "f:1: contains a control character, number 127");
    refuse("a = 1\rb = 2", "f:1: contains a control character, number 13");
    refuse("\n# \xff", "f:2: not UTF-8 text");
    refuse_bytes("a = 1\n\0", 7, "f:2: contains a control character, number 0");
}

static void numbers(void)
{
    word_is("n = +99", "n", "99");
    word_is("n = -17", "n", "-17");
    word_is("n = 5_349_221", "n", "5349221");
    word_is("n = 0xDEAD_beef", "n", "3735928559");
    word_is("n = 0o755", "n", "493");
    word_is("n = 0b1101_0110", "n", "214");
    word_is("n = 9223372036854775807", "n", "9223372036854775807");
    word_is("n = -9223372036854775808", "n", "-9223372036854775808");
    word_is("n = 0x7fffffffffffffff", "n", "9223372036854775807");
    word_is("n = +1.0", "n", "1.0");
    word_is("n = 9_224_617.445_991e-0_3", "n", "9224617.445991e-03");
    word_is("n = 5e+22", "n", "5e+22");
    word_is("n = -inf", "n", "-inf");
    word_is("n = nan", "n", "nan");
    word_is("n = -0", "n", "-0");
    static const char *const wrong[] = {"01",
                                        "_1",
                                        "1_",
                                        "1__0",
                                        "0x",
                                        "0x_1",
                                        "+0x1",
                                        "0X1",
                                        "0b2",
                                        "1.",
                                        ".7",
                                        "3.e20",
                                        "1._0",
                                        "1e",
                                        "1e_1",
                                        "--1",
                                        "+",
                                        "1.2.3",
                                        "0x1.0",
                                        "True",
                                        "falsehood",
                                        "INF",
                                        "none",
                                        "9223372036854775808",
                                        "-9223372036854775809",
                                        "0x8000000000000000",
                                        "00.5",
                                        "-01"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char text[60];
        snprintf(text, sizeof text, "n = %s", wrong[i]);
        refuse(text, "is not a valid TOML number or boolean");
    }
    refuse("d = 1979-05-27T07:32:00Z", "dates and times are not supported");
    refuse("d = 07:32:00", "dates and times are not supported");
    refuse("s = word", "strings need quotes");
}

static void arrays(void)
{
    word_is("a = [ 1,\n 2, # two\n ]", "a.1", "2");
    string_is("a = [[1, 2], ['x', \"y\",], []]", "a.1.1", "y");
    word_is("a = [{x = 1}, {x = 2}]", "a.1.x", "2");
    refuse("\na = [1,\n2", "f:2: missing ] at the end of the array");
    refuse("a = [1 2]", "f:1: expected , or ] in an array");
    refuse("a = [,]", "f:1: expected a value");
    refuse("a = [1,,2]", "f:1: expected a value");
}

static void tables(void)
{
    word_is("[ a . 'b' ]\nc = 1", "a.b.c", "1");
    word_is("[x.y.z]\nk = 1\n[x]\nl = 2", "x.l", "2");
    word_is("[fruit]\napple.taste.sweet = true\n[fruit.apple.texture]\n"
            "smooth = true",
            "fruit.apple.texture.smooth", "true");
    word_is("[a]\n[b]\n[a.c]\nd = 1", "a.c.d", "1");
    refuse("[a]\n[a]", "f:2: 'a' is already defined");
    refuse("[a]\nb = 1\n[a.b]", "f:3: 'b' is already defined");
    refuse("[fruit]\napple.color = 1\n[fruit.apple]", "f:3: 'apple'");
    refuse("[a.b.c]\nz = 9\n[a]\nb.c.t = 1", "f:4: 'c'");
    refuse("[a.b]\n[a]\nb = 1", "f:3: 'b'");
    refuse("[]", "expected a key");
    refuse("[a]]", "expected the end of the line");
    refuse("[a", "expected ] after a table name");
    refuse("[a] b = 1", "expected the end of the line");
    refuse("[[a]", "expected ]] after a table name");
}

static void inline_tables(void)
{
    word_is("p = { x = 1, y.z = 2 }", "p.y.z", "2");
    word_is("p = {}\nq = 1", "q", "1");
    refuse("p = {x = 1,}", "expected a key");
    refuse("p = {x = 1\n}", "must be on one line");
    refuse("p = {x = 1}\np.y = 2", "f:2: 'p'");
    refuse("p = {x = 1}\n[p.y]", "f:2: 'p'");
    refuse("[a]\nb.c = 1\n[d]\ne = {f.g = 1, f = 2}", "f:4: 'f'");
    refuse("p = {x = {y = 1}, x.z = 2}", "f:1: 'x'");
    refuse("p = [{x = 1}]\n[[p]]", "f:2: 'p'");
}

static void arrays_of_tables(void)
{
    static const char text[] = "[[fruits]]\nname = 'apple'\n[fruits.physical]\n"
                               "color = 'red'\n[[fruits.varieties]]\n"
                               "name = 'plain'\n[[fruits]]\nname = 'banana'\n"
                               "[[fruits.varieties]]\nname = 'plantain'\n";
    string_is(text, "fruits.0.physical.color", "red");
    string_is(text, "fruits.1.varieties.0.name", "plantain");
    refuse("[fruit.physical]\n[[fruit]]", "f:2: 'fruit'");
    refuse("fruits = []\n[[fruits]]", "f:2: 'fruits'");
    refuse("[[a]]\n[a]", "f:2: 'a'");
    refuse("[[a]]\n[[a.b]]\n[a.b]", "f:3: 'b'");
    refuse("[[a.b]]\n[a]\nb.c = 1", "f:3: 'b'");
}

static void the_tree_remembers_where_it_stood(void)
{
    static const char text[] = "a = 1\n\n[t]\nb = [\n 2,\n 'x']\n";
    lh_error err;
    lhi_doc *doc = parse_bytes(text, strlen(text), &err);
    CHECK_MSG(doc, "%s", err.text);
    if (!doc)
        return;
    CHECK_INT(node_at(doc, "a")->line, 1);
    CHECK_INT(node_at(doc, "t")->line, 3);
    CHECK_INT(node_at(doc, "t.b")->line, 4);
    CHECK_INT(node_at(doc, "t.b.1")->line, 6);
    CHECK_INT(node_at(doc, "t.b")->n_items, 2);
    CHECK_INT(lhi_doc_fail(doc, node_at(doc, "t.b.1"), &err, LH_EINPUT, "no"),
              LH_EINPUT);
    CHECK_STR(err.text, "f:6: t.b[1]: no");
    lhi_doc_free(doc);
    doc = parse_bytes("# nothing", 9, &err);
    CHECK(doc && doc->root->kind == LHI_MAP && doc->root->n_items == 0);
    lhi_doc_free(doc);
}

static void depth_and_length_end(void)
{
    lhi_text text = {0};
    for (int i = 0; i < 40; i++)
        lhi_text_printf(&text, "%sa", i ? "." : "");
    lhi_text_puts(&text, " = 1");
    refuse(text.data, "nested too deeply");
    lhi_text_fini(&text);
    text = (lhi_text){0};
    lhi_text_puts(&text, "a = ");
    for (int i = 0; i < 40; i++)
        lhi_text_puts(&text, "[");
    refuse(text.data, "nested too deeply");
    lhi_text_fini(&text);
    text = (lhi_text){0};
    for (int i = 0; i < 20; i++)
        lhi_text_printf(&text, "[%sx]\n", i % 2 ? "a.b.c.d.e.f.g.h.i.j." : "");
    refuse(text.data, "'x' is already defined");
    lhi_text_fini(&text);
    text = (lhi_text){0};
    for (int i = 0; i <= LHI_DOC_MAX_KEYS; i++)
        lhi_text_printf(&text, "k%d = 1\n", i);
    refuse(text.data, "f:4097: too many keys in one table");
    lhi_text_fini(&text);
    text = (lhi_text){0};
    lhi_text_puts(&text, "a = [");
    for (int i = 0; i < 500000; i++)
        lhi_text_puts(&text, "1,");
    refuse(text.data, "too many short values");
    lhi_text_fini(&text);
}

int main(void)
{
    RUN(keys);
    RUN(strings);
    RUN(numbers);
    RUN(arrays);
    RUN(tables);
    RUN(inline_tables);
    RUN(arrays_of_tables);
    RUN(the_tree_remembers_where_it_stood);
    RUN(depth_and_length_end);
    return test_summary();
}
