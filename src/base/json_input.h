/* SPDX-License-Identifier: Apache-2.0 */
/* Bounded parsing of untrusted JSON. */
#ifndef LHI_BASE_JSON_INPUT_H
#define LHI_BASE_JSON_INPUT_H

#include <jansson.h>
#include <stddef.h>

/* Parses JSON text by json_loadb() with its `flags`, but only if the parsed
 * values, including the text, need at most 8 times its size plus 16 MiB.
 * Otherwise returns NULL with a message in why->text. Jansson allocates 50 to
 * 300 bytes per value, however short. */
json_t *lhi_json_load(const char *text, size_t len, size_t flags,
                      json_error_t *why);

#endif
