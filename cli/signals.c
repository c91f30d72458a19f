/* SPDX-License-Identifier: Apache-2.0 */
/* What ends the program from outside. */
#define _POSIX_C_SOURCE 200809L
#include "cli.h"

#include <signal.h>

static const int ending_signals[] = {SIGINT, SIGTERM, SIGHUP};

/* Leaves no half-drawn line behind, then ends as the signal would have. */
static void end_by_signal(int number)
{
    cli_progress_wipe();
    raise(number); /* the action is the default by now: SA_RESETHAND */
}

void cli_catch_signals(void)
{
    for (size_t i = 0; i < sizeof ending_signals / sizeof *ending_signals;
         i++) {
        struct sigaction old, new = {.sa_handler = end_by_signal};
        new.sa_flags = (int)SA_RESETHAND;
        sigemptyset(&new.sa_mask);
        if (sigaction(ending_signals[i], NULL, &old) == 0 &&
            old.sa_handler != SIG_IGN) /* as nohup wants it */
            sigaction(ending_signals[i], &new, NULL);
    }
}

static void mask_signals(int how)
{
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof ending_signals / sizeof *ending_signals; i++)
        sigaddset(&set, ending_signals[i]);
    sigprocmask(how, &set, NULL);
}

void cli_hold_signals(void)
{
    mask_signals(SIG_BLOCK);
}

void cli_release_signals(void)
{
    mask_signals(SIG_UNBLOCK);
}
