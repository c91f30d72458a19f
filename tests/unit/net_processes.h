/* SPDX-License-Identifier: Apache-2.0 */
/* A runner for transports whose ranks start separately, as mpirun does, with
 * one process per rank. Each process opens its endpoint and calls lhi_rank_run.
 */
#ifndef NET_PROCESSES_H
#define NET_PROCESSES_H

#include "base/fail.h"
#include "base/realtime.h"
#include "net_suite.h"
#include "runtime/transport/transport.h"
#include "test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* Opens a rank's endpoint; `how` is the caller's context. */
typedef lh_status make_endpoint(void *how, uint32_t rank, uint32_t n,
                                uint32_t n_links, const lhi_net_link *links,
                                lhi_net **out, lh_error *err);

/* A rank's process and the pipe that returns its result. */
typedef struct rank_process {
    pid_t pid;
    int pipe;
    lh_status status;
    char text[512];
    uint64_t size;
    char *result;
} rank_process;

/* Returns a TCP port on loopback that is free at the moment. */
static uint16_t free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(fd, (struct sockaddr *)&a, size) ||
        getsockname(fd, (struct sockaddr *)&a, &size))
        abort();
    close(fd);
    return ntohs(a.sin_port);
}

/* Writes or reads exactly n bytes; returns false on failure. */
static bool pipe_all(int fd, void *bytes, size_t n, bool writes)
{
    char *at = bytes;
    while (n > 0) {
        ssize_t k = writes ? write(fd, at, n) : read(fd, at, n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return false;
        at += k;
        n -= (size_t)k;
    }
    return true;
}

/* Runs the rank in the child process and writes its result to fd. */
static void rank_process_main(int fd, uint32_t rank, uint32_t n,
                              uint32_t n_links, const lhi_net_link *links,
                              make_endpoint *make, void *how,
                              lhi_rank_main *rank_main, void *context)
{
    lhi_net *net = NULL;
    lh_error err = {0};
    lhi_rank_result result = {NULL, 0};
    lh_status status = make(how, rank, n, n_links, links, &net, &err);
    if (status == LH_OK)
        status = lhi_rank_run(net, rank_main, context, &result, &err);
    rank_process r = {.status = status, .size = result.text ? result.size : 0};
    memcpy(r.text, err.text, sizeof r.text);
    pipe_all(fd, &r, sizeof r, true);
    pipe_all(fd, result.text, r.size, true);
    free(result.text);
    _exit(0);
}

/* Forks a process that runs the rank. */
static void rank_process_start(rank_process *p, uint32_t rank, uint32_t n,
                               uint32_t n_links, const lhi_net_link *links,
                               make_endpoint *make, void *how,
                               lhi_rank_main *rank_main, void *context)
{
    int ends[2];
    fflush(NULL);
    if (pipe(ends))
        abort();
    p->pid = fork();
    if (p->pid == 0) {
        close(ends[0]);
        rank_process_main(ends[1], rank, n, n_links, links, make, how,
                          rank_main, context);
    }
    close(ends[1]);
    p->pipe = ends[0];
}

/* Reads the rank's result and reaps its process. */
static void rank_process_end(rank_process *p)
{
    rank_process got = {0};
    int how = 0;
    bool told = pipe_all(p->pipe, &got, sizeof got, false);
    if (told && got.size) {
        p->result = malloc(got.size);
        if (p->result)
            pipe_all(p->pipe, p->result, got.size, false);
        p->size = got.size;
    }
    close(p->pipe);
    waitpid(p->pid, &how, 0);
    p->status = told ? got.status : LH_EIO;
    if (told)
        memcpy(p->text, got.text, sizeof p->text);
    else
        snprintf(p->text, sizeof p->text, "ended (%d)", how);
}

/* Runs n ranks as processes, with endpoints from `make`; returns the run's
 * status. */
static inline lh_status run_processes(uint32_t n, uint32_t n_links,
                                      const lhi_net_link *links,
                                      make_endpoint *make, void *how,
                                      lhi_rank_main *rank_main, void *context,
                                      lhi_rank_result *results, lh_error *err)
{
    rank_process p[16] = {{0}};
    lh_status status = LH_OK;
    for (uint32_t i = 0; i < n; i++)
        rank_process_start(&p[i], i, n, n_links, links, make, how, rank_main,
                           context);
    for (uint32_t i = 0; i < n; i++) {
        rank_process_end(&p[i]);
        if (p[i].status != LH_OK && (status == LH_OK || status == LH_EIO))
            status = lhi_fail(err, p[i].status, "%s", p[i].text);
        if (results)
            results[i] = (lhi_rank_result){p[i].result, p[i].size};
        else
            free(p[i].result);
    }
    return status;
}

/* Maps a counter of started ranks, shared among processes. */
static inline uint32_t *count_of_ranks(void)
{
    uint32_t *count = mmap(NULL, sizeof *count, PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (count == MAP_FAILED)
        abort();
    return count;
}

/* Counts the calling rank; does nothing without a counter. */
static inline void count_rank(uint32_t *count)
{
    if (count)
        __atomic_add_fetch(count, 1, __ATOMIC_SEQ_CST);
}

/* Waits until `n` ranks have been counted, at most one minute. */
static inline void await_ranks(uint32_t *count, uint32_t n)
{
    for (int i = 0; i < 6000; i++)
        if (__atomic_load_n(count, __ATOMIC_SEQ_CST) < n)
            lhi_sleep_for(10000000);
    munmap(count, sizeof *count);
}

/* Runs n ranks over the transport; same parameters as net_runner. */
typedef lh_status run_ranks(uint32_t n, uint32_t n_links,
                            const lhi_net_link *links, lhi_rank_main *rank_main,
                            void *context, lhi_rank_result *results,
                            lh_error *err);

/* Runs all cases of the conformance suite over a transport. */
static inline void processes_conform(const char *transport, run_ranks *run)
{
    for (unsigned i = 0; i < n_net_cases; i++) {
        const net_case *c = &net_cases[i];
        lhi_rank_result results[8] = {{0}};
        lh_error err = {0};
        char word[] = "hello from";
        int64_t start_ns = lhi_now_ns();
        lh_status status = run(c->n_ranks, c->n_links, c->links, c->rank_main,
                               word, results, &err);
        if (!c->fails)
            CHECK_MSG(status == LH_OK, "%s, %s: %s", transport, c->name,
                      err.text);
        else
            CHECK_MSG(status != LH_OK && strstr(err.text, c->fails),
                      "%s, %s: '%s', without '%s'", transport, c->name,
                      err.text, c->fails);
        if (getenv("TEST_NET_VERBOSE"))
            printf("%s %s %.3f s\n", transport, c->name,
                   (double)(lhi_now_ns() - start_ns) * 1e-9);
        for (int k = 0; k < 8; k++)
            free(results[k].text);
    }
}

#endif
