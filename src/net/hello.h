/* SPDX-License-Identifier: Apache-2.0 */
/* How ranks that were not forked together get to know each other: the messages
 * before the first frame (docs/formats/wire.md), and what they prove. Coding
 * and checking only; nothing here does input or output. */
#ifndef LHI_HELLO_H
#define LHI_HELLO_H

#include <longhaul/status.h>

#include <stdbool.h>
#include <stdint.h>

typedef enum lhi_hello_kind {
    LHI_HELLO_HELLO = 1, /* who I am */
    LHI_HELLO_CHALLENGE, /* prove it */
    LHI_HELLO_PROOF,     /* here it is */
    LHI_HELLO_WELCOME,   /* and so do I */
    LHI_HELLO_REFUSE,    /* no: text follows */
    LHI_HELLO_TABLE,     /* where everyone listens: addresses follow */
    LHI_HELLO_READY,     /* connected to all */
    LHI_HELLO_GO,        /* all are */
    LHI_HELLO_RAILS,     /* where my rails are: addresses follow */
    LHI_HELLO_RAIL       /* as HELLO: this connection is a rail */
} lhi_hello_kind;

enum {
    LHI_MOST_RAILS = 8,
    LHI_HELLO_BYTES = 128,
    LHI_NONCE_BYTES = 32,
    LHI_MAC_BYTES = 32,
    LHI_REFUSAL_BYTES = 400,
    LHI_ADDRESS_BYTES = 18 /* IPv6 or mapped IPv4, port (big-endian) */
};

typedef struct lhi_hello {
    lhi_hello_kind kind;
    uint32_t rank, n_ranks; /* the sender's */
    uint32_t port;          /* HELLO: where the sender listens; RAIL: which */
    uint32_t more;          /* bytes that follow */
    uint32_t n_rails;       /* HELLO: the sender's; 0: it has none */
    unsigned char nonce[LHI_NONCE_BYTES];
    unsigned char mac[LHI_MAC_BYTES];
    unsigned char job[32]; /* digest of the job's name */
} lhi_hello;

void lhi_hello_write(const lhi_hello *hello,
                     unsigned char out[LHI_HELLO_BYTES]);
/* LH_EIO: no such message; `err` says which field is wrong. */
lh_status lhi_hello_read(const unsigned char in[LHI_HELLO_BYTES],
                         lhi_hello *out, lh_error *err);

/* Both sides of a handshake, as far as they are known. */
typedef struct lhi_handshake {
    uint32_t client, server, n_ranks, port;
    unsigned char client_nonce[LHI_NONCE_BYTES];
    unsigned char server_nonce[LHI_NONCE_BYTES];
    unsigned char job[32];
} lhi_handshake;

/* Whether this build can prove anything (it has OpenSSL). */
bool lhi_hello_can_prove(void);
/* SHA-256; zeros in a build that can prove nothing. */
void lhi_digest(const void *bytes, size_t n, unsigned char out[32]);
void lhi_job_digest(const char *job, unsigned char out[32]);
bool lhi_random_bytes(void *out, size_t size);
/* HMAC-SHA-256 of the label, the handshake and `n` more bytes. */
void lhi_prove(const void *secret, size_t secret_size, const char *label,
               const lhi_handshake *handshake, const void *more, size_t n,
               unsigned char out[LHI_MAC_BYTES]);
bool lhi_mac_is(const unsigned char a[LHI_MAC_BYTES],
                const unsigned char b[LHI_MAC_BYTES]);

/* Length of the longest label. */
enum { LHI_LABEL_BYTES = 16 };

#endif
