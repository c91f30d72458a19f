/* SPDX-License-Identifier: Apache-2.0 */
/* CSV files of measured runs. */
#ifndef TABLE_H
#define TABLE_H

#include <stdbool.h>
#include <stdint.h>

enum { MAX_FIELDS = 24 };

/* A CSV file without quotes: fields by name of the header's. */
typedef struct table {
    char *text;
    uint32_t n_columns, n_rows;
    char *header[MAX_FIELDS];
    char **cells; /* n_rows x n_columns */
} table;

/* A whole file, to be freed; NULL: a message went to stderr. */
char *table_text_of(const char *path);
/* false: a message went to stderr. */
bool table_read(const char *folder, const char *file, table *out);
void table_fini(table *t);
const char *table_text(const table *t, uint32_t row, const char *column);
double table_number(const table *t, uint32_t row, const char *column);
uint32_t table_count(const table *t, uint32_t row, const char *column);

#endif
