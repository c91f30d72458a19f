/* SPDX-License-Identifier: Apache-2.0 */
/* JSON strings without the JSON library, for code that also runs in a report's
 * page. */
#ifndef LHI_REPORT_TRACE_JSON_STRING_H
#define LHI_REPORT_TRACE_JSON_STRING_H

#include "base/escape.h"

/* Checks whether longhaul writes character `c` as \uXXXX in JSON strings:
 * unprintable characters and '<', which is unsafe in HTML. */
bool lhi_json_is_escaped(uint32_t character);
/* Appends a text as a quoted JSON string. Invalid UTF-8 sets text->failed, as a
 * failed allocation does; check with lhi_is_utf8() first. */
void lhi_json_add_string(lhi_text *text, const char *string);

#endif
