/* SPDX-License-Identifier: Apache-2.0 */
/* The program's signal handlers: nothing is lost if several threads get signals
 * at once, errno is preserved, and critical sections are not interrupted. */
#define _GNU_SOURCE
#include "cli.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Replaces the program's own in cli/terminal.c. */
void cli_progress_erase(void)
{
}

static const cli quiet = {.common = {.quiet = true}};

static int64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

/* --- counting ------------------------------------------------------------- */

enum { ROUNDS = 4000 };
static atomic_uint round_of[2];

static void meet(int mine)
{
    unsigned now = atomic_fetch_add(&round_of[mine], 1) + 1;
    for (unsigned i = 0; atomic_load(&round_of[1 - mine]) < now; i++)
        if (i > 1000)
            sched_yield();
}

static void *interrupts_itself(void *none)
{
    for (int i = 0; i < ROUNDS; i++) {
        meet(1);
        raise(SIGINT);
        meet(1);
    }
    return none;
}

static void two_threads_at_once_are_two_interrupts(void)
{
    pthread_t other;
    unsigned n_lost = 0;
    CHECK(pthread_create(&other, NULL, interrupts_itself, NULL) == 0);
    for (int i = 0; i < ROUNDS; i++) {
        cli_interrupts_begin(&quiet, CLI_INTERRUPT_AGAIN);
        meet(0);
        raise(SIGINT);
        meet(0);
        n_lost += cli_interrupts_end() != 2;
    }
    pthread_join(other, NULL);
    CHECK_INT(n_lost, 0);
}

/* A launcher and a job manager may both forward it. */
static void what_is_sent_twice_counts_once(void)
{
    static const int twice[] = {SIGTERM, SIGHUP};
    for (int k = 0; k < 2; k++) {
        cli_interrupts_begin(&quiet, CLI_INTERRUPT_AGAIN);
        int64_t begin_ns = clock_ns();
        raise(SIGTERM);
        raise(twice[k]);
        bool soon = clock_ns() - begin_ns < 200000000;
        /* otherwise the machine is busy */
        CHECK(!soon || cli_interrupts() == 1);
        sleep_ms(300);
        raise(twice[k]);
        CHECK(cli_interrupts() == (soon ? 2 : cli_interrupts()));
        cli_interrupts_end();
    }
}

/* `while kill $pid; do sleep 0.1; done` */
static void who_goes_on_is_heard(void)
{
    cli_interrupts_begin(&quiet, CLI_INTERRUPT_AGAIN);
    int64_t begin_ns = clock_ns();
    while (cli_interrupts() < 2 && clock_ns() - begin_ns < 60000000000) {
        raise(SIGTERM);
        sleep_ms(50);
    }
    CHECK_INT(cli_interrupts_end(), 2);
}

static void hands_are_counted_each_time(void)
{
    cli_interrupts_begin(&quiet, CLI_INTERRUPT_AGAIN);
    CHECK_INT(cli_interrupts(), 0);
    raise(SIGINT);
    CHECK_INT(cli_interrupts(), 1);
    raise(SIGINT);
    CHECK_INT(cli_interrupts_end(), 2);
    CHECK_INT(cli_interrupts(), 0);
}

/* --- errno ---------------------------------------------------------------- */

/* Standard error is a terminal that is gone when written to. */
static void keeps_errno(void)
{
    int own = dup(STDERR_FILENO);
    int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    const cli loud = {.common = {.quiet = false}};
    int side =
        terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0
            ? open(ptsname(terminal), O_RDWR | O_NOCTTY)
            : -1;
    if (side < 0) {
        printf("SKIPPED errno: there is no terminal to be had\n");
        return;
    }
    dup2(side, STDERR_FILENO);
    cli_interrupts_begin(&loud, CLI_INTERRUPT_ONCE);
    close(STDERR_FILENO);
    errno = 77;
    raise(SIGINT);
    int error = errno;
    dup2(own, STDERR_FILENO);
    CHECK_INT(cli_interrupts_end(), 1);
    CHECK_INT(error, 77);
    close(side);
    close(terminal);
    close(own);
}

/* --- ending --------------------------------------------------------------- */

/* Returns the signal that ends a child process; 0: none. `steps`: its progress.
 */
static int ends_by(void (*act)(int steps), int *n_steps)
{
    int ends[2], how = 0;
    char byte;
    CHECK(pipe(ends) == 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        cli_catch_signals();
        act(ends[1]);
        _exit(0);
    }
    close(ends[1]);
    *n_steps = 0;
    while (read(ends[0], &byte, 1) == 1)
        ++*n_steps;
    close(ends[0]);
    CHECK(waitpid(child, &how, 0) == child);
    return WIFSIGNALED(how) ? WTERMSIG(how) : 0;
}

static void mark(int steps)
{
    if (write(steps, "x", 1) != 1)
        _exit(1);
}

static void *waits(void *none)
{
    for (;;)
        pause();
    return none;
}

static void is_signalled_while_held(int steps)
{
    pthread_t other;
    sigset_t own;
    pthread_create(&other, NULL, waits, NULL);
    cli_defer_signals();
    sigemptyset(&own);
    sigaddset(&own, SIGTERM);
    /* so that the other thread gets it */
    pthread_sigmask(SIG_BLOCK, &own, NULL);
    kill(getpid(), SIGTERM);
    sleep_ms(100);
    mark(steps);
    pthread_sigmask(SIG_UNBLOCK, &own, NULL);
    cli_release_signals();
    mark(steps);
}

static void what_is_held_comes_after(void)
{
    int n_steps;
    CHECK_INT(ends_by(is_signalled_while_held, &n_steps), SIGTERM);
    CHECK_INT(n_steps, 1);
}

static void is_interrupted_thrice(int steps)
{
    cli_interrupts_begin(&quiet, CLI_INTERRUPT_AGAIN);
    for (int i = 0; i < 3; i++) {
        raise(SIGINT);
        mark(steps);
    }
}

static void is_interrupted_twice(int steps)
{
    cli_interrupts_begin(&quiet, CLI_INTERRUPT_ONCE);
    for (int i = 0; i < 2; i++) {
        raise(SIGINT);
        mark(steps);
    }
}

/* The first asks a search to stop; signals in quick succession count as one. */
static void is_terminated_twice(int steps)
{
    cli_interrupts_begin(&quiet, CLI_INTERRUPT_ONCE);
    for (int i = 0; i < 2; i++) {
        raise(SIGTERM);
        mark(steps);
        sleep_ms(300);
    }
}

static void is_hung_up_at_once(int steps)
{
    cli_interrupts_begin(&quiet, CLI_INTERRUPT_ONCE);
    raise(SIGHUP);
    mark(steps);
}

static void more_end_the_program(void)
{
    int n_steps;
    CHECK_INT(ends_by(is_interrupted_thrice, &n_steps), SIGINT);
    CHECK_INT(n_steps, 2);
    CHECK_INT(ends_by(is_interrupted_twice, &n_steps), SIGINT);
    CHECK_INT(n_steps, 1);
    CHECK_INT(ends_by(is_terminated_twice, &n_steps), SIGTERM);
    CHECK_INT(n_steps, 1);
    CHECK_INT(ends_by(is_hung_up_at_once, &n_steps), SIGHUP);
    CHECK_INT(n_steps, 0);
}

static void is_hung_up(int steps)
{
    signal(SIGHUP, SIG_IGN);
    cli_catch_signals();
    cli_interrupts_begin(&quiet, CLI_INTERRUPT_AGAIN);
    raise(SIGHUP);
    if (cli_interrupts_end() == 0)
        mark(steps);
}

static void nohup_is_heard(void)
{
    int n_steps;
    CHECK_INT(ends_by(is_hung_up, &n_steps), 0);
    CHECK_INT(n_steps, 1);
}

int main(void)
{
    /* As under a terminal; nohup and background shells ignore them. */
    signal(SIGHUP, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    RUN(two_threads_at_once_are_two_interrupts);
    RUN(what_is_sent_twice_counts_once);
    RUN(who_goes_on_is_heard);
    RUN(hands_are_counted_each_time);
    RUN(keeps_errno);
    RUN(what_is_held_comes_after);
    RUN(more_end_the_program);
    RUN(nohup_is_heard);
    return test_summary();
}
