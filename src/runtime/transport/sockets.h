/* SPDX-License-Identifier: Apache-2.0 */
/* TCP sockets and addresses for joining ranks. */
#ifndef LHI_RUNTIME_TRANSPORT_SOCKETS_H
#define LHI_RUNTIME_TRANSPORT_SOCKETS_H

#include "runtime/transport/handshake.h"

#include <sys/socket.h>

/* Capacity for an address as text, in bytes. */
enum { LHI_ADDRESS_TEXT = 64 };

/* Sets the socket options of a connection between ranks (no delay, keep-alive,
 * timeouts), so that a lost peer is detected in seconds. */
void lhi_set_tcp_options(int fd);

/* Encodes an IPv4 or IPv6 socket address in the wire format. */
void lhi_address_write(const struct sockaddr *from,
                       unsigned char out[LHI_ADDRESS_BYTES]);
/* Decodes a socket address from the wire format into *out; returns its length
 * in bytes. */
socklen_t lhi_address_read(const unsigned char in[LHI_ADDRESS_BYTES],
                           struct sockaddr_storage *out);
/* Formats a socket address and port, for example "127.0.0.1:4711", into `out`.
 * */
void lhi_address_format(const struct sockaddr_storage *address, socklen_t size,
                        char out[LHI_ADDRESS_TEXT]);

/* Resolves `host`, rank 0's host name or address, with port `port` to a socket
 * address in *out. LH_EIO: not found. */
lh_status lhi_address_resolve(const char *host, uint16_t port,
                              struct sockaddr_storage *out, socklen_t *size,
                              lh_error *err);

/* Listens on address `a` with the system's maximum backlog: *listener. *port
 * receives the port, also if the address has port 0. `rank` is for the error
 * text. */
lh_status lhi_listen_at(const struct sockaddr_storage *address, socklen_t size,
                        uint32_t rank, int *listener, uint32_t *port,
                        lh_error *err);

/* Sends all bytes over socket `fd` without blocking; false: not all fit into
 * the socket buffer. */
bool lhi_send_now(int fd, const void *bytes, size_t size);

#endif
