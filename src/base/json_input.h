/* SPDX-License-Identifier: Apache-2.0 */
/* JSON of others, read within bounds. */
#ifndef LHI_JSON_INPUT_H
#define LHI_JSON_INPUT_H

#include <jansson.h>
#include <stddef.h>

/* json_loadb() of a text of which the values take no more than 8 times its
 * bytes and 16 MiB, the text counted; else NULL, and why->text says so. Jansson
 * holds 50 to 300 bytes for each value, however short it is. */
json_t *lhi_json_load(const char *text, size_t len, size_t flags,
                      json_error_t *why);

#endif
