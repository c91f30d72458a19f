/* SPDX-License-Identifier: Apache-2.0 */
/* Detects the format that a text declares. */
#include <longhaul/experimental/status.h>

#include <string.h>

char *lh_text_detect_kind(const char *text, char *kind)
{
    *kind = '\0';
    for (const char *p = text; (p = strstr(p, "longhaul")) != NULL; p++) {
        const char *before = p, *after = p + strlen("longhaul");
        while (before > text && strchr(" \t\"'", before[-1]))
            before--;
        if (before > text && !strchr("\n{,", before[-1]))
            continue;
        after += strspn(after, "\"' \t");
        if (*after++ != ':')
            continue;
        after += strspn(after, " \t\"'");
        size_t len = strspn(after, "abcdefghijklmnopqrstuvwxyz");
        if (after[len] != '/' || len >= LH_KIND_TEXT_SIZE)
            continue;
        memcpy(kind, after, len);
        kind[len] = '\0';
        return kind;
    }
    if (strstr(text, "\"traceEvents\""))
        strcpy(kind, "trace");
    return kind;
}
