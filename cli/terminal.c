/* SPDX-License-Identifier: Apache-2.0 */
/* Detects the terminal's capabilities and prints progress. */
#define _DEFAULT_SOURCE
#include "cli.h"
#include "values.h"

#include <langinfo.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

uint32_t cli_width(void)
{
    struct winsize size;
    uint64_t columns;
    const char *text = getenv("COLUMNS");
    if (isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 &&
        size.ws_col > 0)
        columns = size.ws_col;
    else if (!text || !cli_parse_count(text, 1, 100000, &columns))
        columns = 80;
    return columns < 40 ? 40 : columns > 1000 ? 1000 : (uint32_t)columns;
}

bool cli_color(const cli *c)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    return isatty(STDOUT_FILENO) && !(no && *no) && term &&
           strcmp(term, "dumb") != 0 && !(c && c->common.output);
}

bool cli_unicode(void)
{
    return strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

/* --- standard error ----------------------------------------------------- */

static atomic_bool progress_shown; /* read by signal handlers */

void cli_progress(const cli *c, const char *format, ...)
{
    if (c->common.quiet || !isatty(STDERR_FILENO))
        return;
    char line[72], shown[4 * sizeof line];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    lh_text_escape(line, strlen(line), shown, sizeof shown);
    atomic_store(&progress_shown, true);
    fprintf(stderr, "\r%s\033[K", shown);
    fflush(stderr);
}

void cli_progress_end(void)
{
    if (atomic_exchange(&progress_shown, false)) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
    }
}

void cli_progress_erase(void)
{
    static const char clear[] = "\r\033[K";
    if (!atomic_load(&progress_shown))
        return;
    ssize_t put = write(STDERR_FILENO, clear, sizeof clear - 1);
    (void)put;
}
