/* SPDX-License-Identifier: Apache-2.0 */
/* Escaping untrusted text for safe display: lh_text_escape() of status.h for
 * growing texts. */
#ifndef LHI_BASE_ESCAPE_H
#define LHI_BASE_ESCAPE_H

#include "base/text.h"

#include <stdint.h>

/* Decodes the UTF-8 character at `text`, which has `len` (at least 1) bytes
 * left, into the code point *out. Returns the character's length in bytes; 0:
 * invalid UTF-8. */
size_t lhi_utf8_decode(const char *text, size_t len, uint32_t *out);
/* Checks whether a string is valid UTF-8. */
bool lhi_is_utf8(const char *text);

/* Checks for characters that control a terminal or page, or that are invisible:
 * control characters, bidirectional controls, line separators, zero-width
 * spaces, tags. */
bool lhi_is_unprintable(uint32_t character);

enum { LHI_ESCAPE_BYTES = 16 }; /* bytes of one escaped character with NUL */

/* Formats a JSON string escape: \u202e, or a surrogate pair for characters
 * beyond 16 bits. Returns the length; `out` has LHI_ESCAPE_BYTES bytes. */
size_t lhi_json_escape(uint32_t character, char *out);

/* Appends a text as escaped by lh_text_escape(), cut to `columns` characters.
 */
void lhi_text_add_escaped(lhi_text *out, const char *text, size_t columns);
/* Appends JSON text as escaped by lh_json_escape(). */
void lhi_text_add_escaped_json(lhi_text *out, const char *json, size_t len);
/* Counts the characters that lh_text_escape() outputs for the text. */
size_t lhi_count_escaped_columns(const char *text);

#endif
