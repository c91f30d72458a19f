/* SPDX-License-Identifier: Apache-2.0 */
/* Where output goes, and what the terminal can show. */
#define _DEFAULT_SOURCE
#include "cli.h"

#include <errno.h>
#include <langinfo.h>
#include <signal.h>
#include <stdarg.h>
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

/* --- standard error ------------------------------------------------------- */

static volatile sig_atomic_t progress_shown;

void cli_progress(const cli *c, const char *format, ...)
{
    if (c->common.quiet || !isatty(STDERR_FILENO))
        return;
    char line[72];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    progress_shown = 1;
    fprintf(stderr, "\r%s\033[K", line);
    fflush(stderr);
}

void cli_progress_end(void)
{
    if (progress_shown) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
    }
    progress_shown = 0;
}

void cli_note(const cli *c, const char *format, ...)
{
    if (c->common.quiet)
        return;
    cli_progress_end();
    va_list args;
    va_start(args, format);
    fputs("longhaul: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
}

/* --- signals -------------------------------------------------------------- */

static const int ending_signals[] = {SIGINT, SIGTERM, SIGHUP};

/* Leaves no half-drawn line behind, then ends as the signal would have. */
static void end_by_signal(int number)
{
    if (progress_shown) {
        static const char clear[] = "\r\033[K";
        ssize_t put = write(STDERR_FILENO, clear, sizeof clear - 1);
        (void)put;
    }
    raise(number); /* the action is the default by now: SA_RESETHAND */
}

void cli_catch_signals(void)
{
    for (size_t i = 0; i < sizeof ending_signals / sizeof *ending_signals;
         i++) {
        struct sigaction old, new = {.sa_handler = end_by_signal};
        new.sa_flags = (int)SA_RESETHAND;
        sigemptyset(&new.sa_mask);
        if (sigaction(ending_signals[i], NULL, &old) == 0 &&
            old.sa_handler != SIG_IGN) /* as nohup wants it */
            sigaction(ending_signals[i], &new, NULL);
    }
}

static void mask_signals(int how)
{
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof ending_signals / sizeof *ending_signals; i++)
        sigaddset(&set, ending_signals[i]);
    sigprocmask(how, &set, NULL);
}

void cli_hold_signals(void)
{
    mask_signals(SIG_BLOCK);
}

void cli_release_signals(void)
{
    mask_signals(SIG_UNBLOCK);
}

/* --- files and standard output ----------------------------------------------
 */

lh_status cli_write(cli *c, const char *path, const char *text, size_t len)
{
    cli_hold_signals();
    lh_status status = lh_file_write(path, text, len, &c->err);
    cli_release_signals();
    return status;
}

lh_status cli_put_json(cli *c, json_t *object)
{
    if (!object)
        return cli_no_memory(c);
    /* 15 digits: every time below 11 days to the nanosecond, and 0.1 stays
     * 0.1. */
    char *text = json_dumps(object, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    json_decref(object);
    if (!text)
        return cli_no_memory(c);
    fputs(text, c->out);
    fputc('\n', c->out);
    free(text);
    return LH_OK;
}

int cli_write_out(cli *c, const char *text, size_t len)
{
    if (c->common.output && !(c->command && c->command->own_output)) {
        if (cli_write(c, c->common.output, text, len) == LH_OK)
            return EXIT_OK;
        fprintf(stderr, "longhaul: %s\n", c->err.text);
        return EXIT_FAILED;
    }
    if (fwrite(text, 1, len, stdout) == len && fflush(stdout) == 0)
        return EXIT_OK;
    fprintf(stderr, "longhaul: cannot write to standard output: %s\n",
            strerror(errno));
    return EXIT_FAILED;
}
