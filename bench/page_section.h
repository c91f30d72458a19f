/* SPDX-License-Identifier: Apache-2.0 */
/* Updates or checks a page's generated part. */
#ifndef PAGE_PART_H
#define PAGE_PART_H

#include <stdbool.h>
#include <stdio.h>

/* Accepted absolute differences between the page and a new run, each or 2 % of
 * the number. */
typedef struct page_tolerance {
    double number;  /* of numbers that are not percentages */
    double percent; /* of numbers before " %", in points */
} page_tolerance;

/* Checks whether the page's part between two lines that begin with "<!-- " and
 * `program` equals `made`, within `give` of each number; or writes it there.
 * Returns false after printing an error. */
bool page_part(const char *program, const char *path, bool write,
               page_tolerance give, const char *made);

/* Options passed to the part's print callback. */
typedef struct page_options {
    bool quick; /* only lines computed within seconds */
    const char *folder;
} page_options;

/* A page's generated part, between two lines that begin with "<!-- PROGRAM
 * NAME:". */
typedef struct page_section {
    const char *name;
    void (*print)(FILE *to, const page_options *how);
} page_section;

/* Runs a program that generates such parts, which are equal on every machine:
 *
 *     PROGRAM [--check PAGE [--quick] | --write PAGE] [FOLDER]
 *
 * --check fails if PAGE does not contain exactly these lines; with --quick, if
 * the quickly computed lines are not in their part in that order. Without
 * arguments the parts are printed. `folder` is the default FOLDER. Returns the
 * exit status. */
int page_program(const char *program, const page_section *tables, size_t n,
                 const char *folder, int argc, char **argv);

/* Arguments to a program with generated parts. */
typedef struct page_arguments {
    const char *folder; /* data folder */
    const char *page;   /* NULL: none */
    bool write;
} page_arguments;

/* Parses `--check PAGE`, `--write PAGE` or FOLDER at argv[*i] and advances *i
 * to its last word. Returns false for any other argument. */
bool page_argument(int argc, char **argv, int *i, page_arguments *a);

#endif
