/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/transport/frame_mac.h"

#include "base/bytes.h"
#include "base/fail.h"

#include <stdlib.h>
#include <string.h>

#ifdef LHI_HAVE_OPENSSL
#include <openssl/crypto.h>
#include <openssl/evp.h>

/* MAC state for one direction. */
struct lhi_frame_mac {
    EVP_CIPHER_CTX *cipher;
    uint64_t n_frames;    /* frames begun */
    bool upwards, broken; /* broken: a call failed, all MACs are invalid */
};

lh_status lhi_frame_mac_make(const unsigned char key[LHI_FRAME_MAC_KEY_BYTES],
                             bool upwards, lhi_frame_mac **out, lh_error *err)
{
    lhi_frame_mac *s = calloc(1, sizeof *s);
    if (!s)
        return lhi_fail_nomem(err);
    s->upwards = upwards;
    s->cipher = EVP_CIPHER_CTX_new();
    if (!s->cipher ||
        !EVP_EncryptInit_ex(s->cipher, EVP_aes_256_gcm(), NULL, key, NULL)) {
        lhi_frame_mac_free(s);
        return lhi_fail_nomem(err);
    }
    *out = s;
    return LH_OK;
}

void lhi_frame_mac_free(lhi_frame_mac *s)
{
    if (!s)
        return;
    EVP_CIPHER_CTX_free(s->cipher);
    free(s);
}

void lhi_frame_mac_begin(lhi_frame_mac *s, lhi_frame_mac_part part)
{
    unsigned char nonce[12] = {0};
    s->n_frames += part == LHI_FRAME_MAC_HEADER;
    lhi_store_little_endian(nonce, 8, s->n_frames);
    nonce[8] = (unsigned char)part;
    nonce[9] = s->upwards;
    if (!EVP_EncryptInit_ex(s->cipher, NULL, NULL, NULL, nonce))
        s->broken = true;
}

void lhi_frame_mac_add(lhi_frame_mac *s, const void *bytes, size_t n)
{
    const unsigned char *at = bytes;
    for (size_t done = 0; done < n;) {
        enum { MOST = 1 << 20 };
        int some = n - done < MOST ? (int)(n - done) : MOST, out = 0;
        if (!EVP_EncryptUpdate(s->cipher, NULL, &out, at + done, some))
            s->broken = true;
        done += (size_t)some;
    }
}

void lhi_frame_mac_end(lhi_frame_mac *s, unsigned char out[LHI_FRAME_MAC_BYTES])
{
    unsigned char none[16];
    int n = 0;
    memset(out, 0, LHI_FRAME_MAC_BYTES);
    if (!EVP_EncryptFinal_ex(s->cipher, none, &n) ||
        !EVP_CIPHER_CTX_ctrl(s->cipher, EVP_CTRL_AEAD_GET_TAG,
                             LHI_FRAME_MAC_BYTES, out))
        s->broken = true;
}

bool lhi_frame_mac_verify(lhi_frame_mac *s,
                          const unsigned char is[LHI_FRAME_MAC_BYTES])
{
    unsigned char own[LHI_FRAME_MAC_BYTES];
    lhi_frame_mac_end(s, own);
    return !s->broken && CRYPTO_memcmp(own, is, sizeof own) == 0;
}

#else

lh_status lhi_frame_mac_make(const unsigned char key[LHI_FRAME_MAC_KEY_BYTES],
                             bool upwards, lhi_frame_mac **out, lh_error *err)
{
    (void)key, (void)upwards, (void)out;
    return lhi_fail(err, LH_EUNSUPPORTED,
                    "this build has no OpenSSL (libssl-dev)");
}

/* Does nothing: a build without OpenSSL makes no MAC state. */
void lhi_frame_mac_free(lhi_frame_mac *seal)
{
    (void)seal;
}

void lhi_frame_mac_begin(lhi_frame_mac *seal, lhi_frame_mac_part part)
{
    (void)seal, (void)part;
}

void lhi_frame_mac_add(lhi_frame_mac *seal, const void *bytes, size_t n)
{
    (void)seal, (void)bytes, (void)n;
}

void lhi_frame_mac_end(lhi_frame_mac *seal,
                       unsigned char out[LHI_FRAME_MAC_BYTES])
{
    (void)seal;
    memset(out, 0, LHI_FRAME_MAC_BYTES);
}

bool lhi_frame_mac_verify(lhi_frame_mac *seal,
                          const unsigned char is[LHI_FRAME_MAC_BYTES])
{
    (void)seal, (void)is;
    return false;
}

#endif
