/* SPDX-License-Identifier: Apache-2.0 */
/* Address exchange before ranks are connected, in records of fixed size:
 * docs/formats/wire.md. Encoding and checking only, no I/O. */
#ifndef LHI_RUNTIME_TRANSPORT_ADDRESS_EXCHANGE_H
#define LHI_RUNTIME_TRANSPORT_ADDRESS_EXCHANGE_H

#include <longhaul/status.h>

#include <stdbool.h>
#include <stdint.h>

enum {
    LHI_RECORDS_VERSION = 4, /* version of start and UCX records */
    LHI_SHARED_LINKS_LOCATION_BYTES = 64,
    LHI_COOKIE_BYTES = 32,
    LHI_START_RECORD_BYTES = 440,
    LHI_UCX_RECORD_BYTES = 4096,
    LHI_UCX_ADDRESS_BYTES = LHI_UCX_RECORD_BYTES - 24
};

/* Location of the emulated link table shared by the processes on one host: an
 * open file of one process, with a cookie at the file's start. The cookie
 * detects a process with the same id on another host. */
typedef struct lhi_shared_links_location {
    uint32_t pid, fd, n_links;
    unsigned char cookie[LHI_COOKIE_BYTES];
} lhi_shared_links_location;

/* Record of a rank started by MPI. For the secret and the port, rank 0's values
 * apply to all. */
typedef struct lhi_start_record {
    uint32_t port;
    bool failed;                 /* this rank cannot start */
    char host[256], address[64]; /* NUL-terminated */
    unsigned char secret[32];
    unsigned char setup_digest[64]; /* digest of the run's setup */
} lhi_start_record;

/* Record of a rank's UCX worker; size 0: the worker could not be created. */
typedef struct lhi_ucx_record {
    uint64_t frame_tag, data_tag; /* random; rank 0's tags identify the job's
                                   * messages */
    uint32_t size;                /* bytes of the address */
    unsigned char address[LHI_UCX_ADDRESS_BYTES];
} lhi_ucx_record;

/* Encodes the location of shared links. */
void lhi_shared_links_location_write(
    const lhi_shared_links_location *card,
    unsigned char out[LHI_SHARED_LINKS_LOCATION_BYTES]);
/* Decodes the location of the shared file of emulated links. LH_EIO: invalid
 * record; `err` has the cause. */
lh_status lhi_shared_links_location_read(
    const unsigned char in[LHI_SHARED_LINKS_LOCATION_BYTES],
    lhi_shared_links_location *out, lh_error *err);
/* Encodes a start record, with which a rank introduces itself: port, host,
 * address, random secret and setup digest. */
void lhi_start_record_write(const lhi_start_record *card,
                            unsigned char out[LHI_START_RECORD_BYTES]);
/* Decodes a start record, with which a rank introduces itself. LH_EIO: invalid;
 * `err` has the cause. */
lh_status lhi_start_record_read(const unsigned char in[LHI_START_RECORD_BYTES],
                                lhi_start_record *out, lh_error *err);
/* Encodes a UCX record, with which ranks exchange their UCX address and random
 * tags. */
void lhi_ucx_record_write(const lhi_ucx_record *card,
                          unsigned char out[LHI_UCX_RECORD_BYTES]);
/* Decodes a UCX record (a rank's UCX address and random tags). LH_EIO: invalid;
 * `err` has the cause. */
lh_status lhi_ucx_record_read(const unsigned char in[LHI_UCX_RECORD_BYTES],
                              lhi_ucx_record *out, lh_error *err);

#endif
