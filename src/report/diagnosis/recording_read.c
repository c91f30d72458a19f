/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a recording's files. */
#include "base/sort.h"
#include "report/diagnosis/op_table.h"
#include "report/diagnosis/op_trace.h"
#include "report/diagnosis/profiler.h"
#include "report/diagnosis/recording.h"
#include "report/diagnosis/timer_log.h"

#include <stdlib.h>
#include <string.h>

/* A single file's rows in memory before steps count as complete: about 640 MB.
 * With several files each may have rows for every step. */
enum { MAX_ROWS = 16 << 20 };

/* File formats. */
typedef enum kind { NO_KIND, TABLE, TRACE, PROFILER, NSIGHT, TIMERS } kind;

static const char *const kinds[] = {[NO_KIND] = "",
                                    [TABLE] = "a table",
                                    [TRACE] = "a trace of longhaul",
                                    [PROFILER] =
                                        "a trace of PyTorch's profiler",
                                    [NSIGHT] = "an export of Nsight Systems",
                                    [TIMERS] = "a log of Megatron-LM's timers"};

/* Recording reader state. */
typedef struct reading {
    lh_recording *recording;
    lhi_rows rows;
    lhi_gzip_stream zip;
    lhi_profiler profiler;
    lhi_timer_log timers;
    uint64_t n_traces; /* longhaul traces: one step each */
    kind kind;         /* for all files */
} reading;

/* Adds a complete step to the recording; callback lhi_rows.close. */
static lh_status close_step(void *context, lhi_row_list *list, lh_error *err)
{
    return lhi_recording_add(context, list, err);
}

/* Allocates the reader's state. `one`: there is a single input file; `map`: the
 * rank map, may be NULL. Returns NULL on allocation failure. */
static reading *make_reader(bool one, const lh_rank_map *map)
{
    reading *r = calloc(1, sizeof *r);
    if (r && !(r->recording = calloc(1, sizeof *r->recording))) {
        free(r);
        return NULL;
    }
    if (r)
        r->profiler =
            (lhi_profiler){.map = map, .remarks = &r->recording->remarks};
    if (r)
        r->rows = (lhi_rows){.remarks = &r->recording->remarks,
                             .close = close_step,
                             .context = r->recording,
                             .max_rows = one ? MAX_ROWS : SIZE_MAX};
    return r;
}

/* An input: a file's path or a text. */
typedef struct input {
    const char *name;
    const char *text; /* NULL: the file with that name */
    size_t len;
} input;

/* Opens one input (file or text in memory); the caller closes it, also after a
 * failure. */
static lh_status open_input(reading *r, const input *in, lh_error *err)
{
    return in->text ? lhi_gzip_stream_open_text(&r->zip, in->text, in->len, err)
                    : lhi_gzip_stream_open(&r->zip, in->name, err);
}

/* Checks whether a file's first bytes are those of a JSON export of Nsight
 * Systems: an event or the string table. */
static bool is_nsight(const char *text)
{
    static const char *const begins[] = {
        "{\"Type\":", "{\"type\":", "{\"data\":["};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (strncmp(text, begins[i], strlen(begins[i])) == 0)
            return true;
    return false;
}

/* Determines a file's format from its first bytes into *out: Nsight export,
 * longhaul trace (JSON with the key "longhaul"), profiler trace (other JSON) or
 * table; NO_KIND: none. */
static lh_status detect_kind(reading *r, kind *out, lh_error *err)
{
    const char *text;
    char first[LHI_GZIP_PEEK_BYTES + 1];
    size_t n, at = 0;
    LHI_TRY(lhi_gzip_stream_peek(&r->zip, &text, &n, err));
    memcpy(first, text, n);
    first[n] = '\0';
    at = strspn(first, " \t\r\n");
    size_t next = at < n ? at + 1 + strspn(first + at + 1, " \t\r\n") : at;
    bool is_list = first[at] == '[' && (first[next] == '{' || !first[next]);
    if (is_nsight(first + at))
        *out = NSIGHT;
    else if (first[at] == '{' || is_list)
        *out = strstr(first, "\"longhaul\"") ? TRACE : PROFILER;
    else
        *out = strstr(first, "optype") ? TABLE : NO_KIND;
    return LH_OK;
}

/* Determines an opened input's format. Reopens the input if it had to be read
 * whole, to search for a Megatron-LM log's timers. */
static lh_status find_kind(reading *r, const input *in, kind *out,
                           lh_error *err)
{
    const char *text;
    size_t n;
    bool is_log = false;
    LHI_TRY(detect_kind(r, out, err));
    if (*out != NO_KIND)
        return LH_OK;
    LHI_TRY(lhi_timer_log_detect(&r->zip, in->name, &is_log, err));
    lhi_gzip_stream_close(&r->zip);
    LHI_TRY(open_input(r, in, err));
    LHI_TRY(lhi_gzip_stream_peek(&r->zip, &text, &n, err));
    *out = is_log ? TIMERS : n && *text == '[' ? PROFILER : TABLE;
    return LH_OK;
}

/* Reads the opened file as a log with Megatron-LM's timers; counts a truncated
 * one as a defect. */
static lh_status read_timers(reading *r, const char *name, lh_error *err)
{
    LHI_TRY(lhi_timer_log_read(&r->timers, &r->zip, name, err));
    if (r->zip.reason)
        lhi_defect_add(&r->recording->remarks, LHI_REMARK_CUT, 1, "%s: %s",
                       name, r->zip.reason);
    return LH_OK;
}

/* Reads the opened file by its format. LH_EINPUT: its format differs from
 * earlier files'. */
static lh_status read_opened(reading *r, const input *in, lh_error *err)
{
    kind is;
    const char *name = in->name;
    LHI_TRY(find_kind(r, in, &is, err));
    if (r->kind != NO_KIND && r->kind != is)
        return lhi_fail(err, LH_EINPUT,
                        "%s: is %s, but an earlier file is %s; diagnose "
                        "recordings of different kinds separately",
                        name, kinds[is], kinds[r->kind]);
    if (r->profiler.map && is != PROFILER && is != NSIGHT)
        return lhi_fail(err, LH_EINPUT,
                        "%s: is %s, but a map of ranks applies only to traces "
                        "of PyTorch's profiler and exports of Nsight Systems",
                        name, kinds[is]);
    r->kind = is;
    if (is == TRACE)
        return lhi_op_trace_read(&r->zip, name, r->n_traces++, &r->rows, err);
    if (is == PROFILER)
        return lhi_profiler_read_file(&r->profiler, &r->zip, name, err);
    if (is == NSIGHT)
        return lhi_profiler_read_nsight(&r->profiler, &r->zip, name, err);
    if (is == TIMERS)
        return read_timers(r, name, err);
    return lhi_op_table_read(&r->zip, name, &r->rows, err);
}

/* Opens one input, reads it by its format, and closes it. */
static lh_status read_input(reading *r, const input *in, lh_error *err)
{
    lh_status status = open_input(r, in, err);
    if (status == LH_OK)
        status = read_opened(r, in, err);
    lhi_gzip_stream_close(&r->zip);
    return status;
}

/* Builds a recording without steps, only with the ranks' activity, from a
 * Megatron-LM log's timers. */
static lh_status build_timed(reading *r, const char *name, lh_error *err)
{
    lh_recording *out = r->recording;
    lhi_fail(&out->unreplayed, LH_EINPUT,
             "%s: is a log of Megatron-LM's timers, which contain sums over an "
             "iteration, not single passes",
             name);
    return lhi_timer_log_list(&r->timers, &out->activities, &out->n_activities,
                              err);
}

/* Compares rank activities by rank number, then by file name, for
 * lhi_sort(). */
static int compare_activities(const void *a, const void *b)
{
    const lhi_recorded_activity *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank > y->rank ? 1 : -1;
    return strcmp(x->file, y->file);
}

/* Moves the activity and the file name for each profiler rank into the
 * recording. */
static lh_status take_activities(lhi_profiler *p, lh_recording *recording,
                                 lh_error *err)
{
    recording->activities =
        calloc(p->n_ranks + 1u, sizeof *recording->activities);
    if (!recording->activities)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < p->n_ranks; i++) {
        lhi_profiled_rank *r = &p->ranks[i];
        if (r->activity.span_ns == 0)
            continue;
        recording->activities[recording->n_activities++] =
            (lhi_recorded_activity){r->file, r->rank, r->activity};
        r->file = NULL;
    }
    lhi_sort(recording->activities, recording->n_activities,
             sizeof *recording->activities, compare_activities);
    return LH_OK;
}

/* Adds the operations in the profiler's traces to the recording, step by step.
 * LH_EINPUT: no step is complete. */
static lh_status add_profiled_steps(reading *r, const char *name, lh_error *err)
{
    LHI_TRY(lhi_profiler_write_rows(&r->profiler, &r->rows, err));
    LHI_TRY(lhi_rows_close(&r->rows, err));
    return lhi_recording_finalise(r->recording, name, err);
}

/* Builds a recording from the profiler traces read. If no step is complete, the
 * recording holds only the ranks' activity; any error after complete steps is
 * returned. */
static lh_status build_profiled(reading *r, const char *name, lh_error *err)
{
    lh_recording *out = r->recording;
    LHI_TRY(lhi_profiler_check_map(&r->profiler, err));
    lh_status status = add_profiled_steps(r, name, &out->unreplayed);
    if (status == LH_EINPUT && out->remarks.n[LHI_REMARK_FILES] &&
        (out->remarks.n[LHI_REMARK_INCOMPLETE] ||
         out->remarks.n[LHI_REMARK_REPLICAS]))
        lhi_fail(&out->unreplayed, LH_EINPUT,
                 "no step is complete without the traces of %s; add them",
                 out->remarks.first[LHI_REMARK_FILES]);
    if (status == LH_OK || status == LH_EINPUT)
        LHI_TRY(take_activities(&r->profiler, out, err));
    if (status == LH_EINPUT && out->n_activities && out->n_steps == 0)
        return LH_OK;
    if (status != LH_OK && err)
        *err = out->unreplayed;
    return status;
}

/* Finishes reading: builds and completes the recording into *out, and frees the
 * reader. If `status` is already an error, or on failure here, frees the
 * recording too. */
static lh_status end_reading(reading *r, lh_status status, const char *name,
                             lh_recording **out, lh_error *err)
{
    if (status == LH_OK && (r->kind == PROFILER || r->kind == NSIGHT)) {
        status = build_profiled(r, name, err);
    } else if (status == LH_OK && r->kind == TIMERS) {
        status = build_timed(r, name, err);
    } else if (status == LH_OK) {
        status = lhi_rows_close(&r->rows, err);
        if (status == LH_OK)
            status = lhi_recording_finalise(r->recording, name, err);
    }
    if (status == LH_OK)
        *out = r->recording;
    else
        lh_recording_free(r->recording);
    lhi_rows_fini(&r->rows);
    lhi_profiler_fini(&r->profiler);
    lhi_timer_log_fini(&r->timers);
    free(r);
    return status;
}

lh_status lh_recording_read_mapped(const char *const *paths, uint32_t n_paths,
                                   const lh_rank_map *map, lh_recording **out,
                                   lh_error *err)
{
    lh_status status = LH_OK;
    if (n_paths == 0)
        return lhi_fail(err, LH_EINVAL,
                        "a recording requires at least one file");
    reading *r = make_reader(n_paths == 1, map);
    if (!r)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; status == LH_OK && i < n_paths; i++)
        status = read_input(r, &(input){.name = paths[i]}, err);
    return end_reading(r, status, paths[0], out, err);
}

lh_status lhi_recording_parse_mapped(const char *text, size_t len,
                                     const char *name, const lh_rank_map *map,
                                     lh_recording **out, lh_error *err)
{
    reading *r = make_reader(true, map);
    if (!r)
        return lhi_fail_nomem(err);
    lh_status status =
        read_input(r, &(input){.name = name, .text = text, .len = len}, err);
    return end_reading(r, status, name, out, err);
}

lh_status lhi_recording_read(const char *const *paths, uint32_t n_paths,
                             lh_recording **out, lh_error *err)
{
    return lh_recording_read_mapped(paths, n_paths, NULL, out, err);
}

lh_status lhi_recording_parse(const char *text, size_t len, const char *name,
                              lh_recording **out, lh_error *err)
{
    return lhi_recording_parse_mapped(text, len, name, NULL, out, err);
}
