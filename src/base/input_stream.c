/* SPDX-License-Identifier: Apache-2.0 */
#define _XOPEN_SOURCE 700
#include "base/input_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Time in which a FIFO must get a writer, before the open fails. */
enum { WRITER_TIMEOUT_MS = 5000 };

lh_status lhi_input_stream_open(const char *path, lhi_input_stream *out,
                                lh_error *err)
{
    struct stat info;
    /* O_NONBLOCK: opening a FIFO would otherwise block until it has a writer.
     */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return lhi_fail(err, LH_EIO, "%s: %s", path, strerror(errno));
    if (fstat(fd, &info) != 0) {
        lhi_fail(err, LH_EIO, "%s: %s", path, strerror(errno));
        close(fd);
        return LH_EIO;
    }
    if (S_ISDIR(info.st_mode)) {
        close(fd);
        return lhi_fail(err, LH_EIO, "%s: is a directory; name a file", path);
    }
    *out = (lhi_input_stream){
        .path = path, .fd = fd, .waits = S_ISFIFO(info.st_mode)};
    return LH_OK;
}

/* Waits until input is readable or the last writer has closed, but at most
 * within_ms. Returns poll()'s result. */
static int wait_for_input(int fd, int within_ms)
{
    struct pollfd one = {.fd = fd, .events = POLLIN};
    int n;
    while ((n = poll(&one, 1, within_ms)) < 0 && errno == EINTR)
        ;
    return n;
}

lh_status lhi_input_stream_read(lhi_input_stream *input, char *bytes,
                                size_t room, size_t *n, lh_error *err)
{
    for (;;) {
        const ssize_t got = read(input->fd, bytes, room);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN) { /* a writer is connected */
            wait_for_input(input->fd, -1);
            input->waits = false;
            continue;
        }
        if (got < 0)
            return lhi_fail(err, LH_EIO, "%s: %s", input->path,
                            strerror(errno));
        if (got > 0 || !input->waits) {
            input->waits = false;
            *n = (size_t)got;
            return LH_OK;
        }
        /* Either no writer has connected, or one closed without writing. */
        if (wait_for_input(input->fd, WRITER_TIMEOUT_MS) == 0)
            return lhi_fail(err, LH_EIO,
                            "%s: is a FIFO without a writer; start its writer "
                            "first, or name a file",
                            input->path);
        input->waits = false;
    }
}

void lhi_input_stream_close(const lhi_input_stream *input)
{
    close(input->fd);
}
