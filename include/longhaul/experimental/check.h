/* SPDX-License-Identifier: Apache-2.0 */
/* Checks every statement in a certificate of optimality.
 *
 * Experimental: may change in any release, see longhaul.h. */
#ifndef LONGHAUL_EXPERIMENTAL_CHECK_H
#define LONGHAUL_EXPERIMENTAL_CHECK_H

#include <longhaul/check.h>
#include <longhaul/experimental/certificate.h>
#include <longhaul/pipeline.h>
#include <longhaul/schedule.h>
#include <longhaul/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Checks a schedule as lh_check() does, for a transport that buffers up to
 * `buffers` messages per pair of devices: a send waits only if all are in use.
 * 0: as lh_check(). */
LH_API lh_status lh_check_buffered(const lh_pipeline *pipeline,
                                   const lh_schedule *schedule,
                                   uint32_t buffers, lh_verdict **out,
                                   lh_error *err);

/* --- certificates -------------------------------------------------------- */

/* One claim's status in a certificate. */
typedef enum lh_claim_status {
    LH_CLAIM_VERIFIED,
    LH_CLAIM_UNVERIFIED, /* plausible, but beyond the verifier's methods */
    LH_CLAIM_WRONG,      /* contradicts the verifier's result */
} lh_claim_status;

typedef struct lh_claims lh_claims;

/* Checks every statement in a certificate with the verifier's own arithmetic
 * and reasoning. `schedule` (may be NULL) replaces the certificate's schedule
 * as the one claimed optimal. Returns LH_OK for any verdict; a proof that needs
 * too much work is LH_CLAIM_UNVERIFIED. Release with lh_claims_free(). */
LH_API lh_status lh_check_certificate(const lh_pipeline *pipeline,
                                      const lh_schedule *schedule,
                                      const lh_certificate *certificate,
                                      lh_claims **out, lh_error *err);
LH_API void lh_claims_free(lh_claims *claims); /* frees; NULL is a no-op */
/* Returns the claim count, the statements about the certificate. */
LH_API uint32_t lh_n_claims(const lh_claims *claims);
/* Returns claim number i's status: verified, unverified or wrong. */
LH_API lh_claim_status lh_claims_status(const lh_claims *claims, uint32_t i);
/* Returns claim number i's text, a sentence; borrowed. */
LH_API const char *lh_claims_text(const lh_claims *claims, uint32_t i);
/* Returns the worst status over all claims. LH_CLAIM_VERIFIED means that the
 * schedule is optimal. */
LH_API lh_claim_status lh_claims_verdict(const lh_claims *claims);
/* Returns a claim's status name, such as verified or refuted; static
 * storage. */
LH_API const char *lh_claim_status_name(lh_claim_status status);

#ifdef __cplusplus
}
#endif
#endif
