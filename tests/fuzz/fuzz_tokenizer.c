/* SPDX-License-Identifier: Apache-2.0 */
/* Input: a tokenizer.json, a NUL, and a text. Words must cover the text,
 * tokens must be below the vocabulary size, and a normalised text is its own
 * normal form. */
#include "fuzz.h"

#include "runtime/device/tokenizer.h"

#include <stdlib.h>
#include <string.h>

/* Checks the words of a text by each rule. */
static void check_words(const char *text, size_t size)
{
    for (int rule = LHI_WORDS_NONE; rule <= LHI_WORDS_QWEN2; rule++)
        for (size_t at = 0; at < size;) {
            size_t word =
                lhi_pretokenize_word((lhi_word_rule)rule, text + at, size - at);
            REQUIRE(word > 0 && word <= size - at, "a word of %zu", word);
            at += word;
        }
}

/* Checks the normal form of a text: at most three times its size. */
static void check_normal_form(const char *text, size_t size)
{
    char *once, *twice;
    size_t n, m;
    lh_error err;
    REQUIRE(lhi_text_normalize(text, size, &once, &n, &err) == LH_OK, "%s",
            err.text);
    REQUIRE(n <= 3 * size, "%zu bytes of %zu", n, size);
    REQUIRE(lhi_text_normalize(once, n, &twice, &m, &err) == LH_OK, "%s",
            err.text);
    REQUIRE(n == m && memcmp(once, twice, n) == 0, "%zu bytes, then %zu", n, m);
    free(once);
    free(twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *rest = (const char *)data;
    size_t len, n = 0;
    const char *json = fuzz_cut(&rest, &size, &len);
    lhi_tokenizer *t = NULL;
    lh_error err = {0};
    check_words(rest, size);
    check_normal_form(rest, size);
    lh_status status = lhi_tokenizer_parse(json, len, "t.json", &t, &err);
    if (status != LH_OK) {
        fuzz_refused(status, &err, t);
        return 0;
    }
    uint32_t *tokens = NULL;
    status = lhi_tokenizer_encode(t, rest, size, &tokens, &n, &err);
    if (status != LH_OK)
        fuzz_refused(status, &err, tokens);
    REQUIRE(n <= 3 * size, "%zu tokens of %zu bytes", n, size);
    for (size_t i = 0; status == LH_OK && i < n; i++)
        REQUIRE(tokens[i] < lhi_tokenizer_size(t), "token %u", tokens[i]);
    lhi_tokens_free(tokens);
    lhi_tokenizer_free(t);
    return 0;
}
