/* SPDX-License-Identifier: Apache-2.0 */
#define _DEFAULT_SOURCE /* O_CLOEXEC, RLIMIT_AS, strtok_r */
#include "base/available_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Capacities for a system file's text and for its path, in bytes. */
enum { FILE_BYTES = 8192, PATH_BYTES = 1024 };

/* Reads the beginning of a small system file into `text`, NUL-terminated;
 * returns false if it does not exist. */
static bool read_small(const char *path, char *text)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t len = 0;
    if (fd < 0)
        return false;
    for (;;) {
        ssize_t got = read(fd, text + len, FILE_BYTES - 1 - len);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        len += (size_t)got;
    }
    close(fd);
    text[len] = '\0';
    return len > 0;
}

/* Returns the number after `key` at the beginning of a line of `text`; 0 if
 * there is none. */
static uint64_t find_number(const char *text, const char *key)
{
    size_t len = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, len) == 0)
            return strtoull(line + len, NULL, 10);
    }
    return 0;
}

/* Lowers the available memory *room to `bytes` if that is smaller, and then
 * stores `limit`, this limit's name, as the binding one. */
static void lower_limit(lhi_available_memory *room, uint64_t bytes,
                        const char *limit)
{
    if (bytes < room->bytes)
        *room = (lhi_available_memory){bytes, limit};
}

/* Lowers the available memory *room to a resource limit of the process
 * (RLIMIT_...) less the `used` bytes; `limit`: its name. */
static void apply_resource_limit(lhi_available_memory *room, int resource,
                                 uint64_t used, const char *limit)
{
    struct rlimit l;
    if (getrlimit(resource, &l) == 0 && l.rlim_cur != RLIM_INFINITY)
        lower_limit(room, l.rlim_cur > used ? l.rlim_cur - used : 0, limit);
}

lhi_available_memory lhi_find_mappable_memory(void)
{
    char text[FILE_BYTES];
    lhi_available_memory room = {UINT64_MAX, ""};
    bool known = read_small("/proc/self/status", text);
    apply_resource_limit(&room, RLIMIT_AS,
                         known ? find_number(text, "VmSize:") * 1024 : 0,
                         "the limit on address space (ulimit -v)");
    apply_resource_limit(&room, RLIMIT_DATA,
                         known ? find_number(text, "VmData:") * 1024 : 0,
                         "the limit on data (ulimit -d)");
    return room;
}

/* File names in a control group: its limit, its usage, and the page cache
 * within that usage, which is reclaimable. A missing file, or one with "max",
 * sets no limit. */
typedef struct group_file_names {
    const char *limit, *used, *inactive, *active, *name;
} group_file_names;

/* Lowers the available memory *room to the control group's limit in `folder`,
 * less its usage that cannot be reclaimed. `files`: names of the group's files
 * and statistics, which depend on the control groups' version. */
static void apply_group_limit(lhi_available_memory *room, const char *folder,
                              const group_file_names *files)
{
    char path[PATH_BYTES + 64], text[FILE_BYTES], *end;
    snprintf(path, sizeof path, "%s/%s", folder, files->limit);
    if (!read_small(path, text))
        return;
    uint64_t limit = strtoull(text, &end, 10), used = 0, files_bytes = 0;
    if (end == text || limit > INT64_MAX / 2)
        return;
    snprintf(path, sizeof path, "%s/%s", folder, files->used);
    if (read_small(path, text))
        used = strtoull(text, NULL, 10);
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    if (read_small(path, text))
        files_bytes = find_number(text, files->inactive) +
                      find_number(text, files->active);
    used -= files_bytes < used ? files_bytes : used;
    lower_limit(room, limit > used ? limit - used : 0, files->name);
}

/* Lowers the available memory *room by the limits of control group
 * `top`/`inner` and all its ancestors up to `top`. In a container the inner
 * path may be visible to the host only; then only `top` exists, which is the
 * container's own group. `files`: names of the groups' files. */
static void apply_group_limits(lhi_available_memory *room, const char *top,
                               const char *inner, const group_file_names *files)
{
    char folder[PATH_BYTES];
    int len = snprintf(folder, sizeof folder, "%s%s", top, inner);
    if (len < 0 || (size_t)len >= sizeof folder)
        return;
    size_t least = strlen(top);
    for (;;) {
        apply_group_limit(room, folder, files);
        char *slash = strrchr(folder, '/');
        if (!slash || (size_t)(slash - folder) < least)
            return;
        *slash = '\0';
    }
}

/* Lowers the available memory *room by this process's control group limits,
 * versions 1 and 2. `root`: folder with proc/ and sys/. */
static void apply_control_groups(lhi_available_memory *room, const char *root)
{
    static const group_file_names second = {
        "memory.max", "memory.current", "inactive_file ", "active_file ",
        "the control group's memory limit (memory.max)"};
    static const group_file_names first = {
        "memory.limit_in_bytes", "memory.usage_in_bytes",
        "total_inactive_file ", "total_active_file ",
        "the control group's memory limit (memory.limit_in_bytes)"};
    char path[PATH_BYTES], top[PATH_BYTES], text[FILE_BYTES];
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    if (!read_small(path, text))
        return;
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line;
         line = strtok_r(NULL, "\n", &rest)) {
        char *kinds = strchr(line, ':');
        char *inner = kinds ? strchr(kinds + 1, ':') : NULL;
        if (!inner)
            continue;
        *inner++ = '\0';
        if (kinds[1] == '\0') {
            snprintf(top, sizeof top, "%s/sys/fs/cgroup", root);
            apply_group_limits(room, top, inner, &second);
        } else if (strstr(kinds, "memory")) {
            snprintf(top, sizeof top, "%s/sys/fs/cgroup/memory", root);
            apply_group_limits(room, top, inner, &first);
        }
    }
}

lhi_available_memory lhi_find_physical_memory(const char *root)
{
    char path[PATH_BYTES], text[FILE_BYTES];
    lhi_available_memory room = {UINT64_MAX, ""};
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    if (read_small(path, text) && strstr(text, "MemAvailable:"))
        lower_limit(&room,
                    1024 * (find_number(text, "MemAvailable:") +
                            find_number(text, "SwapFree:")),
                    "the machine's available memory");
    apply_control_groups(&room, root);
    return room;
}
