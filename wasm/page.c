/* SPDX-License-Identifier: Apache-2.0 */
/* Exports the functions that a report page calls as WebAssembly
 * (src/report/page/whatif.js). Each returns a text owned by the page until
 * page_free(): the requested JSON, or {"error": reason}. */
#include "report/page/page_json.h"
#include "report/whatif/whatif.h"
#include "schedule/pipeline/file/schedule_csv.h"
#include "schedule/pipeline/file/serialize.h"

#include <stdlib.h>
#include <string.h>

#define EXPORT(name) __attribute__((export_name(name)))

/* State of an open page. */
typedef struct page {
    lh_pipeline *pipeline;
    lh_schedule *schedule;
    lhi_whatif_base question;
    char method[64];
} page;

EXPORT("page_alloc") void *page_alloc(size_t size)
{
    return malloc(size);
}

EXPORT("page_free") void page_free(void *memory)
{
    free(memory);
}

/* Returns the written text, or the error. NULL: no memory for either. */
static char *finish(lhi_text *out, lh_status status, const lh_error *err)
{
    lhi_text seen = {0};
    if (status == LH_OK)
        lhi_page_add_visible_json(&seen, out->data, out->len);
    lhi_text_fini(out);
    if (status != LH_OK || seen.failed) {
        lhi_text_fini(&seen);
        lhi_text_puts(&seen, "{\"error\":");
        lhi_json_add_string(&seen, status == LH_OK ? "no memory" : err->text);
        lhi_text_puts(&seen, "}");
    }
    char *text = NULL;
    lh_error none;
    return lhi_text_take(&seen, &text, NULL, &none) == LH_OK ? text : NULL;
}

/* Opens the page's iteration: a pipeline in numbers, a schedule's CSVs (links:
 * "" if none), the schedule's name on the page, and the simulation options;
 * receives -1: the pipeline's mode. NULL: no memory, or invalid input. */
EXPORT("page_open")
page *page_open(const char *pipeline, const char *rows, const char *links,
                const char *method, int receives, unsigned coupled, int fifo)
{
    lh_error err;
    page *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    lh_status status = lhi_pipeline_deserialize(pipeline, strlen(pipeline),
                                                &p->pipeline, &err);
    if (status == LH_OK)
        status = lhi_schedule_parse_both(rows, strlen(rows),
                                         *links ? links : NULL, strlen(links),
                                         "schedule", &p->schedule, &err);
    if (status != LH_OK) {
        lh_pipeline_free(p->pipeline);
        free(p);
        return NULL;
    }
    lhi_text_copy(p->method, sizeof p->method, method);
    p->question = (lhi_whatif_base){
        .pipeline = p->pipeline,
        .schedule = p->schedule,
        .method = p->method,
        .sim = {.size = sizeof p->question.sim,
                .receives =
                    receives < 0 ? LH_RECEIVES_EARLY : (lh_receives)receives,
                .override_receives = receives >= 0,
                .coupled_queue = coupled,
                .fifo = fifo != 0}};
    return p;
}

EXPORT("page_controls") char *page_controls(const page *p)
{
    lhi_text out = {0};
    lh_error err;
    lh_status status = lhi_whatif_add_controls(&p->question, &out, &err);
    return finish(&out, status, &err);
}

EXPORT("page_ask") char *page_ask(const page *p, const char *line)
{
    lhi_text out = {0};
    lh_error err;
    lh_status status = lhi_whatif(&p->question, line, &out, &err);
    return finish(&out, status, &err);
}

EXPORT("page_row")
char *page_row(const page *p, const char *line, const char *method)
{
    lhi_text out = {0};
    lh_error err;
    lh_status status =
        lhi_whatif_add_row(&p->question, line, method, &out, &err);
    return finish(&out, status, &err);
}
