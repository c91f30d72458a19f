/* SPDX-License-Identifier: Apache-2.0 */
/* Folders of checkpoints. */
#define _GNU_SOURCE /* renameat2 */
#include "base/fail.h"
#include "train/train_own.h"

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

/* Checkpoints have files only, no folders inside. */
void lhi_remove_folder(const char *path)
{
    DIR *folder = opendir(path);
    struct dirent *entry;
    while (folder && (entry = readdir(folder)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlinkat(dirfd(folder), entry->d_name, 0);
    if (folder)
        closedir(folder);
    rmdir(path);
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
        if (mkdir(part, 0777) != 0 && errno != EEXIST)
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

lh_status lhi_replace_folder(const char *from, const char *to, lh_error *err)
{
    char old[LHI_PATH];
    if (rename(from, to) == 0)
        return LH_OK;
    if (errno != EEXIST && errno != ENOTEMPTY)
        return lhi_fail(err, LH_EIO, "%s: %s", to, strerror(errno));
    /* The two change places at once, so that one of them is always there. */
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE) == 0) {
        lhi_remove_folder(from);
        return LH_OK;
    }
    LHI_TRY(lhi_folder_path(old, err, "%s.old", from));
    lhi_remove_folder(old);
    if (rename(to, old) != 0 || rename(from, to) != 0)
        return lhi_fail(err, LH_EIO, "%s: %s", to, strerror(errno));
    lhi_remove_folder(old);
    return LH_OK;
}

/* "step-00000020" and nothing else. */
static bool step_of(const char *name, uint64_t *step)
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

static int compare(const void *a, const void *b)
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
        if (!step_of(entry->d_name, &step))
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
    qsort(list, count, sizeof *list, compare);
    *steps = list;
    *n = count;
    return LH_OK;
}
