/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *table_text_of(const char *path)
{
    FILE *f = fopen(path, "rb");
    char *text = NULL;
    long size = -1;

    if (f && fseek(f, 0, SEEK_END) == 0)
        size = ftell(f);
    if (size >= 0 && fseek(f, 0, SEEK_SET) == 0)
        text = calloc((size_t)size + 1, 1);
    if (text && fread(text, 1, (size_t)size, f) != (size_t)size) {
        free(text);
        text = NULL;
    }
    if (f)
        fclose(f);
    if (!text)
        fprintf(stderr, "validate: cannot read %s\n", path);
    return text;
}

static uint32_t split(char *line, char **fields)
{
    uint32_t n = 0;

    while (line && n < MAX_FIELDS) {
        char *comma = strchr(line, ',');

        if (comma)
            *comma = '\0';
        fields[n++] = line;
        line = comma ? comma + 1 : NULL;
    }
    return n;
}

bool table_read(const char *folder, const char *file, table *out)
{
    char path[512];
    char *line, *save = NULL;
    uint32_t lines = 0;

    *out = (table){0};
    snprintf(path, sizeof path, "%s/%s", folder, file);
    out->text = table_text_of(path);
    if (!out->text)
        return false;
    for (const char *c = out->text; *c; c++)
        lines += *c == '\n';
    line = strtok_r(out->text, "\r\n", &save);
    out->n_columns = split(line, out->header);
    out->cells = calloc((size_t)lines + 1, out->n_columns * sizeof(char *));
    while (out->cells && (line = strtok_r(NULL, "\r\n", &save))) {
        char *fields[MAX_FIELDS];

        if (split(line, fields) != out->n_columns || out->n_rows > lines) {
            fprintf(stderr, "validate: %s: row %u has not %u fields\n", path,
                    out->n_rows + 1, out->n_columns);
            table_fini(out);
            return false;
        }
        memcpy(out->cells + (size_t)out->n_rows++ * out->n_columns, fields,
               out->n_columns * sizeof(char *));
    }
    return out->cells != NULL;
}

void table_fini(table *t)
{
    free(t->text);
    free(t->cells);
    *t = (table){0};
}

const char *table_text(const table *t, uint32_t row, const char *column)
{
    for (uint32_t i = 0; i < t->n_columns; i++)
        if (!strcmp(t->header[i], column))
            return t->cells[(size_t)row * t->n_columns + i];
    fprintf(stderr, "validate: no column '%s'\n", column);
    return "";
}

double table_number(const table *t, uint32_t row, const char *column)
{
    return strtod(table_text(t, row, column), NULL);
}

uint32_t table_count(const table *t, uint32_t row, const char *column)
{
    double value = table_number(t, row, column);

    return value >= 0 && value < 4e9 ? (uint32_t)lround(value) : 0;
}
