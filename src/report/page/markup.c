/* SPDX-License-Identifier: Apache-2.0 */
/* Markup helpers common to pictures and pages. */
#include "report/page/report_internal.h"

#include "base/options.h"

#include <inttypes.h>

void lhi_report_add_markup(lhi_text *out, const char *text)
{
    lhi_text shown = {0};
    lhi_text_add_escaped(&shown, text, SIZE_MAX);
    out->failed = out->failed || shown.failed;
    for (size_t i = 0; i < shown.len; i++) {
        if (shown.data[i] == '&')
            lhi_text_puts(out, "&amp;");
        else if (shown.data[i] == '<')
            lhi_text_puts(out, "&lt;");
        else if (shown.data[i] == '>')
            lhi_text_puts(out, "&gt;");
        else
            lhi_text_add(out, shown.data + i, 1);
    }
    lhi_text_fini(&shown);
}

void lhi_svg_add_hundredths(lhi_text *out, int64_t hundredths)
{
    int64_t rest = hundredths % 100;
    lhi_text_printf(out, "%" PRId64, hundredths / 100);
    if (rest)
        lhi_text_printf(out, rest % 10 ? ".%02d" : ".%d",
                        (int)(rest % 10 ? rest : rest / 10));
}

lh_status lhi_report_copy_svg_options(const lh_svg_options *given,
                                      lh_svg_options *mine, lh_error *err)
{
    lh_svg_options o;
    LHI_TRY(LHI_OPTIONS_COPY(lh_svg_options, &o, given, err));
    o.width = o.width ? o.width : 1200;
    if (o.width < 400 || o.width > 20000)
        return lhi_fail(err, LH_EINVAL,
                        "a picture %" PRIu32 " pixels wide; expected 400 to "
                        "20000",
                        o.width);
    *mine = o;
    return LH_OK;
}
