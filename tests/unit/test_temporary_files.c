/* SPDX-License-Identifier: Apache-2.0 */
/* Stale temporary files of killed processes are removed by the next write to
 * the same file; everything else stays. */
#define _GNU_SOURCE /* mkdtemp */
#include "test.h"

#include "base/process.h"
#include "base/temp_file.h"

#include <longhaul/experimental/status.h>

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[] = "/tmp/lh-leftovers-XXXXXX";
static bool dies_at_rename;

int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to)
{
    if (dies_at_rename)
        _exit(9);
    return __real_rename(from, to);
}

static void make_empty(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT, 0666);
    CHECK(fd >= 0);
    close(fd);
}

static bool is_there(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0;
}

static int n_files(void)
{
    int n = 0;
    DIR *all = opendir(".");
    while (readdir(all))
        n++;
    closedir(all);
    return n - 2;
}

static void write_file(const char *path)
{
    lh_error err;
    CHECK_OK(lh_file_write(path, "text", 4, &err), err);
}

/* Writes a file and is killed before the rename. */
static void write_and_die(const char *path)
{
    pid_t child = fork();
    if (child == 0) {
        dies_at_rename = true;
        lh_file_write(path, "lost", 4, NULL);
        _exit(0);
    }
    int how = 0;
    CHECK_INT(waitpid(child, &how, 0), child);
    CHECK_INT(WEXITSTATUS(how), 9);
}

static void killed_writers_leave_nothing(void)
{
    const char *path = "plan.json";
    write_file(path);
    write_and_die(path);
    CHECK_INT(n_files(), 2);
    write_file(path);
    CHECK_INT(n_files(), 1);
    write_and_die(path);
    write_and_die(path); /* removes the first one's leftovers */
    CHECK_INT(n_files(), 2);
    lh_error err;
    CHECK_OK(lh_file_writable(path, &err), err);
    CHECK_INT(n_files(), 1);
    /* Leftovers of another file are left to its next writer. */
    write_and_die("plan.json.2");
    write_file(path);
    CHECK_INT(n_files(), 2);
    write_file("plan.json.2");
    CHECK_INT(n_files(), 2);
    unlink(path);
    unlink("plan.json.2");
}

static void running_writers_keep_theirs(void)
{
    const char *path = "f";
    char temp[512];
    int ends[2];
    CHECK_INT(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        char byte;
        close(ends[1]);
        lhi_temp_file_format_name(path, 0, temp, sizeof temp);
        make_empty(temp);
        dies_at_rename = read(ends[0], &byte, 1) != 0;
        _exit(0);
    }
    char ending[32];
    lhi_process self;
    lhi_process_identify_self(&self);
    snprintf(ending, sizeof ending, "f.tmp-%d-%08x-0", (int)child,
             (unsigned)lhi_process_hash_namespace(&self));
    const char *theirs = ending;
    while (!is_there(theirs))
        usleep(1000);
    write_file(path);
    CHECK(is_there(theirs));
    close(ends[1]);
    waitpid(child, NULL, 0);
    write_file(path);
    CHECK(!is_there(theirs));
    unlink(path);
}

/* Returns the name of a dead process's temporary file. */
static void leftover_name(char *out, size_t size, const char *base,
                          uint32_t other_place)
{
    lhi_process self;
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    waitpid(child, NULL, 0);
    lhi_process_identify_self(&self);
    snprintf(out, size, "%s.tmp-%d-%08x-0", base, (int)child,
             (unsigned)(lhi_process_hash_namespace(&self) + other_place));
}

static void others_files_stay(void)
{
    static const char *const names[] = {
        "f.tmp-notes", "f.tmp-1-0",          "f.tmp-",
        "f.tmp-1-",    "f.tmp-0-00000000-0", "f.tmp--1-00000000-0",
        "f.tmp-1-1-0", "f.tmp-01-00000000-0"};
    char path[512];
    int n = (int)(sizeof names / sizeof *names);
    for (int i = 0; i < n; i++)
        make_empty(names[i]);
    write_file("f");
    CHECK_INT(n_files(), n + 1);
    for (int i = 0; i < n; i++)
        unlink(names[i]);
    leftover_name(path, sizeof path, "f", 0);
    CHECK_INT(mkdir(path, 0777), 0);
    write_file("f");
    CHECK(is_there(path));
    rmdir(path);
    CHECK_INT(symlink("f", path), 0);
    write_file("f");
    CHECK(is_there(path));
    unlink(path);
    if (geteuid() == 0) {
        make_empty(path);
        CHECK_INT(chown(path, 12345, 12345), 0);
        write_file("f");
        CHECK(is_there(path));
        unlink(path);
    }
    unlink("f");
}

/* As if another machine also writes here. */
static void of_another_machine(void)
{
    char path[512];
    struct timespec old[2] = {{.tv_sec = 1000000}, {.tv_sec = 1000000}};
    leftover_name(path, sizeof path, "f", 1);
    make_empty(path);
    write_file("f");
    CHECK(is_there(path));
    CHECK_INT(utimensat(AT_FDCWD, path, old, 0), 0);
    write_file("f");
    CHECK(!is_there(path));
    unlink("f");
}

static void processes(void)
{
    lhi_process self, other;
    lhi_process_identify_self(&self);
    CHECK_INT(lhi_process_check(&self), LHI_PROCESS_RUNS);
    other = self;
    other.started++;
    CHECK_INT(lhi_process_check(&other), LHI_PROCESS_GONE);
    other = self;
    strcpy(other.boot, "another");
    CHECK_INT(lhi_process_check(&other),
              self.machine[0] ? LHI_PROCESS_GONE : LHI_PROCESS_ELSEWHERE);
    strcpy(other.host, "another");
    CHECK_INT(lhi_process_check(&other), LHI_PROCESS_ELSEWHERE);
    other = self;
    other.pid_namespace++;
    CHECK_INT(lhi_process_check(&other), LHI_PROCESS_ELSEWHERE);
    /* A zombie: ended, but not waited for. */
    other = self;
    other.started = 0;
    other.number = fork();
    if (other.number == 0)
        _exit(0);
    siginfo_t info;
    CHECK_INT(waitid(P_PID, (id_t)other.number, &info, WEXITED | WNOWAIT), 0);
    CHECK_INT(lhi_process_check(&other), LHI_PROCESS_GONE);
    waitpid((pid_t)other.number, NULL, 0);
    CHECK_INT(lhi_process_check(&other), LHI_PROCESS_GONE);
}

/* Someone guessed the temporary file's name and linked it to a user's file. */
static void guessed_names_lead_nowhere(void)
{
    const char *path = "out", *own = "own";
    char temp[2][512];
    struct stat info;
    make_empty(own);
    for (unsigned i = 0; i < 2; i++) {
        lhi_temp_file_format_name(path, i, temp[i], sizeof temp[i]);
        CHECK_INT(symlink(i ? "nowhere" : own, temp[i]), 0);
    }
    write_file(path);
    CHECK_INT(stat(own, &info), 0);
    CHECK_INT(info.st_size, 0);
    CHECK(!is_there("nowhere"));
    CHECK_INT(lstat(path, &info), 0);
    CHECK(S_ISREG(info.st_mode) && info.st_size == 4);
    for (unsigned i = 0; i < 2; i++)
        unlink(temp[i]);
    unlink(own);
    unlink(path);
    CHECK_INT(n_files(), 0);
}

int main(void)
{
    if (!mkdtemp(folder) || chdir(folder) != 0)
        return 1;
    RUN(killed_writers_leave_nothing);
    RUN(running_writers_keep_theirs);
    RUN(others_files_stay);
    RUN(of_another_machine);
    RUN(processes);
    RUN(guessed_names_lead_nowhere);
    rmdir(folder);
    return test_summary();
}
