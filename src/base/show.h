/* SPDX-License-Identifier: Apache-2.0 */
/* Text that somebody else wrote, as a person may safely see it: lh_text_show()
 * of status.h for texts that grow. */
#ifndef LHI_SHOW_H
#define LHI_SHOW_H

#include "base/text.h"

#include <stdint.h>

/* Decodes the character at `text`, which has `len` bytes left, at least one;
 * returns its length, 0: no UTF-8. */
size_t lhi_utf8_decode(const char *text, size_t len, uint32_t *out);
bool lhi_utf8_ok(const char *text);

/* What acts on a terminal or a page in place of being seen there, or is not
 * seen at all: control characters, those that turn the direction of writing,
 * ends of lines, spaces of no width, tags. */
bool lhi_is_unseen(uint32_t character);

enum { LHI_SHOWN_CHARACTER = 16 }; /* bytes of one, escaped, and a NUL */

/* Within a string of JSON: \u202e, or the two halves of one beyond 16 bits;
 * returns the length. `out` has LHI_SHOWN_CHARACTER bytes. */
size_t lhi_json_escape(uint32_t character, char *out);

/* Adds the text as lh_text_show() has it, at most `columns` characters. */
void lhi_text_add_shown(lhi_text *out, const char *text, size_t columns);
/* Adds JSON as lh_json_show() has it. */
void lhi_text_add_json(lhi_text *out, const char *json, size_t len);
/* Characters of the form that lh_text_show() gives. */
size_t lhi_shown_columns(const char *text);

#endif
