/* SPDX-License-Identifier: Apache-2.0 */
#define _XOPEN_SOURCE 700
#include "base/text.h"

#include "base/input_stream.h"

#include "base/temp_file.h"

#include <longhaul/experimental/status.h>

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

void lhi_text_fini(lhi_text *text)
{
    free(text->data);
    *text = (lhi_text){0};
}

/* Grows the buffer for `more` bytes; sets `failed` and returns false if
 * allocation fails. */
static bool reserve_bytes(lhi_text *text, size_t more)
{
    if (text->failed)
        return false;
    if (more < text->capacity - text->len)
        return true;
    size_t room = text->capacity ? text->capacity : 256;
    while (room - text->len <= more) {
        if (room > SIZE_MAX / 2) {
            text->failed = true;
            return false;
        }
        room *= 2;
    }
    char *data = realloc(text->data, room);
    if (!data) {
        text->failed = true;
        return false;
    }
    text->data = data;
    text->capacity = room;
    return true;
}

void lhi_text_add(lhi_text *text, const char *bytes, size_t len)
{
    if (!reserve_bytes(text, len))
        return;
    if (len > 0) /* memcpy() takes no NULL */
        memcpy(text->data + text->len, bytes, len);
    text->len += len;
    text->data[text->len] = '\0';
}

void lhi_text_puts(lhi_text *text, const char *string)
{
    lhi_text_add(text, string, strlen(string));
}

void lhi_text_printf(lhi_text *text, const char *format, ...)
{
    char small[512];
    va_list args;
    va_start(args, format);
    int needed = vsnprintf(small, sizeof small, format, args);
    va_end(args);
    if (needed < 0) {
        text->failed = true;
        return;
    }
    if ((size_t)needed < sizeof small) {
        lhi_text_add(text, small, (size_t)needed);
        return;
    }
    if (!reserve_bytes(text, (size_t)needed))
        return;
    va_start(args, format);
    vsnprintf(text->data + text->len, text->capacity - text->len, format, args);
    va_end(args);
    text->len += (size_t)needed;
}

lh_status lhi_text_take(lhi_text *text, char **out, size_t *len, lh_error *err)
{
    lhi_text_add(text, "", 0);
    if (text->failed) {
        lhi_text_fini(text);
        return lhi_fail_nomem(err);
    }
    *out = text->data;
    if (len)
        *len = text->len;
    *text = (lhi_text){0};
    return LH_OK;
}

lh_status lhi_fail_too_large(const char *name, size_t max_bytes,
                             const char *what, lh_error *err)
{
    if (max_bytes % (1 << 20))
        return lhi_fail(err, LH_EINPUT,
                        "%s: exceeds %zu bytes, the limit for %s", name,
                        max_bytes, what);
    return lhi_fail(err, LH_EINPUT, "%s: exceeds %zu MiB, the limit for %s",
                    name, max_bytes >> 20, what);
}

/* Finds the first run of four NULs in `n` bytes; returns its position, or n if
 * there is none. */
static size_t find_nuls(const char *bytes, size_t n)
{
    static const char nuls[4];
    const char *at = bytes;
    while ((at = memchr(at, '\0', n - (size_t)(at - bytes))) != NULL) {
        if (n - (size_t)(at - bytes) < sizeof nuls)
            break;
        if (memcmp(at, nuls, sizeof nuls) == 0)
            return (size_t)(at - bytes);
        at++;
    }
    return n;
}

/* A read request: the path, its term for messages, the size limit, and whether
 * the file must be text. */
typedef struct read_request {
    const char *path, *what;
    size_t max_bytes;
    bool is_text;
} read_request;

/* Appends the stream's contents to `text` up to its end. LH_EINPUT: they exceed
 * the size limit of the request `r`, or are binary although it asks for text.
 * */
static lh_status read_chunks(lhi_input_stream *from, const read_request *r,
                             lhi_text *text, lh_error *err)
{
    for (;;) {
        char chunk[1 << 16];
        size_t n;
        LHI_TRY(lhi_input_stream_read(from, chunk, sizeof chunk, &n, err));
        if (n == 0)
            return LH_OK;
        size_t nuls = r->is_text ? find_nuls(chunk, n) : n;
        if (nuls < n)
            return lhi_fail(err, LH_EINPUT,
                            "%s: is not text: NUL characters from byte %zu on",
                            r->path, text->len + nuls);
        if (n > r->max_bytes - text->len)
            return lhi_fail_too_large(r->path, r->max_bytes, r->what, err);
        lhi_text_add(text, chunk, n);
        if (text->failed)
            return lhi_fail_nomem(err);
    }
}

/* Reads an open file to its end into `text`. LH_EINPUT: it exceeds the size
 * limit of the request `r`. */
static lh_status read_open_file(lhi_input_stream *from, const read_request *r,
                                lhi_text *text, lh_error *err)
{
    struct stat info;
    if (fstat(from->fd, &info) != 0)
        return lhi_fail(err, LH_EIO, "%s: %s", r->path, strerror(errno));
    if (S_ISREG(info.st_mode) && info.st_size > 0) {
        if ((uintmax_t)info.st_size > r->max_bytes)
            return lhi_fail_too_large(r->path, r->max_bytes, r->what, err);
        /* reserves the file size in one allocation */
        reserve_bytes(text, (size_t)info.st_size);
    }
    return read_chunks(from, r, text, err);
}

/* Opens and reads the file that the request `r` names. *out has *len bytes and
 * a NUL; the caller frees it with lh_text_free(). */
static lh_status read_file(const read_request *r, char **out, size_t *len,
                           lh_error *err)
{
    lhi_input_stream from;
    LHI_TRY(lhi_input_stream_open(r->path, &from, err));
    lhi_text text = {0};
    lh_status status = read_open_file(&from, r, &text, err);
    lhi_input_stream_close(&from);
    if (status != LH_OK) {
        lhi_text_fini(&text);
        return status;
    }
    return lhi_text_take(&text, out, len, err);
}

lh_status lhi_file_read(const char *path, size_t max_bytes, char **out,
                        size_t *len, lh_error *err)
{
    read_request r = {path, "it", max_bytes, false};
    return read_file(&r, out, len, err);
}

lh_status lhi_text_read(const char *path, size_t max_bytes, const char *what,
                        char **out, size_t *len, lh_error *err)
{
    read_request r = {path, what, max_bytes, true};
    return read_file(&r, out, len, err);
}

lh_status lh_file_read(const char *path, size_t max_bytes, char **text,
                       size_t *len, lh_error *err)
{
    return lhi_text_read(path, max_bytes, "it", text, len, err);
}

/* Writes all `len` bytes to file descriptor `fd`, retrying after signals; on
 * failure returns false with errno set. */
static bool write_bytes(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t put = write(fd, data, len);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return false;
        data += put;
        len -= (size_t)put;
    }
    return true;
}

/* Fails for `path` with LH_EIO and the text of errno value `cause`; with
 * LH_ENOMEM for ENOMEM. */
static lh_status fail_to_write(const char *path, int cause, lh_error *err)
{
    if (cause == ENOMEM)
        return lhi_fail_nomem(err);
    return lhi_fail(err, LH_EIO, "%s: cannot write: %s", path, strerror(cause));
}

/* Replaces the file `path` atomically by the `len` bytes of `text`: writes and
 * syncs a temporary file beside it, then renames that. old_mode: permissions to
 * preserve, or 0 for a new file. */
static lh_status replace_file(const char *path, mode_t old_mode,
                              const char *text, size_t len, lh_error *err)
{
    size_t room = strlen(path) + LHI_TEMP_SUFFIX_BYTES;
    char *temp = malloc(room);
    if (!temp)
        return lhi_fail_nomem(err);
    int fd = lhi_temp_file_create(path, temp, room);
    if (fd < 0) {
        lh_status status = fail_to_write(path, errno, err);
        free(temp);
        return status;
    }
    bool ok = write_bytes(fd, text, len) &&
              (old_mode == 0 || fchmod(fd, old_mode) == 0) && fsync(fd) == 0;
    int cause = ok ? 0 : errno;
    if (close(fd) != 0 && ok) {
        cause = errno;
        ok = false;
    }
    if (ok && rename(temp, path) != 0) {
        cause = errno;
        ok = false;
    }
    if (!ok) {
        unlink(temp);
        lhi_fail(err, LH_EIO, "%s: cannot write: %s", path, strerror(cause));
    }
    free(temp);
    return ok ? LH_OK : LH_EIO;
}

/* Opens a file for writing in place and returns its descriptor, or a negative
 * value with errno set. Waits a limited time for the reader of a FIFO rather
 * than blocking forever. */
static int open_for_writing(const char *path)
{
    enum { READER_WITHIN_MS = 5000, STEP_MS = 50 };
    const struct timespec step = {.tv_nsec = STEP_MS * 1000000};
    for (int waited = 0;; waited += STEP_MS) {
        const int fd =
            open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
        if (fd >= 0)
            fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
        if (fd >= 0 || errno != ENXIO || waited >= READER_WITHIN_MS)
            return fd;
        nanosleep(&step, NULL);
    }
}

/* Writes `len` bytes to a pipe, terminal or other special file directly, since
 * it cannot be replaced by a rename. */
static lh_status write_in_place(const char *path, const char *text, size_t len,
                                lh_error *err)
{
    int fd = open_for_writing(path);
    bool ok = fd >= 0 && write_bytes(fd, text, len);
    int cause = ok ? 0 : errno;
    if (fd >= 0 && close(fd) != 0 && ok) {
        cause = errno;
        ok = false;
    }
    if (!ok)
        return lhi_fail(err, LH_EIO, "%s: cannot write: %s", path,
                        fd < 0 && cause == ENXIO ? "is a FIFO without a reader"
                                                 : strerror(cause));
    return LH_OK;
}

/* Checks whether a path begins with `start`. */
static bool begins_with(const char *path, const char *start)
{
    return strncmp(path, start, strlen(start)) == 0;
}

/* Checks whether a path is below /proc or /dev and may refer to anything.
 * /dev/stdout, for instance, can be a file that another process holds open,
 * which must not be replaced. */
static bool is_special(const char *path)
{
    return begins_with(path, "/proc/") ||
           (begins_with(path, "/dev/") && !begins_with(path, "/dev/shm/"));
}

/* Writes through a symbolic link: replaces its target and preserves the link.
 */
static lh_status write_link_target(const char *path, const char *text,
                                   size_t len, lh_error *err)
{
    struct stat info;
    char next[4096];
    ssize_t n = readlink(path, next, sizeof next - 1);
    next[n < 0 ? 0 : n] = '\0';
    bool exists = stat(path, &info) == 0;
    if (exists && S_ISDIR(info.st_mode))
        return lhi_fail(err, LH_EIO, "%s: is a directory; name a file", path);
    if (!exists || !S_ISREG(info.st_mode) || is_special(next))
        return write_in_place(path, text, len, err);
    char *target = realpath(path, NULL);
    if (!target)
        return lhi_fail(err, LH_EIO, "%s: cannot write: %s", path,
                        strerror(errno));
    lh_status status =
        replace_file(target, info.st_mode & 0777, text, len, err);
    free(target);
    return status;
}

lh_status lh_file_write(const char *path, const char *text, size_t len,
                        lh_error *err)
{
    struct stat info;
    bool exists = lstat(path, &info) == 0;
    if (exists && S_ISDIR(info.st_mode))
        return lhi_fail(err, LH_EIO, "%s: is a directory; name a file", path);
    if (is_special(path))
        return write_in_place(path, text, len, err);
    if (exists && S_ISLNK(info.st_mode))
        return write_link_target(path, text, len, err);
    if (exists && !S_ISREG(info.st_mode))
        return write_in_place(path, text, len, err);
    return replace_file(path, exists ? info.st_mode & 0777 : 0, text, len, err);
}

/* Checks whether a file can be created beside `path`, by creating and removing
 * one. LH_EIO: it cannot. */
static lh_status check_can_create(const char *path, lh_error *err)
{
    size_t room = strlen(path) + LHI_TEMP_SUFFIX_BYTES;
    char *temp = malloc(room);
    if (!temp)
        return lhi_fail_nomem(err);
    int fd = lhi_temp_file_create(path, temp, room);
    int cause = errno;
    if (fd >= 0) {
        close(fd);
        unlink(temp);
    }
    free(temp);
    return fd < 0 ? fail_to_write(path, cause, err) : LH_OK;
}

lh_status lh_file_writable(const char *path, lh_error *err)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return check_can_create(path, err);
    if (S_ISDIR(info.st_mode))
        return lhi_fail(err, LH_EIO, "%s: is a directory; name a file", path);
    /* Opening a pipe would block until it has a reader. */
    if (is_special(path) || !S_ISREG(info.st_mode))
        return access(path, W_OK) == 0
                   ? LH_OK
                   : lhi_fail(err, LH_EIO, "%s: cannot write: %s", path,
                              strerror(errno));
    char *target = realpath(path, NULL);
    if (!target)
        return lhi_fail(err, LH_EIO, "%s: cannot write: %s", path,
                        strerror(errno));
    lh_status status = check_can_create(target, err);
    free(target);
    return status;
}

void lhi_text_copy(char *to, size_t room, const char *from)
{
    size_t len = strlen(from);
    if (len >= room)
        for (len = room - 1; len > 0 && (from[len] & 0xc0) == 0x80;)
            len--;
    memcpy(to, from, len);
    to[len] = 0;
}
