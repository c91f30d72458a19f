/* SPDX-License-Identifier: Apache-2.0 */
/* Input: a tokenizer.json, a NUL, and a text. Words must cover the text, and
 * tokens must be below the vocabulary size. */
#include "fuzz.h"

#include "runtime/device/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *rest = (const char *)data;
    size_t len, n = 0;
    const char *json = fuzz_cut(&rest, &size, &len);
    lhi_tokenizer *t = NULL;
    lh_error err = {0};
    for (size_t at = 0; at < size;) {
        size_t word = lhi_pretokenize_word(rest + at, size - at);
        REQUIRE(word > 0 && word <= size - at, "a word of %zu", word);
        at += word;
    }
    lh_status status = lhi_tokenizer_parse(json, len, "t.json", &t, &err);
    if (status != LH_OK) {
        fuzz_refused(status, &err, t);
        return 0;
    }
    uint32_t *tokens = NULL;
    status = lhi_tokenizer_encode(t, rest, size, &tokens, &n, &err);
    if (status != LH_OK)
        fuzz_refused(status, &err, tokens);
    REQUIRE(n <= size, "%zu tokens of %zu bytes", n, size);
    for (size_t i = 0; status == LH_OK && i < n; i++)
        REQUIRE(tokens[i] < lhi_tokenizer_size(t), "token %u", tokens[i]);
    lhi_tokens_free(tokens);
    lhi_tokenizer_free(t);
    return 0;
}
