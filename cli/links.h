/* SPDX-License-Identifier: Apache-2.0 */
/* Links as they are typed: by their ends. */
#ifndef CLI_LINKS_H
#define CLI_LINKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct cli_link {
    uint32_t from, to; /* differ */
    bool one_way;      /* "a>b" */
} cli_link;

/* What the first `len` letters of a name stand for; false: nothing. */
typedef bool (*cli_find_end)(const void *context, const char *name, size_t len,
                             uint32_t *out);

/* "west-east" or "west>east" in the first `len` letters of `text`; names may
 * have dashes in them, so that each is tried. Returns how many of them divide
 * it into two ends, so that above 1 nobody knows which are meant; *out is the
 * first. */
uint32_t cli_find_link(const char *text, size_t len, cli_find_end find,
                       const void *context, cli_link *out);

#endif
