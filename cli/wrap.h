/* SPDX-License-Identifier: Apache-2.0 */
/* Wraps text and tables to the terminal's width. */
#ifndef CLI_WRAP_H
#define CLI_WRAP_H

#include "cli.h"

#include <longhaul/experimental/report.h>

enum {
    CLI_LABEL = 14,        /* columns for a label and the gap after it */
    CLI_MOST_COLUMNS = 10, /* per table */
};

/* Prints a label and the text beside it, wrapped to cli_width() columns. Lines
 * break at spaces; words break only if longer than a line. `label` occupies the
 * first CLI_LABEL columns in the first line. */
void cli_wrap(cli *c, const char *label, const char *format, ...)
    CLI_PRINTF(3, 4);
/* Returns how many lines cli_wrap() needs for `text`. */
uint32_t cli_count_lines(const char *text);
/* Returns `text`, truncated with "..." to fit into `columns`. */
const char *cli_shorten(const char *text, size_t columns, char *buffer,
                        size_t room);

/* Table with columns as wide as their widest cell. All zero: no rows yet. */
typedef struct cli_table {
    uint32_t n_columns, n_rows; /* equal in each row */
    size_t n_cells, room;
    char **cells;      /* a row's cells; for notes NULL and the text */
    bool hide_heading; /* hides the heading */
    bool after_label;  /* printed after a label */
    bool failed;       /* out of memory */
} cli_table;

/* Adds a row of n_columns cells to a table. The first row is the heading; a
 * cell's leading '#' there (not printed) right-aligns its column. */
void cli_table_row(cli_table *t, uint32_t n_columns, const char *const *cells);
/* Adds a note, one or more lines of text, below the last table row. */
void cli_table_note(cli_table *t, const char *text);
/* Prints the table after a label, or indented if that is "", and releases it. A
 * last cell that does not fit continues below. */
void cli_table_print(cli *c, const char *label, cli_table *t);
/* Adds the table to a report and frees it. A note becomes a row with its text
 * in the last column. A table without rows below its heading is not added. */
lh_status cli_table_report(cli *c, const char *title, cli_table *t,
                           lh_report *report);

#endif
