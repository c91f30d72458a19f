/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "runtime/transport/rail_setup.h"

#include "base/fail.h"
#include "base/realtime.h"
#include "runtime/transport/sockets.h"
#include "runtime/transport/wire_format.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Bytes of a rank's addresses in the address exchange. */
enum { CARD_BYTES = LHI_MAX_RAILS * LHI_ADDRESS_BYTES };

/* ---- address selection ---- */

/* Returns the size of an IPv4 or IPv6 socket address, bytes. */
static socklen_t get_address_size(const struct sockaddr *a)
{
    return a->sa_family == AF_INET ? sizeof(struct sockaddr_in)
                                   : sizeof(struct sockaddr_in6);
}

/* Returns the bytes of an IPv4 or IPv6 address, and its length in bits, *n. */
static const unsigned char *get_address_bits(const struct sockaddr_storage *a,
                                             unsigned *n)
{
    *n = a->ss_family == AF_INET ? 32 : 128;
    return a->ss_family == AF_INET
               ? (const unsigned char *)&(
                     (const struct sockaddr_in *)(const void *)a)
                     ->sin_addr
               : (const unsigned char *)&(
                     (const struct sockaddr_in6 *)(const void *)a)
                     ->sin6_addr;
}

/* Checks whether two addresses are of one family and share the first `bits`
 * bits. */
static bool have_common_prefix(const struct sockaddr_storage *a,
                               const struct sockaddr_storage *b, unsigned bits)
{
    unsigned n, m;
    const unsigned char *x = get_address_bits(a, &n),
                        *y = get_address_bits(b, &m);
    if (n != m || memcmp(x, y, bits / 8) != 0)
        return false;
    unsigned char mask = (unsigned char)(0xff00u >> bits % 8);
    return bits % 8 == 0 || ((x[bits / 8] ^ y[bits / 8]) & mask) == 0;
}

/* Parses a numeric IPv4 or IPv6 address; false: not an address. */
static bool parse_address(const char *text, struct sockaddr_storage *out)
{
    struct sockaddr_in in = {.sin_family = AF_INET};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};
    memset(out, 0, sizeof *out);
    if (inet_pton(AF_INET, text, &in.sin_addr) == 1)
        memcpy(out, &in, sizeof in);
    else if (inet_pton(AF_INET6, text, &in6.sin6_addr) == 1)
        memcpy(out, &in6, sizeof in6);
    else
        return false;
    return true;
}

/* Parses a network such as 10.1.0.0/24 into its address and prefix length;
 * false: not a network. */
static bool parse_network(const char *text, struct sockaddr_storage *out,
                          unsigned *bits)
{
    char address[LHI_ADDRESS_TEXT], *end;
    const char *slash = strchr(text, '/');
    unsigned most;
    if (!slash || (size_t)(slash - text) >= sizeof address)
        return false;
    snprintf(address, sizeof address, "%.*s", (int)(slash - text), text);
    unsigned long n = strtoul(slash + 1, &end, 10);
    if (!parse_address(address, out) || end == slash + 1 || *end)
        return false;
    get_address_bits(out, &most);
    *bits = (unsigned)n;
    return n <= most;
}

/* Finds this host's first address that lies in the network `net` with `bits`
 * prefix bits or, if `interface` is set, on that interface; false: none. */
static bool find_own(const char *interface, const struct sockaddr_storage *net,
                     unsigned bits, struct sockaddr_storage *out)
{
    struct ifaddrs *all = NULL;
    bool found = false;
    if (getifaddrs(&all))
        return false;
    for (const struct ifaddrs *i = all; i && !found; i = i->ifa_next) {
        struct sockaddr_storage a = {0};
        if (!i->ifa_addr || (i->ifa_addr->sa_family != AF_INET &&
                             i->ifa_addr->sa_family != AF_INET6))
            continue;
        memcpy(&a, i->ifa_addr, get_address_size(i->ifa_addr));
        const unsigned char *b = get_address_bits(&a, &(unsigned){0});
        /* Link-local addresses need a scope, which the wire format lacks. */
        if (a.ss_family == AF_INET6 && b[0] == 0xfe && (b[1] & 0xc0) == 0x80)
            continue;
        found = interface ? strcmp(i->ifa_name, interface) == 0
                          : have_common_prefix(&a, net, bits);
        if (found)
            *out = a;
    }
    freeifaddrs(all);
    return found;
}

/* Checks for addresses that identify no single host: 0.0.0.0, ::, multicast and
 * broadcast. */
static bool is_not_unicast(const struct sockaddr_storage *a)
{
    unsigned n;
    const unsigned char *bytes = get_address_bits(a, &n);
    bool any = true, is_v4 = a->ss_family == AF_INET;
    for (unsigned i = 0; i < n / 8; i++)
        any = any && bytes[i] == 0;
    return any || (is_v4 ? bytes[0] >= 224 : bytes[0] == 0xff);
}

/* Resolves the text that describes a rail (parallel connection) - an address,
 * network or interface - to an address of this host. */
static lh_status find_address(const char *text, struct sockaddr_storage *out,
                              lh_error *err)
{
    struct sockaddr_storage net;
    unsigned bits;
    if (parse_address(text, out) && is_not_unicast(out))
        return lhi_fail(err, LH_EINVAL,
                        "%s is not a unicast address; give an address under "
                        "which other ranks reach this host, or an interface",
                        text);
    if (parse_address(text, out))
        return LH_OK;
    if (parse_network(text, &net, &bits)) {
        if (find_own(NULL, &net, bits, out))
            return LH_OK;
        return lhi_fail(err, LH_EINVAL, "this host has no address in %s", text);
    }
    if (find_own(text, NULL, 0, out))
        return LH_OK;
    return lhi_fail(err, LH_EINVAL,
                    if_nametoindex(text)
                        ? "interface %s has no address"
                        : "'%s' is neither an interface of this host, nor an "
                          "address (10.1.0.2), nor a network (10.1.0.0/24)",
                    text);
}

/* ---- listening and address exchange ---- */

/* State of the setup. */
typedef struct rail_setup {
    const lhi_tcp_options *o;
    const unsigned char *keys;
    int *fds;
    unsigned char job[32];
    int listeners[LHI_MAX_RAILS];
    unsigned char *addresses;
} rail_setup;

/* Returns the wire-format address of a rank's rail (parallel connection) number
 * `k`. */
static unsigned char *get_address(const rail_setup *j, uint32_t rank,
                                  uint32_t k)
{
    return j->addresses +
           ((size_t)rank * j->o->n_rails + k) * LHI_ADDRESS_BYTES;
}

/* Listens on the address of each of this rank's rails (parallel
 * connections). */
static lh_status listen_on_rails(rail_setup *j, lh_error *err)
{
    for (uint32_t k = 0; k < j->o->n_rails; k++) {
        struct sockaddr_storage a;
        uint32_t port = 0;
        lh_error e = {0};
        lh_status status = find_address(j->o->rails[k], &a, &e);
        if (status == LH_OK)
            status = lhi_listen_at(&a, get_address_size((struct sockaddr *)&a),
                                   j->o->rank, &j->listeners[k], &port, &e);
        if (status != LH_OK)
            return lhi_fail(err, status, "rank %u, rail %u: %s", j->o->rank, k,
                            e.text);
        unsigned char *at = get_address(j, j->o->rank, k);
        lhi_address_write((struct sockaddr *)&a, at);
        at[16] = (unsigned char)(port >> 8);
        at[17] = (unsigned char)(port & 255);
        for (uint32_t i = 0; i < k; i++)
            if (memcmp(at, get_address(j, j->o->rank, i), 16) == 0)
                return lhi_fail(err, LH_EINVAL,
                                "rank %u: rails %u and %u have the same "
                                "address and would fail together",
                                j->o->rank, i, k);
    }
    return LH_OK;
}

/* Computes the proof (MAC) that the address record `card` comes from rank
 * `from` and is for rank `to`, with the key that both agreed on when they
 * joined. */
static void compute_proof(const rail_setup *j, uint32_t from, uint32_t to,
                          const unsigned char *card, size_t size,
                          unsigned char out[LHI_MAC_BYTES])
{
    uint32_t peer = from == j->o->rank ? to : from;
    lhi_handshake shake = {
        .client = from, .server = to, .n_ranks = j->o->n_ranks};
    memcpy(shake.job, j->job, sizeof shake.job);
    lhi_handshake_compute_mac(j->keys + (size_t)peer * LHI_MAC_BYTES,
                              LHI_MAC_BYTES, "rails", &shake, card, size, out);
}

/* Sends the addresses of this rank's rails (parallel connections) to a peer,
 * with a proof of their origin. */
static lh_status send_addresses(const rail_setup *j, uint32_t peer,
                                lh_error *err)
{
    unsigned char bytes[LHI_HANDSHAKE_BYTES + CARD_BYTES];
    const unsigned char *card = get_address(j, j->o->rank, 0);
    size_t size = (size_t)j->o->n_rails * LHI_ADDRESS_BYTES;
    lhi_handshake_message h = {.kind = LHI_HANDSHAKE_RAILS,
                               .rank = j->o->rank,
                               .n_ranks = j->o->n_ranks,
                               .more = (uint32_t)size};
    memcpy(h.job, j->job, sizeof h.job);
    compute_proof(j, j->o->rank, peer, card, size, h.mac);
    lhi_handshake_write(&h, bytes);
    memcpy(bytes + LHI_HANDSHAKE_BYTES, card, size);
    if (lhi_send_now(j->fds[peer], bytes, LHI_HANDSHAKE_BYTES + size))
        return LH_OK;
    return lhi_fail(err, LH_EIO, "rank %u: connection lost: %s", peer,
                    strerror(errno));
}

/* Sends all peers the reason `why` for which this rank cannot set up its
 * rails. */
static void refuse_all(const rail_setup *j, const char *why)
{
    unsigned char bytes[LHI_HANDSHAKE_BYTES + LHI_REFUSAL_BYTES];
    lhi_handshake_message h = {.rank = j->o->rank, .n_ranks = j->o->n_ranks};
    memcpy(h.job, j->job, sizeof h.job);
    const size_t size = lhi_handshake_write_refusal(h, why, bytes);
    for (uint32_t i = 0; i < j->o->n_ranks; i++)
        if (i != j->o->rank)
            lhi_send_now(j->fds[i], bytes, size);
}

/* Reads exactly `size` bytes from socket `fd` until until_ns; false: timeout,
 * error or end of stream. */
static bool read_until(int fd, unsigned char *bytes, size_t size,
                       int64_t until_ns)
{
    while (size > 0) {
        struct pollfd f = {.fd = fd, .events = POLLIN};
        int64_t left_ns = until_ns - lhi_now_ns();
        struct timespec left = lhi_timespec(left_ns > 0 ? left_ns : 0);
        ssize_t n = recv(fd, bytes, size, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR) ||
            (n < 0 && left_ns <= 0))
            return false;
        if (n < 0)
            ppoll(&f, 1, &left, NULL);
        else {
            bytes += n;
            size -= (size_t)n;
        }
    }
    return true;
}

/* Receives the addresses of a peer's rails (parallel connections) until
 * `until_ns` and checks their proof. */
static lh_status receive_addresses(const rail_setup *j, uint32_t peer,
                                   int64_t until_ns, lh_error *err)
{
    unsigned char bytes[LHI_HANDSHAKE_BYTES], mac[LHI_MAC_BYTES];
    unsigned char *card = get_address(j, peer, 0);
    size_t size = (size_t)j->o->n_rails * LHI_ADDRESS_BYTES;
    lhi_handshake_message h;
    lh_error e = {0};
    if (!read_until(j->fds[peer], bytes, sizeof bytes, until_ns))
        return lhi_fail(err, LH_EIO, "rank %u did not send its rail addresses",
                        peer);
    if (lhi_handshake_read(bytes, &h, &e) != LH_OK)
        return lhi_fail(err, LH_EIO, "rank %u: %s", peer, e.text);
    if (h.kind == LHI_HANDSHAKE_REFUSE) {
        unsigned char more[LHI_REFUSAL_BYTES];
        char text[LHI_REFUSAL_BYTES + 1];
        if (!read_until(j->fds[peer], more, h.more, until_ns))
            return lhi_fail(err, LH_EIO, "rank %u closed the connection", peer);
        lhi_wire_sanitise_text(more, h.more, text, sizeof text);
        return lhi_fail(err, LH_EIO, "%s", text);
    }
    if (h.kind != LHI_HANDSHAKE_RAILS || h.rank != peer || h.more != size)
        return lhi_fail(err, LH_EIO,
                        "the rails of rank %u do not match the %u rails of "
                        "rank %u",
                        peer, j->o->n_rails, j->o->rank);
    if (!read_until(j->fds[peer], card, size, until_ns))
        return lhi_fail(err, LH_EIO, "rank %u did not send its rail addresses",
                        peer);
    compute_proof(j, peer, j->o->rank, card, size, mac);
    return lhi_mac_equals(mac, h.mac)
               ? LH_OK
               : lhi_fail(err, LH_EIO,
                          "rank %u: its rail addresses failed authentication",
                          peer);
}

/* Sends the addresses of this rank's rails (parallel connections) to all peers,
 * and receives theirs. */
static lh_status exchange(const rail_setup *j, lh_error *err)
{
    int64_t until_ns = lhi_now_ns() + LHI_RAILS_CONNECT_TIMEOUT_NS;
    for (uint32_t i = 0; i < j->o->n_ranks; i++)
        if (i != j->o->rank)
            LHI_TRY(send_addresses(j, i, err));
    for (uint32_t i = 0; i < j->o->n_ranks; i++)
        if (i != j->o->rank)
            LHI_TRY(receive_addresses(j, i, until_ns, err));
    return LH_OK;
}

/* Listens on the addresses of this rank's rails (parallel connections),
 * exchanges addresses with all peers, and opens all rails. streams[i] receives
 * the stream's descriptor to rank i. */
static lh_status open_rails(rail_setup *j, lhi_failure *failure, int *streams,
                            lhi_rails **out, lh_error *err)
{
    lh_error why = {0};
    const lh_status status = listen_on_rails(j, &why);
    if (status != LH_OK) {
        refuse_all(j, why.text);
        return lhi_fail(err, status, "%s", why.text);
    }
    LHI_TRY(exchange(j, err));
    lhi_rails_options o = {.rank = j->o->rank,
                           .n_ranks = j->o->n_ranks,
                           .n_rails = j->o->n_rails,
                           .listeners = j->listeners,
                           .addresses = j->addresses,
                           .keys = j->keys,
                           .timeout_ns = j->o->silence_ns,
                           .failure = failure};
    memcpy(o.job, j->job, sizeof o.job);
    return lhi_rails_open(&o, out, streams, err);
}

lh_status lhi_rails_setup(const lhi_tcp_options *o, const unsigned char *keys,
                          lhi_failure *failure, int *fds, lhi_rails **out,
                          lh_error *err)
{
    rail_setup j = {.o = o, .keys = keys, .fds = fds};
    for (uint32_t k = 0; k < LHI_MAX_RAILS; k++)
        j.listeners[k] = -1;
    lhi_compute_job_digest(o->job ? o->job : "", j.job);
    j.addresses = calloc((size_t)o->n_ranks * o->n_rails, LHI_ADDRESS_BYTES);
    int *streams = malloc(o->n_ranks * sizeof *streams);
    lh_status status = j.addresses && streams
                           ? open_rails(&j, failure, streams, out, err)
                           : lhi_fail_nomem(err);
    for (uint32_t i = 0; i < o->n_ranks && status == LH_OK; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
        fds[i] = streams[i];
    }
    for (uint32_t k = 0; k < LHI_MAX_RAILS && status != LH_OK; k++)
        if (j.listeners[k] >= 0)
            close(j.listeners[k]);
    free(j.addresses);
    free(streams);
    return status;
}
