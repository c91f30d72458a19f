/* SPDX-License-Identifier: Apache-2.0 */
/* JSON values as compact text that any reader accepts. Characters that YAML
 * forbids, that end a script in HTML or a line in JavaScript, or that are
 * invisible are written as \uXXXX. */
#ifndef LHI_REPORT_TRACE_JSON_TEXT_H
#define LHI_REPORT_TRACE_JSON_TEXT_H

#include "report/trace/json_string.h"

#include <jansson.h>

/* Appends a JSON value and releases it; NULL counts as a failed allocation. */
void lhi_json_add(lhi_text *text, json_t *value);
/* Appends an object's members after members already written, that is, without
 * its opening brace; releases the object. */
void lhi_json_add_members(lhi_text *text, json_t *map);

#endif
