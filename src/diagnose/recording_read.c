/* SPDX-License-Identifier: Apache-2.0 */
/* Files of a recording. */
#include "diagnose/op_table.h"
#include "diagnose/op_trace.h"
#include "diagnose/recording.h"

#include <stdlib.h>

/* Rows of one file that are held before steps are taken to be over: some 640
 * MB. Of several files each may have rows of every step. */
enum { MOST_HELD = 16 << 20 };

typedef struct reading {
    lh_recording *recording;
    lhi_rows rows;
    lhi_unzip zip;
    uint64_t n_traces; /* each a step */
    bool has_table;
} reading;

static lh_status close_step(void *context, lhi_row_list *list, lh_error *err)
{
    return lhi_recording_add(context, list, err);
}

static reading *reading_make(bool one)
{
    reading *r = calloc(1, sizeof *r);
    if (r && !(r->recording = calloc(1, sizeof *r->recording))) {
        free(r);
        return NULL;
    }
    if (r)
        r->rows = (lhi_rows){.remarks = &r->recording->remarks,
                             .close = close_step,
                             .context = r->recording,
                             .most = one ? MOST_HELD : SIZE_MAX};
    return r;
}

/* What was opened: a trace, or a table. */
static lh_status read_opened(reading *r, const char *name, lh_error *err)
{
    bool is_trace = lhi_op_trace_is(&r->zip);
    if (is_trace ? r->has_table : r->n_traces > 0)
        return lhi_fail(err, LH_EINPUT,
                        "%s: is a %s, and a file before it a %s; traces have "
                        "steps of their own: diagnose them apart",
                        name, is_trace ? "trace" : "table",
                        is_trace ? "table" : "trace");
    if (is_trace)
        return lhi_op_trace_read(&r->zip, name, r->n_traces++, &r->rows, err);
    r->has_table = true;
    return lhi_op_table_read(&r->zip, name, &r->rows, err);
}

/* Takes what was read to *out, or releases it. */
static lh_status reading_end(reading *r, lh_status status, const char *name,
                             lh_recording **out, lh_error *err)
{
    if (status == LH_OK)
        status = lhi_rows_close(&r->rows, err);
    if (status == LH_OK)
        status = lhi_recording_end(r->recording, name, err);
    if (status == LH_OK)
        *out = r->recording;
    else
        lh_recording_free(r->recording);
    lhi_rows_fini(&r->rows);
    free(r);
    return status;
}

lh_status lh_recording_read(const char *const *paths, uint32_t n_paths,
                            lh_recording **out, lh_error *err)
{
    lh_status status = LH_OK;
    if (n_paths == 0)
        return lhi_fail(err, LH_EINVAL, "no file of a recording is named");
    reading *r = reading_make(n_paths == 1);
    if (!r)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; status == LH_OK && i < n_paths; i++) {
        status = lhi_unzip_open(&r->zip, paths[i], err);
        if (status == LH_OK)
            status = read_opened(r, paths[i], err);
        lhi_unzip_close(&r->zip);
    }
    return reading_end(r, status, paths[0], out, err);
}

lh_status lh_recording_parse(const char *text, size_t len, const char *name,
                             lh_recording **out, lh_error *err)
{
    reading *r = reading_make(true);
    if (!r)
        return lhi_fail_nomem(err);
    lh_status status = lhi_unzip_text(&r->zip, text, len, err);
    if (status == LH_OK)
        status = read_opened(r, name, err);
    lhi_unzip_close(&r->zip);
    return reading_end(r, status, name, out, err);
}
