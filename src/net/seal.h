/* SPDX-License-Identifier: Apache-2.0 */
/* Seals of what goes over a connection: nothing of it can be changed, left out,
 * repeated or put elsewhere without being noticed. A seal is a tag of
 * AES-256-GMAC (NIST SP 800-38D) under a key that both ends have from their
 * handshake, over the bytes of a part of a frame; its nonce is the direction,
 * the frame's number in it, and which part it is. Nothing is encrypted. */
#ifndef LHI_SEAL_H
#define LHI_SEAL_H

#include <longhaul/status.h>

#include <stdbool.h>
#include <stdint.h>

enum { LHI_SEAL_BYTES = 16, LHI_SEAL_KEY_BYTES = 32 };

typedef struct lhi_seal lhi_seal; /* of one direction of a connection */

/* `upwards`: of what goes from the lower rank to the higher one.
 * LH_EUNSUPPORTED: this build has no OpenSSL. */
lh_status lhi_seal_make(const unsigned char key[LHI_SEAL_KEY_BYTES],
                        bool upwards, lhi_seal **out, lh_error *err);
void lhi_seal_free(lhi_seal *seal); /* NULL is fine */

typedef enum lhi_seal_part {
    LHI_SEAL_HEADER, /* of the next frame */
    LHI_SEAL_PAYLOAD,
    LHI_SEAL_VOID /* in place of the payload's: its sender broke it off */
} lhi_seal_part;

/* The seal of a part: of the bytes that are added between begin and end. */
void lhi_seal_begin(lhi_seal *seal, lhi_seal_part part);
void lhi_seal_add(lhi_seal *seal, const void *bytes, size_t n);
void lhi_seal_end(lhi_seal *seal, unsigned char out[LHI_SEAL_BYTES]);
/* Instead of end: whether it is that one. */
bool lhi_seal_is(lhi_seal *seal, const unsigned char is[LHI_SEAL_BYTES]);

#endif
