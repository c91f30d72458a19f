/* SPDX-License-Identifier: Apache-2.0 */
#include "wrap.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Counts the terminal columns of the first `len` bytes, which end at a
 * character boundary. */
static size_t columns_to(const char *text, size_t len)
{
    char small[256];
    char *part = len < sizeof small ? small : malloc(len + 1);
    if (!part)
        return len;
    memcpy(part, text, len);
    part[len] = '\0';
    const size_t columns = cli_columns(part);
    if (part != small)
        free(part);
    return columns;
}

/* Returns the index of the UTF-8 character after the one at index `at`. */
static size_t find_next_character(const char *text, size_t at)
{
    at++;
    while (((unsigned char)text[at] & 0xc0) == 0x80)
        at++;
    return at;
}

/* Returns how many bytes at the beginning of `text` fit into `columns` terminal
 * columns. */
static size_t count_fitting_bytes(const char *text, size_t columns)
{
    size_t at = 0;
    /* Most characters take one column: start there, then correct exactly. */
    while (text[at]) {
        const size_t next = find_next_character(text, at);
        if (columns_to(text, next) > columns)
            break;
        at = next;
    }
    return at;
}

/* Checks whether a line may break before index `at`. A number stays with its
 * unit, and a short name with its number: "0.3 s", "TP 8". */
static bool may_break(const char *text, size_t at)
{
    size_t word = 0;
    const unsigned char before = at ? (unsigned char)text[at - 1] : ' ';
    const unsigned char after = (unsigned char)text[at + 1];
    if (text[at] != ' ' ||
        (isdigit(before) && (islower(after) || after == '%')))
        return false;
    while (word < at && isalpha((unsigned char)text[at - word - 1]))
        word++;
    return !(isdigit(after) && word > 0 && word <= 4);
}

/* Returns the next line's byte length, broken where may_break() allows so that
 * it fits into `columns`. */
static size_t find_line_end(const char *text, size_t columns)
{
    const size_t len = count_fitting_bytes(text, columns);
    if (!text[len])
        return len;
    for (size_t at = len; at > 0; at--)
        if (may_break(text, at))
            return at;
    for (size_t at = len; at > 0; at--)
        if (text[at] == ' ')
            return at;
    /* a word longer than the line */
    return len > 0 ? len : find_next_character(text, 0);
}

/* Returns the terminal columns that remain from column `at` on in a line with
 * `width` columns; at least 10. */
static size_t get_line_room(size_t width, size_t at)
{
    return width > at + 10 ? width - at : 10;
}

/* Prints wrapped lines: the first from column `at`, the cursor's position,
 * later ones from column `below`. */
static void print_lines(cli *c, size_t at, size_t below, const char *text)
{
    const size_t width = cli_width();
    for (;;) {
        const size_t len = find_line_end(text, get_line_room(width, at));
        const char *rest = text + len + strspn(text + len, " ");
        cli_print(c, "%.*s\n", (int)len, text);
        if (!*rest)
            return;
        at = below;
        text = rest;
        cli_print(c, "%*s", (int)at, "");
    }
}

/* Formats a text that the caller frees; NULL: out of memory. */
static char *format_text(const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    const int len = vsnprintf(NULL, 0, format, again);
    va_end(again);
    char *text = len < 0 ? NULL : malloc((size_t)len + 1);
    if (text)
        vsnprintf(text, (size_t)len + 1, format, args);
    return text;
}

void cli_wrap(cli *c, const char *label, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *text = format_text(format, args);
    va_end(args);
    cli_print(c, "%-*s", CLI_LABEL, label);
    print_lines(c, CLI_LABEL, CLI_LABEL, text ? text : "(out of memory)");
    free(text);
}

uint32_t cli_count_lines(const char *text)
{
    const size_t width = cli_width();
    uint32_t n = 0;
    do {
        text += find_line_end(text, get_line_room(width, CLI_LABEL));
        text += strspn(text, " ");
        n++;
    } while (*text);
    return n;
}

const char *cli_shorten(const char *text, size_t columns, char *buffer,
                        size_t room)
{
    if (cli_columns(text) <= columns)
        return text;
    const size_t len = count_fitting_bytes(text, columns > 3 ? columns - 3 : 0);
    snprintf(buffer, room, "%.*s...", (int)(len + 4 > room ? room - 4 : len),
             text);
    return buffer;
}

/* --- tables ------------------------------------------------------------- */

/* Makes room for one more row in the table; false: no memory. */
static bool reserve_row(cli_table *t)
{
    if (t->n_cells + t->n_columns > t->room) {
        const size_t room = 2 * t->room + 64;
        char **more = realloc(t->cells, room * sizeof *more);
        t->failed = t->failed || !more;
        if (!more)
            return false;
        t->cells = more;
        t->room = room;
    }
    t->n_rows++;
    return true;
}

/* Appends a copy of a cell; marks the table as failed if out of memory. */
static void add_cell(cli_table *t, const char *text)
{
    const size_t len = strlen(text) + 1;
    char *copy = malloc(len);
    if (copy)
        memcpy(copy, text, len);
    t->failed = t->failed || !copy;
    t->cells[t->n_cells++] = copy;
}

void cli_table_row(cli_table *t, uint32_t n_columns, const char *const *cells)
{
    t->n_columns = n_columns;
    if (reserve_row(t))
        for (uint32_t i = 0; i < n_columns; i++)
            add_cell(t, cells[i]);
}

void cli_table_note(cli_table *t, const char *text)
{
    if (!reserve_row(t))
        return;
    t->cells[t->n_cells++] = NULL;
    add_cell(t, text);
    for (uint32_t i = 2; i < t->n_columns; i++)
        t->cells[t->n_cells++] = NULL;
}

/* Checks whether a heading requests right alignment: a leading '#'. */
static bool is_right_aligned(const char *heading)
{
    return heading[0] == '#';
}

/* Raises the column widths to the longest cells', in terminal
 * columns. */
static void measure_columns(const cli_table *t, size_t *widths)
{
    for (uint32_t row = 0; row < t->n_rows; row++) {
        char *const *cells = t->cells + (size_t)row * t->n_columns;
        const bool counts = cells[0] && (row > 0 || !t->hide_heading);
        for (uint32_t i = 0; counts && i < t->n_columns; i++) {
            const size_t columns = cli_columns(
                cells[i] + (row == 0 && is_right_aligned(cells[i])));
            if (columns > widths[i])
                widths[i] = columns;
        }
    }
}

/* Prints a row's last cell after column `at`: in the rest of the line, or
 * below if that is too narrow. */
static void print_last(cli *c, size_t at, size_t below, const char *text)
{
    enum { LEAST = 40 }; /* columns */
    const size_t width = cli_width();
    if (at + 2 + LEAST <= width)
        below = at + 2;
    else if (at + 2 + cli_columns(text) > width)
        at = width; /* does not fit here */
    if (at == width)
        cli_print(c, "\n%*s", (int)below, "");
    else
        cli_print(c, "  ");
    print_lines(c, at == width ? below : at + 2, below, text);
}

/* Prints a table note below its row, wrapped and indented to column `at`. */
static void print_note(cli *c, size_t at, const char *text)
{
    enum { NOTE = 4 };
    cli_print(c, "%*s", NOTE, "");
    print_lines(c, at + NOTE, at + NOTE, text);
}

/* Prints one table row; the last column is wrapped under its beginning. */
static void print_row(cli *c, const char *label, const cli_table *t,
                      const size_t *widths, uint32_t row)
{
    const size_t begin = t->after_label ? CLI_LABEL : 2;
    char *const *cells = t->cells + (size_t)row * t->n_columns;
    const bool heading = row == 0;
    size_t at = begin;
    uint32_t n = t->n_columns;
    cli_print(c, "%-*s", (int)begin, label);
    if (!cells[0]) {
        print_note(c, begin, cells[1]);
        return;
    }
    while (n > 1 && !*cells[n - 1])
        n--; /* no trailing blanks */
    for (uint32_t i = 0; i < n; i++) {
        const bool right = is_right_aligned(t->cells[i]);
        const char *cell = cells[i] + (heading && is_right_aligned(cells[i]));
        if (i > 0 && i == t->n_columns - 1 && !right) {
            print_last(c, at, begin + 4, cell);
            return;
        }
        const int width = i + 1 < n || right ? (int)widths[i] : 0;
        cli_print(c, right ? "%s%*s" : "%s%-*s", i ? "  " : "", width, cell);
        at += widths[i] + (i ? 2 : 0);
    }
    cli_print(c, "\n");
}

/* Frees the cells and empties the table. */
static void release_table(cli_table *t)
{
    for (size_t k = 0; k < t->n_cells; k++)
        free(t->cells[k]);
    free(t->cells);
    *t = (cli_table){0};
}

void cli_table_print(cli *c, const char *label, cli_table *t)
{
    size_t widths[CLI_MOST_COLUMNS] = {0};
    t->after_label = t->after_label || *label;
    if (t->failed)
        cli_print(c, "(out of memory)\n");
    else
        measure_columns(t, widths);
    for (uint32_t i = t->hide_heading; i < t->n_rows && !t->failed; i++)
        print_row(c, i > t->hide_heading ? "" : label, t, widths, i);
    release_table(t);
}

/* Adds all rows below the heading to the report's table; a note fills the last
 * cell. */
static lh_status report_rows(cli *c, const cli_table *t, lh_report *report)
{
    const uint32_t n = t->n_columns;
    for (uint32_t i = 1; i < t->n_rows; i++) {
        char *const *row = t->cells + (size_t)i * n;
        const char *cells[CLI_MOST_COLUMNS];
        for (uint32_t k = 0; k < n; k++)
            cells[k] = cli_utf8_name(c, row[0] ? row[k] : "");
        if (!row[0])
            cells[n - 1] = cli_utf8_name(c, row[1]);
        CLI_TRY(lh_report_add_cells(report, n, cells, &c->err));
    }
    return LH_OK;
}

lh_status cli_table_report(cli *c, const char *title, cli_table *t,
                           lh_report *report)
{
    lh_report_table table = {.size = sizeof table,
                             .title = title,
                             .n_columns = t->n_columns,
                             .head = (const char *const *)t->cells};
    lh_status status = t->failed ? cli_no_memory(c) : LH_OK;
    if (status == LH_OK && t->n_rows > 1)
        status = lh_report_add_table(report, &table, &c->err);
    if (status == LH_OK)
        status = report_rows(c, t, report);
    release_table(t);
    return status;
}
