/* SPDX-License-Identifier: Apache-2.0 */
/* TCP sockets and their addresses, as ranks that join use them. */
#ifndef LHI_SOCKETS_H
#define LHI_SOCKETS_H

#include "net/hello.h"

#include <sys/socket.h>

enum { LHI_ADDRESS_TEXT = 64 };

/* What every connection between ranks is set to. */
void lhi_set_tcp_options(int fd);

/* An address as ranks tell it each other, and back (its length). */
void lhi_address_write(const struct sockaddr *from,
                       unsigned char out[LHI_ADDRESS_BYTES]);
socklen_t lhi_address_read(const unsigned char in[LHI_ADDRESS_BYTES],
                           struct sockaddr_storage *out);
/* "127.0.0.1:4711" */
void lhi_address_name(const struct sockaddr_storage *address, socklen_t size,
                      char out[LHI_ADDRESS_TEXT]);

/* Where rank 0 is. LH_EIO: nowhere. */
lh_status lhi_address_find(const char *host, uint16_t port,
                           struct sockaddr_storage *out, socklen_t *size,
                           lh_error *err);

/* Listens there, for as many as the system lets wait; *port: where, for an
 * address with port 0. `rank` is for the error. */
lh_status lhi_listen_at(const struct sockaddr_storage *address, socklen_t size,
                        uint32_t rank, int *listener, uint32_t *port,
                        lh_error *err);

/* Writes all of it now, into a connection that has room; false: not all. */
bool lhi_send_now(int fd, const void *bytes, size_t size);

#endif
