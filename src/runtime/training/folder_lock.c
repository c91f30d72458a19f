/* SPDX-License-Identifier: Apache-2.0 */
/* Lock for a checkpoint folder: a file that names its owner. It is written
 * completely, then gets the lock's name only if none exists. While the process
 * lives it also holds flock(2) on the file, if the file system supports it.
 * Other hosts, or containers on the same kernel, detect the owner through flock
 * where its process number is meaningless. */
#define _GNU_SOURCE /* flock, renameat2 */
#include "base/fail.h"
#include "base/process.h"
#include "base/realtime.h"
#include "base/temp_file.h"
#include "base/text.h"
#include "runtime/training/train_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Format in a lock file's first line. */
#define LOCK_FORMAT "lock/1"

/* Maximum number of attempts to take a lock that other processes create and
 * remove; capacity for a token in bytes. */
enum { ATTEMPTS = 1000, TOKEN = 96 };

/* Anyone with write permission may place a file under the lock's name: do not
 * follow a link or block on a FIFO. */
#define LOCK_OPEN_FLAGS (O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)

/* Owner of a lock. */
typedef struct owner {
    lhi_process process;
    char token[TOKEN]; /* unique per lock ever taken */
    char since[40];
    bool flocked;
} owner;

/* A held lock. */
struct lhi_folder_lock {
    int fd; /* holds flock */
    bool made_folder;
    char token[TOKEN];
    lhi_remarks remarks;
    char folder[LHI_PATH], path[LHI_PATH];
};

/* --- lock file format --- */

/* Formats a lock file's content, JSON with the owner's host, process and token;
 * NULL: out of memory. The caller releases it with free(). */
static char *format_owner(const owner *o)
{
    const lhi_process *p = &o->process;
    json_t *root = json_pack(
        "{s:s, s:s, s:I, s:I, s:I, s:s, s:s, s:s, s:b, s:s}", "longhaul",
        LOCK_FORMAT, "host", p->host, "process", (json_int_t)p->number,
        "started", (json_int_t)p->started, "space",
        (json_int_t)p->pid_namespace, "machine", p->machine, "boot", p->boot,
        "since", o->since, "flock", (int)o->flocked, "token", o->token);
    char *text =
        root ? json_dumps(root, JSON_INDENT(1) | JSON_SORT_KEYS) : NULL;
    json_decref(root);
    return text;
}

/* Copies field `key`'s text to `out` (`room` bytes), for printing and file
 * names; false: missing, too long, or with characters other than letters,
 * digits and ._:-. */
static bool copy_text(const json_t *root, const char *key, char *out,
                      size_t room)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789._:-"
                                  "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    const char *text = json_string_value(json_object_get(root, key));
    if (!text || strlen(text) >= room || text[strspn(text, letters)] != '\0')
        return false;
    snprintf(out, room, "%s", text);
    return true;
}

/* Parses a lock file's text into the owner (host, process, token); false: not a
 * valid lock. */
static bool parse_owner(const char *text, size_t len, owner *out)
{
    owner o = {.flocked = false};
    json_t *root = json_loadb(text, len, 0, NULL);
    const char *format = json_string_value(json_object_get(root, "longhaul"));
    bool ok = format && strcmp(format, LOCK_FORMAT) == 0 &&
              copy_text(root, "host", o.process.host, sizeof o.process.host) &&
              copy_text(root, "machine", o.process.machine,
                        sizeof o.process.machine) &&
              copy_text(root, "boot", o.process.boot, sizeof o.process.boot) &&
              copy_text(root, "since", o.since, sizeof o.since) &&
              copy_text(root, "token", o.token, sizeof o.token);
    o.process.number = json_integer_value(json_object_get(root, "process"));
    o.process.started =
        (uint64_t)json_integer_value(json_object_get(root, "started"));
    o.process.pid_namespace =
        (uint64_t)json_integer_value(json_object_get(root, "space"));
    o.flocked = json_is_true(json_object_get(root, "flock"));
    json_decref(root);
    if (ok)
        *out = o;
    return ok && o.process.number > 0;
}

/* Reads the owner (host, process, token) from an open lock file; false: not a
 * valid lock. */
static bool read_owner(int fd, owner *out)
{
    char text[2048];
    ssize_t len = pread(fd, text, sizeof text, 0);
    return len > 0 && parse_owner(text, (size_t)len, out);
}

/* Checks whether the lock file at `path` was written by the claim with this
 * token (a unique text); *missing: no file exists. */
static bool has_token(const char *path, const char *token, bool *missing)
{
    owner o;
    int fd = open(path, O_RDONLY | LOCK_OPEN_FLAGS);
    *missing = fd < 0 && errno == ENOENT;
    bool same = fd >= 0 && read_owner(fd, &o) && strcmp(o.token, token) == 0;
    if (fd >= 0)
        close(fd);
    return same;
}

/* --- own lock --- */

/* A file that is to become the lock. */
typedef struct claim {
    int fd;
    char path[LHI_PATH + LHI_TEMP_SUFFIX_BYTES], token[TOKEN];
} claim;

/* Fails with LH_EIO: the lock file `path` cannot be used; the message has
 * errno's text. */
static lh_status fail_at(const char *path, lh_error *err)
{
    if (errno == ENOMEM)
        return lhi_fail_nomem(err);
    return lhi_fail(err, LH_EIO, "%.300s: cannot lock the folder: %s", path,
                    strerror(errno));
}

/* Writes this process, as the owner, and a new unique token into the claim's
 * file (which becomes the lock when it is renamed), and syncs it. */
static lh_status write_claim(claim *c, lh_error *err)
{
    owner self = {.flocked = flock(c->fd, LOCK_EX | LOCK_NB) == 0};
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    strftime(self.since, sizeof self.since, "%Y-%m-%dT%H:%M:%SZ", &utc);
    lhi_process_identify_self(&self.process);
    /* Unique even at the same moment: each claim has its own file beside the
     * lock. */
    snprintf(self.token, sizeof self.token,
             "%08" PRIx32 "-%" PRId64 "-%" PRId64 ".%09ld-%d",
             lhi_process_hash_namespace(&self.process), self.process.number,
             (int64_t)now.tv_sec, now.tv_nsec, c->fd);
    memcpy(c->token, self.token, sizeof c->token);
    char *text = format_owner(&self);
    if (!text)
        return lhi_fail_nomem(err);
    size_t len = strlen(text);
    ssize_t put = pwrite(c->fd, text, len, 0);
    free(text);
    if (put >= 0 && (size_t)put < len)
        errno = ENOSPC;
    return put == (ssize_t)len && fsync(c->fd) == 0 ? LH_OK
                                                    : fail_at(c->path, err);
}

/* Creates a claim: a file beside the lock at `path` that names this process and
 * becomes the lock when it is renamed. On failure no file remains. */
static lh_status open_claim(const char *path, claim *c, lh_error *err)
{
    c->fd = lhi_temp_file_create(path, c->path, sizeof c->path);
    if (c->fd < 0)
        return fail_at(path, err);
    lh_status status = write_claim(c, err);
    if (status != LH_OK) {
        unlink(c->path);
        close(c->fd);
    }
    return status;
}

/* Makes the claim's file the lock, if none exists, by a link to the lock's name
 * `path`; false with errno EEXIST if one exists. */
static bool publish_claim(const claim *c, const char *path)
{
    if (link(c->path, path) == 0) {
        unlink(c->path);
        return true;
    }
    if (errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS)
        return false;
    /* No hard links on this file system. */
    return renameat2(AT_FDCWD, c->path, AT_FDCWD, path, RENAME_NOREPLACE) == 0;
}

/* --- existing lock --- */

/* State of an existing lock's owner. */
typedef enum owner_state {
    NO_LOCK,
    OWNER_RUNS,
    OWNER_GONE,
    OWNER_ELSEWHERE,
    OWNER_UNKNOWN
} owner_state;

/* An existing lock: its owner, and whether that is still alive. */
typedef struct existing_lock {
    owner_state verdict;
    int fd;
    bool has_flock; /* by this process, until fd is closed */
    owner owner;
} existing_lock;

/* Determines the state of a lock's owner process: running, gone, or on another
 * host, where it cannot be checked. */
static owner_state find_owner_state(const existing_lock *f)
{
    lhi_process self;
    switch (lhi_process_check(&f->owner.process)) {
    case LHI_PROCESS_RUNS:
        return OWNER_RUNS;
    case LHI_PROCESS_GONE:
        return OWNER_GONE;
    case LHI_PROCESS_ELSEWHERE:
        break;
    }
    /* In another container on the same kernel, flock is authoritative. */
    lhi_process_identify_self(&self);
    return f->has_flock && f->owner.flocked &&
                   strcmp(f->owner.process.boot, self.boot) == 0
               ? OWNER_GONE
               : OWNER_ELSEWHERE;
}

/* Reads the lock file's state at `path` into `f`: no lock (NO_LOCK), or its
 * owner, the owner's state, and whether its flock is held. f->fd stays open. */
static lh_status inspect_lock(const char *path, existing_lock *f, lh_error *err)
{
    f->verdict = NO_LOCK;
    f->has_flock = false;
    f->fd = open(path, O_RDWR | LOCK_OPEN_FLAGS);
    if (f->fd < 0 && errno == EACCES)
        f->fd = open(path, O_RDONLY | LOCK_OPEN_FLAGS);
    if (f->fd < 0)
        return errno == ENOENT ? LH_OK : fail_at(path, err);
    f->has_flock = flock(f->fd, LOCK_EX | LOCK_NB) == 0;
    bool held = !f->has_flock && errno == EWOULDBLOCK;
    if (!read_owner(f->fd, &f->owner))
        f->verdict = OWNER_UNKNOWN;
    else
        f->verdict = held ? OWNER_RUNS : find_owner_state(f);
    return LH_OK;
}

/* Fails with LH_EIO: another run has the lock at `path`; the message names its
 * owner and the remedy. */
static lh_status fail_locked(const char *path, const existing_lock *f,
                             lh_error *err)
{
    const owner *o = &f->owner;
    if (f->verdict == OWNER_UNKNOWN)
        return lhi_fail(err, LH_EIO,
                        "%.300s: is not a lock file of longhaul, or is "
                        "damaged; remove it if no run uses the folder",
                        path);
    if (f->verdict == OWNER_ELSEWHERE)
        return lhi_fail(err, LH_EIO,
                        "%.200s: the folder is in use by process %" PRId64
                        " on %s since %s, which cannot be checked from this "
                        "machine; if it has ended, remove this file",
                        path, o->process.number, o->process.host, o->since);
    return lhi_fail(err, LH_EIO,
                    "%.300s: the folder is in use by process %" PRId64
                    " on %s since %s; wait until it ends or name another "
                    "folder",
                    path, o->process.number, o->process.host, o->since);
}

/* Replaces a stale lock by the claim's file where flock is not available. Only
 * the process that creates a folder named by the lock's token may rename its
 * claim. False: another process was first, or an error. */
static bool replace_by_folder(const char *path, const existing_lock *f,
                              const claim *c)
{
    char gone[LHI_PATH];
    bool missing;
    if (lhi_folder_path(gone, NULL, "%s" LHI_LOCK_TAKEOVER_SUFFIX "%s", path,
                        f->owner.token) != LH_OK ||
        mkdir(gone, 0777) != 0)
        return false;
    bool ok =
        has_token(path, f->owner.token, &missing) && rename(c->path, path) == 0;
    rmdir(gone);
    return ok;
}

/* Replaces a stale lock, whose owner is dead, by the claim's file; false:
 * another process may have replaced it first. */
static bool replace_stale(const char *path, const existing_lock *f,
                          const claim *c)
{
    bool missing;
    if (!f->has_flock)
        return replace_by_folder(path, f, c);
    return has_token(path, f->owner.token, &missing) &&
           rename(c->path, path) == 0;
}

/* Prints a remark that this run has taken over the lock of `o`, a dead process.
 * */
static void report_takeover(const lhi_folder_lock *lock, const owner *o)
{
    char text[600];
    snprintf(
        text, sizeof text,
        "%.300s: was in use by process %" PRId64
        " on %s since %s, which has ended; its incomplete files are removed",
        lock->folder, o->process.number, o->process.host, o->since);
    if (lock->remarks.print)
        lock->remarks.print(lock->remarks.context, text);
}

/* --- acquire and release --- */

/* Tries once to make the claim's file the lock; *taken: it is now. Takes over a
 * dead process's lock. LH_EIO: another run has it. */
static lh_status try_lock(lhi_folder_lock *lock, const claim *c, bool *taken,
                          lh_error *err)
{
    existing_lock f;
    *taken = publish_claim(c, lock->path);
    if (*taken)
        return LH_OK;
    if (errno != EEXIST)
        return fail_at(lock->path, err);
    LHI_TRY(inspect_lock(lock->path, &f, err));
    lh_status status = LH_OK;
    if (f.verdict != NO_LOCK && f.verdict != OWNER_UNKNOWN &&
        strcmp(f.owner.token, c->token) == 0) {
        *taken = true; /* a network file system has repeated the call */
        close(f.fd);
        return LH_OK;
    }
    if (f.verdict == OWNER_GONE)
        *taken = replace_stale(lock->path, &f, c);
    else if (f.verdict != NO_LOCK)
        status = fail_locked(lock->path, &f, err);
    if (f.fd >= 0)
        close(f.fd);
    if (*taken)
        report_takeover(lock, &f.owner);
    return status;
}

/* Acquires the checkpoint folder's lock, also if its file was removed
 * meanwhile; retries while other processes compete. */
static lh_status lock_folder(lhi_folder_lock *lock, lh_error *err)
{
    claim c;
    bool taken = false;
    LHI_TRY(open_claim(lock->path, &c, err));
    lh_status status = LH_OK;
    for (int i = 0; i < ATTEMPTS && status == LH_OK && !taken; i++) {
        if (i > 0)
            lhi_sleep_for(1000000); /* another process is at it */
        status = try_lock(lock, &c, &taken, err);
    }
    if (status == LH_OK && !taken)
        status = lhi_fail(
            err, LH_EIO,
            "%.300s: other processes change this lock; if no run uses the "
            "folder, remove it and the files whose names begin with its name",
            lock->path);
    if (status != LH_OK) {
        unlink(c.path);
        close(c.fd);
        return status;
    }
    if (lock->fd >= 0)
        close(lock->fd);
    lock->fd = c.fd;
    memcpy(lock->token, c.token, sizeof lock->token);
    return LH_OK;
}

lh_status lhi_folder_lock_take(const char *folder, const lhi_remarks *remarks,
                               lhi_folder_lock **out, lh_error *err)
{
    struct stat info;
    lhi_folder_lock *lock = calloc(1, sizeof *lock);
    if (!lock)
        return lhi_fail_nomem(err);
    lock->fd = -1;
    if (remarks)
        lock->remarks = *remarks;
    lock->made_folder = stat(folder, &info) != 0;
    lh_status status = lhi_folder_path(lock->folder, err, "%s", folder);
    if (status == LH_OK)
        status = lhi_folder_path(lock->path, err, "%s/" LHI_LOCK_FILE, folder);
    if (status == LH_OK)
        status = lhi_make_folder(folder, err);
    if (status == LH_OK)
        status = lock_folder(lock, err);
    if (status != LH_OK) {
        free(lock);
        return status;
    }
    *out = lock;
    return LH_OK;
}

lh_status lhi_folder_lock_check(lhi_folder_lock *lock, lh_error *err)
{
    bool missing;
    if (has_token(lock->path, lock->token, &missing))
        return LH_OK;
    if (!missing)
        return lhi_fail(err, LH_EIO,
                        "%.300s: another run has replaced this run's lock; no "
                        "checkpoint was written",
                        lock->path);
    /* Removed, perhaps with the folder. */
    LHI_TRY(lhi_make_folder(lock->folder, err));
    return lock_folder(lock, err);
}

void lhi_folder_lock_release(lhi_folder_lock *lock)
{
    bool missing;
    if (!lock)
        return;
    if (has_token(lock->path, lock->token, &missing))
        unlink(lock->path);
    close(lock->fd);
    if (lock->made_folder)
        rmdir(lock->folder); /* unless it is not empty */
    free(lock);
}
