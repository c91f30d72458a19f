/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules in the CSV format from torch.distributed.pipelining. */
#define _XOPEN_SOURCE 700
#include "schedule/pipeline/file/schedule_csv.h"
#include "base/input_limits.h"
#include "base/text.h"
#include "schedule/pipeline/schedule_internal.h"

#include <longhaul/experimental/pipeline.h>
#include <longhaul/experimental/status.h>

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Limit on rows in a links file: no valid file has more than two names per
 * device. */
enum { MAX_LINK_ROWS = 4 * LH_MAX_DEVICES };

/* A part of the input text: a line or a cell. */
typedef struct span {
    const char *at, *end;
} span;

/* The reader's position. */
typedef struct reader {
    const char *file;
    uint32_t line, cell; /* both 1-based, for messages */
} reader;

/* Removes blanks, tabs and carriage returns from both ends. */
static span trim(span s)
{
    while (s.at < s.end && (*s.at == ' ' || *s.at == '\t' || *s.at == '\r'))
        s.at++;
    while (s.at < s.end &&
           (s.end[-1] == ' ' || s.end[-1] == '\t' || s.end[-1] == '\r'))
        s.end--;
    return s;
}

/* Removes the text before the first `separator` from the front of `rest`, and
 * the separator, and returns that text. Without a separator it returns all of
 * `rest`. */
static span cut_part(span *rest, char separator)
{
    const char *p = memchr(rest->at, separator, (size_t)(rest->end - rest->at));
    span head = {rest->at, p ? p : rest->end};
    rest->at = p ? p + 1 : rest->end;
    return head;
}

/* Consumes `text` if the span starts with it and returns true; false: it starts
 * otherwise. */
static bool skip_text(span *s, const char *text)
{
    size_t len = strlen(text);
    if ((size_t)(s->end - s->at) < len || memcmp(s->at, text, len) != 0)
        return false;
    s->at += len;
    return true;
}

/* Fails with LH_EINPUT because a cell is invalid, for the reason `why`. The
 * message has file, line, cell number and the cell's first 40 bytes. */
static lh_status fail_cell(const reader *r, span cell, lh_error *err,
                           const char *why)
{
    int len = (int)(cell.end - cell.at < 40 ? cell.end - cell.at : 40);
    return lhi_fail(err, LH_EINPUT,
                    "%s:%" PRIu32 ": cell %" PRIu32 ": '%.*s': %s", r->file,
                    r->line, r->cell, len, cell.at, why);
}

/* Reads a pass such as '3F0' or '3W0:2/8' from a whole cell. */
static lh_status read_pass(const reader *r, span cell, lh_pass *out,
                           lh_error *err)
{
    static const char why[] =
        "must be <chunk><F|I|W|B><microbatch>, such as 3F0, or a part of a W, "
        "such as 3W0:2/8";
    bool bad_cut = false;
    if (lhi_scan_pass(cell.at, cell.end, out, &bad_cut) == cell.end)
        return LH_OK;
    return fail_cell(r, cell, err,
                     bad_cut ? "only a W can be split, into at least 2 parts "
                               "numbered from 0"
                             : why);
}

/* A row's cells, under construction. */
typedef struct row_cells {
    lh_pass *passes;
    uint32_t n;
    uint32_t *cells; /* per pass; NULL: pass i is in cell i + 1 */
    lh_comm *comms;
    uint32_t n_comms;
} row_cells;

/* Reads a CSV cell into the row; marks the two passes of an overlapped pair
 * "(0F7;7B3)OVERLAP_F_B". */
static lh_status read_cell(reader *r, span cell, row_cells *row, lh_error *err)
{
    lh_comm *comm = &row->comms[row->n_comms];
    if (cell.at == cell.end)
        return LH_OK; /* an idle step */
    if (lhi_scan_comm(cell.at, cell.end, comm) == cell.end) {
        comm->cell = r->cell;
        comm->n_before = row->n;
        row->n_comms++;
        return LH_OK;
    }
    if (*cell.at != '(') {
        LHI_TRY(read_pass(r, cell, &row->passes[row->n], err));
        row->n++;
        return LH_OK;
    }
    const char *close = memchr(cell.at, ')', (size_t)(cell.end - cell.at));
    span after = {close ? close + 1 : cell.end, cell.end};
    if (!close || !skip_text(&after, "OVERLAP_F_B") || after.at != after.end)
        return fail_cell(r, cell, err,
                         "must be (<F>;<B>)OVERLAP_F_B, such as "
                         "(0F7;7B3)OVERLAP_F_B");
    span inside = {cell.at + 1, close};
    lh_pass *pair = &row->passes[row->n];
    uint32_t n_cuts = 0;
    for (const char *at = inside.at; at < inside.end; at++)
        n_cuts += *at == ';';
    if (n_cuts != 1)
        return fail_cell(r, cell, err, "an overlapped pair has two passes");
    for (uint32_t i = 0; i < 2; i++) {
        LHI_TRY(read_pass(r, trim(cut_part(&inside, ';')), &pair[i], err));
        pair[i].overlapped = true;
    }
    if (pair[0].kind != LH_F || pair[1].kind != LH_B)
        return fail_cell(r, cell, err,
                         "an overlapped pair is an F, then a B, such as "
                         "(0F7;7B3)OVERLAP_F_B");
    row->n += 2;
    return LH_OK;
}

/* Counts the parts of a CSV row between any of the two `separators` that have
 * at least `least` characters, plus one: an upper bound for an array. */
static size_t count_parts(span row, const char *separators, ptrdiff_t least)
{
    const char *from = row.at;
    size_t n = 1;
    for (const char *p = row.at; p < row.end; p++)
        if (*p == separators[0] || *p == separators[1]) {
            n += p - from >= least;
            from = p + 1;
        }
    return n + (row.end - from >= least);
}

/* Records the current CSV cell as origin of passes number `before` to `after` -
 * 1, in *found (capacity `most`). *found stays NULL while every cell has been
 * one pass, since the numbers then agree. */
static lh_status note_cells(const reader *r, lhi_arena *mem, size_t most,
                            uint32_t before, uint32_t after, uint32_t **found,
                            lh_error *err)
{
    if (!*found && after != r->cell) {
        if (!(*found = LHI_NEW(mem, uint32_t, most)))
            return lhi_fail_nomem(err);
        for (uint32_t i = 0; i < before; i++)
            (*found)[i] = i + 1;
    }
    for (uint32_t i = before; *found && i < after; i++)
        (*found)[i] = r->cell;
    return LH_OK;
}

/* Reads one row in a schedule CSV, a device's passes. */
static lh_status read_row(reader *r, lhi_arena *mem, span row, row_cells *out,
                          lh_error *err)
{
    const size_t most = count_parts(row, ",;", sizeof "0F0" - 1);
    const size_t most_comms = count_parts(row, ",,", sizeof "0SEND_F0" - 1);
    if (most > UINT32_MAX / 2)
        return lhi_fail(err, LH_EINPUT, "%s:%" PRIu32 ": the row is too long",
                        r->file, r->line);
    *out = (row_cells){.passes = LHI_NEW(mem, lh_pass, most),
                       .comms = LHI_NEW(mem, lh_comm, most_comms)};
    if (!out->passes || !out->comms)
        return lhi_fail_nomem(err);
    while (row.at < row.end) {
        const uint32_t before = out->n;
        r->cell++;
        LHI_TRY(read_cell(r, trim(cut_part(&row, ',')), out, err));
        LHI_TRY(note_cells(r, mem, most, before, out->n, &out->cells, err));
    }
    return LH_OK;
}

/* Counts the lines, with or without an end mark on the last. */
static uint32_t count_lines(span text)
{
    uint32_t n = 0;
    while (text.at < text.end) {
        cut_part(&text, '\n');
        n++;
    }
    return n;
}

/* Reads the rows of a schedule CSV, one per device, into the schedule `s`;
 * `name`: file name in messages. */
static lh_status read_rows(lh_schedule *s, span text, const char *name,
                           lh_error *err)
{
    reader r = {.file = name};
    uint32_t n = count_lines(text);
    if (n < 1 || n > LH_MAX_DEVICES)
        return lhi_fail(err, LH_EINPUT,
                        "%s:1: %" PRIu32 " rows; a schedule has one row per "
                        "device, from 1 to %u",
                        name, n, LH_MAX_DEVICES);
    s->orders = LHI_NEW(s->mem, const lh_pass *, n);
    s->counts = LHI_NEW(s->mem, uint32_t, n);
    s->cells = LHI_NEW(s->mem, const uint32_t *, n);
    s->comms = LHI_NEW(s->mem, const lh_comm *, n);
    s->comm_counts = LHI_NEW(s->mem, uint32_t, n);
    if (!s->orders || !s->counts || !s->cells || !s->comms || !s->comm_counts)
        return lhi_fail_nomem(err);
    s->n_devices = n;
    for (uint32_t d = 0; d < n; d++) {
        r.line = d + 1;
        r.cell = 0;
        row_cells row;
        LHI_TRY(read_row(&r, s->mem, cut_part(&text, '\n'), &row, err));
        s->orders[d] = row.passes;
        s->counts[d] = row.n;
        s->cells[d] = row.cells;
        s->comms[d] = row.comms;
        s->comm_counts[d] = row.n_comms;
        s->n_comms += row.n_comms;
    }
    return LH_OK;
}

lh_status lh_schedule_parse(const char *text, size_t len, const char *name,
                            lh_schedule **out, lh_error *err)
{
    LHI_TRY(lhi_input_check_size(len, name, LHI_INPUT_SCHEDULE, err));
    lhi_arena *mem = lhi_arena_make(0);
    lh_schedule *s = mem ? LHI_NEW(mem, lh_schedule, 1) : NULL;
    if (!s) {
        lhi_arena_free(mem);
        return lhi_fail_nomem(err);
    }
    s->mem = mem;
    s->name = lhi_arena_strdup(mem, name);
    lh_status status = s->name
                           ? read_rows(s, (span){text, text + len}, name, err)
                           : lhi_fail_nomem(err);
    if (status != LH_OK) {
        lhi_arena_free(mem);
        return status;
    }
    *out = s;
    return LH_OK;
}

/* Reads one row of a links file, the order of messages on a link: the link's
 * name, then the passes that send them. */
static lh_status read_link_row(reader *r, lh_schedule *s, span row,
                               lh_link_order *out, lh_error *err)
{
    r->cell = 1;
    span name = trim(cut_part(&row, ','));
    size_t len = (size_t)(name.end - name.at);
    if (!lhi_is_link_name(name.at, len))
        return fail_cell(r, name, err, "must be a link name");
    out->link = lhi_arena_strndup(s->mem, name.at, len);
    if (!out->link)
        return lhi_fail_nomem(err);
    row_cells cells;
    LHI_TRY(read_row(r, s->mem, row, &cells, err));
    if (cells.n_comms)
        return lhi_fail(err, LH_EINPUT,
                        "%s:%" PRIu32 ": a link's row lists passes, not "
                        "communication cells",
                        r->file, r->line);
    for (uint32_t i = 0; i < cells.n; i++)
        if (cells.passes[i].overlapped)
            return lhi_fail(err, LH_EINPUT,
                            "%s:%" PRIu32 ": a link's row lists passes, not "
                            "overlapped pairs",
                            r->file, r->line);
    out->passes = cells.passes;
    out->n_passes = cells.n;
    return LH_OK;
}

/* Adds the message orders in the text of a links file, one row per link, to the
 * schedule `s` under construction. */
static lh_status read_links(lh_schedule *s, span text, const char *name,
                            lh_error *err)
{
    reader r = {.file = name};
    uint32_t n = count_lines(text);
    if (n > MAX_LINK_ROWS)
        return lhi_fail(err, LH_EINPUT,
                        "%s:1: %" PRIu32 " rows; there is one per link, at "
                        "most %u",
                        name, n, MAX_LINK_ROWS);
    lh_link_order *orders = LHI_NEW(s->mem, lh_link_order, n);
    if (!orders)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < n; i++) {
        r.line = i + 1;
        LHI_TRY(read_link_row(&r, s, cut_part(&text, '\n'), &orders[i], err));
    }
    s->link_orders = orders;
    s->n_link_orders = n;
    return LH_OK;
}

lh_status lhi_schedule_parse_both(const char *rows, size_t rows_len,
                                  const char *links, size_t links_len,
                                  const char *name, lh_schedule **out,
                                  lh_error *err)
{
    lh_schedule *s;
    LHI_TRY(lh_schedule_parse(rows, rows_len, name, &s, err));
    lh_status status = LH_OK;
    if (links)
        status = read_links(s, (span){links, links + links_len}, name, err);
    if (status != LH_OK) {
        lh_schedule_free(s);
        return status;
    }
    *out = s;
    return LH_OK;
}

/* Returns the link-order file's path for a schedule file: S.csv becomes
 * S.links.csv; release with free(). */
static char *make_links_path(const char *path)
{
    size_t len = strlen(path);
    if (len > 4 && strcmp(path + len - 4, ".csv") == 0)
        len -= 4;
    char *links = malloc(len + sizeof ".links.csv");
    if (links) {
        memcpy(links, path, len);
        memcpy(links + len, ".links.csv", sizeof ".links.csv");
    }
    return links;
}

/* Adds the message orders of links from S.links.csv, beside the schedule's file
 * `path`; without such a file there are none. */
static lh_status read_links_file(lh_schedule *s, const char *path,
                                 lh_error *err)
{
    char *links = make_links_path(path), *text;
    size_t len;
    if (!links)
        return lhi_fail_nomem(err);
    lh_status status = LH_OK;
    struct stat info;
    const bool exists = lstat(links, &info) == 0;
    if (!exists && errno != ENOENT && errno != ENOTDIR &&
        errno != ENAMETOOLONG) {
        status = lhi_fail(err, LH_EIO, "%s: %s", links, strerror(errno));
    } else if (exists && stat(links, &info) != 0) {
        status = lhi_fail(err, LH_EIO,
                          "%s: the file of message orders is a dangling "
                          "symbolic link; remove it",
                          links);
    } else if (exists) {
        status = lhi_input_read(links, LHI_INPUT_SCHEDULE, &text, &len, err);
        if (status == LH_OK) {
            status = read_links(s, (span){text, text + len}, links, err);
            lh_text_free(text);
        }
    }
    free(links);
    return status;
}

lh_status lh_schedule_read(const char *path, bool fifo, lh_schedule **out,
                           lh_error *err)
{
    char *text;
    size_t len;
    lh_schedule *s;
    LHI_TRY(lhi_input_read(path, LHI_INPUT_SCHEDULE, &text, &len, err));
    lh_status status = lh_schedule_parse(text, len, path, &s, err);
    lh_text_free(text);
    if (status != LH_OK)
        return status;
    if (!fifo && (status = read_links_file(s, path, err)) != LH_OK) {
        lh_schedule_free(s);
        return status;
    }
    *out = s;
    return LH_OK;
}

/* Appends n passes as CSV cells, separated by commas; an overlapped pair is one
 * cell. */
static void add_passes(lhi_text *out, const lh_pass *passes, uint32_t n)
{
    char cell[LH_PASS_TEXT_SIZE];
    for (uint32_t i = 0; i < n; i++) {
        const bool pair = passes[i].overlapped && passes[i].kind == LH_F;
        const bool paired = passes[i].overlapped && !pair;
        if (i)
            lhi_text_add(out, paired ? ";" : ",", 1);
        if (pair)
            lhi_text_add(out, "(", 1);
        lhi_text_puts(out, lh_pass_format(&passes[i], cell));
        if (paired)
            lhi_text_puts(out, ")OVERLAP_F_B");
    }
}

lh_status lh_schedule_format(const lh_schedule *schedule, char **text,
                             size_t *len, lh_error *err)
{
    lhi_text out = {0};
    for (uint32_t d = 0; d < schedule->n_devices; d++) {
        add_passes(&out, schedule->orders[d], schedule->counts[d]);
        lhi_text_add(&out, "\n", 1);
    }
    return lhi_text_take(&out, text, len, err);
}

lh_status lhi_schedule_format_links(const lh_schedule *schedule, char **text,
                                    size_t *len, lh_error *err)
{
    if (schedule->n_link_orders == 0) {
        *text = NULL;
        if (len)
            *len = 0;
        return LH_OK;
    }
    lhi_text out = {0};
    for (uint32_t i = 0; i < schedule->n_link_orders; i++) {
        const lh_link_order *order = &schedule->link_orders[i];
        lhi_text_puts(&out, order->link);
        if (order->n_passes)
            lhi_text_add(&out, ",", 1);
        add_passes(&out, order->passes, order->n_passes);
        lhi_text_add(&out, "\n", 1);
    }
    return lhi_text_take(&out, text, len, err);
}

/* Writes the message orders of links to S.links.csv beside the schedule's file
 * `path`. Removes that file if there are none. */
static lh_status write_links_file(const lh_schedule *schedule, const char *path,
                                  lh_error *err)
{
    char *text;
    size_t len;
    LHI_TRY(lhi_schedule_format_links(schedule, &text, &len, err));
    char *links = make_links_path(path);
    lh_status status = LH_OK;
    if (!links)
        status = lhi_fail_nomem(err);
    else if (text)
        status = lh_file_write(links, text, len, err);
    else if (unlink(links) != 0 && errno != ENOENT && errno != ENOTDIR)
        status = lhi_fail(err, LH_EIO, "%s: cannot remove: %s", links,
                          strerror(errno));
    free(links);
    lh_text_free(text);
    return status;
}

lh_status lh_schedule_write(const lh_schedule *schedule, const char *path,
                            lh_error *err)
{
    char *text;
    size_t len;
    LHI_TRY(lh_schedule_format(schedule, &text, &len, err));
    lh_status status = lh_file_write(path, text, len, err);
    lh_text_free(text);
    if (status != LH_OK)
        return status;
    return write_links_file(schedule, path, err);
}
