/* SPDX-License-Identifier: Apache-2.0 */
/* Writes varying iterations as a histogram in the page's JSON. */
#include "report/page/report_internal.h"

#include "base/options.h"
#include "report/trace/json_text.h"
#include "schedule/simulator/jitter_samples.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Limits: iterations of a histogram; bars that fit on the page. */
enum { MOST_TIMES = 1000000, MOST_BARS = 120 };

/* Returns the bar width, in ns, of a histogram from least_ns to most_ns: 1, 2
 * or 5 times a power of ten. Bars begin at multiples of it, and there are at
 * most MOST_BARS. */
static int64_t compute_bar_width(int64_t least_ns, int64_t most_ns)
{
    static const int64_t factors[] = {1, 2, 5};
    int64_t power = 1;
    for (int i = 0;; i++) {
        if (i > 0 && i % 3 == 0)
            power *= 10;
        const int64_t width = power * factors[i % 3];
        if (most_ns / width - least_ns / width < MOST_BARS)
            return width;
    }
}

/* Adds a histogram of sorted times: the first bar's start and the bar width in
 * ns, and the counts. */
static void add_bars(lhi_text *out, const int64_t *sorted, uint32_t n)
{
    const int64_t width = compute_bar_width(sorted[0], sorted[n - 1]);
    const int64_t first = sorted[0] / width, last = sorted[n - 1] / width;
    lhi_text_printf(out,
                    ",\"from\":%" PRId64 ",\"width\":%" PRId64 ",\"counts\":[",
                    first * width, width);
    for (int64_t bar = first, i = 0; bar <= last; bar++) {
        uint32_t count = 0;
        for (; i < n && sorted[i] / width == bar; i++)
            count++;
        lhi_text_printf(out, "%s%" PRIu32, bar > first ? "," : "", count);
    }
    lhi_text_puts(out, "]");
}

/* Copies and validates the caller's distribution; its times stay borrowed.
 * LH_EINVAL: a time is negative, or their number is out of range. */
static lh_status copy_distribution(const lh_report_distribution *given,
                                   lh_report_distribution *mine, lh_error *err)
{
    LHI_TRY(LHI_OPTIONS_COPY(lh_report_distribution, mine, given, err));
    if (!mine->title || !lhi_is_utf8(mine->title))
        return lhi_fail(err, LH_EINVAL, "a title is not UTF-8 text");
    if (mine->n < 1 || mine->n > MOST_TIMES)
        return lhi_fail(err, LH_EINVAL,
                        "%" PRIu32 " varying iterations; expected 1 to %d",
                        mine->n, MOST_TIMES);
    for (uint32_t i = 0; i < mine->n; i++)
        if (mine->ns[i] < 0)
            return lhi_fail(err, LH_EINVAL, "ns[%" PRIu32 "] is negative", i);
    if (mine->nominal_ns < 0)
        return lhi_fail(err, LH_EINVAL, "nominal_ns is negative");
    return LH_OK;
}

lh_status lh_report_add_distribution(lh_report *report,
                                     const lh_report_distribution *varied,
                                     lh_error *err)
{
    lh_report_distribution v;
    lh_jitter_result sum;
    lhi_text item = {0};
    LHI_TRY(copy_distribution(varied, &v, err));
    int64_t *ns = malloc(v.n * sizeof *ns);
    if (!ns)
        return lhi_fail_nomem(err);
    memcpy(ns, v.ns, v.n * sizeof *ns);
    lhi_jitter_summarise(ns, v.n, &sum); /* sorts in place */
    lhi_text_puts(&item, "{\"title\":");
    lhi_json_add_string(&item, v.title);
    lhi_text_printf(&item,
                    ",\"n\":%" PRIu32 ",\"usual\":%" PRId64 ",\"mean\":%lld"
                    ",\"p50\":%" PRId64 ",\"p95\":%" PRId64 ",\"p99\":%" PRId64
                    ",\"least\":%" PRId64 ",\"most\":%" PRId64,
                    v.n, v.nominal_ns, llround(sum.mean_ns), sum.p50_ns,
                    sum.p95_ns, sum.p99_ns, sum.min_ns, sum.max_ns);
    add_bars(&item, ns, v.n);
    lhi_text_puts(&item, "}");
    free(ns);
    return lhi_report_add_item(&report->varied, &item, err);
}
