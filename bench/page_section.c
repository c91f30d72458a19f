/* SPDX-License-Identifier: Apache-2.0 */
/* Updates or checks a page's generated part. */
#define _POSIX_C_SOURCE 200809L
#include "page_section.h"

#include "table.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Finds the text between the two lines that begin with the marker. */
static bool find_part(const char *page, const char *marker, const char **from,
                      const char **to)
{
    const char *begin = strstr(page, marker);

    begin = begin ? strchr(begin, '\n') : NULL;
    *to = begin ? strstr(begin, marker) : NULL;
    *from = begin ? begin + 1 : NULL;
    return *to != NULL;
}

static bool is_close(double a, double b, double give)
{
    return fabs(a - b) <= fmax(give, 0.02 * fmax(fabs(a), fabs(b)));
}

static bool begins_number(const char *at)
{
    return isdigit((unsigned char)*at) ||
           ((*at == '+' || *at == '-') && isdigit((unsigned char)at[1]));
}

/* Checks whether two texts are equal except for nearly equal numbers. */
static bool texts_agree(const char *a, const char *a_end, const char *b,
                        page_tolerance give)
{
    while (a < a_end && *b) {
        if (begins_number(a) && begins_number(b)) {
            char *a_next, *b_next;
            double was = strtod(a, &a_next), is = strtod(b, &b_next);
            bool percent = strncmp(a_next, " %", 2) == 0;

            if (!is_close(was, is, percent ? give.percent : give.number))
                return false;
            a = a_next;
            b = b_next;
        } else if (*a++ != *b++) {
            return false;
        }
    }
    return a == a_end && !*b;
}

static bool write_page(const char *path, const char *page, const char *from,
                       const char *to, const char *made)
{
    size_t before = (size_t)(from - page);
    FILE *f = fopen(path, "wb");
    bool ok = f && fwrite(page, 1, before, f) == before &&
              fputs(made, f) >= 0 && fputs(to, f) >= 0;

    if (f && fclose(f) != 0)
        ok = false;
    return ok;
}

bool page_part(const char *program, const char *path, bool write,
               page_tolerance give, const char *made)
{
    char marker[80];
    char *page = table_text_of(path);
    const char *from, *to;
    bool ok = false;

    if (!page)
        return false;
    snprintf(marker, sizeof marker, "<!-- %s", program);
    if (!find_part(page, marker, &from, &to))
        fprintf(stderr, "%s: %s has no two lines '%s'\n", program, path,
                marker);
    else if (write)
        ok = write_page(path, page, from, to, made);
    else
        ok = texts_agree(from, to, made, give);
    if (!ok && !write)
        fprintf(stderr,
                "%s: %s has other numbers; --write %s puts these "
                "there\n",
                program, path, path);
    free(page);
    return ok;
}

bool page_argument(int argc, char **argv, int *i, page_arguments *a)
{
    const char *word = argv[*i];

    if (*i + 1 < argc &&
        (!strcmp(word, "--check") || !strcmp(word, "--write"))) {
        a->write = !strcmp(word, "--write");
        a->page = argv[++*i];
        return true;
    }
    a->folder = word;
    return word[0] != '-';
}

/* --- page tables -------------------------------------------------------- */

static char *print_table(const page_section *part, const page_options *how)
{
    char *made = NULL;
    size_t len = 0;
    FILE *to = open_memstream(&made, &len);

    if (!to)
        return NULL;
    part->print(to, how);
    if (fclose(to) == 0)
        return made;
    free(made);
    return NULL;
}

/* Returns the first line in `made` that the text lacks, in order; NULL: the
 * text has all. */
static const char *find_missing_line(const char *made, const char *from,
                                     const char *to)
{
    while (*made) {
        size_t len = strcspn(made, "\n");
        bool same = false;

        while (from < to && !same) {
            const char *end = memchr(from, '\n', (size_t)(to - from));
            size_t n = (size_t)((end ? end : to) - from);

            same = n == len && memcmp(from, made, n) == 0;
            from += n + (end != NULL);
        }
        if (!same)
            return made;
        made += len + (made[len] == '\n');
    }
    return NULL;
}

static bool check_table(const char *marker, const char *path, const char *page,
                        const char *made, bool quick)
{
    const char *from, *to, *missing;

    if (!find_part(page, marker, &from, &to)) {
        fprintf(stderr, "%s has no two lines '%s'\n", path, marker);
        return false;
    }
    if (quick)
        missing = find_missing_line(made, from, to);
    else
        missing = strlen(made) == (size_t)(to - from) &&
                          memcmp(made, from, strlen(made)) == 0
                      ? NULL
                      : made;
    if (!missing)
        return true;
    fprintf(stderr, "%s, part '%s', has not:\n%.*s\n", path, marker,
            (int)(quick ? strcspn(missing, "\n") : strlen(missing)), missing);
    return false;
}

static bool write_table(const char *marker, const char *path, const char *page,
                        const char *made)
{
    const char *from, *to;

    if (find_part(page, marker, &from, &to))
        return write_page(path, page, from, to, made);
    fprintf(stderr, "%s has no two lines '%s'\n", path, marker);
    return false;
}

static bool update_table(const char *program, const page_section *part,
                         const page_arguments *a, const page_options *how)
{
    char marker[80];
    char *made = print_table(part, how);
    char *page = made && a->page ? table_text_of(a->page) : NULL;
    bool ok = made && (page || !a->page);

    snprintf(marker, sizeof marker, "<!-- %s %s:", program, part->name);
    if (ok && !page)
        ok = printf("%s\n", made) >= 0;
    else if (ok && a->write)
        ok = write_table(marker, a->page, page, made);
    else if (ok)
        ok = check_table(marker, a->page, page, made, how->quick);
    free(page);
    free(made);
    return ok;
}

int page_program(const char *program, const page_section *tables, size_t n,
                 const char *folder, int argc, char **argv)
{
    page_arguments a = {.folder = folder};
    page_options how = {0};
    bool ok = true;

    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--quick"))
            how.quick = true;
        else
            ok = page_argument(argc, argv, &i, &a) && ok;
    }
    if (!ok || (how.quick && a.write)) {
        fprintf(stderr,
                "usage: %s [--check PAGE [--quick] | --write PAGE] [FOLDER]\n",
                program);
        return 2;
    }
    how.folder = a.folder;
    for (size_t i = 0; i < n; i++)
        ok = update_table(program, &tables[i], &a, &how) && ok;
    return !ok;
}
