/* SPDX-License-Identifier: Apache-2.0 */
/* Text for people in lines and columns that fit. */
#ifndef CLI_WRAP_H
#define CLI_WRAP_H

#include "cli.h"

#include <longhaul/report.h>

enum {
    CLI_LABEL = 14, /* columns of a label and what is left free behind it */
    CLI_MOST_COLUMNS = 10, /* of a table */
};

/* A label, and beside it the text in as many lines of cli_width() columns as it
 * needs, at most `most` of them (0: any number); what is left then ends in
 * "...". Lines break at spaces, words only where they have no room in a line.
 * `label` stands in the first CLI_LABEL columns of the first line. */
void cli_wrap(cli *c, const char *label, uint32_t most, const char *format, ...)
    CLI_PRINTF(4, 5);
/* `text`, or as much of it as has room in so many columns with "..." behind it.
 */
const char *cli_shorten(const char *text, size_t columns, char *buffer,
                        size_t room);

/* Columns as wide as the widest of their cells. All zero: no rows yet. */
typedef struct cli_table {
    uint32_t n_columns, n_rows; /* the same number in each row */
    size_t n_cells, room;
    char **cells;  /* a row's; of notes NULL and the text */
    uint32_t most; /* lines of a row's last cell; 0: any number */
    bool bare;     /* the heading is not shown */
    bool labelled; /* stands behind a label */
    bool failed;   /* no memory */
} cli_table;

/* Adds a row; the first is the heading, and a heading that begins with '#' (not
 * shown) puts its column's cells at the right end. */
void cli_table_row(cli_table *t, uint32_t n_columns, const char *const *cells);
/* Adds a line, or several, of text below the last row. */
void cli_table_note(cli_table *t, const char *text);
/* Prints it behind a label, or moved in a little where that is "", and releases
 * it. A last cell without room goes on below. */
void cli_table_print(cli *c, const char *label, cli_table *t);
/* Adds it to a report, and releases it: a note is a row with its text in the
 * last column. A table without rows below its heading is not added. */
lh_status cli_table_report(cli *c, const char *title, cli_table *t,
                           lh_report *report);

#endif
