/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "net/guests.h"

#include "base/fail.h"
#include "base/realtime.h"
#include "net/sockets.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* Pause in accepting when no file descriptor is free; otherwise poll() would
 * report the listener continuously. */
static const int64_t deaf_ns = 50000000;

uint32_t lhi_free_files(uint32_t enough)
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

lh_status lhi_guests_init(lhi_guests *g, uint32_t most, lh_error *err)
{
    *g = (lhi_guests){.most = most ? most : 1};
    g->list = calloc(g->most, sizeof *g->list);
    return g->list ? LH_OK : lhi_fail_nomem(err);
}

void lhi_guests_close_all(lhi_guests *g)
{
    for (uint32_t i = 0; i < g->n; i++)
        if (g->list[i].fd >= 0)
            close(g->list[i].fd);
    g->n = 0;
}

void lhi_guests_fini(lhi_guests *g)
{
    lhi_guests_close_all(g);
    free(g->list);
    g->list = NULL;
}

void lhi_guests_forget(lhi_guests *g)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < g->n; i++)
        if (g->list[i].fd >= 0)
            g->list[kept++] = g->list[i];
    g->n = kept;
}

bool lhi_guests_drop_one(lhi_guests *g)
{
    uint32_t n_named = 0, oldest_named = UINT32_MAX, oldest = UINT32_MAX;
    for (uint32_t i = g->n; i-- > 0;) {
        if (g->list[i].fd < 0)
            continue;
        if (g->list[i].named) {
            n_named++;
            oldest_named = i;
        } else {
            oldest = i;
        }
    }
    uint32_t goes =
        oldest == UINT32_MAX || n_named > g->most / 2 ? oldest_named : oldest;
    if (goes == UINT32_MAX)
        return false;
    close(g->list[goes].fd);
    g->list[goes].fd = -1;
    g->n_dropped++;
    lhi_guests_forget(g);
    return true;
}

uint32_t lhi_guests_polls(const lhi_guests *g, int listener,
                          struct pollfd *polls)
{
    bool deaf = lhi_now_ns() < g->deaf_until_ns;
    polls[0] = (struct pollfd){.fd = deaf ? -1 : listener, .events = POLLIN};
    for (uint32_t i = 0; i < g->n; i++)
        polls[i + 1] = (struct pollfd){.fd = g->list[i].fd, .events = POLLIN};
    return g->n + 1;
}

lhi_guest *lhi_guests_accept(lhi_guests *g, int listener)
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
        if (lhi_guests_drop_one(g))
            continue;
        g->deaf_until_ns = lhi_now_ns() + deaf_ns;
        return NULL;
    }
    g->short_of_files = false;
    if (g->n == g->most)
        lhi_guests_drop_one(g);
    lhi_set_tcp_options(fd);
    lhi_guest *new = &g->list[g->n++];
    *new = (lhi_guest){.fd = fd, .until_ns = lhi_now_ns() + LHI_GREETING_NS};
    lhi_address_write((struct sockaddr *)&a, new->address);
    return new;
}
