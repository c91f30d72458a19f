/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "runtime/transport/pending_connections.h"

#include "base/fail.h"
#include "base/realtime.h"
#include "runtime/transport/sockets.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* Pause in accepting when no file descriptor is free; otherwise poll() would
 * report the listener continuously. */
static const int64_t accept_pause_ns = 50000000;

uint32_t lhi_count_free_files(uint32_t enough)
{
    struct rlimit limit;
    uint32_t n = 0;
    if (getrlimit(RLIMIT_NOFILE, &limit))
        return enough;
    for (rlim_t fd = 0; n < enough && fd < limit.rlim_max; fd++) {
        if (fd == limit.rlim_cur) { /* soft limit; the user may raise it */
            limit.rlim_cur = limit.rlim_max - fd < enough - n ? limit.rlim_max
                                                              : fd + enough - n;
            if (setrlimit(RLIMIT_NOFILE, &limit))
                break;
        }
        n += fcntl((int)fd, F_GETFD) < 0;
    }
    return n;
}

lh_status lhi_pending_init(lhi_pending_connections *g, uint32_t most,
                           lh_error *err)
{
    *g = (lhi_pending_connections){.capacity = most ? most : 1};
    g->list = calloc(g->capacity, sizeof *g->list);
    return g->list ? LH_OK : lhi_fail_nomem(err);
}

void lhi_pending_close_all(lhi_pending_connections *g)
{
    for (uint32_t i = 0; i < g->n; i++)
        if (g->list[i].fd >= 0)
            close(g->list[i].fd);
    g->n = 0;
}

void lhi_pending_fini(lhi_pending_connections *g)
{
    lhi_pending_close_all(g);
    free(g->list);
    g->list = NULL;
}

void lhi_pending_remove_closed(lhi_pending_connections *g)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < g->n; i++)
        if (g->list[i].fd >= 0)
            g->list[kept++] = g->list[i];
    g->n = kept;
}

bool lhi_pending_drop_oldest(lhi_pending_connections *g)
{
    uint32_t n_named = 0, oldest_named = UINT32_MAX, oldest = UINT32_MAX;
    for (uint32_t i = g->n; i-- > 0;) {
        if (g->list[i].fd < 0)
            continue;
        if (g->list[i].identified) {
            n_named++;
            oldest_named = i;
        } else {
            oldest = i;
        }
    }
    uint32_t goes = oldest == UINT32_MAX || n_named > g->capacity / 2
                        ? oldest_named
                        : oldest;
    if (goes == UINT32_MAX)
        return false;
    close(g->list[goes].fd);
    g->list[goes].fd = -1;
    g->n_dropped++;
    lhi_pending_remove_closed(g);
    return true;
}

uint32_t lhi_pending_fill_polls(const lhi_pending_connections *g, int listener,
                                struct pollfd *polls)
{
    bool is_paused = lhi_now_ns() < g->paused_until_ns;
    polls[0] =
        (struct pollfd){.fd = is_paused ? -1 : listener, .events = POLLIN};
    for (uint32_t i = 0; i < g->n; i++)
        polls[i + 1] = (struct pollfd){.fd = g->list[i].fd, .events = POLLIN};
    return g->n + 1;
}

lhi_pending_connection *lhi_pending_accept(lhi_pending_connections *g,
                                           int listener)
{
    struct sockaddr_storage a;
    socklen_t size;
    int fd;
    for (;;) {
        size = sizeof a;
        fd = accept4(listener, (struct sockaddr *)&a, &size, SOCK_CLOEXEC);
        if (fd >= 0)
            break;
        bool no_file = errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
                       errno == ENOMEM;
        if (!no_file) /* no connection, or already closed */
            return NULL;
        g->short_of_files = true;
        if (lhi_pending_drop_oldest(g))
            continue;
        g->paused_until_ns = lhi_now_ns() + accept_pause_ns;
        return NULL;
    }
    g->short_of_files = false;
    if (g->n == g->capacity)
        lhi_pending_drop_oldest(g);
    lhi_set_tcp_options(fd);
    lhi_pending_connection *new = &g->list[g->n++];
    *new = (lhi_pending_connection){
        .fd = fd, .until_ns = lhi_now_ns() + LHI_HANDSHAKE_TIMEOUT_NS};
    lhi_address_write((struct sockaddr *)&a, new->address);
    return new;
}
