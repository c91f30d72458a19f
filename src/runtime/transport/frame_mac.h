/* SPDX-License-Identifier: Apache-2.0 */
/* Message authentication for a connection's frames: detects any modification,
 * omission, repetition or reordering. A MAC is an AES-256-GMAC tag (NIST SP
 * 800-38D) over a part of a frame, under a key from the handshake. Its nonce
 * consists of the direction, the frame's number in that direction, and the
 * part. Nothing is encrypted. */
#ifndef LHI_RUNTIME_TRANSPORT_FRAME_MAC_H
#define LHI_RUNTIME_TRANSPORT_FRAME_MAC_H

#include <longhaul/status.h>

#include <stdbool.h>
#include <stdint.h>

/* Bytes of a frame's authentication code, and of its key. */
enum { LHI_FRAME_MAC_BYTES = 16, LHI_FRAME_MAC_KEY_BYTES = 32 };

typedef struct lhi_frame_mac lhi_frame_mac; /* one direction of a connection */

/* Creates the state for MACs (authentication codes) of the frames in one
 * direction of a connection; `upwards`: from the lower to the higher rank.
 * LH_EUNSUPPORTED: this build has no OpenSSL. */
lh_status lhi_frame_mac_make(const unsigned char key[LHI_FRAME_MAC_KEY_BYTES],
                             bool upwards, lhi_frame_mac **out, lh_error *err);
/* Frees a MAC state; NULL is allowed. */
void lhi_frame_mac_free(lhi_frame_mac *seal);

/* Parts of a frame. */
typedef enum lhi_frame_mac_part {
    LHI_FRAME_MAC_HEADER, /* starts the next frame */
    LHI_FRAME_MAC_PAYLOAD,
    LHI_FRAME_MAC_VOID /* rather than the payload's: the sender cancelled it */
} lhi_frame_mac_part;

/* Starts the MAC (authentication code) of a frame's header or payload. It
 * covers the bytes added until lhi_frame_mac_end(). */
void lhi_frame_mac_begin(lhi_frame_mac *seal, lhi_frame_mac_part part);
/* Adds `n` bytes to the MAC that was started last. */
void lhi_frame_mac_add(lhi_frame_mac *seal, const void *bytes, size_t n);
/* Ends the MAC (authentication code) and stores it in `out`. */
void lhi_frame_mac_end(lhi_frame_mac *seal,
                       unsigned char out[LHI_FRAME_MAC_BYTES]);
/* Ends the MAC (authentication code), and returns whether it equals `is`, the
 * received one. */
bool lhi_frame_mac_verify(lhi_frame_mac *seal,
                          const unsigned char is[LHI_FRAME_MAC_BYTES]);

#endif
