/* SPDX-License-Identifier: Apache-2.0 */
#include "report/diagnosis/op_table.h"

#include "base/input_limits.h"
#include "base/text.h"

#include <longhaul/experimental/pipeline.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A recording's columns. */
typedef enum column {
    STEP,
    REPLICA,
    STAGE,
    TYPE,
    MICROBATCH,
    START,
    DURATION,
    N_NEEDED,
    RANK = N_NEEDED,
    ORDER,
    HERE,
    CHUNK,
    N_COLUMNS
} column;

static const char *const columns[N_COLUMNS] = {
    "step",     "dp_rank", "stage",  "optype", "mb_id", "start_ts",
    "duration", "rank",    "seq_id", "mc",     "gmc"};

/* Maximum number of columns; an ignored column; capacity for an error's text in
 * bytes. */
enum { MOST_COLUMNS = 64, NONE = 0xff, WHY_BYTES = 110 };

/* A cell's text. */
typedef struct cell {
    const char *text;
    size_t len;
} cell;

/* Table reader state. */
typedef struct table {
    const char *name;
    lhi_rows *rows;
    uint64_t line;
    uint32_t n_columns;         /* in the header line */
    uint8_t role[MOST_COLUMNS]; /* per file column: a `column`, or NONE */
    bool has[N_COLUMNS];
} table;

/* --- cells ---------------------------------------------------------------- */

/* Returns the cell text..end without surrounding blanks and one pair of double
 * quotes. */
static cell trim_cell(const char *text, const char *end)
{
    while (text < end && (*text == ' ' || *text == '\t'))
        text++;
    while (text < end && (end[-1] == ' ' || end[-1] == '\t' || end[-1] == '\r'))
        end--;
    if (end - text >= 2 && *text == '"' && end[-1] == '"')
        text++, end--;
    return (cell){text, (size_t)(end - text)};
}

/* Computes value x 10^shift, rounded; false if it exceeds 2^62. */
static bool scale_number(uint64_t value, int shift, int64_t *out)
{
    for (; shift > 0 && value; shift--) {
        if (value > (UINT64_C(1) << 62) / 10)
            return false;
        value *= 10;
    }
    if (shift < -19)
        value = 0;
    for (; shift < -1 && value; shift++)
        value /= 10;
    if (shift == -1)
        value = value / 10 + (value % 10 >= 5);
    *out = (int64_t)value;
    return value < UINT64_C(1) << 62;
}

/* Parses a decimal number, "-0.25" or "1.7e-05", times 10^power, rounded, into
 * *out; false: it is malformed or too large. */
static bool read_number(cell c, int power, int64_t *out)
{
    const char *at = c.text, *end = c.text + c.len;
    bool negative = at < end && *at == '-', any = false, point = false;
    uint64_t value = 0;
    int shift = power, exponent = 0;
    at += negative || (at < end && *at == '+');
    for (; at < end; at++) {
        if (*at == '.' && !point) {
            point = true;
            continue;
        }
        if (*at < '0' || *at > '9')
            break;
        any = true;
        if (value < UINT64_C(1) << 58) {
            value = 10 * value + (uint64_t)(*at - '0');
            shift -= point;
        } else if (!point) {
            return false; /* exceeds any time */
        }
    }
    if (any && at < end && (*at == 'e' || *at == 'E')) {
        bool down = ++at < end && *at == '-';
        at += at < end && (*at == '-' || *at == '+');
        any = at < end;
        for (; at < end && *at >= '0' && *at <= '9' && exponent < 1000; at++)
            exponent = 10 * exponent + (*at - '0');
        shift += down ? -exponent : exponent;
    }
    if (!any || at != end || shift > 100 || !scale_number(value, shift, out))
        return false;
    if (negative)
        *out = -*out;
    return true;
}

/* Parses a cell as a number, rounded to an integer; false if it is malformed
 * or outside [least, most]. */
static bool parse_bounded(cell c, int64_t least, int64_t most, int64_t *out)
{
    int64_t value;
    if (!read_number(c, 0, &value) || value < least || value > most)
        return false;
    *out = value;
    return true;
}

/* --- rows ----------------------------------------------------------------- */

/* Largest clock value, 63 years: differences between larger times could
 * overflow. */
#define MOST_NS (INT64_C(2) * 1000000000 * 1000000000)

/* Writes to `why` the reason why cell `c` in column k is invalid (`wanted`: a
 * valid form); always returns false. */
static bool describe_invalid(column k, cell c, const char *wanted, char *why)
{
    snprintf(why, WHY_BYTES, "%s '%.*s' is not a %s", columns[k],
             c.len < 24 ? (int)c.len : 24, c.len ? c.text : "", wanted);
    return false;
}

/* Parses column k's cell, a time in seconds of at least `least` ns, into *out
 * in ns; on failure writes the reason to `why` and returns false. */
static bool parse_time(const cell *cells, column k, int64_t least, int64_t *out,
                       char *why)
{
    if (read_number(cells[k], 9, out) && *out >= least && *out <= MOST_NS)
        return true;
    return describe_invalid(
        k, cells[k], least < 0 ? "time in seconds" : "duration in seconds",
        why);
}

/* Parses column k's cell as an integer from `least` to `most`; leaves *out
 * unchanged if an optional column is absent. On failure writes the reason to
 * `why` and returns false. */
static bool parse_integer(const table *t, const cell *cells, column k,
                          int64_t least, int64_t most, int64_t *out, char *why)
{
    char wanted[60];
    if (!t->has[k] || parse_bounded(cells[k], least, most, out))
        return true;
    snprintf(wanted, sizeof wanted, "whole number of %" PRId64 " to %" PRId64,
             least, most);
    return describe_invalid(k, cells[k], wanted, why);
}

/* Converts a line's cells into an operation and its step number; on failure
 * writes the reason to `why` and returns false. */
static bool fill_row(const table *t, const cell *cells, lhi_op_row *row,
                     int64_t *step, char *why)
{
    int64_t stage, replica, microbatch, rank = 0, order = 0, here = 0;
    int64_t chunk = -1;
    if (!parse_integer(t, cells, STEP, 0, INT64_MAX / 2, step, why) ||
        !parse_time(cells, START, -MOST_NS, &row->start_ns, why) ||
        !parse_time(cells, DURATION, 0, &row->ns, why) ||
        !parse_integer(t, cells, STAGE, 0, LHI_MAX_STAGES_OR_REPLICAS - 1,
                       &stage, why) ||
        !parse_integer(t, cells, REPLICA, 0, LHI_MAX_STAGES_OR_REPLICAS - 1,
                       &replica, why) ||
        !parse_integer(t, cells, MICROBATCH, -1, LH_MAX_MICROBATCHES,
                       &microbatch, why) ||
        !parse_integer(t, cells, RANK, 0, UINT32_MAX, &rank, why) ||
        !parse_integer(t, cells, ORDER, 0, UINT32_MAX, &order, why) ||
        !parse_integer(t, cells, HERE, -1, INT16_MAX, &here, why) ||
        !parse_integer(t, cells, CHUNK, -1, INT16_MAX, &chunk, why))
        return false;
    row->stage = (uint16_t)stage;
    row->replica = (uint16_t)replica;
    row->microbatch = (int32_t)microbatch;
    row->rank = (uint32_t)rank;
    row->index = (uint32_t)order;
    row->stage_chunk = (int16_t)here;
    row->chunk = (int16_t)chunk;
    return true;
}

/* Divides a line at commas; returns its cell count, and stores at most
 * `room`. */
static uint32_t split(const char *line, const char *end, cell *cells,
                      uint32_t room)
{
    uint32_t n = 0;
    for (const char *at = line;; n++) {
        const char *stop = memchr(at, ',', (size_t)(end - at));
        if (n < room)
            cells[n] = trim_cell(at, stop ? stop : end);
        if (!stop)
            return n + 1;
        at = stop + 1;
    }
}

/* Parses the table's first line and maps its columns to roles. LH_EINPUT: a
 * required column is missing, or one occurs twice. */
static lh_status read_heading(table *t, const char *line, const char *end,
                              lh_error *err)
{
    cell cells[MOST_COLUMNS];
    if (end - line >= 3 && memcmp(line, "\xef\xbb\xbf", 3) == 0)
        line += 3;
    t->n_columns = split(line, end, cells, MOST_COLUMNS);
    if (t->n_columns > MOST_COLUMNS)
        return lhi_fail(err, LH_EINPUT,
                        "%s:1: more than %d columns: not a recording's table",
                        t->name, MOST_COLUMNS);
    for (uint32_t i = 0; i < t->n_columns; i++) {
        t->role[i] = NONE;
        for (uint32_t k = 0; k < N_COLUMNS; k++)
            if (cells[i].len == strlen(columns[k]) &&
                memcmp(cells[i].text, columns[k], cells[i].len) == 0) {
                if (t->has[k])
                    return lhi_fail(err, LH_EINPUT,
                                    "%s:1: column '%s' appears twice", t->name,
                                    columns[k]);
                t->role[i] = (uint8_t)k;
                t->has[k] = true;
            }
    }
    for (uint32_t k = 0; k < N_NEEDED; k++)
        if (!t->has[k])
            return lhi_fail(
                err, LH_EINPUT,
                "%s:1: column '%s' is missing; a recording is a table (CSV, "
                "also gzip) whose first line names the columns step, dp_rank, "
                "stage, optype, mb_id, start_ts and duration",
                t->name, columns[k]);
    return LH_OK;
}

/* Parses a line and adds its operation; counts an unreadable line or unknown
 * operation type as a defect and skips it. */
static lh_status read_row(table *t, const char *line, const char *end,
                          lh_error *err)
{
    cell raw[MOST_COLUMNS], cells[N_COLUMNS] = {{0}};
    lhi_defect_counts *remarks = t->rows->remarks;
    lhi_op_row row = {0};
    int64_t step;
    if (trim_cell(line, end).len == 0)
        return LH_OK;
    char why[WHY_BYTES];
    uint32_t n = split(line, end, raw, MOST_COLUMNS);
    bool good = n == t->n_columns;
    for (uint32_t i = 0; good && i < t->n_columns; i++)
        if (t->role[i] != NONE)
            cells[t->role[i]] = raw[i];
    if (!good)
        snprintf(why, sizeof why,
                 "%" PRIu32 " cells, but the heading has %" PRIu32, n,
                 t->n_columns);
    if (!good || !fill_row(t, cells, &row, &step, why)) {
        lhi_defect_add(remarks, LHI_REMARK_UNREAD, 1, "%s:%" PRIu64 ": %s",
                       t->name, t->line, why);
        return LH_OK;
    }
    lhi_op_type op = lhi_op_find(cells[TYPE].text, cells[TYPE].len);
    if (op == LHI_N_OPS) {
        lhi_defect_add(remarks, LHI_REMARK_UNKNOWN, 1, "%s:%" PRIu64 ": '%.*s'",
                       t->name, t->line,
                       cells[TYPE].len < 40 ? (int)cells[TYPE].len : 40,
                       cells[TYPE].text);
        return LH_OK;
    }
    row.op = (uint8_t)op;
    lh_status status = lhi_rows_add(t->rows, (uint64_t)step, &row, err);
    if (status == LH_EINPUT)
        lhi_fail_add_context(err, "%s:%" PRIu64, t->name, t->line);
    return status;
}

/* --- lines ---------------------------------------------------------------- */

/* Parses the next line: the heading, or else a row. */
static lh_status parse_line(table *t, const char *line, const char *end,
                            lh_error *err)
{
    t->line++;
    return t->line == 1 ? read_heading(t, line, end, err)
                        : read_row(t, line, end, err);
}

enum { BUFFER = 1 << 18 }; /* larger than LHI_LINE_BYTES */

/* Reads the table line by line through a buffer of BUFFER bytes; reports a
 * truncated last row as a defect. */
static lh_status read_lines(table *t, lhi_gzip_stream *zip, char *buffer,
                            lh_error *err)
{
    size_t held = 0, more;
    uint64_t all = 0;
    do {
        LHI_TRY(lhi_gzip_stream_read(zip, buffer + held, BUFFER - held, &more,
                                     err));
        const char *at = buffer, *end = buffer + held + more, *stop;
        all += more;
        if (all > lhi_input_max_bytes(LHI_INPUT_RECORDING))
            return lhi_fail_too_large(
                t->name, lhi_input_max_bytes(LHI_INPUT_RECORDING),
                lhi_input_describe(LHI_INPUT_RECORDING), err);
        while ((stop = memchr(at, '\n', (size_t)(end - at)))) {
            LHI_TRY(parse_line(t, at, stop, err));
            at = stop + 1;
        }
        held = (size_t)(end - at);
        if (held > LHI_LINE_BYTES)
            return lhi_fail(
                err, LH_EINPUT,
                "%s:%" PRIu64
                ": a line exceeds %d bytes: not a recording's table",
                t->name, t->line + 1, LHI_LINE_BYTES);
        memmove(buffer, at, held);
    } while (more);
    /* In a truncated row the last number may be incomplete. */
    const char *why = zip->reason ? zip->reason : "it ends within a row";
    if (held && t->line == 0)
        LHI_TRY(parse_line(t, buffer, buffer + held, err));
    else if (held || zip->reason)
        lhi_defect_add(t->rows->remarks, LHI_REMARK_CUT, 1, "%s: %s", t->name,
                       why);
    return LH_OK;
}

lh_status lhi_op_table_read(lhi_gzip_stream *zip, const char *name,
                            lhi_rows *rows, lh_error *err)
{
    table t = {.name = name, .rows = rows};
    char *buffer = malloc(BUFFER);
    if (!buffer)
        return lhi_fail_nomem(err);
    lh_status status = read_lines(&t, zip, buffer, err);
    free(buffer);
    if (status == LH_OK && t.line == 0)
        status =
            lhi_fail(err, LH_EINPUT, "%s: is empty%s%s", name,
                     zip->reason ? ": " : "", zip->reason ? zip->reason : "");
    return status;
}
