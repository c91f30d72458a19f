/* SPDX-License-Identifier: Apache-2.0 */
/* Parses links given by their end points. */
#ifndef CLI_LINKS_H
#define CLI_LINKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A link between two end points. */
typedef struct cli_link {
    uint32_t from, to; /* differ */
    bool one_way;      /* "a>b" */
} cli_link;

/* Resolves a name's first `len` characters; false: unknown. */
typedef bool (*cli_find_end)(const void *context, const char *name, size_t len,
                             uint32_t *out);

/* Parses a link between two names, "west-east" or "west>east", in the first
 * `len` characters of `text`. Names may contain dashes, so every split is
 * tried. Returns the number of valid splits (above 1: ambiguous); *out is the
 * first. */
uint32_t cli_find_link(const char *text, size_t len, cli_find_end find,
                       const void *context, cli_link *out);

#endif
