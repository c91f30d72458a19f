/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks tell each other before they are connected, each as a card of
 * fixed size: docs/formats/wire.md. Coding and checking only; nothing here does
 * input or output. */
#ifndef LHI_CARDS_H
#define LHI_CARDS_H

#include <longhaul/status.h>

#include <stdbool.h>
#include <stdint.h>

enum {
    LHI_CARDS_VERSION = 2, /* of start and UCX cards */
    LHI_SHARE_BYTES = 64,
    LHI_COOKIE_BYTES = 32,
    LHI_START_CARD_BYTES = 408,
    LHI_UCX_CARD_BYTES = 4096,
    LHI_UCX_ADDRESS_BYTES = LHI_UCX_CARD_BYTES - 24
};

/* Where the table of emulated links lies that processes of one host share: an
 * open file of a process, and what that begins with (another host has other
 * processes). */
typedef struct lhi_link_share {
    uint32_t pid, fd, n_links;
    unsigned char cookie[LHI_COOKIE_BYTES];
} lhi_link_share;

/* Of a rank that MPI has started. Rank 0's is what counts of the secret and the
 * port. */
typedef struct lhi_start_card {
    uint32_t port;
    bool failed;                 /* this rank cannot start */
    char host[256], address[64]; /* NUL-terminated */
    unsigned char secret[32];
    unsigned char work[32]; /* digest of what it is to run */
} lhi_start_card;

/* Of a rank that has made a UCX worker; size 0: it could not. */
typedef struct lhi_ucx_card {
    uint64_t frame_tag, data_tag; /* random; rank 0's mark the job's messages */
    uint32_t size;                /* of the address */
    unsigned char address[LHI_UCX_ADDRESS_BYTES];
} lhi_ucx_card;

/* Reading fails with LH_EIO: no such card; `err` says why. */
void lhi_link_share_write(const lhi_link_share *card,
                          unsigned char out[LHI_SHARE_BYTES]);
lh_status lhi_link_share_read(const unsigned char in[LHI_SHARE_BYTES],
                              lhi_link_share *out, lh_error *err);
void lhi_start_card_write(const lhi_start_card *card,
                          unsigned char out[LHI_START_CARD_BYTES]);
lh_status lhi_start_card_read(const unsigned char in[LHI_START_CARD_BYTES],
                              lhi_start_card *out, lh_error *err);
void lhi_ucx_card_write(const lhi_ucx_card *card,
                        unsigned char out[LHI_UCX_CARD_BYTES]);
lh_status lhi_ucx_card_read(const unsigned char in[LHI_UCX_CARD_BYTES],
                            lhi_ucx_card *out, lh_error *err);

#endif
