/* SPDX-License-Identifier: Apache-2.0 */
/* Shared helpers for the fuzz targets. A target is a function from bytes that
 * must not crash, hang, leak or violate a property; REQUIRE aborts on a
 * violation. Built with libFuzzer by -Dfuzz=true, and always with replay.c. */
#ifndef FUZZ_H
#define FUZZ_H

#include <longhaul/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Runs one input; libFuzzer's entry point. Every target defines it. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(condition, ...)                                                \
    do {                                                                       \
        if (!(condition)) {                                                    \
            fprintf(stderr, "%s:%d: broken: %s: ", __FILE__, __LINE__,         \
                    #condition);                                               \
            fprintf(stderr, __VA_ARGS__);                                      \
            fputc('\n', stderr);                                               \
            abort();                                                           \
        }                                                                      \
    } while (0)

/* Checks that a rejected input has an error message and no result. */
static inline void fuzz_refused(lh_status status, const lh_error *err,
                                const void *out)
{
    REQUIRE(status != LH_OK && out == NULL, "status %d", (int)status);
    REQUIRE(err->code == status && err->text[0] != '\0' &&
                memchr(err->text, '\0', sizeof err->text),
            "status %d without a message", (int)status);
}

/* Requires that `call` succeeds. */
#define MUST(call, err)                                                        \
    do {                                                                       \
        lh_status must_status = (call);                                        \
        REQUIRE(must_status == LH_OK, "%s", (err).text);                       \
    } while (0)

/* Returns the text up to the first NUL (or the end) and advances `rest` beyond
 * it. */
static inline const char *fuzz_cut(const char **rest, size_t *rest_len,
                                   size_t *len)
{
    const char *text = *rest, *end = memchr(text, '\0', *rest_len);
    *len = end ? (size_t)(end - text) : *rest_len;
    size_t used = *len + (end ? 1u : 0u);
    *rest += used;
    *rest_len -= used;
    return text;
}

/* Defines `static type *name(text, len)`: parses and formats the input, then
 * parses and formats the result again. Both texts must be equal. Returns the
 * first object, or NULL if the parser rejects the input. */
#define FUZZ_ROUND_TRIP(name, type, PARSE, format, release)                    \
    static type *name(const char *text, size_t len)                            \
    {                                                                          \
        type *first = NULL, *second = NULL;                                    \
        lh_error err = {0};                                                    \
        lh_status status = PARSE(text, len, &first, &err);                     \
        if (status != LH_OK) {                                                 \
            fuzz_refused(status, &err, first);                                 \
            return NULL;                                                       \
        }                                                                      \
        char *a = NULL, *b = NULL;                                             \
        size_t a_len = 0, b_len = 0;                                           \
        MUST(format(first, &a, &a_len, &err), err);                            \
        status = PARSE(a, a_len, &second, &err);                               \
        REQUIRE(status == LH_OK, "%s\n%s", err.text, a);                       \
        MUST(format(second, &b, &b_len, &err), err);                           \
        REQUIRE(a_len == b_len && memcmp(a, b, a_len) == 0,                    \
                "reads back as another\n%s\n%s", a, b);                        \
        lh_text_free(a);                                                       \
        lh_text_free(b);                                                       \
        release(second);                                                       \
        return first;                                                          \
    }

#endif
