/* SPDX-License-Identifier: Apache-2.0 */
#define _DEFAULT_SOURCE /* gethostname */
#include "base/process.h"

#include <ctype.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Reads the beginning of a small file, at most size - 1 bytes, into `out`,
 * NUL-terminated; stores "" on failure. */
static void read_prefix(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, out, size - 1);
    out[got > 0 ? got : 0] = '\0';
    if (fd >= 0)
        close(fd);
}

/* Makes a text usable in a file name: replaces the characters that are not
 * allowed with '_' and cuts it at the first space. */
static void replace_invalid(char *text)
{
    text[strcspn(text, " \t\r\n")] = '\0';
    for (char *p = text; *p; p++)
        if (!isalnum((unsigned char)*p) && !strchr("._-", *p))
            *p = '_';
}

/* Finds the start time, in clock ticks since boot, of process `number` on this
 * machine, into *started. Returns false if there is none or if it is a zombie.
 */
static bool find_start_time(int64_t number, uint64_t *started)
{
    char path[64], text[1024];
    char state;
    unsigned long long ticks;
    snprintf(path, sizeof path, "/proc/%" PRId64 "/stat", number);
    read_prefix(path, text, sizeof text);
    const char *behind_name = strrchr(text, ')');
    if (!behind_name ||
        sscanf(behind_name + 1,
               " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d "
               "%*d %*d %*d %*d %llu",
               &state, &ticks) != 2)
        return false;
    *started = ticks;
    return state != 'Z' && state != 'X';
}

void lhi_process_identify_self(lhi_process *out)
{
    struct stat info;
    lhi_process self = {.number = getpid()};
    if (gethostname(self.host, sizeof self.host - 1) != 0)
        self.host[0] = '\0';
    read_prefix("/etc/machine-id", self.machine, sizeof self.machine);
    read_prefix("/proc/sys/kernel/random/boot_id", self.boot, sizeof self.boot);
    replace_invalid(self.host);
    replace_invalid(self.machine);
    replace_invalid(self.boot);
    if (stat("/proc/self/ns/pid", &info) == 0)
        self.pid_namespace = info.st_ino;
    find_start_time(self.number, &self.started);
    *out = self;
}

lhi_process_state lhi_process_check(const lhi_process *process)
{
    lhi_process self;
    uint64_t started;
    lhi_process_identify_self(&self);
    if (!self.boot[0] || self.started == 0) /* no /proc */
        return LHI_PROCESS_ELSEWHERE;
    if (strcmp(process->boot, self.boot) != 0)
        return self.machine[0] && strcmp(process->machine, self.machine) == 0 &&
                       strcmp(process->host, self.host) == 0
                   ? LHI_PROCESS_GONE
                   : LHI_PROCESS_ELSEWHERE;
    if (process->pid_namespace != self.pid_namespace)
        return LHI_PROCESS_ELSEWHERE;
    return find_start_time(process->number, &started) &&
                   (process->started == 0 || started == process->started)
               ? LHI_PROCESS_RUNS
               : LHI_PROCESS_GONE;
}

uint32_t lhi_process_hash_namespace(const lhi_process *process)
{
    char text[256];
    uint32_t hash = 2166136261u; /* FNV-1a */
    snprintf(text, sizeof text, "%s %s %s %" PRIu64, process->host,
             process->machine, process->boot, process->pid_namespace);
    for (const char *p = text; *p; p++)
        hash = (hash ^ (unsigned char)*p) * 16777619u;
    return hash;
}
