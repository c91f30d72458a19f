/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a plan's recommendation, its map of sites and its Pareto front into
 * the page's JSON. */
#include "report/page/report_internal.h"

#include "base/options.h"
#include "report/trace/json_text.h"

#include <inttypes.h>
#include <math.h>

/* Maximum length of each list of a decision. */
enum { MAX_ITEMS = 1000 };

/* Fails with LH_EINVAL unless all n texts of entry `index` in the caller's list
 * `what` are present and UTF-8; the message names list and index. */
static lh_status check_texts(const char *const *texts, uint32_t n,
                             const char *what, uint32_t index, lh_error *err)
{
    for (uint32_t i = 0; i < n; i++)
        if (!texts[i] || !lhi_is_utf8(texts[i]))
            return lhi_fail(err, LH_EINVAL,
                            "%s[%" PRIu32 "]: a text is missing or not UTF-8",
                            what, index);
    return LH_OK;
}

/* Fails with LH_EINVAL if a site or a link of the recommendation's map has an
 * invalid text, index or number. */
static lh_status check_map(const lh_report_decision *d, lh_error *err)
{
    for (uint32_t i = 0; i < d->n_sites; i++) {
        const lh_report_site *s = &d->sites[i];
        const char *const texts[] = {s->name, s->gpus, s->holds};
        LHI_TRY(check_texts(texts, 3, "sites", i, err));
        if (!(s->used >= 0 && s->used <= 1))
            return lhi_fail(err, LH_EINVAL,
                            "sites[%" PRIu32 "]: used is not from 0 to 1", i);
    }
    for (uint32_t i = 0; i < d->n_links; i++) {
        const lh_report_site_link *l = &d->links[i];
        const char *const texts[] = {l->values, l->carries};
        LHI_TRY(check_texts(texts, 2, "links", i, err));
        if (l->from >= d->n_sites || l->to >= d->n_sites || l->from == l->to)
            return lhi_fail(err, LH_EINVAL,
                            "links[%" PRIu32 "]: does not join two sites", i);
        if (!isfinite(l->use))
            return lhi_fail(err, LH_EINVAL,
                            "links[%" PRIu32 "]: use is not a number", i);
    }
    return LH_OK;
}

/* Fails with LH_EINVAL if a plan in the recommendation's Pareto chart has an
 * invalid text or number. */
static lh_status check_tradeoffs(const lh_report_decision *d, lh_error *err)
{
    for (uint32_t i = 0; i < d->n_tradeoffs; i++) {
        const lh_report_tradeoff *x = &d->tradeoffs[i];
        const char *const texts[] = {x->name, x->mark ? x->mark : ""};
        LHI_TRY(check_texts(texts, 2, "tradeoffs", i, err));
        if (x->iteration_ns < 0 || x->peak_bytes < 0 || !isfinite(x->usd))
            return lhi_fail(err, LH_EINVAL,
                            "tradeoffs[%" PRIu32 "]: a number is out of range",
                            i);
    }
    return LH_OK;
}

/* Copies the caller's recommendation (lh_report_decision) into *mine and
 * validates it; its lists and texts stay borrowed. */
static lh_status copy_decision(const lh_report_decision *given,
                               lh_report_decision *mine, lh_error *err)
{
    LHI_TRY(LHI_OPTIONS_COPY(lh_report_decision, mine, given, err));
    const uint32_t counts[] = {mine->n_sentences, mine->n_sites, mine->n_links,
                               mine->n_notes, mine->n_tradeoffs};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (counts[i] > MAX_ITEMS)
            return lhi_fail(err, LH_EINVAL, "more than %d entries", MAX_ITEMS);
    for (uint32_t i = 0; i < mine->n_sentences; i++)
        LHI_TRY(check_texts(&mine->sentences[i], 1, "sentences", i, err));
    for (uint32_t i = 0; i < mine->n_notes; i++)
        LHI_TRY(check_texts(mine->notes + (size_t)i * 2, 2, "notes", i, err));
    LHI_TRY(check_map(mine, err));
    return check_tradeoffs(mine, err);
}

/* Appends a JSON member `key` whose value is the list of n strings. */
static void add_strings(lhi_text *out, const char *key, uint32_t n,
                        const char *const *texts)
{
    lhi_text_printf(out, "\"%s\":[", key);
    for (uint32_t i = 0; i < n; i++) {
        lhi_text_puts(out, i ? "," : "");
        lhi_json_add_string(out, texts[i]);
    }
    lhi_text_puts(out, "]");
}

/* Appends the sites and links of the recommendation's map as JSON. Shares are
 * integers in millionths, so that no locale affects them. */
static void add_map(lhi_text *out, const lh_report_decision *d)
{
    lhi_text_puts(out, ",\"sites\":[");
    for (uint32_t i = 0; i < d->n_sites; i++) {
        const lh_report_site *s = &d->sites[i];
        const char *const texts[] = {s->name, s->gpus, s->holds};
        lhi_text_puts(out, i ? ",{" : "{");
        add_strings(out, "texts", 3, texts);
        lhi_text_printf(out, ",\"used\":%lld}", llround(s->used * 1e6));
    }
    lhi_text_puts(out, "],\"links\":[");
    for (uint32_t i = 0; i < d->n_links; i++) {
        const lh_report_site_link *l = &d->links[i];
        const char *const texts[] = {l->values, l->carries};
        lhi_text_puts(out, i ? ",{" : "{");
        add_strings(out, "texts", 2, texts);
        lhi_text_printf(
            out, ",\"from\":%" PRIu32 ",\"to\":%" PRIu32 ",\"use\":%lld}",
            l->from, l->to, l->use < 0 ? -1 : llround(fmin(l->use, 1e6) * 1e6));
    }
    lhi_text_puts(out, "]");
}

/* Appends the plans of the recommendation's Pareto chart as JSON: iteration
 * time in ns, peak memory in bytes, cost in 1e-9 dollars (-1: unknown). */
static void add_tradeoffs(lhi_text *out, const lh_report_decision *d)
{
    lhi_text_puts(out, ",\"tradeoffs\":[");
    for (uint32_t i = 0; i < d->n_tradeoffs; i++) {
        const lh_report_tradeoff *x = &d->tradeoffs[i];
        const char *const texts[] = {x->name, x->mark ? x->mark : ""};
        lhi_text_puts(out, i ? ",{" : "{");
        add_strings(out, "texts", 2, texts);
        lhi_text_printf(
            out, ",\"ns\":%" PRId64 ",\"bytes\":%" PRId64 ",\"usd\":%lld}",
            x->iteration_ns, x->peak_bytes,
            x->usd < 0 ? -1 : llround(fmin(x->usd, 1e9) * 1e9));
    }
    lhi_text_puts(out, "]");
}

lh_status lh_report_set_decision(lh_report *report,
                                 const lh_report_decision *decision,
                                 lh_error *err)
{
    lh_report_decision d;
    lhi_text json = {0};
    LHI_TRY(copy_decision(decision, &d, err));
    lhi_text_puts(&json, "{");
    add_strings(&json, "sentences", d.n_sentences, d.sentences);
    lhi_text_puts(&json, ",");
    add_strings(&json, "notes", d.n_notes * 2, d.notes);
    add_map(&json, &d);
    add_tradeoffs(&json, &d);
    lhi_text_puts(&json, "}");
    if (json.failed) {
        lhi_text_fini(&json);
        return lhi_fail_nomem(err);
    }
    lhi_text_fini(&report->decision);
    report->decision = json;
    return LH_OK;
}
