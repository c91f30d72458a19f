/* SPDX-License-Identifier: Apache-2.0 */
/* Prints all text for people. A %s argument may be untrusted: it is printed as
 * lh_text_escape() escapes it, and padded by its width on the terminal.
 * Newlines and colours are trusted and belong in the format. */
#define _XOPEN_SOURCE 700
#include "cli.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

/* One conversion of a format. */
typedef struct conversion {
    char flags[8];
    int width, precision; /* precision -1: none */
    char length;          /* of the number: 'i'nt, 'l'ong, 'z', 'j' for more */
    char kind;
} conversion;

/* Counts the terminal columns of text `shown`, whose control characters are
 * escaped, in this locale. */
static size_t count_columns(const char *shown)
{
    size_t columns = 0, left = strlen(shown);
    mbstate_t state = {0};
    while (left > 0) {
        wchar_t one;
        const size_t n = mbrtowc(&one, shown, left, &state);
        if (n == 0 || n > left)
            return columns + left; /* the locale lacks these characters */
        const int wide = wcwidth(one);
        columns += wide < 0 ? 1 : (size_t)wide;
        shown += n;
        left -= n;
    }
    return columns;
}

/* Returns `text` with control characters and invalid UTF-8 escaped: in `small`
 * (`room` bytes), or in memory that the caller frees. NULL: out of memory. */
static char *escape_text(const char *text, size_t len, char *small, size_t room)
{
    const size_t needed = lh_text_escape(text, len, small, room);
    char *shown = needed < room ? small : malloc(needed + 1);
    if (shown && shown != small)
        lh_text_escape(text, len, shown, needed + 1);
    return shown;
}

/* List of texts that live as long as the cli. */
struct cli_owned_text {
    struct cli_owned_text *next;
    char text[];
};

/* Allocates a text that is freed with the program's state; NULL: out of
 * memory. */
static char *allocate_owned_text(cli *c, size_t room)
{
    struct cli_owned_text *kept = malloc(sizeof *kept + room);
    if (!kept)
        return NULL;
    kept->next = c->kept;
    c->kept = kept;
    return kept->text;
}

const char *cli_join(cli *c, const char *first, char between,
                     const char *second)
{
    const size_t room = strlen(first) + strlen(second) + 2;
    char *both = allocate_owned_text(c, room);
    if (both)
        snprintf(both, room, "%s%c%s", first, between, second);
    return both;
}

const char *cli_utf8_name(cli *c, const char *text)
{
    json_t *valid = json_string(text);
    if (valid) {
        json_decref(valid);
        return text;
    }
    const size_t len = strlen(text);
    const size_t room = lh_text_escape(text, len, NULL, 0) + 1;
    char *kept = allocate_owned_text(c, room);
    if (!kept)
        return "(out of memory)";
    lh_text_escape(text, len, kept, room);
    return kept;
}

void cli_release_names(cli *c)
{
    while (c->kept) {
        struct cli_owned_text *next = c->kept->next;
        free(c->kept);
        c->kept = next;
    }
}

size_t cli_columns(const char *text)
{
    char small[256];
    char *shown = escape_text(text, strlen(text), small, sizeof small);
    const size_t columns = shown ? count_columns(shown) : strlen(text);
    if (shown != small)
        free(shown);
    return columns;
}

/* Returns to how many bytes a precision (negative: none) truncates a text;
 * drops a character that it would split. */
static size_t truncate_bytes(const char *text, int precision)
{
    if (precision < 0)
        return strlen(text);
    const size_t len = strnlen(text, (size_t)precision);
    size_t at = len;
    while (at > 0 && len - at < 3 &&
           ((unsigned char)text[at - 1] & 0xc0) == 0x80)
        at--;
    const unsigned char first = at > 0 ? (unsigned char)text[at - 1] : 0;
    const size_t wants = first >= 0xf0   ? 4
                         : first >= 0xe0 ? 3
                         : first >= 0xc0 ? 2
                                         : 1;
    return len == (size_t)precision && wants > len - at + 1 ? at - 1 : len;
}

/* Prints an argument text by the printf() conversion `x` (width and precision).
 * Escapes its control characters and invalid UTF-8. */
static void print_untrusted(FILE *out, const conversion *x, const char *text)
{
    char small[256];
    char *shown = escape_text(text, truncate_bytes(text, x->precision), small,
                              sizeof small);
    if (!shown) {
        fputs("(out of memory)", out);
        return;
    }
    const size_t columns = count_columns(shown);
    const int fill = columns < (size_t)x->width ? x->width - (int)columns : 0;
    const bool left = strchr(x->flags, '-') != NULL;
    fprintf(out, "%*s%s%*s", left ? 0 : fill, "", shown, left ? fill : 0, "");
    if (shown != small)
        free(shown);
}

/* Reads a field width or precision of a printf() format at `at` into *out, from
 * `args` for '*'; returns the rest of the format. */
static const char *read_number(const char *at, va_list *args, int *out)
{
    if (*at == '*') {
        *out = va_arg(*args, int);
        return at + 1;
    }
    for (*out = 0; isdigit((unsigned char)*at); at++)
        *out = *out * 10 + (*at - '0');
    return at;
}

/* Parses a printf() conversion after '%', with `*` widths from `args`, into
 * *out; returns the position behind it. */
static const char *read_conversion(const char *at, va_list *args,
                                   conversion *out)
{
    size_t n = strspn(at, "-+ #0");
    *out = (conversion){.precision = -1};
    memcpy(out->flags, at, n < 7 ? n : 7);
    at = read_number(at + n, args, &out->width);
    if (out->width < 0) {
        out->width = -out->width;
        strcpy(out->flags, "-");
    }
    if (*at == '.')
        at = read_number(at + 1, args, &out->precision);
    n = strspn(at, "hlLjzt");
    out->length = n == 0 || at[0] == 'h'   ? 'i'
                  : n == 1 && at[0] == 'l' ? 'l'
                  : at[0] == 'z'           ? 'z'
                                           : 'j';
    out->kind = at[n];
    return at + n + 1;
}

/* Prints the next argument by conversion `x`, a number or character, which
 * needs no escaping. */
static void print_trusted(FILE *out, const conversion *x, va_list *args)
{
    char format[32];
    const bool real = strchr("aAeEfFgG", x->kind) != NULL;
    if (x->kind == 'c') {
        fputc(va_arg(*args, int), out);
        return;
    }
    snprintf(format, sizeof format, "%%%s*.*%s%c", x->flags,
             real || x->length == 'i' ? "" : "j", x->kind);
    if (real)
        fprintf(out, format, x->width, x->precision, va_arg(*args, double));
    else if (x->length == 'i')
        fprintf(out, format, x->width, x->precision, va_arg(*args, int));
    else
        fprintf(out, format, x->width, x->precision,
                x->length == 'l'   ? (intmax_t)va_arg(*args, long)
                : x->length == 'z' ? (intmax_t)va_arg(*args, size_t)
                                   : va_arg(*args, intmax_t));
}

/* Prints like vfprintf() to `out`, with control characters and invalid UTF-8 in
 * text arguments escaped. */
static void print_all(FILE *out, const char *format, va_list *args)
{
    while (*format) {
        const size_t plain = strcspn(format, "%");
        conversion x;
        fwrite(format, 1, plain, out);
        format += plain;
        if (!*format)
            return;
        if (format[1] == '%') {
            fputc('%', out);
            format += 2;
            continue;
        }
        format = read_conversion(format + 1, args, &x);
        if (x.kind == 's')
            print_untrusted(out, &x, va_arg(*args, const char *));
        else
            print_trusted(out, &x, args);
    }
}

void cli_print(cli *c, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    print_all(c->out, format, &args);
    va_end(args);
}

/* Prints a formatted line on standard error in one write, since other processes
 * may write to the same terminal. */
static void print_stderr_line(const char *format, va_list *args)
{
    char *text = NULL;
    size_t len = 0;
    FILE *memory = open_memstream(&text, &len);
    FILE *out = memory ? memory : stderr;
    fputs("longhaul: ", out);
    print_all(out, format, args);
    fputc('\n', out);
    if (memory && fclose(memory) == 0)
        fwrite(text, 1, len, stderr);
    free(text);
}

void cli_print_stderr(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    print_stderr_line(format, &args);
    va_end(args);
}

void cli_note(const cli *c, const char *format, ...)
{
    if (c->common.quiet)
        return;
    cli_progress_end();
    va_list args;
    va_start(args, format);
    print_stderr_line(format, &args);
    va_end(args);
}

bool cli_put_now(const cli *c, const char *line)
{
    if (c->common.quiet)
        return true;
    cli_progress_end();
    return printf("%s\n", line) >= 0 && fflush(stdout) == 0;
}

void cli_put_chart(cli *c, const char *text)
{
    fprintf(c->out, "\n%s", text);
}

void cli_put_raw(cli *c, const char *text, size_t len)
{
    fwrite(text, 1, len, c->out);
}

void cli_put_owned_text(cli *c, char *text, size_t len)
{
    cli_put_raw(c, text, len);
    lh_text_free(text);
}
