/* SPDX-License-Identifier: Apache-2.0 */
/* Reads measured runs' CSV files. */
#ifndef TABLE_H
#define TABLE_H

#include <stdbool.h>
#include <stdint.h>

enum { MAX_FIELDS = 24 };

/* CSV file without quotes; fields are found by header name. */
typedef struct table {
    char *text;
    uint32_t n_columns, n_rows;
    char *header[MAX_FIELDS];
    char **cells; /* n_rows x n_columns */
} table;

/* Reads a whole file; free with free(). Returns NULL after printing an error.
 */
char *table_text_of(const char *path);
/* Reads a table. Returns false after printing an error. */
bool table_read(const char *folder, const char *file, table *out);
/* Releases a table. */
void table_fini(table *t);
/* Returns a cell's text. */
const char *table_text(const table *t, uint32_t row, const char *column);
/* Returns a cell as a number. */
double table_number(const table *t, uint32_t row, const char *column);
/* Returns a cell as a count. */
uint32_t table_count(const table *t, uint32_t row, const char *column);

#endif
