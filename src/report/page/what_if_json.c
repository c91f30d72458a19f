/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the inputs for the page's own simulations: the pipeline for its
 * simulator and as a file for download, the schedule, and the options. */
#include "report/page/report_internal.h"

#include "base/options.h"
#include "schedule/pipeline/file/schedule_csv.h"
#include "schedule/pipeline/file/serialize.h"

#include <longhaul/experimental/schedule.h>

#include <inttypes.h>
#include <stdlib.h>

/* Adds a JSON member with a string value, after a comma; NULL becomes "". */
static void add_member(lhi_text *out, const char *key, const char *value)
{
    lhi_text_printf(out, ",\n\"%s\":", key);
    lhi_json_add_string(out, value ? value : "");
}

/* Adds the pipeline twice: as a file's text, and in the page simulator's serial
 * form. */
static lh_status add_pipeline(lhi_text *out, const lh_pipeline *p,
                              lh_error *err)
{
    char *file = NULL;
    lhi_text numbers = {0};
    lh_status status = lh_pipeline_format(p, &file, NULL, err);
    if (status == LH_OK)
        status = lhi_pipeline_serialize(p, &numbers, err);
    if (status == LH_OK) {
        add_member(out, "file", file);
        add_member(out, "pipeline", numbers.data);
    }
    lh_text_free(file);
    lhi_text_fini(&numbers);
    return status;
}

/* Adds the schedule: its pass order per device, and its message order per link.
 */
static lh_status add_schedule(lhi_text *out, const lh_schedule *s,
                              lh_error *err)
{
    char *rows = NULL, *links = NULL;
    lh_status status = lh_schedule_format(s, &rows, NULL, err);
    if (status == LH_OK)
        status = lhi_schedule_format_links(s, &links, NULL, err);
    if (status == LH_OK) {
        add_member(out, "rows", rows);
        add_member(out, "links", links);
    }
    lh_text_free(rows);
    lh_text_free(links);
    return status;
}

lh_status lh_report_set_what_if(lh_report *report,
                                const lh_report_what_if *what_if, lh_error *err)
{
    lh_report_what_if w;
    lh_sim_options sim;
    lhi_text out = {0};
    LHI_TRY(LHI_OPTIONS_COPY(lh_report_what_if, &w, what_if, err));
    LHI_TRY(LHI_OPTIONS_COPY(lh_sim_options, &sim, w.sim, err));
    if (w.after_ns < 0 || !(w.tokens >= 0 && w.tokens <= 1e18) ||
        !(w.mfu >= 0 && w.mfu <= 1e6))
        return lhi_fail(err, LH_EINVAL,
                        "after_ns, tokens or mfu is out of range");
    if (!lhi_is_utf8(w.method))
        return lhi_fail(err, LH_EINVAL, "a method is not UTF-8 text");
    if (sim.delegated || lh_pipeline_has_host(w.pipeline))
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "delegated messages and host memory are not simulated "
                        "within a page");
    bool own = sim.override_receives || sim.receives != LH_RECEIVES_EARLY;
    lhi_text_printf(&out,
                    "{\"receives\":%d,\"coupled\":%" PRIu32 ",\"fifo\":%d",
                    own ? (int)sim.receives : -1, sim.coupled_queue, sim.fifo);
    if (w.tokens > 0)
        lhi_text_printf(&out,
                        ",\"after\":%" PRId64 ",\"tokens\":%.0f"
                        ",\"mfu\":%.9g",
                        w.after_ns, w.tokens, w.mfu);
    add_member(&out, "method", w.method);
    lh_status status = add_pipeline(&out, w.pipeline, err);
    if (status == LH_OK)
        status = add_schedule(&out, w.schedule, err);
    lhi_text_puts(&out, "}");
    if (status == LH_OK && out.failed)
        status = lhi_fail_nomem(err);
    if (status != LH_OK) {
        lhi_text_fini(&out);
        return status;
    }
    lhi_text_fini(&report->what_if);
    report->what_if = out;
    return LH_OK;
}
