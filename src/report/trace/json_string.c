/* SPDX-License-Identifier: Apache-2.0 */
#include "report/trace/json_string.h"

#include <string.h>

bool lhi_json_is_escaped(uint32_t c)
{
    return c == '<' || lhi_is_unprintable(c);
}

/* Returns the letter of a character's short JSON escape, such as 'n' for a line
 * feed; 0: it has none. */
static char get_escape_letter(uint32_t c)
{
    static const char of[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    const char *at = c && c < 128 ? strchr(of, (int)c) : NULL;
    return at ? letters[at - of] : '\0';
}

void lhi_json_add_string(lhi_text *text, const char *string)
{
    const char *p = string, *run = p, *end = p + strlen(p);
    lhi_text_puts(text, "\"");
    while (p < end) {
        uint32_t c;
        char one[LHI_ESCAPE_BYTES];
        size_t len = lhi_utf8_decode(p, (size_t)(end - p), &c);
        if (len == 0) {
            text->failed = true;
            return;
        }
        char letter = get_escape_letter(c);
        if (letter || c < 0x20 || lhi_json_is_escaped(c)) {
            lhi_text_add(text, run, (size_t)(p - run));
            run = p + len;
            if (letter)
                lhi_text_printf(text, "\\%c", letter);
            else
                lhi_text_add(text, one, lhi_json_escape(c, one));
        }
        p += len;
    }
    lhi_text_add(text, run, (size_t)(p - run));
    lhi_text_puts(text, "\"");
}
