/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoint folders, and stale files of killed runs. Removes only files with
 * checkpoint names. */
#define _GNU_SOURCE /* renameat2 */
#include "base/fail.h"
#include "base/text.h"
#include "runtime/training/train_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Prefix of the files by which ranks detect that they share a folder, and the
 * hexadecimal digits of the number after it. */
#define MARKER_PREFIX ".shared-"
enum { MARKER_DIGITS = 13 };

/* Suffix for a replaced folder on file systems without an atomic exchange. */
#define OLD_SUFFIX ".old"

lh_status lhi_folder_path(char *buffer, lh_error *err, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(buffer, LHI_PATH, format, args);
    va_end(args);
    if (n < 0 || n >= LHI_PATH)
        return lhi_fail(err, LH_EIO, "a path is too long: %.100s...", buffer);
    return LH_OK;
}

/* Checks whether `name` is a file that checkpoints consist of, or a temporary
 * version of one (with the suffix ".tmp-..."). */
static bool is_checkpoint_file(const char *name)
{
    static const char *const files[] = {LHI_STATE_FILE, LHI_WEIGHTS_FILE,
                                        LHI_MOMENTS_FILE, LHI_CONFIG_FILE,
                                        LHI_TOKENIZER_FILE};
    static const char mark[] = ".tmp-";
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        size_t len = strlen(files[i]);
        if (strncmp(name, files[i], len) == 0 &&
            (name[len] == '\0' ||
             strncmp(name + len, mark, sizeof mark - 1) == 0))
            return true;
    }
    return false;
}

void lhi_checkpoint_remove(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    if (!folder) {
        if (fd >= 0)
            close(fd);
        return;
    }
    unlinkat(fd, LHI_STATE_FILE, 0); /* no longer a checkpoint from here on */
    while ((entry = readdir(folder)))
        if (is_checkpoint_file(entry->d_name))
            unlinkat(fd, entry->d_name, 0);
    closedir(folder);
    rmdir(path);
}

/* Syncs the folder that contains `path` to disk, so that the entry for `path`
 * survives a power loss. */
static lh_status sync_parent(const char *path, lh_error *err)
{
    char parent[LHI_PATH];
    LHI_TRY(lhi_folder_path(parent, err, "%s", path));
    char *slash = strrchr(parent, '/');
    if (slash)
        slash[slash == parent] = '\0';
    if (access(slash ? parent : ".", R_OK) != 0 && errno == EACCES)
        return LH_OK; /* writable but not readable */
    return lhi_sync_folder(slash ? parent : ".", err);
}

lh_status lhi_make_private_folder(const char *path, lh_error *err)
{
    struct stat info;
    if (mkdir(path, 0777) == 0)
        return sync_parent(path, err);
    if (errno != EEXIST)
        return lhi_fail(err, LH_EIO, "%s: %s", path, strerror(errno));
    if (lstat(path, &info) != 0 || !S_ISDIR(info.st_mode) ||
        info.st_uid != geteuid())
        return lhi_fail(
            err, LH_EIO,
            "%s: exists and is not a folder of this user; remove it", path);
    return LH_OK;
}

lh_status lhi_make_folder(const char *path, lh_error *err)
{
    char part[LHI_PATH];
    struct stat info;
    LHI_TRY(lhi_folder_path(part, err, "%s", path));
    for (char *p = part + 1;; p++) {
        if (*p != '/' && *p != '\0')
            continue;
        char was = *p;
        *p = '\0';
        if (mkdir(part, 0777) == 0)
            LHI_TRY(sync_parent(part, err));
        else if (errno != EEXIST)
            return lhi_fail(err, LH_EIO, "%s: %s", part, strerror(errno));
        *p = was;
        if (was == '\0')
            break;
    }
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode))
        return lhi_fail(err, LH_EIO, "%s: is not a folder", path);
    return LH_OK;
}

lh_status lhi_sync_folder(const char *path, lh_error *err)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) != 0) {
        int why = errno;
        if (fd >= 0)
            close(fd);
        return lhi_fail(err, LH_EIO, "%s: %s", path, strerror(why));
    }
    close(fd);
    return LH_OK;
}

lh_status lhi_replace_folder(const char *from, const char *to, char *gone,
                             lh_error *err)
{
    char old[LHI_PATH];
    gone[0] = '\0';
    if (rename(from, to) == 0)
        return LH_OK;
    if (errno != EEXIST && errno != ENOTEMPTY)
        return lhi_fail(err, LH_EIO, "%s: %s", to, strerror(errno));
    /* Exchanges the two atomically, so that one of them always exists. */
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE) == 0)
        return lhi_folder_path(gone, err, "%s", from);
    /* After a crash between these two calls, lhi_checkpoint_remove_stale()
     * restores the old folder. */
    LHI_TRY(lhi_folder_path(old, err, "%s" OLD_SUFFIX, from));
    lhi_checkpoint_remove(old);
    if (rename(to, old) != 0)
        return lhi_fail(err, LH_EIO, "%s: %s", to, strerror(errno));
    if (rename(from, to) != 0) {
        lhi_fail(err, LH_EIO, "%s: %s", to, strerror(errno));
        rename(old, to);
        return LH_EIO;
    }
    return lhi_folder_path(gone, err, "%s", old);
}

/* Parses the name of a checkpoint's folder, "step-00000020", into *step; false:
 * any other name. */
static bool parse_step(const char *name, uint64_t *step)
{
    char again[64];
    char *end;
    if (strncmp(name, "step-", 5) != 0 || name[5] < '0' || name[5] > '9')
        return false;
    errno = 0;
    *step = strtoull(name + 5, &end, 10);
    snprintf(again, sizeof again, LHI_STEP_FOLDER, *step);
    return errno == 0 && *end == '\0' && strcmp(again, name) == 0;
}

/* Compares step numbers for qsort(): ascending. */
static int compare_steps(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

lh_status lhi_list_steps(const char *path, uint64_t **steps, size_t *n,
                         lh_error *err)
{
    DIR *folder = opendir(path);
    struct dirent *entry;
    size_t count = 0, room = 16;
    uint64_t *list = malloc(room * sizeof *list), step;
    if (!folder || !list) {
        lh_status status =
            folder ? lhi_fail_nomem(err)
                   : lhi_fail(err, LH_EIO, "%s: %s", path, strerror(errno));
        if (folder)
            closedir(folder);
        free(list);
        return status;
    }
    while ((entry = readdir(folder))) {
        if (!parse_step(entry->d_name, &step))
            continue;
        if (count == room) {
            uint64_t *more = realloc(list, 2 * room * sizeof *list);
            if (!more) {
                free(list);
                closedir(folder);
                return lhi_fail_nomem(err);
            }
            list = more;
            room *= 2;
        }
        list[count++] = step;
    }
    closedir(folder);
    qsort(list, count, sizeof *list, compare_steps);
    *steps = list;
    *n = count;
    return LH_OK;
}

lh_status lhi_auxiliary_checksum(const char *folder, int side, double *sum,
                                 lh_error *err)
{
    char path[LHI_PATH], *text;
    size_t len;
    LHI_TRY(
        lhi_folder_path(path, err, "%s/%s", folder, lhi_auxiliary_files[side]));
    if (access(path, F_OK) != 0) {
        *sum = -1;
        return LH_OK;
    }
    LHI_TRY(lhi_file_read(path, LHI_AUXILIARY_MAX_BYTES, &text, &len, err));
    *sum = lhi_checksum(text, len);
    lh_text_free(text);
    return LH_OK;
}

/* --- folders shared by hosts --- */

/* Formats the path of marker `number` in checkpoint folder `folder` into `out`
 * (LHI_PATH bytes). */
static lh_status format_marker(const char *folder, uint64_t number, char *out,
                               lh_error *err)
{
    return lhi_folder_path(out, err, "%s/" MARKER_PREFIX "%0*" PRIx64, folder,
                           MARKER_DIGITS, number);
}

lh_status lhi_folder_marker_create(const char *folder, uint64_t number,
                                   lh_error *err)
{
    char path[LHI_PATH];
    LHI_TRY(format_marker(folder, number, path, err));
    const int fd =
        open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0)
        return lhi_fail(err, LH_EIO, "%s: %s", path, strerror(errno));
    close(fd);
    return LH_OK;
}

lh_status lhi_folder_marker_check(const char *folder, uint64_t number,
                                  lh_error *err)
{
    char path[LHI_PATH];
    LHI_TRY(format_marker(folder, number, path, err));
    if (access(path, F_OK) != 0)
        return errno == ENOENT || errno == ENOTDIR
                   ? lhi_fail(err, LH_EIO,
                              "%.300s: is not the folder in which rank 0 has "
                              "created a file: all hosts need the same "
                              "checkpoint folder on a shared file system",
                              folder)
                   : lhi_fail(err, LH_EIO, "%s: %s", path, strerror(errno));
    return access(folder, W_OK) == 0
               ? LH_OK
               : lhi_fail(err, LH_EIO,
                          "%.300s: %s; each rank writes its part of a "
                          "checkpoint there",
                          folder, strerror(errno));
}

void lhi_folder_marker_remove(const char *folder, uint64_t number)
{
    char path[LHI_PATH];
    if (format_marker(folder, number, path, NULL) == LH_OK)
        unlink(path);
}

/* --- stale folders of killed runs --- */

/* Parses the name of a checkpoint's folder that was being replaced,
 * "step-00000020.old", into *step; false: any other name. */
static bool parse_replaced_step(const char *name, uint64_t *step)
{
    char plain[64];
    size_t len = strlen(name), ending = strlen(OLD_SUFFIX);
    if (len <= ending || len - ending >= sizeof plain ||
        strcmp(name + len - ending, OLD_SUFFIX) != 0)
        return false;
    memcpy(plain, name, len - ending);
    plain[len - ending] = '\0';
    return parse_step(plain, step);
}

/* Checks whether folder `path` is a complete checkpoint: its description file
 * exists, which a removal deletes first. */
static bool is_checkpoint(const char *path)
{
    char state[LHI_PATH];
    return lhi_folder_path(state, NULL, "%s/" LHI_STATE_FILE, path) == LH_OK &&
           access(state, F_OK) == 0;
}

/* Checks whether `name` is the name of a marker. */
static bool is_marker(const char *name)
{
    const size_t prefix = strlen(MARKER_PREFIX);
    return strncmp(name, MARKER_PREFIX, prefix) == 0 &&
           strlen(name + prefix) == MARKER_DIGITS &&
           strspn(name + prefix, "0123456789abcdef") == MARKER_DIGITS;
}

/* Removes the entry `name` of folder `path` if a killed run has left it: an
 * incomplete checkpoint, a replaced one, a marker, or a folder for taking over
 * the lock. A replaced checkpoint that is the only one of its step gets its
 * name back (*moved: true). */
static lh_status clean_entry(const char *path, const char *name, bool *moved,
                             lh_error *err)
{
    char at[LHI_PATH], back[LHI_PATH];
    uint64_t step;
    bool is_new = strncmp(name, ".new-", 5) == 0;
    if (strncmp(name, LHI_LOCK_FILE LHI_LOCK_TAKEOVER_SUFFIX,
                strlen(LHI_LOCK_FILE LHI_LOCK_TAKEOVER_SUFFIX)) == 0) {
        LHI_TRY(lhi_folder_path(at, err, "%s/%s", path, name));
        rmdir(at);
    }
    if (is_marker(name)) {
        LHI_TRY(lhi_folder_path(at, err, "%s/%s", path, name));
        unlink(at);
    }
    if (!is_new && strncmp(name, ".old-", 5) != 0)
        return LH_OK;
    LHI_TRY(lhi_folder_path(at, err, "%s/%s", path, name));
    if (parse_step(name + 5, &step)) {
        lhi_checkpoint_remove(at);
    } else if (is_new && parse_replaced_step(name + 5, &step)) {
        LHI_TRY(lhi_folder_path(back, err, "%s/" LHI_STEP_FOLDER, path, step));
        if (access(back, F_OK) == 0 || !is_checkpoint(at))
            lhi_checkpoint_remove(at);
        else if (rename(at, back) == 0)
            *moved = true;
    }
    return LH_OK;
}

lh_status lhi_checkpoint_remove_stale(const char *path, lh_error *err)
{
    DIR *folder = opendir(path);
    struct dirent *entry;
    lh_status status = LH_OK;
    bool moved = false;
    if (!folder)
        return lhi_fail(err, LH_EIO, "%s: %s", path, strerror(errno));
    while (status == LH_OK && (entry = readdir(folder)))
        status = clean_entry(path, entry->d_name, &moved, err);
    closedir(folder);
    return status == LH_OK && moved ? lhi_sync_folder(path, err) : status;
}
