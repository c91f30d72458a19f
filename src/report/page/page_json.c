/* SPDX-License-Identifier: Apache-2.0 */
#include "report/page/page_json.h"

#include "base/escape.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* Appends a comparison table row as JSON. Writes ratios as integers in units of
 * 1e-9, to be locale-independent. */
void lhi_page_add_row(lhi_text *out, const lh_report_row *row)
{
    lhi_text_puts(out, "{\"method\":");
    lhi_json_add_string(out, row->method);
    lhi_text_puts(out, ",\"status\":");
    lhi_json_add_string(out, row->status);
    lhi_text_printf(out,
                    ",\"makespan\":%" PRId64 ",\"bubble\":%lld"
                    "e-9,\"peak\":%" PRId64 ",\"why\":",
                    row->makespan_ns, llround(row->bubble_ratio * 1e9),
                    row->peak_memory);
    lhi_json_add_string(out, row->why ? row->why : "");
    lhi_text_puts(out, "}");
}

void lhi_page_add_visible_json(lhi_text *out, const char *json, size_t len)
{
    size_t done = 0;
    for (size_t i = 0; i + 5 < len; i++) {
        const char *p = json + i;
        if (p[0] != '\\')
            continue;
        if (p[1] == 'u') {
            const char digits[5] = {p[2], p[3], p[4], p[5], '\0'};
            uint32_t c = (uint32_t)strtoul(digits, NULL, 16);
            if (lhi_is_unprintable(c) || (c >= 0xd800 && c < 0xe000)) {
                lhi_text_add(out, json + done, i - done);
                lhi_text_puts(out, "\\");
                done = i;
            }
        }
        i++; /* an escaped character starts no escape */
    }
    lhi_text_add(out, json + done, len - done);
}

char lhi_pass_letter(const lh_pass *pass)
{
    static const char letters[] = "FDWB";
    return pass->kind <= LH_B ? letters[pass->kind] : '?';
}
