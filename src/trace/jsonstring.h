/* SPDX-License-Identifier: Apache-2.0 */
/* Strings of JSON, without the library for the rest of it: what also runs in
 * the page of a report writes these. */
#ifndef LHI_JSONSTRING_H
#define LHI_JSONSTRING_H

#include "base/show.h"

/* What is written as \uXXXX within strings; see jsontext.h. */
bool lhi_json_must_escape(uint32_t character);
/* A string; one that is not UTF-8 counts as a failed allocation, so check
 * first with lhi_utf8_ok(). */
void lhi_json_add_string(lhi_text *text, const char *string);

#endif
