/* SPDX-License-Identifier: Apache-2.0 */
#include "links.h"

uint32_t cli_find_link(const char *text, size_t len, cli_find_end find,
                       const void *context, cli_link *out)
{
    uint32_t n = 0;
    for (size_t i = 0; i < len; i++) {
        cli_link link = {.one_way = text[i] == '>'};
        if ((text[i] != '-' && text[i] != '>') ||
            !find(context, text, i, &link.from) ||
            !find(context, text + i + 1, len - i - 1, &link.to) ||
            link.from == link.to)
            continue;
        if (n++ == 0)
            *out = link;
    }
    return n;
}
