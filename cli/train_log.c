/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a run's log: one line per iteration, as soon as it is complete. A
 * failed write is reported once and does not end the training, which may have
 * run for days; the exit status is non-zero. */
#define _DEFAULT_SOURCE
#include "train_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

lh_status train_log_open(cli *c, const char *path, train_log *out)
{
    /* Opening a FIFO would wait for its reader. */
    const int fd = open(
        path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
    if (fd < 0 && errno == ENXIO)
        return cli_error(c, LH_EIO,
                         "%s: FIFO without a reader; start the reader first",
                         path);
    if (fd < 0)
        return cli_error(c, LH_EIO, "%s: cannot write: %s", path,
                         errno == EISDIR ? "it is a directory; name a file"
                                         : strerror(errno));
    fcntl(fd, F_SETFL, O_APPEND);
    bool *failed = mmap(NULL, sizeof *failed, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (failed == MAP_FAILED) {
        close(fd);
        return cli_no_memory(c);
    }
    *out = (train_log){.fd = fd, .path = path, .failed = failed};
    return LH_OK;
}

/* Marks the log as failed and prints the cause; the run continues without it.
 */
static void fail_log(train_log *log, int cause)
{
    *log->failed = true;
    cli_progress_end();
    cli_print_stderr("%s: cannot write: %s; the log ends here, the run "
                     "continues",
                     log->path, strerror(cause));
}

/* Appends a line to the file `fd`. Returns false after a failure, with errno
 * set, and removes the partially written line where the file permits it. */
static bool append_line(int fd, const char *line, size_t len)
{
    struct stat before;
    size_t done = 0;
    const bool cuts = fstat(fd, &before) == 0 && S_ISREG(before.st_mode);
    while (done < len) {
        const ssize_t put = write(fd, line + done, len - done);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0) {
            const int cause = errno;
            const int cut =
                cuts && done > 0 ? ftruncate(fd, before.st_size) : 0;
            (void)cut; /* otherwise a partial line remains */
            errno = cause;
            return false;
        }
        done += (size_t)put;
    }
    return true;
}

void train_log_add(train_log *log, const lh_iteration *it,
                   train_changes *changes)
{
    if (!log->failed || *log->failed)
        return;
    const train_iteration_context at = {.schedule = changes->current,
                                        .path = changes->path,
                                        .event_timeline =
                                            changes->event_timeline};
    json_t *json = train_iteration_json(it, &at);
    if (json && changes->pending_log) {
        json_object_set_new(json, "switch", changes->pending_log);
        changes->pending_log = NULL;
    }
    if (json)
        train_notices_log(changes, json);
    char *text =
        json ? json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(12)) : NULL;
    if (!text) {
        fail_log(log, ENOMEM);
    } else {
        const size_t len = strlen(text);
        text[len] = '\n'; /* replaces the terminating NUL */
        if (!append_line(log->fd, text, len + 1))
            fail_log(log, errno);
    }
    free(text);
    json_decref(json);
}

bool train_log_close(train_log *log)
{
    if (!log->failed)
        return true;
    if (close(log->fd) != 0 && !*log->failed)
        fail_log(log, errno);
    const bool written = !*log->failed;
    munmap(log->failed, sizeof *log->failed);
    log->failed = NULL;
    return written;
}
