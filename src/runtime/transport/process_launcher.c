/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks as processes of one host, forked and supervised by the caller. Each
 * pair is connected by unnamed sockets, so that no one else can connect and
 * nothing remains afterwards. Links and a failure's reason are in shared
 * memory. */
#define _GNU_SOURCE
#include "runtime/transport/transport.h"

#include "base/fail.h"
#include "base/realtime.h"
#include "runtime/transport/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Time for ranks to end after a failure, before they are killed. */
static const int64_t grace_ns = 3000000000;
/* Interval at which the launcher polls its ranks if nothing happens. */
enum { POLL_MS = 200 };
/* Maximum result of a rank. */
static const size_t max_result_bytes = (size_t)1 << 32;

/* A rank's final report to the launcher; its result follows. */
typedef struct report {
    uint32_t status;
    uint32_t reserved;
    uint64_t size;
    char text[512];
} report;

/* A rank process. */
typedef struct child {
    pid_t pid;       /* 0: reaped */
    int pidfd, pipe; /* -1: none */
    int *fds;        /* its sockets to each rank */
    char *got;       /* pipe contents: report, then result */
    size_t n_got, room;
    lh_status status;
    char text[512];
    uint32_t n_stopped; /* successive polls in which its process was stopped */
} child;

/* Memory shared by all ranks. */
typedef struct shared {
    lhi_failure failure;
} shared;

/* The launcher. */
typedef struct launcher {
    uint32_t n;
    child *children;
    int *fds; /* n * n */
    shared *shared;
    lhi_links *links;
    size_t links_bytes;
    lhi_rank_main *rank_main;
    void *context;
    const lhi_net_stop *stop;
    int64_t silence_ns;
    bool kills_stopped;
    const uint32_t *numbers; /* of the ranks in messages; NULL: from 0 */
} launcher;

/* Returns the number of the rank with index `i` in messages. */
static uint32_t get_number(const launcher *l, uint32_t i)
{
    return l->numbers ? l->numbers[i] : i;
}

/* ---- rank process ---- */

/* Writes `n` bytes to a blocking descriptor; false: error. */
static bool write_all(int fd, const void *bytes, size_t n)
{
    const char *at = bytes;
    while (n > 0) {
        ssize_t k = write(fd, at, n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return false;
        at += k;
        n -= (size_t)k;
    }
    return true;
}

/* Closes, in rank `rank`'s process, the sockets and pipes that belong to
 * other ranks. */
static void close_others(launcher *l, uint32_t rank)
{
    for (uint32_t i = 0; i < l->n; i++) {
        child *c = &l->children[i];
        if (c->pidfd >= 0)
            close(c->pidfd);
        if (i != rank && c->pipe >= 0)
            close(c->pipe);
        for (uint32_t k = 0; k < l->n && i != rank; k++)
            if (c->fds[k] >= 0)
                close(c->fds[k]);
    }
}

/* Runs rank `rank`'s main function on its endpoint and fills in its report;
 * the caller releases result->text. */
static lh_status run_rank(launcher *l, uint32_t rank, report *r,
                          lhi_rank_result *result)
{
    lh_error err = {0};
    lhi_net *net = NULL;
    lhi_stream_options options = {.name = "local",
                                  .rank = rank,
                                  .n_ranks = l->n,
                                  .fds = l->children[rank].fds,
                                  .links = l->links,
                                  .failure = &l->shared->failure,
                                  .silence_ns = l->silence_ns,
                                  .watched = true};
    lh_status status = lhi_net_stream(&options, &net, &err);
    if (status == LH_OK)
        status = lhi_rank_run(net, l->rank_main, l->context, result, &err);
    else
        lhi_failure_set(&l->shared->failure, get_number(l, rank), err.text);
    r->status = (uint32_t)status;
    r->size = result->text ? result->size : 0;
    snprintf(r->text, sizeof r->text, "%s", err.text);
    return status;
}

/* Main function for a rank process: runs the rank, sends report and result
 * through the pipe, and exits with 1 if that failed. */
static _Noreturn void child_main(launcher *l, uint32_t rank, pid_t parent,
                                 int pipe)
{
    lhi_rank_result result = {NULL, 0};
    report r = {0};
    /* The rank must not outlive its launcher. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    close_others(l, rank);
    run_rank(l, rank, &r, &result);
    bool sent = write_all(pipe, &r, sizeof r);
    if (sent && r.size)
        sent = write_all(pipe, result.text, result.size);
    free(result.text);
    fflush(NULL);
    _exit(sent ? 0 : 1);
}

/* ---- launcher ---- */

/* Records the loss of the rank with index `i`, with `reason`. */
static void set_loss(launcher *l, uint32_t i, const char *reason)
{
    lhi_failure_set_loss(&l->shared->failure, get_number(l, i), reason);
}

/* Kills all rank processes that are still running, at once. */
static void kill_all(launcher *l)
{
    for (uint32_t i = 0; i < l->n; i++)
        if (l->children[i].pid > 0)
            kill(l->children[i].pid, SIGKILL);
}

/* Creates a socket pair between every two ranks, over which they exchange
 * messages. */
static lh_status connect_all(launcher *l, lh_error *err)
{
    /* Per rank: n - 1 sockets, a pipe, a process descriptor and a memory file
     * of the caller (in-memory checkpoints). */
    uint64_t needed = (uint64_t)l->n * (l->n + 2) + 64;
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < needed) {
        limit.rlim_cur =
            limit.rlim_max < needed ? limit.rlim_max : (rlim_t)needed;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    for (uint32_t i = 0; i < l->n; i++) {
        for (uint32_t k = i + 1; k < l->n; k++) {
            int pair[2];
            if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
                return lhi_fail(err, LH_EIO,
                                "cannot connect %u processes (%s); `ulimit -n` "
                                "must be at least %" PRIu64,
                                l->n, strerror(errno), needed);
            l->children[i].fds[k] = pair[0];
            l->children[k].fds[i] = pair[1];
        }
    }
    return LH_OK;
}

/* Starts one rank's process, with a pipe for its report and a process
 * descriptor that poll() watches. LH_EIO: no pipe, process or descriptor. */
static lh_status fork_rank(launcher *l, uint32_t rank, lh_error *err)
{
    child *c = &l->children[rank];
    int ends[2];
    if (pipe2(ends, O_CLOEXEC))
        return lhi_fail(err, LH_EIO, "cannot create a pipe to rank %u: %s",
                        rank, strerror(errno));
    c->pipe = ends[0];
    pid_t parent = getpid();
    c->pid = fork();
    if (c->pid == 0) {
        close(ends[0]);
        c->pipe = -1;
        child_main(l, rank, parent, ends[1]);
    }
    int error = errno;
    close(ends[1]);
    if (c->pid < 0) {
        c->pid = 0;
        return lhi_fail(err, LH_EIO, "cannot start rank %u: %s", rank,
                        strerror(error));
    }
    c->pidfd = (int)syscall(SYS_pidfd_open, c->pid, 0);
    if (c->pidfd < 0)
        return lhi_fail(err, LH_EIO, "cannot monitor rank %u: %s", rank,
                        strerror(errno));
    return LH_OK;
}

/* Reads the available bytes of a rank's report and result from its pipe; closes
 * the pipe when the rank has closed its end. */
static lh_status read_pipe(child *c, lh_error *err)
{
    if (c->n_got == c->room) {
        size_t room = c->room ? 2 * c->room : sizeof(report) + 4096;
        char *bigger = room <= max_result_bytes ? realloc(c->got, room) : NULL;
        if (!bigger)
            return lhi_fail_nomem(err);
        c->got = bigger;
        c->room = room;
    }
    ssize_t n = read(c->pipe, c->got + c->n_got, c->room - c->n_got);
    if (n < 0 && errno == EINTR)
        return LH_OK;
    if (n > 0) {
        c->n_got += (size_t)n;
        return LH_OK;
    }
    close(c->pipe);
    c->pipe = -1;
    return LH_OK;
}

/* Checks whether a rank sent its complete report. */
static bool has_reported(const child *c, report *r)
{
    if (c->n_got < sizeof *r)
        return false;
    memcpy(r, c->got, sizeof *r);
    r->text[sizeof r->text - 1] = '\0';
    return r->size == c->n_got - sizeof *r;
}

/* Stores the status and error text of an ended rank process, from its wait
 * status `how` and its report. If it failed, it becomes the run's failure,
 * unless there is an earlier one. */
static void evaluate_exit(launcher *l, uint32_t rank, int how)
{
    child *c = &l->children[rank];
    report r = {0};
    bool is_lost = WIFSIGNALED(how) || !has_reported(c, &r);
    c->status = is_lost ? LH_EIO : LH_OK;
    if (WIFSIGNALED(how)) {
        int sig = WTERMSIG(how);
        snprintf(c->text, sizeof c->text, "killed by signal %d (%s)", sig,
                 strsignal(sig));
    } else if (is_lost) {
        snprintf(c->text, sizeof c->text,
                 "exited before finishing (exit status %d)", WEXITSTATUS(how));
    } else if (r.status != LH_OK) {
        c->status = (lh_status)r.status;
        snprintf(c->text, sizeof c->text, "%s", r.text);
    }
    if (is_lost)
        set_loss(l, rank, c->text);
    else if (c->status != LH_OK)
        lhi_failure_set(&l->shared->failure, get_number(l, rank), c->text);
}

/* Reads the rest of a rank's report, waits for its process's end, and
 * evaluates its exit status. */
static lh_status reap(launcher *l, uint32_t rank, lh_error *err)
{
    child *c = &l->children[rank];
    int how = 0;
    while (c->pipe >= 0)
        LHI_TRY(read_pipe(c, err));
    while (waitpid(c->pid, &how, 0) < 0 && errno == EINTR)
        ;
    c->pid = 0;
    close(c->pidfd);
    c->pidfd = -1;
    evaluate_exit(l, rank, how);
    return LH_OK;
}

/* Polls all rank processes and their pipes once; *n_running receives the
 * number still running. */
static lh_status poll_ranks(launcher *l, struct pollfd *polls,
                            uint32_t *n_running, lh_error *err)
{
    for (uint32_t i = 0; i < l->n; i++) {
        const child *c = &l->children[i];
        polls[2 * i] = (struct pollfd){.fd = c->pipe, .events = POLLIN};
        polls[2 * i + 1] = (struct pollfd){.fd = c->pidfd, .events = POLLIN};
    }
    if (poll(polls, 2 * (nfds_t)l->n, POLL_MS) < 0)
        return errno == EINTR
                   ? LH_OK
                   : lhi_fail(err, LH_EIO, "cannot monitor ranks: %s",
                              strerror(errno));
    *n_running = 0;
    for (uint32_t i = 0; i < l->n; i++) {
        child *c = &l->children[i];
        if (c->pipe >= 0 && polls[2 * i].revents)
            LHI_TRY(read_pipe(c, err));
        if (c->pid > 0 && polls[2 * i + 1].revents)
            LHI_TRY(reap(l, i, err));
        *n_running += c->pid > 0;
    }
    return LH_OK;
}

/* Checks whether `pid` is a rank's process. */
static bool is_rank(const launcher *l, pid_t pid)
{
    uint32_t i = 0;
    while (i < l->n && l->children[i].pid != pid)
        i++;
    return i < l->n;
}

/* Reaps orphaned processes, which the kernel reparents to the launcher if it is
 * process 1 of a container. */
static void reap_orphans(const launcher *l)
{
    siginfo_t who = {0};
    int how = WEXITED | WNOHANG | WNOWAIT;
    while (getpid() == 1 && waitid(P_ALL, 0, &who, how) == 0 &&
           who.si_pid > 0 && !is_rank(l, who.si_pid)) {
        waitpid(who.si_pid, NULL, WNOHANG);
        who.si_pid = 0;
    }
}

/* Kills the rank processes that still run after the time that they have to end.
 * */
static void kill_remaining(launcher *l)
{
    for (uint32_t i = 0; i < l->n; i++)
        if (l->children[i].pid > 0)
            set_loss(l, i, "it did not end after a failure or a stop request");
    kill_all(l);
}

/* Kills ranks whose processes have been stopped (SIGSTOP) for longer than a
 * peer may be silent. Counts polls rather than time, since this process may
 * have been stopped, too. */
static void kill_stopped(launcher *l)
{
    for (uint32_t i = 0; i < l->n && l->kills_stopped; i++) {
        child *c = &l->children[i];
        siginfo_t state = {0};
        const bool is_stopped = c->pid > 0 &&
                                waitid(P_PID, (id_t)c->pid, &state,
                                       WSTOPPED | WNOHANG | WNOWAIT) == 0 &&
                                state.si_pid == c->pid;
        c->n_stopped = is_stopped ? c->n_stopped + 1 : 0;
        if ((int64_t)c->n_stopped * POLL_MS * 1000000 <= l->silence_ns)
            continue;
        set_loss(l, i, "its process was stopped");
        kill(c->pid, SIGKILL);
    }
}

/* Waits until all rank processes have ended; kills those that still run 3 s
 * after a failure or a stop request. */
static lh_status supervise(launcher *l, lh_error *err)
{
    struct pollfd *polls = calloc(2 * (size_t)l->n, sizeof *polls);
    if (!polls)
        return lhi_fail_nomem(err);
    lh_status status = LH_OK;
    uint32_t n_running = l->n;
    int64_t ends_ns = 0;
    while (n_running > 0 && status == LH_OK) {
        status = poll_ranks(l, polls, &n_running, err);
        reap_orphans(l);
        kill_stopped(l);
        bool ends = lhi_net_is_stop_requested(l->stop) ||
                    lhi_failure_text(&l->shared->failure) != NULL;
        if (ends && !ends_ns)
            ends_ns = lhi_now_ns();
        if (ends_ns && lhi_now_ns() - ends_ns > grace_ns)
            kill_remaining(l);
    }
    free(polls);
    return status;
}

/* Returns the run's failure: status and message of the rank that caused it. */
static lh_status summarise_failure(launcher *l, lh_error *err)
{
    const char *why = lhi_failure_text(&l->shared->failure);
    lh_status status = LH_OK;
    for (uint32_t i = 0; i < l->n; i++) {
        lh_status own = l->children[i].status;
        if (own != LH_OK && (status == LH_OK || status == LH_EIO))
            status = own;
    }
    if (!why && status == LH_OK)
        return LH_OK;
    if (status == LH_OK)
        status = LH_EIO;
    return lhi_fail(err, status, "%s", why ? why : "a rank has failed");
}

/* Moves the results that the ranks sent to the caller's array `results`. */
static void move_results(launcher *l, lhi_rank_result *results)
{
    for (uint32_t i = 0; i < l->n; i++) {
        child *c = &l->children[i];
        report r;
        if (!has_reported(c, &r) || r.size == 0)
            continue;
        memmove(c->got, c->got + sizeof r, r.size);
        results[i] = (lhi_rank_result){c->got, r.size};
        c->got = NULL;
    }
}

/* Allocates the launcher's tables, and the memory that ranks share: failure and
 * emulated links. */
static lh_status prepare_launch(launcher *l, uint32_t n_links,
                                const lhi_net_link *links, lh_error *err)
{
    int prot = PROT_READ | PROT_WRITE;
    int how = MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE;
    void *map = mmap(NULL, sizeof *l->shared, prot, how, -1, 0);
    if (map == MAP_FAILED)
        return lhi_fail_nomem(err);
    l->shared = map;
    if (n_links > 0) {
        size_t bytes = lhi_links_bytes(n_links);
        map = mmap(NULL, bytes, prot, how, -1, 0);
        if (map == MAP_FAILED)
            return lhi_fail_nomem(err);
        l->links = map;
        l->links_bytes = bytes;
        LHI_TRY(lhi_links_init(l->links, n_links, links, err));
    }
    l->children = calloc(l->n, sizeof *l->children);
    l->fds = malloc((size_t)l->n * l->n * sizeof *l->fds);
    if (!l->children || !l->fds)
        return lhi_fail_nomem(err);
    for (size_t i = 0; i < (size_t)l->n * l->n; i++)
        l->fds[i] = -1;
    for (uint32_t i = 0; i < l->n; i++) {
        child *c = &l->children[i];
        c->pidfd = c->pipe = -1;
        c->fds = l->fds + (size_t)i * l->n;
    }
    return LH_OK;
}

/* Closes the launcher's copies of the ranks' sockets. */
static void close_connections(launcher *l)
{
    for (size_t i = 0; l->fds && i < (size_t)l->n * l->n; i++) {
        if (l->fds[i] >= 0)
            close(l->fds[i]);
        l->fds[i] = -1;
    }
}

/* Kills all rank processes that still run and waits for them, so that no
 * zombie remains. */
static void clean_up(launcher *l)
{
    close_connections(l);
    if (l->children)
        kill_all(l);
    for (uint32_t i = 0; l->children && i < l->n; i++) {
        child *c = &l->children[i];
        if (c->pid > 0)
            while (waitpid(c->pid, NULL, 0) < 0 && errno == EINTR)
                ;
        if (c->pidfd >= 0)
            close(c->pidfd);
        if (c->pipe >= 0)
            close(c->pipe);
        free(c->got);
    }
    free(l->children);
    free(l->fds);
    if (l->links) {
        lhi_links_fini(l->links);
        munmap(l->links, l->links_bytes);
    }
    if (l->shared)
        munmap(l->shared, sizeof *l->shared);
}

/* Connects all ranks, starts and supervises their processes, and returns the
 * run's failure, if any. */
static lh_status launch(launcher *l, lh_error *err)
{
    LHI_TRY(connect_all(l, err));
    fflush(NULL); /* else each rank would write buffered output again */
    for (uint32_t i = 0; i < l->n; i++)
        LHI_TRY(fork_rank(l, i, err));
    close_connections(l);
    LHI_TRY(supervise(l, err));
    return summarise_failure(l, err);
}

lh_status lhi_local_run(uint32_t n, uint32_t n_links, const lhi_net_link *links,
                        lhi_rank_main *rank_main, void *context,
                        lhi_rank_result *results, lh_error *err)
{
    const lhi_local_options options = {.stop = NULL};
    return lhi_local_run_or_stop(n, n_links, links, rank_main, context,
                                 &options, results, err);
}

lh_status lhi_local_run_or_stop(uint32_t n, uint32_t n_links,
                                const lhi_net_link *links,
                                lhi_rank_main *rank_main, void *context,
                                const lhi_local_options *options,
                                lhi_rank_result *results, lh_error *err)
{
    if (n == 0 || n > LHI_NET_MAX_RANKS)
        return lhi_fail(err, LH_EINVAL, "%u ranks; a run has 1 to %d", n,
                        LHI_NET_MAX_RANKS);
    LHI_TRY(lhi_links_check(n_links, links, err));
    launcher l = {.n = n,
                  .rank_main = rank_main,
                  .context = context,
                  .stop = options->stop,
                  .silence_ns = options->silence_ns ? options->silence_ns
                                                    : LHI_LOCAL_SILENCE_NS,
                  .kills_stopped = options->has_remote_peers,
                  .numbers = options->numbers};
    lh_status status = prepare_launch(&l, n_links, links, err);
    if (status == LH_OK)
        status = launch(&l, err);
    if (options->lost_rank)
        *options->lost_rank = l.shared
                                  ? lhi_failure_lost_rank(&l.shared->failure)
                                  : LHI_NET_NO_RANK;
    if (results && l.children)
        move_results(&l, results);
    clean_up(&l);
    return status;
}
