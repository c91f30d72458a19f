/* SPDX-License-Identifier: Apache-2.0 */
/* Starts this host's ranks for --hosts. Each rank is a child process with
 * torchrun's variables. */
#define _GNU_SOURCE /* strchrnul */
#include "train_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_LOCAL = 1024, MASTER_PORT = 29500 }; /* torchrun's default port */

/* Seconds after rank 0's error until this host's other ranks are killed. Ranks
 * that are connected to rank 0 have ended with its reason by then. */
enum { RANK_0_GRACE_S = 4 };
/* Seconds after a rank's failure, beyond the silence time, and after a second
 * signal, until this host's other ranks are killed: a rank whose process hangs
 * in the kernel does not end by itself. */
enum { RANK_GRACE_S = 4, STOP_GRACE_S = 4 };
/* Seconds more for a rank that has printed why it ends: it may send the reason
 * to ranks that join later (report_ns in launched_rank.c). */
enum { REPORT_S = 10 };
/* Interval in ms at which stopped ranks are polled. */
enum { POLL_MS = 50 };

/* All hosts' ranks, and those of this one. */
typedef struct hosts {
    char first[256]; /* the host of rank 0 */
    uint32_t n_hosts, n_ranks;
    uint32_t begin, n_local; /* of this host; n_local 0: not in the list */
    uint32_t layout; /* FNV-1a of the ranks per host, equal on all hosts */
} hosts;

static pid_t children[MOST_LOCAL];
static volatile sig_atomic_t n_children, n_signals, is_overdue;
/* A rank of this host, as its process was seen. */
static struct {
    uint32_t n_stopped; /* successive polls in which it was stopped */
    bool is_reported;   /* it was killed because of that, with a message */
} states[MOST_LOCAL];
static int64_t signalled_ns; /* handlers only: the last counted signal's time */
/* A rank of this host, as it has noted; shared with the ranks. */
typedef struct rank_note {
    bool joins;  /* or has joined, so that the other ranks detect its loss */
    bool failed; /* it has printed the reason, unless another rank does */
} rank_note;
static rank_note *notes;   /* per rank of this host */
static uint32_t own_index; /* of this process's rank */

/* Checks whether entry number `index` of the host list, a name of `len` bytes,
 * is this host: NODE_RANK equals the index, or the host's name (with or without
 * domain) equals the entry. */
static bool is_here(const char *name, size_t len, uint32_t index)
{
    const char *number = getenv("NODE_RANK");
    struct utsname here;
    if (number)
        return strtoul(number, NULL, 10) == index;
    if (uname(&here) != 0)
        return false;
    size_t whole = strlen(here.nodename);
    size_t shorter = strcspn(here.nodename, ".");
    return (len == whole || len == shorter) &&
           strncmp(name, here.nodename, len) == 0;
}

/* Checks that NODE_RANK is unset or a number. */
static lh_status check_node_rank(cli *c)
{
    const char *number = getenv("NODE_RANK");
    if (number && (!*number || number[strspn(number, "0123456789")]))
        return cli_usage(c,
                         "NODE_RANK: '%.20s' is not a position in --hosts, "
                         "from 0",
                         number);
    return LH_OK;
}

/* Parses --hosts, a list NAME:RANKS,... of host names and their numbers of
 * ranks, into `h`. */
static lh_status parse_hosts(cli *c, const char *text, hosts *h)
{
    for (const char *at = text; at; h->n_hosts++) {
        const char *end = strchrnul(at, ',');
        const char *colon = memrchr(at, ':', (size_t)(end - at));
        char *after;
        unsigned long n = colon ? strtoul(colon + 1, &after, 10) : 0;
        size_t len = colon ? (size_t)(colon - at) : 0;
        if (len == 0 || len >= sizeof h->first || n == 0 || n > MOST_LOCAL ||
            after != end)
            return cli_usage(c,
                             "--hosts: '%.*s' must be NAME:RANKS, with at most "
                             "%d ranks",
                             (int)(end - at), at, MOST_LOCAL);
        if (h->n_hosts == 0)
            snprintf(h->first, sizeof h->first, "%.*s", (int)len, at);
        if (is_here(at, len, h->n_hosts)) {
            if (h->n_local)
                return cli_usage(c, "--hosts: '%.*s' is there twice", (int)len,
                                 at);
            h->begin = h->n_ranks;
            h->n_local = (uint32_t)n;
        }
        h->n_ranks += (uint32_t)n;
        h->layout = (h->layout ^ (uint32_t)n) * 16777619;
        at = *end ? end + 1 : NULL;
    }
    return LH_OK;
}

/* Sets an environment variable to a number. */
static void set_number(const char *name, uint32_t n)
{
    char text[16];
    snprintf(text, sizeof text, "%" PRIu32, n);
    setenv(name, text, 1);
}

/* Sets the variables that all ranks of this host have. */
static void set_launch(const hosts *h)
{
    /* No torchrun listens on the port, and a launcher of this process, such as
     * srun, has not started its ranks. */
    static const char *const of_launchers[] = {
        "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
        "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"};
    set_number("WORLD_SIZE", h->n_ranks);
    set_number("LOCAL_WORLD_SIZE", h->n_local);
    set_number("LONGHAUL_HOST_LAYOUT", h->layout);
    setenv("MASTER_ADDR", h->n_hosts > 1 ? h->first : "127.0.0.1",
           h->n_hosts == 1);
    if (!getenv("MASTER_PORT"))
        set_number("MASTER_PORT", MASTER_PORT);
    for (size_t i = 0; i < sizeof of_launchers / sizeof *of_launchers; i++)
        unsetenv(of_launchers[i]);
}

/* Sends signal `number` to this host's ranks; async-signal-safe. */
static void signal_ranks(int number)
{
    for (int i = 0; i < n_children; i++)
        if (children[i] > 0) /* has not ended */
            kill(children[i], number);
}

/* Kills this host's ranks `seconds` from now, or earlier if that is due;
 * async-signal-safe. */
static void kill_ranks_after(unsigned seconds)
{
    const unsigned left = alarm(seconds);
    if (left && left < seconds)
        alarm(left);
}

/* Sends signal `number` on to this host's ranks; after the second one they have
 * STOP_GRACE_S to end (signal handler). */
static void pass_on(int number)
{
    const int saved = errno;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    const int64_t now_ns = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
    const bool is_repeated = n_signals > 0 && number != SIGINT &&
                             now_ns - signalled_ns < CLI_DUPLICATE_SIGNAL_NS;
    signal_ranks(number);
    if (!is_repeated) {
        signalled_ns = now_ns;
        n_signals++;
        if (n_signals > 1)
            kill_ranks_after(STOP_GRACE_S);
    }
    errno = saved;
}

/* Kills this host's ranks (signal handler for SIGALRM). Ranks that have printed
 * why they end are killed REPORT_S later, or at once after a second signal. */
static void kill_ranks(int number)
{
    (void)number;
    const bool waits = !is_overdue && n_signals < 2;
    bool reports = false;
    is_overdue = 1;
    for (int i = 0; i < n_children; i++) {
        const bool is_reporting = waits && notes[i].failed;
        if (children[i] > 0 && !is_reporting)
            kill(children[i], SIGKILL);
        reports = reports || (children[i] > 0 && is_reporting);
    }
    if (reports)
        alarm(REPORT_S);
}

/* Returns the index of child process `child`; n_children: none. */
static int find_child(pid_t child)
{
    int i = 0;
    while (i < n_children && children[i] != child)
        i++;
    return i;
}

/* Returns the time after which a silent rank counts as lost, in ns. */
static int64_t find_silence(const cli *c)
{
    const train_settings *s = c->settings;
    const lh_train_options o = {.size = sizeof o,
                                .transport = train_transports[s->transport],
                                .silence_ns = s->silence_ns,
                                .n_rails = s->rails != NULL};
    return lh_train_silence_ns(&o);
}

/* Returns the time in seconds until this host's ranks are killed after rank
 * `index` among them ended with `code`, if it exited; 0: they are not. A lost
 * rank ends the others through their connections, after the silence time at the
 * latest, unless the run restarts. If rank 0 ends with an error, possibly
 * before the others could connect to it, RANK_0_GRACE_S suffice. */
static unsigned find_grace(const cli *c, const hosts *h, int index, bool exited,
                           int code)
{
    const train_settings *s = c->settings;
    if (code == 0)
        return 0;
    if (index == 0 && h->begin == 0 && exited)
        return RANK_0_GRACE_S;
    if (s->max_restarts)
        return 0;
    return RANK_GRACE_S + (unsigned)(find_silence(c) / 1000000000) + 1;
}

/* Reports to the other ranks that `rank` was killed by signal `number` before
 * it joined, in a child process, because that takes time. */
static void report_killed(uint32_t rank, int number)
{
    char text[60];
    if (fork() != 0)
        return;
    n_children = 0; /* signals for ranks do not come from here */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    set_number("RANK", rank);
    snprintf(text, sizeof text, "killed by signal %d", number);
    lh_train_report_failure(text);
    _exit(0);
}

/* Kills the ranks whose processes have been stopped (SIGSTOP) for longer than a
 * rank may be silent, and an eighth more, in which the other ranks detect the
 * silence. Counts polls rather than time, since this process may have been
 * stopped, too. */
static void kill_stopped(const cli *c, const hosts *h)
{
    char time[CLI_TIME_TEXT];
    const int64_t silence_ns = find_silence(c);
    for (int i = 0; i < n_children; i++) {
        if (!states[i].n_stopped)
            continue;
        states[i].n_stopped++;
        if ((int64_t)states[i].n_stopped * POLL_MS * 1000000 <=
            silence_ns + silence_ns / 8)
            continue;
        cli_print_stderr("the process of rank %" PRIu32
                         " was stopped for longer than %s (--silence) and is "
                         "killed",
                         h->begin + (uint32_t)i,
                         cli_time_text(silence_ns, time));
        kill(children[i], SIGKILL);
        states[i].n_stopped = 0;
        states[i].is_reported = true;
    }
}

/* Waits for a change of a rank's process: *change.si_pid 0: none yet. */
static void await_change(siginfo_t *change)
{
    int how = WEXITED | WSTOPPED | WCONTINUED;
    for (int i = 0; i < n_children; i++)
        if (states[i].n_stopped)
            how |= WNOHANG;
    *change = (siginfo_t){0};
    if (waitid(P_ALL, 0, change, how) != 0)
        change->si_pid = 0; /* interrupted */
    else if (change->si_pid == 0)
        nanosleep(&(struct timespec){.tv_nsec = POLL_MS * 1000000L}, NULL);
}

/* Prints that rank `rank` of this host was killed by signal `number`. */
static void print_killed(uint32_t rank, int number)
{
    if (is_overdue && number == SIGKILL)
        cli_print_stderr("rank %" PRIu32 " did not end %s and was killed", rank,
                         n_signals > 1 ? "after the second signal"
                                       : "with the others");
    else
        cli_print_stderr("rank %" PRIu32 " was killed by signal %d (%s)", rank,
                         number, strsignal(number));
}

/* How the ranks of this host have ended. */
typedef struct endings {
    int code;          /* exit status of the first that failed; 0: none */
    bool has_reason;   /* that was rank 0, which has printed the reason */
    bool has_failed;   /* also without the killed ranks that are counted */
    uint32_t n_killed; /* ranks whose loss the run may survive */
    uint32_t n_successful;
} endings;

/* Records that rank number `index` of this host has exited with status
 * `number`, or was killed by that signal. A run with restarts survives a killed
 * rank, except rank 0, which has its results. */
static void record_ending(const cli *c, const hosts *h, int index, bool exited,
                          int number, endings *e)
{
    const train_settings *s = c->settings;
    const uint32_t rank = h->begin + (uint32_t)index;
    const int code = exited ? number : 128 + number;
    if (code == 0) {
        e->n_successful++;
        return;
    }
    if (!exited && !is_overdue && rank != 0 && s->max_restarts)
        e->n_killed++;
    else
        e->has_failed = true;
    if (!e->code) {
        e->code = code;
        e->has_reason = rank == 0 && exited;
    }
}

/* Returns this host's exit status: of the first rank that failed, or 0 if the
 * run has survived the loss of the ranks that were killed, which only a rank of
 * this host that has finished the run shows. */
static int find_exit_status(const endings *e)
{
    if (e->has_failed || e->n_killed == 0 || e->n_successful == 0)
        return e->code;
    cli_print_stderr("the run has finished without the killed rank%s of this "
                     "host",
                     e->n_killed > 1 ? "s" : "");
    return EXIT_OK;
}

/* Checks whether --hosts passes this signal on to its ranks. */
static bool is_passed_on(int number)
{
    return number == SIGINT || number == SIGTERM || number == SIGHUP;
}

/* Waits until all ranks of this host have ended, and returns the host's exit
 * status. Prints the ranks that were killed, except those that it had to kill
 * after a failure of rank 0, which has printed the reason. */
static int wait_for_ranks(cli *c, const hosts *h)
{
    endings ends = {0};
    for (int left = n_children; left > 0;) {
        siginfo_t change;
        await_change(&change);
        if (change.si_pid == 0) {
            kill_stopped(c, h);
            continue;
        }
        const int i = find_child(change.si_pid);
        if (i == n_children)
            continue; /* reports */
        const int how = change.si_code;
        if (how == CLD_STOPPED || how == CLD_CONTINUED) {
            states[i].n_stopped = how == CLD_STOPPED;
            continue;
        }
        /* A rank that has printed why it ends has failed, also if a signal that
         * was passed on ends it before it exits. */
        const bool was_ending = how == CLD_KILLED && notes[i].failed &&
                                n_signals > 0 && is_passed_on(change.si_status);
        const bool exited = how == CLD_EXITED || was_ending;
        const int what = was_ending ? EXIT_FAILED : change.si_status;
        const uint32_t rank = h->begin + (uint32_t)i;
        children[i] = 0;
        states[i].n_stopped = 0;
        left--;
        if (!exited && !states[i].is_reported &&
            !(ends.has_reason && is_overdue))
            print_killed(rank, what);
        if (!exited && !is_overdue && !notes[i].joins)
            report_killed(rank, what);
        record_ending(c, h, i, exited, what, &ends);
        const unsigned grace_s =
            find_grace(c, h, i, exited, exited ? what : 128 + what);
        if (grace_s)
            kill_ranks_after(grace_s);
    }
    while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
        ; /* reports */
    return find_exit_status(&ends);
}

/* Forks one child process per rank on this host and returns in each child,
 * which continues as the rank. The parent never returns: it waits for all
 * children, then exits. Each rank has its own process group, so that a
 * terminal's signals reach it once. */
static lh_status start_ranks(cli *c, const hosts *h)
{
    static const int passed[] = {SIGINT, SIGTERM, SIGHUP};
    const pid_t parent = getpid();
    sigset_t blocked, old;
    void *map = mmap(NULL, h->n_local * sizeof *notes, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return cli_no_memory(c);
    notes = map;
    /* Until this process can pass them on. */
    sigemptyset(&blocked);
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++)
        sigaddset(&blocked, passed[i]);
    sigprocmask(SIG_BLOCK, &blocked, &old);
    for (uint32_t i = 0; i < h->n_local; i++) {
        pid_t child = fork();
        if (child < 0) {
            const int why = errno;
            signal_ranks(SIGKILL);
            sigprocmask(SIG_SETMASK, &old, NULL);
            return cli_usage(c, "--hosts: cannot start a rank: %s",
                             strerror(why));
        }
        if (child == 0) {
            setpgid(0, 0);
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != parent)
                _exit(1);
            n_children = 0;
            sigprocmask(SIG_SETMASK, &old, NULL);
            set_number("RANK", h->begin + i);
            set_number("LOCAL_RANK", i);
            own_index = i;
            return LH_OK;
        }
        children[i] = child;
        n_children = (int)i + 1;
    }
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++)
        sigaction(passed[i], &(struct sigaction){.sa_handler = pass_on}, NULL);
    sigaction(SIGALRM, &(struct sigaction){.sa_handler = kill_ranks}, NULL);
    sigprocmask(SIG_SETMASK, &old, NULL);
    _exit(wait_for_ranks(c, h));
}

void train_hosts_note_joining(void)
{
    if (notes)
        notes[own_index].joins = true;
}

void train_hosts_note_failure(void)
{
    if (notes)
        notes[own_index].failed = true;
}

bool train_hosts_become_rank(const char *text)
{
    cli quiet = {0};
    hosts h = {0};
    if (check_node_rank(&quiet) != LH_OK ||
        parse_hosts(&quiet, text, &h) != LH_OK || !h.n_local ||
        h.n_local == h.n_ranks)
        return false;
    set_launch(&h);
    set_number("RANK", h.begin);
    return true;
}

lh_status train_hosts_check_launcher(cli *c)
{
    /* Each launcher's number of processes. */
    static const char *const sizes[] = {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE",
                                        "PMI_SIZE", "SLURM_STEP_NUM_TASKS"};
    const train_settings *s = c->settings;
    if (cli_is_given(c, "transport") || s->ranks == TRAIN_RANKS_LOCAL ||
        s->hosts)
        return LH_OK;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const char *size = getenv(sizes[i]);
        if (size && strtol(size, NULL, 10) > 1)
            return cli_usage(c,
                             "%s=%.10s: each of the processes that a launcher "
                             "has started would run the whole job; add "
                             "--transport tcp, or --transport inproc to run "
                             "the job in each process",
                             sizes[i], size);
    }
    return LH_OK;
}

lh_status train_hosts_start(cli *c)
{
    const train_settings *s = c->settings;
    hosts h = {0};
    if (!s->hosts)
        return LH_OK;
    if (s->transport <= TRAIN_LOCAL)
        return cli_usage(c, "--hosts requires --transport tcp or ucx");
    if (getenv("RANK"))
        return cli_usage(c, "--hosts starts ranks itself, and RANK is set as "
                            "in a rank of torchrun: leave one of both out");
    CLI_TRY(check_node_rank(c));
    CLI_TRY(parse_hosts(c, s->hosts, &h));
    if (!h.n_local)
        return cli_usage(c, "--hosts: this host is not in the list; use the "
                            "names that uname -n prints, or set NODE_RANK to "
                            "the position in the list, from 0");
    set_launch(&h);
    return start_ranks(c, &h);
}
