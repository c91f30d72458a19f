/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks join while strangers flood their ports: hundreds of connections that
 * send nothing, half a handshake, garbage, or claim to be a rank without proof,
 * before the ranks and between them. The run completes, and no rank opens more
 * files for strangers than documented. */
#define _GNU_SOURCE
#include "base/realtime.h"
#include "net_processes.h"
#include "runtime/transport/handshake.h"
#include "runtime/transport/pending_connections.h"
#include "test.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

static const int64_t ms_ns = 1000000;
static const int64_t second_ns = 1000000000;
enum { N_RANKS = 3, N_STRANGERS = 300 };

/* ---- ranks ---- */

/* A run under flooding: its options and pipes. */
typedef struct siege {
    uint16_t port;
    int64_t join_ns;
    uint32_t free_files; /* available to a rank; 0: unlimited */
    int64_t hog_ns;      /* how long rank 0 has no free files */
    int go[N_RANKS][2];  /* a byte starts a rank's join */
} siege;

static const char secret[] = "0123456789abcdef0123456789abcdef";

/* Leaves this many file descriptors below the limit. */
static void leave_files(uint32_t n)
{
    rlim_t fd = 0;
    for (; n > 0; fd++)
        n -= fcntl((int)fd, F_GETFD) < 0;
    const struct rlimit limit = {fd, fd};
    setrlimit(RLIMIT_NOFILE, &limit);
}

/* Opens every available file for a while. */
static void *hog_files(void *of)
{
    int fds[4096], n = 0;
    lhi_sleep_for(200 * ms_ns);
    while (n < 4096 && (fds[n] = dup(0)) >= 0)
        n++;
    lhi_sleep_for(*(int64_t *)of);
    while (n > 0)
        close(fds[--n]);
    return NULL;
}

static lh_status join_when_told(void *how, uint32_t rank, uint32_t n,
                                uint32_t n_links, const lhi_net_link *links,
                                lhi_net **out, lh_error *err)
{
    siege *s = how;
    char byte;
    pthread_t hog;
    bool hogs = rank == 0 && s->hog_ns;
    if (read(s->go[rank][0], &byte, 1) != 1)
        return lhi_fail(err, LH_ECANCELED, "never told to");
    if (s->free_files)
        leave_files(s->free_files);
    if (hogs && pthread_create(&hog, NULL, hog_files, &s->hog_ns))
        return lhi_fail_nomem(err);
    lhi_tcp_options o = {.rank = rank,
                         .n_ranks = n,
                         .port = s->port,
                         .job = "besieged",
                         .secret = secret,
                         .secret_size = sizeof secret - 1,
                         .n_links = n_links,
                         .links = links,
                         .join_ns = s->join_ns};
    lh_status status = lhi_net_tcp(&o, out, err);
    struct timespec used;
    if (!hogs)
        return status;
    pthread_join(hog, NULL);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    int64_t used_ns = used.tv_sec * second_ns + used.tv_nsec;
    if (status == LH_OK && used_ns > s->hog_ns / 2)
        return lhi_fail(err, LH_EINVAL, "computed for %lld ms while it waited",
                        (long long)(used_ns / ms_ns));
    return status;
}

/* Every rank's part of a table reaches every other. */
static lh_status gather(lhi_net *net, void *context, char **result,
                        size_t *size, lh_error *err)
{
    (void)context, (void)result, (void)size;
    enum { EACH = 1000 };
    uint32_t n = lhi_net_n_ranks(net), me = lhi_net_rank(net);
    lhi_net_group all = {n, me, NULL, LHI_NET_NO_LINK, NULL, NULL};
    uint32_t values[N_RANKS * EACH] = {0};
    for (uint32_t i = 0; i < EACH; i++)
        values[me * EACH + i] = me * 7919 + i;
    LHI_TRY(lhi_net_all_gather(net, &all, 0, values, (size_t)n * EACH,
                               sizeof *values, err));
    for (uint32_t i = 0; i < n * EACH; i++)
        EXPECT(values[i] == i / EACH * 7919 + i % EACH);
    return LH_OK;
}

/* The port is closed: a test has failed, and the rest is skipped. */
static bool in_vain;

static void start_ranks(siege *s, rank_process p[N_RANKS])
{
    s->port = free_port();
    in_vain = false;
    for (uint32_t i = 0; i < N_RANKS; i++)
        if (pipe2(s->go[i], O_CLOEXEC))
            abort();
    for (uint32_t i = 0; i < N_RANKS; i++)
        rank_process_start(&p[i], i, N_RANKS, 0, NULL, join_when_told, s,
                           gather, NULL);
}

static void tell_to_join(const siege *s, uint32_t rank)
{
    CHECK(write(s->go[rank][1], "", 1) == 1);
}

static void end_ranks(const siege *s, rank_process p[N_RANKS])
{
    for (uint32_t i = 0; i < N_RANKS; i++) {
        rank_process_end(&p[i]);
        free(p[i].result);
        close(s->go[i][0]);
        close(s->go[i][1]);
    }
}

/* ---- strangers ---- */

/* Misbehaviour of a stranger. */
typedef enum manner {
    SILENT,
    HALF_HELLO,
    GARBAGE,
    NAMED, /* the job's name, and nothing else */
    WRONG_PROOF
} manner;

static int knock(uint16_t port)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons(port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct timeval limit = {.tv_sec = 5};
    int error = ECONNREFUSED;
    if (in_vain)
        return -1;
    for (int tries = 0; tries < 4000 && error == ECONNREFUSED; tries++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0)
            abort();
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
        if (connect(fd, (struct sockaddr *)&a, sizeof a) == 0)
            return fd;
        error = errno;
        close(fd);
        lhi_sleep_for(5 * ms_ns);
    }
    in_vain = true;
    CHECK_MSG(false, "nobody listens at port %d: %s", port, strerror(error));
    return -1;
}

static void misbehave(int fd, manner how)
{
    unsigned char bytes[LHI_HANDSHAKE_BYTES] = "GET / HTTP/1.1\r\n";
    lhi_handshake_message h = {
        .kind = LHI_HANDSHAKE_HELLO, .rank = 1, .n_ranks = N_RANKS};
    lhi_compute_job_digest("besieged", h.job);
    if (how != GARBAGE)
        lhi_handshake_write(&h, bytes);
    size_t n = how == SILENT ? 0 : how == HALF_HELLO ? 77 : sizeof bytes;
    /* A connection that is already closed is fine, too. */
    bool goes_on = send(fd, bytes, n, MSG_NOSIGNAL) == (ssize_t)n &&
                   how == WRONG_PROOF &&
                   recv(fd, bytes, sizeof bytes, MSG_WAITALL) == sizeof bytes;
    if (!goes_on)
        return;
    h.kind = LHI_HANDSHAKE_PROOF;
    memset(h.mac, 0x5a, sizeof h.mac);
    lhi_handshake_write(&h, bytes);
    if (send(fd, bytes, sizeof bytes, MSG_NOSIGNAL) > 0)
        recv(fd, bytes, sizeof bytes, MSG_WAITALL); /* the rejection */
}

static uint32_t files_of(pid_t pid)
{
    char path[40];
    uint32_t n = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *d = opendir(path);
    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

/* Waits until the process listens; returns its port. */
static uint16_t listens_at(pid_t pid)
{
    for (int tries = 0; tries < 4000; tries++) {
        char line[400], path[40], link[40], want[40];
        unsigned port, state;
        unsigned long inode;
        FILE *f = fopen("/proc/self/net/tcp", "r");
        while (f && fgets(line, sizeof line, f)) {
            if (sscanf(line,
                       " %*[0-9]: 0100007F:%x %*s %x %*s %*s %*s %*s %*s %lu",
                       &port, &state, &inode) != 3 ||
                state != 0x0a)
                continue;
            snprintf(want, sizeof want, "socket:[%lu]", inode);
            for (int fd = 0; fd < 64; fd++) {
                snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, fd);
                ssize_t n = readlink(path, link, sizeof link - 1);
                link[n > 0 ? n : 0] = 0;
                if (strcmp(link, want) == 0) {
                    fclose(f);
                    return (uint16_t)port;
                }
            }
        }
        if (f)
            fclose(f);
        lhi_sleep_for(5 * ms_ns);
    }
    CHECK_MSG(false, "process %d does not listen", (int)pid);
    return 0;
}

/* Opens connections of one kind that stay; `most`: rank 0's highest file count.
 */
static void besiege(uint16_t port, manner how, int fds[N_STRANGERS], pid_t pid,
                    uint32_t *most)
{
    for (int i = 0; i < N_STRANGERS; i++) {
        fds[i] = knock(port);
        misbehave(fds[i], how);
        uint32_t n = i % 25 == 24 ? files_of(pid) : 0;
        if (n > *most)
            *most = n;
    }
}

static void leave_all(int fds[N_STRANGERS])
{
    for (int i = 0; i < N_STRANGERS; i++)
        close(fds[i]);
}

/* ---- guarantees ---- */

static void come_through(manner how, uint32_t free_files)
{
    static int first[N_STRANGERS], second[N_STRANGERS];
    siege s = {.join_ns = 60 * second_ns, .free_files = free_files};
    rank_process p[N_RANKS] = {{0}};
    uint32_t most = 0;
    start_ranks(&s, p);
    uint32_t before = files_of(p[0].pid);
    tell_to_join(&s, 0);
    besiege(s.port, how, first, p[0].pid, &most);
    tell_to_join(&s, 1);
    besiege(s.port, how, second, p[0].pid, &most);
    tell_to_join(&s, 2);
    end_ranks(&s, p);
    leave_all(first);
    leave_all(second);
    for (uint32_t i = 0; i < N_RANKS; i++)
        CHECK_MSG(p[i].status == LH_OK, "manner %d, rank %u: %s", (int)how, i,
                  p[i].text);
    CHECK_MSG(most <= before + LHI_PENDING_EXTRA + 2 * N_RANKS + 8,
              "manner %d: %u files, %u before", (int)how, most, before);
}

static void silent_ones(void)
{
    come_through(SILENT, 0);
}

static void half_a_greeting(void)
{
    come_through(HALF_HELLO, 0);
}

static void noise(void)
{
    come_through(GARBAGE, 0);
}

static void names_without_proof(void)
{
    come_through(NAMED, 0);
}

static void wrong_proofs(void)
{
    come_through(WRONG_PROOF, 0);
}

/* A rank that waits for rank 0 serves its own pending connections meanwhile. */
static void at_another_rank(void)
{
    static int fds[N_STRANGERS];
    siege s = {.join_ns = 60 * second_ns};
    rank_process p[N_RANKS] = {{0}};
    uint32_t most = 0;
    start_ranks(&s, p);
    tell_to_join(&s, 0);
    tell_to_join(&s, 1);
    besiege(listens_at(p[1].pid), SILENT, fds, p[1].pid, &most);
    tell_to_join(&s, 2);
    end_ranks(&s, p);
    leave_all(fds);
    for (uint32_t i = 0; i < N_RANKS; i++)
        CHECK_MSG(p[i].status == LH_OK, "rank %u: %s", i, p[i].text);
    CHECK_MSG(most <= LHI_PENDING_EXTRA + 40, "%u files", most);
}

static void with_few_files(void)
{
    come_through(SILENT, 14);
    come_through(HALF_HELLO, 14);
    come_through(NAMED, 14);
    come_through(WRONG_PROOF, 14);
}

/* A wrong proof does not shorten the ranks' time to join. */
static void window_stays(void)
{
    siege s = {.join_ns = 60 * second_ns};
    rank_process p[N_RANKS] = {{0}};
    start_ranks(&s, p);
    tell_to_join(&s, 0);
    tell_to_join(&s, 1);
    int fd = knock(s.port);
    misbehave(fd, WRONG_PROOF);
    lhi_sleep_for(3500 * ms_ns);
    tell_to_join(&s, 2);
    end_ranks(&s, p);
    close(fd);
    for (uint32_t i = 0; i < N_RANKS; i++)
        CHECK_MSG(p[i].status == LH_OK, "rank %u: %s", i, p[i].text);
}

/* The error names the most informative rejection. */
static void says_the_best_reason(void)
{
    static int silent[N_STRANGERS];
    siege s = {.join_ns = 6 * second_ns};
    rank_process p[N_RANKS] = {{0}};
    uint32_t most = 0;
    start_ranks(&s, p);
    tell_to_join(&s, 0);
    int fd = knock(s.port), noisy = knock(s.port);
    misbehave(fd, WRONG_PROOF);
    misbehave(noisy, GARBAGE);
    besiege(s.port, SILENT, silent, p[0].pid, &most);
    leave_all(silent);
    tell_to_join(&s, 1);
    kill(p[2].pid, SIGKILL);
    end_ranks(&s, p);
    close(fd);
    close(noisy);
    for (int i = 0; i < 2; i++) {
        CHECK_INT(p[i].status, LH_EIO);
        CHECK_HAS(p[i].text, "rank 2 has not joined rank 0 in time; refused: "
                             "127.0.0.1:");
        CHECK_HAS(p[i].text, "(rank 1: wrong secret");
        CHECK_HAS(p[i].text, " more");
    }
}

/* No file is available for a while: rank 0 waits without busy looping. */
static void no_files_for_a_while(void)
{
    static int fds[N_STRANGERS];
    siege s = {
        .join_ns = 60 * second_ns, .free_files = 40, .hog_ns = second_ns};
    rank_process p[N_RANKS] = {{0}};
    uint32_t most = 0;
    start_ranks(&s, p);
    tell_to_join(&s, 0);
    close(knock(s.port));
    lhi_sleep_for(400 * ms_ns);
    besiege(s.port, SILENT, fds, p[0].pid, &most);
    tell_to_join(&s, 1);
    tell_to_join(&s, 2);
    end_ranks(&s, p);
    leave_all(fds);
    for (uint32_t i = 0; i < N_RANKS; i++)
        CHECK_MSG(p[i].status == LH_OK, "rank %u: %s", i, p[i].text);
}

/* An impossible setup is rejected before the run starts. */
static void too_few_files(void)
{
    siege s = {.join_ns = second_ns, .free_files = 5};
    rank_process p[N_RANKS] = {{0}};
    start_ranks(&s, p);
    for (uint32_t i = 0; i < N_RANKS; i++)
        tell_to_join(&s, i);
    end_ranks(&s, p);
    for (uint32_t i = 0; i < N_RANKS; i++) {
        CHECK_INT(p[i].status, LH_EIO);
        CHECK_HAS(p[i].text,
                  "for its connections to 2 other ranks, but its limit "
                  "allows 5; raise it (ulimit -n)");
    }
}

int main(void)
{
    if (!lhi_handshake_can_authenticate()) {
        printf("SKIPPED: this build has no OpenSSL, so no tcp transport\n");
        return 77;
    }
    RUN(silent_ones);
    RUN(half_a_greeting);
    RUN(noise);
    RUN(names_without_proof);
    RUN(wrong_proofs);
    RUN(at_another_rank);
    RUN(with_few_files);
    RUN(window_stays);
    RUN(says_the_best_reason);
    RUN(no_files_for_a_while);
    RUN(too_few_files);
    return test_summary();
}
