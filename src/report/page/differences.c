/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a table that compares two configurations into the page's JSON. */
#include "report/page/report_internal.h"

#include "base/options.h"
#include "report/trace/json_text.h"

#include <inttypes.h>

/* Maximum number of table rows on a page. */
enum { MAX_ROWS = 1000 };

/* Fails with LH_EINVAL if a text in table row `i` is missing or is not UTF-8.
 */
static lh_status check_row(const lh_report_difference *row, uint32_t i,
                           lh_error *err)
{
    const char *const texts[] = {row->group, row->name, row->first,
                                 row->second};
    bool ok = lhi_is_utf8(row->change ? row->change : "");
    for (size_t k = 0; ok && k < sizeof texts / sizeof *texts; k++)
        ok = texts[k] && lhi_is_utf8(texts[k]);
    return ok ? LH_OK
              : lhi_fail(err, LH_EINVAL,
                         "rows[%" PRIu32 "]: a text is not UTF-8", i);
}

/* Copies and validates the caller's table; its texts stay borrowed. LH_EINVAL:
 * too many rows, or a text is not UTF-8. */
static lh_status copy_differences(const lh_report_differences *given,
                                  lh_report_differences *mine, lh_error *err)
{
    LHI_TRY(LHI_OPTIONS_COPY(lh_report_differences, mine, given, err));
    if (!mine->first || !mine->second || !lhi_is_utf8(mine->first) ||
        !lhi_is_utf8(mine->second))
        return lhi_fail(err, LH_EINVAL, "a name is not UTF-8 text");
    if (mine->n_rows > MAX_ROWS)
        return lhi_fail(err, LH_EINVAL, "more than %d rows", MAX_ROWS);
    for (uint32_t i = 0; i < mine->n_rows; i++)
        LHI_TRY(check_row(&mine->rows[i], i, err));
    return LH_OK;
}

lh_status lh_report_add_differences(lh_report *report,
                                    const lh_report_differences *differences,
                                    lh_error *err)
{
    lh_report_differences d;
    lhi_text item = {0};
    LHI_TRY(copy_differences(differences, &d, err));
    lhi_text_puts(&item, "{\"first\":");
    lhi_json_add_string(&item, d.first);
    lhi_text_puts(&item, ",\"second\":");
    lhi_json_add_string(&item, d.second);
    lhi_text_puts(&item, ",\"rows\":[");
    for (uint32_t i = 0; i < d.n_rows; i++) {
        const lh_report_difference *row = &d.rows[i];
        const char *const texts[] = {row->group, row->name, row->first,
                                     row->second,
                                     row->change ? row->change : ""};
        lhi_text_puts(&item, i ? ",[" : "[");
        for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
            lhi_json_add_string(&item, texts[k]);
            lhi_text_puts(&item, ",");
        }
        lhi_text_printf(&item, "%d]", (row->better > 0) - (row->better < 0));
    }
    lhi_text_puts(&item, "]}");
    return lhi_report_add_item(&report->differences, &item, err);
}
