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
 * signal, until this host's other ranks are killed: a rank whose process is
 * stopped does not end by itself. */
enum { RANK_GRACE_S = 4, STOP_GRACE_S = 4 };
/* Longest default silence time, that of rails, in seconds. */
enum { DEFAULT_SILENCE_S = 10 };

/* All hosts' ranks, and those of this one. */
typedef struct hosts {
    char first[256]; /* the host of rank 0 */
    uint32_t n_hosts, n_ranks;
    uint32_t begin, n_local; /* of this host; n_local 0: not in the list */
} hosts;

static pid_t children[MOST_LOCAL];
static volatile sig_atomic_t n_children, n_signals, is_overdue;
static int64_t signalled_ns; /* handlers only: the last counted signal's time */
/* Per rank of this host: it joins or has joined, so that the other ranks detect
 * its loss. Shared with the ranks. */
static bool *joins;
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

/* Kills this host's ranks (signal handler for SIGALRM). */
static void kill_ranks(int number)
{
    (void)number;
    is_overdue = 1;
    signal_ranks(SIGKILL);
}

/* Returns the index of child process `child`; n_children: none. */
static int find_child(pid_t child)
{
    int i = 0;
    while (i < n_children && children[i] != child)
        i++;
    return i;
}

/* Returns the time in seconds until this host's ranks are killed after rank
 * `index` among them ended with `status`; 0: they are not. A lost rank ends the
 * others through their connections, after the silence time at the latest,
 * unless the run restarts. If rank 0 ends with an error, possibly before the
 * others could connect to it, RANK_0_GRACE_S suffice. */
static unsigned find_grace(const cli *c, const hosts *h, int index, int status)
{
    const train_settings *s = c->settings;
    if (status == 0)
        return 0;
    if (index == 0 && h->begin == 0 && WIFEXITED(status))
        return RANK_0_GRACE_S;
    if (s->max_restarts)
        return 0;
    return RANK_GRACE_S + (s->silence_ns
                               ? (unsigned)(s->silence_ns / 1000000000) + 1
                               : DEFAULT_SILENCE_S);
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

/* Waits until all ranks of this host have ended. Returns the exit status of the
 * first that failed, else 0. Prints the ranks that it had to kill, except after
 * a failure of rank 0, which has printed the reason. */
static int wait_for_ranks(cli *c, const hosts *h)
{
    int failed = 0, first = -1;
    for (int left = n_children; left > 0;) {
        int status;
        const pid_t child = waitpid(-1, &status, 0);
        const int i = child < 0 ? n_children : find_child(child);
        if (i == n_children)
            continue; /* interrupted */
        children[i] = 0;
        left--;
        const bool is_killed =
            is_overdue && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        const uint32_t rank = h->begin + (uint32_t)i;
        if (is_killed && first >= 0 && h->begin + (uint32_t)first > 0)
            cli_print_stderr("rank %" PRIu32
                             " did not end after the failure of "
                             "rank %" PRIu32 " and was killed",
                             rank, h->begin + (uint32_t)first);
        else if (is_killed && first < 0)
            cli_print_stderr("rank %" PRIu32
                             " did not end after the second signal "
                             "and was killed",
                             rank);
        const int code =
            WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        if (WIFSIGNALED(status) && !is_overdue && !joins[i])
            report_killed(rank, WTERMSIG(status));
        if (!failed && code) {
            failed = code;
            first = is_overdue ? -1 : i;
        }
        const unsigned grace_s = find_grace(c, h, i, status);
        if (grace_s)
            kill_ranks_after(grace_s);
    }
    while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
        ; /* reports */
    return failed;
}

/* Forks one child process per rank on this host and returns in each child,
 * which continues as the rank. The parent never returns: it waits for all
 * children, then exits. Each rank has its own process group, so that a
 * terminal's signals reach it once. */
static lh_status start_ranks(cli *c, const hosts *h)
{
    const pid_t parent = getpid();
    void *map = mmap(NULL, h->n_local * sizeof *joins, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return cli_no_memory(c);
    joins = map;
    for (uint32_t i = 0; i < h->n_local; i++) {
        pid_t child = fork();
        if (child < 0) {
            signal_ranks(SIGKILL);
            return cli_usage(c, "--hosts: cannot start a rank: %s",
                             strerror(errno));
        }
        if (child == 0) {
            setpgid(0, 0);
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != parent)
                _exit(1);
            n_children = 0;
            set_number("RANK", h->begin + i);
            set_number("LOCAL_RANK", i);
            own_index = i;
            return LH_OK;
        }
        children[i] = child;
        n_children = (int)i + 1;
    }
    static const int passed[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++)
        sigaction(passed[i], &(struct sigaction){.sa_handler = pass_on}, NULL);
    sigaction(SIGALRM, &(struct sigaction){.sa_handler = kill_ranks}, NULL);
    _exit(wait_for_ranks(c, h));
}

void train_hosts_note_joining(void)
{
    if (joins)
        joins[own_index] = true;
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
    set_number("WORLD_SIZE", h.n_ranks);
    set_number("LOCAL_WORLD_SIZE", h.n_local);
    setenv("MASTER_ADDR", h.n_hosts > 1 ? h.first : "127.0.0.1", 1);
    if (!getenv("MASTER_PORT"))
        set_number("MASTER_PORT", MASTER_PORT);
    /* No torchrun listens on the port, and a launcher of this process, such as
     * srun, has not started its ranks. */
    static const char *const of_launchers[] = {
        "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
        "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"};
    for (size_t i = 0; i < sizeof of_launchers / sizeof *of_launchers; i++)
        unsetenv(of_launchers[i]);
    return start_ranks(c, &h);
}
