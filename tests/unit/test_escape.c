/* SPDX-License-Identifier: Apache-2.0 */
/* Foreign text: safe output to a terminal and in JSON. */
#include "test.h"

#include "base/escape.h"
#include "base/random.h"

#include <longhaul/experimental/status.h>

#include <jansson.h>
#include <string.h>

static void shows(const char *text, const char *wanted)
{
    char shown[256];
    CHECK_INT(lh_text_escape(text, strlen(text), shown, sizeof shown),
              strlen(wanted));
    CHECK_STR(shown, wanted);
    CHECK_INT(lhi_count_escaped_columns(wanted),
              lhi_count_escaped_columns(text));
}

static void what_is_not_seen_is_named(void)
{
    shows("", "");
    shows("plain \\ text", "plain \\ text");
    shows("caf\xc3\xa9 \xe4\xb8\xad \xf0\x9f\x98\x80",
          "caf\xc3\xa9 \xe4\xb8\xad \xf0\x9f\x98\x80");
    shows("a\nb\tc\rd", "a\\nb\\tc\\x0dd");
    shows("\x1b[31m\x07\x7f", "\\x1b[31m\\x07\\x7f");
    shows("\xc2\x9b\xc2\x80\xc2\xa0", "\\u009b\\u0080\xc2\xa0");
    shows("\xe2\x80\xae\xe2\x81\xa6\xe2\x80\x8e\xd8\x9c\xe2\x80\xa8",
          "\\u202e\\u2066\\u200e\\u061c\\u2028");
    /* Zero width, no break, a byte order mark, a variation selector, a tag;
     * fillers. */
    shows("\xe2\x80\x8b\xe2\x80\x8d\xe2\x81\xa0\xef\xbb\xbf\xef\xb8\x8f",
          "\\u200b\\u200d\\u2060\\ufeff\\ufe0f");
    shows("a\xf3\xa0\x81\x81\xf3\xa0\x80\x80", "a\\U000e0041\\U000e0000");
    shows("\xc2\xad\xe3\x85\xa4\xe1\x85\x9f", "\\u00ad\\u3164\\u115f");
    /* Invalid UTF-8: a lone byte, an overlong form, a surrogate, an incomplete
     * end. */
    shows("\xff\xc0\x80", "\\xff\\xc0\\x80");
    shows("\xed\xa0\x80", "\\xed\\xa0\\x80");
    shows("\xf5\x80\x80\x80", "\\xf5\\x80\\x80\\x80");
    shows("a\xe4\xb8", "a\\xe4\\xb8");
}

static void a_nul_within_is_named(void)
{
    char shown[16];
    CHECK_INT(lh_text_escape("a\0b", 3, shown, sizeof shown), 6);
    CHECK_STR(shown, "a\\x00b");
}

static void what_does_not_fit_is_left_out_whole(void)
{
    const char text[] = "a\xe4\xb8\xad\x1b"
                        "b";
    for (size_t room = 0; room < 12; room++) {
        char shown[16] = "untouched";
        CHECK_INT(lh_text_escape(text, strlen(text), shown, room), 9);
        CHECK_STR(shown, room == 0   ? "untouched"
                         : room < 2  ? ""
                         : room < 5  ? "a"
                         : room < 9  ? "a\xe4\xb8\xad"
                         : room < 10 ? "a\xe4\xb8\xad\\x1b"
                                     : "a\xe4\xb8\xad\\x1b"
                                       "b");
    }
}

/* The output is UTF-8 with visible characters, and JSON keeps its meaning. */
static void random_bytes_become_seen_ones(void)
{
    static const char *const some[] = {"\x1b",
                                       "\xe2\x80\xae",
                                       "a",
                                       "\xc2\x9b",
                                       "\"",
                                       "\\",
                                       "\xe4\xb8\xad",
                                       "\xf3\xa0\x81\x81",
                                       "\n",
                                       "\x7f",
                                       "\xe2\x80\x8b"};
    lhi_random random = {11};
    for (uint32_t n = 0; n < 2000; n++) {
        char text[64] = "", shown[512];
        for (uint32_t i = lhi_random_below(&random, 12); i > 0; i--)
            strcat(text, some[lhi_random_below(&random, 11)]);
        json_t *string = json_string(text);
        char *json = json_dumps(string, JSON_ENCODE_ANY);
        lh_json_escape(json, strlen(json), shown, sizeof shown);
        json_t *back = json_loads(shown, JSON_DECODE_ANY, NULL);
        CHECK(back && json_equal(back, string));
        lhi_text added = {0};
        lhi_text_add_escaped_json(&added, json, strlen(json));
        CHECK_STR(added.data, shown);
        for (const char *p = shown; *p;) {
            uint32_t c;
            p += lhi_utf8_decode(p, strlen(p), &c);
            CHECK(!lhi_is_unprintable(c));
        }
        lhi_text_fini(&added);
        json_decref(back);
        json_decref(string);
        free(json);
        if (strlen(text) > 0)
            text[lhi_random_below(&random, (uint32_t)strlen(text))] =
                (char)(128 + lhi_random_below(&random, 128));
        lh_text_escape(text, strlen(text), shown, sizeof shown);
        CHECK(lhi_is_utf8(shown));
    }
}

int main(void)
{
    RUN(what_is_not_seen_is_named);
    RUN(a_nul_within_is_named);
    RUN(what_does_not_fit_is_left_out_whole);
    RUN(random_bytes_become_seen_ones);
    return test_summary();
}
