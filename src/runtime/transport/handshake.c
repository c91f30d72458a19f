/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "runtime/transport/handshake.h"

#include "base/bytes.h"
#include "base/fail.h"
#include "runtime/transport/transport.h"
#include "runtime/transport/wire_format.h"

#include <string.h>
#include <sys/random.h>

#ifdef LHI_HAVE_OPENSSL
#include <openssl/evp.h>
#include <openssl/hmac.h>
#endif

static const unsigned char magic[8] = "longhaul";

void lhi_handshake_write(const lhi_handshake_message *h,
                         unsigned char out[LHI_HANDSHAKE_BYTES])
{
    memset(out, 0, LHI_HANDSHAKE_BYTES);
    memcpy(out, magic, sizeof magic);
    out[8] = LHI_WIRE_VERSION;
    out[9] = (unsigned char)h->kind;
    lhi_store_little_endian(out + 12, 4, h->rank);
    lhi_store_little_endian(out + 16, 4, h->n_ranks);
    lhi_store_little_endian(out + 20, 4, h->port);
    lhi_store_little_endian(out + 24, 4, h->more);
    lhi_store_little_endian(out + 28, 4, h->n_rails);
    memcpy(out + 32, h->nonce, sizeof h->nonce);
    memcpy(out + 64, h->mac, sizeof h->mac);
    memcpy(out + 96, h->job, sizeof h->job);
    memcpy(out + 128, h->setup, sizeof h->setup);
}

size_t lhi_handshake_write_refusal(
    lhi_handshake_message h, const char *why,
    unsigned char out[LHI_HANDSHAKE_BYTES + LHI_REFUSAL_BYTES])
{
    h.kind = LHI_HANDSHAKE_REFUSE;
    h.more = (uint32_t)strnlen(why, LHI_REFUSAL_BYTES);
    lhi_handshake_write(&h, out);
    memcpy(out + LHI_HANDSHAKE_BYTES, why, h.more);
    return LHI_HANDSHAKE_BYTES + h.more;
}

lh_status lhi_handshake_read(const unsigned char in[LHI_HANDSHAKE_BYTES],
                             lhi_handshake_message *out, lh_error *err)
{
    if (memcmp(in, magic, sizeof magic) != 0)
        return lhi_fail(err, LH_EIO, "it does not use longhaul's protocol");
    if (in[8] != LHI_WIRE_VERSION)
        return lhi_fail(err, LH_EIO,
                        "it uses version %d of the wire format, not %d", in[8],
                        LHI_WIRE_VERSION);
    lhi_handshake_message h = {
        .kind = (lhi_handshake_kind)in[9],
        .rank = (uint32_t)lhi_load_little_endian(in + 12, 4),
        .n_ranks = (uint32_t)lhi_load_little_endian(in + 16, 4),
        .port = (uint32_t)lhi_load_little_endian(in + 20, 4),
        .more = (uint32_t)lhi_load_little_endian(in + 24, 4),
        .n_rails = (uint32_t)lhi_load_little_endian(in + 28, 4)};
    if (in[9] < LHI_HANDSHAKE_HELLO || in[9] > LHI_HANDSHAKE_RAIL || in[10] ||
        in[11] ||
        h.n_rails > (h.kind == LHI_HANDSHAKE_HELLO ? LHI_MAX_RAILS : 0))
        return lhi_fail(err, LH_EIO,
                        "it sent a handshake message of an unknown kind");
    if (h.n_ranks == 0 || h.n_ranks > LHI_NET_MAX_RANKS ||
        h.rank >= h.n_ranks || h.port > UINT16_MAX)
        return lhi_fail(err, LH_EIO,
                        "its handshake has an invalid rank %u of %u or port %u",
                        h.rank, h.n_ranks, h.port);
    uint32_t most =
        h.kind == LHI_HANDSHAKE_REFUSE  ? LHI_REFUSAL_BYTES
        : h.kind == LHI_HANDSHAKE_TABLE ? h.n_ranks * LHI_ADDRESS_BYTES + 64
        : h.kind == LHI_HANDSHAKE_RAILS ? LHI_MAX_RAILS * LHI_ADDRESS_BYTES
                                        : 0;
    if (h.more > most)
        return lhi_fail(err, LH_EIO,
                        "it sent a handshake message with %u additional bytes",
                        h.more);
    memcpy(h.nonce, in + 32, sizeof h.nonce);
    memcpy(h.mac, in + 64, sizeof h.mac);
    memcpy(h.job, in + 96, sizeof h.job);
    memcpy(h.setup, in + 128, sizeof h.setup);
    *out = h;
    return LH_OK;
}

bool lhi_random_bytes(void *out, size_t size)
{
    return getrandom(out, size, 0) == (ssize_t)size;
}

bool lhi_mac_equals(const unsigned char a[LHI_MAC_BYTES],
                    const unsigned char b[LHI_MAC_BYTES])
{
    /* Compares in constant time. */
    unsigned char differs = 0;
    for (size_t i = 0; i < LHI_MAC_BYTES; i++)
        differs |= a[i] ^ b[i];
    return differs == 0;
}

const char *lhi_setup_find_difference(const unsigned char a[LHI_SETUP_BYTES],
                                      const unsigned char b[LHI_SETUP_BYTES])
{
    /* The plan first, because options have defaults that depend on it. */
    static const struct {
        size_t at, size;
        const char *name;
    } parts[] = {{LHI_SETUP_NAMED_AT + LHI_SETUP_DEVICE, 1, "another --device"},
                 {0, LHI_SETUP_PART_BYTES, "another plan"},
#define PART(id, name)                                                         \
    {LHI_SETUP_NAMED_AT + LHI_SETUP_##id, 1, "another " name},
                 LHI_SETUP_OPTION_LIST(PART)
#undef PART
                     {LHI_SETUP_SCHEDULE_AT, LHI_SETUP_PART_BYTES,
                      "another schedule or other times (--schedule, --speed, "
                      "--inject, or the plan)"},
                 {LHI_SETUP_OPTIONS_AT, LHI_SETUP_PART_BYTES, "other options"},
                 {LHI_SETUP_DATA_AT, LHI_SETUP_PART_BYTES, "other data"}};
    static const unsigned char unknown[LHI_SETUP_HOSTS_BYTES];
    const unsigned char *const hosts = a + LHI_SETUP_HOSTS_AT;
    const unsigned char *const other_hosts = b + LHI_SETUP_HOSTS_AT;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (memcmp(a + parts[i].at, b + parts[i].at, parts[i].size) != 0)
            return parts[i].name;
    if (memcmp(hosts, other_hosts, sizeof unknown) != 0 &&
        memcmp(hosts, unknown, sizeof unknown) != 0 &&
        memcmp(other_hosts, unknown, sizeof unknown) != 0)
        return "another --hosts";
    return NULL;
}

void lhi_compute_job_digest(const char *job, unsigned char out[32])
{
    lhi_compute_sha256(job, strlen(job), out);
}

#ifdef LHI_HAVE_OPENSSL

bool lhi_handshake_can_authenticate(void)
{
    return true;
}

void lhi_compute_sha256(const void *bytes, size_t n, unsigned char out[32])
{
    if (!EVP_Digest(bytes, n, out, NULL, EVP_sha256(), NULL))
        memset(out, 0, 32);
}

/* Writes `label` and the handshake values that both sides know (ranks, nonces,
 * job) into `out`, as input of a MAC; returns the size. The label comes first,
 * so that a proof cannot be reused for another purpose. */
static size_t write_handshake(const char *label, const lhi_handshake *h,
                              unsigned char *out)
{
    memset(out, 0, LHI_LABEL_BYTES);
    memcpy(out, label, strnlen(label, LHI_LABEL_BYTES));
    lhi_store_little_endian(out + 16, 4, h->client);
    lhi_store_little_endian(out + 20, 4, h->server);
    lhi_store_little_endian(out + 24, 4, h->n_ranks);
    lhi_store_little_endian(out + 28, 4, h->port);
    memcpy(out + 32, h->client_nonce, 32);
    memcpy(out + 64, h->server_nonce, 32);
    memcpy(out + 96, h->job, 32);
    return 128;
}

void lhi_handshake_compute_mac(const void *secret, size_t secret_size,
                               const char *label, const lhi_handshake *h,
                               const void *more, size_t n,
                               unsigned char out[LHI_MAC_BYTES])
{
    unsigned char bytes[160];
    size_t size = write_handshake(label, h, bytes);
    bool ok = true;
    if (n) { /* further bytes enter by their digest: one call, no copy */
        ok = EVP_Digest(more, n, bytes + size, NULL, EVP_sha256(), NULL);
        size += 32;
    }
    ok = ok &&
         HMAC(EVP_sha256(), secret, (int)secret_size, bytes, size, out, NULL);
    if (!ok && !lhi_random_bytes(out, LHI_MAC_BYTES)) /* thus invalid */
        memset(out, 0, LHI_MAC_BYTES);
}

#else

bool lhi_handshake_can_authenticate(void)
{
    return false;
}

void lhi_compute_sha256(const void *bytes, size_t n, unsigned char out[32])
{
    (void)bytes, (void)n;
    memset(out, 0, 32);
}

void lhi_handshake_compute_mac(const void *secret, size_t secret_size,
                               const char *label,
                               const lhi_handshake *handshake, const void *more,
                               size_t n, unsigned char out[LHI_MAC_BYTES])
{
    (void)secret, (void)secret_size, (void)label, (void)handshake;
    (void)more, (void)n;
    memset(out, 0, LHI_MAC_BYTES);
}

#endif
