/* SPDX-License-Identifier: Apache-2.0 */
/* Formats error messages. */
#include "cli.h"

#include <stdarg.h>
#include <string.h>

lh_status cli_error(cli *c, lh_status code, const char *format, ...)
{
    c->err.code = code;
    va_list args;
    va_start(args, format);
    vsnprintf(c->err.text, sizeof c->err.text, format, args);
    va_end(args);
    return code;
}

lh_status cli_usage(cli *c, const char *format, ...)
{
    c->usage = true;
    c->err.code = LH_EINVAL;
    va_list args;
    va_start(args, format);
    vsnprintf(c->err.text, sizeof c->err.text, format, args);
    va_end(args);
    return LH_EINVAL;
}

lh_status cli_no_memory(cli *c)
{
    return cli_error(c, LH_ENOMEM, "out of memory");
}

lh_status cli_reject_empty_range(cli *c, const char *option, const char *text)
{
    return cli_usage(c,
                     "--%s: '%.40s' is not a valid range; expected "
                     "first:last:step with a step above 0",
                     option, text);
}

/* Returns an ASCII letter in lower case; other characters unchanged. */
static char convert_to_lower(char letter)
{
    return letter >= 'A' && letter <= 'Z' ? (char)(letter - 'A' + 'a') : letter;
}

/* Checks whether the digits in `typed` occur in `word` in the same order, with
 * at most one of them missing: h200 is no misspelt h100. */
static bool has_digits_of(const char *word, const char *typed)
{
    static const char digits[] = "0123456789";

    for (; *(typed += strcspn(typed, digits)); typed++) {
        word = strchr(word, *typed);
        if (!word++)
            return false;
    }
    return true;
}

/* Computes the edit distance, with a swap of neighbours as one edit and without
 * regard to case. */
static size_t compute_edit_distance(const char *a, const char *b)
{
    enum { MAX = 40 };
    size_t n = strlen(a), m = strlen(b);
    if (n >= MAX || m >= MAX)
        return MAX;
    size_t d[MAX + 1][MAX + 1];
    for (size_t i = 0; i <= n; i++)
        d[i][0] = i;
    for (size_t j = 0; j <= m; j++)
        d[0][j] = j;
    for (size_t i = 1; i <= n; i++) {
        for (size_t j = 1; j <= m; j++) {
            size_t best = d[i - 1][j - 1] + (convert_to_lower(a[i - 1]) !=
                                             convert_to_lower(b[j - 1]));
            if (d[i - 1][j] + 1 < best)
                best = d[i - 1][j] + 1;
            if (d[i][j - 1] + 1 < best)
                best = d[i][j - 1] + 1;
            if (i > 1 && j > 1 &&
                convert_to_lower(a[i - 1]) == convert_to_lower(b[j - 2]) &&
                convert_to_lower(a[i - 2]) == convert_to_lower(b[j - 1]) &&
                d[i - 2][j - 2] + 1 < best)
                best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
    }
    return d[n][m];
}

/* Returns the edit distance (typing errors) between `typed` and a word. If
 * `typed` has no colon, only the word's part after a colon counts. */
static size_t compare_word(const char *typed, const char *word)
{
    const char *colon = strchr(typed, ':') ? NULL : strchr(word, ':');
    return compute_edit_distance(typed, colon ? colon + 1 : word);
}

void cli_find_similar_words(const char *typed, const char *const *words,
                            const char *out[CLI_MOST_SIMILAR + 1])
{
    size_t far[CLI_MOST_SIMILAR];
    uint32_t n = 0;
    for (; *words; words++) {
        const size_t here = compare_word(typed, *words);
        uint32_t at = n;
        while (at > 0 && far[at - 1] > here)
            at--;
        if (at == CLI_MOST_SIMILAR)
            continue;
        n += n < CLI_MOST_SIMILAR;
        for (uint32_t i = n - 1; i > at; i--) {
            far[i] = far[i - 1];
            out[i] = out[i - 1];
        }
        far[at] = here;
        out[at] = *words;
    }
    out[n] = NULL;
}

const char *cli_find_similar_word(const char *typed, const char *const *words)
{
    const char *nearest = NULL;
    /* At most one wrong letter in three; at least one. */
    size_t least = strlen(typed) < 6 ? 1 : strlen(typed) / 3;
    for (; *words; words++) {
        size_t far = compute_edit_distance(typed, *words);
        if (!has_digits_of(*words, typed))
            far = SIZE_MAX;
        /* A prefix counts as similar, too. */
        if (strlen(typed) >= 3 && strncmp(typed, *words, strlen(typed)) == 0)
            far = 1;
        if (far <= least && (!nearest || far < least)) {
            nearest = *words;
            least = far;
        }
    }
    return nearest;
}
