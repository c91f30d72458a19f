/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "runtime/transport/address_exchange.h"

#include "base/bytes.h"
#include "base/fail.h"

#include <string.h>

/* Checks whether all `n` bytes are 0. */
static bool is_zero(const unsigned char *bytes, size_t n)
{
    size_t i = 0;
    while (i < n && bytes[i] == 0)
        i++;
    return i == n;
}

/* Checks an address record's version; LH_EIO: another version. */
static lh_status check_version(uint64_t version, lh_error *err)
{
    if (version == LHI_RECORDS_VERSION)
        return LH_OK;
    return lhi_fail(err, LH_EIO, "its address record has version %u, not %d",
                    (unsigned)version, LHI_RECORDS_VERSION);
}

/* Encodes the location of the shared file of emulated links. The record has no
 * version, because the TABLE message that carries it has one. */
void lhi_shared_links_location_write(
    const lhi_shared_links_location *s,
    unsigned char out[LHI_SHARED_LINKS_LOCATION_BYTES])
{
    memset(out, 0, LHI_SHARED_LINKS_LOCATION_BYTES);
    lhi_store_little_endian(out, 4, s->pid);
    lhi_store_little_endian(out + 4, 4, s->fd);
    lhi_store_little_endian(out + 8, 4, s->n_links);
    memcpy(out + 16, s->cookie, sizeof s->cookie);
}

lh_status lhi_shared_links_location_read(
    const unsigned char in[LHI_SHARED_LINKS_LOCATION_BYTES],
    lhi_shared_links_location *out, lh_error *err)
{
    if (!is_zero(in + 12, 4) ||
        !is_zero(in + 48, LHI_SHARED_LINKS_LOCATION_BYTES - 48))
        return lhi_fail(err, LH_EIO,
                        "location of shared links: reserved bytes are not 0");
    *out = (lhi_shared_links_location){
        .pid = (uint32_t)lhi_load_little_endian(in, 4),
        .fd = (uint32_t)lhi_load_little_endian(in + 4, 4),
        .n_links = (uint32_t)lhi_load_little_endian(in + 8, 4)};
    memcpy(out->cookie, in + 16, sizeof out->cookie);
    return LH_OK;
}

static const unsigned char magic[8] = "longhaul";

void lhi_start_record_write(const lhi_start_record *c,
                            unsigned char out[LHI_START_RECORD_BYTES])
{
    memset(out, 0, LHI_START_RECORD_BYTES);
    memcpy(out, magic, sizeof magic);
    lhi_store_little_endian(out + 8, 4, LHI_RECORDS_VERSION);
    lhi_store_little_endian(out + 12, 4, c->port);
    lhi_store_little_endian(out + 16, 4, c->failed);
    memcpy(out + 24, c->host, strnlen(c->host, sizeof c->host - 1));
    memcpy(out + 280, c->address, strnlen(c->address, sizeof c->address - 1));
    memcpy(out + 344, c->secret, sizeof c->secret);
    memcpy(out + 376, c->setup_digest, sizeof c->setup_digest);
}

/* Checks for text of at most n - 1 bytes followed by zeros up to the end. */
static bool is_text(const unsigned char *bytes, size_t n)
{
    size_t len = strnlen((const char *)bytes, n);
    return len < n && is_zero(bytes + len, n - len);
}

lh_status lhi_start_record_read(const unsigned char in[LHI_START_RECORD_BYTES],
                                lhi_start_record *out, lh_error *err)
{
    lhi_start_record c = {.port = (uint32_t)lhi_load_little_endian(in + 12, 4)};
    uint64_t failed = lhi_load_little_endian(in + 16, 4);
    if (memcmp(in, magic, sizeof magic) != 0)
        return lhi_fail(err, LH_EIO, "it does not use longhaul's protocol");
    LHI_TRY(check_version(lhi_load_little_endian(in + 8, 4), err));
    if (failed > 1 || c.port > 65535 || !is_zero(in + 20, 4) ||
        !is_text(in + 24, sizeof c.host) ||
        !is_text(in + 280, sizeof c.address))
        return lhi_fail(
            err, LH_EIO,
            "an address record with an invalid port, host or address");
    c.failed = failed;
    memcpy(c.host, in + 24, sizeof c.host);
    memcpy(c.address, in + 280, sizeof c.address);
    memcpy(c.secret, in + 344, sizeof c.secret);
    memcpy(c.setup_digest, in + 376, sizeof c.setup_digest);
    *out = c;
    return LH_OK;
}

void lhi_ucx_record_write(const lhi_ucx_record *c,
                          unsigned char out[LHI_UCX_RECORD_BYTES])
{
    memset(out, 0, LHI_UCX_RECORD_BYTES);
    lhi_store_little_endian(out, 8, c->frame_tag);
    lhi_store_little_endian(out + 8, 4, c->size);
    lhi_store_little_endian(out + 12, 4, LHI_RECORDS_VERSION);
    lhi_store_little_endian(out + 16, 8, c->data_tag);
    memcpy(out + 24, c->address, c->size);
}

lh_status lhi_ucx_record_read(const unsigned char in[LHI_UCX_RECORD_BYTES],
                              lhi_ucx_record *out, lh_error *err)
{
    uint64_t size = lhi_load_little_endian(in + 8, 4);
    LHI_TRY(check_version(lhi_load_little_endian(in + 12, 4), err));
    if (size > LHI_UCX_ADDRESS_BYTES ||
        !is_zero(in + 24 + size, LHI_UCX_ADDRESS_BYTES - size))
        return lhi_fail(err, LH_EIO, "an invalid UCX address of %u bytes",
                        (unsigned)size);
    out->frame_tag = lhi_load_little_endian(in, 8);
    out->data_tag = lhi_load_little_endian(in + 16, 8);
    out->size = (uint32_t)size;
    memcpy(out->address, in + 24, sizeof out->address);
    return LH_OK;
}
