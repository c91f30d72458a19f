/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "runtime/transport/sockets.h"

#include "base/fail.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void lhi_set_tcp_options(int fd)
{
    /* Detects a lost peer in seconds, not in TCP's minutes. All options exist
     * on Linux; without one of them, the heartbeat still detects the loss. */
    int on = 1, idle_s = 1, every_s = 1, times = 3;
    unsigned int timeout_ms = 4000;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every_s, sizeof every_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof times);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms,
               sizeof timeout_ms);
}

void lhi_address_write(const struct sockaddr *from,
                       unsigned char out[LHI_ADDRESS_BYTES])
{
    memset(out, 0, LHI_ADDRESS_BYTES);
    if (from->sa_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, from, sizeof in);
        out[10] = out[11] = 0xff; /* ::ffff:a.b.c.d */
        memcpy(out + 12, &in.sin_addr, 4);
        memcpy(out + 16, &in.sin_port, 2);
    } else {
        struct sockaddr_in6 in6;
        memcpy(&in6, from, sizeof in6);
        memcpy(out, &in6.sin6_addr, 16);
        memcpy(out + 16, &in6.sin6_port, 2);
    }
}

socklen_t lhi_address_read(const unsigned char in[LHI_ADDRESS_BYTES],
                           struct sockaddr_storage *out)
{
    static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
    memset(out, 0, sizeof *out);
    if (memcmp(in, mapped, sizeof mapped) == 0) {
        struct sockaddr_in in4 = {.sin_family = AF_INET};
        memcpy(&in4.sin_addr, in + 12, 4);
        memcpy(&in4.sin_port, in + 16, 2);
        memcpy(out, &in4, sizeof in4);
        return sizeof in4;
    }
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};
    memcpy(&in6.sin6_addr, in, 16);
    memcpy(&in6.sin6_port, in + 16, 2);
    memcpy(out, &in6, sizeof in6);
    return sizeof in6;
}

void lhi_address_format(const struct sockaddr_storage *a, socklen_t size,
                        char out[LHI_ADDRESS_TEXT])
{
    char host[48] = "?", port[8] = "?";
    getnameinfo((const struct sockaddr *)a, size, host, sizeof host, port,
                sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
    snprintf(out, LHI_ADDRESS_TEXT, "%s:%s", host, port);
}

lh_status lhi_address_resolve(const char *host, uint16_t port,
                              struct sockaddr_storage *out, socklen_t *size,
                              lh_error *err)
{
    char service[8];
    snprintf(service, sizeof service, "%u", port);
    struct addrinfo want = {.ai_socktype = SOCK_STREAM,
                            .ai_flags = AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    int error = getaddrinfo(host, service, &want, &found);
    if (error)
        return lhi_fail(err, LH_EIO, "cannot resolve rank 0's host %s: %s",
                        host, gai_strerror(error));
    memcpy(out, found->ai_addr, found->ai_addrlen);
    *size = found->ai_addrlen;
    freeaddrinfo(found);
    return LH_OK;
}

lh_status lhi_listen_at(const struct sockaddr_storage *a, socklen_t size,
                        uint32_t rank, int *listener, uint32_t *port,
                        lh_error *err)
{
    char name[LHI_ADDRESS_TEXT];
    lhi_address_format(a, size, name);
    int on = 1;
    struct sockaddr_storage got;
    socklen_t got_size = sizeof got;
    int fd =
        socket(a->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (fd < 0 || bind(fd, (const struct sockaddr *)a, size) ||
        listen(fd, SOMAXCONN) ||
        getsockname(fd, (struct sockaddr *)&got, &got_size)) {
        int error = errno;
        if (fd >= 0)
            close(fd);
        if (error == EADDRINUSE)
            return lhi_fail(err, LH_EIO,
                            "rank %u cannot listen at %s: another program or "
                            "job uses the port; set LONGHAUL_PORT to another "
                            "port for all ranks",
                            rank, name);
        return lhi_fail(err, LH_EIO, "rank %u cannot listen at %s: %s", rank,
                        name, strerror(error));
    }
    unsigned char bytes[LHI_ADDRESS_BYTES];
    lhi_address_write((struct sockaddr *)&got, bytes);
    *port = (uint32_t)bytes[16] << 8 | bytes[17];
    *listener = fd;
    return LH_OK;
}

bool lhi_send_now(int fd, const void *bytes, size_t size)
{
    return send(fd, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)size;
}
