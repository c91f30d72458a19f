/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a text's tokens to standard output, as 32-bit numbers:
 *
 *     print-tokens TOKENIZER.json TEXT */
#include "base/text.h"
#include "runtime/device/tokenizer.h"

#include <stdio.h>

static int fail(const lh_error *err)
{
    fprintf(stderr, "print-tokens: %s\n", err->text);
    return 1;
}

int main(int argc, char **argv)
{
    lh_error err;
    lhi_tokenizer *t;
    char *text;
    uint32_t *tokens;
    size_t len, n;
    if (argc != 3)
        return 2;
    if (lhi_tokenizer_read(argv[1], &t, &err) != LH_OK ||
        lhi_file_read(argv[2], 1 << 28, &text, &len, &err) != LH_OK ||
        lhi_tokenizer_encode(t, text, len, &tokens, &n, &err) != LH_OK)
        return fail(&err);
    fwrite(tokens, sizeof *tokens, n, stdout);
    lhi_tokens_free(tokens);
    lh_text_free(text);
    lhi_tokenizer_free(t);
    return 0;
}
