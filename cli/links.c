/* SPDX-License-Identifier: Apache-2.0 */
#include "links.h"

bool cli_find_link(const char *text, size_t len, cli_find_end find,
                   const void *context, cli_link *out)
{
    for (size_t i = 0; i < len; i++) {
        cli_link link = {.one_way = text[i] == '>'};
        if ((text[i] != '-' && text[i] != '>') ||
            !find(context, text, i, &link.from) ||
            !find(context, text + i + 1, len - i - 1, &link.to) ||
            link.from == link.to)
            continue;
        *out = link;
        return true;
    }
    return false;
}
