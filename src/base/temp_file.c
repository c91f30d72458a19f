/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L /* fstatat, dirfd */
#include "base/temp_file.h"

#include "base/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char suffix_mark[] = ".tmp-";
static const time_t day_s = 24 * 60 * 60;

void lhi_temp_file_format_name(const char *path, unsigned attempt, char *out,
                               size_t room)
{
    lhi_process self;
    lhi_process_identify_self(&self);
    snprintf(out, room, "%s%s%" PRId64 "-%08" PRIx32 "-%u", path, suffix_mark,
             self.number, lhi_process_hash_namespace(&self), attempt);
}

/* Parses a temporary file name for target `base`, as
 * lhi_temp_file_format_name() formats it, into the process number (*number) and
 * namespace hash (*place). Returns false for any other name. */
static bool read_temp_name(const char *name, const char *base, int64_t *number,
                           uint32_t *place)
{
    char again[256];
    unsigned attempt;
    const char *tail = NULL;
    for (const char *at = name; (at = strstr(at, suffix_mark)); at++)
        tail = at;
    if (!tail || tail == name ||
        sscanf(tail + sizeof suffix_mark - 1, "%" SCNd64 "-%" SCNx32 "-%u",
               number, place, &attempt) != 3)
        return false;
    snprintf(again, sizeof again, "%s%" PRId64 "-%08" PRIx32 "-%u", suffix_mark,
             *number, *place, attempt);
    return *number > 0 && strcmp(tail, again) == 0 &&
           strncmp(name, base, (size_t)(tail - name)) == 0 &&
           base[tail - name] == '\0';
}

/* Checks whether file `name` in a folder is a temporary file for `base` whose
 * writer no longer runs: a regular file of this user. If the process cannot be
 * examined from here, the file must be a day old. */
static bool is_stale(int folder_fd, const char *name, const char *base)
{
    struct stat info;
    lhi_process of;
    int64_t number;
    uint32_t place;
    if (!read_temp_name(name, base, &number, &place) ||
        fstatat(folder_fd, name, &info, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(info.st_mode) || info.st_uid != geteuid())
        return false;
    lhi_process_identify_self(&of);
    if (place != lhi_process_hash_namespace(&of))
        return time(NULL) - info.st_mtime > day_s;
    of.number = number;
    of.started = 0;
    return lhi_process_check(&of) == LHI_PROCESS_GONE;
}

/* Deletes stale temporary files beside `path`; returns false if allocation
 * fails. */
static bool remove_stale_files(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *base = slash ? slash + 1 : path;
    size_t len = slash ? (size_t)(base - path) : 2;
    char *folder = malloc(len + 1);
    if (!folder)
        return false;
    memcpy(folder, slash ? path : "./", len);
    folder[len] = '\0';
    errno = 0;
    DIR *open_folder = opendir(folder);
    /* A replacement malloc might not set errno. */
    bool has_memory = open_folder || (errno != 0 && errno != ENOMEM);
    struct dirent *entry;
    free(folder);
    while (open_folder && (entry = readdir(open_folder)))
        if (is_stale(dirfd(open_folder), entry->d_name, base))
            unlinkat(dirfd(open_folder), entry->d_name, 0);
    if (open_folder)
        closedir(open_folder);
    return has_memory;
}

int lhi_temp_file_create(const char *path, char *temp, size_t room)
{
    if (!remove_stale_files(path)) {
        errno = ENOMEM;
        return -1;
    }
    for (unsigned attempt = 0; attempt < 1000; attempt++) {
        lhi_temp_file_format_name(path, attempt, temp, room);
        int fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EEXIST)
            return fd;
    }
    return -1;
}
