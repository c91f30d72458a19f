/* SPDX-License-Identifier: Apache-2.0 */
/* Text tables and breakdown bars for a plan's explanation. */
#include "report/page/report_internal.h"

#include "base/options.h"
#include "report/trace/json_text.h"

#include <inttypes.h>

/* Limits: columns of a table; parts of a breakdown. */
enum { MOST_COLUMNS = 20, MOST_PARTS = 1000 };

/* Fails with LH_EINVAL if a text is not UTF-8. */
static lh_status check_texts(const char *const *texts, uint32_t n,
                             lh_error *err)
{
    for (uint32_t i = 0; i < n; i++)
        if (!lhi_is_utf8(texts[i]))
            return lhi_fail(err, LH_EINVAL, "a text is not UTF-8");
    return LH_OK;
}

/* Appends n strings as a JSON list. */
static void add_texts(lhi_text *out, const char *const *texts, uint32_t n)
{
    lhi_text_puts(out, "[");
    for (uint32_t i = 0; i < n; i++) {
        lhi_text_puts(out, i ? "," : "");
        lhi_json_add_string(out, texts[i]);
    }
    lhi_text_puts(out, "]");
}

lh_status lh_report_add_breakdown(lh_report *report, const char *title,
                                  uint32_t n_parts,
                                  const lh_report_breakdown_part *parts,
                                  lh_error *err)
{
    lhi_text item = {0};
    if (n_parts > MOST_PARTS)
        return lhi_fail(err, LH_EINVAL, "more than %d parts", MOST_PARTS);
    LHI_TRY(check_texts(&title, 1, err));
    for (uint32_t i = 0; i < n_parts; i++) {
        LHI_TRY(check_texts(&parts[i].name, 1, err));
        if (parts[i].ns < 0)
            return lhi_fail(err, LH_EINVAL, "part %" PRIu32 " is negative", i);
    }
    lhi_text_puts(&item, "{\"parts\":");
    lhi_json_add_string(&item, title);
    lhi_text_puts(&item, ",\"list\":[");
    for (uint32_t i = 0; i < n_parts; i++) {
        lhi_text_puts(&item, i ? ",[" : "[");
        lhi_json_add_string(&item, parts[i].name);
        lhi_text_printf(&item, ",%" PRId64 "]", parts[i].ns);
    }
    lhi_text_puts(&item, "]}");
    return lhi_report_add_item(&report->reasons, &item, err);
}

lh_status lh_report_add_memory(lh_report *report, const char *device,
                               int64_t limit_bytes, uint32_t n_kinds,
                               const lh_report_memory_kind *kinds,
                               lh_error *err)
{
    lhi_text item = {0};
    if (n_kinds > MOST_PARTS)
        return lhi_fail(err, LH_EINVAL, "more than %d kinds", MOST_PARTS);
    LHI_TRY(check_texts(&device, 1, err));
    for (uint32_t i = 0; i < n_kinds; i++) {
        LHI_TRY(check_texts(&kinds[i].name, 1, err));
        if (kinds[i].bytes < 0)
            return lhi_fail(err, LH_EINVAL, "kind %" PRIu32 " is negative", i);
    }
    lhi_text_puts(&item, "{\"name\":");
    lhi_json_add_string(&item, device);
    lhi_text_printf(&item, ",\"limit\":%" PRId64 ",\"parts\":[", limit_bytes);
    for (uint32_t i = 0; i < n_kinds; i++) {
        lhi_text_puts(&item, i ? ",[" : "[");
        lhi_json_add_string(&item, kinds[i].name);
        lhi_text_printf(&item, ",%" PRId64 "]", kinds[i].bytes);
    }
    lhi_text_puts(&item, "]}");
    return lhi_report_add_item(&report->memory, &item, err);
}

lh_status lh_report_add_card(lh_report *report, const char *name,
                             const char *value, const char *more, lh_error *err)
{
    const char *texts[] = {name, value, more};
    lhi_text item = {0};
    LHI_TRY(check_texts(texts, 3, err));
    add_texts(&item, texts, 3);
    return lhi_report_add_item(&report->cards, &item, err);
}

lh_status lh_report_add_table(lh_report *report, const lh_report_table *table,
                              lh_error *err)
{
    lhi_text item = {0};
    lh_report_table t;
    LHI_TRY(LHI_OPTIONS_COPY(lh_report_table, &t, table, err));
    if (t.n_columns == 0 || t.n_columns > MOST_COLUMNS)
        return lhi_fail(err, LH_EINVAL, "a table of %" PRIu32 " columns",
                        t.n_columns);
    LHI_TRY(check_texts(&t.title, 1, err));
    LHI_TRY(check_texts(t.head, t.n_columns, err));
    lhi_text_puts(&item, "{\"table\":");
    lhi_json_add_string(&item, t.title);
    lhi_text_puts(&item, ",\"head\":");
    add_texts(&item, t.head, t.n_columns);
    lhi_text_puts(&item, "}");
    LHI_TRY(lhi_report_add_item(&report->reasons, &item, err));
    report->n_columns = t.n_columns;
    return LH_OK;
}

lh_status lh_report_add_cells(lh_report *report, uint32_t n_cells,
                              const char *const *cells, lh_error *err)
{
    lhi_text item = {0};
    if (report->n_columns == 0 || n_cells != report->n_columns)
        return lhi_fail(err, LH_EINVAL,
                        "%" PRIu32 " cells for a table of %" PRIu32 " columns",
                        n_cells, report->n_columns);
    LHI_TRY(check_texts(cells, n_cells, err));
    lhi_text_puts(&item, "{\"cells\":");
    add_texts(&item, cells, n_cells);
    lhi_text_puts(&item, "}");
    return lhi_report_add_item(&report->reasons, &item, err);
}
