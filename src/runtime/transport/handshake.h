/* SPDX-License-Identifier: Apache-2.0 */
/* Handshake between ranks that were not forked together: the messages before
 * the first frame (docs/formats/wire.md) and their authentication. Encoding and
 * checking only, no I/O. */
#ifndef LHI_RUNTIME_TRANSPORT_HANDSHAKE_H
#define LHI_RUNTIME_TRANSPORT_HANDSHAKE_H

#include <longhaul/status.h>

#include <stdbool.h>
#include <stdint.h>

/* Kinds of handshake messages. */
typedef enum lhi_handshake_kind {
    LHI_HANDSHAKE_HELLO = 1, /* client's identity */
    LHI_HANDSHAKE_CHALLENGE, /* server's challenge */
    LHI_HANDSHAKE_PROOF,     /* client's proof */
    LHI_HANDSHAKE_WELCOME,   /* server's proof */
    LHI_HANDSHAKE_REFUSE,    /* rejected; text follows */
    LHI_HANDSHAKE_TABLE,     /* all ranks' listening addresses follow */
    LHI_HANDSHAKE_READY,     /* connected to all ranks */
    LHI_HANDSHAKE_GO,        /* all ranks are ready */
    LHI_HANDSHAKE_RAILS,     /* sender's rail addresses follow */
    LHI_HANDSHAKE_RAIL       /* like HELLO, for a rail connection */
} lhi_handshake_kind;

enum {
    LHI_MAX_RAILS = 8,
    LHI_HANDSHAKE_BYTES = 192,
    LHI_NONCE_BYTES = 32,
    LHI_MAC_BYTES = 32,
    LHI_REFUSAL_BYTES = 400,
    LHI_ADDRESS_BYTES = 18 /* IPv6 or mapped IPv4, port (big-endian) */
};

/* Options that an error can name if ranks differ in them: identifier, name. */
#define LHI_SETUP_OPTION_LIST(X)                                               \
    X(DEVICE, "--device")                                                      \
    X(STEPS, "--steps")                                                        \
    X(RATE, "--rate")                                                          \
    X(SILENCE, "--silence")                                                    \
    X(MAX_RESTARTS, "--max-restarts")                                          \
    X(CLIP, "--clip")                                                          \
    X(SEED, "--seed")                                                          \
    X(WEIGHT_DECAY, "--weight-decay")                                          \
    X(WARMUP, "--warmup")                                                      \
    X(VALIDATION, "--validation")                                              \
    X(VALIDATION_DATA, "--validation-data")                                    \
    X(VALIDATE_EVERY, "--validate-every")                                      \
    X(CHECKPOINT, "--checkpoint")                                              \
    X(CHECKPOINT_EVERY, "--checkpoint-every")                                  \
    X(KEEP, "--keep")                                                          \
    X(RESUME, "--resume")                                                      \
    X(WEIGHTS, "--weights")                                                    \
    X(OVERRIDE, "--override")                                                  \
    X(FRESH, "--fresh")                                                        \
    X(ADAPT, "--adapt")                                                        \
    X(DELAYED_UPDATE, "--delayed-update")                                      \
    X(MIN_RATE, "--min-rate")                                                  \
    X(RATE_DECAY, "--rate-decay")                                              \
    X(DECAY_STEPS, "--decay-steps")                                            \
    X(BETA1, "--beta1")                                                        \
    X(BETA2, "--beta2")                                                        \
    X(EPSILON, "--epsilon")                                                    \
    X(FORMAT, "--format")                                                      \
    X(RECEIVES, "--receives")                                                  \
    X(COUPLED, "--coupled")                                                    \
    X(MESSAGE_BYTES, "--message-bytes")                                        \
    X(EMULATE_LINKS, "--emulate-links or --real-links")                        \
    X(PROFILE_OUT, "--profile-out")                                            \
    X(MEMORY, "--memory")                                                      \
    X(EVENTS, "--events")

/* Index of a named option. */
typedef enum lhi_setup_option {
#define LHI_SETUP_OPTION_ENUM(id, name) LHI_SETUP_##id,
    LHI_SETUP_OPTION_LIST(LHI_SETUP_OPTION_ENUM)
#undef LHI_SETUP_OPTION_ENUM
        LHI_SETUP_NAMED
} lhi_setup_option;

/* Digest of everything that must be equal on all ranks: the first bytes of
 * SHA-256 over the plan without its schedule, over the schedule, over all
 * options and over the data, at these offsets; then one byte for each named
 * option, the first of SHA-256 over its value; the hash of the ranks per host,
 * 0 if it is unknown; zeros. */
enum {
    LHI_SETUP_PART_BYTES = 6,
    LHI_SETUP_SCHEDULE_AT = LHI_SETUP_PART_BYTES,
    LHI_SETUP_OPTIONS_AT = 2 * LHI_SETUP_PART_BYTES,
    LHI_SETUP_DATA_AT = 3 * LHI_SETUP_PART_BYTES,
    LHI_SETUP_NAMED_AT = 4 * LHI_SETUP_PART_BYTES,
    LHI_SETUP_HOSTS_AT = LHI_SETUP_NAMED_AT + LHI_SETUP_NAMED,
    LHI_SETUP_HOSTS_BYTES = 4,
    LHI_SETUP_BYTES = 64
};
/* Value of all bytes in place of the digest, from a rank that connects only to
 * send why it does not join: it has failed before it knew its setup, or it was
 * stopped. */
enum { LHI_SETUP_FAILED = 0, LHI_SETUP_STOPPED = 0xff };
_Static_assert(LHI_SETUP_HOSTS_AT + LHI_SETUP_HOSTS_BYTES <= LHI_SETUP_BYTES,
               "the digest has all parts");

/* A handshake message. */
typedef struct lhi_handshake_message {
    lhi_handshake_kind kind;
    uint32_t rank, n_ranks; /* sender's */
    uint32_t port;          /* HELLO: listening port; RAIL: rail number */
    uint32_t more;          /* bytes that follow */
    uint32_t n_rails;       /* HELLO: sender's rails; 0: none */
    unsigned char nonce[LHI_NONCE_BYTES];
    unsigned char mac[LHI_MAC_BYTES];
    unsigned char job[32];                /* digest of the job's name */
    unsigned char setup[LHI_SETUP_BYTES]; /* PROOF: digest of the setup */
} lhi_handshake_message;

/* Encodes a handshake message (kind, rank, job and nonces) of a new connection
 * into `out`. */
void lhi_handshake_write(const lhi_handshake_message *hello,
                         unsigned char out[LHI_HANDSHAKE_BYTES]);
/* Encodes a REFUSE message with the reason `why`, of which it includes at most
 * LHI_REFUSAL_BYTES, into `out`; returns the number of bytes. */
size_t lhi_handshake_write_refusal(
    lhi_handshake_message h, const char *why,
    unsigned char out[LHI_HANDSHAKE_BYTES + LHI_REFUSAL_BYTES]);
/* Decodes a handshake message (kind, rank, job and nonces) of a new connection.
 * LH_EIO: invalid; `err` names the field. */
lh_status lhi_handshake_read(const unsigned char in[LHI_HANDSHAKE_BYTES],
                             lhi_handshake_message *out, lh_error *err);

/* Both sides' values in a handshake, filled as they become known. */
typedef struct lhi_handshake {
    uint32_t client, server, n_ranks, port;
    unsigned char client_nonce[LHI_NONCE_BYTES];
    unsigned char server_nonce[LHI_NONCE_BYTES];
    unsigned char job[32];
} lhi_handshake;

/* Checks whether this build can authenticate (has OpenSSL). */
bool lhi_handshake_can_authenticate(void);
/* Computes SHA-256; zeros in a build without OpenSSL. */
void lhi_compute_sha256(const void *bytes, size_t n, unsigned char out[32]);
/* Describes the first difference of two setups' digests, such as "another plan"
 * or "another --steps"; NULL: equal. Hosts that one does not know are no
 * difference. */
const char *lhi_setup_find_difference(const unsigned char a[LHI_SETUP_BYTES],
                                      const unsigned char b[LHI_SETUP_BYTES]);
/* Computes the digest of the job's name, by which connections from other jobs
 * are recognised. */
void lhi_compute_job_digest(const char *job, unsigned char out[32]);
/* Fills `out` with random bytes; false: none available. */
bool lhi_random_bytes(void *out, size_t size);
/* Computes the HMAC-SHA-256 with the key `secret` over the label, the
 * handshake's values and the `n` bytes `more`. */
void lhi_handshake_compute_mac(const void *secret, size_t secret_size,
                               const char *label,
                               const lhi_handshake *handshake, const void *more,
                               size_t n, unsigned char out[LHI_MAC_BYTES]);
/* Compares two MACs in time that does not depend on their contents; true:
 * equal. */
bool lhi_mac_equals(const unsigned char a[LHI_MAC_BYTES],
                    const unsigned char b[LHI_MAC_BYTES]);

/* Length of the longest label. */
enum { LHI_LABEL_BYTES = 16 };

#endif
