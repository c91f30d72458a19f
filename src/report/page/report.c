/* SPDX-License-Identifier: Apache-2.0 */
/* The HTML report. All additions are converted to the page's JSON at once, so a
 * report holds only text; report.js draws it. */
#include "report/page/report_internal.h"

#include "base/options.h"
#include "report/trace/json_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Maximum point count of a chart, over all its series. */
enum { MAX_POINTS = 1 << 20 };

lh_status lh_report_make(const char *title, lh_report **out, lh_error *err)
{
    if (!lhi_is_utf8(title))
        return lhi_fail(err, LH_EINVAL, "the title is not UTF-8 text");
    lh_report *report = calloc(1, sizeof *report);
    size_t len = strlen(title);
    char *copy = malloc(len + 1);
    if (!report || !copy) {
        free(report);
        free(copy);
        return lhi_fail_nomem(err);
    }
    memcpy(copy, title, len + 1);
    report->title = copy;
    *out = report;
    return LH_OK;
}

/* Frees a report; ignores NULL. */
void lh_report_free(lh_report *report)
{
    if (!report)
        return;
    free(report->title);
    lhi_text_fini(&report->facts);
    lhi_text_fini(&report->cards);
    lhi_text_fini(&report->memory);
    lhi_text_fini(&report->varied);
    lhi_text_fini(&report->differences);
    lhi_text_fini(&report->traces);
    lhi_text_fini(&report->rows);
    lhi_text_fini(&report->sweeps);
    lhi_text_fini(&report->reasons);
    lhi_text_fini(&report->iteration_charts);
    lhi_text_fini(&report->diagnosis);
    lhi_text_fini(&report->decision);
    lhi_text_fini(&report->what_if);
    free(report);
}

lh_status lhi_report_add_item(lhi_text *list, lhi_text *item, lh_error *err)
{
    lhi_text_puts(item, ",\n");
    if (!item->failed)
        lhi_text_add(list, item->data, item->len);
    bool failed = item->failed || list->failed;
    list->failed = false; /* the list is unchanged */
    lhi_text_fini(item);
    return failed ? lhi_fail_nomem(err) : LH_OK;
}

lh_status lh_report_add_fact(lh_report *report, const char *name,
                             const char *value, lh_error *err)
{
    if (!lhi_is_utf8(name) || !lhi_is_utf8(value))
        return lhi_fail(err, LH_EINVAL, "a fact is not UTF-8 text");
    lhi_text item = {0};
    lhi_json_add(&item, json_pack("[s, s]", name, value));
    return lhi_report_add_item(&report->facts, &item, err);
}

lh_status lh_report_add_trace(lh_report *report, const lh_trace *trace,
                              const char *label,
                              const lh_report_analysis *analysis, lh_error *err)
{
    if (!lhi_is_utf8(label))
        return lhi_fail(err, LH_EINVAL, "a label is not UTF-8 text");
    lh_report_analysis a;
    LHI_TRY(lhi_report_copy_analysis(trace, analysis, &a, err));
    lhi_text item = {0};
    lh_status status = lhi_page_add_trace(&item, trace, label, &a, err);
    if (status != LH_OK) {
        lhi_text_fini(&item);
        return status;
    }
    return lhi_report_add_item(&report->traces, &item, err);
}

lh_status lh_report_add_row(lh_report *report, const lh_report_row *row,
                            lh_error *err)
{
    const char *why = row->why ? row->why : "";
    if (!lhi_is_utf8(row->method) || !lhi_is_utf8(row->status) ||
        !lhi_is_utf8(why))
        return lhi_fail(err, LH_EINVAL, "a row's text is not UTF-8");
    if (!isfinite(row->bubble_ratio))
        return lhi_fail(err, LH_EINVAL, "a row's bubble ratio is not a number");
    lhi_text item = {0};
    lhi_page_add_row(&item, row);
    return lhi_report_add_item(&report->rows, &item, err);
}

/* --- sweeps -------------------------------------------------------------- */

lh_status lhi_report_copy_sweep(const lh_report_sweep *given,
                                lh_report_sweep *mine, lh_error *err)
{
    LHI_TRY(LHI_OPTIONS_COPY(lh_report_sweep, mine, given, err));
    const lh_report_sweep *s = mine;
    if ((uint64_t)s->n_points * (s->n_series ? s->n_series : 1) > MAX_POINTS)
        return lhi_fail(err, LH_EINVAL, "a sweep of more than %d points",
                        MAX_POINTS);
    for (uint32_t i = 0; i < s->n_points; i++)
        if (!isfinite(s->xs[i]) || (i > 0 && s->xs[i] <= s->xs[i - 1]))
            return lhi_fail(err, LH_EINVAL,
                            "xs[%" PRIu32 "]: must be numbers in increasing "
                            "order",
                            i);
    bool ok = lhi_is_utf8(s->x) && lhi_is_utf8(s->title ? s->title : "");
    for (uint32_t i = 0; ok && i < s->n_series; i++)
        ok = lhi_is_utf8(s->series[i]);
    if (!ok)
        return lhi_fail(err, LH_EINVAL, "a sweep's text is not UTF-8");
    return LH_OK;
}

int64_t lhi_report_sweep_baseline(const lh_report_sweep *sweep)
{
    int64_t best = sweep->baseline_ns;
    size_t n = (size_t)sweep->n_points * sweep->n_series;
    for (size_t i = 0; sweep->baseline_ns <= 0 && i < n; i++)
        if (sweep->makespan_ns[i] > 0 &&
            (best <= 0 || sweep->makespan_ns[i] < best))
            best = sweep->makespan_ns[i];
    return best > 0 ? best : 1;
}

lh_status lh_report_add_sweep(lh_report *report, const lh_report_sweep *sweep,
                              lh_error *err)
{
    lh_report_sweep all;
    LHI_TRY(lhi_report_copy_sweep(sweep, &all, err));
    lhi_text item = {0};
    lhi_text_puts(&item, "{\"title\":");
    lhi_json_add_string(&item, all.title ? all.title : "");
    lhi_text_puts(&item, ",\"x\":");
    lhi_json_add_string(&item, all.x);
    lhi_text_printf(&item, ",\"baseline\":%" PRId64 ",\"xs\":[",
                    lhi_report_sweep_baseline(&all));
    for (uint32_t i = 0; i < all.n_points; i++) {
        lhi_text_puts(&item, i ? "," : "");
        lhi_json_add(&item, json_real(all.xs[i]));
    }
    lhi_text_puts(&item, "],\"series\":[");
    for (uint32_t s = 0; s < all.n_series; s++) {
        lhi_text_puts(&item, s ? ",[" : "[");
        lhi_json_add_string(&item, all.series[s]);
        for (uint32_t i = 0; i < all.n_points; i++)
            lhi_text_printf(&item, ",%" PRId64,
                            all.makespan_ns[(size_t)s * all.n_points + i]);
        lhi_text_puts(&item, "]");
    }
    lhi_text_puts(&item, "]}");
    return lhi_report_add_item(&report->sweeps, &item, err);
}

lh_status lh_report_add_iterations(lh_report *report,
                                   const lh_report_iterations *iterations,
                                   lh_error *err)
{
    lh_report_iterations c;
    lhi_text item = {0};
    LHI_TRY(lhi_report_copy_iterations(iterations, &c, err));
    lhi_text_puts(&item, "<section class=\"panel\">\n<div class=\"panel-head\">"
                         "<h2>");
    lhi_report_add_markup(&item, c.title ? c.title : "Iterations");
    lhi_text_puts(&item, "</h2></div>\n<div class=\"scroll\">\n");
    lh_status status = lhi_report_draw_iterations(&c, 860, true, &item, err);
    lhi_text_puts(&item, "</div>\n</section>\n");
    if (status == LH_OK)
        lhi_text_add(&report->iteration_charts, item.data, item.len);
    if (status == LH_OK && (item.failed || report->iteration_charts.failed))
        status = lhi_fail_nomem(err);
    lhi_text_fini(&item);
    return status;
}

/* --- page ---------------------------------------------------------------- */

/* Appends a JSON member `key` with a list. `items` holds its elements, each
 * followed by a comma and a newline; drops the last comma. */
static void add_list(lhi_text *out, const char *key, const lhi_text *items)
{
    lhi_text_printf(out, ",\n\"%s\":[\n", key);
    if (items->len > 2)
        /* without the final comma */
        lhi_text_add(out, items->data, items->len - 2);
    lhi_text_puts(out, "]");
}

/* Adds the page's data as one JSON object, with characters that are unsafe in
 * HTML escaped. */
static void add_data(lhi_text *page, const lh_report *report)
{
    lhi_text json = {0}, *out = &json;
    lhi_text_puts(out, "{\"longhaul\":\"" LONGHAUL_VERSION "\",\"title\":");
    lhi_json_add_string(out, report->title);
    add_list(out, "facts", &report->facts);
    add_list(out, "cards", &report->cards);
    add_list(out, "memory", &report->memory);
    add_list(out, "varied", &report->varied);
    add_list(out, "differences", &report->differences);
    add_list(out, "traces", &report->traces);
    add_list(out, "rows", &report->rows);
    add_list(out, "sweeps", &report->sweeps);
    add_list(out, "reasons", &report->reasons);
    if (report->diagnosis.len) {
        lhi_text_puts(out, ",\n\"diagnosis\":");
        lhi_text_add(out, report->diagnosis.data, report->diagnosis.len);
    }
    if (report->decision.len) {
        lhi_text_puts(out, ",\n\"decision\":");
        lhi_text_add(out, report->decision.data, report->decision.len);
    }
    lhi_text_puts(out, "}");
    if (!json.failed)
        lhi_page_add_visible_json(page, json.data, json.len);
    page->failed = page->failed || json.failed;
    lhi_text_fini(&json);
}

/* Appends the page template report.html with its @...@ placeholders filled
 * in. */
static void add_page(lhi_text *out, const lh_report *report)
{
    const char *page = lhi_report_page_html;
    for (;;) {
        const char *mark = strchr(page, '@');
        if (!mark) {
            lhi_text_puts(out, page);
            return;
        }
        lhi_text_add(out, page, (size_t)(mark - page));
        const char *end = strchr(mark + 1, '@');
        size_t len = end ? (size_t)(end + 1 - mark) : 1;
        if (len == 7 && memcmp(mark, "@TITLE@", 7) == 0)
            lhi_report_add_markup(out, report->title);
        else if (len == 5 && memcmp(mark, "@CSS@", 5) == 0)
            lhi_text_puts(out, lhi_report_page_css);
        else if (len == 9 && memcmp(mark, "@COURSES@", 9) == 0)
            lhi_text_puts(out, report->iteration_charts.len
                                   ? report->iteration_charts.data
                                   : "");
        else if (len == 6 && memcmp(mark, "@DATA@", 6) == 0)
            add_data(out, report);
        else if (len == 9 && memcmp(mark, "@WHAT_IF@", 9) == 0)
            lhi_text_puts(out,
                          report->what_if.len ? report->what_if.data : "null");
        else if (len == 6 && memcmp(mark, "@WASM@", 6) == 0)
            lhi_text_puts(out, report->what_if.len ? lhi_report_page_wasm : "");
        else if (len == 4 && memcmp(mark, "@JS@", 4) == 0)
            lhi_text_puts(out, lhi_report_page_js);
        else
            lhi_text_add(out, mark, len = 1);
        page = mark + len;
    }
}

lh_status lh_report_format_html(const lh_report *report, char **text,
                                size_t *len, lh_error *err)
{
    lhi_text out = {0};
    add_page(&out, report);
    return lhi_text_take(&out, text, len, err);
}
