/* SPDX-License-Identifier: Apache-2.0 */
/* The part of a page that a program writes. */
#ifndef PAGE_PART_H
#define PAGE_PART_H

#include <stdbool.h>
#include <stdio.h>

/* Whether the part of a page between two lines that begin with "<!-- " and
 * `program` is `made`, give or take 2 % or `give` of each number; or writes
 * it there. false: a message is on stderr. */
bool page_part(const char *program, const char *path, bool write, double give,
               const char *made);

typedef struct page_how {
    bool quick; /* only lines that take no more than seconds together */
    const char *folder;
} page_how;

/* A part of a page that a program writes, between two lines that begin with
 * "<!-- PROGRAM NAME:". */
typedef struct page_table {
    const char *name;
    void (*print)(FILE *to, const page_how *how);
} page_table;

/* A program that writes such parts, each the same on every machine:
 *
 *     PROGRAM [--check PAGE [--quick] | --write PAGE] [FOLDER]
 *
 * --check fails where PAGE has not exactly these lines; with --quick, where
 * lines that are quickly made do not stand in their part in that order. Without
 * arguments the parts are printed. `folder` where no other is given. Returns
 * the exit status. */
int page_program(const char *program, const page_table *tables, size_t n,
                 const char *folder, int argc, char **argv);

/* What programs with such a part are told. */
typedef struct page_arguments {
    const char *folder; /* of their data */
    const char *page;   /* NULL: none */
    bool write;
} page_arguments;

/* Reads `--check PAGE`, `--write PAGE` or FOLDER at argv[*i], and leaves *i at
 * its last word. false: it is none of these. */
bool page_argument(int argc, char **argv, int *i, page_arguments *a);

#endif
