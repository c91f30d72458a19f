/* SPDX-License-Identifier: Apache-2.0 */
/* Message authentication for a connection's frames: detects any modification,
 * omission, repetition or reordering. A MAC is an AES-256-GMAC tag (NIST SP
 * 800-38D) over a part of a frame, under a key from the handshake. Its nonce
 * consists of the direction, the frame's number in that direction, and the
 * part. Nothing is encrypted. */
#ifndef LHI_SEAL_H
#define LHI_SEAL_H

#include <longhaul/status.h>

#include <stdbool.h>
#include <stdint.h>

enum { LHI_SEAL_BYTES = 16, LHI_SEAL_KEY_BYTES = 32 };

typedef struct lhi_seal lhi_seal; /* one direction of a connection */

/* Creates the MAC state for one direction; `upwards`: from the lower to the
 * higher rank. LH_EUNSUPPORTED: this build has no OpenSSL. */
lh_status lhi_seal_make(const unsigned char key[LHI_SEAL_KEY_BYTES],
                        bool upwards, lhi_seal **out, lh_error *err);
void lhi_seal_free(lhi_seal *seal); /* NULL is allowed */

/* Parts of a frame. */
typedef enum lhi_seal_part {
    LHI_SEAL_HEADER, /* starts the next frame */
    LHI_SEAL_PAYLOAD,
    LHI_SEAL_VOID /* instead of the payload's: the sender cancelled it */
} lhi_seal_part;

/* Starts the MAC of a frame's part. It covers the bytes added until
 * lhi_frame_mac_end(). */
void lhi_seal_begin(lhi_seal *seal, lhi_seal_part part);
/* Adds bytes to the MAC. */
void lhi_seal_add(lhi_seal *seal, const void *bytes, size_t n);
/* Ends the MAC and returns it. */
void lhi_seal_end(lhi_seal *seal, unsigned char out[LHI_SEAL_BYTES]);
/* Ends the MAC and compares it with the received one. */
bool lhi_seal_is(lhi_seal *seal, const unsigned char is[LHI_SEAL_BYTES]);

#endif
