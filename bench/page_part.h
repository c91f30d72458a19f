/* SPDX-License-Identifier: Apache-2.0 */
/* The part of a page that a program writes. */
#ifndef PAGE_PART_H
#define PAGE_PART_H

#include <stdbool.h>

/* Whether the part of a page between two lines that begin with "<!-- " and
 * `program` is `made`, give or take 2 % or `give` of each number; or writes
 * it there. false: a message is on stderr. */
bool page_part(const char *program, const char *path, bool write, double give,
               const char *made);

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
