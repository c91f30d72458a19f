/* SPDX-License-Identifier: Apache-2.0 */
/* Handles signals that end the program. Handlers run in any thread, several at
 * once: shared state is atomic and lock-free, and handlers preserve errno. */
#define _XOPEN_SOURCE 700 /* SIGXFSZ */
#include "cli.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

_Static_assert(ATOMIC_BOOL_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2 &&
                   ATOMIC_LLONG_LOCK_FREE == 2,
               "a handler must not wait for a lock");

/* Signals that end the program. */
enum { N_ENDING = 3 };
static const int ending_signals[N_ENDING] = {SIGINT, SIGTERM, SIGHUP};
/* SIGINT and SIGTERM stop a search; SIGHUP ends the program. */
enum { N_STOPPING = 2 };

static atomic_bool is_deferring;
static atomic_int pending_signal; /* 0: none pending */

/* Checks whether signal `number` is deferred while files are written, until
 * cli_release_signals(). */
static bool is_deferred(int number)
{
    if (!atomic_load(&is_deferring))
        return false;
    atomic_store(&pending_signal, number);
    /* Released concurrently: the thread that takes the signal ends the program.
     */
    return atomic_load(&is_deferring) ||
           atomic_exchange(&pending_signal, 0) == 0;
}

/* Erases a partial progress line on the terminal, then ends the program by the
 * default action of signal `number`. */
static void end_by_signal(int number)
{
    if (is_deferred(number))
        return;
    cli_progress_erase();
    struct sigaction plain = {.sa_handler = SIG_DFL};
    sigset_t own;
    sigemptyset(&plain.sa_mask);
    sigemptyset(&own);
    sigaddset(&own, number);
    sigaction(number, &plain, NULL);
    pthread_sigmask(SIG_UNBLOCK, &own, NULL);
    raise(number);
    /* Reached in process 1 of a container, which no default action ends. */
    _exit(128 + number);
}

/* Installs `handler` for signal `number`, unless the process ignores that
 * signal already. */
static void set_handler(int number, void (*handler)(int))
{
    struct sigaction old, new = {.sa_handler = handler};
    new.sa_flags = (int)SA_RESTART;
    sigemptyset(&new.sa_mask);
    if (sigaction(number, NULL, &old) == 0 &&
        old.sa_handler != SIG_IGN) /* required for nohup */
        sigaction(number, &new, NULL);
}

void cli_catch_signals(void)
{
    /* Writing beyond `ulimit -f` becomes an error like a full disk. */
    signal(SIGXFSZ, SIG_IGN);
    /* The parent process may have blocked signals, or set SIGCHLD to ignored,
     * which prevents waiting for children. */
    struct sigaction plain = {.sa_handler = SIG_DFL};
    sigset_t ending;
    sigemptyset(&plain.sa_mask);
    sigaction(SIGCHLD, &plain, NULL);
    sigemptyset(&ending);
    for (int i = 0; i < N_ENDING; i++) {
        set_handler(ending_signals[i], end_by_signal);
        sigaddset(&ending, ending_signals[i]);
    }
    pthread_sigmask(SIG_UNBLOCK, &ending, NULL);
}

/* --- graceful stop ------------------------------------------------------ */

static atomic_uint interrupts;
static atomic_uint most_interrupts; /* one more ends the program */
static atomic_llong signalled_ns;   /* the last counted signal's time */
static atomic_bool is_said;
static struct sigaction before_interrupts[N_ENDING];
static int n_interrupting; /* prefix of ending_signals */

/* Checks whether signal `number`, unless it is SIGINT, comes within
 * CLI_DUPLICATE_SIGNAL_NS after the last one, which a launcher may repeat;
 * async-signal-safe. */
static bool is_repeated(int number)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    int64_t now_ns = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
    long long last_ns = atomic_load(&signalled_ns);
    if (number != SIGINT && last_ns > 0 &&
        now_ns - last_ns < CLI_DUPLICATE_SIGNAL_NS)
        return true;
    /* Otherwise another thread counted it at the same moment. */
    bool counts =
        atomic_compare_exchange_strong(&signalled_ns, &last_ns, now_ns);
    return number != SIGINT && !counts;
}

/* Counts an interrupt (a signal such as Ctrl-C) and prints a note if enabled.
 * Ends the process if there are more than cli_interrupts_begin() allowed.
 * Signal handler. */
static void on_interrupt(int number)
{
    static const char note[] = "\r\033[Kstopping; interrupt again to give up";
    int error = errno;
    if (is_repeated(number)) {
        errno = error;
        return;
    }
    if (atomic_fetch_add(&interrupts, 1) >= atomic_load(&most_interrupts)) {
        end_by_signal(number);
    } else if (atomic_load(&is_said)) {
        ssize_t put = write(STDERR_FILENO, note, sizeof note - 1);
        (void)put;
    }
    errno = error;
}

void cli_interrupts_begin(const cli *c, cli_interrupt how)
{
    bool once = how == CLI_INTERRUPT_ONCE;
    atomic_store(&interrupts, 0);
    atomic_store(&signalled_ns, 0);
    atomic_store(&most_interrupts, once ? 1 : 2);
    atomic_store(&is_said, once && !c->common.quiet && isatty(STDERR_FILENO));
    n_interrupting = once ? N_STOPPING : N_ENDING;
    for (int i = 0; i < n_interrupting; i++) {
        struct sigaction new = {.sa_handler = on_interrupt};
        new.sa_flags = (int)SA_RESTART; /* file operations do not fail with
                                         * EINTR */
        sigemptyset(&new.sa_mask);
        struct sigaction *old = &before_interrupts[i];
        sigaction(ending_signals[i], NULL, old);
        /* Shells set SIGINT to ignored for background jobs; a SIGINT sent
         * explicitly must still work. */
        if (old->sa_handler != SIG_IGN || ending_signals[i] == SIGINT)
            sigaction(ending_signals[i], &new, NULL);
    }
}

uint32_t cli_interrupts(void)
{
    return atomic_load(&interrupts);
}

uint32_t cli_interrupts_end(void)
{
    for (int i = 0; i < n_interrupting; i++)
        sigaction(ending_signals[i], &before_interrupts[i], NULL);
    return atomic_exchange(&interrupts, 0);
}

/* --- deferred signals --------------------------------------------------- */

/* Defers signals that would end the program until cli_release_signals(). Uses
 * a flag rather than a signal mask, which would apply to this thread only. */
void cli_defer_signals(void)
{
    atomic_store(&is_deferring, true);
}

void cli_release_signals(void)
{
    atomic_store(&is_deferring, false);
    int number = atomic_exchange(&pending_signal, 0);
    if (number)
        raise(number);
}
