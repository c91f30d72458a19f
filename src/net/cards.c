/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "net/cards.h"

#include "base/bytes.h"
#include "base/fail.h"

#include <string.h>

static bool is_zero(const unsigned char *bytes, size_t n)
{
    size_t i = 0;
    while (i < n && bytes[i] == 0)
        i++;
    return i == n;
}

static lh_status check_version(uint64_t version, lh_error *err)
{
    if (version == LHI_CARDS_VERSION)
        return LH_OK;
    return lhi_fail(err, LH_EIO, "it gives cards of version %u, not %d",
                    (unsigned)version, LHI_CARDS_VERSION);
}

/* Encodes the record. It has no version, because the TABLE message that carries
 * it has one. */
void lhi_link_share_write(const lhi_link_share *s,
                          unsigned char out[LHI_SHARE_BYTES])
{
    memset(out, 0, LHI_SHARE_BYTES);
    lhi_put_bytes(out, 4, s->pid);
    lhi_put_bytes(out + 4, 4, s->fd);
    lhi_put_bytes(out + 8, 4, s->n_links);
    memcpy(out + 16, s->cookie, sizeof s->cookie);
}

lh_status lhi_link_share_read(const unsigned char in[LHI_SHARE_BYTES],
                              lhi_link_share *out, lh_error *err)
{
    if (!is_zero(in + 12, 4) || !is_zero(in + 48, LHI_SHARE_BYTES - 48))
        return lhi_fail(err, LH_EIO,
                        "where links are shared: bytes that are not 0");
    *out = (lhi_link_share){.pid = (uint32_t)lhi_get_bytes(in, 4),
                            .fd = (uint32_t)lhi_get_bytes(in + 4, 4),
                            .n_links = (uint32_t)lhi_get_bytes(in + 8, 4)};
    memcpy(out->cookie, in + 16, sizeof out->cookie);
    return LH_OK;
}

static const unsigned char magic[8] = "longhaul";

void lhi_start_card_write(const lhi_start_card *c,
                          unsigned char out[LHI_START_CARD_BYTES])
{
    memset(out, 0, LHI_START_CARD_BYTES);
    memcpy(out, magic, sizeof magic);
    lhi_put_bytes(out + 8, 4, LHI_CARDS_VERSION);
    lhi_put_bytes(out + 12, 4, c->port);
    lhi_put_bytes(out + 16, 4, c->failed);
    memcpy(out + 24, c->host, strnlen(c->host, sizeof c->host - 1));
    memcpy(out + 280, c->address, strnlen(c->address, sizeof c->address - 1));
    memcpy(out + 344, c->secret, sizeof c->secret);
    memcpy(out + 376, c->work, sizeof c->work);
}

/* Checks for text of at most n - 1 bytes followed by zeros up to the end. */
static bool is_text(const unsigned char *bytes, size_t n)
{
    size_t len = strnlen((const char *)bytes, n);
    return len < n && is_zero(bytes + len, n - len);
}

lh_status lhi_start_card_read(const unsigned char in[LHI_START_CARD_BYTES],
                              lhi_start_card *out, lh_error *err)
{
    lhi_start_card c = {.port = (uint32_t)lhi_get_bytes(in + 12, 4)};
    uint64_t failed = lhi_get_bytes(in + 16, 4);
    if (memcmp(in, magic, sizeof magic) != 0)
        return lhi_fail(err, LH_EIO, "it does not speak longhaul");
    LHI_TRY(check_version(lhi_get_bytes(in + 8, 4), err));
    if (failed > 1 || c.port > 65535 || !is_zero(in + 20, 4) ||
        !is_text(in + 24, sizeof c.host) ||
        !is_text(in + 280, sizeof c.address))
        return lhi_fail(err, LH_EIO,
                        "a card with a port, host or address that there "
                        "cannot be");
    c.failed = failed;
    memcpy(c.host, in + 24, sizeof c.host);
    memcpy(c.address, in + 280, sizeof c.address);
    memcpy(c.secret, in + 344, sizeof c.secret);
    memcpy(c.work, in + 376, sizeof c.work);
    *out = c;
    return LH_OK;
}

void lhi_ucx_card_write(const lhi_ucx_card *c,
                        unsigned char out[LHI_UCX_CARD_BYTES])
{
    memset(out, 0, LHI_UCX_CARD_BYTES);
    lhi_put_bytes(out, 8, c->frame_tag);
    lhi_put_bytes(out + 8, 4, c->size);
    lhi_put_bytes(out + 12, 4, LHI_CARDS_VERSION);
    lhi_put_bytes(out + 16, 8, c->data_tag);
    memcpy(out + 24, c->address, c->size);
}

lh_status lhi_ucx_card_read(const unsigned char in[LHI_UCX_CARD_BYTES],
                            lhi_ucx_card *out, lh_error *err)
{
    uint64_t size = lhi_get_bytes(in + 8, 4);
    LHI_TRY(check_version(lhi_get_bytes(in + 12, 4), err));
    if (size > LHI_UCX_ADDRESS_BYTES ||
        !is_zero(in + 24 + size, LHI_UCX_ADDRESS_BYTES - size))
        return lhi_fail(err, LH_EIO, "an address of %u bytes", (unsigned)size);
    out->frame_tag = lhi_get_bytes(in, 8);
    out->data_tag = lhi_get_bytes(in + 16, 8);
    out->size = (uint32_t)size;
    memcpy(out->address, in + 24, sizeof out->address);
    return LH_OK;
}
