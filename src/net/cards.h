/* SPDX-License-Identifier: Apache-2.0 */
/* Address exchange before ranks are connected, in records of fixed size:
 * docs/formats/wire.md. Encoding and checking only, no I/O. */
#ifndef LHI_CARDS_H
#define LHI_CARDS_H

#include <longhaul/status.h>

#include <stdbool.h>
#include <stdint.h>

enum {
    LHI_CARDS_VERSION = 2, /* version of start and UCX records */
    LHI_SHARE_BYTES = 64,
    LHI_COOKIE_BYTES = 32,
    LHI_START_CARD_BYTES = 408,
    LHI_UCX_CARD_BYTES = 4096,
    LHI_UCX_ADDRESS_BYTES = LHI_UCX_CARD_BYTES - 24
};

/* Location of the table of emulated links shared by the processes on one host:
 * an open file of one process, with a cookie at the file's start. The cookie
 * detects a process with the same id on another host. */
typedef struct lhi_link_share {
    uint32_t pid, fd, n_links;
    unsigned char cookie[LHI_COOKIE_BYTES];
} lhi_link_share;

/* Record of a rank started by MPI. For the secret and the port, rank 0's values
 * apply to all. */
typedef struct lhi_start_card {
    uint32_t port;
    bool failed;                 /* this rank cannot start */
    char host[256], address[64]; /* NUL-terminated */
    unsigned char secret[32];
    unsigned char work[32]; /* digest of the run's setup */
} lhi_start_card;

/* Record of a rank's UCX worker; size 0: the worker could not be created. */
typedef struct lhi_ucx_card {
    uint64_t frame_tag, data_tag; /* random; rank 0's tags identify the job's
                                   * messages */
    uint32_t size;                /* bytes of the address */
    unsigned char address[LHI_UCX_ADDRESS_BYTES];
} lhi_ucx_card;

/* Encodes the location of shared links. */
void lhi_link_share_write(const lhi_link_share *card,
                          unsigned char out[LHI_SHARE_BYTES]);
/* Decodes the location of shared links. LH_EIO: invalid record; `err` has the
 * cause. */
lh_status lhi_link_share_read(const unsigned char in[LHI_SHARE_BYTES],
                              lhi_link_share *out, lh_error *err);
/* Encodes a start record. */
void lhi_start_card_write(const lhi_start_card *card,
                          unsigned char out[LHI_START_CARD_BYTES]);
/* Decodes a start record; errors as above. */
lh_status lhi_start_card_read(const unsigned char in[LHI_START_CARD_BYTES],
                              lhi_start_card *out, lh_error *err);
/* Encodes a UCX record. */
void lhi_ucx_card_write(const lhi_ucx_card *card,
                        unsigned char out[LHI_UCX_CARD_BYTES]);
/* Decodes a UCX record; errors as above. */
lh_status lhi_ucx_card_read(const unsigned char in[LHI_UCX_CARD_BYTES],
                            lhi_ucx_card *out, lh_error *err);

#endif
