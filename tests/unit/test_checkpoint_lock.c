/* SPDX-License-Identifier: Apache-2.0 */
/* Among runs that compete for one folder exactly one gets it, for any existing
 * files and any missing file system feature. */
#define _GNU_SOURCE /* mkdtemp */
#include "fail_call.h"

#include "runtime/training/train.h"

#include <signal.h>
#include <sys/wait.h>

enum { RUNS = 3, ROUNDS = 80 };

static char folder[] = "/tmp/lh-lock-XXXXXX";
static char lock_path[64];

static void say_taken(void *context, const char *text)
{
    *(bool *)context = strstr(text, "which has ended") != NULL;
}

/* Tries the lock when `begin` closes, reports the result, and holds it until
 * `end` closes. */
static _Noreturn void want(int begin, int end, int told)
{
    lhi_folder_lock *lock = NULL;
    lh_error err = {0};
    char byte;
    bool taken_over = false;
    const lhi_remarks remarks = {say_taken, &taken_over};
    ssize_t none = read(begin, &byte, 1);
    lh_status status = lhi_folder_lock_take(folder, &remarks, &lock, &err);
    byte = status == LH_OK                         ? (taken_over ? 't' : 'y')
           : strstr(err.text, "in use by process") ? 'n'
                                                   : 'e';
    if (byte == 'e')
        fprintf(stderr, "%s\n", err.text);
    if (write(told, &byte, 1) != 1 || none != 0)
        _exit(1);
    none = read(end, &byte, 1);
    lhi_folder_lock_release(lock);
    _exit(none != 0);
}

/* Counts the winners, and those by takeover; any other failure fails the test.
 */
static void race(int *n_got, int *n_taken_over)
{
    int begin[2], end[2], told[2];
    pid_t pids[RUNS];
    CHECK(pipe(begin) == 0 && pipe(end) == 0 && pipe(told) == 0);
    for (int i = 0; i < RUNS; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            close(begin[1]);
            close(end[1]);
            want(begin[0], end[0], told[1]);
        }
    }
    close(begin[1]);
    *n_got = *n_taken_over = 0;
    for (int i = 0; i < RUNS; i++) {
        char byte = 0;
        CHECK_INT(read(told[0], &byte, 1), 1);
        CHECK(byte == 'y' || byte == 't' || byte == 'n');
        *n_got += byte != 'n';
        *n_taken_over += byte == 't';
    }
    close(end[1]);
    for (int i = 0; i < RUNS; i++) {
        int how;
        CHECK_INT(waitpid(pids[i], &how, 0), pids[i]);
        CHECK_INT(how, 0);
    }
    close(begin[0]);
    close(end[0]);
    close(told[0]);
    close(told[1]);
}

/* Leaves the lock of a killed process. */
static void leave_lock(void)
{
    lhi_folder_lock *lock;
    pid_t child = fork();
    if (child == 0)
        _exit(lhi_folder_lock_take(folder, NULL, &lock, NULL) != LH_OK);
    waitpid(child, NULL, 0);
    CHECK_INT(access(lock_path, F_OK), 0);
}

static void race_often(bool stale)
{
    for (int i = 0; i < ROUNDS && !test_state.bad; i++) {
        int n_got, n_taken_over;
        if (stale)
            leave_lock();
        race(&n_got, &n_taken_over);
        CHECK_INT(n_got, 1);
        CHECK_INT(n_taken_over, stale);
        CHECK(access(lock_path, F_OK) != 0);
    }
    CHECK_INT(rmdir(folder), 0); /* the folder is empty */
    CHECK_INT(mkdir(folder, 0777), 0);
}

static void one_wins(void)
{
    race_often(false);
}

static void one_takes_over(void)
{
    race_often(true);
}

static void one_wins_without_flock(void)
{
    lacks_flock = true;
    race_often(false);
    race_often(true);
    lacks_flock = false;
}

static void one_wins_without_links(void)
{
    lacks_link = true;
    race_often(false);
    race_often(true);
    lacks_flock = true;
    race_often(true);
    lacks_flock = lacks_link = false;
}

static void one_process_has_it_once(void)
{
    lh_error err;
    lhi_folder_lock *one = NULL, *two = NULL;
    char expected[64];
    CHECK_OK(lhi_folder_lock_take(folder, NULL, &one, &err), err);
    CHECK_INT(lhi_folder_lock_take(folder, NULL, &two, &err), LH_EIO);
    snprintf(expected, sizeof expected, "in use by process %d", (int)getpid());
    CHECK_HAS(err.text, expected);
    CHECK(two == NULL);
    CHECK_OK(lhi_folder_lock_check(one, &err), err);
    CHECK_INT(unlink(lock_path), 0);
    CHECK_OK(lhi_folder_lock_check(one, &err), err);
    CHECK_INT(lhi_folder_lock_take(folder, NULL, &two, &err), LH_EIO);
    lhi_folder_lock_release(one);
    CHECK_OK(lhi_folder_lock_take(folder, NULL, &two, &err), err);
    lhi_folder_lock_release(two);
    lhi_folder_lock_release(NULL);
    CHECK(access(lock_path, F_OK) != 0);
}

/* A FIFO without a writer: opening it must not block. */
static void a_fifo_is_not_waited_for(void)
{
    lh_error err;
    lhi_folder_lock *one = NULL, *two = NULL;

    CHECK_OK(lhi_folder_lock_take(folder, NULL, &one, &err), err);
    CHECK_INT(unlink(lock_path), 0);
    CHECK_INT(mkfifo(lock_path, 0444), 0);
    alarm(60); /* ends a hang */
    CHECK_INT(lhi_folder_lock_check(one, &err), LH_EIO);
    CHECK_HAS(err.text, "another run has replaced");
    CHECK_INT(lhi_folder_lock_take(folder, NULL, &two, &err), LH_EIO);
    CHECK_HAS(err.text, "is not a lock file of longhaul");
    lhi_folder_lock_release(one);
    alarm(0);
    CHECK_INT(unlink(lock_path), 0);
}

/* A lock with arbitrary content is taken over or rejected; rejected ones stay
 * unchanged. */
static void any_text_is_an_answer(void)
{
    char text[1024], now[1024];
    uint32_t state = 7;
    leave_lock();
    int fd = open(lock_path, O_RDONLY);
    ssize_t len = read(fd, text, sizeof text), taken = 0;
    close(fd);
    CHECK(len > 200);
    for (int i = 0; i < 3000 && !test_state.bad; i++) {
        lhi_folder_lock *lock = NULL;
        lh_error err;
        char one[sizeof text];
        memcpy(one, text, sizeof one);
        for (int k = 0; k <= i % 3; k++) {
            state = state * 1664525u + 1013904223u;
            one[(state >> 8) % (uint32_t)len] = (char)(state >> 24);
        }
        fd = open(lock_path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
        CHECK_INT(write(fd, one, (size_t)len), len);
        close(fd);
        lh_status status = lhi_folder_lock_take(folder, NULL, &lock, &err);
        taken += status == LH_OK;
        CHECK(status == LH_OK || status == LH_EIO);
        for (const char *p = err.text; status != LH_OK && *p; p++)
            CHECK_MSG(*p >= ' ' && *p < 127, "it says %s", err.text);
        if (status != LH_OK) {
            fd = open(lock_path, O_RDONLY);
            CHECK(read(fd, now, sizeof now) == len &&
                  memcmp(one, now, (size_t)len) == 0);
            close(fd);
        }
        lhi_folder_lock_release(lock);
    }
    CHECK_MSG(taken > 100 && taken < 2900, "%d taken over", (int)taken);
    unlink(lock_path);
}

/* Without both features, the claim cannot be published. */
static void what_cannot_be_locked_is_an_error(void)
{
    lh_error err;
    lhi_folder_lock *lock = NULL;
    lacks_link = lacks_exchange = true;
    CHECK_INT(lhi_folder_lock_take(folder, NULL, &lock, &err), LH_EIO);
    CHECK_HAS(err.text, "cannot lock the folder");
    lacks_link = lacks_exchange = false;
    CHECK_INT(lhi_folder_lock_take("/proc/no/where", NULL, &lock, &err),
              LH_EIO);
    CHECK(lock == NULL);
    CHECK_INT(rmdir(folder), 0);
}

int main(void)
{
    if (!mkdtemp(folder))
        return 1;
    snprintf(lock_path, sizeof lock_path, "%s/.longhaul-lock", folder);
    RUN(one_wins);
    RUN(one_takes_over);
    RUN(one_wins_without_flock);
    RUN(one_wins_without_links);
    RUN(one_process_has_it_once);
    RUN(a_fifo_is_not_waited_for);
    RUN(any_text_is_an_answer);
    RUN(what_cannot_be_locked_is_an_error);
    return test_summary();
}
