/* SPDX-License-Identifier: Apache-2.0 */
/* Kills the program at its n-th file system call, makes that call fail, or logs
 * the calls. The program is linked with -Wl,--wrap for each of them
 * (tests/meson.build). Nothing is synced to the disk: only the calls and their
 * order matter. */
#ifndef FAIL_CALL_H
#define FAIL_CALL_H

#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Failure injected at a call. */
typedef enum fail_how {
    FAIL_NOT,
    FAIL_CRASH, /* the process exits before the call */
    FAIL_EIO,
    FAIL_ENOSPC,   /* only calls that need disk space */
    FAIL_NO_SPACE, /* also for all later ones */
    FAIL_SHORT,    /* writes half the bytes */
    FAIL_N_HOW
} fail_how;

/* Missing file system features. */
static bool lacks_flock, lacks_link, lacks_exchange;

static struct {
    fail_how how;
    long at, n; /* failing call, number of calls so far */
    bool hit;
} fail_call;

enum { CRASHED = 99 };

/* Injects a failure at call number `at`, counted from 0. */
static inline void fail_call_begin(fail_how how, long at)
{
    fail_call.how = how;
    fail_call.at = at;
    fail_call.n = 0;
    fail_call.hit = false;
}

/* Stops failure injection. */
static inline void fail_call_end(void)
{
    fail_call.how = FAIL_NOT;
}

/* --- log ------------------------------------------------------------------ */

/* One logged call. */
typedef struct call_event {
    char what; /* w write, c create, s sync, r rename, x exchange, l link, u
                * remove, m mkdir */
    char path[200], to[200];
} call_event;

enum { MOST_EVENTS = 4096, MOST_FDS = 256 };
static call_event call_events[MOST_EVENTS];
static int n_call_events = -1; /* negative: logging is off */
static char call_paths[MOST_FDS][200];

/* Appends a call to the log, if logging is on. */
static void log_call(char what, const char *path, const char *to)
{
    if (n_call_events < 0 || n_call_events == MOST_EVENTS)
        return;
    call_event *e = &call_events[n_call_events++];
    e->what = what;
    snprintf(e->path, sizeof e->path, "%s", path);
    snprintf(e->to, sizeof e->to, "%s", to);
}

/* Returns the path that was opened as fd; "" if unknown. */
static const char *path_of(int fd)
{
    return fd >= 0 && fd < MOST_FDS ? call_paths[fd] : "";
}

/* --- wrapped calls -------------------------------------------------------- */

/* Checks whether the call has to fail; sets errno. */
static bool fails(bool needs_room)
{
    if (fail_call.how == FAIL_NOT || fail_call.how == FAIL_SHORT)
        return false;
    bool room = fail_call.how == FAIL_ENOSPC || fail_call.how == FAIL_NO_SPACE;
    if (room && !needs_room)
        return false;
    long n = fail_call.n++;
    if (n < fail_call.at ||
        (n > fail_call.at && fail_call.how != FAIL_NO_SPACE))
        return false;
    if (fail_call.how == FAIL_CRASH)
        _exit(CRASHED);
    fail_call.hit = true;
    errno = room ? ENOSPC : EIO;
    return true;
}

/* Returns the number of bytes to write. */
static size_t part_of(size_t size)
{
    if (fail_call.how != FAIL_SHORT || fail_call.n++ != fail_call.at)
        return size;
    fail_call.hit = true;
    return (size + 1) / 2;
}

/* Stores the path for fd and logs a creation; returns fd. */
static int opened(int fd, const char *path, int flags, bool is_new)
{
    if (fd >= 0 && fd < MOST_FDS)
        snprintf(call_paths[fd], sizeof call_paths[fd], "%s", path);
    if (fd >= 0 && is_new && (flags & O_CREAT))
        log_call('c', path, "");
    return fd;
}

#define WRAP_OPEN(name)                                                        \
    int __real_##name(const char *path, int flags, ...);                       \
    int __wrap_##name(const char *path, int flags, ...);                       \
    int __wrap_##name(const char *path, int flags, ...)                        \
    {                                                                          \
        va_list args;                                                          \
        va_start(args, flags);                                                 \
        mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;              \
        va_end(args);                                                          \
        if (fails(flags & O_CREAT))                                            \
            return -1;                                                         \
        return opened(__real_##name(path, flags, mode), path, flags, true);    \
    }
WRAP_OPEN(open)
WRAP_OPEN(open64)

#define WRAP_PWRITE(name)                                                      \
    ssize_t __real_##name(int fd, const void *data, size_t size, off_t at);    \
    ssize_t __wrap_##name(int fd, const void *data, size_t size, off_t at);    \
    ssize_t __wrap_##name(int fd, const void *data, size_t size, off_t at)     \
    {                                                                          \
        if (fails(true))                                                       \
            return -1;                                                         \
        log_call('w', path_of(fd), "");                                        \
        return __real_##name(fd, data, part_of(size), at);                     \
    }
WRAP_PWRITE(pwrite)
WRAP_PWRITE(pwrite64)

#define WRAP_FALLOCATE(name)                                                   \
    int __real_##name(int fd, off_t at, off_t size);                           \
    int __wrap_##name(int fd, off_t at, off_t size);                           \
    int __wrap_##name(int fd, off_t at, off_t size)                            \
    {                                                                          \
        if (fails(true))                                                       \
            return errno;                                                      \
        log_call('w', path_of(fd), "");                                        \
        return __real_##name(fd, at, size);                                    \
    }
WRAP_FALLOCATE(posix_fallocate)
WRAP_FALLOCATE(posix_fallocate64)

ssize_t __real_write(int fd, const void *data, size_t size);
ssize_t __wrap_write(int fd, const void *data, size_t size);
ssize_t __wrap_write(int fd, const void *data, size_t size)
{
    if (fails(true))
        return -1;
    log_call('w', path_of(fd), "");
    return __real_write(fd, data, part_of(size));
}

int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    if (fails(false))
        return -1;
    log_call('s', path_of(fd), "");
    return 0;
}

int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_close(int fd)
{
    bool bad = fails(false);
    int why = errno;
    int done = __real_close(fd);
    errno = why;
    return bad ? -1 : done;
}

int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to)
{
    if (fails(true))
        return -1;
    int done = __real_rename(from, to);
    if (done == 0)
        log_call('r', from, to);
    return done;
}

int __real_renameat2(int at, const char *from, int other, const char *to,
                     unsigned flags);
int __wrap_renameat2(int at, const char *from, int other, const char *to,
                     unsigned flags);
int __wrap_renameat2(int at, const char *from, int other, const char *to,
                     unsigned flags)
{
    if (fails(true))
        return -1;
    if (lacks_exchange) {
        errno = EINVAL;
        return -1;
    }
    int done = __real_renameat2(at, from, other, to, flags);
    if (done == 0)
        log_call('x', from, to);
    return done;
}

int __real_link(const char *from, const char *to);
int __wrap_link(const char *from, const char *to);
int __wrap_link(const char *from, const char *to)
{
    if (fails(true))
        return -1;
    if (lacks_link) {
        errno = EPERM;
        return -1;
    }
    int done = __real_link(from, to);
    if (done == 0)
        log_call('l', from, to);
    return done;
}

int __real_flock(int fd, int what);
int __wrap_flock(int fd, int what);
int __wrap_flock(int fd, int what)
{
    if (fails(false))
        return -1;
    if (lacks_flock) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return __real_flock(fd, what);
}

int __real_mkdir(const char *path, mode_t mode);
int __wrap_mkdir(const char *path, mode_t mode);
int __wrap_mkdir(const char *path, mode_t mode)
{
    if (fails(true))
        return -1;
    int done = __real_mkdir(path, mode);
    if (done == 0)
        log_call('m', path, "");
    return done;
}

int __real_unlink(const char *path);
int __wrap_unlink(const char *path);
int __wrap_unlink(const char *path)
{
    if (fails(false))
        return -1;
    int done = __real_unlink(path);
    if (done == 0)
        log_call('u', path, "");
    return done;
}

int __real_unlinkat(int fd, const char *path, int flags);
int __wrap_unlinkat(int fd, const char *path, int flags);
int __wrap_unlinkat(int fd, const char *path, int flags)
{
    char whole[512];
    if (fails(false))
        return -1;
    int done = __real_unlinkat(fd, path, flags);
    snprintf(whole, sizeof whole, "%.200s/%.200s", path_of(fd), path);
    if (done == 0)
        log_call('u', whole, "");
    return done;
}

int __real_rmdir(const char *path);
int __wrap_rmdir(const char *path);
int __wrap_rmdir(const char *path)
{
    if (fails(false))
        return -1;
    int done = __real_rmdir(path);
    if (done == 0)
        log_call('u', path, "");
    return done;
}

#endif
