/* SPDX-License-Identifier: Apache-2.0 */
/* JSON values as compact text that any reader takes: characters that YAML
 * does not allow, that end a script in HTML, that end a line in JavaScript, or
 * that are not seen are written as \uXXXX. */
#ifndef LHI_JSONTEXT_H
#define LHI_JSONTEXT_H

#include "trace/jsonstring.h"

#include <jansson.h>

/* Adds the value, and releases it; NULL counts as a failed allocation. */
void lhi_json_add(lhi_text *text, json_t *value);
/* The same for a map that is to follow members already written: without its
 * opening brace. */
void lhi_json_add_rest(lhi_text *text, json_t *map);

#endif
