/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces cli/signals.c and cli/terminal.c, and functions missing from
 * WebAssembly's libc. The page acts as the terminal: it shows standard error,
 * and ends the program by terminating its worker. */
#include "cli.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Width of the page's text, in columns. */
enum { PAGE_COLUMNS = 96 };

uint32_t cli_width(void)
{
    return PAGE_COLUMNS;
}

bool cli_color(const cli *c)
{
    (void)c;
    return false;
}

bool cli_unicode(void)
{
    return true;
}

/* A line with this prefix replaces the previous one: wasi.js recognises it. */
void cli_progress(const cli *c, const char *format, ...)
{
    char line[72];
    va_list args;
    if (c->common.quiet)
        return;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    fprintf(stderr, "\r%s\n", line);
}

void cli_progress_end(void)
{
}

void cli_progress_erase(void)
{
}

void cli_catch_signals(void)
{
}

void cli_interrupts_begin(const cli *c, cli_interrupt how)
{
    (void)c;
    (void)how;
}

uint32_t cli_interrupts(void)
{
    return 0;
}

uint32_t cli_interrupts_end(void)
{
    return 0;
}

void cli_defer_signals(void)
{
}

void cli_release_signals(void)
{
}

/* --- libc --------------------------------------------------------------- */

/* There are no symbolic links. */
char *realpath(const char *path, char *resolved)
{
    return resolved ? strcpy(resolved, path) : strdup(path);
}

int fchmod(int fd, mode_t mode)
{
    (void)fd;
    (void)mode;
    return 0;
}

uid_t geteuid(void)
{
    return 0;
}

pid_t getpid(void)
{
    return 1;
}

int gethostname(char *name, size_t size)
{
    (void)name;
    (void)size;
    errno = ENOSYS;
    return -1;
}
