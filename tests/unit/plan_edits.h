/* SPDX-License-Identifier: Apache-2.0 */
/* Plans edited by hand. */
#ifndef TEST_PLAN_EDITS_H
#define TEST_PLAN_EDITS_H

#include "test.h"

#include <stdlib.h>
#include <string.h>

/* The text with the value of the first "key": after `from` replaced, for the
 * caller to free. */
static inline char *edited(const char *text, const char *from, const char *key,
                           const char *value)
{
    const char *at = from ? strstr(text, from) : text;
    at = at ? strstr(at, key) : NULL;
    CHECK_MSG(at != NULL, "there is no %s after %s", key, from ? from : "");
    if (!at)
        return NULL;
    at += strlen(key);
    at += strcspn(at, ":") + 2;
    size_t before = (size_t)(at - text), rest = strcspn(at, ",\n");
    char *out = malloc(strlen(text) + strlen(value) + 1);
    if (!out)
        exit(1);
    memcpy(out, text, before);
    strcpy(out + before, value);
    strcat(out + before, at + rest);
    return out;
}

#endif
