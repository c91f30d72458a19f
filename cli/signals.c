/* SPDX-License-Identifier: Apache-2.0 */
/* What ends the program from outside. */
#define _XOPEN_SOURCE 700 /* SIGXFSZ */
#include "cli.h"

#include <signal.h>
#include <unistd.h>

static const int ending_signals[] = {SIGINT, SIGTERM, SIGHUP};

/* Leaves no half-drawn line behind, then ends as the signal would have. */
static void end_by_signal(int number)
{
    cli_progress_wipe();
    raise(number); /* the action is the default by now: SA_RESETHAND */
}

void cli_catch_signals(void)
{
    /* Writing beyond `ulimit -f` is an error like a full disk. */
    signal(SIGXFSZ, SIG_IGN);
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

/* --- work that is asked to stop ------------------------------------------ */

static volatile sig_atomic_t interrupts, is_said;
static cli_interrupt interrupted_how;
static struct sigaction before_interrupts[2]; /* of SIGINT, SIGTERM */

static void on_interrupt(int number)
{
    static const char note[] = "\r\033[Kstopping; interrupt again to give up";
    (void)number;
    interrupts = interrupts + 1;
    if (!is_said)
        return;
    ssize_t put = write(STDERR_FILENO, note, sizeof note - 1);
    (void)put;
}

void cli_interrupts_begin(const cli *c, cli_interrupt how)
{
    bool once = how == CLI_INTERRUPT_ONCE;
    struct sigaction new = {.sa_handler = on_interrupt};
    new.sa_flags = once ? (int)SA_RESETHAND : 0;
    sigemptyset(&new.sa_mask);
    interrupts = 0;
    is_said = once && !c->common.quiet && isatty(STDERR_FILENO);
    interrupted_how = how;
    sigaction(SIGINT, &new, &before_interrupts[0]);
    if (!once)
        sigaction(SIGTERM, &new, &before_interrupts[1]);
}

uint32_t cli_interrupts(void)
{
    return (uint32_t)interrupts;
}

uint32_t cli_interrupts_end(void)
{
    sigaction(SIGINT, &before_interrupts[0], NULL);
    if (interrupted_how == CLI_INTERRUPT_AGAIN)
        sigaction(SIGTERM, &before_interrupts[1], NULL);
    uint32_t n = cli_interrupts();
    interrupts = 0;
    return n;
}

/* --- work that is not to be stopped -------------------------------------- */

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
